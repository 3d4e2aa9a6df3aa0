/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device code that is built into this library: PTX and cubins for NVIDIA GPUs,
 * code objects for AMD GPUs, packed with zstd where the build had it. Which vendors a
 * library carries is decided when it is linked (src/exports); the code is the same.
 */
#ifndef MOTET_KERNELS_IMAGES_H
#define MOTET_KERNELS_IMAGES_H

#include "base/error.h"

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
 * Unpack @p image. On success *@p raw_out is the caller's, to free(); it holds *@p bytes_out
 * bytes and, not counted, a NUL, so that PTX is a string.
 * Fails with SYSTEM (memory) or INTERNAL (the image is damaged).
 */
motet_result motet_image_unpack(const motet_image *image, void **raw_out,
        size_t *bytes_out);

/** motet_image_find() and motet_image_unpack(). DEVICE, with what to do, if there is none. */
motet_result motet_image_get(const char *vendor, const char *target, void **raw_out,
        size_t *bytes_out);

/**
 * The image that a driver translates for whatever it has: NVIDIA's PTX. For a driver that
 * refuses the one of motet_image_get(), as it is older than the assembler that made it.
 * DEVICE if there is none, as for AMD.
 */
motet_result motet_image_get_portable(const char *vendor, void **raw_out,
        size_t *bytes_out);

#endif
