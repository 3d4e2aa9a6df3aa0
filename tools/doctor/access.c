/* SPDX-License-Identifier: Apache-2.0 */
/* Reads device nodes, shared memory, NUMA calls, time-sliced profiles. See access.h. */
#include "access.h"

#include "job.h"
#include "rules.h"

#include <ctype.h>
#include <string.h>

/* Of one kind; a hostile text may hold any number. */
#define EVENTS_MAX 512u

static struct dr_access_event *event(struct doctor *d, enum dr_access_what what,
        const char *name, uint32_t line)
{
    struct dr_access *a = d->access;
    struct dr_access_event *e;

    if (a->counts[what]++ < EVENTS_MAX)
        e = DR_PUSH(d, a->events, a->num_events, a->room_events);
    else
        e = dr_alloc(d, sizeof(*e)); /* enough of them are kept */
    e->what = what;
    e->name = dr_copy(d, name, strlen(name));
    e->line = line;
    e->line_before = DR_NONE;
    dr_known(d, line);
    return e;
}

/* ---- shared memory ---- */

static uint64_t segment_bytes(const char *text)
{
    struct dr_span out[1];
    uint64_t bytes = 0;

    if (dr_scan(text, "(size %d", out) || dr_scan(text, " to %d bytes", out))
        (void)dr_span_u64(out[0], &bytes);
    return bytes;
}

static void read_space(struct doctor *d, uint32_t line)
{
    static const char *const about[] = { "/dev/shm", "shared memory", "posix_fallocate",
        "shm_open", "shmutils", "shm.h", "</torch_" };
    const char *text = d->lines[line].text;

    for (size_t i = 0; i < sizeof(about) / sizeof(*about); i++)
        if (dr_has(text, about[i])) {
            event(d, DR_SHM_SPACE, "/dev/shm", line)->bytes = segment_bytes(text);
            return;
        }
}

/* The line before @p entry, of the three last of the same process, where the runtime fails. */
static uint32_t failure_before(const struct doctor *d, uint32_t entry)
{
    const struct dr_job *job = d->job;
    uint32_t seen = 0;

    for (uint32_t i = entry; i > 0 && entry - i < 200 && seen < 3; i--) {
        const struct dr_log_line *l = &job->log[i - 1];

        if (l->worker != job->log[entry].worker)
            continue;
        if (dr_has_any_case(l->message, "cuda failure") ||
                dr_has(l->message, "HIP failure"))
            return l->line;
        seen++;
    }
    return DR_NONE;
}

static void read_segment(struct doctor *d, uint32_t line)
{
    const char *text = d->lines[line].text;
    const uint32_t entry = d->job->log_of[line];
    struct dr_access_event *e;
    uint32_t before;

    if (!dr_has(text, "rror while creating shared memory segment") ||
            dr_has(text, "No space") || entry == DR_NONE)
        return;
    before = failure_before(d, entry);
    if (before == DR_NONE) {
        dr_trouble(d, line);
        return;
    }
    e = event(d, DR_SHM_REGISTER, dr_worker_name(d, d->job->log[entry].worker), line);
    e->bytes = segment_bytes(text);
    e->line_before = before;
}

/* ---- device nodes ---- */

static const struct node_error {
    const char *text, *name;
    enum dr_access_what what;
} node_errors[] = {
    { "o such file or directory", "ENOENT", DR_NODE_ABSENT },
    { "ermission denied", "EACCES", DR_NODE_DENIED },
    { "peration not permitted", "EPERM", DR_NODE_FORBIDDEN },
    { "nvalid argument", "EINVAL", DR_NODE_INVALID },
};

/* What did something else to the node than open it. */
static bool opens_nothing(const char *text)
{
    static const char *const others[] = { "chmod", "chown", "chgrp", "mknod", "mount",
        "setfacl", "rm:", "ln:", "usermod", "umount" };

    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        if (dr_has(text, others[i]))
            return true;
    return false;
}

/* Reading /dev/kfd answers EINVAL always: only what could not be opened counts; cat does
 * not say which of the two it was. */
static bool reads_it(const struct doctor *d, uint32_t line)
{
    static const char *const readers[] = { "cat: ", "head: ", "od: ", "xxd: ",
        "hexdump: ", "tail: ", "error reading" };
    const char *text = d->lines[line].text;

    for (size_t i = 0; i < sizeof(readers) / sizeof(*readers); i++)
        if (dr_has(text, readers[i]))
            return !dr_has(text, "open");
    return false;
}

