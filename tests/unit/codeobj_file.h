/* SPDX-License-Identifier: Apache-2.0 */
/* A code object in memory, written byte by byte: headers, one note, and msgpack in it. */
#ifndef MOTET_TEST_CODEOBJ_FILE_H
#define MOTET_TEST_CODEOBJ_FILE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "codeobj.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint8_t file[20 << 20];
static size_t file_bytes;
static struct codeobj object;
static char why[CODEOBJ_WHY_MAX];

/* Writing: a header, a program header, and the note's bytes behind them. */

enum { NOTE_AT = sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr), DESC_AT = NOTE_AT + 20 };

static inline void put(const void *bytes, size_t size)
{
    assert_true(file_bytes + size <= sizeof(file));
    memcpy(file + file_bytes, bytes, size);
    file_bytes += size;
}

static inline void put_byte(unsigned byte)
{
    const uint8_t b = (uint8_t)byte;

    put(&b, 1);
}

static inline void put_text(const char *text)
{
    size_t length = strlen(text);

    assert_true(length < 256);
    if (length < 32)
        put_byte(0xa0 | (unsigned)length);
    else {
        put_byte(0xd9);
        put_byte((unsigned)length);
    }
    put(text, length);
}

static inline void put_number(uint32_t value)
{
    put_byte(0xce);
    for (int shift = 24; shift >= 0; shift -= 8)
        put_byte(value >> shift & 0xff);
}

static inline void put_map(unsigned pairs)
{
    put_byte(0x80 | pairs);
}

static inline void put_array(unsigned members)
{
    put_byte(0x90 | members);
}

static inline void begin(void)
{
    memset(file, 0, sizeof(file));
    file_bytes = DESC_AT;
}

/* Headers for the metadata that was written since begin(). */
static inline void finish(int version, uint32_t e_flags)
{
    const Elf64_Nhdr note = { 7, (Elf64_Word)(file_bytes - DESC_AT), 32 };
    Elf64_Ehdr header = { .e_type = ET_DYN,
        .e_machine = 224,
        .e_version = 1,
        .e_phoff = sizeof(header),
        .e_flags = e_flags,
        .e_ehsize = sizeof(header),
        .e_phentsize = sizeof(Elf64_Phdr),
        .e_phnum = 1,
        .e_shentsize = sizeof(Elf64_Shdr) };
    const Elf64_Phdr segment = { .p_type = PT_NOTE,
        .p_offset = NOTE_AT,
        .p_filesz = file_bytes - NOTE_AT,
        .p_align = 4 };

    memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = 1;
    header.e_ident[EI_OSABI] = 64;
    header.e_ident[EI_ABIVERSION] = (unsigned char)(version - 2);
    memcpy(file, &header, sizeof(header));
    memcpy(file + sizeof(header), &segment, sizeof(segment));
    memcpy(file + NOTE_AT, &note, sizeof(note));
    memcpy(file + NOTE_AT + sizeof(note), "AMDGPU", 7);
    while (file_bytes % 4 != 0)
        put_byte(0);
}

static inline void put_arg(const char *kind, uint32_t offset, uint32_t bytes)
{
    put_map(3);
    put_text(".offset");
    put_number(offset);
    put_text(".size");
    put_number(bytes);
    put_text(".value_kind");
    put_text(kind);
}

static inline void put_kernel(const char *name, unsigned num_args)
{
    put_map(3);
    put_text(".name");
    put_text(name);
    put_text(".kernarg_segment_size");
    put_number(256);
    put_text(".args");
    put_array(num_args);
}

static inline void put_document(unsigned num_kernels)
{
    put_map(1);
    put_text("amdhsa.kernels");
    put_array(num_kernels);
}

/* An object with one kernel that has one plain argument. */
static inline void write_small(int version, uint32_t e_flags)
{
    begin();
    put_document(1);
    put_kernel("k", 1);
    put_arg("global_buffer", 0, 8);
    finish(version, e_flags);
}

/* The file in a heap block of its size, which AddressSanitizer guards. */
static inline int read_bytes(size_t bytes)
{
    uint8_t *copy = malloc(bytes == 0 ? 1 : bytes);
    int status;

    assert_non_null(copy);
    memcpy(copy, file, bytes);
    memset(&object, 0xa5, sizeof(object));
    snprintf(why, sizeof(why), "untouched");
    status = codeobj_read(copy, bytes, &object, why);
    free(copy);
    if (status != 0) {
        assert_null(object.kernels);
        assert_int_equal(object.num_kernels, 0);
        assert_string_not_equal(why, "untouched");
    }
    return status;
}

static inline void expect_read(void)
{
    if (read_bytes(file_bytes) != 0)
        fail_msg("not read: %s", why);
}

static inline void expect_refused(const char *words)
{
    if (read_bytes(file_bytes) == 0)
        fail_msg("read, without '%s'", words);
    if (strstr(why, words) == NULL)
        fail_msg("'%s' is not in '%s'", words, why);
}

/* Whether this build reads with the library called @p name. */
static inline bool codeobj_reads_with(const char *name)
{
    for (size_t i = 0; codeobj_library(i) != NULL; i++)
        if (strncmp(codeobj_library(i), name, strlen(name)) == 0)
            return true;
    return false;
}

static inline int codeobj_teardown(void **state)
{
    (void)state;
    codeobj_clear(&object);
    return 0;
}

#endif
