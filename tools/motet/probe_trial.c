/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank of a cell does: see probe_trial.h. Everything from loading the library to
 * destroying the communicator, each step named before it begins.
 */
#include "probe_trial.h"

#include "probe_cell.h"
#include "ranks.h"
#include "stats.h"
#include "work.h"

#include "base/clock.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#define TIMED_CALLS 5
#define STEP_CALLS  20
/* Cases with wrong values that are named; of more it is said how many. */
#define NAMED_CASES 8u

static const size_t counts[] = { 1024, 1048576 };
static const motet_type types[] = { MOTET_FLOAT32, MOTET_FLOAT16, MOTET_BFLOAT16 };

#define NCOUNTS (sizeof(counts) / sizeof(*counts))
#define NTYPES  (sizeof(types) / sizeof(*types))

/* One rank at work. */
struct rank {
    struct probe_seat *seat;
    const struct probe_trial *trial;
    const struct backend *backend;
    struct library lib;
    struct ranks ranks;
    struct buffers buffers;
    struct work work;
    ncclComm_t comm;
    void *stream;
    ncclRedOp_t op;
    unsigned wrong_cases;  /* that had wrong values          */
    char which[800];       /* and how many, of the first ones */
    pthread_mutex_t looks; /* of `waits`, and of whoever asks meanwhile */
    bool waits;            /* in a wait that may never end  */
};

/* ------------------------------------------------------------------ messages */

/* Fails with what work.h said, behind which rank that was. */
static bool fail_as_said(struct rank *r)
{
    const char *said = ranks_said(&r->ranks);

    if (strncmp(said, "rank ", 5) == 0 && strchr(said, ':') != NULL)
        said = strchr(said, ':') + 2;
    probe_fail(r->seat, "%s", said);
    return false;
}

/* A library that says that a peer is at fault, of a communicator. */
static void ask_for_blame(struct rank *r, ncclResult_t result)
{
    ncclResult_t state = ncclSuccess;

    if (r->comm != NULL && r->lib.comm_async_error != NULL)
        (void)r->lib.comm_async_error(r->comm, &state);
    if (result == ncclRemoteError || state == ncclRemoteError)
        probe_blame_peer(r->seat);
}

/* -------------------------------------------------------------- the way there */

static bool load_library(struct rank *r)
{
    const struct probe_library *library = r->trial->library;
    char why[PATH_MAX + 512];

    if (library->given != NULL) {
        probe_enter(r->seat, PROBE_LOAD, "dlopen");
        if (dlopen(library->path, RTLD_NOW | RTLD_LOCAL) == NULL) {
            probe_fail(r->seat, "%s", dlerror());
            return false;
        }
    }
    probe_enter(r->seat, PROBE_SYMBOLS, "ncclGetVersion");
    if (library_load(&r->lib, library->given != NULL ? library->path : NULL, why,
                sizeof(why)) == 0)
        return true;
    probe_fail(r->seat, "%s", why);
    return false;
}

static bool take_device(struct rank *r)
{
    const char *bad;

    if (!r->backend->mirrored)
        return true;
    probe_enter(r->seat, PROBE_DEVICE, "device %d", r->seat->device);
    bad = r->backend->bind(r->seat->device);
    if (bad != NULL)
        probe_fail(r->seat, "take device %d: %s", r->seat->device, bad);
    return bad == NULL;
}

static bool make_stream(struct rank *r)
{
    const char *bad = r->backend->stream_create(&r->lib, &r->stream);

    if (bad != NULL)
        probe_fail(r->seat, "create a stream: %s", bad);
    return bad == NULL;
}

static bool make_communicator(struct rank *r)
{
    ncclResult_t result = ncclSuccess;
    ncclUniqueId id;

    memset(&id, 0, sizeof(id));
    probe_enter(r->seat, PROBE_INIT, "ncclGetUniqueId"); /* alike on all: steps count */
    if (r->seat->rank == 0)
        result = r->lib.get_unique_id(&id);
    if (result != ncclSuccess) {
        probe_fail(r->seat, "ncclGetUniqueId: %s", library_error(&r->lib, result));
        return false;
    }
    if (!probe_share(r->seat, &id, sizeof(id)))
        return false;
    probe_enter(r->seat, PROBE_INIT, "ncclCommInitRank");
    result = r->lib.comm_init_rank(&r->comm, r->seat->nranks, id, r->seat->rank);
    if (result == ncclSuccess)
        return true;
    r->comm = NULL;
    ask_for_blame(r, result);
    probe_fail(r->seat, "ncclCommInitRank: %s", library_error(&r->lib, result));
    return false;
}

