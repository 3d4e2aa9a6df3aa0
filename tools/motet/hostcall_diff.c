/* SPDX-License-Identifier: Apache-2.0 */
/* motet hostcall --diff: which images came, went and changed between two builds. */
#include "hostcall.h"

#include "cmd.h"
#include "gather.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* One build: its images, told apart by where they are, what they are for, and order. */
struct side {
    const char *path;
    const struct hostcall_gpu *only;
    struct piece {
        char *place; /* below the folder; "" of a file */
        struct hostcall_image image;
        struct piece *other;
        size_t index; /* as it was met */
    } *pieces;
    size_t num, room;
    bool whole; /* all of it could be read */
};

enum change { ADDED, REMOVED, CHANGED };

static const char *const words[] = { "added", "removed", "changed" };

/* ---- reading ---- */

static int by_name(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;

    return strcmp(*x, *y);
}

static void add_file(const char *path, bool named, const char *why, void *arg)
{
    struct side *side = arg;
    struct hostcall_file file;
    const size_t folder = named ? strlen(path) : strlen(side->path);

    hostcall_read(path, why, &file);
    if (file.why[0] != 0) {
        hostcall_complain(path, "%s", file.why);
        side->whole = false;
    }
    if (side->only != NULL)
        hostcall_keep(&file, side->only);
    for (size_t i = 0; i < file.num; i++) {
        struct piece *p;

        side->pieces = hostcall_more(side->pieces, &side->num, &side->room, sizeof(*p));
        p = &side->pieces[side->num - 1];
        p->place = hostcall_copy(path + folder + (path[folder] == '/'));
        p->image = file.images[i];
        p->index = side->num;
        if (p->image.num_names > 0)
            qsort(p->image.names, p->image.num_names, sizeof(*p->image.names), by_name);
        if (p->image.why != NULL) {
            hostcall_complain(path, "%s: %s", p->image.text, p->image.why);
            side->whole = false;
        }
    }
    file.num = 0; /* they are the piece's now */
    hostcall_clear(&file);
}

static void read_side(struct side *side)
{
    (void)hostcall_walk(side->path, add_file, side);
    if (side->num == 0 && side->whole)
        hostcall_complain(side->path, "no code for AMD GPUs was found");
}

/* A side of which nothing could be read: what it lacks is no change. */
static bool is_known(const struct side *side)
{
    return side->num > 0 || side->whole;
}

static void clear_side(struct side *side)
{
    struct hostcall_file file = { .path = "" };

    for (size_t i = 0; i < side->num; i++) {
        file.images =
                hostcall_more(file.images, &file.num, &file.room, sizeof(*file.images));
        file.images[i] = side->pieces[i].image;
        free(side->pieces[i].place);
    }
    hostcall_clear(&file);
    free(side->pieces);
}

/* ---- matching ---- */

static bool same_code(const struct piece *a, const struct piece *b)
{
    return a->image.sha256[0] != 0 && strcmp(a->image.sha256, b->image.sha256) == 0;
}

/* 0: for the same GPU in the same place. */
static int by_slot(const struct piece *a, const struct piece *b)
{
    int order = strcmp(a->place, b->place);

    if (order == 0)
        order = strcmp(a->image.member, b->image.member);
    return order != 0 ? order : strcmp(a->image.text, b->image.text);
}

static int in_order(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    const int order = by_slot(x, y);

    return order != 0 ? order : (x->index > y->index) - (x->index < y->index);
}

/* How many from @p at on are for the same slot. */
static size_t run_of(const struct side *side, size_t at)
{
    size_t end = at + 1;

    while (end < side->num && by_slot(&side->pieces[at], &side->pieces[end]) == 0)
        end++;
    return end - at;
}

static int by_code(const void *a, const void *b)
{
    const struct piece *const *x = a, *const *y = b;
    const int order = strcmp((*x)->image.sha256, (*y)->image.sha256);

    return order != 0 ? order : (*x > *y) - (*x < *y);
}

/* The @p num from @p run on, sorted by their code. */
static struct piece **sorted_by_code(struct piece *run, size_t num)
{
    struct piece **list = NULL;

    for (size_t i = 0, used = 0, room = 0; i < num; i++) {
        list = hostcall_more(list, &used, &room, sizeof(*list));
        list[i] = &run[i];
    }
    qsort(list, num, sizeof(struct piece *), by_code);
    return list;
}

static void pair(struct piece *a, struct piece *b)
{
    a->other = b;
    b->other = a;
}

/* Of one slot. Equal code first, so that one that was put between others moves none. */
static void match_run(struct piece *a, size_t num_a, struct piece *b, size_t num_b)
{
    struct piece **x = sorted_by_code(a, num_a), **y = sorted_by_code(b, num_b);

    for (size_t i = 0, k = 0; i < num_a && k < num_b;) {
        const int order = strcmp(x[i]->image.sha256, y[k]->image.sha256);

        if (same_code(x[i], y[k]))
            pair(x[i], y[k]);
        i += order <= 0;
        k += order >= 0;
    }
    free(x);
    free(y);
    for (size_t i = 0, k = 0; i < num_a && k < num_b;) {
        if (a[i].other != NULL)
            i++;
        else if (b[k].other != NULL)
            k++;
        else
            pair(&a[i++], &b[k++]);
    }
}

static void match(struct side *a, struct side *b)
{
    size_t i = 0, k = 0;

    qsort(a->pieces, a->num, sizeof(*a->pieces), in_order);
    qsort(b->pieces, b->num, sizeof(*b->pieces), in_order);
    while (i < a->num && k < b->num) {
        const int order = by_slot(&a->pieces[i], &b->pieces[k]);
        const size_t num_a = order <= 0 ? run_of(a, i) : 0;
        const size_t num_b = order >= 0 ? run_of(b, k) : 0;

        if (order == 0)
            match_run(a->pieces + i, num_a, b->pieces + k, num_b);
        i += num_a;
        k += num_b;
    }
}

