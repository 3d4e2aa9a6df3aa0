/* SPDX-License-Identifier: Apache-2.0 */
/*
 * motet tune, options and order of things: see tune.h. Each measurement is a run of motet
 * bench in a process of its own, which lets the library's own choice and a forced protocol
 * take turns.
 */
#include "tune.h"

#include "backend.h"
#include "cmd.h"
#include "json.h"
#include "term.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* clang-format off */
static const char help[] =
        "usage: motet tune [OPTIONS]\n"
        "\n"
        "Measure on this machine's GPUs what each protocol takes for each collective and\n"
        "size, beside what the library chooses by itself, and print the MOTET_PLAN that\n"
        "takes the fastest. Then measure with that plan, and say what it gains.\n"
        "\n"
        "  -np, --ranks N      ranks, a GPU for each (default: all GPUs)\n"
        "      --device KIND   cuda, hip, or auto: what there is (default)\n"
        "  -b, --minbytes SIZE smallest size, as bench counts it (default 1K)\n"
        "  -e, --maxbytes SIZE largest (default 64M)\n"
        "  -f, --stepfactor N  factor between sizes (default 4)\n"
        "      --timing KIND   graph (default) or eager\n"
        "      --rounds N      turns of each figure (default 7)\n"
        "      --json          all figures as JSON\n"
        "      --serving-anyway\n"
        "                      also while other processes compute on the host's GPUs\n"
        "      --help          this text\n"
        "\n"
        "The plan holds for so many ranks on this machine. Exit status: 0 fine, 1 a\n"
        "measurement failed, 2 there are no GPUs for it, 64 usage.\n";
/* clang-format on */

struct options {
    int ranks; /* 0: as many as there are GPUs */
    const char *device, *min_bytes, *max_bytes;
    int factor, rounds;
    bool eager, json, serving_anyway;
};

#define PLAN_BYTES 2048
#define FORCE_PLAN "MOTET_PLAN="

/* ---- options ---- */

enum {
    OPT_RANKS = 256,
    OPT_DEVICE,
    OPT_TIMING,
    OPT_ROUNDS,
    OPT_JSON,
    OPT_SERVING_ANYWAY,
    OPT_HELP
};

static const struct option long_options[] = {
    { "ranks", required_argument, NULL, OPT_RANKS },
    { "np", required_argument, NULL, OPT_RANKS },
    { "device", required_argument, NULL, OPT_DEVICE },
    { "minbytes", required_argument, NULL, 'b' },
    { "maxbytes", required_argument, NULL, 'e' },
    { "stepfactor", required_argument, NULL, 'f' },
    { "timing", required_argument, NULL, OPT_TIMING },
    { "rounds", required_argument, NULL, OPT_ROUNDS },
    { "json", no_argument, NULL, OPT_JSON },
    { "serving-anyway", no_argument, NULL, OPT_SERVING_ANYWAY },
    { "help", no_argument, NULL, OPT_HELP },
    { NULL, 0, NULL, 0 },
};

static int take_size(const char *name, const char **out)
{
    uint64_t bytes;

    *out = optarg;
    if (text_to_bytes(optarg, &bytes) && bytes >= 4)
        return -1;
    return cmd_usage_error("tune", "%s is '%s', need 4 bytes at least, as in 64K", name,
            optarg);
}

static int take_timing(bool *eager)
{
    *eager = strcmp(optarg, "eager") == 0;
    if (*eager || strcmp(optarg, "graph") == 0)
        return -1;
    return cmd_usage_error("tune", "--timing is '%s', need graph or eager", optarg);
}

