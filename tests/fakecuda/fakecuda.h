/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for libcuda.so.1: NVIDIA's driver without NVIDIA's devices, so that the
 * whole GPU path of motet runs on any machine. Put its directory in front with
 * LD_LIBRARY_PATH. It has every function that src/device/cuda_api.h names, and a few
 * that only tests call, with the driver's rules: which call is an error in which state,
 * what is ordered with what, what ends a capture.
 *
 * Device memory is files in memory, mapped where host and "devices" of the process alike
 * see it. A module is PTX text of which only the kernels' names and parameter sizes are
 * read; what runs is the host build of the kernel of that name, each block on a thread
 * of its own. Blocks run at the same time as far as the device has room, those of other
 * streams' kernels too, and wait for room in no particular order.
 *
 * A kernel that touches memory which nothing may touch ends the process by a signal,
 * where a device would report an error.
 *
 * What it cannot show: a kernel that touches memory of which the CPU knows but the device
 * does not (memory with access for another device of the same process, unregistered host
 * memory), memory ordering weaker than the CPU's, and anything about time.
 *
 * The machine, and what is wrong with it; read when cuInit() is called. A malformed
 * value fails cuInit() with CUDA_ERROR_INVALID_VALUE and a line on stderr.
 *
 *   FAKECUDA_DEVICES=N          devices of the machine, 0..16; default 2
 *   CUDA_VISIBLE_DEVICES=LIST   as the driver reads it: numbers or GPU-UUIDs
 *   FAKECUDA_PROCESSORS=N       multiprocessors of each, 1..256; default 8. Each holds
 *                               2048 threads
 *   FAKECUDA_DRIVER_VERSION=N   default 13000
 *   FAKECUDA_MEMORY=BYTES       of each device, for each process; default 16 GiB
 *   FAKECUDA_INIT=CODE          what cuInit() returns
 *   FAKECUDA_PEER=all|none|oneway   oneway: a device reaches only those after it
 *   FAKECUDA_VMM=1|0            0: no virtual memory management, only legacy IPC
 *   FAKECUDA_IMPORT=share|drop|zero|falsify   memory of other processes, though granted:
 *                               drop: what this process writes never arrives; zero: the
 *                               same, and all it reads is 0; falsify: of each 128 KiB
 *                               the halves are exchanged, so that bytes arrive beside their place.
 *                               Known, too: the other words of FAKEHIP_IMPORT, and
 *                               FAKECUDA_IMPORT_MS (../fakehip/fakehip.h)
 *   FAKECUDA_IMPORT_FROM=BYTES  … but the first BYTES of each mapping are as they should
 *                               be; a multiple of 8192 for falsify; default 0
 *   FAKECUDA_IMPORT_TO=BYTES    … and so are those from there on; a multiple of 4096
 *   FAKECUDA_PAIR=A-B           PEER and IMPORT are so only between these two devices of
 *                               the machine; all others reach each other as they should
 *   FAKECUDA_STICKY=N           a context survives N launches of kernels; the next one
 *                               does not run, and whatever is called from then on
 *                               returns CUDA_ERROR_ILLEGAL_ADDRESS
 *   FAKECUDA_SLOW_US=N          each kernel starts N microseconds late
 */
#ifndef FAKECUDA_FAKECUDA_H
#define FAKECUDA_FAKECUDA_H

#include "device/cuda_api.h"

#include <stddef.h>
#include <stdint.h>

#define FAKECUDA_API __attribute__((visibility("default")))

#define FAKECUDA_DECLARE(need, symbol, parameters, since, feature) \
    FAKECUDA_API CUresult symbol parameters;
MOTET_CUDA_FUNCTIONS(FAKECUDA_DECLARE)
MOTET_CUDA_APPLICATION(FAKECUDA_DECLARE)
#undef FAKECUDA_DECLARE

/* Of the driver too, but in neither list. */
FAKECUDA_API CUresult cuCtxGetId(CUcontext context, unsigned long long *id);
FAKECUDA_API CUresult cuMemGetInfo_v2(size_t *free, size_t *total);
FAKECUDA_API CUresult cuModuleLoadData(CUmodule *module, const void *image);
FAKECUDA_API CUresult cuModuleUnload(CUmodule module);
FAKECUDA_API CUresult cuStreamUpdateCaptureDependencies(CUstream stream,
        CUgraphNode *dependencies, size_t count, unsigned flags);
FAKECUDA_API CUresult cuGraphDestroyNode(CUgraphNode node);
FAKECUDA_API CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event);
FAKECUDA_API CUresult cuUserObjectRetain(CUuserObject object, unsigned count);
FAKECUDA_API CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object,
        unsigned count);

/** The host build of a kernel: one block of a grid. */
typedef void (*fakecuda_kernel)(const void *args, uint32_t block, uint32_t blocks);

/**
 * Make a kernel known beside motet's own, for modules that are loaded later.
 * @param name of static storage duration
 * @param bytes of its argument, as the PTX will say
 * @retval CUDA_ERROR_INVALID_VALUE the name is taken, or too many were added
 */
FAKECUDA_API CUresult fakecuda_kernel_add(const char *name, fakecuda_kernel kernel,
        size_t bytes);

/** A green context of a device: streams made while it is current belong to it. */
FAKECUDA_API CUresult fakecuda_green_context(CUcontext *context, CUdevice device);

#endif
