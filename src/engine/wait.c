/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/wait.h"

#include "base/log.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* A spin takes some 15 to 50 ns, a yield on an idle core some 200 ns: spinning on costs more
 * when another process wants the core than yielding costs when none does. */
#define SPIN_TURNS   200u
#define LOOK_EVERY   64u /* spins between looks at the peers' failures */
#define YIELD_NS     (2 * MOTET_NS_PER_MS)
#define SLEEP_MIN_NS 50000ull
#define SLEEP_MAX_NS MOTET_NS_PER_MS
/* Waiting on others goes on this long after a death: what was already on its way
 * may still end the operation. */
#define DEATH_GRACE_NS (500 * MOTET_NS_PER_MS)
/* Waits shorter than this leave no trace in the recorder. */
#define RECORD_AFTER_NS MOTET_NS_PER_MS
/* The watcher beats every 250 ms. */
#define HEARTBEAT_LOST_NS (2 * MOTET_NS_PER_S)

static inline void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void motet_op_describe(const motet_op *op, char *buf, size_t bytes)
{
    const motet_kind_info *kind;
    int used;

    if (op->kind >= MOTET_NUM_KINDS) {
        snprintf(buf, bytes, "an operation of a graph");
        return;
    }
    kind = &motet_kind_table[op->kind];
    used = snprintf(buf, bytes, "%s(count %zu, %s", kind->name, op->count,
            motet_type_table[op->type].name);

    if (used > 0 && (size_t)used < bytes && kind->reduces)
        used += snprintf(buf + used, bytes - (size_t)used, ", %s",
                motet_redop_names[op->redop]);
    if (used > 0 && (size_t)used < bytes && kind->rooted)
        used += snprintf(buf + used, bytes - (size_t)used, ", %s %d",
                kind->pairwise ? "peer" : "root", op->root);
    if (used > 0 && (size_t)used < bytes)
        snprintf(buf + used, bytes - (size_t)used, ")");
}

/* A call that a rank shows. */
typedef struct shown_call {
    motet_op op;
    uint32_t fingerprint, chain;
} shown_call;

/* Call number @p seq of @p rank; false if it is not there, not yet or not any more. */
static bool read_call(const motet_engine *engine, int rank, uint64_t seq,
        shown_call *out)
{
    const motet_arena_head *head = engine->arena[rank].head;
    const motet_call *call = &head->call[seq & (MOTET_CALLS - 1)];
    motet_op *op = &out->op;
    uint32_t word;

    if (atomic_load_explicit(&call->seq, memory_order_acquire) != seq)
        return false;
    word = atomic_load_explicit(&call->kind_type_op, memory_order_acquire);
    out->fingerprint = atomic_load_explicit(&call->fingerprint, memory_order_acquire);
    out->chain = atomic_load_explicit(&call->chain, memory_order_acquire);
    *op = (motet_op){
        .kind = (motet_kind)(word >> 16 & 0xff),
        .type = (motet_type)(word >> 8 & 0xff),
        .redop = (motet_redop)(word & 0xff),
        .root = atomic_load_explicit(&call->root, memory_order_acquire),
        .count = atomic_load_explicit(&call->count, memory_order_acquire),
    };
    return atomic_load_explicit(&call->seq, memory_order_relaxed) == seq &&
            op->kind < MOTET_NUM_KINDS && op->type < MOTET_NUM_TYPES &&
            op->redop < MOTET_NUM_REDOPS;
}

bool motet_find_call(const motet_engine *engine, int rank, uint32_t fingerprint,
        motet_op *out)
{
    uint64_t seq =
            atomic_load_explicit(&engine->arena[rank].head->seq, memory_order_acquire);
    shown_call shown;

    for (int i = 0; i < MOTET_CALLS && seq != 0; i++, seq--) {
        if (!read_call(engine, rank, seq, &shown) || shown.fingerprint != fingerprint)
            continue;
        *out = shown.op;
        return true;
    }
    return false;
}

/* Compare the calls up to number @p seq that both this rank and @p rank show, and fail
 * at the first that differs. */
static motet_result compare_with(motet_engine *engine, int rank, uint64_t seq)
{
    uint64_t theirs_seq =
            atomic_load_explicit(&engine->arena[rank].head->seq, memory_order_acquire);
    uint64_t last = theirs_seq < seq ? theirs_seq : seq;
    shown_call a, b;

    /* The chain of the last says that all before it were the same. */
    if (last == 0 ||
            (read_call(engine, engine->rank, last, &a) &&
                    read_call(engine, rank, last, &b) && a.chain == b.chain))
        return MOTET_OK;
    for (uint64_t s = seq < MOTET_CALLS ? 1 : seq - MOTET_CALLS + 1; s <= last; s++) {
        char mine_text[128], theirs_text[128];
        shown_call mine, theirs;

        if (!read_call(engine, engine->rank, s, &mine) ||
                !read_call(engine, rank, s, &theirs) || mine.chain == theirs.chain)
            continue;
        if (mine.fingerprint == theirs.fingerprint)
            return motet_engine_fail(engine, MOTET_ERR_USAGE, -1,
                    "ranks %d and %d have disagreed about a collective before number "
                    "%llu, too long ago to say which",
                    engine->rank, rank, (unsigned long long)s);
        motet_op_describe(&mine.op, mine_text, sizeof(mine_text));
        motet_op_describe(&theirs.op, theirs_text, sizeof(theirs_text));
        return motet_engine_fail(engine, MOTET_ERR_USAGE, -1,
                "the ranks disagree about collective number %llu: rank %d calls %s, "
                "rank %d calls %s",
                (unsigned long long)s, engine->rank, mine_text, rank, theirs_text);
    }
    return MOTET_OK;
}

