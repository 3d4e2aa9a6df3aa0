/* SPDX-License-Identifier: Apache-2.0 */
/* Tar: see archive.h. Whatever an archive says of itself is checked before it is used. */
#include "archive.h"

#include "scan.h"
#include "unpack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK      512u
#define PATH_BYTES 1024u
#define PAX_MAX    65536u
#define UNREAD_MAX 256u
#define FOLDER     "motet-doctor/"

struct header {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type;
    char link[100], magic[6], version[2], user[32], group[32], major[8], minor[8];
    char prefix[155], pad[12];
};
_Static_assert(sizeof(struct header) == BLOCK, "a tar header is one block");

/* ---- reading ---- */

struct tar {
    struct doctor *d;
    const char *name; /* of the archive */
    FILE *in;
    uint64_t left;         /* bytes of this entry that were not read yet */
    uint64_t kept;         /* of all entries so far                      */
    uint64_t consumed;     /* of the whole stream                        */
    char path[PATH_BYTES]; /* from a header before this entry, or ""  */
    uint64_t size;         /* the same of pax; UINT64_MAX: none        */
};

static unsigned sum_of(const struct header *h)
{
    const unsigned char *bytes = (const unsigned char *)h;
    unsigned sum = 0;

    for (size_t i = 0; i < BLOCK; i++)
        sum += i >= offsetof(struct header, sum) && i < offsetof(struct header, type)
                ? ' '
                : bytes[i];
    return sum;
}

/* Octal, or GNU's base 256; false if it is neither. */
static bool number(const char *field, size_t bytes, uint64_t *out)
{
    size_t i = 0;

    *out = 0;
    if ((unsigned char)field[0] == 0x80) {
        for (i = 1; i < bytes; i++) {
            if (*out >> 55 != 0)
                return false;
            *out = *out << 8 | (unsigned char)field[i];
        }
        return true;
    }
    while (i < bytes && field[i] == ' ')
        i++;
    for (; i < bytes && field[i] >= '0' && field[i] <= '7'; i++)
        *out = *out << 3 | (uint64_t)(field[i] - '0');
    return i == bytes || field[i] == 0 || field[i] == ' ';
}

/* Whether @p bytes begin as a tar archive does. */
static bool is_tar(const char *bytes, size_t count)
{
    struct header h;
    uint64_t sum;

    if (count < BLOCK)
        return false;
    memcpy(&h, bytes, BLOCK);
    return h.name[0] != 0 && number(h.sum, sizeof(h.sum), &sum) && sum == sum_of(&h);
}

static size_t take(struct tar *t, void *buf, size_t bytes)
{
    const size_t got = fread(buf, 1, bytes, t->in);

    t->consumed += got;
    return got;
}

static ssize_t read_entry(void *cookie, char *buf, size_t bytes)
{
    struct tar *t = cookie;
    size_t got;

    if (bytes > t->left)
        bytes = (size_t)t->left;
    got = bytes > 0 ? take(t, buf, bytes) : 0;
    t->left -= got;
    return (ssize_t)got;
}

/* Pass over @p bytes and what fills the last block; false at the end of the stream. */
static bool skip(struct tar *t, uint64_t bytes, uint64_t size)
{
    char buf[16384];

    bytes += (BLOCK - size % BLOCK) % BLOCK;
    while (bytes > 0) {
        const size_t want = bytes < sizeof(buf) ? (size_t)bytes : sizeof(buf);
        const size_t got = take(t, buf, want);

        if (got == 0 || t->consumed > DR_ARCHIVE_BYTES)
            return false;
        bytes -= got;
    }
    return true;
}

static void refuse(struct tar *t, const char *name, const char *why)
{
    doctor_unread(t->d, dr_printf(t->d, "%s:%s", t->name, name), "%s", why);
}

