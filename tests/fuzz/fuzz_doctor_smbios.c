/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as an SMBIOS table: every slot is printed whole, and no byte of it that a
 * terminal would act upon.
 */
#include "gather.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "fuzz_doctor_smbios: %s\n", what);
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = NULL;
    size_t count = 0;
    FILE *out = open_memstream(&text, &count);

    check(out != NULL, "no memory");
    dr_write_smbios_slots(out, data, bytes);
    fclose(out);
    for (size_t i = 0; i < count; i++)
        check(text[i] == '\n' || text[i] == '\t' || (unsigned char)text[i] >= 32,
                "a control byte");
    free(text);
    return 0;
}
