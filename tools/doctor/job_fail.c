/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What went wrong, and what only follows from it. When several ranks report, the first
 * cause is the earliest by time stamp, else by position; a closed socket, a failed receive,
 * a proxy's or launcher's trace is never one.
 */
#include "job.h"
#include "lines.h"

#include <ctype.h>
#include <string.h>

/* ---- time ---- */

double dr_line_time(const char *text)
{
    static const char *const dates[] = { "^[%d-%d-%d %d:%d:%f", "^%d-%d-%d %d:%d:%f",
        "^%d-%d-%dT%d:%d:%f", "^[%d-%d-%dT%d:%d:%f", "^%d/%d/%d %d:%d:%f" };
    struct dr_span got[7];
    double month, day;

    text = dr_after_prefix(text);
    for (size_t i = 0; i < sizeof(dates) / sizeof(*dates); i++)
        if (dr_scan(text, dates[i], got))
            return (((dr_span_double(got[1]) * 31 + dr_span_double(got[2])) * 24 +
                            dr_span_double(got[3])) *
                                   60 +
                           dr_span_double(got[4])) *
                    60 +
                    dr_span_double(got[5]);
    /* "[E0611 04:40:12.118", "W611 …": month and day of PyTorch */
    if (*text == '[')
        text++;
    if (strchr("IWEF", *text) == NULL || *text == 0 ||
            !dr_scan(text + 1, "^%d %d:%d:%f", got) || got[0].length < 3 ||
            got[0].length > 4)
        return -1;
    day = dr_span_double(got[0]);
    month = (double)((int)day / 100);
    day -= month * 100;
    return (((month * 31 + day) * 24 + dr_span_double(got[1])) * 60 +
                   dr_span_double(got[2])) *
            60 +
            dr_span_double(got[3]);
}

/* ---- kinds ---- */

static const struct shape {
    const char *text;
    enum dr_failure_kind kind;
    bool log_only; /* in a line of the library                    */
} shapes[] = {
    { "Missing \"", DR_FAILED_NOT, false },
    { "NUMA auto balancing", DR_FAILED_NOT, false },
    { "Unable to resolve hostname", DR_FAILED_NOT, false },
    { "NET/Plugin", DR_FAILED_NOT, false },
    { "ibverbs", DR_FAILED_NOT, false },
    { "Could not find: lib", DR_FAILED_NOT, false },
    { "is deprecated", DR_FAILED_NOT, false },
    { "Could not open kernel conf", DR_FAILED_NOT, false },
    { "[W", DR_FAILED_NOT, false },
    { "Dmabuf", DR_FAILED_NOT, false },
    { "TUNER/Plugin", DR_FAILED_NOT, false },
    { "PROFILER/Plugin", DR_FAILED_NOT, false },
    { "Warning:", DR_FAILED_NOT, false },
    { "FutureWarning", DR_FAILED_NOT, false },
    { "UserWarning", DR_FAILED_NOT, false },
    { "raise ", DR_FAILED_NOT, false },
    { "except ", DR_FAILED_NOT, false },
    { "IpcGetMemHandle failed", DR_FAILED_IPC, false },
    { "IpcOpenMemHandle failed", DR_FAILED_IPC, false },
    { "IpcGetMemHandle returned", DR_FAILED_IPC, false },
    { "IpcOpenMemHandle returned", DR_FAILED_IPC, false },
    { "IpcGetMemHandle error", DR_FAILED_IPC, false },
    { "IpcOpenMemHandle error", DR_FAILED_IPC, false },
    { "essage truncated : received ", DR_FAILED_TRUNCATED, false },
    { "status=12", DR_FAILED_RDMA, false },
    { "ailed status 12", DR_FAILED_RDMA, false },
    { "ompletion with status 12", DR_FAILED_RDMA, false },
    { "ompletion with error 12", DR_FAILED_RDMA, false },
    { "status 12 ", DR_FAILED_RDMA, true },
    { "status: 12 ", DR_FAILED_RDMA, true },
    { "error 12,", DR_FAILED_RDMA, false },
    { "IBV_WC_RETRY_EXC_ERR", DR_FAILED_RDMA, false },
    { "ransport retry count exceeded", DR_FAILED_RDMA, false },
    { "ransport retry counter exceeded", DR_FAILED_RDMA, false },
    { "o socket interface found", DR_FAILED_NO_INTERFACE, false },
    { "o interface found", DR_FAILED_NO_INTERFACE, false },
    { "o device found matching", DR_FAILED_NO_INTERFACE, false },
    { "Unable to find address for", DR_FAILED_NO_INTERFACE, false },
    { "Unable to find interface for", DR_FAILED_NO_INTERFACE, false },
    { "Address family not supported", DR_FAILED_NO_INTERFACE, false },
    { "onnection closed by", DR_FAILED_CLOSED, false },
    { "onnection reset by peer", DR_FAILED_CLOSED, false },
    { "emote process exited", DR_FAILED_CLOSED, false },
    { "Broken pipe", DR_FAILED_CLOSED, false },
    { "recv failed", DR_FAILED_FALL_OUT, true },
    { "recv from", DR_FAILED_FALL_OUT, true },
    { "[Service thread]", DR_FAILED_FALL_OUT, true },
    { "[Proxy", DR_FAILED_FALL_OUT, true },
    { "Could not receive", DR_FAILED_FALL_OUT, true },
    { "ailed to execute operation", DR_FAILED_FALL_OUT, true },
    { "Accept failed", DR_FAILED_FALL_OUT, true },
    { "ray.exceptions", DR_FAILED_FALL_OUT, false },
    { "RayTaskError", DR_FAILED_FALL_OUT, false },
    { "ChildFailedError", DR_FAILED_FALL_OUT, false },
    { "closing signal SIGTERM", DR_FAILED_FALL_OUT, false },
    { "NCCL error in:", DR_FAILED_FALL_OUT, false },
    { "DistBackendError", DR_FAILED_FALL_OUT, false },
    { "Test NCCL failure", DR_FAILED_FALL_OUT, false },
    { "Test failure", DR_FAILED_FALL_OUT, false },
    { "Traceback (most recent", DR_FAILED_FALL_OUT, false },
    { "Duplicate GPU detected", DR_FAILED_CAUSE, false },
    { "uda failure", DR_FAILED_CAUSE, false },
    { "HIP failure", DR_FAILED_CAUSE, false },
    { "CUDA error", DR_FAILED_CAUSE, false },
    { "HIP error", DR_FAILED_CAUSE, false },
    { "out of memory", DR_FAILED_CAUSE, false },
    { "OutOfMemoryError", DR_FAILED_CAUSE, false },
    { "No space left on device", DR_FAILED_CAUSE, false },
    { "hile creating shared memory", DR_FAILED_CAUSE, false },
    { "hile attaching to shared memory", DR_FAILED_CAUSE, false },
    { "mismatch", DR_FAILED_CAUSE, true },
    { "Got completion", DR_FAILED_CAUSE, true },
    { "egmentation fault", DR_FAILED_CAUSE, false },
    { "Bus error", DR_FAILED_CAUSE, false },
    { "Memory access fault", DR_FAILED_CAUSE, false },
    { "illegal memory access", DR_FAILED_CAUSE, false },
    { "HSA_STATUS_ERROR", DR_FAILED_CAUSE, false },
    { "invalid usage", DR_FAILED_CAUSE, true },
    { "already been destroyed", DR_FAILED_CAUSE, true },
};

