/* SPDX-License-Identifier: Apache-2.0 */
/* Device nodes, shared memory, refused launches, images, each in the shapes that tools and
 * launchers give them; and what must not be made of them. */
#include "access.h"
#include "join.h"
#include "rules.h"
#include "judged.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

/* DR_NUM_CODES: none of this family's. */
static const struct vector {
    const char *what, *text;
    enum dr_code code;
    const char *subject; /* part of it, or NULL */
} vectors[] = {
    { "Python's errno",
            "PermissionError: [Errno 13] Permission denied: '/dev/kfd'\n"
            "$ ls -l /dev/kfd\ncrw-rw----. 1 root render 510, 0 Jan  3 11:22 /dev/kfd\n"
            "$ getent group render\nrender:x:105:\n",
            DR_KFD_GROUP_MISSING, "105" },
    { "the group's number",
            "Unable to open /dev/kfd read-write: Permission denied\n"
            "crw-rw---- 1 0 993 235, 0 Feb 7 08:02 /dev/kfd\n",
            DR_KFD_GROUP_MISSING, "993" },
    { "a shell's errno", "bash: /dev/kfd: Operation not permitted\n",
            DR_KFD_CGROUP_DENIED, "/dev/kfd" },
    { "strace, a render node",
            "openat(AT_FDCWD, \"/dev/dri/renderD129\", O_RDWR) = -1 EPERM (Operation "
            "not "
            "permitted)\n",
            DR_KFD_CGROUP_DENIED, "/dev/dri/renderD129" },
    { "a pod's log",
            "2026-01-02T10:00:01.124Z stderr F Unable to open /dev/kfd read-write: "
            "Invalid argument\n",
            DR_KFD_EINVAL, "/dev/kfd" },
    { "a tool of ROCm",
            "ROCk module version 6.7.0 is loaded\n"
            "Unable to open /dev/kfd read-write: No such file or directory\n",
            DR_KFD_NOT_PASSED, "/dev/kfd" },
    { "only ls says it",
            "$ ls -l /dev/kfd\nls: cannot access '/dev/kfd': No such file or "
            "directory\n",
            DR_KFD_NOT_PASSED, "/dev/kfd" },
    { "a machine of another vendor",
            "$ ls /dev/kfd\nls: cannot access '/dev/kfd': No such file or directory\n"
            "3b:00.0 3D controller [0302]: NVIDIA Corporation GA100 [10de:20b5]\n",
            DR_NUM_CODES, NULL },
    { "the group in a format of stat",
            "$ stat -c '%A %u %g %n' /dev/kfd\ncrw-rw---- 0 992 /dev/kfd\n"
            "openat(AT_FDCWD, \"/dev/kfd\", O_RDWR) = -1 EACCES (Permission denied)\n",
            DR_KFD_GROUP_MISSING, "992" },
    { "the group as stat prints it",
            "Unable to open /dev/kfd read-write: Permission denied\n$ stat /dev/kfd\n"
            "Access: (0660/crw-rw----)  Uid: (    0/    root)   Gid: (  110/ "
            "UNKNOWN)\n",
            DR_KFD_GROUP_MISSING, "110" },
    { "a good reader that could not open",
            "head: cannot open '/dev/kfd' for reading: Invalid argument\n",
            DR_KFD_EINVAL, "/dev/kfd" },
    { "as the collector writes it",
            "$ : <>/dev/kfd\nUnable to open /dev/kfd read-write: Invalid argument\n",
            DR_KFD_EINVAL, "/dev/kfd" },
    { "reading a good node", "$ cat /dev/kfd\ncat: /dev/kfd: Invalid argument\n",
            DR_NUM_CODES, NULL },
    { "an attempt to change it",
            "chmod: changing permissions of '/dev/kfd': Operation not "
            "permitted\n",
            DR_NUM_CODES, NULL },
    { "the old words of shared memory",
            "n:77:101 [0] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : "
            "No "
            "space left on device\n"
            "n:77:101 [0] include/shm.h:48 NCCL WARN Error while creating shared "
            "memory "
            "segment nccl-shm-recv-ab12-0-1-0 (size 9637888)\n",
            DR_SHM_TOO_SMALL, "/dev/shm" },
    { "a full disk", "cp: error writing '/data/model.bin': No space left on device\n",
            DR_NUM_CODES, NULL },
    { "registration, with a launcher's prefix",
            "[1,0]<stderr>:g:34:30 [0] misc/shmutils.cc:94 RCCL WARN HIP failure "
            "'invalid "
            "argument'\n"
            "[1,1]<stderr>:g:35:31 [1] RCCL INFO hello\n"
            "[1,0]<stderr>:g:34:30 [0] misc/shmutils.cc:113 RCCL WARN Error while "
            "creating "
            "shared memory segment /dev/shm/nccl-a (size 4784384)\n",
            DR_SHM_REGISTER_FAILED, "34" },
    { "another rank's failure",
            "g:34:30 [0] misc/shmutils.cc:94 NCCL WARN Cuda failure 1 'invalid "
            "argument'\n"
            "g:35:31 [1] misc/shmutils.cc:113 NCCL WARN Error while creating shared "
            "memory "
            "segment /dev/shm/nccl-a (size 4784384)\n",
            DR_NUM_CODES, NULL },
    { "NUMA calls", "(EngineCore_0 pid=123) mbind: Operation not permitted\n",
            DR_NUMA_POLICY_BLOCKED_BENIGN, NULL },
    { "a profile without a number of the error",
            "|   0  GRID A100D-40C   On  |   00000000:02:00.0 Off |\n"
            "vm:1:2 [0] init.cc:99 NCCL WARN Cuda failure 'operation not supported'\n",
            DR_VGPU_UVM_DISABLED, "40C" },
    { "a trace that quotes the error",
            "GPU 0: NVIDIA A100-4-20C (UUID: GPU-1c0a7f22)\n[rank0]: Last error:\n"
            "[rank0]: Cuda failure 801 'operation not supported'\n",
            DR_VGPU_UVM_DISABLED, "20C" },
    { "a card whose name has a dash",
            "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1c0a7f22)\n"
            "vm:1:2 [0] init.cc:362 NCCL WARN Cuda failure 801 'operation not "
            "supported'\n",
            DR_NUM_CODES, NULL },
    { "the thread's own kernel, old log",
            ":3:rocvirtual.cpp :2725: 01 us: 221: [tid:0x7f12] ShaderName : "
            "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)\n"
            ":3:rocvirtual.cpp :2725: 02 us: 221: [tid:0x7f13] ShaderName : "
            "other(void)\n"
            ":1:rocvirtual.cpp :2902: 03 us: 221: [tid:0x7f12] Pcie atomics not "
            "enabled, "
            "hostcall not supported\n",
            DR_HOSTCALL_REFUSED_NO_ATOMICS, "ncclDevKernel_Generic_4" },
    { "two kernels",
            "[plain    ] launch:no error   sync:no error\n[hostcall ] launch:no error  "
            " "
            "sync:the operation cannot be performed in the present state\n",
            DR_HOSTCALL_REFUSED_NO_ATOMICS, NULL },
    { "two good kernels",
            "[plain    ] launch:no error   sync:no error\n[hostcall ] launch:no error  "
            " "
            "sync:no error\n",
            DR_NUM_CODES, NULL },
    { "the library's warning",
            "[2026-08-27 02:11:40] h:11:11 [0] /src/enqueue.cc:2255 NCCL WARN HIP "
            "failure 'the "
            "operation cannot be performed in the present state'\n",
            DR_HOSTCALL_REFUSED_NO_ATOMICS, "device 0" },
    { "the same words from elsewhere",
            "RuntimeError: HIP error: the operation cannot be performed in the present "
            "state\n",
            DR_NUM_CODES, NULL },
    { "an image of the machine's target",
            "  Name:                    gfx1100\n"
            "/opt/rocm/lib/librccl.so.1: gfx1100: 105 kernels, 13 declare a hostcall: "
            "ncclDevKernel_Generic_1\n",
            DR_RCCL_NEEDS_HOSTCALL, "gfx1100" },
    { "two bundles, the first declares",
            "librccl.so: gfx1100: 2 kernels, 1 declare a hostcall: k\n"
            "librccl.so: gfx1100: 1 kernels, 0 declare a hostcall\n",
            DR_RCCL_NEEDS_HOSTCALL, "librccl.so (gfx1100)" },
    { "two bundles, the second declares",
            "librccl.so: gfx1100: 1 kernels, 0 declare a hostcall\n"
            "librccl.so: gfx1100: 2 kernels, 1 declare a hostcall: k\n",
            DR_RCCL_NEEDS_HOSTCALL, "librccl.so (gfx1100)" },
    { "an image of another target",
            "  Name:                    gfx1100\n"
            "/opt/rocm/lib/librccl.so.1: gfx942: 105 kernels, 13 declare a hostcall: "
            "ncclDevKernel_Generic_1\n",
            DR_NUM_CODES, NULL },
    { "an image of the machine's family",
            "  Name:                    gfx1103\n"
            "librccl.so: gfx11-generic: 2 kernels, 1 declare a hostcall: k\n",
            DR_RCCL_NEEDS_HOSTCALL, "librccl.so (gfx11-generic)" },
    { "an image of its family, and one of its own",
            "  Name:                    gfx1100\n"
            "librccl.so: gfx11-generic: 2 kernels, 1 declare a hostcall: k\n"
            "librccl.so: gfx1100: 2 kernels, 0 declare a hostcall\n",
            DR_NUM_CODES, NULL },
    { "an image of another family",
            "  Name:                    gfx1201\n"
            "librccl.so: gfx11-generic: 2 kernels, 1 declare a hostcall: k\n",
            DR_NUM_CODES, NULL },
    { "another library",
            "/opt/torch/lib/libtorch_hip.so: gfx1100: 41407 kernels, 21 declare a "
            "hostcall: "
            "foo\n",
            DR_NUM_CODES, NULL },
    { "a clean count clears",
            "$ llvm-readelf --notes rccl-gfx1100.co | grep -c "
            "hidden_hostcall_buffer\n0\n"
            "$ readelf -SW librccl.so.1\n  [17] .hip_fatbin  NOBITS  0a01000 705000\n",
            DR_NUM_CODES, NULL },
    { "compressed, counted by strings",
            "$ head -c 4 librccl.so.1.fatbin\nCCOB\n"
            "$ strings librccl.so.1.fatbin | grep -c hidden_hostcall_buffer\n0\n",
            DR_RCCL_HOSTCALL_UNKNOWN, NULL },
    { "an image that could not be read",
            "librccl.so: gfx1100: unknown: offset 4096: it ends within the image\n",
            DR_RCCL_HOSTCALL_UNKNOWN, "librccl.so" },
    { "an archive that nobody asked about", "$ ls .kpack\nrccl_lib_gfx1100.kpack\n",
            DR_NUM_CODES, NULL },
};

