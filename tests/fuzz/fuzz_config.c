/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes the configuration structures: ncclConfig_t of any size and version, the options
 * of a call with a list, and ncclSimInfo_t. The input's first byte chooses; the rest is
 * the structure, in a heap block of exactly its length, so that a read behind it is
 * seen. What no library could survive is repaired first: `size` tells the truth, and
 * pointers point somewhere.
 */
#include "api/config.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define LIST_MAX 100 /* more than the library follows */

static const motet_params *no_parameters(void)
{
    static motet_params params;

    params.value[MOTET_P_COMM_BLOCKING].number = -1;
    params.value[MOTET_P_MIN_CTAS].number = -1;
    params.value[MOTET_P_MAX_CTAS].number = -1;
    return &params;
}

static void repair_size(char *block, size_t bytes)
{
    size_t size;

    memcpy(&size, block, sizeof(size));
    if (size > bytes) {
        size = bytes;
        memcpy(block, &size, sizeof(size));
    }
}

/* A pointer becomes NULL or @p target, as its lowest bit says. */
static void repair_pointer(char *block, size_t bytes, size_t offset, const void *target)
{
    if (offset + sizeof(target) <= bytes) {
        const void *pointer = (block[offset] & 1) != 0 ? target : NULL;

        memcpy(block + offset, &pointer, sizeof(pointer));
    }
}

static void require(bool good)
{
    if (!good)
        __builtin_trap();
}

static void try_comm(char *block, size_t bytes)
{
    motet_config out;

    memset(&out, 0xff, sizeof(out));
    repair_pointer(block, bytes, offsetof(ncclConfig_t, netName), "net");
    repair_pointer(block, bytes, offsetof(ncclConfig_t, commName), "comm");
    if (motet_config_parse((const void *)block, NULL, no_parameters(), &out) !=
            MOTET_OK)
        return;
    require(out.blocking == 0 || out.blocking == 1);
    require(out.min_ctas >= 1 && out.min_ctas <= out.max_ctas);
    require(out.cta_policy >= 0 && out.cta_policy <= 3);
    require(memchr(out.net_name, '\0', sizeof(out.net_name)) != NULL);
    require(memchr(out.comm_name, '\0', sizeof(out.comm_name)) != NULL);
}

/* The list is made from what follows the structure, 9 bytes an option; its last
 * byte may close a circle. */
static ncclConfigExt_t *make_list(const uint8_t *data, size_t bytes)
{
    static ncclConfigExt_t list[LIST_MAX];
    size_t count = bytes / 9 < LIST_MAX ? bytes / 9 : LIST_MAX;

    for (size_t i = 0; i < count; i++) {
        const uint8_t *at = data + 9 * i;

        list[i].next = i + 1 < count ? &list[i + 1] : (at[8] & 1) != 0 ? list : NULL;
        list[i].key.vendorId = (at[8] & 2) != 0 ? 0x6d6f74 : at[0];
        list[i].key.optionId = (int8_t)at[1];
        memcpy(&list[i].val.i, at + 2, sizeof(list[i].val.i));
    }
    return count != 0 ? list : NULL;
}

static void try_call(char *block, size_t bytes, const uint8_t *data)
{
    const size_t known = sizeof(ncclCollConfig_t);
    motet_call_config out;

    repair_pointer(block, bytes, offsetof(ncclCollConfig_t, algSelection), "ring,tree");
    repair_pointer(block, bytes, offsetof(ncclCollConfig_t, ext),
            bytes > known ? make_list(data + known, bytes - known) : NULL);
    if (motet_call_config_parse((const void *)block, &out) != MOTET_OK)
        return;
    require(memchr(out.algorithm, '\0', sizeof(out.algorithm)) != NULL);
    require(out.has_timeout || out.timeout_ms == 0);
    require(out.timeout_ms <= INT_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *block;

    if (bytes < 1 + sizeof(size_t))
        return 0;
    block = malloc(bytes - 1);
    if (block == NULL)
        return 0;
    memcpy(block, data + 1, bytes - 1);
    repair_size(block, bytes - 1);
    switch (data[0] % 3) {
    case 0: try_comm(block, bytes - 1); break;
    case 1: try_call(block, bytes - 1, data + 1); break;
    default:
        if (motet_sim_info_check((const void *)block) == MOTET_OK)
            motet_sim_info_set_time((void *)block, 1.0f);
        break;
    }
    free(block);
    return 0;
}
