/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What code for AMD GPUs declares, in a library or on its own: code objects and bundles,
 * as far as they lie there plainly. Compressed and packed ones are said to be unknown. Layouts: amd-hosts.md §9.
 */
#include "gather.h"

#include "codeobj.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUNDLE         "__CLANG_OFFLOAD_BUNDLE__"
#define BUNDLE_BYTES   24u
#define ENTRIES_MAX    4096u
#define ID_MAX         1024u
#define BUNDLES_MAX    65536u
#define NAMES_SHOWN    8u
#define NAME_MAX_SHOWN 200u
#define MACHINE_AMDGPU 224 /* newer than this <elf.h> */

struct image_reading {
    FILE *out;
    const char *shown;
    struct dr_images *met;
};

static uint64_t u64_at(const unsigned char *at)
{
    uint64_t value;

    memcpy(&value, at, sizeof(value));
    return value;
}

/* Text from a file, which may neither end the line nor command a terminal. */
static void write_text(FILE *out, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes && text[i] != 0; i++)
        fputc((unsigned char)text[i] < 0x20 || text[i] == 0x7f ? '?' : text[i], out);
}

static void unknown(struct image_reading *r, const char *target, size_t target_bytes,
        const char *why)
{
    r->met->images++;
    r->met->unknown++;
    fprintf(r->out, "%s: ", r->shown);
    write_text(r->out, target, target_bytes);
    fprintf(r->out, "%sunknown: %s\n", target_bytes > 0 ? ": " : "", why);
}

static void write_image(struct image_reading *r, const char *target,
        size_t target_bytes, const struct codeobj *object)
{
    const size_t declaring = codeobj_count(object, CODEOBJ_HOSTCALL_BUFFER);
    size_t shown = 0;

    r->met->images++;
    r->met->declaring += declaring > 0;
    fprintf(r->out, "%s: ", r->shown);
    write_text(r->out, target, target_bytes);
    fprintf(r->out, ": %zu kernels, %zu declare a hostcall%s", object->num_kernels,
            declaring, declaring > 0 ? ":" : "");
    for (size_t i = 0; i < object->num_kernels && shown < NAMES_SHOWN; i++)
        if (codeobj_has(&object->kernels[i], CODEOBJ_HOSTCALL_BUFFER)) {
            fputc(' ', r->out);
            write_text(r->out, object->kernels[i].name, NAME_MAX_SHOWN);
            shown++;
        }
    fputs(declaring > shown ? " …\n" : "\n", r->out);
}

/* An object that the bundle says is for @p target. */
static void read_entry(struct image_reading *r, const char *target, size_t target_bytes,
        const unsigned char *data, size_t bytes)
{
    struct codeobj object;
    char why[CODEOBJ_WHY_MAX];

    if (codeobj_read(data, bytes, &object, why) != 0)
        unknown(r, target, target_bytes, why);
    else
        write_image(r, target, target_bytes, &object);
    codeobj_clear(&object);
}

/* One that stands for itself. */
static void read_object(struct image_reading *r, const unsigned char *data,
        size_t bytes, const Elf64_Ehdr *header)
{
    struct codeobj object;
    struct codeobj_target target = { .text = "" };
    char why[CODEOBJ_WHY_MAX];
    const char *name = object.target.text;

    if (codeobj_read(data, bytes, &object, why) != 0) {
        if (codeobj_is(data, bytes))
            codeobj_target_of(header->e_flags, header->e_ident[EI_ABIVERSION] + 2,
                    &target);
        unknown(r, target.text, strlen(target.text), why);
        return;
    }
    if (strncmp(name, "gfx", 3) != 0 && object.declared[0] != 0)
        name = object.declared; /* a vendor's GPU */
    write_image(r, name, strlen(name), &object);
    codeobj_clear(&object);
}

/* One bundle at @p data; the bytes that it takes, 0 if it is none or goes wrong. */
static size_t read_bundle(struct image_reading *r, const unsigned char *data,
        size_t bytes)
{
    size_t at = BUNDLE_BYTES + 8, end = at;
    uint64_t entries;

    if (bytes < at || memcmp(data, BUNDLE, BUNDLE_BYTES) != 0)
        return 0;
    entries = u64_at(data + BUNDLE_BYTES);
    if (entries > ENTRIES_MAX)
        return 0;
    for (uint64_t i = 0; i < entries; i++) {
        uint64_t offset, size, length;
        const char *id, *target;

        if (bytes - at < 24)
            return 0;
        offset = u64_at(data + at);
        size = u64_at(data + at + 8);
        length = u64_at(data + at + 16);
        at += 24;
        if (length > ID_MAX || length > bytes - at || (size > 0 && offset > bytes) ||
                (size > 0 && size > bytes - offset))
            return 0;
        id = (const char *)data + at;
        at += length;
        if (size == 0)
            continue;
        end = offset + size > end ? offset + size : end;
        target = memmem(id, length, "gfx", 3);
        if (target != NULL)
            read_entry(r, target, length - (size_t)(target - id), data + offset, size);
        else if (memmem(id, length, "amdgcn", 6) != NULL)
            unknown(r, "", 0, "code for any GPU, compiled where it is loaded");
    }
    return end > at ? end : at;
}

