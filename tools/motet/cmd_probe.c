/* SPDX-License-Identifier: Apache-2.0 */
/* motet probe: can these cards work together, and with which library. */
#include "cmd.h"
#include "doctor_model.h"
#include "probe_trial.h"
#include "text.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
static const char help[] =
        "usage: motet probe [OPTIONS]\n"
        "\n"
        "Tries each operation on each card, each pair and all cards, every time in fresh\n"
        "processes with a deadline, and checks the values. A table with a cell for each card:\n"
        "ok, or the stage at which it failed. Then what that decides.\n"
        "\n"
        "      --lib PATH         probe this library; again for more, side by side. nccl is\n"
        "                         NVIDIA's, rccl AMD's, ours the copy inside this command.\n"
        "                         Default: the one that `motet lib` chooses, and ours\n"
        "      --device KIND      cpu, cuda, hip, or auto: GPUs if there are any (default)\n"
        "  -n, --ranks N          the first N cards only; on CPUs N ranks (default 2)\n"
        "      --only LIST        only these operations: device, one_rank, init, all_reduce,\n"
        "                         broadcast, barrier, all_gather, reduce_scatter,\n"
        "                         send_0_to_1, send_1_to_0, send_both, send_ring\n"
        "  -T, --timeout S        deadline of each cell (default 25, at most 3600)\n"
        "      --model MODEL      a config.json, or hidden=N,layers=N,batch=N,dtype=bf16:\n"
        "                         measure what its token step costs\n"
        "      --host-memory      a library with code for GPUs takes host memory too\n"
        "      --gate-kernels     only the two-kernel test of AMD's hostcall, no library\n"
        "      --collect FILE     everything about this machine into one archive, no names\n"
        "      --serving-anyway   also if somebody else computes on a GPU of this host\n"
        "      --repeat           also what began earlier and did not come back\n"
        "      --json             the report as JSON\n"
        "  -h, --help             this text\n"
        "\n"
        "Exit status: 0 all cells ok, 1 some failed, 2 could not be decided, 64 usage.\n";
/* clang-format on */

enum {
    OPT_LIB = 256,
    OPT_DEVICE,
    OPT_ONLY,
    OPT_MODEL,
    OPT_HOST_MEMORY,
    OPT_GATE_KERNELS,
    OPT_COLLECT,
    OPT_SERVING_ANYWAY,
    OPT_REPEAT,
    OPT_JSON
};

static const struct option long_options[] = {
    { "lib", required_argument, NULL, OPT_LIB },
    { "device", required_argument, NULL, OPT_DEVICE },
    { "ranks", required_argument, NULL, 'n' },
    { "only", required_argument, NULL, OPT_ONLY },
    { "timeout", required_argument, NULL, 'T' },
    { "model", required_argument, NULL, OPT_MODEL },
    { "host-memory", no_argument, NULL, OPT_HOST_MEMORY },
    { "gate-kernels", no_argument, NULL, OPT_GATE_KERNELS },
    { "collect", required_argument, NULL, OPT_COLLECT },
    { "serving-anyway", no_argument, NULL, OPT_SERVING_ANYWAY },
    { "repeat", no_argument, NULL, OPT_REPEAT },
    { "json", no_argument, NULL, OPT_JSON },
    { "help", no_argument, NULL, 'h' },
    { NULL, 0, NULL, 0 },
};

static const char *name_at(size_t i, void *arg)
{
    (void)arg;
    return probe_operations[i].name;
}

/* Whether each word of a list is an operation; −1, or an exit code. */
static int check_only(const char *list)
{
    char word[64];

    for (const char *at = list; *at != 0; at += *at == ',') {
        size_t length = strcspn(at, ","), i = 0;
        const char *near;

        snprintf(word, sizeof(word), "%.*s", (int)(length < 63 ? length : 63), at);
        at += length;
        while (i < nprobe_operations && strcmp(word, probe_operations[i].name) != 0)
            i++;
        if (i < nprobe_operations)
            continue;
        near = text_nearest(word, name_at, NULL, nprobe_operations);
        return cmd_usage_error("probe", "--only: there is no operation '%s'%s%s%s",
                word, near != NULL ? "; is '" : "", near != NULL ? near : "",
                near != NULL ? "' meant?" : "");
    }
    return -1;
}

