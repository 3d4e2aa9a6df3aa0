/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators made from others. The parent's ranks first agree through the parent's
 * arenas, out of band, so that this also works on a communicator that has failed or
 * was revoked; then the child is made as any other, around an id that one of its
 * ranks makes.
 */
#include "comm/comm.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* What a rank says of itself. */
typedef struct wish {
    int32_t how, color, key, nranks;
    uint32_t has_id;
    uint32_t excludes[(MOTET_MAX_RANKS + 31) / 32]; /* SHRINK: the same on all */
    motet_id id;
} wish;

typedef struct deriving {
    motet_derive *derive;
    bool member[MOTET_MAX_RANKS]; /* who takes part in the exchange */
    wish said[MOTET_MAX_RANKS];
    uint64_t deadline_ns;
} deriving;

static motet_result exchange(deriving *d, const wish *mine)
{
    motet_comm *parent = d->derive->parent;

    return motet_engine_oob(&parent->engine, d->member, mine, sizeof(*mine), d->said,
            d->deadline_ns, &parent->cancel);
}

/* Everybody who takes part makes the same kind of call with the same sizes and lists. */
static motet_result agree(const deriving *d, const wish *mine)
{
    static const char *const names[] = { "Split", "Shrink", "Grow" };
    const motet_comm *parent = d->derive->parent;

    for (int r = 0; r < parent->nranks; r++) {
        const wish *theirs = &d->said[r];

        if (!d->member[r])
            continue;
        if (theirs->how != mine->how)
            return motet_fail(MOTET_ERR_USAGE, "rank %d calls %s, rank %d calls %s",
                    parent->rank, names[mine->how], r,
                    theirs->how >= 0 && theirs->how <= MOTET_GROW ? names[theirs->how]
                                                                  : "another");
        if (theirs->nranks != mine->nranks ||
                memcmp(theirs->excludes, mine->excludes, sizeof(mine->excludes)) != 0)
            return motet_fail(MOTET_ERR_USAGE,
                    "rank %d and rank %d disagree about the %s", parent->rank, r,
                    mine->how == MOTET_GROW ? "new size" : "ranks to exclude");
    }
    return MOTET_OK;
}

/* True if parent rank r belongs to the same child as this rank. */
static bool sibling(const deriving *d, int r)
{
    const motet_comm *parent = d->derive->parent;

    return d->member[r] &&
            (d->derive->how != MOTET_SPLIT ||
                    d->said[r].color == d->said[parent->rank].color);
}

/* Does parent rank a come before b in the child? */
static bool before(const deriving *d, int a, int b)
{
    if (d->derive->how == MOTET_SPLIT && d->said[a].key != d->said[b].key)
        return d->said[a].key < d->said[b].key;
    return a < b;
}

/* This rank's place in the child, the child's size, and who makes its id. */
static void place(const deriving *d, motet_comm_spec *spec, int *leader_out)
{
    const motet_comm *parent = d->derive->parent;

    spec->rank = 0;
    spec->nranks = 0;
    *leader_out = -1;
    for (int r = 0; r < parent->nranks; r++) {
        if (!sibling(d, r))
            continue;
        spec->nranks++;
        if (before(d, r, parent->rank))
            spec->rank++;
        if (*leader_out < 0 || before(d, r, *leader_out))
            *leader_out = r;
    }
}

static motet_result make_id(motet_id *out)
{
    motet_params *params = NULL;
    motet_result result = motet_params_new(&params);

    if (result == MOTET_OK) {
        /* An address that was given for the whole job is in use: children have their own. */
        params->value[MOTET_P_COMM_ID].text[0] = '\0';
        result = motet_id_create(params, out);
    }
    free(params);
    return result;
}

