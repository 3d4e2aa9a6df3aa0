/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images for AMD GPUs without a compiler: an ELF header, one segment, one note, and msgpack
 * in it, as compilers make them. There is no code in them; the stand-in needs none.
 */
#ifndef MOTET_TEST_AMD_IMAGE_H
#define MOTET_TEST_AMD_IMAGE_H

#include <elf.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define RIG_GFX942  0x4cu
#define RIG_GFX1100 0x41u
#define RIG_GFX1201 0x4eu

typedef struct rig_image {
    unsigned char bytes[4096];
    size_t used;
} rig_image;

static inline void rig_put(rig_image *image, const void *what, size_t bytes)
{
    if (image->used + bytes > sizeof(image->bytes))
        abort();
    memcpy(image->bytes + image->used, what, bytes);
    image->used += bytes;
}

static inline void rig_byte(rig_image *image, unsigned value)
{
    unsigned char byte = (unsigned char)value;

    rig_put(image, &byte, 1);
}

/* A text of fewer than 32 bytes. */
static inline void rig_text(rig_image *image, const char *text)
{
    rig_byte(image, 0xa0 | (unsigned)strlen(text));
    rig_put(image, text, strlen(text));
}

static inline void rig_number(rig_image *image, unsigned value)
{
    rig_byte(image, 0xcd);
    rig_byte(image, value >> 8);
    rig_byte(image, value & 0xff);
}

static inline void rig_argument(rig_image *image, unsigned offset, unsigned size,
        const char *kind)
{
    rig_byte(image, 0x83);
    rig_text(image, ".offset");
    rig_number(image, offset);
    rig_text(image, ".size");
    rig_number(image, size);
    rig_text(image, ".value_kind");
    rig_text(image, kind);
}

typedef struct rig_kernel {
    const char *name;
    unsigned bytes; /* of its one argument */
    bool hostcall;  /* declares one        */
} rig_kernel;

static inline void rig_metadata(rig_image *image, const rig_kernel *kernels,
        unsigned count)
{
    rig_byte(image, 0x82);
    rig_text(image, "amdhsa.version"); /* a value that the reader skips */
    rig_byte(image, 0x92);
    rig_byte(image, 1);
    rig_byte(image, 2);
    rig_text(image, "amdhsa.kernels");
    rig_byte(image, 0x90 | count);
    for (unsigned k = 0; k < count; k++) {
        rig_byte(image, 0x83);
        rig_text(image, ".args");
        rig_byte(image, 0x91 + kernels[k].hostcall);
        rig_argument(image, 0, kernels[k].bytes, "by_value");
        if (kernels[k].hostcall)
            rig_argument(image, kernels[k].bytes + 80, 8, "hidden_hostcall_buffer");
        rig_text(image, ".kernarg_segment_size");
        rig_number(image, kernels[k].bytes + 256);
        rig_text(image, ".name");
        rig_text(image, kernels[k].name);
    }
}

static inline rig_image rig_object(unsigned machine, const rig_kernel *kernels,
        unsigned count)
{
    rig_image image = { .used = sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr) + 20 };
    Elf64_Ehdr elf = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, 1, 1, 64, 3 },
        .e_machine = EM_AMDGPU,
        .e_flags = machine,
        .e_phoff = sizeof(elf),
        .e_phentsize = sizeof(Elf64_Phdr),
        .e_phnum = 1 };
    Elf64_Phdr segment = { .p_type = PT_NOTE,
        .p_offset = sizeof(elf) + sizeof(segment) };
    uint32_t note[3] = { 7, 0, 32 };

    rig_metadata(&image, kernels, count);
    note[1] = (uint32_t)(image.used - segment.p_offset - 20);
    segment.p_filesz = image.used - segment.p_offset;
    memcpy(image.bytes, &elf, sizeof(elf));
    memcpy(image.bytes + sizeof(elf), &segment, sizeof(segment));
    memcpy(image.bytes + segment.p_offset, note, sizeof(note));
    memcpy(image.bytes + segment.p_offset + 12, "AMDGPU", 7);
    return image;
}

#endif
