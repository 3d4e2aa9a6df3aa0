/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a library defines and which others it asks for, read from its file. Files may be
 * hostile: each size is checked against the file's, and nothing is run.
 */
#include "lib.h"

#include "text.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Largest table that is read: names of a large library take a few MB. */
#define TABLE_MAX ((uint64_t)256 << 20)

void lib_names_add(struct lib_names *names, const char *name)
{
    char *copy = names->num < LIB_NAMES_MAX ? strdup(name) : NULL;

    if (copy != NULL)
        names->name[names->num++] = text_plain(copy);
}

void lib_names_clear(struct lib_names *names)
{
    for (size_t i = 0; i < names->num; i++)
        free(names->name[i]);
    names->num = 0;
}

struct file {
    int fd;
    uint64_t bytes;
    char *why;
    size_t why_bytes;
};

__attribute__((format(printf, 2, 3))) static bool refuse(const struct file *f,
        const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(f->why, f->why_bytes, fmt, args);
    va_end(args);
    return false;
}

/* A part of the file, with a NUL behind it; the caller's to free. NULL: refused. */
static void *read_part(const struct file *f, uint64_t offset, uint64_t bytes)
{
    char *part;
    size_t done = 0;

    if (offset > f->bytes || bytes > f->bytes - offset || bytes > TABLE_MAX) {
        refuse(f, "%llu bytes at offset %llu are not in the file",
                (unsigned long long)bytes, (unsigned long long)offset);
        return NULL;
    }
    part = malloc((size_t)bytes + 1);
    while (part != NULL && done < bytes) {
        ssize_t n =
                pread(f->fd, part + done, (size_t)bytes - done, (off_t)(offset + done));

        if (n <= 0) {
            refuse(f, "cannot be read at offset %llu: %s",
                    (unsigned long long)(offset + done),
                    n < 0 ? strerror(errno) : "it ends there");
            free(part);
            return NULL;
        }
        done += (size_t)n;
    }
    if (part == NULL)
        refuse(f, "no memory for %llu bytes of it", (unsigned long long)bytes);
    else
        part[bytes] = 0;
    return part;
}

/* A table of entries and the texts that it names. */
struct table {
    void *entries;
    size_t num;
    char *text;
    uint64_t text_bytes;
};

static void table_clear(struct table *t)
{
    free(t->entries);
    free(t->text);
}

/* The first section of a kind, and its texts. Without one the table is empty. */
static bool read_table(const struct file *f, const Elf64_Shdr *sections, size_t num,
        uint32_t type, size_t entry_bytes, struct table *t)
{
    memset(t, 0, sizeof(*t));
    for (size_t i = 0; i < num; i++) {
        const Elf64_Shdr *s = &sections[i];

        if (s->sh_type != type)
            continue;
        if (s->sh_link >= num)
            return refuse(f, "section %zu names section %u as its texts, of %zu", i,
                    (unsigned)s->sh_link, num);
        t->entries = read_part(f, s->sh_offset, s->sh_size);
        t->num = (size_t)s->sh_size / entry_bytes;
        t->text_bytes = sections[s->sh_link].sh_size;
        if (t->entries != NULL)
            t->text = read_part(f, sections[s->sh_link].sh_offset, t->text_bytes);
        return t->text != NULL;
    }
    return true;
}

static bool take_needed(const struct file *f, const Elf64_Shdr *sections, size_t num,
        struct lib_names *needed)
{
    struct table t;
    bool read = read_table(f, sections, num, SHT_DYNAMIC, sizeof(Elf64_Dyn), &t);
    const Elf64_Dyn *entry = t.entries;

    for (size_t i = 0; read && i < t.num && entry[i].d_tag != DT_NULL; i++)
        if (entry[i].d_tag == DT_NEEDED && entry[i].d_un.d_val < t.text_bytes)
            lib_names_add(needed, t.text + entry[i].d_un.d_val);
    table_clear(&t);
    return read;
}

static bool defines(const struct table *t, const char *name)
{
    const Elf64_Sym *symbol = t->entries;

    for (size_t i = 0; i < t->num; i++)
        if (symbol[i].st_shndx != SHN_UNDEF && symbol[i].st_name < t->text_bytes &&
                strcmp(t->text + symbol[i].st_name, name) == 0)
            return true;
    return false;
}

static bool take_missing(const struct file *f, const Elf64_Shdr *sections, size_t num,
        const char *const *wanted, struct lib_names *missing)
{
    struct table t;
    bool read = read_table(f, sections, num, SHT_DYNSYM, sizeof(Elf64_Sym), &t);

    for (; read && *wanted != NULL; wanted++)
        if (!defines(&t, *wanted))
            lib_names_add(missing, *wanted);
    table_clear(&t);
    return read;
}

static bool read_file(const struct file *f, const char *const *wanted,
        struct lib_names *needed, struct lib_names *missing)
{
    Elf64_Ehdr *header = read_part(f, 0, sizeof(*header));
    Elf64_Shdr *sections = NULL;
    size_t num;
    bool read;

    if (header == NULL)
        return false;
    num = header->e_shnum;
    if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
            header->e_ident[EI_CLASS] != ELFCLASS64 ||
            header->e_ident[EI_DATA] != ELFDATA2LSB)
        read = refuse(f, "not a 64-bit ELF file");
    else if (num == 0 || header->e_shentsize != sizeof(*sections))
        read = refuse(f,
                "it has no table of sections: what it needs and defines is not read");
    else {
        sections = read_part(f, header->e_shoff, num * sizeof(*sections));
        read = sections != NULL && take_needed(f, sections, num, needed) &&
                (wanted == NULL || take_missing(f, sections, num, wanted, missing));
    }
    free(sections);
    free(header);
    return read;
}

bool lib_elf_read(const char *path, const char *const *wanted, struct lib_names *needed,
        struct lib_names *missing, char *why, size_t why_bytes)
{
    struct file f = { .why = why, .why_bytes = why_bytes };
    struct stat st;
    bool read;

    f.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f.fd < 0)
        return refuse(&f, "%s", strerror(errno));
    if (fstat(f.fd, &st) != 0 || !S_ISREG(st.st_mode))
        read = refuse(&f, "not a regular file");
    else {
        f.bytes = (uint64_t)st.st_size;
        read = read_file(&f, wanted, needed, missing);
    }
    close(f.fd);
    return read;
}
