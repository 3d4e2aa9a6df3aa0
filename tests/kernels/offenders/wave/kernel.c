/* SPDX-License-Identifier: Apache-2.0 */
/* Built for waves that are not the target's. */
#include "../kernel.h"

KERNEL wave(int *p)
{
    *p = 1;
}
