/* SPDX-License-Identifier: Apache-2.0 */
/* The root service's loop: see root.h. */
#include "bootstrap/root.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HELLO_WITHIN_NS  (5 * MOTET_NS_PER_S)
#define CLASH_GRACE_NS   (1 * MOTET_NS_PER_S)
#define LINGER_NS        (5 * MOTET_NS_PER_S)
#define ACCEPT_PAUSE_NS  (20 * MOTET_NS_PER_MS)
#define SEND_PAUSE_NS    (2 * MOTET_NS_PER_MS)
#define STRANGERS_LOGGED 16

static void close_listeners(motet_root *root)
{
    for (int i = 0; i < root->nlisteners; i++)
        motet_sock_close(&root->listener[i].fd);
    root->nlisteners = 0;
    motet_root_unlink(root);
}

void motet_root_unlink(motet_root *root)
{
    if (atomic_exchange_explicit(&root->has_path, false, memory_order_relaxed))
        (void)unlink(root->path); /* nobody needs it any more; if it is gone, fine */
}

void motet_root_close(motet_root *root)
{
    close_listeners(root);
    for (int i = 0; i < root->nconns; i++)
        motet_conn_free(root->conn[i]);
    root->nconns = 0;
    motet_sock_close(&root->wake_fd);
    free(root->answer.bytes);
    root->answer.bytes = NULL;
}

/* The last one takes the place of the one that goes: callers go from back to front. */
static void drop(motet_root *root, int i)
{
    motet_conn_free(root->conn[i]);
    root->conn[i] = root->conn[--root->nconns];
}

static void turn_away(motet_root *root, int i, const char *why)
{
    root->strangers++;
    if (root->strangers <= STRANGERS_LOGGED)
        motet_info(MOTET_SUB_BOOTSTRAP,
                "rendezvous turned a stranger away (%s, pid %u): %s",
                root->conn[i]->tcp ? "TCP" : "Unix socket",
                (unsigned)root->conn[i]->pid, why);
    drop(root, i);
}

/* GATHER is over: this is what everybody will hear. */
static void MOTET_PRINTF(3, 4)
        fail_all(motet_root *root, motet_result result, const char *fmt, ...)
{
    char sentence[MOTET_SENTENCE_MAX];
    size_t room = MOTET_WIRE_HEADER_BYTES + MOTET_WIRE_FAIL_MAX;
    va_list args;

    if (root->answer.bytes != NULL)
        return;
    va_start(args, fmt);
    vsnprintf(sentence, sizeof(sentence), fmt, args);
    va_end(args);
    motet_info(MOTET_SUB_BOOTSTRAP, "rendezvous failed: %s", sentence);
    root->failed = true;
    root->end_ns = motet_now_ns() + LINGER_NS;
    atomic_store_explicit(&root->judged, true, memory_order_release);
    root->answer.bytes = malloc(room);
    if (root->answer.bytes != NULL)
        root->answer.nbytes = motet_wire_put_fail(root->answer.bytes, room, result,
                sentence, root->id.secret);
    else
        root->end_ns = 1; /* nothing can be said: closing tells the ranks as much */
    if (root->id.fixed)
        close_listeners(root); /* who comes now may belong to the next attempt */
}

/* A rank of this process. */
static bool own(const motet_root *root, const motet_conn *conn)
{
    return conn->pid == root->facts.pid;
}

static int members_of(const motet_root *root, motet_member out[MOTET_MEMBERS_MAX])
{
    int n = 0;

    for (int i = 0; i < root->nconns; i++)
        if (root->conn[i]->member)
            out[n++] = motet_conn_member(root->conn[i]);
    return n;
}

static motet_conn *by_rank(const motet_root *root, uint32_t rank)
{
    for (int i = 0; i < root->nconns; i++)
        if (root->conn[i]->member && root->conn[i]->hello.rank == rank)
            return root->conn[i];
    return NULL;
}

