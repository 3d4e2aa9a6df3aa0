/* SPDX-License-Identifier: Apache-2.0 */
#include "../kernel.h"

void elsewhere(int *p);
KERNEL call_out(int *p)
{
    elsewhere(p);
}
