/* SPDX-License-Identifier: Apache-2.0 */
/* motet doctor: what is wrong with this machine, or with what somebody pasted. */
#include "ask_host.h"
#include "cmd.h"
#include "doctor_diff.h"
#include "doctor_json.h"
#include "doctor_live.h"
#include "doctor_model.h"
#include "input.h"
#include "report.h"
#include "run_command.h"
#include "term.h"
#include "text.h"
#include "vm.h"

#include <errno.h>
#include <getopt.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
        "usage: motet doctor [--json] [--model M]\n"
        "       motet doctor [--json] [--model M] --read PATH...\n"
        "       motet doctor [--json] [--timeout S] -- COMMAND [ARGUMENT...]\n"
        "       motet doctor [--json] --host NAME\n"
        "       motet doctor [--read PATH...] --vm ID\n"
        "       motet doctor --collect FILE.tar [--keep-names]\n"
        "       motet doctor [--json] --diff A B\n"
        "       motet doctor --explain CODE | --list\n"
        "\n"
        "Says the one cause, the thing at fault and the fix: of this machine, or of "
        "what\n"
        "somebody collected or pasted. Launches nothing on a GPU and changes nothing;\n"
        "only --vm resets a GPU that waits for a guest, to ask VFIO of it.\n"
        "\n"
        "  --read PATH...   files, folders, tar archives, - for standard input, "
        "instead\n"
        "                   of this machine\n"
        "  -- COMMAND ...   run it with AMD_LOG_LEVEL=3 and NCCL_DEBUG=INFO, then "
        "judge\n"
        "                   what it left together with this machine\n"
        "  --timeout S      end the command after S seconds (default: never)\n"
        "  --host NAME      is that neighbour off, or its network dead, or its kernel "
        "hung\n"
        "  --vm ID          will the guest see AtomicOps, why, and the line to write\n"
        "                   instead; all guests are in the report anyway. As root it "
        "opens\n"
        "                   the GPUs that wait for a guest and have a reset of their "
        "own\n"
        "                   (FLR), which resets them as starting the guest does\n"
        "  --model M        hidden=N,layers=N[,batch=N][,dtype=bf16] or a "
        "config.json:\n"
        "                   what the ways out mean for one token\n"
        "  --collect FILE   write what is looked at as an archive to be judged "
        "elsewhere;\n"
        "                   - is standard output\n"
        "  --keep-names     with names, addresses and serial numbers; else pseudonyms\n"
        "  --diff A B       what changed between two captures or archives\n"
        "  --explain CODE   everything known of a code\n"
        "  --list           all codes\n"
        "  --json           the report as JSON\n"
        "  --help           this text\n"
        "\n"
        "Exit status: 1 an error or a warning was found (--diff: something changed); 2 "
        "it\n"
        "could not be decided, or nothing could be read; 0 otherwise; 64 usage; of a\n"
        "COMMAND that cannot be started 127.\n";

enum { EXIT_NOT_STARTED = 127 };

enum mode { JUDGE, READ, RUN, HOST, VM, COLLECT, DIFF, EXPLAIN, LIST, HELP };

struct options {
    enum mode mode;
    bool json, read, keep_names;
    int timeout_s;
    const char *model, *value; /* of the mode's own option */
    char **paths, **command;
    int num_paths;
};

static int explain(const char *name)
{
    const enum dr_code code = dr_code_find(name);

    if (code == DR_NUM_CODES)
        return cmd_usage_error("doctor",
                "'%s' is no code; motet doctor --list has them", name);
    doctor_explain(code, stdout);
    return EXIT_FINE;
}

/* What option @p c says; EXIT_FINE, or what a mistake gives. */
static int take(int c, char **argv, struct options *o)
{
    static const struct {
        int option;
        enum mode mode;
    } modes[] = { { 'c', COLLECT }, { 'd', DIFF }, { 'e', EXPLAIN }, { 'l', LIST },
        { 'h', HELP }, { 'o', HOST }, { 'v', VM } };

    for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
        if (c != modes[i].option)
            continue;
        if (o->mode != JUDGE)
            return cmd_usage_error("doctor",
                    "one thing at a time: '%s' and another one", argv[optind - 1]);
        o->mode = modes[i].mode;
        o->value = optarg;
        return EXIT_FINE;
    }
    switch (c) {
    case 'j': o->json = true; return EXIT_FINE;
    case 'r': o->read = true; return EXIT_FINE;
    case 'k': o->keep_names = true; return EXIT_FINE;
    case 'm': o->model = optarg; return EXIT_FINE;
    case 't':
        if (text_to_small(optarg, 1, 1 << 24, &o->timeout_s))
            return EXIT_FINE;
        return cmd_usage_error("doctor", "--timeout is '%s', need 1 to %d seconds",
                optarg, 1 << 24);
    default: return cmd_bad_option("doctor", c, argv);
    }
}

