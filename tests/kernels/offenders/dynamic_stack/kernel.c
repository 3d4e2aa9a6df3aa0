/* SPDX-License-Identifier: Apache-2.0 */
/* How deep it calls itself is not known. */
#include "../kernel.h"

static __attribute__((noinline)) int deep(int n)
{
    volatile int kept = n;

    return n < 2 ? n : deep(n - 1) * deep(n - 2) + kept;
}

KERNEL dynamic_stack(int *p)
{
    *p = deep(*p);
}
