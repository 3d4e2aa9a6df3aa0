/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `motet run --as`: where the drop-in is, and which commands LD_PRELOAD does not reach.
 * A container, another host or a process with other privileges drops the variable, or
 * does not see the file; going on would look like success and use somebody else's
 * library. Those are refused, with what to type instead.
 */
#include "run.h"

#include "cmd.h"
#include "library.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* ------------------------------------------------------------- the drop-in */

static const char *file_name(const char *as)
{
    return strcmp(as, "nccl") == 0 ? "libnccl.so.2" : "librccl.so.1";
}

bool run_preload_find(const struct run_options *o, char path[PATH_MAX], char *why,
        size_t why_bytes)
{
    if (o->lib == NULL) {
        if (!library_beside(file_name(o->as), path)) {
            snprintf(why, why_bytes,
                    "no %s in " MOTET_BIN_TO_LIB
                    ", ../lib or ../lib64 of the command's "
                    "folder; say where with --lib",
                    file_name(o->as));
            return false;
        }
    } else if (!library_absolute(o->lib, path)) {
        snprintf(why, why_bytes, "--lib '%s': %s", o->lib, strerror(errno));
        return false;
    }
    if (strpbrk(path, ": ") != NULL) {
        snprintf(why, why_bytes,
                "LD_PRELOAD cannot hold '%s', which has a blank or a colon", path);
        return false;
    }
    return true;
}

int run_preload_environment(const char *as, const char *dropin)
{
    const char *old = getenv("LD_PRELOAD");
    char *all = NULL;
    int bad;

    if (asprintf(&all, "%s%s%s", dropin, old != NULL && *old != 0 ? ":" : "",
                old != NULL ? old : "") < 0)
        return -1;
    bad = setenv("LD_PRELOAD", all, 1);
    free(all);
    bad |= setenv("VLLM_NCCL_SO_PATH", dropin, 0);
    if (strcmp(as, "rccl") == 0)
        bad |= setenv("HIPFIRE_RCCL_LIB", dropin, 0);
    return bad != 0 ? -1 : 0;
}

/* ------------------------------------------------------- what it cannot reach */

enum reach { CONTAINER, APPTAINER, KUBERNETES, OTHER_HOST, OTHER_USER, OTHER_ROOT };

static const struct {
    const char *command;
    enum reach reach;
} unreachable[] = {
    { "docker", CONTAINER },
    { "podman", CONTAINER },
    { "nerdctl", CONTAINER },
    { "docker-compose", CONTAINER },
    { "podman-compose", CONTAINER },
    { "lxc", CONTAINER },
    { "apptainer", APPTAINER },
    { "singularity", APPTAINER },
    { "enroot", APPTAINER },
    { "kubectl", KUBERNETES },
    { "ssh", OTHER_HOST },
    { "rsh", OTHER_HOST },
    { "pdsh", OTHER_HOST },
    { "clush", OTHER_HOST },
    { "sudo", OTHER_USER },
    { "su", OTHER_USER },
    { "doas", OTHER_USER },
    { "pkexec", OTHER_USER },
    { "runuser", OTHER_USER },
    { "systemd-run", OTHER_USER },
    { "chroot", OTHER_ROOT },
    { "machinectl", OTHER_ROOT },
    { "flatpak", OTHER_ROOT },
    { "bwrap", OTHER_ROOT },
};

static void say_container(const char *as, const char *dropin)
{
    int folder = (int)(strrchr(dropin, '/') - dropin);

    fprintf(stderr,
            "  add to its options:\n"
            "    -v %.*s:/opt/motet:ro -e LD_PRELOAD=/opt/motet/%s "
            "-e VLLM_NCCL_SO_PATH=/opt/motet/%s%s%s\n",
            folder, dropin, strrchr(dropin, '/') + 1, strrchr(dropin, '/') + 1,
            strcmp(as, "rccl") == 0 ? " -e HIPFIRE_RCCL_LIB=/opt/motet/" : "",
            strcmp(as, "rccl") == 0 ? strrchr(dropin, '/') + 1 : "");
}

static void say_apptainer(const char *dropin)
{
    int folder = (int)(strrchr(dropin, '/') - dropin);

    fprintf(stderr,
            "  add to its options:\n"
            "    --bind %.*s:/opt/motet:ro --env LD_PRELOAD=/opt/motet/%s "
            "--env VLLM_NCCL_SO_PATH=/opt/motet/%s\n",
            folder, dropin, strrchr(dropin, '/') + 1, strrchr(dropin, '/') + 1);
}

