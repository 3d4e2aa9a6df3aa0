/* SPDX-License-Identifier: Apache-2.0 */
/* motet smoke, options and order of things: see smoke.h. */
#include "smoke.h"

#include "apart.h"
#include "cmd.h"
#include "serving.h"
#include "text.h"

#include <getopt.h>
#include <stdio.h>

/* clang-format off */
static const char help[] =
        "usage: motet smoke [-n N] [--lib PATH] [--cold N] [OPTIONS]\n"
        "\n"
        "Exchange real data between N ranks and check every value: all_reduce of 4 KB to\n"
        "512 KB with times; all_reduce and all_gather of float, half and bfloat16 with\n"
        "1,024 and 1,048,576 elements; then every collective, type and operator. PASS or\n"
        "FAIL is the last line.\n"
        "\n"
        "  -n, --ranks N       number of ranks, 1 to 128 (default 2)\n"
        "      --lib PATH      try this library with the NCCL ABI, not the built-in motet,\n"
        "                      with a process for each rank and once more in one process\n"
        "                      (--init-all); nccl is NVIDIA's and rccl AMD's, as motet\n"
        "                      lib finds them\n"
        "      --processes     a process for each rank, ncclCommInitRank (the default)\n"
        "      --init-all      one process, one thread, ncclCommInitAll; with --threads a\n"
        "                      thread for each rank\n"
        "      --threads       ranks are threads of one process, ncclCommInitRank\n"
        "      --cold N        then make communicators N times, each time by fresh\n"
        "                      processes, with a first all_reduce that is checked\n"
        "      --host-memory   the library of --lib takes host memory although it is not\n"
        "                      motet\n"
        "      --device KIND   cpu, cuda, hip, or auto: GPUs if there are any (default)\n"
        "  -T, --timeout S     give up if nothing advances for S seconds (default 120,\n"
        "                      0 never)\n"
        "      --serving-anyway\n"
        "                      also while other processes compute on the host's GPUs\n"
        "      --json          the report as JSON\n"
        "      --help          this text\n"
        "\n"
        "Exit status: 0 PASS, 1 FAIL, 2 could not be decided, 64 usage.\n";
/* clang-format on */

const struct smoke_way_facts smoke_ways[SMOKE_WAYS] = {
    [SMOKE_PROCESSES] = { "processes", "ncclCommInitRank", false, false, false },
    [SMOKE_THREADS] = { "threads", "ncclCommInitRank", false, true, false },
    [SMOKE_INIT_ALL] = { "one process", "ncclCommInitAll", true, true, true },
    [SMOKE_INIT_ALL_THREADS] = { "threads", "ncclCommInitAll", true, true, false },
};

/* ------------------------------------------------------------------ options */

enum {
    OPT_THREADS = 256,
    OPT_INIT_ALL,
    OPT_PROCESSES,
    OPT_COLD,
    OPT_LIB,
    OPT_HOST_MEMORY,
    OPT_DEVICE,
    OPT_SERVING_ANYWAY,
    OPT_JSON,
    OPT_HELP
};

static const struct option long_options[] = {
    { "ranks", required_argument, NULL, 'n' },
    { "threads", no_argument, NULL, OPT_THREADS },
    { "init-all", no_argument, NULL, OPT_INIT_ALL },
    { "processes", no_argument, NULL, OPT_PROCESSES },
    { "cold", required_argument, NULL, OPT_COLD },
    { "lib", required_argument, NULL, OPT_LIB },
    { "host-memory", no_argument, NULL, OPT_HOST_MEMORY },
    { "device", required_argument, NULL, OPT_DEVICE },
    { "timeout", required_argument, NULL, 'T' },
    { "serving-anyway", no_argument, NULL, OPT_SERVING_ANYWAY },
    { "json", no_argument, NULL, OPT_JSON },
    { "help", no_argument, NULL, OPT_HELP },
    { NULL, 0, NULL, 0 },
};

