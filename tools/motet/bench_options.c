/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options of motet bench: nccl-tests' and rccl-tests' letters with their meaning,
 * and a few long ones of our own. A letter that means nothing here is accepted and named
 * in the table's head, except where going on would measure something else than was asked
 * for (device code): that is refused. What depends on the device is in bench_settle.c.
 */
#include "bench.h"

#include "cmd.h"
#include "text.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
static const char help[] =
        "usage: motet bench [COLLECTIVE...] [OPTIONS]\n"
        "\n"
        "Measure collectives and print nccl-tests' table. COLLECTIVE is all_reduce (the\n"
        "default), all_gather, reduce_scatter, broadcast, reduce, alltoall, alltoallv,\n"
        "gather, scatter, sendrecv, hypercube, or all.\n"
        "\n"
        "Ranks\n"
        "  -np, --ranks N       processes (default 2; 1 if -t or -g is given)\n"
        "  -t, --nthreads N     threads in each process (default 1)\n"
        "  -g, --ngpus N        ranks that each thread drives (default 1)\n"
        "      --device KIND    cpu, cuda, hip, or auto: GPUs if there are any (default)\n"
        "      --serving-anyway run although other processes compute on GPUs of this host,\n"
        "                       or this did not come back the last time\n"
        "Sizes\n"
        "  -b, --minbytes SIZE  smallest, as in 8, 4K, 1M (default 8)\n"
        "  -e, --maxbytes SIZE  largest (default 64M)\n"
        "  -i, --stepbytes SIZE step between sizes\n"
        "  -f, --stepfactor N   factor between sizes (default 2 unless -i is given)\n"
        "Operations\n"
        "  -o, --op OP          sum prod min max avg mulsum all (default sum)\n"
        "  -d, --datatype TYPE  int8 uint8 int32 uint32 int64 uint64 half float double\n"
        "                       bfloat16 f8e4m3 f8e5m2 all (default float)\n"
        "  -r, --root RANK      root, or -1 for all in turn (default 0)\n"
        "  -u, --unalign N      buffers begin at their element number N (default 0)\n"
        "  -O, --out_of_place 1 out of place only\n"
        "Measuring\n"
        "  -n, --iters N        timed calls of each figure (default 20)\n"
        "  -w, --warmup_iters N untimed calls before (default 5)\n"
        "  -m, --agg_iters N    calls in one group (default 1)\n"
        "  -N, --run_cycles N   repeat it all; 0 for ever (default 1)\n"
        "      --timing LIST    eager: calls issued one after another, waited for at the\n"
        "                       end (default on GPUs); graph: captured and replayed;\n"
        "                       blocking: each waited for (default on CPUs)\n"
        "  -G, --cudagraph N    --timing graph, N replays in a turn (10 unless given)\n"
        "  -z, --blocking N     0: --timing eager; 2, 3: blocking on a stream; 1: blocking,\n"
        "                       on CPUs with stream NULL: a call returns with its result\n"
        "  -a, --average N      of the ranks: 0 rank 0, 1 mean, 2 min, 3 max (default 1 on\n"
        "                       CPUs, 3 on GPUs)\n"
        "  -C, --report_cputime 1   time until the calls were issued\n"
        "  -R, --register HOW   buffers: none, buffer, window, or 0, 1, 2 (default none)\n"
        "      --buffers N      sets of buffers that calls take in turn (default 1)\n"
        "  -x, --cta_policy N   CTAPolicy of the communicators\n"
        "  -T, --timeout S      give up if nothing advances for S seconds, 0 never\n"
        "                       (default 0 on CPUs, 300 on GPUs)\n"
        "  -c, --check N        rounds of checking every value (default 1)\n"
        "      --malloc         no buffers by ncclMemAlloc\n"
        "Libraries\n"
        "      --lib PATH       measure this library with the NCCL ABI (default: built in);\n"
        "                       nccl is NVIDIA's and rccl AMD's, as motet lib finds them\n"
        "      --vs PATH        measure a second one too, in turns; adds its time, the\n"
        "                       ratio and the spread of the first's times. self is the\n"
        "                       first once more\n"
        "      --vs-env N=V     set a variable for the second one (GPUs)\n"
        "      --rounds N       turns (default 1 on CPUs, 7 on GPUs and with --vs)\n"
        "      --explain        what the library plans for each size, and why\n"
        "      --host-memory    libraries take host memory although they are not motet\n"
        "Results\n"
        "  -J, --json FILE      JSON; - for stdout, the table then goes to stderr\n"
        "      --csv FILE       CSV\n"
        "      --svg FILE       plot of time over size\n"
        "  -S, --report_timestamps 1   time of day after each row\n"
        "  -h, --help           this text\n"
        "\n"
        "Accepted and named in the head, without effect: -p -y -M -V -I -K -s -F -E -q -Y.\n"
        "Refused: -D (device code), and graphs on CPUs.\n"
        "NCCL_TESTS_MIN_BW sets the least average bus bandwidth, GB/s.\n"
        "\n"
        "Exit status: 0 fine, 1 values are wrong or a rank failed, 2 a library cannot be\n"
        "measured, 64 usage.\n";