motet_result motet_mismatch(const motet_running *running, int rank)
{
    motet_engine *engine = running->engine;
    motet_result result = compare_with(engine, rank, running->seq);
    char mine[128];

    if (result != MOTET_OK)
        return result;
    motet_op_describe(running->op, mine, sizeof(mine));
    return motet_engine_fail(engine, MOTET_ERR_USAGE, -1,
            "the ranks disagree about collective number %llu: rank %d calls %s, rank "
            "%d calls another",
            (unsigned long long)running->seq, engine->rank, mine, rank);
}

motet_result motet_compare_calls(motet_engine *engine)
{
    uint64_t seq = atomic_load_explicit(&engine->arena[engine->rank].head->seq,
            memory_order_acquire);
    motet_result result = MOTET_OK;

    for (int r = 0; r < engine->nranks && result == MOTET_OK; r++)
        if (r != engine->rank)
            result = compare_with(engine, r, seq);
    return result;
}

/* A peer that has failed shows why; the sentence becomes ours. */
motet_result motet_adopt_failure(motet_engine *engine)
{
    for (int r = 0; r < engine->nranks; r++) {
        const motet_arena_head *head = engine->arena[r].head;
        uint32_t failed;

        if (r == engine->rank)
            continue;
        failed = atomic_load_explicit(&head->failed, memory_order_acquire);
        if (failed != 0)
            return motet_engine_fail(engine, (motet_result)failed, head->failed_rank,
                    "%.*s", MOTET_FAILURE_MAX - 1, head->failure);
    }
    return MOTET_OK;
}

/* "rank 3 (pid 4242)" */
static const char *name_rank(const motet_engine *engine, int rank, char *buf,
        size_t bytes)
{
    if (engine->peer[rank].pid != 0)
        snprintf(buf, bytes, "rank %d (pid %d)", rank, engine->peer[rank].pid);
    else
        snprintf(buf, bytes, "rank %d", rank);
    return buf;
}

static motet_result fail_dead(const motet_wait *wait, int rank, const char *how)
{
    const motet_running *running = wait->running;
    char what[128], who[64];

    motet_op_describe(running->op, what, sizeof(what));
    return motet_engine_fail(running->engine, MOTET_ERR_REMOTE, rank,
            "%s %s: %s cannot end", name_rank(running->engine, rank, who, sizeof(who)),
            how, what);
}

/* Has the peer gone? What it wrote before stays readable, so the word gets one more look. */
static motet_result look_at_lives(motet_wait *wait, int rank, uint64_t now_ns)
{
    motet_engine *engine = wait->running->engine;
    int dead = atomic_load_explicit(&engine->dead_rank, memory_order_acquire);
    bool left = atomic_load_explicit(&engine->arena[rank].head->life,
                        memory_order_acquire) == MOTET_LIFE_LEFT;
    bool doomed = left || dead == rank ||
            (dead >= 0 &&
                    now_ns > atomic_load_explicit(&engine->dead_ns,
                                     memory_order_relaxed) +
                                    DEATH_GRACE_NS);

    if (!doomed)
        return MOTET_OK;
    if (!wait->doomed) {
        wait->doomed = true;
        return MOTET_OK;
    }
    if (dead >= 0)
        return fail_dead(wait, dead, "has died");
    return fail_dead(wait, rank, "has destroyed its communicator");
}

/* A peer that makes, or has made, another call under our number. */
static motet_result look_at_calls(const motet_running *running, int rank)
{
    return running->seq == 0 ? MOTET_OK
                             : compare_with(running->engine, rank, running->seq);
}

/* Who has not begun this collective: "rank 1, rank 3"; for pairs, the peer. */
static void name_absent(const motet_running *running, int rank, char *buf, size_t bytes)
{
    const motet_engine *engine = running->engine;
    size_t used = 0;

    buf[0] = '\0';
    for (int r = 0; running->seq != 0 && r < engine->nranks; r++) {
        char who[64];
        uint64_t seq =
                atomic_load_explicit(&engine->arena[r].head->seq, memory_order_relaxed);

        if (r == engine->rank || seq >= running->seq || used + 2 >= bytes)
            continue;
        used += (size_t)snprintf(buf + used, bytes - used, "%s%s",
                used != 0 ? ", " : "", name_rank(engine, r, who, sizeof(who)));
    }
    if (buf[0] == '\0')
        name_rank(engine, rank, buf, bytes);
}

