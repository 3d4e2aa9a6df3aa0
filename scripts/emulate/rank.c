/* SPDX-License-Identifier: Apache-2.0 */
#include "rank.h"

#include "engine/gpu.h"
#include "../../tests/unit/reduce_reference.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Room for each of a rank's two buffers, and what stands around them. */
#define BUFFER_BYTES 32768u
#define POISON       0xa5
#define CANARY       0x5c
#define CANARY_BYTES 64u

/* Slots so small that little takes many steps, and two blocks. */
static const motet_gpu_constants figures = {
    .blocks = 2,
    .pair_blocks = 2,
    .ll_bytes = 128,
    .chunk = 256,
    .pair_chunk = 256,
    .ll_reduce_max = 1024,
    .ll_other_max = 1024,
    .ll_block_bytes = 256,
    .block_bytes = 1024,
    .pair_block_bytes = 512,
    .ring_chunk = 1024,
    .copies_step = 256,
    .copies_reduce_min = MOTET_GPU_NEVER,
    .copies_other_min = MOTET_GPU_NEVER,
    .copies_pair_min = MOTET_GPU_NEVER,
};

typedef struct offer {
    motet_gpu_offer arena;
    motet_gpu_export buffers;
} offer;

struct emulate_rank {
    motet_gpu gpu;
    motet_engine engine;
    motet_arena arena[MOTET_GPU_RANKS]; /* of CPU ranks: only where a failure is said */
    motet_peer peer[MOTET_GPU_RANKS];
    motet_pair_state pair[MOTET_GPU_RANKS];
    motet_recorder recorder;
    motet_gpu_engine g;
    motet_gpu_memory buffers; /* send, then recv */
    motet_gpu_memory bias;    /* then a factor   */
    motet_gpu_path path;
};

const char *emulate_error(void)
{
    return motet_error_trail();
}

static int status(motet_result result)
{
    return result == MOTET_OK ? 0 : -1;
}

static motet_result open_engine(emulate_rank *r, int rank, int nranks)
{
    motet_recorder_args args = { .rank = rank, .nranks = nranks, .device = -1 };
    motet_arena_shape shape = { nranks, 4096, 4096 };
    motet_params *params;
    int fd;

    r->engine.rank = rank;
    r->engine.nranks = nranks;
    r->engine.arena = r->arena;
    r->engine.peer = r->peer;
    r->engine.pair = r->pair;
    r->engine.recorder = &r->recorder;
    MOTET_TRY(motet_arena_create(&shape, rank, 0, &r->arena[rank], &fd), "arena");
    close(fd);
    motet_engine_init(&r->engine);
    setenv("MOTET_TRACE_DIR", "/nonexistent", 1); /* memory only */
    MOTET_TRY(motet_params_new(&params), "parameters");
    MOTET_TRY(motet_recorder_create(params, &args, &r->recorder), "recorder");
    free(params);
    MOTET_TRY(motet_gpu_link_make(&emulate_ops, &r->gpu, rank, nranks, &r->g.link),
            "link");
    r->g.engine = &r->engine;
    r->g.constants = figures;
    r->g.limit = figures.blocks;
    r->g.unrecorded = true;
    MOTET_TRY(emulate_ops.alloc(&r->gpu, 2 * BUFFER_BYTES, &r->buffers), "buffers");
    MOTET_TRY(emulate_ops.alloc(&r->gpu, BUFFER_BYTES, &r->bias), "buffers");
    return motet_gpu_engine_init(&r->g, NULL);
}

int emulate_open(int rank, int nranks, int staged, int fnuz, emulate_launch *launch,
        emulate_rank **out)
{
    emulate_rank *r = calloc(1, sizeof(*r));

    if (r == NULL)
        return status(motet_fail_errno(MOTET_ERR_SYSTEM, "rank"));
    r->gpu.launch = launch;
    r->path = staged ? MOTET_GPU_PATH_STAGED : MOTET_GPU_PATH_DIRECT;
    reference_is_fnuz = fnuz != 0;
    if (open_engine(r, rank, nranks) != MOTET_OK)
        return -1;
    *out = r;
    return 0;
}

