/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a library whose names motet lib lists: it is read, or there is a sentence,
 * and no name holds a byte that a terminal would act upon.
 */
#include "lib.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "fuzz_lib_elf: %s\n", what);
    abort();
}

static void check_names(const struct lib_names *names)
{
    check(names->num <= LIB_NAMES_MAX, "more names than there is room for");
    for (size_t i = 0; i < names->num; i++)
        for (const char *c = names->name[i]; *c != 0; c++)
            check((unsigned char)*c >= 32 && *c != 0x7f, "a control byte");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const wanted[] = { "ncclGetVersion", "ncclAllReduce", NULL };
    const int fd = memfd_create("library", MFD_CLOEXEC);
    struct lib_names needed = { 0 }, missing = { 0 };
    char path[32], why[160] = "";
    bool read;

    check(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes, "no memory");
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    read = lib_elf_read(path, wanted, &needed, &missing, why, sizeof(why));
    check(read == (why[0] == 0), "neither read nor a sentence, or both");
    check_names(&needed);
    check_names(&missing);
    lib_names_clear(&needed);
    lib_names_clear(&missing);
    close(fd);
    return 0;
}
