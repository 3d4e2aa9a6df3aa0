/* SPDX-License-Identifier: Apache-2.0 */
/*
 * motet hostcall: which kernels for AMD GPUs declare a hostcall, in any file, and whether
 * the GPUs of this machine would refuse them.
 */
#include "cmd.h"
#include "hostcall.h"
#include "term.h"
#include "text.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
static const char help[] =
        "usage: motet hostcall [OPTIONS] FILE|DIR...\n"
        "       motet hostcall --gate [--allow LIST] [OPTIONS] FILE|DIR...\n"
        "       motet hostcall --diff [--target T] [--json] A B\n"
        "\n"
        "For each image for AMD GPUs in the files: how many kernels it has, how many and\n"
        "which of them declare a hostcall, and whether they make one. A kernel that declares\n"
        "one is refused on a GPU that cannot send PCIe AtomicOps to host memory; where this\n"
        "machine has AMD GPUs, what each loads and whether it is refused is said as well.\n"
        "Nothing is loaded or run.\n"
        "\n"
        "Files are told by content: libraries and programs, bundles, compressed ones (CCOB),\n"
        "kpack archives, archives of objects, code objects. Folders are read to the bottom.\n"
        "\n"
        "      --target T     only what a GPU like gfx1100 or gfx90a:xnack- would load\n"
        "      --names        all names, not the first eight\n"
        "      --gate         fail if a kernel declares a hostcall, for continuous integration\n"
        "      --allow LIST   but not if its name matches a line of this file (*, ?, [...];\n"
        "                     # begins a comment)\n"
        "      --diff         images added, removed and changed between two builds\n"
        "      --json         as JSON\n"
        "  -h, --help         this text\n"
        "\n"
        "Exit status: 0 no kernel declares one (--gate: none that is not allowed, --diff: no\n"
        "difference), 1 some do, 2 not everything could be read or there is no image, 64\n"
        "usage.\n";
/* clang-format on */

struct options {
    bool names, gate, diff, json;
    const char *target, *allow;
};

/* A run over all files. */
struct reading {
    const struct options *o;
    struct hostcall_gpus gpus;
    struct hostcall_gate gate;
    struct json j;
    char none_loaded[CODEOBJ_TARGET_MAX + 32];
    bool undecided; /* something could not be read */
    size_t num_folders;
    size_t seen; /* images, whether the GPU loads them or not */
    size_t files, images, declaring;
};

/* What there is to say where no image is left; @p some: of another GPU there is one. */
static const char *none_found(const struct reading *r, bool some)
{
    return some ? r->none_loaded : "no code for AMD GPUs was found";
}

static void read_file(const char *path, bool named, const char *why, void *arg)
{
    struct reading *r = arg;
    struct hostcall_file file;
    char *shown = hostcall_copy(path);
    bool holds; /* code for AMD GPUs */

    term_progress("reading %s", text_plain(shown));
    free(shown);
    hostcall_read(path, why, &file);
    term_progress_end();
    holds = file.num > 0;
    r->seen += file.num;
    r->files += holds;
    if (r->o->target != NULL)
        hostcall_keep(&file, &r->gpus.list[0]);
    if (file.why[0] != 0 && (file.unreadable || r->o->json))
        hostcall_complain(path, "%s", file.why);
    r->undecided = r->undecided || file.why[0] != 0;
    r->images += file.num;
    for (size_t i = 0; i < file.num; i++) {
        r->undecided = r->undecided || file.images[i].why != NULL;
        r->declaring += file.images[i].declaring;
    }
    if (!r->o->json)
        hostcall_write(&file, &r->gpus, r->o->names);
    else if (named || holds || file.why[0] != 0) {
        if (file.num == 0 && file.why[0] == 0)
            snprintf(file.why, sizeof(file.why), "%s", none_found(r, holds));
        hostcall_json(&r->j, &file, &r->gpus);
    }
    if (r->o->gate)
        hostcall_gate(&r->gate, &file);
    hostcall_clear(&file);
}

/* ---- the end ---- */

static int status_of(const struct reading *r)
{
    if (r->o->gate ? r->gate.refused > 0 : r->declaring > 0)
        return EXIT_PROBLEM;
    return r->undecided || r->images == 0 ? EXIT_UNDECIDED : EXIT_FINE;
}

