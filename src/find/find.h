/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which copy of a library is used, from where, why, and what dlopen said of the others.
 *
 * src/find includes nothing but libc and reads no environment variable: another program
 * can compile its C files in. C17, Linux with glibc, _GNU_SOURCE. In this order:
 *
 * 1. A copy that this process has mapped is the one used, whatever its folder and
 *    SONAME, also if it was opened RTLD_LOCAL. Two different files mapped: refused.
 * 2. An override (a variable that holds a path) is authoritative: it is used or nothing.
 * 3. So is a Python environment that the request names, and then a configured root
 *    (ROCM_PATH …), the first of the request that is set.
 * 4. Else the installs of this machine: an unversioned root (/opt/rocm) selects; without
 *    one the only versioned root (/opt/rocm-7.1.0). Several: refused, as a guess could mix
 *    two installs. An install that has a whole SDK counts, for a library that comes with
 *    it, also if it lacks the library. Then the SDKs whose tools are on PATH, then /usr and
 *    /usr/local. What the selected one answers is final.
 * 5. Only if no install is there, and the library or the request allows it: the linker's
 *    own search; for a library that stands alone (NCCL) then its other places, in order.
 *
 * A file is looked at (readable, ELF class, machine) before it is opened, and whoever was
 * looked at stands in the report with a reason. Copies outside what decides are listed with
 * the variable that would choose them, and never opened.
 */
#ifndef MOTET_FIND_FIND_H
#define MOTET_FIND_FIND_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Longest path that is looked at, bytes with the NUL. A longer one that would decide is
 * refused.
 */
#define MOTET_FIND_PATH_MAX 1024
/** Longest reason of a candidate and longest sentence, bytes with the NUL. */
#define MOTET_FIND_DETAIL_MAX   320
#define MOTET_FIND_SENTENCE_MAX 1024
/**
 * Candidates that a report lists; further ones are counted only, and still tried. One of
 * them that is taken stands in the last row.
 */
#define MOTET_FIND_CANDIDATES_MAX 48
/** Roots that a request can configure. */
#define MOTET_FIND_SETTINGS_MAX 4
/** Roots and folders of one kind that are looked at. */
#define MOTET_FIND_ROOTS_MAX 64
/** Roots that a report lists when nothing selects one of them. */
#define MOTET_FIND_AMBIGUOUS_MAX 8
/** Python environments that a request can mention. */
#define MOTET_FIND_PYTHONS_MAX 3

/** Where one vendor's installs are. */
typedef struct motet_find_install {
    const char *selector;  /**< "/opt/rocm": with its core and core-*; it selects */
    const char *versioned; /**< its siblings: "/opt/rocm-*"                       */
    const char *variable;  /**< what a user sets to choose one: "ROCM_PATH"       */
} motet_find_install;

/** What an SDK consists of: of each of the first four lists one file is there. */
typedef struct motet_find_sdk {
    const char *const *headers;   /**< below the root                           */
    const char *const *runtimes;  /**< in the library's folders                 */
    const char *const *compilers; /**< in the root's bin                        */
    const char *const *support;   /**< in the library's folders                 */
    const char *const *tools;     /**< in a PATH folder ROOT/bin they show ROOT */
    const char *const *system;    /**< "/usr": counts with an SDK, tool or runtime */
} motet_find_sdk;

/** A library that can be looked for. Lists end with NULL, install lists with {NULL}. */
typedef struct motet_find_library {
    const char *name; /**< "rccl", for people who choose one; NULL: none does */
    const char *what; /**< for sentences: "AMD's HIP runtime"                 */
    const char *const
            *stems; /**< a mapped file of this name, with or without .N, is a copy */
    const char *const *names;   /**< file names and SONAMEs, most wanted first        */
    const char *const *folders; /**< of a root; a part may have a '*': each of one    */
    const motet_find_install
            *installs; /**< in order                                  */
    bool by_name; /**< the linker's own search may be asked, at the end               */
    const char
            *hint; /**< what to do if there is none; no full stop; with an override: its
                       name, "=" and a path follow */

    /* What follows may be NULL, as most of it is for the HIP runtime. */
    const motet_find_sdk *sdk; /**< what an install of it is known by        */
    const char *override;      /**< variable with the path of a file: MOTET_RCCL_LIB */
    const char *const *variables; /**< that configure a root, in order          */
    const char *const *wheels;    /**< folders below a Python's site-packages   */
    const char *const
            *elsewhere; /**< further folders: "/nix/store/" "*rccl*" "/lib"; they
                                       are listed                               */
    bool stands_alone;  /**< it belongs to no install: what is elsewhere is used, too */
} motet_find_library;

