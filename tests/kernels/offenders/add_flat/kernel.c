/* SPDX-License-Identifier: Apache-2.0 */
/* Where the pointer points, nothing says. */
#include "../kernel.h"

KERNEL add_flat(int *p)
{
#ifdef __AMDGCN__
    __asm__("" : "+v"(p));
#endif
    __atomic_fetch_add(p, 3, __ATOMIC_RELAXED);
}
