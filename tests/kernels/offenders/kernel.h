/* SPDX-License-Identifier: Apache-2.0 */
/* What the planted kernels are written with. */
#ifndef MOTET_TESTS_KERNELS_OFFENDERS_KERNEL_H
#define MOTET_TESTS_KERNELS_OFFENDERS_KERNEL_H

#ifdef __NVPTX__
#define KERNEL __attribute__((nvptx_kernel)) void
#define SHARED __attribute__((address_space(3)))
#else
#define KERNEL __attribute__((amdgpu_kernel)) void
#define SHARED __attribute__((address_space(3), loader_uninitialized))
#endif
#define GLOBAL   __attribute__((address_space(1)))
#define CONSTANT __attribute__((address_space(4)))

#endif
