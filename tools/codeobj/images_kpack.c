/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kpack archives: images of several libraries, each under "LIBRARY#INDEX" and the GPU that
 * it is for, stored or packed one by one. A library names the archives that hold its own.
 */
#include "document.h"
#include "images_walk.h"
#include "internal.h"

#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define HEADER_BYTES 16u
#define VERSION      1u
#define ARCH_MARK    "@GFXARCH@"
#define MARKS_MAX    2u /* in a path: what it stands for is looked for in folders */
#define PATHS_MAX    64u
#define ARCHIVES_MAX 256u

/* An archive, opened. */
struct kpack {
    struct images_walk *w;
    const struct images_span *span;
    const msgpack_object *root;
    const msgpack_object *blobs; /* stored ones              */
    uint64_t *frames; /* packed ones: where each begins, its size before it */
    uint32_t num_frames;
    bool packed;
    uint64_t images;
};

static bool number_of(const msgpack_object *map, const char *key, uint64_t *out)
{
    const msgpack_object *value = NULL;

    if (map->type == MSGPACK_OBJECT_MAP)
        value = document_get(map, key, MSGPACK_OBJECT_POSITIVE_INTEGER);
    if (value != NULL)
        *out = value->via.u64;
    return value != NULL;
}

/* Printable text of at most room − 1 bytes. */
static void copy_text(const msgpack_object *text, char *to, size_t room)
{
    const size_t length = text->via.str.size < room - 1 ? text->via.str.size : room - 1;

    memcpy(to, text->via.str.ptr, length);
    to[length] = 0;
    codeobj_tame(to);
}

/* The frames' beginnings: a number, then a size before each. */
static const char *index_frames(struct kpack *k)
{
    const struct images_span *span = k->span;
    uint64_t offset, bytes, count, at = 4;

    if (!number_of(k->root, "zstd_offset", &offset) ||
            !number_of(k->root, "zstd_size", &bytes))
        return "a kpack archive without zstd_offset or zstd_size";
    if (offset > span->bytes || bytes > span->bytes - offset || bytes < 4)
        return "a kpack archive whose packed images are cut off";
    count = images_little(span->data + offset, 4);
    if (count > bytes / 4)
        return "a kpack archive that claims more images than it holds";
    k->frames = calloc((size_t)count + 1, sizeof(*k->frames));
    if (k->frames == NULL)
        return "no memory for a kpack archive's list of images";
    for (; k->num_frames < count; k->num_frames++) {
        uint64_t size;

        if (bytes - at < 4)
            break;
        size = images_little(span->data + offset + at, 4);
        if (size > bytes - at - 4)
            break;
        k->frames[k->num_frames] = offset + at;
        at += 4 + size;
    }
    return NULL;
}

static void read_frame(struct kpack *k, uint64_t ordinal, const msgpack_object *image,
        const char *target)
{
    struct images_walk *w = k->w;
    const uint64_t at = ordinal < k->num_frames ? k->frames[ordinal] : 0;
    struct source s;
    uint64_t bytes;

    if (at == 0 || !number_of(image, "original_size", &bytes)) {
        images_problem(w, k->span->offset,
                "packed image %" PRIu64 " of a kpack archive of %" PRIu32
                ", for '%s', is not there, or has no size",
                ordinal, k->num_frames, target);
        return;
    }
    if (source_open(&s, SOURCE_ZSTD, k->span->data + at + 4,
                images_little(k->span->data + at, 4), w->unpack_left))
        images_unpack(w, &s, images_where(k->span, (size_t)at), bytes, target);
    else
        images_problem(w, images_where(k->span, (size_t)at), "the image for '%s': %s",
                target, s.why);
    images_pay(w, &s);
}

static void read_blob(struct kpack *k, uint64_t ordinal, const char *target)
{
    const msgpack_object *blob = NULL;
    struct images_span part;
    uint64_t offset, bytes;

    if (k->blobs != NULL && ordinal < k->blobs->via.array.size)
        blob = &k->blobs->via.array.ptr[ordinal];
    if (blob == NULL || !number_of(blob, "offset", &offset) ||
            !number_of(blob, "size", &bytes) || offset > k->span->bytes ||
            bytes > k->span->bytes - offset) {
        images_problem(k->w, k->span->offset,
                "image %" PRIu64
                " of a kpack archive, for '%s', is not there, or is cut "
                "off",
                ordinal, target);
        return;
    }
    part = images_part(k->span, (size_t)offset, (size_t)bytes);
    images_entry(k->w, &part, target);
}

/* All of one binary's: GPU → image. */
static void read_binary(struct kpack *k, const msgpack_object *key,
        const msgpack_object *archs)
{
    copy_text(key, k->w->member, sizeof(k->w->member));
    for (uint32_t i = 0; i < archs->via.map.size && !k->w->stopped; i++) {
        const msgpack_object_kv *pair = &archs->via.map.ptr[i];
        char target[CODEOBJ_TARGET_MAX] = "";
        uint64_t ordinal;

        k->images++;
        if (pair->key.type == MSGPACK_OBJECT_STR)
            copy_text(&pair->key, target, sizeof(target));
        if (!number_of(&pair->val, "ordinal", &ordinal))
            images_problem(k->w, k->span->offset,
                    "an image of a kpack archive, for '%s', has no ordinal", target);
        else if (k->packed)
            read_frame(k, ordinal, &pair->val, target);
        else
            read_blob(k, ordinal, target);
    }
    k->w->member[0] = 0;
}

