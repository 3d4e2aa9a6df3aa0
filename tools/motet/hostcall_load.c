/* SPDX-License-Identifier: Apache-2.0 */
/*
 * motet hostcall: which GPUs there are, which of a file's images each of them loads, and
 * whether it then refuses kernels. The table of verdicts is amd-hosts.md §15.
 */
#include "hostcall.h"

#include "doctor_live.h"
#include "gather.h"

#include "device/hip.h"

#include <stdlib.h>
#include <string.h>

#define OVERRIDE "HSA_OVERRIDE_GFX_VERSION"
/* As the runtime has it. */
#define OVERRIDE_MAJOR_MAX 63
/* Names that a sentence lists, and bytes of one. */
#define SHOWN_MAX   8
#define SHOWN_BYTES 200

/* ---- GPUs ---- */

static struct hostcall_gpu *add_gpu(struct hostcall_gpus *gpus)
{
    gpus->list =
            hostcall_more(gpus->list, &gpus->num, &gpus->room, sizeof(*gpus->list));
    return &gpus->list[gpus->num - 1];
}

/* As AMD's runtime reads the variable; of one node before the one of all. NULL: not set. */
static const char *override_of(int node)
{
    char name[sizeof(OVERRIDE) + 16];
    const char *value = NULL;

    if (node >= 0) {
        snprintf(name, sizeof(name), OVERRIDE "_%d", node);
        value = getenv(name);
    }
    return value != NULL ? value : getenv(OVERRIDE);
}

/* "11.0.0" as "gfx1100"; false if the runtime refuses it. */
static bool override_target(const char *value, char target[CODEOBJ_TARGET_MAX])
{
    unsigned version;

    if (!motet_hip_gfx_parse(value, &version) || version / 10000 > OVERRIDE_MAJOR_MAX)
        return false;
    motet_hip_gfx_name(version, target, CODEOBJ_TARGET_MAX);
    return true;
}

static void set_asks(struct hostcall_gpu *gpu, int node)
{
    const char *value = override_of(node);
    char target[CODEOBJ_TARGET_MAX];

    if (gpu->own[0] != 0)
        (void)image_gpu_of(gpu->own, &gpu->asks);
    if (value == NULL)
        return;
    gpu->asks = (struct image_gpu){ .processor = "" };
    if (!override_target(value, target) || !image_gpu_of(target, &gpu->asks)) {
        gpu->refused = value;
        return;
    }
    gpu->overridden = strcmp(target, gpu->own) != 0;
}

static void add_device(const struct doctor *d, uint32_t device,
        struct hostcall_gpus *out)
{
    const struct dr_pci_device *p = &d->pci->devices[device];
    const struct dr_kfd_node *node = dr_gpu_node(d, device);
    struct hostcall_gpu *gpu;

    if (p->vendor != 0x1002 || !dr_is_gpu(p))
        return;
    gpu = add_gpu(out);
    snprintf(gpu->name, sizeof(gpu->name), "%s", p->bdf);
    gpu->atomics = dr_gpu_atomics(d, device, NULL);
    if (node != NULL)
        dr_gfx_name(node, gpu->own);
    set_asks(gpu, node != NULL ? node->number : -1);
}

void hostcall_machine(struct hostcall_gpus *out)
{
    struct doctor *d = doctor_live_gpus();

    *out = (struct hostcall_gpus){ .num = 0 };
    for (uint32_t i = 0; i < d->pci->num_devices; i++)
        add_device(d, i, out);
    doctor_free(d);
    if (out->num == 0 && override_of(-1) != NULL) /* of a GPU that is elsewhere */
        set_asks(add_gpu(out), -1);
}

bool hostcall_named(const char *target, struct hostcall_gpus *out)
{
    struct hostcall_gpu *gpu;

    *out = (struct hostcall_gpus){ .num = 0 };
    gpu = add_gpu(out);
    snprintf(gpu->own, sizeof(gpu->own), "%s", target);
    return image_gpu_of(target, &gpu->asks);
}

void hostcall_gpus_clear(struct hostcall_gpus *gpus)
{
    free(gpus->list);
    *gpus = (struct hostcall_gpus){ .num = 0 };
}

/* ---- what is loaded ---- */

