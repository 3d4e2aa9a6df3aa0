/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a library: what it declares for AMD GPUs is printed, or why that is not
 * known, and no byte of it that a terminal would act upon.
 */
#include "gather.h"

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
    fprintf(stderr, "fuzz_doctor_images: %s\n", what);
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const int fd = memfd_create("library", MFD_CLOEXEC);
    char path[32], *text = NULL;
    size_t count = 0;
    FILE *out = open_memstream(&text, &count);

    check(out != NULL && fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes,
            "no memory");
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    (void)dr_write_images(out, path, "lib.so");
    fclose(out);
    for (size_t i = 0; i < count; i++)
        check(text[i] == '\n' || text[i] == '\t' || (unsigned char)text[i] >= 32,
                "a control byte");
    free(text);
    close(fd);
    return 0;
}
