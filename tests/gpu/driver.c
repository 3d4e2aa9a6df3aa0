/* SPDX-License-Identifier: Apache-2.0 */
/* The driver as the tests' ranks use it; see driver.h. */
#include "driver.h"

#include <motet.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SKIPPED 77
#define POLL_US 50

/** What differs between the drivers, beside their functions. */
typedef struct kind {
    const char *name, *visible, *fake_prefix;
    const char *fake_symbol; /* only the stand-in has it */
    const char *environment[GPU_VARIABLES];
} kind;

enum { KIND_CUDA, KIND_HIP, NUM_KINDS };

/**
 * Queues of the device: streams beyond them share one, in which a kernel may lie behind
 * one that waits for it. The deadline turns a hang into an error that names a rank.
 */
static const kind kinds[NUM_KINDS] = {
    { "cuda", "CUDA_VISIBLE_DEVICES", "FAKECUDA_", "fakecuda_kernel_add",
            { "MOTET_DEVICE=cuda", "CUDA_DEVICE_MAX_CONNECTIONS=32",
                    "MOTET_OP_TIMEOUT_S=30" } },
    { "hip", "HIP_VISIBLE_DEVICES", "FAKEHIP_", "fakehip_kernel_add",
            { "MOTET_DEVICE=hip", "GPU_MAX_HW_QUEUES=16", "MOTET_OP_TIMEOUT_S=30" } },
};

const char *gpu_environment[GPU_VARIABLES + 1];

static gpu_driver driver;
static char driver_missing[256];
static pthread_once_t driver_once = PTHREAD_ONCE_INIT;
static int found_devices;
static bool found_fake;

#define KIND_VARIABLE "TEST_DEVICE"

/** Of KIND_VARIABLE, which is a name of @c kinds or not set. */
static const kind *kind_asked(void)
{
    const char *word = getenv(KIND_VARIABLE);

    return &kinds[word != NULL && strcmp(word, kinds[KIND_HIP].name) == 0 ? KIND_HIP
                                                                          : KIND_CUDA];
}

bool gpu_is_hip(void)
{
    return kind_asked() == &kinds[KIND_HIP];
}

const char *gpu_visible_variable(void)
{
    return kind_asked()->visible;
}

const char *gpu_fake_prefix(void)
{
    return kind_asked()->fake_prefix;
}

static const char *name_of(CUresult result)
{
    const char *name = NULL;

    if (driver.cuGetErrorName == NULL ||
            driver.cuGetErrorName(result, &name) != CUDA_SUCCESS || name == NULL)
        return "an error without a name";
    return name;
}

#define GPU_FIND(need, symbol, parameters, since, feature) \
    *(void **)(&driver.symbol) = dlsym(library, #symbol);

static bool open_cuda(char *why, size_t bytes)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CUresult got;

    if (library == NULL) {
        (void)snprintf(why, bytes, "no driver: %.200s", dlerror());
        return false;
    }
    driver.library = library;
    MOTET_CUDA_FUNCTIONS(GPU_FIND)
    MOTET_CUDA_APPLICATION(GPU_FIND)
    *(void **)(&driver.cuMemGetInfo_v2) = dlsym(library, "cuMemGetInfo_v2");
    if (driver.cuInit == NULL || driver.cuDeviceGetCount == NULL) {
        (void)snprintf(why, bytes, "libcuda.so.1 lacks cuInit or cuDeviceGetCount");
        return false;
    }
    got = driver.cuInit(0);
    if (got == CUDA_SUCCESS)
        got = driver.cuDeviceGetCount(&driver.devices);
    if (got != CUDA_SUCCESS)
        (void)snprintf(why, bytes, "the driver does not start: %s (%d)", name_of(got),
                (int)got);
    return got == CUDA_SUCCESS;
}

static void open_driver(void)
{
    bool fine = gpu_is_hip()
            ? gpu_driver_open_hip(&driver, driver_missing, sizeof(driver_missing))
            : open_cuda(driver_missing, sizeof(driver_missing));

    if (fine && driver.devices == 0)
        (void)snprintf(driver_missing, sizeof(driver_missing),
                "the driver has no device");
}

