/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parameter table (param.def): one row for each variable that the library
 * reads, ours and other people's. The only getenv() of the library is here.
 *
 * Order of sources (api.md 2.3): MOTET_X in the environment, then its NCCL alias
 * in the environment, then the same two names in the file NCCL_CONF_FILE or
 * ~/.nccl.conf, then in /etc/nccl.conf (rccl.conf for librccl), then the default.
 */
#ifndef MOTET_BASE_PARAM_H
#define MOTET_BASE_PARAM_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum motet_param_type {
    MOTET_PARAM_UINT,   /* 123, 0x7b                                        */
    MOTET_PARAM_INT,    /* may be negative                                  */
    MOTET_PARAM_BYTES,  /* 4096, 64k, 2m, 1g                                */
    MOTET_PARAM_BOOL,   /* 0/1, no/yes, false/true                          */
    MOTET_PARAM_ENUM,   /* one of the words in `words`, value is its index  */
    MOTET_PARAM_STRING, /* any text                                         */
    MOTET_PARAM_NOTED /* accepted and logged so that a job's settings show, no effect here */
} motet_param_type;

/**
 * Longest string value kept, bytes with the NUL; a longer one is malformed. Other
 * people's variables (rows without MOTET_ name) keep their beginning, with a WARN.
 */
#define MOTET_PARAM_STRING_MAX 512

/** Longest name in the table, bytes with the NUL. */
#define MOTET_PARAM_NAME_MAX 64

/** A value: numbers, booleans and enum indices in `number`, strings in `text`. */
typedef struct motet_param_value {
    int64_t number;
    char text[MOTET_PARAM_STRING_MAX]; /* "" when unset */
    bool set;                          /* false: `number`/`text` are the default */
} motet_param_value;

/** Index of each parameter, in the table's order: MOTET_P_OP_TIMEOUT_S … */
typedef enum motet_param_id {
#define PARAM(id, ...) MOTET_P_##id,
#include "base/param.def"
#undef PARAM
    MOTET_PARAM_COUNT
} motet_param_id;

/** All values: a snapshot, constant afterwards. A communicator keeps its own. */
typedef struct motet_params {
    motet_param_value value[MOTET_PARAM_COUNT];
} motet_params;

/** A row of the table. */
typedef struct motet_param_info {
    const char
            *name; /* "MOTET_OP_TIMEOUT_S"; other people's variables keep their name */
    const char *
            alias; /* NCCL's name with the same meaning, or NULL                      */
    motet_param_type type;
    int64_t dflt, min,
            max; /* for numbers                                                   */
    const char *
            dflt_text; /* for strings, "" if none                                       */
    const char
            *words; /* for enums: "auto cpu gpu"                                     */
    const char
            *unit; /* "s", "bytes", "" …                                            */
    const char
            *help; /* one sentence                                                  */
} motet_param_info;

extern const motet_param_info motet_param_table[MOTET_PARAM_COUNT];

/** getenv() in the library, a fake in tests: parsing has no hidden input. */
typedef const char *(*motet_param_lookup)(const char *name, void *arg);

/**
 * Fill @p out from @p lookup. A malformed MOTET_* value is an error that names
 * variable, value and what would be accepted; a malformed NCCL alias is a WARN and
 * the default. @p out is written only on success.
 */
MOTET_MUST_USE motet_result motet_params_load(motet_param_lookup lookup, void *arg,
        motet_params *out);

/**
 * motet_params_load() from the environment and the configuration files, plus a
 * warning (once for each name and process) for every unknown MOTET_* with the
 * nearest known name.
 */
MOTET_MUST_USE motet_result motet_params_from_environment(motet_params *out);

/**
 * The text of one variable, from the environment or the configuration files; NULL if
 * neither has it. For what must be read before there is a snapshot: the log. Valid as
 * long as getenv()'s result.
 */
const char *motet_param_environment(const char *name);

/** A snapshot on the heap, from motet_params_from_environment(); free() it. */
MOTET_MUST_USE motet_result motet_params_new(motet_params **out);

static inline int64_t motet_param(const motet_params *params, motet_param_id id)
{
    return params->value[id].number;
}

static inline const char *motet_param_text(const motet_params *params,
        motet_param_id id)
{
    return params->value[id].text;
}

/** The name nearest to @p name in the table, or NULL if none is near. */
const char *motet_param_nearest(const char *name);

/** Value as `motet params` shows it ("1800 s", "16384 bytes", "auto"), into @p buf. */
void motet_param_format(const motet_params *params, motet_param_id id, char *buf,
        size_t bytes);

/**
 * Parse one configuration file's text (KEY=VALUE lines, # comments, blanks around
 * both sides dropped). Calls @p found for each pair; ignores lines without '='.
 * Never fails: for the fuzzer and for motet_params_from_environment().
 */
void motet_conf_parse(const char *text, size_t bytes,
        void (*found)(void *arg, const char *key, const char *value), void *arg);

/** Name of the configuration files: "nccl" (default) or "rccl"; set by the library's flavour. */
extern const char *const motet_conf_name;

/** Kinds of GPU that the library serves, best first, blanks between: "cuda hip"; set by the
 *  library's flavour. */
extern const char *const motet_conf_gpus;

#endif
