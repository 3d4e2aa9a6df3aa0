/* SPDX-License-Identifier: Apache-2.0 */
/* What a cell of motet probe keeps of its ranks, and what it hears of them. */
#ifndef MOTET_TOOLS_PROBE_CELL_H
#define MOTET_TOOLS_PROBE_CELL_H

#include "probe.h"

#include <stdatomic.h>

/** One rank's, written by it alone; read by the command once its process is gone. */
struct probe_record {
    enum probe_stage stage;
    _Atomic uint32_t steps, met; /* what it entered, barriers among it; barriers */
    bool failed, blames_peer, left, finished, came_back;
    char doing[256], message[PROBE_MESSAGE_BYTES];
    double ms;
};

struct probe_shared {
    struct probe_record record[PROBE_RANKS_MAX];
    const struct probe_rank *ranks; /* the caller's, at the same address everywhere */
    _Atomic uint32_t lost;          /* one has failed or is gone */
    unsigned char told[PROBE_SHARE_BYTES];
};

/** Whether this rank has failed. */
bool probe_failed(const struct probe_seat *seat);

/** What is kept of a process's output: it may be endless. */
struct probe_words {
    char line[512]; /* that is not complete yet */
    size_t length;
    char warning[512]; /* the first line with a warning of NCCL's kind */
    char last[512];    /* the last line that is not blank              */
};

void probe_words_add(struct probe_words *words, const char *text, size_t bytes);
/** What is left over is a line too. */
void probe_words_end(struct probe_words *words);
/** Make @p text one line of printable text. */
void probe_words_clean(char *text);

#endif