const gpu_driver *gpu_driver_of(multi_rank *rank)
{
    pthread_once(&driver_once, open_driver);
    if (!multi_check(rank, driver_missing[0] == '\0', "%s", driver_missing))
        return NULL;
    return &driver;
}

/** The child's part of gpu_look(): one line, "devices fake" or what is missing. */
static void look_alone(int fd)
{
    bool fake;

    pthread_once(&driver_once, open_driver);
    fake = dlsym(RTLD_DEFAULT, kind_asked()->fake_symbol) != NULL ||
            (driver.library != NULL &&
                    dlsym(driver.library, kind_asked()->fake_symbol) != NULL);
    if (driver_missing[0] != '\0')
        (void)dprintf(fd, "%s", driver_missing);
    else
        (void)dprintf(fd, "ok %d %d", driver.devices, (int)fake);
    _exit(0);
}

static char state_folder[256];
static pid_t state_owner;

static void drop_state_folder(void)
{
    if (state_owner == getpid() && state_folder[0] != '\0')
        multi_remove_folder(state_folder);
    state_folder[0] = '\0';
}

void gpu_forget_paths(void)
{
    if (state_owner == 0 && atexit(drop_state_folder) != 0)
        return;
    drop_state_folder();
    state_owner = getpid();
    if (multi_temp_folder(state_folder, sizeof(state_folder)))
        (void)setenv("MOTET_STATE_DIR", state_folder, 1);
}

int gpu_look(void)
{
    const char *asked = getenv(KIND_VARIABLE);
    char line[256] = "the driver ended the process that looked for it";
    int ends[2], fake = 0;
    pid_t pid;
    ssize_t n;

    if (asked != NULL && strcmp(asked, kind_asked()->name) != 0) {
        printf("FAIL  " KIND_VARIABLE " is '%s', need cuda or hip\n", asked);
        return 1;
    }
    gpu_forget_paths();
    memcpy(gpu_environment, kind_asked()->environment,
            sizeof(kind_asked()->environment));
    (void)fflush(NULL);
    if (pipe(ends) != 0 || (pid = fork()) < 0) {
        printf("FAIL  cannot look for a driver\n");
        return 1;
    }
    if (pid == 0) {
        (void)close(ends[0]);
        (void)alarm(60);
        look_alone(ends[1]);
    }
    (void)close(ends[1]);
    n = read(ends[0], line, sizeof(line) - 1);
    if (n > 0)
        line[n] = '\0';
    (void)close(ends[0]);
    (void)waitpid(pid, NULL, 0);
    if (sscanf(line, "ok %d %d", &found_devices, &fake) != 2) {
        printf("SKIPPED  GPU tests: %s\n", line);
        return SKIPPED;
    }
    found_fake = fake != 0;
    printf("%d device%s of %s\n", found_devices, found_devices == 1 ? "" : "s",
            found_fake ? "the stand-in driver" : "the driver");
    return 0;
}

int gpu_devices(void)
{
    return found_devices;
}

bool gpu_is_fake(void)
{
    return found_fake;
}

/* ---- a rank ---- */

bool gpu_ok(gpu_rank *g, CUresult got, const char *what)
{
    return multi_check(g->rank, got == CUDA_SUCCESS, "%s: %s (%d)", what, name_of(got),
            (int)got);
}

bool gpu_enter(gpu_rank *g)
{
    return gpu_ok(g, g->cu->cuCtxSetCurrent(g->context), "cuCtxSetCurrent");
}

