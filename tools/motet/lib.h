/* SPDX-License-Identifier: Apache-2.0 */
/*
 * motet lib, in parts: lib_search.c asks the finder (src/find) and gathers the facts,
 * lib_load.c loads a candidate in a child process, lib_elf.c reads a file without loading
 * it, lib_report.c and cmd_lib.c say it. The probe and smoke choose libraries through
 * lib_search() too.
 */
#ifndef MOTET_TOOLS_LIB_H
#define MOTET_TOOLS_LIB_H

#include "find/find.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/** Seconds that loading a candidate may take. */
#define LIB_TIMEOUT_S 20
/** Names of one file that are kept: missing ones, needed libraries, sentences. */
#define LIB_NAMES_MAX 64

/* ---- lib_elf.c */

/** A list of texts, each the list's own. */
struct lib_names {
    size_t num;
    char *name[LIB_NAMES_MAX];
};

/** Append a copy; a full list, or no memory, leaves it out. */
void lib_names_add(struct lib_names *names, const char *name);
void lib_names_clear(struct lib_names *names);

/**
 * The libraries that the file @p path asks for by name, and those of @p wanted (may be
 * NULL) that it does not define. The file is read, not loaded.
 * @return false with a sentence in @p why if it cannot be read
 */
bool lib_elf_read(const char *path, const char *const *wanted, struct lib_names *needed,
        struct lib_names *missing, char *why, size_t why_bytes);

/* ---- lib_load.c */

/** What a child saw that loaded a library. */
struct lib_loaded {
    bool loads, has_version;
    int version;                      /* ncclGetVersion() */
    char path[MOTET_FIND_PATH_MAX];   /* of the file, as the linker knows it */
    char hip[2][MOTET_FIND_PATH_MAX]; /* HIP runtimes that it brought */
    char why[MOTET_FIND_DETAIL_MAX];  /* of what went wrong; "" if nothing did */
    motet_find_verdict verdict;
    bool lacks[LIB_NAMES_MAX]; /* loads: which of the wanted names, in their order */
};

/**
 * Load @p name, a path or a bare SONAME, in a child process, ask its version and for the
 * names of @p wanted (may be NULL). What its constructors do (crash, exit, print, never
 * return) stays there, and processes that they start are killed, unless one has made
 * itself a session of its own.
 */
void lib_load(const char *name, const char *const *wanted, unsigned timeout_s,
        struct lib_loaded *out);

/** Whether the file's name begins with one of @p num stems; a NULL among them ends them. */
bool lib_begins(const char *path, const char *const *stems, size_t num);

/** Whether it is a HIP runtime, by its name. */
bool lib_is_hip(const char *path);

/* ---- lib_search.c */

/** What is looked for. */
struct lib_wish {
    const motet_find_library *library; /* NULL: the machine's kind */
    const char *client;                /* a row of motet_find_clients, or NULL */
    const char *python;                /* a Python environment, or NULL */
    bool by_name;                      /* ask the linker, on AMD too */
    bool vendor;                       /* a build of motet is passed over */
    unsigned timeout_s;
    pid_t pid; /* a process whose mapped libraries are shown, or 0 */
};

/** What is known of a candidate of the report beside the finder's row. */
struct lib_facts {
    bool exists, tried;
    char real[PATH_MAX]; /* "" if there is no such file */
    struct lib_loaded loaded;
    bool was_loaded;  /* `loaded` holds something */
    bool unknown;     /* which names it lacks could not be told */
    char unread[160]; /* why its file's names could not be listed; "" if they were */
    struct lib_names missing, needed, poison;
};

/** The answer. Large: from lib_search(), to lib_found_free(). */
struct lib_found {
    const motet_find_library *library;
    const motet_find_client *client; /* or NULL */
    motet_find_report report;
    struct lib_facts facts[MOTET_FIND_CANDIDATES_MAX];
    const struct lib_facts *chosen; /* of what was found, or NULL */
    bool motet;                     /* that was built from motet  */
    char hip[MOTET_FIND_PATH_MAX];  /* what a program beside RCCL takes; "" */
    pid_t pid;                      /* of the wish */
    struct lib_names mapped;        /* in it */
    char mapped_why[128];           /* why they could not be read */
    unsigned timeout_s;             /* of the wish */
    bool vendor;                    /* of the wish */
    size_t num_loaded;
    struct {
        char name[MOTET_FIND_PATH_MAX];
        struct lib_loaded loaded;
    } load[MOTET_FIND_CANDIDATES_MAX];
};

/** The kind that the variables and the GPUs of this machine say; RCCL if they are silent. */
const motet_find_library *lib_kind(void);

/** Look for it; NULL if there is no memory. `report.outcome` says how it ended. */
struct lib_found *lib_search(const struct lib_wish *wish);
void lib_found_free(struct lib_found *found);

/* ---- lib_report.c */

/** The sentence, then a table of the candidates. */
void lib_print_text(const struct lib_found *found);
/** As JSON; false if it could not be written. */
bool lib_print_json(const struct lib_found *found);
/** Whether what was found lacks something that its client needs. */
bool lib_lacks(const struct lib_found *found);

#endif
