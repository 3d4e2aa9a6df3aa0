/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ELF files of the host. Code for GPUs is in sections of known names; wrappers that point
 * to it are looked at for what lies elsewhere; and if neither is there, the loaded bytes
 * are searched for what begins like code for GPUs.
 */
#include "images_elf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ID_MAX       1024u /* bytes of an entry's id */
#define ENTRY_PREFIX "__CLANG_OFFLOAD_BUNDLE__"
#define ZSTD_MAGIC   "\x28\xb5\x2f\xfd"

/* Sections of one name that are read; compilers write one. */
#define FATBINS_MAX 64u

struct host {
    struct images_walk *w;
    const struct images_span *file;
    struct images_elf elf;
    bool found, emptied; /* code, or a place for code that is elsewhere */
    bool reference;      /* the one to kpack archives was read */
    struct images_range fatbins[FATBINS_MAX];
    size_t num_fatbins;
};

bool images_elf_lies(const struct images_elf *e, uint64_t offset, uint64_t bytes)
{
    return offset <= e->file->bytes && bytes <= e->file->bytes - offset;
}

void images_elf_section(const struct images_elf *e, uint64_t i, Elf64_Shdr *out)
{
    memcpy(out, e->file->data + e->header.e_shoff + i * sizeof(*out), sizeof(*out));
}

void images_elf_segment(const struct images_elf *e, uint64_t i, Elf64_Phdr *out)
{
    memcpy(out, e->file->data + e->header.e_phoff + i * sizeof(*out), sizeof(*out));
    if (out->p_offset > e->file->bytes)
        out->p_offset = out->p_filesz = 0;
    else if (out->p_filesz > e->file->bytes - out->p_offset)
        out->p_filesz = e->file->bytes - out->p_offset;
}

bool images_elf_is_named(const struct images_elf *e, const Elf64_Shdr *s,
        const char *name)
{
    const size_t bytes = strlen(name) + 1;
    const uint64_t at = s->sh_name;

    return at < e->names.sh_size && bytes <= e->names.sh_size - at &&
            memcmp(e->file->data + e->names.sh_offset + at, name, bytes) == 0;
}

/* Where numbers are that are too large for the header. */
static uint64_t count_sections(const struct images_elf *e, uint64_t *strings)
{
    Elf64_Shdr first = { 0 };

    *strings = e->header.e_shstrndx;
    if (e->header.e_shentsize == sizeof(first) &&
            images_elf_lies(e, e->header.e_shoff, sizeof(first)))
        images_elf_section(e, 0, &first);
    if (e->header.e_shstrndx == SHN_XINDEX)
        *strings = first.sh_link;
    return e->header.e_shnum != 0 ? e->header.e_shnum : first.sh_size;
}

const char *images_elf_read(const struct images_span *file, struct images_elf *out)
{
    const Elf64_Ehdr *h = &out->header;
    uint64_t strings;

    *out = (struct images_elf){ .file = file };
    memcpy(&out->header, file->data, sizeof(out->header));
    if (h->e_phentsize == sizeof(Elf64_Phdr) &&
            images_elf_lies(out, h->e_phoff, h->e_phnum * sizeof(Elf64_Phdr)))
        out->num_segments = h->e_phnum;
    if (h->e_shoff == 0)
        return NULL;
    out->num_sections = count_sections(out, &strings);
    if (h->e_shentsize != sizeof(Elf64_Shdr) || h->e_shoff > file->bytes ||
            out->num_sections > (file->bytes - h->e_shoff) / sizeof(Elf64_Shdr)) {
        out->num_sections = 0;
        return "its table of sections is cut off or damaged";
    }
    if (strings < out->num_sections)
        images_elf_section(out, strings, &out->names);
    if (!images_elf_lies(out, out->names.sh_offset, out->names.sh_size))
        memset(&out->names, 0, sizeof(out->names));
    return NULL;
}

