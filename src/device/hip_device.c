/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices, and what a call leaves behind: the caller's current device is put back, and an
 * error of ours does not stay in the thread's last-error slot, where the application would
 * find it. An error of the application's own that waits there is left, unless a failure of
 * ours has replaced it, or the call was one whose refusal may show there only
 * (motet_hip_enter_work()). The runtimes before ROCm 7 let every call, also one that succeeds,
 * overwrite the slot; nothing can put a value back into it.
 */
#include "device/hip.h"

#include "base/log.h"
#include "base/param.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static motet_gpu_slots gpus = MOTET_GPU_SLOTS_INIT;

/* ---- the caller's device ---- */

static motet_result enter_ordinal(int ordinal, motet_hip_scope *scope)
{
    motet_result result;

    *scope = (motet_hip_scope){ .pending = motet_hip.hipPeekAtLastError() };
    if (motet_hip.hipGetDevice(&scope->before) == hipSuccess &&
            scope->before == ordinal)
        return MOTET_OK;
    result = HIP(hipSetDevice, ordinal);
    scope->switched = result == MOTET_OK;
    if (result == MOTET_OK)
        return MOTET_OK;
    motet_hip_leave(scope);
    return motet_error_wrap(result, "use device %d", ordinal);
}

static void relax(motet_hip_scope *scope)
{
    scope->mode = hipStreamCaptureModeRelaxed;
    scope->exchanged =
            motet_hip.hipThreadExchangeStreamCaptureMode(&scope->mode) == hipSuccess;
}

motet_result motet_hip_enter(const motet_gpu *gpu, motet_hip_scope *scope)
{
    return enter_ordinal(gpu->ordinal, scope);
}

motet_result motet_hip_enter_work(const motet_gpu *gpu, motet_hip_scope *scope)
{
    MOTET_TRY(enter_ordinal(gpu->ordinal, scope), "work");
    if (scope->pending != hipSuccess && scope->pending != hipErrorNotReady) {
        (void)motet_hip.hipGetLastError();
        scope->pending = hipSuccess;
    }
    return MOTET_OK;
}

motet_result motet_hip_enter_relaxed(const motet_gpu *gpu, motet_hip_scope *scope)
{
    const motet_result result = enter_ordinal(gpu->ordinal, scope);

    if (result == MOTET_OK)
        relax(scope);
    return result;
}

void motet_hip_enter_any(motet_hip_scope *scope)
{
    *scope = (motet_hip_scope){ .pending = motet_hip.hipPeekAtLastError() };
    relax(scope);
}

void motet_hip_leave(const motet_hip_scope *scope)
{
    hipStreamCaptureMode mode = scope->mode;

    /* What fails here fails for a reason that the call in between has reported. */
    if (scope->exchanged)
        (void)motet_hip.hipThreadExchangeStreamCaptureMode(&mode);
    if (scope->switched)
        (void)motet_hip.hipSetDevice(scope->before);
    /* "Not ready" is no error that anybody looks for afterwards. */
    if ((scope->pending == hipSuccess || scope->pending == hipErrorNotReady) &&
            motet_hip.hipPeekAtLastError() != hipSuccess)
        (void)motet_hip.hipGetLastError(); /* ours, and reported */
}

hipError_t motet_hip_settle(const motet_hip_scope *scope, hipError_t error)
{
    hipError_t last;

    if (error != hipSuccess)
        return error;
    last = motet_hip.hipPeekAtLastError();
    return last == scope->pending || last == hipErrorNotReady ? hipSuccess : last;
}

motet_result motet_hip_gpu_current(int *ordinal_out)
{
    motet_hip_scope scope;
    motet_result result;
    int ordinal = 0;

    MOTET_TRY(motet_hip_open(), "current device");
    motet_hip_enter_any(&scope);
    result = HIP(hipGetDevice, &ordinal);
    motet_hip_leave(&scope);
    if (result != MOTET_OK)
        return motet_error_wrap(result, "current device");
    *ordinal_out = ordinal;
    return MOTET_OK;
}

/* ---- facts ---- */

/* An attribute, or @p otherwise where the runtime does not know it. */
static int attribute(int ordinal, hipDeviceAttribute_t which, int otherwise)
{
    int value = otherwise;

    return motet_hip.hipDeviceGetAttribute(&value, which, ordinal) == hipSuccess
            ? value
            : otherwise;
}

/* The number that AMD's tools print is text in these bytes, "GPU-<16 digits>"; cards that
 * have none leave them empty, or "XX". */
static void print_uuid(const hipUUID *uuid, char *buf, size_t bytes)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    const hipUUID none = { .bytes = "" };

    buf[0] = '\0';
    if (memcmp(uuid, &none, sizeof(none)) == 0 || memcmp(uuid->bytes, "XX", 2) == 0)
        return;
    for (size_t i = 0; i < sizeof(uuid->bytes); i++) {
        if (uuid->bytes[i] == '\0' || strchr(digits, uuid->bytes[i]) == NULL) {
            motet_gpu_print_uuid("GPU", uuid, buf, bytes);
            return;
        }
    }
    snprintf(buf, bytes, "GPU-%.16s", uuid->bytes);
}

