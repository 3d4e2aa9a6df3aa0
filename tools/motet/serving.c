/* SPDX-License-Identifier: Apache-2.0 */
/* Who computes on this host's GPUs, and whether to go on: see serving.h. */
#include "serving_parts.h"

#include "cmd.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

/* A process that has just ended still holds its GPU for a moment: whoever cannot be found
 * in /proc is looked for again, so often and so far apart. */
#define TRIES    10
#define APART_MS 200

/* ---- the list ---- */

void serving_add(struct serving_list *list, struct serving_seen seen)
{
    if (list->count == list->room) {
        size_t room = list->room == 0 ? 32 : 2 * list->room;
        struct serving_seen *more = realloc(list->seen, room * sizeof(*more));

        if (more == NULL) {
            serving_not_seen(list, "no memory for the list of users");
            return;
        }
        list->seen = more;
        list->room = room;
    }
    list->seen[list->count++] = seen;
}

void serving_not_seen(struct serving_list *list, const char *fmt, ...)
{
    va_list args;

    if (list->unknown[0] != 0)
        return;
    va_start(args, fmt);
    vsnprintf(list->unknown, sizeof(list->unknown), fmt, args);
    va_end(args);
}

/* By pid; of one process what computes first. */
static int in_order(const void *one, const void *other)
{
    const struct serving_seen *a = one, *b = other;

    if (a->pid != b->pid)
        return a->pid < b->pid ? -1 : 1;
    return (int)a->display - (int)b->display;
}

