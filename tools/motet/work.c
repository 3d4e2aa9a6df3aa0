/* SPDX-License-Identifier: Apache-2.0 */
/* One collective on one thread's ranks: see work.h. */
#include "work.h"

#include "cmd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ buffers */

/* The base of rank @p i's buffer on @p side (0 send, 1 recv) of a set. */
static void *base_of(const struct buffers *b, int set, int i, int side)
{
    return b->base[2 * (set * b->ranks + i) + side];
}

static int allocate(struct buffers *b, struct ranks *self, int i)
{
    size_t bytes = b->bytes + b->offset + WORK_GUARD;
    const char *bad;
    ncclResult_t result;

    if (b->lib == NULL) {
        bad = b->backend->alloc(&b->base[i], bytes);
        if (bad != NULL)
            return ranks_fail(self, EXIT_PROBLEM, "a buffer of %zu bytes: %s", bytes,
                    bad);
        return EXIT_FINE;
    }
    result = b->lib->mem_alloc(&b->base[i], bytes);
    if (result != ncclSuccess)
        return ranks_fail(self, EXIT_PROBLEM, "ncclMemAlloc of %zu bytes: %s", bytes,
                library_error(b->lib, result));
    return EXIT_FINE;
}

int buffers_alloc(struct buffers *b, struct ranks *self, const struct library *lib,
        int sets, size_t bytes, size_t offset_bytes)
{
    int code = EXIT_FINE;

    *b = (struct buffers){ .backend = self->backend,
        .ranks = self->count,
        .sets = sets,
        .count = 2 * self->count * sets,
        .bytes = bytes,
        .offset = offset_bytes };
    if (lib != NULL && lib->mem_alloc != NULL && lib->mem_free != NULL)
        b->lib = lib;
    b->base = calloc((size_t)b->count, sizeof(*b->base));
    if (b->base == NULL)
        return ranks_fail(self, EXIT_PROBLEM, "no memory for a table of buffers");
    for (int i = 0; i < b->count && code == EXIT_FINE; i++) {
        code = ranks_bind(self, i / 2 % b->ranks);
        if (code == EXIT_FINE)
            code = allocate(b, self, i);
    }
    for (int side = 0; side < 2 && b->backend->mirrored && code == EXIT_FINE; side++) {
        b->mirror[side] = malloc(bytes + offset_bytes + WORK_GUARD);
        if (b->mirror[side] == NULL)
            code = ranks_fail(self, EXIT_PROBLEM, "no memory for a copy of %zu bytes",
                    bytes);
    }
    return code;
}

void buffers_free(struct buffers *b)
{
    for (int i = 0; b->base != NULL && i < b->count; i++) {
        if (b->lib == NULL)
            b->backend->release(b->base[i]);
        else if (b->base[i] != NULL)
            (void)b->lib->mem_free(b->base[i]);
    }
    free(b->mirror[0]);
    free(b->mirror[1]);
    free(b->base);
    memset(b, 0, sizeof(*b));
}

static ncclResult_t register_one(struct registration *r, const struct library *lib,
        ncclComm_t comm, const struct buffers *b, int at)
{
    size_t bytes = b->bytes + b->offset;

    if (r->kind == 1)
        return lib->comm_register(comm, b->base[at], bytes, &r->handle[at].buffer);
    return lib->window_register(comm, b->base[at], bytes, &r->handle[at].window,
            NCCL_WIN_COLL_SYMMETRIC);
}

int registration_make(struct registration *r, struct ranks *self,
        const struct library *lib, const ncclComm_t *comms, const struct buffers *b)
{
    const char *what = r->kind == 1 ? "ncclCommRegister" : "ncclCommWindowRegister";

    if (r->kind == 0)
        return EXIT_FINE;
    if (r->kind == 1 ? lib->comm_register == NULL : lib->window_register == NULL)
        return ranks_fail(self, EXIT_UNDECIDED, "'%s' has no %s", lib->path, what);
    r->handle = calloc((size_t)b->count, sizeof(*r->handle));
    if (r->handle == NULL)
        return ranks_fail(self, EXIT_PROBLEM, "no memory for registrations");
    r->count = b->count;
    /* Windows are collective: the ranks of one thread register together. */
    for (int first = 0; first < 2 * b->sets; first++) {
        int at = first / 2 * 2 * b->ranks + first % 2;
        ncclResult_t result = lib->group_start(), ended;

        for (int i = 0; i < b->ranks && result == ncclSuccess; i++) {
            if (ranks_bind(self, i) != EXIT_FINE)
                return EXIT_PROBLEM;
            result = register_one(r, lib, comms[i], b, at + 2 * i);
        }
        ended = lib->group_end();
        result = result != ncclSuccess ? result : ended;
        if (result != ncclSuccess)
            return ranks_fail(self, EXIT_PROBLEM, "%s: %s", what,
                    library_error(lib, result));
    }
    return EXIT_FINE;
}

