/* SPDX-License-Identifier: Apache-2.0 */
/* Colour and progress: see term.h. */
#include "term.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool term_colour(int fd)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

    if (no != NULL && *no != 0)
        return false;
    return isatty(fd) && term != NULL && strcmp(term, "dumb") != 0;
}

void term_progress(const char *fmt, ...)
{
    va_list args;

    if (!isatty(STDERR_FILENO))
        return;
    fputc('\r', stderr);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputs("\033[K", stderr);
    fflush(stderr);
}

void term_progress_end(void)
{
    if (!isatty(STDERR_FILENO))
        return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
}
