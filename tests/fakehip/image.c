/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images: ELF files for AMD GPUs. Who may load one is in the header; its kernels, and
 * what they take, in notes of msgpack. An object that was linked from several has several
 * such notes.
 */
#include "hip.h"

#include "codeobj.h"
#include "pack.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>

#define NOTE_METADATA 32 /* NT_AMDGPU_METADATA */

static CUresult wrong(const char *what)
{
    fprintf(stderr, "fakehip: code object: %s\n", what);
    return CUDA_ERROR_INVALID_IMAGE;
}

/* Does @p target, "gfx942:sramecc+:xnack-", have the feature as the image wants it? */
static bool feature_fits(const char *target, const char *name,
        enum codeobj_setting wanted)
{
    const char *at = strstr(target, name);

    return wanted < CODEOBJ_OFF || at == NULL ||
            at[strlen(name)] == (wanted == CODEOBJ_ON ? '+' : '-');
}

static bool target_fits(const char *target, uint32_t flags)
{
    size_t length = strcspn(target, ":");
    struct codeobj_target built;

    codeobj_target_of(flags, 4, &built); /* flags are as since version 4 */
    return strlen(built.processor) == length &&
            memcmp(built.processor, target, length) == 0 &&
            feature_fits(target, ":xnack", built.xnack) &&
            feature_fits(target, ":sramecc", built.sramecc);
}

/* Which of the keys we know it is; their number if it is none of them. */
static bool read_key(pack *p, const char *const *keys, size_t nkeys, size_t *out)
{
    const char *text;
    size_t length;

    if (!pack_text(p, &text, &length))
        return false;
    for (*out = 0; *out < nkeys; ++*out)
        if (strlen(keys[*out]) == length && memcmp(keys[*out], text, length) == 0)
            break;
    return true;
}

/* An explicit argument; of the hidden ones, which are the runtime's business, only whether
 * the host may be called. */
static bool note_argument(fake_function *function, const char *kind, size_t length,
        uint64_t offset, uint64_t size)
{
    if (offset > FAKE_ARGS_LIMIT || size > FAKE_ARGS_LIMIT)
        return false;
    if (length == 22 && memcmp(kind, "hidden_hostcall_buffer", 22) == 0)
        function->hostcall = true;
    if (length >= 7 && memcmp(kind, "hidden_", 7) == 0)
        return true;
    if (function->parts == FAKE_PARTS)
        return false;
    function->part[function->parts].offset = (uint32_t)offset;
    function->part[function->parts++].bytes = (uint32_t)size;
    if (offset + size > function->bytes)
        function->bytes = offset + size;
    return true;
}

static bool read_argument(pack *p, fake_function *function)
{
    static const char *const keys[] = { ".offset", ".size", ".value_kind" };
    uint64_t offset = 0, size = 0;
    const char *kind = "";
    size_t length = 0;
    uint32_t count;
    bool ok = pack_map(p, &count);

    for (uint32_t k = 0; ok && k < count; k++) {
        size_t key;

        ok = read_key(p, keys, sizeof(keys) / sizeof(*keys), &key);
        switch (ok ? key : SIZE_MAX) {
        case 0: ok = pack_number(p, &offset); break;
        case 1: ok = pack_number(p, &size); break;
        case 2: ok = pack_text(p, &kind, &length); break;
        case 3: ok = pack_skip(p); break;
        default: break;
        }
    }
    return ok && note_argument(function, kind, length, offset, size);
}

static bool read_arguments(pack *p, fake_function *function)
{
    uint32_t count;
    bool ok = pack_array(p, &count);

    for (uint32_t i = 0; ok && i < count; i++)
        ok = read_argument(p, function);
    return ok;
}

static bool read_name(pack *p, fake_function *function)
{
    const char *text;
    size_t length;

    if (!pack_text(p, &text, &length) || length == 0 ||
            length >= sizeof(function->name))
        return false;
    memcpy(function->name, text, length);
    return true;
}