static int add_library(struct probe_options *o, const char *path)
{
    if (*path == 0)
        return cmd_usage_error("probe", "--lib is empty, need a path");
    if (o->nlibraries == PROBE_LIBRARIES_MAX)
        return cmd_usage_error("probe", "more than %d libraries", PROBE_LIBRARIES_MAX);
    o->libraries[o->nlibraries++] = path;
    return -1;
}

static int read_number(const char *option, const char *text, int max, int *out)
{
    if (text_to_small(text, 1, max, out))
        return -1;
    return cmd_usage_error("probe", "%s is '%s', need 1 to %d", option, text, max);
}

static int read_model(struct probe_options *o, const char *text)
{
    char why[256];

    if (!doctor_model(text, &o->model, why, sizeof(why)))
        return cmd_usage_error("probe", "--model: %s", why);
    if (o->model.hidden * o->model.batch * o->model.dtype_bytes > PROBE_STEP_BYTES_MAX)
        return cmd_usage_error("probe",
                "--model: an all_reduce of hidden × batch × dtype is of more than the "
                "%u MiB that are measured",
                PROBE_STEP_BYTES_MAX >> 20);
    return -1;
}

/* The gate uses no library, and all cards. */
static int check_gate(const struct probe_options *o)
{
    const struct {
        const char *name;
        bool given;
    } not_with[] = {
        { "--lib", o->nlibraries > 0 },
        { "-n", o->ranks != 0 },
        { "--only", o->only != NULL },
        { "--model", o->model.hidden > 0 },
        { "--host-memory", o->host_memory },
        { "--collect", o->collect != NULL },
    };

    for (size_t i = 0; o->gate_kernels && i < sizeof(not_with) / sizeof(*not_with); i++)
        if (not_with[i].given)
            return cmd_usage_error("probe", "--gate-kernels goes without %s",
                    not_with[i].name);
    return -1;
}

static int read_option(struct probe_options *o, int c, char **argv)
{
    int seconds = 0, code;

    switch (c) {
    case OPT_LIB: return add_library(o, optarg);
    case OPT_DEVICE: o->device = optarg; return -1;
    case 'n': return read_number("-n", optarg, PROBE_RANKS_MAX, &o->ranks);
    case OPT_ONLY: o->only = optarg; return check_only(optarg);
    case 'T':
        code = read_number("--timeout", optarg, 3600, &seconds);
        o->timeout_s = (unsigned)seconds;
        return code;
    case OPT_MODEL: return read_model(o, optarg);
    case OPT_HOST_MEMORY: o->host_memory = true; return -1;
    case OPT_GATE_KERNELS: o->gate_kernels = true; return -1;
    case OPT_COLLECT: o->collect = optarg; return -1;
    case OPT_SERVING_ANYWAY: o->anyway = true; return -1;
    case OPT_REPEAT: o->repeat = true; return -1;
    case OPT_JSON: o->json = true; return -1;
    case 'h': return cmd_help(help);
    default: return cmd_bad_option("probe", c, argv);
    }
}

static int run_probe(const struct probe_options *o)
{
    struct probe_report *report = calloc(1, sizeof(*report));
    bool written = true;
    int code;

    if (report == NULL)
        return cmd_error("probe", EXIT_UNDECIDED, "no memory for the report");
    code = probe_run(o, report);
    if (code < 0) {
        if (o->json)
            written = probe_print_json(report, stdout);
        else
            probe_print_text(report, stdout);
        code = probe_exit_status(report);
        probe_report_free(report);
    } else if (o->json && code != EXIT_USAGE) {
        written = probe_print_json(report,
                stdout); /* of nothing; stderr has the reason */
    }
    free(report);
    return written && fflush(stdout) == 0 ? code : EXIT_UNDECIDED;
}

int cmd_probe(int argc, char **argv)
{
    struct probe_options o = { .timeout_s = 25 };
    int c, code;

    optind = 1;
    while ((c = getopt_long(argc, argv, ":n:T:h", long_options, NULL)) != -1) {
        code = read_option(&o, c, argv);
        if (code >= 0)
            return code;
    }
    if (optind < argc)
        return cmd_usage_error("probe", "unexpected argument '%s'", argv[optind]);
    code = check_gate(&o);
    if (code >= 0)
        return code;
    if (o.collect != NULL)
        return probe_collect(&o);
    return o.gate_kernels ? probe_gate(&o) : run_probe(&o);
}
