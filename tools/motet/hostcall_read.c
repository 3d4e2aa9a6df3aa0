/* SPDX-License-Identifier: Apache-2.0 */
/* motet hostcall: what is kept of a file's images, and which files lie below a folder. */
#include "hostcall.h"

#include "cmd.h"
#include "gather.h"
#include "text.h"

#include <errno.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static _Noreturn void no_memory(void)
{
    exit(cmd_error("hostcall", EXIT_UNDECIDED, "%s", strerror(ENOMEM)));
}

void *hostcall_more(void *array, size_t *num, size_t *room, size_t size)
{
    if (*num == *room) {
        *room = *room == 0 ? 8 : *room * 2;
        array = reallocarray(array, *room, size);
        if (array == NULL)
            no_memory();
    }
    memset((char *)array + *num * size, 0, size);
    (*num)++;
    return array;
}

char *hostcall_copy(const char *text)
{
    char *copy = strdup(text);

    if (copy == NULL)
        no_memory();
    return copy;
}

void hostcall_complain(const char *path, const char *fmt, ...)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    va_list args;

    if (out == NULL)
        no_memory();
    fprintf(out, "%s: ", path);
    va_start(args, fmt);
    vfprintf(out, fmt, args);
    va_end(args);
    if (fclose(out) != 0)
        no_memory();
    (void)cmd_error("hostcall", EXIT_UNDECIDED, "%s", text_plain(text));
    free(text);
}

/* ---- images ---- */

static bool is_collective(const char *kernel)
{
    return strstr(kernel, "ncclDevKernel") != NULL ||
            strstr(kernel, "ncclSymkDevKernel") != NULL;
}

static void keep_name(struct hostcall_file *file, struct hostcall_image *m,
        const char *name, size_t *room)
{
    const size_t bytes = strlen(name) + sizeof(char *) + 1;

    if (file->name_bytes + bytes > HOSTCALL_NAMES_BYTES)
        return;
    file->name_bytes += bytes;
    m->names = hostcall_more(m->names, &m->num_names, room, sizeof(*m->names));
    m->names[m->num_names - 1] = hostcall_copy(name);
}

static void keep_kernel(struct hostcall_file *file, struct hostcall_image *m,
        const struct codeobj_kernel *k, size_t *room)
{
    m->kernels++;
    m->dynamic_stack += k->dynamic_stack;
    m->scratch = k->scratch_bytes > m->scratch ? k->scratch_bytes : m->scratch;
    m->collective = m->collective || is_collective(k->name);
    for (int kind = 0; kind < CODEOBJ_NUM_KINDS; kind++)
        m->kinds[kind] += codeobj_has(k, (enum codeobj_kind)kind);
    if (!codeobj_has(k, CODEOBJ_HOSTCALL_BUFFER))
        return;
    m->declaring++;
    m->classic = m->classic || dr_is_classic(k->name);
    keep_name(file, m, k->name, room);
}

static bool keep_image(const struct image *image, void *arg)
{
    struct hostcall_file *file = arg;
    struct hostcall_image *m;
    size_t room = 0;

    file->images = hostcall_more(file->images, &file->num, &file->room, sizeof(*m));
    m = &file->images[file->num - 1];
    m->container = hostcall_copy(image->container);
    m->member = hostcall_copy(image->member);
    m->offset = image->offset;
    m->holder = image->holder;
    m->bytes = image->bytes;
    snprintf(m->text, sizeof(m->text), "%s", image->target);
    snprintf(m->sha256, sizeof(m->sha256), "%s", image->sha256);
    if (image->object == NULL) {
        m->why = hostcall_copy(image->why);
        (void)image_target_of(m->text, &m->target);
        return true;
    }
    m->version = image->object->version;
    m->class = image->class;
    m->target = image->object->target;
    if (strncmp(m->target.processor, "gfx", 3) != 0)
        (void)image_target_of(m->text, &m->target); /* a vendor's own GPU */
    for (size_t i = 0; i < image->object->num_kernels; i++)
        keep_kernel(file, m, &image->object->kernels[i], &room);
    return true;
}

void hostcall_read(const char *path, const char *why, struct hostcall_file *out)
{
    struct images_result result = { .why = "" };

    *out = (struct hostcall_file){ .path = path, .unreadable = true };
    if (why == NULL)
        out->unreadable = images_open(path, keep_image, out, &result) != 0;
    snprintf(out->why, sizeof(out->why), "%s", why != NULL ? why : result.why);
    if (result.container != NULL)
        snprintf(out->container, sizeof(out->container), "%s", result.container);
}

void hostcall_clear(struct hostcall_file *file)
{
    for (size_t i = 0; i < file->num; i++) {
        struct hostcall_image *m = &file->images[i];

        for (size_t k = 0; k < m->num_names; k++)
            free(m->names[k]);
        free(m->names);
        free(m->container);
        free(m->member);
        free(m->why);
    }
    free(file->images);
    *file = (struct hostcall_file){ .path = "" };
}

/* ---- folders ---- */

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static void walk_folder(const char *path, hostcall_visitor *visit, void *arg)
{
    char *start[2] = { hostcall_copy(path), NULL };
    FTS *tree = fts_open(start, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, by_name);
    FTSENT *e;

    while (tree != NULL && (e = fts_read(tree)) != NULL) {
        switch (e->fts_info) {
        case FTS_F:
            if (e->fts_statp->st_size > 0)
                visit(e->fts_path, false, NULL, arg);
            break;
        case FTS_DNR:
        case FTS_ERR:
        case FTS_NS: visit(e->fts_path, false, strerror(e->fts_errno), arg); break;
        case FTS_DC:
            visit(e->fts_path, false, "a folder that lies in itself", arg);
            break;
        default: break; /* folders, links, devices, pipes */
        }
    }
    if (errno != 0)
        visit(path, false, strerror(errno), arg);
    if (tree != NULL)
        fts_close(tree);
    free(start[0]);
}

bool hostcall_walk(const char *path, hostcall_visitor *visit, void *arg)
{
    struct stat st;
    const bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);

    if (folder)
        walk_folder(path, visit, arg);
    else
        visit(path, true, NULL, arg);
    return folder;
}
