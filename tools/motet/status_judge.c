/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verdict on each communicator.
 *
 * Ranks are compared by the number of collectives that they have begun. The rank with
 * the fewest is the straggler; the others only wait in the collective that it has not
 * begun. Where all have begun the same ones, whoever is waited for and does not wait
 * itself is the straggler. Ranks that merely lead are never named as the cause.
 *
 * A running job is never seen at one instant, so a difference of a few collectives
 * means nothing by itself: somebody must have waited, died or failed.
 */
#include "status.h"

#include <stdarg.h>
#include <string.h>

#define WHO_BYTES  256
#define CALL_BYTES 160
#define TIME_BYTES 64

/* One communicator under examination. */
typedef struct judge {
    status_group *group;
    const status_rank *ranks;
    size_t count;
    bool *chosen;  /* scratch: the ranks that a finding is about */
    bool *waiters; /* scratch                                    */
    bool *behind;  /* found by find_behind()                     */
    bool lags;     /* some rank has begun fewer collectives      */
    bool upset;    /* a rank is dead, stopped or failed          */
} judge;

/* ---- findings ---- */

/* Adds a finding about the chosen ranks (NULL: about none). Never NULL: beyond the most
 * that are kept, the caller fills in one that is thrown away. */
static status_finding *add_finding(judge *j, const char *code, const bool *chosen)
{
    static status_finding beyond;
    status_group *group = j->group;
    status_finding *finding = &beyond;

    if (group->finding_count < STATUS_FINDINGS_MAX)
        finding = &group->findings[group->finding_count++];
    else
        group->findings_dropped++;
    memset(finding, 0, sizeof(*finding));
    finding->code = code;
    if (chosen != NULL)
        status_list_ranks(j->ranks, chosen, j->count, finding->ranks,
                sizeof(finding->ranks));
    return finding;
}

/* Appends to the finding's sentence; what does not fit is dropped. */
static void say(status_finding *finding, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));

static void say(status_finding *finding, const char *fmt, ...)
{
    size_t used = strlen(finding->text);
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(finding->text + used, sizeof(finding->text) - used, fmt, args);
    va_end(args);
}

static size_t count_chosen(const bool *chosen, size_t count)
{
    size_t n = 0;

    for (size_t i = 0; i < count; i++)
        n += chosen[i];
    return n;
}

static size_t first_chosen(const bool *chosen, size_t count)
{
    size_t i = 0;

    while (i + 1 < count && !chosen[i])
        i++;
    return i;
}

/* "rank 3 is" or "ranks 0-2, 5 are", with the verb's two forms. */
static const char *name_ranks(const judge *j, const bool *chosen, const char *one,
        const char *many, char buf[WHO_BYTES])
{
    char list[WHO_BYTES - 32];
    size_t n = status_list_ranks(j->ranks, chosen, j->count, list, sizeof(list));

    snprintf(buf, WHO_BYTES, "%s %s%s", n == 1 ? "rank" : "ranks", list,
            n == 1 ? one : many);
    return buf;
}

/* ---- facts about one rank ---- */

static const motet_trace_file *file_of(const judge *j, size_t i)
{
    return &j->ranks[i].snapshot->file;
}

/* Collectives begun; false if the records that would tell are gone. */
static bool collectives_of(const judge *j, size_t i, uint32_t *out)
{
    unsigned n = j->ranks[i].snapshot->ops;

    *out = n == 0 ? 0 : file_of(j, i)->op[n - 1].collective;
    return n > 0 || file_of(j, i)->begun == 0;
}

/* a < b of counters that wrap. */
static bool precedes(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) < 0;
}

/* How long rank @p i has waited. A rank inside a collective that others have not begun
 * waits for them, whether or not it has said so yet. */
static uint64_t waited_ns(const judge *j, size_t i)
{
    const motet_trace_op *op = status_current_op(&j->ranks[i]);

    if (!status_in_op(op))
        return 0;
    if (op->state == MOTET_TRACE_RUNNING &&
            (!j->lags || j->behind[i] || motet_kind_table[op->kind].pairwise))
        return 0;
    return status_since(j->ranks[i].now_ns, status_begin_of_wait(op));
}

