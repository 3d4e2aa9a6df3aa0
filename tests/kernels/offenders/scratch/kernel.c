/* SPDX-License-Identifier: Apache-2.0 */
#include "../kernel.h"

KERNEL scratch(int *p)
{
    volatile int room[4];

    room[*p & 3] = 1;
    *p = room[0];
}
