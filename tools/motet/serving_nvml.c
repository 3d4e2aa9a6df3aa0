/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVIDIA: libnvidia-ml.so.1, opened here and nowhere else, in a process of its own: it may
 * not answer on a GPU that fell off the bus.
 */
#include "apart.h"
#include "serving_parts.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LIBRARY   "libnvidia-ml.so.1"
#define NOT_KNOWN LIBRARY ": %s, so users of NVIDIA GPUs are not known"
/* The library's first call may have to load the driver. */
#define ANSWER_S 20
/* Of one list. */
#define LISTED_MAX 4096
/* More than screens take, less than whoever serves. */
#define MEMORY_OF_OTHERS (2ull << 30)
#define ANSWER_MAX       4096 /* of the host */

#define NVML_SUCCESS 0

/* nvmlProcessInfo_v1_t, and what v2 and v3 of the calls fill in. */
struct info_v1 {
    unsigned pid;
    unsigned long long used;
};

struct info_v2 {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

/* nvmlMemory_v2_t. */
struct memory {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
#define MEMORY_VERSION (sizeof(struct memory) | 2u << 24)

struct answer {
    bool by_memory; /* of a GPU without processes in sight, its memory tells */
    size_t count;
    bool no_library; /* `why` is the loader's reason */
    char why[160];   /* "" if all was answered */
    struct {
        pid_t pid;
        bool display;
        char gpu[96];
    } process[ANSWER_MAX];
};

/* Lists of processes, by the newest call that the library has. */
static const struct list {
    const char *call[3]; /* _v3, _v2, and the oldest, whose entries are smaller */
    bool display;
} lists[] = {
    { { "nvmlDeviceGetComputeRunningProcesses_v3",
              "nvmlDeviceGetComputeRunningProcesses_v2",
              "nvmlDeviceGetComputeRunningProcesses" },
            false },
    { { "nvmlDeviceGetMPSComputeRunningProcesses_v3",
              "nvmlDeviceGetMPSComputeRunningProcesses_v2",
              "nvmlDeviceGetMPSComputeRunningProcesses" },
            false },
    { { "nvmlDeviceGetGraphicsRunningProcesses_v3",
              "nvmlDeviceGetGraphicsRunningProcesses_v2",
              "nvmlDeviceGetGraphicsRunningProcesses" },
            true },
};

typedef int (*list_call)(void *device, unsigned *count, void *infos);

static void add_answer(struct answer *a, pid_t pid, bool display, const char *gpu)
{
    if (a->count == ANSWER_MAX)
        return;
    a->process[a->count].pid = pid;
    a->process[a->count].display = display;
    snprintf(a->process[a->count].gpu, sizeof(a->process[0].gpu), "%s", gpu);
    a->count++;
}

static void ask_list(struct answer *a, void *library, const struct list *list,
        void *device, const char *gpu)
{
    static struct info_v2 infos[LISTED_MAX];
    unsigned count = LISTED_MAX;
    list_call call = NULL;
    size_t version = 0, bytes;
    int result;

    while (version < 3 &&
            (call = (list_call)dlsym(library, list->call[version])) == NULL)
        version++;
    if (call == NULL)
        return; /* a library older than the list */
    bytes = version == 2 ? sizeof(struct info_v1) : sizeof(struct info_v2);
    result = call(device, &count, infos);
    /* Graphics and MPS are not supported everywhere; computing is. */
    if (result != NVML_SUCCESS && list == &lists[0] && a->why[0] == 0)
        snprintf(a->why, sizeof(a->why), "%s of %s gave %d", list->call[version], gpu,
                result);
    if (result != NVML_SUCCESS)
        return;
    for (unsigned i = 0; i < count && i < LISTED_MAX; i++) {
        unsigned pid;

        memcpy(&pid, (const char *)infos + i * bytes, sizeof(pid));
        add_answer(a, (pid_t)pid, list->display, gpu);
    }
}

/* NVML names processes of the caller's pid namespace and below, no others. */
static void ask_memory(struct answer *a, void *library, void *device, const char *gpu)
{
    struct memory memory = { .version = (unsigned)MEMORY_VERSION };
    int (*call)(void *device, struct memory *out) = NULL;
    char text[96];

    *(void **)&call = dlsym(library, "nvmlDeviceGetMemoryInfo_v2");
    if (call == NULL || call(device, &memory) != NVML_SUCCESS ||
            memory.used < MEMORY_OF_OTHERS)
        return;
    snprintf(text, sizeof(text), "%.60s: %llu MiB", gpu, memory.used >> 20);
    add_answer(a, 0, false, text);
}

static void ask_device(struct answer *a, void *library, unsigned index)
{
    int (*handle)(unsigned index, void **device) = NULL;
    int (*uuid)(void *device, char *buf, unsigned bytes) = NULL;
    size_t before = a->count;
    void *device = NULL;
    char gpu[96];
    int result;

    *(void **)&handle = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    *(void **)&uuid = dlsym(library, "nvmlDeviceGetUUID");
    snprintf(gpu, sizeof(gpu), "GPU %u", index);
    if (handle == NULL || (result = handle(index, &device)) != NVML_SUCCESS) {
        if (a->why[0] == 0)
            snprintf(a->why, sizeof(a->why), "it does not tell of GPU %u", index);
        return;
    }
    if (uuid == NULL || uuid(device, gpu, sizeof(gpu)) != NVML_SUCCESS)
        snprintf(gpu, sizeof(gpu), "GPU %u", index);
    for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++)
        ask_list(a, library, &lists[i], device, gpu);
    if (a->by_memory && a->count == before)
        ask_memory(a, library, device, gpu);
}

/* In the process of its own. */
static void ask(void *shared)
{
    struct answer *a = shared;
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    int (*init)(void) = NULL;
    int (*count)(unsigned *out) = NULL;
    unsigned devices = 0;
    int result;

    if (library == NULL) {
        a->no_library = true;
        snprintf(a->why, sizeof(a->why), "%s", dlerror());
        return;
    }
    *(void **)&init = dlsym(library, "nvmlInit_v2");
    *(void **)&count = dlsym(library, "nvmlDeviceGetCount_v2");
    if (init == NULL || count == NULL) {
        snprintf(a->why, sizeof(a->why), "it has no nvmlInit_v2");
        return;
    }
    if ((result = init()) != NVML_SUCCESS ||
            (result = count(&devices)) != NVML_SUCCESS) {
        snprintf(a->why, sizeof(a->why), "it does not start: NVML error %d", result);
        return;
    }
    for (unsigned i = 0; i < devices; i++)
        ask_device(a, library, i);
}

static bool has_driver(void)
{
    char path[4096];
    struct stat st;

    snprintf(path, sizeof(path), "%s/dev/nvidiactl", serving_root());
    return stat(path, &st) == 0;
}

static void take(struct serving_list *list, const struct answer *a)
{
    for (size_t i = 0; i < a->count; i++) {
        struct serving_seen seen = { .pid = a->process[i].pid,
            .display = a->process[i].display,
            .outside = a->process[i].pid == 0 };

        snprintf(seen.gpu, sizeof(seen.gpu), "%s", a->process[i].gpu);
        serving_add(list, seen);
    }
    /* Without NVIDIA's driver there is nothing to know. */
    if (a->why[0] != 0 && has_driver())
        serving_not_seen(list, NOT_KNOWN, a->why);
}

void serving_nvml(struct serving_list *list)
{
    static const char *const bad[] = {
        [APART_CRASHED] = "it crashed",
        [APART_LATE] = "it did not answer in time",
        [APART_STUCK] = "it did not answer in time, and its process cannot be ended",
        [APART_FAILED] = "no process that asks it could be started",
    };
    static const char *gave_up; /* once is enough waiting */
    struct answer *a;
    enum apart how;

    if (gave_up != NULL)
        serving_not_seen(list, NOT_KNOWN, gave_up);
    if (gave_up != NULL || (*serving_root() != 0 && !has_driver()))
        return; /* of another machine's files without one, this one's GPUs are no part */
    a = apart_memory(sizeof(*a));
    if (a == NULL) {
        serving_not_seen(list, NOT_KNOWN, "no memory to ask it");
        return;
    }
    a->by_memory = !serving_sees_all_pids() && !serving_has_children();
    how = apart_run(ask, a, ANSWER_S);
    if (how != APART_FINE)
        snprintf(a->why, sizeof(a->why), "%s", bad[how]);
    if (how == APART_LATE || how == APART_STUCK)
        gave_up = bad[how];
    take(list, a);
    apart_free(a, sizeof(*a));
}
