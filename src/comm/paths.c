/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which path each pair of GPU ranks takes, and whether it works.
 *
 * The ranks have met as CPU ranks do; their host arenas carry what they agree on here, so
 * that all have the same table of paths. It begins with the best one that settings and the
 * history (transport/history.h) allow for each pair. Then they try: everybody makes its
 * arenas, maps those of its peers, sees its own bytes arrive and its peers' bytes come,
 * and each protocol moves values over each pair in both directions (prove.c). After each
 * of these steps they tell one another which pairs failed. Such a pair moves one path
 * down, at both ends; on the staged path a protocol that failed is given up by the whole
 * communicator, since an operation runs one protocol on all its pairs. Then they try
 * again, from the beginning: the size of the slots follows from the slowest path.
 *
 * It ends: every new try has a path or a protocol less than the one before. A pair for
 * which only copies are left leaves only copies for all, as no kernel of ours may run.
 */
#include "comm/paths.h"

#include "base/clock.h"
#include "base/log.h"
#include "comm/gpu.h"
#include "transport/history.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/** Deadline of a proof; where ranks take turns on a device. */
#define PROOF_S        5
#define PROOF_SHARED_S 30

typedef struct search {
    const motet_path_search *given;
    motet_comm *comm;
    const motet_gpu_ops *ops;
    int n;
    uint8_t path[MOTET_GPU_RANKS][MOTET_GPU_RANKS]; /* motet_gpu_path, symmetric      */
    uint8_t past[MOTET_GPU_RANKS][MOTET_GPU_RANKS]; /* protocols that failed before on
                                                       the staged path                */
    uint8_t vetoed;
    motet_pair_findings mine, all[MOTET_GPU_RANKS];
    char state[PATH_MAX]; /* folder of the history; "": there is none                 */
    char driver[64];
    bool unwritten; /* something could not be written into it                       */
    uint32_t
            touching; /* peers whose first access is written down, and not its end    */
} search;

/* ---- what was found ---- */

void motet_pair_findings_fail(motet_pair_findings *findings, uint32_t mask,
        const char *text)
{
    for (int r = 0; r < MOTET_GPU_RANKS; r++)
        if ((mask >> r & 1) != 0)
            findings->why[r] = MOTET_PAIR_CANNOT;
    if (findings->about != 0)
        return;
    findings->about = mask;
    snprintf(findings->text, sizeof(findings->text), "%s", text);
}

/* Of this rank alone, too, if it has no peers. */
static uint32_t peers_of(const search *s)
{
    uint32_t all = (1u << s->n) - 1;

    return s->n == 1 ? all : all & ~(1u << s->comm->rank);
}

/* A step with the peers in @p mask went as @p result says. */
static void note_all(search *s, uint32_t mask, motet_result result, motet_pair_fate why)
{
    if (result == MOTET_OK)
        return;
    motet_pair_findings_fail(&s->mine, mask, motet_error_trail());
    motet_error_clear();
    for (int r = 0; r < s->n; r++)
        if ((mask >> r & 1) != 0)
            s->mine.why[r] = (uint8_t)why;
}

static void note(search *s, int peer, motet_result result, motet_pair_fate why)
{
    note_all(s, 1u << peer, result, why);
}

/* Has every step with @p peer gone well in this try? */
static bool is_fine(const search *s, int peer)
{
    return s->mine.why[peer] == MOTET_PAIR_FINE;
}

static motet_gpu_path path_of(const search *s, int a, int b)
{
    return (motet_gpu_path)s->path[a][b];
}

/* This rank's peers on @p path. */
static uint32_t peers_on(const search *s, motet_gpu_path path)
{
    uint32_t mask = 0;

    for (int r = 0; r < s->n; r++)
        if ((peers_of(s) >> r & 1) != 0 && path_of(s, s->comm->rank, r) == path)
            mask |= 1u << r;
    return mask;
}