/* The record of collective number @p number at rank @p i, NULL if it is not there.
 * Records are sorted; the first that has the number is the collective itself, later
 * ones are sends and receives that follow it. */
static const motet_trace_op *collective_at(const judge *j, size_t i, uint32_t number)
{
    const motet_trace_op *ops = file_of(j, i)->op;
    unsigned low = 0, high = j->ranks[i].snapshot->ops;

    while (low < high) {
        unsigned middle = low + (high - low) / 2;

        if (precedes(ops[middle].collective, number))
            low = middle + 1;
        else
            high = middle;
    }
    if (low == j->ranks[i].snapshot->ops || ops[low].collective != number ||
            motet_kind_table[ops[low].kind].pairwise)
        return NULL;
    return &ops[low];
}

/* What a single straggler does, as the end of a sentence. */
static void say_what_it_does(const judge *j, size_t i, status_finding *finding)
{
    const status_rank *rank = &j->ranks[i];
    const motet_trace_op *op = status_current_op(rank);
    char call[CALL_BYTES], age[TIME_BYTES];

    if (rank->process == STATUS_DEAD)
        say(finding, "; its process, %d, is dead", file_of(j, i)->pid);
    else if (rank->process == STATUS_STOPPED)
        say(finding, "; its process, %d, is stopped", file_of(j, i)->pid);
    if (op == NULL) {
        say(finding, "; it has begun no operation yet");
        return;
    }
    status_call(op, call, sizeof(call));
    if (status_in_op(op))
        say(finding, "; it is in %s for %s", call,
                status_duration(status_since(rank->now_ns, status_begin_of_wait(op)),
                        age, sizeof(age)));
    else if (rank->process == STATUS_ALIVE || rank->process == STATUS_ELSEWHERE)
        say(finding, "; its last operation, %s, ended %s ago", call,
                status_duration(status_since(rank->now_ns, op->end_ns), age,
                        sizeof(age)));
    else
        say(finding, "; its last operation was %s", call);
}

/* ---- what may be wrong, the causes before their consequences ---- */

/* Lines "  ranks 0-2: all_reduce …", one for each different call. */
static void say_calls(judge *j, uint32_t number, status_finding *finding)
{
    char who[WHO_BYTES], call[CALL_BYTES];

    memset(j->waiters, 0, j->count * sizeof(bool)); /* those that have been said */
    for (size_t i = 0; i < j->count; i++) {
        const motet_trace_op *op = collective_at(j, i, number);

        if (op == NULL || j->waiters[i])
            continue;
        memset(j->chosen, 0, j->count * sizeof(bool));
        for (size_t k = i; k < j->count; k++) {
            const motet_trace_op *other = collective_at(j, k, number);

            if (other != NULL && other->fingerprint == op->fingerprint)
                j->chosen[k] = j->waiters[k] = true;
        }
        say(finding, "\n%s: %s (fingerprint %08x)",
                name_ranks(j, j->chosen, "", "", who),
                status_call(op, call, sizeof(call)), op->fingerprint);
    }
}

/* True if two ranks made different calls as their collective @p number; chooses those
 * that made one. */
static bool calls_differ(judge *j, uint32_t number)
{
    const motet_trace_op *first = NULL;
    bool differ = false;

    for (size_t i = 0; i < j->count; i++) {
        const motet_trace_op *op = collective_at(j, i, number);

        j->chosen[i] = op != NULL && op->fingerprint != 0;
        if (!j->chosen[i])
            continue;
        if (first == NULL)
            first = op;
        differ = differ || op->fingerprint != first->fingerprint;
    }
    return differ;
}

/* The earliest collective that ranks called differently: later ones follow from it. */
static void find_mismatch(judge *j)
{
    uint32_t top = 0, number;
    status_finding *finding;
    bool any = false;

    for (size_t i = 0; i < j->count; i++) {
        if (!collectives_of(j, i, &number))
            continue;
        if (!any || precedes(top, number))
            top = number;
        any = true;
    }
    for (uint32_t back = 2 * MOTET_TRACE_OPS; any && back-- > 0;) {
        number = top - back;
        if (number == 0 || !calls_differ(j, number))
            continue;
        finding = add_finding(j, "COLLECTIVE_MISMATCH", j->chosen);
        finding->problem = true;
        say(finding, "the ranks made different calls as collective number %u:", number);
        say_calls(j, number, finding);
        return;
    }
}

