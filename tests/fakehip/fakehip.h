/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for libamdhip64.so: AMD's HIP runtime without AMD's devices, and with what is
 * wrong on the machines where RCCL fails. Put its directory in front with
 * LD_LIBRARY_PATH. It has every function that src/device/hip_api.h names, with HIP's
 * rules where they are not CUDA's: a current device for each thread, a last error, an
 * address inside an allocation behind an IPC handle, stale handles as
 * hipErrorContextIsDestroyed.
 *
 * It stands on the same core as ../fakecuda/, whose header says what the core can show and
 * what it cannot. A module is a real code object for AMD GPUs: its target must fit the
 * card, its metadata is read for the kernels' names, the sizes of their arguments and
 * whether they declare a hostcall; what runs is the host build of the kernel of that name.
 * Of a kernel that has none, launches do nothing.
 *
 * There are several libraries of it, alike but for what is said here:
 *
 *   libamdhip64.so.6             the usual one, which says that it is ROCm 6.3
 *   plain/libamdhip64.so         with this SONAME
 *   rocm5/libamdhip64.so.5       ROCm 5.2, with the functions that one has
 *   rocm7/libamdhip64.so.7       ROCm 7.0
 *   bare/libamdhip64.so.6        without the functions that motet can do without
 *   dtk/libgalaxyhip.so.5        Hygon's name for it
 *
 * The machine, and what is wrong with it; read at the first call. A malformed value makes
 * every call fail with hipErrorInvalidValue, and a line on stderr says why.
 *
 *   FAKEHIP_DEVICES=N          cards of the machine, 0..16; default 2
 *   ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES (else CUDA_VISIBLE_DEVICES)
 *                              numbers or GPU-UUIDs; the second choose among what the
 *                              first left
 *   FAKEHIP_TARGET=LIST        of each card; the last one holds for those after it; default
 *                              gfx1100. Features that are not named are those of real cards
 *   HSA_OVERRIDE_GFX_VERSION=X.Y.Z  as the runtime reads it: the target of all cards
 *   FAKEHIP_PROCESSORS=N       compute units of each, 1..256; default 8. Each holds 2048
 *                              threads
 *   FAKEHIP_MEMORY=BYTES       of each card, for each process; default 16 GiB
 *   FAKEHIP_ALLOCATIONS=N      so many allocations of device memory succeed
 *   FAKEHIP_FINEGRAIN=1|0      0: the cards have no pool of fine-grained memory, and say so;
 *                              what is asked for is given all the same, as by the real one
 *   FAKEHIP_VERSION=5|6|7      how numbers are to be read: kinds of memory, and what
 *                              becomes the last error; default: the library's
 *   FAKEHIP_INIT=CODE          what hipInit() returns
 *   FAKEHIP_UUIDS=1|0          0: the cards have no numbers of their own, all say "XX"
 *   FAKEHIP_PEER=all|none|oneway    oneway: a card reaches only those after it
 *   FAKEHIP_IPC=all|noget|noopen    noget: no handles are given; noopen: none is opened
 *   FAKEHIP_ATOMICS=LIST       of 0 and 1, for each card as above; default 1. A card with
 *                              0 refuses kernels that declare a hostcall
 *   FAKEHIP_LAUNCH=run|refuse  refuse: every launch is refused
 *   FAKEHIP_REFUSE=launch|sync|last|never   where a refusal (401, hipErrorIllegalState)
 *                              shows: in the launch's result, at the stream's next
 *                              synchronisation, only in hipGetLastError(), or nowhere
 *   FAKEHIP_HANG=LIST          kernels of these names start only when the host tells their
 *                              rank's kernels to leave (its abort word), other kernels than
 *                              motet's never
 *   FAKEHIP_STOP=N             the card FAKEHIP_STOP_CARD (a number of the machine; default
 *                              all of them) is well for N launches; the next kernel …
 *   FAKEHIP_STOP_HOW=hang|error     … never ends, or does not run, and every call from then
 *                              on returns hipErrorLaunchFailure
 *   FAKEHIP_SLOW_US=N          each kernel starts N microseconds late
 *   FAKEHIP_IMPORT=WORD        memory of other processes, though granted:
 *       share      as it should be
 *       drop       what this process writes never arrives
 *       zero       the same, and all it reads is 0
 *       ones       the same, and all it reads are bits that are 1
 *       falsify    of each 128 KiB the halves are exchanged
 *       private    each process has a copy of its own, of the time when it was mapped
 *       oneway     only what a card writes to the memory of a card after it arrives
 *       slow       what this process writes arrives late
 *       stale      it writes, but reads what was there when it mapped the memory
 *       flagfirst  words that were written alone arrive first, all else late
 *   FAKEHIP_IMPORT_FROM=BYTES  … but the first BYTES of each mapping are as they should be;
 *                              a multiple of 4096
 *   FAKEHIP_IMPORT_TO=BYTES    … and so are those from there on; a multiple of 4096
 *   FAKEHIP_PAIR=A-B           PEER and IMPORT are so only between these two cards of the
 *                              machine; all others reach each other as they should
 *   FAKEHIP_IMPORT_MS=N        slow: how late, default 200; flagfirst: how late all else is,
 *                              default 50; stale: how long, default 0, until it is unmapped
 */
#ifndef FAKEHIP_FAKEHIP_H
#define FAKEHIP_FAKEHIP_H

#include "device/hip_api.h"

#include <stddef.h>
#include <stdint.h>

#define FAKEHIP_API __attribute__((visibility("default")))

#define FAKEHIP_DECLARE(need, symbol, returns, parameters, since, feature) \
    FAKEHIP_API returns symbol parameters;
MOTET_HIP_FUNCTIONS(FAKEHIP_DECLARE)
MOTET_HIP_APPLICATION(FAKEHIP_DECLARE)
#undef FAKEHIP_DECLARE

/** The host build of a kernel: one block of a grid. */
typedef void (*fakehip_kernel)(const void *args, uint32_t block, uint32_t blocks);

/**
 * Make a kernel known beside motet's own, for modules that are loaded later.
 * @param name of static storage duration
 * @param bytes of its explicit arguments, as the code object will say
 * @retval hipErrorInvalidValue the name is taken, or too many were added
 */
FAKEHIP_API hipError_t fakehip_kernel_add(const char *name, fakehip_kernel kernel,
        size_t bytes);

#endif
