/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the environment. Records are separated by NUL: the first byte of each
 * chooses a row, the second whether our name or NCCL's is set, the rest is the value.
 * Whatever comes out must be in its row's range and printable, or else nothing may be
 * written and the message must name a variable. The bytes as a name have a nearest one,
 * or none.
 */
#include "base/param.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { RECORDS_MAX = 8 };

typedef struct record {
    const char *name, *value;
} record;

typedef struct environment {
    record records[RECORDS_MAX];
    size_t count;
} environment;

static void check(int good, const char *what, const char *name)
{
    if (good)
        return;
    fprintf(stderr, "fuzz_param: %s: %s\n", what, name);
    abort();
}

static const char *lookup(const char *name, void *arg)
{
    const environment *env = arg;

    for (size_t i = 0; i < env->count; i++) {
        if (strcmp(env->records[i].name, name) == 0)
            return env->records[i].value;
    }
    return NULL;
}

static void split(char *text, size_t bytes, environment *env)
{
    for (char *at = text; at < text + bytes && env->count < RECORDS_MAX;) {
        size_t length = strlen(at);

        if (length >= 2) {
            const motet_param_info *row =
                    &motet_param_table[(unsigned char)at[0] % MOTET_PARAM_COUNT];

            env->records[env->count++] = (record){
                .name = row->alias != NULL && (at[1] & 1) ? row->alias : row->name,
                .value = at + 2,
            };
        }
        at += length + 1;
    }
}

static void check_values(const motet_params *params)
{
    for (size_t i = 0; i < MOTET_PARAM_COUNT; i++) {
        const motet_param_info *row = &motet_param_table[i];
        const motet_param_value *value = &params->value[i];
        char text[MOTET_PARAM_STRING_MAX];

        check(row->min <= value->number && value->number <= row->max, "out of range",
                row->name);
        check(memchr(value->text, '\0', sizeof(value->text)) != NULL, "not terminated",
                row->name);
        check(value->set || value->number == row->dflt, "not the default", row->name);
        motet_param_format(params, (motet_param_id)i, text, sizeof(text));
        check(row->type != MOTET_PARAM_ENUM || strcmp(text, "?") != 0, "no such word",
                row->name);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static motet_params params, before;
    environment env = { .count = 0 };
    char *text = malloc(bytes + 1);

    check(text != NULL, "no memory", "the input");
    if (bytes > 0)
        memcpy(text, data, bytes);
    text[bytes] = '\0';
    (void)motet_param_nearest(text); /* only that it returns */
    split(text, bytes, &env);
    memset(&params, 0x5a, sizeof(params));
    memset(&before, 0x5a, sizeof(before));
    if (motet_params_load(lookup, &env, &params) == MOTET_OK) {
        check_values(&params);
    } else {
        check(memcmp(&params, &before, sizeof(params)) == 0, "written in failure", "");
        check(strncmp(motet_error_trail(), "MOTET_", 6) == 0, "no name in the message",
                motet_error_trail());
    }
    free(text);
    return 0;
}