/* ---- meeting ---- */

uint64_t emulate_offer_bytes(void)
{
    return sizeof(offer);
}

int emulate_offer(emulate_rank *r, uint64_t nonce, void *out, int fds_out[2])
{
    offer *o = out;
    motet_gpu_path path[MOTET_GPU_RANKS];
    motet_gpu_layout layout;

    for (int p = 0; p < r->engine.nranks; p++)
        path[p] = r->path;
    motet_gpu_layout_of(&figures, r->engine.nranks, &layout);
    if (motet_gpu_link_begin(r->g.link, &layout, path) != MOTET_OK ||
            motet_gpu_link_offer(r->g.link, r->path, (uint64_t)r->engine.rank + 1,
                    nonce, &o->arena, &fds_out[0]) != MOTET_OK)
        return -1;
    return status(emulate_ops.export_memory(&r->gpu, r->buffers.address, &o->buffers,
            &fds_out[1]));
}

int emulate_map(emulate_rank *r, int peer, const void *from, const int fds[2])
{
    const offer *o = from;

    if (motet_gpu_link_map(r->g.link, peer, &o->arena, (uint64_t)r->engine.rank + 1,
                fds[0]) != MOTET_OK)
        return -1;
    return status(emulate_ops.import(&r->gpu, &o->buffers, 0, fds[1],
            &r->g.window[0].part[peer]));
}

int emulate_reset(emulate_rank *r, uint32_t start)
{
    return status(motet_gpu_link_reset(r->g.link, start));
}

int emulate_window(emulate_rank *r, int on)
{
    motet_gpu_link *link = r->g.link;
    motet_gpu_window *window = &r->g.window[0];
    uint64_t at[MOTET_GPU_RANKS];

    for (int p = 0; p < link->nranks; p++)
        at[p] = p == link->rank ? r->buffers.address : window->part[p].address;
    window->base = r->buffers.address;
    window->bytes = on ? r->buffers.bytes : 0;
    r->g.windows = on ? 1 : 0;
    return status(motet_gpu_link_copy(link,
            (uint64_t)(uintptr_t)
                    motet_gpu_window_at((uint8_t *)(uintptr_t)link->own.address,
                            &link->layout, 1, 0),
            (uint64_t)(uintptr_t)at, (size_t)link->nranks * sizeof(*at)));
}

/* ---- values ---- */

static uint8_t *send_of(const emulate_rank *r)
{
    return (uint8_t *)(uintptr_t)r->buffers.address + 256;
}

static uint8_t *recv_of(const emulate_rank *r)
{
    return send_of(r) + BUFFER_BYTES;
}

static uint8_t *bias_of(const emulate_rank *r)
{
    return (uint8_t *)(uintptr_t)r->bias.address + 256;
}

static uint8_t *factor_of(const emulate_rank *r)
{
    return (uint8_t *)(uintptr_t)r->bias.address;
}

/* What stands at one place of a rank's input. */
static uint64_t input(int type, int rank, uint32_t salt, size_t i)
{
    uint64_t state = (uint64_t)salt << 40 ^ (uint64_t)(unsigned)rank << 32 ^ i;

    return input_bits(type, &state);
}

/* The "rank" whose array is the bias; more for each. */
#define BIAS 100

static uint64_t factor(int type, int rank, uint32_t salt)
{
    uint64_t state = salt;

    next_random(&state);
    return moderate_bits(type, next_random(&state) ^ (uint64_t)rank << 60) &
            element_mask(type);
}