/* Bundles lie one after the other, with zeros between them. */
static void read_fatbin(struct image_reading *r, const unsigned char *data,
        size_t bytes)
{
    size_t at = 0;

    for (unsigned i = 0; i < BUNDLES_MAX; i++) {
        size_t used;

        while (at + 8 <= bytes && u64_at(data + at) == 0)
            at += 8;
        while (at < bytes && data[at] == 0)
            at++;
        if (at == bytes)
            return;
        if (bytes - at >= 4 && memcmp(data + at, "CCOB", 4) == 0) {
            unknown(r, "", 0, "compressed (CCOB)");
            return; /* those after it are as well */
        }
        used = read_bundle(r, data + at, bytes - at);
        if (used == 0) {
            unknown(r, "", 0,
                    i == 0 ? "no whole bundle of code for GPUs"
                           : "its further bundles are not whole");
            return;
        }
        at += used;
    }
    unknown(r, "", 0, "too many bundles");
}

static const char *name_of(const unsigned char *file, size_t bytes,
        const Elf64_Shdr *names, uint32_t offset)
{
    const uint64_t at = names->sh_offset + offset;

    if (offset >= names->sh_size || names->sh_offset > bytes || at >= bytes ||
            memchr(file + at, 0, bytes - at) == NULL)
        return "";
    return (const char *)file + at;
}

/* The sections of an ELF file for the host; what keeps them from being read, or NULL. */
static const char *read_sections(struct image_reading *r, const unsigned char *file,
        size_t bytes, const Elf64_Ehdr *e)
{
    Elf64_Shdr s, names;

    if (e->e_shoff == 0)
        return "it has no table of sections";
    if (e->e_shentsize != sizeof(s) || e->e_shoff > bytes ||
            e->e_shnum > (bytes - e->e_shoff) / sizeof(s) ||
            e->e_shstrndx >= e->e_shnum)
        return "its table of sections is cut off or damaged";
    memcpy(&names, file + e->e_shoff + e->e_shstrndx * sizeof(s), sizeof(names));
    for (unsigned i = 0; i < e->e_shnum; i++) {
        const char *name;

        memcpy(&s, file + e->e_shoff + i * sizeof(s), sizeof(s));
        name = name_of(file, bytes, &names, s.sh_name);
        if (strcmp(name, ".rocm_kpack_ref") == 0 ||
                (strcmp(name, ".hip_fatbin") == 0 && s.sh_type == SHT_NOBITS))
            return "its code is in kpack files";
        if (strcmp(name, ".hip_fatbin") != 0)
            continue;
        if (s.sh_offset > bytes || s.sh_size > bytes - s.sh_offset)
            return "its code is cut off";
        read_fatbin(r, file + s.sh_offset, s.sh_size);
        return NULL;
    }
    return NULL;
}

static void read_elf(struct image_reading *r, const unsigned char *file, size_t bytes)
{
    Elf64_Ehdr e;
    const char *why = "it ends within its header";

    if (bytes >= sizeof(e)) {
        memcpy(&e, file, sizeof(e));
        if (e.e_machine == MACHINE_AMDGPU) {
            read_object(r, file, bytes, &e);
            return;
        }
        if (e.e_ident[EI_CLASS] != ELFCLASS64 || e.e_ident[EI_DATA] != ELFDATA2LSB)
            return; /* no host of AMD GPUs */
        why = read_sections(r, file, bytes, &e);
    }
    if (why != NULL)
        unknown(r, "", 0, why);
}

/* By content; names say nothing. */
static void read_content(struct image_reading *r, const unsigned char *file,
        size_t bytes)
{
    if (bytes < 4)
        return;
    if (memcmp(file, ELFMAG, SELFMAG) == 0)
        read_elf(r, file, bytes);
    else if (memcmp(file, "KPAK", 4) == 0)
        unknown(r, "", 0, "a kpack archive");
    else if (memcmp(file, "CCOB", 4) == 0 ||
            (bytes >= BUNDLE_BYTES && memcmp(file, BUNDLE, BUNDLE_BYTES) == 0))
        read_fatbin(r, file, bytes);
}

struct dr_images dr_write_images(FILE *out, const char *path, const char *shown)
{
    struct dr_images met = { .why = NULL };
    struct image_reading r = { .out = out, .shown = shown, .met = &met };
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    void *map;

    if (fd < 0 || fstat(fd, &st) != 0)
        met.why = strerror(errno);
    else if (!S_ISREG(st.st_mode))
        met.why = S_ISDIR(st.st_mode) ? "a folder, need a file" : "not a regular file";
    else if (st.st_size == 0)
        met.why = "an empty file";
    else if ((map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0)) ==
            MAP_FAILED)
        met.why = strerror(errno);
    else {
        read_content(&r, map, (size_t)st.st_size);
        munmap(map, (size_t)st.st_size);
    }
    if (fd >= 0)
        close(fd);
    return met;
}
