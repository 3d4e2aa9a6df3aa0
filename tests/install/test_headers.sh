#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_headers.sh SOURCE CC [CXX]
# Every public header compiles by itself, alone on the path, in every language that it
# promises, with warnings as errors; also with CUDA's or HIP's headers before it, found
# by it, after it, or kept away.
set -euo pipefail

source=$1
cc=$2
cxx=${3:-}
headers=(nccl.h motet.h rccl.h rccl/rccl.h)
flags=(-pedantic -Wall -Wextra -Werror -Wno-unused-macros -fsyntax-only)
fake=$source/tests/install/fake
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cases=0

# compile FILE COMPILER FLAGS...
compile() {
    local file=$1
    shift
    if ! "$@" "${flags[@]}" -I"$source/include" "$file"; then
        echo "FAIL: $* $(basename "$file"):" >&2
        cat "$file" >&2
        exit 1
    fi
    cases=$((cases + 1))
}

# each_language STEM FLAGS...: STEM.c and STEM.cc exist
each_language() {
    local stem=$work/$1 std
    shift
    for std in c99 c11 c17; do
        compile "$stem.c" "$cc" -std=$std "$@"
    done
    if [[ -n $cxx ]]; then
        for std in c++11 c++17 c++20; do
            compile "$stem.cc" "$cxx" -std=$std "$@"
        done
    fi
}

# put STEM LINE...
put() {
    local stem=$work/$1
    shift
    printf '%s\n' "$@" >"$stem.c"
    cp "$stem.c" "$stem.cc"
}

for header in "${headers[@]}"; do
    put alone "#include <$header>"
    each_language alone
    each_language alone -DMOTET_NO_CUDA_HEADERS
done

# RCCL's folder itself on the path.
put folder '#include "rccl.h"'
each_language folder -I"$source/include/rccl"

put initializers '#include <motet.h>' 'int use(void);' 'int use(void)' '{' \
    '    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;' \
    '    ncclCollConfig_t call = NCCL_COLLCONFIG_INITIALIZER;' \
    '    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;' \
    '    motet_comm_info_t comm = MOTET_COMM_INFO_INITIALIZER;' \
    '    motet_device_info_t device = MOTET_DEVICE_INFO_INITIALIZER;' \
    '    return config.size + call.size + info.size + comm.size + device.size == 0;' '}'
each_language initializers

put cuda_found '#include <nccl.h>' '#ifndef CUDART_VERSION' \
    '#error "nccl.h did not include the header that it found"' '#endif' \
    'cudaStream_t stream;'
each_language cuda_found -I"$fake"

put cuda_first '#include <cuda_runtime.h>' '#include <nccl.h>' 'cudaStream_t stream;'
each_language cuda_first -I"$fake"
each_language cuda_first -I"$fake" -DMOTET_NO_CUDA_HEADERS

put hip_found '#include <rccl/rccl.h>' '#ifndef HIP_INCLUDE_HIP_HIP_RUNTIME_API_H' \
    '#error "rccl.h did not include the header that it found"' '#endif' \
    'hipStream_t stream;'
each_language hip_found -I"$fake" -D__HIP_PLATFORM_AMD__

put hip_first '#include <hip/hip_runtime_api.h>' '#include <rccl/rccl.h>' \
    '#if !RCCL_ALLTOALLV || !RCCL_ALLREDUCE_WITH_BIAS || !RCCL_GATHER_SCATTER' \
    '#error "feature macros"' '#endif' \
    'hipStream_t stream;' 'ncclDataType_t type = ncclFp8E4M3;'
each_language hip_first -I"$fake"

# motet.h on top of rccl.h takes its stream type.
put motet_on_rccl '#include <rccl/rccl.h>' '#include <motet.h>' \
    'ncclResult_t make(hipStream_t *stream);' \
    'ncclResult_t make(hipStream_t *stream) { return motet_stream_create(stream); }'
each_language motet_on_rccl

# CUDA's headers after ours repeat the typedef: legal in C11 and C++.
put cuda_later '#include <nccl.h>' '#include <cuda_runtime.h>' 'cudaStream_t stream;'
compile "$work/cuda_later.c" "$cc" -std=c11 -I"$fake" -DMOTET_NO_CUDA_HEADERS
if [[ -n $cxx ]]; then
    compile "$work/cuda_later.cc" "$cxx" -std=c++11 -I"$fake" -DMOTET_NO_CUDA_HEADERS
else
    echo "no C++ compiler: C++ was not tried"
fi
echo "headers: $cases compilations"
