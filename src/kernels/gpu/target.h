/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a kernel may ask of the machine that it runs on, for each of the three targets it
 * is compiled for: NVIDIA (PTX), AMD (code object), and the host, where each block is one
 * thread. Freestanding: no header of CUDA or HIP, no device library, no function of its
 * own that is not inlined, no atomic read-modify-write.
 *
 * Memory. "Plain" accesses are the device's ordinary ones; "shared" ones are relaxed,
 * naturally aligned words that other devices and the host write or read. What one block
 * hands to another device goes in this order:
 *
 *   all threads    plain stores, then block_release()
 *   one thread     flag_fence(), then flags as shared stores
 *
 * and is taken in this one:
 *
 *   one thread     load64_acquire() until the flag is there
 *   all threads    block_acquire(), then plain loads
 *
 * On NVIDIA the one thread's fence covers what the barrier made it see. On AMD a fence
 * only waits for the wave's own stores, and only empties the caches of its own half of a
 * processor: every wave has one. The host's shared accesses are acquires and releases,
 * which a thread sanitizer understands, as it does not understand fences.
 */
#ifndef MOTET_KERNELS_GPU_TARGET_H
#define MOTET_KERNELS_GPU_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/** 16 bytes in registers. */
typedef struct bits128 {
    uint32_t w[4];
} bits128;

typedef uint32_t motet_quad __attribute__((vector_size(16)));

#if defined(__NVPTX__) || defined(__AMDGCN__)
/* Convergent: code that holds a barrier must not move into a branch. */
#define DEVICE static inline __attribute__((always_inline, convergent))
#define GLOBAL __attribute__((address_space(1)))
/** Memory that the threads of a block share; undefined at first. */
#define IN_BLOCK     __attribute__((address_space(3)))
#define BLOCK_SHARED static __attribute__((address_space(3), loader_uninitialized))
#define UNROLL       _Pragma("clang loop unroll(full)")
#define NO_UNROLL    _Pragma("clang loop unroll(disable)")
#else
#define DEVICE static inline __attribute__((always_inline))
#define GLOBAL
#define IN_BLOCK
#define BLOCK_SHARED static _Thread_local
#define UNROLL
#define NO_UNROLL
#endif

/*
 * KERNEL(name, args_type, function, constant) defines kernel `name`. It takes its
 * arguments by value, and runs function(const args_type *, uint32_t block, constant).
 * On the host it is void name(const void *args, uint32_t block, uint32_t blocks).
 */
#if defined(__NVPTX__)
#define KERNEL_OF_DEVICE __attribute__((nvptx_kernel))
#elif defined(__AMDGCN__)
#define KERNEL_OF_DEVICE __attribute__((amdgpu_kernel))
#endif
#if defined(KERNEL_OF_DEVICE)
#define KERNEL(name, args_type, function, constant)   \
    KERNEL_OF_DEVICE void name(const args_type args); \
    KERNEL_OF_DEVICE void name(const args_type args)  \
    {                                                 \
        function(&args, block_index(), constant);     \
    }
#else
#define KERNEL(name, args_type, function, constant)               \
    void name(const void *args, uint32_t block, uint32_t blocks); \
    void name(const void *args, uint32_t block, uint32_t blocks)  \
    {                                                             \
        (void)blocks;                                             \
        function((const args_type *)args, block, constant);       \
    }
#endif

#define MOTET_AT(type, p) ((GLOBAL type *)(uintptr_t)(p))

/* ---- Plain accesses: aligned to their size ----------------------------------------- */

DEVICE bits128 load128(const void *p)
{
    motet_quad v = *MOTET_AT(const motet_quad, p);
    return (bits128){ { v[0], v[1], v[2], v[3] } };
}

DEVICE void store128(void *p, bits128 v)
{
    *MOTET_AT(motet_quad, p) = (motet_quad){ v.w[0], v.w[1], v.w[2], v.w[3] };
}

