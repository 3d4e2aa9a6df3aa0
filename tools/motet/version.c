/* SPDX-License-Identifier: Apache-2.0 */
/* motet version: which motet, which API, and what is built in. */
#include "cmd.h"
#include "host.h"
#include "json.h"
#include "library.h"

#include "codeobj.h"

#include "kernels/images.h"
#include "nccl.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
static const char help[] =
        "usage: motet version [-v] [--lib FILE] [--json]\n"
        "\n"
        "  -v, --verbose   also what is built in: kinds of devices, CPU kernels, code for\n"
        "                  GPUs, optional libraries, compiler and flags; and the images that\n"
        "                  each library beside this command carries\n"
        "      --lib FILE  the images of this library of motet's in their place\n"
        "      --json      as JSON, always with everything\n"
        "  -h, --help      this text\n";
/* clang-format on */

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown"
#endif

#if defined(__x86_64__)
#define MACHINE "x86_64"
#elif defined(__aarch64__)
#define MACHINE "aarch64"
#else
#define MACHINE "other"
#endif

static void print_names(const char *label, const char *(*name)(size_t i))
{
    printf("%-20s", label);
    for (size_t i = 0; name(i) != NULL; i++)
        printf("%s%s", i == 0 ? "" : " ", name(i));
    printf("\n");
}

/* One vendor's targets, each with the KiB that its code takes in the library. */
static void print_images(const char *label, const char *vendor)
{
    const motet_image *image;
    bool any = false;

    printf("%-20s", label);
    for (size_t i = 0; (image = motet_image_at(i)) != NULL; i++) {
        if (strcmp(image->vendor, vendor) == 0) {
            printf("%s%s (%zu KiB)", any ? ", " : "", image->target,
                    (image->bytes + 1023) / 1024);
            any = true;
        }
    }
    printf("%s\n", any ? "" : "none");
}

/* The libraries that are installed with the command. */
static const char *const own_libraries[] = { "libmotet.so.0", "libnccl.so.2",
    "librccl.so.1" };
#define NUM_OWN_LIBRARIES (sizeof(own_libraries) / sizeof(*own_libraries))

/* As they are listed, "none" if that is all. */
static const char *optional_library(size_t i)
{
    if (i == 0 && codeobj_library(0) == NULL)
        return "none";
    return codeobj_library(i);
}

/* Does something for one library and its images. */
typedef void library_visitor(void *arg, const char *path,
        const struct library_image *images, size_t num);

/* Visit the library @p file, or those beside the command if it is NULL. An exit code. */
static int each_library(const char *file, library_visitor *visit, void *arg)
{
    static struct library_image images[LIBRARY_IMAGES_MAX];
    char path[PATH_MAX];
    size_t num;

    if (file != NULL) {
        if (library_images(file, images, &num) != 0)
            return cmd_error("version", EXIT_UNDECIDED, "%s: %s", file,
                    strerror(errno));
        if (!library_is_motet(file))
            return cmd_error("version", EXIT_UNDECIDED, "%s: not built from motet",
                    file);
        visit(arg, file, images, num);
        return EXIT_FINE;
    }
    for (size_t i = 0; i < NUM_OWN_LIBRARIES; i++)
        if (library_beside(own_libraries[i], path) &&
                library_images(path, images, &num) == 0)
            visit(arg, path, images, num);
    return EXIT_FINE;
}

static void print_library(void *arg, const char *path,
        const struct library_image *images, size_t num)
{
    uint64_t bytes = 0;

    (void)arg;
    printf("\nimages in %s%s\n", path, num == 0 ? ": none" : "");
    if (num == 0)
        return;
    printf("  %-24s %-8s %-12s %10s %10s\n", "name", "vendor", "target", "bytes",
            "unpacked");
    for (size_t i = 0; i < num; i++) {
        printf("  %-24s %-8s %-12s %10" PRIu64 " %10" PRIu64 "\n", images[i].name,
                images[i].vendor, images[i].target, images[i].bytes,
                images[i].raw_bytes);
        bytes += images[i].bytes;
    }
    printf("  %zu images, %" PRIu64 " bytes\n", num, bytes);
}

