/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what --model says, and as the config.json that it names: a model has its
 * numbers, or there is a sentence.
 */
#include "doctor_model.h"

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
    fprintf(stderr, "fuzz_doctor_model: %s\n", what);
    abort();
}

static void try(const char *text)
{
    struct dr_model model = { 0 };
    char why[512] = "";

    if (doctor_model(text, &model, why, sizeof(why)))
        check(model.hidden > 0 && model.layers > 0 && model.batch > 0 &&
                        model.dtype_bytes > 0,
                "a model without its numbers");
    else
        check(why[0] != 0, "no sentence");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const int fd = memfd_create("config", MFD_CLOEXEC);
    char path[32], *text = calloc(1, bytes + 1);

    check(text != NULL && fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes,
            "no memory");
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    try(path);
    memcpy(text, data, bytes);
    if (strchr(text, '=') != NULL)
        try(text);
    free(text);
    close(fd);
    return 0;
}
