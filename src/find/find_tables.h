/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The libraries and the clients that the finder knows, for find_ask.c alone. To add one is
 * to add a row. Facts: hipfire's policy (amd-hosts.md 2.1, 2.2), what clients take (api.md 3).
 */
#ifndef MOTET_FIND_TABLES_H
#define MOTET_FIND_TABLES_H

#include "find.h"

static const motet_find_install amd_installs[] = {
    { "/opt/rocm", "/opt/rocm-*", "ROCM_PATH" },
    { "/opt/dtk", "/opt/dtk-*", "DTK_ROOT" },
    { NULL, NULL, NULL },
};
static const char *const amd_folders[] = { "lib", "lib/*", "lib64", "lib64/*",
    "hip/lib", NULL };
static const char *const amd_variables[] = { "DTK_ROOT", "ROCM_PATH", "HIP_PATH",
    NULL };

const motet_find_library motet_find_hip = {
    .what = "AMD's HIP runtime",
    .stems = (const char *const[]){ "libamdhip64.so", "libgalaxyhip.so", NULL },
    .names = (const char *const[]){ "libamdhip64.so.7", "libamdhip64.so.6",
            "libamdhip64.so.5", "libgalaxyhip.so.5", NULL },
    .folders = amd_folders,
    .installs = amd_installs,
    .by_name = true,
    .hint = "install ROCm or Hygon's DTK, or set ROCM_PATH to where it is",
    .override = "MOTET_HIP_LIB",
    .variables = amd_variables,
};

static const motet_find_sdk amd_sdk = {
    .headers = (const char *const[]){ "include/hip/hip_runtime.h", NULL },
    .runtimes = (const char *const[]){ "libamdhip64.so", "libamdhip64.so.7",
            "libamdhip64.so.6", "libamdhip64.so.5", "libgalaxyhip.so.5", NULL },
    .compilers =
            (const char *const[]){ "hipcc", "amdclang++", "amdclang", "clang++", NULL },
    .support = (const char *const[]){ "libhsa-runtime64.so.1", "libhsa-runtime64.so",
            NULL },
    .tools = (const char *const[]){ "hipcc", "amdclang++", "amdclang", "rocminfo",
            "rocm_agent_enumerator", NULL },
    .system = (const char *const[]){ "/usr", "/usr/local", NULL },
};

const motet_find_library motet_find_rccl = {
    .name = "rccl",
    .what = "RCCL",
    .stems = (const char *const[]){ "librccl.so", NULL },
    .names = (const char *const[]){ "librccl.so", "librccl.so.1", "librccl.so.1.0",
            NULL },
    .folders = amd_folders,
    .installs = amd_installs,
    .hint = "is RCCL installed (apt install rccl, or /opt/rocm/lib/librccl.so.1)? "
            "If it lives outside the ROCm root, set",
    .sdk = &amd_sdk,
    .override = "MOTET_RCCL_LIB",
    .variables = amd_variables,
    .wheels = (const char *const[]){ "_rocm_sdk_libraries*/lib", "_rocm_sdk_core*/lib",
            "torch/lib", NULL },
    .elsewhere = (const char *const[]){ "opt/rocm*/lib", "opt/rocm*/lib64",
            "opt/rocm/core*/lib", "opt/dtk*/lib", "nix/store/*rccl*/lib", "usr/lib",
            "usr/lib/*", "usr/lib64", "usr/local/lib", "usr/local/lib64", NULL },
};

const motet_find_library motet_find_nccl = {
    .name = "nccl",
    .what = "NCCL",
    .stems = (const char *const[]){ "libnccl.so", NULL },
    .names = (const char *const[]){ "libnccl.so.2", "libnccl.so", NULL },
    .folders = (const char *const[]){ "lib", "lib/*", "lib64", "lib64/*", "build/lib",
            NULL },
    .installs = (const motet_find_install[]){ { NULL, NULL, NULL } },
    .by_name = true,
    .hint = "is NCCL installed (apt install libnccl2, or pip install "
            "nvidia-nccl-cu12)? If it lives elsewhere, set",
    .override = "MOTET_NCCL_LIB",
    .variables = (const char *const[]){ "NCCL_ROOT", "NCCL_HOME", NULL },
    .wheels = (const char *const[]){ "nvidia/nccl/lib", "nvidia/cu*/lib", "torch/lib",
            NULL },
    .elsewhere = (const char *const[]){ "usr/lib/*-linux-gnu", "usr/lib64", "usr/lib",
            "usr/local/lib", "usr/local/cuda/lib64", "usr/local/cuda-*/lib64",
            "usr/local/nvidia/lib64",
            "usr/local/lib/python3*/*-packages/nvidia/nccl/lib",
            "usr/lib/python3*/*-packages/nvidia/nccl/lib", "nix/store/*nccl*/lib",
            NULL },
    .stands_alone = true,
};