static void print_verbose(void)
{
    char cpu[128];

    print_names("device kinds", host_device_kind);
    print_names("CPU kernels", host_kernel_set);
    printf("%-20s%s\n", "CPU", host_cpu_name(cpu, sizeof(cpu)));
    print_images("code for NVIDIA", "nvidia");
    print_images("code for AMD", "amd");
    print_names("optional libraries", optional_library);
    printf("%-20s%s\n", "architecture", MACHINE);
    printf("%-20s%s\n", "compiler", COMPILER);
    printf("%-20s%s, %s\n", "build", MOTET_BUILD_TYPE, MOTET_BUILD_FLAGS);
    if (MOTET_BUILD_SANITIZE[0] != 0)
        printf("%-20s%s\n", "sanitizers", MOTET_BUILD_SANITIZE);
}

static void json_names(struct json *j, const char *key, const char *(*name)(size_t i))
{
    json_array(j, key);
    for (size_t i = 0; name(i) != NULL; i++)
        json_string(j, NULL, name(i));
    json_end(j);
}

static void json_images(struct json *j)
{
    const motet_image *image;

    json_array(j, "images");
    for (size_t i = 0; (image = motet_image_at(i)) != NULL; i++) {
        json_object(j, NULL);
        json_string(j, "vendor", image->vendor);
        json_string(j, "target", image->target);
        json_uint(j, "bytes", image->bytes);
        json_uint(j, "raw_bytes", image->raw_bytes);
        json_end(j);
    }
    json_end(j);
}

static void json_library(void *arg, const char *path,
        const struct library_image *images, size_t num)
{
    struct json *j = arg;

    json_object(j, NULL);
    json_string(j, "path", path);
    json_array(j, "images");
    for (size_t i = 0; i < num; i++) {
        json_object(j, NULL);
        json_string(j, "name", images[i].name);
        json_string(j, "vendor", images[i].vendor);
        json_string(j, "target", images[i].target);
        json_uint(j, "bytes", images[i].bytes);
        json_uint(j, "raw_bytes", images[i].raw_bytes);
        json_end(j);
    }
    json_end(j);
    json_end(j);
}

static int print_json(const char *file)
{
    char cpu[128];
    struct json j;
    int code;

    json_start(&j, stdout);
    json_object(&j, NULL);
    json_string(&j, "motet", MOTET_VERSION);
    json_int(&j, "nccl_version", NCCL_VERSION_CODE);
    json_names(&j, "device_kinds", host_device_kind);
    json_names(&j, "cpu_kernels", host_kernel_set);
    json_string(&j, "cpu", host_cpu_name(cpu, sizeof(cpu)));
    json_images(&j);
    json_array(&j, "libraries");
    code = each_library(file, json_library, &j);
    json_end(&j);
    json_names(&j, "optional_libraries", codeobj_library);
    json_string(&j, "architecture", MACHINE);
    json_string(&j, "compiler", COMPILER);
    json_string(&j, "build_type", MOTET_BUILD_TYPE);
    json_string(&j, "flags", MOTET_BUILD_FLAGS);
    json_string(&j, "sanitizers", MOTET_BUILD_SANITIZE);
    json_end(&j);
    return json_finish(&j) ? code : EXIT_PROBLEM;
}

int cmd_version(int argc, char **argv)
{
    static const struct option options[] = {
        { "verbose", no_argument, NULL, 'v' },
        { "lib", required_argument, NULL, 'l' },
        { "json", no_argument, NULL, 'j' },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    bool verbose = false, json = false;
    const char *file = NULL;
    int c, code = EXIT_FINE;

    optind = 1;
    while ((c = getopt_long(argc, argv, ":vh", options, NULL)) != -1) {
        switch (c) {
        case 'v': verbose = true; break;
        case 'l': file = optarg; break;
        case 'j': json = true; break;
        case 'h': return cmd_help(help);
        default: return cmd_bad_option("version", c, argv);
        }
    }
    if (optind < argc)
        return cmd_usage_error("version", "unexpected argument '%s'", argv[optind]);
    if (json)
        return print_json(file);
    printf("motet %s (NCCL API %d.%d.%d)\n", MOTET_VERSION, NCCL_MAJOR, NCCL_MINOR,
            NCCL_PATCH);
    if (verbose)
        print_verbose();
    if (verbose || file != NULL)
        code = each_library(file, print_library, NULL);
    return fflush(stdout) == 0 ? code : EXIT_PROBLEM;
}