static uint64_t reduced(const emulate_rank *r, const motet_op *op, uint32_t salt,
        size_t i)
{
    int n = r->engine.nranks;
    uint64_t src[MOTET_GPU_RANKS], scalar[MOTET_GPU_RANKS], bias;
    element_case c = { .type = op->type,
        .redop = op->redop,
        .nsrc = n,
        .nranks = n,
        .src = src,
        .scalar = scalar };

    for (int p = 0; p < n; p++) {
        src[p] = input(op->type, p, salt, i);
        scalar[p] = factor(op->type, p, salt);
    }
    bias = input(op->type, BIAS + r->engine.rank, salt, i);
    c.bias = op->bias != NULL ? &bias : NULL;
    return reference(&c) & element_mask(op->type);
}

/* Element i of what this rank must have after @p op. */
static uint64_t expected(const emulate_rank *r, const motet_op *op, uint32_t salt,
        size_t i)
{
    size_t count = op->count, mine = (size_t)r->engine.rank * count;

    switch (op->kind) {
    case MOTET_BROADCAST: return input(op->type, op->root, salt, i);
    case MOTET_SCATTER: return input(op->type, op->root, salt, mine + i);
    case MOTET_ALL_GATHER:
    case MOTET_GATHER: return input(op->type, (int)(i / count), salt, i % count);
    case MOTET_ALL_TO_ALL:
        return input(op->type, (int)(i / count), salt, mine + i % count);
    case MOTET_REDUCE_SCATTER: return reduced(r, op, salt, mine + i);
    default: return reduced(r, op, salt, i);
    }
}

static void note(emulate_outcome *out, uint64_t at, uint64_t got, uint64_t wanted)
{
    out->checked++;
    if (got == wanted)
        return;
    if (out->wrong++ == 0) {
        out->at = at;
        out->got = got;
        out->wanted = wanted;
    }
}

/* Bytes [from, to) that nobody may have written. */
static void note_bytes(emulate_outcome *out, const uint8_t *from, const uint8_t *to,
        uint8_t value)
{
    for (; from < to; from++)
        note(out, (uint64_t)(uintptr_t)from, *from, value);
}

static void surround(uint8_t *p, size_t bytes)
{
    memset(p - CANARY_BYTES, CANARY, CANARY_BYTES);
    memset(p, POISON, bytes);
    memset(p + bytes, CANARY, CANARY_BYTES);
}

static void check_surroundings(emulate_outcome *out, const uint8_t *p, size_t bytes)
{
    note_bytes(out, p - CANARY_BYTES, p, CANARY);
    note_bytes(out, p + bytes, p + bytes + CANARY_BYTES, CANARY);
}

/* ---- running ---- */

/* What the ranks' words say afterwards. */
static motet_result look(emulate_rank *r, emulate_outcome *out)
{
    const motet_gpu_link *link = r->g.link;

    for (uint32_t b = 0; b < 2; b++)
        memcpy(&out->position[b],
                motet_gpu_state_at((uint8_t *)(uintptr_t)link->own.address, b),
                sizeof(out->position[b]));
    out->error = link->control->error;
    if (!motet_gpu_link_idle(link))
        return motet_fail(MOTET_ERR_INTERNAL, "a block gave no ticket back");
    return MOTET_OK;
}

/* The number of the row that @p word names. */
#define ROW_OF(out, word, rows, name_of)                                          \
    do {                                                                          \
        *(out) = -1;                                                              \
        for (int row_ = 0; row_ < (rows); row_++)                                 \
            if (strcmp(word, name_of(row_)) == 0)                                 \
                *(out) = row_;                                                    \
        if (*(out) < 0)                                                           \
            return motet_fail(MOTET_ERR_ARGUMENT, "'%s' is in no table", (word)); \
    } while (0)
#define KIND_NAME(i)  motet_kind_table[i].name
#define TYPE_NAME(i)  motet_type_table[i].name
#define REDOP_NAME(i) motet_redop_names[i]

