/* SPDX-License-Identifier: Apache-2.0 */
/* More that is alive at once than there are registers. */
#include "../kernel.h"

#define COUNT 280
KERNEL spill(GLOBAL int *p)
{
#ifdef __AMDGCN__
    GLOBAL int *mine = p + __builtin_amdgcn_workitem_id_x();
#else
    GLOBAL int *mine = p;
#endif
    int v[COUNT];

#pragma clang loop unroll(full)
    for (int i = 0; i < COUNT; i++)
        v[i] = mine[i * 64];
    __asm__ volatile("" ::: "memory");
#pragma clang loop unroll(full)
    for (int i = 0; i < COUNT; i++)
        mine[(COUNT - i) * 64] = v[i];
}
