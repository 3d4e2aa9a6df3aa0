/* SPDX-License-Identifier: Apache-2.0 */
/* The last step of every entry point: a result becomes NCCL's code, and a failure
 * becomes the sentence that ncclGetLastError() returns. */
#ifndef MOTET_API_REPORT_H
#define MOTET_API_REPORT_H

#include "base/error.h"
#include "nccl.h"

/** Longest sentence kept, bytes with the NUL: a trail and a remedy. */
#define MOTET_API_ERROR_MAX (MOTET_ERROR_TRAIL_MAX + 256)

/**
 * Return @p result as NCCL's code. A failure is first kept as the process's last error
 * and logged at WARN; MOTET_OK and MOTET_IN_PROGRESS leave both alone. errno is kept.
 */
ncclResult_t motet_api_report(motet_result result);

/** Same for a failure whose sentence is complete: the table's remedy is not added. */
ncclResult_t motet_api_report_text(motet_result result, const char *sentence);

/**
 * The sentence for @p result and the calling thread's trail: the trail, then what to do
 * about it. For motet_api_report() and for a communicator's own last error.
 */
void motet_api_format_error(motet_result result, char *buf, size_t bytes);

/**
 * The process's last error, "" if there was none. The copy belongs to the calling
 * thread and stays as it is until that thread asks again.
 */
const char *motet_api_last_error(void);

#endif