static bool takes(const search *s, motet_gpu_path path)
{
    for (int a = 0; a < s->n; a++)
        for (int b = a; b < s->n; b++)
            if ((a != b || s->n == 1) && path_of(s, a, b) == path)
                return true;
    return false;
}

static void set_path(search *s, int a, int b, motet_gpu_path path)
{
    s->path[a][b] = s->path[b][a] = (uint8_t)path;
}

/* ---- history ---- */

static motet_history_line line_of(const search *s, motet_history_kind kind, int a,
        int b)
{
    motet_history_line line =
            motet_history_begin(kind, s->driver, MOTET_VERSION "-" MOTET_BUILD);

    motet_history_set_pair(&line, s->given->identity[a], s->given->identity[b]);
    return line;
}

static bool one_device(const search *s, int a, int b)
{
    return strcmp(s->given->identity[a], s->given->identity[b]) == 0;
}

/* What cannot be written down is lost with the process. */
static void write_down(search *s, const motet_history_line *lines, int count, bool sync)
{
    if (s->state[0] == '\0' || count == 0 ||
            motet_history_add(s->state, lines, count, sync) == MOTET_OK)
        return;
    if (!s->unwritten)
        motet_info(MOTET_SUB_INIT | MOTET_SUB_P2P,
                "comm %p rank %d what is found out about paths is not remembered: %s",
                (void *)s->comm, s->comm->rank, motet_error_trail());
    motet_error_clear();
    s->unwritten = true;
}

static uint8_t protocol_named(const char *word)
{
    for (int p = 1; p < MOTET_GPU_NUM_PROTOCOLS; p++)
        if (strcmp(word, motet_gpu_protocol_names[p]) == 0)
            return (uint8_t)(1u << p);
    return 0;
}

/* What the history says of the pair with @p peer, as findings. */
static void recall_pair(search *s, const motet_history *history, int peer)
{
    motet_history_line now = line_of(s, MOTET_HISTORY_TOUCH, s->comm->rank, peer);

    for (int i = 0; i < history->count; i++) {
        const motet_history_line *line = &history->line[i];
        const char *path = line->word[MOTET_HISTORY_PATH];

        if (line->kind != MOTET_HISTORY_VETO || !motet_history_fits(line, &now))
            continue;
        if (strcmp(path, motet_gpu_path_names[MOTET_GPU_PATH_DIRECT]) == 0)
            s->mine.why[peer] = MOTET_PAIR_VETOED;
        else if (strcmp(path, motet_gpu_path_names[MOTET_GPU_PATH_STAGED]) == 0)
            s->mine.protocols[peer] |=
                    protocol_named(line->word[MOTET_HISTORY_PROTOCOL]);
    }
    if (motet_history_hung(history, &now))
        s->mine.why[peer] = MOTET_PAIR_HUNG;
}

/* A path that is forced is tried whatever happened before. */
static void recall(search *s)
{
    motet_history history = { 0 };

    if (s->state[0] == '\0' ||
            motet_param(s->given->params, MOTET_P_PATH) != MOTET_PATH_WORD_AUTO)
        return;
    if (motet_history_load(s->state, &history) != MOTET_OK) {
        motet_info(MOTET_SUB_INIT | MOTET_SUB_P2P,
                "comm %p rank %d what was found out about paths is not known: %s",
                (void *)s->comm, s->comm->rank, motet_error_trail());
        motet_error_clear();
        return;
    }
    for (int r = 0; r < s->n; r++)
        if (r != s->comm->rank && !one_device(s, r, s->comm->rank))
            recall_pair(s, &history, r);
    motet_history_free(&history);
}

/* A line of @p kind for each peer in @p mask, all under one lock. */
static void write_touches(search *s, motet_history_kind kind, uint32_t mask, bool sync)
{
    motet_history_line lines[MOTET_GPU_RANKS];
    int count = 0;

    for (int r = 0; r < s->n; r++)
        if ((mask >> r & 1) != 0)
            lines[count++] = line_of(s, kind, s->comm->rank, r);
    write_down(s, lines, count, sync);
}

