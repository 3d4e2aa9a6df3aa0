/* SPDX-License-Identifier: Apache-2.0 */
/*
 * motet kernels build: code for GPUs that is not built in. The sources that the library
 * was made from are installed beside the command, with the script that compiled them
 * (kernels/gpu/build.sh) and the gate (gate.py): the same run again here.
 */
#include "cmd.h"
#include "kernels.h"
#include "library.h"

#include "kernels/images.h"

#include <errno.h>
#include <getopt.h>
#include <glob.h>
#include <limits.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define COMMAND     "kernels build"
#define TARGETS_MAX 16
#define TARGET_MAX  16
#define NODES       "/class/kfd/kfd/topology/nodes"

/* clang-format off */
static const char help[] =
        "usage: motet kernels build [OPTIONS]\n"
        "\n"
        "Compile the kernels for an AMD GPU that the library has no code for, check the\n"
        "result as the library's own code was checked, and put it where the library looks.\n"
        "\n"
        "  -t, --target TARGET   gfx928 and so on, may be given again; native (default):\n"
        "                        this machine's GPUs\n"
        "      --cc CLANG        a clang that knows the target, with ld.lld and llvm-objdump\n"
        "                        beside it, such as a vendor's; default: clang-19, clang\n"
        "  -o, --output DIR      where motet-TARGET.co goes; default: the folder where the\n"
        "                        library looks by itself, $XDG_DATA_HOME/motet/kernels or\n"
        "                        ~/.local/share/motet/kernels; else set MOTET_KERNEL_PATH\n"
        "      --sources DIR     the installed sources; default: beside the command\n"
        "      --sysfs DIR       what native reads in place of /sys\n"
        "  -h, --help            this text\n";
/* clang-format on */

extern char **environ;

typedef struct build {
    const char *sysfs, *sources_given, *cc_given, *output_given;
    const char *target_given[TARGETS_MAX];
    int targets_given;
    char sources[PATH_MAX], output[PATH_MAX];
    const char *cc;
    char target[TARGETS_MAX][TARGET_MAX];
    int targets;
} build;

/* ---- what to build ---- */

/* A name, not a path: it becomes one. */
static bool is_target(const char *text)
{
    const size_t length = strlen(text);

    return length > 5 && length < TARGET_MAX && strncmp(text, "gfx", 3) == 0 &&
            strspn(text + 3, "0123456789abcdef") == length - 3;
}

static void add_target(build *b, const char *target)
{
    for (int i = 0; i < b->targets; i++)
        if (strcmp(b->target[i], target) == 0)
            return;
    if (b->targets < TARGETS_MAX)
        snprintf(b->target[b->targets++], TARGET_MAX, "%s", target);
}

/* A name has the minor number and the stepping in hexadecimal. */
static void add_version(build *b, unsigned major, unsigned minor, unsigned stepping)
{
    char target[2 * TARGET_MAX];

    snprintf(target, sizeof(target), "gfx%u%x%x", major % 100, minor % 100,
            stepping % 100);
    if (is_target(target))
        add_target(b, target);
}

/* KFD writes 90402 for gfx942, and 0 for a processor. */
static void add_node(build *b, const char *path)
{
    FILE *file = fopen(path, "re");
    char line[256];
    unsigned version;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "gfx_target_version %u", &version) == 1 && version != 0)
            add_version(b, version / 10000, version / 100, version);
    }
    if (file != NULL)
        fclose(file);
}

/* What the runtime is told to take the GPUs for counts, since it picks the code. */
static int find_native(build *b)
{
    const char *override = getenv("HSA_OVERRIDE_GFX_VERSION");
    unsigned major, minor, stepping;
    const int before = b->targets;
    char pattern[PATH_MAX];
    glob_t nodes;

    if (override != NULL &&
            sscanf(override, "%u.%u.%u", &major, &minor, &stepping) == 3) {
        add_version(b, major, minor, stepping);
        return EXIT_FINE;
    }
    snprintf(pattern, sizeof(pattern), "%s" NODES "/*/properties", b->sysfs);
    if (glob(pattern, 0, NULL, &nodes) == 0) {
        for (size_t i = 0; i < nodes.gl_pathc; i++)
            add_node(b, nodes.gl_pathv[i]);
        globfree(&nodes);
    }
    if (b->targets == before)
        return cmd_error(COMMAND, EXIT_UNDECIDED,
                "no AMD GPU in %s" NODES ": the amdgpu driver is not loaded, or this "
                "container does not show it; name the target, as in --target gfx928",
                b->sysfs);
    return EXIT_FINE;
}

