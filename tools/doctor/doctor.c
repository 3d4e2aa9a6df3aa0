/* SPDX-License-Identifier: Apache-2.0 */
/* The doctor's memory and its sources. */
#include "doctor.h"

#include "lines.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

#define BLOCK_BYTES (256u << 10)

struct block {
    struct block *next;
    size_t used, room;
    _Alignas(16) char bytes[];
};

struct dr_arena {
    struct block *blocks;
};

_Noreturn static void no_memory(void)
{
    fprintf(stderr, "motet doctor: out of memory\n");
    exit(2);
}

void *dr_alloc(struct doctor *d, size_t bytes)
{
    struct block *b = d->arena->blocks;
    void *out;

    bytes = (bytes + 15) & ~(size_t)15;
    if (b == NULL || b->room - b->used < bytes) {
        const size_t room = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;

        b = calloc(1, sizeof(*b) + room);
        if (b == NULL)
            no_memory();
        b->room = room;
        b->next = d->arena->blocks;
        d->arena->blocks = b;
    }
    out = b->bytes + b->used;
    b->used += bytes;
    return out;
}

char *dr_copy(struct doctor *d, const char *text, size_t length)
{
    char *out = dr_alloc(d, length + 1);

    memcpy(out, text, length);
    return out;
}

static char *print(struct doctor *d, const char *fmt, va_list args)
{
    char *text, *out;
    const int length = vasprintf(&text, fmt, args);

    if (length < 0)
        no_memory();
    out = dr_copy(d, text, (size_t)length);
    free(text);
    return out;
}

char *dr_printf(struct doctor *d, const char *fmt, ...)
{
    va_list args;
    char *out;

    va_start(args, fmt);
    out = print(d, fmt, args);
    va_end(args);
    return out;
}

void *dr_grow(struct doctor *d, void *array, uint32_t count, uint32_t *room,
        size_t size)
{
    const uint32_t more = *room == 0 ? 8 : *room * 2;
    void *out;

    if (count < *room)
        return array;
    if (more < *room)
        no_memory();
    out = dr_alloc(d, more * size);
    if (count > 0)
        memcpy(out, array, count * size);
    *room = more;
    return out;
}

struct doctor *doctor_new(void)
{
    struct doctor *d = calloc(1, sizeof(*d));

    if (d == NULL || (d->arena = calloc(1, sizeof(*d->arena))) == NULL)
        no_memory();
    DR_PUSH(d, d->machines, d->num_machines, d->room_machines)->name = "";
    return d;
}

void doctor_free(struct doctor *d)
{
    if (d == NULL)
        return;
    for (struct block *b = d->arena->blocks, *next; b != NULL; b = next) {
        next = b->next;
        free(b);
    }
    free(d->arena);
    free(d);
}

/* ---- sources ---- */

/* A file's name without what a terminal acts upon. */
static const char *shown(struct doctor *d, const char *name)
{
    char clean[4096];
    bool cut;

    return dr_copy(d, clean, dr_clean(name, strlen(name), clean, sizeof(clean), &cut));
}

void doctor_unread(struct doctor *d, const char *source, const char *fmt, ...)
{
    struct dr_unread *u = DR_PUSH(d, d->unread, d->num_unread, d->room_unread);
    va_list args;

    va_start(args, fmt);
    u->source = shown(d, source);
    u->why = shown(d, print(d, fmt, args));
    va_end(args);
}

/* More prompts than a text of people has, so that no rule walks over them for ever. */
#define MACHINES_MAX 256

/* The machine called @p name, of a file with these prefixes; made if it is new. */
static uint32_t machine(struct doctor *d, struct dr_span name, bool guest, bool host)
{
    struct dr_machine *m;

    for (uint32_t i = 0; i < d->num_machines; i++)
        if (dr_span_is(name, d->machines[i].name) &&
                d->machines[i].is_guest_file == guest &&
                d->machines[i].is_host_file == host)
            return i;
    if (d->num_machines == MACHINES_MAX)
        return 0;
    m = DR_PUSH(d, d->machines, d->num_machines, d->room_machines);
    m->name = dr_copy(d, name.at, name.length);
    m->is_guest_file = guest;
    m->is_host_file = host;
    return d->num_machines - 1;
}

/* What is kept of all sources together, lines and bytes of their text. */
#define LINES_MAX (1u << 20)
#define TEXT_MAX  (256u << 20)

/* What one source brings from line to line. */
struct reading {
    uint32_t source, command, machine, number, dropped;
    bool guest, host;
    char clean[DR_LINE_MAX + 1];
};

static void begin(struct doctor *d, struct reading *r, const char *name)
{
    const char *file = name + strlen(name);
    struct dr_source *s = DR_PUSH(d, d->sources, d->num_sources, d->room_sources);

    /* "cases.tar:guest-lspci.txt" is a file of that prefix, too */
    while (file > name && file[-1] != '/' && file[-1] != ':')
        file--;
    s->name = shown(d, name);
    s->first = d->num_lines;
    r->source = d->num_sources - 1;
    r->command = DR_NONE;
    r->number = r->dropped = 0;
    r->guest = dr_begins(file, "guest-");
    r->host = dr_begins(file, "host-");
    r->machine = machine(d, (struct dr_span){ "", 0 }, r->guest, r->host);
}

