/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of a host's ELF file, of which only what lies in the file is believed. */
#ifndef MOTET_CODEOBJ_IMAGES_ELF_H
#define MOTET_CODEOBJ_IMAGES_ELF_H

#include "images_walk.h"

#include <elf.h>

struct images_elf {
    const struct images_span *file;
    Elf64_Ehdr header;
    uint64_t num_sections, num_segments; /* whose headers are there   */
    Elf64_Shdr names;                    /* of sections; empty if none */
};

/** Bytes of the file. */
struct images_range {
    uint64_t offset, bytes;
};

/**
 * Read the headers of @p file, which has the first of them at least.
 * @return NULL, or what is wrong with the table of sections
 */
const char *images_elf_read(const struct images_span *file, struct images_elf *out);

/** Whether those bytes are in the file. */
bool images_elf_lies(const struct images_elf *e, uint64_t offset, uint64_t bytes);

/** Whether section @p s is called @p name. */
bool images_elf_is_named(const struct images_elf *e, const Elf64_Shdr *s,
        const char *name);

void images_elf_section(const struct images_elf *e, uint64_t i, Elf64_Shdr *out);

/** Its p_filesz is no more than is in the file. */
void images_elf_segment(const struct images_elf *e, uint64_t i, Elf64_Phdr *out);

/**
 * Read what wrappers point to, which lie in writable memory or in a section of their own,
 * and what is in none of @p known, and if
 * @p references, references to kpack archives. Whether there was anything.
 */
bool images_wrappers(struct images_walk *w, const struct images_elf *e,
        const struct images_range *known, size_t num_known, bool references);

#endif
