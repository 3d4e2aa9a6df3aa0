/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold of every snapshot that motet_trace_parse() lets through, whatever the
 * bytes were. For the fuzzer and the unit test. */
#ifndef MOTET_TESTS_SNAPSHOT_INVARIANTS_H
#define MOTET_TESTS_SNAPSHOT_INVARIANTS_H

#include "trace/recorder.h"

#include <string.h>

static inline bool text_is_clean(const char *text, size_t bytes)
{
    if (memchr(text, '\0', bytes) == NULL)
        return false;
    for (const unsigned char *s = (const unsigned char *)text; *s != '\0'; s++)
        if (*s < 0x20 || *s == 0x7f || (*s == 0xc2 && s[1] < 0xa0))
            return false;
    return true;
}

static inline const char *broken_record(const motet_trace_snapshot *s, unsigned i)
{
    const motet_trace_op *op = &s->file.op[i];

    if (op->seq == 0 || op->seq > s->file.begun)
        return "a sequence number is impossible";
    if (i > 0 && op->seq <= s->file.op[i - 1].seq)
        return "records are not sorted";
    if (op->kind >= MOTET_NUM_KINDS || op->type >= MOTET_NUM_TYPES ||
            op->redop >= MOTET_NUM_REDOPS || op->state == MOTET_TRACE_EMPTY ||
            op->state > MOTET_TRACE_FAILED)
        return "an enumeration is out of range";
    if (op->peer < -1 || op->peer >= s->file.nranks || op->waits_for < -1 ||
            op->waits_for >= s->file.nranks)
        return "a rank is out of range";
    if (op->end_ns != 0 && op->state < MOTET_TRACE_DONE)
        return "a running operation has ended";
    return NULL;
}

/** NULL, or what is wrong. */
static inline const char *snapshot_broken(const motet_trace_snapshot *s)
{
    const motet_trace_file *f = &s->file;

    if (f->magic != MOTET_TRACE_MAGIC || f->version != MOTET_TRACE_VERSION)
        return "magic or version was not checked";
    if (f->nranks < 1 || f->rank < 0 || f->rank >= f->nranks || f->pid <= 0)
        return "rank or pid was not checked";
    if (f->failed >= MOTET_NUM_RESULTS || f->closed > 1)
        return "a flag is out of range";
    if (!text_is_clean(f->boot_id, sizeof(f->boot_id)) ||
            !text_is_clean(f->host, sizeof(f->host)) ||
            !text_is_clean(f->comm_name, sizeof(f->comm_name)) ||
            !text_is_clean(f->command, sizeof(f->command)) ||
            !text_is_clean(f->failure, sizeof(f->failure)))
        return "a text is not clean";
    if (f->failed == 0 && f->failure[0] != '\0')
        return "a sentence without a failure";
    if (s->ops > MOTET_TRACE_OPS || s->alive || s->path[0] != '\0')
        return "counts or the caller's fields are wrong";
    for (unsigned i = 0; i < s->ops; i++)
        if (broken_record(s, i) != NULL)
            return broken_record(s, i);
    return NULL;
}

#endif