/* SPLIT and SHRINK: the leader makes an id and tells, also that it could make none. */
static motet_result share_id(deriving *d, wish *mine, bool leads)
{
    motet_result made = leads ? make_id(&mine->id) : MOTET_OK, result;
    char text[MOTET_ERROR_TRAIL_MAX];

    mine->has_id = leads && made == MOTET_OK;
    snprintf(text, sizeof(text), "%s", motet_error_trail());
    result = exchange(d, mine);
    if (made != MOTET_OK)
        return motet_error_adopt(made, text);
    if (result != MOTET_OK && leads)
        motet_id_cancel(&mine->id);
    return result;
}

/* Whose id counts: the leader's; in GROW that of whoever brought one. */
static int find_id(const deriving *d, int leader)
{
    if (d->derive->how != MOTET_GROW)
        return leader;
    for (int r = 0; r < d->derive->parent->nranks; r++)
        if (d->member[r] && d->said[r].has_id)
            return r;
    return -1;
}

/* End what the parent runs, and wait until nothing of it runs here. */
static void stop_parent(motet_comm *parent)
{
    struct timespec nap = { .tv_nsec = 100000 };

    motet_engine_fail(&parent->engine, MOTET_ERR_REMOTE, parent->rank,
            "rank %d shrinks the communicator and ends what runs on it", parent->rank);
    motet_error_clear();
    while (atomic_load(&parent->running))
        nanosleep(&nap, NULL);
}

static void fill_wish(const motet_derive *derive, wish *mine)
{
    *mine = (wish){
        .how = (int32_t)derive->how,
        .color = derive->color,
        .key = derive->key,
        .nranks = derive->nranks,
        .has_id = derive->has_id,
        .id = derive->id,
    };
    for (int r = 0; derive->excluded != NULL && r < derive->parent->nranks; r++)
        if (derive->excluded[r])
            mine->excludes[r / 32] |= 1u << (r % 32);
}

/* Agree with the parent's ranks on what the child is. */
static motet_result settle(deriving *d, bool wanted, motet_comm_spec *spec)
{
    motet_derive *derive = d->derive;
    motet_comm *parent = derive->parent;
    int leader, source;
    wish mine;

    fill_wish(derive, &mine);
    MOTET_TRY(exchange(d, &mine), "agree with the parent's ranks");
    MOTET_TRY(agree(d, &mine), "agree with the parent's ranks");
    place(d, spec, &leader);
    if (derive->how != MOTET_GROW)
        MOTET_TRY(share_id(d, &mine, wanted && leader == parent->rank),
                "share the child's id");
    if (!wanted)
        return MOTET_OK;
    source = find_id(d, leader);
    if (source >= 0 && !d->said[source].has_id)
        return motet_fail(MOTET_ERR_REMOTE, "rank %d could make no id for the child",
                source);
    if (source < 0)
        return motet_fail(MOTET_ERR_USAGE,
                "no rank brought the id of the larger communicator, and one has to");
    spec->id = d->said[source].id;
    if (derive->how == MOTET_GROW) {
        spec->rank = parent->rank;
        spec->nranks = derive->nranks;
    }
    return MOTET_OK;
}

motet_result motet_comm_derive(motet_comm *child, motet_derive *derive)
{
    motet_comm *parent = derive->parent;
    motet_comm_spec spec = {
        .config = derive->config,
        .ordinal = parent->ordinal,
        .choice = motet_device_choice_of(parent->device->kind),
    };
    deriving *d = calloc(1, sizeof(*d));
    motet_result result;

    if (d == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "exchange with %d ranks",
                parent->nranks);
    d->derive = derive;
    d->deadline_ns = motet_deadline_after_s(parent->init_timeout_s);
    for (int r = 0; r < parent->nranks; r++)
        d->member[r] = derive->excluded == NULL || !derive->excluded[r];
    result = motet_exchange_begin(parent, derive->exchange);
    if (result == MOTET_OK && derive->abort_first)
        stop_parent(parent);
    if (result == MOTET_OK)
        result = settle(d, child != NULL, &spec);
    derive->parent = NULL;
    motet_exchange_end(parent);
    free(d);
    return result == MOTET_OK && child != NULL ? motet_comm_start(child, &spec)
                                               : result;
}