static int refuse(const char *as, const char *command, const char *dropin,
        enum reach reach)
{
    fflush(stdout);
    switch (reach) {
    case CONTAINER:
        fprintf(stderr, "motet run: LD_PRELOAD does not reach into what '%s' starts\n",
                command);
        say_container(as, dropin);
        break;
    case APPTAINER:
        fprintf(stderr, "motet run: LD_PRELOAD does not reach into what '%s' starts\n",
                command);
        say_apptainer(dropin);
        break;
    case KUBERNETES:
        fprintf(stderr,
                "motet run: LD_PRELOAD does not reach into a pod\n"
                "  put motet into the image and set in the container's env:\n"
                "    LD_PRELOAD=/opt/motet/%s\n",
                strrchr(dropin, '/') + 1);
        break;
    case OTHER_HOST:
        fprintf(stderr,
                "motet run: '%s' does not take LD_PRELOAD to the other host\n"
                "  type there: %s HOST motet run --as %s -- CMD\n",
                command, command, as);
        break;
    case OTHER_USER:
        fprintf(stderr,
                "motet run: '%s' drops LD_PRELOAD\n"
                "  type: %s ... motet run --as %s -- CMD\n",
                command, command, as);
        break;
    case OTHER_ROOT:
        fprintf(stderr,
                "motet run: '%s' gives the program another file system, which lacks "
                "%s\n"
                "  put motet there and type: %s ... motet run --as %s -- CMD\n",
                command, dropin, command, as);
        break;
    }
    return EXIT_USAGE;
}

/* The file that execvp() would run; false if there is none. */
static bool resolve(const char *command, char path[PATH_MAX])
{
    const char *dirs = getenv("PATH");

    if (strchr(command, '/') != NULL) {
        snprintf(path, PATH_MAX, "%s", command);
        return access(path, X_OK) == 0;
    }
    if (dirs == NULL)
        dirs = "/bin:/usr/bin";
    while (true) {
        int length = (int)strcspn(dirs, ":");

        snprintf(path, PATH_MAX, "%.*s%s%s", length, dirs, length > 0 ? "/" : "./",
                command);
        if (access(path, X_OK) == 0)
            return true;
        if (dirs[length] == 0)
            return false;
        dirs += length + 1;
    }
}

struct elf_facts {
    bool is_elf, has_interpreter;
    unsigned class, machine;
};

static bool read_at(int fd, void *to, size_t bytes, off_t at)
{
    return pread(fd, to, bytes, at) == (ssize_t)bytes;
}

/* Only what is needed: class, machine, and for 64 bits whether there is a loader. */
static struct elf_facts elf_facts_of(const char *path)
{
    struct elf_facts f = { .has_interpreter = true };
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    Elf64_Ehdr head;
    Elf64_Phdr segment;

    if (fd < 0)
        return f;
    if (read_at(fd, &head, sizeof(head), 0) &&
            memcmp(head.e_ident, ELFMAG, SELFMAG) == 0) {
        f.is_elf = true;
        f.class = head.e_ident[EI_CLASS];
        f.machine = head.e_machine; /* same place in both classes */
    }
    if (f.is_elf && f.class == ELFCLASS64 && head.e_phentsize == sizeof(segment)) {
        f.has_interpreter = false;
        for (unsigned i = 0; i < head.e_phnum; i++)
            if (read_at(fd, &segment, sizeof(segment),
                        (off_t)(head.e_phoff + i * sizeof(segment))) &&
                    segment.p_type == PT_INTERP)
                f.has_interpreter = true;
    }
    close(fd);
    return f;
}

/* Programs whose loader ignores LD_PRELOAD, by their file. */
static int refuse_file(const char *as, const char *path, const char *dropin)
{
    struct elf_facts program = elf_facts_of(path), library = elf_facts_of(dropin);
    struct stat st;

    if (!library.is_elf)
        return cmd_error("run", EXIT_USAGE, "'%s' is not a shared library", dropin);
    if (stat(path, &st) == 0 &&
            (((st.st_mode & S_ISUID) != 0 && st.st_uid != getuid()) ||
                    ((st.st_mode & S_ISGID) != 0 && st.st_gid != getgid()))) {
        cmd_error("run", EXIT_USAGE,
                "'%s' is setuid or setgid: the loader ignores LD_PRELOAD there", path);
        fprintf(stderr, "  use a copy without these bits (cp drops them)\n");
        return EXIT_USAGE;
    }
    if (getxattr(path, "security.capability", NULL, 0) > 0 && geteuid() != 0) {
        cmd_error("run", EXIT_USAGE,
                "'%s' has file capabilities: the loader ignores LD_PRELOAD there",
                path);
        fprintf(stderr, "  use a copy without them (cp drops them)\n");
        return EXIT_USAGE;
    }
    if (program.is_elf && !program.has_interpreter)
        return cmd_error("run", EXIT_USAGE,
                "'%s' is linked statically: nothing can be preloaded into it", path);
    if (program.is_elf &&
            (program.class != library.class || program.machine != library.machine))
        return cmd_error("run", EXIT_USAGE,
                "'%s' is for another architecture than '%s'; give its drop-in with "
                "--lib (--as %s)",
                path, dropin, as);
    return -1;
}

int run_preload_refuse(const struct run_options *o, const char *dropin)
{
    const char *command = o->cmd[0], *slash = strrchr(command, '/');
    const char *name = slash != NULL ? slash + 1 : command;
    char path[PATH_MAX];

    for (size_t i = 0; i < sizeof(unreachable) / sizeof(*unreachable); i++)
        if (strcmp(name, unreachable[i].command) == 0)
            return refuse(o->as, command, dropin, unreachable[i].reach);
    if (!resolve(command, path))
        return -1; /* starting it will say so */
    return refuse_file(o->as, path, dropin);
}