/* The latest sign of life among the chosen ranks, in words. */
static const char *last_sign(const judge *j, const bool *chosen, char *buf,
        size_t bytes)
{
    size_t latest = first_chosen(chosen, j->count);

    for (size_t i = 0; i < j->count; i++)
        if (chosen[i] && j->ranks[i].now_ns > j->ranks[latest].now_ns)
            latest = i;
    return status_moment(file_of(j, latest), j->ranks[latest].now_ns, buf, bytes);
}

/* Those that died of themselves. Whoever has recorded a failure has survived the cause,
 * and is gone for another reason: see find_ended(). */
static void find_dead(judge *j)
{
    char who[WHO_BYTES], when[TIME_BYTES];
    const motet_trace_file *file;
    status_finding *finding;
    bool idle = !j->upset;
    size_t n;

    for (size_t i = 0; i < j->count; i++) {
        j->chosen[i] = j->ranks[i].process == STATUS_DEAD && file_of(j, i)->failed == 0;
        idle = idle && !status_in_op(status_current_op(&j->ranks[i]));
    }
    n = count_chosen(j->chosen, j->count);
    if (n == 0)
        return;
    j->upset = true;
    finding = add_finding(j, "RANK_DEAD", j->chosen);
    finding->problem = true;
    file = file_of(j, first_chosen(j->chosen, j->count));
    say(finding, "%s dead: ", name_ranks(j, j->chosen, " is", " are", who));
    if (n == 1)
        say(finding, "process %d (%s) is gone", file->pid, file->command);
    else
        say(finding, "their processes are gone");
    say(finding, ", last sign of life %s", last_sign(j, j->chosen, when, sizeof(when)));
    if (idle)
        say(finding,
                "; %s in no operation and may have ended without destroying the "
                "communicator",
                n == 1 ? "it was" : "they were");
}

/* Those that failed, because of others or of themselves, and have ended since. */
static void find_ended(judge *j)
{
    char who[WHO_BYTES];
    status_finding *finding;

    for (size_t i = 0; i < j->count; i++)
        j->chosen[i] = j->ranks[i].process == STATUS_DEAD && file_of(j, i)->failed != 0;
    if (count_chosen(j->chosen, j->count) == 0)
        return;
    finding = add_finding(j, "RANK_ENDED", j->chosen);
    say(finding, "%s ended after that failure",
            name_ranks(j, j->chosen, " has", " have", who));
}

static void find_stopped(judge *j)
{
    char who[WHO_BYTES];
    status_finding *finding;

    for (size_t i = 0; i < j->count; i++)
        j->chosen[i] = j->ranks[i].process == STATUS_STOPPED;
    if (count_chosen(j->chosen, j->count) == 0)
        return;
    j->upset = true;
    finding = add_finding(j, "RANK_STOPPED", j->chosen);
    finding->problem = true;
    say(finding, "%s stopped by a signal or a debugger: continue with `kill -CONT",
            name_ranks(j, j->chosen, " is", " are", who));
    for (size_t i = 0; i < j->count; i++)
        if (j->chosen[i])
            say(finding, " %d", file_of(j, i)->pid);
    say(finding, "`");
}

/* Chooses the ranks that have begun the fewest collectives; false if all are alike. */
static bool choose_behind(judge *j, uint32_t *least_out)
{
    uint32_t least = 0, most = 0, n;
    bool any = false;

    for (size_t i = 0; i < j->count; i++) {
        if (!collectives_of(j, i, &n))
            continue;
        if (!any || precedes(n, least))
            least = n;
        if (!any || precedes(most, n))
            most = n;
        any = true;
    }
    for (size_t i = 0; i < j->count; i++)
        j->behind[i] = any && least != most && collectives_of(j, i, &n) && n == least;
    *least_out = least;
    return any && least != most;
}

/* Chooses as waiters those inside a collective beyond number @p least; returns the
 * longest wait and who has it. */