/**
 * The HIP runtime: libamdhip64.so.7, .6, .5 of ROCm, libgalaxyhip.so.5 of Hygon's DTK.
 * Its roots are configured by DTK_ROOT, ROCM_PATH and HIP_PATH, in this order.
 */
extern const motet_find_library motet_find_hip;

/** AMD's RCCL, of ROCm and of Hygon's DTK. */
extern const motet_find_library motet_find_rccl;

/** NVIDIA's NCCL. */
extern const motet_find_library motet_find_nccl;

/** A program that looks for a library with variables of its own, and what it calls there. */
typedef struct motet_find_client {
    const char *name; /**< "hipfire" */
    const motet_find_library *library;
    const char *override;         /**< "HIPFIRE_RCCL_LIB"; NULL: it has none         */
    const char *const *variables; /**< instead of the library's; NULL: those         */
    const char *const *symbols;   /**< that it takes from the library; NULL-ended    */
} motet_find_client;

/** Every client that is known, by name; ends with a NULL name. */
extern const motet_find_client motet_find_clients[];

/** The row of a client for a library (NULL: its first), or NULL. */
const motet_find_client *motet_find_client_of(const char *name,
        const motet_find_library *library);

/** A variable and what it says. Unset if @c value is NULL or "". Both stay the caller's. */
typedef struct motet_find_setting {
    const char *variable; /**< "ROCM_PATH", for sentences and the report */
    const char *value;
} motet_find_setting;

/** What became of a candidate. */
typedef enum motet_find_verdict {
    MOTET_FIND_TAKEN,      /**< it is the one                                   */
    MOTET_FIND_ABSENT,     /**< there is no such file                           */
    MOTET_FIND_UNREADABLE, /**< not a file, or not readable; with errno and mode */
    MOTET_FIND_WRONG_FILE, /**< no shared object, or of another class or machine */
    MOTET_FIND_NOT_LOADED, /**< what dlopen said                                */
    MOTET_FIND_LACKS,      /**< lacks a symbol that was asked for; which        */
    MOTET_FIND_FATAL, /**< by a loader: loading it ends or stops a process; the search ends */
    MOTET_FIND_NOT_TRIED, /**< there, but another one decides                  */
} motet_find_verdict;

/**
 * Loads a candidate in the finder's place, in another process for example: what is found
 * then has no handle. @p name is a path, or a bare SONAME of the linker's search.
 * @param path_out   TAKEN: the file as the linker knows it
 * @param detail_out else the reason
 * @return NOT_TRIED passes it over
 */
typedef motet_find_verdict motet_find_loader(const char *name,
        char path_out[MOTET_FIND_PATH_MAX], char detail_out[MOTET_FIND_DETAIL_MAX],
        void *arg);

/** What is asked. Everything stays the caller's; what is zero is not asked for. */
typedef struct motet_find_request {
    const motet_find_library *library; /**< never NULL */
    motet_find_setting override;       /**< the path of a file */
    motet_find_setting
            roots[MOTET_FIND_SETTINGS_MAX]; /**< the first that is set counts */
    const char *const
            *symbols; /**< NULL-ended: a copy that lacks one is refused; or NULL */
    const char
            *prefix; /**< stands before the roots of @c installs, for tests; or NULL */

    motet_find_setting
            python; /**< the folder or interpreter of a Python environment whose
                                    wheels are meant: authoritative                   */
    motet_find_setting
            pythons[MOTET_FIND_PYTHONS_MAX]; /**< environments to look into */
    const char *python_path;  /**< what PYTHONPATH says: wheels lie in its folders    */
    const char *path;         /**< what PATH says                                     */
    const char *library_path; /**< what LD_LIBRARY_PATH says                          */
    const char *selects; /**< variable that chooses a root, for sentences; or NULL    */
    bool by_name; /**< ask the linker although the library does not allow it          */
    motet_find_loader *load; /**< or NULL: the finder opens them itself */
    void *load_arg;
} motet_find_request;

