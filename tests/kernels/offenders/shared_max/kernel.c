/* SPDX-License-Identifier: Apache-2.0 */
#include "../kernel.h"

SHARED int word;
KERNEL shared_max(int *p)
{
    *p = __atomic_fetch_max(&word, *p, __ATOMIC_RELAXED);
}
