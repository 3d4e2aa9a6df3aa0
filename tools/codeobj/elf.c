/* SPDX-License-Identifier: Apache-2.0 */
/* The notes of an object, found by libelf in a program header or in a section, and its
 * symbols. */
#include "internal.h"
#include "source.h"

#include <gelf.h>
#include <libelf.h>
#include <msgpack.h>
#include <stdio.h>
#include <string.h>

/* What a note is called: its owner with the NUL, and its type. */
struct note_name {
    const char *owner;
    size_t owner_bytes;
    uint32_t type;
};
static const struct note_name metadata = { "AMDGPU", 7, 32 };
/* Of version 2. */
static const struct note_name yaml = { "AMD", 4, 10 }, isa = { "AMD", 4, 3 };
/* Headers that are looked through; real objects have a dozen. */
#define HEADERS_MAX 65536
/* Of the file's size: how much of notes is looked through. Real objects name them twice. */
#define NOTES_FACTOR 4

/* Documents of one object: a linker leaves that of each object that went into it. */
#define DOCUMENTS_MAX 4096

struct note {
    const char *data;
    size_t bytes;
    uint64_t offset; /* in the file */
};

/* What is looked through. Headers may all name the same bytes, so there is a budget. */
struct search {
    Elf *elf;
    const char *file;
    size_t bytes, budget;
    bool spent;
    const struct note_name *name;
    bool (*take)(struct search *s, const struct note *note); /* false ends the search */
    struct codeobj *out;
    char *why;
    bool failed;
    size_t num_taken;
    uint64_t taken[DOCUMENTS_MAX]; /* offsets */
};

/* Take the notes of the name at offset … + bytes of the file; false ends the search. */
static bool search_notes(struct search *s, uint64_t offset, uint64_t bytes)
{
    size_t at = 0, next, name_at, desc_at;
    Elf_Data *data;
    GElf_Nhdr note;

    if (bytes == 0 || offset > s->bytes || bytes > s->bytes - offset)
        return true;
    if (bytes % 4 != 0 && s->bytes - offset - bytes >= 4 - bytes % 4)
        bytes += 4 - bytes % 4; /* libelf wants the last note's padding, too */
    s->spent = s->spent || bytes > s->budget;
    if (s->spent)
        return false;
    s->budget -= (size_t)bytes;
    data = elf_getdata_rawchunk(s->elf, (int64_t)offset, (size_t)bytes, ELF_T_NHDR);
    if (data == NULL || data->d_size < bytes)
        return true;
    while ((next = gelf_getnote(data, at, &note, &name_at, &desc_at)) > at) {
        const struct note found = { s->file + offset + desc_at, note.n_descsz,
            offset + desc_at };

        at = next;
        if (note.n_type == s->name->type && note.n_namesz == s->name->owner_bytes &&
                name_at <= bytes && note.n_namesz <= bytes - name_at &&
                desc_at <= bytes && note.n_descsz <= bytes - desc_at &&
                memcmp(s->file + offset + name_at, s->name->owner, note.n_namesz) ==
                        0 &&
                !s->take(s, &found))
            return false;
    }
    return true;
}

static bool search_segments(struct search *s)
{
    size_t num = 0;
    GElf_Phdr header;

    if (elf_getphdrnum(s->elf, &num) != 0 || num > HEADERS_MAX)
        return true;
    for (size_t i = 0; i < num; i++)
        if (gelf_getphdr(s->elf, (int)i, &header) != NULL && header.p_type == PT_NOTE &&
                !search_notes(s, header.p_offset, header.p_filesz))
            return false;
    return true;
}

static bool search_sections(struct search *s)
{
    Elf_Scn *section = NULL;
    GElf_Shdr header;

    for (int i = 0; i < HEADERS_MAX; i++) {
        section = elf_nextscn(s->elf, section);
        if (section == NULL)
            return true;
        if (gelf_getshdr(section, &header) != NULL && header.sh_type == SHT_NOTE &&
                !search_notes(s, header.sh_offset, header.sh_size))
            return false;
    }
    return true;
}

/* Sections name what segments do, so they are asked only where those have nothing. */
static void search_all(struct search *s, const struct note_name *name,
        bool (*take)(struct search *s, const struct note *note))
{
    s->name = name;
    s->take = take;
    s->num_taken = 0;
    if (search_segments(s) && s->num_taken == 0)
        (void)search_sections(s);
}

static bool take_document(struct search *s, const struct note *note)
{
    for (size_t i = 0; i < s->num_taken; i++)
        if (s->taken[i] == note->offset)
            return true;
    if (s->num_taken == DOCUMENTS_MAX) {
        snprintf(s->why, CODEOBJ_WHY_MAX, "it has more than %d notes with metadata",
                DOCUMENTS_MAX);
        s->failed = true;
        return false;
    }
    s->taken[s->num_taken++] = note->offset;
    s->failed = (s->out->version == 2 ? codeobj_yaml : codeobj_metadata)(note->data,
                        note->bytes, note->offset, s->out, s->why) != 0;
    return !s->failed;
}

