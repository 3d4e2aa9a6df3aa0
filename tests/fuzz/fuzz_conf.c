/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a configuration file. Each pair must be clean (no blanks around it, no
 * line break, a key without '='), and the pairs written out and read again must be the
 * same pairs.
 */
#include "base/conf.h"
#include "base/param.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* "KEY=VALUE\n" for each pair so far. */
typedef struct written {
    char *text;
    size_t bytes;
} written;

static void check(int good, const char *what, const char *key)
{
    if (good)
        return;
    fprintf(stderr, "fuzz_conf: %s: '%s'\n", what, key);
    abort();
}

static int is_trimmed(const char *text)
{
    const size_t length = strlen(text);

    return length == 0 ||
            (strchr(" \t\r\v\f", text[0]) == NULL &&
                    strchr(" \t\r\v\f", text[length - 1]) == NULL);
}

static void write_pair(void *arg, const char *key, const char *value)
{
    written *out = arg;
    size_t more = strlen(key) + strlen(value) + 2;

    check(key[0] != '\0' && key[0] != '#', "a key is empty or a comment", key);
    check(strpbrk(key, "=\n") == NULL, "a key has '=' or a line break", key);
    check(strchr(value, '\n') == NULL, "a value has a line break", key);
    check(is_trimmed(key) && is_trimmed(value), "blanks are left", key);
    check(strlen(key) < MOTET_CONF_KEY_MAX && strlen(value) < MOTET_CONF_VALUE_MAX,
            "too long", key);
    out->text = realloc(out->text, out->bytes + more + 1);
    check(out->text != NULL, "no memory", key);
    snprintf(out->text + out->bytes, more + 1, "%s=%s\n", key, value);
    out->bytes += more;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    written first = { NULL, 0 }, second = { NULL, 0 };

    motet_conf_parse((const char *)data, bytes, write_pair, &first);
    motet_conf_parse(first.text, first.bytes, write_pair, &second);
    check(first.bytes == second.bytes &&
                    (first.bytes == 0 ||
                            memcmp(first.text, second.text, first.bytes) == 0),
            "a second reading differs", first.text != NULL ? first.text : "");
    free(first.text);
    free(second.text);
    return 0;
}