/* Everybody is there and agrees: write the roster that all get. */
static bool make_roster(motet_root *root)
{
    motet_answer *answer = &root->answer;
    size_t room =
            MOTET_WIRE_HEADER_BYTES + 4 + (size_t)root->nranks * MOTET_WIRE_ENTRY_MAX;
    uint8_t *bytes = malloc(room);
    motet_wire_writer w;

    if (bytes == NULL)
        return false;
    w = (motet_wire_writer){ .at = bytes + MOTET_WIRE_HEADER_BYTES,
        .end = bytes + room };
    answer->nparts = 1;
    answer->part[0].at = 0;
    answer->part[0].nfds = 0;
    motet_put_u32(&w, (uint32_t)root->nranks);
    for (int rank = 0; rank < root->nranks; rank++) {
        const motet_conn *conn = by_rank(root, (uint32_t)rank);
        int p = answer->nparts - 1;

        if (answer->part[p].nfds + conn->queue.n > MOTET_SOCK_FDS_MAX) {
            p = answer->nparts++;
            answer->part[p].at = (size_t)(w.at - bytes);
            answer->part[p].nfds = 0;
        }
        for (int i = 0; i < conn->queue.n; i++)
            answer->part[p].fds[answer->part[p].nfds++] = conn->fds[i];
        motet_wire_put_entry(&w, conn->pid, &conn->hello);
    }
    answer->nbytes = (size_t)(w.at - bytes);
    motet_wire_put_header(bytes, MOTET_WIRE_ROSTER,
            answer->nbytes - MOTET_WIRE_HEADER_BYTES, root->id.secret);
    answer->bytes = bytes;
    return true;
}

static void judge(motet_root *root)
{
    motet_member members[MOTET_MEMBERS_MAX];
    int n = members_of(root, members);
    char sentence[MOTET_SENTENCE_MAX];
    motet_result result =
            motet_members_agree(members, n, &root->facts, sentence, sizeof(sentence));

    if (result != MOTET_OK) {
        fail_all(root, result, "%s", sentence);
        return;
    }
    if (!make_roster(root)) {
        fail_all(root, MOTET_ERR_SYSTEM,
                "the process that made the id (pid %u on %s) has no memory for the "
                "roster",
                (unsigned)root->facts.pid, root->host);
        return;
    }
    atomic_store_explicit(&root->judged, true, memory_order_release);
    /* before anybody is told: a rank that heard the answer and comes back for its
     * next communicator at the same address must not land in this one's queue */
    close_listeners(root);
}

/* Did its descriptors come with the hello? Over TCP they cannot. */
static bool fds_complete(motet_root *root, motet_conn *conn)
{
    if (conn->tcp || conn->version != MOTET_WIRE_VERSION ||
            (!conn->queue.lost && conn->queue.n == (int)conn->hello.nfds))
        return true;
    fail_all(root, MOTET_ERR_SYSTEM,
            "the process that made the id (pid %u on %s) could not take the "
            "descriptors "
            "of rank %u: it has too many open files (see ulimit -n)",
            (unsigned)root->facts.pid, root->host, (unsigned)conn->hello.rank);
    return false;
}

static void note_deadline(motet_root *root, const motet_hello *hello, uint64_t now_ns)
{
    uint64_t deadline_ns;

    if (hello->remaining_ms == 0 ||
            hello->remaining_ms > UINT64_MAX / MOTET_NS_PER_MS / 2)
        return;
    deadline_ns = now_ns + hello->remaining_ms * MOTET_NS_PER_MS;
    if (root->deadline_ns == 0 || deadline_ns < root->deadline_ns) {
        root->deadline_ns = deadline_ns;
        root->waited_ms = hello->remaining_ms;
    }
}

