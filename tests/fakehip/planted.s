// SPDX-License-Identifier: Apache-2.0
// A code object that no library of ours may ship: one of its kernels declares that it may
// call the host. A card without AtomicOps refuses it, whatever it does; both do nothing.
	.text
	.globl	planted_plain
	.p2align	8
	.type	planted_plain,@function
planted_plain:
	s_endpgm
	.size	planted_plain, .-planted_plain

	.globl	planted_hostcall
	.p2align	8
	.type	planted_hostcall,@function
planted_hostcall:
	s_endpgm
	.size	planted_hostcall, .-planted_hostcall

	.section	.rodata,"a",@progbits
	.p2align	6
	.amdhsa_kernel planted_plain
		.amdhsa_kernarg_size 8
		.amdhsa_next_free_vgpr 1
		.amdhsa_next_free_sgpr 1
	.end_amdhsa_kernel
	.p2align	6
	.amdhsa_kernel planted_hostcall
		.amdhsa_kernarg_size 264
		.amdhsa_next_free_vgpr 1
		.amdhsa_next_free_sgpr 1
	.end_amdhsa_kernel

	.amdgpu_metadata
---
amdhsa.version: [ 1, 2 ]
amdhsa.kernels:
  - .name: planted_plain
    .symbol: planted_plain.kd
    .args:
      - { .offset: 0, .size: 8, .value_kind: global_buffer, .address_space: global }
    .kernarg_segment_size: 8
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .wavefront_size: 32
    .sgpr_count: 1
    .vgpr_count: 1
    .max_flat_workgroup_size: 1024
  - .name: planted_hostcall
    .symbol: planted_hostcall.kd
    .args:
      - { .offset: 0, .size: 8, .value_kind: global_buffer, .address_space: global }
      - { .offset: 88, .size: 8, .value_kind: hidden_hostcall_buffer }
    .kernarg_segment_size: 264
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .wavefront_size: 32
    .sgpr_count: 1
    .vgpr_count: 1
    .max_flat_workgroup_size: 1024
...
	.end_amdgpu_metadata
