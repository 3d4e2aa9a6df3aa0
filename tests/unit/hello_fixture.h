/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's hello as the tests of the wire and of the agreement begin from. */
#ifndef MOTET_TESTS_UNIT_HELLO_FIXTURE_H
#define MOTET_TESTS_UNIT_HELLO_FIXTURE_H

#include "bootstrap/wire.h"

static inline motet_hello sample_hello(uint32_t rank, uint32_t nranks)
{
    motet_hello hello = { .rank = rank,
        .nranks = nranks,
        .pid = 100 + rank,
        .uid = 1000,
        .nfds = 2,
        .remaining_ms = 300000,
        .boot_hash = 11,
        .node_hash = 11,
        .host = "alpha",
        .node = "alpha",
        .version = "0.1.0",
        .settings = "path=shared\nchunk=16384\n",
        .blob_bytes = 5,
        .blob = "blob" };

    return hello;
}

#endif