void registration_drop(struct registration *r, const struct ranks *self,
        const struct library *lib, const ncclComm_t *comms)
{
    for (int i = 0; r->handle != NULL && i < r->count; i++) {
        ncclComm_t comm = comms[i / 2 % self->count];

        if (r->kind == 1)
            (void)lib->comm_deregister(comm, r->handle[i].buffer);
        else
            (void)lib->window_deregister(comm, r->handle[i].window);
    }
    free(r->handle);
    r->handle = NULL;
}

/* --------------------------------------------------------------- life cycle */

int work_open(struct work *w, struct ranks *self, const struct library *lib,
        ncclConfig_t *config, bool streams)
{
    size_t n = (size_t)self->count;
    int code;

    memset(w, 0, sizeof(*w));
    w->ranks = self;
    w->lib = lib;
    w->comms = calloc(n, sizeof(*w->comms));
    w->streams = calloc(n, sizeof(*w->streams));
    w->ops = calloc(n, sizeof(*w->ops));
    if (w->comms == NULL || w->streams == NULL || w->ops == NULL)
        return ranks_fail(self, EXIT_PROBLEM, "no memory for %d ranks", self->count);
    code = ranks_connect(self, lib, config, w->comms);
    streams = streams || self->backend->mirrored;
    for (int i = 0; streams && i < self->count && code == EXIT_FINE; i++) {
        const char *bad;

        code = ranks_bind(self, i);
        if (code != EXIT_FINE)
            break;
        bad = self->backend->stream_create(lib, &w->streams[i]);
        if (bad != NULL)
            code = ranks_fail(self, EXIT_PROBLEM, "create a stream: %s", bad);
    }
    return code;
}

void work_close(struct work *w)
{
    for (int i = 0; w->streams != NULL && i < w->ranks->count; i++)
        if (w->streams[i] != NULL)
            w->ranks->backend->stream_destroy(w->lib, w->streams[i]);
    if (w->comms != NULL)
        ranks_disconnect(w->ranks, w->lib, w->comms);
    free(w->comms);
    free(w->streams);
    free(w->ops);
    memset(w, 0, sizeof(*w));
}

bool work_has_no_sum(const struct work *w, motet_type type, enum backend_fp8 fp8)
{
    motet_comm_info_t info = MOTET_COMM_INFO_INITIALIZER;

    if (type != MOTET_FLOAT8E4M3 && type != MOTET_FLOAT8E5M2)
        return false;
    if (fp8 != FP8_FNUZ)
        return fp8 == FP8_APART;
    return w->lib->comm_query != NULL &&
            w->lib->comm_query(w->comms[0], &info) == ncclSuccess &&
            strcmp(info.path, "copy") == 0;
}

int work_set_op(struct work *w, motet_type type, motet_redop redop)
{
    w->check = (struct check){ .type = type,
        .redop = redop,
        .nranks = w->ranks->nranks,
        .rounds_each_step = !w->lib->motet };
    for (int i = 0; i < w->ranks->count; i++) {
        unsigned char scalar[8];
        ncclResult_t result;

        w->ops[i] = (ncclRedOp_t)redop;
        if (redop != MOTET_PREMUL_SUM)
            continue;
        if (w->lib->redop_create_premul == NULL)
            return ranks_fail(w->ranks, EXIT_UNDECIDED,
                    "'%s' has no ncclRedOpCreatePreMulSum, so no operator mulsum",
                    w->lib->path);
        check_encode(type, check_scalar(w->ranks->first + i), scalar);
        result = w->lib->redop_create_premul(&w->ops[i], scalar, (ncclDataType_t)type,
                ncclScalarHostImmediate, w->comms[i]);
        if (result != ncclSuccess)
            return ranks_fail(w->ranks, EXIT_PROBLEM, "ncclRedOpCreatePreMulSum: %s",
                    library_error(w->lib, result));
    }
    return EXIT_FINE;
}

void work_drop_op(struct work *w)
{
    for (int i = 0; i < w->ranks->count; i++)
        if (w->check.redop == MOTET_PREMUL_SUM && w->lib->redop_destroy != NULL)
            (void)w->lib->redop_destroy(w->ops[i], w->comms[i]);
}

/* -------------------------------------------------------------------- calls */

static size_t element_bytes(const struct work *w)
{
    return motet_type_table[w->check.type].bytes;
}