static void read_fatbin(struct host *h, const Elf64_Shdr *s)
{
    struct images_span part;

    h->emptied = h->emptied || s->sh_type == SHT_NOBITS;
    if (s->sh_type == SHT_NOBITS || s->sh_size == 0)
        return;
    h->found = true;
    if (!images_elf_lies(&h->elf, s->sh_offset, s->sh_size)) {
        images_problem(h->w, h->file->offset,
                "its code for GPUs (.hip_fatbin, %" PRIu64 " bytes at %" PRIu64
                ") is cut off at %zu",
                s->sh_size, s->sh_offset, h->file->bytes);
        return;
    }
    if (h->num_fatbins == FATBINS_MAX) {
        images_problem(h->w, h->file->offset,
                "more than %u sections .hip_fatbin, the rest is left out", FATBINS_MAX);
        return;
    }
    h->fatbins[h->num_fatbins++] = (struct images_range){ s->sh_offset, s->sh_size };
    part = images_part(h->file, (size_t)s->sh_offset, (size_t)s->sh_size);
    images_fatbin(h->w, &part);
}

static void read_reference(struct host *h, const Elf64_Shdr *s)
{
    struct images_span part;

    h->found = h->reference = true;
    if (s->sh_type == SHT_NOBITS ||
            !images_elf_lies(&h->elf, s->sh_offset, s->sh_size)) {
        images_problem(h->w, h->file->offset,
                "its reference to kpack archives is cut off");
        return;
    }
    part = images_part(h->file, (size_t)s->sh_offset, (size_t)s->sh_size);
    images_kpack_reference(h->w, &part);
}

/* A section of an object that is not linked yet, "__CLANG_OFFLOAD_BUNDLE__" and an id. */
static void read_entry(struct host *h, const Elf64_Shdr *s)
{
    const size_t prefix = sizeof(ENTRY_PREFIX) - 1;
    const uint64_t at = s->sh_name;
    char target[CODEOBJ_TARGET_MAX];
    struct images_span part;
    const char *name;
    size_t length;

    if (at >= h->elf.names.sh_size || h->elf.names.sh_size - at <= prefix)
        return;
    name = (const char *)h->file->data + h->elf.names.sh_offset + at;
    if (memcmp(name, ENTRY_PREFIX, prefix) != 0)
        return;
    length = (size_t)(h->elf.names.sh_size - at) - prefix;
    length = strnlen(name + prefix, length < ID_MAX ? length : ID_MAX);
    if (s->sh_size == 0 || !images_entry_id(name + prefix, length, target))
        return;
    h->found = true;
    if (s->sh_type == SHT_NOBITS ||
            !images_elf_lies(&h->elf, s->sh_offset, s->sh_size)) {
        images_problem(h->w, h->file->offset, "its code for '%s' is cut off", target);
        return;
    }
    part = images_part(h->file, (size_t)s->sh_offset, (size_t)s->sh_size);
    h->w->holder = h->file->offset; /* others of it are for other GPUs */
    images_entry(h->w, &part, target);
}

/* Code in a form of another compiler's way of working. */
static void read_other(struct host *h, const Elf64_Shdr *s)
{
    if (s->sh_size == 0)
        return;
    h->found = true;
    images_problem(h->w, h->file->offset,
            "its code for GPUs in .llvm.offloading is not linked yet, and not read");
}

static void read_sections(struct host *h)
{
    static const struct {
        const char *name;
        void (*read)(struct host *h, const Elf64_Shdr *s);
    } rows[] = { { ".hip_fatbin", read_fatbin }, { ".rocm_kpack_ref", read_reference },
        { ".llvm.offloading", read_other } };

    for (uint64_t i = 0; i < h->elf.num_sections && !h->w->stopped; i++) {
        Elf64_Shdr s;

        images_elf_section(&h->elf, i, &s);
        for (size_t row = 0; row < sizeof(rows) / sizeof(*rows); row++)
            if (images_elf_is_named(&h->elf, &s, rows[row].name))
                rows[row].read(h, &s);
        read_entry(h, &s);
    }
}