static size_t step_bytes(const struct probe_options *o)
{
    return (size_t)(o->model.hidden * o->model.batch * o->model.dtype_bytes);
}

static bool make_buffers(struct rank *r)
{
    size_t bytes = counts[NCOUNTS - 1] * sizeof(float);

    if (bytes < step_bytes(r->trial->options))
        bytes = step_bytes(r->trial->options);
    ranks_alone(&r->ranks, r->backend, r->seat->rank, r->seat->nranks);
    if (buffers_alloc(&r->buffers, &r->ranks, NULL, 1, bytes, 0) != 0)
        return fail_as_said(r);
    return true;
}

static bool prepare_rank(struct rank *r, struct probe_seat *seat,
        const struct probe_trial *trial)
{
    *r = (struct rank){ .seat = seat,
        .trial = trial,
        .backend = trial->backend,
        .looks = PTHREAD_MUTEX_INITIALIZER };
    return load_library(r) && take_device(r) && make_stream(r);
}

/* The end: only after all have what they wanted. */
static void part(struct rank *r)
{
    ncclResult_t result;

    probe_finished(r->seat);
    if (!probe_meet(r->seat))
        return;
    probe_enter(r->seat, PROBE_DESTROY, "ncclCommDestroy");
    result = r->lib.comm_destroy(r->comm);
    if (result != ncclSuccess)
        probe_fail(r->seat, "ncclCommDestroy: %s", library_error(&r->lib, result));
}

/* --------------------------------------------------------------------- calls */

/* The communicator's asynchronous error, unless there is none. */
static bool fail_of_async_error(struct rank *r)
{
    ncclResult_t state = ncclSuccess, result = r->lib.comm_async_error(r->comm, &state);

    if (result == ncclSuccess)
        result = state;
    if (result == ncclSuccess || result == ncclInProgress)
        return false;
    probe_enter(r->seat, PROBE_LAST_ERROR, "ncclCommGetAsyncError");
    ask_for_blame(r, result);
    probe_fail(r->seat, "ncclCommGetAsyncError: %s", library_error(&r->lib, result));
    return true;
}

/* A library may have told its asynchronous error while the wait still goes on, for ever.
 * The one that waits does not go on while it is being asked. */
static void *look_while_waiting(void *arg)
{
    const struct timespec nap = { .tv_nsec = 100000000 };
    struct rank *r = arg;
    bool failed = false;

    while (!failed) {
        nanosleep(&nap, NULL);
        pthread_mutex_lock(&r->looks);
        failed = r->waits && fail_of_async_error(r);
        pthread_mutex_unlock(&r->looks);
    }
    return NULL;
}

static void set_waits(struct rank *r, bool waits)
{
    pthread_mutex_lock(&r->looks);
    r->waits = waits;
    pthread_mutex_unlock(&r->looks);
}

/* Ends with the process. */
static bool start_to_look(struct rank *r)
{
    pthread_t thread;
    int bad = r->lib.comm_async_error == NULL
            ? 0
            : pthread_create(&thread, NULL, look_while_waiting, r);

    if (bad != 0)
        probe_fail(r->seat, "start a thread: %s", strerror(bad));
    return bad == 0;
}

/* What the runtime remembers: an older one only its latest call, so it is asked after the
 * launch and after the wait. */
static bool ask_runtime(struct rank *r)
{
    const char *bad;

    if (r->backend->last_error == NULL)
        return true;
    probe_enter(r->seat, PROBE_LAST_ERROR, "hipGetLastError");
    bad = r->backend->last_error();
    if (bad != NULL)
        probe_fail(r->seat, "%s", bad);
    return bad == NULL;
}

