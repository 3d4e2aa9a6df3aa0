/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the GPU runtimes say: HIP's attribute for AtomicOps, and which GPUs may reach which.
 * They are asked in a process of their own with a deadline, because a runtime on a sick
 * machine may crash or never return. Asking makes no context and launches nothing.
 */
#include "deadline.h"
#include "gather.h"

#include "find/find.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define DEADLINE_MS 15000
#define DEVICES_MAX 64
/* The runtimes' own numbers. */
#define HIP_HOST_NATIVE_ATOMIC  15
#define CUDA_HOST_NATIVE_ATOMIC 86

/* What both runtimes have under other names; each answers 0 when it is well. */
struct runtime {
    int (*count)(int *out);
    int (*address)(char *out, int bytes, int device);
    int (*attribute)(int *out, int which, int device);
    int (*peer)(int *out, int device, int other);
    const char *name;
    int atomics;
};

static void ask(const struct runtime *r, FILE *out)
{
    int count = 0, value;

    if (r->count(&count) != 0)
        return;
    if (count > DEVICES_MAX)
        count = DEVICES_MAX;
    for (int i = 0; i < count; i++) {
        char address[32] = "";

        if (r->address(address, sizeof(address), i) != 0)
            continue;
        if (r->attribute(&value, r->atomics, i) == 0)
            fprintf(out, "%s device %d %s hostNativeAtomicSupported %d\n", r->name, i,
                    address, value);
    }
    for (int i = 0; i < count; i++)
        for (int k = 0; k < count; k++)
            if (i != k && r->peer(&value, i, k) == 0)
                fprintf(out, "DeviceCanAccessPeer(%d, %d) %d\n", i, k, value);
}

/* dlsym() into a pointer to a function, which ISO C has no conversion for. */
static bool take(void *handle, const char *symbol, void *function)
{
    void *at = dlsym(handle, symbol);

    memcpy(function, &at, sizeof(at));
    return at != NULL;
}

static void ask_hip(FILE *out, const void *about)
{
    struct runtime r = { .name = "HIP", .atomics = HIP_HOST_NATIVE_ATOMIC };
    motet_find_report *report = calloc(1, sizeof(*report));
    const motet_find_request request = { .library = &motet_find_hip,
        .roots = { { "ROCM_PATH", getenv("ROCM_PATH") },
                { "HIP_PATH", getenv("HIP_PATH") } } };

    (void)about;
    if (report == NULL || !motet_find_open(&request, report)) {
        if (report != NULL)
            fprintf(out, "!HIP: %s\n", report->sentence);
    } else if (take(report->handle, "hipGetDeviceCount", &r.count) &&
            take(report->handle, "hipDeviceGetPCIBusId", &r.address) &&
            take(report->handle, "hipDeviceGetAttribute", &r.attribute) &&
            take(report->handle, "hipDeviceCanAccessPeer", &r.peer)) {
        ask(&r, out);
    }
    free(report);
}

static void ask_cuda(FILE *out, const void *about)
{
    struct runtime r = { .name = "CUDA", .atomics = CUDA_HOST_NATIVE_ATOMIC };
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*begin)(unsigned flags);

    (void)about;
    if (handle == NULL)
        fprintf(out, "!CUDA: %s\n", dlerror());
    else if (take(handle, "cuInit", &begin) && begin(0) == 0 &&
            take(handle, "cuDeviceGetCount", &r.count) &&
            take(handle, "cuDeviceGetPCIBusId", &r.address) &&
            take(handle, "cuDeviceGetAttribute", &r.attribute) &&
            take(handle, "cuDeviceCanAccessPeer", &r.peer))
        ask(&r, out);
}

static void in_a_child(struct dr_gather *g, const char *name,
        void (*which)(FILE *out, const void *about))
{
    char *save = NULL, *text;
    bool in_time;

    text = dr_ask_in_child(g->d, DEADLINE_MS, which, NULL, &in_time);
    if (!in_time)
        doctor_unread(g->d, name, "the runtime did not answer within %d s",
                DEADLINE_MS / 1000);
    for (char *line = strtok_r(text, "\n", &save); line != NULL;
            line = strtok_r(NULL, "\n", &save)) {
        if (line[0] == '!')
            doctor_unread(g->d, name, "%s", line + 1);
        else
            fprintf(g->out, "%s\n", line);
    }
}

void dr_gather_runtimes(struct dr_gather *g)
{
    if (!dr_gather_live(g))
        return;
    if (dr_gathered(g, 0x1002, "amdgpu") || dr_gathered(g, 0x1d94, NULL))
        in_a_child(g, "HIP runtime", ask_hip);
    if (dr_gathered(g, 0x10de, "nvidia"))
        in_a_child(g, "CUDA driver", ask_cuda);
    (void)fflush(g->out);
}
