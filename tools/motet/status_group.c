/* SPDX-License-Identifier: Apache-2.0 */
/* Files become ranks, ranks become communicators, verdicts become an exit status. */
#include "status.h"

#include "cmd.h"

#include <stdlib.h>
#include <string.h>

void status_classify(status_rank *rank, uint64_t now_ns, const char *boot_id,
        const motet_trace_process *process)
{
    const motet_trace_file *file = &rank->snapshot->file;
    bool exists = process != NULL && process->start == file->pid_start &&
            strchr("ZXx", process->state) == NULL;

    if (file->closed)
        rank->process = STATUS_CLOSED;
    else if (strcmp(boot_id, file->boot_id) != 0)
        rank->process = STATUS_UNKNOWN;
    else if (!exists)
        rank->process = STATUS_DEAD;
    else
        rank->process =
                strchr("Tt", process->state) != NULL ? STATUS_STOPPED : STATUS_ALIVE;
    rank->snapshot->alive = status_runs(rank);
    rank->now_ns =
            rank->snapshot->alive ? now_ns : motet_trace_last_sign_ns(rank->snapshot);
}

static int compare(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

/* By communicator and rank; of one rank's files first the one that counts. */
static int compare_ranks(const void *a, const void *b)
{
    const status_rank *x = a, *y = b;
    const motet_trace_file *f = &x->snapshot->file, *g = &y->snapshot->file;
    int order = compare(f->comm, g->comm);

    if (order == 0)
        order = compare((uint64_t)f->rank, (uint64_t)g->rank);
    if (order == 0)
        order = (int)status_runs(y) - (int)status_runs(x);
    return order != 0 ? order : compare(g->created_wall_ns, f->created_wall_ns);
}

static bool group_runs(const status_group *group)
{
    bool runs = false;

    for (size_t i = 0; i < group->count; i++)
        runs = runs || status_runs(&group->ranks[i]);
    return runs;
}

/* Live ones first, then the newest. */
static int compare_groups(const void *a, const void *b)
{
    const status_group *x = a, *y = b;
    int order = (int)group_runs(y) - (int)group_runs(x);

    if (order == 0)
        order = compare(y->ranks[0].snapshot->file.created_wall_ns,
                x->ranks[0].snapshot->file.created_wall_ns);
    return order != 0 ? order : compare(x->comm, y->comm);
}

static void count_missing(status_group *group)
{
    int64_t next = 0;

    for (size_t i = 0; i <= group->count; i++) {
        int64_t rank =
                i < group->count ? group->ranks[i].snapshot->file.rank : group->nranks;

        group->missing_total += rank - next;
        for (; next < rank && group->missing_listed < STATUS_MISSING_MAX; next++)
            group->missing[group->missing_listed++] = (int32_t)next;
        next = rank + 1;
    }
}

/* Fills @p group from the sorted ranks at @p ranks on; drops further files of a rank.
 * Returns how many entries it has used up. */
static size_t take_group(status_rank *ranks, size_t count, status_group *group)
{
    size_t used = 0;

    group->comm = ranks[0].snapshot->file.comm;
    group->ranks = ranks;
    for (; used < count && ranks[used].snapshot->file.comm == group->comm; used++) {
        const motet_trace_file *file = &ranks[used].snapshot->file;

        if (group->count > 0 &&
                ranks[group->count - 1].snapshot->file.rank == file->rank)
            continue;
        if (file->nranks > group->nranks)
            group->nranks = file->nranks;
        if (group->count != used) {
            status_rank kept = ranks[group->count];

            ranks[group->count] = ranks[used];
            ranks[used] = kept;
        }
        group->count++;
    }
    count_missing(group);
    return used;
}

status_group *status_judge(status_rank *ranks, size_t count, size_t *groups_out)
{
    status_group *groups = count == 0 ? NULL : calloc(count, sizeof(*groups));
    bool *scratch = count == 0 ? NULL : calloc(3 * count, sizeof(*scratch));
    size_t n = 0;

    if (groups == NULL || scratch == NULL) {
        free(groups);
        free(scratch);
        return NULL;
    }
    qsort(ranks, count, sizeof(*ranks), compare_ranks);
    for (size_t at = 0; at < count; n++)
        at += take_group(ranks + at, count - at, &groups[n]);
    qsort(groups, n, sizeof(*groups), compare_groups);
    for (size_t i = 0; i < n; i++)
        status_judge_group(&groups[i], scratch);
    free(scratch);
    *groups_out = n;
    return groups;
}

int status_exit(const status_report *report)
{
    bool undecided =
            report->unread_count > 0 && (report->named || report->group_count == 0);

    for (size_t g = 0; g < report->group_count; g++) {
        const status_group *group = &report->groups[g];

        for (size_t i = 0; i < group->finding_count; i++) {
            if (group->findings[i].problem)
                return EXIT_PROBLEM;
            undecided = undecided || group->findings[i].undecided;
        }
    }
    return undecided ? EXIT_UNDECIDED : EXIT_FINE;
}
