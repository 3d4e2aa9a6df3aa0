/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules about launches: refused for a hostcall buffer, or spinning in the LL protocol; and
 * about the images that declare such buffers.
 */
#include "access.h"
#include "job.h"
#include "rules.h"

#include <string.h>

/* Lines that a finding quotes at most of one kind. */
#define QUOTED_MAX 6u

/* ---- refused ---- */

/* "device 0, device 1 (0000:0b:00.0)": of all refusals of one kernel. */
static const char *devices_of(struct doctor *d, const char *kernel)
{
    const char *out = "";

    for (uint32_t i = 0; i < d->access->num_refusals; i++) {
        const struct dr_refusal *r = &d->access->refusals[i];

        if (r->kernel == NULL || strcmp(r->kernel, kernel) != 0)
            continue;
        if (r->device[0] != 0 && !dr_has(out, r->device))
            out = dr_printf(d, "%s%s%s", out, out[0] != 0 ? ", " : "", r->device);
    }
    return out;
}

/* The refusal with a kernel's name in the same process, or NULL. */
static const struct dr_refusal *named_by_runtime(const struct doctor *d,
        const struct dr_refusal *r)
{
    for (uint32_t i = 0; i < d->access->num_refusals; i++)
        if (!d->access->refusals[i].by_library && r->process >= 0 &&
                d->access->refusals[i].process == r->process)
            return &d->access->refusals[i];
    return NULL;
}

static void advise(struct doctor *d, struct dr_finding *f, const char *devices)
{
    dr_fix(d, f,
            "Find out why %s has no AtomicOps: `lspci -vv` of the path as root; in a "
            "guest the hypervisor's lines first. The ATOMICS_* findings name the port.",
            devices[0] != 0 ? devices : "the device");
    dr_fix(d, f,
            "Or use a library whose image for this GPU declares no hostcall: `motet "
            "hostcall FILE` counts them.");
}

static const char *subject_of(struct doctor *d, const struct dr_refusal *r)
{
    if (r->kernel != NULL)
        return r->kernel;
    if (r->device[0] != 0)
        return r->device;
    return r->process >= 0 ? dr_printf(d, "process %lld", (long long)r->process) : "";
}

static void refused(struct doctor *d, const struct dr_refusal *r)
{
    const char *devices = r->kernel != NULL ? devices_of(d, r->kernel) : r->device;
    struct dr_finding *f =
            dr_found(d, DR_HOSTCALL_REFUSED_NO_ATOMICS, "%s", subject_of(d, r));

    dr_say(d, f,
            "The runtime refuses to launch %s%s%s: it declares a hostcall buffer, and "
            "the "
            "device has no PCIe AtomicOps.",
            r->kernel != NULL ? r->kernel : "a kernel of the collective library",
            devices[0] != 0 ? " on " : "", devices);
    dr_because(d, f, r->line);
    dr_because(d, f, r->line_kernel);
    advise(d, f, devices);
}

/* ---- PROTO_LL_HANG_GFX12 ---- */

/* A card of gfx12: its line, or DR_NONE. */
static uint32_t gfx12(const struct doctor *d)
{
    for (uint32_t i = 0; i < d->num_lines; i++) {
        const char *text = d->lines[i].text;

        if (dr_has(text, "gfx120") &&
                (dr_scan(text, "%<gfx1200%>", NULL) ||
                        dr_scan(text, "%<gfx1201%>", NULL)) &&
                !dr_has(text, ".kpack") && !dr_has(text, "offload") &&
                !dr_has(text, "hipv4-") && !dr_has(text, "hostcall") &&
                !dr_has(text, ": unknown: ") &&
                (d->lines[i].flags & (DR_COMMAND | DR_REMARK)) == 0)
            return i;
    }
    return d->access->targets_line != DR_NONE &&
                    (dr_has_target(d, "gfx1200") == DR_YES ||
                            dr_has_target(d, "gfx1201") == DR_YES)
            ? d->access->targets_line
            : DR_NONE;
}

