/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches that the runtime refused: logs of AMD_LOG_LEVEL, WARN lines of the collective
 * library, probes of two kernels. See amd-hosts.md §3.3.
 */
#include "access.h"

#include "job.h"

#include <string.h>

#define REFUSALS_MAX 256u
#define KERNELS      64u /* threads whose last kernel is remembered */

static const char refused[] = "Pcie atomics not enabled, hostcall not supported";
static const char state[] = "the operation cannot be performed in the present state";

/* The last kernel that a thread named. */
struct thread {
    struct dr_span who; /* "[pid:48211 tid: 0x7b1a0]", "" in a log without them */
    struct dr_span kernel;
    uint32_t line;
};

struct launches {
    struct thread threads[KERNELS];
    uint32_t next;
};

/* ---- who ---- */

/* What stands between " us: " and @p message, of the record that it belongs to. */
static struct dr_span thread_of(const char *text, const char *message)
{
    const char *begin = NULL, *at = text;
    struct dr_span who = { message, 0 };

    while ((at = strstr(at, " us: ")) != NULL && at < message)
        begin = at += strlen(" us: ");
    if (begin == NULL || begin > message)
        return who;
    who = (struct dr_span){ begin, (size_t)(message - begin) };
    while (who.length > 0 && who.at[who.length - 1] == ' ')
        who.length--;
    return who;
}

/* "[pid:48211 tid: 0x7b1a0]", "22123: [tid:0x7f12]": the process. */
static int64_t process_of(struct doctor *d, struct dr_span who)
{
    const char *text = dr_copy(d, who.at, who.length);
    struct dr_span out[1];
    uint64_t pid;

    if ((dr_scan(text, "pid:%d", out) || dr_scan(text, "pid: %d", out) ||
                dr_scan(text, "^%d", out)) &&
            dr_span_u64(out[0], &pid) && pid < INT64_MAX)
        return (int64_t)pid;
    return -1;
}

static struct thread *find_thread(struct launches *l, struct dr_span who)
{
    for (uint32_t i = 0; i < KERNELS; i++)
        if (l->threads[i].kernel.at != NULL && l->threads[i].who.length == who.length &&
                memcmp(l->threads[i].who.at, who.at, who.length) == 0)
            return &l->threads[i];
    return NULL;
}

static void name_kernel(struct launches *l, const char *text, uint32_t line)
{
    const char *at = strstr(text, "ShaderName :"), *name;
    const struct dr_span who = thread_of(text, at);
    struct thread *t = find_thread(l, who);

    if (t == NULL)
        t = &l->threads[l->next++ % KERNELS];
    name = at + strlen("ShaderName :");
    name += strspn(name, " ");
    *t = (struct thread){ who, { name, strlen(name) }, line };
}

/* "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)": without its arguments. */
static const char *short_name(struct doctor *d, struct dr_span kernel)
{
    const char *paren = memchr(kernel.at, '(', kernel.length);
    const size_t length = paren != NULL ? (size_t)(paren - kernel.at) : kernel.length;

    return dr_copy(d, kernel.at, length < 160 ? length : 160);
}

/* "device 1 (0000:0b:00.0)" of a process, as far as its log says. */
static const char *device_of(struct doctor *d, int64_t process)
{
    const struct dr_job *job = d->job;

    for (uint32_t i = 0; process >= 0 && i < job->num_inits; i++)
        if (job->workers[job->inits[i].worker].pid == process)
            return job->inits[i].has_bus
                    ? dr_printf(d, "device %u (%s)",
                              job->workers[job->inits[i].worker].dev,
                              dr_bus_name(d, job->inits[i].bus))
                    : dr_printf(d, "device %u", job->workers[job->inits[i].worker].dev);
    for (uint32_t i = 0; process >= 0 && i < job->num_workers; i++)
        if (job->workers[i].pid == process)
            return dr_printf(d, "device %u", job->workers[i].dev);
    return "";
}

/* ---- refusals ---- */

