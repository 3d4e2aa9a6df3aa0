/* SPDX-License-Identifier: Apache-2.0 */
/* What the libraries differ in; built once for each. */
#include "hip.h"

const unsigned hip_variant_major = FAKEHIP_MAJOR;