static const enum dr_code family[] = { DR_HOSTCALL_REFUSED_NO_ATOMICS,
    DR_RCCL_NEEDS_HOSTCALL, DR_RCCL_HOSTCALL_UNKNOWN, DR_PROTO_LL_HANG_GFX12,
    DR_SHM_TOO_SMALL, DR_SHM_REGISTER_FAILED, DR_KFD_NOT_PASSED, DR_KFD_GROUP_MISSING,
    DR_KFD_CGROUP_DENIED, DR_KFD_EINVAL, DR_NUMA_POLICY_BLOCKED_BENIGN,
    DR_VGPU_UVM_DISABLED };

static void check(const struct vector *v)
{
    struct doctor *d = judged(v->text);

    for (size_t i = 0; i < COUNT(family); i++) {
        const struct dr_finding *f = dr_finding_of(d, family[i]);

        if ((f != NULL) != (family[i] == v->code))
            fail_msg("%s: %s is %s", v->what, dr_codes[family[i]].name,
                    f != NULL ? "found" : "missing");
        if (f != NULL && v->subject != NULL && strstr(f->subject, v->subject) == NULL)
            fail_msg("%s: the subject is %s", v->what, f->subject);
    }
    doctor_free(d);
}

static void test_each_shape_gives_its_code_and_no_other(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(vectors); i++)
        check(&vectors[i]);
}