/* RCCL 2.27.7 or a librccl of ROCm 7.2; the same number of 7.1 has no such fault. */
static uint32_t bad_library(const struct doctor *d)
{
    uint32_t line = DR_NONE, older = DR_NONE, number = DR_NONE;
    const char *version = dr_run_version(d, &line);

    if (version != NULL && strcmp(version, "2.27.7") == 0)
        number = line;
    for (uint32_t i = 0; i < d->num_lines; i++) {
        const char *text = d->lines[i].text;

        if (dr_scan(text, "librccl.so.1.0.702%d", NULL))
            return i;
        if (dr_scan(text, "%<RCCL version%*2.27.7", NULL) && number == DR_NONE)
            number = i;
        if (dr_scan(text, "ROCm version%*7.1.", NULL) ||
                dr_scan(text, "librccl.so.1.0.701%d", NULL))
            older = i;
    }
    return older == DR_NONE ? number : DR_NONE;
}

/* Bytes of one element of the library's data types, by number. */
static uint64_t element_bytes(uint64_t type)
{
    static const unsigned char bytes[] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1 };

    return type < sizeof(bytes) ? bytes[type] : 8;
}

/* The last collective that is announced before @p end in its source is a small one; LL is
 * what the library takes by itself for those. */
#define SMALL_BYTES (1u << 20)

static uint32_t small_collective(const struct doctor *d, uint32_t end)
{
    const uint32_t first = d->sources[d->lines[end].source].first;

    for (uint32_t i = end + 1; i > first; i--) {
        struct dr_span out[2];
        uint64_t count = 0, type = 0;

        if (!dr_scan(d->lines[i - 1].text, "opCount%* count %d datatype %d", NULL))
            continue;
        (void)dr_scan(d->lines[i - 1].text, " count %d datatype %d", out);
        if (!dr_span_u64(out[0], &count) || !dr_span_u64(out[1], &type) ||
                count > SMALL_BYTES)
            return DR_NONE;
        return count * element_bytes(type) <= SMALL_BYTES ? i - 1 : DR_NONE;
    }
    return DR_NONE;
}

/* NCCL_PROTO was Simple for what stands at @p line. */
static bool is_simple(const struct doctor *d, uint32_t line)
{
    const uint32_t first = d->sources[d->lines[line].source].first;

    for (uint32_t i = line + 1; i > first; i--) {
        const char *text = d->lines[i - 1].text, *at = strstr(text, "NCCL_PROTO");
        const bool mine = i - 1 == d->lines[line].command ||
                d->lines[i - 1].flags == 0 || dr_has(text, "export ");

        if (at != NULL && mine && dr_has_any_case(at, "simple"))
            return true;
    }
    return false;
}

/* What tools say of a machine's GPUs: at 100 % use, and drawing little. */
#define LOADS_MAX 16u

struct loads {
    struct load {
        bool full, idle;
        uint32_t line;
    } of[LOADS_MAX];
    uint32_t current,
            rows; /* of the tools that say the number on a line above, or never */
};

static bool draws_little(double watts, double cap)
{
    return cap > 0 ? watts < 0.5 * cap : watts < 100;
}

/* One line that begins with the number of a GPU: rocm-smi, amd-smi monitor. */
static void read_row(struct loads *l, const char *text, uint32_t index, uint32_t line)
{
    struct load *g = &l->of[index];
    struct dr_span power[2], cap[1];
    const size_t length = strlen(text);

    if (dr_scan(text, " %fW ", power)) {
        g->full = length >= 4 && strcmp(text + length - 4, "100%") == 0;
        g->idle = draws_little(dr_span_double(power[0]),
                dr_scan(power[0].at, " %fW ", cap) ? dr_span_double(cap[0]) : 0);
    } else if (dr_scan(text, " %f/%f W ", power) || dr_scan(text, " %f W ", power)) {
        g->full = dr_scan(text, " 100 %%", NULL) || dr_scan(text, " 100.0 %%", NULL);
        g->idle = draws_little(dr_span_double(power[0]),
                dr_has(power[0].at, "/") ? dr_span_double(power[1]) : 0);
    } else {
        return;
    }
    g->line = line;
}