/* The place on the bus tells cards apart; what has a number of its own says that, too. */
static motet_result read_identity(int ordinal, motet_gpu_facts *facts)
{
    char uuid[48] = "";
    hipUUID bytes;

    MOTET_TRY(HIP(hipDeviceGetPCIBusId, facts->bus_id, (int)sizeof(facts->bus_id),
                      ordinal),
            "bus id");
    motet_gpu_lower(facts->bus_id);
    if (motet_hip.hipDeviceGetUuid != NULL &&
            motet_hip.hipDeviceGetUuid(&bytes, ordinal) == hipSuccess)
        print_uuid(&bytes, uuid, sizeof(uuid));
    snprintf(facts->identity, sizeof(facts->identity), "%s%s%s", uuid,
            uuid[0] != '\0' ? "/" : "", facts->bus_id);
    return MOTET_OK;
}

/* Length of a target at @p text, within @p bytes and ended by a NUL; 0 if there is none. */
static size_t target_length(const char *text, size_t bytes)
{
    static const char name[] = "0123456789abcdefghijklmnopqrstuvwxyz:+-";
    size_t length = 0;

    if (bytes < 7 || memcmp(text, "gfx", 3) != 0)
        return 0;
    while (length < bytes && text[length] != '\0' && strchr(name, text[length]) != NULL)
        length++;
    return length >= 6 && length < bytes && text[length] == '\0' ? length : 0;
}

bool motet_hip_find_target(const char *properties, size_t bytes, size_t offset,
        char *buf, size_t size)
{
    size_t length =
            offset < bytes ? target_length(properties + offset, bytes - offset) : 0;

    /* A runtime whose struct has grown in front of the field: look for it, last first,
     * since a marketing name may begin alike. */
    for (size_t at = bytes; at-- != 0 && length == 0;) {
        length = target_length(properties + at, bytes - at);
        offset = at;
    }
    if (length == 0 || length >= size)
        return false;
    snprintf(buf, size, "%s", properties + offset);
    return true;
}

/* What the runtime loads code by. Room for a struct that has grown. */
static bool ask_target(int ordinal, char *buf, size_t bytes)
{
    char properties[4 * HIP_PROP_R0600_BYTES] = "";

    if (motet_hip.hipGetDevicePropertiesR0600 != NULL)
        return motet_hip.hipGetDevicePropertiesR0600(properties, ordinal) ==
                hipSuccess &&
                motet_hip_find_target(properties, sizeof(properties),
                        HIP_PROP_R0600_ARCH, buf, bytes);
    return motet_hip.hipGetDeviceProperties != NULL &&
            motet_hip.hipGetDeviceProperties(properties, ordinal) == hipSuccess &&
            motet_hip_find_target(properties, sizeof(properties), HIP_PROP_R0000_ARCH,
                    buf, bytes);
}

/* What HSA_OVERRIDE_GFX_VERSION, or that of the device alone, makes of @p version. */
static unsigned overridden(int ordinal, unsigned version)
{
    const char *text;
    char variable[48];

    snprintf(variable, sizeof(variable), "HSA_OVERRIDE_GFX_VERSION_%d", ordinal);
    text = motet_param_environment(variable);
    if (text == NULL)
        text = motet_param_environment("HSA_OVERRIDE_GFX_VERSION");
    if (text != NULL)
        (void)motet_hip_gfx_parse(text,
                &version); /* else as the runtime: not changed */
    return version;
}

/*
 * The target is what the runtime says, since it refuses code for another; an override of
 * the user's is in that already. Only a runtime that does not say it is replaced by the
 * kernel's answer, to which the override is applied here. The kernel's own answer is said
 * where it differs. A card that nobody knows is one without code: it can still copy.
 */
static void read_target(int ordinal, const motet_hip_kfd *kfd, motet_gpu_facts *facts)
{
    const char *how = motet_param_environment("HSA_OVERRIDE_GFX_VERSION") != NULL
            ? " (HSA_OVERRIDE_GFX_VERSION)"
            : "";
    char card[24] = "unknown";
    size_t length;

    if (kfd->known)
        motet_hip_gfx_name(kfd->gfx_version, card, sizeof(card));
    if (!ask_target(ordinal, facts->target, sizeof(facts->target))) {
        snprintf(facts->target, sizeof(facts->target), "unknown");
        if (kfd->known)
            motet_hip_gfx_name(overridden(ordinal, kfd->gfx_version), facts->target,
                    sizeof(facts->target));
        motet_info(MOTET_SUB_INIT,
                "device %d: the runtime does not say its architecture, the kernel says "
                "%s",
                ordinal, card);
    }
    length = strcspn(facts->target, ":");
    if (kfd->known &&
            (strlen(card) != length || strncmp(card, facts->target, length) != 0))
        motet_info(MOTET_SUB_INIT, "device %d is a %s and is run as %s%s", ordinal,
                card, facts->target, how);
}