bool gpu_open(gpu_rank *g, multi_rank *rank, int number, size_t pool_bytes)
{
    CUdevice device = 0;

    *g = (gpu_rank){ .rank = rank, .number = number, .pool_bytes = pool_bytes };
    g->cu = gpu_driver_of(rank);
    if (g->cu == NULL)
        return false;
    g->ordinal = number % g->cu->devices;
    if (!gpu_ok(g, g->cu->cuDeviceGet(&device, g->ordinal), "cuDeviceGet") ||
            !gpu_ok(g, g->cu->cuDevicePrimaryCtxRetain(&g->context, device),
                    "cuDevicePrimaryCtxRetain") ||
            !gpu_enter(g))
        return false;
    for (int i = 0; i < GPU_STREAMS; i++)
        if (!gpu_ok(g, g->cu->cuStreamCreate(&g->stream[i], CU_STREAM_NON_BLOCKING),
                    "cuStreamCreate"))
            return false;
    return pool_bytes == 0 ||
            gpu_ok(g, g->cu->cuMemAlloc_v2(&g->pool, pool_bytes), "cuMemAlloc");
}

void gpu_close(gpu_rank *g)
{
    if (g->cu == NULL || g->context == NULL || !gpu_enter(g))
        return;
    for (int i = 0; i < GPU_STREAMS; i++)
        if (g->stream[i] != NULL)
            (void)gpu_ok(g, g->cu->cuStreamDestroy_v2(g->stream[i]), "cuStreamDestroy");
    if (g->pool != 0)
        (void)gpu_ok(g, g->cu->cuMemFree_v2(g->pool), "cuMemFree");
    g->context = NULL;
}

CUcontext gpu_elsewhere(const gpu_rank *g)
{
    return g->cu->context_of == NULL
            ? NULL
            : g->cu->context_of((g->ordinal + 1) % g->cu->devices);
}

CUdeviceptr gpu_reserve(gpu_rank *g, size_t bytes)
{
    size_t at = g->pool_used;

    bytes = (bytes + GPU_ALIGN - 1) / GPU_ALIGN * GPU_ALIGN;
    if (!multi_check(g->rank, bytes <= g->pool_bytes - at,
                "the test's pool of %zu bytes is used up", g->pool_bytes))
        return 0;
    g->pool_used = at + bytes;
    return g->pool + at;
}

void gpu_forget(gpu_rank *g)
{
    g->pool_used = 0;
}

bool gpu_send(gpu_rank *g, CUdeviceptr to, const void *from, size_t bytes)
{
    return bytes == 0 ||
            (gpu_ok(g, g->cu->cuMemcpyHtoDAsync_v2(to, from, bytes, g->stream[0]),
                     "copy to the device") &&
                    gpu_sync(g, g->stream[0]));
}

bool gpu_fetch(gpu_rank *g, void *to, CUdeviceptr from, size_t bytes)
{
    return bytes == 0 ||
            (gpu_ok(g, g->cu->cuMemcpyDtoHAsync_v2(to, from, bytes, g->stream[0]),
                     "copy from the device") &&
                    gpu_sync(g, g->stream[0]));
}

bool gpu_fill(gpu_rank *g, CUdeviceptr to, unsigned char byte, size_t bytes)
{
    return gpu_ok(g,
                   g->cu->cuMemsetD32Async(to, byte * 0x01010101u, bytes / 4,
                           g->stream[0]),
                   "fill device memory") &&
            gpu_sync(g, g->stream[0]);
}