static motet_result op_of(emulate_rank *r, const emulate_call *call, motet_op *op)
{
    int kind, type, redop;

    ROW_OF(&kind, call->kind, MOTET_NUM_KINDS, KIND_NAME);
    ROW_OF(&type, call->type, MOTET_NUM_TYPES, TYPE_NAME);
    ROW_OF(&redop, call->redop, MOTET_NUM_REDOPS, REDOP_NAME);
    *op = (motet_op){
        .kind = (motet_kind)kind,
        .type = (motet_type)type,
        .redop = (motet_redop)redop,
        .root = motet_kind_table[kind].rooted ? call->root : -1,
        .send = send_of(r) + call->send_shift,
        .recv = recv_of(r) + call->recv_shift,
        .count = call->count,
        .bias = call->biased ? bias_of(r) : NULL,
        .scalar_ptr = call->scalar_in_memory ? factor_of(r) : NULL,
        .scalar = factor(type, r->engine.rank, call->salt),
    };
    r->g.constants.forced = 0;
    return motet_gpu_force(call->protocol, &r->g.constants);
}

/* In place the input lies in the output, at this rank's piece if there are several. */
static void place(const emulate_rank *r, const emulate_call *call, motet_op *op,
        size_t sent, size_t got)
{
    size_t piece = motet_op_bytes(op);

    if (!call->in_place)
        return;
    if (sent >= got)
        op->recv = (uint8_t *)(uintptr_t)op->send +
                (sent > got ? piece * (size_t)r->engine.rank : 0);
    else
        op->send = (uint8_t *)op->recv + piece * (size_t)r->engine.rank;
}

static void fill(const emulate_rank *r, const emulate_call *call, const motet_op *op,
        size_t sent)
{
    uint8_t *send = (uint8_t *)(uintptr_t)op->send;

    for (size_t i = 0; i < sent * op->count; i++)
        put(op->type, send, i, input(op->type, r->engine.rank, call->salt, i));
    for (size_t i = 0; i < op->count; i++)
        put(op->type, bias_of(r), i,
                input(op->type, BIAS + r->engine.rank, call->salt, i));
    put(op->type, factor_of(r), 0, op->scalar);
    if (call->spoil != 0)
        send[call->spoil - 1] ^= 0x40;
}

static motet_result collective(emulate_rank *r, const emulate_call *call,
        emulate_outcome *out)
{
    motet_op op;
    size_t sent, got, bytes;
    const uint8_t *recv;
    motet_result result;

    MOTET_TRY(op_of(r, call, &op), "case");
    motet_op_pieces(&op, r->engine.rank, r->engine.nranks, &sent, &got);
    bytes = motet_op_bytes(&op);
    if ((sent > got ? sent : got) * bytes + 1024 > BUFFER_BYTES)
        return motet_fail(MOTET_ERR_ARGUMENT, "buffers of %u bytes", BUFFER_BYTES);
    place(r, call, &op, sent, got);
    surround(send_of(r) + call->send_shift, sent * bytes);
    surround(recv_of(r) + call->recv_shift, got * bytes);
    fill(r, call, &op, sent);
    r->gpu.captured = call->captured != 0;
    result = motet_gpu_collective(&r->g, &op, NULL);
    r->gpu.captured = false;
    MOTET_TRY(result, "launch");
    recv = op.recv;
    for (size_t i = 0; i < got * op.count; i++)
        note(out, i, get(op.type, recv, i), expected(r, &op, call->salt, i));
    for (size_t i = 0; !call->in_place && i < sent * op.count; i++)
        note(out, i, get(op.type, op.send, i),
                input(op.type, r->engine.rank, call->salt, i));
    check_surroundings(out, send_of(r) + call->send_shift, sent * bytes);
    check_surroundings(out, recv_of(r) + call->recv_shift, got * bytes);
    return look(r, out);
}

int emulate_collective(emulate_rank *r, const emulate_call *call, emulate_outcome *out)
{
    *out = (emulate_outcome){ 0 };
    return status(collective(r, call, out));
}

