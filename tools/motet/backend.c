/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory, and the choice between backends: see backend.h. */
#include "backend.h"

#include "apart.h"
#include "cmd.h"

#include "kernels/images.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long a driver may take to say what devices it has. */
#define PROBE_S 120

/* ---------------------------------------------------------------------- CPU */

static const char *cpu_bind(int device)
{
    (void)device;
    return NULL;
}

static const char *cpu_describe(struct backend_facts *facts)
{
    memset(facts, 0, sizeof(*facts));
    return NULL;
}

static const char *cpu_alloc(void **out, size_t bytes)
{
    return posix_memalign(out, 4096, bytes) == 0 ? NULL : "posix_memalign: no memory";
}

static const char *cpu_to_host(void *host, const void *memory, size_t bytes,
        void *stream)
{
    (void)stream;
    memcpy(host, memory, bytes);
    return NULL;
}

static const char *cpu_from_host(void *memory, const void *host, size_t bytes,
        void *stream)
{
    (void)stream;
    memcpy(memory, host, bytes);
    return NULL;
}

static const char *cpu_stream_create(const struct library *lib, void **out)
{
    MOTET_STREAM_T stream = NULL;
    ncclResult_t result = lib->streams ? lib->stream_create(&stream) : ncclSuccess;

    *out = stream;
    return result == ncclSuccess ? NULL : library_error(lib, result);
}

static void cpu_stream_destroy(const struct library *lib, void *stream)
{
    (void)lib->stream_destroy(stream);
}

static const char *cpu_stream_wait(const struct library *lib, void *stream)
{
    ncclResult_t result =
            stream == NULL ? ncclSuccess : lib->stream_synchronize(stream);

    return result == ncclSuccess ? NULL : library_error(lib, result);
}

const struct backend backend_cpu = {
    .name = "cpu",
    .bind = cpu_bind,
    .describe = cpu_describe,
    .alloc = cpu_alloc,
    .release = free,
    .to_host = cpu_to_host,
    .from_host = cpu_from_host,
    .stream_create = cpu_stream_create,
    .stream_destroy = cpu_stream_destroy,
    .stream_wait = cpu_stream_wait,
};

/* ------------------------------------------------------------------- choice */

/* Asks a driver in the process that apart_run() gave it. */
struct question {
    const struct backend *backend;
    struct backend_facts facts;
};

static void describe(void *shared)
{
    struct question *q = shared;
    const char *why = q->backend->describe(&q->facts);

    if (why == NULL)
        return;
    q->facts.devices = 0;
    snprintf(q->facts.why, sizeof(q->facts.why), "%s", why);
}

/* Ask a driver in a process of its own: this one must be able to fork afterwards. Whether
 * it answered. */
static bool look(const struct backend *backend, struct backend_facts *out)
{
    static const char *const bad[] = {
        [APART_CRASHED] = "the driver crashed",
        [APART_LATE] = "the driver did not answer in time",
        [APART_STUCK] =
                "the driver did not answer in time, and its process cannot be ended",
        [APART_FAILED] = "no process that looks could be started",
    };
    struct question *q = apart_memory(sizeof(*q));
    enum apart how;

    memset(out, 0, sizeof(*out));
    if (q == NULL) {
        snprintf(out->why, sizeof(out->why), "no memory to look for devices");
        return false;
    }
    q->backend = backend;
    how = apart_run(describe, q, PROBE_S);
    if (how == APART_FINE)
        *out = q->facts;
    else
        snprintf(out->why, sizeof(out->why), "%s", bad[how]);
    apart_free(q, sizeof(*q));
    return how == APART_FINE;
}

static int agree(const char *command, const char *kind)
{
    if (setenv("MOTET_DEVICE", kind, 1) == 0)
        return -1;
    return cmd_error(command, EXIT_PROBLEM, "set MOTET_DEVICE: no memory");
}

/* In the order in which the library looks for them. */
static const struct backend *const gpus[] = { &backend_cuda, &backend_hip };

