/* SPDX-License-Identifier: Apache-2.0 */
#include "../kernel.h"

KERNEL exchange(int *p)
{
    p[1] = __atomic_exchange_n(p, 3, __ATOMIC_RELAXED);
}
