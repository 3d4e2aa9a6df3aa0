/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's side of the rendezvous: reach the root, say hello, wait for the answer.
 *
 * The deadline is the root's to enforce, since only the root can say who is absent.
 * The rank waits 2 s longer than that, for the case that the root's process is
 * stopped, and then says so itself.
 */
#include "bootstrap/bootstrap.h"

#include "base/clock.h"
#include "bootstrap/agree.h"
#include "bootstrap/node.h"
#include "bootstrap/reach.h"
#include "bootstrap/root.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define ANSWER_GRACE_NS (2 * MOTET_NS_PER_S)
#define FIRST_PAUSE_NS  (1 * MOTET_NS_PER_MS)
#define LAST_PAUSE_NS   (50 * MOTET_NS_PER_MS)
/* A service that closes before it says WELCOME is ending; so often it may. */
#define TURNED_AWAY_MAX 6

#define ROSTER_FDS_MAX (MOTET_MAX_RANKS * MOTET_JOIN_FDS)

typedef struct join {
    const motet_params *params;
    const motet_join_args *args;
    motet_id_fields id;
    motet_node node;
    uint64_t start_ns;
    motet_patience answer; /* until the deadline and its grace */
    motet_reach reach;
    bool welcomed;
    motet_welcome root;
    int fds[ROSTER_FDS_MAX];
    motet_fd_queue queue; /* over fds */
} join;

/* How one attempt went on when it was connected. */
typedef enum attempt {
    ATTEMPT_ANSWERED, /* the result is the answer */
    ATTEMPT_CLOSED    /* the other end closed     */
} attempt;

static motet_result check_args(const motet_join_args *args)
{
    const char *settings = args->settings != NULL ? args->settings : "";

    if (args->nranks < 1 || args->nranks > MOTET_MAX_RANKS)
        return motet_fail(MOTET_ERR_ARGUMENT, "nranks is %d, need 1 to %d",
                args->nranks, MOTET_MAX_RANKS);
    if (args->rank < 0 || args->rank >= args->nranks)
        return motet_fail(MOTET_ERR_ARGUMENT, "rank is %d, need 0 to %d", args->rank,
                args->nranks - 1);
    if (args->blob_bytes > MOTET_BLOB_MAX || args->nfds < 0 ||
            args->nfds > MOTET_JOIN_FDS || strlen(settings) >= MOTET_SETTINGS_MAX)
        return motet_fail(MOTET_ERR_INTERNAL,
                "a join brings %zu bytes, %d descriptors and %zu bytes of settings, "
                "more "
                "than %d, %d and %d",
                args->blob_bytes, args->nfds, strlen(settings), MOTET_BLOB_MAX,
                MOTET_JOIN_FDS, MOTET_SETTINGS_MAX - 1);
    return MOTET_OK;
}

/* How long this rank was told to wait. */
static const char *limit_text(const join *j, char buf[32])
{
    uint64_t end_ns = j->args->deadline_ns;

    motet_limit_text(end_ns <= j->start_ns ? 0
                                           : (end_ns - j->start_ns) / MOTET_NS_PER_MS,
            buf, 32);
    return buf;
}

/* "the process that made the id (pid 12 on alpha)", as far as it is known. */
static const char *root_text(const join *j, char buf[192])
{
    if (j->welcomed && j->root.root_rank != MOTET_NO_RANK)
        snprintf(buf, 192, "rank %u (pid %u on %s), whose process made the id,",
                (unsigned)j->root.root_rank, (unsigned)j->root.pid, j->root.host);
    else if (j->welcomed || !j->id.fixed)
        snprintf(buf, 192,
                "the process that made the id (pid %u on %s, usually rank 0's)",
                (unsigned)(j->welcomed ? j->root.pid : j->id.pid),
                j->welcomed ? j->root.host : j->id.host);
    else
        snprintf(buf, 192, "rank 0, which serves the address of NCCL_COMM_ID,");
    return buf;
}

