/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries: which file wins, which is not found, who owns it; text in, codes out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rows.h"

static void test_a_library_that_is_not_found(void **state)
{
    static const struct row rows[] = {
        { "vLLM",
                "INFO 04-22 08:00:00 utils.py:581] Found nccl from library "
                "libnccl.so.2\n"
                "ERROR 04-22 08:00:00 pynccl.py:44] Failed to load NCCL library from "
                "libnccl.so.2 .It is expected if you are not running on NVIDIA/AMD "
                "GPUs.\n",
                "LIB_NOT_FOUND", "LIB_OLDER_THAN_CALLER UNDETERMINED", "libnccl.so.2" },
        { "the loader of a program",
                "./ar: error while loading shared libraries: librccl.so.1: cannot open "
                "shared object file: No such file or directory\n",
                "LIB_NOT_FOUND", "", "librccl.so.1" },
        { "ldd",
                "$ ldd ./ar\n\tlibrccl.so.1 => not found\n\tlibc.so.6 => "
                "/lib/libc.so.6 (0x7f)\n",
                "LIB_NOT_FOUND", "LIB_MULTIPLE_COPIES", "librccl.so.1" },
        { "a list of tries",
                "error: RCCL library not found, tried:\n"
                "  /nix/store/aa-rocm-merged/lib/librccl.so.1\n"
                "  /nix/store/aa-rocm-merged/lib/librccl.so\n  librccl.so.1\n"
                "$ find /nix/store -name 'librccl.so*'\n"
                "/nix/store/bb-rccl-6.3.1/lib/librccl.so.1.0\n",
                "LIB_NOT_FOUND", "LIB_MULTIPLE_COPIES", "/nix/store/bb-rccl-6.3.1" },
        { "system calls",
                "openat(AT_FDCWD, \"/opt/rocm/lib/librccl.so.1\", O_RDONLY|O_CLOEXEC) "
                "= -1 "
                "ENOENT (No such file or directory)\n"
                "openat(AT_FDCWD, \"/usr/lib/librccl.so.1\", O_RDONLY|O_CLOEXEC) = -1 "
                "ENOENT "
                "(No such file or directory)\n",
                "LIB_NOT_FOUND", "", "librccl.so.1" },
        { "system calls with a hit",
                "openat(AT_FDCWD, \"/opt/rocm/lib/librccl.so.1\", O_RDONLY|O_CLOEXEC) "
                "= -1 "
                "ENOENT (No such file or directory)\n"
                "openat(AT_FDCWD, \"/usr/lib/librccl.so.1\", O_RDONLY|O_CLOEXEC) = 3\n",
                "", "LIB_NOT_FOUND", NULL },
        { "a plugin is not the library",
                "n1:5:9 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so\n"
                "n1:5:9 [0] NCCL INFO NET/Plugin : dlerror=librccl-net.so: cannot open "
                "shared object file: No such file or directory\n",
                "", "LIB_NOT_FOUND UNDETERMINED", NULL },
        { "the second name is found",
                "rccl: tried librccl.so: cannot open shared object file: No such file "
                "or directory\nrccl: tried librccl.so.1: ok\n",
                "", "LIB_NOT_FOUND UNDETERMINED", NULL },
        { "a pattern of ls without a file",
                "$ ls /opt/rocm/lib/librccl.so*\nls: cannot access "
                "'/opt/rocm/lib/librccl.so*': No such file or directory\n",
                "", "LIB_NOT_FOUND LIB_MULTIPLE_COPIES", NULL },
        { "cmake looks for the headers",
                "-- Could NOT find NCCL (missing: NCCL_INCLUDE_DIR NCCL_LIBRARY)\n", "",
                "LIB_NOT_FOUND", NULL },
    };

    (void)state;
    CHECK(rows);
}

