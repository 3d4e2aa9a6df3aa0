/* SPDX-License-Identifier: Apache-2.0 */
/* Measurements as programs print them: tables of rates, matrices, tests of peer access. */
#ifndef MOTET_DOCTOR_MEASURE_H
#define MOTET_DOCTOR_MEASURE_H

#include "doctor.h"
#include "scan.h"

/* ---- tables of nccl-tests, rccl-tests and their kin ---- */

/** One size. [0] is out of place, [1] in place; what a column lacks is NAN. */
struct dr_row {
    uint64_t bytes;
    double time_us[2], bus[2]; /* bus: GB/s                                           */
    double wrong[2];           /* elements, or the error of an old table              */
    double wrong_above;        /* more than this in `wrong` is wrong                  */
    uint32_t line;
};

struct dr_table_gpu {
    char bdf[DR_BDF_MAX]; /* "" if the table does not say */
    const char *name, *host;
    uint32_t ordinal; /* "device 3" */
    uint32_t line;
};

enum dr_switch { DR_SWITCH_UNSAID, DR_SWITCH_ON, DR_SWITCH_OFF };

struct dr_table {
    struct dr_row *rows;
    struct dr_table_gpu *gpus;
    uint32_t num_rows, room_rows, num_gpus, room_gpus;
    uint32_t source, machine;
    uint32_t
            line_parameters; /* "nThread 1 nGpus 2 minBytes …", DR_NONE               */
    uint32_t line_titles;    /* the names of the columns                             */
    uint32_t line_bounds;    /* "Out of bounds values : 3 FAILED"                    */
    uint32_t line_average;
    uint32_t line_last;
    const char *operation; /* "all_reduce", "" if it is not said                      */
    uint64_t gpus_of_each, min_bytes, max_bytes, step; /* 0: not said                 */
    bool by_factor; /* `step` is one                                                   */
    bool failed;    /* out of bounds                                                  */
    bool broken;    /* a line of it is cut or mixed with another                      */
    bool unchecked; /* without that column */
    bool old;       /* with an error instead of a count of wrong elements             */
    uint32_t hosts; /* machines of its ranks, 0: not said */
    double plateau; /* largest bus bandwidth of the three largest sizes */
    uint32_t line_plateau;
    double average; /* as printed, -1                                                 */
    enum dr_switch peer, gdr; /* what was asked for                                   */
    uint32_t line_peer, line_gdr;
    uint32_t via_peer, via_host,
            via_net; /* channels that its log announces           */
    uint32_t line_via;
    unsigned
            num_adapters; /* that the library uses, 0: not said                       */
    const char *port; /* the network port that it was told to use, or NULL            */
    uint32_t line_port;
};

/* ---- matrices ---- */

enum dr_matrix_kind {
    DR_MATRIX_LINKS,   /* XGMI, PCIE, NV12, PHB …                */
    DR_MATRIX_GRANTS,  /* OK, CNS, NS …, or 1 and 0              */
    DR_MATRIX_WEIGHT,  /* of rocm-smi, the less the nearer       */
    DR_MATRIX_HOPS,    /* the less the nearer                    */
    DR_MATRIX_RATE,    /* GB/s                                   */
    DR_MATRIX_LATENCY, /* us                                     */
    DR_MATRIX_CHECK,   /* PASS, FAIL: what arrived was compared  */
    DR_MATRIX_OTHER
};

/** Widest matrix that is read. */
#define DR_MATRIX_MAX 64
/** Most matrices that are kept. */
#define DR_MATRICES_MAX 256

struct dr_matrix {
    enum dr_matrix_kind kind;
    uint32_t machine, line_columns;
    uint32_t size;          /* devices, named by the columns                        */
    struct dr_span *names;  /* [size]                                               */
    struct dr_span **cells; /* [size] rows of [size], NULL where the text has none  */
    uint32_t *lines;        /* [size] of the rows, DR_NONE                          */
    enum dr_switch peer;    /* "P2P=Enabled", "P2P=Disabled"                        */
    bool both_ways;         /* a rate of both directions together                   */
};

