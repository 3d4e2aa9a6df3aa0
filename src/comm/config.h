/* SPDX-License-Identifier: Apache-2.0 */
/* How a communicator, or one call, is configured, whatever version of NCCL's
 * structures the caller used: every field of every version, resolved. src/api/config.c
 * fills these in. */
#ifndef MOTET_COMM_CONFIG_H
#define MOTET_COMM_CONFIG_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/** A field that nobody set and that has no default: NCCL_CONFIG_UNDEF_INT. */
#define MOTET_CONFIG_UNSET INT_MIN

/** Longest string kept, bytes with the NUL. */
#define MOTET_CONFIG_STRING_MAX 128

/** A bit of cta_policy: copy engines move what they can. */
#define MOTET_CTA_POLICY_ZERO 2

/** A communicator's configuration. Comments: accepted values; default. */
typedef struct motet_config {
    int blocking;                            /* 0 1; 1 */
    int cga_cluster_size;                    /* >= 0; 4. GPU */
    int min_ctas;                            /* 1 to max_ctas; 1. GPU */
    int max_ctas;                            /* >= 1; 64. GPU */
    int split_share;                         /* 0 1; 0 */
    int traffic_class;                       /* any; unset */
    int collnet_enable;                      /* 0 1; 0 */
    int cta_policy;                          /* 0 to 3; 0. GPU */
    int shrink_share;                        /* 0 1; 0 */
    int nvls_ctas;                           /* >= 1; unset. GPU */
    int channels_per_net_peer;               /* 1 to 64; unset */
    int nvlink_centric_sched;                /* 0 1; 0. GPU */
    int graph_usage_mode;                    /* 0 1 2; 2. GPU */
    int rma_contexts;                        /* >= 0; 1 */
    int max_p2p_peers;                       /* >= 1; unset */
    int graph_stream_ordering;               /* 0 1; 1. GPU */
    int launch_order_implicit;               /* 0 1; unset. GPU */
    int rma_signals;                         /* >= 0; unset */
    int rma_eager_init;                      /* 0 1; unset */
    int host_cft_mode;                       /* 1 2 3; unset. GPU */
    int nvls_host_mode;                      /* 0 to 3, INT_MAX; unset. GPU */
    char net_name[MOTET_CONFIG_STRING_MAX];  /* "" if the caller gave none */
    char comm_name[MOTET_CONFIG_STRING_MAX]; /* "" if the caller gave none */
} motet_config;

/** The configuration of one call. */
typedef struct motet_call_config {
    int min_ctas;         /* >= 1; unset. GPU */
    int max_ctas;         /* >= 1; unset. GPU */
    int nvls_ctas;        /* >= 1; unset. GPU */
    int cga_cluster_size; /* 0 to 8; unset. GPU */
    int cta_policy;       /* 0 to 3; unset. GPU */
    bool force_algorithm; /* `algorithm` must be possible */
    bool has_timeout;     /* timeout_ms counts, not the communicator's */
    uint32_t timeout_ms;  /* 0 = none */
    uint64_t profiler_tag;
    char algorithm[MOTET_CONFIG_STRING_MAX]; /* "" = any */
} motet_call_config;

#endif