/* ---- the LL protocol on gfx12 ---- */

#define RANK(pid, rank, bus, state)                                            \
    "twin:" #pid ":71 [" #rank "] NCCL INFO ncclCommInitRank comm 0x7f1" #rank \
    " rank " #rank " nranks 2 cudaDev " #rank " nvmlDev " #rank " busId " #bus \
    " commId 0x44 - Init " #state "\n"
#define RUN                                                                       \
    RANK(70, 0, 3000, START)                                                      \
    RANK(80, 1, 18000, START)                                                     \
    "twin:70:71 [0] NCCL INFO RCCL Tuning index:0 GPU arch gfx1201\n" RANK(70, 0, \
            3000, COMPLETE) RANK(80, 1, 18000, COMPLETE)
#define REDUCE(count)                                                               \
    "twin:70:70 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x7f recvbuff 0x7f "    \
    "count " #count                                                                 \
    " datatype 9 op 0 root 0 comm 0x7f10 [nranks=2] stream 0x55 task 0 globalrank " \
    "0\n"
#define BANNER "RCCL version : 2.27.7-HEAD:d47be10\nROCm version : 7.2.1.0-81\n"

static void test_only_the_known_bad_combination_is_named(void **state)
{
    static const struct vector runs[] = {
        { "it spins", BANNER RUN REDUCE(5120) "^C\n", DR_PROTO_LL_HANG_GFX12, NULL },
        { "Simple already",
                BANNER "twin:70:71 [0] NCCL INFO NCCL_PROTO set by environment to "
                       "Simple\n" RUN REDUCE(5120) "^C\n",
                DR_NUM_CODES, NULL },
        { "a large one", BANNER RUN REDUCE(536870912) "^C\n", DR_NUM_CODES, NULL },
        { "an older library",
                "RCCL version : 2.27.7-HEAD:d47be10\nROCm version : 7.1.1.0-38\n" RUN
                        REDUCE(5120) "^C\n",
                DR_NUM_CODES, NULL },
        { "two GPUs at full use and little power",
                BANNER "  Name: gfx1201\nGPU[0]\t\t: GPU use (%): 100\n"
                       "GPU[1]\t\t: GPU use (%): 100\n"
                       "GPU[0]\t\t: Average Graphics Package Power (W): 61.0\n"
                       "GPU[1]\t\t: Average Graphics Package Power (W): 58.0\n",
                DR_PROTO_LL_HANG_GFX12, NULL },
        { "an image for gfx1201 is no card",
                BANNER "libfoo.so: gfx1201: unknown: offset 9: it ends\n"
                       "libfoo.so: gfx1201: 1 kernels, 0 declare a hostcall\n"
                       "    code object v5; class: none\n"
                       "GPU[0]\t\t: GPU use (%): 100\nGPU[1]\t\t: GPU use (%): 100\n"
                       "GPU[0]\t\t: Average Graphics Package Power (W): 61.0\n"
                       "GPU[1]\t\t: Average Graphics Package Power (W): 58.0\n",
                DR_NUM_CODES, NULL },
        { "one of them works",
                BANNER "  Name: gfx1201\nGPU[0]\t\t: GPU use (%): 100\n"
                       "GPU[1]\t\t: GPU use (%): 100\n"
                       "GPU[0]\t\t: Average Graphics Package Power (W): 288.0\n"
                       "GPU[1]\t\t: Average Graphics Package Power (W): 58.0\n",
                DR_NUM_CODES, NULL },
        { "the table of amd-smi",
                BANNER "  Name: gfx1201\n"
                       "| 0000:03:00.0  AMD Radeon | 0 %  44 C  0   61/300 W |\n"
                       "|   0   0   N/A    N/A | 100 %  20.0 %  26012/32624 MB |\n"
                       "| 0000:07:00.0  AMD Radeon | 0 %  44 C  0   59/300 W |\n"
                       "|   1   1   N/A    N/A | 100 %  20.0 %  26012/32624 MB |\n",
                DR_PROTO_LL_HANG_GFX12, NULL },
        { "it ends", BANNER RUN REDUCE(5120) "rank 0 all_reduce ok\n", DR_NUM_CODES,
                NULL },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(runs); i++)
        check(&runs[i]);
}