static void test_a_library_that_is_too_old(void **state)
{
    static const struct row rows[] = {
        { "LD_PRELOAD wins over ldd",
                "$ ldd app\n\tlibnccl.so.2 => /usr/lib/x86_64-linux-gnu/libnccl.so.2 "
                "(0x7f)\n"
                "$ LD_PRELOAD=/opt/old/libnccl.so.2 python t.py\n"
                "python: symbol lookup error: /v/torch/lib/libtorch_cuda.so: undefined "
                "symbol: ncclCommRegister\n",
                "LIB_OLDER_THAN_CALLER", "LIB_NOT_FOUND", "/opt/old/libnccl.so.2" },
        { "the library itself is named",
                "AttributeError: /usr/lib/libnccl.so.2: undefined symbol: "
                "ncclCommWindowRegister\n",
                "LIB_OLDER_THAN_CALLER", "LIB_NOT_FOUND", "2.27" },
        { "nothing tells the file",
                "ImportError: /v/torch/lib/libtorch_cuda.so: undefined symbol: "
                "ncclAlltoAll\n",
                "LIB_OLDER_THAN_CALLER", "LIB_TWO_WHEELS", "ncclAlltoAll" },
        { "versions of a plugin are tried",
                "n1:5:9 [0] NCCL INFO NET/Plugin: dlerror=/x/libnccl-net.so: undefined "
                "symbol: ncclCollNetPlugin_v10\n",
                "", "LIB_OLDER_THAN_CALLER UNDETERMINED", NULL },
        { "another library's symbol",
                "ImportError: x.so: undefined symbol: _ZN3c105ErrorC1E\n", "",
                "LIB_OLDER_THAN_CALLER", NULL },
        { "maps say what is in the process",
                "ImportError: /v/libtorch_cuda.so: undefined symbol: ncclCommSplit\n"
                "$ cat /proc/7/maps\n7f00-7f01 r-xp 00000000 fd:01 12 "
                "/opt/hpc/lib/libnccl.so.2.16.5\n",
                "LIB_OLDER_THAN_CALLER", "", "/opt/hpc/lib/libnccl.so.2.16.5" },
    };

    (void)state;
    CHECK(rows);
}

static void test_packages_that_own_one_file(void **state)
{
    static const struct row rows[] = {
        { "pip list, 12 and 13",
                "Package            Version\n------------------ -------\n"
                "nvidia-nccl-cu12   2.27.3\nnvidia-nccl-cu13   2.28.9\n",
                "LIB_TWO_WHEELS", "LIB_MULTIPLE_COPIES", "nvidia-nccl-cu13" },
        { "two environments, one each",
                "$ a/bin/pip list\nnvidia-nccl-cu11 2.14.3\n$ b/bin/pip list\n"
                "nvidia-nccl-cu12 2.27.3\n",
                "", "LIB_TWO_WHEELS", NULL },
        { "folders of one place",
                "$ find / -name '*nccl*.dist-info'\n"
                "/v/site-packages/nvidia_nccl_cu11-2.14.3.dist-info\n"
                "/v/site-packages/nvidia_nccl_cu12-2.27.3.dist-info\n",
                "LIB_TWO_WHEELS", "", "cu11" },
        { "folders of two places",
                "$ find / -name '*nccl*.dist-info'\n"
                "/v/site-packages/nvidia_nccl_cu11-2.14.3.dist-info\n"
                "/w/site-packages/nvidia_nccl_cu12-2.27.3.dist-info\n",
                "", "LIB_TWO_WHEELS", NULL },
        { "pip show, one place",
                "$ pip show nvidia-nccl-cu11\nName: nvidia-nccl-cu11\nVersion: 2.14.3\n"
                "Location: /v/site-packages\n$ pip show nvidia-nccl-cu12\n"
                "Name: nvidia-nccl-cu12\nVersion: 2.27.3\nLocation: /v/site-packages\n",
                "LIB_TWO_WHEELS", "", NULL },
        { "pip list as JSON, in one line",
                "[{\"name\": \"nvidia-nccl-cu11\", \"version\": \"2.14.3\"}, "
                "{\"name\": "
                "\"nvidia-nccl-cu12\", \"version\": \"2.21.5\"}]\n",
                "LIB_TWO_WHEELS", "", "nvidia-nccl-cu11 2.14.3" },
        { "a plan is no installation",
                "$ cat requirements.txt\nnvidia-nccl-cu11==2.14.3\n"
                "nvidia-nccl-cu12==2.27.3\n",
                "", "LIB_TWO_WHEELS", NULL },
        { "one, twice in the text",
                "$ pip list\nnvidia-nccl-cu12 2.27.3\n$ pip list\nnvidia-nccl-cu12 "
                "2.27.3\n",
                "", "LIB_TWO_WHEELS", NULL },
    };

    (void)state;
    CHECK(rows);
}