static void welcome_all(motet_root *root, motet_conn *newcomer)
{
    motet_welcome welcome = { .pid = root->facts.pid, .root_rank = root->root_rank };

    memcpy(welcome.host, root->host, sizeof(welcome.host));
    /* a failed send shows as a closed connection in the next round */
    if (own(root, newcomer) && root->root_rank == MOTET_NO_RANK) {
        root->root_rank = welcome.root_rank = newcomer->hello.rank;
        for (int i = 0; i < root->nconns; i++)
            if (root->conn[i]->member && root->conn[i] != newcomer)
                (void)motet_conn_welcome(root->conn[i], &welcome, root->id.secret);
    }
    (void)motet_conn_welcome(newcomer, &welcome, root->id.secret);
}

/* A hello was good. */
static void admit(motet_root *root, motet_conn *conn, uint64_t now_ns)
{
    motet_member mine = motet_conn_member(conn);

    if ((int)conn->hello.nranks > root->nranks)
        root->nranks = (int)conn->hello.nranks;
    if (root->answer.bytes != NULL)
        return; /* late: it hears the sentence with the next write */
    welcome_all(root, conn);
    if (!fds_complete(root, conn))
        return;
    note_deadline(root, &conn->hello, now_ns);
    for (int i = 0; i < root->nconns && root->clash_ns == 0; i++) {
        motet_member other = motet_conn_member(root->conn[i]);

        if (root->conn[i] != conn && root->conn[i]->member &&
                motet_members_clash(&mine, &other))
            root->clash_ns = now_ns + CLASH_GRACE_NS;
    }
}

/* A member is gone before the answer was made: no group any more. */
static void member_left(motet_root *root, int i)
{
    motet_member gone = motet_conn_member(root->conn[i]);

    if (root->answer.bytes == NULL)
        fail_all(root, MOTET_ERR_REMOTE, "rank %u (pid %u on %s) left while joining",
                (unsigned)gone.hello->rank, (unsigned)gone.pid, gone.hello->host);
    root->accounted++;
    drop(root, i);
}

static void read_from(motet_root *root, int i, uint64_t now_ns)
{
    const char *why = "";

    switch (motet_conn_read(root->conn[i], root->id.secret, &why)) {
    case MOTET_CONN_HELLO:
        if (root->answer.bytes != NULL && !root->failed)
            turn_away(root, i, "all ranks had joined already");
        else
            admit(root, root->conn[i], now_ns);
        break;
    case MOTET_CONN_STRANGER: turn_away(root, i, why); break;
    case MOTET_CONN_LEFT: member_left(root, i); break;
    case MOTET_CONN_WAITS:
    case MOTET_CONN_DONE: break;
    }
}

/* Returns how many members still wait, of this process or of the others. */
static int tell_some(motet_root *root, bool ours, uint64_t now_ns)
{
    int waiting = 0;

    for (int i = root->nconns - 1; i >= 0; i--) {
        bool full;

        if (!root->conn[i]->member || own(root, root->conn[i]) != ours)
            continue;
        if (motet_conn_write(root->conn[i], &root->answer, &full) == MOTET_CONN_WAITS) {
            if (full)
                root->retry_at_ns = now_ns + SEND_PAUSE_NS;
            waiting++;
            continue;
        }
        root->accounted++;
        if (root->failed) {
            drop(root, i);
            continue;
        }
        /* the others still need its descriptors: only the connection goes */
        motet_sock_close(&root->conn[i]->fd);
        root->conn[i]->member = false;
    }
    return waiting;
}

/* Ranks of this process come last: one that heard the answer may end the process. */
static void tell(motet_root *root, uint64_t now_ns)
{
    if (root->answer.bytes == NULL || now_ns < root->retry_at_ns)
        return;
    root->retry_at_ns = 0;
    if (tell_some(root, false, now_ns) == 0)
        (void)tell_some(root, true, now_ns); /* finished() counts who waits */
}

/* Room for one more: the oldest that has not said hello goes. Members never do. */
static void make_room(motet_root *root)
{
    int oldest = -1;

    for (int i = 0; i < root->nconns; i++)
        if (!root->conn[i]->member && root->conn[i]->fd >= 0 &&
                (oldest < 0 || root->conn[i]->since_ns < root->conn[oldest]->since_ns))
            oldest = i;
    if (oldest >= 0)
        turn_away(root, oldest, "it said nothing and others need the place");
}

