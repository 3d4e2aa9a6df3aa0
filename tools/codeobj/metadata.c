/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metadata of a code object: a msgpack map. msgpack-c makes a tree of it and asks for
 * as much memory as an array claims to need, so the document is walked once before: then
 * it holds what it claims, and is no deeper than metadata is.
 */
#include "internal.h"

#include <inttypes.h>
#include <msgpack.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* LLVM writes five levels: document, kernels, kernel, arguments, argument. */
#define DEPTH_MAX 16
/* Of the largest libraries' objects it is a tenth. */
#define DOCUMENT_MAX ((size_t)64 << 20)

/*
 * The walk.
 */

struct walk {
    const uint8_t *data;
    size_t bytes, at;
};

/* The next @p bytes as a big-endian number; false at the end of the data. */
static bool take(struct walk *w, size_t bytes, uint64_t *out)
{
    uint64_t value = 0;

    if (bytes > w->bytes - w->at)
        return false;
    for (size_t i = 0; i < bytes; i++)
        value = value << 8 | w->data[w->at++];
    *out = value;
    return true;
}

static bool skip(struct walk *w, uint64_t bytes)
{
    if (bytes > w->bytes - w->at)
        return false;
    w->at += (size_t)bytes;
    return true;
}

/* What follows a first byte from 0xc4 to 0xdf: how many bytes hold a length, and of what. */
enum shape { INVALID, PLAIN, TEXT, EXTENSION, ARRAY, MAP };
static const struct {
    uint8_t shape, length_bytes, plain_bytes;
} formats[256] = {
    [0xc0] = { PLAIN, 0, 0 }, /* nil, false, true */
    [0xc2] = { PLAIN, 0, 0 },
    [0xc3] = { PLAIN, 0, 0 },
    [0xc4] = { TEXT, 1, 0 }, /* bin */
    [0xc5] = { TEXT, 2, 0 },
    [0xc6] = { TEXT, 4, 0 },
    [0xc7] = { EXTENSION, 1, 0 },
    [0xc8] = { EXTENSION, 2, 0 },
    [0xc9] = { EXTENSION, 4, 0 },
    [0xca] = { PLAIN, 0, 4 }, /* float, unsigned, signed */
    [0xcb] = { PLAIN, 0, 8 },
    [0xcc] = { PLAIN, 0, 1 },
    [0xcd] = { PLAIN, 0, 2 },
    [0xce] = { PLAIN, 0, 4 },
    [0xcf] = { PLAIN, 0, 8 },
    [0xd0] = { PLAIN, 0, 1 },
    [0xd1] = { PLAIN, 0, 2 },
    [0xd2] = { PLAIN, 0, 4 },
    [0xd3] = { PLAIN, 0, 8 },
    [0xd4] = { PLAIN, 0, 2 }, /* extensions of a fixed size, with their type */
    [0xd5] = { PLAIN, 0, 3 },
    [0xd6] = { PLAIN, 0, 5 },
    [0xd7] = { PLAIN, 0, 9 },
    [0xd8] = { PLAIN, 0, 17 },
    [0xd9] = { TEXT, 1, 0 }, /* str */
    [0xda] = { TEXT, 2, 0 },
    [0xdb] = { TEXT, 4, 0 },
    [0xdc] = { ARRAY, 2, 0 },
    [0xdd] = { ARRAY, 4, 0 },
    [0xde] = { MAP, 2, 0 },
    [0xdf] = { MAP, 4, 0 },
};

/* One value without its members, whose number goes into *@p members. */
static bool walk_value(struct walk *w, uint64_t *members)
{
    uint64_t first, length = 0;
    unsigned byte;

    *members = 0;
    if (!take(w, 1, &first))
        return false;
    byte = (unsigned)first;
    if (byte < 0x80 || byte >= 0xe0) /* a small number */
        return true;
    if (byte < 0x90) {
        *members = 2 * (uint64_t)(byte & 0x0f);
        return true;
    }
    if (byte < 0xa0) {
        *members = byte & 0x0f;
        return true;
    }
    if (byte < 0xc0)
        return skip(w, byte & 0x1f);
    if (!take(w, formats[byte].length_bytes, &length))
        return false;
    switch (formats[byte].shape) {
    case PLAIN: return skip(w, formats[byte].plain_bytes);
    case TEXT: return skip(w, length);
    case EXTENSION: return skip(w, length + 1);
    case ARRAY: *members = length; return true;
    case MAP: *members = 2 * length; return true;
    default: return false;
    }
}

