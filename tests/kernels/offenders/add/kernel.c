/* SPDX-License-Identifier: Apache-2.0 */
#include "../kernel.h"

KERNEL add(GLOBAL int *p)
{
    __atomic_fetch_add(p, 3, __ATOMIC_RELAXED);
}
