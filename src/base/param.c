/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table, and where values come from. A source is a lookup function: the
 * environment, one configuration file, or a test's fake. Sources are asked in
 * order, each first for our name and then for NCCL's, and the first answer counts.
 *
 * The configuration files are read once for each process, as NCCL does, so what
 * motet_param_environment() returns of them stays valid.
 */
#include "base/param.h"

#include "base/conf.h"
#include "base/log.h"
#include "base/param_parse.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const motet_param_info motet_param_table[MOTET_PARAM_COUNT] = {
#define PARAM(id, name, alias, type, dflt, min, max, dflt_text, words, unit, help) \
    [MOTET_P_##id] = { name, alias, MOTET_PARAM_##type, dflt, min, max, dflt_text, \
        words, unit, help },
#include "base/param.def"
#undef PARAM
};

#define PARAM(id, name, alias, type, dflt, min, max, ...)                   \
    _Static_assert((min) <= (dflt) && (dflt) <= (max), "default of " name); \
    _Static_assert(sizeof(name) <= MOTET_PARAM_NAME_MAX, "length of " name);
#include "base/param.def"
#undef PARAM

enum { SOURCE_ENVIRONMENT, SOURCE_USER_FILE, SOURCE_SYSTEM_FILE, NUM_SOURCES };

typedef struct source {
    motet_param_lookup lookup;
    void *arg;
} source;

/* An answer: the name that was asked for, the text, and which source had it. */
typedef struct answer {
    const char *name, *text;
    size_t source;
} answer;

static pthread_once_t files_once = PTHREAD_ONCE_INIT;
static motet_conf user_file, system_file;

static const char *ask_environment(const char *name, void *arg)
{
    (void)arg;
    return getenv(name);
}

static const char *ask_file(const char *name, void *arg)
{
    return motet_conf_get(arg, name);
}

static const source sources[NUM_SOURCES] = {
    [SOURCE_ENVIRONMENT] = { ask_environment, NULL },
    [SOURCE_USER_FILE] = { ask_file, &user_file },
    [SOURCE_SYSTEM_FILE] = { ask_file, &system_file },
};

static void read_files(void)
{
    const char *named = getenv("NCCL_CONF_FILE");
    const char *home = getenv("HOME");
    char path[MOTET_CONF_VALUE_MAX];

    if (named != NULL && named[0] != '\0') {
        motet_conf_read(&user_file, named);
    } else if (home != NULL && home[0] != '\0') {
        snprintf(path, sizeof(path), "%s/.%s.conf", home, motet_conf_name);
        motet_conf_read(&user_file, path);
    }
    snprintf(path, sizeof(path), "/etc/%s.conf", motet_conf_name);
    motet_conf_read(&system_file, path);
}

const char *motet_param_environment(const char *name)
{
    pthread_once(&files_once, read_files);
    for (size_t i = 0; i < NUM_SOURCES; i++) {
        const char *text = sources[i].lookup(name, sources[i].arg);

        if (text != NULL)
            return text;
    }
    return NULL;
}

static bool is_ours(const char *name)
{
    return strncmp(name, "MOTET_", 6) == 0;
}

static bool find(const source *from, size_t count, const motet_param_info *info,
        answer *out)
{
    for (size_t i = 0; i < count; i++) {
        const char *names[] = { info->name, info->alias };

        for (size_t n = 0; n < 2 && names[n] != NULL; n++) {
            const char *text = from[i].lookup(names[n], from[i].arg);

            if (text != NULL) {
                *out = (answer){ .name = names[n], .text = text, .source = i };
                return true;
            }
        }
    }
    return false;
}

/* For messages: the beginning of @p text on one line. */
static const char *shown(const char *text, char *buf, size_t bytes)
{
    size_t length = strnlen(text, bytes - 1);

    for (size_t i = 0; i < length; i++)
        buf[i] = (unsigned char)text[i] < ' ' || text[i] == 0x7f ? '?' : text[i];
    buf[length] = '\0';
    return buf;
}

/* Somebody else's variable that we cannot read: their program goes on, so do we. An
 * over-long text that is only shown or looked for keeps its beginning. */
