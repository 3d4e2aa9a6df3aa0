/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVIDIA's driver library: found, opened, asked for its functions, initialised. Whatever
 * goes wrong here is said in a sentence, and the same one each time.
 */
#include "device/cuda.h"

#include "base/log.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libcuda.so.1"
/* What a mapped copy's file name begins with, whatever its version. */
#define LIBRARY_STEM "libcuda.so"

motet_cuda_functions motet_cuda;

enum { OPTIONAL, REQUIRED };

static const motet_gpu_symbol symbols[] = {
#define ROW(need, symbol, parameters, since, feature)                             \
    { #symbol, offsetof(motet_cuda_functions, symbol), (need) == REQUIRED, since, \
        feature },
    MOTET_CUDA_FUNCTIONS(ROW)
#undef ROW
};

#define NUM_SYMBOLS (sizeof(symbols) / sizeof(*symbols))

/* Which driver first came with which CUDA version, on Linux. */
static const struct {
    int since;
    const char *driver;
} releases[] = {
    { 9020, "396.26" },
    { 10000, "410.48" },
    { 10010, "418.39" },
    { 10020, "440.33" },
    { 11000, "450.36" },
    { 11010, "455.23" },
    { 11020, "460.27" },
    { 11030, "465.19" },
    { 11040, "470.42" },
    { 12000, "525.60" },
    { 12030, "545.23" },
    { 12040, "550.54" },
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool usable, forked;
static struct {
    motet_gpu_standing standing; /* unless USABLE, NO_DRIVER: not looked yet */
    char why[MOTET_ERROR_TRAIL_MAX];
    char path[512];
    int version, devices;
} driver = { .standing = MOTET_GPU_NO_RUNTIME };

/* What the driver's errors mean to somebody who has to do something about them. */
static const struct {
    CUresult error;
    const char *means;
} meanings[] = {
    { CUDA_ERROR_OUT_OF_MEMORY, "the GPU has no memory left" },
    { CUDA_ERROR_NOT_INITIALIZED,
            "CUDA was initialised before this process was forked: start it with spawn "
            "or exec" },
    { CUDA_ERROR_DEINITIALIZED, "the process is about to end" },
    { CUDA_ERROR_STUB_LIBRARY,
            "this is the library to link against, not the driver: take its folder out "
            "of "
            "LD_LIBRARY_PATH" },
    { CUDA_ERROR_DEVICE_UNAVAILABLE,
            "another process has the GPU for itself (compute mode EXCLUSIVE_PROCESS or "
            "PROHIBITED, see nvidia-smi -q)" },
    { CUDA_ERROR_NO_DEVICE,
            "no GPU is there, or CUDA_VISIBLE_DEVICES hides it, or the container was "
            "started without it" },
    { CUDA_ERROR_INVALID_IMAGE, "the code is not for this GPU or damaged" },
    { CUDA_ERROR_NO_BINARY_FOR_GPU, "the code was not built for this GPU" },
    { CUDA_ERROR_ECC_UNCORRECTABLE,
            "the GPU's memory lost bits: reset it, see Xid lines in dmesg" },
    { CUDA_ERROR_CONTEXT_ALREADY_IN_USE, "the GPU is in use by another context" },
    { CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "these two GPUs cannot reach each other" },
    { CUDA_ERROR_NVLINK_UNCORRECTABLE, "an NVLink failed, see Xid lines in dmesg" },
    { CUDA_ERROR_JIT_COMPILER_NOT_FOUND,
            "libnvidia-ptxjitcompiler.so.1 of the driver is missing: code for another "
            "GPU cannot be translated" },
    { CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
            "the driver is older than the PTX that it was given" },
    { CUDA_ERROR_JIT_COMPILATION_DISABLED, "CUDA_DISABLE_PTX_JIT forbids it" },
    { CUDA_ERROR_OPERATING_SYSTEM,
            "the kernel refused it: descriptors, locked memory (ulimit -n, -l), "
            "containers' limits" },
    { CUDA_ERROR_ILLEGAL_ADDRESS,
            "a kernel touched memory that it may not; the process must end" },
    { CUDA_ERROR_LAUNCH_TIMEOUT, "the display's watchdog ended a kernel" },
    { CUDA_ERROR_CONTEXT_IS_DESTROYED,
            "the device was reset (cudaDeviceReset) under its users" },
    { CUDA_ERROR_LAUNCH_FAILED, "a kernel failed; the process must end" },
    { CUDA_ERROR_NOT_PERMITTED, "not allowed here" },
    { CUDA_ERROR_SYSTEM_NOT_READY,
            "the machine's NVSwitches are not set up: start nvidia-fabricmanager" },
    { CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
            "the library and the kernel's driver are of different versions: reboot "
            "after "
            "an update, in a container use the host's library" },
    { CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE,
            "this is a forward-compatibility library, which only data-centre GPUs "
            "take: "
            "use the driver's own" },
    { CUDA_ERROR_MPS_CONNECTION_FAILED, "the MPS daemon does not answer" },
    { CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
            "the legacy default stream cannot be used while a stream that waits for it "
            "is captured" },
    { CUDA_ERROR_EXTERNAL_DEVICE, "a device of another process or node failed" },
    { CUDA_ERROR_UNKNOWN,
            "the driver does not reach the kernel's part: are nvidia_uvm and "
            "/dev/nvidia-uvm there (nvidia-modprobe -u -c 0)? See Xid lines in dmesg" },
};

static const char *meaning_of(CUresult error)
{
    for (size_t i = 0; i < sizeof(meanings) / sizeof(*meanings); i++)
        if (meanings[i].error == error)
            return meanings[i].means;
    return NULL;
}

motet_result motet_cuda_check(CUresult error, const char *call, const char *file,
        int line)
{
    const char *name = NULL, *text = NULL, *means;

    if (error == CUDA_SUCCESS)
        return MOTET_OK;
    if (error == CUDA_ERROR_NOT_READY)
        return MOTET_IN_PROGRESS;
    if (motet_cuda.cuGetErrorName(error, &name) != CUDA_SUCCESS || name == NULL)
        return motet_error_start(MOTET_ERR_DEVICE, file, line,
                "%s failed with error %d, which the driver does not name", call,
                (int)error);
    if (motet_cuda.cuGetErrorString(error, &text) != CUDA_SUCCESS || text == NULL)
        text = "no description";
    means = meaning_of(error);
    return motet_error_start(MOTET_ERR_DEVICE, file, line, "%s: %s (%s)%s%s", call,
            name, text, means != NULL ? ": " : "", means != NULL ? means : "");
}

static const char *release_of(int since)
{
    for (size_t i = 0; i < sizeof(releases) / sizeof(*releases); i++)
        if (releases[i].since >= since)
            return releases[i].driver;
    return releases[sizeof(releases) / sizeof(*releases) - 1].driver;
}

/* "/usr/lib/libcuda.so.1 (CUDA 11.0) has no cuFoo: need CUDA 11.3 (driver 465.19)" */
static void say_missing(const motet_gpu_symbol *s, char *buf, size_t bytes)
{
    snprintf(buf, bytes,
            "%.200s (CUDA %d.%d) has no %s, need the driver of CUDA %d.%d (%s) or "
            "newer",
            driver.path, driver.version / 1000, driver.version % 1000 / 10, s->name,
            s->since / 1000, s->since % 1000 / 10, release_of(s->since));
}

bool motet_cuda_lacks(const char *feature, char *buf, size_t bytes)
{
    const motet_gpu_symbol *missing =
            motet_gpu_missing(symbols, NUM_SYMBOLS, &motet_cuda, feature);

    if (missing != NULL)
        say_missing(missing, buf, bytes);
    return missing != NULL;
}

/* For dl_iterate_phdr(): the path of a mapped driver. */
static int note_driver(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *name = slash != NULL ? slash + 1 : info->dlpi_name;

    (void)bytes;
    (void)arg;
    if (strncmp(name, LIBRARY_STEM, sizeof(LIBRARY_STEM) - 1) != 0)
        return 0;
    snprintf(driver.path, sizeof(driver.path), "%s", info->dlpi_name);
    return 1;
}

/* The library that the process has mapped already, under whatever path; else the one that
 * the loader finds. NULL with the reason in driver.why. */
static void *open_library(void)
{
    void *handle = NULL;
    const char *said;

    driver.path[0] = '\0';
    if (dl_iterate_phdr(note_driver, NULL) != 0)
        handle = dlopen(driver.path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (handle == NULL)
        handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (handle != NULL)
        return handle;
    said = dlerror();
    snprintf(driver.why, sizeof(driver.why), "no NVIDIA driver can be opened: %.400s",
            said != NULL ? said : LIBRARY);
    /* A driver that is there and cannot be loaded is not a machine without one. */
    driver.standing = said == NULL || strstr(said, strerror(ENOENT)) != NULL
            ? MOTET_GPU_NO_RUNTIME
            : MOTET_GPU_BROKEN;
    return NULL;
}

/* Fill motet_cuda from @p handle; false with the reason in driver.why. */
static bool find_functions(void *handle)
{
    CUresult (*version)(int *) = NULL;
    const motet_gpu_symbol *missing;
    void *found = dlsym(handle, "cuDriverGetVersion");
    Dl_info place;

    if (found != NULL && dladdr(found, &place) != 0)
        snprintf(driver.path, sizeof(driver.path), "%s", place.dli_fname);
    memcpy(&version, &found, sizeof(found));
    if (version == NULL || version(&driver.version) != CUDA_SUCCESS) {
        snprintf(driver.why, sizeof(driver.why),
                "%s is no NVIDIA driver: it does not say its version",
                driver.path[0] != '\0' ? driver.path : LIBRARY);
        return false;
    }
    missing = motet_gpu_resolve(symbols, NUM_SYMBOLS, handle, &motet_cuda);
    if (missing != NULL)
        say_missing(missing, driver.why, sizeof(driver.why));
    return missing == NULL;
}

/* A driver without devices has nothing that a child could miss. */
static void after_fork(void)
{
    atomic_store(&forked, atomic_load(&usable));
}

/* Initialise the driver and count. A failure is said in driver.why. */
static motet_gpu_standing start(void)
{
    const CUresult error = motet_cuda.cuInit(0);
    motet_gpu_standing standing = MOTET_GPU_BROKEN;
    motet_result result = motet_cuda_check(error, "cuInit", __FILE__, __LINE__);

    if (result == MOTET_OK)
        result = CUDA(cuDeviceGetCount, &driver.devices);
    if (error == CUDA_ERROR_NO_DEVICE || (result == MOTET_OK && driver.devices < 1))
        standing = MOTET_GPU_NO_DEVICE;
    else if (result == MOTET_OK)
        standing = MOTET_GPU_USABLE;
    if (standing == MOTET_GPU_NO_DEVICE && result == MOTET_OK)
        result = motet_fail(MOTET_ERR_DEVICE, "cuDeviceGetCount: 0 devices: %s",
                meaning_of(CUDA_ERROR_NO_DEVICE));
    if (result != MOTET_OK)
        snprintf(driver.why, sizeof(driver.why), "%.200s (CUDA %d.%d): %.700s",
                driver.path, driver.version / 1000, driver.version % 1000 / 10,
                motet_error_trail());
    if (driver.devices > MOTET_GPU_DEVICES)
        driver.devices = MOTET_GPU_DEVICES;
    return standing;
}

/* With the lock held. */
static void look(void)
{
    void *handle = open_library();

    if (handle == NULL)
        return;
    driver.standing = MOTET_GPU_BROKEN;
    if (!find_functions(handle))
        return;
    pthread_atfork(NULL, NULL, after_fork);
    driver.standing = start();
    if (driver.standing != MOTET_GPU_USABLE)
        return;
    motet_info(MOTET_SUB_INIT, "CUDA driver %s, CUDA %d.%d, %d device%s", driver.path,
            driver.version / 1000, driver.version % 1000 / 10, driver.devices,
            driver.devices == 1 ? "" : "s");
    atomic_store(&usable, true);
}

motet_gpu_standing motet_cuda_look(void)
{
    motet_gpu_standing standing;

    if (atomic_load(&forked)) {
        (void)motet_fail(MOTET_ERR_DEVICE, "%s",
                meaning_of(CUDA_ERROR_NOT_INITIALIZED));
        return MOTET_GPU_BROKEN;
    }
    if (atomic_load(&usable))
        return MOTET_GPU_USABLE;
    pthread_mutex_lock(&lock);
    if (driver.standing == MOTET_GPU_NO_RUNTIME)
        look();
    standing = driver.standing;
    if (standing != MOTET_GPU_USABLE) /* with the lock: the next look writes `why` */
        (void)motet_fail(MOTET_ERR_DEVICE, "%s", driver.why);
    pthread_mutex_unlock(&lock);
    return standing;
}

motet_result motet_cuda_open(void)
{
    return motet_cuda_look() == MOTET_GPU_USABLE ? MOTET_OK : MOTET_ERR_DEVICE;
}

int motet_cuda_num_devices(void)
{
    return atomic_load(&usable) ? driver.devices : 0;
}

int motet_cuda_version(void)
{
    return atomic_load(&usable) ? driver.version : 0;
}