/* clang-format on */

enum {
    OPT_RANKS = 256,
    OPT_DEVICE,
    OPT_MALLOC,
    OPT_LIB,
    OPT_VS,
    OPT_ROUNDS,
    OPT_HOST_MEMORY,
    OPT_CSV,
    OPT_SVG,
    OPT_TIMING,
    OPT_BUFFERS,
    OPT_VS_ENV,
    OPT_EXPLAIN,
    OPT_SERVING_ANYWAY
};

static const char short_options[] =
        ":b:e:i:f:o:d:r:u:O:n:w:m:N:z:a:C:R:x:T:c:J:S:hp:y:M:V:I:K:s:F:E:q:Y:G:D:t:g:";

static const struct option long_options[] = {
    { "ranks", required_argument, NULL, OPT_RANKS },
    { "nthreads", required_argument, NULL, 't' },
    { "ngpus", required_argument, NULL, 'g' },
    { "device", required_argument, NULL, OPT_DEVICE },
    { "minbytes", required_argument, NULL, 'b' },
    { "maxbytes", required_argument, NULL, 'e' },
    { "stepbytes", required_argument, NULL, 'i' },
    { "stepfactor", required_argument, NULL, 'f' },
    { "op", required_argument, NULL, 'o' },
    { "datatype", required_argument, NULL, 'd' },
    { "root", required_argument, NULL, 'r' },
    { "unalign", required_argument, NULL, 'u' },
    { "out_of_place", required_argument, NULL, 'O' },
    { "iters", required_argument, NULL, 'n' },
    { "warmup_iters", required_argument, NULL, 'w' },
    { "agg_iters", required_argument, NULL, 'm' },
    { "run_cycles", required_argument, NULL, 'N' },
    { "blocking", required_argument, NULL, 'z' },
    { "average", required_argument, NULL, 'a' },
    { "report_cputime", required_argument, NULL, 'C' },
    { "local_register", required_argument, NULL, 'R' },
    { "register", required_argument, NULL, 'R' },
    { "buffers", required_argument, NULL, OPT_BUFFERS },
    { "timing", required_argument, NULL, OPT_TIMING },
    { "cta_policy", required_argument, NULL, 'x' },
    { "timeout", required_argument, NULL, 'T' },
    { "check", required_argument, NULL, 'c' },
    { "malloc", no_argument, NULL, OPT_MALLOC },
    { "lib", required_argument, NULL, OPT_LIB },
    { "vs", required_argument, NULL, OPT_VS },
    { "vs-env", required_argument, NULL, OPT_VS_ENV },
    { "rounds", required_argument, NULL, OPT_ROUNDS },
    { "explain", no_argument, NULL, OPT_EXPLAIN },
    { "host-memory", no_argument, NULL, OPT_HOST_MEMORY },
    { "serving-anyway", no_argument, NULL, OPT_SERVING_ANYWAY },
    { "json", required_argument, NULL, 'J' },
    { "output_file", required_argument, NULL, 'J' },
    { "csv", required_argument, NULL, OPT_CSV },
    { "svg", required_argument, NULL, OPT_SVG },
    { "report_timestamps", required_argument, NULL, 'S' },
    { "parallel_init", required_argument, NULL, 'p' },
    { "stream_null", required_argument, NULL, 'y' },
    { "memory", required_argument, NULL, 'M' },
    { "device_cta_count", required_argument, NULL, 'V' },
    { "cudagraph", required_argument, NULL, 'G' },
    { "device_implementation", required_argument, NULL, 'D' },
    { "help", no_argument, NULL, 'h' },
    { NULL, 0, NULL, 0 },
};