static struct dr_refusal *refusal(struct doctor *d, const char *kernel, int64_t process,
        uint32_t line)
{
    struct dr_access *a = d->access;
    struct dr_refusal *r;

    dr_known(d, line);
    for (uint32_t i = 0; i < a->num_refusals; i++) {
        r = &a->refusals[i];
        if (r->process == process && (r->kernel == NULL) == (kernel == NULL) &&
                (kernel == NULL || strcmp(r->kernel, kernel) == 0))
            return NULL; /* the same again */
    }
    if (a->num_refusals == REFUSALS_MAX)
        return NULL;
    r = DR_PUSH(d, a->refusals, a->num_refusals, a->room_refusals);
    r->kernel = kernel;
    r->process = process;
    r->device = device_of(d, process);
    r->line = line;
    r->line_kernel = DR_NONE;
    return r;
}

static void refuse(struct doctor *d, struct launches *l, uint32_t line)
{
    const char *text = d->lines[line].text;
    const struct dr_span who = thread_of(text, strstr(text, refused));
    const struct thread *t = find_thread(l, who);
    struct dr_refusal *r = refusal(d, t != NULL ? short_name(d, t->kernel) : NULL,
            process_of(d, who), line);

    if (r != NULL && t != NULL)
        r->line_kernel = t->line;
}

/* The library's own WARN about a launch. */
static void refuse_by_library(struct doctor *d, uint32_t line)
{
    const uint32_t entry = d->job->log_of[line];
    const struct dr_log_line *l = entry != DR_NONE ? &d->job->log[entry] : NULL;
    struct dr_refusal *r;

    if (l == NULL || !l->warn || !dr_has(l->where, "enqueue.cc") ||
            !dr_has_any_case(l->message, " failure "))
        return;
    r = refusal(d, NULL, d->job->workers[l->worker].pid, line);
    if (r != NULL)
        r->by_library = true;
}

/* "[plain ] launch:no error sync:no error", "plain: ok" a few lines above. */
static uint32_t plain_before(const struct doctor *d, uint32_t line)
{
    const uint32_t first = d->sources[d->lines[line].source].first;

    for (uint32_t i = line; i > first && line - i < 16; i--) {
        const char *text = d->lines[i - 1].text;

        if (dr_has_any_case(text, "plain") && !dr_has(text, state) &&
                (dr_has_any_case(text, "no error") || dr_has_any_case(text, "ok") ||
                        dr_has_any_case(text, "pass") ||
                        dr_has_any_case(text, "success")))
            return i - 1;
    }
    return DR_NONE;
}

static void refuse_by_probe(struct doctor *d, uint32_t line)
{
    const uint32_t plain = plain_before(d, line);
    struct dr_refusal *r;
    struct dr_span out[1] = { { NULL, 0 } };

    if (plain == DR_NONE || (d->lines[line].flags & DR_COMMAND))
        return;
    for (uint32_t i = plain; i > 0 && plain - i < 4 && out[0].at == NULL; i--)
        if (!dr_scan(d->lines[i - 1].text, "%<dev%d", out))
            (void)dr_scan(d->lines[i - 1].text, "%<device %d", out);
    r = refusal(d, "the probe's hostcall kernel", -1 - (int64_t)line, line);
    if (r == NULL)
        return;
    r->line_kernel = plain;
    if (out[0].at != NULL)
        r->device = dr_printf(d, "device %.*s", (int)out[0].length, out[0].at);
}

/* What `motet probe --gate-kernels` repeats of the runtime's words: a line of its own says
 * which kernel it was, and that is no library's. */
static bool is_quoted(const char *text)
{
    return dr_has(text, "the runtime printed: ") || dr_has(text, "\"printed\": \"");
}

void dr_read_launches(struct doctor *d)
{
    struct launches *l = dr_alloc(d, sizeof(*l));

    for (uint32_t i = 0; i < d->num_lines; i++) {
        const char *text = d->lines[i].text;

        if (dr_has(text, "ShaderName :")) {
            name_kernel(l, text, i);
            dr_known(d, i);
        }
        if (is_quoted(text)) {
            dr_known(d, i);
        } else if (dr_has(text, refused)) {
            refuse(d, l, i);
        } else if (dr_has(text, "AQL dispatch failed!") ||
                dr_has(text, "Returned hipErrorIllegalState")) {
            dr_trouble(d, i);
        } else if (dr_has(text, state)) {
            if (dr_scan(text, "%<hostcall%>", NULL))
                refuse_by_probe(d, i);
            else
                refuse_by_library(d, i);
            dr_trouble(d, i);
        }
    }
}
