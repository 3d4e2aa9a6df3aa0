/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What libraries print while they are probed. NCCL, RCCL and motet write
 * "host:pid:tid [device] file.cc:123 NCCL WARN text"; of that the part behind the device
 * is kept, since the rest differs from run to run and names the machine.
 */
#include "probe_cell.h"

#include <ctype.h>
#include <string.h>

static void keep(char *to, size_t bytes, const char *line)
{
    snprintf(to, bytes, "%s", line);
    probe_words_clean(to);
}

/* What stands behind the last "] " before @p end: newer ones have the time in front. */
static const char *behind_device(const char *text, const char *end)
{
    const char *behind = text;

    for (const char *at = text; (at = strstr(at, "] ")) != NULL && at < end; at += 2)
        behind = at + 2;
    return strncmp(behind, ":0 ", 3) == 0 ? behind + 3 : behind;
}

static void take_line(struct probe_words *w)
{
    const char *warning, *text = w->line;

    w->line[w->length] = 0;
    w->length = 0;
    while (isspace((unsigned char)*text))
        text++;
    if (*text == 0)
        return;
    warning = strstr(text, " WARN ");
    if (warning != NULL)
        text = behind_device(text, warning);
    if (warning != NULL && w->warning[0] == 0)
        keep(w->warning, sizeof(w->warning), text);
    keep(w->last, sizeof(w->last), text);
}

void probe_words_add(struct probe_words *w, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\n')
            take_line(w);
        else if (w->length + 1 < sizeof(w->line) && text[i] != 0)
            w->line[w->length++] = text[i];
    }
}

void probe_words_end(struct probe_words *w)
{
    take_line(w);
}

void probe_words_clean(char *text)
{
    for (; *text != 0; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = ' ';
}
