/* SPDX-License-Identifier: Apache-2.0 */
/* A table without images, for whoever is linked without a vendor's. Compiled once for
 * each vendor. Weak, so that a program which gets it from motet_objects may add images. */
#include "kernels/images.h"

const motet_image MOTET_NO_IMAGES[] __attribute__((weak)) = {
    { NULL, NULL, NULL, 0, 0 },
};
