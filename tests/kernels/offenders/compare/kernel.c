/* SPDX-License-Identifier: Apache-2.0 */
#include "../kernel.h"

KERNEL compare(unsigned long long *p)
{
    unsigned long long expected = 1;

    __atomic_compare_exchange_n(p, &expected, 3, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
