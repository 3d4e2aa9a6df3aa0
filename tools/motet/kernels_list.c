/* SPDX-License-Identifier: Apache-2.0 */
/* motet kernels list: the kernels of AMD code objects, as a table or as JSON. */
#include "cmd.h"
#include "json.h"
#include "kernels.h"

#include "codeobj.h"
#include "gather.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
static const char help[] =
        "usage: motet kernels list [--json] FILE...\n"
        "\n"
        "The kernels of AMD code objects (bare ELF files, versions 3 to 6): what each needs\n"
        "to run and which hidden arguments it declares. A kernel that declares a hostcall\n"
        "is refused on a GPU that cannot send PCIe AtomicOps to host memory.\n"
        "\n"
        "      --json   as JSON\n"
        "  -h, --help   this text\n"
        "\n"
        "Exit status: 0 fine, 2 a file could not be read, 64 usage.\n";
/* clang-format on */

static void print_name(const char *name)
{
    dr_write_clean(stdout, name, CODEOBJ_NAME_MAX);
}

int kernels_next_hidden(uint64_t kinds, int kind)
{
    const char *last = kind >= 0 ? codeobj_kind_short((enum codeobj_kind)kind) : "";

    for (kind++; kind < CODEOBJ_NUM_KINDS; kind++) {
        enum codeobj_kind k = (enum codeobj_kind)kind;

        if (codeobj_kind_hidden(k) && (kinds >> kind & 1) != 0 &&
                strcmp(codeobj_kind_short(k), last) != 0)
            return kind;
    }
    return -1;
}

static void print_kernel(const struct codeobj_kernel *k)
{
    const char *before = "  hidden: ";

    printf("%8u %6u %8u%s %5u %5u %5u %5u %7u  ", k->kernarg_bytes, k->lds_bytes,
            k->scratch_bytes, k->dynamic_stack ? "+" : " ", k->wavefront, k->sgprs,
            k->vgprs, k->agprs, k->sgpr_spills + k->vgpr_spills);
    print_name(k->name);
    for (int kind = kernels_next_hidden(k->kinds, -1); kind >= 0;
            kind = kernels_next_hidden(k->kinds, kind)) {
        printf("%s%s", before, codeobj_kind_short((enum codeobj_kind)kind));
        before = ", ";
    }
    putchar('\n');
}

/* The metadata's own name for the target, where e_flags have none that is known. */
static const char *target_of(const struct codeobj *object)
{
    bool known = strncmp(object->target.processor, "gfx", 3) == 0;

    return known || object->declared[0] == 0 ? object->target.text : object->declared;
}

static void print_object(const char *path, const struct codeobj *object)
{
    printf("%s: ", path);
    print_name(target_of(object));
    printf(", code object v%d, %zu kernel%s, %zu with a hostcall\n", object->version,
            object->num_kernels, object->num_kernels == 1 ? "" : "s",
            codeobj_count(object, CODEOBJ_HOSTCALL_BUFFER));
    if (object->num_kernels > 0)
        printf("%8s %6s %8s  %5s %5s %5s %5s %7s  %s\n", "kernarg", "LDS", "scratch",
                "wave", "sgpr", "vgpr", "agpr", "spills", "kernel");
    for (size_t i = 0; i < object->num_kernels; i++)
        print_kernel(&object->kernels[i]);
}

static void json_kernel(struct json *j, const struct codeobj_kernel *k)
{
    json_object(j, NULL);
    json_string(j, "name", k->name);
    json_uint(j, "arguments", k->num_args - k->num_hidden);
    json_array(j, "hidden");
    for (size_t i = 0; i < k->num_args; i++)
        if (codeobj_kind_hidden(k->args[i].kind))
            json_string(j, NULL, codeobj_kind_name(k->args[i].kind));
    json_end(j);
    json_bool(j, "hostcall", codeobj_has(k, CODEOBJ_HOSTCALL_BUFFER));
    json_uint(j, "kernarg_bytes", k->kernarg_bytes);
    json_uint(j, "lds_bytes", k->lds_bytes);
    json_uint(j, "scratch_bytes", k->scratch_bytes);
    json_bool(j, "dynamic_stack", k->dynamic_stack);
    json_uint(j, "wavefront", k->wavefront);
    json_uint(j, "max_workgroup", k->max_workgroup);
    json_uint(j, "sgprs", k->sgprs);
    json_uint(j, "vgprs", k->vgprs);
    json_uint(j, "agprs", k->agprs);
    json_uint(j, "sgpr_spills", k->sgpr_spills);
    json_uint(j, "vgpr_spills", k->vgpr_spills);
    json_end(j);
}

/* @p object NULL: it could not be read, and @p why says why. */
static void json_file(struct json *j, const char *path, const struct codeobj *object,
        const char *why)
{
    json_object(j, NULL);
    json_string(j, "path", path);
    if (object == NULL)
        json_string(j, "error", why);
    else {
        json_string(j, "target", target_of(object));
        json_int(j, "code_object", object->version);
        json_uint(j, "hostcall", codeobj_count(object, CODEOBJ_HOSTCALL_BUFFER));
        json_array(j, "kernels");
        for (size_t i = 0; i < object->num_kernels; i++)
            json_kernel(j, &object->kernels[i]);
        json_end(j);
    }
    json_end(j);
}

/* All files; the exit code. @p j NULL: as a table. */
static int list_files(struct json *j, int num, char **paths)
{
    int code = EXIT_FINE;

    for (int i = 0; i < num; i++) {
        char why[CODEOBJ_WHY_MAX] = "";
        struct codeobj object;
        bool read = codeobj_open(paths[i], &object, why) == 0;

        if (!read)
            code = cmd_error("kernels list", EXIT_UNDECIDED, "%s: %s", paths[i], why);
        if (j != NULL)
            json_file(j, paths[i], read ? &object : NULL, why);
        else if (read)
            print_object(paths[i], &object);
        codeobj_clear(&object);
    }
    return code;
}

int kernels_list(int argc, char **argv)
{
    static const struct option options[] = {
        { "json", no_argument, NULL, 'j' },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    bool as_json = false;
    struct json j;
    int c, code;

    optind = 1;
    while ((c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        switch (c) {
        case 'j': as_json = true; break;
        case 'h': return cmd_help(help);
        default: return cmd_bad_option("kernels list", c, argv);
        }
    }
    if (optind == argc)
        return cmd_usage_error("kernels list", "need a file");
    if (!as_json) {
        code = list_files(NULL, argc - optind, argv + optind);
        return fflush(stdout) == 0 ? code : EXIT_PROBLEM;
    }
    json_start(&j, stdout);
    json_object(&j, NULL);
    json_array(&j, "files");
    code = list_files(&j, argc - optind, argv + optind);
    json_end(&j);
    json_end(&j);
    return json_finish(&j) ? code : EXIT_PROBLEM;
}