static void take_in(motet_root *root, int fd, bool tcp, uint64_t now_ns)
{
    pid_t pid = 0;
    uid_t uid = 0;
    motet_conn *conn;

    motet_sock_note(fd);
    if (!tcp && (!motet_sock_peer(fd, &pid, &uid) || !motet_sock_uid_fits(uid))) {
        root->strangers++;
        motet_info(MOTET_SUB_BOOTSTRAP,
                "rendezvous turned a stranger away (Unix socket, pid %d): it runs as "
                "user %u",
                (int)pid, (unsigned)uid);
        motet_sock_close(&fd);
        return;
    }
    if (root->nconns == MOTET_ROOT_CONNS)
        make_room(root);
    if (root->nconns == MOTET_ROOT_CONNS) {
        motet_sock_close(&fd);
        return;
    }
    conn = motet_conn_new(fd, tcp, (uint32_t)pid, now_ns);
    if (conn != NULL)
        root->conn[root->nconns++] = conn;
}

static void accept_from(motet_root *root, int i, uint64_t now_ns)
{
    /* bounded: a flood of strangers must not keep us from those who are in */
    for (int k = 0; k < 32; k++) {
        int fd =
                accept4(root->listener[i].fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd >= 0) {
            take_in(root, fd, root->listener[i].tcp, now_ns);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            root->accept_errno = errno;
            root->accept_at_ns = now_ns + ACCEPT_PAUSE_NS;
        }
        return;
    }
}

static void earlier(uint64_t *at_ns, uint64_t candidate_ns)
{
    if (candidate_ns != 0 && (*at_ns == 0 || candidate_ns < *at_ns))
        *at_ns = candidate_ns;
}

/* When the loop must look again even if nothing happens; 0: never. */
static uint64_t next_event_ns(const motet_root *root)
{
    uint64_t at_ns = 0;

    earlier(&at_ns, root->accept_at_ns);
    earlier(&at_ns, root->retry_at_ns);
    earlier(&at_ns, root->end_ns);
    if (!root->failed)
        earlier(&at_ns, root->deadline_ns);
    if (root->answer.bytes == NULL)
        earlier(&at_ns, root->clash_ns);
    for (int i = 0; i < root->nconns; i++)
        if (!root->conn[i]->member && root->conn[i]->fd >= 0)
            earlier(&at_ns, root->conn[i]->since_ns + HELLO_WITHIN_NS);
    return at_ns;
}

static int poll_timeout_ms(const motet_root *root, uint64_t now_ns)
{
    uint64_t at_ns = next_event_ns(root), ms;

    if (at_ns == 0)
        return -1; /* the eventfd ends it */
    if (at_ns <= now_ns)
        return 0;
    ms = (at_ns - now_ns + MOTET_NS_PER_MS - 1) / MOTET_NS_PER_MS;
    return ms > 60000 ? 60000 : (int)ms;
}

/* Wait, then serve what is ready. Connections first: who closed its end before it
 * cancelled must be seen as the one who left. */
