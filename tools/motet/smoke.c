/* SPDX-License-Identifier: Apache-2.0 */
/*
 * motet smoke: do ranks on this machine exchange data, correctly and about how fast.
 *
 * First all_reduce of four sizes, timed call by call (the slowest rank's time of each
 * of 20 calls; median, p10 and p90 of those). Then every collective with every type and
 * operator, in place and not, at three odd counts. Every value is checked against a
 * float64 reference, and the ranks' results against each other. PASS or FAIL comes last.
 */
#include "cmd.h"
#include "json.h"
#include "ranks.h"
#include "stats.h"
#include "term.h"
#include "text.h"
#include "work.h"

#include "base/clock.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ITERATIONS 20
#define WARM_UPS   5
#define MAX_BYTES  (512 * 1024)

static const size_t sizes[] = { 4 * 1024, 32 * 1024, 128 * 1024, MAX_BYTES };
#define NSIZES (sizeof(sizes) / sizeof(*sizes))

/* Counts of the check: one element, and two that fill no whole vector, chunk or slot. */
static const size_t check_counts[] = { 1, 17, 4099 };
#define NCOUNTS (sizeof(check_counts) / sizeof(*check_counts))

/* clang-format off */
static const char help[] =
        "usage: motet smoke [-n N] [OPTIONS]\n"
        "\n"
        "Exchange real data between N ranks and check every value: all_reduce of 4 KB to\n"
        "512 KB with times, then every collective, type and operator. PASS or FAIL is the\n"
        "last line.\n"
        "\n"
        "  -n, --ranks N       number of ranks, 1 to 128 (default 2)\n"
        "      --threads       ranks are threads of one process instead of processes\n"
        "      --lib PATH      try this library with the NCCL ABI, not the built-in motet;\n"
        "                      nccl is NVIDIA's, wherever it is\n"
        "      --host-memory   the library of --lib takes host memory although it is not\n"
        "                      motet\n"
        "      --device KIND   cpu, cuda, hip, or auto: GPUs if there are any (default)\n"
        "  -T, --timeout S     give up if nothing advances for S seconds (default 120,\n"
        "                      0 never)\n"
        "      --json          the report as JSON\n"
        "      --help          this text\n"
        "\n"
        "Exit status: 0 PASS, 1 FAIL, 2 could not be decided, 64 usage.\n";
/* clang-format on */

struct options {
    int ranks;
    bool threads, json, host_memory;
    const char *lib, *device;
    unsigned timeout_s;
};

struct timing {
    size_t bytes;
    double median_us, p10_us, p90_us;
    uint64_t wrong;
};

struct verdict {
    unsigned cases;
    uint64_t wrong;
};

/* Lives in memory that the ranks share with the parent, which reads `reported`. */
struct report {
    struct options options;
    struct backend_choice place;
    struct timing timing[NSIZES];
    struct verdict verdict[16]; /* by index in `collectives` */
    double init_ms;
    bool reported; /* rank 0 has printed its part */
};

_Static_assert(sizeof(((struct report *)0)->verdict) / sizeof(struct verdict) >= 11,
        "a verdict for each collective");

/* ----------------------------------------------------------------- printing */

static void print_devices(const struct report *r)
{
    const struct backend_facts *f = &r->place.facts;
    char text[64];

    if (f->devices == 0)
        return;
    printf("driver:  %s, %s\n", f->driver_path, f->driver_text);
    for (int d = 0; d < f->devices && d < r->options.ranks && d < BACKEND_DEVICES_MAX;
            d++)
        printf("device:  %d %s %s %s\n", d, f->device[d].name, f->device[d].target,
                f->device[d].identity);
    if (*backend_sharing(&r->place, r->options.ranks, text, sizeof(text)) != 0)
        printf("         %s\n", text);
}

static void print_head(const struct report *r, const struct library *lib)
{
    char version[24];

    printf("motet smoke: ranks=%d (%s) iters=%d\n", r->options.ranks,
            r->options.threads ? "threads" : "processes", ITERATIONS);
    printf("library: %s%s\n", lib->path, lib->linked ? " (built in)" : "");
    printf("         version %s, sha256 %s\n",
            library_version_text(lib->version, version, sizeof(version)), lib->sha256);
    print_devices(r);
    printf("ncclCommInitRank(n=%d) OK in %.1f ms, version = %d\n\n", r->options.ranks,
            r->init_ms, lib->version);
    printf("%-14s%13s%13s%13s%12s\n", "size", "median µs", "p10 µs", "p90 µs",
            "BW GB/s");
    fflush(stdout);
}

