/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where libraries are. Motet's own: beside the command. NVIDIA's: beside a Python (the wheel nvidia-nccl-cuNN puts it into
 * site-packages/nvidia/nccl/lib), where the loader looks, or with CUDA. Files are only
 * looked at, none is opened as a library here.
 */
#include "library.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SONAME "libnccl.so.2"
#define WHEEL  "nvidia/nccl/lib/" SONAME

/* The first file of @p pattern that is there and not motet. */
static bool try_pattern(const char *pattern, char path[PATH_MAX])
{
    bool found = false;
    glob_t all;

    if (glob(pattern, 0, NULL, &all) != 0)
        return false;
    for (size_t i = 0; i < all.gl_pathc && !found; i++) {
        if (access(all.gl_pathv[i], R_OK) != 0 || library_is_motet(all.gl_pathv[i]))
            continue;
        snprintf(path, PATH_MAX, "%s", all.gl_pathv[i]);
        found = true;
    }
    globfree(&all);
    return found;
}

/* DIR/tail for each directory of a list as in PATH. */
static bool try_list(const char *variable, const char *tail, char path[PATH_MAX])
{
    const char *list = getenv(variable);
    char pattern[PATH_MAX];

    while (list != NULL && *list != 0) {
        int length = (int)strcspn(list, ":");

        if (length > 0 && length < PATH_MAX / 2) {
            snprintf(pattern, sizeof(pattern), "%.*s/%s", length, list, tail);
            if (try_pattern(pattern, path))
                return true;
        }
        list += length;
        list += *list == ':';
    }
    return false;
}

static bool find_nccl(char path[PATH_MAX])
{
    static const char *const lists[][2] = {
        { "LD_LIBRARY_PATH", SONAME },
        { "PYTHONPATH", WHEEL },
        { "VIRTUAL_ENV", "lib/python3*/site-packages/" WHEEL },
        { "CONDA_PREFIX", "lib/python3*/site-packages/" WHEEL },
        { "CONDA_PREFIX", "lib/" SONAME },
        { "HOME", ".local/lib/python3*/site-packages/" WHEEL },
        { "PATH", "../lib/python3*/site-packages/" WHEEL },
        { "PATH", "../lib/python3*/dist-packages/" WHEEL },
    };
    static const char *const places[] = {
        "/usr/local/lib/python3*/*-packages/" WHEEL,
        "/usr/lib/python3*/*-packages/" WHEEL,
        "/usr/lib/x86_64-linux-gnu/" SONAME,
        "/usr/lib/aarch64-linux-gnu/" SONAME,
        "/usr/lib64/" SONAME,
        "/usr/local/lib/" SONAME,
        "/usr/local/cuda/lib64/" SONAME,
        "/usr/local/nvidia/lib64/" SONAME,
    };

    for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++)
        if (try_list(lists[i][0], lists[i][1], path))
            return true;
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
        if (try_pattern(places[i], path))
            return true;
    return false;
}

bool library_find(const char *name, char path[PATH_MAX], char *why, size_t why_bytes)
{
    if (strcmp(name, "nccl") != 0) {
        snprintf(path, PATH_MAX, "%s", name);
        return true;
    }
    if (find_nccl(path))
        return true;
    snprintf(why, why_bytes,
            "no %s of NVIDIA's in LD_LIBRARY_PATH, a Python's nvidia/nccl/lib, the "
            "system's folders or CUDA's; give its path",
            SONAME);
    return false;
}

static bool own_folder(char buf[PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", buf, PATH_MAX - 1);
    char *slash;

    if (n < 0)
        return false;
    buf[n] = 0;
    slash = strrchr(buf, '/');
    if (slash != NULL)
        *slash = 0;
    return slash != NULL;
}

bool library_absolute(const char *given, char path[PATH_MAX])
{
    char folder[2 * PATH_MAX], real[PATH_MAX];
    const char *slash = strrchr(given, '/');
    const char *name = slash != NULL ? slash + 1 : given;

    snprintf(folder, sizeof(folder), "%.*s", slash != NULL ? (int)(slash - given) : 1,
            slash != NULL ? given : ".");
    if (access(given, F_OK) != 0 || realpath(*folder != 0 ? folder : "/", real) == NULL)
        return false;
    if (strlen(real) + strlen(name) + 2 > PATH_MAX) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(path, real, strlen(real));
    snprintf(path + strlen(real), PATH_MAX - strlen(real), "/%s", name);
    return true;
}

/* Installed: as far from the command as it was configured, or in the usual places of a
 * tree that was moved. In the build tree: where the build puts libraries. */
bool library_beside(const char *name, char path[PATH_MAX])
{
    static const char *const places[] = { MOTET_BIN_TO_LIB, "../lib", "../lib64",
        "../../src/exports" };
    char folder[PATH_MAX], candidate[2 * PATH_MAX];

    if (!own_folder(folder))
        return false;
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        snprintf(candidate, sizeof(candidate), "%s/%s/%s", folder, places[i], name);
        if (library_absolute(candidate, path))
            return true;
    }
    return false;
}