static int take(struct options *o, int c, char **argv)
{
    switch (c) {
    case OPT_RANKS:
        return cmd_take_number("tune", "--ranks", optarg, 2, TUNE_RANKS_MAX, &o->ranks);
    case 'b': return take_size("-b", &o->min_bytes);
    case 'e': return take_size("-e", &o->max_bytes);
    case 'f': return cmd_take_number("tune", "-f", optarg, 2, 1024, &o->factor);
    case OPT_ROUNDS:
        return cmd_take_number("tune", "--rounds", optarg, 1, 1000, &o->rounds);
    case OPT_TIMING: return take_timing(&o->eager);
    case OPT_DEVICE: o->device = optarg; return -1;
    case OPT_JSON: o->json = true; return -1;
    case OPT_SERVING_ANYWAY: o->serving_anyway = true; return -1;
    case 'h':
    case OPT_HELP: return cmd_help(help);
    default: return cmd_bad_option("tune", c, argv);
    }
}

/* −1: go on. nccl-tests' -np is getopt's --np. */
static int read_options(int argc, char **argv, struct options *o)
{
    int c, code = -1;

    optind = 1;
    while (code < 0 &&
            (c = getopt_long_only(argc, argv, ":b:e:f:h", long_options, NULL)) != -1)
        code = take(o, c, argv);
    if (code < 0 && optind < argc)
        return cmd_usage_error("tune", "'%s' is not an option", argv[optind]);
    return code;
}

/* ---- measuring ---- */

/* The words of a run of motet bench; what they point to must live as long. */
struct words {
    const char *argv[48];
    int count;
    char ranks[16], factor[16], rounds[16], csv[32], env[PLAN_BYTES + 32];
};

static void add(struct words *w, const char *word)
{
    w->argv[w->count++] = word;
    w->argv[w->count] = NULL;
}

/* bench KIND... with what the second library is forced to: of a protocol, those it serves. */
static bool fill(struct words *w, const struct options *o, int protocol,
        const struct tune_kind *kinds, int csv)
{
    const char *const fixed[] = { "--vs", "self", "-c", "0", "-O", "1", "-w", "2" };
    bool some = false;

    add(w, "motet");
    add(w, "bench");
    for (const struct tune_kind *k = kinds; k->bench != NULL; k++)
        if (protocol == TUNE_OWN ||
                ((o->eager || !k->eager_only) && k->protocols & 1u << protocol)) {
            add(w, k->bench);
            some = true;
        }
    snprintf(w->ranks, sizeof(w->ranks), "%d", o->ranks);
    snprintf(w->factor, sizeof(w->factor), "%d", o->factor);
    snprintf(w->rounds, sizeof(w->rounds), "%d", o->rounds);
    snprintf(w->csv, sizeof(w->csv), "/proc/self/fd/%d", csv);
    const char *const pairs[] = { "--ranks", w->ranks, "-b", o->min_bytes, "-e",
        o->max_bytes, "-f", w->factor, "--rounds", w->rounds, "--timing",
        o->eager ? "eager" : "graph", "--device", o->device, "--csv", w->csv,
        "--vs-env", w->env };
    for (size_t i = 0; i < sizeof(fixed) / sizeof(*fixed); i++)
        add(w, fixed[i]);
    for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++)
        add(w, pairs[i]);
    if (o->serving_anyway)
        add(w, "--serving-anyway");
    return some;
}

/* In the child. */
static void become_bench(const struct words *w)
{
    int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);

    unsetenv("NCCL_PROTO");
    unsetenv("MOTET_PLAN");
    if (nothing >= 0)
        (void)dup2(nothing, STDOUT_FILENO);
    execv("/proc/self/exe", (char *const *)w->argv);
    _exit(127);
}

/* Its exit status; bench has deadlines of its own. */
static int run_bench(const struct words *w)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0)
        become_bench(w);
    if (pid < 0)
        return cmd_error("tune", EXIT_PROBLEM, "start motet bench: %s",
                strerror(errno));
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFEXITED(status) && WEXITSTATUS(status) != 127)
        return WEXITSTATUS(status);
    return cmd_error("tune", EXIT_PROBLEM, "motet bench did not end by itself");
}

/* The library's choice and @p forced ("NAME=VALUE") in turns; TUNE_OWN: a plan, of all kinds. */
static int measure(const struct options *o, int protocol, const char *forced,
        struct tune_kind *kinds)
{
    struct words w = { .count = 0 };
    FILE *csv = tmpfile();
    int code;