/* What neither the call nor the wait said. */
static bool look_for_errors(struct rank *r)
{
    probe_enter(r->seat, PROBE_LAST_ERROR, "ncclCommGetAsyncError");
    if (r->lib.comm_async_error != NULL && fail_of_async_error(r))
        return false;
    return ask_runtime(r);
}

/* "all_reduce of 1024 float32, in place" */
static void say_case(const struct rank *r, char *buf, size_t bytes)
{
    snprintf(buf, bytes, "%s of %zu %s%s", r->trial->operation->name,
            r->work.layout.param, motet_type_table[r->work.check.type].name,
            r->work.in_place ? ", in place" : "");
}

static bool call_and_wait(struct rank *r)
{
    char what[128];
    int bad;

    say_case(r, what, sizeof(what));
    if (r->backend->last_error != NULL)
        (void)r->backend->last_error(); /* what was there before is not this call's */
    probe_enter(r->seat, PROBE_LAUNCH, "%s", what);
    if (work_issue(&r->work, 1) != 0) {
        ask_for_blame(r, r->work.result);
        return fail_as_said(r);
    }
    if (!ask_runtime(r))
        return false;
    probe_enter(r->seat, PROBE_SYNC, "%s", what);
    set_waits(r, true);
    bad = work_wait(&r->work);
    set_waits(r, false);
    if (probe_failed(r->seat))
        return false; /* the other thread has said why */
    if (bad == 0)
        return true;
    ask_for_blame(r, ncclSuccess);
    return fail_as_said(r);
}

static bool count_wrong(struct rank *r)
{
    uint64_t wrong = 0, digest;
    char what[128];

    probe_enter(r->seat, PROBE_VALUES, "compare");
    if (work_wrong(&r->work, &wrong, &digest) != 0)
        return fail_as_said(r);
    if (wrong != 0 && ++r->wrong_cases <= NAMED_CASES) {
        size_t at = strlen(r->which);

        say_case(r, what, sizeof(what));
        snprintf(r->which + at, sizeof(r->which) - at, "%s%s: %llu wrong",
                at > 0 ? "; " : "", what, (unsigned long long)wrong);
    }
    return true;
}

static bool try_case(struct rank *r, motet_type type, size_t count, bool in_place)
{
    const struct collective *c = r->work.collective;
    size_t bytes = motet_type_table[type].bytes;

    if (work_set_op(&r->work, type, MOTET_SUM) != 0)
        return fail_as_said(r);
    r->work.layout = c->layout(count, bytes, r->seat->nranks);
    r->work.in_place = in_place;
    r->work.root = in_place ? 0 : r->seat->nranks - 1;
    r->work.check.seed = (uint32_t)count + in_place;
    probe_enter(r->seat, PROBE_DEVICE, "fill the buffers");
    if (work_prepare(&r->work) != 0)
        return fail_as_said(r);
    return call_and_wait(r) && look_for_errors(r) && count_wrong(r);
}

static bool try_all_cases(struct rank *r)
{
    const struct probe_operation *o = r->trial->operation;

    if (o->count != 0)
        return try_case(r, MOTET_FLOAT32, o->count, false);
    for (size_t t = 0; t < NTYPES; t++)
        for (size_t n = 0; n < NCOUNTS; n++) {
            if (!try_case(r, types[t], counts[n], false))
                return false;
            if (r->work.collective->checks_in_place &&
                    !try_case(r, types[t], counts[n], true))
                return false;
        }
    return true;
}

/* Median of @p times calls of what try_case() set up last, each waited for; −1: failed. */
static double measure(struct rank *r, int times)
{
    double us[STEP_CALLS];

    for (int i = 0; i < times; i++) {
        uint64_t start = motet_now_ns();

        if (!call_and_wait(r))
            return -1;
        us[i] = (double)(motet_now_ns() - start) / 1e3;
    }
    return stats_median(us, (size_t)times);
}

