/* SPDX-License-Identifier: Apache-2.0 */
/* motet version: which motet, which API, and what is built in. */
#include "cmd.h"
#include "host.h"
#include "json.h"

#include "kernels/images.h"
#include "nccl.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
static const char help[] =
        "usage: motet version [-v] [--json]\n"
        "\n"
        "  -v, --verbose   also what is built in: kinds of devices, CPU kernels, code for\n"
        "                  GPUs, optional libraries, compiler and flags\n"
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

static void print_verbose(void)
{
    char cpu[128];

    print_names("device kinds", host_device_kind);
    print_names("CPU kernels", host_kernel_set);
    printf("%-20s%s\n", "CPU", host_cpu_name(cpu, sizeof(cpu)));
    print_images("code for NVIDIA", "nvidia");
    print_images("code for AMD", "amd");
    printf("%-20s%s\n", "optional libraries",
            "none: no command of this version uses any");
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

static int print_json(void)
{
    char cpu[128];
    struct json j;

    json_start(&j, stdout);
    json_object(&j, NULL);
    json_string(&j, "motet", MOTET_VERSION);
    json_int(&j, "nccl_version", NCCL_VERSION_CODE);
    json_names(&j, "device_kinds", host_device_kind);
    json_names(&j, "cpu_kernels", host_kernel_set);
    json_string(&j, "cpu", host_cpu_name(cpu, sizeof(cpu)));
    json_images(&j);
    json_array(&j, "optional_libraries");
    json_end(&j);
    json_string(&j, "architecture", MACHINE);
    json_string(&j, "compiler", COMPILER);
    json_string(&j, "build_type", MOTET_BUILD_TYPE);
    json_string(&j, "flags", MOTET_BUILD_FLAGS);
    json_string(&j, "sanitizers", MOTET_BUILD_SANITIZE);
    json_end(&j);
    return json_finish(&j) ? EXIT_FINE : EXIT_PROBLEM;
}

int cmd_version(int argc, char **argv)
{
    static const struct option options[] = {
        { "verbose", no_argument, NULL, 'v' },
        { "json", no_argument, NULL, 'j' },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    bool verbose = false, json = false;
    int c;

    optind = 1;
    while ((c = getopt_long(argc, argv, ":vh", options, NULL)) != -1) {
        switch (c) {
        case 'v': verbose = true; break;
        case 'j': json = true; break;
        case 'h': return cmd_help(help);
        default: return cmd_bad_option("version", c, argv);
        }
    }
    if (optind < argc)
        return cmd_usage_error("version", "unexpected argument '%s'", argv[optind]);
    if (json)
        return print_json();
    printf("motet %s (NCCL API %d.%d.%d)\n", MOTET_VERSION, NCCL_MAJOR, NCCL_MINOR,
            NCCL_PATCH);
    if (verbose)
        print_verbose();
    return fflush(stdout) == 0 ? EXIT_FINE : EXIT_PROBLEM;
}
