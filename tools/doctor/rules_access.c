/* SPDX-License-Identifier: Apache-2.0 */
/* Rules about device nodes, shared memory, NUMA calls and time-sliced profiles. */
#include "access.h"
#include "rules.h"

#include <string.h>

/* Lines that a finding quotes at most of one kind. */
#define QUOTED_MAX 6u

static const struct dr_access_event *first_of(const struct doctor *d,
        enum dr_access_what what)
{
    for (uint32_t i = 0; i < d->access->num_events; i++)
        if (d->access->events[i].what == what)
            return &d->access->events[i];
    return NULL;
}

static void quote(struct doctor *d, struct dr_finding *f, enum dr_access_what what)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < d->access->num_events && count < QUOTED_MAX; i++)
        if (d->access->events[i].what == what) {
            dr_because(d, f, d->access->events[i].line);
            count++;
        }
}

/* ---- shared memory ---- */

/* "shm 64M 29M 36M 45% /dev/shm" of df: its size, and what is left. */
static uint32_t size_of_shm(const struct doctor *d, struct dr_span *size,
        struct dr_span *left)
{
    for (uint32_t i = 0; i < d->num_lines; i++) {
        struct dr_span out[5];

        if (!dr_has(d->lines[i].text, "/dev/shm") ||
                !dr_scan(d->lines[i].text, "^%w %w %w %w %d%% /dev/shm%e", out))
            continue;
        *size = out[1];
        *left = out[3];
        return i;
    }
    return DR_NONE;
}

static uint32_t channels_over_shm(const struct doctor *d)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < d->num_lines; i++)
        count += dr_has(d->lines[i].text, " via SHM");
    return count;
}

static void no_space(struct doctor *d)
{
    const struct dr_access_event *first = first_of(d, DR_SHM_SPACE);
    const uint32_t channels = channels_over_shm(d);
    struct dr_span size, left;
    struct dr_finding *f;
    uint64_t bytes = 0;
    uint32_t line;

    if (first == NULL)
        return;
    for (uint32_t i = 0; i < d->access->num_events; i++)
        if (d->access->events[i].what == DR_SHM_SPACE &&
                d->access->events[i].bytes > bytes)
            bytes = d->access->events[i].bytes;
    line = size_of_shm(d, &size, &left);
    f = dr_found(d, DR_SHM_TOO_SMALL, "/dev/shm");
    dr_say(d, f, "/dev/shm has no room left for a segment%s%s%s.",
            bytes > 0 ? dr_printf(d, " of %.1f MiB", (double)bytes / 1048576) : "",
            line != DR_NONE
                    ? dr_printf(d, ": it holds %.*s in all", (int)size.length, size.at)
                    : "",
            line != DR_NONE
                    ? dr_printf(d, ", %.*s of it free", (int)left.length, left.at)
                    : "");
    quote(d, f, DR_SHM_SPACE);
    dr_because(d, f, line);
    if (bytes > 0 && channels > 0)
        dr_fix(d, f,
                "The %u channels over shared memory that the text shows need %u x %.1f "
                "MiB = %.0f MiB, and each further communicator as much again.",
                channels, channels, (double)bytes / 1048576,
                (double)bytes / 1048576 * channels);
    dr_fix(d, f,
            "Give the container more: `--shm-size=8g` or `--ipc=host`; in Kubernetes "
            "an "
            "emptyDir with `medium: Memory` on /dev/shm.");
    dr_fix(d, f,
            "Remove segments that killed runs left behind, when none is running: `ls "
            "-l "
            "/dev/shm/nccl-*`.");
}

static void not_registered(struct doctor *d)
{
    for (uint32_t i = 0, count = 0; i < d->access->num_events && count < QUOTED_MAX;
            i++) {
        const struct dr_access_event *e = &d->access->events[i];
        struct dr_finding *f;

        if (e->what != DR_SHM_REGISTER)
            continue;
        f = dr_found(d, DR_SHM_REGISTER_FAILED, "%s", e->name);
        dr_say(d, f,
                "%s has made its shared-memory segment, and the GPU runtime refuses to "
                "register it.",
                e->name);
        dr_because(d, f, e->line_before);
        dr_because(d, f, e->line);
        count++;
    }
}