/* Before the first access to peers' memory in this boot. */
static void touch(search *s)
{
    motet_history history = { 0 };
    int rank = s->comm->rank;

    s->touching = 0;
    if (s->state[0] == '\0' || s->unwritten)
        return;
    if (motet_history_load(s->state, &history) != MOTET_OK)
        motet_error_clear(); /* recall() has said so */
    for (int r = 0; r < s->n; r++) {
        motet_history_line line = line_of(s, MOTET_HISTORY_TOUCH, rank, r);

        if (r != rank && path_of(s, rank, r) == MOTET_GPU_PATH_DIRECT &&
                !one_device(s, r, rank) && !motet_history_touched(&history, &line))
            s->touching |= 1u << r;
    }
    motet_history_free(&history);
    write_touches(s, MOTET_HISTORY_TOUCH, s->touching, true);
}

/* Whatever was found, and even if its line may not have been written: one without its end
 * would count as one that never came back. */
static void touched(search *s)
{
    write_touches(s, MOTET_HISTORY_TOUCHED, s->touching, true);
    s->touching = 0;
}

static const char *const fate_words[MOTET_PAIR_NUM_FATES] = {
    [MOTET_PAIR_FINE] = "fine",
    [MOTET_PAIR_CANNOT] = "cannot",
    [MOTET_PAIR_BYTES] = "bytes",
    [MOTET_PAIR_WRONG] = "wrong",
    [MOTET_PAIR_LATE] = "late",
    [MOTET_PAIR_VETOED] = "vetoed",
    [MOTET_PAIR_HUNG] = "hung",
};

/* That there is no way is found out again at once. What was late may have been so
 * because ranks take turns on a device. */
static void remember(search *s, int a, int b, motet_pair_fate why, uint8_t protocols)
{
    motet_history_line lines[MOTET_GPU_NUM_PROTOCOLS];
    int count = 0;

    if ((s->comm->rank != a && s->comm->rank != b) || one_device(s, a, b) ||
            s->unwritten ||
            (why != MOTET_PAIR_BYTES && why != MOTET_PAIR_WRONG &&
                    (why != MOTET_PAIR_LATE || s->given->shared_device)))
        return;
    if (protocols == 0)
        protocols = 1u << MOTET_GPU_STAGED;
    for (int p = 1; p < MOTET_GPU_NUM_PROTOCOLS; p++) {
        motet_history_line *line = &lines[count];

        if ((protocols >> p & 1) == 0)
            continue;
        *line = line_of(s, MOTET_HISTORY_VETO, a, b);
        motet_history_set(line, MOTET_HISTORY_PATH,
                motet_gpu_path_names[path_of(s, a, b)]);
        motet_history_set(line, MOTET_HISTORY_WHY, fate_words[why]);
        motet_history_set(line, MOTET_HISTORY_PROTOCOL, motet_gpu_protocol_names[p]);
        count++;
    }
    write_down(s, lines, count, false);
}

/* ---- a step of all ranks ---- */

/* Protocols as a list of words. */
static void list_protocols(uint8_t protocols, char *buf, size_t bytes)
{
    size_t used = 0;

    buf[0] = '\0';
    for (int p = 1; p < MOTET_GPU_NUM_PROTOCOLS && used < bytes; p++)
        if ((protocols >> p & 1) != 0)
            used += (size_t)snprintf(buf + used, bytes - used, "%s%s",
                    used == 0 ? "" : ", ", motet_gpu_protocol_names[p]);
}

