/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command's subcommands and what they share: exit codes and how a usage mistake
 * is reported. One file (or one family of files) for each subcommand; motet.c holds
 * the table.
 */
#ifndef MOTET_TOOLS_CMD_H
#define MOTET_TOOLS_CMD_H

/* Exit codes of the command, documented in motet(1). */
enum {
    EXIT_FINE = 0,
    EXIT_PROBLEM = 1,   /* a problem was found, or values are wrong */
    EXIT_UNDECIDED = 2, /* could not be decided                      */
    EXIT_USAGE = 64
};

int cmd_bench(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_hostcall(int argc, char **argv);
int cmd_kernels(int argc, char **argv);
int cmd_lib(int argc, char **argv);
int cmd_params(int argc, char **argv);
int cmd_probe(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_smoke(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_tune(int argc, char **argv);
int cmd_version(int argc, char **argv);

/** "motet COMMAND: text" and where the help is, to stderr. Returns EXIT_USAGE. */
int cmd_usage_error(const char *command, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));

/**
 * Take the number, @p min to @p max, that option @p name was given as @p text.
 * @return −1: taken; otherwise the exit code, after saying what is wrong.
 */
int cmd_take_number(const char *command, const char *name, const char *text, int min,
        int max, int *out);

/** "motet COMMAND: text" to stderr. Returns @p code. */
int cmd_error(const char *command, int code, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

/**
 * Report what getopt_long() refused: @p c is its return value (':' for a missing
 * argument, so the option string starts with ':', after a '+' if it has one).
 */
int cmd_bad_option(const char *command, int c, char **argv);

/** Print @p text (a whole help page) to stdout. Returns EXIT_FINE. */
int cmd_help(const char *text);

#endif
