/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Archives: tar as POSIX and GNU write it, plain or packed with gzip, read without ever
 * writing anything, and tar written so that the same captures give the same bytes.
 */
#ifndef MOTET_DOCTOR_ARCHIVE_H
#define MOTET_DOCTOR_ARCHIVE_H

#include "collect.h"

/** Most of one archive: entries, bytes kept of all of them, bytes after unpacking. */
#define DR_ARCHIVE_ENTRIES 4096u
#define DR_ARCHIVE_KEPT    (256ull << 20)
#define DR_ARCHIVE_BYTES   (4ull << 30)

/** The capture that says what could not be read: SOURCE, a tab, the reason. */
#define DR_UNREAD_NAME "not-read.txt"

/**
 * Add what the open file @p in holds: an archive's entries, each as a source
 * "NAME:ENTRY", or one text. Links, devices and names that lead elsewhere are said in
 * `unread`, and so is what goes beyond the bounds. False: it could not be read.
 */
bool dr_add_file(struct doctor *d, const char *name, FILE *in);

/** Write @p captures below the folder motet-doctor/; false and errno. */
bool dr_write_archive(FILE *out, const struct dr_captures *captures);

#endif