/* Why, in the words of end @p teller of a pair whose other end is @p peer. */
static void describe(const search *s, int teller, int peer, uint8_t protocols,
        char *buf, size_t bytes)
{
    const motet_pair_findings *told = &s->all[teller];
    bool has_text = (told->about >> peer & 1) != 0;
    char list[64];

    list_protocols(protocols, list, sizeof(list));
    switch (told->why[peer]) {
    case MOTET_PAIR_WRONG: snprintf(buf, bytes, "wrong values by %s", list); break;
    case MOTET_PAIR_LATE:
        snprintf(buf, bytes, "nothing within the deadline by %s", list);
        break;
    case MOTET_PAIR_VETOED:
        snprintf(buf, bytes, "it failed before in this boot, as %.255s/paths says",
                s->state[0] != '\0' ? s->state : "its state folder");
        break;
    case MOTET_PAIR_HUNG:
        snprintf(buf, bytes,
                "the first access was begun before and never came back: %.255s/paths "
                "says "
                "when, without its line it is tried again",
                s->state[0] != '\0' ? s->state : "its state folder");
        break;
    default:
        snprintf(buf, bytes, "rank %d: %.*s", teller, (int)sizeof(told->text),
                has_text ? told->text : "cannot reach the other's memory");
    }
}

/* One path down, or a protocol less for all. Others stand in for all but those needed. */
static void give_up(search *s, int a, int b, uint8_t protocols)
{
    const uint8_t needed = 1u << MOTET_GPU_STAGED | 1u << MOTET_GPU_PAIRS;

    if (path_of(s, a, b) == MOTET_GPU_PATH_DIRECT)
        set_path(s, a, b, MOTET_GPU_PATH_STAGED);
    else if (protocols == 0 || (protocols & needed) != 0)
        set_path(s, a, b, MOTET_GPU_PATH_COPY);
    else
        s->vetoed |= protocols;
}

/* The lower rank says it. */
static void report(const search *s, int a, int b, motet_gpu_path was, bool first_tells,
        uint8_t protocols)
{
    int teller = first_tells ? a : b, peer = first_tells ? b : a;
    bool hung = s->all[teller].why[peer] == MOTET_PAIR_HUNG;
    char why[480];

    if (s->comm->rank != a)
        return;
    describe(s, teller, peer, protocols, why, sizeof(why));
    if (hung)
        motet_warn("ranks %d and %d take the %s path: %s", a, b,
                motet_gpu_path_names[path_of(s, a, b)], why);
    else
        motet_info(MOTET_SUB_INIT | MOTET_SUB_P2P,
                "comm %p ranks %d and %d %s on the %s path: %s", (void *)s->comm, a, b,
                path_of(s, a, b) == was ? "give up protocols" : "are not",
                motet_gpu_path_names[was], why);
}

static bool settle_pair(search *s, int a, int b)
{
    const motet_pair_findings *x = &s->all[a], *y = &s->all[b];
    uint8_t protocols = x->protocols[b] | y->protocols[a];
    motet_gpu_path was = path_of(s, a, b);
    bool first_tells = x->why[b] != MOTET_PAIR_FINE;
    uint8_t why = first_tells ? x->why[b] : y->why[a];

    if (why == MOTET_PAIR_FINE)
        return false;
    remember(s, a, b, (motet_pair_fate)why, protocols);
    give_up(s, a, b, protocols);
    report(s, a, b, was, first_tells, protocols);
    return true;
}

static bool settle_pairs(search *s)
{
    bool changed = false;

    for (int a = 0; a < s->n; a++)
        for (int b = s->n == 1 ? a : a + 1; b < s->n; b++)
            changed = settle_pair(s, a, b) || changed;
    return changed;
}

static motet_result say(search *s)
{
    return motet_comm_say(s->comm, &s->mine, sizeof(s->mine), s->all,
            s->given->deadline_ns, &s->comm->cancel);
}

/* The end of a step: all tell what they found. *changed_out: there must be another try. */
static motet_result settle(search *s, bool *changed_out)
{
    MOTET_TRY(say(s), "compare paths");
    *changed_out = settle_pairs(s);
    return MOTET_OK;
}

/* ---- a try ---- */

