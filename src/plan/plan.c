/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan.h"

#include <string.h>

#define ALL_KINDS  0xffffffffu
#define KIND(kind) (1u << (kind))

/* Measured: docs/tuning.md. */
#define DEFAULT_BOARD_CHUNK (64u << 10)
#define DEFAULT_PAIR_CHUNK  (16u << 10)
/* Between two ranks one-shot and twoshot move the same bytes, and one-shot waits once. */
#define DEFAULT_TWOSHOT_MIN (32u << 10)
#define NEVER               UINT32_MAX
/* Where one rank sends and another takes, both work at the same time only if there are
 * several steps: so many, but not of less than so much. */
#define PIPELINE_STEPS 4
#define PIPELINE_LEAST (4u << 10)
/* A board slot has to hold one element of every rank's slice. */
#define MIN_SLICE_BYTES 64u

const char *const motet_algorithm_names[MOTET_NUM_ALGORITHMS] = {
    [MOTET_ALG_NONE] = "none",
    [MOTET_ALG_INLINE] = "inline",
    [MOTET_ALG_BOARD] = "board",
    [MOTET_ALG_TWOSHOT] = "twoshot",
    [MOTET_ALG_PAIRS] = "pairs",
};

/* What an algorithm can serve: best first; the first row that fits is taken. */
static const struct row {
    motet_algorithm algorithm;
    uint32_t kinds;
    uint32_t at_least; /* offset in motet_constants of the smallest size, 0 = none */
    uint32_t capacity; /* offset in motet_constants of what a slot holds           */
    bool one_step;     /* everything has to fit into one slot                      */
    int posts;
} rows[] = {
    { MOTET_ALG_INLINE, ALL_KINDS, 0, offsetof(motet_constants, inline_bytes), true,
            1 },
    { MOTET_ALG_TWOSHOT, KIND(MOTET_ALL_REDUCE),
            offsetof(motet_constants, twoshot_min_bytes),
            offsetof(motet_constants, board_chunk), false, 2 },
    { MOTET_ALG_BOARD, ALL_KINDS, 0, offsetof(motet_constants, board_chunk), false, 1 },
};

static uint32_t constant_at(const motet_constants *constants, uint32_t offset)
{
    uint32_t value;

    memcpy(&value, (const char *)constants + offset, sizeof(value));
    return value;
}

void motet_constants_default(int nranks, motet_constants *out)
{
    uint32_t need = (uint32_t)nranks * MIN_SLICE_BYTES;

    memset(out, 0, sizeof(*out));
    out->board_chunk = need > DEFAULT_BOARD_CHUNK ? need : DEFAULT_BOARD_CHUNK;
    out->pair_chunk = DEFAULT_PAIR_CHUNK;
    out->inline_bytes = 96;
    out->twoshot_min_bytes = nranks == 2 ? NEVER : DEFAULT_TWOSHOT_MIN;
}

/* Index of @p word in @p names, or −1. */
static int find_word(const char *word, size_t length, const char *(*name)(int),
        int count)
{
    for (int i = 0; i < count; i++)
        if (strlen(name(i)) == length && strncmp(name(i), word, length) == 0)
            return i;
    return -1;
}

static const char *kind_name(int i)
{
    return motet_kind_table[i].name;
}

static const char *algorithm_name(int i)
{
    return motet_algorithm_names[i];
}

static bool serves(motet_algorithm algorithm, int kind)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (rows[i].algorithm == algorithm && (rows[i].kinds & KIND(kind)) != 0)
            return !motet_kind_table[kind].pairwise;
    return false;
}

/* One "kind:algorithm". */
static motet_result force_one(const char *text, size_t length,
        motet_constants *constants)
{
    const char *colon = memchr(text, ':', length);
    size_t kind_length = colon == NULL ? length : (size_t)(colon - text);
    int kind = find_word(text, kind_length, kind_name, MOTET_NUM_KINDS);
    int algorithm;

    if (colon == NULL)
        return motet_fail(MOTET_ERR_ARGUMENT, "'%.*s' has no ':', need KIND:ALGORITHM",
                (int)length, text);
    if (kind < 0)
        return motet_fail(MOTET_ERR_ARGUMENT, "'%.*s' is no collective",
                (int)kind_length, text);
    algorithm = find_word(colon + 1, length - kind_length - 1, algorithm_name,
            MOTET_NUM_ALGORITHMS);
    if (algorithm < 0)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "'%.*s' is no algorithm, need inline, board or twoshot",
                (int)(length - kind_length - 1), colon + 1);
    if (!serves((motet_algorithm)algorithm, kind))
        return motet_fail(MOTET_ERR_ARGUMENT, "algorithm %s does not serve %s",
                algorithm_name(algorithm), kind_name(kind));
    constants->forced[kind] = (uint8_t)algorithm;
    return MOTET_OK;
}