static void print_timing(const struct timing *t)
{
    char size[24];

    term_progress_end();
    printf("%-14s%12.1f%12.1f%12.1f%12.2f",
            text_from_bytes(t->bytes, size, sizeof(size)), t->median_us, t->p10_us,
            t->p90_us, t->median_us > 0 ? (double)t->bytes / t->median_us / 1e3 : 0);
    if (t->wrong != 0)
        printf("   %llu values wrong", (unsigned long long)t->wrong);
    printf("\n");
    fflush(stdout);
}

static void print_verdict(const struct collective *c, const struct verdict *v)
{
    term_progress_end();
    if (v->cases == 0)
        printf("checked  %-16s needs 2, 4, 8 … ranks\n", c->name);
    else if (v->wrong == 0)
        printf("checked  %-16s %4u cases  ok\n", c->name, v->cases);
    else
        printf("checked  %-16s %4u cases  %llu values wrong\n", c->name, v->cases,
                (unsigned long long)v->wrong);
    fflush(stdout);
}

static uint64_t total_wrong(const struct report *r)
{
    uint64_t wrong = 0;

    for (size_t i = 0; i < NSIZES; i++)
        wrong += r->timing[i].wrong;
    for (size_t i = 0; i < ncollectives; i++)
        wrong += r->verdict[i].wrong;
    return wrong;
}

static void print_json(const struct report *r, const struct library *lib)
{
    struct json j;

    json_start(&j, stdout);
    json_object(&j, NULL);
    json_object(&j, "library");
    json_string(&j, "path", lib->path);
    json_int(&j, "version", lib->version);
    json_string(&j, "sha256", lib->sha256);
    json_bool(&j, "built_in", lib->linked);
    json_end(&j);
    json_string(&j, "device", r->place.backend->name);
    json_array(&j, "devices");
    for (int d = 0; d < r->place.facts.devices && d < BACKEND_DEVICES_MAX; d++) {
        json_object(&j, NULL);
        json_string(&j, "name", r->place.facts.device[d].name);
        json_string(&j, "identity", r->place.facts.device[d].identity);
        json_string(&j, "target", r->place.facts.device[d].target);
        json_end(&j);
    }
    json_end(&j);
    json_int(&j, "ranks", r->options.ranks);
    json_string(&j, "ranks_are", r->options.threads ? "threads" : "processes");
    json_int(&j, "iterations", ITERATIONS);
    json_double(&j, "init_ms", r->init_ms);
    json_array(&j, "sizes");
    for (size_t i = 0; i < NSIZES; i++) {
        const struct timing *t = &r->timing[i];

        json_object(&j, NULL);
        json_uint(&j, "bytes", t->bytes);
        json_double(&j, "median_us", t->median_us);
        json_double(&j, "p10_us", t->p10_us);
        json_double(&j, "p90_us", t->p90_us);
        json_double(&j, "gb_per_s",
                t->median_us > 0 ? (double)t->bytes / t->median_us / 1e3 : 0);
        json_uint(&j, "wrong", t->wrong);
        json_end(&j);
    }
    json_end(&j);
    json_array(&j, "collectives");
    for (size_t i = 0; i < ncollectives; i++) {
        json_object(&j, NULL);
        json_string(&j, "name", collectives[i].name);
        json_uint(&j, "cases", r->verdict[i].cases);
        json_uint(&j, "wrong", r->verdict[i].wrong);
        json_end(&j);
    }
    json_end(&j);
    json_bool(&j, "pass", total_wrong(r) == 0);
    json_end(&j);
    json_finish(&j);
}

/* ------------------------------------------------------------------ running */

static int time_calls(struct work *w, double *us)
{
    for (int i = -WARM_UPS; i < ITERATIONS; i++) {
        double all[RANKS_MAX], mine[1];
        uint64_t start;
        int code;

        if (!ranks_barrier(w->ranks))
            return EXIT_PROBLEM;
        start = motet_now_ns();
        code = work_issue(w, 1);
        if (code == EXIT_FINE)
            code = work_wait(w);
        mine[0] = (double)(motet_now_ns() - start) / 1e3;
        if (code != EXIT_FINE)
            return code;
        if (!ranks_gather(w->ranks, mine, all))
            return EXIT_PROBLEM;
        if (i < 0)
            continue;
        us[i] = 0;
        for (int r = 0; r < w->ranks->nranks; r++)
            us[i] = all[r] > us[i] ? all[r] : us[i];
    }
    return EXIT_FINE;
}