static motet_result fail_cancelled(const join *j)
{
    return motet_fail(MOTET_ERR_USAGE, "rank %d of %d was aborted while it joined",
            j->args->rank, j->args->nranks);
}

static motet_result fail_ended(const join *j)
{
    char root[192];

    motet_reach_sweep(&j->id, j->params);
    return motet_fail(MOTET_ERR_REMOTE, "%s ended before all ranks had joined",
            root_text(j, root));
}

static motet_result fail_nobody(const join *j)
{
    char root[192];

    motet_reach_sweep(&j->id, j->params);
    return motet_fail(MOTET_ERR_REMOTE,
            "nobody answers for this id: %s has ended, or the ranks of this id have "
            "joined or failed already (%s)",
            root_text(j, root), j->reach.tried);
}

static motet_result fail_unreached(const join *j)
{
    char root[192], limit[32];

    if (j->id.fixed)
        return motet_fail(MOTET_ERR_REMOTE,
                "rank 0 did not open the rendezvous of NCCL_COMM_ID within %s (%s)",
                limit_text(j, limit), j->reach.tried);
    return motet_fail(MOTET_ERR_REMOTE, "rank %d could not reach %s within %s (%s)",
            j->args->rank, root_text(j, root), limit_text(j, limit), j->reach.tried);
}

static motet_result fail_silent(const join *j)
{
    char root[192], limit[32];

    return motet_fail(MOTET_ERR_REMOTE,
            "%s does not answer: no word within %s and %d s more; it is stopped or "
            "very "
            "busy",
            root_text(j, root), limit_text(j, limit),
            (int)(ANSWER_GRACE_NS / MOTET_NS_PER_S));
}

/* Connect, and try again while the service is not there yet. */
static motet_result reach_root(join *j)
{
    motet_patience patience = { .until_ns = j->args->deadline_ns,
        .cancel = j->args->cancel };
    uint64_t pause_ns = FIRST_PAUSE_NS;

    for (;;) {
        motet_reach_end end = motet_reach_once(&j->id, j->params, &patience, &j->reach);
        motet_wait_end waited;

        if (end == MOTET_REACH_CONNECTED)
            return MOTET_OK;
        if (end == MOTET_REACH_CANCELLED)
            return fail_cancelled(j);
        if (end == MOTET_REACH_NO_FDS)
            return motet_fail(MOTET_ERR_SYSTEM,
                    "rank %d cannot open a socket to join (%s), see ulimit -n",
                    j->args->rank, j->reach.tried);
        if (end == MOTET_REACH_NOBODY && !j->id.fixed)
            return fail_nobody(j);
        waited = motet_wait_fd(-1, 0, &patience, pause_ns);
        if (waited == MOTET_WAIT_CANCELLED)
            return fail_cancelled(j);
        if (motet_deadline_passed(patience.until_ns))
            return fail_unreached(j);
        pause_ns = pause_ns * 2 < LAST_PAUSE_NS ? pause_ns * 2 : LAST_PAUSE_NS;
    }
}

static size_t write_hello(const join *j, uint8_t *out, size_t room)
{
    const motet_join_args *args = j->args;
    motet_hello hello = { .rank = (uint32_t)args->rank,
        .nranks = (uint32_t)args->nranks,
        .pid = (uint32_t)getpid(),
        .uid = (uint32_t)geteuid(),
        .nfds = j->reach.tcp ? 0 : (uint32_t)args->nfds,
        .boot_hash = j->node.boot_hash,
        .node_hash = j->node.hash,
        .version = MOTET_VERSION,
        .blob_bytes = (uint32_t)args->blob_bytes };
    uint64_t now_ns = motet_now_ns();

    if (args->deadline_ns != 0) /* at least 1: 0 would mean none */
        hello.remaining_ms = 1 +
                (args->deadline_ns > now_ns
                                ? (args->deadline_ns - now_ns) / MOTET_NS_PER_MS
                                : 0);
    memcpy(hello.host, j->node.host, sizeof(hello.host));
    memcpy(hello.node, j->node.name, sizeof(hello.node));
    if (args->settings != NULL)
        memcpy(hello.settings, args->settings, strlen(args->settings) + 1);
    if (args->blob_bytes > 0)
        memcpy(hello.blob, args->blob, args->blob_bytes);
    return motet_wire_put_hello(out, room, &hello, j->id.secret);
}

