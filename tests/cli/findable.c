/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that motet lib finds. VERSION: what it says of itself; COMPLETE: it has what
 * hipfire takes; LOG: a file that gets a line each time it is loaded; the others are how
 * loading it goes wrong.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifdef VERSION
int ncclGetVersion(int *version);
int ncclGetVersion(int *version)
{
#ifdef ASK_CRASHES
    abort();
#endif
    *version = VERSION;
    return 0;
}
#endif

#ifdef COMPLETE
#define HAS(name)   \
    int name(void); \
    int name(void)  \
    {               \
        return 0;   \
    }
HAS(ncclCommInitAll)
HAS(ncclCommDestroy)
HAS(ncclAllReduce)
HAS(ncclSend)
HAS(ncclRecv)
HAS(ncclGroupStart)
HAS(ncclGroupEnd)
HAS(ncclGetErrorString)
#endif

__attribute__((constructor)) static void start(void)
{
#ifdef LOG
    FILE *log = fopen(LOG, "a");

    if (log != NULL) {
        fputs("loaded\n", log);
        fclose(log);
    }
#endif
#ifdef PRINTS
    printf("a constructor speaks\n");
    fflush(stdout);
    fprintf(stderr, "a constructor complains\n");
#endif
#ifdef CRASHES
    abort();
#endif
#ifdef EXITS
    exit(0);
#endif
#ifdef HANGS
    for (;;)
        pause();
#endif
#ifdef FORKS
    if (fork() == 0)
        for (;;)
            pause();
#endif
}
