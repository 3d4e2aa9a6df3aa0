/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metadata of version 2, as compilers wrote it: YAML of one "Key: value" a line, lists
 * of "- " items, deeper ones indented more. Flow sequences are skipped with their line.
 */
#include "internal.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DOCUMENT_MAX ((size_t)64 << 20)

/* A line without what surrounds it. */
struct line {
    size_t indent; /* of the key, "- " included */
    bool item;     /* it begins an item         */
    const char *key, *value;
    size_t key_bytes, value_bytes;
};

struct yaml {
    struct codeobj *out;
    const char *at, *end;
    uint64_t offset;
    char *why;
    size_t kernels_indent; /* of their keys; 0: not among kernels      */
    size_t args_indent;    /* of the arguments' keys; 0: not among them */
    bool args;             /* "Args:" was the last key                  */
    bool begun;            /* a kernel                             */
    size_t room_kernels, room_args;
    uint32_t align, arg_end;
};

static int refuse(struct yaml *y, const char *problem)
{
    snprintf(y->why, CODEOBJ_WHY_MAX, "metadata at offset %" PRIu64 ": %s", y->offset,
            problem);
    return -1;
}

static void strip(const char **text, size_t *bytes)
{
    while (*bytes > 0 && isspace((unsigned char)**text)) {
        (*text)++;
        (*bytes)--;
    }
    while (*bytes > 0 && isspace((unsigned char)(*text)[*bytes - 1]))
        (*bytes)--;
    if (*bytes >= 2 && ((*text)[0] == '\'' || (*text)[0] == '"') &&
            (*text)[*bytes - 1] == (*text)[0]) {
        (*text)++;
        *bytes -= 2;
    }
}

/* The next line with a key; false at the end. */
static bool next_line(struct yaml *y, struct line *out)
{
    while (y->at < y->end) {
        const char *begin = y->at, *colon;
        const char *end = memchr(begin, '\n', (size_t)(y->end - begin));
        const char *at = begin;

        end = end != NULL ? end : y->end;
        y->at = end < y->end ? end + 1 : end;
        memset(out, 0, sizeof(*out));
        while (at < end && (*at == ' ' || (*at == '-' && end - at > 1 && at[1] == ' ')))
            out->item |= *at++ == '-';
        colon = memchr(at, ':', (size_t)(end - at));
        if (colon == NULL || *at == '#')
            continue;
        out->indent = (size_t)(at - begin) + 1;
        out->key = at;
        out->key_bytes = (size_t)(colon - at);
        out->value = colon + 1;
        out->value_bytes = (size_t)(end - colon - 1);
        strip(&out->key, &out->key_bytes);
        strip(&out->value, &out->value_bytes);
        return true;
    }
    return false;
}

static bool is_key(const struct line *l, const char *key)
{
    return l->key_bytes == strlen(key) && memcmp(l->key, key, l->key_bytes) == 0;
}

static uint32_t number_of(const struct line *l)
{
    uint64_t value = 0;

    for (size_t i = 0; i < l->value_bytes && isdigit((unsigned char)l->value[i]); i++) {
        value = 10 * value + (uint64_t)(l->value[i] - '0');
        if (value > UINT32_MAX)
            return UINT32_MAX;
    }
    return (uint32_t)value;
}

/* "HiddenHostcallBuffer" as later versions say it, "hidden_hostcall_buffer". */
static enum codeobj_kind kind_of(const struct line *l)
{
    char text[64];
    size_t used = 0;

    for (size_t i = 0; i < l->value_bytes && used < sizeof(text) - 3; i++) {
        const unsigned char c = (unsigned char)l->value[i];

        if (isupper(c) && i > 0)
            text[used++] = '_';
        text[used++] = (char)tolower(c);
    }
    text[used] = 0;
    if (strcmp(text, "hidden_multi_grid_sync_arg") == 0)
        return CODEOBJ_MULTIGRID_SYNC;
    for (int kind = 0; kind < CODEOBJ_HIDDEN_OTHER; kind++)
        if (strcmp(text, codeobj_kind_name((enum codeobj_kind)kind)) == 0)
            return (enum codeobj_kind)kind;
    return strncmp(text, "hidden_", 7) == 0 ? CODEOBJ_HIDDEN_OTHER : CODEOBJ_OTHER;
}

/* One more of @p num things of @p bytes each; the list, or NULL. */
static void *grow(void *list, size_t num, size_t *room, size_t bytes)
{
    void *more;

    if (num < *room)
        return list;
    more = realloc(list, (2 * *room + 8) * bytes);
    if (more != NULL)
        *room = 2 * *room + 8;
    return more;
}

static int add_kernel(struct yaml *y)
{
    struct codeobj *out = y->out;
    void *more;

    if (out->num_kernels == CODEOBJ_KERNELS_MAX)
        return refuse(y, "it has more than 65536 kernels");
    more = grow(out->kernels, out->num_kernels, &y->room_kernels,
            sizeof(*out->kernels));
    if (more == NULL)
        return refuse(y, "no memory for its kernels");
    out->kernels = more;
    memset(&out->kernels[out->num_kernels++], 0, sizeof(*out->kernels));
    y->begun = true;
    y->room_args = 0;
    y->args_indent = 0;
    y->args = false;
    y->arg_end = 0;
    return 0;
}

static int add_argument(struct yaml *y, struct codeobj_kernel *kernel)
{
    void *more;

    if (kernel->num_args == CODEOBJ_ARGS_MAX)
        return refuse(y, "a kernel has more than 4096 arguments");
    more = grow(kernel->args, kernel->num_args, &y->room_args, sizeof(*kernel->args));
    if (more == NULL)
        return refuse(y, "no memory for a kernel's arguments");
    kernel->args = more;
    kernel->args[kernel->num_args++] =
            (struct codeobj_arg){ .kind = CODEOBJ_NUM_KINDS, .offset = y->arg_end };
    y->align = 1;
    return 0;
}