#define PLAIN_ACCESS(bits)                                               \
    typedef uint##bits##_t __attribute__((may_alias)) motet_plain##bits; \
    DEVICE uint##bits##_t load##bits(const void *p)                      \
    {                                                                    \
        return *MOTET_AT(const motet_plain##bits, p);                    \
    }                                                                    \
    DEVICE void store##bits(void *p, uint##bits##_t v)                   \
    {                                                                    \
        *MOTET_AT(motet_plain##bits, p) = v;                             \
    }
PLAIN_ACCESS(8)
PLAIN_ACCESS(16)
PLAIN_ACCESS(32)
PLAIN_ACCESS(64)
#undef PLAIN_ACCESS

/* A word of the block's, which others of it may write meanwhile. */
DEVICE uint32_t load_block_word(const IN_BLOCK uint32_t *p)
{
    return __atomic_load_n(p, __ATOMIC_RELAXED);
}

DEVICE void store_block_word(IN_BLOCK uint32_t *p, uint32_t v)
{
    __atomic_store_n(p, v, __ATOMIC_RELAXED);
}

/** Two words that lie side by side, aligned to 16 bytes; each is whole by itself. */
typedef struct pair64 {
    uint64_t a, b;
} pair64;

/* ---- NVIDIA ------------------------------------------------------------------------- */
#if defined(__NVPTX__)

DEVICE uint32_t thread_index(void)
{
    return (uint32_t)__nvvm_read_ptx_sreg_tid_x();
}

DEVICE uint32_t thread_count(void)
{
    return (uint32_t)__nvvm_read_ptx_sreg_ntid_x();
}

DEVICE uint32_t block_index(void)
{
    return (uint32_t)__nvvm_read_ptx_sreg_ctaid_x();
}

DEVICE void block_sync(void)
{
    __syncthreads();
}

DEVICE uint32_t load32_shared(const void *p)
{
    uint32_t v;
    __asm__ volatile("ld.relaxed.sys.global.u32 %0, [%1];"
            : "=r"(v)
            : "l"(MOTET_AT(const uint32_t, p))
            : "memory");
    return v;
}

DEVICE uint64_t load64_shared(const void *p)
{
    uint64_t v;
    __asm__ volatile("ld.relaxed.sys.global.u64 %0, [%1];"
            : "=l"(v)
            : "l"(MOTET_AT(const uint64_t, p))
            : "memory");
    return v;
}

DEVICE uint64_t load64_acquire(const void *p)
{
    uint64_t v;
    __asm__ volatile("ld.acquire.sys.global.u64 %0, [%1];"
            : "=l"(v)
            : "l"(MOTET_AT(const uint64_t, p))
            : "memory");
    return v;
}

DEVICE pair64 load_pair_shared(const void *p)
{
    pair64 v;
    __asm__ volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
            : "=l"(v.a), "=l"(v.b)
            : "l"(MOTET_AT(const uint64_t, p))
            : "memory");
    return v;
}

DEVICE void store32_shared(void *p, uint32_t v)
{
    __asm__ volatile("st.relaxed.sys.global.u32 [%0], %1;"
            :
            : "l"(MOTET_AT(uint32_t, p)), "r"(v)
            : "memory");
}

DEVICE void store64_shared(void *p, uint64_t v)
{
    __asm__ volatile("st.relaxed.sys.global.u64 [%0], %1;"
            :
            : "l"(MOTET_AT(uint64_t, p)), "l"(v)
            : "memory");
}

DEVICE void store_pair_shared(void *p, pair64 v)
{
    __asm__ volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};"
            :
            : "l"(MOTET_AT(uint64_t, p)), "l"(v.a), "l"(v.b)
            : "memory");
}

DEVICE void block_release(void)
{
    block_sync();
}

/* This thread's stores before its next ones. */
DEVICE void thread_fence(void)
{
    __asm__ volatile("fence.acq_rel.sys;" ::: "memory");
}

DEVICE void flag_fence(void)
{
    thread_fence();
}

DEVICE void block_acquire(void)
{
    block_sync();
}

DEVICE void pause(uint32_t spins)
{
    (void)spins;
}

/* The same value, of which the compiler knows nothing: what follows from it is computed
 * where it is used, and not kept from before a loop in one more register. */
DEVICE uint32_t afresh(uint32_t v)
{
    __asm__ volatile("" : "+r"(v));
    return v;
}

/* Unlike that of any other block that runs now. */
DEVICE uint64_t unique_mark(void)
{
    uint64_t clock;
    uint32_t processor;
    __asm__ volatile("mov.u64 %0, %%clock64;" : "=l"(clock));
    __asm__ volatile("mov.u32 %0, %%smid;" : "=r"(processor));
    return clock << 16 ^ processor;
}

/* ---- AMD ---------------------------------------------------------------------------- */
#elif defined(__AMDGCN__)

DEVICE uint32_t thread_index(void)
{
    return __builtin_amdgcn_workitem_id_x();
}

/* From the dispatch packet: an implicit argument would be one more that a kernel
 * declares. */
DEVICE uint32_t thread_count(void)
{
    const __attribute__((address_space(4))) uint16_t *packet =
            (const __attribute__((address_space(4)))
                    uint16_t *)__builtin_amdgcn_dispatch_ptr();
    return packet[2];
}

DEVICE uint32_t block_index(void)
{
    return __builtin_amdgcn_workgroup_id_x();
}