/* Letters that change nothing, and why. */
static const struct {
    int letter;
    const char *why;
} without_effect[] = {
    { 'p', "ranks always start in parallel" },
    { 'y', "-z and --timing choose the streams" },
    { 'M', "memory is not reported" },
    { 'V', "the library chooses its thread blocks" },
    { 'I', "motet smoke and --rounds show how times vary" },
    { 'K', "-w skips the first calls" },
    { 's', "-N repeats the test" },
    { 'F', "caches are left as the calls leave them; --buffers takes others in turn" },
    { 'E', "--buffers takes buffers in turn" },
    { 'q', "no delay is put between calls" },
    { 'Y', "memory has no types here" },
};

#define COUNT(table) (sizeof(table) / sizeof(*(table)))

static const char *reason_without_effect(int letter)
{
    for (size_t i = 0; i < COUNT(without_effect); i++)
        if (without_effect[i].letter == letter)
            return without_effect[i].why;
    return NULL;
}

static void note(struct bench_options *o, int letter, const char *value,
        const char *why)
{
    if (o->nnotes < BENCH_NOTES_MAX)
        snprintf(o->notes[o->nnotes++], sizeof(o->notes[0]), "-%c %.24s: %s", letter,
                value, why);
}

/* Options with a plain value: where it goes, and what it may be. */
enum value_kind { VALUE_INT, VALUE_SWITCH, VALUE_SIZE, VALUE_TEXT };

static const struct value {
    int letter;
    enum value_kind kind;
    int min, max; /* of an int */
    size_t at;    /* offset in struct bench_options */
} values[] = {
    { OPT_RANKS, VALUE_INT, 1, RANKS_MAX, offsetof(struct bench_options, processes) },
    { 't', VALUE_INT, 1, RANKS_MAX, offsetof(struct bench_options, threads) },
    { 'g', VALUE_INT, 1, RANKS_MAX, offsetof(struct bench_options, per_thread) },
    { 'r', VALUE_INT, -1, RANKS_MAX - 1, offsetof(struct bench_options, root) },
    { 'u', VALUE_INT, 0, 1024, offsetof(struct bench_options, unalign) },
    { 'n', VALUE_INT, 1, 100000000, offsetof(struct bench_options, iters) },
    { 'w', VALUE_INT, 0, 100000000, offsetof(struct bench_options, warm_ups) },
    { 'm', VALUE_INT, 1, 1024, offsetof(struct bench_options, aggregate) },
    { 'N', VALUE_INT, 0, 100000000, offsetof(struct bench_options, cycles) },
    { 'z', VALUE_INT, 0, 3, offsetof(struct bench_options, blocking) },
    { 'a', VALUE_INT, 0, 3, offsetof(struct bench_options, average) },
    { 'G', VALUE_INT, 0, 100000000, offsetof(struct bench_options, replays) },
    { OPT_BUFFERS, VALUE_INT, 1, 1024, offsetof(struct bench_options, sets) },
    { 'x', VALUE_INT, 0, 3, offsetof(struct bench_options, cta_policy) },
    { 'T', VALUE_INT, 0, 1000000, offsetof(struct bench_options, timeout_s) },
    { 'c', VALUE_INT, 0, 1000000, offsetof(struct bench_options, checks) },
    { OPT_ROUNDS, VALUE_INT, 1, BENCH_ROUNDS_MAX,
            offsetof(struct bench_options, rounds) },
    { 'C', VALUE_SWITCH, 0, 1, offsetof(struct bench_options, cpu_time) },
    { 'S', VALUE_SWITCH, 0, 1, offsetof(struct bench_options, timestamps) },
    { 'O', VALUE_SWITCH, 0, 1, offsetof(struct bench_options, out_of_place_only) },
    { 'b', VALUE_SIZE, 0, 0, offsetof(struct bench_options, min_bytes) },
    { 'e', VALUE_SIZE, 0, 0, offsetof(struct bench_options, max_bytes) },
    { 'i', VALUE_SIZE, 0, 0, offsetof(struct bench_options, step_bytes) },
    { 'f', VALUE_SIZE, 0, 0, offsetof(struct bench_options, step_factor) },
    { OPT_DEVICE, VALUE_TEXT, 0, 0, offsetof(struct bench_options, device) },
    { OPT_LIB, VALUE_TEXT, 0, 0, offsetof(struct bench_options, lib) },
    { OPT_VS, VALUE_TEXT, 0, 0, offsetof(struct bench_options, vs) },
    { OPT_CSV, VALUE_TEXT, 0, 0, offsetof(struct bench_options, csv) },
    { OPT_SVG, VALUE_TEXT, 0, 0, offsetof(struct bench_options, svg) },
    { 'J', VALUE_TEXT, 0, 0, offsetof(struct bench_options, json) },
};

