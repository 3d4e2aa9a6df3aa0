/* SPDX-License-Identifier: Apache-2.0 */
/* Which cases of the value matrix run; the rule is at the head of matrix.c. */
#include "matrix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_VALUES 16 /* of one dimension */

const size_t matrix_counts[] = { 0, 1, 2, 3, 7, 15, 16, 17, 1023, 1024, 4314, 65537,
    1048577 };
const int matrix_ranks[] = { 2, 3, 4, 5, 8 };

/* One case in this many is sampled for each count; three times as many of the kinds that
 * only move data, which have no operators to multiply them. */
static const unsigned sample_rate[] = { 4, 4, 4, 4, 4, 4, 4, 4, 6, 6, 16, 80, 2000 };

const unsigned matrix_sizes[MATRIX_DIMS] = {
    [DIM_KIND] = MATRIX_KINDS,
    [DIM_TYPE] = ncclNumTypes,
    [DIM_OP] = VALUE_NUM_OPS,
    [DIM_COUNT] = sizeof(matrix_counts) / sizeof(*matrix_counts),
    [DIM_RANKS] = sizeof(matrix_ranks) / sizeof(*matrix_ranks),
    [DIM_PLACE] = 2,
    [DIM_LAYOUT] = MULTI_NUM_LAYOUTS,
    [DIM_SHIFT] = 2,
    [DIM_STREAM] = 2,
    [DIM_GROUP] = 2,
};

const char *const matrix_dim_names[MATRIX_DIMS] = { "collective", "type", "op", "count",
    "ranks", "placement", "layout", "alignment", "stream", "group" };

static const char *const kind_names[MATRIX_KINDS] = { "all_reduce",
    "all_reduce_with_bias", "reduce", "reduce_scatter", "broadcast", "bcast",
    "all_gather", "all_to_all", "all_to_all_v", "gather", "scatter", "send/recv ring",
    "send to self" };

bool matrix_reduces(unsigned kind)
{
    return kind <= KIND_REDUCE_SCATTER;
}

bool matrix_same_everywhere(const matrix_case *c)
{
    switch (c->v[DIM_KIND]) {
    case KIND_ALL_REDUCE:
    case KIND_BROADCAST:
    case KIND_BCAST:
    case KIND_ALL_GATHER: return true;
    default: return false;
    }
}

void matrix_name(const matrix_case *c, char *buf, size_t bytes)
{
    unsigned kind = c->v[DIM_KIND];

    (void)snprintf(buf, bytes, "case %u: %s %s%s%s, count %zu, %d ranks (%s), %s%s%s%s",
            c->id, kind_names[kind], value_types[c->v[DIM_TYPE]].name,
            matrix_reduces(kind) ? " " : "",
            matrix_reduces(kind) ? value_op_names[c->v[DIM_OP]] : "", matrix_count(c),
            matrix_nranks(c), multi_layout_names[c->v[DIM_LAYOUT]],
            c->v[DIM_PLACE] ? "in place" : "out of place",
            c->v[DIM_SHIFT] ? ", misaligned" : "",
            !c->v[DIM_STREAM]              ? ""
                    : matrix_there == NULL ? ", on a stream"
                                           : matrix_there->streamed,
            c->v[DIM_GROUP] ? ", grouped" : "");
}

/* ---- the full product, numbered ---- */

static uint32_t product_size(void)
{
    uint32_t n = 1;

    for (int d = 0; d < MATRIX_DIMS; d++)
        n *= matrix_sizes[d];
    return n;
}

static matrix_case case_of(uint32_t id)
{
    matrix_case c = { .id = id };

    for (int d = 0; d < MATRIX_DIMS; d++) {
        c.v[d] = (uint8_t)(id % matrix_sizes[d]);
        id /= matrix_sizes[d];
    }
    return c;
}

static uint32_t id_of(const matrix_case *c)
{
    uint32_t id = 0;

    for (int d = MATRIX_DIMS; d-- > 0;)
        id = id * matrix_sizes[d] + c->v[d];
    return id;
}

/* ---- pairs ---- */

typedef struct pair_table {
    uint8_t done[MATRIX_DIMS][MATRIX_DIMS][MAX_VALUES][MAX_VALUES];
} pair_table;

/** A pair that means something: an operator only where there is a reduction. */
static bool pair_counts(const matrix_case *c, int a, int b)
{
    return (a != DIM_OP && b != DIM_OP) || matrix_reduces(c->v[DIM_KIND]);
}

/** Mark the pairs of @p c; returns how many were new. */
static unsigned cover(pair_table *t, const matrix_case *c)
{
    unsigned fresh = 0;

    for (int a = 0; a < MATRIX_DIMS; a++)
        for (int b = a + 1; b < MATRIX_DIMS; b++) {
            uint8_t *done = &t->done[a][b][c->v[a]][c->v[b]];

            if (*done || !pair_counts(c, a, b))
                continue;
            fresh++;
            *done = 1;
        }
    return fresh;
}

