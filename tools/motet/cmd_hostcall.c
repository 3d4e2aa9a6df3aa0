/* SPDX-License-Identifier: Apache-2.0 */
/* motet hostcall: which images of a file have kernels that declare a hostcall. */
#include "cmd.h"
#include "gather.h"
#include "library.h"

#include <getopt.h>
#include <stdio.h>

/* clang-format off */
static const char help[] =
        "usage: motet hostcall FILE...\n"
        "\n"
        "For each image for AMD GPUs in the files: how many kernels it has, and how many\n"
        "and which of them declare a hostcall. Such a kernel is refused on a GPU that cannot\n"
        "send PCIe AtomicOps to host memory. Nothing is loaded or run.\n"
        "\n"
        "Read: code objects, bundles of them, and the bundles in libraries and programs.\n"
        "Compressed images (CCOB) and kpack files are not read yet: \"unknown\".\n"
        "\n"
        "  -h, --help   this text\n"
        "\n"
        "Exit status: 0 no kernel declares one, 1 some do, 2 not everything could be read\n"
        "or there is no image, 64 usage.\n";
/* clang-format on */

static int read_files(int num, char **paths)
{
    bool declares = false, undecided = false, images = false;

    for (int i = 0; i < num; i++) {
        const struct dr_images met = dr_write_images(stdout, paths[i], paths[i]);

        declares = declares || met.declaring > 0;
        undecided = undecided || met.why != NULL || met.unknown > 0;
        images = images || met.images > 0;
        if (met.why != NULL)
            (void)cmd_error("hostcall", EXIT_UNDECIDED, "%s: %s", paths[i], met.why);
        else if (met.images == 0 && library_is_motet(paths[i])) {
            undecided = true;
            (void)cmd_error("hostcall", EXIT_UNDECIDED,
                    "%s: built from motet; its packed code is not read", paths[i]);
        } else if (met.images == 0)
            (void)cmd_error("hostcall", EXIT_UNDECIDED,
                    "%s: no code for AMD GPUs was found", paths[i]);
    }
    if (declares)
        return EXIT_PROBLEM;
    return undecided || !images ? EXIT_UNDECIDED : EXIT_FINE;
}

int cmd_hostcall(int argc, char **argv)
{
    static const struct option options[] = {
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    int c, code;

    optind = 1;
    while ((c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        switch (c) {
        case 'h': return cmd_help(help);
        default: return cmd_bad_option("hostcall", c, argv);
        }
    }
    if (optind == argc)
        return cmd_usage_error("hostcall", "need a file");
    code = read_files(argc - optind, argv + optind);
    return fflush(stdout) == 0 ? code : EXIT_UNDECIDED;
}