/* The mode that what stands behind the options asks for, and whether it fits. */
static int settle(struct options *o)
{
    const bool reads = o->read || o->num_paths > 0;

    if (o->mode == JUDGE && o->command != NULL)
        o->mode = RUN;
    else if (o->command != NULL)
        return cmd_usage_error("doctor", "a command does not go with that option");
    if (o->mode == DIFF && o->num_paths != 2)
        return cmd_usage_error("doctor", "--diff needs two paths");
    if (o->mode == RUN && o->command[0] == NULL)
        return cmd_usage_error("doctor", "no command behind '--'");
    if (o->mode == JUDGE && reads)
        o->mode = READ;
    else if (reads && o->mode != DIFF && o->mode != VM)
        return cmd_usage_error("doctor", "unexpected argument '%s'",
                o->num_paths > 0 ? o->paths[0] : "--read");
    if (o->read && o->num_paths == 0)
        return cmd_usage_error("doctor", "--read needs a path");
    if (o->timeout_s != 0 && o->mode != RUN)
        return cmd_usage_error("doctor", "--timeout needs a command behind '--'");
    if (o->keep_names && o->mode != COLLECT)
        return cmd_usage_error("doctor", "--keep-names needs --collect");
    return EXIT_FINE;
}

static int parse(int argc, char **argv, struct options *o)
{
    static const struct option options[] = { { "json", no_argument, NULL, 'j' },
        { "read", no_argument, NULL, 'r' }, { "explain", required_argument, NULL, 'e' },
        { "list", no_argument, NULL, 'l' }, { "help", no_argument, NULL, 'h' },
        { "collect", required_argument, NULL, 'c' },
        { "keep-names", no_argument, NULL, 'k' }, { "diff", no_argument, NULL, 'd' },
        { "timeout", required_argument, NULL, 't' },
        { "host", required_argument, NULL, 'o' },
        { "vm", required_argument, NULL, 'v' },
        { "model", required_argument, NULL, 'm' }, { NULL, 0, NULL, 0 } };
    int c, status, end = 1;

    while (end < argc && strcmp(argv[end], "--") != 0)
        end++;
    while ((c = getopt_long(end, argv, ":", options, NULL)) != -1) {
        status = take(c, argv, o);
        if (status != EXIT_FINE)
            return status;
    }
    o->paths = argv + optind;
    o->num_paths = end - optind;
    if (end < argc && o->read && o->num_paths > 0)
        return cmd_usage_error("doctor", "paths before '--' and behind it");
    if (end < argc && o->read) { /* names that begin with a dash */
        o->paths = argv + end + 1;
        o->num_paths = argc - end - 1;
    } else if (end < argc) {
        o->command = argv + end + 1;
    }
    return settle(o);
}

/* Fill the doctor with what the mode looks at; EXIT_FINE, or the status to end with. */
static int look(struct doctor *d, const struct options *o)
{
    struct dr_captures captures = { 0 };
    const struct dr_command command = { .argv = o->command,
        .timeout_s = (unsigned)o->timeout_s,
        .out_fd = o->json ? STDERR_FILENO : STDOUT_FILENO,
        .err_fd = STDERR_FILENO,
        .host = dr_host_name(d, "") };

    switch (o->mode) {
    case RUN:
        if (!dr_run_command(d, &command))
            return cmd_error("doctor", EXIT_NOT_STARTED, "run '%s': %s", o->command[0],
                    strerror(errno));
        doctor_live(d, false);
        return EXIT_FINE;
    case HOST:
        dr_ask_host(d, o->value, &captures);
        dr_add_captures(d, &captures);
        return EXIT_FINE;
    default:
        for (int i = 0; i < o->num_paths; i++)
            dr_read_path(d, o->paths[i]);
        if (o->num_paths == 0)
            doctor_live(d, o->mode == VM);
        return EXIT_FINE;
    }
}

static int report(struct doctor *d, const struct options *o)
{
    if (o->json) {
        if (!doctor_json(d, stdout))
            return cmd_error("doctor", EXIT_UNDECIDED, "standard output: %s",
                    strerror(errno));
        return doctor_status(d);
    }
    if (o->mode == VM) {
        dr_write_vm(d, stdout, o->value);
        return doctor_status(d);
    }
    if (o->mode == JUDGE)
        doctor_live_summary(d, stdout);
    doctor_report(d, stdout, term_colour(STDOUT_FILENO));
    return doctor_status(d);
}

static int judge(const struct options *o)
{
    struct doctor *d = doctor_new();
    char why[512] = "";
    int status;

    errno = 0;
    if (o->model != NULL && !doctor_model(o->model, &d->model, why, sizeof(why)))
        status = cmd_usage_error("doctor", "--model: %s", why);
    else if (o->mode == COLLECT)
        status = doctor_live_collect(d, o->value, o->keep_names);
    else
        status = look(d, o);
    if (status == EXIT_FINE && o->mode != COLLECT) {
        doctor_judge(d);
        status = report(d, o);
    }
    doctor_free(d);
    return status;
}

int cmd_doctor(int argc, char **argv)
{
    struct options o = { 0 };
    const int status = parse(argc, argv, &o);

    if (status != EXIT_FINE)
        return status;
    switch (o.mode) {
    case HELP: return cmd_help(help);
    case LIST: doctor_list(stdout); return EXIT_FINE;
    case EXPLAIN: return explain(o.value);
    case DIFF: return doctor_diff(o.paths[0], o.paths[1], o.json);
    default: return judge(&o);
    }
}