void dr_rule_shm(struct doctor *d)
{
    no_space(d);
    not_registered(d);
}

/* ---- /dev/kfd ---- */

/* "crw-rw---- 1 0 993 235, 0 Feb 7 08:02 /dev/kfd": group and mode of the node. */
static uint32_t node_listing(const struct doctor *d, uint32_t machine,
        struct dr_span *mode, struct dr_span *group)
{
    uint32_t found = DR_NONE;

    for (uint32_t i = 0; i < d->num_lines; i++) {
        struct dr_span out[7];

        if (d->lines[i].text[0] != 'c' ||
                (!dr_scan(d->lines[i].text, "^%w %d %w %w %d, %d %* /dev/kfd%e", out) &&
                        !dr_scan(d->lines[i].text, "^%w %d %w %w %d, %d %* kfd%e",
                                out)))
            continue;
        if (found != DR_NONE && d->lines[i].machine != machine)
            continue;
        found = i;
        *mode = out[0];
        *group = out[3];
    }
    return found;
}

/* The number of a group that is named: in `id`, `getent group` or `stat -c %g`. */
static const char *number_of(struct doctor *d, struct dr_span group, uint32_t machine,
        uint32_t *line)
{
    const char *name = dr_copy(d, group.at, group.length);
    const char *in_id = dr_printf(d, "(%s)", name);
    const char *in_file = dr_printf(d, "^%s:%%w:%%d:", name);

    if (strspn(name, "0123456789") == group.length)
        return name;
    for (uint32_t i = 0; i < d->num_lines; i++) {
        const char *text = d->lines[i].text, *at;
        struct dr_span out[2];

        if (d->lines[i].machine != machine)
            continue;
        *line = i;
        if (dr_has(text, "groups=") && (at = strstr(text, in_id)) != NULL) {
            size_t digits = 0;

            while (at > text && at[-1] >= '0' && at[-1] <= '9')
                at--, digits++;
            if (digits > 0)
                return dr_copy(d, at, digits);
        }
        if (strchr(name, '%') == NULL && dr_scan(text, in_file, out))
            return dr_copy(d, out[1].at, out[1].length);
        if (dr_has(dr_command(d, i), "%g") && dr_has(dr_command(d, i), "/dev/kfd") &&
                dr_scan(text, "^%d%e", out))
            return dr_copy(d, out[0].at, out[0].length);
    }
    *line = DR_NONE;
    return NULL;
}

/* The word of `stat -c FORMAT`'s answer that stands where %g does in the format. */
static bool by_format(const char *typed, const char *text, struct dr_span *group)
{
    const char *format = strstr(typed, "%g");
    size_t from = 0, at = 0;
    struct dr_span w;

    while (format > typed && strchr("'\"=", format[-1]) == NULL &&
            !(format - typed >= 2 && format[-1] == ' ' && format[-2] == 'c'))
        format--;
    while (dr_word(format, &from, &w) && dr_word(text, &at, group))
        if (w.at[0] == '%' && w.length >= 2 && w.at[1] == 'g')
            return dr_scan(group->at, "^%d", group);
    return false;
}

/* The group's number in the answer of `stat /dev/kfd`, long or by a format. */
static const char *number_of_stat(struct doctor *d, uint32_t machine, uint32_t *line)
{
    for (uint32_t i = 0; i < d->num_lines; i++) {
        const char *text = d->lines[i].text, *typed = dr_command(d, i);
        struct dr_span out[1];
        bool found = false;

        if (d->lines[i].machine != machine || (d->lines[i].flags & DR_COMMAND) ||
                !dr_has(typed, "stat ") || !dr_has(typed, "/dev/kfd"))
            continue;
        if (dr_has(typed, "%g"))
            found = by_format(typed, text, out);
        else if (dr_has(text, "Gid:"))
            found = dr_scan(text, "Gid: (%d/", out) || dr_scan(text, "Gid: ( %d/", out);
        if (found) {
            *line = i;
            return dr_copy(d, out[0].at, out[0].length);
        }
    }
    return NULL;
}