/* What a line says of one GPU's use or power, in the tools' longer forms. */
static void read_load(struct loads *l, const char *text, uint32_t line)
{
    static const struct {
        const char *pattern;
        bool numbered,
                is_power; /* the GPU's number is on the line, else on one above */
    } forms[] = { { "^GPU[%d] : GPU use (%%): %f", true, false },
        { "^GPU[%d] : %*Power (W): %f", true, true },
        { " GFX_ACTIVITY: %f %%", false, false },
        { " SOCKET_POWER: %f W", false, true } };
    struct dr_span out[3];
    uint64_t index = l->current;

    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
        const struct dr_span *value = &out[forms[i].numbered ? 1 : 0];
        struct load *g;

        if (!dr_scan(text, forms[i].pattern, out))
            continue;
        if (forms[i].numbered && !dr_span_u64(out[0], &index))
            return;
        if (index >= LOADS_MAX)
            return;
        value += forms[i].numbered && forms[i].is_power ? 1 : 0;
        g = &l->of[index];
        g->line = line;
        if (forms[i].is_power)
            g->idle = draws_little(dr_span_double(*value), 0);
        else
            g->full = dr_span_double(*value) >= 100;
        return;
    }
}

/* amd-smi's table has two lines a card: its power, then its use. */
static void read_table(struct loads *l, const char *text, uint32_t line)
{
    struct dr_span out[5];

    if (dr_scan(text, "^| %b %* | %* %f/%f W |", out)) {
        l->current = l->rows++ % LOADS_MAX;
        l->of[l->current] = (struct load){ .idle = draws_little(dr_span_double(out[3]),
                                                   dr_span_double(out[4])),
            .line = line };
    } else if (l->rows > 0 && dr_scan(text, "^| %d %* | 100 %%", NULL)) {
        l->of[l->current].full = true;
    }
}

/* Lines of the first two GPUs that spin; how many there are. */
static uint32_t find_spinning(const struct doctor *d, uint32_t lines[2])
{
    struct loads l = { .current = LOADS_MAX };
    uint32_t count = 0;

    for (uint32_t i = 0; i < d->num_lines; i++) {
        const char *text = d->lines[i].text;
        struct dr_span out[1];
        uint64_t index;

        if (text[0] == '|') {
            read_table(&l, text, i);
        } else if ((dr_scan(text, "^%d ", out) || dr_scan(text, "^ %d ", out)) &&
                dr_span_u64(out[0], &index) && index < LOADS_MAX) {
            read_row(&l, text, (uint32_t)index, i);
        } else if (dr_scan(text, "^GPU: %d%e", out) && dr_span_u64(out[0], &index)) {
            l.current = index < LOADS_MAX ? (uint32_t)index : LOADS_MAX;
        } else {
            read_load(&l, text, i);
        }
    }
    for (uint32_t i = 0; i < LOADS_MAX && count < 2; i++)
        if (l.of[i].full && l.of[i].idle)
            lines[count++] = l.of[i].line;
    return count;
}

static void proto_ll(struct doctor *d)
{
    const uint32_t card = gfx12(d);
    const uint32_t library = card != DR_NONE ? bad_library(d) : DR_NONE;
    uint32_t stalled = DR_NONE, small = DR_NONE, spinning[2] = { DR_NONE, DR_NONE };
    uint32_t num_spinning = 0;
    struct dr_finding *f;

    if (library == DR_NONE || dr_num_hosts(d) > 1)
        return;
    if (dr_stalled(d, &stalled) && stalled != DR_NONE && !is_simple(d, stalled))
        small = small_collective(d, stalled);
    if (stalled == DR_NONE || !is_simple(d, stalled))
        num_spinning = find_spinning(d, spinning);
    if (small == DR_NONE && num_spinning < 2)
        return;
    f = dr_found(d, DR_PROTO_LL_HANG_GFX12, "%s", "");
    dr_say(d, f,
            "A small collective of this RCCL never ends on gfx12 cards: it takes the "
            "LL "
            "protocol by itself, whose stores do not arrive in order there.");
    dr_because(d, f, small);
    dr_because(d, f, stalled);
    dr_because(d, f, spinning[0]);
    dr_because(d, f, spinning[1]);
    dr_because(d, f, card);
    dr_because(d, f, library);
}

