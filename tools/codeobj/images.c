/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk through a file's images: what its bytes are, who reads them, and what it may
 * cost. Containers lie in containers, so readers call images_any() and images_entry()
 * again, to a fixed depth.
 */
#include "images_walk.h"
#include "internal.h"

#include <elf.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MACHINE_AMDGPU 224 /* newer than this <elf.h> */
#define MACHINE_AT     18u
/* Nothing is so small that its entries may not be parsed a few times. */
#define PARSE_LEAST (UINT64_C(1) << 20)

static const struct {
    enum images_content content;
    const char *magic;
    size_t bytes;
} magics[] = {
    { IMAGES_HOST, ELFMAG, SELFMAG },
    { IMAGES_BUNDLE, "__CLANG_OFFLOAD_BUNDLE__", 24 },
    { IMAGES_CCOB, "CCOB", 4 },
    { IMAGES_KPACK, "KPAK", 4 },
    { IMAGES_ARCHIVE, "!<arch>\n", 8 },
    { IMAGES_ARCHIVE, "!<thin>\n", 8 },
    { IMAGES_SPIRV, "\x03\x02\x23\x07", 4 },
    { IMAGES_BITCODE, "BC\xc0\xde", 4 },
    { IMAGES_BITCODE, "\xde\xc0\x17\x0b", 4 },
};

enum images_content images_sniff(const void *data, size_t bytes)
{
    const unsigned char *p = data;

    for (size_t i = 0; i < sizeof(magics) / sizeof(*magics); i++) {
        if (bytes < magics[i].bytes || memcmp(p, magics[i].magic, magics[i].bytes) != 0)
            continue;
        if (magics[i].content == IMAGES_HOST && bytes >= MACHINE_AT + 2 &&
                (p[MACHINE_AT] | p[MACHINE_AT + 1] << 8) == MACHINE_AMDGPU)
            return IMAGES_OBJECT;
        return magics[i].content;
    }
    return IMAGES_NOTHING;
}

const char *images_untold(enum images_content content)
{
    switch (content) {
    case IMAGES_SPIRV: return "SPIR-V, compiled where it is loaded: cannot be told";
    case IMAGES_BITCODE:
        return "LLVM bitcode, compiled where it is linked: cannot be told";
    default: return NULL;
    }
}

struct images_span images_part(const struct images_span *span, size_t at, size_t bytes)
{
    struct images_span part = *span;

    part.data += at;
    part.bytes = bytes;
    part.offset = images_where(span, at);
    return part;
}

uint64_t images_where(const struct images_span *span, size_t at)
{
    return span->unpacked ? span->offset : span->offset + at;
}

/* Begin a sentence about what lies at @p offset; how long it is. */
static int begin_why(const struct images_walk *w, uint64_t offset,
        char why[CODEOBJ_WHY_MAX])
{
    const char *within = w->within != NULL ? w->within : "";

    return snprintf(why, CODEOBJ_WHY_MAX, "%.100s%soffset %" PRIu64 ": ", within,
            w->within != NULL ? ": " : "", offset);
}

void images_problem(struct images_walk *w, uint64_t offset, const char *fmt, ...)
{
    char *why = w->result->why;
    va_list args;
    int used;

    if (why[0] != 0)
        return;
    used = begin_why(w, offset, why);
    va_start(args, fmt);
    (void)vsnprintf(why + used, CODEOBJ_WHY_MAX - (size_t)used, fmt, args);
    va_end(args);
    codeobj_tame(why);
}

bool images_enter(struct images_walk *w, const char *name, uint64_t offset,
        size_t *state)
{
    const size_t used = strlen(w->chain);

    if (w->depth == IMAGES_DEPTH_MAX) {
        images_problem(w, offset, "containers lie in each other more than %d deep",
                IMAGES_DEPTH_MAX);
        return false;
    }
    w->depth++;
    *state = used;
    snprintf(w->chain + used, sizeof(w->chain) - used, "%s%s", used > 0 ? "/" : "",
            name);
    return true;
}

void images_leave(struct images_walk *w, size_t state)
{
    w->depth--;
    w->chain[state] = 0;
}

static void hand_over(struct images_walk *w, struct image *image)
{
    if (w->stopped)
        return;
    if (w->result->images == IMAGES_MAX) {
        images_problem(w, image->offset, "more than %u images, the rest is left out",
                IMAGES_MAX);
        w->stopped = true;
        return;
    }
    image->container = w->chain[0] != 0 ? w->chain : w->result->container;
    image->member = w->member;
    image->holder = w->holder;
    codeobj_tame(image->target);
    w->result->images++;
    w->result->unread += image->object == NULL;
    if (!w->visit(image, w->arg))
        w->stopped = true;
}

void images_unread(struct images_walk *w, uint64_t offset, uint64_t bytes,
        const char *target, const char *sha256, const char *fmt, ...)
{
    struct image image = { .offset = offset, .bytes = bytes };
    char why[CODEOBJ_WHY_MAX];
    int used = begin_why(w, offset, why);
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(why + used, sizeof(why) - (size_t)used, fmt, args);
    va_end(args);
    codeobj_tame(why);
    image.why = why;
    snprintf(image.target, sizeof(image.target), "%s", target);
    snprintf(image.sha256, sizeof(image.sha256), "%s", sha256 != NULL ? sha256 : "");
    hand_over(w, &image);
}