static const char *option_name(int letter, char *buf, size_t bytes)
{
    snprintf(buf, bytes, "-%c", letter < 256 ? letter : '-');
    for (size_t i = 0; letter >= 256 && i < COUNT(long_options) - 1; i++)
        if (long_options[i].val == letter)
            snprintf(buf, bytes, "--%s", long_options[i].name);
    return buf;
}

/* −1: taken; otherwise the exit code. */
static int take_value(struct bench_options *o, const struct value *v, const char *text)
{
    void *to = (char *)o + v->at;
    char name[40];
    int on = 0;

    option_name(v->letter, name, sizeof(name));
    switch (v->kind) {
    case VALUE_INT: return cmd_take_number("bench", name, text, v->min, v->max, to);
    case VALUE_SWITCH:
        if (!text_to_small(text, 0, 1, &on))
            return cmd_usage_error("bench", "%s is '%s', need 0 or 1", name, text);
        *(bool *)to = on != 0;
        return -1;
    case VALUE_SIZE:
        if (!text_to_bytes(text, to))
            return cmd_usage_error("bench",
                    "%s is '%s', need a number as in 8, 4K or 1M", name, text);
        return -1;
    case VALUE_TEXT: *(const char **)to = text; return -1;
    }
    return -1;
}

static int take_type(struct bench_options *o, const char *value)
{
    static const struct {
        const char *name;
        motet_type type;
    } other_names[] = {
        { "char", MOTET_INT8 },
        { "int", MOTET_INT32 },
        { "float16", MOTET_FLOAT16 },
        { "float32", MOTET_FLOAT32 },
        { "float64", MOTET_FLOAT64 },
        { "bf16", MOTET_BFLOAT16 },
        { "fp8_e4m3", MOTET_FLOAT8E4M3 },
        { "fp8_e5m2", MOTET_FLOAT8E5M2 },
    };

    o->type = BENCH_ALL;
    if (strcmp(value, "all") == 0)
        return -1;
    for (int t = 0; t < MOTET_NUM_TYPES; t++)
        if (strcmp(value, motet_type_table[t].name) == 0)
            o->type = t;
    for (size_t i = 0; i < COUNT(other_names); i++)
        if (strcmp(value, other_names[i].name) == 0)
            o->type = (int)other_names[i].type;
    if (o->type != BENCH_ALL)
        return -1;
    return cmd_usage_error("bench", "-d is '%s', need a type (see --help) or all",
            value);
}

static int take_op(struct bench_options *o, const char *value)
{
    o->redop = BENCH_ALL;
    if (strcmp(value, "all") == 0)
        return -1;
    for (int op = 0; op < MOTET_NUM_REDOPS; op++)
        if (strcmp(value, motet_redop_names[op]) == 0)
            o->redop = op;
    if (o->redop != BENCH_ALL)
        return -1;
    return cmd_usage_error("bench",
            "-o is '%s', need sum, prod, min, max, avg, mulsum or all", value);
}

static int take_registration(struct bench_options *o, const char *value)
{
    static const char *const names[] = { "none", "buffer", "window" };

    for (int i = 0; i < (int)COUNT(names); i++)
        if (strcmp(value, names[i]) == 0) {
            o->registration = i;
            return -1;
        }
    if (text_to_small(value, 0, 2, &o->registration))
        return -1;
    return cmd_usage_error("bench", "-R is '%s', need none, buffer or window (0 to 2)",
            value);
}

/* 0 is what it is without the option; anything else is refused. */
static int take_device_code(const char *value)
{
    int n;

    if (text_to_small(value, 0, 0, &n))
        return -1;
    return cmd_usage_error("bench",
            "-D %s: there is no device code of its own; every collective is measured "
            "through the API",
            value);
}

static int take_vs_env(struct bench_options *o, const char *value)
{
    if (strchr(value, '=') == NULL || *value == '=')
        return cmd_usage_error("bench", "--vs-env is '%s', need NAME=VALUE", value);
    if (o->nvs_env == BENCH_LIST_MAX)
        return cmd_usage_error("bench", "more than %d times --vs-env", BENCH_LIST_MAX);
    o->vs_env[o->nvs_env++] = value;
    return -1;
}

