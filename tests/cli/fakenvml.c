/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for libnvidia-ml.so.1 with two GPUs, and users as the environment says:
 *
 *   FAKENVML_COMPUTE, FAKENVML_MPS, FAKENVML_GRAPHICS   "PID PID…", all on GPU 1; "parent"
 *                        is the process that asked for this one
 *   FAKENVML_USED=BYTES  of GPU 1's memory
 *   FAKENVML_LOG=FILE    gets a byte for each start
 *   FAKENVML_AFTER=N     nobody is there for the first N starts (needs the log)
 *   FAKENVML_ORPHAN=FILE starts a process that only waits, and writes its pid there
 *   FAKENVML_INIT=N      starting gives that error
 *   FAKENVML_TROUBLE     "hang", "crash" or "exit" when it is started, "lost" for a GPU 1
 *                        that does not answer
 *
 * Built with FAKENVML_OLD it is as old as the first such library: without _v2 and _v3 of
 * the lists, whose entries are smaller.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15, NOT_SUPPORTED = 3 };

#ifdef FAKENVML_OLD
#define LIST(name) name
struct entry {
    unsigned pid;
    unsigned long long used;
};
#else
#define LIST(name) name##_v3
struct entry {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};
#endif

int nvmlInit_v2(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length);
int LIST(nvmlDeviceGetComputeRunningProcesses)(void *device, unsigned *count,
        struct entry *infos);
int LIST(nvmlDeviceGetGraphicsRunningProcesses)(void *device, unsigned *count,
        struct entry *infos);
#ifndef FAKENVML_OLD
int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *device, unsigned *count,
        struct entry *infos);

struct memory {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory *memory);
#endif

static long starts;

static bool trouble(const char *kind)
{
    const char *word = getenv("FAKENVML_TROUBLE");

    return word != NULL && strcmp(word, kind) == 0;
}

/* Start what outlives this process. */
static void leave_orphan(const char *name)
{
    FILE *file = fopen(name, "ae");
    pid_t pid = file != NULL ? fork() : -1;

    if (pid == 0) {
        sleep(600);
        _exit(0);
    }
    if (file == NULL)
        return;
    fprintf(file, "%d\n", (int)pid);
    fclose(file);
}

int nvmlInit_v2(void)
{
    const char *orphan = getenv("FAKENVML_ORPHAN");
    const char *log = getenv("FAKENVML_LOG"), *code = getenv("FAKENVML_INIT");
    FILE *file = log != NULL ? fopen(log, "ae") : NULL;

    if (file != NULL) {
        fputc('.', file);
        fflush(file);
        starts = ftell(file);
        fclose(file);
    }
    if (orphan != NULL)
        leave_orphan(orphan);
    if (trouble("hang"))
        sleep(600);
    if (trouble("crash"))
        abort();
    if (trouble("exit"))
        exit(0);
    return code != NULL ? (int)strtol(code, NULL, 10) : SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = 2;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    if (index == 1 && trouble("lost"))
        return GPU_IS_LOST;
    *device = (void *)(uintptr_t)(index + 1);
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length)
{
    snprintf(uuid, length, "GPU-0000000%u", (unsigned)(uintptr_t)device - 1);
    return SUCCESS;
}

static int list(const char *variable, void *device, unsigned *count,
        struct entry *infos)
{
    const char *pids = getenv(variable), *after = getenv("FAKENVML_AFTER");
    unsigned room = *count;
    char *end;

    *count = 0;
    if (device != (void *)2 || pids == NULL ||
            (after != NULL && starts <= strtol(after, NULL, 10)))
        return SUCCESS;
    while (*pids != 0) {
        long pid = strtol(pids, &end, 10);

        if (end == pids) {
            pid = (long)getppid(); /* "parent" */
            end += strcspn(pids, " ");
        }
        if (*count < room)
            infos[*count] = (struct entry){ .pid = (unsigned)pid, .used = 1 << 30 };
        ++*count;
        pids = end + strspn(end, " ");
    }
    return *count <= room ? SUCCESS : INSUFFICIENT_SIZE;
}

int LIST(nvmlDeviceGetComputeRunningProcesses)(void *device, unsigned *count,
        struct entry *infos)
{
    return list("FAKENVML_COMPUTE", device, count, infos);
}

int LIST(nvmlDeviceGetGraphicsRunningProcesses)(void *device, unsigned *count,
        struct entry *infos)
{
    return list("FAKENVML_GRAPHICS", device, count, infos);
}

#ifndef FAKENVML_OLD
int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *device, unsigned *count,
        struct entry *infos)
{
    if (getenv("FAKENVML_MPS") == NULL)
        return NOT_SUPPORTED;
    return list("FAKENVML_MPS", device, count, infos);
}

int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory *memory)
{
    const char *used = getenv("FAKENVML_USED");

    if (memory->version != 0x02000028)
        return NOT_SUPPORTED;
    memory->used =
            device == (void *)2 && used != NULL ? strtoull(used, NULL, 10) : 1 << 20;
    return SUCCESS;
}
#endif
