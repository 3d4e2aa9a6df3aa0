/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a process's cgroup to what has to be stopped: the first service, container or job
 * on the path from the root; what lies deeper is inside of it. Services that only start
 * what others ask for (a container engine, sshd, cron) are passed over.
 */
#include "serving_parts.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define ID_DIGITS 64

/* Kinds of container, by what the cgroup's name begins with, or what it lies within. */
static const struct engine {
    const char *begins, *within, *name;
    const char *before; /* keeps it from coming back; NULL if no one command does */
    const char *stop, *hint;
} engines[] = {
#define POD                                                                       \
    "crictl stop",                                                                \
            " (and scale down what owns its pod, kubectl scale --replicas=0: it " \
            "starts the container again)"
#define DOCKER                                             \
    "docker", "docker update --restart=no", "docker stop", \
            " (with another restart policy it may come back)"
#define PODMAN                     \
    "podman", NULL, "podman stop", \
            " (a restart policy, or a unit of systemd, may start it again)"
    { "cri-containerd", NULL, "Kubernetes", NULL, POD },
    { "crio", NULL, "Kubernetes", NULL, POD },
    { NULL, "kubepods", "Kubernetes", NULL, POD },
    { "docker", NULL, DOCKER },
    { NULL, "docker", DOCKER },
    { "libpod", NULL, PODMAN },
    { "nerdctl", NULL, "containerd", "nerdctl update --restart=no", "nerdctl stop",
            " (with another restart policy it may come back)" },
};

static const char *const passed_over[] = { "atd.service", "containerd.service",
    "cri-o.service", "crio.service", "cron.service", "crond.service", "docker.service",
    "k3s-agent.service", "k3s.service", "kubelet.service", "podman.service",
    "rke2-agent.service", "rke2-server.service", "slurmd.service",
    "snap.docker.dockerd.service", "ssh.service", "sshd.service",
    "systemd-logind.service" };
/* Of these any instance. */
static const char *const passed_over_templates[] = { "getty@", "ssh@", "sshd@",
    "user@" };

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool ends(const char *text, const char *with)
{
    size_t n = strlen(text), m = strlen(with);

    return n >= m && strcmp(text + n - m, with) == 0;
}

static bool is_passed_over(const char *unit)
{
    for (size_t i = 0; i < sizeof(passed_over) / sizeof(*passed_over); i++)
        if (strcmp(unit, passed_over[i]) == 0)
            return true;
    for (size_t i = 0;
            i < sizeof(passed_over_templates) / sizeof(*passed_over_templates); i++)
        if (begins(unit, passed_over_templates[i]))
            return true;
    return false;
}

/* @p user is the uid of the user whose manager runs it, "" if it is the system's. */
static bool take_service(const char *part, const char *user, struct serving_user *u)
{
    if (!ends(part, ".service") || is_passed_over(part) || strlen(part) > 96)
        return false;
    u->is_unit = true;
    if (*user == 0) {
        snprintf(u->unit, sizeof(u->unit), "%s", part);
        snprintf(u->stop, sizeof(u->stop), "systemctl stop %s && systemctl mask %s",
                part, part);
        return true;
    }
    snprintf(u->unit, sizeof(u->unit), "%s of user %.20s", part, user);
    snprintf(u->stop, sizeof(u->stop),
            "systemctl --user stop %s && systemctl --user mask %s (as user %.20s)",
            part, part, user);
    return true;
}

/* The digits that end a container's cgroup, before ".scope"; NULL if there are none. */
static const char *container_id(const char *part)
{
    size_t n = strlen(part);

    if (ends(part, ".scope"))
        n -= strlen(".scope");
    if (n < ID_DIGITS || strspn(part + n - ID_DIGITS, "0123456789abcdef") < ID_DIGITS ||
            (n > ID_DIGITS && isalnum((unsigned char)part[n - ID_DIGITS - 1])))
        return NULL;
    return part + n - ID_DIGITS;
}