    if (csv == NULL)
        return cmd_error("tune", EXIT_PROBLEM, "make a temporary file: %s",
                strerror(errno));
    snprintf(w.env, sizeof(w.env), "%s", forced);
    if (!fill(&w, o, protocol, kinds, fileno(csv))) {
        (void)fclose(csv);
        return EXIT_FINE;
    }
    term_progress("measuring %s", forced);
    code = run_bench(&w);
    term_progress_end();
    rewind(csv);
    if (code == EXIT_FINE &&
            !tune_read(csv, protocol == TUNE_OWN ? TUNE_PLAN : protocol, kinds))
        code = cmd_error("tune", EXIT_PROBLEM,
                "what motet bench wrote is no table, or has more than %d sizes",
                TUNE_SIZES_MAX);
    (void)fclose(csv);
    return code;
}

static int measure_all(const struct options *o, struct tune_kind *kinds)
{
    int code = EXIT_FINE;

    for (int p = 0; p < TUNE_PROTOCOLS && code == EXIT_FINE; p++) {
        char forced[64];

        snprintf(forced, sizeof(forced), "NCCL_PROTO=%s", tune_protocols[p]);
        code = measure(o, p, forced, kinds);
    }
    return code;
}

/* ---- telling ---- */

static const char *choice_name(const struct tune_cell *cell)
{
    return cell->choice == TUNE_OWN ? "-" : tune_protocols[cell->choice];
}

/* The library's own time: that beside the chosen protocol, else of any that was tried. */
static double own_us(const struct tune_cell *cell)
{
    if (cell->choice != TUNE_OWN)
        return cell->by[cell->choice].own_us;
    for (int p = 0; p < TUNE_PROTOCOLS; p++)
        if (cell->by[p].measured)
            return cell->by[p].own_us;
    return 0;
}

static void print_table(const struct options *o, const struct tune_kind *kinds)
{
    printf("# %d ranks, %s, microseconds; '-' where the library's own choice stays\n",
            o->ranks, o->eager ? "eager" : "graph");
    printf("%-15s %12s %10s", "collective", "bytes", "own");
    for (int p = 0; p < TUNE_PROTOCOLS; p++)
        printf(" %10s", tune_protocols[p]);
    printf("  %-8s %6s\n", "choice", "gain");
    for (const struct tune_kind *k = kinds; k->bench != NULL; k++)
        for (size_t i = 0; i < k->ncells; i++) {
            const struct tune_cell *cell = &k->cells[i];

            printf("%-15s %12" PRIu64 " %10.2f", k->plan, cell->bytes, own_us(cell));
            for (int p = 0; p < TUNE_PROTOCOLS; p++)
                if (cell->by[p].measured)
                    printf(" %10.2f", cell->by[p].forced_us);
                else
                    printf(" %10s", "");
            printf("  %-8s %6.2f\n", choice_name(cell), cell->gain);
        }
}

/* What the plan gained where it said something. */
static void print_again(const struct tune_kind *kinds, const struct tune_kind *again)
{
    for (const struct tune_kind *k = kinds; k->bench != NULL; k++, again++)
        for (size_t i = 0; i < again->ncells && i < k->ncells; i++) {
            const struct tune_pair *pair = &again->cells[i].by[TUNE_PLAN];

            if (k->cells[i].choice != TUNE_OWN)
                printf("%-15s %12" PRIu64 " %10.2f %10.2f  %-8s %6.2f%s\n", k->plan,
                        k->cells[i].bytes, pair->own_us, pair->forced_us,
                        choice_name(&k->cells[i]), pair->own_us / pair->forced_us,
                        pair->forced_us > pair->own_us ? "  slower" : "");
        }
}

