/* SPDX-License-Identifier: Apache-2.0 */
/* The options of motet run. What follows the first word that is no option is CMD's. */
#include "run.h"

#include "cmd.h"
#include "text.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
static const char help[] =
        "usage: motet run -n N [OPTIONS] [--] CMD [ARGS...]\n"
        "       motet run --as nccl|rccl [OPTIONS] [--] CMD [ARGS...]\n"
        "\n"
        "With -n: start N ranks of CMD with torchrun's environment, put their rank before\n"
        "each line that they print, and end them together. The exit status is that of the\n"
        "first rank that failed, 128 + signal if it was killed.\n"
        "\n"
        "With --as: CMD and its children use motet wherever they use libnccl.so.2 or\n"
        "librccl.so.1 (LD_PRELOAD). Without -n CMD is started once and no rank variable\n"
        "is set. At the end every process that mapped another such library is named.\n"
        "\n"
        "With neither, under Slurm, PMIx, Open MPI, MPICH or torchrun: take the rank that\n"
        "the launcher gave, set what torchrun would have set and is not set, become CMD.\n"
        "\n"
        "  -n, --ranks N        number of ranks, 1 to 1024\n"
        "      --as nccl|rccl   preload the drop-in of this name\n"
        "      --lib PATH       preload this file instead of the one beside the command\n"
        "      --tag TEXT       prefix is [TEXT RANK] instead of [RANK]\n"
        "      --no-prefix      no prefix; lines are still kept whole\n"
        "      --env K=V        set a variable for CMD; may be repeated\n"
        "      --device KIND    auto, cpu, cuda or hip: sets MOTET_DEVICE for CMD\n"
        "      --master-addr A  rendezvous address (default: MASTER_ADDR, else 127.0.0.1)\n"
        "      --master-port P  rendezvous port (default: MASTER_PORT, else a free one)\n"
        "      --timeout S      end the ranks after S seconds; the exit status is 124\n"
        "      --grace S        from SIGTERM to SIGKILL when ending ranks (default 5)\n"
        "  -h, --help           this text\n"
        "\n"
        "SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on. Rank 0 reads\n"
        "stdin unless it is a terminal. CMD that cannot be found gives 127, one that\n"
        "cannot be run 126, wrong usage 64.\n";
/* clang-format on */

enum {
    OPT_AS = 256,
    OPT_LIB,
    OPT_TAG,
    OPT_NO_PREFIX,
    OPT_ENV,
    OPT_DEVICE,
    OPT_ADDR,
    OPT_PORT,
    OPT_TIMEOUT,
    OPT_GRACE
};

static const struct option long_options[] = {
    { "ranks", required_argument, NULL, 'n' },
    { "as", required_argument, NULL, OPT_AS },
    { "lib", required_argument, NULL, OPT_LIB },
    { "tag", required_argument, NULL, OPT_TAG },
    { "no-prefix", no_argument, NULL, OPT_NO_PREFIX },
    { "env", required_argument, NULL, OPT_ENV },
    { "device", required_argument, NULL, OPT_DEVICE },
    { "master-addr", required_argument, NULL, OPT_ADDR },
    { "master-port", required_argument, NULL, OPT_PORT },
    { "timeout", required_argument, NULL, OPT_TIMEOUT },
    { "grace", required_argument, NULL, OPT_GRACE },
    { "help", no_argument, NULL, 'h' },
    { NULL, 0, NULL, 0 },
};

static int take_env(struct run_options *o, char *text)
{
    if (strchr(text, '=') == NULL || text[0] == '=')
        return cmd_usage_error("run", "--env is '%s', need NAME=VALUE", text);
    if (o->nenv == RUN_ENV_MAX)
        return cmd_usage_error("run", "more than %d --env", RUN_ENV_MAX);
    o->env[o->nenv++] = text;
    return -1;
}

static int take_port(struct run_options *o, const char *text)
{
    int port;

    o->master_port = text;
    return cmd_take_number("run", "--master-port", text, 1, 65535, &port);
}

static int take_as(struct run_options *o, const char *text)
{
    o->as = text;
    if (strcmp(text, "nccl") == 0 || strcmp(text, "rccl") == 0)
        return -1;
    return cmd_usage_error("run", "--as is '%s', need nccl or rccl", text);
}

static int take_option(struct run_options *o, int c, char **argv)
{
    switch (c) {
    case 'n': return cmd_take_number("run", "-n", optarg, 1, RUN_RANKS_MAX, &o->n);
    case OPT_AS: return take_as(o, optarg);
    case OPT_LIB: o->lib = optarg; return -1;
    case OPT_TAG: o->tag = optarg; return -1;
    case OPT_NO_PREFIX: o->prefix = false; return -1;
    case OPT_ENV: return take_env(o, optarg);
    case OPT_DEVICE: o->device = optarg; return -1;
    case OPT_ADDR: o->master_addr = optarg; return -1;
    case OPT_PORT: return take_port(o, optarg);
    case OPT_TIMEOUT:
        return cmd_take_number("run", "--timeout", optarg, 0, 100000000, &o->timeout_s);
    case OPT_GRACE:
        return cmd_take_number("run", "--grace", optarg, 0, 86400, &o->grace_s);
    case 'h': return cmd_help(help);
    default: return cmd_bad_option("run", c, argv);
    }
}

int run_read_options(int argc, char **argv, struct run_options *o)
{
    int c, code = -1;

    *o = (struct run_options){ .prefix = true, .grace_s = 5 };
    optind = 1;
    while (code == -1 &&
            (c = getopt_long(argc, argv, "+:n:h", long_options, NULL)) != -1)
        code = take_option(o, c, argv);
    if (code != -1)
        return code;
    if (optind == argc)
        return cmd_usage_error("run", "no command to run");
    if (o->lib != NULL && o->as == NULL)
        return cmd_usage_error("run", "--lib needs --as nccl or --as rccl");
    o->cmd = argv + optind;
    return -1;
}
