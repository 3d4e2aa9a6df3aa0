/* SPDX-License-Identifier: Apache-2.0 */
/* motet lib: which copy of RCCL or NCCL is used, why, and what became of the others. */
#include "cmd.h"
#include "lib.h"
#include "library.h"
#include "text.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
static const char help[] =
        "usage: motet lib [OPTIONS] [rccl|nccl]\n"
        "\n"
        "Which copy of RCCL or NCCL is used on this machine, from where and why, and what\n"
        "became of every other one. A copy is loaded in a process of its own; copies\n"
        "outside what decides are listed with the variable that chooses them.\n"
        "\n"
        "      --for CLIENT    as torch, vllm, cupy, nccl-tests or hipfire looks for it, and\n"
        "                      which names that it takes are missing\n"
        "      --path          print the path alone\n"
        "      --ours          print the path of motet's own library beside this command\n"
        "      --python ENV    the wheels of this Python environment (its folder or its\n"
        "                      interpreter) decide\n"
        "      --pid PID       also: what this process has mapped\n"
        "      --by-name       ask the linker too, if no install has RCCL\n"
        "  -T, --timeout S     for loading a copy, 1 to 3600 s (default 20)\n"
        "      --json          the report as JSON\n"
        "  -h, --help          this text\n"
        "\n"
        "Without rccl or nccl: what the client, the variables and the GPUs of this machine\n"
        "say. MOTET_RCCL_LIB=PATH and MOTET_NCCL_LIB=PATH come before everything.\n"
        "\n"
        "Exit status: 0 found, 1 none, refused or incomplete, 2 ambiguous or could not be\n"
        "decided, 64 usage.\n";
/* clang-format on */

struct options {
    struct lib_wish wish;
    bool path, ours, json;
};

enum { OPT_FOR = 256, OPT_PATH, OPT_OURS, OPT_PYTHON, OPT_PID, OPT_BY_NAME, OPT_JSON };

static const struct option long_options[] = {
    { "for", required_argument, NULL, OPT_FOR },
    { "path", no_argument, NULL, OPT_PATH },
    { "ours", no_argument, NULL, OPT_OURS },
    { "python", required_argument, NULL, OPT_PYTHON },
    { "pid", required_argument, NULL, OPT_PID },
    { "by-name", no_argument, NULL, OPT_BY_NAME },
    { "timeout", required_argument, NULL, 'T' },
    { "json", no_argument, NULL, OPT_JSON },
    { "help", no_argument, NULL, 'h' },
    { NULL, 0, NULL, 0 },
};

static const char *client_name(size_t i, void *arg)
{
    (void)arg;
    return motet_find_clients[i].name;
}

static int unknown_client(const char *name)
{
    size_t num = 0;
    const char *near;

    while (motet_find_clients[num].name != NULL)
        num++;
    near = text_nearest(name, client_name, NULL, num);
    if (near != NULL)
        return cmd_usage_error("lib", "--for is '%s'; did you mean '%s'?", name, near);
    return cmd_usage_error("lib",
            "--for is '%s', need torch, vllm, cupy, nccl-tests or hipfire", name);
}

/* What only fits together in part. −1: go on. */
static int check_options(struct options *o, int num, char **names)
{
    static const motet_find_library *const libraries[] = { &motet_find_rccl,
        &motet_find_nccl };
    struct lib_wish *w = &o->wish;

    if (num > 1)
        return cmd_usage_error("lib", "unexpected argument '%s'", names[1]);
    for (size_t i = 0; num == 1 && i < 2; i++)
        if (strcmp(names[0], libraries[i]->name) == 0)
            w->library = libraries[i];
    if (num == 1 && w->library == NULL)
        return cmd_usage_error("lib",
                "'%s' is not a library of this kind, need rccl or "
                "nccl",
                names[0]);
    if (w->client != NULL && motet_find_client_of(w->client, NULL) == NULL)
        return unknown_client(w->client);
    if (w->client != NULL && motet_find_client_of(w->client, w->library) == NULL)
        return cmd_usage_error("lib", "%s does not use %s", w->client,
                w->library->what);
    if (o->json && (o->path || o->ours))
        return cmd_usage_error("lib", "%s and --json exclude each other",
                o->path ? "--path" : "--ours");
    if (o->ours && w->client != NULL)
        return cmd_usage_error("lib", "--for and --ours exclude each other");
    return -1;
}

/* −1: go on. */
static int read_options(int argc, char **argv, struct options *o)
{
    int c, number;

    optind = 1;
    while ((c = getopt_long(argc, argv, ":T:h", long_options, NULL)) != -1) {
        switch (c) {
        case OPT_FOR: o->wish.client = optarg; break;
        case OPT_PATH: o->path = true; break;
        case OPT_OURS: o->ours = true; break;
        case OPT_PYTHON: o->wish.python = optarg; break;
        case OPT_PID:
            if (!text_to_small(optarg, 1, INT_MAX, &number))
                return cmd_usage_error("lib", "--pid is '%s', need a process", optarg);
            o->wish.pid = number;
            break;
        case OPT_BY_NAME: o->wish.by_name = true; break;
        case 'T':
            if (!text_to_small(optarg, 1, 3600, &number))
                return cmd_usage_error("lib", "--timeout is '%s', need 1 to 3600 s",
                        optarg);
            o->wish.timeout_s = (unsigned)number;
            break;
        case OPT_JSON: o->json = true; break;
        case 'h': return cmd_help(help);
        default: return cmd_bad_option("lib", c, argv);
        }
    }
    return check_options(o, argc - optind, argv + optind);
}

static int print_ours(const struct lib_wish *wish)
{
    const motet_find_library *library =
            wish->library != NULL ? wish->library : lib_kind();
    const char *name = library == &motet_find_rccl ? "librccl.so.1" : "libnccl.so.2";
    char path[PATH_MAX];

    if (!library_beside(name, path))
        return cmd_error("lib", EXIT_PROBLEM, "there is no %s beside this command",
                name);
    printf("%s\n", path);
    return EXIT_FINE;
}

static int code_of(const struct lib_found *found)
{
    if (found->mapped_why[0] != 0 || found->report.outcome == MOTET_FIND_AMBIGUOUS)
        return EXIT_UNDECIDED;
    if (found->client != NULL && found->chosen != NULL && found->chosen->unknown)
        return EXIT_UNDECIDED;
    return found->report.outcome != MOTET_FIND_FOUND || lib_lacks(found) ? EXIT_PROBLEM
                                                                         : EXIT_FINE;
}

int cmd_lib(int argc, char **argv)
{
    struct options o = { .json = false };
    int code = read_options(argc, argv, &o);
    struct lib_found *found;

    if (code >= 0)
        return code;
    if (o.ours) {
        code = print_ours(&o.wish);
        return fflush(stdout) == 0 ? code : EXIT_PROBLEM;
    }
    found = lib_search(&o.wish);
    if (found == NULL)
        return cmd_error("lib", EXIT_UNDECIDED, "no memory");
    code = code_of(found);
    if (o.json) {
        if (!lib_print_json(found))
            code = EXIT_PROBLEM;
    } else if (!o.path) {
        lib_print_text(found);
    } else if (found->report.outcome == MOTET_FIND_FOUND) {
        printf("%s\n", found->report.path);
        code = EXIT_FINE;
    } else {
        (void)cmd_error("lib", code, "%s", text_plain(found->report.sentence));
    }
    lib_found_free(found);
    return fflush(stdout) == 0 ? code : EXIT_PROBLEM;
}
