/* SPDX-License-Identifier: Apache-2.0 */
#include "base/types.h"

/* clang-format off */
const motet_type_info motet_type_table[MOTET_NUM_TYPES] = {
    [MOTET_INT8]       = { "int8",     1, false },
    [MOTET_UINT8]      = { "uint8",    1, false },
    [MOTET_INT32]      = { "int32",    4, false },
    [MOTET_UINT32]     = { "uint32",   4, false },
    [MOTET_INT64]      = { "int64",    8, false },
    [MOTET_UINT64]     = { "uint64",   8, false },
    [MOTET_FLOAT16]    = { "half",     2, true },
    [MOTET_FLOAT32]    = { "float",    4, true },
    [MOTET_FLOAT64]    = { "double",   8, true },
    [MOTET_BFLOAT16]   = { "bfloat16", 2, true },
    [MOTET_FLOAT8E4M3] = { "f8e4m3",   1, true },
    [MOTET_FLOAT8E5M2] = { "f8e5m2",   1, true },
};

const char *const motet_redop_names[MOTET_NUM_REDOPS] = {
    [MOTET_SUM] = "sum", [MOTET_PROD] = "prod", [MOTET_MAX] = "max",
    [MOTET_MIN] = "min", [MOTET_AVG]  = "avg",  [MOTET_PREMUL_SUM] = "mulsum",
};

const motet_kind_info motet_kind_table[MOTET_NUM_KINDS] = {
    [MOTET_ALL_REDUCE]     = { "all_reduce",     "AllReduce",     true,  false, false },
    [MOTET_REDUCE]         = { "reduce",         "Reduce",        true,  true,  false },
    [MOTET_BROADCAST]      = { "broadcast",      "Broadcast",     false, true,  false },
    [MOTET_ALL_GATHER]     = { "all_gather",     "AllGather",     false, false, false },
    [MOTET_REDUCE_SCATTER] = { "reduce_scatter", "ReduceScatter", true,  false, false },
    [MOTET_ALL_TO_ALL]     = { "all_to_all",     "AlltoAll",      false, false, false },
    [MOTET_ALL_TO_ALL_V]   = { "all_to_allv",    "AlltoAllv",     false, false, true },
    [MOTET_GATHER]         = { "gather",         "Gather",        false, true,  false },
    [MOTET_SCATTER]        = { "scatter",        "Scatter",       false, true,  false },
    [MOTET_SEND]           = { "send",           "Send",          false, true,  true },
    [MOTET_RECV]           = { "recv",           "Recv",          false, true,  true },
};
/* clang-format on */
