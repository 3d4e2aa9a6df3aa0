/* SPDX-License-Identifier: Apache-2.0 */
/* Shell words. See typed.h. */
#include "typed.h"

#include <ctype.h>
#include <string.h>

/* A command line longer than this after its loop was played is not looked at. */
#define EXPANDED_MAX 16384

struct buffer {
    char *text;
    size_t used, room;
};

static void put(struct buffer *b, const char *text, size_t length)
{
    if (length >= b->room - b->used)
        length = b->room - b->used - 1;
    memcpy(b->text + b->used, text, length);
    b->used += length;
    b->text[b->used] = 0;
}

/* @p body with $NAME and ${NAME} replaced. */
static void put_with(struct buffer *b, struct dr_span body, struct dr_span name,
        struct dr_span value)
{
    for (size_t i = 0; i < body.length; i++) {
        const char *at = body.at + i;
        const size_t brace = at[0] == '$' && i + 1 < body.length && at[1] == '{';

        if (at[0] == '$' && i + 1 + brace + name.length <= body.length &&
                memcmp(at + 1 + brace, name.at, name.length) == 0 &&
                (brace ? at[2 + name.length] == '}'
                       : !isalnum((unsigned char)at[1 + name.length]) &&
                                        at[1 + name.length] != '_')) {
            put(b, value.at, value.length);
            i += name.length + (brace ? 2 : 0);
        } else {
            put(b, at, 1);
        }
    }
}

/* The command with its first loop played through; loops inside are left as they are. */
static const char *played(struct doctor *d, const char *command)
{
    struct dr_span part[4], word;
    struct buffer b = { .room = EXPANDED_MAX };
    size_t at = 0;
    char *words;

    if (!dr_has(command, "; do ") ||
            !dr_scan(command, "%<for %w in %*; do %*; done%*", part))
        return command;
    b.text = dr_alloc(d, b.room);
    put(&b, command, (size_t)(part[0].at - command) - strlen("for "));
    words = dr_copy(d, part[1].at, part[1].length);
    while (dr_word(words, &at, &word)) {
        put_with(&b, part[2], part[0], word);
        put(&b, " ; ", 3);
    }
    put(&b, part[3].at, part[3].length);
    return b.text;
}

static bool ends_word(char c)
{
    return c == 0 || strchr(" \t;|&)\"'<>", c) != NULL;
}

/* One word, or one for each part between braces; false if only a shell could tell. */
static bool add_word(struct doctor *d, struct dr_span word, const char **out,
        uint32_t room, uint32_t *count)
{
    const char *open = memchr(word.at, '{', word.length);
    const char *close = open == NULL
            ? NULL
            : memchr(open, '}', (size_t)(word.at + word.length - open));

    for (size_t i = 0; i < word.length; i++)
        if (strchr("*?$`[(", word.at[i]) != NULL)
            return false;
    if (close == NULL) {
        if (*count < room)
            out[(*count)++] = dr_copy(d, word.at, word.length);
        return true;
    }
    for (const char *from = open + 1; from <= close;) {
        const size_t length = strcspn(from, ",}");

        if (*count < room)
            out[(*count)++] = dr_printf(d, "%.*s%.*s%.*s", (int)(open - word.at),
                    word.at, (int)length, from,
                    (int)(word.at + word.length - close - 1), close + 1);
        from += length + 1;
    }
    return true;
}

uint32_t dr_typed_words(struct doctor *d, const char *command, const char *before,
        const char **out, uint32_t room)
{
    const bool is_path = before[0] == '/';
    uint32_t count = 0;
    const char *at;

    if (!dr_has(command, before))
        return 0;
    command = at = played(d, command);
    while ((at = strstr(at, before)) != NULL) {
        const char *from = is_path ? at : at + strlen(before);
        const char *end = from;

        while (!is_path && (*from == ' ' || *from == '"'))
            from++;
        for (end = from; !ends_word(*end);)
            end++;
        if (end > from &&
                !add_word(d, (struct dr_span){ from, (size_t)(end - from) }, out, room,
                        &count))
            return 0;
        at = end > at ? end : at + 1;
    }
    return count;
}

uint32_t dr_output_end(const struct doctor *d, uint32_t line)
{
    uint32_t end = line + 1;

    while (end < d->num_lines && d->lines[end].command == line &&
            !(d->lines[end].flags & DR_COMMAND))
        end++;
    return end;
}