static void write_end(const struct reading *r)
{
    if (r->num_folders > 0)
        printf("%zu files with code for AMD GPUs, %zu images\n", r->files, r->images);
    if (r->o->gate)
        printf("gate: %s: %zu kernels with a hostcall are not allowed, %zu are\n",
                status_of(r) == EXIT_FINE              ? "passed"
                        : status_of(r) == EXIT_PROBLEM ? "failed"
                                                       : "undecided",
                r->gate.refused, r->gate.allowed);
}

/* A file, or all below a folder. */
static void read_path(struct reading *r, const char *path)
{
    const size_t seen = r->seen, images = r->images;
    const bool undecided = r->undecided;

    r->undecided = false;
    r->num_folders += hostcall_walk(path, read_file, r);
    if (r->images == images && !r->undecided) {
        hostcall_complain(path, "%s", none_found(r, r->seen > seen));
        /* What was to be looked at is not there. */
        r->undecided = r->o->gate;
    }
    r->undecided = r->undecided || undecided;
}

static void read_all(struct reading *r, int num, char **paths)
{
    if (r->o->json) {
        json_start(&r->j, stdout);
        json_object(&r->j, NULL);
        json_string(&r->j, "motet", MOTET_VERSION);
        hostcall_json_gpus(&r->j, &r->gpus);
        json_array(&r->j, "files");
    }
    for (int i = 0; i < num; i++)
        read_path(r, paths[i]);
    if (r->o->json) {
        json_end(&r->j);
        hostcall_json_gate(&r->j, r->o->gate ? &r->gate : NULL,
                status_of(r) == EXIT_FINE);
    } else {
        write_end(r);
    }
}

static int run(const struct options *o, int num, char **paths)
{
    struct reading r = { .o = o };
    bool written;
    int status;

    if (o->target != NULL && !hostcall_named(o->target, &r.gpus)) {
        hostcall_gpus_clear(&r.gpus);
        return cmd_usage_error("hostcall",
                "--target is '%s', need a GPU like gfx1100 or gfx90a:xnack-",
                o->target);
    }
    if (o->target != NULL)
        snprintf(r.none_loaded, sizeof(r.none_loaded), "no image that %s loads",
                o->target);
    if (o->diff) {
        status = hostcall_diff(paths[0], paths[1],
                o->target != NULL ? &r.gpus.list[0] : NULL, o->json);
        hostcall_gpus_clear(&r.gpus);
        return status;
    }
    if (o->allow != NULL && !hostcall_read_allow(o->allow, &r.gate.allow)) {
        hostcall_gate_clear(&r.gate);
        hostcall_gpus_clear(&r.gpus);
        return EXIT_UNDECIDED;
    }
    if (o->target == NULL && !o->gate)
        hostcall_machine(&r.gpus);
    read_all(&r, num, paths);
    status = status_of(&r);
    written = o->json ? json_finish(&r.j) : fflush(stdout) == 0;
    hostcall_gate_clear(&r.gate);
    hostcall_gpus_clear(&r.gpus);
    if (!written)
        return cmd_error("hostcall", EXIT_UNDECIDED, "standard output: %s",
                strerror(errno));
    return status;
}

int cmd_hostcall(int argc, char **argv)
{
    static const struct option options[] = {
        { "target", required_argument, NULL, 't' },
        { "names", no_argument, NULL, 'n' },
        { "gate", no_argument, NULL, 'g' },
        { "allow", required_argument, NULL, 'a' },
        { "diff", no_argument, NULL, 'd' },
        { "json", no_argument, NULL, 'j' },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    struct options o = { .target = NULL };
    int c, num;

    optind = 1;
    while ((c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        switch (c) {
        case 't': o.target = optarg; break;
        case 'n': o.names = true; break;
        case 'g': o.gate = true; break;
        case 'a': o.allow = optarg; break;
        case 'd': o.diff = true; break;
        case 'j': o.json = true; break;
        case 'h': return cmd_help(help);
        default: return cmd_bad_option("hostcall", c, argv);
        }
    }
    num = argc - optind;
    if (o.allow != NULL && !o.gate)
        return cmd_usage_error("hostcall", "--allow needs --gate");
    if (o.diff && (o.gate || o.names))
        return cmd_usage_error("hostcall", "--diff goes with --target and --json only");
    if (o.diff && num != 2)
        return cmd_usage_error("hostcall", "--diff needs two files or folders");
    if (num == 0)
        return cmd_usage_error("hostcall", "need a file");
    return run(&o, num, argv + optind);
}
