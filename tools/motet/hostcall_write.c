/* SPDX-License-Identifier: Apache-2.0 */
/* motet hostcall: images, verdicts and the gate for people and as JSON. */
#include "hostcall.h"

#include "kernels.h"

#include "gather.h"

#include <stdlib.h>
#include <string.h>

/* Declaring kernels that a line names unless all are asked for, and targets that one does. */
#define NAMES_SHOWN   8
#define TARGETS_SHOWN 8

/* The next hidden kind after @p kind that kernels of @p m declare; places that are left
 * empty are none. */
static int next_hidden(const struct hostcall_image *m, int kind)
{
    uint64_t kinds = 0;

    for (int k = 0; k < CODEOBJ_NUM_KINDS; k++)
        if (m->kinds[k] > 0 && k != CODEOBJ_NONE)
            kinds |= UINT64_C(1) << k;
    return kernels_next_hidden(kinds, kind);
}

/* ---- for people ---- */

static const char *plural(uint64_t num)
{
    return num == 1 ? "" : "s";
}

/* Neighbours that equally many kernels declare stand behind one number. */
static void write_hidden(const struct hostcall_image *m)
{
    uint32_t last = 0;

    for (int kind = next_hidden(m, -1); kind >= 0; kind = next_hidden(m, kind)) {
        const uint32_t num = m->kinds[kind];

        if (num == last)
            fputs(", ", stdout);
        else
            printf("%s of %u kernel%s: ", last == 0 ? "    hidden arguments" : ";", num,
                    plural(num));
        fputs(codeobj_kind_short((enum codeobj_kind)kind), stdout);
        last = num;
    }
    if (last > 0)
        putchar('\n');
}

static void write_place(const struct hostcall_image *m)
{
    printf("    in %s", m->container);
    if (m->member[0] != 0) {
        fputs(", ", stdout);
        dr_write_clean(stdout, m->member, strlen(m->member));
    }
    printf(", byte %llu", (unsigned long long)m->offset);
    if (m->sha256[0] != 0)
        printf("; SHA-256 %s", m->sha256);
    putchar('\n');
}

static void write_image(const char *path, const struct hostcall_image *m, bool all)
{
    const struct dr_image_line line = { .shown = path,
        .target = m->text,
        .why = m->why,
        .kernels = m->kernels,
        .declaring = m->declaring,
        .names = (const char *const *)m->names,
        .num_names = m->num_names,
        .most = all ? SIZE_MAX : NAMES_SHOWN };

    dr_write_image_line(stdout, &line);
    if (m->why == NULL) {
        printf("    code object v%d; class: %s", m->version,
                image_class_name(m->class));
        if (m->declaring > 0 && m->collective)
            printf(", the classic collectives %s",
                    m->classic ? "among them" : "not among them");
        if (m->dynamic_stack > 0)
            printf("; dynamic stack: %zu kernel%s", m->dynamic_stack,
                    plural(m->dynamic_stack));
        if (m->scratch > 0)
            printf("; scratch: %u bytes at most", m->scratch);
        putchar('\n');
        write_hidden(m);
    }
    write_place(m);
}

/* "gfx1100" or "gfx90a:xnack- or gfx90a:xnack+": what is loaded. */
static void write_chosen(const struct hostcall_file *file,
        const struct hostcall_load *load)
{
    const char *shown[TARGETS_SHOWN];
    size_t num = 0;

    for (size_t i = 0; i < file->num; i++) {
        const char *text = file->images[i].text;
        bool again = !load->chosen[i] || text[0] == 0;

        for (size_t k = 0; k < num && !again; k++)
            again = strcmp(shown[k], text) == 0;
        if (again)
            continue;
        fputs(num == 0 ? " loads " : " or ", stdout);
        if (num == TARGETS_SHOWN) {
            fputs("…", stdout);
            break;
        }
        dr_write_clean(stdout, text, CODEOBJ_TARGET_MAX);
        shown[num++] = text;
    }
}

static void write_verdict(const struct hostcall_file *file,
        const struct hostcall_gpu *gpu)
{
    struct hostcall_load load;

    hostcall_choose(file, gpu, &load);
    dr_write_clean(stdout, file->path, strlen(file->path));
    printf(": %s%s", gpu->name[0] != 0 ? "GPU " : "a GPU", gpu->name);
    if (gpu->own[0] != 0)
        printf(" (%s)", gpu->own);
    if (gpu->overridden)
        fputs(" under HSA_OVERRIDE_GFX_VERSION", stdout);
    write_chosen(file, &load);
    fputs(": ", stdout);
    hostcall_say(stdout, file, gpu, &load);
    putchar('\n');
    free(load.chosen);
}

void hostcall_write(const struct hostcall_file *file, const struct hostcall_gpus *gpus,
        bool all)
{
    for (size_t i = 0; i < file->num; i++)
        write_image(file->path, &file->images[i], all);
    if (file->why[0] != 0 && !file->unreadable)
        dr_write_image_line(stdout,
                &(struct dr_image_line){ .shown = file->path,
                        .target = "",
                        .why = file->why });
    for (size_t i = 0; i < gpus->num && file->num > 0; i++)
        write_verdict(file, &gpus->list[i]);
}

