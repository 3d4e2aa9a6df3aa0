/* SPDX-License-Identifier: Apache-2.0 */
/* Files, headers and the end of an object; what does not need a library. */
#include "images_walk.h"
#include "internal.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Newer than this <elf.h>. */
#define MACHINE_AMDGPU 224
#define OSABI_HSA      64
/* e_ident[EI_ABIVERSION] 0 is version 2 of the format. */
#define ABI_TO_VERSION 2
#define VERSION_MIN    2
#define VERSION_MAX    6

/* NULL, or the sentence why an object with this header is not read. */
static const char *refuse_header(const Elf64_Ehdr *header, char why[CODEOBJ_WHY_MAX])
{
    int version = header->e_ident[EI_ABIVERSION] + ABI_TO_VERSION;

    if (header->e_ident[EI_CLASS] != ELFCLASS64 ||
            header->e_ident[EI_DATA] != ELFDATA2LSB)
        snprintf(why, CODEOBJ_WHY_MAX, "not a 64-bit little-endian ELF file");
    else if (header->e_machine != MACHINE_AMDGPU)
        snprintf(why, CODEOBJ_WHY_MAX,
                "an ELF file for machine %u, need %d, an AMD code object",
                (unsigned)header->e_machine, MACHINE_AMDGPU);
    else if (header->e_ident[EI_OSABI] != OSABI_HSA)
        snprintf(why, CODEOBJ_WHY_MAX,
                "an AMD object for another system than ROCm (ABI %u, need %d)",
                (unsigned)header->e_ident[EI_OSABI], OSABI_HSA);
    else if (version < VERSION_MIN || version > VERSION_MAX)
        snprintf(why, CODEOBJ_WHY_MAX, "a code object of version %d, %d to %d are read",
                version, VERSION_MIN, VERSION_MAX);
    else
        return NULL;
    return why;
}

/* 0 and the header's copy; −1 with a sentence. */
static int read_header(const void *data, size_t bytes, Elf64_Ehdr *header,
        char why[CODEOBJ_WHY_MAX])
{
    if (bytes >= SELFMAG && memcmp(data, ELFMAG, SELFMAG) != 0) {
        snprintf(why, CODEOBJ_WHY_MAX, "not an ELF file");
        return -1;
    }
    if (bytes < sizeof(*header)) {
        snprintf(why, CODEOBJ_WHY_MAX, "ends after %zu bytes, within its header",
                bytes);
        return -1;
    }
    memcpy(header, data, sizeof(*header));
    return refuse_header(header, why) == NULL ? 0 : -1;
}

bool codeobj_is(const void *data, size_t bytes)
{
    char why[CODEOBJ_WHY_MAX];
    Elf64_Ehdr header;

    return read_header(data, bytes, &header, why) == 0;
}

int codeobj_read(const void *data, size_t bytes, struct codeobj *out,
        char why[CODEOBJ_WHY_MAX])
{
    Elf64_Ehdr header;

    memset(out, 0, sizeof(*out));
    if (read_header(data, bytes, &header, why) != 0)
        return -1;
    out->version = header.e_ident[EI_ABIVERSION] + ABI_TO_VERSION;
    codeobj_target_of(header.e_flags, out->version, &out->target);
    if (codeobj_parse(data, bytes, out, why) == 0)
        return 0;
    codeobj_clear(out);
    return -1;
}

struct opening {
    struct codeobj *out;
    char *why;
    int status;
};

static void read_mapped(const struct images_span *span, void *arg)
{
    struct opening *o = arg;

    o->status = codeobj_read(span->data, span->bytes, o->out, o->why);
}

int codeobj_open(const char *path, struct codeobj *out, char why[CODEOBJ_WHY_MAX])
{
    struct opening o = { .out = out, .why = why };

    memset(out, 0, sizeof(*out));
    if (images_with_file(path, read_mapped, &o, why) == 0)
        return o.status;
    codeobj_clear(out);
    return -1;
}

void codeobj_tame(char *text)
{
    for (char *c = text; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
}

bool codeobj_has(const struct codeobj_kernel *kernel, enum codeobj_kind kind)
{
    return (kernel->kinds >> kind & 1) != 0;
}

size_t codeobj_count(const struct codeobj *object, enum codeobj_kind kind)
{
    size_t num = 0;

    for (size_t i = 0; i < object->num_kernels; i++)
        num += codeobj_has(&object->kernels[i], kind);
    return num;
}

void codeobj_clear(struct codeobj *object)
{
    for (size_t i = 0; i < object->num_kernels; i++) {
        free(object->kernels[i].name);
        free(object->kernels[i].args);
    }
    free(object->kernels);
    memset(object, 0, sizeof(*object));
}
