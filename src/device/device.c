/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which kind of device a communicator gets. A CPU rank is never made silently where a
 * GPU was meant: among GPU ranks it would only be noticed by its slowness.
 */
#include "device/device.h"

#include "base/log.h"
#include "device/gpu_shared.h"

#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const motet_device_ops *const motet_devices[] = { &motet_device_cuda, &motet_device_hip,
    &motet_device_cpu, NULL };

/* The words of MOTET_DEVICE in param.def. */
enum { WORD_AUTO, WORD_CPU, WORD_GPU, WORD_CUDA, WORD_HIP };

/* The kinds of GPU. */
typedef struct family {
    const motet_device_ops *ops;
    const char *vendor;
    /* How the file names of its runtime begin. */
    const char *stems[2];
    motet_gpu_standing (*look)(void);
} family;

enum { CUDA_FAMILY, HIP_FAMILY, FAMILIES };

static const family families[FAMILIES] = {
    [CUDA_FAMILY] = { &motet_device_cuda, "NVIDIA", { "libcuda.so" }, motet_cuda_look },
    [HIP_FAMILY] = { &motet_device_hip, "AMD", { "libamdhip64.so", "libgalaxyhip.so" },
            motet_hip_look },
};

#define PATH_BYTES 512

/* What is known of each kind when a choice is made. */
typedef struct survey {
    int order[FAMILIES]; /* the kinds that this library serves, best first */
    int served;
    const char *
            mapped[FAMILIES]; /* its runtime's name, if the application has mapped it */
    char path[FAMILIES][PATH_BYTES];
    char ours[FAMILIES][PATH_BYTES]; /* what we have mapped before */
    motet_gpu_standing standing[FAMILIES];
    char why[FAMILIES][MOTET_ERROR_TRAIL_MAX / FAMILIES]; /* it is not usable */
} survey;

/* The runtimes that our own look has mapped, which are no sign of what the application
 * wants. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char ours[FAMILIES][PATH_BYTES];

/* ---- looking ---- */

static int note_runtime(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *name = slash != NULL ? slash + 1 : info->dlpi_name;
    survey *s = arg;

    (void)bytes;
    for (int f = 0; f < FAMILIES; f++) {
        for (size_t i = 0; i < 2; i++) {
            const char *stem = families[f].stems[i];

            if (stem == NULL || strncmp(name, stem, strlen(stem)) != 0 ||
                    strcmp(info->dlpi_name, s->ours[f]) == 0)
                continue;
            s->mapped[f] = stem;
            snprintf(s->path[f], PATH_BYTES, "%s", info->dlpi_name);
        }
    }
    return 0;
}

/* What is mapped and was not mapped by us. */
static void look_at_mappings(survey *s)
{
    pthread_mutex_lock(&lock);
    memcpy(s->ours, ours, sizeof(ours));
    for (int f = 0; f < FAMILIES; f++)
        s->mapped[f] = NULL;
    dl_iterate_phdr(note_runtime, s);
    pthread_mutex_unlock(&lock);
}

static survey begin_survey(void)
{
    survey s = { .served = 0 };
    char words[32], *rest = words, *word;

    snprintf(words, sizeof(words), "%s", motet_conf_gpus);
    while ((word = strtok_r(rest, " ", &rest)) != NULL && s.served < FAMILIES)
        for (int f = 0; f < FAMILIES; f++)
            if (strcmp(word, families[f].ops->name) == 0)
                s.order[s.served++] = f;
    for (int f = 0; f < FAMILIES; f++)
        s.standing[f] = MOTET_GPU_NO_RUNTIME;
    look_at_mappings(&s);
    return s;
}

/* Remember what the look at kind @p f, whose runtime was not mapped before, has mapped. */
static void note_ours(int f)
{
    survey after = { .served = 0 };

    look_at_mappings(&after);
    if (after.mapped[f] == NULL)
        return;
    pthread_mutex_lock(&lock);
    snprintf(ours[f], PATH_BYTES, "%s", after.path[f]);
    pthread_mutex_unlock(&lock);
}

