/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where libraries are. Motet's own: beside the command. A vendor's: where `motet lib` finds
 * it.
 */
#include "lib.h"
#include "library.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool library_find(const char *name, char path[PATH_MAX], char *why, size_t why_bytes)
{
    static const motet_find_library *const libraries[] = { &motet_find_nccl,
        &motet_find_rccl };
    struct lib_wish wish = { .vendor = true };
    struct lib_found *found;
    bool is_found;

    for (size_t i = 0; i < sizeof(libraries) / sizeof(*libraries); i++)
        if (strcmp(name, libraries[i]->name) == 0)
            wish.library = libraries[i];
    if (wish.library == NULL) {
        snprintf(path, PATH_MAX, "%s", name);
        return true;
    }
    found = lib_search(&wish);
    if (found == NULL) {
        snprintf(why, why_bytes, "no memory to look for %s", wish.library->what);
        return false;
    }
    is_found = found->report.outcome == MOTET_FIND_FOUND;
    snprintf(path, PATH_MAX, "%s", found->report.path);
    if (!is_found)
        snprintf(why, why_bytes, "%s", found->report.sentence);
    lib_found_free(found);
    return is_found;
}

bool library_own_folder(char buf[PATH_MAX])
{
    char own[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", own, sizeof(own) - 1);
    char *slash;

    if (n < 0)
        return false;
    own[n] = 0;
    slash = strrchr(own, '/');
    if (slash != NULL)
        *slash = 0;
    snprintf(buf, PATH_MAX, "%s", own);
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

    if (!library_own_folder(folder))
        return false;
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        snprintf(candidate, sizeof(candidate), "%s/%s/%s", folder, places[i], name);
        if (library_absolute(candidate, path))
            return true;
    }
    return false;
}