/* "torch.distributed.X.SomeError: …", the last line of a trace. */
static bool is_exception(const char *text)
{
    const char *colon = strstr(text, ": ");
    size_t length = 0;

    text = dr_after_prefix(text);
    while (isalnum((unsigned char)text[length]) || text[length] == '.' ||
            text[length] == '_')
        length++;
    return colon != NULL && text + length == colon && length > 5 &&
            (strncmp(colon - 5, "Error", 5) == 0 ||
                    (length > 9 && strncmp(colon - 9, "Exception", 9) == 0));
}

/* Which shapes begin with a byte: a line is gone through once for all of them. */
struct dr_shapes {
    unsigned char first[256], next[sizeof(shapes) / sizeof(*shapes)]; /* index + 1 */
};

static struct dr_shapes *index_shapes(struct doctor *d)
{
    struct dr_shapes *x = dr_alloc(d, sizeof(*x));

    _Static_assert(sizeof(shapes) / sizeof(*shapes) < 255, "an index is a byte");
    for (size_t i = sizeof(shapes) / sizeof(*shapes); i > 0; i--) {
        const unsigned char c = (unsigned char)shapes[i - 1].text[0];

        x->next[i - 1] = x->first[c];
        x->first[c] = (unsigned char)i;
    }
    return x;
}

/* The first row of the table that the text holds, + 1; 0: none. */
static unsigned find_shape(const struct dr_shapes *x, const char *text, bool log)
{
    unsigned best = 0;

    for (; *text != 0; text++)
        for (unsigned i = x->first[(unsigned char)*text];
                i != 0 && (best == 0 || i < best); i = x->next[i - 1])
            if ((log || !shapes[i - 1].log_only) &&
                    dr_begins(text, shapes[i - 1].text)) {
                best = i;
                break;
            }
    return best;
}

static bool kind_of(const struct doctor *d, const struct dr_shapes *x, uint32_t line,
        enum dr_failure_kind *kind)
{
    const uint32_t log = d->job->log_of[line];
    const char *text = log != DR_NONE ? d->job->log[log].where : d->lines[line].text;
    unsigned shape;

    if (log != DR_NONE && !d->job->log[log].warn)
        return false;
    shape = find_shape(x, text, log != DR_NONE);
    if (shape != 0)
        *kind = shapes[shape - 1].kind;
    else
        *kind = log != DR_NONE ? DR_FAILED_WARN : DR_FAILED_CAUSE;
    return *kind != DR_FAILED_NOT &&
            (shape != 0 || log != DR_NONE || is_exception(text));
}