/* Slots and thresholds are those of the slowest path. */
static void take_constants(search *s)
{
    motet_gpu_constants *c = &s->comm->gpu->constants;

    motet_gpu_constants_default(s->n,
            takes(s, MOTET_GPU_PATH_STAGED) ? MOTET_GPU_PATH_STAGED
                                            : MOTET_GPU_PATH_DIRECT,
            c);
    if (takes(s, MOTET_GPU_PATH_STAGED) && takes(s, MOTET_GPU_PATH_DIRECT))
        motet_gpu_constants_mix(s->n, c);
    c->forced = s->given->forced->forced;
    c->zero = s->given->forced->zero;
    c->rules = s->given->forced->rules;
    memcpy(c->rule, s->given->forced->rule, sizeof(c->rule));
    c->vetoed = s->vetoed;
}

static motet_result make_own(search *s)
{
    motet_gpu_link *link = s->comm->gpu->link;
    motet_gpu_path path[MOTET_GPU_RANKS];
    motet_gpu_layout layout;

    take_constants(s);
    motet_gpu_layout_of(&s->comm->gpu->constants, s->n, &layout);
    for (int r = 0; r < s->n; r++)
        path[r] = path_of(s, s->comm->rank, r);
    link->paths = 0;
    for (int p = MOTET_GPU_PATH_DIRECT; p < MOTET_GPU_NUM_PATHS; p++)
        if (takes(s, (motet_gpu_path)p))
            link->paths |= 1u << p;
    return motet_gpu_link_begin(link, &layout, path);
}

/* An arena that cannot be made fails the pairs that would meet there, and no others. */
static void make_arenas(search *s)
{
    motet_result result = make_own(s);

    note_all(s, peers_of(s), result, MOTET_PAIR_CANNOT);
    for (int p = MOTET_GPU_PATH_DIRECT; p <= MOTET_GPU_PATH_STAGED; p++)
        if (result == MOTET_OK)
            note_all(s, peers_on(s, (motet_gpu_path)p),
                    motet_gpu_link_make_arena(s->comm->gpu->link, (motet_gpu_path)p),
                    MOTET_PAIR_CANNOT);
}

/* Are this rank's own words and its arena for @p path, if it needs one, made? */
static bool is_made(const search *s, motet_gpu_path path)
{
    uint32_t mask = peers_on(s, path);

    for (int r = 0; r < s->n; r++)
        if ((mask >> r & 1) != 0 && !is_fine(s, r))
            return false;
    return mask != 0;
}

static void map_peer(search *s, int peer, const motet_roster_entry *entry)
{
    motet_gpu_link *link = s->comm->gpu->link;
    motet_gpu_offer offer;

    if (entry->blob_bytes != sizeof(offer)) {
        note(s, peer, motet_fail(MOTET_ERR_USAGE, "rank %d offers no arena", peer),
                MOTET_PAIR_CANNOT);
        return;
    }
    memcpy(&offer, entry->blob, sizeof(offer));
    note(s, peer,
            motet_gpu_link_map(link, peer, &offer, s->given->process, entry->fds[0]),
            MOTET_PAIR_CANNOT);
    if (is_fine(s, peer))
        note(s, peer, motet_gpu_link_sign(link, peer, s->comm->number),
                MOTET_PAIR_CANNOT);
}

/* Offer the arena of one path, if it was made, and map those of the peers on it. */
static motet_result exchange_arenas(search *s, motet_gpu_path path)
{
    motet_comm *comm = s->comm;
    motet_roster roster = { 0 };
    motet_gpu_offer offer = { .path = path };
    motet_result result;
    int fd = -1;

    if (is_made(s, path))
        note_all(s, peers_on(s, path),
                motet_gpu_link_offer(comm->gpu->link, path, s->given->process,
                        comm->number, &offer, &fd),
                MOTET_PAIR_CANNOT);
    result = motet_comm_meet(comm, &offer, sizeof(offer), fd, s->given->deadline_ns,
            &comm->cancel, &roster);
    for (int r = 0; r < s->n && result == MOTET_OK; r++)
        if (r != comm->rank && path_of(s, comm->rank, r) == path && is_fine(s, r))
            map_peer(s, r, &roster.rank[r]);
    motet_roster_release(&roster);
    if (fd >= 0)
        close(fd);
    return result;
}