static uint8_t message_byte(uint32_t salt, size_t i)
{
    uint64_t state = (uint64_t)salt << 32 ^ i;

    return (uint8_t)next_random(&state);
}

/* Transfers of one group lie one after the other in their buffer. */
static uint8_t *transfer_at(const emulate_rank *r, const emulate_transfer *list, int i)
{
    uint8_t *at = (list[i].receive ? recv_of(r) : send_of(r)) + list[i].shift;

    for (int before = 0; before < i; before++)
        if (list[before].receive == list[i].receive)
            at += (list[before].bytes + 2 * CANARY_BYTES + 255) / 256 * 256;
    return at;
}

static motet_result transfers(emulate_rank *r, const emulate_transfer *list, int count,
        emulate_outcome *out)
{
    motet_transfer group[8] = { 0 };

    if (count > 8)
        return motet_fail(MOTET_ERR_ARGUMENT, "more than 8 transfers");
    for (int i = 0; i < count; i++) {
        uint8_t *at = transfer_at(r, list, i);

        group[i].op = (motet_op){ .kind = list[i].receive ? MOTET_RECV : MOTET_SEND,
            .type = MOTET_UINT8,
            .root = list[i].peer,
            .send = at,
            .recv = at,
            .count = list[i].bytes };
        surround(at, list[i].bytes);
        for (size_t b = 0; !list[i].receive && b < list[i].bytes; b++)
            at[b] = message_byte(list[i].salt, b);
    }
    MOTET_TRY(motet_gpu_pairs(&r->g, group, count, NULL), "launch");
    for (int i = 0; i < count; i++) {
        const uint8_t *at = transfer_at(r, list, i);

        for (size_t b = 0; b < list[i].bytes; b++)
            note(out, b, at[b], message_byte(list[i].salt, b));
        check_surroundings(out, at, list[i].bytes);
    }
    return look(r, out);
}

int emulate_transfers(emulate_rank *r, const emulate_transfer *list, int count,
        int copies, emulate_outcome *out)
{
    r->g.constants.copies_pair_min = copies ? 0 : MOTET_GPU_NEVER;
    *out = (emulate_outcome){ 0 };
    return status(transfers(r, list, count, out));
}

/* ---- a kernel that no operation launches ---- */

static motet_result litmus(emulate_rank *r, uint32_t blocks, uint32_t rounds,
        uint32_t bytes, emulate_outcome *out)
{
    uint32_t all = (1u << r->engine.nranks) - 1;
    motet_gpu_args args;
    motet_launch launch = { .function = (void *)(uintptr_t)"motet_litmus",
        .blocks = blocks,
        .threads = MOTET_GPU_THREADS,
        .args = &args,
        .bytes = sizeof(args) };

    motet_gpu_fill_common(&r->g, &args);
    surround(recv_of(r), 8ull * blocks);
    args.blocks = blocks;
    args.send_mask = all & ~(1u << args.rank);
    args.recv_mask = all;
    args.recv = recv_of(r);
    args.bytes = rounds;
    args.send_stride = bytes;
    MOTET_TRY(emulate_ops.launch(&r->gpu, &launch, NULL), "litmus");
    for (uint32_t b = 0; b < blocks; b++) {
        note(out, 2 * b, get(MOTET_UINT32, args.recv, 2 * b), 0);
        note(out, 2 * b + 1, get(MOTET_UINT32, args.recv, 2 * b + 1), rounds);
    }
    check_surroundings(out, recv_of(r), 8ull * blocks);
    return look(r, out);
}

int emulate_litmus(emulate_rank *r, uint32_t blocks, uint32_t rounds, uint32_t bytes,
        emulate_outcome *out)
{
    *out = (emulate_outcome){ 0 };
    return status(litmus(r, blocks, rounds, bytes, out));
}
