/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that only AMD's runtime is given: those of `motet probe --gate-kernels`, built
 * for the host. */
#include "hip.h"

#include "gate/gate_args.h"

#include <string.h>

/* F(kernel, type of its arguments) */
#define GATE_KERNELS(F)                \
    F(probe_gate_plain, gate_args)     \
    F(probe_gate_hostcall, gate_args)  \
    F(probe_gate_hidden, gate_args)    \
    F(probe_gate_wide, gate_wide_args) \
    F(probe_gate_follow, gate_args)    \
    F(probe_gate_lds, gate_args)

#define DECLARE(name, args_type) \
    void name(const void *args, uint32_t block, uint32_t blocks);
GATE_KERNELS(DECLARE)
#undef DECLARE

fakecuda_kernel hip_kernel_find(const char *name, size_t *bytes_out)
{
    static const struct {
        const char *name;
        fakecuda_kernel run;
        size_t bytes;
    } kernels[] = {
#define ROW(name, args_type) { #name, name, sizeof(args_type) },
        GATE_KERNELS(ROW)
#undef ROW
    };

    for (size_t i = 0; i < sizeof(kernels) / sizeof(*kernels); i++)
        if (strcmp(kernels[i].name, name) == 0) {
            *bytes_out = kernels[i].bytes;
            return kernels[i].run;
        }
    return NULL;
}