motet_result motet_plan_force(const char *text, motet_constants *constants)
{
    motet_constants changed = *constants;

    while (*text != '\0') {
        size_t length = strcspn(text, ";");

        if (length != 0)
            MOTET_TRY(force_one(text, length, &changed), "read MOTET_ALGO");
        text += length + (text[length] == ';');
    }
    *constants = changed;
    return MOTET_OK;
}

/* Slices of one post: kinds whose readers each take a part of their own have one a rank. */
static int slices_of(motet_algorithm algorithm, motet_kind kind, int nranks)
{
    bool own_part = kind == MOTET_REDUCE_SCATTER || kind == MOTET_ALL_TO_ALL ||
            kind == MOTET_SCATTER;

    return own_part || algorithm == MOTET_ALG_TWOSHOT ? nranks : 1;
}

/* Whole vectors where a step is large, so that slices stay aligned. */
static size_t elements_in(size_t slice_bytes, size_t element)
{
    size_t aligned = slice_bytes & ~(size_t)63;

    return (aligned != 0 ? aligned : slice_bytes) / element;
}

/* Elements of a slice; twoshot cuts the vector itself into nranks slices. */
static size_t slice_total(const struct row *row, const motet_op *op, int nranks)
{
    size_t n = (size_t)nranks;

    return row->algorithm == MOTET_ALG_TWOSHOT ? (op->count + n - 1) / n : op->count;
}

/* Bytes of a slot that a step uses. */
static size_t step_bytes(const struct row *row, const motet_op *op, size_t slices,
        size_t capacity)
{
    bool exchange = !motet_kind_table[op->kind].rooted;
    size_t piece = motet_op_bytes(op) / PIPELINE_STEPS * slices;
    size_t least = slices * MIN_SLICE_BYTES;

    if (least < PIPELINE_LEAST)
        least = PIPELINE_LEAST;
    if (piece < least)
        piece = least;
    return exchange || row->one_step || piece > capacity ? capacity : piece;
}

static bool fill(const struct row *row, const motet_op *op, int nranks,
        const motet_constants *constants, motet_plan *plan)
{
    size_t element = motet_type_table[op->type].bytes;
    size_t capacity = constant_at(constants, row->capacity);
    size_t total = slice_total(row, op, nranks);

    plan->algorithm = row->algorithm;
    plan->slices = slices_of(row->algorithm, op->kind, nranks);
    plan->posts = row->posts;
    plan->step_count = row->one_step
            ? total
            : elements_in(step_bytes(row, op, (size_t)plan->slices, capacity) /
                              (size_t)plan->slices,
                      element);
    if (plan->step_count == 0)
        return false;
    plan->steps = (total + plan->step_count - 1) / plan->step_count;
    return !row->one_step ||
            total <= capacity / element / (size_t)plan->slices; /* without overflow */
}

motet_result motet_plan_make(const motet_op *op, int nranks,
        const motet_constants *constants, motet_plan *out)
{
    motet_algorithm forced = (motet_algorithm)constants->forced[op->kind];
    motet_plan plan = { .algorithm = MOTET_ALG_NONE };

    if (op->count == 0 || nranks == 1) {
        *out = plan;
        return MOTET_OK;
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct row *row = &rows[i];
        bool wanted = forced == MOTET_ALG_NONE ? row->at_least == 0 ||
                        motet_op_bytes(op) >= constant_at(constants, row->at_least)
                                               : forced == row->algorithm;

        /* A bias differs from rank to rank: no rank can add it for the others. */
        if (row->algorithm == MOTET_ALG_TWOSHOT && op->bias != NULL)
            continue;
        if (wanted && (row->kinds & KIND(op->kind)) != 0 &&
                fill(row, op, nranks, constants, &plan)) {
            *out = plan;
            return MOTET_OK;
        }
    }
    return motet_fail(MOTET_ERR_USAGE, "no algorithm serves %s of %zu bytes%s%s%s",
            motet_kind_table[op->kind].name, motet_op_bytes(op),
            op->bias != NULL ? " with a bias" : "",
            forced != MOTET_ALG_NONE ? ": MOTET_ALGO forces " : "",
            forced != MOTET_ALG_NONE ? motet_algorithm_names[forced] : "");
}
