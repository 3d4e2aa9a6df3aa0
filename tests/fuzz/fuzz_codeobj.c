/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a code object, and as the metadata of one. What is read must keep its
 * limits; what is refused must leave nothing behind and say why.
 */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "fuzz_codeobj: %s\n", what);
    abort();
}

static void check_kernel(const struct codeobj_kernel *kernel)
{
    uint64_t kinds = 0;
    size_t hidden = 0;

    check(kernel->name != NULL && strlen(kernel->name) < CODEOBJ_NAME_MAX, "a name");
    check(kernel->num_args <= CODEOBJ_ARGS_MAX, "too many arguments");
    check((kernel->num_args == 0) == (kernel->args == NULL),
            "arguments without a list");
    for (size_t i = 0; i < kernel->num_args; i++) {
        check((unsigned)kernel->args[i].kind < CODEOBJ_NUM_KINDS, "a kind");
        kinds |= UINT64_C(1) << kernel->args[i].kind;
        hidden += codeobj_kind_hidden(kernel->args[i].kind);
    }
    check(kinds == kernel->kinds && hidden == kernel->num_hidden, "a sum of arguments");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char why[CODEOBJ_WHY_MAX] = "";
    struct codeobj object;

    if (codeobj_read(data, bytes, &object, why) == 0) {
        check(codeobj_is(data, bytes), "read and no code object");
        check(object.num_kernels <= CODEOBJ_KERNELS_MAX, "too many kernels");
        for (size_t i = 0; i < object.num_kernels; i++)
            check_kernel(&object.kernels[i]);
    } else {
        check(object.kernels == NULL && object.num_kernels == 0, "kernels are left");
        check(why[0] != 0 && memchr(why, 0, sizeof(why)) != NULL, "no reason");
    }
    codeobj_clear(&object);
    if (codeobj_library(0) == NULL)
        return 0;
    memset(&object, 0, sizeof(object));
    (void)codeobj_metadata(data, bytes, 0, &object,
            why); /* fails where bytes are odd */
    codeobj_clear(&object);
    return 0;
}