bool gpu_idle_within(gpu_rank *g, CUstream stream, unsigned ms)
{
    uint64_t start = multi_now_ns();
    CUresult got;

    while ((got = g->cu->cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY) {
        if (multi_now_ns() - start > ms * 1000000ull)
            return false;
        if (multi_now_ns() - start > 100000)
            multi_sleep_us(POLL_US);
    }
    return gpu_ok(g, got, "wait for a stream");
}

bool gpu_sync(gpu_rank *g, CUstream stream)
{
    bool idle = gpu_idle_within(g, stream, 60000);

    return multi_check(g->rank, idle || multi_failed(g->rank),
                   "a stream still works after 60 s") &&
            idle;
}

static void sleep_us(void *arg)
{
    multi_sleep_us((unsigned)(uintptr_t)arg);
}

bool gpu_delay(gpu_rank *g, CUstream stream, unsigned us)
{
    return gpu_ok(g, g->cu->cuLaunchHostFunc(stream, sleep_us, (void *)(uintptr_t)us),
            "cuLaunchHostFunc");
}

/* ---- graphs ---- */

bool gpu_record(gpu_rank *g, CUstream stream, CUstreamCaptureMode mode)
{
    return gpu_ok(g, g->cu->cuStreamBeginCapture_v2(stream, mode),
            "cuStreamBeginCapture");
}

bool gpu_end_record(gpu_rank *g, CUstream stream, CUgraph *out)
{
    *out = NULL;
    return gpu_ok(g, g->cu->cuStreamEndCapture(stream, out), "cuStreamEndCapture");
}

bool gpu_make_graph(gpu_rank *g, CUgraph graph, CUgraphExec *out)
{
    bool fine = gpu_ok(g, g->cu->cuGraphInstantiateWithFlags(out, graph, 0),
            "cuGraphInstantiate");

    return gpu_ok(g, g->cu->cuGraphDestroy(graph), "cuGraphDestroy") && fine;
}

bool gpu_recorded(gpu_rank *g, CUstream stream, CUgraphExec *out)
{
    CUgraph graph;

    return gpu_end_record(g, stream, &graph) && gpu_make_graph(g, graph, out);
}

bool gpu_play(gpu_rank *g, CUgraphExec exec, CUstream stream)
{
    return gpu_ok(g, g->cu->cuGraphLaunch(exec, stream), "cuGraphLaunch");
}

void gpu_drop_graph(gpu_rank *g, CUgraphExec *exec)
{
    if (*exec != NULL)
        (void)gpu_ok(g, g->cu->cuGraphExecDestroy(*exec), "cuGraphExecDestroy");
    *exec = NULL;
}

/* ---- communicators ---- */

/**
 * A communicator that fell back to copies would pass most tests and say nothing about
 * kernels: unless MOTET_PATH asks for that, or EXPECTED_PATH, which is no variable of the
 * library's, it is a failure.
 */
static bool has_its_path(multi_rank *rank, ncclComm_t comm)
{
    const char *expected = getenv("EXPECTED_PATH");
    const char *asked = expected != NULL ? expected : getenv("MOTET_PATH");
    motet_comm_info_t info = MOTET_COMM_INFO_INITIALIZER;

    if (rank->nranks == 1)
        return true;
    if (!multi_ok(rank, motet_comm_query(comm, &info), "motet_comm_query"))
        return false;
    return multi_check(rank,
            asked != NULL ? strcmp(info.path, asked) == 0
                          : strcmp(info.path, "direct") == 0 ||
                            strcmp(info.path, "staged") == 0 ||
                            strcmp(info.path, "direct+staged") == 0,
            "the path is \"%s\", expected %s", info.path,
            asked != NULL ? asked : "direct, staged or both");
}

bool gpu_comm(gpu_rank *g, int slot, ncclComm_t *out)
{
    return gpu_enter(g) && multi_comm(g->rank, slot, out) &&
            has_its_path(g->rank, *out);
}

bool gpu_comms(gpu_rank *g, int ranks, int slot, ncclComm_t *out)
{
    multi_rank *rank = g[0].rank;
    ncclUniqueId id;
    bool fine = multi_id(rank, slot, &id) &&
            multi_ok(rank, ncclGroupStart(), "ncclGroupStart");

    for (int i = 0; i < ranks && fine; i++)
        fine = gpu_enter(&g[i]) &&
                multi_ok(rank, ncclCommInitRank(&out[i], ranks, id, g[i].number),
                        "ncclCommInitRank");
    fine = fine && multi_ok(rank, ncclGroupEnd(), "ncclGroupEnd of the init");
    for (int i = 0; i < ranks && fine; i++)
        fine = has_its_path(rank, out[i]);
    return fine;
}

bool gpu_well(multi_rank *rank, ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;

    if (!multi_ok(rank, ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError"))
        return false;
    return multi_check(rank, state == ncclSuccess,
            "the communicator's state is %d (%s): %s", (int)state,
            ncclGetErrorString(state), ncclGetLastError(comm));
}