static motet_result exchange_all(search *s, bool *changed_out)
{
    for (int p = MOTET_GPU_PATH_DIRECT; p <= MOTET_GPU_PATH_STAGED && s->n > 1; p++)
        if (takes(s, (motet_gpu_path)p))
            MOTET_TRY(exchange_arenas(s, (motet_gpu_path)p), "%s path",
                    motet_gpu_path_names[p]);
    return settle(s, changed_out);
}

static motet_result map_all(search *s, bool *changed_out)
{
    char trail[MOTET_ERROR_TRAIL_MAX];
    motet_result result;

    make_arenas(s);
    touch(s);
    result = exchange_all(s, changed_out);
    snprintf(trail, sizeof(trail), "%s", motet_error_trail());
    touched(s); /* this rank is here, whatever has become of the others */
    return result == MOTET_OK ? MOTET_OK : motet_error_adopt(result, trail);
}

/* All have mapped and written: do bytes come, and do those that the owner writes now? */
static motet_result see_bytes(search *s, bool *changed_out)
{
    motet_gpu_link *link = s->comm->gpu->link;
    uint64_t nonce = s->comm->number;

    for (int r = 0; r < s->n; r++)
        if (r != s->comm->rank)
            note(s, r, motet_gpu_link_verify(link, r, nonce), MOTET_PAIR_BYTES);
    note_all(s, peers_of(s), motet_gpu_link_change(link, nonce), MOTET_PAIR_CANNOT);
    MOTET_TRY(settle(s, changed_out), "see bytes arrive");
    for (int r = 0; r < s->n && !*changed_out; r++)
        if (r != s->comm->rank)
            note(s, r, motet_gpu_link_see_change(link, r, nonce), MOTET_PAIR_BYTES);
    return *changed_out ? MOTET_OK : settle(s, changed_out);
}

static motet_result reset(search *s, bool *changed_out)
{
    uint32_t start = (uint32_t)s->comm->engine.constants.epoch_start;

    note_all(s, peers_of(s), motet_gpu_link_reset(s->comm->gpu->link, start),
            MOTET_PAIR_CANNOT);
    return settle(s, changed_out);
}

/* Map, reset, prove. *changed_out: something failed, and there is another way. */
static motet_result attempt(search *s, bool *changed_out)
{
    memset(&s->mine, 0, sizeof(s->mine));
    MOTET_TRY(map_all(s, changed_out), "map arenas");
    if (!*changed_out)
        MOTET_TRY(see_bytes(s, changed_out), "see bytes arrive");
    if (!*changed_out)
        MOTET_TRY(reset(s, changed_out), "reset");
    if (*changed_out || s->n == 1)
        return MOTET_OK;
    MOTET_TRY(motet_comm_gpu_prove(s->comm,
                      motet_deadline_after_s(
                              s->given->shared_device ? PROOF_SHARED_S : PROOF_S),
                      s->given->deadline_ns, &s->mine),
            "prove");
    MOTET_TRY(settle(s, changed_out), "prove");
    /* What was proved has moved the words; a protocol that failed has spoilt them. */
    return *changed_out ? MOTET_OK : reset(s, changed_out);
}

/* ---- the search ---- */

static bool may_be_direct(const motet_params *params)
{
    int64_t word = motet_param(params, MOTET_P_PATH);

    return word == MOTET_PATH_WORD_DIRECT ||
            (word == MOTET_PATH_WORD_AUTO &&
                    !motet_param(params, MOTET_P_P2P_DISABLE) &&
                    motet_param(params, MOTET_P_P2P_LEVEL) != 0);
}

/* A protocol that failed before on a staged pair is not tried again. */
static void apply_past(search *s)
{
    for (int a = 0; a < s->n; a++)
        for (int b = a + 1; b < s->n; b++)
            if (path_of(s, a, b) == MOTET_GPU_PATH_STAGED && s->past[a][b] != 0)
                give_up(s, a, b, s->past[a][b]);
}

