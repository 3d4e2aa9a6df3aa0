/* SPDX-License-Identifier: Apache-2.0 */
/* Device code that the gate must refuse, and next to it what it must not refuse.
 * Compiled by test_gate.py, one kernel at a time. */
#ifdef __NVPTX__
#define KERNEL __attribute__((nvptx_kernel)) void
#define SHARED __attribute__((address_space(3)))
#else
#define KERNEL __attribute__((amdgpu_kernel)) void
#define SHARED __attribute__((address_space(3), loader_uninitialized))
#endif

#ifdef GOOD
/* Loads, stores, fences, and words that merely look like the bad ones. */
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
#endif

#ifdef ADD
KERNEL add(int *p)
{
    __atomic_fetch_add(p, 3, __ATOMIC_RELAXED);
}
#endif

#ifdef EXCHANGE
KERNEL exchange(int *p)
{
    p[1] = __atomic_exchange_n(p, 3, __ATOMIC_RELAXED);
}
#endif

#ifdef COMPARE
KERNEL compare(unsigned long long *p)
{
    unsigned long long expected = 1;

    __atomic_compare_exchange_n(p, &expected, 3, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
#endif

#ifdef SHARED_MAX
SHARED int word;
KERNEL shared_max(int *p)
{
    *p = __atomic_fetch_max(&word, *p, __ATOMIC_RELAXED);
}
#endif

#ifdef INDIRECT
KERNEL indirect(void (*f)(int *), int *p)
{
    f(p);
}
#endif

#ifdef EXTERN
void elsewhere(int *p);
KERNEL calls_out(int *p)
{
    elsewhere(p);
}
#endif