static uint64_t choose_waiters(judge *j, uint32_t least, size_t *longest_out)
{
    uint64_t longest_ns = 0;

    for (size_t i = 0; i < j->count; i++) {
        const motet_trace_op *op = status_current_op(&j->ranks[i]);
        uint64_t waited = waited_ns(j, i);

        j->waiters[i] = waited > 0 && precedes(least, op->collective) &&
                !motet_kind_table[op->kind].pairwise;
        if (j->waiters[i] && waited > longest_ns) {
            longest_ns = waited;
            *longest_out = i;
        }
    }
    return longest_ns;
}

/* " for 12.3 s (since …)" of rank @p i, which waits in @p op. */
static void say_wait(const judge *j, size_t i, const motet_trace_op *op,
        status_finding *finding)
{
    uint64_t since_ns = status_begin_of_wait(op);
    char age[TIME_BYTES], when[TIME_BYTES];

    say(finding, " for %s (since %s)",
            status_duration(status_since(j->ranks[i].now_ns, since_ns), age,
                    sizeof(age)),
            status_moment(file_of(j, i), since_ns, when, sizeof(when)));
}

/* "ranks 0-2 wait", or "waited" where they are gone; @p longest is one of them. */
static const char *name_waiters(const judge *j, size_t longest, char buf[WHO_BYTES])
{
    if (!status_runs(&j->ranks[longest]))
        return name_ranks(j, j->waiters, " waited", " waited", buf);
    return name_ranks(j, j->waiters, " waits", " wait", buf);
}

/* In which collective the others wait for those behind, or which they have begun. */
static void say_where_others_are(judge *j, uint32_t least, size_t longest,
        uint64_t longest_ns, status_finding *finding)
{
    const motet_trace_op *op = NULL;
    char who[WHO_BYTES], call[CALL_BYTES];

    if (longest_ns > 0) {
        op = status_current_op(&j->ranks[longest]);
        say(finding, "%s in number %u (%s)", name_waiters(j, longest, who),
                op->collective, status_call(op, call, sizeof(call)));
        say_wait(j, longest, op, finding);
        return;
    }
    for (size_t i = 0; i < j->count && op == NULL; i++)
        op = collective_at(j, i, least + 1);
    say(finding, "the others have begun number %u", least + 1);
    if (op != NULL)
        say(finding, " (%s)", status_call(op, call, sizeof(call)));
}

static void find_behind(judge *j)
{
    uint64_t longest_ns;
    status_finding *finding;
    char who[WHO_BYTES];
    size_t longest = 0;
    uint32_t least;

    j->lags = choose_behind(j, &least);
    longest_ns = j->lags ? choose_waiters(j, least, &longest) : 0;
    if (!j->lags || (longest_ns < STATUS_NOTICE_NS && !j->upset)) {
        /* Alike, or a difference of the moment. */
        memset(j->behind, 0, j->count * sizeof(bool));
        j->lags = false;
        return;
    }
    finding = add_finding(j, "RANK_BEHIND", j->behind);
    finding->problem = longest_ns >= STATUS_STUCK_NS;
    say(finding, "%s behind, with %u collective%s begun: ",
            name_ranks(j, j->behind, " is", " are", who), least, least == 1 ? "" : "s");
    say_where_others_are(j, least, longest, longest_ns, finding);
    if (count_chosen(j->behind, j->count) == 1)
        say_what_it_does(j, first_chosen(j->behind, j->count), finding);
}

/* Index of rank number @p rank, or count if it has no file. */
static size_t index_of(const judge *j, int32_t rank)
{
    size_t i = 0;

    while (i < j->count && file_of(j, i)->rank != rank)
        i++;
    return i;
}

#define ANYBODY (-2)

/* The operation in which rank @p i has longest waited for rank @p target, NULL if it
 * has not, or not long. */
static const motet_trace_op *wait_for(const judge *j, size_t i, int32_t target)
{
    const motet_trace_snapshot *snapshot = j->ranks[i].snapshot;
    const motet_trace_op *longest = NULL;

    for (unsigned k = 0; k < snapshot->ops; k++) {
        const motet_trace_op *op = &snapshot->file.op[k];

        if (op->state != MOTET_TRACE_WAITING ||
                (target != ANYBODY && op->waits_for != target) ||
                status_since(j->ranks[i].now_ns, op->wait_ns) < STATUS_NOTICE_NS)
            continue;
        if (longest == NULL || op->wait_ns < longest->wait_ns)
            longest = op;
    }
    return longest;
}

