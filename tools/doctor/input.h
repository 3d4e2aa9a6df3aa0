/* SPDX-License-Identifier: Apache-2.0 */
/* What a person hands over: files, folders, archives, standard input. */
#ifndef MOTET_DOCTOR_INPUT_H
#define MOTET_DOCTOR_INPUT_H

#include "doctor.h"

/** Files of a folder that are looked at, and how deep it is walked. */
#define DR_FOLDER_FILES 4096u
#define DR_FOLDER_DEPTH 8

/** Add @p path: a file, an archive, every plain file below a folder, "-" standard input.
 *  What cannot be read is said in `unread`. */
void dr_read_path(struct doctor *d, const char *path);

#endif
