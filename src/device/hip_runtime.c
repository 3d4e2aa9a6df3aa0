/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AMD's runtime library: found (src/find), asked for its functions, initialised. Whatever
 * goes wrong here is said in a sentence, and the same one each time.
 */
#include "device/hip.h"

#include "base/log.h"
#include "base/param.h"
#include "find/find.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

motet_hip_functions motet_hip;

enum { OPTIONAL, REQUIRED };

static const motet_gpu_symbol symbols[] = {
#define ROW(need, symbol, returns, parameters, since, feature)                   \
    { #symbol, offsetof(motet_hip_functions, symbol), (need) == REQUIRED, since, \
        feature },
    MOTET_HIP_FUNCTIONS(ROW)
#undef ROW
};

#define NUM_SYMBOLS (sizeof(symbols) / sizeof(*symbols))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool usable, forked;
static struct {
    motet_gpu_standing standing; /* unless USABLE, NO_RUNTIME: not looked yet */
    char why[MOTET_ERROR_TRAIL_MAX];
    char path[MOTET_FIND_PATH_MAX];
    int version, devices;
    motet_find_report report; /* large: not for the caller's stack */
} runtime = { .standing = MOTET_GPU_NO_RUNTIME };

/* What the runtime's errors mean to somebody who has to do something about them. */
static const struct {
    hipError_t error;
    const char *means;
} meanings[] = {
    { hipErrorOutOfMemory, "the GPU has no memory left" },
    { hipErrorDeinitialized, "the process is about to end" },
    { hipErrorInsufficientDriver,
            "the kernel's amdgpu driver is older than this runtime takes" },
    { hipErrorInvalidDeviceFunction, "the code was not built for this GPU" },
    { hipErrorNoDevice,
            "no GPU is there that HIP takes, or HIP_VISIBLE_DEVICES or "
            "ROCR_VISIBLE_DEVICES hides it" },
    { hipErrorInvalidImage, "the code is not for this GPU or damaged" },
    { hipErrorInvalidContext,
            "a handle of a process with this one's number: share the pid namespace "
            "(docker run --pid=host)" },
    { hipErrorMapFailed,
            "the kernel refused the mapping: locked memory (ulimit -l), or the "
            "container's limits" },
    { hipErrorNoBinaryForGpu, "the code was not built for this GPU" },
    { hipErrorECCNotCorrectable, "the GPU's memory lost bits, see dmesg" },
    { hipErrorPeerAccessUnsupported, "these two GPUs cannot reach each other" },
    { hipErrorSharedObjectInitFailed, "the code is not for this GPU or damaged" },
    { hipErrorIllegalState,
            "the runtime refused it: a kernel that declares a hostcall buffer, on a "
            "host without PCIe AtomicOps, or a failure before it (AMD_LOG_LEVEL=1 "
            "says which)" },
    { hipErrorIllegalAddress,
            "a kernel touched memory that it may not; the process must end" },
    { hipErrorContextIsDestroyed,
            "a stream that was destroyed, or the device was reset (hipDeviceReset) "
            "under its users" },
    { hipErrorLaunchFailure, "a kernel failed; the process must end" },
    { hipErrorStreamCaptureIsolation,
            "the stream that the event was recorded in is being captured" },
    { hipErrorStreamCaptureImplicit,
            "the legacy default stream cannot be used while a stream that waits for it "
            "is captured" },
    { hipErrorUnknown, "the GPU may have been reset, see dmesg" },
};

static const char *meaning_of(hipError_t error)
{
    for (size_t i = 0; i < sizeof(meanings) / sizeof(*meanings); i++)
        if (meanings[i].error == error)
            return meanings[i].means;
    return NULL;
}

motet_result motet_hip_check(hipError_t error, const char *call, const char *file,
        int line)
{
    const char *name, *text, *means = meaning_of(error);

    if (error == hipSuccess)
        return MOTET_OK;
    if (error == hipErrorNotReady)
        return MOTET_IN_PROGRESS;
    name = motet_hip.hipGetErrorName(error);
    text = motet_hip.hipGetErrorString(error);
    return motet_error_start(MOTET_ERR_DEVICE, file, line, "%s: %s (%s, %d)%s%s", call,
            name != NULL ? name : "an error without a name",
            text != NULL ? text : "no description", (int)error,
            means != NULL ? ": " : "", means != NULL ? means : "");
}

