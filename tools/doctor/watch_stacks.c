/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads stacks as gdb, pstack, eu-stack, lldb and py-spy print them: whether a thread
 * sits in an abort, and which other thread it waits for. Frames go inwards or outwards.
 */
#include "watch.h"

#include "facts.h"
#include "rules.h"

#include <ctype.h>
#include <string.h>

#define ABORTS_MAX 64u

/* One thread's stack, as far as it has been read; positions count its lines from 1. */
struct stack {
    const char *name;
    uint32_t at_join, at_free, at_abort;
    uint32_t line_join, line_free, line_abort, line_service;
    uint32_t position;
    bool waits_forever; /* poll() without a time limit */
};

struct stacks {
    struct stack now;
    struct stack service; /* the thread that serves the transport, of this dump */
    uint32_t first_abort; /* of this dump */
};

/* Whether the line is a frame in function @p name. */
static bool in_function(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    const size_t length = strlen(name);

    for (; at != NULL; at = strstr(at + 1, name)) {
        char next = at[length];

        if (next == '.') /* "commFree.isra.0": a clone */
            next = at[length + strcspn(at + length, " (+@")];
        if (at > text && (isalnum((unsigned char)at[-1]) || at[-1] == '_'))
            continue;
        if (next == '(' || next == '+' || next == 0 || next == '@' ||
                (next == ' ' &&
                        strchr("(+[", at[length + strcspn(at + length, " ") + 1]) !=
                                NULL))
            return true;
    }
    return false;
}

static bool is_join(const char *text)
{
    return dr_has(text, "pthread_join") || dr_has(text, "pthread_clockjoin") ||
            dr_has(text, "pthread_timedjoin") || in_function(text, "std::thread::join");
}

/* The name in quotes of a thread's first line, if it has one. */
static const char *thread_name(struct doctor *d, const char *text)
{
    struct dr_span name;

    if ((dr_scan(text, "\"%*\"", &name) || dr_scan(text, "name = '%*'", &name)) &&
            name.length > 0 && name.length < 64)
        return dr_copy(d, name.at, name.length);
    return NULL;
}

static bool begins_thread(const char *text)
{
    static const char *const heads[] = { "^Thread %d (", "^Thread 0x%x (",
        "^TID %d:", "^* thread #%d", "^ thread #%d", "^Thread %d:", "^[Switching to" };

    for (size_t i = 0; i < sizeof(heads) / sizeof(*heads); i++)
        if (dr_scan(text, heads[i], NULL))
            return true;
    return false;
}

/* One after the other, inwards or outwards. */
static bool in_order(const struct stack *s)
{
    if (s->at_join == 0 || s->at_free == 0 || s->at_abort == 0)
        return false;
    return (s->at_join < s->at_free && s->at_free < s->at_abort) ||
            (s->at_join > s->at_free && s->at_free > s->at_abort);
}

static void end_stack(struct doctor *d, struct stacks *all)
{
    struct dr_watch *w = d->watch;
    const struct stack *s = &all->now;

    if (s->line_service != DR_NONE &&
            (all->service.line_service == DR_NONE || s->waits_forever))
        all->service = *s;
    if (s->at_abort > 0 && s->position > 1)
        dr_trouble(d, s->line_abort);
    if (in_order(s) && w->num_aborts < ABORTS_MAX)
        *DR_PUSH(d, w->aborts, w->num_aborts, w->room_aborts) =
                (struct dr_abort){ .line_join = s->line_join,
                    .line_free = s->line_free,
                    .line_abort = s->line_abort,
                    .line_service = DR_NONE,
                    .thread = s->name };
    all->now = (struct stack){ .line_service = DR_NONE };
}

/* What was asked for is printed: who serves is known now, wherever it stood. */
static void end_dump(struct doctor *d, struct stacks *all)
{
    struct dr_watch *w = d->watch;
    const struct stack *s = &all->service;

    end_stack(d, all);
    for (uint32_t i = all->first_abort; i < w->num_aborts; i++) {
        w->aborts[i].line_service = s->line_service;
        w->aborts[i].service = s->line_service == DR_NONE ? NULL
                : s->name != NULL                         ? s->name
                                                          : "ncclProxyService";
    }
    all->first_abort = w->num_aborts;
    all->service = (struct stack){ .line_service = DR_NONE };
}

static void read_frame(struct stack *s, const char *text, uint32_t line)
{
    s->position++;
    if (s->at_join == 0 && is_join(text)) {
        s->at_join = s->position;
        s->line_join = line;
    }
    if (s->at_free == 0 &&
            (in_function(text, "commFree") || in_function(text, "commReclaim"))) {
        s->at_free = s->position;
        s->line_free = line;
    }
    if (s->at_abort == 0 &&
            (in_function(text, "ncclCommAbort") ||
                    in_function(text, "ncclCommAbort_impl"))) {
        s->at_abort = s->position;
        s->line_abort = line;
    }
    if (in_function(text, "ncclProxyService"))
        s->line_service = line;
    s->waits_forever = s->waits_forever || dr_has(text, "timeout=-1");
}

/* Frames are indented or numbered; prose that names a function is not a stack. */
static bool is_frame(const char *text)
{
    return dr_scan(text, "^#%d ", NULL) || dr_scan(text, "^ #%d ", NULL) ||
            dr_scan(text, "^ frame #%d", NULL) ||
            dr_scan(text, "^ * frame #%d", NULL) || dr_scan(text, "^ %w (%*", NULL) ||
            dr_scan(text, "^ %w+0x%x", NULL) || dr_scan(text, "^[<%x>] ", NULL);
}

void dr_read_stacks(struct doctor *d)
{
    struct stacks all = { .now = { .line_service = DR_NONE },
        .service = { .line_service = DR_NONE } };

    for (uint32_t i = 0; i < d->num_lines; i++) {
        const char *text = d->lines[i].text;

        if ((d->lines[i].flags & DR_COMMAND) ||
                (i > 0 && d->lines[i].source != d->lines[i - 1].source)) {
            end_dump(d, &all);
        } else if (begins_thread(text)) {
            end_stack(d, &all);
            all.now.name = thread_name(d, text);
            dr_known(d, i);
        }
        if (!is_frame(text))
            continue;
        if (dr_scan(text, "^#0 ", NULL) && all.now.position > 0)
            end_stack(d, &all);
        read_frame(&all.now, text, i);
    }
    end_dump(d, &all);
}
