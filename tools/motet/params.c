/* SPDX-License-Identifier: Apache-2.0 */
/*
 * motet params: every row of the parameter table with the value that a program started
 * here would see, and where that comes from.
 */
#include "cmd.h"
#include "json.h"

#include "base/param.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
static const char help[] =
        "usage: motet params [--set] [--json]\n"
        "\n"
        "Every setting that the library reads: its value here, its default, and where the\n"
        "value comes from.\n"
        "\n"
        "      --set    only those that are set\n"
        "      --json   as JSON\n"
        "  -h, --help   this text\n"
        "\n"
        "Exit status: 0 fine, 1 a setting is malformed, 64 usage.\n";
/* clang-format on */

static const char *const type_names[] = {
    [MOTET_PARAM_UINT] = "number",
    [MOTET_PARAM_INT] = "number",
    [MOTET_PARAM_BYTES] = "bytes",
    [MOTET_PARAM_BOOL] = "bool",
    [MOTET_PARAM_ENUM] = "choice",
    [MOTET_PARAM_STRING] = "text",
    [MOTET_PARAM_NOTED] = "noted",
};

/* Where a value that is set comes from: the order of sources in param.h. */
static const char *source_of(const motet_params *params, motet_param_id id, char *buf,
        size_t bytes)
{
    const motet_param_info *info = &motet_param_table[id];

    if (!params->value[id].set)
        return "default";
    if (getenv(info->name) != NULL)
        return "environment";
    if (info->alias != NULL && getenv(info->alias) != NULL) {
        snprintf(buf, bytes, "environment, %s", info->alias);
        return buf;
    }
    snprintf(buf, bytes, "%s.conf", motet_conf_name);
    return buf;
}

static const char *default_of(motet_param_id id, char *buf, size_t bytes)
{
    static motet_params defaults; /* too large for the stack; all zero is "not set" */

    memset(&defaults.value[id], 0, sizeof(defaults.value[id]));
    defaults.value[id].number = motet_param_table[id].dflt;
    snprintf(defaults.value[id].text, sizeof(defaults.value[id].text), "%s",
            motet_param_table[id].dflt_text);
    motet_param_format(&defaults, id, buf, bytes);
    return buf;
}

static void print_text(const motet_params *params, motet_param_id id)
{
    const motet_param_info *info = &motet_param_table[id];
    char value[MOTET_PARAM_STRING_MAX + 32], dflt[MOTET_PARAM_STRING_MAX + 32];
    char source[128];
    bool set = params->value[id].set;

    motet_param_format(params, id, value, sizeof(value));
    default_of(id, dflt, sizeof(dflt));
    printf("%s = %s\n", info->name, value[0] != 0 ? value : "(empty)");
    if (set)
        printf("    set by %s; default %s\n",
                source_of(params, id, source, sizeof(source)),
                dflt[0] != 0 ? dflt : "(empty)");
    printf("    %s\n", info->help);
    if (info->words != NULL)
        printf("    one of: %s\n", info->words);
    if (info->alias != NULL)
        printf("    also read as %s\n", info->alias);
}

static void print_json(struct json *j, const motet_params *params, motet_param_id id)
{
    const motet_param_info *info = &motet_param_table[id];
    char text[MOTET_PARAM_STRING_MAX + 32], source[128];

    json_object(j, NULL);
    json_string(j, "name", info->name);
    json_string(j, "alias", info->alias);
    json_string(j, "type", type_names[info->type]);
    motet_param_format(params, id, text, sizeof(text));
    json_string(j, "value", text);
    json_string(j, "default", default_of(id, text, sizeof(text)));
    json_bool(j, "set", params->value[id].set);
    json_string(j, "source", source_of(params, id, source, sizeof(source)));
    json_string(j, "unit", info->unit);
    json_string(j, "words", info->words);
    json_string(j, "help", info->help);
    json_end(j);
}

static int print_all(const motet_params *params, bool only_set, bool as_json)
{
    struct json j;

    json_start(&j, stdout);
    if (as_json)
        json_array(&j, NULL);
    for (int i = 0; i < MOTET_PARAM_COUNT; i++) {
        motet_param_id id = (motet_param_id)i;

        if (only_set && !params->value[id].set)
            continue;
        if (as_json)
            print_json(&j, params, id);
        else
            print_text(params, id);
    }
    if (as_json)
        return json_finish(&j) ? EXIT_FINE : EXIT_PROBLEM;
    return fflush(stdout) == 0 ? EXIT_FINE : EXIT_PROBLEM;
}

int cmd_params(int argc, char **argv)
{
    static const struct option options[] = {
        { "set", no_argument, NULL, 's' },
        { "json", no_argument, NULL, 'j' },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    static motet_params params; /* too large for the stack */
    bool only_set = false, as_json = false;
    int c;

    optind = 1;
    while ((c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        switch (c) {
        case 's': only_set = true; break;
        case 'j': as_json = true; break;
        case 'h': return cmd_help(help);
        default: return cmd_bad_option("params", c, argv);
        }
    }
    if (optind < argc)
        return cmd_usage_error("params", "unexpected argument '%s'", argv[optind]);
    if (motet_params_from_environment(&params) != MOTET_OK)
        return cmd_error("params", EXIT_PROBLEM, "%s", motet_error_trail());
    return print_all(&params, only_set, as_json);
}