/* "/opt/rocm/lib/libamdhip64.so.5 (HIP 5.2) has no hipFoo, need that of ROCm 5.3 or newer" */
static void say_missing(const motet_gpu_symbol *s, char *buf, size_t bytes)
{
    snprintf(buf, bytes,
            "%.200s (HIP %d.%d) has no %s, need the runtime of ROCm %d.%d or newer",
            runtime.path, runtime.version / 1000, runtime.version % 1000 / 10, s->name,
            s->since / 1000, s->since % 1000 / 10);
}

bool motet_hip_lacks(const char *feature, char *buf, size_t bytes)
{
    const motet_gpu_symbol *missing =
            motet_gpu_missing(symbols, NUM_SYMBOLS, &motet_hip, feature);

    if (missing != NULL)
        say_missing(missing, buf, bytes);
    return missing != NULL;
}

static motet_find_setting setting(const char *variable)
{
    return (motet_find_setting){ variable, motet_param_environment(variable) };
}

/* Every copy that was looked at, with what became of it. */
static void say_candidates(void)
{
    const size_t bytes = motet_find_text(&runtime.report, NULL, 0) + 1;
    char *text, *next;

    if (!motet_log_on(MOTET_LOG_INFO, MOTET_SUB_INIT) || (text = malloc(bytes)) == NULL)
        return;
    (void)motet_find_text(&runtime.report, text, bytes);
    next = text;
    for (const char *line; (line = strsep(&next, "\n")) != NULL;)
        if (*line != '\0')
            motet_info(MOTET_SUB_INIT, "HIP runtime: %s", line);
    free(text);
}

/* NULL with the reason in runtime.why. */
static void *open_library(void)
{
    const motet_find_request request = { .library = &motet_find_hip,
        .override = setting("MOTET_HIP_LIB"),
        .roots = { setting("DTK_ROOT"), setting("ROCM_PATH"), setting("HIP_PATH") } };

    if (motet_find_open(&request, &runtime.report)) {
        snprintf(runtime.path, sizeof(runtime.path), "%s", runtime.report.path);
        return runtime.report.handle;
    }
    /* A missing library is looked for with each communicator, and is said once. */
    if (strncmp(runtime.why, runtime.report.sentence, 1000) != 0)
        say_candidates();
    snprintf(runtime.why, sizeof(runtime.why), "%.1000s", runtime.report.sentence);
    /* Installs that cannot be told apart are no sign of a GPU; its node is. */
    runtime.standing = runtime.report.outcome == MOTET_FIND_NONE ? MOTET_GPU_NO_RUNTIME
            : runtime.report.outcome == MOTET_FIND_AMBIGUOUS &&
                    access("/dev/kfd", F_OK) != 0
            ? MOTET_GPU_NO_DEVICE
            : MOTET_GPU_BROKEN;
    return NULL;
}

/* HIP numbers 6.2 as 60200000 and more. */
static int read_number(int version)
{
    return version / 10000000 * 1000 + version / 100000 % 100 * 10;
}

/* What HIP over CUDA says is CUDA's 12040. */
static bool read_version(void *handle)
{
    hipError_t (*ask)(int *) = NULL;
    void *found = dlsym(handle, "hipRuntimeGetVersion");
    int version = 0;

    memcpy(&ask, &found, sizeof(found));
    if (ask == NULL) {
        snprintf(runtime.why, sizeof(runtime.why),
                "%.300s is no HIP runtime: it has no hipRuntimeGetVersion",
                runtime.path);
        return false;
    }
    /* Without a device some versions fail here and still say it. */
    (void)ask(&version);
    if (version != 0 && version < 1000000) {
        snprintf(runtime.why, sizeof(runtime.why),
                "%.300s says that it is version %d: HIP over another vendor's driver, "
                "which cannot load AMD's code; for NVIDIA GPUs set MOTET_DEVICE=cuda",
                runtime.path, version);
        return false;
    }
    runtime.version = read_number(version);
    return true;
}

static bool find_functions(void *handle)
{
    const motet_gpu_symbol *missing =
            motet_gpu_resolve(symbols, NUM_SYMBOLS, handle, &motet_hip);

    if (missing != NULL)
        say_missing(missing, runtime.why, sizeof(runtime.why));
    return missing == NULL;
}

