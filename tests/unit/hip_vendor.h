/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What hip_api.h declares as AMD's headers do, under names that both have. Neither header
 * can be included beside the other: hip_vendor.c says what AMD's say, test_hip_headers.c
 * compares.
 */
#ifndef MOTET_TEST_HIP_VENDOR_H
#define MOTET_TEST_HIP_VENDOR_H

/* clang-format off */
#define HIP_CONSTANTS(C) \
    C(hipErrorInvalidValue) \
    C(hipErrorOutOfMemory) \
    C(hipErrorNotInitialized) \
    C(hipErrorDeinitialized) \
    C(hipErrorInvalidDevicePointer) \
    C(hipErrorInsufficientDriver) \
    C(hipErrorInvalidDeviceFunction) \
    C(hipErrorNoDevice) \
    C(hipErrorInvalidDevice) \
    C(hipErrorInvalidImage) \
    C(hipErrorInvalidContext) \
    C(hipErrorMapFailed) \
    C(hipErrorNoBinaryForGpu) \
    C(hipErrorECCNotCorrectable) \
    C(hipErrorPeerAccessUnsupported) \
    C(hipErrorInvalidKernelFile) \
    C(hipErrorSharedObjectInitFailed) \
    C(hipErrorOperatingSystem) \
    C(hipErrorInvalidHandle) \
    C(hipErrorIllegalState) \
    C(hipErrorNotFound) \
    C(hipErrorNotReady) \
    C(hipErrorIllegalAddress) \
    C(hipErrorLaunchOutOfResources) \
    C(hipErrorLaunchTimeOut) \
    C(hipErrorPeerAccessAlreadyEnabled) \
    C(hipErrorPeerAccessNotEnabled) \
    C(hipErrorContextIsDestroyed) \
    C(hipErrorAssert) \
    C(hipErrorHostMemoryAlreadyRegistered) \
    C(hipErrorHostMemoryNotRegistered) \
    C(hipErrorLaunchFailure) \
    C(hipErrorCooperativeLaunchTooLarge) \
    C(hipErrorNotSupported) \
    C(hipErrorStreamCaptureUnsupported) \
    C(hipErrorStreamCaptureInvalidated) \
    C(hipErrorStreamCaptureMerge) \
    C(hipErrorStreamCaptureUnmatched) \
    C(hipErrorStreamCaptureUnjoined) \
    C(hipErrorStreamCaptureIsolation) \
    C(hipErrorStreamCaptureImplicit) \
    C(hipErrorCapturedEvent) \
    C(hipErrorStreamCaptureWrongThread) \
    C(hipErrorUnknown) \
    C(hipErrorRuntimeMemory) \
    C(hipErrorRuntimeOther) \
    C(hipDeviceAttributeCanMapHostMemory) \
    C(hipDeviceAttributeHostNativeAtomicSupported) \
    C(hipDeviceAttributeIntegrated) \
    C(hipDeviceAttributeComputeCapabilityMajor) \
    C(hipDeviceAttributeMaxThreadsPerBlock) \
    C(hipDeviceAttributeComputeCapabilityMinor) \
    C(hipDeviceAttributeMultiprocessorCount) \
    C(hipDeviceAttributeWarpSize) \
    C(hipDeviceAttributeIsLargeBar) \
    C(hipDeviceAttributeFineGrainSupport) \
    C(HIP_POINTER_ATTRIBUTE_BUFFER_ID) \
    C(hipDeviceMallocDefault) \
    C(hipDeviceMallocFinegrained) \
    C(hipHostRegisterPortable) \
    C(hipHostRegisterMapped) \
    C(hipHostMallocPortable) \
    C(hipHostMallocMapped) \
    C(hipHostMallocCoherent) \
    C(hipStreamNonBlocking) \
    C(hipEventDisableTiming) \
    C(hipMemcpyDefault) \
    C(HIP_LAUNCH_PARAM_BUFFER_POINTER) \
    C(HIP_LAUNCH_PARAM_BUFFER_SIZE) \
    C(HIP_LAUNCH_PARAM_END) \
    C(hipStreamPerThread) \
    C(hipStreamCaptureStatusNone) \
    C(hipStreamCaptureStatusActive) \
    C(hipStreamCaptureStatusInvalidated) \
    C(hipStreamCaptureModeGlobal) \
    C(hipStreamCaptureModeThreadLocal) \
    C(hipStreamCaptureModeRelaxed) \
    C(hipStreamSetCaptureDependencies)

#define HIP_LAYOUTS(L) \
    L(sizeof(hipError_t)) \
    L(sizeof(hipPointerAttribute_t)) \
    L(sizeof(hipIpcMemHandle_t)) \
    L(sizeof(hipUUID)) \
    L(offsetof(hipPointerAttribute_t, device)) \
    L(offsetof(hipPointerAttribute_t, devicePointer)) \
    L(offsetof(hipPointerAttribute_t, hostPointer)) \
    L(offsetof(hipPointerAttribute_t, isManaged)) \
    L(offsetof(hipPointerAttribute_t, allocationFlags))
/* clang-format on */

typedef struct hip_fact {
    const char *name;
    long long value;
} hip_fact;

/** What AMD's headers say, in the order of the lists. */
extern const hip_fact hip_vendor_facts[];
/** Their ROCm, 1000 · major + 10 · minor; of hipDeviceProp_t; kinds of memory; −1: has none. */
extern const int hip_vendor_version;
extern const long long hip_vendor_properties, hip_vendor_architecture;
extern const long long hip_vendor_host, hip_vendor_device, hip_vendor_uncached,
        hip_vendor_lazy;

#endif