/* Whether @p key, "LIBRARY#INDEX", is of the library @p name. */
static bool is_of(const msgpack_object *key, const char *name)
{
    const size_t length = strlen(name);

    return key->via.str.size >= length && memcmp(key->via.str.ptr, name, length) == 0 &&
            (key->via.str.size == length || key->via.str.ptr[length] == '#');
}

static const char *read_toc(struct kpack *k, const char *name)
{
    const msgpack_object *toc, *scheme;
    const char *why = NULL;
    size_t state;

    if (k->root->type != MSGPACK_OBJECT_MAP)
        return "a kpack archive whose list of images is no map";
    toc = document_get(k->root, "toc", MSGPACK_OBJECT_MAP);
    scheme = document_get(k->root, "compression_scheme", MSGPACK_OBJECT_STR);
    k->blobs = document_get(k->root, "blobs", MSGPACK_OBJECT_ARRAY);
    if (toc == NULL || scheme == NULL)
        return "a kpack archive without toc or compression_scheme";
    k->packed = document_is_text(scheme, "zstd-per-kernel");
    if (!k->packed && !document_is_text(scheme, "none"))
        return "a kpack archive of a compression_scheme that is not read, need none or "
               "zstd-per-kernel";
    if (k->packed)
        why = index_frames(k);
    if (why != NULL ||
            !images_enter(k->w, k->packed ? "kpack zstd" : "kpack none",
                    k->span->offset, &state))
        return why;
    for (uint32_t i = 0; i < toc->via.map.size && !k->w->stopped; i++) {
        const msgpack_object_kv *pair = &toc->via.map.ptr[i];

        if (pair->key.type == MSGPACK_OBJECT_STR &&
                pair->val.type == MSGPACK_OBJECT_MAP &&
                (name == NULL || is_of(&pair->key, name)))
            read_binary(k, &pair->key, &pair->val);
    }
    images_leave(k->w, state);
    return NULL;
}

uint64_t images_kpack(struct images_walk *w, const struct images_span *span,
        const char *name)
{
    struct kpack k = { .w = w, .span = span };
    char problem[CODEOBJ_WHY_MAX];
    struct document document;
    const char *why;
    uint64_t toc;

    if (span->bytes < HEADER_BYTES || images_little(span->data + 4, 4) != VERSION) {
        images_problem(w, span->offset,
                "a kpack archive that is cut off, or not of "
                "version 1");
        return 0;
    }
    toc = images_little(span->data + 8, 8);
    if (toc < HEADER_BYTES || toc >= span->bytes) {
        images_problem(w, span->offset,
                "a kpack archive whose list of images is said to lie at %" PRIu64
                ", it has %zu bytes",
                toc, span->bytes);
        return 0;
    }
    if (!images_spend(w, span->offset, span->bytes - toc))
        return 0;
    if (document_read(span->data + toc, span->bytes - (size_t)toc, &document,
                problem)) {
        k.root = &document.unpacked.data;
        why = read_toc(&k, name);
        if (why != NULL)
            images_problem(w, span->offset, "%s", why);
    } else
        images_problem(w, images_where(span, (size_t)toc),
                "a kpack archive's list of images: %s", problem);
    document_clear(&document);
    free(k.frames);
    return k.images;
}

/*
 * References.
 */

struct reference {
    struct images_walk *w;
    char name[IMAGES_NAME_MAX];
    char pattern[2 * PATH_MAX]; /* that was looked for last */
    uint64_t images;
    unsigned archives; /* that were there */
    struct {
        dev_t device;
        ino_t inode;
    } seen[ARCHIVES_MAX];
};

static void read_archive(const struct images_span *span, void *arg)
{
    struct reference *r = arg;
    struct images_walk *w = r->w;

    if (images_sniff(span->data, span->bytes) != IMAGES_KPACK) {
        images_problem(w, 0, "no kpack archive");
        return;
    }
    images_allow(w, span->bytes);
    r->images += images_kpack(w, span, r->name);
}

static bool is_new(struct reference *r, const char *path)
{
    struct stat st;

    if (stat(path, &st) != 0 || r->archives == ARCHIVES_MAX)
        return false;
    for (unsigned i = 0; i < r->archives; i++)
        if (r->seen[i].device == st.st_dev && r->seen[i].inode == st.st_ino)
            return false;
    r->seen[r->archives].device = st.st_dev;
    r->seen[r->archives++].inode = st.st_ino;
    return true;
}

/* Whether there is room for @p bytes more, then they are put there. */
static bool put(char *to, size_t room, size_t *used, const char *what, size_t bytes)
{
    if (bytes >= room - *used)
        return false;
    memcpy(to + *used, what, bytes);
    *used += bytes;
    to[*used] = 0;
    return true;
}

