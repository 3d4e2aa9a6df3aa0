/* SPDX-License-Identifier: Apache-2.0 */
#include "../kernel.h"

KERNEL indirect_call(void (*f)(int *), int *p)
{
    f(p);
}
