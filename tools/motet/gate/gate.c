/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pair of `motet probe --gate-kernels`: two kernels that differ in one thing, that the
 * second declares a hostcall. A runtime refuses that one on a GPU that cannot send PCIe
 * AtomicOps to host memory, whatever it does; it never calls the host. The others are
 * controls: each has something else that RCCL's kernels have and the plain one has not.
 *
 * This is the only code of motet that declares a hostcall. It is in no library.
 */
#include "gate_args.h"

#include "kernels/gpu/target.h"

#if defined(__AMDGCN__)
/* Word @p offset of the implicit arguments, as code objects since version 5 lay them out.
 * To read one is to declare it. */
DEVICE uint64_t implicit64(uint32_t offset)
{
    const __attribute__((address_space(4))) char *at = (const
            __attribute__((address_space(4))) char *)__builtin_amdgcn_implicitarg_ptr();
    return *(const __attribute__((address_space(4))) uint64_t *)(at + offset);
}

extern IN_BLOCK uint32_t dynamic_lds[];
#else
DEVICE uint64_t implicit64(uint32_t offset)
{
    return offset + 1; /* the host's build has none, and is given everything */
}

static _Thread_local uint32_t dynamic_lds[GATE_LDS_BYTES / 4];
#endif

#define BLOCK_COUNT_X   0u  /* hidden_block_count_x, and _y behind it */
#define HOSTCALL_BUFFER 80u /* hidden_hostcall_buffer                 */

DEVICE void plain(const gate_args *a, uint32_t block, bool unused)
{
    (void)block;
    (void)unused;
    if (thread_index() == 0)
        store64(&a->mark[GATE_MARKER], a->value);
}

/* The second word: whether there was something. */
DEVICE void implicit(const gate_args *a, uint32_t block, uint32_t offset)
{
    const uint64_t found = implicit64(offset);

    (void)block;
    if (thread_index() != 0)
        return;
    store64(&a->mark[GATE_MARKER], a->value);
    store64(&a->mark[GATE_SECOND], found != 0);
}

DEVICE void wide(const gate_wide_args *a, uint32_t block, bool unused)
{
    uint64_t sum = 0;

    (void)block;
    (void)unused;
    UNROLL
    for (uint32_t i = 0; i < GATE_WIDE_WORDS; i++)
        sum += a->words[i];
    if (thread_index() == 0)
        store64(&a->mark[GATE_MARKER], sum);
}

/* What another kernel stored, and 1 more. */
DEVICE void follow(const gate_args *a, uint32_t block, bool unused)
{
    (void)block;
    (void)unused;
    if (thread_index() == 0)
        store64(&a->mark[GATE_SECOND], load64(&a->mark[GATE_MARKER]) + 1);
}

/* Every word of the LDS is written by one thread and read by another. */
DEVICE void lds(const gate_args *a, uint32_t block, bool unused)
{
    const uint32_t words = GATE_LDS_BYTES / 4, salt = (uint32_t)a->value;
    uint32_t wrong = 0;

    (void)block;
    (void)unused;
    NO_UNROLL
    for (uint32_t i = thread_index(); i < words; i += thread_count())
        store_block_word(&dynamic_lds[i], i ^ salt);
    block_sync();
    if (thread_index() != 0)
        return;
    NO_UNROLL
    for (uint32_t i = 0; i < words; i++)
        wrong += load_block_word(&dynamic_lds[i]) != (i ^ salt);
    store64(&a->mark[GATE_MARKER], a->value + wrong);
}

KERNEL(probe_gate_plain, gate_args, plain, false)
KERNEL(probe_gate_hostcall, gate_args, implicit, HOSTCALL_BUFFER)
KERNEL(probe_gate_hidden, gate_args, implicit, BLOCK_COUNT_X)
KERNEL(probe_gate_wide, gate_wide_args, wide, false)
KERNEL(probe_gate_follow, gate_args, follow, false)
KERNEL(probe_gate_lds, gate_args, lds, false)
