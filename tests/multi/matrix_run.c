/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the cases of one world of the value matrix, in the test's own memory or a target's. */
#include "matrix_part.h"

#include <motet.h>

#include <stdlib.h>

#define MAX_BATCH         4 /* cases of one group */
#define MAX_GROUPED_COUNT 4314
#define MANY_MAX_COUNT    1024 /* of a case that runs many rounds: one in MANY_EVERY */
#define MANY_EVERY        8

struct worker {
    multi_rank *rank;
    const matrix_world *world;
    void *there;      /* the target's state */
    int first, ranks; /* ranks that this thread drives */
    cudaStream_t stream[MULTI_MAX_RANKS];
    matrix_part part[MAX_BATCH][MULTI_MAX_RANKS];
};

/** Cases from @p at on that form one group; a target records all of them or none. */
static size_t batch_size(const matrix_world *w, size_t at)
{
    const matrix_case *c = &w->cases[at];
    size_t n = 1;

    if (!c->v[DIM_GROUP] || matrix_count(c) > MAX_GROUPED_COUNT)
        return 1;
    while (n < MAX_BATCH && at + n < w->count && c[n].v[DIM_GROUP] &&
            matrix_count(&c[n]) <= MAX_GROUPED_COUNT &&
            (matrix_there == NULL || c[n].v[DIM_STREAM] == c->v[DIM_STREAM]))
        n++;
    return n;
}

static ncclComm_t comm_of(const struct worker *w, int i)
{
    return w->rank->comms[w->ranks == 1 ? 0 : i];
}

static cudaStream_t stream_of(const struct worker *w, int i, const matrix_case *c)
{
    if (matrix_there != NULL)
        return matrix_there->stream(w->there, i);
    return c->v[DIM_STREAM] ? w->stream[i] : NULL;
}

static bool issue_all(struct worker *w, size_t batch, bool grouped)
{
    bool fine = !grouped || multi_ok(w->rank, ncclGroupStart(), "ncclGroupStart");

    for (int i = 0; i < w->ranks && fine; i++)
        for (size_t k = 0; k < batch && fine; k++) {
            matrix_part *p = &w->part[k][i];

            fine = multi_ok(w->rank,
                    matrix_part_issue(p, comm_of(w, i), stream_of(w, i, p->c)),
                    "the call");
            /* As frameworks do: the operator goes before the operation has run. */
            if (fine && p->redop_made)
                fine = multi_ok(w->rank, ncclRedOpDestroy(p->redop, comm_of(w, i)),
                        "ncclRedOpDestroy");
        }
    return fine && (!grouped || multi_ok(w->rank, ncclGroupEnd(), "ncclGroupEnd"));
}

static bool sync_streams(struct worker *w, size_t batch)
{
    bool used = false;

    for (size_t k = 0; k < batch; k++)
        used = used || w->part[k][0].c->v[DIM_STREAM];
    for (int i = 0; used && i < w->ranks; i++)
        if (!multi_ok(w->rank, motet_stream_synchronize(w->stream[i]),
                    "motet_stream_synchronize"))
            return false;
    return true;
}

static bool prepare_all(struct worker *w, const matrix_case *c, size_t batch)
{
    for (size_t k = 0; k < batch; k++)
        for (int i = 0; i < w->ranks; i++)
            if (!matrix_part_prepare(w->rank, &w->part[k][i], c + k, w->world->seed,
                        w->first + i, (matrix_place){ w->there, i }, comm_of(w, i)))
                return false;
    return true;
}

static void check_all(struct worker *w, size_t at, size_t batch)
{
    uint64_t *hashes = w->rank->shared;
    char name[256];

    for (size_t k = 0; k < batch; k++) {
        matrix_name(&w->world->cases[at + k], name, sizeof(name));
        for (int i = 0; i < w->ranks; i++)
            (void)matrix_part_check(w->rank, &w->part[k][i], name,
                    &hashes[(at + k) * (size_t)w->rank->nranks +
                            (size_t)(w->first + i)]);
    }
}

/** Every part of the batch, in turn. */
static bool each(struct worker *w, size_t batch, bool (*run)(const matrix_part *p))
{
    for (size_t k = 0; k < batch; k++)
        for (int i = 0; i < w->ranks; i++)
            if (!run(&w->part[k][i]))
                return false;
    return true;
}

