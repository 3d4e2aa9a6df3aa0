/* SPDX-License-Identifier: Apache-2.0 */
/* See doctor_model.h. Of a config.json only a few members are looked for, wherever they
 * stand: some nest the text model in another object. */
#include "doctor_model.h"

#include "text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG_MAX (1u << 20)

static const struct {
    const char *name;
    uint64_t bytes;
} types[] = { { "float32", 4 }, { "fp32", 4 }, { "f32", 4 }, { "bfloat16", 2 },
    { "bf16", 2 }, { "float16", 2 }, { "fp16", 2 }, { "f16", 2 }, { "half", 2 },
    { "float8_e4m3fn", 1 }, { "float8_e5m2", 1 }, { "fp8", 1 }, { "int8", 1 } };

static bool dtype(const char *text, size_t length, uint64_t *out)
{
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
        if (strlen(types[i].name) == length &&
                strncmp(text, types[i].name, length) == 0) {
            *out = types[i].bytes;
            return true;
        }
    return false;
}

static bool set(const char *key, const char *value, struct dr_model *out)
{
    const struct {
        const char *key;
        uint64_t *to;
    } keys[] = { { "hidden", &out->hidden }, { "layers", &out->layers },
        { "batch", &out->batch } };
    int64_t number;

    if (strcmp(key, "dtype") == 0)
        return dtype(value, strlen(value), &out->dtype_bytes);
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        if (strcmp(key, keys[i].key) == 0 && text_to_int(value, 1, 1 << 30, &number)) {
            *keys[i].to = (uint64_t)number;
            return true;
        }
    return false;
}

static bool read_list(const char *text, struct dr_model *out, char *why,
        size_t why_bytes)
{
    char *copy = strdup(text), *save = NULL;
    bool ok = copy != NULL;

    for (char *part = ok ? strtok_r(copy, ",", &save) : NULL; ok && part != NULL;
            part = strtok_r(NULL, ",", &save)) {
        char *equals = strchr(part, '=');

        if (equals != NULL)
            *equals = 0;
        ok = equals != NULL && set(part, equals + 1, out);
        if (!ok)
            snprintf(why, why_bytes,
                    "'%s%s%s' is none of hidden=N, layers=N, batch=N, "
                    "dtype=fp32|bf16|fp16|fp8|int8",
                    part, equals != NULL ? "=" : "", equals != NULL ? equals + 1 : "");
    }
    free(copy);
    return ok;
}

/* What follows `"name":`, blanks skipped; NULL if it is not there. */
static const char *member(const char *text, const char *name)
{
    const size_t length = strlen(name);

    for (const char *at = text; (at = strstr(at, name)) != NULL; at += length) {
        const char *value = at + length;

        if (at == text || at[-1] != '"' || *value != '"')
            continue;
        value += 1 + strspn(value + 1, " \t\r\n");
        if (*value == ':')
            return value + 1 + strspn(value + 1, " \t\r\n");
    }
    return NULL;
}

static uint64_t first_number(const char *text, const char *const *names)
{
    for (; *names != NULL; names++) {
        const char *value = member(text, *names);

        if (value != NULL && *value >= '1' && *value <= '9')
            return strtoull(value, NULL, 10);
    }
    return 0;
}

static bool read_config(const char *text, struct dr_model *out)
{
    static const char *const hidden[] = { "hidden_size", "n_embd", "d_model", NULL };
    static const char *const layers[] = { "num_hidden_layers", "n_layer", "num_layers",
        NULL };
    const char *type = member(text, "torch_dtype");

    if (type == NULL)
        type = member(text, "dtype");
    out->hidden = first_number(text, hidden);
    out->layers = first_number(text, layers);
    if (type != NULL && *type == '"')
        (void)dtype(type + 1, strcspn(type + 1, "\""), &out->dtype_bytes);
    return out->hidden > 0 && out->layers > 0;
}

bool doctor_model(const char *text, struct dr_model *out, char *why, size_t why_bytes)
{
    FILE *in;
    char *config;
    bool ok;

    if (strchr(text, '=') != NULL) {
        if (!read_list(text, out, why, why_bytes))
            return false;
    } else {
        in = fopen(text, "re");
        config = in != NULL ? calloc(1, CONFIG_MAX + 1) : NULL;
        ok = config != NULL && fread(config, 1, CONFIG_MAX, in) > 0;
        if (!ok)
            snprintf(why, why_bytes, "%s: %s", text,
                    errno != 0 ? strerror(errno) : "empty");
        else if (!(ok = read_config(config, out)))
            snprintf(why, why_bytes, "%s has no hidden_size and num_hidden_layers",
                    text);
        free(config);
        if (in != NULL)
            fclose(in);
        if (!ok)
            return false;
    }
    if (out->batch == 0)
        out->batch = 1;
    if (out->dtype_bytes == 0)
        out->dtype_bytes = 2;
    if (out->hidden > 0 && out->layers > 0)
        return true;
    snprintf(why, why_bytes, "'%s' lacks hidden= or layers=", text);
    return false;
}