/** What an environment variable says, NULL if it is not set: the caller reads it. */
typedef const char *motet_find_lookup(const char *variable, void *arg);

/**
 * Fill @p request for @p library as @p client (or NULL) looks for it: overrides, the
 * library's own first, roots, environments and paths. Symbols are not asked for. What
 * @p lookup returns must live as long as the request.
 */
void motet_find_ask(motet_find_request *request, const motet_find_library *library,
        const motet_find_client *client, motet_find_lookup *lookup, void *arg);

/** Why a candidate is one. */
typedef enum motet_find_origin {
    MOTET_FIND_MAPPED,     /**< this process has it mapped      */
    MOTET_FIND_OVERRIDE,   /**< the override names it           */
    MOTET_FIND_CONFIGURED, /**< in the configured root          */
    MOTET_FIND_INSTALLED,  /**< in an install of this machine   */
    MOTET_FIND_LINKER,     /**< the linker's own search         */
    MOTET_FIND_PYTHON,     /**< in a Python environment         */
    MOTET_FIND_ELSEWHERE,  /**< in another folder that may hold it */
} motet_find_origin;

typedef struct motet_find_candidate {
    char path[MOTET_FIND_PATH_MAX]; /**< or a bare SONAME, from LINKER */
    motet_find_origin origin;
    motet_find_verdict verdict;
    char detail
            [MOTET_FIND_DETAIL_MAX]; /**< the reason; "" if the verdict says it all */
} motet_find_candidate;

/** How a search ended. */
typedef enum motet_find_outcome {
    MOTET_FIND_FOUND,
    MOTET_FIND_NONE, /**< there is none: a value, not a failure of anything          */
    MOTET_FIND_REFUSED, /**< the one that decides cannot be used                       */
    MOTET_FIND_AMBIGUOUS, /**< several installs and nothing that selects one             */
    MOTET_FIND_TWO, /**< two different copies are mapped into this process         */
} motet_find_outcome;

/** The answer: plain data without pointers, except @c handle. About 75 KiB. */
typedef struct motet_find_report {
    motet_find_outcome outcome;
    void *handle; /**< FOUND: for dlsym(), the caller's, to dlclose(); else NULL */
    motet_find_origin origin; /**< FOUND: why this one */
    char path
            [MOTET_FIND_PATH_MAX]; /**< FOUND: the file as the linker knows it; else "" */
    /** In words, lower case, no full stop; FOUND: the path and why; else what and the way out. */
    char sentence[MOTET_FIND_SENTENCE_MAX];
    size_t num_candidates; /**< listed, in the order in which they were looked at */
    size_t num_more;       /**< that did not fit in the list */
    motet_find_candidate candidates[MOTET_FIND_CANDIDATES_MAX];
    char root[MOTET_FIND_PATH_MAX]; /**< the folder that decided; "" if none did */
    size_t num_ambiguous;           /**< AMBIGUOUS: roots that could be meant */
    char ambiguous[MOTET_FIND_AMBIGUOUS_MAX][MOTET_FIND_PATH_MAX];
} motet_find_report;

/**
 * Look for @p request's library and open it (RTLD_NOW, RTLD_LOCAL). Safe from any thread.
 * Runs the constructors of what it opens; one that crashes takes the process with it.
 * @return whether it was found; @p report is filled in either case.
 */
bool motet_find_open(const motet_find_request *request, motet_find_report *report);

/** "mapped", "override", … never NULL. */
const char *motet_find_origin_name(motet_find_origin origin);

/** "taken", "absent", … never NULL. */
const char *motet_find_verdict_name(motet_find_verdict verdict);

/**
 * @p report as text: the sentence, then a line for each candidate ("  PATH (origin):
 * verdict: detail"). Always terminated unless @p bytes is 0.
 * @return the bytes that the whole text takes, without the NUL, as snprintf() does.
 */
size_t motet_find_text(const motet_find_report *report, char *buf, size_t bytes);

/**
 * "2.27.7" of 22707, an ncclGetVersion(): from 2.9 on major, minor and patch are worth
 * 10000, 100 and 1, before that 1000, 100 and 1 (2708 is 2.7.8). Returns @p buf.
 */
const char *motet_find_version(int code, char *buf, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