/** How often a recorded batch that begins with @p c runs. */
static unsigned rounds_of(const matrix_case *c)
{
    bool special = matrix_there->many != 0 && matrix_count(c) <= MANY_MAX_COUNT &&
            value_mix(c->id + 1) % MANY_EVERY == 0;

    return special ? matrix_there->many : matrix_there->rounds;
}

/** A batch where the ranks' memory is elsewhere; a recorded one runs several times. */
static bool run_there(struct worker *w, size_t at, size_t batch, bool grouped)
{
    const matrix_target *t = matrix_there;
    bool recorded = w->world->cases[at].v[DIM_STREAM] != 0;
    unsigned rounds = recorded ? rounds_of(&w->world->cases[at]) : 1;

    if (recorded &&
            (!t->record(w->there) || !issue_all(w, batch, grouped) ||
                    !t->recorded(w->there)))
        return false;
    for (unsigned round = 0; round < rounds; round++) {
        for (size_t k = 0; k < batch; k++)
            for (int i = 0; i < w->ranks && round > 0; i++) {
                w->part[k][i].round = round;
                matrix_part_fill(&w->part[k][i]);
            }
        if (!each(w, batch, matrix_part_send) ||
                !(recorded ? t->play(w->there) : issue_all(w, batch, grouped)) ||
                !t->sync(w->there) || !each(w, batch, matrix_part_fetch))
            return false;
        check_all(w, at, batch);
        if (multi_failed(w->rank))
            break;
    }
    return true;
}

/** False only if the communicator is of no use any more. */
static bool run_batch(struct worker *w, size_t at, size_t batch)
{
    const matrix_case *c = &w->world->cases[at];
    bool grouped = batch > 1 || w->ranks > 1 || c->v[DIM_GROUP];
    bool fine;
    char name[256];

    matrix_name(c, name, sizeof(name));
    multi_doing(w->rank, "%s%s", name, batch > 1 ? " and its group" : "");
    if (matrix_there != NULL)
        matrix_there->begin(w->there, c);
    fine = prepare_all(w, c, batch);
    if (fine && matrix_there != NULL)
        fine = run_there(w, at, batch, grouped);
    else if (fine)
        fine = issue_all(w, batch, grouped) && sync_streams(w, batch);
    if (!fine) {
        multi_fail(w->rank, "in %s", name);
        return false;
    }
    if (matrix_there == NULL)
        check_all(w, at, batch);
    for (size_t k = 0; k < batch; k++)
        for (int i = 0; i < w->ranks; i++)
            matrix_part_drop(&w->part[k][i]);
    return true;
}

static bool open_worker(struct worker *w)
{
    if (matrix_there != NULL)
        return matrix_there->open(w->rank, w->first, w->ranks, &w->there);
    for (int i = 0; i < w->ranks; i++)
        if (!multi_ok(w->rank, motet_stream_create(&w->stream[i]),
                    "motet_stream_create"))
            return false;
    return true;
}

static void close_worker(struct worker *w)
{
    if (w->there != NULL)
        matrix_there->close(w->there);
    for (int i = 0; i < w->ranks; i++)
        if (w->stream[i] != NULL)
            (void)multi_ok(w->rank, motet_stream_destroy(w->stream[i]),
                    "motet_stream_destroy");
}

void matrix_body(multi_rank *rank)
{
    const matrix_world *world = rank->arg;
    bool one_thread =
            world->count > 0 && world->cases[0].v[DIM_LAYOUT] == MULTI_ONE_THREAD;
    struct worker *w = calloc(1, sizeof(*w));
    size_t batch = 1;

    if (!multi_check(rank, w != NULL, "no memory"))
        return;
    w->rank = rank;
    w->world = world;
    w->first = rank->rank;
    w->ranks = one_thread ? rank->nranks : 1;
    if (open_worker(w))
        for (size_t at = 0; at < world->count; at += batch) {
            batch = batch_size(world, at);
            if (!run_batch(w, at, batch))
                break;
        }
    close_worker(w);
    free(w);
}
