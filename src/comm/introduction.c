/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/introduction.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/utsname.h>
#include <unistd.h>

/* The CPU quota of this process's control group (cgroup v2), in percent of a core. */
static uint32_t cpu_quota_percent(void)
{
    unsigned long long quota, period;
    uint32_t percent = 0;
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");

    if (f == NULL)
        return 0;
    if (fscanf(f, "%llu %llu", &quota, &period) == 2 && period != 0)
        percent = (uint32_t)(quota * 100 / period);
    fclose(f);
    return percent;
}

/* What tells this process from all others, whatever pid each sees of it. */
static uint64_t process_token(uint64_t fresh)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static uint64_t token;
    static pid_t pid;
    uint64_t mine;

    pthread_mutex_lock(&lock);
    if (pid != getpid()) { /* the first time, or a forked child */
        token = fresh;
        pid = getpid();
    }
    mine = token;
    pthread_mutex_unlock(&lock);
    return mine;
}

motet_result motet_introduction_fill(motet_introduction *intro)
{
    uint64_t random[3];
    cpu_set_t set;

    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return motet_fail_errno(MOTET_ERR_SYSTEM, "get random numbers");
    intro->process = process_token(random[2]);
    intro->nonce = random[0];
    intro->number = random[1];
    intro->quota_percent = cpu_quota_percent();
    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        for (size_t cpu = 0; cpu < MOTET_INTRODUCTION_CPUS && cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET(cpu, &set))
                intro->cpus[cpu / 64] |= 1ull << (cpu % 64);
    return MOTET_OK;
}

bool motet_introduction_oversubscribed(const motet_introduction *ranks, int count)
{
    uint64_t all[MOTET_INTRODUCTION_CPUS / 64] = { 0 };
    int cores = 0;

    for (int r = 0; r < count; r++)
        for (int w = 0; w < MOTET_INTRODUCTION_CPUS / 64; w++)
            all[w] |= ranks[r].cpus[w];
    for (int w = 0; w < MOTET_INTRODUCTION_CPUS / 64; w++)
        cores += __builtin_popcountll(all[w]);
    for (int r = 0; r < count; r++) {
        int quota = (int)(ranks[r].quota_percent / 100);

        if (ranks[r].quota_percent != 0 && quota < cores)
            cores = quota;
    }
    return count > cores;
}

motet_result motet_settings_text(const motet_params *params,
        const motet_comm_spec *spec, const motet_device_ops *device,
        const motet_constants *constants, char *buf, size_t bytes)
{
    struct utsname host = { 0 };
    int used;

    uname(&host);
    used = snprintf(buf, bytes,
            "version=%s\nbuild=%s\narena=%d\ndevice=%s\narchitecture=%s\n"
            "MOTET_CHUNK_BYTES=%u\nMOTET_ALGO=%s\nMOTET_PATH=%" PRId64
            "\nNCCL_PROTO=%s\nMOTET_PLAN=%s\nNCCL_P2P_DISABLE=%" PRId64
            "\nNCCL_P2P_LEVEL=%" PRId64 "\nMOTET_INIT_TIMEOUT_S=%" PRId64
            "\nMOTET_OP_TIMEOUT_S=%" PRId64 "\nCTA policy=%d\n",
            MOTET_VERSION, MOTET_BUILD, MOTET_ARENA_VERSION, device->name, host.machine,
            constants->board_chunk, motet_param_text(params, MOTET_P_ALGO),
            motet_param(params, MOTET_P_PATH), motet_param_text(params, MOTET_P_PROTO),
            motet_param_text(params, MOTET_P_PLAN),
            motet_param(params, MOTET_P_P2P_DISABLE),
            motet_param(params, MOTET_P_P2P_LEVEL),
            motet_param(params, MOTET_P_INIT_TIMEOUT_S),
            motet_param(params, MOTET_P_OP_TIMEOUT_S), spec->config.cta_policy);
    if (used < 0 || (size_t)used >= bytes)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "the settings that ranks compare take %d bytes, at most %zu", used,
                bytes);
    return MOTET_OK;
}