static int find_targets(build *b)
{
    int code = EXIT_FINE;

    for (int i = 0; i < b->targets_given && code == EXIT_FINE; i++) {
        const char *target = b->target_given[i];

        if (strcmp(target, "native") == 0)
            code = find_native(b);
        else if (is_target(target))
            add_target(b, target);
        else
            code = cmd_usage_error(COMMAND,
                    "--target is '%s', need native or gfx and digits", target);
    }
    return b->targets_given == 0 ? find_native(b) : code;
}

/* ---- what it takes ---- */

static int find_sources(build *b)
{
    char folder[PATH_MAX], file[PATH_MAX + 32];

    if (!library_own_folder(folder))
        folder[0] = '\0';
    if (b->sources_given != NULL)
        snprintf(b->sources, sizeof(b->sources), "%s", b->sources_given);
    else if ((size_t)snprintf(b->sources, sizeof(b->sources), "%s/%s", folder,
                     MOTET_BIN_TO_KERNELS) >= sizeof(b->sources))
        b->sources[0] = '\0';
    snprintf(file, sizeof(file), "%s/kernels/gpu/build.sh", b->sources);
    if (access(file, R_OK) != 0)
        return cmd_error(COMMAND, EXIT_UNDECIDED,
                "%s: %s; the sources come with an installed motet, --sources says "
                "where",
                file, strerror(errno));
    return EXIT_FINE;
}

static bool in_path(const char *program)
{
    const char *list = getenv("PATH");
    char candidate[PATH_MAX];

    while (list != NULL && *list != '\0') {
        int length = (int)strcspn(list, ":");

        if (snprintf(candidate, sizeof(candidate), "%.*s/%s", length, list, program) <
                        (int)sizeof(candidate) &&
                access(candidate, X_OK) == 0)
            return true;
        list += length;
        list += *list == ':';
    }
    return false;
}

static int find_tools(build *b)
{
    b->cc = b->cc_given != NULL   ? b->cc_given
            : in_path("clang-19") ? "clang-19"
                                  : "clang";
    if (strchr(b->cc, '/') != NULL ? access(b->cc, X_OK) != 0 : !in_path(b->cc))
        return cmd_error(COMMAND, EXIT_UNDECIDED,
                "no compiler %s: install clang-19 and lld-19, or name a clang with "
                "--cc",
                b->cc);
    if (!in_path("python3"))
        return cmd_error(COMMAND, EXIT_UNDECIDED,
                "python3 is not installed: the check of the code needs it");
    return EXIT_FINE;
}