/* A rank's input and output, as offsets into a set's buffers of either side. */
struct places {
    int send_side;
    size_t send, recv; /* the output is always on side 1 */
};

static struct places places_of(const struct work *w, int i)
{
    size_t rank = (size_t)(w->ranks->first + i), size = element_bytes(w);
    struct places p = { .send = w->buffers->offset, .recv = w->buffers->offset };

    if (!w->in_place)
        return p;
    p.send_side = 1;
    p.send += rank * w->layout.send_inplace * size;
    p.recv += rank * w->layout.recv_inplace * size;
    return p;
}

/* The part of the second buffer that a call may touch. */
static size_t touched(const struct work *w)
{
    size_t n = w->layout.recv;

    if (w->in_place && w->layout.send > n)
        n = w->layout.send;
    return n * element_bytes(w);
}

static int copy_failed(const struct work *w, int i, const char *bad)
{
    return ranks_fail(w->ranks, EXIT_PROBLEM, "rank %d: copy values: %s",
            w->ranks->first + i, bad);
}

/* Host memory that stands for rank i's buffer of set 0: itself, or the mirror. */
static unsigned char *image_of(const struct work *w, int i, int side)
{
    const struct buffers *b = w->buffers;

    return b->backend->mirrored ? b->mirror[side] : base_of(b, 0, i, side);
}

/* Copy what is to be there from the image into every set that the image is not. */
static int hand_out(const struct work *w, int i, int side, size_t bytes)
{
    const struct buffers *b = w->buffers;
    const char *bad = NULL;

    for (int set = b->backend->mirrored ? 0 : 1; set < b->sets && bad == NULL; set++)
        bad = b->backend->from_host((char *)base_of(b, set, i, side) + b->offset,
                image_of(w, i, side) + b->offset, bytes, w->streams[i]);
    return bad == NULL ? EXIT_FINE : copy_failed(w, i, bad);
}

int work_prepare(struct work *w)
{
    w->turn = 0;
    for (int i = 0; i < w->ranks->count; i++) {
        struct places p = places_of(w, i);
        int code = ranks_bind(w->ranks, i);

        memset(image_of(w, i, 1) + w->buffers->offset, CHECK_POISON,
                touched(w) + WORK_GUARD);
        check_fill(&w->check, image_of(w, i, p.send_side) + p.send, w->layout.send,
                w->ranks->first + i, 0);
        if (code == EXIT_FINE)
            code = hand_out(w, i, 1, touched(w) + WORK_GUARD);
        if (code == EXIT_FINE && !w->in_place)
            code = hand_out(w, i, 0, w->layout.send * element_bytes(w));
        if (code != EXIT_FINE)
            return code;
    }
    return EXIT_FINE;
}

static struct call call_of(const struct work *w, int i, unsigned turn)
{
    const struct buffers *b = w->buffers;
    int set = (int)(turn % (unsigned)b->sets);
    struct places p = places_of(w, i);

    return (struct call){ .lib = w->lib,
        .comm = w->comms[i],
        .stream = w->streams[i],
        .send = (char *)base_of(b, set, i, p.send_side) + p.send,
        .recv = (char *)base_of(b, set, i, 1) + p.recv,
        .param = w->layout.param,
        .type = (ncclDataType_t)w->check.type,
        .op = w->ops[i],
        .root = w->root,
        .rank = w->ranks->first + i,
        .nranks = w->ranks->nranks };
}

/* One rank on a thread stays on its device all the time. */
static int bind_one_of_many(const struct work *w, int i)
{
    return w->ranks->count > 1 ? ranks_bind(w->ranks, i) : EXIT_FINE;
}

static ncclResult_t issue_step(struct work *w, int step, int times)
{
    bool group = w->ranks->count > 1 || times > 1;
    ncclResult_t result = group ? w->lib->group_start() : ncclSuccess, ended;

    for (int t = 0; t < times && result == ncclSuccess; t++) {
        for (int i = 0; i < w->ranks->count && result == ncclSuccess; i++) {
            struct call call = call_of(w, i, w->turn + (unsigned)t);

            if (bind_one_of_many(w, i) != EXIT_FINE)
                break;
            result = w->collective->issue(&call, step);
        }
    }
    if (!group)
        return result;
    ended = w->lib->group_end();
    return result != ncclSuccess ? result : ended;
}