void dr_rule_launch(struct doctor *d)
{
    for (uint32_t i = 0; i < d->access->num_refusals; i++) {
        const struct dr_refusal *r = &d->access->refusals[i];
        const struct dr_refusal *cause = r->by_library ? named_by_runtime(d, r) : NULL;

        if (cause == NULL) {
            refused(d, r);
        } else {
            dr_consequence(d,
                    dr_found(d, DR_HOSTCALL_REFUSED_NO_ATOMICS, "%s",
                            subject_of(d, cause)),
                    r->line);
        }
    }
    if (d->access->num_refusals == 0)
        proto_ll(d);
}

/* ---- images ---- */

static const char *image_name(struct doctor *d, const struct dr_image *m)
{
    if (m->path[0] == 0)
        return m->target;
    return m->target[0] != 0 ? dr_printf(d, "%s (%s)", m->path, m->target) : m->path;
}

static void needs_hostcall(struct doctor *d, const struct dr_image *m)
{
    struct dr_finding *f = dr_found(d, DR_RCCL_NEEDS_HOSTCALL, "%s", image_name(d, m));

    dr_say(d, f, "%s%s%llu of %s kernels declare a hostcall buffer%s%s.",
            m->target[0] != 0 ? dr_printf(d, "The image for %s", m->target)
                              : "The image",
            m->path[0] != 0 ? dr_printf(d, " in %s: ", m->path) : ": ",
            (unsigned long long)m->declaring,
            m->kernels > 0 ? dr_printf(d, "%llu", (unsigned long long)m->kernels)
                           : "its",
            m->names[0] != 0 ? ": " : "", m->names);
    dr_because(d, f, m->line);
}

static void hostcall_unknown(struct doctor *d, const struct dr_image *m)
{
    struct dr_finding *f = dr_found(d, DR_RCCL_HOSTCALL_UNKNOWN, "%s", m->path);
    const char *name = m->path[0] != 0 ? m->path : "the collective library";
    struct dr_span why[2];

    if (dr_scan(d->lines[m->line].text, ": unknown: %*", why))
        dr_say(d, f,
                "Device code of %s could not be read, so whether it declares a "
                "hostcall is "
                "open: %.*s.",
                name, (int)why[0].length, why[0].at);
    else
        dr_say(d, f,
                "The device code of %s is compressed or lies in a file of its own, and "
                "nothing in the text has read it: whether it declares a hostcall is "
                "open. "
                "A count of 0 by strings says nothing.",
                name);
    dr_because(d, f, m->line);
}

/* Whether the file has an image that the GPU takes before this one. */
static bool is_passed_over(const struct doctor *d, const struct dr_image *m,
        const char *gpu)
{
    const int fit = dr_target_fits(m->target, gpu);

    for (uint32_t i = 0; i < d->access->num_images; i++) {
        const struct dr_image *other = &d->access->images[i];

        if (strcmp(other->path, m->path) == 0 &&
                dr_target_fits(other->target, gpu) > fit)
            return true;
    }
    return fit == 0;
}

/* Whether a GPU of the machine loads it, or may: its target is not in the text. */
static bool may_be_loaded(const struct doctor *d, const struct dr_image *m)
{
    struct dr_span word;
    size_t at = 0;

    if (dr_has_target(d, "") == DR_UNSURE || m->target[0] == 0)
        return true;
    while (dr_word(d->access->targets, &at, &word)) {
        char gpu[DR_TARGET_MAX];

        snprintf(gpu, sizeof(gpu), "%.*s", (int)word.length, word.at);
        if (!is_passed_over(d, m, gpu))
            return true;
    }
    return false;
}

void dr_rule_hostcall_images(struct doctor *d)
{
    const struct dr_access *a = d->access;
    bool read = false;

    for (uint32_t i = 0; i < a->num_images; i++) {
        const struct dr_image *m = &a->images[i];

        read = read || (m->collective && !m->unreadable);
        if (m->collective && m->declaring > 0 && may_be_loaded(d, m))
            needs_hostcall(d, m);
    }
    for (uint32_t i = 0; i < a->num_images && !read; i++)
        if (a->images[i].collective && a->images[i].unreadable &&
                (a->asked_hostcall != DR_NONE ||
                        dr_has(d->lines[a->images[i].line].text, ": unknown: "))) {
            hostcall_unknown(d, &a->images[i]);
            return;
        }
}