/* ---- JSON ---- */

static void json_image(struct json *j, const struct hostcall_image *m)
{
    json_object(j, NULL);
    json_string(j, "target", m->text);
    json_int(j, "code_object", m->version);
    json_uint(j, "kernels", m->kernels);
    json_uint(j, "hostcall", m->declaring);
    for (enum image_class c = IMAGE_REAL; c <= IMAGE_STRIPPED; c++)
        json_uint(j, image_class_name(c), m->class == c ? m->declaring : 0);
    json_array(j, "names");
    for (size_t i = 0; i < m->num_names; i++)
        json_string(j, NULL, m->names[i]);
    json_end(j);
    json_string(j, "sha256", m->sha256);
    json_string(j, "container", m->container);
    json_string(j, "member", m->member);
    json_uint(j, "offset", m->offset);
    json_uint(j, "bytes", m->bytes);
    json_bool(j, "classic", m->classic);
    json_object(j, "hidden");
    for (int kind = next_hidden(m, -1); kind >= 0; kind = next_hidden(m, kind))
        json_uint(j, codeobj_kind_short((enum codeobj_kind)kind), m->kinds[kind]);
    json_end(j);
    json_uint(j, "dynamic_stack", m->dynamic_stack);
    json_uint(j, "scratch_bytes", m->scratch);
    if (m->why != NULL)
        json_string(j, "error", m->why);
    json_end(j);
}

static const char *answer_name(enum dr_answer answer)
{
    return answer == DR_YES ? "yes" : answer == DR_NO ? "no" : "unknown";
}

/* None of its images could be read, so that the file could not. */
static bool nothing_read(const struct hostcall_file *file)
{
    for (size_t i = 0; i < file->num; i++)
        if (file->images[i].why == NULL)
            return false;
    return true;
}

static void json_load(struct json *j, const struct hostcall_file *file,
        const struct hostcall_gpu *gpu)
{
    const size_t num = nothing_read(file) ? 0 : file->num;
    char *sentence = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&sentence, &bytes);
    struct hostcall_load load;

    hostcall_choose(file, gpu, &load);
    if (out != NULL) {
        hostcall_say(out, file, gpu, &load);
        (void)fclose(out);
    }
    json_object(j, NULL);
    json_string(j, "gpu", gpu->name);
    json_array(j, "images");
    for (size_t i = 0; i < num; i++)
        if (load.chosen[i])
            json_uint(j, NULL, i);
    json_end(j);
    json_uint(j, "kernels", load.kernels);
    json_uint(j, "hostcall", load.declaring);
    json_bool(j, "classic", load.classic);
    json_string(j, "verdict", hostcall_verdict_name(hostcall_judge(file, gpu, &load)));
    json_string(j, "sentence", sentence);
    json_end(j);
    free(load.chosen);
    free(sentence);
}

void hostcall_json(struct json *j, const struct hostcall_file *file,
        const struct hostcall_gpus *gpus)
{
    const size_t num = nothing_read(file) ? 0 : file->num;
    const char *why = file->why;

    if (why[0] == 0 && num < file->num)
        why = file->images[0].why;
    json_object(j, NULL);
    json_string(j, "path", file->path);
    json_string(j, "container", file->container[0] != 0 ? file->container : NULL);
    json_array(j, "images");
    for (size_t i = 0; i < num; i++)
        json_image(j, &file->images[i]);
    json_end(j);
    if (gpus->num > 0 && file->num > 0) {
        json_array(j, "loads");
        for (size_t i = 0; i < gpus->num; i++)
            json_load(j, file, &gpus->list[i]);
        json_end(j);
    }
    if (why[0] != 0)
        json_string(j, "error", why);
    json_end(j);
}

void hostcall_json_gpus(struct json *j, const struct hostcall_gpus *gpus)
{
    json_array(j, "gpus");
    for (size_t i = 0; i < gpus->num; i++) {
        const struct hostcall_gpu *gpu = &gpus->list[i];

        json_object(j, NULL);
        json_string(j, "gpu", gpu->name);
        json_string(j, "target", gpu->own);
        json_string(j, "loads_for", gpu->overridden ? gpu->asks.processor : gpu->own);
        json_string(j, "atomics", answer_name(gpu->atomics));
        json_end(j);
    }
    json_end(j);
}

void hostcall_json_gate(struct json *j, const struct hostcall_gate *gate, bool passed)
{
    if (gate == NULL) {
        json_null(j, "gate");
        return;
    }
    json_object(j, "gate");
    json_bool(j, "passed", passed);
    json_uint(j, "refused", gate->refused);
    json_uint(j, "allowed", gate->allowed);
    json_array(j, "offenders");
    for (size_t i = 0; i < gate->num; i++) {
        json_object(j, NULL);
        json_string(j, "path", gate->offenders[i].path);
        json_string(j, "target", gate->offenders[i].target);
        json_string(j, "kernel", gate->offenders[i].kernel);
        json_end(j);
    }
    json_end(j);
    json_end(j);
}
