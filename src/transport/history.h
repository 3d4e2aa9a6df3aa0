/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What paths between two devices did before on this machine (DESIGN, rule 6): a small
 * text file, one line for each thing that happened, of nine words.
 *
 *   veto     BOOT DRIVER BUILD A B PATH PROTOCOL WHY    a proof failed
 *   touch    BOOT DRIVER BUILD A B HOST PID START       the first peer access begins …
 *   touched  BOOT DRIVER BUILD A B HOST PID START       … and came back
 *
 * A and B are the devices' identities in alphabetical order. Lines of another driver or
 * build count for nothing, and those of another boot only if they are a touch that never
 * came back: what took the machine down then is not tried again.
 *
 * The file is DIR/paths, 0600, the user's own, no link, MOTET_HISTORY_BYTES at most. Any
 * number of processes read and write it at once: under a lock, which is waited for half a
 * second at most. Whatever is wrong with it is an error for the caller to mention; nothing
 * depends on it.
 */
#ifndef MOTET_TRANSPORT_HISTORY_H
#define MOTET_TRANSPORT_HISTORY_H

#include "base/error.h"
#include "base/param.h"

#include <stdbool.h>
#include <stddef.h>

#define MOTET_HISTORY_BYTES (64 << 10)
#define MOTET_HISTORY_LINES 512
/** Longest word, bytes with the NUL; of a line, with the newline. */
#define MOTET_HISTORY_WORD 96
#define MOTET_HISTORY_LINE (9 * MOTET_HISTORY_WORD)

typedef enum motet_history_kind {
    MOTET_HISTORY_VETO,
    MOTET_HISTORY_TOUCH,
    MOTET_HISTORY_TOUCHED,
    MOTET_HISTORY_NUM_KINDS
} motet_history_kind;

/** The words of a line after the first; the last three differ by kind. */
enum {
    MOTET_HISTORY_BOOT,
    MOTET_HISTORY_DRIVER,
    MOTET_HISTORY_BUILD,
    MOTET_HISTORY_A,
    MOTET_HISTORY_B,
    MOTET_HISTORY_PATH,
    MOTET_HISTORY_PROTOCOL,
    MOTET_HISTORY_WHY,
    MOTET_HISTORY_NUM_WORDS,
    MOTET_HISTORY_HOST = MOTET_HISTORY_PATH,
    MOTET_HISTORY_PID = MOTET_HISTORY_PROTOCOL,
    MOTET_HISTORY_START = MOTET_HISTORY_WHY
};

typedef struct motet_history_line {
    motet_history_kind kind;
    /** Printable, without blanks, not empty. */
    char word[MOTET_HISTORY_NUM_WORDS][MOTET_HISTORY_WORD];
} motet_history_line;

/** All lines of a file, oldest first. */
typedef struct motet_history {
    motet_history_line *line;
    int count;
} motet_history;

/** Set word @p index: blanks and what is not printable become '_', nothing becomes '-'. */
void motet_history_set(motet_history_line *line, int index, const char *text);

/** Set A and B from the identities of two devices, in either order. */
void motet_history_set_pair(motet_history_line *line, const char *one,
        const char *other);

/** A line of @p kind with the boot and, for touches, the host and process filled in. */
motet_history_line motet_history_begin(motet_history_kind kind, const char *driver,
        const char *build);

/** Read one line, without its newline. @p out is written only on success. */
bool motet_history_parse(const char *text, size_t bytes, motet_history_line *out);

/** Write one line and its newline into @p buf; how long it is. */
size_t motet_history_format(const motet_history_line *line,
        char buf[MOTET_HISTORY_LINE + 1]);

/**
 * Read a file's text: lines that are none are left out, and of more than
 * MOTET_HISTORY_LINES the oldest.
 * @param out to be freed with motet_history_free()
 */
MOTET_MUST_USE motet_result motet_history_read(const char *text, size_t bytes,
        motet_history *out);

void motet_history_free(motet_history *history);

/** MOTET_STATE_DIR, else $XDG_STATE_HOME/motet, else ~/.local/state/motet; "" none. */
void motet_history_dir(const motet_params *params, char *buf, size_t bytes);

/** Read the file in @p dir; where there is none, no line. */
MOTET_MUST_USE motet_result motet_history_load(const char *dir, motet_history *out);

/**
 * Append @p lines, all under one lock, but those that are there. A file that gets too
 * large is rewritten with what counts for the driver and build of the line to come.
 * @param sync not before they are on the disk
 */
MOTET_MUST_USE motet_result motet_history_add(const char *dir,
        const motet_history_line *lines, int count, bool sync);

/** Same boot, driver, build and pair? */
bool motet_history_fits(const motet_history_line *line, const motet_history_line *now);

/** Did a first touch of the pair of @p now, with its driver and build, never come back, of
 *  this boot or of one before on this host? One whose process still runs may. */
bool motet_history_hung(const motet_history *history, const motet_history_line *now);

/** Did one come back in this boot? */
bool motet_history_touched(const motet_history *history, const motet_history_line *now);

#endif
