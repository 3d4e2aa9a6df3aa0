/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The value matrix: collectives × types × operators × counts × ranks × placement ×
 * layout (processes, threads, two processes of threads, one thread that drives all) ×
 * alignment × stream × grouping, every value compared with a reference.
 *
 * The full product has 4.5 million cases. What runs is
 *   - a covering array: walk over all pairs of values of two dimensions; for a pair
 *     that no chosen case holds yet, build a case from it, giving each remaining
 *     dimension in turn the value that covers most pairs still open. So every pair of
 *     values occurs, large counts with every type, with every collective, and so on;
 *   - a sample: a case runs if a hash of its number says so; one in four of (collective,
 *     type, operator, count, ranks, placement, layout) for counts up to 17, fewer for
 *     larger counts (matrix_cases.c), with alignment, stream and grouping from the same
 *     hash. `--thin K` divides this part by K, for sanitizers.
 * Both depend on nothing but the program, so a case keeps its number: `--only ID`.
 *
 * Cases of one (ranks, layout) share a communicator. At the end the number of cases,
 * of cases for each value, and of pairs is printed; a pair left out is a failure.
 */
#include "matrix.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* After this many failed ranks the rest is left out: each may cost a deadline. */
#define MAX_FAILED 16

struct options {
    unsigned thin, deadline_s;
    uint64_t seed;
    const char *epoch;
    long only; /* −1: all */
    bool list;
    /* Parts of the set; such a run need not cover all pairs. */
    int layout, ranks, stream; /* −1: all */
    size_t max_count;
    unsigned part, parts; /* worlds whose number is `part` modulo `parts` */
};

static bool narrowed(const struct options *o)
{
    return o->layout >= 0 || o->ranks >= 0 || o->stream >= 0 ||
            o->max_count != SIZE_MAX || o->parts > 1;
}

int matrix_compare(const multi_spec *spec, void *shared)
{
    const matrix_world *world = spec->arg;
    const uint64_t *hash = shared;
    int failed = 0;
    char name[256];

    for (size_t i = 0; i < world->count && failed < 8; i++)
        for (int r = 1; r < spec->nranks; r++) {
            size_t at = i * (size_t)spec->nranks;

            if (hash[at + (size_t)r] == hash[at])
                continue;
            matrix_name(&world->cases[i], name, sizeof(name));
            printf("FAIL  %s: ranks 0 and %d ended with different bytes\n", name, r);
            failed++;
            break;
        }
    return failed;
}

static int run_world(const struct options *o, const matrix_case *cases, size_t count)
{
    matrix_world world = { .cases = cases, .count = count, .seed = o->seed };
    char epoch[64];
    const char *environment[16] = { NULL };
    size_t variables = 0;
    multi_spec spec = {
        .name = "value matrix",
        .layout = (multi_layout)cases[0].v[DIM_LAYOUT],
        .nranks = matrix_nranks(&cases[0]),
        .init = matrix_there == NULL,
        .deadline_s = o->deadline_s,
        .shared_bytes = count * (size_t)matrix_nranks(&cases[0]) * sizeof(uint64_t),
        .environment = environment,
        .body = matrix_body,
        .arg = &world,
        .after = matrix_compare,
    };
    uint64_t start = multi_now_ns();
    int failed;

    while (matrix_there != NULL && matrix_there->environment[variables] != NULL &&
            variables < 14) {
        environment[variables] = matrix_there->environment[variables];
        variables++;
    }
    if (o->epoch != NULL) {
        (void)snprintf(epoch, sizeof(epoch), "MOTET_EPOCH_START=%s", o->epoch);
        environment[variables] = epoch;
    }
    failed = multi_run(&spec);
    printf("%d ranks, %-10s %6zu cases %6.2f s%s\n", spec.nranks,
            multi_layout_names[spec.layout], count,
            (double)(multi_now_ns() - start) / 1e9, failed ? "  FAILED" : "");
    (void)fflush(stdout);
    return failed;
}

static bool same_world(const matrix_case *a, const matrix_case *b)
{
    return a->v[DIM_RANKS] == b->v[DIM_RANKS] && a->v[DIM_LAYOUT] == b->v[DIM_LAYOUT];
}

static void print_coverage(const matrix_set *set)
{
    for (int d = 0; d < MATRIX_DIMS; d++) {
        printf("  %-10s", matrix_dim_names[d]);
        for (unsigned v = 0; v < matrix_sizes[d]; v++)
            printf(" %u", set->seen[d][v]);
        printf("\n");
    }
    printf("matrix: %zu of %zu pairs of values\n", set->pairs_covered, set->pairs);
    printf("matrix: %zu cases\n", set->count);
}

