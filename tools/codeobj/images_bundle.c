/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bundles of clang's: a table of entries, and behind it what they name. A packed one
 * (CCOB) is unpacked front to back, so its entries are taken in the order in which they
 * lie, one in memory at a time.
 */
#include "images_walk.h"
#include "source.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC       "__CLANG_OFFLOAD_BUNDLE__"
#define MAGIC_BYTES 24u
#define ENTRIES_MAX 4096u
#define ID_MAX      1024u
#define CCOB_LEAST  20u
/* More bundles in a file's place for them are left out. */
#define BUNDLES_MAX 65536u

struct entry {
    uint64_t offset, bytes;
    unsigned index;
    char target[CODEOBJ_TARGET_MAX];
    bool amd;
};

struct table {
    struct entry *entries;
    unsigned num;
    uint64_t end; /* of the table */
    char why[CODEOBJ_WHY_MAX];
};

bool images_entry_id(const char *id, size_t length, char out[CODEOBJ_TARGET_MAX])
{
    char text[ID_MAX + 1];
    const char *target = NULL;

    memcpy(text, id, length < ID_MAX ? length : ID_MAX);
    text[length < ID_MAX ? length : ID_MAX] = 0;
    for (const char *at = text; (at = strstr(at, "--")) != NULL; at++)
        target = at + 2;
    if (target == NULL ||
            (strncmp(target, "gfx", 3) != 0 && strncmp(target, "amdgcn", 6) != 0)) {
        const char *gfx = strstr(text, "-gfx");

        target = gfx != NULL ? gfx + 1 : "";
    }
    snprintf(out, CODEOBJ_TARGET_MAX, "%.63s", target);
    return strncmp(text, "host", 4) != 0 &&
            (strstr(text, "amdgcn") != NULL || target[0] != 0);
}

/* The table at the beginning of @p s; false with table->why. For free(entries). */
static bool read_table(struct source *s, struct table *table)
{
    unsigned char head[MAGIC_BYTES + 8], fields[24], id[ID_MAX];
    uint64_t num;

    memset(table, 0, sizeof(*table));
    if (source_read(s, head, sizeof(head)) < sizeof(head) ||
            memcmp(head, MAGIC, MAGIC_BYTES) != 0) {
        snprintf(table->why, sizeof(table->why), "%.150s",
                s->why[0] != 0 ? s->why : "no bundle of code for GPUs is in it");
        return false;
    }
    num = images_little(head + MAGIC_BYTES, 8);
    if (num > ENTRIES_MAX) {
        snprintf(table->why, sizeof(table->why),
                "a bundle of %" PRIu64 " entries, at most %u are read", num,
                ENTRIES_MAX);
        return false;
    }
    table->entries = calloc(num + 1, sizeof(*table->entries));
    for (; table->entries != NULL && table->num < num; table->num++) {
        struct entry *e = &table->entries[table->num];
        uint64_t length = 0;

        if (source_read(s, fields, sizeof(fields)) == sizeof(fields))
            length = images_little(fields + 16, 8);
        else
            length = UINT64_MAX;
        if (length > ID_MAX || source_read(s, id, length) < length) {
            snprintf(table->why, sizeof(table->why),
                    "the table of a bundle ends in entry %u of %" PRIu64, table->num,
                    num);
            return false;
        }
        *e = (struct entry){ .offset = images_little(fields, 8),
            .bytes = images_little(fields + 8, 8),
            .index = table->num };
        e->amd = images_entry_id((const char *)id, (size_t)length, e->target);
    }
    table->end = s->given;
    if (table->entries == NULL)
        snprintf(table->why, sizeof(table->why), "no memory for %" PRIu64 " entries",
                num);
    return table->entries != NULL;
}

/* Whether the entry lies behind the table and before @p end; if not, that is a problem. */
static bool entry_lies(struct images_walk *w, uint64_t where, const struct entry *e,
        const struct table *table, uint64_t end)
{
    if (e->offset >= table->end && e->offset <= end && e->bytes <= end - e->offset)
        return true;
    if (e->amd)
        images_problem(w, where,
                "entry %u of a bundle, for '%s', claims %" PRIu64 " bytes at %" PRIu64
                ", what holds it goes from %" PRIu64 " to %" PRIu64,
                e->index, e->target, e->bytes, e->offset, table->end, end);
    return false;
}