/* Why an entry of that name and type is left out, or NULL. */
static const char *reason(const char *name, char type)
{
    const char *part = name;

    if (type != '0' && type != 0 && type != '7')
        return type == '1' || type == '2' ? "a link" : "no plain file";
    if (name[0] == '/')
        return "its name begins at the root";
    while (part != NULL) {
        part += *part == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == 0))
            return "its name leads outside";
        part = strchr(part, '/');
    }
    return NULL;
}

/* "27 path=a/b\n" records of a pax header. */
static void read_pax(struct tar *t, char *text, size_t bytes)
{
    size_t at = 0;

    while (at < bytes) {
        char *end;
        const unsigned long length = strtoul(text + at, &end, 10);
        const size_t head = (size_t)(end - (text + at)) + 1;
        const char *value;

        if (*end != ' ' || length <= head || length > bytes - at)
            return;
        text[at + length - 1] = 0;
        value = strchr(end + 1, '=');
        if (value != NULL && dr_begins(end + 1, "path="))
            snprintf(t->path, sizeof(t->path), "%s", value + 1);
        else if (value != NULL && dr_begins(end + 1, "size="))
            t->size = strtoull(value + 1, NULL, 10);
        at += length;
    }
}

/* A header that only says something of the next one; true if it was one. */
static bool read_extra(struct tar *t, char type, uint64_t size, bool *ok)
{
    char *text;

    if (type != 'x' && type != 'L' && type != 'g' && type != 'K')
        return false;
    if (size > PAX_MAX || type == 'g' || type == 'K') {
        *ok = skip(t, size, size);
        return true;
    }
    text = calloc(1, (size_t)size + 1);
    if (text == NULL) {
        *ok = skip(t, size, size);
        return true;
    }
    *ok = take(t, text, (size_t)size) == size && skip(t, 0, size);
    if (*ok && type == 'x')
        read_pax(t, text, (size_t)size);
    else if (*ok)
        snprintf(t->path, sizeof(t->path), "%s", text);
    free(text);
    return true;
}

/* What our own collector could not read, in the words it had then. */
static void add_unread(struct tar *t)
{
    char line[2048];
    FILE *in = fopencookie(t, "r", (cookie_io_functions_t){ .read = read_entry });

    for (unsigned i = 0;
            in != NULL && i < UNREAD_MAX && fgets(line, sizeof(line), in) != NULL;
            i++) {
        char *tab = strchr(line, '\t');

        line[strcspn(line, "\n")] = 0;
        if (tab != NULL) {
            *tab = 0;
            doctor_unread(t->d, line, "%s", tab + 1);
        }
    }
    if (in != NULL)
        fclose(in);
}

static void add_entry(struct tar *t, const char *name, uint64_t size)
{
    const uint64_t counted = size < (16u << 20) ? size : 16u << 20;
    FILE *in;

    if (strcmp(name, FOLDER DR_UNREAD_NAME) == 0) {
        add_unread(t);
        return;
    }
    if (t->kept + counted > DR_ARCHIVE_KEPT) {
        refuse(t, name, "the archive holds more than is looked at");
        return;
    }
    t->kept += counted;
    in = fopencookie(t, "r", (cookie_io_functions_t){ .read = read_entry });
    if (in == NULL)
        return;
    if (doctor_add_stream(t->d, dr_printf(t->d, "%s:%s", t->name, name), in) &&
            dr_begins(name, FOLDER))
        t->d->sources[t->d->num_sources - 1].known = true;
    fclose(in);
}