/* The first section of @p type, and the one with its texts, whose last one ends in it. */
static bool find_symbols(struct search *s, uint32_t type, GElf_Shdr *table,
        GElf_Shdr *texts)
{
    Elf_Scn *section = NULL;

    for (int i = 0; i < HEADERS_MAX; i++) {
        section = elf_nextscn(s->elf, section);
        if (section == NULL)
            return false;
        if (gelf_getshdr(section, table) == NULL || table->sh_type != type)
            continue;
        section = elf_getscn(s->elf, table->sh_link);
        return section != NULL && gelf_getshdr(section, texts) != NULL &&
                table->sh_offset <= s->bytes &&
                table->sh_size <= s->bytes - table->sh_offset &&
                texts->sh_offset <= s->bytes && texts->sh_size > 0 &&
                texts->sh_size <= s->bytes - texts->sh_offset &&
                s->file[texts->sh_offset + texts->sh_size - 1] == 0;
    }
    return false;
}

/* Note in @p out what the symbols of a table of @p type say. A linker leaves local ones in
 * each object that is not stripped, _DYNAMIC at least; one that is not linked yet may have
 * none. */
static void read_symbols(struct search *s, uint32_t type, struct codeobj *out)
{
    GElf_Shdr table, texts;
    Elf64_Sym symbol;
    Elf64_Ehdr header;
    bool linked;

    if (!find_symbols(s, type, &table, &texts))
        return;
    memcpy(&header, s->file, sizeof(header));
    linked = header.e_type != ET_REL;
    for (uint64_t at = 0; table.sh_size - at >= sizeof(symbol); at += sizeof(symbol)) {
        const char *name;
        unsigned kind;

        memcpy(&symbol, s->file + table.sh_offset + at, sizeof(symbol));
        kind = ELF64_ST_TYPE(symbol.st_info);
        if (symbol.st_name == 0 || symbol.st_name >= texts.sh_size ||
                kind == STT_FILE || kind == STT_SECTION)
            continue;
        name = s->file + texts.sh_offset + symbol.st_name;
        if (type == SHT_SYMTAB &&
                (!linked || ELF64_ST_BIND(symbol.st_info) == STB_LOCAL))
            out->has_symbols = true;
        if (kind != STT_OBJECT && codeobj_makes_hostcall(name))
            out->makes_hostcall = true;
    }
}

/* Version 2: e_flags of the oldest compilers have no GPU, but there is a note that has:
 * lengths of two texts (16 bits each), then three numbers, "gfx" 8, 0, 3. */
static bool take_isa(struct search *s, const struct note *note)
{
    struct codeobj_target *target = &s->out->target;
    uint32_t isa_of[4];

    s->num_taken++;
    if (note->bytes < sizeof(isa_of))
        return false;
    memcpy(isa_of, note->data, sizeof(isa_of));
    if (isa_of[1] > 99 || isa_of[2] > 15 || isa_of[3] > 15)
        return false;
    snprintf(target->processor, sizeof(target->processor), "gfx%u%x%x", isa_of[1],
            isa_of[2], isa_of[3]);
    snprintf(target->text, sizeof(target->text), "%.16s", target->processor);
    return false;
}

int codeobj_parse(const void *data, size_t bytes, struct codeobj *out,
        char why[CODEOBJ_WHY_MAX])
{
    struct search s = { .bytes = bytes,
        .budget = NOTES_FACTOR * bytes,
        .out = out,
        .why = why };

    /* libelf only reads what it is given here, but says so nowhere in its types. */
    s.file = (char *)(uintptr_t)data;
    if (elf_version(EV_CURRENT) == EV_NONE ||
            (s.elf = elf_memory((char *)(uintptr_t)data, bytes)) == NULL) {
        snprintf(why, CODEOBJ_WHY_MAX, "libelf: %.200s", elf_errmsg(-1));
        return -1;
    }
    if (out->version == 2 && strncmp(out->target.processor, "gfx", 3) != 0)
        search_all(&s, &isa, take_isa);
    search_all(&s, out->version == 2 ? &yaml : &metadata, take_document);
    read_symbols(&s, SHT_SYMTAB, out);
    read_symbols(&s, SHT_DYNSYM, out);
    elf_end(s.elf);
    if (s.failed)
        return -1;
    if (s.spent) {
        snprintf(why, CODEOBJ_WHY_MAX,
                "its headers name more than %d times its %zu bytes as notes",
                NOTES_FACTOR, bytes);
        return -1;
    }
    if (s.num_taken == 0) {
        snprintf(why, CODEOBJ_WHY_MAX, "no note with AMD's metadata in its %zu bytes",
                bytes);
        return -1;
    }
    return 0;
}

const char *codeobj_library(size_t i)
{
    const char *const libraries[] = { "libelf " CODEOBJ_LIBELF,
        "msgpack-c " MSGPACK_VERSION, source_library(SOURCE_ZLIB),
        source_library(SOURCE_ZSTD) };

    for (size_t at = 0; at < sizeof(libraries) / sizeof(*libraries); at++)
        if (libraries[at] != NULL && i-- == 0)
            return libraries[at];
    return NULL;
}
