/* SPDX-License-Identifier: Apache-2.0 */
/* Loads, stores, fences, and words that merely look like those that the gate refuses. */
#include "offenders/kernel.h"

SHARED int red[256];
KERNEL atomic_in_name(int *p, int i)
{
#ifdef __NVPTX__
    __asm__ volatile("ld.relaxed.sys.s32 %0, [%1]; // atom.add"
            : "=r"(red[i])
            : "l"(p));
    __asm__ volatile("{ fence.acq_rel.sys; bar.red.popc.u32 %0, 0, 1; }" : "=r"(p[1]));
#else
    red[i] = __atomic_load_n(p, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_ACQ_REL);
#endif
    __atomic_store_n(p + 1, red[i ^ 1], __ATOMIC_RELAXED);
}
