/* SPDX-License-Identifier: Apache-2.0 */
/* Data types, reduction operators and operations: one table each. The numbers of
 * types and operators are NCCL's (api.md 1.5); src/api asserts that they stay so. */
#ifndef MOTET_BASE_TYPES_H
#define MOTET_BASE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum motet_type {
    MOTET_INT8,
    MOTET_UINT8,
    MOTET_INT32,
    MOTET_UINT32,
    MOTET_INT64,
    MOTET_UINT64,
    MOTET_FLOAT16,
    MOTET_FLOAT32,
    MOTET_FLOAT64,
    MOTET_BFLOAT16,
    MOTET_FLOAT8E4M3,
    MOTET_FLOAT8E5M2,
    MOTET_NUM_TYPES
} motet_type;

typedef struct motet_type_info {
    const char *name; /* as nccl-tests prints it: "float", "bfloat16", "fp8_e4m3" … */
    size_t bytes;
    bool is_float;
} motet_type_info;

extern const motet_type_info motet_type_table[MOTET_NUM_TYPES];

/** How elements combine. PREMUL_SUM multiplies rank r's elements by rank r's scalar first. */
typedef enum motet_redop {
    MOTET_SUM,
    MOTET_PROD,
    MOTET_MAX,
    MOTET_MIN,
    MOTET_AVG,
    MOTET_PREMUL_SUM,
    MOTET_NUM_REDOPS
} motet_redop;

extern const char *const motet_redop_names[MOTET_NUM_REDOPS]; /* "sum" … "mulsum" */

/** What an operation is. SEND and RECV are matched by pair, all others by every rank. */
typedef enum motet_kind {
    MOTET_ALL_REDUCE,
    MOTET_REDUCE,
    MOTET_BROADCAST,
    MOTET_ALL_GATHER,
    MOTET_REDUCE_SCATTER,
    MOTET_ALL_TO_ALL,
    MOTET_ALL_TO_ALL_V,
    MOTET_GATHER,
    MOTET_SCATTER,
    MOTET_SEND,
    MOTET_RECV,
    MOTET_NUM_KINDS
} motet_kind;

typedef struct motet_kind_info {
    const char *name;     /* "all_reduce"                                       */
    const char *api_name; /* "AllReduce", as the NCCL API and its logs spell it */
    bool reduces;         /* has a reduction operator                           */
    bool rooted;          /* has a root                                         */
    bool pairwise;        /* known only to the two ends of a pair               */
} motet_kind_info;

extern const motet_kind_info motet_kind_table[MOTET_NUM_KINDS];

#endif