static void end(struct doctor *d, const struct reading *r)
{
    if (r->dropped > 0)
        doctor_unread(d, d->sources[r->source].name,
                "%u of its lines: the text before them is too long", r->dropped);
}

static void add_line(struct doctor *d, struct reading *r, const char *text,
        size_t length)
{
    struct dr_line *line;
    struct dr_span host;
    bool cut;
    size_t used;

    if (d->num_lines >= LINES_MAX || d->text_bytes >= TEXT_MAX) {
        r->number++;
        r->dropped++;
        return;
    }
    used = dr_clean(text, length, r->clean, sizeof(r->clean), &cut);
    d->text_bytes += used;
    line = DR_PUSH(d, d->lines, d->num_lines, d->room_lines);
    line->text = dr_copy(d, r->clean, used);
    line->length = (uint32_t)used;
    line->source = r->source;
    line->number = ++r->number;
    line->flags = cut ? DR_CUT : 0;
    dr_look_at_line(line, &host);
    if (line->flags & DR_COMMAND)
        r->command = d->num_lines - 1;
    if (host.length > 0 && !r->guest && !r->host)
        r->machine = machine(d, host, false, false);
    line = &d->lines[d->num_lines - 1];
    line->command = r->command;
    line->machine = r->machine;
    d->sources[r->source].count = d->num_lines - d->sources[r->source].first;
}

static void add_text(struct doctor *d, struct reading *r, const char *bytes,
        size_t count)
{
    while (count > 0) {
        const char *end = memchr(bytes, '\n', count);
        const size_t length = end != NULL ? (size_t)(end - bytes) : count;

        add_line(d, r, bytes, length);
        bytes += length + (end != NULL);
        count -= length + (end != NULL);
    }
}

void doctor_add(struct doctor *d, const char *name, const char *bytes, size_t count)
{
    struct reading r;
    size_t wide_count = 0;
    char *wide = dr_from_utf16(bytes, count, &wide_count);

    begin(d, &r, name);
    if (wide != NULL) {
        add_text(d, &r, wide, wide_count);
        free(wide);
    } else if (dr_is_binary(bytes, count)) {
        d->sources[r.source].binary = true;
        doctor_unread(d, name, "no text");
    } else {
        if (count >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0)
            bytes += 3, count -= 3;
        add_text(d, &r, bytes, count);
    }
    end(d, &r);
    if (count == 0)
        doctor_unread(d, name, "empty");
}

/* ---- large sources ---- */

/* A stream is kept whole up to this; of a longer one the beginning, the end, and from
 * between the lines that tell of trouble, a few of each shape. */
#define KEEP_WHOLE  (16u << 20)
#define KEEP_EDGE   (4u << 20)
#define KEEP_MIDDLE (16u << 20)
#define WHOLE_LINES 250000u
#define EDGE_LINES  60000u
#define SHAPES      4096u
#define PER_SHAPE   8
#define CHUNK       (64u << 10)

static bool tells(const char *line)
{
    static const char *const words[] = { "WARN", "rror", "ERROR", "ail", "FAIL",
        "imeout", "imed out", "ismatch", "IO_PAGE_FAULT", "DMAR:", "ShaderName",
        "hostcall", "atomic", "Watchdog", "SIGTERM", "Init ", "nranks", " via ",
        "version", "refused", "reset by peer", "No space", "denied", "permitted",
        "skipped device", "destroyed", "hang", "stuck", "iommu", "Using ", "wrong" };

    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (dr_has(line, words[i]))
            return true;
    return false;
}

/* Lines that differ in digits only have one shape. */
static uint32_t shape(const char *line)
{
    uint32_t hash = 2166136261u;

    for (; *line != 0; line++) {
        if (isxdigit((unsigned char)*line))
            continue;
        hash = (hash ^ (unsigned char)*line) * 16777619u;
    }
    return hash % SHAPES;
}

struct large {
    unsigned char seen[SHAPES];
    char chunk[CHUNK];
    char *tail; /* the last KEEP_EDGE bytes */
    size_t tail_used, kept;
    uint64_t skipped;
};

/* A shape is looked at once; of one that tells, a few lines are kept. */
static bool worth_keeping(struct large *l, const char *line)
{
    unsigned char *seen = &l->seen[shape(line)];

    if (*seen == 0 && !tells(line))
        *seen = PER_SHAPE;
    return l->kept < KEEP_MIDDLE && *seen < PER_SHAPE && ++*seen <= PER_SHAPE;
}