/* What nearly every client takes. */
#define CLASSIC                                                                    \
    "ncclGetVersion", "ncclGetErrorString", "ncclGetUniqueId", "ncclCommInitRank", \
            "ncclCommDestroy", "ncclAllReduce", "ncclReduce", "ncclBroadcast",     \
            "ncclAllGather", "ncclReduceScatter", "ncclSend", "ncclRecv",          \
            "ncclGroupStart", "ncclGroupEnd"
#define QUESTIONS                                                                  \
    "ncclCommAbort", "ncclCommGetAsyncError", "ncclCommCount", "ncclCommUserRank", \
            "ncclBcast"
#define MEMORY  "ncclMemAlloc", "ncclMemFree", "ncclCommRegister", "ncclCommDeregister"
#define PREMUL  "ncclRedOpCreatePreMulSum", "ncclRedOpDestroy"
#define WINDOWS "ncclCommWindowRegister", "ncclCommWindowDeregister"
/* C++, of librccl: without it libtorch_hip does not load. */
#define DUMP                                                           \
    "_Z12ncclCommDumpP8ncclCommRSt13unordered_mapINSt7__cxx1112basic_" \
    "stringIcSt11char_"                                                \
    "traitsIcESaIcEEES7_St4hashIS7_ESt8equal_toIS7_ESaISt4pairIKS7_S7_EEE"
#define TORCH                                                                        \
    CLASSIC, QUESTIONS, MEMORY, PREMUL, WINDOWS, "ncclGetLastError",                 \
            "ncclCommInitRankConfig", "ncclCommInitRankScalable", "ncclCommInitAll", \
            "ncclCommSplit", "ncclCommShrink", "ncclCommFinalize",                   \
            "ncclGroupSimulateEnd"

static const char *const torch_nccl[] = { TORCH, "ncclCommCuDevice", NULL };
static const char *const torch_rccl[] = { TORCH, "ncclAllToAll", "ncclAllToAllv", DUMP,
    NULL };
static const char *const vllm_nccl[] = { CLASSIC, WINDOWS, NULL };
static const char *const vllm_rccl[] = { CLASSIC, NULL };
static const char *const cupy[] = { CLASSIC, QUESTIONS, "ncclCommInitAll",
    "ncclCommCuDevice", "ncclCommInitRankConfig", "ncclCommSplit", NULL };
static const char *const tests_nccl[] = { CLASSIC, QUESTIONS, MEMORY, PREMUL,
    "ncclCommInitRankConfig", NULL };
static const char *const tests_rccl[] = { CLASSIC, QUESTIONS, MEMORY, PREMUL,
    "ncclGetLastError", "ncclCommInitAll", "ncclAllToAll", "ncclAllToAllv", NULL };
static const char *const hipfire[] = { "ncclCommInitAll", "ncclCommDestroy",
    "ncclAllReduce", "ncclSend", "ncclRecv", "ncclGroupStart", "ncclGroupEnd",
    "ncclGetErrorString", "ncclGetVersion", NULL };
static const char *const hipfire_variables[] = { "HIPFIRE_ROCM_PATH", "ROCM_PATH",
    "HIP_PATH", NULL };

const motet_find_client motet_find_clients[] = {
    { "torch", &motet_find_nccl, NULL, NULL, torch_nccl },
    { "torch", &motet_find_rccl, NULL, NULL, torch_rccl },
    { "vllm", &motet_find_nccl, "VLLM_NCCL_SO_PATH", NULL, vllm_nccl },
    { "vllm", &motet_find_rccl, "VLLM_NCCL_SO_PATH", NULL, vllm_rccl },
    { "cupy", &motet_find_nccl, NULL, NULL, cupy },
    { "cupy", &motet_find_rccl, NULL, NULL, cupy },
    { "nccl-tests", &motet_find_nccl, NULL, NULL, tests_nccl },
    { "nccl-tests", &motet_find_rccl, NULL, NULL, tests_rccl },
    { "hipfire", &motet_find_rccl, "HIPFIRE_RCCL_LIB", hipfire_variables, hipfire },
    { NULL, NULL, NULL, NULL, NULL },
};

#endif
