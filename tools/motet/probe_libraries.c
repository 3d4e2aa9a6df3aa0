/* SPDX-License-Identifier: Apache-2.0 */
/* Which libraries motet probe sets side by side. */
#include "probe_run.h"

#include "cmd.h"
#include "lib.h"

#include <string.h>

static void add(struct probe_report *report, const char *given, const char *path,
        const char *why)
{
    struct probe_library *l = &report->libraries[report->nlibraries++];

    l->given = given;
    snprintf(l->path, sizeof(l->path), "%s", path);
    snprintf(l->why, sizeof(l->why), "%.*s", (int)sizeof(l->why) - 1, why);
}

static void add_ours(struct probe_report *report)
{
    static struct library own;
    char why[256];

    if (library_load(&own, NULL, why, sizeof(why)) == 0)
        add(report, NULL, own.path, "the copy inside this command");
}

/* An override that cannot be used is a column too: its load stage says why. */
static const char *override_of(const motet_find_report *found)
{
    for (size_t i = 0; i < found->num_candidates; i++)
        if (found->candidates[i].origin == MOTET_FIND_OVERRIDE)
            return found->candidates[i].path;
    return NULL;
}

/* The library that this machine would take for the cards that are there, as `motet lib`
 * says. On CPUs one with code for GPUs is none. */
static void add_chosen(struct probe_report *report)
{
    const struct lib_wish wish = { .timeout_s = report->options->timeout_s,
        .library = report->place.backend == &backend_cuda ? &motet_find_nccl
                : report->place.backend == &backend_hip   ? &motet_find_rccl
                                                          : NULL };
    struct lib_found *found = lib_search(&wish);
    struct probe_library *l = &report->libraries[report->nlibraries];
    const char *path = NULL;

    if (found != NULL && found->report.outcome == MOTET_FIND_FOUND)
        path = found->report.path;
    else if (found != NULL && found->report.outcome == MOTET_FIND_REFUSED)
        path = override_of(&found->report);
    if (path != NULL) {
        add(report, path, path, "the one that `motet lib` chooses");
        l->given = l->path;
        if (probe_needs_gpu(report, l) != NULL)
            report->nlibraries--;
    } else if (found != NULL) {
        snprintf(report->note, sizeof(report->note), "%s", found->report.sentence);
        report->unsettled = report->place.facts.devices > 0 &&
                found->report.outcome != MOTET_FIND_NONE;
    }
    if (found != NULL)
        lib_found_free(found);
}

static void add_given(struct probe_report *report, const char *given)
{
    char path[PATH_MAX], found[PATH_MAX], why[PATH_MAX + 256];

    if (strcmp(given, "ours") == 0) {
        add_ours(report);
        return;
    }
    if (!library_find(given, found, why, sizeof(why))) {
        add(report, given, given, why);
        report->libraries[report->nlibraries - 1].missing = true;
        return;
    }
    if (strchr(found, '/') == NULL || !library_absolute(found, path))
        snprintf(path, sizeof(path), "%s", found);
    add(report, given, path, "named by --lib");
}

void probe_choose_libraries(struct probe_report *report)
{
    const struct probe_options *o = report->options;

    for (int i = 0; i < o->nlibraries; i++)
        add_given(report, o->libraries[i]);
    if (o->nlibraries > 0)
        return;
    add_chosen(report);
    add_ours(report);
}

const char *probe_needs_gpu(const struct probe_report *report,
        const struct probe_library *library)
{
    if (report->place.backend->mirrored || report->options->host_memory ||
            library->motet)
        return NULL;
    if (!library_has_gpu_code(library->path))
        return NULL;
    return "this library has code for GPUs, so its ranks want GPU memory, and the "
           "ranks are on CPUs here; --host-memory if it takes host memory";
}
