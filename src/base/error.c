/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calling thread's trail, and the result-code table.
 *
 * A message is formatted beside the trail and copied in afterwards, so that the
 * trail itself may be one of the arguments. Nothing here changes errno: callers
 * record a failure first and clean up, or look at errno, later.
 */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char trail[MOTET_ERROR_TRAIL_MAX];
static _Thread_local char origin[64];

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

/* vsnprintf() whose failure is an empty string and whose result is a strlen(). */
static size_t format(char *buf, size_t bytes, const char *fmt, va_list args)
{
    int length = vsnprintf(buf, bytes, fmt, args);

    if (length < 0) {
        buf[0] = '\0';
        return 0;
    }
    return (size_t)length < bytes ? (size_t)length : bytes - 1;
}

static void start(const char *file, int line, int error, const char *fmt, va_list args)
{
    char text[MOTET_ERROR_TRAIL_MAX];
    char reason[128];
    size_t length = format(text, sizeof(text), fmt, args);

    if (error != 0 && length + 2 < sizeof(text))
        snprintf(text + length, sizeof(text) - length, ": %s",
                strerror_r(error, reason, sizeof(reason)));
    memcpy(trail, text, strlen(text) + 1);
    snprintf(origin, sizeof(origin), "%s:%d", base_name(file), line);
}

motet_result motet_error_start(motet_result result, const char *file, int line,
        const char *fmt, ...)
{
    int saved = errno;
    va_list args;

    va_start(args, fmt);
    start(file, line, 0, fmt, args);
    va_end(args);
    errno = saved;
    return result;
}

motet_result motet_error_start_errno(motet_result result, const char *file, int line,
        const char *fmt, ...)
{
    int saved = errno;
    va_list args;

    va_start(args, fmt);
    start(file, line, saved, fmt, args);
    va_end(args);
    errno = saved;
    return result;
}

motet_result motet_error_wrap(motet_result result, const char *fmt, ...)
{
    int saved = errno;
    char context[MOTET_ERROR_TRAIL_MAX];
    size_t context_length, trail_length = strlen(trail);
    va_list args;

    va_start(args, fmt);
    context_length = format(context, sizeof(context), fmt, args);
    va_end(args);
    errno = saved;

    if (trail_length == 0) {
        memcpy(trail, context, context_length + 1);
        return result;
    }
    if (context_length + 2 + trail_length + 1 > sizeof(trail))
        return result; /* full: the cause matters more than where it happened */
    memmove(trail + context_length + 2, trail, trail_length + 1);
    memcpy(trail, context, context_length);
    memcpy(trail + context_length, ": ", 2);
    return result;
}

const char *motet_error_trail(void)
{
    return trail;
}

const char *motet_error_origin(void)
{
    return origin;
}

void motet_error_clear(void)
{
    trail[0] = '\0';
    origin[0] = '\0';
}

motet_result motet_error_adopt(motet_result result, const char *text)
{
    size_t length = text != NULL ? strnlen(text, sizeof(trail) - 1) : 0;

    if (length > 0)
        memmove(trail, text, length);
    trail[length] = '\0';
    origin[0] = '\0'; /* it was another thread's place */
    return result;
}

/* Texts are NCCL's to the letter, since programs compare them. */
static const motet_result_info results[MOTET_NUM_RESULTS] = {
    [MOTET_OK] = { "ncclSuccess", "no error", "nothing needs to be done" },
    [MOTET_ERR_DEVICE] = { "ncclUnhandledCudaError",
            "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
            "check that the driver and a device are usable by this process, or set "
            "MOTET_DEVICE=cpu to run on CPU ranks" },
    [MOTET_ERR_SYSTEM] = { "ncclSystemError",
            "unhandled system error (run with NCCL_DEBUG=INFO for details)",
            "the message ends with the system's own reason: free or raise that limit "
            "(memory, descriptors, permissions) and start again" },
    [MOTET_ERR_INTERNAL] = { "ncclInternalError",
            "internal error - please report this issue to the NCCL developers",
            "this is a mistake in motet: report it with the message and the output of "
            "`motet version -v`" },
    [MOTET_ERR_ARGUMENT] = { "ncclInvalidArgument",
            "invalid argument (run with NCCL_DEBUG=WARN for details)",
            "correct the argument or the variable that the message names" },
    [MOTET_ERR_USAGE] = { "ncclInvalidUsage",
            "invalid usage (run with NCCL_DEBUG=WARN for details)",
            "make all ranks call the same operation with the same arguments and "
            "settings, as the message says" },
    [MOTET_ERR_REMOTE] = { "ncclRemoteError",
            "remote process exited or there was a network error",
            "look at the log of the rank that the message names, or run `motet "
            "status`; "
            "then abort the communicator and create a new one" },
    [MOTET_IN_PROGRESS] = { "ncclInProgress", "NCCL operation in progress",
            "poll ncclCommGetAsyncError until it no longer says so" },
    [MOTET_ERR_TIMEOUT] = { "ncclTimeout", "timeout",
            "find out with `motet status` which rank is late, or raise the deadline" },
};

const motet_result_info *motet_result_describe(int result)
{
    static const motet_result_info unknown = { "unknown", "unknown result code",
        "compare the version of the header with the version of the library" };

    if (result < 0 || result >= MOTET_NUM_RESULTS)
        return &unknown;
    return &results[result];
}
