/* SPDX-License-Identifier: Apache-2.0 */
/* The environment: what the pretended machine is like, and what is wrong with it. */
#include "fake.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fake_settings fake_set;

static CUresult refuse(const char *name, const char *value, const char *need)
{
    fprintf(stderr, "fakecuda: %s is '%s', need %s\n", name, value, need);
    return CUDA_ERROR_INVALID_VALUE;
}

typedef struct number {
    const char *name;
    uint64_t *out, fallback, min, max;
} number;

static CUresult load_number(const number *n)
{
    const char *text = getenv(n->name);
    char need[64], *end;
    uint64_t value;

    *n->out = n->fallback;
    if (text == NULL || *text == '\0')
        return CUDA_SUCCESS;
    errno = 0;
    value = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)*text) || *end != '\0' || errno != 0 ||
            value < n->min || value > n->max) {
        snprintf(need, sizeof(need), "%llu..%llu", (unsigned long long)n->min,
                (unsigned long long)n->max);
        return refuse(n->name, text, need);
    }
    *n->out = value;
    return CUDA_SUCCESS;
}

/* One of the words of @p words, which is ended by NULL; the first is the default. */
static CUresult load_word(const char *name, const char *const *words, int *out)
{
    const char *text = getenv(name);
    char need[128] = "";
    size_t used = 0;

    *out = 0;
    if (text == NULL || *text == '\0')
        return CUDA_SUCCESS;
    for (int i = 0; words[i] != NULL; i++) {
        if (strcmp(text, words[i]) == 0) {
            *out = i;
            return CUDA_SUCCESS;
        }
        used += (size_t)snprintf(need + used, sizeof(need) - used, "%s%s",
                i == 0 ? "" : "|", words[i]);
    }
    return refuse(name, text, need);
}

void fake_uuid(unsigned physical, unsigned char uuid[16])
{
    static const unsigned char pattern[16] = "fakecuda-device";

    memcpy(uuid, pattern, 16);
    uuid[15] = (unsigned char)physical;
}

/* "GPU-" and the beginning of a UUID, or a number; −1 if it names no device. */
static int device_named(const char *name, size_t length)
{
    char *end, digits[33];
    unsigned char uuid[16];
    unsigned long value;

    for (unsigned d = 0;
            length > 4 && memcmp(name, "GPU-", 4) == 0 && d < fake_set.devices; d++) {
        size_t n = 0, i = 4;

        fake_uuid(d, uuid);
        for (size_t b = 0; b < 16; b++)
            snprintf(digits + 2 * b, 3, "%02x", uuid[b]);
        for (; i < length && n < 32; i++)
            if (name[i] != '-' && tolower((unsigned char)name[i]) != digits[n++])
                break;
        if (i == length)
            return (int)d;
    }
    if (length == 0 || !isdigit((unsigned char)*name))
        return -1;
    value = strtoul(name, &end, 10);
    return end == name + length && value < fake_set.devices ? (int)value : -1;
}

/* As the driver reads it: devices up to the first entry that names none, or one twice. */
static void load_visible(void)
{
    const char *text = getenv("CUDA_VISIBLE_DEVICES");

    fake_set.nvisible = 0;
    if (text == NULL) {
        for (unsigned d = 0; d < fake_set.devices; d++)
            fake_set.visible[fake_set.nvisible++] = d;
        return;
    }
    for (size_t length; *text != '\0'; text += length + (text[length] == ',')) {
        int device;

        length = strcspn(text, ",");
        device = device_named(text, length);
        for (unsigned i = 0; i < fake_set.nvisible; i++)
            if (device == (int)fake_set.visible[i]) {
                fake_set.nvisible = 0;
                return;
            }
        if (device < 0)
            return;
        fake_set.visible[fake_set.nvisible++] = (unsigned)device;
    }
}

CUresult fake_settings_load(void)
{
    static const char *const peers[] = { "all", "none", "oneway", NULL };
    static const char *const imports[] = { "share", "drop", "zero", "falsify", NULL };
    static const char *const vmm[] = { "1", "0", NULL };
    uint64_t devices, processors;
    int peer, import, without;
    const number numbers[] = {
        { "FAKECUDA_DEVICES", &devices, 2, 0, FAKE_DEVICES },
        { "FAKECUDA_PROCESSORS", &processors, 8, 1, 256 },
        { "FAKECUDA_DRIVER_VERSION", &fake_set.driver_version, 13000, 1, 99990 },
        { "FAKECUDA_MEMORY", &fake_set.memory_bytes, (uint64_t)16 << 30, 1,
                (uint64_t)1 << 46 },
        { "FAKECUDA_INIT", &fake_set.init_code, 0, 0, 999 },
        { "FAKECUDA_STICKY", &fake_set.sticky_after, UINT64_MAX, 0, UINT64_MAX - 1 },
        { "FAKECUDA_SLOW_US", &fake_set.slow_us, 0, 0, 10000000 },
        { "FAKECUDA_IMPORT_FROM", &fake_set.import_from, 0, 0, (uint64_t)1 << 46 },
    };
    CUresult code = CUDA_SUCCESS;

    for (size_t i = 0; code == CUDA_SUCCESS && i < sizeof(numbers) / sizeof(*numbers);
            i++)
        code = load_number(&numbers[i]);
    if (code == CUDA_SUCCESS)
        code = load_word("FAKECUDA_PEER", peers, &peer);
    if (code == CUDA_SUCCESS)
        code = load_word("FAKECUDA_IMPORT", imports, &import);
    if (code == CUDA_SUCCESS)
        code = load_word("FAKECUDA_VMM", vmm, &without);
    if (code != CUDA_SUCCESS)
        return code;
    fake_set.devices = (unsigned)devices;
    fake_set.processors = (unsigned)processors;
    fake_set.peer = (enum fake_peer)peer;
    fake_set.import = (enum fake_import)import;
    fake_set.vmm = without == 0;
    load_visible();
    return CUDA_SUCCESS;
}

bool fake_peers(unsigned from, unsigned to)
{
    if (from == to)
        return true;
    return fake_set.peer == FAKE_PEER_ALL ||
            (fake_set.peer == FAKE_PEER_ONEWAY && from < to);
}