#define NUM_GPUS (sizeof(gpus) / sizeof(*gpus))

/* Words of MOTET_DEVICE and --device. */
static bool is_any(const char *word)
{
    return word == NULL || *word == 0 || strcmp(word, "auto") == 0;
}

/* The first kind of GPU of which there is one; of the others @p why says what is wrong.
 * *silent: a driver did not say whether there are any. */
static bool find_gpu(const char *word, struct backend_choice *out, char *why,
        size_t bytes, bool *silent)
{
    bool any = is_any(word) || strcmp(word, "gpu") == 0;
    size_t n = 0;

    for (size_t i = 0; i < NUM_GPUS; i++) {
        if (!any && strcmp(word, gpus[i]->name) != 0)
            continue;
        *silent |= !look(gpus[i], &out->facts);
        if (out->facts.devices > 0) {
            out->backend = gpus[i];
            return true;
        }
        n += (size_t)snprintf(why + n, bytes - n, "%sno %s GPU: %s", n > 0 ? "; " : "",
                gpus[i]->vendor, out->facts.why);
        if (n >= bytes)
            n = bytes - 1;
    }
    return false;
}

static bool is_known(const char *word)
{
    for (size_t i = 0; i < NUM_GPUS; i++)
        if (strcmp(word, gpus[i]->name) == 0)
            return true;
    return strcmp(word, "gpu") == 0;
}

int backend_choose(const char *command, const char *word, bool host_memory,
        struct backend_choice *out)
{
    char why[2200] = "";
    bool silent = false;

    memset(out, 0, sizeof(*out));
    out->backend = &backend_cpu;
    if (host_memory && !is_any(word) && strcmp(word, "cpu") != 0)
        return cmd_usage_error(command,
                "--host-memory has ranks on CPUs, so the device cannot be '%s'", word);
    if (host_memory)
        return agree(command, "cpu");
    if (word == NULL)
        word = getenv("MOTET_DEVICE");
    if (!is_any(word) && strcmp(word, "cpu") == 0)
        return agree(command, "cpu");
    if (!is_any(word) && !is_known(word))
        return cmd_error(command, EXIT_USAGE,
                "the device is '%s', need auto, cpu, cuda or hip", word);
    if (find_gpu(word, out, why, sizeof(why), &silent))
        return agree(command, out->backend->name);
    /* Another time the driver may answer: a rank that asks it then would be on a GPU that
     * nobody here knows of. */
    if (is_any(word) && silent)
        return cmd_error(command, EXIT_UNDECIDED, "%s; --device cpu has ranks on CPUs",
                why);
    if (is_any(word))
        return -1; /* the library's own rule then says what its ranks are */
    return cmd_error(command, EXIT_UNDECIDED, "%s", why);
}

const char *backend_sharing(const struct backend_choice *c, int nranks, char *buf,
        size_t bytes)
{
    int devices = c->facts.devices;

    *buf = 0;
    if (devices > 0 && nranks > devices)
        snprintf(buf, bytes, "%d ranks share %d GPU%s: they take turns", nranks,
                devices, devices == 1 ? "" : "s");
    return buf;
}

enum backend_fp8 backend_fp8(const struct backend_choice *c, int nranks)
{
    bool ocp = false, fnuz = false;

    for (int r = 0; r < nranks; r++) {
        const struct backend_device *d = backend_device_of(c, r);

        if (d != NULL && motet_target_fp8_fnuz(d->target))
            fnuz = true;
        else
            ocp = true;
    }
    return fnuz && ocp ? FP8_APART : fnuz ? FP8_FNUZ : FP8_OCP;
}

const struct backend_device *backend_device_of(const struct backend_choice *c, int rank)
{
    int devices = c->facts.devices;

    if (devices <= 0 || rank % devices >= BACKEND_DEVICES_MAX)
        return NULL;
    return &c->facts.device[rank % devices];
}