/* Two of these a layer make a token step. */
static bool measure_step(struct rank *r)
{
    double us;

    if (step_bytes(r->trial->options) == 0 ||
            strcmp(r->trial->operation->name, "all_reduce") != 0)
        return true;
    if (!try_case(r, MOTET_BFLOAT16, (step_bytes(r->trial->options) + 1) / 2, false))
        return false;
    us = measure(r, STEP_CALLS);
    r->trial->found->step_us[r->seat->rank] = us;
    return us >= 0;
}

static bool measure_call(struct rank *r)
{
    const struct probe_operation *o = r->trial->operation;
    size_t count = o->count != 0 ? o->count : counts[NCOUNTS - 1];
    double us;

    if (!try_case(r, MOTET_FLOAT32, count, false))
        return false;
    us = measure(r, TIMED_CALLS);
    if (us >= 0)
        probe_took(r->seat, us / 1e3);
    return us >= 0;
}

static bool verdict_on_values(struct rank *r)
{
    if (r->wrong_cases == 0)
        return true;
    probe_enter(r->seat, PROBE_VALUES, "all cases");
    if (r->wrong_cases > NAMED_CASES)
        probe_fail(r->seat, "%s; and %u more cases", r->which,
                r->wrong_cases - NAMED_CASES);
    else
        probe_fail(r->seat, "%s", r->which);
    return false;
}

/* -------------------------------------------------------------------- bodies */

static void bring_home(const struct rank *r)
{
    struct probe_found *found = r->trial->found;

    snprintf(found->path, sizeof(found->path), "%s", r->lib.path);
    found->version = r->lib.version;
    found->motet = r->lib.motet;
}

/* Constructors run here for the first time. */
static void body_load(struct probe_seat *seat, void *arg)
{
    const struct probe_trial *trial = arg;
    uint64_t start = motet_now_ns();

    probe_enter(seat, PROBE_LOAD, "dlopen");
    if (trial->library->given != NULL &&
            dlopen(trial->library->path, RTLD_NOW | RTLD_LOCAL) == NULL)
        probe_fail(seat, "%s", dlerror());
    probe_took(seat, (double)(motet_now_ns() - start) / 1e6);
}

static void body_symbols(struct probe_seat *seat, void *arg)
{
    struct rank r = { .seat = seat, .trial = arg };

    if (load_library(&r))
        bring_home(&r);
}

static void body_device(struct probe_seat *seat, void *arg)
{
    unsigned char sent[4096], came[sizeof(sent)];
    void *memory = NULL;
    const char *bad;
    struct rank r;

    if (!prepare_rank(&r, seat, arg))
        return;
    probe_enter(seat, PROBE_DEVICE, "memory of device %d", seat->device);
    for (size_t i = 0; i < sizeof(sent); i++)
        sent[i] = (unsigned char)(i * 7 + (size_t)seat->device);
    memset(came, CHECK_POISON, sizeof(came));
    bad = r.backend->alloc(&memory, sizeof(sent));
    if (bad == NULL)
        bad = r.backend->from_host(memory, sent, sizeof(sent), r.stream);
    if (bad == NULL)
        bad = r.backend->to_host(came, memory, sizeof(came), r.stream);
    if (bad != NULL) {
        probe_fail(seat, "%s", bad);
        return;
    }
    probe_enter(seat, PROBE_VALUES, "copy to the device and back");
    if (memcmp(sent, came, sizeof(sent)) != 0)
        probe_fail(seat, "bytes that were copied to the device came back changed");
}

static void body_init(struct probe_seat *seat, void *arg)
{
    uint64_t start;
    struct rank r;

    if (!prepare_rank(&r, seat, arg) || !probe_meet(seat))
        return;
    start = motet_now_ns();
    if (!make_communicator(&r))
        return;
    probe_took(seat, (double)(motet_now_ns() - start) / 1e6);
    part(&r);
}

static void body_operation(struct probe_seat *seat, void *arg)
{
    const struct probe_trial *trial = arg;
    static struct rank r; /* another thread may look at it to the end of the process */

    if (!prepare_rank(&r, seat, trial) || !make_buffers(&r) || !make_communicator(&r))
        return;
    r.work = (struct work){ .ranks = &r.ranks,
        .lib = &r.lib,
        .comms = &r.comm,
        .streams = &r.stream,
        .ops = &r.op,
        .buffers = &r.buffers };
    r.work.collective = trial->operation->way != NULL
            ? trial->operation->way
            : collective_find(trial->operation->collective);
    if (start_to_look(&r) && try_all_cases(&r) && measure_step(&r) &&
            measure_call(&r) && verdict_on_values(&r))
        part(&r);
}