bool serving_has_children(void)
{
    siginfo_t info = { .si_pid = 0 };

    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

/* Take out whom nobody has to stop. Returns how many are left that cannot be found. */
static size_t drop_own(struct serving_list *list)
{
    size_t kept = 0, lost = 0;

    for (size_t i = 0; i < list->count; i++) {
        struct serving_seen *seen = &list->seen[i];

        /* its number means nothing here, so it may be one of the caller's own */
        if (seen->outside && serving_has_children()) {
            serving_not_seen(list,
                    "in this pid namespace users of AMD GPUs cannot be told from the "
                    "ranks of this command");
            continue;
        }
        if (!seen->outside &&
                (serving_is_own(seen->pid) || serving_is_gone(seen->pid) ||
                        serving_is_daemon(seen->pid)))
            continue;
        lost += seen->outside;
        list->seen[kept++] = *seen;
    }
    list->count = kept;
    return lost;
}

static void look_once(struct serving_list *list)
{
    list->count = 0;
    list->unknown[0] = 0;
    serving_kfd(list);
    serving_nvml(list);
}

/* ---- the answer ---- */

static void take_gpu(struct serving_user *user, const struct serving_seen *seen)
{
    size_t n = strlen(user->gpu);

    if (strstr(user->gpu, seen->gpu) != NULL)
        return;
    snprintf(user->gpu + n, sizeof(user->gpu) - n, "%s%s", n > 0 ? ", " : "",
            seen->gpu);
}

static void describe(struct serving_user *user, const struct serving_seen *seen)
{
    *user = (struct serving_user){ .pid = seen->pid, .display = seen->display };
    if (!seen->outside) {
        serving_describe(user);
        return;
    }
    if (seen->pid == 0) {
        snprintf(user->command, sizeof(user->command),
                "a process outside of this container, which holds memory");
        snprintf(user->stop, sizeof(user->stop),
                "ask the host which process it is, and stop and mask its unit there");
        return;
    }
    snprintf(user->command, sizeof(user->command),
            "a process outside of this container; the pid is the host's");
    snprintf(user->stop, sizeof(user->stop),
            "kill %d on the host, or stop and mask its unit there", (int)seen->pid);
}

static void fill(struct serving *out, struct serving_list *list)
{
    struct serving_user user;

    if (list->count > 0)
        qsort(list->seen, list->count, sizeof(*list->seen), in_order);
    for (size_t i = 0; i < list->count;) {
        size_t first = i;

        describe(&user, &list->seen[first]);
        for (; i < list->count && list->seen[i].pid == list->seen[first].pid; i++)
            take_gpu(&user, &list->seen[i]);
        out->num_busy += !user.display;
        if (out->num_users < SERVING_MAX)
            out->users[out->num_users++] = user;
        else
            out->num_more++;
    }
}

void serving_look(struct serving *out)
{
    static char unknown[sizeof(((struct serving_list *)0)->unknown)];
    const struct timespec nap = { .tv_nsec = APART_MS * 1000000L };
    struct serving_list list = { .seen = NULL };

    memset(out, 0, sizeof(*out));
    (void)serving_is_own(0); /* who is the first caller */
    look_once(&list);
    for (int i = 0; drop_own(&list) > 0 && i < TRIES; i++) {
        nanosleep(&nap, NULL);
        look_once(&list);
    }
    fill(out, &list);
    free(list.seen);
    serving_remember(out);
    serving_units(out);
    memcpy(unknown, list.unknown, sizeof(unknown));
    out->unknown = unknown[0] != 0 ? unknown : NULL;
}

bool serving_busy(const struct serving *s)
{
    return s->num_busy > 0;
}

/* ---- what is said ---- */

static void print_user(const struct serving_user *u)
{
    if (u->pid > 0)
        fprintf(stderr, "  pid %d: ", (int)u->pid);
    else
        fprintf(stderr, "  pid unknown: ");
    fprintf(stderr, "%s\n    on %s", u->command, u->gpu);
    if (u->unit[0] != 0)
        fprintf(stderr, ", %s%s", u->is_unit ? "unit " : "", u->unit);
    if (u->display)
        fprintf(stderr, "; a display server, which may stay\n");
    else
        fprintf(stderr, "\n    to stop it: %s\n", u->stop);
}

/* Once a process: it is the same before each stage. */
static void print_asides(const char *command, const struct serving *s)
{
    static bool said_unknown, said_unmasked, said_display;

    for (size_t i = 0; i < s->num_users && !said_display && s->num_busy == 0; i++)
        fprintf(stderr,
                "motet %s: pid %d, %s, draws on a GPU of this host: that alone is no "
                "reason to stop\n",
                command, (int)s->users[i].pid, s->users[i].command);
    said_display |= s->num_users > 0;

    if (s->unknown != NULL && !said_unknown) {
        fprintf(stderr, "motet %s: %s\n", command, s->unknown);
        said_unknown = true;
    }
    for (size_t i = 0; i < s->num_unmasked && !said_unmasked; i++)
        fprintf(stderr,
                "motet %s: %s is stopped but not masked, so it may come back in the "
                "middle of this: systemctl mask %s\n",
                command, s->unmasked[i], s->unmasked[i]);
    said_unmasked |= s->num_unmasked > 0;
}

static void print_users(const char *command, const struct serving *s, bool anyway)
{
    bool units = false;

    if (anyway)
        fprintf(stderr,
                "motet %s: warning: other processes compute on GPUs of this host "
                "(--serving-anyway)\n",
                command);
    else
        fprintf(stderr,
                "motet %s: refused: other processes compute on GPUs of this host. A "
                "test "
                "beside a running service has taken whole hosts down, whichever GPU it "
                "was on.\n",
                command);
    for (size_t i = 0; i < s->num_users; i++) {
        print_user(&s->users[i]);
        units |= s->users[i].is_unit && !s->users[i].display;
    }
    if (s->num_more > 0)
        fprintf(stderr, "  and %zu more\n", s->num_more);
    if (units)
        fprintf(stderr,
                "A unit that is only stopped may be started again in the middle of a "
                "test: mask it too, and unmask it afterwards.\n");
    if (!anyway)
        fprintf(stderr, "--serving-anyway runs it regardless.\n");
}

int serving_refuse(const char *command, bool anyway)
{
    static bool warned;
    struct serving s;

    serving_look(&s);
    print_asides(command, &s);
    if (!serving_busy(&s))
        return -1;
    if (anyway && warned)
        return -1;
    warned |= anyway;
    print_users(command, &s, anyway);
    return anyway ? -1 : EXIT_UNDECIDED;
}

int serving_enter(const char *command, const char *stage, bool anyway)
{
    char said[160];
    int code = serving_refuse(command, anyway);

    if (code >= 0)
        return code;
    if (serving_did_not_return(command, stage, said, sizeof(said))) {
        if (!anyway) {
            fprintf(stderr,
                    "motet %s: refused: the same began %s. What did not come back is "
                    "not repeated; --serving-anyway repeats it.\n",
                    command, said);
            return EXIT_UNDECIDED;
        }
        serving_forget(command);
    }
    serving_begin(command, stage);
    return -1;
}
