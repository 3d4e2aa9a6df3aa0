/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collective libraries on this machine: which files there are, and what their code for
 * AMD GPUs declares. Nothing is loaded. Also motet's own records of probes.
 */
#include "gather.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILES_MAX 64u
#define LIST_MAX  64u

/* Where packages put them; '*' as in a shell. */
static const char *const folders[] = { "/opt/rocm/lib", "/opt/rocm-*/lib",
    "/opt/rocm/lib64", "/opt/dtk*/lib", "/usr/lib/*-linux-gnu", "/usr/lib64",
    "/usr/lib", "/usr/local/lib", "/usr/local/lib64", "/usr/local/cuda*/lib64",
    "/opt/conda/lib", "/usr/lib/python3*/dist-packages/%s",
    "/usr/lib/python3*/site-packages/%s", "/usr/local/lib/python3*/dist-packages/%s",
    "/usr/local/lib/python3*/site-packages/%s",
    "/opt/venv/lib/python3*/site-packages/%s",
    "/opt/conda/lib/python3*/site-packages/%s" };
/* Below site-packages. */
static const char *const packages[] = { "nvidia/nccl/lib", "nvidia/cu1*/lib",
    "torch/lib", "_rocm_sdk_libraries*/lib", "_rocm_sdk_devel/lib" };
static const char *const stems[] = { "librccl.so*", "libnccl.so*" };

struct found {
    struct {
        dev_t device;
        ino_t inode;
    } seen[FILES_MAX];
    const char *path[FILES_MAX]; /* regular files, each once */
    uint32_t num;
};

static void note(struct dr_gather *g, struct found *f, const char *full)
{
    const char *path = full + strlen(g->root);
    struct stat st;

    if (stat(full, &st) != 0 || !S_ISREG(st.st_mode) || f->num == FILES_MAX)
        return;
    for (uint32_t i = 0; i < f->num; i++)
        if (f->seen[i].device == st.st_dev && f->seen[i].inode == st.st_ino)
            return;
    f->seen[f->num].device = st.st_dev;
    f->seen[f->num].inode = st.st_ino;
    f->path[f->num++] = dr_copy(g->d, path, strlen(path));
}

static void look_in(struct dr_gather *g, struct found *f, const char *folder)
{
    for (size_t i = 0; i < sizeof(stems) / sizeof(*stems); i++) {
        glob_t all = { 0 };

        if (glob(dr_under(g, dr_printf(g->d, "%s/%s", folder, stems[i])), 0, NULL,
                    &all) == 0)
            for (size_t k = 0; k < all.gl_pathc && k < LIST_MAX; k++)
                note(g, f, all.gl_pathv[k]);
        globfree(&all);
    }
}

static void look_in_list(struct dr_gather *g, struct found *f, const char *list)
{
    char *text = list != NULL ? dr_copy(g->d, list, strlen(list)) : NULL, *save = NULL;

    for (char *at = text != NULL ? strtok_r(text, ":", &save) : NULL; at != NULL;
            at = strtok_r(NULL, ":", &save))
        if (at[0] == '/')
            look_in(g, f, at);
}

static void look_in_packages(struct dr_gather *g, struct found *f, const char *folder)
{
    const size_t base = strcspn(folder, "%");

    for (size_t i = 0; i < sizeof(packages) / sizeof(*packages); i++)
        look_in(g, f, dr_printf(g->d, "%.*s%s", (int)base, folder, packages[i]));
}

static void look_everywhere(struct dr_gather *g, struct found *f)
{
    static const char *const own[] = { "VIRTUAL_ENV", "CONDA_PREFIX" };
    const char *home = getenv("HOME");

    for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++)
        if (dr_has(folders[i], "%s"))
            look_in_packages(g, f, folders[i]);
        else
            look_in(g, f, folders[i]);
    if (!dr_gather_live(g))
        return;
    look_in_list(g, f, getenv("LD_LIBRARY_PATH"));
    for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++)
        if (getenv(own[i]) != NULL) {
            look_in(g, f, dr_printf(g->d, "%s/lib", getenv(own[i])));
            look_in_packages(g, f,
                    dr_printf(g->d, "%s/lib/python3*/site-packages/%%s",
                            getenv(own[i])));
        }
    if (home != NULL)
        look_in_packages(g, f,
                dr_printf(g->d, "%s/.local/lib/python3*/site-packages/%%s", home));
}

void dr_gather_libraries(struct dr_gather *g)
{
    struct found *f = dr_alloc(g->d, sizeof(*f));

    look_everywhere(g, f);
    if (f->num == 0)
        return;
    dr_prompt(g, "ls -ln librccl.so* libnccl.so*");
    for (uint32_t i = 0; i < f->num; i++)
        dr_write_ls(g, f->path[i]);
    for (uint32_t i = 0; i < f->num; i++)
        if (dr_has(f->path[i], "librccl"))
            dr_write_images(g->out, dr_under(g, f->path[i]), f->path[i]);
}

/* ---- probe records ---- */

static const char *state_folder(struct dr_gather *g)
{
    const char *own = getenv("MOTET_STATE_DIR"), *xdg = getenv("XDG_STATE_HOME"),
               *home = getenv("HOME");

    if (!dr_gather_live(g))
        return "/var/lib/motet";
    if (own != NULL && own[0] != 0)
        return own;
    if (xdg != NULL && xdg[0] == '/')
        return dr_printf(g->d, "%s/motet", xdg);
    return home != NULL && home[0] == '/'
            ? dr_printf(g->d, "%s/.local/state/motet", home)
            : "";
}

/* The PCI address in a device's identity, "GPU-…/0000:40:00.0". */
static struct dr_span address_of(struct dr_span identity)
{
    const char *slash = memrchr(identity.at, '/', identity.length);

    if (slash == NULL)
        return identity;
    return (struct dr_span){ slash + 1,
        identity.length - (size_t)(slash + 1 - identity.at) };
}

/* The library's own history of first touches, as records: see transport/history.h. */
static void write_touches(struct dr_gather *g, const char *folder)
{
    char *text = dr_slurp(g, dr_printf(g->d, "%s/paths", folder), 1u << 20, NULL),
         *save = NULL;

    for (char *line = text != NULL ? strtok_r(text, "\n", &save) : NULL; line != NULL;
            line = strtok_r(NULL, "\n", &save)) {
        struct dr_span part[6], a, b;
        bool began, ended;

        if (!dr_scan(line, "^%w %w %w %w %w %w ", part) ||
                strpbrk(line, "\"\\") != NULL)
            continue;
        began = dr_span_is(part[0], "touch");
        ended = dr_span_is(part[0], "touched");
        a = address_of(part[4]);
        b = address_of(part[5]);
        if (began || ended)
            fprintf(g->out,
                    "{\"probe\":\"peer-access\",\"pair\":[\"%.*s\",\"%.*s\"],"
                    "\"boot_id\":\"%.*s\",\"state\":\"%s\"}\n",
                    (int)a.length, a.at, (int)b.length, b.at, (int)part[1].length,
                    part[1].at, began ? "started" : "finished");
    }
}

void dr_gather_probes(struct dr_gather *g)
{
    const char *folder = state_folder(g);
    const struct dr_names names =
            folder[0] != 0 ? dr_names_of(g, folder) : (struct dr_names){ NULL, 0 };

    for (uint32_t i = 0; i < names.num && i < LIST_MAX; i++)
        if (dr_begins(names.name[i], "probe"))
            (void)dr_write_cat(g, dr_printf(g->d, "%s/%s", folder, names.name[i]));
    if (names.num > 0)
        write_touches(g, folder);
}