/* Takes the first line of the tail from @p at on, which is of the middle; its bytes. */
static size_t leave(struct doctor *d, struct reading *r, struct large *l, size_t at)
{
    char *line = l->tail + at;
    char *end = memchr(line, '\n', l->tail_used - at);
    const size_t length = end != NULL ? (size_t)(end - line) : l->tail_used - at;
    char text[DR_LINE_MAX + 1];
    const size_t looked_at = length < DR_LINE_MAX ? length : DR_LINE_MAX;

    memcpy(text, line, looked_at);
    text[looked_at] = 0;
    if (worth_keeping(l, text)) {
        add_line(d, r, line, length);
        l->kept += looked_at;
    } else {
        l->skipped++;
        r->number++;
    }
    return length + (end != NULL);
}

/* Complete lines at the tail's beginning leave it until a chunk fits: at once as many as
 * will have to soon. */
static void make_room(struct doctor *d, struct reading *r, struct large *l)
{
    size_t gone = 0;

    if (l->tail_used + CHUNK <= KEEP_EDGE)
        return;
    while (l->tail_used - gone > KEEP_EDGE / 2)
        gone += leave(d, r, l, gone);
    memmove(l->tail, l->tail + gone, l->tail_used - gone);
    l->tail_used -= gone;
}

static void add_to_tail(struct doctor *d, struct reading *r, struct large *l,
        const char *bytes, size_t count)
{
    make_room(d, r, l);
    memcpy(l->tail + l->tail_used, bytes, count);
    l->tail_used += count;
}

static uint32_t count_lines(const char *bytes, size_t count)
{
    uint32_t lines = 0;

    for (const char *at = bytes, *end = bytes + count;
            at < end && (at = memchr(at, '\n', (size_t)(end - at))) != NULL; at++)
        lines++;
    return lines;
}

/* Bytes of the first lines that are kept whatever they say. */
static size_t first_edge(const char *bytes, size_t count)
{
    size_t used = 0;

    if (count > KEEP_EDGE)
        count = KEEP_EDGE;
    for (uint32_t lines = 0; lines < EDGE_LINES; lines++) {
        const char *end = memchr(bytes + used, '\n', count - used);

        if (end == NULL)
            return used > 0 ? used : count;
        used = (size_t)(end - bytes) + 1;
    }
    return used;
}

static void add_large(struct doctor *d, struct reading *r, struct large *l, FILE *in,
        const char *begin_bytes, size_t count)
{
    size_t got, gone = 0, edge = first_edge(begin_bytes, count);
    uint32_t lines;

    add_text(d, r, begin_bytes, edge);
    for (size_t at = edge; at < count; at += got) {
        got = count - at < CHUNK ? count - at : CHUNK;
        add_to_tail(d, r, l, begin_bytes + at, got);
    }
    while ((got = fread(l->chunk, 1, CHUNK, in)) > 0)
        add_to_tail(d, r, l, l->chunk, got);
    for (lines = count_lines(l->tail, l->tail_used); lines > EDGE_LINES; lines--)
        gone += leave(d, r, l, gone);
    add_text(d, r, l->tail + gone, l->tail_used - gone);
}

static void add_in_part(struct doctor *d, const char *name, FILE *in, const char *bytes,
        size_t count)
{
    struct large *l = calloc(1, sizeof(*l));
    struct reading r;

    if (l == NULL || (l->tail = malloc(KEEP_EDGE)) == NULL)
        no_memory();
    begin(d, &r, name);
    add_large(d, &r, l, in, bytes, count);
    end(d, &r);
    if (l->skipped > 0)
        doctor_unread(d, name,
                "%llu lines of its middle, which tell of nothing or repeat others",
                (unsigned long long)l->skipped);
    free(l->tail);
    free(l);
}

bool doctor_add_stream(struct doctor *d, const char *name, FILE *in)
{
    char *bytes = malloc(KEEP_WHOLE);
    size_t count;

    if (bytes == NULL)
        no_memory();
    count = fread(bytes, 1, KEEP_WHOLE, in);
    if (ferror(in)) {
        free(bytes);
        return false;
    }
    if (dr_is_binary(bytes, count)) {
        doctor_add(d, name, bytes, count);
        if (count == KEEP_WHOLE && fgetc(in) != EOF &&
                !d->sources[d->num_sources - 1].binary)
            doctor_unread(d, name, "what follows its first %u MiB", KEEP_WHOLE >> 20);
    } else if (count < KEEP_WHOLE && count_lines(bytes, count) <= WHOLE_LINES) {
        doctor_add(d, name, bytes, count);
    } else {
        add_in_part(d, name, in, bytes, count);
    }
    free(bytes);
    return !ferror(in);
}

/* ---- lines ---- */

void dr_known(struct doctor *d, uint32_t line)
{
    d->sources[d->lines[line].source].known = true;
}

void dr_trouble(struct doctor *d, uint32_t line)
{
    *DR_PUSH(d, d->troubles, d->num_troubles, d->room_troubles) = line;
    dr_known(d, line);
}

const char *dr_command(const struct doctor *d, uint32_t line)
{
    const uint32_t command = d->lines[line].command;

    return command == DR_NONE ? "" : dr_typed(&d->lines[command]);
}