/* The first table: what settings and all ranks' histories allow. */
static motet_result begin(search *s)
{
    const motet_gpu_facts *facts = s->ops->facts(s->comm->gpu_device);
    bool direct = may_be_direct(s->given->params);

    for (int a = 0; a < s->n; a++)
        for (int b = a; b < s->n; b++)
            set_path(s, a, b, direct ? MOTET_GPU_PATH_DIRECT : MOTET_GPU_PATH_STAGED);
    snprintf(s->driver, sizeof(s->driver), "%s-%d-%d", s->ops->vendor,
            facts->driver_version, facts->runtime_version);
    motet_history_dir(s->given->params, s->state, sizeof(s->state));
    if (s->n == 1)
        return MOTET_OK;
    recall(s);
    if (!direct) /* that it failed is of no interest */
        memset(s->mine.why, 0, sizeof(s->mine.why));
    MOTET_TRY(say(s), "compare histories");
    for (int a = 0; a < s->n; a++)
        for (int b = 0; b < s->n; b++)
            s->past[a][b] = s->all[a].protocols[b] | s->all[b].protocols[a];
    for (int a = 0; a < s->n; a++)
        memset(s->all[a].protocols, 0, sizeof(s->all[a].protocols));
    (void)settle_pairs(s); /* nothing was tried yet */
    return MOTET_OK;
}

static void log_row(const search *s)
{
    char row[32 * MOTET_GPU_RANKS] = "", vetoed[64];
    size_t used = 0;

    list_protocols(s->vetoed, vetoed, sizeof(vetoed));
    for (int r = 0; r < s->n && used < sizeof(row); r++)
        if (r != s->comm->rank)
            used += (size_t)snprintf(row + used, sizeof(row) - used, "%s %d %s",
                    used == 0 ? "" : ",", r,
                    motet_gpu_path_names[path_of(s, s->comm->rank, r)]);
    motet_info(MOTET_SUB_INIT | MOTET_SUB_P2P, "comm %p rank %d paths:%s%s%s",
            (void *)s->comm, s->comm->rank, row, vetoed[0] != '\0' ? "; without " : "",
            vetoed);
}

/* Is every path one that MOTET_PATH leaves? */
static bool as_forced(const search *s)
{
    return motet_param(s->given->params, MOTET_P_PATH) != MOTET_PATH_WORD_DIRECT ||
            !takes(s, MOTET_GPU_PATH_STAGED);
}

/* A try for each path and protocol that can be given up, and the last one. */
static motet_result try_all(search *s, bool *taken_out)
{
    int tries = s->n * s->n + MOTET_GPU_NUM_PROTOCOLS + 1;
    bool changed = true;

    for (int i = 0; i < tries && changed; i++) {
        apply_past(s);
        if (takes(s, MOTET_GPU_PATH_COPY) || !as_forced(s))
            break;
        MOTET_TRY(attempt(s, &changed), "try the paths");
        if (changed)
            motet_gpu_link_unmap(s->comm->gpu->link);
    }
    *taken_out = !changed;
    if (!changed)
        log_row(s);
    else if (motet_param(s->given->params, MOTET_P_PATH) != MOTET_PATH_WORD_AUTO)
        return motet_fail(MOTET_ERR_USAGE,
                "MOTET_PATH forces a path that these devices do not have; "
                "NCCL_DEBUG=INFO says why");
    return MOTET_OK;
}

motet_result motet_comm_find_paths(const motet_path_search *given, bool *taken_out)
{
    search *s = calloc(1, sizeof(*s));
    motet_result result;

    if (s == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "paths of %d ranks",
                given->comm->nranks);
    s->given = given;
    s->comm = given->comm;
    s->ops = given->comm->device->gpu;
    s->n = given->comm->nranks;
    result = begin(s);
    if (result == MOTET_OK)
        result = try_all(s, taken_out);
    free(s);
    return result;
}