/* @p within is the path that @p part ends. */
static bool take_container(const char *part, const char *within, struct serving_user *u)
{
    const char *id = container_id(part), *name = part;
    char shorter[13];

    if (id == NULL)
        return false;
    /* "kubepods-burstable-pod1.slice:cri-containerd:3f2a…" says it in the middle */
    for (const char *at = part; at < id; at++)
        if (*at == ':' && at + 1 < id)
            name = at + 1;
    snprintf(shorter, sizeof(shorter), "%.12s", id);
    for (size_t i = 0; i < sizeof(engines) / sizeof(*engines); i++) {
        const struct engine *e = &engines[i];

        if (e->begins != NULL ? !begins(name, e->begins)
                              : strstr(within, e->within) == NULL)
            continue;
        snprintf(u->unit, sizeof(u->unit), "%s container %s", e->name, shorter);
        if (e->before != NULL)
            snprintf(u->stop, sizeof(u->stop), "%s %s && %s %s%s", e->before, shorter,
                    e->stop, shorter, e->hint);
        else
            snprintf(u->stop, sizeof(u->stop), "%s %s%s", e->stop, shorter, e->hint);
        return true;
    }
    snprintf(u->unit, sizeof(u->unit), "container %s", shorter);
    snprintf(u->stop, sizeof(u->stop),
            "kill %d (what started the container may do so "
            "again)",
            (int)u->pid);
    return true;
}

/* LXC's containers have names, and Proxmox's have numbers. */
static bool take_lxc(const char *part, const char *before, struct serving_user *u)
{
    const char *name = begins(part, "lxc.payload.") ? part + strlen("lxc.payload.")
            : strcmp(before, "lxc") == 0 || strcmp(before, "lxc.payload") == 0 ? part
                                                                               : NULL;
    bool number;

    if (name == NULL || *name == 0 || strlen(name) > 64)
        return false;
    number = name[strspn(name, "0123456789")] == 0;
    snprintf(u->unit, sizeof(u->unit), "LXC container %s", name);
    snprintf(u->stop, sizeof(u->stop), "%s %s (and take its start at boot away)",
            number ? "pct stop" : "lxc-stop -n", name);
    return true;
}

static bool take_job(const char *part, struct serving_user *u)
{
    const char *number = part + strlen("job_");

    if (!begins(part, "job_") || *number == 0 || strlen(number) > 20 ||
            number[strspn(number, "0123456789")] != 0)
        return false;
    snprintf(u->unit, sizeof(u->unit), "Slurm job %s", number);
    snprintf(u->stop, sizeof(u->stop), "scancel %s", number);
    return true;
}

/* The path in a line of /proc/PID/cgroup that says most: cgroup v2's, unless it is the
 * root, or systemd's own of v1, or any. */
static void choose_path(const char *text, char *buf, size_t bytes)
{
    int best = 0;

    *buf = 0;
    while (*text != 0) {
        size_t length = strcspn(text, "\n");
        const char *path = strchr(text, '/');
        int worth = begins(text, "0::") ? 3
                : strstr(text, ":name=systemd:") != NULL &&
                        strstr(text, ":name=systemd:") < text + length
                ? 2
                : 1;

        if (path != NULL && path < text + length) {
            size_t n = length - (size_t)(path - text);

            if (n > 1 && worth > best) {
                snprintf(buf, bytes, "%.*s", (int)n, path);
                best = worth;
            }
        }
        text += length + (text[length] == '\n' ? 1 : 0);
    }
}

void serving_place(const char *cgroup, struct serving_user *user)
{
    char path[2048], within[2048] = "", uid[24] = "", before[256] = "";
    char *save = NULL;

    choose_path(cgroup, path, sizeof(path));
    for (char *part = strtok_r(path, "/", &save); part != NULL;
            part = strtok_r(NULL, "/", &save)) {
        size_t n = strlen(within);

        snprintf(within + n, sizeof(within) - n, "/%s", part);
        if (begins(part, "user@") && ends(part, ".service"))
            snprintf(uid, sizeof(uid), "%.*s", (int)strcspn(part + 5, "."), part + 5);
        if (take_service(part, uid, user) || take_container(part, within, user) ||
                take_lxc(part, before, user) || take_job(part, user))
            return;
        snprintf(before, sizeof(before), "%s", part);
    }
}