/* mkdir -p */
static bool make_folders(const char *path)
{
    char part[PATH_MAX];
    struct stat about;

    for (const char *at = path; *at != '\0';) {
        at += strspn(at, "/");
        at += strcspn(at, "/");
        snprintf(part, sizeof(part), "%.*s", (int)(at - path), path);
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return false;
    }
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

static int find_output(build *b)
{
    if (b->output_given != NULL)
        snprintf(b->output, sizeof(b->output), "%s", b->output_given);
    else if (!motet_image_user_folder(b->output, sizeof(b->output)))
        return cmd_error(COMMAND, EXIT_UNDECIDED,
                "neither HOME nor XDG_DATA_HOME is set: say where to with --output");
    if (strlen(b->output) > PATH_MAX - 64 || !make_folders(b->output))
        return cmd_error(COMMAND, EXIT_PROBLEM, "cannot make the folder %s: %s",
                b->output, strerror(errno));
    return EXIT_FINE;
}

/* ---- building ---- */

/* The exit status of a program; 127 if it could not be started. */
static int run(const char *const argv[])
{
    pid_t pid;
    int status = 0,
        error = posix_spawnp(&pid, argv[0], NULL, NULL, (char *const *)argv, environ);

    if (error != 0) {
        cmd_error(COMMAND, 0, "start %s: %s", argv[0], strerror(error));
        return 127;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int compile(const build *b, const char *target, const char *object)
{
    char script[PATH_MAX + 32];
    const char *argv[] = { "sh", script, "object", target, object, NULL };

    snprintf(script, sizeof(script), "%s/kernels/gpu/build.sh", b->sources);
    fprintf(stderr, "%s: compiling with %s, which takes some seconds\n", target, b->cc);
    if (run(argv) == 0)
        return EXIT_FINE;
    return cmd_error(COMMAND, EXIT_UNDECIDED,
            "%s cannot build code for %s (its words are above): it takes clang 17 or "
            "newer that knows the target, with ld.lld; name another with --cc",
            b->cc, target);
}

static int check(const build *b, const char *target, const char *object)
{
    char gate[PATH_MAX + 32], list[PATH_MAX + 32];
    const char *argv[] = { "python3", gate, "--cc", b->cc, "--kernels", list, object,
        NULL };

    snprintf(gate, sizeof(gate), "%s/gate.py", b->sources);
    snprintf(list, sizeof(list), "%s/kernels/gpu/kernels.def", b->sources);
    switch (run(argv)) {
    case 0: return EXIT_FINE;
    case 77:
        return cmd_error(COMMAND, EXIT_UNDECIDED,
                "the code for %s cannot be checked without llvm-objdump: install "
                "llvm-19, "
                "or the one that belongs to %s",
                target, b->cc);
    default:
        return cmd_error(COMMAND, EXIT_PROBLEM,
                "the code for %s did not pass the check, and is not kept", target);
    }
}

/* Under a name of its own until it has passed: the library may look at any time. */
static int build_one(const build *b, const char *target)
{
    char object[PATH_MAX + 64], path[PATH_MAX + 64];
    int code;

    snprintf(object, sizeof(object), "%s/.%ld-%s.co", b->output, (long)getpid(),
            target);
    snprintf(path, sizeof(path), "%s/motet-%s.co", b->output, target);
    code = compile(b, target, object);
    if (code == EXIT_FINE)
        code = check(b, target, object);
    if (code == EXIT_FINE && rename(object, path) != 0)
        code = cmd_error(COMMAND, EXIT_PROBLEM, "cannot write %s: %s", path,
                strerror(errno));
    if (code != EXIT_FINE) {
        (void)unlink(object);
        return code;
    }
    printf("%s: %s\n", target, path);
    return EXIT_FINE;
}

static int build_all(const build *b)
{
    int worst = EXIT_FINE;

    if (setenv("CC", b->cc, 1) != 0)
        return cmd_error(COMMAND, EXIT_UNDECIDED, "set CC: %s", strerror(errno));
    for (int i = 0; i < b->targets; i++) {
        int code = build_one(b, b->target[i]);

        worst = code > worst ? code : worst;
    }
    if (worst == EXIT_FINE && b->output_given != NULL)
        printf("programs find it with MOTET_KERNEL_PATH=%s\n", b->output);
    return fflush(stdout) == 0 ? worst : EXIT_PROBLEM;
}

int kernels_build(int argc, char **argv)
{
    static const struct option options[] = {
        { "target", required_argument, NULL, 't' },
        { "cc", required_argument, NULL, 'c' },
        { "output", required_argument, NULL, 'o' },
        { "sources", required_argument, NULL, 's' },
        { "sysfs", required_argument, NULL, 'y' },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    static int (*const steps[])(
            build *b) = { find_targets, find_sources, find_tools, find_output };
    build b = { .sysfs = "/sys" };
    int c, code = EXIT_FINE;

    optind = 1;
    while ((c = getopt_long(argc, argv, ":t:o:h", options, NULL)) != -1) {
        switch (c) {
        case 't':
            if (b.targets_given == TARGETS_MAX)
                return cmd_usage_error(COMMAND, "more than %d targets", TARGETS_MAX);
            b.target_given[b.targets_given++] = optarg;
            break;
        case 'c': b.cc_given = optarg; break;
        case 'o': b.output_given = optarg; break;
        case 's': b.sources_given = optarg; break;
        case 'y': b.sysfs = optarg; break;
        case 'h': return cmd_help(help);
        default: return cmd_bad_option(COMMAND, c, argv);
        }
    }
    if (optind < argc)
        return cmd_usage_error(COMMAND, "unexpected argument '%s'", argv[optind]);
    for (size_t i = 0; i < sizeof(steps) / sizeof(*steps) && code == EXIT_FINE; i++)
        code = steps[i](&b);
    return code == EXIT_FINE ? build_all(&b) : code;
}
