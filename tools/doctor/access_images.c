/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images of libraries: how many of their kernels declare a hostcall buffer, by `motet
 * hostcall`, by notes of a plain code object, or not to be read from the text.
 */
#include "access.h"

#include "images.h"

#include <ctype.h>
#include <string.h>

#define LISTED_MAX  256u
#define TARGETS_MAX 16u
#define NAMES_MAX   64u

static const char word[] = "hidden_hostcall_buffer";

/* What a source brings from line to line. */
struct object {
    const char *path, *target; /* the code object that is looked at         */
    uint32_t image;            /* its image, DR_NONE: none yet              */
    bool strings;              /* a search of bytes, which proves no zero   */
    bool pending;              /* a kernel whose name is still to come      */
    bool speaks_of_rccl;       /* the source does                           */
    uint32_t names;
};

/* ---- targets ---- */

/* "gfx90a" of "…--gfx90a:sramecc+": its length, 0 if it is none. */
static size_t target_length(const char *at)
{
    size_t n = 3;

    if (!dr_begins(at, "gfx") || !isdigit((unsigned char)at[3]))
        return 0;
    while (isxdigit((unsigned char)at[n]))
        n++;
    return n;
}

static void add_target(struct doctor *d, const char *at, size_t length, uint32_t line)
{
    struct dr_access *a = d->access;
    const char *name = dr_printf(d, " %.*s ", (int)length, at);

    if (dr_has(a->targets, name) || strlen(a->targets) > TARGETS_MAX * 8)
        return;
    if (a->targets_line == DR_NONE)
        a->targets_line = line;
    a->targets = dr_printf(d, "%s%s", a->targets, name);
}

static void read_target(struct doctor *d, uint32_t line)
{
    static const char *const before[] = { "Name: gfx", "arch gfx", "rch: gfx",
        "rchName: gfx", "VERSION: gfx", "Version: gfx", "rch name: gfx" };
    const char *text = d->lines[line].text, *at = strstr(text, "gfx");
    struct dr_span out[3];

    for (size_t i = 0; at != NULL && i < sizeof(before) / sizeof(*before); i++)
        if (target_length(at) > 0 && dr_scan(text, before[i], NULL)) {
            add_target(d, at, target_length(at), line);
            return;
        }
    if (dr_scan(text, "Gfx Major/Minor/Stepping: %d/%d/%d", out)) {
        uint64_t minor = 0, step = 0;
        const char *name;

        (void)dr_span_u64(out[1], &minor);
        (void)dr_span_u64(out[2], &step);
        name = dr_printf(d, "gfx%.*s%x%x", (int)out[0].length, out[0].at,
                (unsigned)minor, (unsigned)step);
        add_target(d, name, strlen(name), line);
    }
}

static void targets_of_nodes(struct doctor *d)
{
    for (uint32_t i = 0; i < d->pci->num_nodes; i++) {
        const struct dr_kfd_node *node = &d->pci->nodes[i];
        char name[DR_TARGET_MAX];

        if (node->gfx_version <= 0)
            continue;
        dr_gfx_name(node, name);
        add_target(d, name, strlen(name), node->line);
    }
}

int dr_target_fits(const char *target, const char *gpu)
{
    struct codeobj_target code;
    struct image_gpu asks;

    if (!image_target_of(target, &code) || !image_gpu_of(gpu, &asks))
        return 0;
    return image_fits(&code, &asks);
}

enum dr_answer dr_has_target(const struct doctor *d, const char *target)
{
    struct dr_span name;
    size_t at = 0;

    if (d->access->targets[0] == 0)
        return DR_UNSURE;
    if (target[0] == 0)
        return DR_YES;
    while (dr_word(d->access->targets, &at, &name)) {
        char gpu[DR_TARGET_MAX];

        snprintf(gpu, sizeof(gpu), "%.*s", (int)name.length, name.at);
        if (dr_target_fits(target, gpu) > 0)
            return DR_YES;
    }
    return DR_NO;
}

/* ---- images ---- */

static bool is_collective(const char *path)
{
    return dr_has(path, "rccl") || dr_has(path, "nccl");
}

static uint32_t image_index(struct doctor *d, const char *path, const char *target,
        uint32_t line)
{
    struct dr_access *a = d->access;
    struct dr_image *m;

    dr_known(d, line);
    for (uint32_t i = 0; i < a->num_images; i++)
        if (strcmp(a->images[i].path, path) == 0 &&
                strcmp(a->images[i].target, target) == 0)
            return i;
    if (a->num_images == LISTED_MAX)
        return LISTED_MAX - 1;
    m = DR_PUSH(d, a->images, a->num_images, a->room_images);
    m->path = dr_copy(d, path, strlen(path));
    m->target = dr_copy(d, target, strlen(target));
    m->names = "";
    m->collective = is_collective(path);
    m->line = line;
    return a->num_images - 1;
}

