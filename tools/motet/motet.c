/* SPDX-License-Identifier: Apache-2.0 */
/* The command: a table of subcommands, and what all of them say alike. */
#include "cmd.h"
#include "text.h"

#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    { "run", cmd_run, "start ranks, or a program with motet preloaded" },
    { "smoke", cmd_smoke, "exchange real data, check every value, say PASS or FAIL" },
    { "bench", cmd_bench, "measure collectives, in nccl-tests' table" },
    { "tune", cmd_tune,
            "measure protocols on these GPUs, and print a plan of the fastest" },
    { "status", cmd_status, "which rank is where, live and after a crash" },
    { "doctor", cmd_doctor,
            "what is wrong with this machine or this log, and the fix" },
    { "hostcall", cmd_hostcall, "which kernels for AMD GPUs declare a hostcall" },
    { "lib", cmd_lib, "which libraries of this kind exist, which is used, and why" },
    { "probe", cmd_probe, "what works between which cards, each step on its own" },
    { "kernels", cmd_kernels, "code for GPUs: what is in it, and building more" },
    { "params", cmd_params, "every setting, its value and where it comes from" },
    { "version", cmd_version, "the version, and what is built in" },
};

#define NCOMMANDS (sizeof(commands) / sizeof(*commands))

static const char *command_name(size_t i, void *arg)
{
    (void)arg;
    return commands[i].name;
}

static void complain(const char *command, const char *fmt, va_list args)
{
    fflush(stdout);
    fprintf(stderr, "motet%s%s: ", *command != 0 ? " " : "", command);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
}

int cmd_usage_error(const char *command, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    complain(command, fmt, args);
    va_end(args);
    fprintf(stderr, "try: motet%s%s --help\n", *command != 0 ? " " : "", command);
    return EXIT_USAGE;
}

int cmd_take_number(const char *command, const char *name, const char *text, int min,
        int max, int *out)
{
    if (text_to_small(text, min, max, out))
        return -1;
    return cmd_usage_error(command, "%s is '%s', need %d to %d", name, text, min, max);
}

int cmd_error(const char *command, int code, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    complain(command, fmt, args);
    va_end(args);
    return code;
}

int cmd_bad_option(const char *command, int c, char **argv)
{
    const char *word = argv[optind - 1];

    if (c == ':')
        return cmd_usage_error(command, "option '%s' needs a value", word);
    if (optopt != 0 && word[0] == '-' && word[1] != '-')
        return cmd_usage_error(command, "unknown option '-%c'", optopt);
    if (optopt != 0)
        return cmd_usage_error(command, "option '%s' takes no value", word);
    return cmd_usage_error(command, "unknown or ambiguous option '%s'", word);
}

int cmd_help(const char *text)
{
    fputs(text, stdout);
    return fflush(stdout) == 0 ? EXIT_FINE : EXIT_PROBLEM;
}

static int overview(FILE *out, int code)
{
    fputs("usage: motet COMMAND [OPTIONS]\n\n"
          "Collective communication behind the NCCL and RCCL API.\n\n",
            out);
    for (size_t i = 0; i < NCOMMANDS; i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].help);
    fputs("\nmotet COMMAND --help explains one. Exit status: 0 fine, 1 a problem was "
          "found or\nvalues are wrong, 2 could not be decided, 64 usage.\n",
            out);
    return code;
}

static const struct command *find(const char *name)
{
    for (size_t i = 0; i < NCOMMANDS; i++)
        if (strcmp(name, commands[i].name) == 0)
            return &commands[i];
    return NULL;
}

/* motet help COMMAND is motet COMMAND --help. */
static int help_of(int argc, char **argv)
{
    static char help_option[] = "--help";
    const struct command *command;

    if (argc < 3)
        return overview(stdout, EXIT_FINE);
    command = find(argv[2]);
    if (command == NULL)
        return cmd_usage_error("", "'%s' is not a command", argv[2]);
    return command->run(2, (char *[]){ argv[2], help_option, NULL });
}

int main(int argc, char **argv)
{
    const struct command *command;
    const char *near;

    /* Ignored, as some parents leave it, children that ended could not be waited for. */
    (void)signal(SIGCHLD, SIG_DFL);
    if (argc < 2)
        return overview(stderr, EXIT_USAGE);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return overview(stdout, EXIT_FINE);
    if (strcmp(argv[1], "--version") == 0)
        return cmd_version(1, argv);
    if (strcmp(argv[1], "help") == 0)
        return help_of(argc, argv);
    command = find(argv[1]);
    opterr = 0; /* cmd_bad_option() says it */
    if (command != NULL)
        return command->run(argc - 1, argv + 1);
    near = text_nearest(argv[1], command_name, NULL, NCOMMANDS);
    if (near != NULL)
        return cmd_usage_error("", "'%s' is not a command; did you mean '%s'?", argv[1],
                near);
    return cmd_usage_error("", "'%s' is not a command", argv[1]);
}
