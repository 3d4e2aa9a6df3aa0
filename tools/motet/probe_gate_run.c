/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One launch of the gate's kernels, in a process of its own. Whatever the launch returns,
 * all four things are read: what it returned, what the wait returned, the last error, and
 * the marker in memory. A runtime may tell of a refusal in any one of them.
 */
#include "probe_gate.h"

#include "gate/gate_args.h"

#include "base/clock.h"
#include "device/hip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define POISON 0xdead5eeddead5eedull
#define VALUE  0x6d6f746574u /* what the kernels store: a word that nobody else writes */
#define PAGE   4096u

/* What one launch works with. */
struct launch {
    struct probe_seat *seat;
    const struct gate_test *test;
    struct gate_seen *seen;
    uint64_t *mark; /* the device's address */
    uint64_t *host; /* of the same, if it is host memory */
    hipModule_t module;
    hipFunction_t kernel, follow;
    hipStream_t stream, other;
    hipEvent_t event;
};

/* Whether @p error is none; else the cell has failed at @p call. */
static bool fine(const struct launch *l, hipError_t error, const char *call)
{
    const char *name, *text;

    if (error == hipSuccess)
        return true;
    name = motet_hip.hipGetErrorName(error);
    text = motet_hip.hipGetErrorString(error);
    probe_fail(l->seat, "%s: %s (%s, %d)", call,
            name != NULL ? name : "an error without a name",
            text != NULL ? text : "no description", (int)error);
    return false;
}

#define FINE(l, symbol, ...) fine(l, motet_hip.symbol(__VA_ARGS__), #symbol)

/* ---- what the runtime prints ---- */

/* From here on stderr is a file that is read back. */
static int hear(void)
{
    int fd = memfd_create("motet-probe", MFD_CLOEXEC);

    if (fd >= 0)
        (void)dup2(fd, STDERR_FILENO);
    return fd;
}

/* Of lines of the level of errors the first counts: what follows is its consequence. */
static void heard(int fd, struct gate_seen *seen)
{
    char text[4096], *next = text, *line;
    ssize_t bytes = fd >= 0 ? pread(fd, text, sizeof(text) - 1, 0) : 0;

    text[bytes > 0 ? bytes : 0] = 0;
    while (seen->said[0] == 0 && (line = strsep(&next, "\n")) != NULL)
        (void)gate_reason(line, seen->said, sizeof(seen->said));
}

/* ---- before the launch ---- */

static bool make_host_mark(struct launch *l)
{
    void *page =
            mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED) {
        probe_fail(l->seat, "no memory");
        return false;
    }
    l->host = page;
    return FINE(l, hipHostRegister, page, PAGE,
                   hipHostRegisterPortable | hipHostRegisterMapped) &&
            FINE(l, hipHostGetDevicePointer, (void **)&l->mark, page, 0);
}

/* Every word holds what no kernel stores. */
static bool make_mark(struct launch *l)
{
    uint64_t words[GATE_WORDS];

    for (size_t i = 0; i < GATE_WORDS; i++)
        words[i] = POISON;
    if (l->test->to_host) {
        if (!make_host_mark(l))
            return false;
        memcpy(l->host, words, sizeof(words));
        return true;
    }
    return FINE(l, hipExtMallocWithFlags, (void **)&l->mark, PAGE,
                   hipDeviceMallocDefault) &&
            FINE(l, hipMemcpyAsync, l->mark, words, sizeof(words), hipMemcpyDefault,
                    l->stream) &&
            FINE(l, hipStreamSynchronize, l->stream);
}

