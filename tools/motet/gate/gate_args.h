/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of gate.c take, and what they leave: known to them and to who launches
 * them. */
#ifndef MOTET_TOOLS_GATE_ARGS_H
#define MOTET_TOOLS_GATE_ARGS_H

#include <stdint.h>

/** Threads of a block; there is one. */
#define GATE_THREADS 64

/** Of the widest set of arguments, as RCCL's kernels take. */
#define GATE_ARGS_BYTES 4096u

/** Of dynamic LDS: all that a block of any of these GPUs can have. */
#define GATE_LDS_BYTES 65536u

/** Words of a mark: the first is every kernel's, the second those of some, and what lies
 *  behind is nobody's. */
enum { GATE_MARKER, GATE_SECOND, GATE_CANARY, GATE_WORDS = 8 };

typedef struct gate_args {
    uint64_t *mark;
    uint64_t value;
} gate_args;

#define GATE_WIDE_WORDS (GATE_ARGS_BYTES / 8 - 1)

typedef struct gate_wide_args {
    uint64_t *mark;
    uint64_t words[GATE_WIDE_WORDS]; /* their sum is stored */
} gate_wide_args;

_Static_assert(sizeof(gate_wide_args) == GATE_ARGS_BYTES, "as wide as it says");

#endif
