#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# make check-torch: the c10d backend and the bridge, with the PyTorch named here in a
# virtual environment of its own under build/torch. A second run downloads nothing.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=scripts/lib-python.sh
. scripts/lib-python.sh

readonly torch=2.13.0
readonly venv=build/torch/venv

# install_torch: the CPU build is enough, and where an index has only that of CUDA, that.
install_torch() {
    "$venv/bin/python" -c "import expecttest, numpy, torch; assert torch.__version__.split('+')[0] == '$torch'" 2>/dev/null && return
    say "installing PyTorch $torch"
    venv_pip "$venv" install "torch==$torch" numpy expecttest ||
        die "PyTorch $torch could not be installed into $venv: pip's words are above"
}

# The backend is compiled once for each wheel; a new one replaces the folder it lies in.
build_backend() {
    local words

    words="$torch $(cat "$venv/.wheel")"
    [ "$(cat "$venv/.backend" 2>/dev/null)" != "$words" ] || return 0
    rm -f "$venv/.backend"
    say "building the backend"
    (cd build/torch && "$OLDPWD/$venv/bin/python" -m motet.torch build)
    printf '%s\n' "$words" >"$venv/.backend"
}

scripts/deps.sh torch
python_ready || die "no python3 of 3.9 or later that can make a virtual environment"
begin=$SECONDS
make_venv "$venv"
install_torch
install_wheel "$venv"
build_backend
say "ready after $((SECONDS - begin)) s"
python_tests build/torch torch