/* A runtime without devices has nothing that a child could miss. */
static void after_fork(void)
{
    atomic_store(&forked, atomic_load(&usable));
}

/* With devices a runtime knows its version, by which its numbers are read. */
static bool ask_version(void)
{
    int version = 0;

    if (runtime.version == 0) {
        (void)motet_hip.hipRuntimeGetVersion(&version);
        runtime.version = read_number(version);
    }
    if (runtime.version == 0)
        snprintf(runtime.why, sizeof(runtime.why),
                "%.300s shows %d devices and does not say its version: "
                "hipRuntimeGetVersion gives %d",
                runtime.path, runtime.devices, version);
    return runtime.version != 0;
}

/* Initialise the runtime and count. A failure is said in runtime.why. */
static motet_gpu_standing start(void)
{
    motet_gpu_standing nodes;
    motet_hip_scope scope;
    hipError_t error;
    char why[400];

    motet_hip_enter_any(&scope);
    error = motet_hip.hipInit(0);
    /* Without a device some versions answer that with another error. */
    if (error == hipSuccess || error == hipErrorInvalidDevice)
        error = motet_hip.hipGetDeviceCount(&runtime.devices);
    motet_hip_leave(&scope);
    if (error == hipSuccess && runtime.devices > 0 && !ask_version())
        return MOTET_GPU_BROKEN;
    if (error == hipSuccess && runtime.devices > 0) {
        if (runtime.devices > MOTET_GPU_DEVICES)
            runtime.devices = MOTET_GPU_DEVICES;
        return MOTET_GPU_USABLE;
    }
    if (error == hipSuccess)
        error = hipErrorNoDevice;
    (void)motet_hip_check(error, "hipGetDeviceCount", __FILE__, __LINE__);
    nodes = motet_hip_nodes("", why, sizeof(why));
    if (nodes != MOTET_GPU_USABLE)
        (void)motet_error_wrap(MOTET_ERR_DEVICE, "%s", why);
    snprintf(runtime.why, sizeof(runtime.why), "%.200s (HIP %d.%d): %.700s",
            runtime.path, runtime.version / 1000, runtime.version % 1000 / 10,
            motet_error_trail());
    /* A GPU that is there and not ours to open is not a machine without one. */
    return error == hipErrorNoDevice && nodes != MOTET_GPU_BROKEN ? MOTET_GPU_NO_DEVICE
                                                                  : MOTET_GPU_BROKEN;
}

/* With the lock held. */
static void look(void)
{
    void *handle = open_library();

    if (handle == NULL)
        return;
    runtime.standing = MOTET_GPU_BROKEN;
    if (!read_version(handle) || !find_functions(handle))
        return;
    pthread_atfork(NULL, NULL, after_fork);
    runtime.standing = start();
    if (runtime.standing != MOTET_GPU_USABLE)
        return;
    motet_info(MOTET_SUB_INIT, "HIP runtime %s, HIP %d.%d, %d device%s: %s",
            runtime.path, runtime.version / 1000, runtime.version % 1000 / 10,
            runtime.devices, runtime.devices == 1 ? "" : "s", runtime.report.sentence);
    atomic_store(&usable, true);
}

motet_gpu_standing motet_hip_look(void)
{
    motet_gpu_standing standing;

    if (atomic_load(&forked)) {
        (void)motet_fail(MOTET_ERR_DEVICE,
                "HIP was initialised before this process was forked: start it with "
                "spawn or exec");
        return MOTET_GPU_BROKEN;
    }
    if (atomic_load(&usable))
        return MOTET_GPU_USABLE;
    pthread_mutex_lock(&lock);
    if (runtime.standing == MOTET_GPU_NO_RUNTIME)
        look();
    standing = runtime.standing;
    if (standing != MOTET_GPU_USABLE) /* with the lock: the next look writes `why` */
        (void)motet_fail(MOTET_ERR_DEVICE, "%s", runtime.why);
    pthread_mutex_unlock(&lock);
    return standing;
}

motet_result motet_hip_open(void)
{
    return motet_hip_look() == MOTET_GPU_USABLE ? MOTET_OK : MOTET_ERR_DEVICE;
}

int motet_hip_num_devices(void)
{
    return atomic_load(&usable) ? runtime.devices : 0;
}

int motet_hip_version(void)
{
    return atomic_load(&usable) ? runtime.version : 0;
}
