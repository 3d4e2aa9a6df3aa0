/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines in NCCL's own form, since tools grep them (api.md 2.3):
 *
 *     host:pid:tid [dev] NCCL INFO text
 *     \n[YYYY-mm-dd HH:MM:SS] host:pid:tid [dev] file:line NCCL WARN text
 *     NCCL version 2.27.7+motet0.1.0
 *
 * NCCL_DEBUG, NCCL_DEBUG_SUBSYS and NCCL_DEBUG_FILE decide what is written and
 * where (default stdout); they are read at the first call and again after
 * motet_log_reset(). A warning goes to stderr also when NCCL_DEBUG is unset, one
 * line for each cause, unless MOTET_DEBUG=0 (DESIGN 7). Every call keeps errno.
 */
#ifndef MOTET_BASE_LOG_H
#define MOTET_BASE_LOG_H

#include "base/error.h"

#include <stdbool.h>

typedef enum motet_log_level {
    MOTET_LOG_NONE = 0,
    MOTET_LOG_VERSION = 1,
    MOTET_LOG_WARN = 2,
    MOTET_LOG_INFO = 3,
    MOTET_LOG_TRACE = 4
} motet_log_level;

/** Subsystems: bits, the names of NCCL_DEBUG_SUBSYS. */
typedef enum motet_log_subsys {
    MOTET_SUB_INIT = 1 << 0,
    MOTET_SUB_COLL = 1 << 1,
    MOTET_SUB_P2P = 1 << 2,
    MOTET_SUB_SHM = 1 << 3,
    MOTET_SUB_NET = 1 << 4,
    MOTET_SUB_GRAPH = 1 << 5,
    MOTET_SUB_TUNING = 1 << 6,
    MOTET_SUB_ENV = 1 << 7,
    MOTET_SUB_ALLOC = 1 << 8,
    MOTET_SUB_CALL = 1 << 9,
    MOTET_SUB_PROXY = 1 << 10,
    MOTET_SUB_NVLS = 1 << 11,
    MOTET_SUB_BOOTSTRAP = 1 << 12,
    MOTET_SUB_REG = 1 << 13,
    MOTET_SUB_PROFILE = 1 << 14,
    MOTET_SUB_RAS = 1 << 15
} motet_log_subsys;

/** True if a line of @p level and @p subsys (any of its bits) would be written. */
bool motet_log_on(motet_log_level level, unsigned subsys);

/** Write one line. Use the macros below, which test the level before evaluating. */
void motet_log_write(motet_log_level level, unsigned subsys, const char *file, int line,
        const char *fmt, ...) MOTET_PRINTF(5, 6);

#define motet_info(subsys, ...)                                           \
    do {                                                                  \
        if (motet_log_on(MOTET_LOG_INFO, (subsys)))                       \
            motet_log_write(MOTET_LOG_INFO, (subsys), __FILE__, __LINE__, \
                    __VA_ARGS__);                                         \
    } while (0)

#define motet_trace_line(subsys, ...)                                      \
    do {                                                                   \
        if (motet_log_on(MOTET_LOG_TRACE, (subsys)))                       \
            motet_log_write(MOTET_LOG_TRACE, (subsys), __FILE__, __LINE__, \
                    __VA_ARGS__);                                          \
    } while (0)

/** A warning: to the log at WARN and above, else to stderr (see the head of this file). */
#define motet_warn(...) \
    motet_log_write(MOTET_LOG_WARN, ~0u, __FILE__, __LINE__, __VA_ARGS__)

/** The version line, at VERSION and above; once for each process and reset. */
void motet_log_version(void);

/** Ordinal shown in brackets on this thread's lines; −1 (the start value) for a CPU rank. */
void motet_log_set_device(int ordinal);

/** Read the variables again at the next call (ncclResetDebugInit). */
void motet_log_reset(void);

#endif