/* Says that rank @p target, which may have no file, is waited for. */
static void add_awaited(judge *j, int32_t target)
{
    const motet_trace_op *op, *longest_op = NULL;
    size_t at = index_of(j, target), longest = 0;
    char who[WHO_BYTES], call[CALL_BYTES];
    uint64_t longest_ns = 0, waited;
    status_finding *finding;

    for (size_t i = 0; i < j->count; i++) {
        op = wait_for(j, i, target);
        waited = op == NULL ? 0 : status_since(j->ranks[i].now_ns, op->wait_ns);
        j->waiters[i] = op != NULL;
        j->chosen[i] = i == at;
        if (waited > longest_ns) {
            longest_ns = waited;
            longest_op = op;
            longest = i;
        }
    }
    finding =
            add_finding(j, at < j->count ? "RANK_AWAITED" : "RANK_MISSING", j->chosen);
    finding->problem = longest_ns >= STATUS_STUCK_NS;
    if (at == j->count)
        snprintf(finding->ranks, sizeof(finding->ranks), "%d", target);
    say(finding, "rank %d %s: %s for it in %s", target,
            at < j->count ? "keeps others waiting" : "has no recorder file here",
            name_waiters(j, longest, who), status_call(longest_op, call, sizeof(call)));
    say_wait(j, longest, longest_op, finding);
    if (at < j->count)
        say_what_it_does(j, at, finding);
}

/* True if rank @p target is to be named: it is not behind (that has been said) and does
 * not wait itself. */
static bool is_straggler(const judge *j, int32_t target)
{
    size_t at = index_of(j, target);

    return at == j->count || (!j->behind[at] && wait_for(j, at, ANYBODY) == NULL);
}

/* Names everybody who is waited for and is a straggler; true if there is one. */
static bool find_awaited(judge *j)
{
    int32_t named[STATUS_FINDINGS_MAX];
    size_t count = 0;

    for (size_t i = 0; i < j->count; i++) {
        const motet_trace_snapshot *snapshot = j->ranks[i].snapshot;

        for (unsigned k = 0; k < snapshot->ops && count < STATUS_FINDINGS_MAX; k++) {
            int32_t target = snapshot->file.op[k].waits_for;
            size_t before = 0;

            while (before < count && named[before] != target)
                before++;
            if (target < 0 || before < count || wait_for(j, i, target) == NULL ||
                    !is_straggler(j, target))
                continue;
            named[count++] = target;
            add_awaited(j, target);
        }
    }
    return count > 0;
}

/* Everybody who is waited for waits too. */
static void find_circle(judge *j)
{
    const motet_trace_op *op, *first = NULL;
    char who[WHO_BYTES], call[CALL_BYTES];
    status_finding *finding;
    size_t longest = 0;
    bool alike = true;

    for (size_t i = 0; i < j->count; i++) {
        j->chosen[i] = waited_ns(j, i) >= STATUS_NOTICE_NS;
        if (!j->chosen[i])
            continue;
        op = status_current_op(&j->ranks[i]);
        if (first == NULL)
            first = op;
        alike = alike && op->collective == first->collective &&
                !motet_kind_table[op->kind].pairwise;
        if (!j->chosen[longest] || waited_ns(j, i) > waited_ns(j, longest))
            longest = i;
    }
    if (first == NULL)
        return;
    alike = alike && count_chosen(j->chosen, j->count) == (size_t)j->group->nranks;
    op = status_current_op(&j->ranks[longest]);
    finding = add_finding(j, alike ? "ALL_PRESENT_SAME_OP" : "RANKS_WAIT_IN_CIRCLE",
            j->chosen);
    finding->problem = waited_ns(j, longest) >= STATUS_STUCK_NS;
    if (alike)
        say(finding, "all %d ranks are in collective number %u (%s) and wait",
                j->group->nranks, op->collective, status_call(op, call, sizeof(call)));
    else
        say(finding, "%s for one another, rank %d in %s",
                name_ranks(j, j->chosen, " waits", " wait", who),
                file_of(j, longest)->rank, status_call(op, call, sizeof(call)));
    say_wait(j, longest, op, finding);
}