static void tolerate(const motet_param_info *info, const answer *found,
        motet_param_value *out)
{
    char wanted[256], text[64];

    motet_param_wanted(info, wanted, sizeof(wanted));
    shown(found->text, text, sizeof(text));
    motet_param_default(info, out);
    if (info->alias == NULL) {
        out->set = true;
        snprintf(out->text, sizeof(out->text), "%s", found->text);
        motet_warn("%s is '%s...', need %s: the rest is cut", found->name, text,
                wanted);
    } else {
        motet_warn("%s is '%s', need %s: using the default", found->name, text, wanted);
    }
}

static motet_result load_one(const source *from, size_t count,
        const motet_param_info *info, motet_param_value *out)
{
    char wanted[256], text[64];
    answer found;

    motet_param_default(info, out);
    if (!find(from, count, info, &found))
        return MOTET_OK;
    if (found.text[0] == '\0' &&
            (!is_ours(found.name) || info->type == MOTET_PARAM_STRING))
        return MOTET_OK; /* as good as unset */
    if (motet_param_parse(info,
                is_ours(found.name) ? MOTET_GRAMMAR_OURS : MOTET_GRAMMAR_OTHERS,
                found.text, out))
        return MOTET_OK;
    if (!is_ours(found.name)) {
        tolerate(info, &found, out);
        return MOTET_OK;
    }
    motet_param_wanted(info, wanted, sizeof(wanted));
    return motet_fail(MOTET_ERR_ARGUMENT, "%s is '%s', need %s", found.name,
            shown(found.text, text, sizeof(text)), wanted);
}

static motet_result load(const source *from, size_t count, motet_params *out)
{
    motet_params *params = malloc(sizeof(*params)); /* tens of KiB: not for a stack */
    motet_result result = MOTET_OK;

    if (params == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "allocate %zu bytes for parameters",
                sizeof(*params));
    for (size_t i = 0; i < MOTET_PARAM_COUNT && result == MOTET_OK; i++)
        result = load_one(from, count, &motet_param_table[i], &params->value[i]);
    if (result == MOTET_OK)
        memcpy(out, params, sizeof(*out));
    free(params);
    return result;
}