static int run_set(const struct options *o, const matrix_set *set)
{
    unsigned number = 0;
    int failed = 0;
    size_t end;

    for (size_t at = 0; at < set->count && failed < MAX_FAILED; at = end) {
        for (end = at; end < set->count && same_world(&set->at[at], &set->at[end]);
                end++)
            ;
        if (number++ % o->parts == o->part)
            failed += run_world(o, &set->at[at], end - at);
    }
    return failed;
}

/** Leave in the set what the options ask for. */
static void narrow(const struct options *o, matrix_set *set)
{
    size_t kept = 0;

    for (size_t i = 0; i < set->count; i++) {
        const matrix_case *c = &set->at[i];

        if ((o->layout < 0 || c->v[DIM_LAYOUT] == o->layout) &&
                (o->ranks < 0 || matrix_nranks(c) == o->ranks) &&
                (o->stream < 0 || c->v[DIM_STREAM] == o->stream) &&
                matrix_count(c) <= o->max_count)
            set->at[kept++] = *c;
    }
    set->count = kept;
}

static int layout_named(const char *name)
{
    for (int i = 0; i < MULTI_NUM_LAYOUTS; i++)
        if (strcmp(name, multi_layout_names[i]) == 0)
            return i;
    return MULTI_NUM_LAYOUTS;
}

static bool parse_part(const char *text, struct options *o)
{
    return sscanf(text, "%u/%u", &o->part, &o->parts) == 2 && o->part < o->parts;
}

static void list_set(const matrix_set *set)
{
    char name[256];

    for (size_t i = 0; i < set->count; i++) {
        matrix_name(&set->at[i], name, sizeof(name));
        printf("%s\n", name);
    }
}

static bool parse(int argc, char **argv, struct options *o)
{
    static const struct option options[] = {
        { "thin", required_argument, NULL, 't' },
        { "seed", required_argument, NULL, 's' },
        { "epoch", required_argument, NULL, 'e' },
        { "only", required_argument, NULL, 'o' },
        { "deadline", required_argument, NULL, 'd' },
        { "list", no_argument, NULL, 'l' },
        { "layout", required_argument, NULL, 'L' },
        { "ranks", required_argument, NULL, 'r' },
        { "stream", required_argument, NULL, 'S' },
        { "max-count", required_argument, NULL, 'm' },
        { "part", required_argument, NULL, 'p' },
        { NULL, 0, NULL, 0 },
    };
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 't': o->thin = (unsigned)strtoul(optarg, NULL, 10); break;
        case 's': o->seed = strtoull(optarg, NULL, 0); break;
        case 'e': o->epoch = optarg; break;
        case 'o': o->only = strtol(optarg, NULL, 10); break;
        case 'd': o->deadline_s = (unsigned)strtoul(optarg, NULL, 10); break;
        case 'l': o->list = true; break;
        case 'L': o->layout = layout_named(optarg); break;
        case 'r': o->ranks = (int)strtol(optarg, NULL, 10); break;
        case 'S': o->stream = (int)strtol(optarg, NULL, 10); break;
        case 'm': o->max_count = strtoull(optarg, NULL, 10); break;
        case 'p':
            if (!parse_part(optarg, o))
                return false;
            break;
        default: return false;
        }
    }
    return o->thin > 0 && o->layout < MULTI_NUM_LAYOUTS && optind == argc;
}

int main(int argc, char **argv)
{
    struct options o = { .thin = 1,
        .deadline_s = 60,
        .seed = 1,
        .only = -1,
        .layout = -1,
        .ranks = -1,
        .stream = -1,
        .max_count = SIZE_MAX,
        .parts = 1 };
    matrix_set set;
    int failed;

    if (!parse(argc, argv, &o)) {
        fprintf(stderr,
                "usage: matrix [--thin K] [--seed N] [--epoch N] [--only CASE] "
                "[--deadline S] [--list]\n"
                "              [--layout NAME] [--ranks N] [--max-count N] [--part "
                "I/N]\n");
        return 64;
    }
    if (!o.list && matrix_there != NULL && (failed = matrix_there->look()) != 0)
        return failed;
    if (!(o.only < 0 ? matrix_choose(o.thin, &set)
                     : matrix_choose_one((uint32_t)o.only, &set))) {
        fprintf(stderr, "matrix: no such case, or no memory\n");
        return 64;
    }
    narrow(&o, &set);
    if (o.list) {
        list_set(&set);
        free(set.at);
        return 0;
    }
    failed = run_set(&o, &set);
    if (o.only < 0 && narrowed(&o)) {
        printf("matrix: %zu cases, part %u of %u\n", set.count, o.part, o.parts);
    } else if (o.only < 0) {
        print_coverage(&set);
        failed += set.pairs_covered != set.pairs;
    }
    free(set.at);
    printf("%s\n", failed == 0 ? "matrix: all passed" : "matrix: FAILED");
    return failed == 0 ? 0 : 1;
}