static int read_argument(struct yaml *y, const struct line *l,
        struct codeobj_kernel *kernel)
{
    struct codeobj_arg *arg;

    if (l->item && add_argument(y, kernel) != 0)
        return -1;
    if (kernel->num_args == 0)
        return refuse(y, "an argument outside a list");
    arg = &kernel->args[kernel->num_args - 1];
    if (is_key(l, "Size"))
        arg->bytes = number_of(l);
    else if (is_key(l, "Align") && number_of(l) > 0)
        y->align = number_of(l);
    else if (is_key(l, "ValueKind") && arg->kind == CODEOBJ_NUM_KINDS) {
        arg->kind = kind_of(l);
        kernel->kinds |= UINT64_C(1) << arg->kind;
        kernel->num_hidden += codeobj_kind_hidden(arg->kind);
    }
    return 0;
}

/* What an argument's lines have said is known when the next begins, or the list ends. */
static int end_argument(struct yaml *y, struct codeobj_kernel *kernel)
{
    struct codeobj_arg *arg;
    uint64_t begin;

    if (kernel->num_args == 0)
        return 0;
    arg = &kernel->args[kernel->num_args - 1];
    if (arg->kind == CODEOBJ_NUM_KINDS)
        return refuse(y, "an argument has no ValueKind");
    begin = ((uint64_t)y->arg_end + y->align - 1) / y->align * y->align;
    arg->offset = begin > UINT32_MAX ? UINT32_MAX : (uint32_t)begin;
    begin += arg->bytes;
    y->arg_end = begin > UINT32_MAX ? UINT32_MAX : (uint32_t)begin;
    return 0;
}

static void read_property(const struct line *l, struct codeobj_kernel *kernel)
{
    const struct {
        const char *key;
        uint32_t *value;
    } rows[] = {
        { "KernargSegmentSize", &kernel->kernarg_bytes },
        { "GroupSegmentFixedSize", &kernel->lds_bytes },
        { "PrivateSegmentFixedSize", &kernel->scratch_bytes },
        { "WavefrontSize", &kernel->wavefront },
        { "MaxFlatWorkGroupSize", &kernel->max_workgroup },
        { "NumSGPRs", &kernel->sgprs },
        { "NumVGPRs", &kernel->vgprs },
        { "NumSpilledSGPRs", &kernel->sgpr_spills },
        { "NumSpilledVGPRs", &kernel->vgpr_spills },
    };

    if (is_key(l, "IsDynamicCallStack"))
        kernel->dynamic_stack = l->value_bytes == 4 && memcmp(l->value, "true", 4) == 0;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (is_key(l, rows[i].key))
            *rows[i].value = number_of(l);
}

/* A line of a kernel that is none of an argument. */
static int read_kernel_line(struct yaml *y, const struct line *l,
        struct codeobj_kernel *kernel)
{
    if (l->indent == y->kernels_indent)
        y->args = is_key(l, "Args");
    if (l->indent == y->kernels_indent && is_key(l, "Name") && kernel->name == NULL) {
        if (l->value_bytes >= CODEOBJ_NAME_MAX)
            return refuse(y, "a kernel has a name of 16384 bytes or more");
        kernel->name = strndup(l->value, l->value_bytes);
        return kernel->name != NULL ? 0 : refuse(y, "no memory for a name");
    }
    read_property(l, kernel);
    return 0;
}

static int read_line(struct yaml *y, const struct line *l)
{
    struct codeobj *out = y->out;
    struct codeobj_kernel *kernel;

    if (y->kernels_indent == 0 && !l->item)
        return 0; /* another list's */
    if (y->kernels_indent == 0)
        y->kernels_indent = l->indent;
    if (l->item && l->indent == y->kernels_indent) {
        if (y->begun && end_argument(y, &out->kernels[out->num_kernels - 1]) != 0)
            return -1;
        if (add_kernel(y) != 0)
            return -1;
    }
    kernel = &out->kernels[out->num_kernels - 1];
    if (y->args && l->item && l->indent > y->kernels_indent && y->args_indent == 0)
        y->args_indent = l->indent;
    if (!y->args || y->args_indent == 0 || l->indent != y->args_indent)
        return read_kernel_line(y, l, kernel);
    if (l->item && end_argument(y, kernel) != 0)
        return -1;
    return read_argument(y, l, kernel);
}

int codeobj_yaml(const void *data, size_t bytes, uint64_t offset, struct codeobj *out,
        char why[CODEOBJ_WHY_MAX])
{
    struct yaml y = { .out = out,
        .at = data,
        .end = (const char *)data + bytes,
        .offset = offset,
        .why = why,
        .room_kernels = out->num_kernels };
    const size_t had = out->num_kernels;
    bool kernels = false;
    struct line l;

    if (bytes > DOCUMENT_MAX)
        return refuse(&y, "it has more than 64 MiB");
    while (next_line(&y, &l)) {
        if (l.indent == 1 && !l.item) {
            kernels = is_key(&l, "Kernels");
            if (kernels && l.value_bytes > 0 &&
                    (l.value_bytes != 2 || memcmp(l.value, "[]", 2) != 0))
                return refuse(&y, "its Kernels are no list");
            continue;
        }
        if (kernels && read_line(&y, &l) != 0)
            return -1;
    }
    if (y.begun && end_argument(&y, &out->kernels[out->num_kernels - 1]) != 0)
        return -1;
    for (size_t i = had; i < out->num_kernels; i++)
        if (out->kernels[i].name == NULL)
            return refuse(&y, "a kernel has no Name");
    return 0;
}
