/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the file of what is remembered of paths. What is read as a line is written
 * as a line that is read the same; all questions about it have an answer.
 */
#include "transport/history.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(int good, const char *what, const char *line)
{
    if (good)
        return;
    fprintf(stderr, "fuzz_history: %s: '%s'\n", what, line);
    abort();
}

static void check_line(const motet_history_line *line)
{
    char text[MOTET_HISTORY_LINE + 1];
    motet_history_line again;
    size_t n = motet_history_format(line, text);

    check(n <= MOTET_HISTORY_LINE && text[n - 1] == '\n' && strlen(text) == n,
            "not one line", text);
    check(motet_history_parse(text, n - 1, &again), "not read again", text);
    check(again.kind == line->kind, "of another kind", text);
    for (int i = 0; i < MOTET_HISTORY_NUM_WORDS; i++) {
        motet_history_line set = *line;

        check(strcmp(again.word[i], line->word[i]) == 0, "another word", line->word[i]);
        motet_history_set(&set, i, line->word[i]);
        check(strcmp(set.word[i], line->word[i]) == 0, "not a word", line->word[i]);
    }
    check(motet_history_fits(line, &again), "not of its own boot and pair", text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    motet_history history;
    char *text = malloc(bytes + 1);

    check(text != NULL, "no memory", "");
    if (bytes > 0)
        memcpy(text, data, bytes);
    check(motet_history_read(text, bytes, &history) == MOTET_OK, "not read", "");
    check(history.count >= 0 && history.count <= MOTET_HISTORY_LINES, "too many", "");
    for (int i = 0; i < history.count; i++) {
        const motet_history_line *line = &history.line[i];

        check_line(line);
        if (line->kind == MOTET_HISTORY_TOUCHED)
            check(motet_history_touched(&history, line), "not touched", "");
        (void)motet_history_hung(&history, line);
    }
    motet_history_free(&history);
    free(text);
    return 0;
}
