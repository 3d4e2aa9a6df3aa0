/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a file of KFD's topology, and as HSA_OVERRIDE_GFX_VERSION. What is found
 * stands in the text as "name value"; a version that is read is named and fits its buffer.
 */
#include "device/hip.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "fuzz_kfd: %s\n", what);
    abort();
}

static void read_value(const char *text, const char *name)
{
    uint64_t value = UINT64_MAX;
    char line[80];

    if (!motet_hip_kfd_value(text, name, &value)) {
        check(value == UINT64_MAX, "a value that was not found was written");
        return;
    }
    /* zeros in front of the number are all that may stand between */
    snprintf(line, sizeof(line), "%s ", name);
    check(strstr(text, line) != NULL, "a name that is not in the text was found");
    snprintf(line, sizeof(line), "%" PRIu64, value);
    check(strstr(text, line) != NULL, "a value that is not in the text was found");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const names[] = { "flags", "location_id", "simd_count",
        "gfx_target_version", "node_to" };
    char *text = malloc(bytes + 1), name[16], target[32];
    unsigned version = 0;

    if (text == NULL)
        return 0;
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        read_value(text, names[i]);
    if (motet_hip_gfx_parse(text, &version)) {
        motet_hip_gfx_name(version, name, sizeof(name));
        check(version <= 999999 && strncmp(name, "gfx", 3) == 0, "a version's name");
    }
    if (motet_hip_find_target((const char *)data, bytes, bytes / 2, target,
                sizeof(target)))
        check(strncmp(target, "gfx", 3) == 0 && strlen(target) >= 6, "a target");
    free(text);
    return 0;
}
