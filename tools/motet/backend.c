/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory, and the choice between backends: see backend.h. */
#include "backend.h"

#include "cmd.h"

#include "base/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

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

/* Wait for @p pid, but not for ever. Whether it ended by itself, well. */
static bool ended_well(pid_t pid)
{
    const struct timespec nap = { .tv_nsec = 2000000 };
    uint64_t limit = motet_now_ns() + PROBE_S * MOTET_NS_PER_S;
    int status;

    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (motet_now_ns() > limit) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            return false;
        }
        nanosleep(&nap, NULL);
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == EXIT_FINE;
}

/* Ask a driver in a process of its own: this one must be able to fork afterwards. */
static void look(const struct backend *backend, struct backend_facts *out)
{
    struct backend_facts *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid;

    memset(out, 0, sizeof(*out));
    if (shared == MAP_FAILED) {
        snprintf(out->why, sizeof(out->why), "no memory to look for devices");
        return;
    }
    fflush(stdout);
    fflush(stderr);
    pid = fork();
    if (pid == 0) {
        const char *why = backend->describe(shared);

        if (why != NULL) {
            shared->devices = 0;
            snprintf(shared->why, sizeof(shared->why), "%s", why);
        }
        _exit(EXIT_FINE);
    }
    if (pid < 0)
        snprintf(out->why, sizeof(out->why), "start a process that looks: %s",
                strerror(errno));
    else if (ended_well(pid))
        *out = *shared;
    else
        snprintf(out->why, sizeof(out->why),
                "the driver crashed, or did not answer for %d s", PROBE_S);
    munmap(shared, sizeof(*shared));
}

static int agree(const char *command, const char *kind)
{
    if (setenv("MOTET_DEVICE", kind, 1) == 0)
        return -1;
    return cmd_error(command, EXIT_PROBLEM, "set MOTET_DEVICE: no memory");
}

int backend_choose(const char *command, const char *word, bool host_memory,
        struct backend_choice *out)
{
    bool any;

    memset(out, 0, sizeof(*out));
    out->backend = &backend_cpu;
    if (host_memory)
        return word != NULL ? agree(command, word) : -1;
    if (word == NULL)
        word = getenv("MOTET_DEVICE");
    any = word == NULL || *word == 0 || strcmp(word, "auto") == 0;
    if (!any && strcmp(word, "cpu") == 0)
        return agree(command, "cpu");
    if (!any && strcmp(word, "hip") == 0)
        return cmd_error(command, EXIT_UNDECIDED,
                "this build has no ranks on AMD GPUs; need --device auto, cpu or cuda");
    if (!any && strcmp(word, "cuda") != 0 && strcmp(word, "gpu") != 0)
        return cmd_error(command, EXIT_USAGE,
                "the device is '%s', need auto, cpu, cuda or hip", word);
    look(&backend_cuda, &out->facts);
    if (out->facts.devices > 0) {
        out->backend = &backend_cuda;
        return agree(command, "cuda");
    }
    if (any)
        return -1; /* the library's own rule then says what its ranks are */
    return cmd_error(command, EXIT_UNDECIDED, "no NVIDIA GPU: %s", out->facts.why);
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

const struct backend_device *backend_device_of(const struct backend_choice *c, int rank)
{
    int devices = c->facts.devices;

    if (devices <= 0 || rank % devices >= BACKEND_DEVICES_MAX)
        return NULL;
    return &c->facts.device[rank % devices];
}