/* Streams share the GPU's hardware queues in turn: a kernel may lie behind one that waits
 * for it, which looks like a hang. */
static void say_queues(motet_gpu_facts *facts)
{
    const long queues = motet_gpu_number("GPU_MAX_HW_QUEUES");

    snprintf(facts->queue_hint, sizeof(facts->queue_hint),
            "the streams of a process share %ld hardware queues of a GPU, so that a "
            "kernel may lie behind one that waits for it: set GPU_MAX_HW_QUEUES to the "
            "number of streams that are in use",
            queues > 0 ? queues : 4);
}

static motet_result read_facts(int ordinal, motet_gpu_facts *facts)
{
    char missing[sizeof(facts->no_capture)];
    motet_hip_kfd kfd;
    size_t bytes = 0;

    MOTET_TRY(HIP(hipDeviceGetName, facts->name, (int)sizeof(facts->name), ordinal),
            "name");
    MOTET_TRY(HIP(hipDeviceTotalMem, &bytes, ordinal), "memory");
    MOTET_TRY(read_identity(ordinal, facts), "identity");
    motet_hip_kfd_read("", facts->bus_id, &kfd);
    read_target(ordinal, &kfd, facts);
    facts->memory_bytes = bytes;
    facts->major = attribute(ordinal, hipDeviceAttributeComputeCapabilityMajor, 0);
    facts->minor = attribute(ordinal, hipDeviceAttributeComputeCapabilityMinor, 0);
    facts->processors = attribute(ordinal, hipDeviceAttributeMultiprocessorCount, 1);
    facts->integrated = attribute(ordinal, hipDeviceAttributeIntegrated, 0) != 0;
    facts->host_atomics =
            attribute(ordinal, hipDeviceAttributeHostNativeAtomicSupported, -1);
    facts->link_atomics = kfd.atomics;
    facts->numa_node = motet_gpu_numa_node(facts->bus_id);
    facts->driver_version = facts->runtime_version = motet_hip_version();
    facts->legacy_ipc = !motet_hip_lacks(MOTET_HIP_IPC, missing, sizeof(missing));
    facts->launch_blocks = motet_gpu_number("HIP_LAUNCH_BLOCKING") != 0 ||
            (motet_gpu_number("AMD_SERIALIZE_KERNEL") & 2) != 0;
    (void)motet_hip_lacks(MOTET_HIP_CAPTURE, facts->no_capture,
            sizeof(facts->no_capture)); /* leaves "" if nothing is missing */
    say_queues(facts);
    return MOTET_OK;
}

/* ---- opening ---- */

static motet_result make(motet_gpu *gpu)
{
    motet_hip_scope scope;
    motet_result result;
    void *service = NULL;

    MOTET_TRY(motet_hip_enter_relaxed(gpu, &scope), "device %d", gpu->ordinal);
    result = read_facts(gpu->ordinal, &gpu->facts);
    gpu->fine_grained =
            attribute(gpu->ordinal, hipDeviceAttributeFineGrainSupport, 0) == 1;
    motet_hip_leave(&scope);
    /* Urgent streams have hardware queues of their own: no kernel of the application's
     * lies in front. */
    if (result == MOTET_OK)
        result = motet_hip_stream_create(gpu, true, &service);
    if (result != MOTET_OK)
        return motet_error_wrap(result, "device %d", gpu->ordinal);
    gpu->service = service;
    return MOTET_OK;
}

static const char *yes_no(int answer)
{
    return answer < 0 ? "unknown" : answer != 0 ? "yes" : "no";
}

static motet_result open_new(int ordinal, motet_gpu **out)
{
    motet_gpu *gpu = calloc(1, sizeof(*gpu));
    motet_result result;

    if (gpu == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "device %d", ordinal);
    gpu->ordinal = ordinal;
    result = make(gpu);
    if (result != MOTET_OK) {
        free(gpu);
        return result;
    }
    motet_info(MOTET_SUB_INIT,
            "device %d: %s %s, %s, NUMA node %d, memory by %s; AtomicOps to the host: "
            "runtime says %s, kernel says %s (not needed)",
            ordinal, gpu->facts.name, gpu->facts.target, gpu->facts.identity,
            gpu->facts.numa_node,
            gpu->facts.legacy_ipc ? "handle" : "this process only",
            yes_no(gpu->facts.host_atomics), yes_no(gpu->facts.link_atomics));
    if (!motet_hip_has_memory(gpu, hipDeviceMallocUncached))
        motet_info(MOTET_SUB_INIT,
                "device %d: the runtime has no uncached and no fine-grained memory of "
                "it: other processes and GPUs reach it through host memory",
                ordinal);
    *out = gpu;
    return MOTET_OK;
}

motet_result motet_hip_gpu_open(int ordinal, motet_gpu **out)
{
    MOTET_TRY(motet_hip_open(), "device %d", ordinal);
    return motet_gpu_open_once(&gpus, ordinal, motet_hip_num_devices(), open_new, out);
}
