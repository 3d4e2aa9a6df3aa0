/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the libraries that it is given, prints every mapped library with the NCCL ABI,
 * and lives for a while: mapper SECONDS [LIBRARY...]. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? strtod(argv[1], NULL) : 0;
    struct timespec nap = { (time_t)seconds,
        (long)((seconds - (double)(time_t)seconds) * 1e9) };
    char line[4096];
    FILE *maps;

    for (int i = 2; i < argc; i++)
        if (dlopen(argv[i], RTLD_NOW) == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
    maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL)
        if (strstr(line, "libnccl.so") != NULL || strstr(line, "librccl.so") != NULL)
            fputs(line, stdout);
    if (maps != NULL)
        fclose(maps);
    nanosleep(&nap, NULL);
    return 0;
}
