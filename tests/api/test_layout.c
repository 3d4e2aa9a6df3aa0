/* SPDX-License-Identifier: Apache-2.0 */
/* The binary interface of the headers: numbers that clients were compiled with. All of
 * it is checked by the compiler, except what the running library must agree with. */
#include "motet.h"

#include <stdio.h>

#define SAME(a, b)              _Static_assert((long long)(a) == (long long)(b), #a " is " #b)
#define AT(type, field, offset) SAME(offsetof(type, field), offset)

SAME(NCCL_VERSION_CODE, 22707);
SAME(NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH), NCCL_VERSION_CODE);
SAME(NCCL_VERSION(2, 8, 4), 2804);
SAME(NCCL_VERSION(2, 9, 6), 20906);

SAME(sizeof(ncclUniqueId), 128);
SAME(sizeof(ncclResult_t), 4);
SAME(sizeof(ncclDataType_t), 4);
SAME(sizeof(ncclRedOp_t), 4);
SAME(sizeof(ncclComm_t), sizeof(void *));

SAME(ncclSuccess, 0);
SAME(ncclUnhandledCudaError, 1);
SAME(ncclSystemError, 2);
SAME(ncclInternalError, 3);
SAME(ncclInvalidArgument, 4);
SAME(ncclInvalidUsage, 5);
SAME(ncclRemoteError, 6);
SAME(ncclInProgress, 7);
SAME(ncclTimeout, 8);

SAME(ncclInt8, 0);
SAME(ncclChar, 0);
SAME(ncclUint8, 1);
SAME(ncclInt32, 2);
SAME(ncclInt, 2);
SAME(ncclUint32, 3);
SAME(ncclInt64, 4);
SAME(ncclUint64, 5);
SAME(ncclFloat16, 6);
SAME(ncclHalf, 6);
SAME(ncclFloat32, 7);
SAME(ncclFloat, 7);
SAME(ncclFloat64, 8);
SAME(ncclDouble, 8);
SAME(ncclBfloat16, 9);
SAME(ncclFloat8e4m3, 10);
SAME(ncclFloat8e5m2, 11);
SAME(ncclNumTypes, 12);

SAME(ncclSum, 0);
SAME(ncclProd, 1);
SAME(ncclMax, 2);
SAME(ncclMin, 3);
SAME(ncclAvg, 4);
SAME(ncclNumOps, 5);
SAME(ncclMaxRedOp, 0x7fffffff);
SAME(ncclScalarDevice, 0);
SAME(ncclScalarHostImmediate, 1);

SAME(NCCL_API_MAGIC, 0xcafebeef);
SAME(NCCL_CONFIG_UNDEF_INT, INT_MIN);
SAME(NCCL_SPLIT_NOCOLOR, -1);
SAME(NCCL_SHRINK_ABORT, 1);
SAME(NCCL_WIN_COLL_SYMMETRIC, 1);
SAME(NCCL_WIN_REQUIRED_ALIGNMENT, 4096);
SAME(NCCL_CTA_POLICY_ZERO, 2);
SAME(ncclStatGpuMemTotal, 3);

SAME(sizeof(ncclConfig_t), 72);
AT(ncclConfig_t, magic, 8);
AT(ncclConfig_t, version, 12);
AT(ncclConfig_t, blocking, 16);
AT(ncclConfig_t, cgaClusterSize, 20);
AT(ncclConfig_t, minCTAs, 24);
AT(ncclConfig_t, maxCTAs, 28);
AT(ncclConfig_t, netName, 32);
AT(ncclConfig_t, splitShare, 40);
AT(ncclConfig_t, trafficClass, 44);
AT(ncclConfig_t, commName, 48);
AT(ncclConfig_t, collnetEnable, 56);
AT(ncclConfig_t, CTAPolicy, 60);
AT(ncclConfig_t, shrinkShare, 64);
AT(ncclConfig_t, nvlsCTAs, 68);

SAME(sizeof(ncclSimInfo_t), 24);
AT(ncclSimInfo_t, estimatedTime, 16);

SAME(sizeof(ncclConfigExt_t), 24);
AT(ncclConfigExt_t, key, 8);
AT(ncclConfigExt_t, val, 16);
SAME(sizeof(ncclCollConfig_t), 64);
AT(ncclCollConfig_t, ext, 16);
AT(ncclCollConfig_t, minCTAs, 24);
AT(ncclCollConfig_t, algSelection, 40);
AT(ncclCollConfig_t, forceAlgSelection, 48);
AT(ncclCollConfig_t, CTAPolicy, 52);
AT(ncclCollConfig_t, userProfilerTag, 56);

SAME(sizeof(ncclWaitSignalDesc_t), 16);

/* motet's own structures grow at the end only. */
AT(motet_comm_info_t, recorder, 96);
AT(motet_device_info_t, memory_bytes, 152);
_Static_assert(MOTET_EXT_VENDOR > 0 && MOTET_EXT_VENDOR < 1 << 24,
        "range of vendor ids");

int main(void)
{
    int version = 0;

    if (ncclGetVersion(&version) != ncclSuccess || version != NCCL_VERSION_CODE) {
        fprintf(stderr, "library says %d, header %d\n", version, NCCL_VERSION_CODE);
        return 1;
    }
    return 0;
}