void images_give_back(const struct images_span *span, size_t from, size_t to)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = (uintptr_t)(span->data + from) & ~(page - 1);
    const uintptr_t end = (uintptr_t)(span->data + to) & ~(page - 1);

    if (span->mapped && end > begin)
        (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

static void hash(const struct images_span *span, char text[SHA256_TEXT])
{
    struct sha256 s;

    sha256_start(&s);
    for (size_t at = 0; at < span->bytes; at += IMAGES_STEP) {
        const size_t left = span->bytes - at;
        const size_t bytes = left < IMAGES_STEP ? left : IMAGES_STEP;

        sha256_add(&s, span->data + at, bytes);
        images_give_back(span, at, at + bytes);
    }
    sha256_end(&s, text);
}

bool images_spend(struct images_walk *w, uint64_t offset, uint64_t bytes)
{
    if (w->parse_left >= bytes) {
        w->parse_left -= bytes;
        return true;
    }
    images_problem(w, offset,
            "its entries name more than %d times the bytes that are there, the rest is "
            "left out",
            IMAGES_PARSE_FACTOR);
    w->stopped = true;
    return false;
}

static enum image_class class_of(const struct codeobj *object)
{
    if (codeobj_count(object, CODEOBJ_HOSTCALL_BUFFER) == 0)
        return IMAGE_NO_HOSTCALL;
    if (object->makes_hostcall)
        return IMAGE_REAL;
    return object->has_symbols ? IMAGE_CONSERVATIVE : IMAGE_STRIPPED;
}

void images_object(struct images_walk *w, const struct images_span *span,
        const char *target)
{
    struct image image = { .offset = span->offset, .bytes = span->bytes };
    struct codeobj object;
    char why[CODEOBJ_WHY_MAX];
    bool good;

    if (w->stopped || !images_spend(w, span->offset, span->bytes))
        return;
    good = codeobj_read(span->data, span->bytes, &object, why) == 0;
    hash(span, image.sha256);
    if (!good && w->depth == 0) {
        images_problem(w, image.offset, "%s", why); /* the file itself */
        codeobj_clear(&object);
        return;
    }
    if (!good) {
        images_unread(w, image.offset, image.bytes, target, image.sha256, "%s", why);
        codeobj_clear(&object);
        return;
    }
    image.object = &object;
    image.class = class_of(&object);
    if (strncmp(object.target.text, "gfx", 3) == 0)
        target = object.target.text;
    else if (object.declared[0] != 0)
        target = object.declared; /* a vendor's GPU */
    snprintf(image.target, sizeof(image.target), "%s", target);
    hand_over(w, &image);
    codeobj_clear(&object);
}

void images_entry(struct images_walk *w, const struct images_span *span,
        const char *target)
{
    const enum images_content content = images_sniff(span->data, span->bytes);
    char digest[SHA256_TEXT];

    if (w->stopped)
        return;
    switch (content) {
    case IMAGES_OBJECT:
    case IMAGES_HOST: images_object(w, span, target); return;
    case IMAGES_BUNDLE:
    case IMAGES_CCOB: images_fatbin(w, span); return;
    default: break;
    }
    if (!images_spend(w, span->offset, span->bytes))
        return;
    hash(span, digest);
    images_unread(w, span->offset, span->bytes, target, digest, "%s",
            images_untold(content) != NULL ? images_untold(content)
                                           : "neither an ELF file nor SPIR-V");
}

void images_any(struct images_walk *w, const struct images_span *span)
{
    if (w->stopped)
        return;
    w->holder = span->offset;
    switch (images_sniff(span->data, span->bytes)) {
    case IMAGES_OBJECT: images_object(w, span, ""); break;
    case IMAGES_HOST: images_host(w, span); break;
    case IMAGES_BUNDLE:
    case IMAGES_CCOB: images_fatbin(w, span); break;
    case IMAGES_KPACK: (void)images_kpack(w, span, NULL); break;
    case IMAGES_ARCHIVE: images_archive(w, span); break;
    case IMAGES_SPIRV: images_entry(w, span, ""); break;
    default: break;
    }
}

static const char *container_name(enum images_content content)
{
    switch (content) {
    case IMAGES_OBJECT: return "code object";
    case IMAGES_HOST: return "elf";
    case IMAGES_BUNDLE: return "bundle";
    case IMAGES_CCOB: return "ccob";
    case IMAGES_KPACK: return "kpack";
    case IMAGES_ARCHIVE: return "archive";
    case IMAGES_SPIRV: return "spirv";
    default: return NULL;
    }
}

void images_allow(struct images_walk *w, size_t bytes)
{
    const uint64_t left = IMAGES_TOTAL_MAX - w->unpack_granted;
    const uint64_t grant =
            bytes > left / SOURCE_RATIO_MAX ? left : bytes * SOURCE_RATIO_MAX;

    w->parse_left += (uint64_t)bytes * IMAGES_PARSE_FACTOR;
    w->unpack_left += grant;
    w->unpack_granted += grant;
}

static void walk_file(struct images_walk *w, const struct images_span *span)
{
    w->parse_left = PARSE_LEAST;
    w->unpack_left = w->unpack_granted = SOURCE_SMALL;
    images_allow(w, span->bytes);
    w->result->container = container_name(images_sniff(span->data, span->bytes));
    images_any(w, span);
}

void images_read(const void *data, size_t bytes, const char *path, image_visitor *visit,
        void *arg, struct images_result *result)
{
    const struct images_span span = { .data = data, .bytes = bytes };
    struct images_walk w = { .visit = visit,
        .arg = arg,
        .result = result,
        .path = path };

    memset(result, 0, sizeof(*result));
    walk_file(&w, &span);
}

static void walk_mapped(const struct images_span *span, void *arg)
{
    walk_file(arg, span);
}

int images_open(const char *path, image_visitor *visit, void *arg,
        struct images_result *result)
{
    struct images_walk w = { .visit = visit,
        .arg = arg,
        .result = result,
        .path = path };

    memset(result, 0, sizeof(*result));
    return images_with_file(path, walk_mapped, &w, result->why);
}
