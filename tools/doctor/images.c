/* SPDX-License-Identifier: Apache-2.0 */
/* What code for AMD GPUs in a file declares, as lines of text. */
#include "gather.h"

#include "images.h"

#include <stdlib.h>
#include <string.h>

#define NAMES_SHOWN    8u
#define NAME_MAX_SHOWN 200u

struct image_writing {
    FILE *out;
    const char *shown;
};

void dr_write_clean(FILE *out, const char *text, size_t max)
{
    for (size_t i = 0; i < max && text[i] != 0; i++)
        fputc((unsigned char)text[i] < 0x20 || text[i] == 0x7f ? '?' : text[i], out);
}

bool dr_is_classic(const char *kernel)
{
    return strstr(kernel, "ncclDevKernel_Generic") != NULL;
}

static size_t write_names(FILE *out, const struct dr_image_line *line)
{
    size_t shown = 0;

    for (int classic = 1; classic >= 0; classic--)
        for (size_t i = 0; i < line->num_names && shown < line->most; i++) {
            if (dr_is_classic(line->names[i]) != (classic == 1))
                continue;
            fputc(' ', out);
            dr_write_clean(out, line->names[i], NAME_MAX_SHOWN);
            shown++;
        }
    return shown;
}

void dr_write_image_line(FILE *out, const struct dr_image_line *line)
{
    dr_write_clean(out, line->shown, strlen(line->shown));
    fputs(": ", out);
    dr_write_clean(out, line->target, CODEOBJ_TARGET_MAX);
    fputs(line->target[0] != 0 ? ": " : "", out);
    if (line->why != NULL) {
        fputs("unknown: ", out);
        dr_write_clean(out, line->why, CODEOBJ_WHY_MAX);
        fputc('\n', out);
        return;
    }
    fprintf(out, "%zu kernels, %zu declare a hostcall%s", line->kernels,
            line->declaring, line->declaring > 0 ? ":" : "");
    fputs(write_names(out, line) < line->declaring ? " …\n" : "\n", out);
}

static bool write_image(const struct image *image, void *arg)
{
    const struct image_writing *w = arg;
    const struct codeobj *object = image->object;
    const size_t kernels = object != NULL ? object->num_kernels : 0;
    const char **names = calloc(kernels + 1, sizeof(*names));
    struct dr_image_line line = { .shown = w->shown,
        .target = image->target,
        .why = image->why,
        .kernels = kernels,
        .names = names,
        .most = NAMES_SHOWN };

    for (size_t i = 0; i < kernels; i++) {
        if (!codeobj_has(&object->kernels[i], CODEOBJ_HOSTCALL_BUFFER))
            continue;
        line.declaring++;
        if (names != NULL)
            names[line.num_names++] = object->kernels[i].name;
    }
    dr_write_image_line(w->out, &line);
    free(names);
    return true;
}

void dr_write_images(FILE *out, const char *path, const char *shown)
{
    struct image_writing w = { .out = out, .shown = shown };
    struct images_result result;

    (void)images_open(path, write_image, &w, &result);
    if (result.why[0] != 0)
        dr_write_image_line(out,
                &(struct dr_image_line){ .shown = shown,
                        .target = "",
                        .why = result.why });
}