/* The peer of a closed connection: "[192.0.2.5]:61724", "n01.cluster<48813>". */
static const char *peer_of(struct doctor *d, uint32_t line)
{
    static const char *const peers[] = { "peer [%*]:%d", "error [%*]:%d", "peer %w<%d>",
        "from %w<%d>", "peer %*<%d>", "remote=[%*]:%d" };
    struct dr_span got[3];

    for (size_t i = 0; i < sizeof(peers) / sizeof(*peers); i++)
        if (dr_scan(d->lines[line].text, peers[i], got) && got[0].length > 0 &&
                got[0].length < 256)
            return dr_copy(d, got[0].at, got[0].length);
    return "";
}

/* ---- all lines ---- */

static void add_failure(struct doctor *d, uint32_t line, enum dr_failure_kind kind,
        const char *address)
{
    struct dr_job *job = d->job;
    struct dr_failure *f =
            DR_PUSH(d, job->failures, job->num_failures, job->room_failures);
    const uint32_t log = job->log_of[line];

    f->kind = kind;
    f->line = line;
    f->worker = log != DR_NONE ? job->log[log].worker : DR_NONE;
    f->rank = dr_job_rank(d, line);
    f->when = dr_line_time(d->lines[line].text);
    f->address = address;
}

/* For each source its last line that is a result, or 0. */
static uint32_t *last_results(struct doctor *d, const struct dr_shapes *x)
{
    uint32_t *last = dr_alloc(d, (d->num_sources + 1) * sizeof(*last));

    for (uint32_t s = 0; s < d->num_sources; s++) {
        const struct dr_source *source = &d->sources[s];
        enum dr_failure_kind kind;

        for (uint32_t i = source->first + source->count; i > source->first; i--)
            if (dr_is_result(d, i - 1) && !kind_of(d, x, i - 1, &kind)) {
                last[s] = i - 1;
                break;
            }
    }
    return last;
}

/* Whatever failed and is no cause of its own leaves the run undetermined. A WARN that
 * nothing is known of is a failure only if no result comes after it. */
static void report_troubles(struct doctor *d, const struct dr_shapes *x)
{
    const struct dr_job *job = d->job;
    const uint32_t *last = last_results(d, x);

    for (uint32_t i = 0; i < job->num_failures; i++) {
        const uint32_t line = job->failures[i].line;

        if (job->failures[i].kind != DR_FAILED_WARN ||
                last[d->lines[line].source] < line)
            dr_trouble(d, line);
    }
    for (uint32_t i = 0; i < job->num_reaches; i++)
        if (job->reaches[i].how != DR_REACH_RANK && job->reaches[i].end != DR_REACH_OK)
            dr_trouble(d, job->reaches[i].line);
}

void dr_read_failures(struct doctor *d)
{
    const struct dr_shapes *x = index_shapes(d);
    struct dr_job *job = d->job;
    uint32_t reach = 0;
    const uint32_t limit = 4096; /* more than anybody reads; the first tell */

    for (uint32_t i = 0; i < d->num_lines && job->num_failures < limit; i++) {
        enum dr_failure_kind kind = DR_FAILED_WARN;
        bool failed;

        if (d->lines[i].flags & (DR_COMMAND | DR_REMARK))
            continue;
        while (reach < job->num_reaches && job->reaches[reach].line < i)
            reach++;
        failed = kind_of(d, x, i, &kind);
        if (reach < job->num_reaches && job->reaches[reach].line == i &&
                job->reaches[reach].how == DR_REACH_RANK &&
                job->reaches[reach].end != DR_REACH_OK && kind != DR_FAILED_CLOSED) {
            if (job->reaches[reach].final)
                add_failure(d, i, DR_FAILED_CONNECT, job->reaches[reach].address);
            continue;
        }
        if (failed)
            add_failure(d, i, kind, kind == DR_FAILED_CLOSED ? peer_of(d, i) : "");
    }
    report_troubles(d, x);
}

/* ---- the first cause ---- */

static bool is_cause(enum dr_failure_kind kind)
{
    return kind <= DR_FAILED_NO_INTERFACE;
}

/* Whether @p a happened before @p b, as far as the text shows it. */
static bool is_earlier(const struct doctor *d, const struct dr_failure *a,
        const struct dr_failure *b)
{
    if (a->when >= 0 && b->when >= 0 && (a->when < b->when || a->when > b->when))
        return a->when < b->when;
    return d->lines[a->line].source == d->lines[b->line].source && a->line < b->line;
}

bool dr_is_fall_out(const struct doctor *d, const struct dr_failure *failure)
{
    const struct dr_job *job = d->job;

    for (uint32_t i = 0; i < job->num_failures; i++) {
        const struct dr_failure *f = &job->failures[i];

        if (f == failure || !is_cause(f->kind) || f->kind == failure->kind)
            continue;
        if (!is_cause(failure->kind))
            return true;
        /* the runtime's own words beside a failed call of the same rank are one failure */
        if (f->kind == DR_FAILED_CAUSE && f->worker == failure->worker &&
                f->worker != DR_NONE && f->line < failure->line &&
                failure->line - f->line <= 3)
            continue;
        if (is_earlier(d, f, failure))
            return true;
    }
    return false;
}