DEVICE void block_sync(void)
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

DEVICE uint32_t load32_shared(const void *p)
{
    return __atomic_load_n(MOTET_AT(const uint32_t, p), __ATOMIC_RELAXED);
}

DEVICE uint64_t load64_shared(const void *p)
{
    return __atomic_load_n(MOTET_AT(const uint64_t, p), __ATOMIC_RELAXED);
}

DEVICE uint64_t load64_acquire(const void *p)
{
    return __atomic_load_n(MOTET_AT(const uint64_t, p), __ATOMIC_ACQUIRE);
}

DEVICE pair64 load_pair_shared(const void *p)
{
    GLOBAL const uint64_t *at = MOTET_AT(const uint64_t, p);
    pair64 v;
    v.a = __atomic_load_n(at, __ATOMIC_RELAXED);
    v.b = __atomic_load_n(at + 1, __ATOMIC_RELAXED);
    return v;
}

DEVICE void store32_shared(void *p, uint32_t v)
{
    __atomic_store_n(MOTET_AT(uint32_t, p), v, __ATOMIC_RELAXED);
}

DEVICE void store64_shared(void *p, uint64_t v)
{
    __atomic_store_n(MOTET_AT(uint64_t, p), v, __ATOMIC_RELAXED);
}

DEVICE void store_pair_shared(void *p, pair64 v)
{
    store64_shared(p, v.a);
    store64_shared((uint8_t *)p + 8, v.b);
}

DEVICE void block_release(void)
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

DEVICE void thread_fence(void)
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
}

/* Every wave has had its fence in block_release(). */
DEVICE void flag_fence(void)
{
}

DEVICE void block_acquire(void)
{
    block_sync();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");
}

/* A poll of host memory is a read across PCIe: not faster than it can be answered. */
DEVICE void pause(uint32_t spins)
{
    (void)spins;
    __builtin_amdgcn_s_sleep(1);
}

DEVICE uint32_t afresh(uint32_t v)
{
    __asm__ volatile("" : "+v"(v));
    return v;
}

/* Unlike that of any other block that runs now, but for two that begin in the same
 * cycle; on gfx11, whose counter has 20 bits, in the same one of a million. It serves to
 * find mistakes of callers, and nothing that must hold. */
DEVICE uint64_t unique_mark(void)
{
    return __builtin_readcyclecounter();
}

/* ---- The host ----------------------------------------------------------------------- */
#else

#include <sched.h>

DEVICE uint32_t thread_index(void)
{
    return 0;
}

DEVICE uint32_t thread_count(void)
{
    return 1;
}

DEVICE void block_sync(void)
{
}

typedef uint32_t __attribute__((may_alias)) motet_word32;
typedef uint64_t __attribute__((may_alias)) motet_word64;

DEVICE uint32_t load32_shared(const void *p)
{
    return __atomic_load_n(MOTET_AT(const motet_word32, p), __ATOMIC_ACQUIRE);
}

DEVICE uint64_t load64_shared(const void *p)
{
    return __atomic_load_n(MOTET_AT(const motet_word64, p), __ATOMIC_ACQUIRE);
}

DEVICE uint64_t load64_acquire(const void *p)
{
    return load64_shared(p);
}

DEVICE pair64 load_pair_shared(const void *p)
{
    pair64 v;
    v.a = load64_shared(p);
    v.b = load64_shared((const uint8_t *)p + 8);
    return v;
}

DEVICE void store32_shared(void *p, uint32_t v)
{
    __atomic_store_n(MOTET_AT(motet_word32, p), v, __ATOMIC_RELEASE);
}

DEVICE void store64_shared(void *p, uint64_t v)
{
    __atomic_store_n(MOTET_AT(motet_word64, p), v, __ATOMIC_RELEASE);
}

DEVICE void store_pair_shared(void *p, pair64 v)
{
    store64_shared(p, v.a);
    store64_shared((uint8_t *)p + 8, v.b);
}

DEVICE void block_release(void)
{
}

DEVICE void thread_fence(void)
{
}

DEVICE void flag_fence(void)
{
}

DEVICE void block_acquire(void)
{
}

/* Each block has a thread of its own, and a thread one block after the other. */
DEVICE uint64_t unique_mark(void)
{
    static _Thread_local uint64_t begun;
    return (uint64_t)(uintptr_t)&begun << 16 ^ ++begun;
}

/* There may be more blocks than processors. */
DEVICE void pause(uint32_t spins)
{
    if (spins > 32)
        sched_yield();
}

DEVICE uint32_t afresh(uint32_t v)
{
    return v;
}
#endif

#endif