static void read_node(struct doctor *d, uint32_t line)
{
    const char *text = d->lines[line].text, *at = strstr(text, "/dev/kfd");
    const char *node;
    size_t length;

    if (at == NULL)
        at = strstr(text, "/dev/dri/render");
    if (at == NULL || (d->lines[line].flags & (DR_COMMAND | DR_REMARK)) ||
            opens_nothing(text))
        return;
    if (dr_has(text, "custom device") || dr_has(text, "Error: stat")) {
        dr_trouble(d, line); /* the host itself has no such node */
        return;
    }
    if (text[0] == 'c' && dr_scan(text, "^%w %d %w %w %d, %d ", NULL))
        dr_known(d, line); /* ls -l */
    length = strlen("/dev/");
    while (isalnum((unsigned char)at[length]) || at[length] == '/')
        length++;
    node = dr_copy(d, at, length);
    for (size_t i = 0; i < sizeof(node_errors) / sizeof(*node_errors); i++) {
        const struct node_error *e = &node_errors[i];
        const bool kfd = strcmp(node, "/dev/kfd") == 0;

        if (!dr_has(text, e->text) && !dr_has(text, e->name))
            continue;
        if (!kfd && e->what == DR_NODE_DENIED && !reads_it(d, line))
            dr_trouble(d, line);
        if ((!kfd && e->what != DR_NODE_FORBIDDEN) ||
                (e->what == DR_NODE_INVALID && reads_it(d, line)))
            return;
        (void)event(d, e->what, node, line);
        return;
    }
    if (dr_has(text, "Unable to open"))
        dr_trouble(d, line);
}

/* ---- NUMA calls, profiles ---- */

static void read_numa(struct doctor *d, uint32_t line)
{
    static const char *const calls[] = { "get_mempolicy", "set_mempolicy", "mbind",
        "move_pages" };
    const char *text = d->lines[line].text;

    for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
        if (dr_has(text, calls[i]))
            (void)event(d, DR_NUMA_BLOCKED, calls[i], line);
}

static void read_not_supported(struct doctor *d, uint32_t line)
{
    const char *text = d->lines[line].text;

    if (dr_has_any_case(text, "cuda failure") &&
            (dr_has(text, " WARN ") || dr_has(text, "failure 801")) &&
            !dr_has(text, "nvls"))
        (void)event(d, DR_NOT_SUPPORTED, "", line);
}

/* "NVIDIA A40-24Q", "GRID A100D-80C": a name that ends in a profile. */
static void read_profile(struct doctor *d, uint32_t line)
{
    const char *text = d->lines[line].text;

    for (const char *at = text; (at = strchr(at, '-')) != NULL; at++) {
        const size_t digits = strspn(at + 1, "0123456789");
        const char kind = at[1 + digits];
        const char *name = at;

        if (digits == 0 || digits > 3 || kind == 0 || strchr("ABCQ", kind) == NULL ||
                isalnum((unsigned char)at[2 + digits]) || at[2 + digits] == '-')
            continue;
        while (name > text && (isalnum((unsigned char)name[-1]) || name[-1] == '-'))
            name--;
        if (name == at || !isupper((unsigned char)*name))
            continue;
        (void)event(d, DR_VGPU, dr_copy(d, name, (size_t)(at - name) + digits + 2),
                line);
        return;
    }
}

static void read_mode(struct doctor *d, uint32_t line)
{
    struct dr_span out[1];

    if (dr_scan(d->lines[line].text, "Virtualization Mode : %w", out) ||
            dr_scan(d->lines[line].text, "Virtualization Mode: %w", out)) {
        if (out[0].length == 4 && strncasecmp(out[0].at, "vgpu", 4) == 0)
            (void)event(d, DR_VGPU, "Virtualization Mode VGPU", line);
    }
}

/* ---- all of them ---- */

static void read_rocm(struct doctor *d, uint32_t line)
{
    dr_known(d, line);
    if (d->access->rocm == DR_NONE)
        d->access->rocm = line;
}

static const struct reader {
    const char *needle;
    void (*read)(struct doctor *d, uint32_t line);
} readers[] = {
    { "No space left on device", read_space },
    { "shared memory segment", read_segment },
    { "/dev/kfd", read_node },
    { "/dev/dri/render", read_node },
    { "Operation not permitted", read_numa },
    { "operation not supported", read_not_supported },
    { "NVIDIA ", read_profile },
    { "GRID ", read_profile },
    { "Virtualization Mode", read_mode },
    { "ROCk module", read_rocm },
    { "no ROCm-capable device", read_rocm },
    { "No HIP GPUs are available", read_rocm },
};

void dr_read_access(struct doctor *d)
{
    d->access = dr_alloc(d, sizeof(*d->access));
    d->access->asked_hostcall = d->access->rocm = DR_NONE;
    for (uint32_t i = 0; i < d->num_lines; i++)
        for (size_t k = 0; k < sizeof(readers) / sizeof(*readers); k++)
            if (dr_has(d->lines[i].text, readers[k].needle))
                readers[k].read(d, i);
    dr_read_launches(d);
    dr_read_images(d);
}