int work_issue(struct work *w, int times)
{
    int steps = collective_steps(w->collective, w->ranks->nranks);

    for (int step = 0; step < steps; step++) {
        ncclResult_t result = issue_step(w, step, times);

        w->result = result;
        if (result != ncclSuccess)
            return ranks_fail(w->ranks, EXIT_PROBLEM, "rank %d: %s of %zu %s: %s",
                    w->ranks->first, w->collective->name, w->layout.param,
                    motet_type_table[w->check.type].name,
                    library_error(w->lib, result));
    }
    w->turn += (unsigned)times;
    return EXIT_FINE;
}

int work_wait(struct work *w)
{
    for (int i = 0; i < w->ranks->count; i++) {
        const char *bad = w->streams[i] == NULL
                ? NULL
                : w->ranks->backend->stream_wait(w->lib, w->streams[i]);

        if (bad != NULL)
            return ranks_fail(w->ranks, EXIT_PROBLEM, "rank %d: %s: %s",
                    w->ranks->first + i, w->collective->name, bad);
    }
    return EXIT_FINE;
}

static size_t damaged(const unsigned char *guard)
{
    for (int i = 0; i < WORK_GUARD; i++)
        if (guard[i] != CHECK_POISON)
            return 1;
    return 0;
}

/* Bring what rank i's buffer of a set holds to where it can be read. */
static const char *fetch(const struct work *w, int set, int i, int side, size_t bytes,
        const unsigned char **out)
{
    const struct buffers *b = w->buffers;
    unsigned char *base = base_of(b, set, i, side);

    *out = b->backend->mirrored ? b->mirror[side] : base;
    if (!b->backend->mirrored)
        return NULL;
    return b->backend->to_host(b->mirror[side] + b->offset, base + b->offset, bytes,
            w->streams[i]);
}

static int wrong_in_set(const struct work *w, int set, int i, uint64_t *wrong,
        uint64_t *digest)
{
    size_t offset = w->buffers->offset, reach = touched(w);
    const unsigned char *send = NULL, *recv = NULL;
    struct places p = places_of(w, i);
    int rank = w->ranks->first + i;
    const char *bad = fetch(w, set, i, 1, reach + WORK_GUARD, &recv);

    if (bad == NULL && !w->in_place)
        bad = fetch(w, set, i, 0, w->layout.send * element_bytes(w), &send);
    if (bad != NULL)
        return copy_failed(w, i, bad);
    *wrong += w->collective->wrong(&w->check, &w->layout, rank, w->root, recv + p.recv);
    *wrong += damaged(recv + offset + reach);
    if (!w->in_place)
        *wrong += check_moved(&w->check, send + p.send, w->layout.send, rank, 0);
    *digest = *digest * 31 +
            check_digest(recv + p.recv, w->layout.recv * element_bytes(w));
    return EXIT_FINE;
}

/* Some failures are told nowhere else: the call went well, and so did the wait. */
static int async_error(const struct work *w, int i)
{
    ncclResult_t state = ncclSuccess, result = ncclSuccess;

    if (w->lib->comm_async_error != NULL)
        result = w->lib->comm_async_error(w->comms[i], &state);
    if (result == ncclSuccess)
        result = state;
    if (result == ncclSuccess || result == ncclInProgress)
        return EXIT_FINE;
    return ranks_fail(w->ranks, EXIT_PROBLEM, "rank %d: %s: the asynchronous error: %s",
            w->ranks->first + i, w->collective->name, library_error(w->lib, result));
}

int work_wrong(const struct work *w, uint64_t *wrong_out, uint64_t *digests)
{
    *wrong_out = 0;
    for (int i = 0; i < w->ranks->count; i++) {
        int code = ranks_bind(w->ranks, i);

        if (code == EXIT_FINE)
            code = async_error(w, i);
        digests[i] = 0;
        for (int set = 0; set < w->buffers->sets && code == EXIT_FINE; set++)
            code = wrong_in_set(w, set, i, wrong_out, &digests[i]);
        if (code != EXIT_FINE)
            return code;
    }
    return EXIT_FINE;
}

int work_wrong_of_all(const struct work *w, uint64_t *out)
{
    uint64_t mine[RANKS_MAX] = { 0 }, all[RANKS_MAX], digests[RANKS_MAX];
    int code = work_wrong(w, &mine[0], digests);

    if (code != EXIT_FINE)
        return code;
    if (!ranks_gather_words(w->ranks, mine, all))
        return EXIT_PROBLEM;
    *out = 0;
    for (int r = 0; r < w->ranks->nranks; r++)
        *out += all[r];
    if (!w->collective->same_everywhere)
        return EXIT_FINE;
    if (!ranks_gather_words(w->ranks, digests, all))
        return EXIT_PROBLEM;
    for (int r = 1; r < w->ranks->nranks; r++)
        *out += all[r] != all[0];
    return EXIT_FINE;
}