/* The last `id` of the machine. */
static uint32_t id_line(const struct doctor *d, uint32_t machine)
{
    uint32_t found = DR_NONE;

    for (uint32_t i = 0; i < d->num_lines; i++)
        if (d->lines[i].machine == machine &&
                dr_scan(d->lines[i].text, "^uid=%d", NULL))
            found = i;
    return found;
}

static void denied(struct doctor *d, const struct dr_access_event *e)
{
    const uint32_t machine = d->lines[e->line].machine, id = id_line(d, machine);
    struct dr_span mode = { "", 0 }, group = { "", 0 };
    const uint32_t listing = node_listing(d, machine, &mode, &group);
    uint32_t number_line = DR_NONE;
    const char *number = listing != DR_NONE
            ? number_of(d, group, d->lines[listing].machine, &number_line)
            : NULL;
    struct dr_finding *f;

    if (number == NULL)
        number = number_of_stat(d, machine, &number_line);
    f = dr_found(d, DR_KFD_GROUP_MISSING, "%s",
            number != NULL ? dr_printf(d, "group %s of /dev/kfd", number) : "/dev/kfd");
    if (number != NULL)
        dr_say(d, f, "/dev/kfd belongs to group %s%s, and the caller is not in it.",
                number,
                mode.length > 0
                        ? dr_printf(d, " (mode %.*s)", (int)mode.length, mode.at)
                        : "");
    else
        dr_say(d, f,
                "The caller may not open /dev/kfd: it is not in the node's group.");
    quote(d, f, DR_NODE_DENIED);
    dr_because(d, f, listing);
    dr_because(d, f, number_line);
    dr_because(d, f, id);
    if (number != NULL) {
        dr_fix(d, f,
                "Start the container with `--group-add %s`: by number, since the "
                "name may mean another group in the image.",
                number);
        dr_fix(d, f,
                "In Kubernetes: `supplementalGroups: [%s]`. Without a container: add "
                "the user to the group with this number and log in again.",
                number);
    } else {
        dr_fix(d, f,
                "Ask for the number of the node's group, `stat -c %%g /dev/kfd`, "
                "and compare it with `id`, by number.");
        dr_fix(d, f, "Start the container with `--group-add NUMBER`.");
    }
}

/* The text is about another vendor's GPUs, and says nothing of ROCm. */
static bool others_only(const struct doctor *d)
{
    static const char *const rocm[] = { "rocm", "amdgpu", "radeon",
        "torch.version.hip" };
    static const char *const others[] = { "nvidia", "cuda", "moore threads",
        "mthreads" };
    bool other = false;

    for (uint32_t i = 0; i < d->num_lines; i++) {
        for (size_t k = 0; k < sizeof(rocm) / sizeof(*rocm); k++)
            if (dr_has_any_case(d->lines[i].text, rocm[k]))
                return false;
        for (size_t k = 0; !other && k < sizeof(others) / sizeof(*others); k++)
            other = dr_has_any_case(d->lines[i].text, others[k]);
    }
    return other;
}

/* Someone there uses AMD's GPUs: a tool of ROCm, or a GPU that amdgpu drives. */
static bool wants_kfd(const struct doctor *d)
{
    if (d->access->rocm != DR_NONE)
        return true;
    for (uint32_t i = 0; i < d->pci->num_devices; i++) {
        const struct dr_pci_device *p = &d->pci->devices[i];

        if (p->vendor == 0x1002 && dr_is_gpu(p) &&
                (p->driver == NULL || strcmp(p->driver, "amdgpu") == 0))
            return true;
    }
    for (uint32_t i = 0; i < d->pci->num_nodes; i++)
        if (d->pci->nodes[i].simds > 0)
            return true;
    return false;
}

static void absent(struct doctor *d)
{
    struct dr_finding *f;
    bool by_runtime = false;

    for (uint32_t i = 0; i < d->access->num_events; i++)
        by_runtime = by_runtime ||
                (d->access->events[i].what == DR_NODE_ABSENT &&
                        dr_has(d->lines[d->access->events[i].line].text, "pen"));
    if (!by_runtime && !wants_kfd(d) && others_only(d))
        return;
    f = dr_found(d, DR_KFD_NOT_PASSED, "/dev/kfd");
    dr_say(d, f,
            "/dev/kfd does not exist for this process: the node was not passed in.");
    quote(d, f, DR_NODE_ABSENT);
    dr_because(d, f, d->access->rocm);
}

