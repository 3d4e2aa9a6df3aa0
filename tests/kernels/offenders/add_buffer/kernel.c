/* SPDX-License-Identifier: Apache-2.0 */
/* Through a buffer descriptor. */
#include "../kernel.h"

KERNEL add_buffer(void)
{
#ifdef __AMDGCN__
#ifdef __gfx1201__
    __asm__ volatile("buffer_atomic_add_u32 v0, off, s[0:3], null");
#else
    __asm__ volatile("buffer_atomic_add v0, off, s[0:3], 0");
#endif
#endif
}