static bool look(survey *s, int f)
{
    char first[PATH_BYTES], second[PATH_BYTES];

    if (s->mapped[f] != NULL && s->ours[f][0] != '\0') {
        snprintf(first, sizeof(first), "%s", s->ours[f]);
        snprintf(second, sizeof(second), "%s", s->path[f]);
        snprintf(s->why[f], sizeof(s->why[f]),
                "two runtimes of %s are loaded in this process, %.150s, which was "
                "opened when none was, and %.150s",
                families[f].vendor, first, second);
        s->standing[f] = MOTET_GPU_BROKEN;
        return false;
    }
    s->standing[f] = families[f].look();
    if (s->mapped[f] == NULL)
        note_ours(f);
    if (s->standing[f] == MOTET_GPU_USABLE)
        return true;
    snprintf(s->why[f], sizeof(s->why[f]), "%s", motet_error_trail());
    return false;
}

/* AMD's runtime is large, and worth opening unasked only where the kernel has its device,
 * or Windows' host its stand-in, or somebody said where the runtime is. */
static bool is_worth_a_look(const motet_params *params, const survey *s, int f)
{
    return f != HIP_FAMILY || s->mapped[f] != NULL ||
            motet_param_text(params, MOTET_P_HIP_LIB)[0] != '\0' ||
            access("/dev/kfd", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
}

/* Everything that was looked at and is not usable, in one sentence. */
static void join_reasons(const survey *s, char *buf, size_t bytes)
{
    size_t at = 0;

    buf[0] = '\0';
    for (int i = 0; i < s->served; i++) {
        const char *why = s->why[s->order[i]];

        if (why[0] != '\0' && at < bytes)
            at += (size_t)snprintf(buf + at, bytes - at, "%s%s", at != 0 ? "; " : "",
                    why);
    }
}

/* ---- choosing ---- */

static motet_result take(int f, const motet_device_ops **ops_out)
{
    motet_error_clear(); /* of the kinds that were looked at first */
    *ops_out = families[f].ops;
    return MOTET_OK;
}

/*
 * Of the kinds whose runtime is mapped (or is not), the usable one. Two are a question for
 * the user where nothing tells which is meant. @retval MOTET_IN_PROGRESS none is usable
 */
static motet_result choose_among(survey *s, bool mapped, bool one_only,
        const motet_params *params, const motet_device_ops **ops_out)
{
    int found = -1;

    for (int i = 0; i < s->served; i++) {
        const int f = s->order[i];

        if ((s->mapped[f] != NULL) != mapped ||
                (!one_only && !is_worth_a_look(params, s, f)) || !look(s, f))
            continue;
        if (found >= 0)
            return motet_fail(MOTET_ERR_DEVICE,
                    "GPUs of %s and of %s can be used: set MOTET_DEVICE to %s or %s",
                    families[found].vendor, families[f].vendor,
                    families[found].ops->name, families[f].ops->name);
        found = f;
        if (!one_only)
            break;
    }
    return found < 0 ? MOTET_IN_PROGRESS : take(found, ops_out);
}

/* A GPU and nothing else; @p asked says who wants it. */
static motet_result choose_gpu(const char *asked, const motet_params *params,
        const motet_device_ops **ops_out)
{
    survey s = begin_survey();
    char why[MOTET_ERROR_TRAIL_MAX];
    motet_result result = choose_among(&s, true, true, params, ops_out);

    if (result == MOTET_IN_PROGRESS)
        result = choose_among(&s, false, true, params, ops_out);
    if (result != MOTET_IN_PROGRESS)
        return result;
    join_reasons(&s, why, sizeof(why));
    return motet_fail(MOTET_ERR_DEVICE, "%s but no GPU can be used: %.900s", asked,
            why);
}

/* That kind and nothing else. */
static motet_result choose_kind(int f, const char *asked,
        const motet_device_ops **ops_out)
{
    survey s = begin_survey();

    for (int i = 0; i < s.served; i++) {
        if (s.order[i] != f)
            continue;
        return look(&s, f)
                ? take(f, ops_out)
                : motet_fail(MOTET_ERR_DEVICE, "%s but no GPU can be used: %.900s",
                          asked, s.why[f]);
    }
    return motet_fail(MOTET_ERR_DEVICE,
            "%s but this library is for GPUs of %s only: %s GPUs need librccl.so.1 or "
            "libmotet.so",
            asked, families[s.order[0]].vendor, families[f].vendor);
}

/* Why the automatic choice may not fall on the CPU, though @p why no GPU can be used. */
static motet_result check_surroundings(const motet_params *params, const survey *s,
        const char *why)
{
    static const motet_param_id signs[] = {
        MOTET_P_CUDA_VISIBLE_DEVICES,
        MOTET_P_HIP_VISIBLE_DEVICES,
        MOTET_P_ROCR_VISIBLE_DEVICES,
    };

    for (size_t i = 0; i < sizeof(signs) / sizeof(*signs); i++) {
        const char *text = motet_param_text(params, signs[i]);

        if (text[0] != '\0')
            return motet_fail(MOTET_ERR_DEVICE,
                    "%s is '%.40s' but no GPU can be used (%.500s): unset it, or set "
                    "MOTET_DEVICE=cpu for CPU ranks",
                    motet_param_table[signs[i]].name, text, why);
    }
    for (int f = 0; f < FAMILIES; f++)
        if (s->mapped[f] != NULL)
            return motet_fail(MOTET_ERR_DEVICE,
                    "%s is loaded in this process but no GPU can be used (%.600s): set "
                    "MOTET_DEVICE=cpu for CPU ranks",
                    s->mapped[f], why);
    for (int f = 0; f < FAMILIES; f++)
        if (s->standing[f] == MOTET_GPU_BROKEN)
            return motet_fail(MOTET_ERR_DEVICE,
                    "no GPU can be used: %.700s; set MOTET_DEVICE=cpu for CPU ranks",
                    why);
    return MOTET_OK;
}

/* A mapped runtime decides, unless it has no device to show; then the library's order;
 * else a CPU rank, if nothing says that a GPU was meant. */
static motet_result choose_auto(const motet_params *params,
        const motet_device_ops **ops_out)
{
    survey s = begin_survey();
    char why[MOTET_ERROR_TRAIL_MAX];
    motet_result result = choose_among(&s, true, true, params, ops_out);
    bool broken = false;

    for (int f = 0; f < FAMILIES; f++)
        broken |= s.standing[f] == MOTET_GPU_BROKEN;
    if (result == MOTET_IN_PROGRESS && !broken)
        result = choose_among(&s, false, false, params, ops_out);
    if (result != MOTET_IN_PROGRESS)
        return result;
    join_reasons(&s, why, sizeof(why));
    MOTET_TRY(check_surroundings(params, &s, why), "choose a device");
    motet_info(MOTET_SUB_INIT, "CPU ranks: %s", why);
    motet_error_clear();
    *ops_out = &motet_device_cpu;
    return MOTET_OK;
}

static motet_result choose_word(const motet_params *params,
        const motet_device_ops **ops_out)
{
    char text[32], asked[64];

    motet_param_format(params, MOTET_P_DEVICE, text, sizeof(text));
    snprintf(asked, sizeof(asked), "MOTET_DEVICE is '%s'", text);
    switch (motet_param(params, MOTET_P_DEVICE)) {
    case WORD_CPU: *ops_out = &motet_device_cpu; return MOTET_OK;
    case WORD_GPU: return choose_gpu(asked, params, ops_out);
    case WORD_CUDA: return choose_kind(CUDA_FAMILY, asked, ops_out);
    case WORD_HIP: return choose_kind(HIP_FAMILY, asked, ops_out);
    default: return choose_auto(params, ops_out);
    }
}

motet_result motet_device_choose(const motet_params *params, motet_device_choice choice,
        const motet_device_ops **ops_out)
{
    switch (choice) {
    case MOTET_CHOOSE_CPU: *ops_out = &motet_device_cpu; return MOTET_OK;
    case MOTET_CHOOSE_GPU:
        return choose_gpu("a GPU communicator was asked for", params, ops_out);
    case MOTET_CHOOSE_CUDA:
        return choose_kind(CUDA_FAMILY, "a CUDA communicator was asked for", ops_out);
    case MOTET_CHOOSE_HIP:
        return choose_kind(HIP_FAMILY, "a HIP communicator was asked for", ops_out);
    case MOTET_CHOOSE_AUTO: return choose_word(params, ops_out);
    default:
        return motet_fail(MOTET_ERR_ARGUMENT, "device choice is %d, need 0..%d",
                (int)choice, (int)MOTET_CHOOSE_HIP);
    }
}

motet_device_choice motet_device_choice_of(motet_device_kind kind)
{
    return kind == MOTET_DEVICE_KIND_CUDA   ? MOTET_CHOOSE_CUDA
            : kind == MOTET_DEVICE_KIND_HIP ? MOTET_CHOOSE_HIP
                                            : MOTET_CHOOSE_CPU;
}

motet_result motet_device_choose_now(motet_device_choice choice,
        const motet_device_ops **ops_out)
{
    motet_params *params = NULL;
    motet_result result = motet_params_new(&params);

    if (result == MOTET_OK)
        result = motet_device_choose(params, choice, ops_out);
    free(params);
    return result;
}
