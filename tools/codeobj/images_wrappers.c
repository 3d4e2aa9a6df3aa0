/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wrappers that the HIP runtime is given: a magic number, a version, and the address of
 * a fat binary or of a reference to kpack archives. The address is a relocation's; linkers
 * may leave the word itself zero. Headers of segments tell where wrappers and relocations
 * are, as names of sections may be gone; sections are asked as well.
 */
#include "images_elf.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC_FATBIN 0x48495046u
#define MAGIC_KPACK  0x4b504948u
#define WRAPPERS_MAX 65536u

struct wrapper {
    uint64_t field;   /* the address of its pointer */
    uint64_t pointer; /* what it holds              */
    bool kpack;
};

struct wrappers {
    struct images_walk *w;
    const struct images_elf *elf;
    struct wrapper *list;
    size_t num, room;
};

static bool add(struct wrappers *s, const struct wrapper *wrapper)
{
    if (s->num == s->room) {
        const size_t room = 2 * s->room + 16;
        void *more =
                room <= WRAPPERS_MAX ? realloc(s->list, room * sizeof(*s->list)) : NULL;

        if (more == NULL)
            return false;
        s->list = more;
        s->room = room;
    }
    s->list[s->num++] = *wrapper;
    return true;
}

/* Wrappers among the @p bytes at @p data, which are loaded at @p address. */
static void collect(struct wrappers *s, const unsigned char *data, uint64_t bytes,
        uint64_t address)
{
    const uint64_t skip = (8 - address % 8) % 8;

    for (uint64_t at = skip; at + 24 <= bytes; at += 8) {
        uint32_t head[2];
        struct wrapper wrapper;

        memcpy(head, data + at, sizeof(head));
        if (head[1] != 1 || (head[0] != MAGIC_FATBIN && head[0] != MAGIC_KPACK))
            continue;
        wrapper.field = address + at + 8;
        wrapper.kpack = head[0] == MAGIC_KPACK;
        memcpy(&wrapper.pointer, data + at + 8, sizeof(wrapper.pointer));
        if (!add(s, &wrapper)) {
            images_problem(s->w, s->elf->file->offset,
                    "more wrappers of code for GPUs than are read");
            return;
        }
    }
}

/* Where in the file what is loaded at @p address lies, and how much from there on. */
static bool find_address(const struct images_elf *e, uint64_t address,
        struct images_range *out)
{
    for (uint64_t i = 0; i < e->num_segments; i++) {
        Elf64_Phdr p;

        images_elf_segment(e, i, &p);
        if (p.p_type != PT_LOAD || address < p.p_vaddr ||
                address - p.p_vaddr >= p.p_filesz)
            continue;
        out->offset = p.p_offset + (address - p.p_vaddr);
        out->bytes = p.p_filesz - (address - p.p_vaddr);
        return true;
    }
    return false;
}

static int by_field(const void *a, const void *b)
{
    const struct wrapper *x = a, *y = b;

    return (x->field > y->field) - (x->field < y->field);
}

static int by_pointer(const void *a, const void *b)
{
    const struct wrapper *x = a, *y = b;

    return (x->pointer > y->pointer) - (x->pointer < y->pointer);
}

/* Give the pointers the values that the relocations at @p range have for them. */
static void relocate(struct wrappers *s, const struct images_range *range)
{
    const unsigned char *data = s->elf->file->data + range->offset;

    for (uint64_t at = 0; range->bytes - at >= sizeof(Elf64_Rela);
            at += sizeof(Elf64_Rela)) {
        struct wrapper key, *found;
        Elf64_Rela rela;

        memcpy(&rela, data + at, sizeof(rela));
        key.field = rela.r_offset;
        found = bsearch(&key, s->list, s->num, sizeof(*s->list), by_field);
        if (found != NULL)
            found->pointer = (uint64_t)rela.r_addend;
    }
}

/* What the loader's own table says of relocations. */
static bool find_relocations(const struct images_elf *e, const Elf64_Phdr *dynamic,
        struct images_range *out)
{
    uint64_t address = 0, bytes = 0;

    for (uint64_t at = 0; dynamic->p_filesz - at >= sizeof(Elf64_Dyn);
            at += sizeof(Elf64_Dyn)) {
        Elf64_Dyn d;

        memcpy(&d, e->file->data + dynamic->p_offset + at, sizeof(d));
        if (d.d_tag == DT_NULL)
            break;
        if (d.d_tag == DT_RELA)
            address = d.d_un.d_ptr;
        else if (d.d_tag == DT_RELASZ)
            bytes = d.d_un.d_val;
    }
    if (bytes == 0 || !find_address(e, address, out))
        return false;
    if (bytes < out->bytes)
        out->bytes = bytes;
    return true;
}

