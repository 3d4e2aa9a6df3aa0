/* SPDX-License-Identifier: Apache-2.0 */
/* Time. Deadlines live on the monotonic clock; nothing here reads the wall clock
 * except motet_wall_ns(), which is for reports only. */
#ifndef MOTET_BASE_CLOCK_H
#define MOTET_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define MOTET_NS_PER_S  1000000000ull
#define MOTET_NS_PER_MS 1000000ull

static inline uint64_t motet_clock_read(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * MOTET_NS_PER_S + (uint64_t)t.tv_nsec;
}

/** Monotonic time, ns. About 20 ns a call. */
static inline uint64_t motet_now_ns(void)
{
    return motet_clock_read(CLOCK_MONOTONIC);
}

/** Monotonic time of the last tick (1 to 4 ms old), ns. About 5 ns a call. */
static inline uint64_t motet_now_coarse_ns(void)
{
    return motet_clock_read(CLOCK_MONOTONIC_COARSE);
}

/** Wall clock, ns since 1970: for reports. */
static inline uint64_t motet_wall_ns(void)
{
    return motet_clock_read(CLOCK_REALTIME);
}

/** Deadline @p seconds from now, ns on the monotonic clock; 0 s gives 0, which means none. */
static inline uint64_t motet_deadline_after_s(uint64_t seconds)
{
    return seconds == 0 ? 0 : motet_now_ns() + seconds * MOTET_NS_PER_S;
}

/** True once @p deadline_ns (0 = none) has passed. */
static inline bool motet_deadline_passed(uint64_t deadline_ns)
{
    return deadline_ns != 0 && motet_now_ns() >= deadline_ns;
}

#endif