/* −1: go on. */
static int read_options(int argc, char **argv, struct smoke_options *o)
{
    int c, seconds;

    optind = 1;
    while ((c = getopt_long(argc, argv, ":n:T:h", long_options, NULL)) != -1) {
        switch (c) {
        case 'n':
            if (!text_to_small(optarg, 1, 128, &o->ranks))
                return cmd_usage_error("smoke", "-n is '%s', need 1 to 128", optarg);
            break;
        case 'T':
            if (!text_to_small(optarg, 0, 1000000, &seconds))
                return cmd_usage_error("smoke",
                        "--timeout is '%s', need 0 to 1000000 s", optarg);
            o->timeout_s = (unsigned)seconds;
            break;
        case OPT_COLD:
            if (!text_to_small(optarg, 1, SMOKE_COLD_MAX, &o->cold))
                return cmd_usage_error("smoke", "--cold is '%s', need 1 to %d", optarg,
                        SMOKE_COLD_MAX);
            break;
        case OPT_THREADS: o->threads = true; break;
        case OPT_INIT_ALL: o->init_all = true; break;
        case OPT_PROCESSES: o->processes = true; break;
        case OPT_LIB: o->lib = optarg; break;
        case OPT_HOST_MEMORY: o->host_memory = true; break;
        case OPT_DEVICE: o->device = optarg; break;
        case OPT_SERVING_ANYWAY: o->serving_anyway = true; break;
        case OPT_JSON: o->json = true; break;
        case 'h':
        case OPT_HELP: return cmd_help(help);
        default: return cmd_bad_option("smoke", c, argv);
        }
    }
    if (optind < argc)
        return cmd_usage_error("smoke", "unexpected argument '%s'", argv[optind]);
    if (o->processes && o->threads)
        return cmd_usage_error("smoke", "ranks are --processes or --threads, not both");
    return -1;
}

/* --------------------------------------------------------------------- ways */

static void add_part(struct smoke *s, enum smoke_way way)
{
    s->part[s->num_parts++].way = way;
}

static void choose_ways(struct smoke *s)
{
    const struct smoke_options *o = &s->options;
    bool any = o->threads || o->init_all || o->processes;

    if (o->processes || !any)
        add_part(s, SMOKE_PROCESSES);
    if (o->threads && !o->init_all)
        add_part(s, SMOKE_THREADS);
    if (o->init_all || (!any && o->lib != NULL))
        add_part(s, o->threads ? SMOKE_INIT_ALL_THREADS : SMOKE_INIT_ALL);
}

struct ranks_plan smoke_plan(const struct smoke *s, const struct smoke_part *p,
        struct ranks_end *end)
{
    const struct smoke_way_facts *way = &smoke_ways[p->way];

    return (struct ranks_plan){ .processes = way->one_process ? 1 : s->options.ranks,
        .threads = way->one_process && !way->one_thread ? s->options.ranks : 1,
        .per_thread = way->one_thread ? s->options.ranks : 1,
        .place = &s->place,
        .stall_s = s->options.timeout_s,
        .command = "smoke",
        .init_all = way->init_all,
        .end = end };
}

static const char *stage_of(const struct smoke *s, const struct smoke_part *p,
        char buf[PATH_MAX + 64])
{
    const char *lib = s->options.lib != NULL ? s->options.lib : "the built-in library";

    snprintf(buf, PATH_MAX + 64, "%s(n=%d) in %s, %s", smoke_ways[p->way].call,
            s->options.ranks, smoke_ways[p->way].ranks, lib);
    return buf;
}

int smoke_enter(const struct smoke *s, const struct smoke_part *p)
{
    char stage[PATH_MAX + 64];

    if (!s->launches)
        return -1;
    return serving_enter("smoke", stage_of(s, p, stage), s->options.serving_anyway);
}

void smoke_leave(const struct smoke *s, const struct smoke_part *p)
{
    char stage[PATH_MAX + 64];

    if (s->launches)
        serving_end("smoke", stage_of(s, p, stage));
}

/* A problem that was found outweighs what could not be decided. */
static int worse(int a, int b)
{
    if (a == EXIT_PROBLEM || b == EXIT_PROBLEM)
        return EXIT_PROBLEM;
    return a > b ? a : b;
}

/* ncclCommInitAll gives each rank a device of its own. */
static bool has_devices(const struct smoke *s, struct smoke_part *p)
{
    int devices = s->place.facts.devices;

    if (!smoke_ways[p->way].init_all || devices == 0 || devices >= s->options.ranks)
        return true;
    snprintf(p->untried, sizeof(p->untried),
            "%d ranks need as many GPUs, and there %s %d", s->options.ranks,
            devices == 1 ? "is" : "are", devices);
    return false;
}

