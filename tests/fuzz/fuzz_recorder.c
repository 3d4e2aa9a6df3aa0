/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a recorder file. Besides the bytes as they are, they are laid over a
 * good file, so that the fuzzer need not find the magic and the sizes by itself.
 */
#include "snapshot_invariants.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(const void *data, size_t bytes)
{
    static motet_trace_snapshot snapshot;
    const char *broken;

    if (motet_trace_parse(data, bytes, &snapshot) != MOTET_OK)
        return;
    broken = snapshot_broken(&snapshot);
    if (broken != NULL) {
        fprintf(stderr, "fuzz_recorder: %s\n", broken);
        abort();
    }
}

static void fill_good(motet_trace_file *file)
{
    memset(file, 0, sizeof(*file));
    file->magic = MOTET_TRACE_MAGIC;
    file->version = MOTET_TRACE_VERSION;
    file->header_bytes = offsetof(motet_trace_file, op);
    file->op_bytes = sizeof(motet_trace_op);
    file->ops = MOTET_TRACE_OPS;
    file->nranks = 4;
    file->pid = 4711;
    file->begun = 300;
    for (uint64_t seq = 300 - MOTET_TRACE_OPS + 1; seq <= 300; seq++) {
        motet_trace_op *op = &file->op[(seq - 1) % MOTET_TRACE_OPS];

        op->seq = seq;
        op->state = MOTET_TRACE_DONE;
        op->peer = op->waits_for = -1;
    }
}

/* The first two bytes say where the others go. */
static void check_overlay(const uint8_t *data, size_t bytes)
{
    static motet_trace_file file;
    size_t at, n = bytes - 2;

    fill_good(&file);
    at = (size_t)(data[0] | data[1] << 8) % sizeof(file);
    if (n > sizeof(file) - at)
        n = sizeof(file) - at;
    memcpy((char *)&file + at, data + 2, n);
    check(&file, sizeof(file));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    check(data, bytes);
    if (bytes > 2)
        check_overlay(data, bytes);
    return 0;
}