bool images_bundle_holds(const struct images_span *span, uint64_t *cost)
{
    struct table table = { .num = 0 };
    struct source s;
    bool good = false;

    if (source_open(&s, SOURCE_PLAIN, span->data, span->bytes, UINT64_MAX) &&
            read_table(&s, &table))
        for (unsigned i = 0; i < table.num && !good; i++) {
            const struct entry *e = &table.entries[i];

            good = e->amd && e->bytes > 0 && e->offset >= table.end &&
                    e->offset <= span->bytes && e->bytes <= span->bytes - e->offset;
        }
    *cost = s.given;
    free(table.entries);
    source_close(&s);
    return good;
}

size_t images_bundle(struct images_walk *w, const struct images_span *span)
{
    struct table table = { .num = 0 };
    struct source s;
    uint64_t end = 0;
    size_t state;

    if (!images_enter(w, "bundle", span->offset, &state))
        return 0;
    if (source_open(&s, SOURCE_PLAIN, span->data, span->bytes, UINT64_MAX) &&
            read_table(&s, &table))
        end = table.end;
    else
        images_problem(w, span->offset, "%s", table.why);
    (void)images_spend(w, span->offset, s.given);
    for (unsigned i = 0; end > 0 && i < table.num && !w->stopped; i++) {
        const struct entry *e = &table.entries[i];
        struct images_span part;

        w->holder = span->offset;
        if (e->bytes == 0 || !entry_lies(w, span->offset, e, &table, span->bytes))
            continue;
        end = e->offset + e->bytes > end ? e->offset + e->bytes : end;
        part = images_part(span, (size_t)e->offset, (size_t)e->bytes);
        if (e->amd)
            images_entry(w, &part, e->target);
    }
    free(table.entries);
    source_close(&s);
    images_leave(w, state);
    return (size_t)end;
}

/*
 * Packed ones.
 */

struct packed {
    struct images_walk *w;
    struct source source;
    struct images_span span; /* of the whole, with its header */
    uint64_t unpacked;       /* bytes, by its header          */
};

