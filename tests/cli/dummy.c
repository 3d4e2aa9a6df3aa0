/* SPDX-License-Identifier: Apache-2.0 */
/* A library with nothing of NCCL's in it: to be mapped, or refused. */
int motet_dummy(void);

int motet_dummy(void)
{
    return 42;
}