/* Why the document is not one, or NULL; w->at is where. Each member takes a byte at least. */
static const char *walk_document(struct walk *w)
{
    uint64_t left[DEPTH_MAX], members;
    int depth = 0;

    left[0] = 1;
    while (depth >= 0) {
        if (left[depth] == 0) {
            depth--;
            continue;
        }
        left[depth]--;
        if (!walk_value(w, &members))
            return "ends early or holds what is no msgpack";
        if (members > w->bytes - w->at)
            return "claims more than it holds";
        if (members == 0)
            continue;
        if (++depth == DEPTH_MAX)
            return "is nested too deep";
        left[depth] = members;
    }
    return NULL;
}

/*
 * The tree.
 */

struct reader {
    struct codeobj *out;
    uint64_t offset;
    char *why;
};

__attribute__((format(printf, 2, 3))) static int refuse(struct reader *r,
        const char *fmt, ...)
{
    int used = snprintf(r->why, CODEOBJ_WHY_MAX, "metadata at offset %" PRIu64 ": ",
            r->offset);
    va_list args;

    va_start(args, fmt);
    if (used > 0 && used < CODEOBJ_WHY_MAX)
        (void)vsnprintf(r->why + used, CODEOBJ_WHY_MAX - (size_t)used, fmt, args);
    va_end(args);
    /* Names come from files: nothing of them may command a terminal. */
    for (char *c = r->why; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    return -1;
}

static bool is_text(const msgpack_object *object, const char *text)
{
    size_t length = strlen(text);

    return object->type == MSGPACK_OBJECT_STR && object->via.str.size == length &&
            memcmp(object->via.str.ptr, text, length) == 0;
}

/* The value of @p key, of @p type; NULL if there is none or of another type. */
static const msgpack_object *get(const msgpack_object *map, const char *key,
        msgpack_object_type type)
{
    for (uint32_t i = 0; i < map->via.map.size; i++) {
        const msgpack_object_kv *pair = &map->via.map.ptr[i];

        if (is_text(&pair->key, key))
            return pair->val.type == type ? &pair->val : NULL;
    }
    return NULL;
}

/* A number of at most 32 bits; 0 where there is none, as older compilers write fewer. */
static uint32_t get_number(const msgpack_object *map, const char *key)
{
    const msgpack_object *value = get(map, key, MSGPACK_OBJECT_POSITIVE_INTEGER);

    if (value == NULL)
        return 0;
    return value->via.u64 > UINT32_MAX ? UINT32_MAX : (uint32_t)value->via.u64;
}

static enum codeobj_kind kind_of(const msgpack_object *text)
{
    static const char hidden[] = "hidden_";

    for (int kind = 0; kind < CODEOBJ_HIDDEN_OTHER; kind++)
        if (is_text(text, codeobj_kind_name((enum codeobj_kind)kind)))
            return (enum codeobj_kind)kind;
    if (text->via.str.size > sizeof(hidden) - 1 &&
            memcmp(text->via.str.ptr, hidden, sizeof(hidden) - 1) == 0)
        return CODEOBJ_HIDDEN_OTHER;
    return CODEOBJ_OTHER;
}

static int read_args(struct reader *r, const msgpack_object *map,
        struct codeobj_kernel *kernel)
{
    const msgpack_object *args = get(map, ".args", MSGPACK_OBJECT_ARRAY);

    if (args == NULL || args->via.array.size == 0)
        return 0;
    if (args->via.array.size > CODEOBJ_ARGS_MAX)
        return refuse(r, "kernel '%.64s' has %u arguments, at most %d are read",
                kernel->name, args->via.array.size, CODEOBJ_ARGS_MAX);
    kernel->args = calloc(args->via.array.size, sizeof(*kernel->args));
    if (kernel->args == NULL)
        return refuse(r, "no memory for %u arguments", args->via.array.size);
    for (uint32_t i = 0; i < args->via.array.size; i++) {
        const msgpack_object *arg = &args->via.array.ptr[i], *kind = NULL;
        struct codeobj_arg *out = &kernel->args[kernel->num_args];

        if (arg->type == MSGPACK_OBJECT_MAP)
            kind = get(arg, ".value_kind", MSGPACK_OBJECT_STR);
        if (kind == NULL)
            return refuse(r, "argument %u of kernel '%.64s' has no .value_kind", i,
                    kernel->name);
        out->kind = kind_of(kind);
        out->offset = get_number(arg, ".offset");
        out->bytes = get_number(arg, ".size");
        kernel->kinds |= UINT64_C(1) << out->kind;
        kernel->num_hidden += codeobj_kind_hidden(out->kind);
        kernel->num_args++;
    }
    return 0;
}

static int read_kernel(struct reader *r, const msgpack_object *map, uint32_t index)
{
    struct codeobj_kernel *kernel = &r->out->kernels[r->out->num_kernels];
    const msgpack_object *name = NULL, *dynamic;

    if (map->type == MSGPACK_OBJECT_MAP)
        name = get(map, ".name", MSGPACK_OBJECT_STR);
    if (name == NULL)
        return refuse(r, "kernel %u has no .name", index);
    if (name->via.str.size >= CODEOBJ_NAME_MAX)
        return refuse(r, "kernel %u has a name of %u bytes, at most %d are read", index,
                name->via.str.size, CODEOBJ_NAME_MAX - 1);
    kernel->name = strndup(name->via.str.ptr, name->via.str.size);
    if (kernel->name == NULL)
        return refuse(r, "no memory for a name");
    r->out->num_kernels++; /* from here on codeobj_clear() knows it */
    dynamic = get(map, ".uses_dynamic_stack", MSGPACK_OBJECT_BOOLEAN);
    kernel->dynamic_stack = dynamic != NULL && dynamic->via.boolean;
    kernel->kernarg_bytes = get_number(map, ".kernarg_segment_size");
    kernel->lds_bytes = get_number(map, ".group_segment_fixed_size");
    kernel->scratch_bytes = get_number(map, ".private_segment_fixed_size");
    kernel->wavefront = get_number(map, ".wavefront_size");
    kernel->max_workgroup = get_number(map, ".max_flat_workgroup_size");
    kernel->sgprs = get_number(map, ".sgpr_count");
    kernel->vgprs = get_number(map, ".vgpr_count");
    kernel->agprs = get_number(map, ".agpr_count");
    kernel->sgpr_spills = get_number(map, ".sgpr_spill_count");
    kernel->vgpr_spills = get_number(map, ".vgpr_spill_count");
    return read_args(r, map, kernel);
}

/* "amdgcn-amd-amdhsa--gfx90a:xnack-": what follows the last "--". */
static void read_declared(struct reader *r, const msgpack_object *document)
{
    const msgpack_object *target = get(document, "amdhsa.target", MSGPACK_OBJECT_STR);
    char text[128];
    const char *part;

    if (target == NULL)
        return;
    snprintf(text, sizeof(text), "%.*s",
            target->via.str.size < sizeof(text) ? (int)target->via.str.size
                                                : (int)sizeof(text) - 1,
            target->via.str.ptr);
    part = strstr(text, "--");
    snprintf(r->out->declared, sizeof(r->out->declared), "%.63s",
            part != NULL ? part + 2 : text);
}

static int read_document(struct reader *r, const msgpack_object *document)
{
    const msgpack_object *kernels;

    if (document->type != MSGPACK_OBJECT_MAP)
        return refuse(r, "not a map");
    read_declared(r, document);
    kernels = get(document, "amdhsa.kernels", MSGPACK_OBJECT_ARRAY);
    if (kernels == NULL)
        return refuse(r, "no list amdhsa.kernels");
    if (kernels->via.array.size > CODEOBJ_KERNELS_MAX)
        return refuse(r, "%u kernels, at most %d are read", kernels->via.array.size,
                CODEOBJ_KERNELS_MAX);
    if (kernels->via.array.size == 0)
        return 0;
    r->out->kernels = calloc(kernels->via.array.size, sizeof(*r->out->kernels));
    if (r->out->kernels == NULL)
        return refuse(r, "no memory for %u kernels", kernels->via.array.size);
    for (uint32_t i = 0; i < kernels->via.array.size; i++)
        if (read_kernel(r, &kernels->via.array.ptr[i], i) != 0)
            return -1;
    return 0;
}

int codeobj_metadata(const void *data, size_t bytes, uint64_t offset,
        struct codeobj *out, char why[CODEOBJ_WHY_MAX])
{
    struct reader r = { out, offset, why };
    struct walk w = { data, bytes, 0 };
    msgpack_unpacked unpacked;
    const char *problem;
    size_t end = 0;
    int status;

    if (bytes > DOCUMENT_MAX)
        return refuse(&r, "%zu bytes, at most %zu are read", bytes, DOCUMENT_MAX);
    problem = walk_document(&w);
    if (problem != NULL)
        return refuse(&r, "%s, at byte %zu of %zu", problem, w.at, bytes);
    msgpack_unpacked_init(&unpacked);
    if (msgpack_unpack_next(&unpacked, data, bytes, &end) != MSGPACK_UNPACK_SUCCESS)
        status = refuse(&r, "msgpack-c cannot read it, or there is no memory");
    else
        status = read_document(&r, &unpacked.data);
    msgpack_unpacked_destroy(&unpacked);
    return status;
}