/** Fill what @p fixed leaves open, each dimension with the value that covers most. */
static matrix_case complete(pair_table *t, matrix_case c, const bool *fixed,
        uint64_t salt)
{
    bool set[MATRIX_DIMS];

    memcpy(set, fixed, sizeof(set));
    for (int d = 0; d < MATRIX_DIMS; d++) {
        unsigned best = 0, best_gain = 0, n = matrix_sizes[d];
        unsigned start = (unsigned)(value_mix(salt + (unsigned)d) % n);

        for (unsigned k = 0; k < n && !set[d]; k++) {
            unsigned v = (start + k) % n, gain = 1;

            for (int e = 0; e < MATRIX_DIMS; e++) {
                int a = d < e ? d : e, b = d < e ? e : d;

                if (e != d && set[e])
                    gain += !t->done[a][b][d < e ? v : c.v[e]][d < e ? c.v[e] : v];
            }
            if (gain > best_gain) {
                best_gain = gain;
                best = v;
            }
        }
        if (!set[d])
            c.v[d] = (uint8_t)best;
        set[d] = true;
    }
    c.id = id_of(&c);
    return c;
}

static void add(matrix_set *set, const matrix_case *c)
{
    set->at[set->count++] = *c;
}

/** For every pair still open a case that holds it and as many other open ones as it can. */
static void add_pairs(matrix_set *set, pair_table *t)
{
    for (int a = 0; a < MATRIX_DIMS; a++)
        for (int b = a + 1; b < MATRIX_DIMS; b++)
            for (unsigned x = 0; x < matrix_sizes[a]; x++)
                for (unsigned y = 0; y < matrix_sizes[b]; y++) {
                    matrix_case c = { 0 };
                    bool fixed[MATRIX_DIMS] = { false };

                    c.v[a] = (uint8_t)x;
                    c.v[b] = (uint8_t)y;
                    fixed[a] = fixed[b] = true;
                    if ((a == DIM_OP || b == DIM_OP) && a != DIM_KIND) {
                        fixed[DIM_KIND] = true; /* an operator needs a reduction */
                        c.v[DIM_KIND] = (uint8_t)((x + y) % (KIND_REDUCE_SCATTER + 1));
                    }
                    if (t->done[a][b][x][y] || !pair_counts(&c, a, b))
                        continue;
                    c = complete(t, c, fixed, id_of(&c));
                    (void)cover(t, &c);
                    add(set, &c);
                }
}

/** Every id whose hash says so; a kind without operator is taken with the first one only. */
static void add_samples(matrix_set *set, unsigned thin)
{
    uint32_t n = product_size();
    /* Alignment, stream and group are not multiplied: the hash picks one of the eight. */
    const uint32_t varied = 8;

    for (uint32_t id = 0; id < n; id++) {
        matrix_case c = case_of(id);
        uint64_t h = value_mix(id ^ 0x6d6f746574ull);

        if (!matrix_reduces(c.v[DIM_KIND]) && c.v[DIM_OP] != 0)
            continue;
        if (h % ((uint64_t)sample_rate[c.v[DIM_COUNT]] * varied * thin) <
                (matrix_reduces(c.v[DIM_KIND]) ? 1u : 3u))
            add(set, &c);
    }
}

static int by_world(const void *a, const void *b)
{
    const matrix_case *x = a, *y = b;
    int wx = x->v[DIM_RANKS] * MULTI_NUM_LAYOUTS + x->v[DIM_LAYOUT];
    int wy = y->v[DIM_RANKS] * MULTI_NUM_LAYOUTS + y->v[DIM_LAYOUT];
    uint64_t hx = value_mix(x->id), hy = value_mix(y->id);

    if (wx != wy)
        return wx - wy;
    return (hx > hy) - (hx < hy);
}

/** How many pairs mean something. */
static size_t count_pairs(void)
{
    size_t n = 0;

    for (int a = 0; a < MATRIX_DIMS; a++)
        for (int b = a + 1; b < MATRIX_DIMS; b++)
            n += (size_t)matrix_sizes[a] * matrix_sizes[b];
    return n - (MATRIX_KINDS - 1 - KIND_REDUCE_SCATTER) * (size_t)VALUE_NUM_OPS;
}

/** Sort by world, drop duplicates, and count from the cases themselves what they cover. */
static void finish(matrix_set *set)
{
    static pair_table table;
    size_t kept = 0;

    qsort(set->at, set->count, sizeof(*set->at), by_world);
    for (size_t i = 0; i < set->count; i++)
        if (i == 0 || set->at[i].id != set->at[kept - 1].id)
            set->at[kept++] = set->at[i];
    set->count = kept;
    memset(&table, 0, sizeof(table));
    set->pairs = count_pairs();
    for (size_t i = 0; i < set->count; i++)
        set->pairs_covered += cover(&table, &set->at[i]);
    for (size_t i = 0; i < set->count; i++)
        for (int d = 0; d < MATRIX_DIMS; d++)
            if (d != DIM_OP || matrix_reduces(set->at[i].v[DIM_KIND]))
                set->seen[d][set->at[i].v[d]]++;
}

bool matrix_choose(unsigned thin, matrix_set *out)
{
    static pair_table table;

    *out = (matrix_set){ .at = malloc(
                                 sizeof(matrix_case) * (product_size() / 8 + 4096)) };
    if (out->at == NULL)
        return false;
    memset(&table, 0, sizeof(table));
    add_pairs(out, &table);
    add_samples(out, thin);
    finish(out);
    return true;
}

bool matrix_choose_one(uint32_t id, matrix_set *out)
{
    *out = (matrix_set){ .at = malloc(sizeof(matrix_case)) };
    if (out->at == NULL || id >= product_size())
        return false;
    out->at[out->count++] = case_of(id);
    finish(out);
    return true;
}