/* Put text of a path there of which nothing is a pattern. */
static bool put_plain(char *to, size_t room, size_t *used, const char *what,
        size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        const char escaped[2] = { '\\', what[i] };
        const bool special = strchr("*?[\\", what[i]) != NULL;

        if (!put(to, room, used, special ? escaped : &what[i], special ? 2 : 1))
            return false;
    }
    return true;
}

/* The pattern of the files that @p path names, from the folder of the library on. */
static bool make_pattern(const char *library, const char *path, char *to, size_t room)
{
    const char *slash = strrchr(library, '/'), *mark;
    unsigned marks = 0;
    size_t used = 0;

    to[0] = 0;
    if (path[0] != '/' && slash != NULL &&
            !put_plain(to, room, &used, library, (size_t)(slash + 1 - library)))
        return false;
    while ((mark = strstr(path, ARCH_MARK)) != NULL) {
        if (marks++ == MARKS_MAX ||
                !put_plain(to, room, &used, path, (size_t)(mark - path)) ||
                !put(to, room, &used, "*", 1))
            return false;
        path = mark + strlen(ARCH_MARK);
    }
    return put_plain(to, room, &used, path, strlen(path));
}

static void read_matches(struct reference *r, const char *pattern)
{
    struct images_walk *w = r->w;
    glob_t found = { 0 };

    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc && !w->stopped; i++) {
            char why[CODEOBJ_WHY_MAX];

            if (!is_new(r, found.gl_pathv[i]))
                continue;
            w->within = found.gl_pathv[i];
            if (images_with_file(found.gl_pathv[i], read_archive, r, why) != 0)
                images_problem(w, 0, "%s", why);
            w->within = NULL;
        }
    globfree(&found);
}

/* The archives of a list of the runtime's, "a.kpack:b.kpack". */
static void follow_list(struct reference *r, const char *list)
{
    char pattern[2 * PATH_MAX], path[PATH_MAX];

    while (list != NULL && *list != 0 && !r->w->stopped) {
        const size_t length = strcspn(list, ":");

        snprintf(path, sizeof(path), "%.*s", (int)(length < PATH_MAX ? length : 0),
                list);
        if (path[0] != 0 && make_pattern("", path, pattern, sizeof(pattern)))
            read_matches(r, pattern);
        list += length + (list[length] == ':');
    }
}

/* The archives that the library itself names, as seen from where @p library is. */
static void follow_paths(struct reference *r, const msgpack_object *paths,
        const char *library)
{
    char path[PATH_MAX];

    for (uint32_t i = 0; i < paths->via.array.size && i < PATHS_MAX; i++) {
        const msgpack_object *text = &paths->via.array.ptr[i];

        if (text->type != MSGPACK_OBJECT_STR || r->w->stopped)
            continue;
        copy_text(text, path, sizeof(path));
        if (make_pattern(library, path, r->pattern, sizeof(r->pattern)))
            read_matches(r, r->pattern);
    }
}

static void follow(struct reference *r, const msgpack_object *paths, uint64_t offset)
{
    const char *instead = getenv("ROCM_KPACK_PATH");
    char real[PATH_MAX];

    /* As the runtime has it: one list before all, one instead of what the library says. */
    follow_list(r, getenv("ROCM_KPACK_PATH_PREFIX"));
    if (instead != NULL && *instead != 0) {
        follow_list(r, instead);
        snprintf(r->pattern, sizeof(r->pattern), "ROCM_KPACK_PATH=%s", instead);
    } else
        follow_paths(r, paths, r->w->path);
    if (r->archives == 0 && (instead == NULL || *instead == 0) &&
            realpath(r->w->path, real) != NULL)
        follow_paths(r, paths, real);
    if (r->archives == 0)
        images_problem(r->w, offset,
                "its code is in kpack archives that are not there: %.150s", r->pattern);
    else if (r->images == 0)
        images_problem(r->w, offset,
                "its code is in kpack archives, of %u of which none has any of "
                "'%.100s'",
                r->archives, r->name);
}

void images_kpack_reference(struct images_walk *w, const struct images_span *span)
{
    const msgpack_object *name = NULL, *paths = NULL;
    char problem[CODEOBJ_WHY_MAX] = "it has no kernel_name or kpack_search_paths";
    struct reference *r = calloc(1, sizeof(*r));
    struct document document;

    if (r == NULL || !images_spend(w, span->offset, span->bytes)) {
        free(r);
        return;
    }
    r->w = w;
    if (document_read(span->data, span->bytes, &document, problem) &&
            document.unpacked.data.type == MSGPACK_OBJECT_MAP) {
        name = document_get(&document.unpacked.data, "kernel_name", MSGPACK_OBJECT_STR);
        paths = document_get(&document.unpacked.data, "kpack_search_paths",
                MSGPACK_OBJECT_ARRAY);
    }
    if (name == NULL || paths == NULL)
        images_problem(w, span->offset, "its reference to kpack archives: %s", problem);
    else if (w->path == NULL)
        images_problem(w, span->offset, "its code is in kpack archives");
    else {
        copy_text(name, r->name, sizeof(r->name));
        follow(r, paths, span->offset);
    }
    document_clear(&document);
    free(r);
}
