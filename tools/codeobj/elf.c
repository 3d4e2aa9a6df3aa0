/* SPDX-License-Identifier: Apache-2.0 */
/* The note with the metadata, found by libelf in a program header or in a section. */
#include "internal.h"

#include <gelf.h>
#include <libelf.h>
#include <msgpack.h>
#include <stdio.h>
#include <string.h>

/* NT_AMDGPU_METADATA of the owner "AMDGPU", with its NUL. */
#define NOTE_TYPE  32
#define NOTE_OWNER "AMDGPU"
/* Headers that are looked through; real objects have a dozen. */
#define HEADERS_MAX 65536
/* Of the file's size: how much of notes is looked through. Real objects name them twice. */
#define NOTES_FACTOR 4

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
};

/* Whether the notes at offset … + bytes of the file hold the metadata. */
static bool search_notes(struct search *s, uint64_t offset, uint64_t bytes,
        struct note *out)
{
    size_t at = 0, next, name_at, desc_at;
    Elf_Data *data;
    GElf_Nhdr note;

    if (bytes == 0 || offset > s->bytes || bytes > s->bytes - offset)
        return false;
    if (bytes % 4 != 0 && s->bytes - offset - bytes >= 4 - bytes % 4)
        bytes += 4 - bytes % 4; /* libelf wants the last note's padding, too */
    s->spent = s->spent || bytes > s->budget;
    if (s->spent)
        return false;
    s->budget -= (size_t)bytes;
    data = elf_getdata_rawchunk(s->elf, (int64_t)offset, (size_t)bytes, ELF_T_NHDR);
    if (data == NULL || data->d_size < bytes)
        return false;
    while ((next = gelf_getnote(data, at, &note, &name_at, &desc_at)) > at) {
        if (note.n_type == NOTE_TYPE && note.n_namesz == sizeof(NOTE_OWNER) &&
                name_at <= bytes && sizeof(NOTE_OWNER) <= bytes - name_at &&
                desc_at <= bytes && note.n_descsz <= bytes - desc_at &&
                memcmp(s->file + offset + name_at, NOTE_OWNER, sizeof(NOTE_OWNER)) ==
                        0) {
            *out = (struct note){ s->file + offset + desc_at, note.n_descsz,
                offset + desc_at };
            return true;
        }
        at = next;
    }
    return false;
}

static bool search_segments(struct search *s, struct note *out)
{
    size_t num = 0;
    GElf_Phdr header;

    if (elf_getphdrnum(s->elf, &num) != 0 || num > HEADERS_MAX)
        return false;
    for (size_t i = 0; i < num; i++)
        if (gelf_getphdr(s->elf, (int)i, &header) != NULL && header.p_type == PT_NOTE &&
                search_notes(s, header.p_offset, header.p_filesz, out))
            return true;
    return false;
}

static bool search_sections(struct search *s, struct note *out)
{
    Elf_Scn *section = NULL;
    GElf_Shdr header;

    for (int i = 0; i < HEADERS_MAX; i++) {
        section = elf_nextscn(s->elf, section);
        if (section == NULL)
            return false;
        if (gelf_getshdr(section, &header) != NULL && header.sh_type == SHT_NOTE &&
                search_notes(s, header.sh_offset, header.sh_size, out))
            return true;
    }
    return false;
}

int codeobj_parse(const void *data, size_t bytes, struct codeobj *out,
        char why[CODEOBJ_WHY_MAX])
{
    /* libelf only reads what it is given here, but says so nowhere in its types. */
    char *file = (char *)(uintptr_t)data;
    struct search s = { NULL, file, bytes, NOTES_FACTOR * bytes, false };
    struct note note;
    bool found;

    if (elf_version(EV_CURRENT) == EV_NONE ||
            (s.elf = elf_memory(file, bytes)) == NULL) {
        snprintf(why, CODEOBJ_WHY_MAX, "libelf: %.200s", elf_errmsg(-1));
        return -1;
    }
    found = search_segments(&s, &note) || search_sections(&s, &note);
    elf_end(s.elf);
    if (!found && s.spent) {
        snprintf(why, CODEOBJ_WHY_MAX,
                "its headers name more than %d times its %zu bytes as notes",
                NOTES_FACTOR, bytes);
        return -1;
    }
    if (!found) {
        snprintf(why, CODEOBJ_WHY_MAX, "no note with AMD's metadata in its %zu bytes",
                bytes);
        return -1;
    }
    return codeobj_metadata(note.data, note.bytes, note.offset, out, why);
}

const char *codeobj_library(size_t i)
{
    static const char *const libraries[] = { "libelf " CODEOBJ_LIBELF,
        "msgpack-c " MSGPACK_VERSION };

    return i < sizeof(libraries) / sizeof(*libraries) ? libraries[i] : NULL;
}