static motet_result ended_wait(const join *j, motet_wait_end end)
{
    return end == MOTET_WAIT_CANCELLED ? fail_cancelled(j) : fail_silent(j);
}

static motet_result say_hello(join *j, attempt *how)
{
    uint8_t out[MOTET_WIRE_HEADER_BYTES + MOTET_WIRE_HELLO_MAX];
    size_t bytes = write_hello(j, out, sizeof(out)), sent = 0;

    *how = ATTEMPT_ANSWERED;
    if (bytes == 0)
        return motet_fail(MOTET_ERR_INTERNAL, "a hello does not fit %zu bytes",
                sizeof(out));
    while (sent < bytes) {
        bool first = sent == 0 && !j->reach.tcp;
        ssize_t n = motet_sock_send(j->reach.fd, out + sent, bytes - sent,
                first ? j->args->fds : NULL, first ? j->args->nfds : 0);
        motet_wait_end waited;

        if (n > 0) {
            sent += (size_t)n;
            continue;
        }
        if (errno == EPIPE || errno == ECONNRESET) {
            *how = ATTEMPT_CLOSED;
            return MOTET_OK;
        }
        if (errno != EAGAIN && errno != EINTR && errno != ETOOMANYREFS)
            return motet_fail_errno(MOTET_ERR_SYSTEM,
                    "send rank %d's hello with %d descriptors", j->args->rank,
                    j->args->nfds);
        waited = motet_wait_fd(errno == ETOOMANYREFS ? -1 : j->reach.fd, POLLOUT,
                &j->answer, FIRST_PAUSE_NS);
        if (waited == MOTET_WAIT_CANCELLED || motet_deadline_passed(j->answer.until_ns))
            return ended_wait(j, waited);
    }
    return MOTET_OK;
}

/* Exactly @p bytes, and the descriptors that come with them. */
static motet_result receive(join *j, void *buf, size_t bytes, attempt *how)
{
    size_t have = 0;

    *how = ATTEMPT_ANSWERED;
    while (have < bytes) {
        ssize_t n = motet_sock_recv(j->reach.fd, (uint8_t *)buf + have, bytes - have,
                &j->queue);
        motet_wait_end waited;

        if (n > 0) {
            have += (size_t)n;
            continue;
        }
        if (n == 0 || errno == ECONNRESET) {
            *how = ATTEMPT_CLOSED;
            return MOTET_OK;
        }
        if (errno != EAGAIN && errno != EINTR)
            return motet_fail_errno(MOTET_ERR_SYSTEM, "receive the rendezvous' answer");
        waited = motet_wait_fd(j->reach.fd, POLLIN, &j->answer, 0);
        if (waited != MOTET_WAIT_READY)
            return ended_wait(j, waited);
    }
    return MOTET_OK;
}

static motet_result fail_garbled(const join *j)
{
    char root[192];

    return motet_fail(MOTET_ERR_REMOTE, "%s sent an answer that is malformed",
            root_text(j, root));
}