static bool prepare(struct launch *l, const void *image)
{
    int least = 0, greatest = 0;

    probe_enter(l->seat, PROBE_DEVICE, "streams and memory");
    if (!FINE(l, hipDeviceGetStreamPriorityRange, &least, &greatest) ||
            !FINE(l, hipStreamCreateWithPriority, &l->stream, hipStreamNonBlocking,
                    least) ||
            !FINE(l, hipStreamCreateWithPriority, &l->other, hipStreamNonBlocking,
                    least) ||
            !FINE(l, hipEventCreateWithFlags, &l->event, hipEventDisableTiming) ||
            !make_mark(l))
        return false;
    probe_enter(l->seat, PROBE_LOAD, "hipModuleLoadData");
    return FINE(l, hipModuleLoadData, &l->module, image) &&
            FINE(l, hipModuleGetFunction, &l->kernel, l->module, l->test->kernel) &&
            FINE(l, hipModuleGetFunction, &l->follow, l->module, "probe_gate_follow");
}

/* ---- the launch ---- */

static void told(struct launch *l, int place, hipError_t error)
{
    const char *name = error != hipSuccess ? motet_hip.hipGetErrorName(error) : "";

    l->seen->code[place] = (int)error;
    snprintf(l->seen->error[place], sizeof(l->seen->error[place]), "%s",
            name != NULL ? name : "an error without a name");
}

static hipError_t launch(struct launch *l, hipFunction_t kernel, hipStream_t stream)
{
    static gate_wide_args wide; /* as large as a page of the stack */
    gate_args narrow = { l->mark, VALUE };
    void *parameters[] = { l->test->wide ? (void *)&wide : (void *)&narrow };

    wide.mark = l->mark;
    for (size_t i = 0; i < GATE_WIDE_WORDS; i++)
        wide.words[i] = VALUE * (i + 1);
    return motet_hip.hipModuleLaunchKernel(kernel, 1, 1, 1, GATE_THREADS, 1, 1,
            l->test->lds_bytes, stream, parameters, NULL);
}

/* A second stream goes on where the first one ends. */
static hipError_t launch_behind(struct launch *l)
{
    hipError_t error = motet_hip.hipStreamWaitEvent(l->other, l->event, 0);

    return error != hipSuccess ? error : launch(l, l->follow, l->other);
}

static hipError_t begin(struct launch *l)
{
    hipError_t error = launch(l, l->kernel, l->stream);

    if (error == hipSuccess && l->test->event)
        error = motet_hip.hipEventRecord(l->event, l->stream);
    if (error == hipSuccess && l->test->other_stream)
        error = launch_behind(l);
    return error;
}

/* The parent's deadline ends this. */
static hipError_t wait_for_event(hipEvent_t event)
{
    const struct timespec nap = { .tv_nsec = 200000 };
    hipError_t error;

    while ((error = motet_hip.hipEventQuery(event)) == hipErrorNotReady)
        nanosleep(&nap, NULL);
    return error;
}

static hipError_t await(const struct launch *l, bool launched)
{
    hipError_t error =
            l->test->event && launched ? wait_for_event(l->event) : hipSuccess;

    if (error == hipSuccess)
        error = motet_hip.hipStreamSynchronize(l->stream);
    if (error == hipSuccess && l->test->other_stream)
        error = motet_hip.hipStreamSynchronize(l->other);
    return error;
}

/* ---- behind it ---- */

static uint64_t expected(const struct gate_test *test)
{
    uint64_t sum = 0;

    if (!test->wide)
        return VALUE;
    for (size_t i = 0; i < GATE_WIDE_WORDS; i++)
        sum += VALUE * (i + 1);
    return sum;
}

/* The copy is a command of its own: one that fails is not the launch's refusal. */
static bool read_mark(struct launch *l, uint64_t words[GATE_WORDS])
{
    if (l->host != NULL) {
        memcpy(words, l->host, GATE_WORDS * sizeof(*words));
        return true;
    }
    return motet_hip.hipMemcpyAsync(words, l->mark, GATE_WORDS * sizeof(*words),
                   hipMemcpyDefault, l->stream) == hipSuccess &&
            motet_hip.hipStreamSynchronize(l->stream) == hipSuccess;
}