static bool read_kernel(pack *p, fake_function *function, uint64_t *segment)
{
    static const char *const keys[] = { ".name", ".args", ".kernarg_segment_size",
        ".max_flat_workgroup_size", ".vgpr_count" };
    uint64_t threads = FAKE_BLOCK_LIMIT, registers = 32;
    uint32_t count;
    bool ok = pack_map(p, &count);

    for (uint32_t k = 0; ok && k < count; k++) {
        size_t key;

        ok = read_key(p, keys, sizeof(keys) / sizeof(*keys), &key);
        switch (ok ? key : SIZE_MAX) {
        case 0: ok = read_name(p, function); break;
        case 1: ok = read_arguments(p, function); break;
        case 2: ok = pack_number(p, segment); break;
        case 3: ok = pack_number(p, &threads); break;
        case 4: ok = pack_number(p, &registers); break;
        case 5: ok = pack_skip(p); break;
        default: break;
        }
    }
    function->threads =
            threads < FAKE_BLOCK_LIMIT ? (unsigned)threads : FAKE_BLOCK_LIMIT;
    function->registers = registers < 1024 ? (unsigned)registers : 1024;
    return ok && function->name[0] != '\0';
}

/* A kernel that only the device has: it may be launched, and nothing happens. */
static void runs_nothing(const void *args, uint32_t block, uint32_t blocks)
{
    (void)args;
    (void)block;
    (void)blocks;
}

static CUresult read_kernels(pack *p, fake_module *module)
{
    uint32_t count;

    if (!pack_array(p, &count))
        return wrong("amdhsa.kernels is not a list");
    for (uint32_t i = 0; i < count; i++) {
        fake_function *function = fake_module_add(module);
        uint64_t segment = 0;
        CUresult code;

        if (!read_kernel(p, function, &segment))
            return wrong("a kernel's metadata cannot be read");
        if (segment < function->bytes)
            return wrong("a kernel's arguments are longer than its kernarg segment");
        code = fake_module_bind(function);
        if (code != CUDA_SUCCESS)
            return code;
        if (function->run == NULL)
            function->run = runs_nothing;
    }
    return CUDA_SUCCESS;
}

static CUresult read_metadata(pack p, fake_module *module)
{
    CUresult code = CUDA_SUCCESS;
    uint32_t keys;

    if (!pack_map(&p, &keys))
        return wrong("its metadata is not a map");
    for (uint32_t k = 0; code == CUDA_SUCCESS && k < keys; k++) {
        bool kernels;

        if (!pack_is(&p, "amdhsa.kernels", &kernels))
            return wrong("its metadata cannot be read");
        if (kernels)
            code = read_kernels(&p, module);
        else if (!pack_skip(&p))
            return wrong("its metadata cannot be read");
    }
    return code;
}

/* All notes of a segment: {bytes of the name, bytes, type, name, content}. */
static CUresult read_notes(const unsigned char *at, size_t bytes, fake_module *module,
        bool *found)
{
    CUresult code = CUDA_SUCCESS;

    while (code == CUDA_SUCCESS && bytes >= 12) {
        uint32_t head[3];
        size_t name, content;

        memcpy(head, at, sizeof(head));
        name = ((size_t)head[0] + 3) / 4 * 4;
        content = ((size_t)head[1] + 3) / 4 * 4;
        if (name > bytes - 12 || head[1] > bytes - 12 - name)
            return wrong("a note is cut off");
        if (head[2] == NOTE_METADATA && head[0] == 7 &&
                memcmp(at + 12, "AMDGPU", 7) == 0) {
            const unsigned char *begin = at + 12 + name;

            *found = true;
            code = read_metadata((pack){ begin, begin + head[1] }, module);
        }
        if (content > bytes - 12 - name)
            break;
        at += 12 + name + content;
        bytes -= 12 + name + content;
    }
    return code;
}

CUresult hip_image_read(const void *image, fake_module *module)
{
    const unsigned char *bytes = image;
    CUresult code = CUDA_SUCCESS;
    Elf64_Ehdr elf;
    bool found = false;

    memcpy(&elf, image, sizeof(elf));
    if (memcmp(elf.e_ident, ELFMAG, SELFMAG) != 0)
        return CUDA_ERROR_INVALID_IMAGE;
    if (elf.e_ident[EI_CLASS] != ELFCLASS64 || elf.e_machine != EM_AMDGPU ||
            elf.e_phentsize != sizeof(Elf64_Phdr))
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    if (!target_fits(hip_target(fake_current()->device->physical), elf.e_flags))
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    for (unsigned i = 0; code == CUDA_SUCCESS && i < elf.e_phnum; i++) {
        Elf64_Phdr segment;

        memcpy(&segment, bytes + elf.e_phoff + i * sizeof(segment), sizeof(segment));
        if (segment.p_type == PT_NOTE)
            code = read_notes(bytes + segment.p_offset, segment.p_filesz, module,
                    &found);
    }
    return code == CUDA_SUCCESS && !found ? wrong("it has no metadata") : code;
}
