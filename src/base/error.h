/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results and messages. Whoever detects a failure says what happened, every
 * caller that knows more says where. Codes are for programs, the trail is for
 * people.
 *
 *     return motet_fail(MOTET_ERR_ARGUMENT, "nranks is %d, need at least 1", nranks);
 *     MOTET_TRY(sock_connect(s, addr), "connect to rank %d at %s", r, name);
 *
 * The trail is a fixed thread-local buffer: recording an error allocates
 * nothing, so it also works when memory is exhausted.
 */
#ifndef MOTET_BASE_ERROR_H
#define MOTET_BASE_ERROR_H

#include <stddef.h>

/** Result codes. The values are NCCL's (api.md 1.5); src/api asserts that they stay so. */
typedef enum motet_result {
    MOTET_OK = 0,
    MOTET_ERR_DEVICE = 1,   /**< a device driver or runtime failed, or no device    */
    MOTET_ERR_SYSTEM = 2,   /**< a system call failed, or memory ran out            */
    MOTET_ERR_INTERNAL = 3, /**< our own mistake                                    */
    MOTET_ERR_ARGUMENT = 4, /**< one argument is wrong by itself                    */
    MOTET_ERR_USAGE = 5,    /**< arguments are fine, their combination is not       */
    MOTET_ERR_REMOTE = 6,   /**< a peer died, left, or did not answer in time       */
    MOTET_IN_PROGRESS = 7,  /**< not an error: a non-blocking communicator is busy  */
    MOTET_ERR_TIMEOUT =
            8 /**< declared for newer clients; we report deadlines as REMOTE */
} motet_result;

/** Number of result codes. */
#define MOTET_NUM_RESULTS 9

/** Longest trail, bytes with the NUL. Outer context that no longer fits is dropped. */
#define MOTET_ERROR_TRAIL_MAX 1024

#define MOTET_MUST_USE                __attribute__((warn_unused_result))
#define MOTET_PRINTF(fmt_at, args_at) __attribute__((format(printf, fmt_at, args_at)))

/** Start a new trail and return @p result. Call where the failure is detected. */
#define motet_fail(result, ...) \
    motet_error_start((result), __FILE__, __LINE__, __VA_ARGS__)

/** Same, and append ": " strerror(errno). Reads errno before anything else. */
#define motet_fail_errno(result, ...) \
    motet_error_start_errno((result), __FILE__, __LINE__, __VA_ARGS__)

/**
 * Return from the calling function if @p expr fails, with context in front of
 * the trail. The only macro in the tree that hides control flow; a function
 * that owns something uses motet_error_wrap() and `goto out` instead.
 */
#define MOTET_TRY(expr, ...)                                   \
    do {                                                       \
        motet_result try_result_ = (expr);                     \
        if (try_result_ != MOTET_OK)                           \
            return motet_error_wrap(try_result_, __VA_ARGS__); \
    } while (0)

motet_result motet_error_start(motet_result result, const char *file, int line,
        const char *fmt, ...) MOTET_PRINTF(4, 5);
motet_result motet_error_start_errno(motet_result result, const char *file, int line,
        const char *fmt, ...) MOTET_PRINTF(4, 5);
motet_result motet_error_wrap(motet_result result, const char *fmt, ...)
        MOTET_PRINTF(2, 3);

/** The calling thread's current trail; "" if none. Valid until its next failure. */
const char *motet_error_trail(void);

/** "file.c:42" of the motet_fail() that started the current trail; "" if none. */
const char *motet_error_origin(void);

/** Forget the calling thread's trail. */
void motet_error_clear(void);

/**
 * Replace the calling thread's trail by @p text: how a failure that happened on
 * another thread (an init job, a stream) reaches the caller. Returns @p result.
 */
motet_result motet_error_adopt(motet_result result, const char *text);

/** Row of the result-code table: what NCCL calls it, and what to do about it. */
typedef struct motet_result_info {
    const char *name;   /**< "ncclRemoteError"                                  */
    const char *text;   /**< ncclGetErrorString()'s text, exactly NCCL's        */
    const char *remedy; /**< one sentence for the user, no full stop; never NULL */
} motet_result_info;

/** The table's row for @p result; a row "unknown result code" for anything else. Never NULL. */
const motet_result_info *motet_result_describe(int result);

#endif
