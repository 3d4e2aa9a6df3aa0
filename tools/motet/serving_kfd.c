/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AMD: /sys/class/kfd/kfd/proc has a folder for each process that opened /dev/kfd, with
 * vram_GPUID (bytes) and queues/N/gpuid. Whoever only asked what devices there are has no
 * queue and next to no memory.
 */
#include "serving_parts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROCESSES "/sys/class/kfd/kfd/proc"
#define NODES     "/sys/class/kfd/kfd/topology/nodes"
/* What a runtime takes of a GPU that it has only opened. */
#define VRAM_IDLE (1u << 20)
/* GPUs of one host that are told apart. */
#define GPUS_MAX 64

/* What one process does on one GPU. */
struct use {
    unsigned gpu;
    unsigned queues;
    uint64_t vram;
};

struct uses {
    struct use use[GPUS_MAX];
    size_t count;
};

static struct use *use_of(struct uses *all, unsigned gpu)
{
    for (size_t i = 0; i < all->count; i++)
        if (all->use[i].gpu == gpu)
            return &all->use[i];
    if (all->count == GPUS_MAX)
        return &all->use[GPUS_MAX - 1];
    all->use[all->count] = (struct use){ .gpu = gpu };
    return &all->use[all->count++];
}

/* The value after @p name in lines of "name value"; 0 if it is not there. */
static uint64_t property(const char *text, const char *name)
{
    size_t length = strlen(name);

    for (const char *at = text; at != NULL && *at != 0;) {
        if (strncmp(at, name, length) == 0 && at[length] == ' ')
            return strtoull(at + length, NULL, 10);
        at = strchr(at, '\n');
        at = at != NULL ? at + 1 : NULL;
    }
    return 0;
}

/* " (0000:03:00.0)" for the GPU with that gpu_id, "" if the topology does not say. */
static void place_of(unsigned gpu, char *buf, size_t bytes)
{
    DIR *nodes = serving_folder(NODES);
    struct dirent *entry;
    char text[4096];

    *buf = 0;
    while (nodes != NULL && *buf == 0 && (entry = readdir(nodes)) != NULL) {
        uint64_t location;

        if (serving_read(text, sizeof(text), NODES "/%s/gpu_id", entry->d_name) <= 0 ||
                strtoul(text, NULL, 10) != gpu ||
                serving_read(text, sizeof(text), NODES "/%s/properties",
                        entry->d_name) <= 0)
            continue;
        location = property(text, "location_id");
        snprintf(buf, bytes, " (%04x:%02x:%02x.%x)",
                (unsigned)property(text, "domain") & 0xffff,
                (unsigned)(location >> 8) & 0xff, (unsigned)(location >> 3) & 0x1f,
                (unsigned)location & 7);
    }
    if (nodes != NULL)
        closedir(nodes);
}

static void read_queues(const char *process, struct uses *all)
{
    DIR *queues = serving_folder(PROCESSES "/%s/queues", process);
    struct dirent *entry;
    char text[64];

    if (queues == NULL)
        return;
    while ((entry = readdir(queues)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        if (serving_read(text, sizeof(text), PROCESSES "/%s/queues/%s/gpuid", process,
                    entry->d_name) <= 0)
            text[0] = 0;
        use_of(all, (unsigned)strtoul(text, NULL, 10))->queues++;
    }
    closedir(queues);
}

/* @p process is a folder's name, or "PID/context_N": a process may have several. */
static void read_uses(const char *process, struct uses *all, bool deeper)
{
    DIR *folder = serving_folder(PROCESSES "/%s", process);
    struct dirent *entry;
    char text[64], context[300];

    if (folder == NULL)
        return;
    while ((entry = readdir(folder)) != NULL) {
        if (strncmp(entry->d_name, "vram_", 5) == 0 &&
                serving_read(text, sizeof(text), PROCESSES "/%s/%s", process,
                        entry->d_name) > 0)
            use_of(all, (unsigned)strtoul(entry->d_name + 5, NULL, 10))->vram +=
                    strtoull(text, NULL, 10);
        if (!deeper || strncmp(entry->d_name, "context_", 8) != 0)
            continue;
        snprintf(context, sizeof(context), "%.20s/%.255s", process, entry->d_name);
        read_uses(context, all, false);
    }
    closedir(folder);
    read_queues(process, all);
}

static void add_process(struct serving_list *list, const char *name)
{
    struct serving_seen seen = { .pid = serving_pid(name),
        .outside = !serving_sees_all_pids() };
    struct uses all = { .count = 0 };
    char place[32];

    read_uses(name, &all, true);
    for (size_t i = 0; i < all.count; i++) {
        const struct use *use = &all.use[i];

        if (use->queues == 0 && use->vram <= VRAM_IDLE)
            continue;
        place_of(use->gpu, place, sizeof(place));
        snprintf(seen.gpu, sizeof(seen.gpu),
                "KFD gpu_id %u%s: %u queue%s, %" PRIu64 " MiB", use->gpu, place,
                use->queues, use->queues == 1 ? "" : "s", use->vram >> 20);
        serving_add(list, seen);
    }
}

void serving_kfd(struct serving_list *list)
{
    DIR *processes = serving_folder(PROCESSES);
    struct dirent *entry;

    if (processes == NULL) {
        if (errno != ENOENT && errno != ENOTDIR)
            serving_not_seen(list, "%s: %s, so users of AMD GPUs are not known",
                    PROCESSES, strerror(errno));
        return;
    }
    while ((entry = readdir(processes)) != NULL)
        if (serving_pid(entry->d_name) > 0)
            add_process(list, entry->d_name);
    closedir(processes);
}