/* ------------------------------------------------------------ one-way messages */

static struct layout layout_one_way(size_t elements, size_t element_bytes, int nranks)
{
    (void)element_bytes;
    (void)nranks;
    return (struct layout){ elements, elements, elements, 0, 0, elements };
}

static ncclResult_t issue_one_way(const struct call *c, int from)
{
    if (c->rank == from)
        return c->lib->send(c->send, c->param, c->type, 1 - from, c->comm, c->stream);
    return c->lib->recv(c->recv, c->param, c->type, from, c->comm, c->stream);
}

static ncclResult_t issue_forth(const struct call *c, int step)
{
    (void)step;
    return issue_one_way(c, 0);
}

static ncclResult_t issue_back(const struct call *c, int step)
{
    (void)step;
    return issue_one_way(c, 1);
}

/* The sender's own output is not to be touched. */
static size_t wrong_one_way(const struct check *c, const struct layout *l, int rank,
        int from, const void *recv)
{
    const unsigned char *bytes = recv;
    size_t wrong = 0;

    if (rank != from)
        return check_moved(c, recv, l->recv, from, 0);
    for (size_t i = 0; i < l->recv * motet_type_table[c->type].bytes; i++)
        wrong += bytes[i] != CHECK_POISON;
    return wrong;
}

static size_t wrong_forth(const struct check *c, const struct layout *l, int rank,
        int root, const void *recv)
{
    (void)root;
    return wrong_one_way(c, l, rank, 0, recv);
}

static size_t wrong_back(const struct check *c, const struct layout *l, int rank,
        int root, const void *recv)
{
    (void)root;
    return wrong_one_way(c, l, rank, 1, recv);
}

static const struct collective forth = { .name = "send_0_to_1",
    .layout = layout_one_way,
    .issue = issue_forth,
    .wrong = wrong_forth };

static const struct collective back = { .name = "send_1_to_0",
    .layout = layout_one_way,
    .issue = issue_back,
    .wrong = wrong_back };

/* ----------------------------------------------------------------- the table */

/* clang-format off */
const struct probe_operation probe_operations[] = {
    { "load",           PROBE_ONCE,             body_load,      NULL,             NULL,  0 },
    { "symbols",        PROBE_ONCE,             body_symbols,   NULL,             NULL,  0 },
    { "device",         PROBE_EACH,             body_device,    NULL,             NULL,  0 },
    { "one_rank",       PROBE_EACH,             body_operation, "all_reduce",     NULL,  0 },
    { "init",           PROBE_PAIR | PROBE_ALL, body_init,      NULL,             NULL,  0 },
    { "all_reduce",     PROBE_PAIR | PROBE_ALL, body_operation, "all_reduce",     NULL,  0 },
    { "broadcast",      PROBE_PAIR | PROBE_ALL, body_operation, "broadcast",      NULL,  0 },
    { "barrier",        PROBE_PAIR | PROBE_ALL, body_operation, "all_reduce",     NULL,  1 },
    { "all_gather",     PROBE_PAIR | PROBE_ALL, body_operation, "all_gather",     NULL,  0 },
    { "reduce_scatter", PROBE_PAIR | PROBE_ALL, body_operation, "reduce_scatter", NULL,  0 },
    { "send_0_to_1",    PROBE_PAIR,             body_operation, NULL,             &forth, 0 },
    { "send_1_to_0",    PROBE_PAIR,             body_operation, NULL,             &back, 0 },
    { "send_both",      PROBE_PAIR,             body_operation, "sendrecv",       NULL,  0 },
    { "send_ring",      PROBE_ALL,              body_operation, "sendrecv",       NULL,  0 },
};
/* clang-format on */

const size_t nprobe_operations = sizeof(probe_operations) / sizeof(*probe_operations);