/* The descriptors came in rank order; each entry takes its own. */
static motet_result hand_out(join *j, const int *nfds, motet_roster_entry *entries)
{
    struct rlimit limit = { 0 };
    int total = 0, next = 0;

    for (int r = 0; r < j->args->nranks; r++)
        total += nfds[r];
    if (j->queue.lost) {
        (void)getrlimit(RLIMIT_NOFILE, &limit); /* cannot fail: the resource exists */
        return motet_fail(MOTET_ERR_SYSTEM,
                "cannot take %d descriptors of %d ranks: too many open files (the "
                "limit "
                "is %llu, see ulimit -n)",
                total, j->args->nranks, (unsigned long long)limit.rlim_cur);
    }
    if (total != j->queue.n)
        return fail_garbled(j);
    for (int r = 0; r < j->args->nranks; r++) {
        for (int i = 0; i < MOTET_JOIN_FDS; i++)
            entries[r].fds[i] = -1;
        for (int i = 0; i < nfds[r]; i++, next++) {
            if (r == j->args->rank) {
                motet_sock_close(&j->fds[next]);
                continue;
            }
            entries[r].fds[i] = j->fds[next];
            motet_sock_forget(j->fds[next]);
            j->fds[next] = -1;
        }
    }
    return MOTET_OK;
}

static motet_result take_roster(join *j, const uint8_t *payload, size_t bytes,
        motet_roster *out)
{
    int nranks = j->args->nranks, nfds[MOTET_MAX_RANKS] = { 0 };
    motet_roster_entry *entries = calloc((size_t)nranks, sizeof(*entries));
    motet_result result;

    if (entries == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "allocate a roster of %d ranks",
                nranks);
    if (motet_wire_get_roster(payload, bytes, nranks, entries, nfds))
        result = hand_out(j, nfds, entries);
    else
        result = fail_garbled(j);
    if (result != MOTET_OK) {
        free(entries);
        return result;
    }
    out->nranks = nranks;
    out->rank = entries;
    return MOTET_OK;
}

static motet_result take_fail(const join *j, const uint8_t *payload, size_t bytes)
{
    char sentence[MOTET_SENTENCE_MAX];
    motet_result result;

    if (!motet_wire_get_fail(payload, bytes, &result, sentence))
        return fail_garbled(j);
    /* once through motet_fail(), so that the origin is not that of an older failure */
    return motet_fail(result, "%s", sentence);
}

/* One message. *done: it was the last. */
static motet_result take_message(join *j, const motet_wire_header *head,
        const uint8_t *payload, bool *done, motet_roster *out)
{
    *done = true;
    if (head->type == MOTET_WIRE_FAIL)
        return take_fail(j, payload, head->bytes);
    if (head->version != MOTET_WIRE_VERSION || head->type == MOTET_WIRE_HELLO)
        return fail_garbled(j);
    if (head->type == MOTET_WIRE_ROSTER)
        return take_roster(j, payload, head->bytes, out);
    if (!motet_wire_get_welcome(payload, head->bytes, &j->root))
        return fail_garbled(j);
    j->welcomed = true;
    *done = false;
    return MOTET_OK;
}

static motet_result receive_message(join *j, attempt *how, bool *done,
        motet_roster *out)
{
    uint8_t raw[MOTET_WIRE_HEADER_BYTES], *payload;
    motet_wire_header head;
    motet_result result = receive(j, raw, sizeof(raw), how);

    *done = true;
    if (result != MOTET_OK || *how == ATTEMPT_CLOSED)
        return result;
    if (!motet_wire_get_header(raw, &head) ||
            memcmp(head.secret, j->id.secret, sizeof(head.secret)) != 0)
        return motet_fail(MOTET_ERR_REMOTE,
                "what answers at the address of this id does not speak motet (%s)",
                j->reach.tcp ? "another program has taken the port" : "Unix socket");
    payload = malloc(head.bytes);
    if (payload == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "allocate %u bytes for a message",
                (unsigned)head.bytes);
    result = receive(j, payload, head.bytes, how);
    if (result == MOTET_OK && *how == ATTEMPT_ANSWERED)
        result = take_message(j, &head, payload, done, out);
    free(payload);
    return result;
}