static void test_several_files_of_one_name(void **state)
{
    static const struct row rows[] = {
        { "names of one file",
                "$ ls -l /opt/rocm/lib\n"
                "lrwxrwxrwx 1 root root 12 Jul 15 10:01 librccl.so -> librccl.so.1\n"
                "lrwxrwxrwx 1 root root 16 Jul 15 10:01 librccl.so.1 -> "
                "librccl.so.1.0.6\n"
                "-rw-r--r-- 1 root root 413 Jul 15 10:01 librccl.so.1.0.6\n",
                "NO_FINDING", "LIB_MULTIPLE_COPIES", NULL },
        { "find without a type",
                "$ find / -name 'librccl.so*'\n/opt/rocm-6.4.0/lib/librccl.so\n"
                "/opt/rocm-6.4.0/lib/librccl.so.1\n/opt/rocm-6.4.0/lib/"
                "librccl.so.1.0.60400\n"
                "/opt/rocm/lib/librccl.so.1.0.60400\n",
                "NO_FINDING", "LIB_MULTIPLE_COPIES", NULL },
        { "a wheel beside a package",
                "$ find / -name 'libnccl.so*'\n/usr/lib/x86_64-linux-gnu/libnccl.so.2\n"
                "/usr/lib/x86_64-linux-gnu/libnccl.so.2.18.3\n"
                "/v/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2\n"
                "$ lsof -p 7\npython 7 u mem REG 8,1 1 2 "
                "/usr/lib/x86_64-linux-gnu/libnccl.so.2.18.3\n",
                "LIB_MULTIPLE_COPIES", "LIB_TWO_WHEELS", "libnccl.so.2.18.3" },
        { "one on each of two machines",
                "a@n1:~$ find / -name 'librccl.so*' -type "
                "f\n/opt/rocm-6/lib/librccl.so.1.0.1\n"
                "a@n2:~$ find / -name 'librccl.so*' -type "
                "f\n/srv/rocm/lib/librccl.so.1.0.2\n",
                "NO_FINDING", "LIB_MULTIPLE_COPIES", NULL },
        { "one on each of two hosts of pdsh",
                "$ pdsh -w n[1-2] find /opt -name 'librccl.so*' -type f\n"
                "n1: /opt/rocm-6.3.0/lib/librccl.so.1.0.60300\n"
                "n2: /opt/rocm-6.4.1/lib/librccl.so.1.0.60401\n",
                "NO_FINDING", "LIB_MULTIPLE_COPIES", NULL },
        { "two in one container",
                "$ docker exec box find / -name 'librccl.so*' -type f\n"
                "/opt/rocm-7.0.0/lib/librccl.so.1.0.70000\n"
                "/v/lib/python3.12/site-packages/torch/lib/librccl.so\n",
                "LIB_MULTIPLE_COPIES", "", "site-packages/torch" },
        { "one in a container, one outside",
                "$ find / -name 'librccl.so*' -type "
                "f\n/opt/rocm-6/lib/librccl.so.1.0.1\n"
                "$ docker exec -it box find / -name 'librccl.so*' -type f\n"
                "/srv/rocm/lib/librccl.so.1.0.2\n",
                "NO_FINDING", "LIB_MULTIPLE_COPIES", NULL },
    };

    (void)state;
    CHECK(rows);
}

static void test_what_only_explains(void **state)
{
    static const struct row rows[] = {
        { "package variable against the answer of the library",
                "NV_LIBNCCL_PACKAGE=libnccl2=2.15.5-1+cuda11.8\n"
                "$ python -c 'import torch; print(torch.cuda.nccl.version())'\n(2, 19, "
                "3)\n",
                "NO_FINDING LIB_IMAGE_ENV_MISLEADS", "VERSION_MISMATCH_ACROSS_RANKS",
                "NV_LIBNCCL_PACKAGE" },
        { "a version code", "NCCL_VERSION=2.15.5-1\nncclGetVersion: 21903\n",
                "LIB_IMAGE_ENV_MISLEADS", "", "2.19.3" },
        { "they agree", "NCCL_VERSION=2.19.3-1\nncclGetVersion: 21903\n", "NO_FINDING",
                "LIB_IMAGE_ENV_MISLEADS", NULL },
        { "no library in the program",
                "$ nm -D build/libggml-cuda.so | grep -ci nccl\n0\n"
                "$ NCCL_P2P_LEVEL=SYS ./llama-server -m x.gguf\n",
                "NO_FINDING LIB_NOT_LINKED", "LIB_NOT_FOUND", NULL },
        { "lines counted by wc, the setting in a Dockerfile",
                "$ strings app/libggml-cuda.so | grep -i nccl | wc -l\n0\n"
                "$ cat Dockerfile\nENV NCCL_P2P_DISABLE 1\n",
                "NO_FINDING LIB_NOT_LINKED", "LIB_NOT_FOUND", NULL },
        { "one backend has it",
                "$ nm -D build/a.so | grep -ci nccl\n0\n$ nm -D build/b.so | grep -ci "
                "nccl\n12\n$ NCCL_P2P_LEVEL=SYS ./llama-server -m x.gguf\n",
                "", "LIB_NOT_LINKED", NULL },
        { "nothing is tried", "$ nm -D build/libggml-cuda.so | grep -ci nccl\n0\n",
                "NO_FINDING", "LIB_NOT_LINKED", NULL },
        { "a count in the library itself",
                "$ nm -D /opt/x/libnccl.so.2 | grep -c ncclCommSplit\n0\n"
                "$ NCCL_DEBUG=INFO ./a\n",
                "", "LIB_NOT_LINKED", NULL },
    };

    (void)state;
    CHECK(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_library_that_is_not_found),
        cmocka_unit_test(test_a_library_that_is_too_old),
        cmocka_unit_test(test_packages_that_own_one_file),
        cmocka_unit_test(test_several_files_of_one_name),
        cmocka_unit_test(test_what_only_explains),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