/* ---- one test of one pair ---- */

enum dr_pair_what {
    DR_PAIR_GRANTED, /* the runtime says that it may                        */
    DR_PAIR_DENIED,  /* … that it may not                                   */
    DR_PAIR_BROKEN   /* the owner does not see what was written             */
};

struct dr_pair_test {
    enum dr_pair_what what;
    int from, to; /* -1: not said */
    uint32_t machine, line;
};

/* ---- ports of the network ---- */

struct dr_net_port {
    const char *name;  /* "mlx5_0", or "ens1f0np0" while no other is known */
    const char *other; /* then the interface, "" if it is not said         */
    uint32_t machine;
    double gbits; /* line rate, 0: not said                        */
    uint32_t line_rate;
    uint32_t line_fec;    /* "Active FEC encoding: None", DR_NONE  */
    uint32_t line_errors; /* symbol errors, not zero, DR_NONE      */
};

/** One rate that a person or a program noted with and without peer access. */
struct dr_timing {
    const char *
            label; /* the line without its numbers, and the command without variables */
    double value;
    bool is_time; /* less is better */
    enum dr_switch peer;
    uint32_t line;
};

/** What a line may hold; a line without a sign is not looked at by its reader. */
enum dr_sign {
    DR_SIGN_TABLE = 1,
    DR_SIGN_DEVICE = 2, /* in a matrix                        */
    DR_SIGN_PEER = 4,   /* speaks of peers                    */
    DR_SIGN_PAIR = 8,   /* "0 -> 1", "0 to 1"                 */
    DR_SIGN_WRONG = 16, /* something differs from what it was */
    DR_SIGN_PORT = 32,
    DR_SIGN_VENDOR = 64,
    DR_SIGN_LANES = 128 /* "LnkSta:" without its device */
};

struct dr_measure {
    unsigned char *signs; /* of each line, enum dr_sign */
    struct dr_table *tables;
    struct dr_matrix *matrices;
    struct dr_pair_test *pairs;
    struct dr_net_port *ports;
    struct dr_timing *timings;
    uint32_t num_tables, room_tables, num_matrices, room_matrices, num_pairs,
            room_pairs, num_ports, room_ports, num_timings, room_timings;
    uint32_t
            line_direct; /* a topology document with a direct link, DR_NONE           */
    uint32_t machine_direct;
    uint32_t
            line_vendor; /* another vendor's tool or device, DR_NONE                  */
    const char *vendor;  /* "1d94" or "1ed5"                                         */
};

/* Readers of each kind; the signs first. */
void dr_read_signs(struct doctor *d);
void dr_read_tables(struct doctor *d);
void dr_read_matrices(struct doctor *d);
void dr_read_pairs(struct doctor *d);
void dr_read_ports(struct doctor *d);
void dr_read_timings(struct doctor *d);
void dr_read_topologies(struct doctor *d);

/** Median time of the sizes up to 16 KiB, 0 if there are fewer than three. */
double dr_table_floor(struct doctor *d, const struct dr_table *t);
/** Ranks, 0: not said. */
uint32_t dr_table_ranks(const struct dr_table *t);

/** XGMI or NV<n>; *count gets the n, or 0. */
bool dr_is_direct(struct dr_span cell, uint64_t *count);
/** What stands there; length 0 if nothing does. */
struct dr_span dr_cell(const struct dr_matrix *m, uint32_t row, uint32_t column);
/** Whether every pair of different devices has a cell. */
bool dr_is_complete(const struct dr_matrix *m);

/* ---- what the rules ask ---- */

/** No GPU of this machine may reach another; *line gets where that is said. */
bool dr_no_peer_access(const struct doctor *d, uint32_t machine, uint32_t *line);

#endif
