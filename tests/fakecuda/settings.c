/* SPDX-License-Identifier: Apache-2.0 */
/* The environment: what the pretended machine is like, and what is wrong with it. */
#include "fake.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fake_settings fake_set;

const char *fake_load_text(const char *name, char full[64])
{
    const char *text;

    snprintf(full, 64, "%s%s", fake_the_face.prefix, name);
    text = getenv(full);
    return text != NULL && *text != '\0' ? text : NULL;
}

CUresult fake_load_refuse(const char *name, const char *value, const char *need)
{
    fprintf(stderr, "%s: %s%s is '%s', need %s\n", fake_the_face.name,
            fake_the_face.prefix, name, value, need);
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult fake_load_number(const fake_number *n)
{
    char need[64], full[64], *end;
    const char *text = fake_load_text(n->name, full);
    uint64_t value;

    *n->out = n->fallback;
    if (text == NULL)
        return CUDA_SUCCESS;
    errno = 0;
    value = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)*text) || *end != '\0' || errno != 0 ||
            value < n->min || value > n->max) {
        snprintf(need, sizeof(need), "%llu..%llu", (unsigned long long)n->min,
                (unsigned long long)n->max);
        return fake_load_refuse(n->name, text, need);
    }
    *n->out = value;
    return CUDA_SUCCESS;
}

CUresult fake_load_word(const char *name, const char *const *words, int *out)
{
    char full[64], need[128] = "";
    const char *text = fake_load_text(name, full);
    size_t used = 0;

    *out = 0;
    if (text == NULL)
        return CUDA_SUCCESS;
    for (int i = 0; words[i] != NULL; i++) {
        if (strcmp(text, words[i]) == 0) {
            *out = i;
            return CUDA_SUCCESS;
        }
        used += (size_t)snprintf(need + used, sizeof(need) - used, "%s%s",
                i == 0 ? "" : "|", words[i]);
    }
    return fake_load_refuse(name, text, need);
}

/* "GPU-" and the beginning of a UUID, or a number; −1 if it names no visible device. */
static int device_named(const char *name, size_t length)
{
    char *end, digits[33];
    unsigned long value;

    for (unsigned v = 0;
            length > 4 && memcmp(name, "GPU-", 4) == 0 && v < fake_set.nvisible; v++) {
        size_t n = 0, i = 4;

        fake_the_face.uuid_text(fake_set.visible[v], digits);
        for (; i < length && digits[n] != '\0'; i++)
            if (name[i] != '-' && tolower((unsigned char)name[i]) != digits[n++])
                break;
        if (i == length)
            return (int)fake_set.visible[v];
    }
    if (length == 0 || !isdigit((unsigned char)*name))
        return -1;
    value = strtoul(name, &end, 10);
    return end == name + length && value < fake_set.nvisible
            ? (int)fake_set.visible[value]
            : -1;
}

void fake_visible_filter(const char *name)
{
    const char *text = getenv(name);
    unsigned kept[FAKE_DEVICES], nkept = 0;

    if (text == NULL)
        return;
    for (size_t length; *text != '\0'; text += length + (text[length] == ',')) {
        bool twice = false;
        int device;

        length = strcspn(text, ",");
        device = device_named(text, length);
        for (unsigned i = 0; i < nkept; i++)
            twice |= device == (int)kept[i];
        if (twice)
            nkept = 0;
        if (twice || device < 0)
            break;
        kept[nkept++] = (unsigned)device;
    }
    memcpy(fake_set.visible, kept, nkept * sizeof(*kept));
    fake_set.nvisible = nkept;
}

/* "A-B", numbers of the machine; without it, all pairs. */
static CUresult load_pair(void)
{
    char full[64], rest;
    const char *text = fake_load_text("PAIR", full);

    fake_set.paired = text != NULL;
    if (text == NULL ||
            (sscanf(text, "%2u-%2u%c", &fake_set.pair[0], &fake_set.pair[1], &rest) ==
                            2 &&
                    fake_set.pair[0] < FAKE_DEVICES && fake_set.pair[1] < FAKE_DEVICES))
        return CUDA_SUCCESS;
    return fake_load_refuse("PAIR", text, "A-B");
}

/* A library that the loader finds. */
static CUresult load_kernels(void)
{
    char full[64];
    const char *text = fake_load_text("KERNELS", full);

    fake_set.kernels = text == NULL ? NULL : dlopen(text, RTLD_NOW | RTLD_LOCAL);
    if (text != NULL && fake_set.kernels == NULL)
        return fake_load_refuse("KERNELS", text, "a library that can be loaded");
    return CUDA_SUCCESS;
}

bool fake_is_faulty(unsigned one, unsigned other)
{
    const unsigned *pair = fake_set.pair;

    return !fake_set.paired || (one == pair[0] && other == pair[1]) ||
            (one == pair[1] && other == pair[0]);
}

CUresult fake_settings_load(void)
{
    static const char *const peers[] = { "all", "none", "oneway", NULL };
    static const char *const imports[] = { "share", "drop", "zero", "falsify", "ones",
        "private", "oneway", "slow", "stale", "flagfirst", NULL };
    uint64_t devices, processors;
    int peer, import;
    const fake_number numbers[] = {
        { "DEVICES", &devices, 2, 0, FAKE_DEVICES },
        { "PROCESSORS", &processors, 8, 1, 256 },
        { "MEMORY", &fake_set.memory_bytes, (uint64_t)16 << 30, 1, (uint64_t)1 << 46 },
        { "SLOW_US", &fake_set.slow_us, 0, 0, 10000000 },
        { "IMPORT_FROM", &fake_set.import_from, 0, 0, (uint64_t)1 << 46 },
        { "IMPORT_TO", &fake_set.import_to, UINT64_MAX, 0, (uint64_t)1 << 46 },
        { "IMPORT_MS", &fake_set.import_ms, UINT64_MAX, 0, 3600000 },
    };
    CUresult code = CUDA_SUCCESS;

    for (size_t i = 0; code == CUDA_SUCCESS && i < sizeof(numbers) / sizeof(*numbers);
            i++)
        code = fake_load_number(&numbers[i]);
    if (code == CUDA_SUCCESS)
        code = fake_load_word("PEER", peers, &peer);
    if (code == CUDA_SUCCESS)
        code = fake_load_word("IMPORT", imports, &import);
    if (code == CUDA_SUCCESS)
        code = load_pair();
    if (code == CUDA_SUCCESS)
        code = load_kernels();
    if (code != CUDA_SUCCESS)
        return code;
    fake_set.devices = (unsigned)devices;
    fake_set.processors = (unsigned)processors;
    fake_set.peer = (enum fake_peer)peer;
    fake_set.import = (enum fake_import)import;
    if (fake_set.import_ms == UINT64_MAX)
        fake_set.import_ms = fake_set.import == FAKE_IMPORT_STALE ? 0
                : fake_set.import == FAKE_IMPORT_FLAGFIRST        ? 50
                                                                  : 200;
    fake_set.sticky_after = UINT64_MAX;
    fake_set.nvisible = 0;
    for (unsigned d = 0; d < fake_set.devices; d++)
        fake_set.visible[fake_set.nvisible++] = d;
    return fake_the_face.settings();
}

bool fake_peers(unsigned from, unsigned to)
{
    if (from == to || !fake_is_faulty(from, to))
        return true;
    return fake_set.peer == FAKE_PEER_ALL ||
            (fake_set.peer == FAKE_PEER_ONEWAY && from < to);
}