static int time_size(struct work *w, size_t bytes, struct timing *t)
{
    double us[ITERATIONS];
    int code;

    w->layout = w->collective->layout(bytes / sizeof(float), sizeof(float),
            w->ranks->nranks);
    code = work_prepare(w);
    if (code == EXIT_FINE)
        code = time_calls(w, us);
    if (code != EXIT_FINE)
        return code;
    stats_sort(us, ITERATIONS);
    t->bytes = bytes;
    t->median_us = stats_percentile(us, ITERATIONS, 50);
    t->p10_us = stats_percentile(us, ITERATIONS, 10);
    t->p90_us = stats_percentile(us, ITERATIONS, 90);
    return work_wrong_of_all(w, &t->wrong);
}

/* One collective, type, operator, count and placement. */
static int check_case(struct work *w, size_t count, bool in_place, uint64_t *wrong)
{
    uint64_t found = 0;
    int nranks = w->ranks->nranks, code;
    bool parts = w->collective->layout(16, 16, 2).param != 16;

    /* element size 16: the layout then rounds nothing, so that odd counts stay odd */
    w->layout =
            w->collective->layout(parts ? count * (size_t)nranks : count, 16, nranks);
    w->in_place = in_place;
    w->root = (int)(count % (size_t)nranks);
    w->check.seed = (uint32_t)count;
    code = work_prepare(w);
    if (code == EXIT_FINE)
        code = work_issue(w, 1);
    if (code == EXIT_FINE)
        code = work_wait(w);
    if (code == EXIT_FINE)
        code = work_wrong_of_all(w, &found);
    *wrong += found;
    return code;
}

static int check_type_and_op(struct work *w, motet_type type, motet_redop redop,
        struct verdict *v)
{
    int code = work_set_op(w, type, redop);

    for (size_t i = 0; i < NCOUNTS && code == EXIT_FINE; i++) {
        code = check_case(w, check_counts[i], false, &v->wrong);
        v->cases++;
        if (code != EXIT_FINE || !w->collective->checks_in_place)
            continue;
        code = check_case(w, check_counts[i], true, &v->wrong);
        v->cases++;
    }
    work_drop_op(w);
    return code;
}

static int check_collective(struct work *w, const struct collective *c,
        enum backend_fp8 fp8, struct verdict *v)
{
    int nranks = w->ranks->nranks, code = EXIT_FINE;

    w->collective = c;
    if (c->power_of_two && (nranks & (nranks - 1)) != 0)
        return EXIT_FINE;
    for (int type = 0; type < MOTET_NUM_TYPES && code == EXIT_FINE; type++) {
        if (c->reduces && work_has_no_sum(w, (motet_type)type, fp8))
            continue;
        if (ranks_prints(w->ranks))
            term_progress("checking %s, %s", c->name, motet_type_table[type].name);
        for (int op = 0; op < (c->reduces ? (int)MOTET_NUM_REDOPS : 1); op++) {
            code = check_type_and_op(w, (motet_type)type, (motet_redop)op, v);
            if (code != EXIT_FINE)
                break;
        }
    }
    return code;
}

/* Everything that the ranks do together; rank 0's thread fills the report. */
static int measure_and_check(struct work *w, struct report *r)
{
    bool prints = ranks_prints(w->ranks);
    enum backend_fp8 fp8 = backend_fp8(&r->place, r->options.ranks);
    struct report own = { .options = r->options };
    int code;

    w->collective = collective_find("all_reduce");
    code = work_set_op(w, MOTET_FLOAT32, MOTET_SUM);
    for (size_t i = 0; i < NSIZES && code == EXIT_FINE; i++) {
        code = time_size(w, sizes[i], &own.timing[i]);
        if (code == EXIT_FINE && prints) {
            r->timing[i] = own.timing[i];
            if (!r->options.json)
                print_timing(&r->timing[i]);
        }
    }
    if (prints && !r->options.json && code == EXIT_FINE)
        printf("\n");
    for (size_t i = 0; i < ncollectives && code == EXIT_FINE; i++) {
        code = check_collective(w, &collectives[i], fp8, &own.verdict[i]);
        if (code == EXIT_FINE && prints) {
            r->verdict[i] = own.verdict[i];
            if (!r->options.json)
                print_verdict(&collectives[i], &r->verdict[i]);
        }
    }
    if (code == EXIT_FINE && total_wrong(&own) != 0)
        code = EXIT_PROBLEM;
    return code;
}

static int run_ranks(struct ranks *self, struct report *r, const struct library *lib)
{
    size_t bytes = MAX_BYTES;
    struct buffers buffers = { 0 };
    struct work work;
    uint64_t start = motet_now_ns();
    int code;

    if (bytes < check_counts[NCOUNTS - 1] * 8 * (size_t)self->nranks)
        bytes = check_counts[NCOUNTS - 1] * 8 * (size_t)self->nranks;
    code = work_open(&work, self, lib, NULL, false);
    if (code == EXIT_FINE)
        code = buffers_alloc(&buffers, self, NULL, 1, bytes, 0);
    if (code == EXIT_FINE) {
        work.buffers = &buffers;
        if (ranks_prints(self)) {
            r->init_ms = (double)(motet_now_ns() - start) / 1e6;
            if (!r->options.json)
                print_head(r, lib);
        }
        code = measure_and_check(&work, r);
    }
    work_close(&work);
    if (buffers.base != NULL)
        buffers_free(&buffers); /* last: after a failure calls may still be under way */
    return code;
}

