/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a unique id, as a fixed rendezvous address and as a port range. The
 * bytes are also laid over a good id whose checksum is then put right, so that the
 * fuzzer need not find magic and checksum by itself. What is accepted must encode to
 * the same bytes again.
 */
#include "bootstrap/id.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_id(const motet_id *id, const motet_params *params)
{
    motet_id_fields fields;
    motet_unix_name name;
    motet_id again;
    char text[MOTET_INET_TEXT_MAX];

    if (motet_id_decode(id, &fields) != MOTET_OK)
        return;
    motet_id_encode(&fields, &again);
    if (memcmp(id, &again, sizeof(again)) != 0) {
        fprintf(stderr, "fuzz_id: an id was accepted that is not what it encodes to\n");
        abort();
    }
    for (int i = 0; i < fields.naddrs; i++)
        motet_inet_format(&fields.addr[i], text, sizeof(text));
    motet_id_abstract_name(&fields, &name);
    (void)motet_id_path_name(&fields, params, fields.folder, &name);
}

static void check_over_good(const uint8_t *data, size_t bytes,
        const motet_params *params)
{
    motet_id_fields fields = { .pid = 7, .naddrs = 1, .host = "alpha" };
    motet_id id;
    uint32_t sum;

    fields.addr[0] = (motet_inet){ .family = AF_INET, .port = 7000 };
    motet_id_encode(&fields, &id);
    memcpy(id.bytes + 10, data, bytes < 118 ? bytes : 118);
    memset(id.bytes + 12, 0, 4);
    sum = (uint32_t)motet_wire_hash(id.bytes, sizeof(id.bytes), 4);
    for (int i = 0; i < 4; i++)
        id.bytes[12 + i] = (uint8_t)(sum >> (8 * i));
    check_id(&id, params);
}

static void check_text(const uint8_t *data, size_t bytes)
{
    char text[300];
    motet_port_range range;
    motet_id_fields fields;
    size_t n = bytes < sizeof(text) - 1 ? bytes : sizeof(text) - 1;

    memcpy(text, data, n);
    text[n] = '\0';
    if (motet_port_range_parse(text, &range) == MOTET_OK && range.low > range.high)
        abort();
    /* only numbers: a name would be looked up in the network */
    if (strspn(text, "0123456789.:[]") == strlen(text) &&
            motet_id_from_address(text, 0, &fields) == MOTET_OK &&
            (fields.naddrs != 1 || fields.addr[0].port == 0))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static motet_params params; /* no XDG_RUNTIME_DIR */
    motet_id id = { { 0 } };

    memcpy(id.bytes, data, bytes < sizeof(id) ? bytes : sizeof(id));
    check_id(&id, &params);
    check_over_good(data, bytes, &params);
    check_text(data, bytes);
    return 0;
}