/* "; no heartbeat of rank 1 for 12 s: stopped, or starved of CPU" or nothing. */
static void name_silence(const motet_engine *engine, int rank, uint64_t now_ns,
        char *buf, size_t bytes)
{
    uint64_t beat = atomic_load_explicit(&engine->arena[rank].head->heartbeat_ns,
            memory_order_relaxed);

    buf[0] = '\0';
    if (beat != 0 && now_ns > beat + HEARTBEAT_LOST_NS)
        snprintf(buf, bytes,
                "; no heartbeat of rank %d for %.1f s: stopped, or starved of CPU",
                rank, (double)(now_ns - beat) / 1e9);
}

static motet_result look_at_clock(motet_wait *wait, int rank, uint64_t now_ns)
{
    const motet_running *running = wait->running;
    motet_engine *engine = running->engine;
    uint64_t waited = now_ns - wait->start_ns;
    uint64_t timeout = running->op->timeout_ms != 0
            ? running->op->timeout_ms * MOTET_NS_PER_MS
            : atomic_load_explicit(&engine->timeout_ns, memory_order_relaxed);
    const char *hint = wait->hint != NULL ? wait->hint : "";
    char what[128], absent[256], silence[128];

    if (running->record != NULL && waited > RECORD_AFTER_NS) {
        motet_recorder_waits(running->record, rank, wait->start_ns);
        wait->recorded = true;
    }
    if ((timeout == 0 || waited < timeout) &&
            (wait->warned || waited < engine->warn_after_ns))
        return MOTET_OK;

    motet_op_describe(running->op, what, sizeof(what));
    name_absent(running, rank, absent, sizeof(absent));
    name_silence(engine, rank, now_ns, silence, sizeof(silence));
    if (timeout != 0 && waited >= timeout)
        return motet_engine_fail(engine, MOTET_ERR_REMOTE, rank,
                "rank %d has waited %.1f s in %s for %s, which has not come%s%s%s",
                engine->rank, (double)waited / 1e9, what, absent, silence,
                hint[0] != '\0' ? "; " : "", hint);
    wait->warned = true;
    motet_warn("rank %d has waited %.0f s in %s for %s%s%s%s", engine->rank,
            (double)waited / 1e9, what, absent, silence, hint[0] != '\0' ? "; " : "",
            hint);
    return MOTET_OK;
}

motet_result motet_wait_look(motet_wait *wait, int rank, uint64_t now_ns)
{
    motet_result result = look_at_lives(wait, rank, now_ns);

    return result == MOTET_OK ? look_at_clock(wait, rank, now_ns) : result;
}

/* All that is worth looking at when the word has not come for a while. */
static motet_result look_around(motet_wait *wait, int rank)
{
    const motet_running *running = wait->running;
    uint64_t now_ns = motet_now_ns();
    motet_result result;

    if (wait->start_ns == 0)
        wait->start_ns = now_ns;
    result = motet_adopt_failure(running->engine);
    if (result == MOTET_OK)
        result = look_at_calls(running, rank);
    return result == MOTET_OK ? motet_wait_look(wait, rank, now_ns) : result;
}

static void sleep_a_while(motet_wait *wait)
{
    struct timespec t = { 0 };

    wait->sleep_ns = wait->sleep_ns == 0 ? SLEEP_MIN_NS : wait->sleep_ns * 2;
    if (wait->sleep_ns > SLEEP_MAX_NS)
        wait->sleep_ns = SLEEP_MAX_NS;
    t.tv_nsec = (long)wait->sleep_ns;
    nanosleep(&t, NULL);
}

motet_result motet_wait_turn(motet_wait *wait, int rank)
{
    motet_engine *engine = wait->running->engine;
    unsigned turn = wait->turns++;
    motet_result result = MOTET_OK;

    if (atomic_load_explicit(&engine->stop, memory_order_acquire) != 0)
        return motet_engine_failure(engine);
    if (!engine->oversubscribed && turn < SPIN_TURNS) {
        pause_cpu();
        return turn % LOOK_EVERY == LOOK_EVERY - 1 ? look_around(wait, rank) : MOTET_OK;
    }
    if (wait->start_ns == 0 || turn % 8 == 7 || wait->sleep_ns != 0)
        result = look_around(wait, rank);
    if (result != MOTET_OK)
        return result;
    if (motet_now_coarse_ns() < wait->start_ns + YIELD_NS)
        sched_yield();
    else
        sleep_a_while(wait);
    return MOTET_OK;
}

motet_result motet_wait_slow(const motet_running *running, const _Atomic uint64_t *word,
        uint64_t at_least, int rank)
{
    motet_wait wait;
    motet_result result;

    motet_wait_begin(&wait, running);
    while (atomic_load_explicit(word, memory_order_acquire) < at_least) {
        result = motet_wait_turn(&wait, rank);
        if (result != MOTET_OK)
            return result;
    }
    motet_wait_end(&wait);
    return MOTET_OK;
}