/* One entry; false when there is none any more. */
static bool next_entry(struct tar *t)
{
    struct header h;
    char name[PATH_BYTES];
    uint64_t size, sum;
    const char *why;
    bool ok = true;

    if (take(t, &h, BLOCK) != BLOCK || h.name[0] == 0)
        return false;
    if (!number(h.sum, sizeof(h.sum), &sum) || sum != sum_of(&h) ||
            !number(h.size, sizeof(h.size), &size)) {
        doctor_unread(t->d, t->name, "the archive is damaged after %llu bytes",
                (unsigned long long)t->consumed);
        return false;
    }
    if (read_extra(t, h.type, size, &ok))
        return ok;
    if (t->size != UINT64_MAX)
        size = t->size;
    if (t->path[0] != 0)
        snprintf(name, sizeof(name), "%s", t->path);
    else if (memcmp(h.magic, "ustar", 6) == 0 && h.prefix[0] != 0)
        snprintf(name, sizeof(name), "%.155s/%.100s", h.prefix, h.name);
    else
        snprintf(name, sizeof(name), "%.100s", h.name);
    t->path[0] = 0;
    t->size = UINT64_MAX;
    if (h.type == '5' || (name[0] != 0 && name[strlen(name) - 1] == '/'))
        return skip(t, size, size);
    if (h.type == '1' || h.type == '2')
        size = 0;
    t->left = size;
    why = reason(name, h.type);
    if (why != NULL)
        refuse(t, name, why);
    else
        add_entry(t, name, size);
    if (skip(t, t->left, size))
        return true;
    doctor_unread(t->d, t->name,
            t->consumed > DR_ARCHIVE_BYTES ? "the archive holds more than is looked at"
                                           : "the archive ends in the middle of %s",
            name);
    return false;
}

static void add_tar(struct doctor *d, const char *name, FILE *in)
{
    struct tar t = { .d = d, .name = name, .in = in, .size = UINT64_MAX };
    unsigned entries = 0;

    while (entries < DR_ARCHIVE_ENTRIES && next_entry(&t))
        entries++;
    if (entries == DR_ARCHIVE_ENTRIES)
        doctor_unread(d, name, "entries after the first %u", DR_ARCHIVE_ENTRIES);
}

bool dr_add_file(struct doctor *d, const char *name, FILE *in)
{
    char why[128] = "";
    struct dr_unpack *u = dr_unpack_begin(in, why, sizeof(why));
    bool ok = true;

    if (u == NULL) {
        doctor_unread(d, name, "%s", why);
        return true;
    }
    if (is_tar(dr_unpack_peek(u), dr_unpack_peeked(u)))
        add_tar(d, name, dr_unpack_stream(u));
    else
        ok = doctor_add_stream(d, name, dr_unpack_stream(u));
    if (dr_unpack_end(u, why, sizeof(why)))
        return ok;
    doctor_unread(d, name, "%s", why);
    return true;
}

/* ---- writing ---- */

static void octal(char *field, size_t bytes, uint64_t value)
{
    char text[32];

    snprintf(text, sizeof(text), "%0*llo", (int)bytes - 1, (unsigned long long)value);
    memcpy(field, text, bytes);
}

static bool write_entry(FILE *out, const struct dr_capture *c)
{
    static const char zeros[BLOCK];
    struct header h = { .magic = "ustar", .version = { '0', '0' }, .type = '0' };
    char sum[8];

    snprintf(h.name, sizeof(h.name), FOLDER "%s", c->name);
    octal(h.mode, sizeof(h.mode), 0644);
    octal(h.uid, sizeof(h.uid), 0);
    octal(h.gid, sizeof(h.gid), 0);
    octal(h.size, sizeof(h.size), c->bytes);
    octal(h.mtime, sizeof(h.mtime), 0);
    snprintf(sum, sizeof(sum), "%06o", sum_of(&h));
    memcpy(h.sum, sum, 7);
    h.sum[7] = ' ';
    fwrite(&h, 1, BLOCK, out);
    fwrite(c->text, 1, c->bytes, out);
    fwrite(zeros, 1, (BLOCK - c->bytes % BLOCK) % BLOCK, out);
    return !ferror(out);
}

bool dr_write_archive(FILE *out, const struct dr_captures *captures)
{
    static const char zeros[2 * BLOCK];

    for (uint32_t i = 0; i < captures->num; i++)
        if (!write_entry(out, &captures->list[i]))
            return false;
    fwrite(zeros, 1, sizeof(zeros), out);
    return fflush(out) == 0 && !ferror(out);
}