/* ---- platform and library joined ---- */

#define PORT(bits)                                                                    \
    "00:01.1 PCI bridge: Advanced Micro Devices, Inc. [AMD] Device 14ab (prog-if "    \
    "00)\n"                                                                           \
    "\tBus: primary=00, secondary=03, subordinate=03, sec-latency=0\n"                \
    "\tCapabilities: [58] Express (v2) Root Port (Slot+), MSI 00\n"                   \
    "\t\t\t AtomicOpsCap: Routing- " bits " 128bitCAS-\n\n"                           \
    "03:00.0 VGA compatible controller: Advanced Micro Devices, Inc. [AMD/ATI] Navi " \
    "31\n"                                                                            \
    "\tCapabilities: [64] Express (v2) Legacy Endpoint, MSI 00\n"

static void test_the_joined_verdict_follows_both_sides(void **state)
{
    static const char needs[] =
            "/opt/rocm/lib/librccl.so.1: gfx1100: 105 kernels, 13 declare a hostcall: "
            "ncclDevKernel_Generic_1\n";
    static const char clean[] =
            "/opt/rocm/lib/librccl.so.1: gfx1100: 105 kernels, 0 declare a hostcall\n";
    static const struct {
        const char *platform, *library, *verdict;
    } cases[] = { { PORT("32bit- 64bit-"), needs, "librccl.so.1 will fail here" },
        { PORT("32bit- 64bit-"), clean, "it asks for no hostcall" },
        { PORT("32bit+ 64bit+"), needs, "will not fail here" },
        { PORT("32bit- 64bit-"), "", "run `motet hostcall`" } };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct doctor *d = doctor_new();
        char *text = NULL;
        size_t size = 0;
        FILE *out = open_memstream(&text, &size);

        doctor_add(d, "lspci.txt", cases[i].platform, strlen(cases[i].platform));
        doctor_add(d, "lib.txt", cases[i].library, strlen(cases[i].library));
        doctor_judge(d);
        dr_write_join(d, out);
        (void)fclose(out);
        if (strstr(text, cases[i].verdict) == NULL)
            fail_msg("%zu: %s", i, text);
        free(text);
        doctor_free(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_shape_gives_its_code_and_no_other),
        cmocka_unit_test(test_only_the_known_bad_combination_is_named),
        cmocka_unit_test(test_the_joined_verdict_follows_both_sides),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