/* Each sentence that was recorded, once, with the ranks that recorded it. */
static void find_failed(judge *j)
{
    for (size_t i = 0; i < j->count; i++) {
        const motet_trace_file *file = file_of(j, i);
        char who[WHO_BYTES];
        status_finding *finding;
        size_t before = 0;

        while (before < i &&
                (file_of(j, before)->failed != file->failed ||
                        strcmp(file_of(j, before)->failure, file->failure) != 0))
            before++;
        if (file->failed == 0 || before < i)
            continue;
        for (size_t k = 0; k < j->count; k++)
            j->chosen[k] = file_of(j, k)->failed == file->failed &&
                    strcmp(file_of(j, k)->failure, file->failure) == 0;
        finding = add_finding(j, "RANK_FAILED", j->chosen);
        finding->problem = true;
        say(finding, "%s failed with %s: %s", name_ranks(j, j->chosen, "", "", who),
                motet_result_describe((int)file->failed)->name,
                file->failure[0] != '\0' ? file->failure : "(no sentence)");
    }
}

static void find_missing(judge *j)
{
    status_group *group = j->group;
    status_finding *finding;

    if (group->missing_total == 0)
        return;
    finding = add_finding(j, "RANK_MISSING", NULL);
    say(finding, "%lld of %d ranks %s no recorder file here:",
            (long long)group->missing_total, group->nranks,
            group->missing_total == 1 ? "has" : "have");
    for (size_t i = 0; i < group->missing_listed && i < 16; i++)
        say(finding, "%s %d", i == 0 ? "" : ",", group->missing[i]);
    if (group->missing_total > 16)
        say(finding, ", …");
    say(finding,
            "; they have left the communicator, record in memory only, or belong "
            "to another user, host or MOTET_TRACE_DIR");
}

/* What cannot be told. */
static void find_unknown(judge *j)
{
    char who[WHO_BYTES];
    status_finding *finding;
    size_t n;

    for (size_t i = 0; i < j->count; i++)
        j->chosen[i] = j->ranks[i].process == STATUS_UNKNOWN;
    n = count_chosen(j->chosen, j->count);
    if (n > 0) {
        finding = add_finding(j, "PROCESS_UNKNOWN", j->chosen);
        finding->undecided = true;
        say(finding,
                "%s recorded in another boot or on another host: whether %s, and "
                "how long ago anything was, is unknown; durations end with the "
                "last sign of life",
                name_ranks(j, j->chosen, " was", " were", who),
                n == 1 ? "it still runs" : "they still run");
    }
    for (size_t i = 0; i < j->count; i++)
        j->chosen[i] = j->ranks[i].process == STATUS_ALIVE &&
                status_since(j->ranks[i].now_ns, file_of(j, i)->heartbeat_ns) >=
                        STATUS_SILENT_NS;
    if (count_chosen(j->chosen, j->count) > 0) {
        finding = add_finding(j, "HEARTBEAT_SILENT", j->chosen);
        say(finding,
                "%s no heartbeat, though the process exists: it may be short of "
                "processor time",
                name_ranks(j, j->chosen, " has", " have", who));
    }
}

void status_judge_group(status_group *group, bool *scratch)
{
    judge j = { .group = group,
        .ranks = group->ranks,
        .count = group->count,
        .chosen = scratch,
        .waiters = scratch + group->count,
        .behind = scratch + 2 * group->count };

    memset(scratch, 0, 3 * group->count * sizeof(bool));
    for (size_t i = 0; i < group->count; i++)
        j.upset = j.upset || group->ranks[i].snapshot->file.failed != 0;
    find_mismatch(&j);
    find_dead(&j);
    find_stopped(&j);
    find_behind(&j);
    if (!find_awaited(&j) && count_chosen(j.behind, j.count) == 0)
        find_circle(&j);
    find_failed(&j);
    find_ended(&j);
    find_missing(&j);
    find_unknown(&j);
}