/* Images of which a GPU loads one have one holder, or are one member of a kpack archive. */
static int by_place(const struct hostcall_image *a, const struct hostcall_image *b)
{
    const bool kpack = strstr(a->container, "kpack") != NULL,
               other = strstr(b->container, "kpack") != NULL;
    const int order = kpack != other ? kpack - other : strcmp(a->member, b->member);

    if (order != 0 || kpack)
        return order;
    return (a->holder > b->holder) - (a->holder < b->holder);
}

static int by_place_of(const void *a, const void *b)
{
    const struct hostcall_image *const *x = a, *const *y = b;
    const int order = by_place(*x, *y);

    return order != 0 ? order : (*x > *y) - (*x < *y);
}

/* Compiled for whatever GPU is there, if there is nothing else. */
static bool is_for_any(const struct hostcall_image *m)
{
    return strstr(m->text, "spirv") != NULL || strstr(m->container, "spirv") != NULL;
}

static int fit_of(const struct hostcall_image *m, const struct image_gpu *gpu)
{
    return gpu->processor[0] != 0 ? image_fits(&m->target, gpu) : 0;
}

/* Choose of a group the images that fit best; the worst of them and of @p worst. */
static const struct hostcall_image *choose_best(const struct hostcall_file *file,
        struct hostcall_image **group, size_t num, const struct image_gpu *gpu,
        const struct hostcall_image *worst, bool *chosen)
{
    int best = 0;

    for (size_t i = 0; i < num; i++)
        best = fit_of(group[i], gpu) > best ? fit_of(group[i], gpu) : best;
    for (size_t i = 0; i < num; i++) {
        const struct hostcall_image *m = group[i];

        /* What says nothing of itself may be for this GPU. */
        if (best > 0 ? fit_of(m, gpu) != best : !is_for_any(m) && m->text[0] != 0)
            continue;
        chosen[m - file->images] = true;
        if (worst == NULL ||
                (worst->why == NULL &&
                        (m->why != NULL || m->declaring > worst->declaring)))
            worst = m;
    }
    return worst;
}

/* Of a group one image is loaded. Which, may depend on settings that are not known of the
 * GPU: then the worst counts. */
static void add_group(const struct hostcall_file *file, struct hostcall_image **group,
        size_t num, const struct hostcall_gpu *gpu, struct hostcall_load *out)
{
    const struct hostcall_image *worst = NULL;

    for (unsigned i = 0; i < IMAGE_GPU_VARIANTS; i++) {
        const struct image_gpu variant = image_gpu_variant(&gpu->asks, i);

        worst = choose_best(file, group, num, &variant, worst, out->chosen);
    }
    if (worst == NULL)
        return;
    out->images++;
    out->unread += worst->why != NULL;
    out->kernels += worst->kernels;
    out->declaring += worst->declaring;
    out->classic = out->classic || worst->classic;
}

void hostcall_choose(const struct hostcall_file *file, const struct hostcall_gpu *gpu,
        struct hostcall_load *out)
{
    struct hostcall_image **order = NULL;
    size_t num = 0, room = 0, chosen = 0, chosen_room = 0;

    *out = (struct hostcall_load){ .images = 0 };
    if (file->num == 0)
        return;
    for (size_t i = 0; i < file->num; i++) {
        order = hostcall_more(order, &num, &room, sizeof(*order));
        order[i] = &file->images[i];
        out->chosen =
                hostcall_more(out->chosen, &chosen, &chosen_room, sizeof(*out->chosen));
    }
    qsort(order, num, sizeof(*order), by_place_of);
    for (size_t i = 0, end; i < num; i = end) {
        for (end = i + 1; end < num && by_place(order[i], order[end]) == 0;)
            end++;
        add_group(file, order + i, end - i, gpu, out);
    }
    free(order);
}

void hostcall_keep(struct hostcall_file *file, const struct hostcall_gpu *gpu)
{
    struct hostcall_load load;
    struct hostcall_file left = *file;

    hostcall_choose(file, gpu, &load);
    left.images = NULL;
    left.num = left.room = 0;
    for (size_t i = 0; i < file->num; i++)
        if (load.chosen[i]) {
            left.images = hostcall_more(left.images, &left.num, &left.room,
                    sizeof(*left.images));
            left.images[left.num - 1] = file->images[i];
            file->images[i] = (struct hostcall_image){ .why = NULL };
        }
    free(load.chosen);
    hostcall_clear(file);
    *file = left;
}

