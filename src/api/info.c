/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about the library itself: they need no communicator and no device. */
#include "api/export.h"
#include "api/report.h"
#include "base/log.h"

MOTET_API ncclResult_t pncclGetVersion(int *version)
{
    if (version == NULL)
        return motet_api_report(motet_fail(MOTET_ERR_ARGUMENT,
                "GetVersion : version argument is NULL"));
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}
MOTET_ALIAS(ncclGetVersion, pncclGetVersion);

MOTET_API const char *pncclGetErrorString(ncclResult_t result)
{
    return motet_result_describe((int)result)->text;
}
MOTET_ALIAS(ncclGetErrorString, pncclGetErrorString);

MOTET_API void pncclResetDebugInit(void)
{
    motet_log_reset();
}
MOTET_ALIAS(ncclResetDebugInit, pncclResetDebugInit);