static void serve_once(motet_root *root)
{
    struct pollfd set[1 + MOTET_ROOT_LISTENERS + MOTET_ROOT_CONNS];
    int nconns = root->nconns, nlisteners = root->nlisteners, n = 0;
    uint64_t now_ns = motet_now_ns();
    bool accepting = now_ns >= root->accept_at_ns;
    int others = 0;

    for (int i = 0; i < nconns; i++)
        others += root->conn[i]->member && !own(root, root->conn[i]) ? 1 : 0;
    if (accepting)
        root->accept_at_ns = 0;
    set[n++] = (struct pollfd){ .fd = root->wake_fd, .events = POLLIN };
    for (int i = 0; i < nconns; i++) {
        bool sends = root->answer.bytes != NULL && root->conn[i]->member &&
                (!own(root, root->conn[i]) || others == 0);

        set[n++] = (struct pollfd){ .fd = root->conn[i]->fd,
            .events =
                    (short)(POLLIN | (sends && root->retry_at_ns == 0 ? POLLOUT : 0)) };
    }
    for (int i = 0; i < nlisteners; i++)
        set[n++] = (struct pollfd){ .fd = accepting ? root->listener[i].fd : -1,
            .events = POLLIN };
    if (poll(set, (nfds_t)n, poll_timeout_ms(root, now_ns)) <= 0)
        return;
    if (set[0].revents != 0) {
        uint64_t count;

        (void)!read(root->wake_fd, &count, sizeof(count)); /* `cancel` is what counts */
    }
    now_ns = motet_now_ns();
    for (int i = nconns - 1; i >= 0; i--)
        if (root->conn[i]->fd >= 0 && (set[1 + i].revents & ~POLLOUT) != 0)
            read_from(root, i, now_ns);
    for (int i = 0; i < nlisteners && i < root->nlisteners; i++)
        if (set[1 + nconns + i].revents != 0)
            accept_from(root, i, now_ns);
}

static void fail_absent(motet_root *root)
{
    motet_member members[MOTET_MEMBERS_MAX];
    int n = members_of(root, members);
    char sentence[MOTET_SENTENCE_MAX / 2], error[128];

    motet_members_absent(members, n, root->nranks, root->waited_ms, sentence,
            sizeof(sentence));
    if (root->accept_errno != 0)
        fail_all(root, MOTET_ERR_REMOTE,
                "%s (the rendezvous, pid %u on %s, could not accept connections: %s)",
                sentence, (unsigned)root->facts.pid, root->host,
                strerror_r(root->accept_errno, error, sizeof(error)));
    else
        fail_all(root, MOTET_ERR_REMOTE, "%s", sentence);
}

/* What time and numbers decide. */
static void decide(motet_root *root)
{
    uint64_t now_ns = motet_now_ns();
    int members = 0;

    for (int i = root->nconns - 1; i >= 0; i--) {
        if (root->conn[i]->member)
            members++;
        else if (root->conn[i]->fd >= 0 &&
                now_ns - root->conn[i]->since_ns >= HELLO_WITHIN_NS)
            turn_away(root, i, "no whole hello within 5 s");
    }
    if (root->answer.bytes != NULL)
        return;
    if (root->nranks > 0 && members >= root->nranks)
        judge(root);
    else if (root->clash_ns != 0 && now_ns >= root->clash_ns)
        judge(root);
    else if (root->deadline_ns != 0 && now_ns >= root->deadline_ns)
        fail_absent(root);
    else if (atomic_load_explicit(&root->cancel, memory_order_acquire))
        fail_all(root, MOTET_ERR_REMOTE,
                "the id was cancelled by the process that made it (pid %u on %s)",
                (unsigned)root->facts.pid, root->host);
}

static bool finished(const motet_root *root)
{
    uint64_t now_ns = motet_now_ns();
    int waiting = 0;

    if (root->answer.bytes == NULL && root->end_ns == 0)
        return false;
    for (int i = 0; i < root->nconns; i++)
        waiting += root->conn[i]->member ? 1 : 0;
    if (!root->failed) /* a stopped rank may take its time, within the deadline */
        return waiting == 0 || (root->deadline_ns != 0 && now_ns >= root->deadline_ns);
    if (now_ns >= root->end_ns)
        return true;
    return waiting == 0 &&
            (root->id.fixed || root->accounted >= root->nranks ||
                    atomic_load_explicit(&root->cancel, memory_order_acquire));
}

void motet_root_run(motet_root *root)
{
    while (!finished(root)) {
        serve_once(root);
        decide(root);
        tell(root, motet_now_ns());
    }
    if (root->strangers > 0)
        motet_info(MOTET_SUB_BOOTSTRAP, "rendezvous ended: %d strangers turned away",
                root->strangers);
}
