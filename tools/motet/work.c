/* SPDX-License-Identifier: Apache-2.0 */
/* One collective on one thread's ranks: see work.h. */
#include "work.h"

#include "cmd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ buffers */

static int allocate(struct buffers *b, struct ranks *self, int i)
{
    size_t bytes = b->bytes + b->offset + WORK_GUARD;
    ncclResult_t result;

    if (b->lib == NULL) {
        if (posix_memalign(&b->base[i], 4096, bytes) != 0)
            return ranks_fail(self, EXIT_PROBLEM, "no memory for a buffer of %zu bytes",
                    bytes);
        return EXIT_FINE;
    }
    result = b->lib->mem_alloc(&b->base[i], bytes);
    if (result != ncclSuccess)
        return ranks_fail(self, EXIT_PROBLEM, "ncclMemAlloc of %zu bytes: %s", bytes,
                library_error(b->lib, result));
    return EXIT_FINE;
}

int buffers_alloc(struct buffers *b, struct ranks *self, const struct library *lib,
        size_t bytes, size_t offset_bytes)
{
    *b = (struct buffers){ .count = 2 * self->count,
        .bytes = bytes,
        .offset = offset_bytes };
    if (lib != NULL && lib->mem_alloc != NULL && lib->mem_free != NULL)
        b->lib = lib;
    b->base = calloc((size_t)b->count, sizeof(*b->base));
    if (b->base == NULL)
        return ranks_fail(self, EXIT_PROBLEM, "no memory for a table of buffers");
    for (int i = 0; i < b->count; i++) {
        int code = allocate(b, self, i);

        if (code != EXIT_FINE)
            return code;
    }
    return EXIT_FINE;
}

void buffers_free(struct buffers *b)
{
    for (int i = 0; b->base != NULL && i < b->count; i++) {
        if (b->lib == NULL)
            free(b->base[i]);
        else
            (void)b->lib->mem_free(b->base[i]);
    }
    free(b->base);
    b->base = NULL;
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
    /* Windows are collective: the ranks of one thread register together. */
    for (int side = 0; side < 2; side++) {
        ncclResult_t result = lib->group_start(), ended;

        for (int i = 0; i < self->count && result == ncclSuccess; i++) {
            int at = 2 * i + side;
            size_t bytes = b->bytes + b->offset;

            if (r->kind == 1)
                result = lib->comm_register(comms[i], b->base[at], bytes,
                        &r->handle[at].buffer);
            else
                result = lib->window_register(comms[i], b->base[at], bytes,
                        &r->handle[at].window, NCCL_WIN_COLL_SYMMETRIC);
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
    for (int i = 0; r->handle != NULL && i < 2 * self->count; i++) {
        if (r->kind == 1)
            (void)lib->comm_deregister(comms[i / 2], r->handle[i].buffer);
        else
            (void)lib->window_deregister(comms[i / 2], r->handle[i].window);
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
    for (int i = 0; streams && lib->streams && i < self->count && code == EXIT_FINE;
            i++) {
        ncclResult_t result = lib->stream_create(&w->streams[i]);

        if (result != ncclSuccess)
            code = ranks_fail(self, EXIT_PROBLEM, "create a stream: %s",
                    library_error(lib, result));
    }
    return code;
}

void work_close(struct work *w)
{
    for (int i = 0; w->streams != NULL && i < w->ranks->count; i++)
        if (w->streams[i] != NULL)
            (void)w->lib->stream_destroy(w->streams[i]);
    if (w->comms != NULL)
        ranks_disconnect(w->ranks, w->lib, w->comms);
    free(w->comms);
    free(w->streams);
    free(w->ops);
    memset(w, 0, sizeof(*w));
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

/* Where rank i of this thread has its input and its output. */
static void places(const struct work *w, int i, unsigned char **send,
        unsigned char **recv)
{
    const struct buffers *b = w->buffers;
    size_t rank = (size_t)(w->ranks->first + i), size = element_bytes(w);

    *send = (unsigned char *)b->base[2 * i] + b->offset;
    *recv = (unsigned char *)b->base[2 * i + 1] + b->offset;
    if (!w->in_place)
        return;
    *send = *recv + rank * w->layout.send_inplace * size;
    *recv = *recv + rank * w->layout.recv_inplace * size;
}

/* The part of the second buffer that a call may touch. */
static size_t touched(const struct work *w)
{
    size_t n = w->layout.recv;

    if (w->in_place && w->layout.send > n)
        n = w->layout.send;
    return n * element_bytes(w);
}

void work_prepare(struct work *w)
{
    for (int i = 0; i < w->ranks->count; i++) {
        unsigned char *whole =
                (unsigned char *)w->buffers->base[2 * i + 1] + w->buffers->offset;
        unsigned char *send, *recv;

        places(w, i, &send, &recv);
        memset(whole, CHECK_POISON, touched(w) + WORK_GUARD);
        check_fill(&w->check, send, w->layout.send, w->ranks->first + i, 0);
    }
}

static struct call call_of(const struct work *w, int i)
{
    unsigned char *send, *recv;

    places(w, i, &send, &recv);
    return (struct call){ .lib = w->lib,
        .comm = w->comms[i],
        .stream = w->streams[i],
        .send = send,
        .recv = recv,
        .param = w->layout.param,
        .type = (ncclDataType_t)w->check.type,
        .op = w->ops[i],
        .root = w->root,
        .rank = w->ranks->first + i,
        .nranks = w->ranks->nranks };
}

static ncclResult_t issue_step(struct work *w, int step, int times)
{
    bool group = w->ranks->count > 1 || times > 1;
    ncclResult_t result = group ? w->lib->group_start() : ncclSuccess, ended;

    for (int t = 0; t < times && result == ncclSuccess; t++) {
        for (int i = 0; i < w->ranks->count && result == ncclSuccess; i++) {
            struct call call = call_of(w, i);

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

        if (result != ncclSuccess)
            return ranks_fail(w->ranks, EXIT_PROBLEM, "rank %d: %s of %zu %s: %s",
                    w->ranks->first, w->collective->name, w->layout.param,
                    motet_type_table[w->check.type].name,
                    library_error(w->lib, result));
    }
    return EXIT_FINE;
}

int work_wait(struct work *w)
{
    for (int i = 0; i < w->ranks->count; i++) {
        ncclResult_t result = w->streams[i] == NULL
                ? ncclSuccess
                : w->lib->stream_synchronize(w->streams[i]);

        if (result != ncclSuccess)
            return ranks_fail(w->ranks, EXIT_PROBLEM, "rank %d: %s: %s",
                    w->ranks->first + i, w->collective->name,
                    library_error(w->lib, result));
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

size_t work_wrong(const struct work *w, uint64_t *digests)
{
    size_t wrong = 0;

    for (int i = 0; i < w->ranks->count; i++) {
        unsigned char *whole =
                (unsigned char *)w->buffers->base[2 * i + 1] + w->buffers->offset;
        int rank = w->ranks->first + i;
        unsigned char *send, *recv;

        places(w, i, &send, &recv);
        wrong += w->collective->wrong(&w->check, &w->layout, rank, w->root, recv);
        wrong += damaged(whole + touched(w));
        if (!w->in_place)
            wrong += check_moved(&w->check, send, w->layout.send, rank, 0);
        digests[i] = check_digest(recv, w->layout.recv * element_bytes(w));
    }
    return wrong;
}