/* ---- verdicts ---- */

enum hostcall_verdict hostcall_judge(const struct hostcall_file *file,
        const struct hostcall_gpu *gpu, const struct hostcall_load *load)
{
    const bool whole = load->unread == 0 && file->why[0] == 0;

    if (gpu->atomics == DR_YES)
        return load->images > 0 || !whole ? HOSTCALL_FINE : HOSTCALL_NOTHING;
    if (gpu->asks.processor[0] == 0)
        return HOSTCALL_OPEN;
    if (load->declaring > 0 && gpu->atomics == DR_NO)
        return load->classic ? HOSTCALL_FAILS : HOSTCALL_SOME;
    if (load->declaring > 0 || !whole)
        return HOSTCALL_OPEN;
    return load->images > 0 ? HOSTCALL_FINE : HOSTCALL_NOTHING;
}

const char *hostcall_verdict_name(enum hostcall_verdict verdict)
{
    static const char *const names[] = { [HOSTCALL_NOTHING] = "nothing",
        [HOSTCALL_FINE] = "fine",
        [HOSTCALL_FAILS] = "fails",
        [HOSTCALL_SOME] = "fails if launched",
        [HOSTCALL_OPEN] = "unknown" };

    return names[verdict];
}

static void say_names(FILE *out, const struct hostcall_file *file,
        const struct hostcall_load *load)
{
    size_t shown = 0;

    for (size_t i = 0; i < file->num; i++)
        for (size_t k = 0; load->chosen[i] && k < file->images[i].num_names; k++)
            if (shown++ < SHOWN_MAX) {
                fputc(' ', out);
                dr_write_clean(out, file->images[i].names[k], SHOWN_BYTES);
            }
    if (shown > SHOWN_MAX)
        fputs(" …", out);
}

static void say_open(FILE *out, const struct hostcall_file *file,
        const struct hostcall_gpu *gpu, const struct hostcall_load *load)
{
    if (gpu->refused != NULL)
        fprintf(out,
                "the runtime refuses HSA_OVERRIDE_GFX_VERSION '%s', which is no "
                "version like 11.0.0, so it loads nothing",
                gpu->refused);
    else if (gpu->asks.processor[0] == 0)
        fputs("which code it loads is not known, so neither is what it says of a "
              "hostcall; KFD's topology would name its target",
                out);
    else if (load->declaring > 0)
        fprintf(out,
                "%zu of %zu kernels declare a hostcall%s; they are refused if it has "
                "no AtomicOps, which is not known here",
                load->declaring, load->kernels,
                load->classic ? ", those of the classic collectives among them" : "");
    else if (load->unread > 0)
        fputs("what it loads could not be read, so whether it declares a hostcall is "
              "open",
                out);
    else
        fprintf(out, "not all of the file could be read, so a hostcall is open: %s",
                file->why);
}

void hostcall_say(FILE *out, const struct hostcall_file *file,
        const struct hostcall_gpu *gpu, const struct hostcall_load *load)
{
    switch (hostcall_judge(file, gpu, load)) {
    case HOSTCALL_NOTHING:
        fputs("the file has no code that it loads, with a hostcall or without", out);
        break;
    case HOSTCALL_FINE:
        if (load->declaring > 0)
            fprintf(out,
                    "%zu of %zu kernels declare a hostcall, which its AtomicOps carry",
                    load->declaring, load->kernels);
        else if (load->unread > 0 || file->why[0] != 0)
            fputs("it has AtomicOps, so no declared hostcall is refused", out);
        else
            fputs("no kernel declares a hostcall", out);
        break;
    case HOSTCALL_FAILS:
        fprintf(out,
                "the first classic collective fails here with hipErrorIllegalState "
                "(401): "
                "%zu of %zu kernels declare a hostcall, those of classic collectives "
                "among them, and this GPU has no AtomicOps",
                load->declaring, load->kernels);
        break;
    case HOSTCALL_SOME:
        fprintf(out,
                "%zu of %zu kernels declare a hostcall; without AtomicOps these are "
                "refused, and only these:",
                load->declaring, load->kernels);
        say_names(out, file, load);
        break;
    case HOSTCALL_OPEN: say_open(out, file, gpu, load); break;
    }
}