/* One connection, from hello to answer. */
static motet_result converse(join *j, attempt *how, motet_roster *out)
{
    bool done = false;
    motet_result result = say_hello(j, how);

    /* even if the hello could not be sent whole: a FAIL may be waiting to be read */
    if (result == MOTET_OK)
        *how = ATTEMPT_ANSWERED;
    while (result == MOTET_OK && !done)
        result = receive_message(j, how, &done, out);
    motet_sock_close(&j->reach.fd);
    for (int i = 0; i < j->queue.n; i++)
        motet_sock_close(&j->fds[i]);
    j->queue.n = 0;
    return result;
}

static motet_result join_others(join *j, motet_roster *out)
{
    motet_patience patience = { .until_ns = j->args->deadline_ns,
        .cancel = j->args->cancel };
    uint64_t pause_ns = FIRST_PAUSE_NS;

    for (int turned_away = 0;; turned_away++) {
        attempt how = ATTEMPT_CLOSED;
        motet_result result = reach_root(j);

        if (result == MOTET_OK)
            result = converse(j, &how, out);
        if (result != MOTET_OK || how == ATTEMPT_ANSWERED)
            return result;
        /* A service that ends closes what waits in its queues. For a fixed id the next
         * one may follow at the same address, so that is no verdict. */
        if (j->welcomed || (!j->id.fixed && turned_away >= TURNED_AWAY_MAX))
            return fail_ended(j);
        if (motet_wait_fd(-1, 0, &patience, pause_ns) == MOTET_WAIT_CANCELLED)
            return fail_cancelled(j);
        if (motet_deadline_passed(patience.until_ns))
            return fail_unreached(j);
        pause_ns = pause_ns * 2 < LAST_PAUSE_NS ? pause_ns * 2 : LAST_PAUSE_NS;
    }
}

/* The only rank needs nobody. */
static motet_result join_alone(const join *j, motet_roster *out)
{
    motet_roster_entry *entry = calloc(1, sizeof(*entry));

    if (entry == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "allocate a roster of 1 rank");
    entry->pid = getpid();
    memcpy(entry->host, j->node.host, sizeof(entry->host));
    entry->blob_bytes = j->args->blob_bytes;
    if (entry->blob_bytes > 0)
        memcpy(entry->blob, j->args->blob, entry->blob_bytes);
    for (int i = 0; i < MOTET_JOIN_FDS; i++)
        entry->fds[i] = -1;
    motet_service_cancel(&j->id);
    out->nranks = 1;
    out->rank = entry;
    return MOTET_OK;
}

motet_result motet_bootstrap_join(const motet_params *params, const motet_id *id,
        const motet_join_args *args, motet_roster *out)
{
    join j = { .params = params, .args = args, .start_ns = motet_now_ns() };
    bool serves;
    motet_result result;

    result = check_args(args);
    if (result == MOTET_OK)
        result = motet_id_decode(id, &j.id);
    if (result != MOTET_OK)
        return result;
    j.reach.fd = -1;
    j.queue = (motet_fd_queue){ .fd = j.fds, .max = ROSTER_FDS_MAX };
    j.answer.cancel = args->cancel;
    if (args->deadline_ns != 0)
        j.answer.until_ns = args->deadline_ns + ANSWER_GRACE_NS;
    motet_node_describe(params, &j.node);
    if (args->nranks == 1)
        return join_alone(&j, out);
    serves = j.id.fixed && args->rank == 0;
    if (serves)
        MOTET_TRY(motet_service_start(params, &j.id), "join as rank 0");
    result = join_others(&j, out);
    if (serves && result != MOTET_OK)
        motet_service_cancel(&j.id); /* nobody else would, with an error of our own */
    return result;
}

void motet_roster_release(motet_roster *roster)
{
    if (roster == NULL || roster->rank == NULL)
        return;
    for (int r = 0; r < roster->nranks; r++)
        for (int i = 0; i < MOTET_JOIN_FDS; i++)
            if (roster->rank[r].fds[i] >= 0)
                close(roster->rank[r].fds[i]);
    free(roster->rank);
    roster->rank = NULL;
    roster->nranks = 0;
}
