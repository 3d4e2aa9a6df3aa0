/* SPDX-License-Identifier: Apache-2.0 */
/* Archives of objects, as ar makes them. */
#include "images_walk.h"
#include "internal.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC_BYTES 8u

/* A member's header: text in fixed places, filled up with blanks. */
struct header {
    char name[16], date[12], user[6], group[6], mode[8], size[10], end[2];
};

/* The decimal number at the beginning of @p text. */
static uint64_t decimal(const char *text, size_t bytes)
{
    uint64_t value = 0;

    for (size_t i = 0; i < bytes && text[i] >= '0' && text[i] <= '9'; i++)
        value = 10 * value + (uint64_t)(text[i] - '0');
    return value;
}

/* Where long names lie: "NAME/\n", each, in the member "//". */
struct names {
    const char *data;
    size_t bytes;
};

static void copy_name(const char *from, size_t bytes, const char *ends,
        char name[IMAGES_NAME_MAX])
{
    size_t length = 0;

    while (length < bytes && length < IMAGES_NAME_MAX - 1 && from[length] != 0 &&
            strchr(ends, from[length]) == NULL)
        length++;
    memcpy(name, from, length);
    name[length] = 0;
    codeobj_tame(name);
}

/* The member's name; how many of its bytes it takes itself, as BSD writes long ones. */
static size_t read_name(const struct header *h, const struct names *names,
        const unsigned char *data, size_t bytes, char name[IMAGES_NAME_MAX])
{
    if (memcmp(h->name, "#1/", 3) == 0) {
        const uint64_t length = decimal(h->name + 3, sizeof(h->name) - 3);

        if (length <= bytes) {
            copy_name((const char *)data, (size_t)length, "\n", name);
            return (size_t)length;
        }
    }
    if (h->name[0] == '/' && h->name[1] >= '0' && h->name[1] <= '9') {
        const uint64_t at = decimal(h->name + 1, sizeof(h->name) - 1);

        if (at < names->bytes)
            copy_name(names->data + at, names->bytes - (size_t)at, "/\n", name);
        return 0;
    }
    copy_name(h->name, sizeof(h->name), "/ ", name);
    return 0;
}

static void read_member(struct images_walk *w, const struct images_span *member,
        const struct header *h, struct names *names)
{
    struct images_span content;
    size_t taken;

    if (memcmp(h->name, "// ", 3) == 0) {
        *names = (struct names){ (const char *)member->data, member->bytes };
        return;
    }
    if (memcmp(h->name, "/ ", 2) == 0 || memcmp(h->name, "/SYM64/", 7) == 0)
        return;
    w->member[0] = 0;
    taken = read_name(h, names, member->data, member->bytes, w->member);
    content = images_part(member, taken, member->bytes - taken);
    images_any(w, &content);
    w->member[0] = 0;
}

void images_archive(struct images_walk *w, const struct images_span *span)
{
    struct names names = { NULL, 0 };
    size_t at = MAGIC_BYTES, state;

    if (memcmp(span->data, "!<thin>", 7) == 0) {
        images_problem(w, span->offset, "a thin archive: its members are other files");
        return;
    }
    if (!images_enter(w, "archive", span->offset, &state))
        return;
    while (at < span->bytes && !w->stopped) {
        struct images_span member;
        struct header h;
        uint64_t bytes;

        if (span->bytes - at < sizeof(h)) {
            images_problem(w, images_where(span, at),
                    "an archive that ends in a header");
            break;
        }
        memcpy(&h, span->data + at, sizeof(h));
        at += sizeof(h);
        bytes = decimal(h.size, sizeof(h.size));
        if (memcmp(h.end, "`\n", 2) != 0 || bytes > span->bytes - at) {
            images_problem(w, images_where(span, at - sizeof(h)),
                    "an archive whose member is damaged or cut off");
            break;
        }
        member = images_part(span, at, (size_t)bytes);
        read_member(w, &member, &h, &names);
        at += (size_t)bytes + (bytes & 1);
    }
    images_leave(w, state);
}