static bool is_known(uint64_t offset, const struct images_range *known, size_t num)
{
    for (size_t i = 0; i < num; i++)
        if (offset >= known[i].offset && offset - known[i].offset < known[i].bytes)
            return true;
    return false;
}

static void read_target(struct images_walk *w, const struct images_span *span,
        bool kpack)
{
    const enum images_content content = images_sniff(span->data, span->bytes);

    if (kpack)
        images_kpack_reference(w, span);
    else if (content == IMAGES_BUNDLE && images_spend(w, span->offset, 4096))
        (void)images_bundle(w, span);
    else if (content == IMAGES_CCOB && images_spend(w, span->offset, 4096))
        (void)images_ccob(w, span);
    else if (content != IMAGES_BUNDLE && content != IMAGES_CCOB)
        images_problem(w, span->offset,
                "a wrapper points to what is no bundle of code for GPUs");
}

static void collect_all(struct wrappers *s)
{
    const struct images_elf *e = s->elf;
    Elf64_Phdr p;
    Elf64_Shdr h;

    for (uint64_t i = 0; i < e->num_segments && !s->w->stopped; i++) {
        images_elf_segment(e, i, &p);
        if (p.p_type == PT_LOAD && (p.p_flags & PF_W) != 0 &&
                images_spend(s->w, e->file->offset, p.p_filesz))
            collect(s, e->file->data + p.p_offset, p.p_filesz, p.p_vaddr);
    }
    for (uint64_t i = 0; i < e->num_sections && !s->w->stopped; i++) {
        images_elf_section(e, i, &h);
        if (h.sh_type == SHT_PROGBITS && images_elf_lies(e, h.sh_offset, h.sh_size) &&
                images_elf_is_named(e, &h, ".hipFatBinSegment") &&
                images_spend(s->w, e->file->offset, h.sh_size))
            collect(s, e->file->data + h.sh_offset, h.sh_size, h.sh_addr);
    }
}

/* Those that were met twice count once. */
static void sort_by_field(struct wrappers *s)
{
    size_t num = 0;

    if (s->num > 0)
        qsort(s->list, s->num, sizeof(*s->list), by_field);
    for (size_t i = 0; i < s->num; i++)
        if (num == 0 || s->list[i].field != s->list[num - 1].field)
            s->list[num++] = s->list[i];
    s->num = num;
}

static void relocate_all(struct wrappers *s)
{
    const struct images_elf *e = s->elf;
    struct images_range range;
    Elf64_Phdr p;
    Elf64_Shdr h;

    for (uint64_t i = 0; i < e->num_sections && s->num > 0 && !s->w->stopped; i++) {
        images_elf_section(e, i, &h);
        range = (struct images_range){ h.sh_offset, h.sh_size };
        if (h.sh_type == SHT_RELA && images_elf_lies(e, range.offset, range.bytes) &&
                images_spend(s->w, e->file->offset, range.bytes))
            relocate(s, &range);
    }
    for (uint64_t i = 0; i < e->num_segments && s->num > 0 && !s->w->stopped; i++) {
        images_elf_segment(e, i, &p);
        if (p.p_type == PT_DYNAMIC && images_spend(s->w, e->file->offset, p.p_filesz) &&
                find_relocations(e, &p, &range) &&
                images_spend(s->w, e->file->offset, range.bytes))
            relocate(s, &range);
    }
}

bool images_wrappers(struct images_walk *w, const struct images_elf *e,
        const struct images_range *known, size_t num_known, bool references)
{
    struct wrappers s = { .w = w, .elf = e };
    struct images_range range;
    bool any = false;

    if (e->header.e_type == ET_REL)
        return false; /* nothing has an address yet */
    collect_all(&s);
    sort_by_field(&s);
    relocate_all(&s);
    if (s.num > 0)
        qsort(s.list, s.num, sizeof(*s.list), by_pointer);
    for (size_t i = 0; i < s.num && !w->stopped; i++) {
        struct images_span part;

        if (!images_spend(w, e->file->offset, e->num_segments * sizeof(Elf64_Phdr)))
            break;
        if (s.list[i].pointer == 0 ||
                (i > 0 && s.list[i].pointer == s.list[i - 1].pointer) ||
                (s.list[i].kpack && !references) ||
                !find_address(e, s.list[i].pointer, &range) ||
                is_known(range.offset, known, num_known))
            continue;
        any = true;
        part = images_part(e->file, (size_t)range.offset, (size_t)range.bytes);
        read_target(w, &part, s.list[i].kpack);
    }
    free(s.list);
    return any;
}