motet_result motet_params_load(motet_param_lookup lookup, void *arg, motet_params *out)
{
    const source from = { lookup, arg };

    return load(&from, 1, out);
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Levenshtein's distance, in one row. Both strings are shorter than MOTET_PARAM_NAME_MAX. */
static size_t distance(const char *a, const char *b)
{
    size_t row[MOTET_PARAM_NAME_MAX];
    size_t columns = strlen(b);

    for (size_t j = 0; j <= columns; j++)
        row[j] = j;
    for (size_t i = 0; a[i] != '\0'; i++) {
        size_t diagonal = row[0];

        row[0] = i + 1;
        for (size_t j = 0; j < columns; j++) {
            size_t replaced = diagonal + (a[i] != b[j]);

            diagonal = row[j + 1];
            row[j + 1] = smaller(replaced, smaller(row[j], row[j + 1]) + 1);
        }
    }
    return row[columns];
}

const char *motet_param_nearest(const char *name)
{
    const size_t length = strnlen(name, MOTET_PARAM_NAME_MAX);
    const size_t far = length / 3 + 1;
    const char *nearest = NULL;
    size_t best = far;

    if (length == MOTET_PARAM_NAME_MAX)
        return NULL;
    for (size_t i = 0; i < MOTET_PARAM_COUNT; i++) {
        const char *names[] = { motet_param_table[i].name, motet_param_table[i].alias };

        for (size_t n = 0; n < 2 && names[n] != NULL; n++) {
            size_t d = distance(name, names[n]);

            if (d < best) {
                best = d;
                nearest = names[n];
            }
        }
    }
    return nearest;
}

static bool is_known(const char *name)
{
    for (size_t i = 0; i < MOTET_PARAM_COUNT; i++) {
        if (strcmp(name, motet_param_table[i].name) == 0)
            return true;
    }
    return false;
}

/* True once for each text in this process, for the first 64 different ones. A set of
 * hashes without a lock, so that a fork at any moment leaves it usable. */
static bool first_time(const char *text)
{
    static _Atomic uint64_t seen[64];
    uint64_t hash = 14695981039346656037u; /* FNV-1a */

    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    hash |= 1; /* 0 means a free slot */
    for (size_t i = 0; i < sizeof(seen) / sizeof(*seen); i++) {
        uint64_t old = 0;

        if (atomic_compare_exchange_strong_explicit(&seen[i], &old, hash,
                    memory_order_relaxed, memory_order_relaxed))
            return true;
        if (old == hash)
            return false;
    }
    return false;
}

/* @p pair is NAME or NAME=VALUE. */
static void warn_if_unknown(const char *pair, const char *where)
{
    char name[MOTET_PARAM_NAME_MAX], text[MOTET_PARAM_NAME_MAX];
    size_t length = strcspn(pair, "=");
    const char *nearest;

    if (!is_ours(pair))
        return;
    snprintf(name, sizeof(name), "%.*s", (int)smaller(length, sizeof(name) - 1), pair);
    if (is_known(name) || !first_time(name))
        return;
    nearest = motet_param_nearest(name);
    shown(name, text, sizeof(text));
    if (nearest != NULL)
        motet_warn("%s in %s is not a variable of motet: did you mean %s", text, where,
                nearest);
    else
        motet_warn("%s in %s is not a variable of motet: `motet params` lists them",
                text, where);
}

static void warn_about_file(const motet_conf *file, bool named)
{
    char reason[128];

    if (file->error != 0 && (named || file->result != MOTET_OK) &&
            first_time(file->path))
        motet_warn("the configuration file %s is not used: %s",
                file->path[0] != '\0' ? file->path : "that is named",
                strerror_r(file->error, reason, sizeof(reason)));
    for (size_t i = 0; i < file->count; i++)
        warn_if_unknown(file->pairs[i].key, file->path);
}

/* What a person set for the job, as against what every login has. */
static bool is_worth_a_line(const char *name)
{
    return strcmp(name, "HOME") != 0 && strncmp(name, "XDG_", 4) != 0;
}

static void log_what_is_set(void)
{
    static atomic_bool logged[MOTET_PARAM_COUNT];

    if (!motet_log_on(MOTET_LOG_INFO, MOTET_SUB_ENV))
        return;
    for (size_t i = 0; i < MOTET_PARAM_COUNT; i++) {
        const motet_param_info *info = &motet_param_table[i];
        char text[256];
        answer found;

        if (!is_worth_a_line(info->name) || !find(sources, NUM_SOURCES, info, &found) ||
                found.text[0] == '\0' ||
                atomic_exchange_explicit(&logged[i], true, memory_order_relaxed))
            continue;
        shown(found.text, text, sizeof(text));
        if (found.source == SOURCE_ENVIRONMENT)
            motet_info(MOTET_SUB_ENV, "%s set by environment to %s", found.name, text);
        else
            motet_info(MOTET_SUB_ENV, "%s set by environment to %s (from %s)",
                    found.name, text,
                    ((const motet_conf *)sources[found.source].arg)->path);
    }
}

motet_result motet_params_from_environment(motet_params *out)
{
    const char *named;

    pthread_once(&files_once, read_files);
    MOTET_TRY(load(sources, NUM_SOURCES, out), "read the parameters");
    named = getenv("NCCL_CONF_FILE");
    warn_about_file(&user_file, named != NULL && named[0] != '\0');
    warn_about_file(&system_file, false);
    for (char **variable = environ; variable != NULL && *variable != NULL; variable++)
        warn_if_unknown(*variable, "the environment");
    log_what_is_set();
    return MOTET_OK;
}

motet_result motet_params_new(motet_params **out)
{
    motet_params *params = malloc(sizeof(*params));
    motet_result result;

    if (params == NULL)
        return motet_fail_errno(MOTET_ERR_SYSTEM, "parameters of %zu bytes",
                sizeof(*params));
    result = motet_params_from_environment(params);
    if (result == MOTET_OK)
        *out = params;
    else
        free(params);
    return result;
}