static int rank_body(struct ranks *self, void *arg)
{
    struct report *r = arg;
    struct library lib;
    char path[PATH_MAX], why[PATH_MAX + 256];
    int code;

    if (r->options.lib != NULL && !library_find(r->options.lib, path, why, sizeof(why)))
        return ranks_fail(self, EXIT_UNDECIDED, "%s", why);
    if (library_open(&lib, r->options.lib != NULL ? path : NULL, why, sizeof(why)) != 0)
        return ranks_fail(self, EXIT_UNDECIDED, "%s", why);
    if (!lib.motet && !r->options.host_memory && !self->backend->mirrored)
        return ranks_fail(self, EXIT_UNDECIDED,
                "'%s' is not motet, so its ranks want GPU memory, and the ranks are on "
                "CPUs here; --host-memory if it takes host memory",
                lib.path);
    code = run_ranks(self, r, &lib);
    if (ranks_prints(self)) {
        term_progress_end();
        if (r->options.json && (code == EXIT_FINE || total_wrong(r) != 0)) {
            print_json(r, &lib);
            r->reported = true;
        }
        fflush(stdout);
    }
    /* not closed: another thread of this process may still be inside it */
    return code;
}

/* ------------------------------------------------------------------ options */

enum { OPT_THREADS = 256, OPT_LIB, OPT_HOST_MEMORY, OPT_DEVICE, OPT_JSON, OPT_HELP };

static const struct option long_options[] = {
    { "ranks", required_argument, NULL, 'n' },
    { "threads", no_argument, NULL, OPT_THREADS },
    { "lib", required_argument, NULL, OPT_LIB },
    { "host-memory", no_argument, NULL, OPT_HOST_MEMORY },
    { "device", required_argument, NULL, OPT_DEVICE },
    { "timeout", required_argument, NULL, 'T' },
    { "json", no_argument, NULL, OPT_JSON },
    { "help", no_argument, NULL, OPT_HELP },
    { NULL, 0, NULL, 0 },
};

/* −1: go on. */
static int read_options(int argc, char **argv, struct options *o)
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
        case OPT_THREADS: o->threads = true; break;
        case OPT_LIB: o->lib = optarg; break;
        case OPT_HOST_MEMORY: o->host_memory = true; break;
        case OPT_DEVICE: o->device = optarg; break;
        case OPT_JSON: o->json = true; break;
        case 'h':
        case OPT_HELP: return cmd_help(help);
        default: return cmd_bad_option("smoke", c, argv);
        }
    }
    if (optind < argc)
        return cmd_usage_error("smoke", "unexpected argument '%s'", argv[optind]);
    return -1;
}

static void print_verdict_line(const struct report *r, int code)
{
    struct json j;

    if (!r->options.json) {
        printf("\n%s\n", code == EXIT_FINE ? "PASS" : "FAIL");
        return;
    }
    if (r->reported)
        return;
    json_start(&j, stdout);
    json_object(&j, NULL);
    json_bool(&j, "pass", false);
    json_string(&j, "error", "the ranks ended before they could report; see stderr");
    json_finish(&j);
}

int cmd_smoke(int argc, char **argv)
{
    struct options o = { .ranks = 2, .timeout_s = 120 };
    struct ranks_plan plan = { .command = "smoke", .per_thread = 1 };
    struct report *r;
    int code = read_options(argc, argv, &o);

    if (code >= 0)
        return code;
    r = mmap(NULL, sizeof(*r), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
            0);
    if (r == MAP_FAILED)
        return cmd_error("smoke", EXIT_PROBLEM, "no memory for the report");
    r->options = o;
    code = backend_choose("smoke", o.device, o.host_memory, &r->place);
    if (code >= 0) {
        munmap(r, sizeof(*r));
        return code;
    }
    check_fp8(backend_fp8(&r->place, o.ranks) == FP8_FNUZ);
    plan.place = &r->place;
    plan.processes = o.threads ? 1 : o.ranks;
    plan.threads = o.threads ? o.ranks : 1;
    plan.stall_s = o.timeout_s;
    code = ranks_run(&plan, rank_body, r);
    print_verdict_line(r, code);
    munmap(r, sizeof(*r));
    return fflush(stdout) == 0 ? code : EXIT_PROBLEM;
}