/* Good until the next one is added. */
static struct dr_image *image(struct doctor *d, const char *path, const char *target,
        uint32_t line)
{
    const uint32_t index = image_index(d, path, target, line);

    return &d->access->images[index];
}

/* A library of several bundles has a line for each: they add up, and the one that declares
 * is the evidence. Another source says the same again. */
static void add_listed(struct doctor *d, struct dr_image *m,
        const struct dr_span out[5], uint32_t line)
{
    const bool again = d->lines[m->line].source != d->lines[line].source;
    uint64_t kernels = 0, declaring = 0;

    (void)dr_span_u64(out[2], &kernels);
    (void)dr_span_u64(out[3], &declaring);
    if (again && m->kernels >= kernels)
        return;
    if (declaring > 0 && m->declaring == 0) {
        m->names = out[4].at + strspn(out[4].at, ": ");
        m->line = line;
    }
    m->kernels = again ? kernels : m->kernels + kernels;
    m->declaring = again ? declaring : m->declaring + declaring;
}

/* "PATH: gfx1100: 105 kernels, 13 declare a hostcall: NAME NAME", "PATH: gfx1100: unknown:
 * compressed (CCOB)", "PATH: unknown: …". */
static bool read_listing(struct doctor *d, uint32_t line)
{
    const char *text = d->lines[line].text;
    struct dr_span out[5];
    struct dr_image *m;
    const bool full =
            dr_scan(text, "^%*: gfx%w: %d kernels, %d declare a hostcall%*", out);
    const bool unknown = !full &&
            (dr_scan(text, "^%*: gfx%w: unknown: %*", out) ||
                    dr_scan(text, "^%*: unknown: %*", out));
    const char *path, *target = "";

    if (!full && !unknown)
        return false;
    path = dr_copy(d, out[0].at, out[0].length);
    if (full || dr_has(text, ": gfx"))
        target = dr_printf(d, "gfx%.*s", (int)strcspn(out[1].at, ":"), out[1].at);
    if (unknown && !is_collective(path))
        return false;
    m = image(d, path, target, line);
    if (full)
        add_listed(d, m, out, line);
    m->unreadable = m->unreadable || unknown;
    return true;
}

/* ---- notes of a code object ---- */

/* The file that a command reads and its target: "--targets=…gfx90a", "rccl.gfx90a.co". */
static void look_at_command(struct doctor *d, struct object *o, const char *typed)
{
    const char *gfx = strstr(typed, "gfx");
    struct dr_span w;
    size_t at = 0;

    o->strings = dr_has(typed, "strings");
    if (gfx != NULL && target_length(gfx) > 0 && !dr_has(typed, "grep")) {
        o->target = dr_copy(d, gfx, target_length(gfx));
        o->image = DR_NONE;
    }
    while (dr_word(typed, &at, &w)) {
        const char *name = dr_copy(d, w.at, w.length);

        if (strchr("-'\"|>$", name[0]) != NULL || strchr(name, '=') != NULL)
            continue;
        if (dr_has(name, ".so") || dr_has(name, ".co") || dr_has(name, ".kpack") ||
                dr_has(name, "hsaco") || dr_has(name, ".fatbin")) {
            if (strcmp(o->path, name) != 0)
                o->image = DR_NONE;
            o->path = name;
        }
    }
}

static struct dr_image *image_of(struct doctor *d, struct object *o, uint32_t line)
{
    struct dr_image *m;

    if (o->image == DR_NONE) {
        o->image = image_index(d, o->path, o->target, line);
        o->names = 0;
    }
    m = &d->access->images[o->image];
    m->collective = m->collective || o->speaks_of_rccl;
    return m;
}

static void add_name(struct doctor *d, struct object *o, const char *name,
        size_t length, uint32_t line)
{
    struct dr_image *m = image_of(d, o, line);
    const char *text = dr_copy(d, name, length);

    m->collective = m->collective || is_collective(text);
    if (o->names >= NAMES_MAX ||
            dr_has(dr_printf(d, " %s ", m->names), dr_printf(d, " %s ", text)))
        return;
    o->names++;
    m->names = m->names[0] != 0 ? dr_printf(d, "%s %s", m->names, text) : text;
}

/* The answer of `grep -c hidden_hostcall_buffer`. */
static void read_count(struct doctor *d, struct object *o, uint32_t line)
{
    const char *text = d->lines[line].text, *typed = dr_command(d, line);
    struct dr_span out[2];
    uint64_t count;
    struct dr_image *m;

    if (!dr_has(typed, word) ||
            !(dr_scan(typed, "grep -c ", NULL) || dr_has(typed, "--count") ||
                    dr_scan(typed, "grep%* -%wc ", NULL) ||
                    dr_scan(typed, "grep %* -c", NULL)) ||
            !(dr_scan(text, "^%d%e", out) || dr_scan(text, ":%d%e", out)) ||
            !dr_span_u64(out[0], &count))
        return;
    if (count == 0 && o->strings) {
        d->access->asked_hostcall = line;
        return; /* compressed code does not hold the word */
    }
    m = image_of(d, o, line);
    m->line = line;
    m->declaring = count > m->declaring ? count : m->declaring;
}

