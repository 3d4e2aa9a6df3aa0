/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reading side of the flight recorder. Nothing in the bytes is believed: they may
 * come from a live mapping, from a torn or cut copy, or from somebody who wants to
 * crash the reader or to write to its terminal.
 *
 * Live mapping: a record's sequence word is read before and after its copy; if it is
 * 0 or differs, the record is being rewritten and is left out. The words between are
 * read with acquire, so the second look at the sequence is really the later one.
 *
 * File: it is read twice. A record of the first reading counts if the second reading
 * has the same sequence, since its owner clears that word before it touches the rest.
 */
#include "trace/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_BYTES (offsetof(motet_trace_file, op))

/* No rank begins that many operations; keeps sums of sequence numbers from wrapping. */
#define SEQ_MAX (UINT64_MAX / 4)

_Static_assert(offsetof(motet_trace_op, seq) == 0, "the first word of a record");
_Static_assert(HEADER_BYTES % sizeof(uint64_t) == 0, "copied by words");
_Static_assert(sizeof(motet_trace_op) % sizeof(uint64_t) == 0, "copied by words");

/* Copies bytes that another thread or process may write meanwhile. A live mapping is
 * aligned; anything else is private to the caller. */
static void copy_words(void *to, const void *from, size_t bytes)
{
    uint64_t word;

    if ((uintptr_t)from % sizeof(word) != 0) {
        memcpy(to, from, bytes);
        return;
    }
    for (size_t i = 0; i < bytes; i += sizeof(word)) {
        word = __atomic_load_n((const uint64_t *)((const char *)from + i),
                __ATOMIC_ACQUIRE);
        memcpy((char *)to + i, &word, sizeof(word));
    }
}

/* Length of the UTF-8 character at @p s, 0 if it is none or a control character. */
static size_t utf8_length(const unsigned char *s)
{
    size_t more;

    if (s[0] < 0x80)
        return s[0] >= 0x20 && s[0] != 0x7f;
    if (s[0] >= 0xc2 && s[0] <= 0xdf)
        more = 1;
    else if (s[0] >= 0xe0 && s[0] <= 0xef)
        more = 2;
    else if (s[0] >= 0xf0 && s[0] <= 0xf4)
        more = 3;
    else
        return 0;
    for (size_t i = 1; i <= more; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0; /* the end of the text is no such byte either */
    if ((s[0] == 0xc2 && s[1] < 0xa0) || (s[0] == 0xe0 && s[1] < 0xa0) ||
            (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
            (s[0] == 0xf4 && s[1] > 0x8f))
        return 0; /* C1 controls, overlong forms, surrogates, beyond Unicode */
    return 1 + more;
}

/* Ends @p text and replaces what a terminal or a JSON reader must not get by '?'. */
static void clean_text(char *text, size_t bytes)
{
    unsigned char *s = (unsigned char *)text;

    text[bytes - 1] = '\0';
    while (*s != '\0') {
        size_t n = utf8_length(s);

        if (n == 0) {
            *s = '?';
            n = 1;
        }
        s += n;
    }
}

/* Copies and checks the header. The sentence is taken only after `failed` says that it
 * is complete. */
static motet_result parse_header(const void *data, motet_trace_file *out)
{
    const size_t text_at = offsetof(motet_trace_file, failure);
    const char *bytes = data;

    copy_words(out, bytes, text_at);
    if (out->magic != MOTET_TRACE_MAGIC)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "not a recorder file: it starts with 0x%016llx, not with 'mottrace'",
                (unsigned long long)out->magic);
    if (out->version != MOTET_TRACE_VERSION || out->header_bytes != HEADER_BYTES ||
            out->op_bytes != sizeof(motet_trace_op) || out->ops != MOTET_TRACE_OPS)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "recorder file of version %u (%u + %u x %u bytes), this build reads "
                "version %d (%zu + %d x %zu bytes)",
                out->version, out->header_bytes, out->ops, out->op_bytes,
                MOTET_TRACE_VERSION, HEADER_BYTES, MOTET_TRACE_OPS,
                sizeof(motet_trace_op));
    if (out->nranks < 1 || out->rank < 0 || out->rank >= out->nranks || out->pid <= 0 ||
            out->begun > SEQ_MAX)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "recorder file with rank %d of %d, pid %d, %llu operations: corrupt",
                out->rank, out->nranks, out->pid, (unsigned long long)out->begun);
    memset(out->failure, 0, sizeof(out->failure));
    if (out->failed >= MOTET_NUM_RESULTS)
        out->failed = MOTET_ERR_INTERNAL;
    if (out->failed != MOTET_OK)
        copy_words(out->failure, bytes + text_at, sizeof(out->failure));
    out->closed = out->closed != 0;
    clean_text(out->boot_id, sizeof(out->boot_id));
    clean_text(out->host, sizeof(out->host));
    clean_text(out->comm_name, sizeof(out->comm_name));
    clean_text(out->command, sizeof(out->command));
    clean_text(out->path, sizeof(out->path));
    clean_text(out->failure, sizeof(out->failure));
    return MOTET_OK;
}

