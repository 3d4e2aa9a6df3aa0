/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LL lines: 8 bytes and, twice, the position that they belong to, in two words each of
 * which is whole by itself (gpu.h).
 */
#ifndef MOTET_KERNELS_GPU_LINES_H
#define MOTET_KERNELS_GPU_LINES_H

#include "kernels/gpu/run.h"

/* From the offset of source 0's lines in a slot to that of another's. */
DEVICE uint64_t lines_of(const run *r, uint64_t slot, uint32_t source)
{
    return slot + (uint64_t)source * 2 * r->args->layout.ll_bytes;
}

DEVICE void send_line(uint8_t *line, uint64_t data, uint32_t tag)
{
    const uint64_t high = (uint64_t)tag << 32;
    store_pair_shared(line,
            (pair64){ high | (uint32_t)data, high | (uint32_t)(data >> 32) });
}

DEVICE bool line_has(pair64 line, uint32_t tag)
{
    return (uint32_t)(line.a >> 32) == tag && (uint32_t)(line.b >> 32) == tag;
}

DEVICE uint64_t line_data(pair64 line)
{
    return (uint32_t)line.a | line.b << 32;
}

/* Wait for a line, at an offset of the arena that its source writes into. False: leave. */
DEVICE bool take_line(const run *r, uint64_t line, uint32_t source, uint32_t position,
        uint64_t *data_out)
{
    const uint8_t *at = inbox_of(r, source) + line;
    uint32_t spins = 0;
    pair64 v = load_pair_shared(at);
    while (!line_has(v, position)) {
        if (spin(&r->w, source, position, &spins)) {
            wait_is_over(&r->w, spins);
            return false;
        }
        v = load_pair_shared(at);
    }
    wait_is_over(&r->w, spins);
    *data_out = line_data(v);
    return true;
}

#endif