/* "1180-  .symbol: ncclDevKernel_Generic_1.kd": a kernel's entry in the notes. */
static void read_notes(struct doctor *d, struct object *o, uint32_t line)
{
    const char *text = d->lines[line].text;
    struct dr_span out[1];

    if (dr_scan(text, ".value_kind: %w", out) && dr_span_is(out[0], word)) {
        struct dr_image *m = image_of(d, o, line);

        o->pending = true;
        if (m->declaring == 0) {
            m->declaring = 1;
            m->line = line;
        }
    } else if (dr_scan(text, "amdhsa.target: %*gfx%w", NULL)) {
        const char *gfx = strstr(text, "gfx");

        o->target = dr_copy(d, gfx, target_length(gfx));
        o->image = DR_NONE;
    } else if (o->pending && dr_scan(text, ".symbol: %w", out)) {
        size_t length = out[0].length;

        if (length > 3 && memcmp(out[0].at + length - 3, ".kd", 3) == 0)
            length -= 3;
        add_name(d, o, out[0].at, length, line);
        o->pending = false;
    }
}

/* Names of kernels that a command about hostcall lists: "   1 ncclDevKernel_Generic_1". */
static void read_names(struct doctor *d, struct object *o, uint32_t line)
{
    struct dr_span w;
    size_t at = 0;

    if (!dr_has(dr_command(d, line), "hostcall") ||
            (d->lines[line].flags & (DR_COMMAND | DR_REMARK)))
        return;
    while (dr_word(d->lines[line].text, &at, &w))
        if (w.length > 12 &&
                (memcmp(w.at, "ncclDevKernel", 13) == 0 ||
                        memcmp(w.at, "ncclSymkDev", 11) == 0))
            add_name(d, o, w.at, w.length, line);
}

/* ---- what is not to be read from the text ---- */

static void read_packed(struct doctor *d, const struct object *o, uint32_t line)
{
    const char *text = d->lines[line].text;
    struct dr_span out[1];
    const char *path = o->path;
    struct dr_image *m;

    if (d->lines[line].flags & (DR_COMMAND | DR_REMARK))
        return;
    if (dr_has(text, ".kpack") && dr_scan(text, "%w.kpack%>", out)) {
        path = dr_printf(d, "%.*s.kpack", (int)out[0].length, out[0].at);
        if (!is_collective(path))
            return;
    } else if (!(dr_has(text, ".hip_fatbin") && dr_has(text, "NOBITS")) &&
            !dr_has(text, "CCOB") && !dr_has(text, "KPAK")) {
        return;
    } else if (!is_collective(path) && (path[0] != 0 || !o->speaks_of_rccl)) {
        return;
    }
    if (strstr(text, ".kpack") == NULL)
        d->access->asked_hostcall = line;
    m = image(d, path, "", line);
    m->unreadable = m->declaring == 0 && m->kernels == 0;
    m->collective = true;
}

static void begin_source(struct doctor *d, struct object *o, uint32_t source)
{
    const struct dr_source *s = &d->sources[source];

    *o = (struct object){ .path = "", .target = "", .image = DR_NONE };
    for (uint32_t i = s->first; i < s->first + s->count && !o->speaks_of_rccl; i++)
        o->speaks_of_rccl = is_collective(d->lines[i].text);
}

void dr_read_images(struct doctor *d)
{
    struct object o = { .path = "", .target = "" };

    d->access->targets = "";
    d->access->targets_line = DR_NONE;
    targets_of_nodes(d);
    for (uint32_t i = 0; i < d->num_lines; i++) {
        const struct dr_line *line = &d->lines[i];

        if (i == 0 || line->source != d->lines[i - 1].source)
            begin_source(d, &o, line->source);
        if (line->flags & DR_COMMAND)
            look_at_command(d, &o, line->text);
        if (dr_has(line->text, "hostcall") && (line->flags & DR_COMMAND))
            d->access->asked_hostcall = i;
        if (dr_has(line->text, "fx"))
            read_target(d, i);
        if ((dr_has(line->text, "declare a hostcall") ||
                    dr_has(line->text, ": unknown: ")) &&
                read_listing(d, i))
            continue;
        if (line->flags & DR_COMMAND)
            continue;
        read_count(d, &o, i);
        if (strchr(line->text, '.') != NULL || dr_has(line->text, "amdhsa"))
            read_notes(d, &o, i);
        read_names(d, &o, i);
        read_packed(d, &o, i);
    }
}