/* NULL, or what is wrong with the words that came back. */
static const char *wrong(const struct launch *l, const uint64_t words[GATE_WORDS])
{
    const struct gate_test *t = l->test;

    if (words[GATE_MARKER] == POISON)
        return "the marker was not stored: the kernel did not run";
    if (words[GATE_MARKER] != expected(t))
        return "the marker is wrong";
    if (t->other_stream && words[GATE_SECOND] != VALUE + 1)
        return "the second stream did not see what the first one stored";
    if (t->second ? words[GATE_SECOND] > 1
                  : !t->other_stream && words[GATE_SECOND] != POISON)
        return "the word behind the marker is wrong";
    for (size_t i = GATE_CANARY; i < GATE_WORDS; i++)
        if (words[i] != POISON)
            return "memory behind the marker was written";
    return NULL;
}

/* Where it failed is the first place that shows it. */
static void judge(struct launch *l, const char *bad)
{
    static const struct {
        enum probe_stage stage;
        const char *call;
    } places[GATE_PLACES] = { { PROBE_LAUNCH, "hipModuleLaunchKernel" },
        { PROBE_SYNC, "hipStreamSynchronize" },
        { PROBE_LAST_ERROR, "hipGetLastError" } };

    for (int i = 0; i < GATE_PLACES; i++) {
        if (l->seen->code[i] <= 0)
            continue;
        probe_enter(l->seat, places[i].stage, "%s", places[i].call);
        (void)fine(l, (hipError_t)l->seen->code[i], places[i].call);
        return;
    }
    probe_enter(l->seat, PROBE_VALUES, "the marker");
    if (bad != NULL)
        probe_fail(l->seat, "%s, and no call returned an error", bad);
}

static void look(struct launch *l)
{
    uint64_t words[GATE_WORDS], start;
    const char *bad = "the marker cannot be read back";
    int listening = hear();
    hipError_t error;

    /* Of what was done to prepare, nothing is left in the last error. */
    (void)motet_hip.hipGetLastError();
    probe_enter(l->seat, PROBE_LAUNCH, "hipModuleLaunchKernel, %s", l->test->kernel);
    start = motet_now_ns();
    error = begin(l);
    told(l, GATE_LAUNCH, error);
    probe_enter(l->seat, PROBE_SYNC, "hipStreamSynchronize");
    error = await(l, error == hipSuccess);
    probe_took(l->seat, (double)(motet_now_ns() - start) / 1e6);
    told(l, GATE_SYNC, error);
    probe_enter(l->seat, PROBE_LAST_ERROR, "hipGetLastError");
    error = motet_hip.hipGetLastError();
    /* an old runtime keeps what hipEventQuery() said while it waited */
    told(l, GATE_LAST, error != hipErrorNotReady ? error : hipSuccess);
    heard(listening, l->seen);
    probe_enter(l->seat, PROBE_VALUES, "the marker");
    l->seen->read = read_mark(l, words);
    if (l->seen->read) {
        bad = wrong(l, words);
        l->seen->stored = bad == NULL;
    }
    judge(l, bad);
}

void gate_run(struct probe_seat *seat, void *arg)
{
    const struct gate_launch *asked = arg;
    struct launch l = { .seat = seat, .test = asked->test, .seen = asked->seen };
    const char *bad;

    /* The one line that names the reason is printed at this level only; here, not into
     * a file of the user's. */
    (void)setenv("AMD_LOG_LEVEL", "1", 1);
    (void)unsetenv("AMD_LOG_LEVEL_FILE");
    probe_enter(seat, PROBE_DEVICE, "hipInit");
    bad = backend_hip.bind(asked->device);
    if (bad != NULL) {
        probe_fail(seat, "%s", bad);
        return;
    }
    if (motet_hip.hipDeviceGetAttribute(&l.seen->atomics,
                hipDeviceAttributeHostNativeAtomicSupported,
                asked->device) != hipSuccess)
        l.seen->atomics = -1;
    if (prepare(&l, asked->image))
        look(&l);
}
