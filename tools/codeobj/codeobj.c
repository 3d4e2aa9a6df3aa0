/* SPDX-License-Identifier: Apache-2.0 */
/* Files, headers and the end of an object; what does not need a library. */
#include "internal.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Newer than this <elf.h>. */
#define MACHINE_AMDGPU 224
#define OSABI_HSA      64
/* e_ident[EI_ABIVERSION] 0 is version 2 of the format. */
#define ABI_TO_VERSION 2
#define VERSION_MIN    3
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

/* Open a regular file that is not empty; its size in *@p bytes. Returns a descriptor. */
static int open_file(const char *path, size_t *bytes, char why[CODEOBJ_WHY_MAX])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) != 0)
        snprintf(why, CODEOBJ_WHY_MAX, "%s", strerror(errno));
    else if (!S_ISREG(st.st_mode))
        snprintf(why, CODEOBJ_WHY_MAX, "%s, need a file",
                S_ISDIR(st.st_mode) ? "a folder" : "not a regular file");
    else if (st.st_size == 0)
        snprintf(why, CODEOBJ_WHY_MAX, "an empty file");
    else {
        *bytes = (size_t)st.st_size;
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

int codeobj_open(const char *path, struct codeobj *out, char why[CODEOBJ_WHY_MAX])
{
    size_t bytes = 0;
    void *data;
    int fd, status;

    memset(out, 0, sizeof(*out));
    fd = open_file(path, &bytes, why);
    if (fd < 0)
        return -1;
    data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        snprintf(why, CODEOBJ_WHY_MAX, "cannot be mapped: %s", strerror(errno));
    close(fd);
    if (data == MAP_FAILED)
        return -1;
    status = codeobj_read(data, bytes, out, why);
    munmap(data, bytes);
    return status;
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