/* What the library's ranks said by how they ended, and what it left unsaid. */
static void judge(struct smoke_part *p, int code, const struct ranks_end *end)
{
    uint64_t wrong = smoke_wrong(p);

    p->code = code > EXIT_UNDECIDED ? EXIT_PROBLEM : code;
    snprintf(p->said, sizeof(p->said), "%s", end->said);
    if (p->said[0] != 0)
        return;
    if (code == EXIT_PROBLEM && wrong != 0) {
        snprintf(p->said, sizeof(p->said), "%llu values wrong",
                (unsigned long long)wrong);
    } else if (code != EXIT_FINE || !p->finished) {
        snprintf(p->said, sizeof(p->said),
                "the library ended the process of a rank, with status %d", code);
        p->code = cmd_error("smoke", EXIT_PROBLEM, "%s", p->said);
    }
}

static void run_ranks(struct smoke *s, struct smoke_part *p, struct ranks_end *end)
{
    struct smoke_run run = { .smoke = s, .part = p };
    struct ranks_plan plan = smoke_plan(s, p, end);
    int code = smoke_enter(s, p);

    if (code >= 0) {
        p->code = code;
        snprintf(p->untried, sizeof(p->untried), "refused, for the reason on stderr");
        return;
    }
    judge(p, ranks_run(&plan, smoke_body, &run), end);
    if (!end->left)
        smoke_leave(s, p);
}

static void start_cold(struct smoke *s, struct smoke_part *p,
        const struct ranks_end *end)
{
    if (p->connected && !end->killed)
        p->code = worse(p->code, smoke_cold_run(s, p));
    else
        p->cold.stopped = "the first communicators were of no use";
    smoke_print_cold(s, p);
}

/* One way; whether the next may follow. */
static bool run_part(struct smoke *s, struct smoke_part *p)
{
    struct ranks_end end = { 0 };

    if (has_devices(s, p))
        run_ranks(s, p, &end);
    else if (s->options.init_all)
        p->code = cmd_error("smoke", EXIT_UNDECIDED, "ncclCommInitAll: %s", p->untried);
    if (p->untried[0] != 0)
        smoke_print_untried(s, p);
    else if (s->options.cold > 0)
        start_cold(s, p, &end);
    return p->code != EXIT_UNDECIDED && !end.left;
}

static int run_parts(struct smoke *s)
{
    int code = EXIT_FINE;
    bool go_on = true;

    for (int i = 0; i < s->num_parts; i++) {
        struct smoke_part *p = &s->part[i];

        if (go_on)
            go_on = run_part(s, p);
        else
            snprintf(p->untried, sizeof(p->untried), "what came before was no use");
        code = worse(code, p->code);
    }
    return code;
}

static int smoke(struct smoke *s)
{
    const struct smoke_options *o = &s->options;
    int code = backend_choose("smoke", o->device, o->host_memory, &s->place);
    char *said = s->part[0].said;

    if (code >= 0)
        return code;
    check_fp8(backend_fp8(&s->place, o->ranks) == FP8_FNUZ);
    choose_ways(s);
    if (o->lib != NULL &&
            !library_find(o->lib, s->lib_path, said, sizeof(s->part[0].said))) {
        s->num_parts = 1;
        code = cmd_error("smoke", EXIT_UNDECIDED, "%s", said);
    } else {
        s->launches = s->place.facts.devices > 0 ||
                (o->lib != NULL && library_may_launch(s->lib_path));
        code = run_parts(s);
    }
    return smoke_print_end(s, code) ? code : EXIT_PROBLEM;
}

int cmd_smoke(int argc, char **argv)
{
    struct smoke_options o = { .ranks = 2, .timeout_s = 120 };
    struct smoke *s;
    int code = read_options(argc, argv, &o);

    if (code >= 0)
        return code;
    s = apart_memory(sizeof(*s));
    if (s == NULL)
        return cmd_error("smoke", EXIT_PROBLEM, "no memory for the report");
    s->options = o;
    code = smoke(s);
    apart_free(s, sizeof(*s));
    return code;
}