static int by_offset(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static void unpack_bundle(struct packed *p)
{
    struct source *s = &p->source;
    struct table table;
    bool good = read_table(s, &table);

    if (!good)
        images_problem(p->w, p->span.offset, "%s", table.why);
    else
        qsort(table.entries, table.num, sizeof(*table.entries), by_offset);
    for (unsigned i = 0; good && s->why[0] == 0 && i < table.num && !p->w->stopped;
            i++) {
        const struct entry *e = &table.entries[i];

        if (e->bytes == 0 || !e->amd ||
                !entry_lies(p->w, p->span.offset, e, &table, p->unpacked))
            continue;
        if (e->offset < s->given)
            images_problem(p->w, p->span.offset,
                    "entry %u of a packed bundle, for '%s', overlaps another", e->index,
                    e->target);
        else if (source_skip(s, e->offset - s->given) == 0 && e->offset > s->given)
            images_problem(p->w, p->span.offset, "it ends before the image for '%s'",
                    e->target);
        else
            images_unpack(p->w, s, p->span.offset, e->bytes, e->target);
    }
    free(table.entries);
    if (!good || p->w->stopped)
        return;
    if (s->given <= p->unpacked)
        (void)source_skip(s, p->unpacked - s->given + 1);
    if (s->why[0] == 0 && s->given != p->unpacked)
        snprintf(s->why, sizeof(s->why),
                "it unpacks to %s than the %" PRIu64 " bytes of its header",
                s->given > p->unpacked ? "more" : "fewer", p->unpacked);
    if (s->why[0] != 0)
        images_problem(p->w, p->span.offset, "a packed bundle (CCOB): %.150s", s->why);
}

/* Fields of a header by its version; offsets in it, 0: it has none. */
static const struct {
    uint8_t total_at, unpacked_at, width, bytes;
} layouts[] = { { 0 }, { 0, 8, 4, 20 }, { 8, 12, 4, 24 }, { 8, 16, 8, 32 } };

struct ccob {
    unsigned version;
    enum source_method method;
    size_t header, total; /* bytes; total is all that is there if it does not say */
    bool has_total, cut_off;
    uint64_t unpacked;
};

/* What keeps the header from being read, in @p why; or false. */
static bool refuse_ccob(const struct images_span *span, struct ccob *out,
        char why[CODEOBJ_WHY_MAX])
{
    uint64_t total = span->bytes;
    unsigned method;

    memset(out, 0, sizeof(*out));
    why[0] = 0;
    out->version =
            span->bytes < CCOB_LEAST ? 1 : (unsigned)images_little(span->data + 4, 2);
    if (out->version < 1 || out->version > 3) {
        snprintf(why, CODEOBJ_WHY_MAX, "is of version %u, 1 to 3 are read",
                out->version);
        return true;
    }
    out->header = layouts[out->version].bytes;
    if (span->bytes < out->header) {
        snprintf(why, CODEOBJ_WHY_MAX, "ends in its header");
        return true;
    }
    method = (unsigned)images_little(span->data + 6, 2);
    out->has_total = layouts[out->version].total_at != 0;
    out->unpacked = images_little(span->data + layouts[out->version].unpacked_at,
            layouts[out->version].width);
    if (out->has_total)
        total = images_little(span->data + layouts[out->version].total_at,
                layouts[out->version].width);
    out->cut_off = total > span->bytes;
    if (total < out->header)
        snprintf(why, CODEOBJ_WHY_MAX,
                "claims %" PRIu64 " bytes, its header alone has %zu", total,
                out->header);
    else if (out->cut_off)
        snprintf(why, CODEOBJ_WHY_MAX, "claims %" PRIu64 " bytes, %zu are there", total,
                span->bytes);
    else if (method > 1)
        snprintf(why, CODEOBJ_WHY_MAX,
                "is packed by method %u, 0 (zlib) and 1 (zstd) are read", method);
    out->total = (size_t)total;
    out->method = SOURCE_ZLIB + (method & 1);
    return why[0] != 0;
}

bool images_ccob_holds(const struct images_span *span, uint64_t *cost)
{
    char why[CODEOBJ_WHY_MAX], magic[MAGIC_BYTES];
    struct ccob c;
    struct source s;
    bool good;

    *cost = 0;
    if (refuse_ccob(span, &c, why))
        return false;
    good = source_open(&s, c.method, span->data + c.header, c.total - c.header,
                   IMAGES_ONE_MAX) &&
            source_read(&s, magic, sizeof(magic)) == sizeof(magic) &&
            memcmp(magic, MAGIC, MAGIC_BYTES) == 0;
    *cost = IMAGES_UNPACK_COST + s.used;
    source_close(&s);
    return good;
}

size_t images_ccob(struct images_walk *w, const struct images_span *span)
{
    struct packed p = { .w = w, .span = *span };
    char name[48], why[CODEOBJ_WHY_MAX];
    struct ccob c;
    size_t state, used = 0;

    if (refuse_ccob(span, &c, why)) {
        images_problem(w, span->offset, "a packed bundle (CCOB) %s", why);
        return c.cut_off ? span->bytes : 0;
    }
    snprintf(name, sizeof(name), "ccob v%u %s/bundle", c.version,
            source_method_name(c.method));
    if (!images_enter(w, name, span->offset, &state))
        return 0;
    p.unpacked = c.unpacked;
    w->holder = span->offset;
    if (source_open(&p.source, c.method, span->data + c.header, c.total - c.header,
                w->unpack_left))
        unpack_bundle(&p);
    else
        images_problem(w, span->offset, "a packed bundle (CCOB): %s", p.source.why);
    if (c.has_total)
        used = c.total;
    else if (p.source.ended)
        used = c.header + p.source.used;
    images_pay(w, &p.source);
    images_leave(w, state);
    return used;
}

/* The next bundle's beginning at or behind @p at, or the end. */
static size_t search(const struct images_span *span, size_t at)
{
    for (; at < span->bytes; at++) {
        enum images_content content;

        if (span->data[at] != MAGIC[0] && span->data[at] != 'C')
            continue;
        content = images_sniff(span->data + at, span->bytes - at);
        if (content == IMAGES_BUNDLE || content == IMAGES_CCOB)
            return at;
    }
    return at;
}

void images_fatbin(struct images_walk *w, const struct images_span *span)
{
    unsigned bundles = 0;
    size_t at = 0;

    if (!images_spend(w, span->offset, span->bytes))
        return;
    while (at < span->bytes && !w->stopped) {
        struct images_span rest;
        enum images_content content;
        size_t used = 0;

        if (span->data[at] == 0) {
            at++;
            continue;
        }
        rest = images_part(span, at, span->bytes - at);
        content = images_sniff(rest.data, rest.bytes);
        if (++bundles > BUNDLES_MAX) {
            images_problem(w, rest.offset, "more than %u bundles, the rest is left out",
                    BUNDLES_MAX);
            return;
        }
        if (content == IMAGES_BUNDLE)
            used = images_bundle(w, &rest);
        else if (content == IMAGES_CCOB)
            used = images_ccob(w, &rest);
        else
            images_problem(w, rest.offset,
                    "neither a bundle of code for GPUs nor zeros");
        at = used > 0 ? at + used : search(span, at + 1);
    }
}