/* Copies one record; false if it is empty, torn, or makes no sense. */
static bool parse_record(const char *at, const motet_trace_file *file,
        motet_trace_op *out)
{
    uint64_t seq_after;

    copy_words(out, at, sizeof(*out));
    copy_words(&seq_after, at, sizeof(seq_after));
    if (out->seq == 0 || out->seq != seq_after)
        return false;
    if (out->kind >= MOTET_NUM_KINDS || out->type >= MOTET_NUM_TYPES ||
            out->state == MOTET_TRACE_EMPTY || out->state > MOTET_TRACE_FAILED)
        return false;
    if (out->redop >= MOTET_NUM_REDOPS) {
        if (motet_kind_table[out->kind].reduces)
            return false;
        out->redop = MOTET_SUM;
    }
    if (out->peer < -1 || out->peer >= file->nranks)
        out->peer = -1;
    if (out->waits_for < -1 || out->waits_for >= file->nranks)
        out->waits_for = -1;
    /* The end is two stores: the state, which comes second, decides. */
    if (out->state == MOTET_TRACE_RUNNING || out->state == MOTET_TRACE_WAITING)
        out->end_ns = 0;
    return true;
}

static void insert_sorted(motet_trace_snapshot *out, const motet_trace_op *record)
{
    unsigned at = out->ops;

    while (at > 0 && out->file.op[at - 1].seq > record->seq)
        at--;
    memmove(&out->file.op[at + 1], &out->file.op[at],
            (out->ops - at) * sizeof(*record));
    memcpy(&out->file.op[at], record, sizeof(*record));
    out->ops++;
}

/* Records from the oldest slot on, so that they arrive almost sorted. */
static void parse_records(const char *bytes, size_t whole, motet_trace_snapshot *out)
{
    const size_t begun_at = offsetof(motet_trace_file, begun);
    uint64_t first = out->file.begun, last;

    for (unsigned k = 0; k < MOTET_TRACE_OPS; k++) {
        size_t slot = (first + k) % MOTET_TRACE_OPS;
        motet_trace_op record;

        if (slot >= whole ||
                !parse_record(bytes + HEADER_BYTES + slot * sizeof(record), &out->file,
                        &record))
            continue;
        /* Live, operations may have begun since; a record is visible before its count. */
        copy_words(&last, bytes + begun_at, sizeof(last));
        if ((record.seq - 1) % MOTET_TRACE_OPS == slot && last <= SEQ_MAX &&
                record.seq <= last + 1 && record.seq + MOTET_TRACE_OPS > first)
            insert_sorted(out, &record);
    }
    if (out->ops > 0 && out->file.op[out->ops - 1].seq > out->file.begun)
        out->file.begun = out->file.op[out->ops - 1].seq;
}

motet_result motet_trace_parse(const void *data, size_t bytes,
        motet_trace_snapshot *out)
{
    motet_trace_file header;
    size_t whole;

    if (bytes < HEADER_BYTES)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "%zu bytes are too short for a recorder file, whose head has %zu",
                bytes, HEADER_BYTES);
    MOTET_TRY(parse_header(data, &header), "read the head");
    whole = (bytes - HEADER_BYTES) / sizeof(motet_trace_op);
    memset(out, 0, sizeof(*out));
    memcpy(&out->file, &header, HEADER_BYTES);
    parse_records(data, whole, out);
    return MOTET_OK;
}

/* Reads up to @p bytes from the start; −1 with errno on failure. */
static ssize_t read_whole(int fd, void *buf, size_t bytes)
{
    size_t done = 0;

    while (done < bytes) {
        ssize_t n = pread(fd, (char *)buf + done, bytes - done, (off_t)done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

/* Reads twice and joins: the head of the second reading, the records of the first that
 * were not rewritten before the second. */
static ssize_t read_stable(int fd, motet_trace_file *first, motet_trace_file *second)
{
    ssize_t n = read_whole(fd, first, sizeof(*first));
    ssize_t again = n < 0 ? -1 : read_whole(fd, second, sizeof(*second));

    if (again < 0)
        return -1;
    n = n < again ? n : again;
    for (int i = 0; i < MOTET_TRACE_OPS; i++) {
        if (first->op[i].seq == second->op[i].seq)
            memcpy(&second->op[i], &first->op[i], sizeof(second->op[i]));
        else
            second->op[i].seq = 0;
    }
    return n;
}

motet_result motet_trace_read(const char *path, motet_trace_snapshot *out)
{
    motet_result result = MOTET_OK;
    motet_trace_file *copies = NULL;
    struct stat status;
    ssize_t n;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "open '%s'", path);
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        result = motet_fail(MOTET_ERR_ARGUMENT, "'%s' is no regular file", path);
        goto out;
    }
    copies = calloc(2, sizeof(*copies));
    if (copies == NULL) {
        result = motet_fail(MOTET_ERR_SYSTEM, "no memory to read '%s', %zu bytes", path,
                2 * sizeof(*copies));
        goto out;
    }
    n = read_stable(fd, &copies[0], &copies[1]);
    if (n < 0) {
        result = motet_fail_errno(MOTET_ERR_SYSTEM, "read '%s'", path);
        goto out;
    }
    result = motet_trace_parse(&copies[1], (size_t)n, out);
    if (result != MOTET_OK)
        result = motet_error_wrap(result, "'%s'", path);
    else
        snprintf(out->path, sizeof(out->path), "%s", path);
out:
    free(copies);
    close(fd);
    return result;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

uint64_t motet_trace_last_sign_ns(const motet_trace_snapshot *snapshot)
{
    uint64_t last = later(snapshot->file.created_ns, snapshot->file.heartbeat_ns);

    for (unsigned i = 0; i < snapshot->ops; i++) {
        last = later(last, snapshot->file.op[i].start_ns);
        last = later(last, snapshot->file.op[i].end_ns);
    }
    return last;
}