static void forbidden(struct doctor *d, const struct dr_access_event *e)
{
    struct dr_span mode = { "", 0 }, group = { "", 0 };
    struct dr_finding *f;

    if (dr_has_finding(d, DR_KFD_CGROUP_DENIED, e->name))
        return;
    f = dr_found(d, DR_KFD_CGROUP_DENIED, "%s", e->name);

    dr_say(d, f,
            "Opening %s ends with EPERM (Operation not permitted): the device "
            "controller "
            "of the cgroup forbids it, whatever its owner and mode.",
            e->name);
    dr_because(d, f, e->line);
    if (strcmp(e->name, "/dev/kfd") == 0)
        dr_because(d, f, node_listing(d, d->lines[e->line].machine, &mode, &group));
}

static void invalid(struct doctor *d, const struct dr_access_event *e)
{
    struct dr_span mode = { "", 0 }, group = { "", 0 };
    const uint32_t listing = node_listing(d, d->lines[e->line].machine, &mode, &group);
    struct dr_finding *f = dr_found(d, DR_KFD_EINVAL, "%s", e->name);

    dr_say(d, f,
            "The driver answers EINVAL (Invalid argument) when %s is opened%s: it "
            "rejects "
            "the caller, and groups have nothing to do with it.",
            e->name,
            listing != DR_NONE
                    ? dr_printf(d, ", with mode %.*s", (int)mode.length, mode.at)
                    : "");
    dr_because(d, f, e->line);
    dr_because(d, f, listing);
}

void dr_rule_kfd_node(struct doctor *d)
{
    for (uint32_t i = 0; i < d->access->num_events; i++) {
        const struct dr_access_event *e = &d->access->events[i];

        if (e->what == first_of(d, e->what)->what && e != first_of(d, e->what) &&
                e->what != DR_NODE_FORBIDDEN)
            continue; /* one finding quotes them all */
        if (e->what == DR_NODE_ABSENT)
            absent(d);
        else if (e->what == DR_NODE_DENIED)
            denied(d, e);
        else if (e->what == DR_NODE_FORBIDDEN)
            forbidden(d, e);
        else if (e->what == DR_NODE_INVALID)
            invalid(d, e);
    }
}

/* ---- containers and profiles ---- */

static void numa(struct doctor *d)
{
    const struct dr_access_event *e = first_of(d, DR_NUMA_BLOCKED);
    const char *names = "";
    struct dr_finding *f;

    if (e == NULL)
        return;
    for (uint32_t i = 0; i < d->access->num_events; i++) {
        const struct dr_access_event *other = &d->access->events[i];

        if (other->what == DR_NUMA_BLOCKED && !dr_has(names, other->name))
            names = dr_printf(d, "%s%s%s", names, names[0] != 0 ? ", " : "",
                    other->name);
    }
    f = dr_found(d, DR_NUMA_POLICY_BLOCKED_BENIGN, "%s", "");
    dr_say(d, f,
            "The container's filter blocks calls about NUMA (%s): only the placement "
            "of "
            "pages is lost.",
            names);
    quote(d, f, DR_NUMA_BLOCKED);
}

static void profile(struct doctor *d)
{
    const struct dr_access_event *vgpu = first_of(d, DR_VGPU);
    struct dr_finding *f;

    for (uint32_t i = 0; i < d->access->num_events; i++)
        if (vgpu == NULL)
            break;
        else if (d->access->events[i].what == DR_NOT_SUPPORTED) {
            f = dr_found(d, DR_VGPU_UVM_DISABLED, "%s", vgpu->name);
            dr_say(d, f,
                    "The GPU is a time-sliced profile (%s) without unified memory, so "
                    "setting up a communicator ends with `operation not supported`.",
                    vgpu->name);
            quote(d, f, DR_NOT_SUPPORTED);
            quote(d, f, DR_VGPU);
            return;
        }
    for (uint32_t i = 0; i < d->access->num_events; i++)
        if (d->access->events[i].what == DR_NOT_SUPPORTED)
            dr_trouble(d, d->access->events[i].line);
}

void dr_rule_container(struct doctor *d)
{
    numa(d);
    profile(d);
}
