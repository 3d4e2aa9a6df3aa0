/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives over the board: see board.c. */
#ifndef MOTET_ENGINE_BOARD_H
#define MOTET_ENGINE_BOARD_H

#include "engine/wait.h"

/** Run a planned collective of more than one rank and more than nothing. */
MOTET_MUST_USE motet_result motet_board_run(const motet_running *running,
        const motet_plan *plan, uint64_t scalar);

/** memcpy as a motet_copy_fn. */
void motet_copy_plain(void *dst, const void *src, size_t bytes);

#endif
