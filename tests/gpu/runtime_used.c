/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which AMD runtime the library uses in a process that has opened one or several itself:
 *
 *     runtime_used [--global] PATH...
 *
 * opens each PATH, RTLD_LOCAL unless said otherwise, and makes communicators. With one
 * PATH they must work, and no other runtime may have been mapped; with several, the
 * sentence must name all of them.
 */
#include <nccl.h>

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 2

static bool is_runtime(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;

    return strncmp(name, "libamdhip64.so", 14) == 0 ||
            strncmp(name, "libgalaxyhip.so", 15) == 0;
}

/** Mapped runtimes that are not @p path; each is printed. */
static int strangers(const char *path)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[4096];
    int n = 0;

    if (maps == NULL)
        return 1;
    while (fgets(line, sizeof(line), maps) != NULL) {
        const char *file = strchr(line, '/');

        line[strcspn(line, "\n")] = '\0';
        if (file == NULL || !is_runtime(file) || strcmp(file, path) == 0)
            continue;
        printf("FAIL  '%s' is mapped too\n", file);
        n++;
    }
    (void)fclose(maps);
    return n;
}

static int one(const char *path)
{
    ncclComm_t comms[RANKS] = { NULL };
    ncclResult_t got = ncclCommInitAll(comms, RANKS, NULL);

    if (got != ncclSuccess) {
        printf("FAIL  ncclCommInitAll: %s: %s\n", ncclGetErrorString(got),
                ncclGetLastError(NULL));
        return 1;
    }
    for (int r = 0; r < RANKS; r++)
        (void)ncclCommDestroy(comms[r]);
    return strangers(path) != 0;
}

static int several(char **path, int count)
{
    ncclComm_t comms[RANKS] = { NULL };
    ncclResult_t got = ncclCommInitAll(comms, RANKS, NULL);
    const char *sentence = ncclGetLastError(NULL);

    if (got == ncclSuccess) {
        printf("FAIL  ncclCommInitAll chose one of several\n");
        return 1;
    }
    for (int i = 0; i < count; i++)
        if (strstr(sentence, path[i]) == NULL) {
            printf("FAIL  the sentence does not name '%s': %s\n", path[i], sentence);
            return 1;
        }
    printf("%s\n", sentence);
    return 0;
}

int main(int argc, char **argv)
{
    int first = argc > 1 && strcmp(argv[1], "--global") == 0 ? 2 : 1;
    int scope = first == 2 ? RTLD_GLOBAL : RTLD_LOCAL;

    if (first >= argc) {
        fprintf(stderr, "usage: runtime_used [--global] PATH...\n");
        return 64;
    }
    for (int i = first; i < argc; i++)
        if (dlopen(argv[i], RTLD_NOW | scope) == NULL) {
            printf("FAIL  %s\n", dlerror());
            return 1;
        }
    return argc - first == 1 ? one(argv[first]) : several(argv + first, argc - first);
}
