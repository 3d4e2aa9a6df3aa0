/* SPDX-License-Identifier: Apache-2.0 */
/* The metadata of a code object from version 3 on: a msgpack map. */
#include "document.h"
#include "internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    codeobj_tame(r->why);
    return -1;
}

/* A number of at most 32 bits; 0 where there is none, as older compilers write fewer. */
static uint32_t get_number(const msgpack_object *map, const char *key)
{
    const msgpack_object *value =
            document_get(map, key, MSGPACK_OBJECT_POSITIVE_INTEGER);

    if (value == NULL)
        return 0;
    return value->via.u64 > UINT32_MAX ? UINT32_MAX : (uint32_t)value->via.u64;
}

static enum codeobj_kind kind_of(const msgpack_object *text)
{
    static const char hidden[] = "hidden_";

    for (int kind = 0; kind < CODEOBJ_HIDDEN_OTHER; kind++)
        if (document_is_text(text, codeobj_kind_name((enum codeobj_kind)kind)))
            return (enum codeobj_kind)kind;
    if (text->via.str.size > sizeof(hidden) - 1 &&
            memcmp(text->via.str.ptr, hidden, sizeof(hidden) - 1) == 0)
        return CODEOBJ_HIDDEN_OTHER;
    return CODEOBJ_OTHER;
}

static int read_args(struct reader *r, const msgpack_object *map,
        struct codeobj_kernel *kernel)
{
    const msgpack_object *args = document_get(map, ".args", MSGPACK_OBJECT_ARRAY);

    if (args == NULL && document_has(map, ".args"))
        return refuse(r, "the .args of kernel '%.64s' are no list", kernel->name);
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
            kind = document_get(arg, ".value_kind", MSGPACK_OBJECT_STR);
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
        name = document_get(map, ".name", MSGPACK_OBJECT_STR);
    if (name == NULL)
        return refuse(r, "kernel %u has no .name", index);
    if (name->via.str.size >= CODEOBJ_NAME_MAX)
        return refuse(r, "kernel %u has a name of %u bytes, at most %d are read", index,
                name->via.str.size, CODEOBJ_NAME_MAX - 1);
    kernel->name = strndup(name->via.str.ptr, name->via.str.size);
    if (kernel->name == NULL)
        return refuse(r, "no memory for a name");
    r->out->num_kernels++; /* from here on codeobj_clear() knows it */
    dynamic = document_get(map, ".uses_dynamic_stack", MSGPACK_OBJECT_BOOLEAN);
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
    const msgpack_object *target =
            document_get(document, "amdhsa.target", MSGPACK_OBJECT_STR);
    char text[128];
    const char *part;

    if (target == NULL || r->out->declared[0] != 0)
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
    struct codeobj_kernel *all;
    const msgpack_object *kernels;
    size_t had;

    if (document->type != MSGPACK_OBJECT_MAP)
        return refuse(r, "not a map");
    read_declared(r, document);
    kernels = document_get(document, "amdhsa.kernels", MSGPACK_OBJECT_ARRAY);
    if (kernels == NULL)
        return refuse(r, "no list amdhsa.kernels");
    had = r->out->num_kernels;
    if (kernels->via.array.size > CODEOBJ_KERNELS_MAX - had)
        return refuse(r, "%zu kernels, at most %d are read",
                had + kernels->via.array.size, CODEOBJ_KERNELS_MAX);
    if (kernels->via.array.size == 0)
        return 0;
    all = realloc(r->out->kernels,
            (had + kernels->via.array.size) * sizeof(*r->out->kernels));
    if (all == NULL)
        return refuse(r, "no memory for %u kernels", kernels->via.array.size);
    memset(all + had, 0, kernels->via.array.size * sizeof(*all));
    r->out->kernels = all;
    for (uint32_t i = 0; i < kernels->via.array.size; i++)
        if (read_kernel(r, &kernels->via.array.ptr[i], i) != 0)
            return -1;
    return 0;
}

int codeobj_metadata(const void *data, size_t bytes, uint64_t offset,
        struct codeobj *out, char why[CODEOBJ_WHY_MAX])
{
    struct reader r = { out, offset, why };
    char problem[CODEOBJ_WHY_MAX];
    struct document document;
    int status;

    if (document_read(data, bytes, &document, problem))
        status = read_document(&r, &document.unpacked.data);
    else
        status = refuse(&r, "%s", problem);
    document_clear(&document);
    return status;
}
