/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device code that is built into this library: PTX and cubins for NVIDIA GPUs,
 * code objects for AMD GPUs, packed with zstd where the build had it. Which vendors a
 * library carries is decided when it is linked (src/exports); the code is the same.
 * Code objects that were built where they are used lie in files (`motet kernels build`).
 */
#ifndef MOTET_KERNELS_IMAGES_H
#define MOTET_KERNELS_IMAGES_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/** One image. Packed if @c bytes differs from @c raw_bytes. */
typedef struct motet_image {
    const char *vendor; /**< "nvidia" or "amd"; NULL ends a table            */
    const char *target; /**< "ptx", "sm_90", "gfx1100"                       */
    const void *data;
    size_t bytes;     /**< in the library                                  */
    size_t raw_bytes; /**< unpacked                                        */
} motet_image;

/** One table for each vendor, in the order of the build's lists; ends with a NULL vendor. */
extern const motet_image motet_images_nvidia[];
extern const motet_image motet_images_amd[];

/** Image @p i of this library, NVIDIA's first; NULL past the last. */
const motet_image *motet_image_at(size_t i);

/**
 * The image that runs on a device, or NULL.
 *
 * @param vendor  "nvidia" or "amd".
 * @param target  "sm_90" (a trailing letter is ignored), "ptx" or "gfx90a:xnack-" (what
 *                follows the colon is ignored: the images run with either setting).
 *
 * NVIDIA: the cubin for just this device, else the newest older one of its major number,
 * else the PTX, if the device is not too old for it. AMD: the exact target.
 */
const motet_image *motet_image_find(const char *vendor, const char *target);

/**
 * Whether devices of @p target ("gfx942:sramecc+:xnack-") take fp8 for FNUZ and not for
 * OCP: AMD's gfx940, gfx941 and gfx942 (kernels/gpu/types.h has the formats).
 */
bool motet_target_fp8_fnuz(const char *target);

/**
 * Unpack @p image. On success *@p raw_out is the caller's, to free(); it holds *@p bytes_out
 * bytes and, not counted, a NUL, so that PTX is a string.
 * Fails with SYSTEM (memory) or INTERNAL (the image is damaged).
 */
motet_result motet_image_unpack(const motet_image *image, void **raw_out,
        size_t *bytes_out);

/**
 * The code for a device: motet_image_from_files() of @p list, else motet_image_find() and
 * motet_image_unpack(). DEVICE, with what to do, if there is none.
 */
motet_result motet_image_get(const char *list, const char *vendor, const char *target,
        void **raw_out, size_t *bytes_out);

/**
 * The first code object that fits @p target, an AMD one, among files: MOTET_KERNEL_PATH's
 * value @p list, files and folders (for their motet-TARGET.co) with ':' between; if it is
 * "", motet_image_user_folder(). False if there is none; what is passed over is said at
 * INFO. *@p raw_out is as motet_image_unpack() has it.
 */
bool motet_image_from_files(const char *list, const char *target, void **raw_out,
        size_t *bytes_out);

/**
 * Why a device of @p target ("gfx90a:sramecc+:xnack-") cannot take these @p bytes for its
 * code: they are no code object, are not all of one, are for another device or another
 * setting of this one, or were made from other sources than this library. NULL: it can.
 */
const char *motet_image_unfit(const void *data, size_t bytes, const char *target);

/** Where `motet kernels build` puts code: $XDG_DATA_HOME/motet/kernels, else below
 * ~/.local/share. False if there is neither, or no room. */
bool motet_image_user_folder(char *path, size_t bytes);

/**
 * The image that a driver translates for whatever it has: NVIDIA's PTX. For a driver that
 * refuses the one of motet_image_get(), as it is older than the assembler that made it.
 * DEVICE if there is none, as for AMD.
 */
motet_result motet_image_get_portable(const char *vendor, void **raw_out,
        size_t *bytes_out);

#endif