static int take_option(struct bench_options *o, int c, char **argv)
{
    const char *why = reason_without_effect(c);

    if (why != NULL) {
        note(o, c, optarg, why);
        return -1;
    }
    for (size_t i = 0; i < COUNT(values); i++)
        if (values[i].letter == c)
            return take_value(o, &values[i], optarg);
    switch (c) {
    case 'd': return take_type(o, optarg);
    case 'o': return take_op(o, optarg);
    case 'R': return take_registration(o, optarg);
    case 'D': return take_device_code(optarg);
    case OPT_TIMING: return bench_take_timings(o, optarg);
    case OPT_VS_ENV: return take_vs_env(o, optarg);
    case OPT_EXPLAIN: o->explain = true; return -1;
    case OPT_MALLOC: o->use_malloc = true; return -1;
    case OPT_HOST_MEMORY: o->host_memory = true; return -1;
    case OPT_SERVING_ANYWAY: o->serving_anyway = true; return -1;
    case 'h': return cmd_help(help);
    default: return cmd_bad_option("bench", c, argv);
    }
}

static int take_collective(struct bench_options *o, const char *name)
{
    const struct collective *c = collective_find(name);
    const char *near;

    if (strcmp(name, "all") == 0) {
        o->nlist = 0;
        for (size_t i = 0; i < ncollectives; i++)
            o->list[o->nlist++] = &collectives[i];
        return -1;
    }
    if (c != NULL) {
        if (o->nlist < BENCH_LIST_MAX)
            o->list[o->nlist++] = c;
        return -1;
    }
    near = collective_nearest(name);
    if (near != NULL)
        return cmd_usage_error("bench", "'%s' is not a collective; did you mean '%s'?",
                name, near);
    return cmd_usage_error("bench", "'%s' is not a collective", name);
}

/* What the options mean together, on any device. −1, or the exit code. */
static int settle(struct bench_options *o, bool step_said, bool factor_said)
{
    int64_t nranks;

    if (o->nlist == 0)
        o->list[o->nlist++] = &collectives[0];
    if (o->processes == 0)
        o->processes = o->threads == 0 && o->per_thread == 0 ? 2 : 1;
    o->threads = o->threads == 0 ? 1 : o->threads;
    o->per_thread = o->per_thread == 0 ? 1 : o->per_thread;
    nranks = (int64_t)o->processes * o->threads * o->per_thread;
    if (nranks > RANKS_MAX)
        return cmd_usage_error("bench", "%lld ranks, need at most %d",
                (long long)nranks, RANKS_MAX);
    if (o->root >= nranks)
        return cmd_usage_error("bench", "-r is %d, need -1 to %d", o->root,
                (int)nranks - 1);
    if (o->max_bytes < o->min_bytes)
        return cmd_usage_error("bench",
                "-e is %llu bytes, need at least -b, %llu bytes",
                (unsigned long long)o->max_bytes, (unsigned long long)o->min_bytes);
    if (step_said && !factor_said)
        o->step_factor = 0;
    if (o->step_factor == 1 || (o->step_factor == 0 && o->step_bytes == 0))
        return cmd_usage_error("bench",
                "sizes would not grow: need -f of 2 or more, or -i of 1 or more");
    if (o->step_factor != 0 && o->min_bytes == 0)
        o->min_bytes = 1;
    if (o->sets > o->iters)
        return cmd_usage_error("bench",
                "--buffers is %d, need at most as many as calls, %d (-n)", o->sets,
                o->iters);
    return -1;
}

int bench_read_options(int argc, char **argv, struct bench_options *o)
{
    static char ranks_option[] = "--ranks";
    bool step_said = false, factor_said = false;
    int c, code = -1;

    *o = (struct bench_options){ .min_bytes = 8,
        .max_bytes = 64ull << 20,
        .step_bytes = 1ull << 20,
        .step_factor = 2,
        .iters = 20,
        .warm_ups = 5,
        .aggregate = 1,
        .cycles = 1,
        .checks = 1,
        .type = MOTET_FLOAT32,
        .redop = MOTET_SUM,
        .blocking = -1,
        .average = -1,
        .timeout_s = -1,
        .sets = 1,
        .cta_policy = -1 };
    for (int i = 1; i < argc; i++) /* mpirun's -np would read as -n p */
        if (strcmp(argv[i], "-np") == 0)
            argv[i] = ranks_option;
    optind = 1;
    while (code == -1 &&
            (c = getopt_long(argc, argv, short_options, long_options, NULL)) != -1) {
        step_said |= c == 'i';
        factor_said |= c == 'f';
        code = take_option(o, c, argv);
    }
    for (; code == -1 && optind < argc; optind++)
        code = take_collective(o, argv[optind]);
    return code != -1 ? code : settle(o, step_said, factor_said);
}
