/* SPDX-License-Identifier: Apache-2.0 */
/* motet kernels: code for GPUs, by subcommands. */
#include "kernels.h"
#include "cmd.h"
#include "text.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} subcommands[] = {
    { "build", kernels_build, "compile for a GPU that the library has no code for" },
    { "list", kernels_list, "what AMD code objects hold" },
};

#define NUM_SUBCOMMANDS (sizeof(subcommands) / sizeof(*subcommands))

static const char *subcommand_name(size_t i, void *arg)
{
    (void)arg;
    return subcommands[i].name;
}

static int overview(FILE *out, int code)
{
    fputs("usage: motet kernels COMMAND [OPTIONS]\n\n"
          "Code for GPUs.\n\n",
            out);
    for (size_t i = 0; i < NUM_SUBCOMMANDS; i++)
        fprintf(out, "  %-10s %s\n", subcommands[i].name, subcommands[i].help);
    fputs("\nmotet kernels COMMAND --help explains one.\n", out);
    return code;
}

int cmd_kernels(int argc, char **argv)
{
    const char *near;

    if (argc < 2)
        return overview(stderr, EXIT_USAGE);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return overview(stdout, EXIT_FINE);
    for (size_t i = 0; i < NUM_SUBCOMMANDS; i++)
        if (strcmp(argv[1], subcommands[i].name) == 0)
            return subcommands[i].run(argc - 1, argv + 1);
    near = text_nearest(argv[1], subcommand_name, NULL, NUM_SUBCOMMANDS);
    return cmd_usage_error("kernels", "'%s' is not a command of it%s%s%s", argv[1],
            near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
            near != NULL ? "'?" : "");
}