static bool has_name(const struct hostcall_image *m, const char *name)
{
    return m->num_names > 0 &&
            bsearch(&name, m->names, m->num_names, sizeof(name), by_name) != NULL;
}

/* ---- what is said ---- */

static void write_names(const char *before, const struct hostcall_image *m,
        const struct hostcall_image *without)
{
    for (size_t i = 0; i < m->num_names; i++)
        if (!has_name(without, m->names[i])) {
            printf("    %s ", before);
            dr_write_clean(stdout, m->names[i], CODEOBJ_NAME_MAX);
            putchar('\n');
        }
}

static void write_change(enum change change, const struct piece *was,
        const struct piece *is)
{
    const struct piece *p = is != NULL ? is : was;
    const struct hostcall_image *m = &p->image;

    printf("%s: ", words[change]);
    if (p->place[0] != 0) {
        dr_write_clean(stdout, p->place, strlen(p->place));
        fputs(": ", stdout);
    }
    dr_write_clean(stdout, m->text, CODEOBJ_TARGET_MAX);
    if (m->member[0] != 0) {
        fputs(" of ", stdout);
        dr_write_clean(stdout, m->member, strlen(m->member));
    }
    if (m->why != NULL || (change == CHANGED && was->image.why != NULL)) {
        printf(": %s could not be read: ",
                change == CHANGED ? (m->why != NULL ? "the new one" : "the old one")
                                  : "it");
        dr_write_clean(stdout, m->why != NULL ? m->why : was->image.why,
                CODEOBJ_WHY_MAX);
        putchar('\n');
        return;
    }
    if (change != CHANGED) {
        printf(": %zu kernels, %zu with a hostcall, SHA-256 %s\n", m->kernels,
                m->declaring, m->sha256);
        return;
    }
    printf(": kernels %zu -> %zu, with a hostcall %zu -> %zu, class %s -> %s\n"
           "    SHA-256 %s -> %s\n",
            was->image.kernels, m->kernels, was->image.declaring, m->declaring,
            image_class_name(was->image.class), image_class_name(m->class),
            was->image.sha256, m->sha256);
    write_names("declares a hostcall now:", m, &was->image);
    write_names("no longer declares one:", &was->image, m);
}

static void json_side(struct json *j, const char *key, const struct piece *p)
{
    json_object(j, key);
    json_uint(j, "kernels", p->image.kernels);
    json_uint(j, "hostcall", p->image.declaring);
    json_string(j, "class", image_class_name(p->image.class));
    json_string(j, "sha256", p->image.sha256);
    json_array(j, "names");
    for (size_t i = 0; i < p->image.num_names; i++)
        json_string(j, NULL, p->image.names[i]);
    json_end(j);
    if (p->image.why != NULL)
        json_string(j, "error", p->image.why);
    json_end(j);
}

static void json_change(struct json *j, const struct piece *was, const struct piece *is)
{
    const struct piece *p = is != NULL ? is : was;

    json_object(j, NULL);
    json_string(j, "place", p->place);
    json_string(j, "member", p->image.member);
    json_string(j, "target", p->image.text);
    if (was != NULL)
        json_side(j, "was", was);
    if (is != NULL)
        json_side(j, "is", is);
    json_end(j);
}

/* Of two without a hash, which could not be had whole, nothing is known. */
static bool is_change(enum change change, const struct piece *p)
{
    if (change != CHANGED || p->other == NULL)
        return change != CHANGED && p->other == NULL;
    return strcmp(p->image.sha256, p->other->image.sha256) != 0;
}

/* All changes of a kind, to @p j or for people; how many. */
static size_t write_all(struct json *j, enum change change, const struct side *a,
        const struct side *b)
{
    const struct side *side = change == ADDED ? b : a;
    size_t count = 0;

    if (j != NULL)
        json_array(j, words[change]);
    for (size_t i = 0; i < side->num && is_known(a) && is_known(b); i++) {
        const struct piece *p = &side->pieces[i], *was = change == ADDED ? NULL : p,
                           *is = change == ADDED ? p : p->other;

        if (!is_change(change, p))
            continue;
        count++;
        if (j != NULL)
            json_change(j, was, is);
        else
            write_change(change, was, is);
    }
    if (j != NULL)
        json_end(j);
    return count;
}

int hostcall_diff(const char *a, const char *b, const struct hostcall_gpu *only,
        bool as_json)
{
    struct side before = { .path = a, .only = only, .whole = true },
                after = { .path = b, .only = only, .whole = true };
    size_t changes = 0;
    struct json j;
    bool whole, written;

    read_side(&before);
    read_side(&after);
    if (before.num > 0 && after.num > 0)
        match(&before, &after);
    json_start(&j, stdout);
    if (as_json)
        json_object(&j, NULL);
    for (enum change c = ADDED; c <= CHANGED; c++)
        changes += write_all(as_json ? &j : NULL, c, &before, &after);
    whole = before.whole && after.whole && before.num + after.num > 0;
    if (!as_json && changes == 0 && whole)
        printf("%zu images on either side, no difference\n", before.num);
    written = as_json ? json_finish(&j) : fflush(stdout) == 0;
    clear_side(&before);
    clear_side(&after);
    if (!written)
        return cmd_error("hostcall", EXIT_UNDECIDED, "standard output: %s",
                strerror(errno));
    return changes > 0 ? EXIT_PROBLEM : whole ? EXIT_FINE : EXIT_UNDECIDED;
}
