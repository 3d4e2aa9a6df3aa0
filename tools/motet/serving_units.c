/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Units of systemd that use GPUs, are stopped, and are not masked: a timer, a socket, a
 * deployment or another admin may start one in the middle of a test. Known as such are
 * those that were named here as users before, and those whose file speaks of a GPU.
 */
#include "serving_parts.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define UNITS_MAX 64
#define NAME_MAX_ 128
#define FILE_MAX  (64 << 10)

/* Where units lie, first one wins. */
static const char *const folders[] = { "/etc/systemd/system", "/run/systemd/system",
    "/run/systemd/generator", "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system", "/lib/systemd/system" };
#define NUM_FOLDERS (sizeof(folders) / sizeof(*folders))

/* What a line of a unit says that starts work on a GPU. */
static const char *const gpu_words[] = { "/dev/kfd", "/dev/dri/render", "/dev/nvidia",
    "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
    "HSA_OVERRIDE_GFX_VERSION", "NVIDIA_VISIBLE_DEVICES", "--gpus", "nvidia.com/gpu",
    "amd.com/gpu", "aphrodite", "comfyui", "exllama", "hipfire", "koboldcpp",
    "llama-server", "llama-swap", "llama.cpp", "lmdeploy", "localai", "ollama",
    "sglang", "stable-diffusion", "tabbyapi", "text-generation", "tritonserver",
    "vllm" };
/* Lines that are read for that. */
static const char *const keys[] = { "ExecStart", "Environment", "DeviceAllow" };

struct units {
    size_t count;
    char name[UNITS_MAX][NAME_MAX_];
    bool running[UNITS_MAX];
};

static void add_unit(struct units *all, const char *name)
{
    size_t n = strlen(name);

    if (n < 9 || n >= NAME_MAX_ || strcmp(name + n - 8, ".service") != 0 ||
            all->count == UNITS_MAX)
        return;
    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->name[i], name) == 0)
            return;
    memcpy(all->name[all->count++], name, n + 1);
}

/* ---- those whose file speaks of a GPU ---- */

static bool has_word(const char *line, size_t length)
{
    for (size_t i = 0; i < sizeof(gpu_words) / sizeof(*gpu_words); i++) {
        size_t n = strlen(gpu_words[i]);

        for (size_t at = 0; at + n <= length; at++)
            if (strncasecmp(line + at, gpu_words[i], n) == 0)
                return true;
    }
    return false;
}

static bool speaks_of_gpu(const char *text)
{
    bool counts = false, goes_on = false;

    while (*text != 0) {
        size_t length = strcspn(text, "\n");

        if (!goes_on) {
            counts = false;
            for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
                counts |= strncmp(text, keys[i], strlen(keys[i])) == 0;
        }
        if (counts && has_word(text, length))
            return true;
        goes_on = length > 0 && text[length - 1] == '\\';
        text += length + (text[length] == '\n' ? 1 : 0);
    }
    return false;
}

static void add_from_folder(struct units *all, const char *folder)
{
    DIR *dir = serving_folder("%s", folder);
    char *text = malloc(FILE_MAX);
    struct dirent *entry;

    while (dir != NULL && text != NULL && (entry = readdir(dir)) != NULL) {
        const char *dot = strrchr(entry->d_name, '.');

        /* a template starts nothing by itself */
        if (dot == NULL || strcmp(dot, ".service") != 0 ||
                (dot > entry->d_name && dot[-1] == '@'))
            continue;
        if (serving_read(text, FILE_MAX, "%s/%s", folder, entry->d_name) > 0 &&
                speaks_of_gpu(text))
            add_unit(all, entry->d_name);
    }
    if (dir != NULL)
        closedir(dir);
    free(text);
}

/* ---- those that were seen ---- */

static void add_remembered(struct units *all)
{
    char folder[PATH_MAX];
    struct dirent *entry;
    DIR *dir;

    if (!serving_state("units", folder, sizeof(folder)) ||
            (dir = opendir(folder)) == NULL)
        return;
    while ((entry = readdir(dir)) != NULL)
        add_unit(all, entry->d_name);
    closedir(dir);
}

void serving_remember(const struct serving *s)
{
    char folder[PATH_MAX - NAME_MAX_ - 1], path[PATH_MAX];

    for (size_t i = 0; i < s->num_users; i++) {
        int fd;

        if (!s->users[i].is_unit || s->users[i].display ||
                strchr(s->users[i].unit, ' ') != NULL ||
                !serving_state("units", folder, sizeof(folder)))
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, s->users[i].unit);
        fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0)
            close(fd);
    }
}

/* ---- what state they are in ---- */

enum unit_file { UNIT_NONE, UNIT_MASKED, UNIT_STARTS };

static enum unit_file find_file(const char *unit)
{
    char path[4096], target[64];
    struct stat st;

    for (size_t i = 0; i < NUM_FOLDERS; i++) {
        ssize_t n;

        if ((size_t)snprintf(path, sizeof(path), "%s%s/%s", serving_root(), folders[i],
                    unit) >= sizeof(path) ||
                lstat(path, &st) != 0)
            continue;
        n = S_ISLNK(st.st_mode) ? readlink(path, target, sizeof(target) - 1) : -1;
        target[n > 0 ? n : 0] = 0;
        /* masked, either way */
        return strcmp(target, "/dev/null") == 0 ||
                        (S_ISREG(st.st_mode) && st.st_size == 0)
                ? UNIT_MASKED
                : UNIT_STARTS;
    }
    return UNIT_NONE;
}

/* Whether systemd has it, and would start it. "vllm@1.service" is started by
 * "vllm@.service" if it has no file of its own. */
static bool can_start(const char *unit)
{
    const char *at = strchr(unit, '@'), *dot = strrchr(unit, '.');
    enum unit_file file = find_file(unit);
    char name[NAME_MAX_];

    if (file == UNIT_NONE && at != NULL && dot > at) {
        snprintf(name, sizeof(name), "%.*s%s", (int)(at + 1 - unit), unit, dot);
        file = find_file(name);
    }
    return file == UNIT_STARTS;
}

/* A unit runs if it has a process. */
static void find_running(struct units *all)
{
    DIR *processes = serving_folder("/proc");
    struct dirent *entry;
    char text[4096], part[NAME_MAX_ + 2];

    while (processes != NULL && (entry = readdir(processes)) != NULL) {
        if (serving_pid(entry->d_name) == 0 ||
                serving_read(text, sizeof(text), "/proc/%s/cgroup", entry->d_name) <= 0)
            continue;
        for (size_t i = 0; i < all->count; i++) {
            snprintf(part, sizeof(part), "/%s", all->name[i]);
            all->running[i] |= strstr(text, part) != NULL;
        }
    }
    if (processes != NULL)
        closedir(processes);
}

/* Where systemd is what starts services: in a container its units are only files. */
static bool has_systemd(void)
{
    DIR *dir = serving_folder("/run/systemd/system");

    if (dir == NULL)
        return false;
    closedir(dir);
    return true;
}

void serving_units(struct serving *s)
{
    struct units all = { .count = 0 };

    if (!has_systemd())
        return;
    add_remembered(&all);
    for (size_t i = 0; i < NUM_FOLDERS; i++)
        add_from_folder(&all, folders[i]);
    if (all.count > 0)
        find_running(&all);
    for (size_t i = 0; i < all.count; i++)
        if (!all.running[i] && can_start(all.name[i]) &&
                s->num_unmasked < SERVING_UNITS_MAX)
            snprintf(s->unmasked[s->num_unmasked++], sizeof(s->unmasked[0]), "%s",
                    all.name[i]);
}