/*
 * The search.
 */

static size_t larger(size_t a, uint64_t offset, uint64_t bytes, size_t most)
{
    const uint64_t end = offset > most || bytes > most - offset ? most : offset + bytes;

    return end > a ? (size_t)end : a;
}

/* How far the ELF file at the beginning of @p span goes by its own headers, whose bytes are
 * the cost. */
static size_t extent_of(const struct images_span *span, uint64_t *cost)
{
    struct images_elf elf;
    size_t end = sizeof(Elf64_Ehdr);

    (void)images_elf_read(span, &elf);
    *cost = elf.num_segments * sizeof(Elf64_Phdr) +
            elf.num_sections * sizeof(Elf64_Shdr);
    for (uint64_t i = 0; i < elf.num_segments; i++) {
        Elf64_Phdr p;

        images_elf_segment(&elf, i, &p);
        end = larger(end, p.p_offset, p.p_filesz, span->bytes);
    }
    if (elf.num_sections > 0)
        end = larger(end, elf.header.e_shoff, elf.num_sections * sizeof(Elf64_Shdr),
                span->bytes);
    for (uint64_t i = 0; i < elf.num_sections; i++) {
        Elf64_Shdr s;

        images_elf_section(&elf, i, &s);
        if (s.sh_type != SHT_NOBITS)
            end = larger(end, s.sh_offset, s.sh_size, span->bytes);
    }
    return end;
}

/* Each takes what may begin at @p span and returns its bytes; 0 if it was only a look-alike. */

static size_t take_bundle(struct host *h, const struct images_span *span)
{
    uint64_t cost = 0;
    const bool good = images_bundle_holds(span, &cost);

    if (!images_spend(h->w, span->offset, cost) || !good)
        return 0;
    return images_bundle(h->w, span);
}

static size_t take_ccob(struct host *h, const struct images_span *span)
{
    uint64_t cost = 0;
    const bool good = images_ccob_holds(span, &cost);

    if (!images_spend(h->w, span->offset, cost) || !good)
        return 0;
    return images_ccob(h->w, span);
}

static size_t take_object(struct host *h, const struct images_span *span)
{
    struct images_span object;
    uint64_t cost;
    size_t bytes;

    if (!codeobj_is(span->data, span->bytes))
        return 0;
    bytes = extent_of(span, &cost);
    if (!images_spend(h->w, span->offset, cost))
        return 0;
    object = images_part(span, 0, bytes);
    h->w->holder = span->offset;
    images_object(h->w, &object, "");
    return object.bytes;
}

/* The bytes of the object that is packed at @p span by itself, and those that it takes; 0
 * if none is. It does not say how large it is. */
static uint64_t measure_zstd(struct host *h, const struct images_span *span,
        size_t *used)
{
    unsigned char head[64];
    struct source s;
    uint64_t bytes = 0;

    if (!source_open(&s, SOURCE_ZSTD, span->data, span->bytes, h->w->unpack_left / 2))
        images_problem(h->w, span->offset, "this may be packed code: %s", s.why);
    s.one_frame = true;
    if (source_read(&s, head, sizeof(head)) == sizeof(head) &&
            codeobj_is(head, sizeof(head))) {
        (void)source_skip(&s, UINT64_MAX);
        bytes = s.ended ? s.given : 0;
        if (bytes == 0)
            images_problem(h->w, span->offset, "a packed code object: %s", s.why);
    }
    *used = s.used;
    images_pay(h->w, &s);
    return bytes;
}

static size_t take_zstd(struct host *h, const struct images_span *span)
{
    struct source s;
    uint64_t bytes;
    size_t used, state;

    bytes = measure_zstd(h, span, &used);
    if (!images_spend(h->w, span->offset, IMAGES_UNPACK_COST + used) || bytes == 0 ||
            !images_enter(h->w, "zstd", span->offset, &state))
        return 0;
    h->w->holder = span->offset;
    if (source_open(&s, SOURCE_ZSTD, span->data, used, h->w->unpack_left))
        images_unpack(h->w, &s, span->offset, bytes, "");
    images_pay(h->w, &s);
    images_leave(h->w, state);
    return used;
}