static void print_plan(const char *plan, const struct tune_kind *kinds,
        const struct tune_kind *again)
{
    if (*plan == '\0') {
        printf("\nNo protocol is faster than the library's own choice by more than "
               "the spread: no MOTET_PLAN is needed.\n");
        return;
    }
    printf("\n# measured again, with the plan\n%-15s %12s %10s %10s  %-8s %6s\n",
            "collective", "bytes", "own", "plan", "choice", "gain");
    print_again(kinds, again);
    printf("\nFor the environment of all ranks, or a line of ~/.nccl.conf:\n\n%s%s\n",
            FORCE_PLAN, plan);
}

static void write_cell(struct json *j, const struct tune_cell *cell,
        const struct tune_cell *again)
{
    json_object(j, NULL);
    json_uint(j, "bytes", cell->bytes);
    json_double(j, "own_us", own_us(cell));
    for (int p = 0; p < TUNE_PROTOCOLS; p++)
        if (cell->by[p].measured)
            json_double(j, tune_protocols[p], cell->by[p].forced_us);
    json_string(j, "choice",
            cell->choice == TUNE_OWN ? NULL : tune_protocols[cell->choice]);
    json_double(j, "gain", cell->gain);
    if (cell->choice != TUNE_OWN)
        json_double(j, "gain_with_plan",
                again->by[TUNE_PLAN].own_us / again->by[TUNE_PLAN].forced_us);
    json_end(j);
}

static int write_json(const struct options *o, const char *plan,
        const struct tune_kind *kinds, const struct tune_kind *again)
{
    struct json j;

    json_start(&j, stdout);
    json_object(&j, NULL);
    json_int(&j, "ranks", o->ranks);
    json_string(&j, "timing", o->eager ? "eager" : "graph");
    json_string(&j, "plan", plan);
    json_array(&j, "collectives");
    for (const struct tune_kind *k = kinds; k->bench != NULL; k++, again++) {
        json_object(&j, NULL);
        json_string(&j, "name", k->plan);
        json_array(&j, "sizes");
        for (size_t i = 0; i < k->ncells; i++)
            write_cell(&j, &k->cells[i], &again->cells[i]);
        json_end(&j);
        json_end(&j);
    }
    json_end(&j);
    json_end(&j);
    return json_finish(&j) ? EXIT_FINE : EXIT_PROBLEM;
}

/* ---- the command ---- */

/* GPUs for all ranks. −1: go on. */
static int find_devices(struct options *o)
{
    struct backend_choice place;
    int code = backend_choose("tune", o->device, false, &place);

    if (code >= 0)
        return code;
    if (place.facts.devices == 0)
        return cmd_error("tune", EXIT_UNDECIDED,
                "there is no GPU here: plans are for GPUs");
    o->device = place.backend->name;
    if (o->ranks == 0)
        o->ranks = place.facts.devices;
    if (o->ranks < 2 || o->ranks > place.facts.devices)
        return cmd_error("tune", EXIT_UNDECIDED,
                "%d GPUs are here: need one for each rank, and two ranks at least",
                place.facts.devices);
    return -1;
}

int cmd_tune(int argc, char **argv)
{
    struct options o = { .device = "auto",
        .min_bytes = "1K",
        .max_bytes = "64M",
        .factor = 4,
        .rounds = 7 };
    static struct tune_kind kinds[TUNE_KINDS_MAX], again[TUNE_KINDS_MAX];
    char plan[PLAN_BYTES], forced[PLAN_BYTES + sizeof(FORCE_PLAN)];
    int code = read_options(argc, argv, &o);

    if (code < 0)
        code = find_devices(&o);
    if (code >= 0)
        return code;
    tune_begin(kinds);
    tune_begin(again);
    code = measure_all(&o, kinds);
    if (code != EXIT_FINE)
        return code;
    tune_choose(kinds);
    tune_plan(kinds, plan, sizeof(plan));
    snprintf(forced, sizeof(forced), FORCE_PLAN "%s", plan);
    if (*plan != '\0')
        code = measure(&o, TUNE_OWN, forced, again);
    if (code != EXIT_FINE)
        return code;
    if (o.json)
        return write_json(&o, plan, kinds, again);
    print_table(&o, kinds);
    print_plan(plan, kinds, again);
    return EXIT_FINE;
}