static const struct {
    const char *magic;
    size_t bytes;
    size_t (*take)(struct host *h, const struct images_span *span);
} beginnings[] = {
    { "__CLANG_OFFLOAD_BUNDLE__", 24, take_bundle },
    { "CCOB", 4, take_ccob },
    { ELFMAG, SELFMAG, take_object },
    { ZSTD_MAGIC, 4, take_zstd },
};
#define NUM_BEGINNINGS (sizeof(beginnings) / sizeof(*beginnings))

/* The bytes of what begins at byte @p at, 0 if nothing does. */
static size_t take_any(struct host *h, const struct images_span *range, size_t at)
{
    const struct images_span rest = images_part(range, at, range->bytes - at);
    size_t used = 0;

    for (size_t row = 0; row < NUM_BEGINNINGS && used == 0; row++)
        if (rest.bytes >= beginnings[row].bytes &&
                memcmp(rest.data, beginnings[row].magic, beginnings[row].bytes) == 0)
            used = beginnings[row].take(h, &rest);
    return used;
}

static void search(struct host *h, const struct images_span *range)
{
    bool begins[256] = { false };
    size_t given_back = 0;

    if (!images_spend(h->w, range->offset, range->bytes))
        return;
    for (size_t row = 0; row < NUM_BEGINNINGS; row++)
        begins[(unsigned char)beginnings[row].magic[0]] = true;
    for (size_t at = 0; at < range->bytes && !h->w->stopped;) {
        const size_t used = begins[range->data[at]] ? take_any(h, range, at) : 0;

        at += used > 0 ? used : 1;
        if (at - given_back < IMAGES_STEP)
            continue;
        images_give_back(range, given_back, at);
        given_back = at;
    }
}

/* What a loader maps; all of a file that is not linked yet. */
static void search_loaded(struct host *h)
{
    bool loaded = false;

    for (uint64_t i = 0; i < h->elf.num_segments && !h->w->stopped; i++) {
        struct images_span range;
        Elf64_Phdr p;

        images_elf_segment(&h->elf, i, &p);
        if (p.p_type != PT_LOAD || p.p_filesz == 0)
            continue;
        loaded = true;
        range = images_part(h->file, (size_t)p.p_offset, (size_t)p.p_filesz);
        search(h, &range);
    }
    if (!loaded) {
        const struct images_span rest = images_part(h->file, sizeof(Elf64_Ehdr),
                h->file->bytes - sizeof(Elf64_Ehdr));

        search(h, &rest);
    }
}

void images_host(struct images_walk *w, const struct images_span *span)
{
    struct host h = { .w = w, .file = span };
    const char *why;
    size_t state;

    if (span->bytes < sizeof(Elf64_Ehdr)) {
        images_problem(w, span->offset, "an ELF file that ends within its header");
        return;
    }
    if (span->data[EI_CLASS] != ELFCLASS64 || span->data[EI_DATA] != ELFDATA2LSB)
        return; /* no host of AMD GPUs */
    if (!images_enter(w, "elf", span->offset, &state))
        return;
    why = images_elf_read(span, &h.elf);
    if (why != NULL)
        images_problem(w, span->offset, "%s", why);
    read_sections(&h);
    h.found |= images_wrappers(w, &h.elf, h.fatbins, h.num_fatbins, !h.reference);
    if (!h.found && h.emptied)
        images_problem(w, span->offset,
                "its code for GPUs is not in it (.hip_fatbin has no bytes), and "
                "nothing "
                "says where it is");
    else if (!h.found && !w->stopped)
        search_loaded(&h);
    images_leave(w, state);
}
