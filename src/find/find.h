/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which copy of a library is used, from where, why, and what dlopen said of the others.
 *
 * src/find includes nothing but libc and reads no environment variable: another program
 * can compile its two C files in. C17, Linux with glibc, _GNU_SOURCE. In this order:
 *
 * 1. A copy that this process has mapped is the one used, whatever its folder and
 *    SONAME, also if it was opened RTLD_LOCAL. Two different files mapped: refused.
 * 2. An override (a variable that holds a path) is authoritative: it is used or nothing.
 * 3. So is a configured root (ROCM_PATH …), the first of the request that is set.
 * 4. Else the installs of this machine: an unversioned root (/opt/rocm) selects; without
 *    one the only versioned root (/opt/rocm-7.1.0) that holds the library. Several: refused,
 *    as a guess could mix two installs. What the selected one answers is final.
 * 5. Only if no install holds it, and the library allows that: the linker's own search.
 *
 * A file is looked at (readable, ELF class, machine) before it is opened, and whoever was
 * looked at stands in the report with a reason.
 */
#ifndef MOTET_FIND_FIND_H
#define MOTET_FIND_FIND_H

#include <stdbool.h>
#include <stddef.h>

/** Longest path that is looked at, bytes with the NUL. */
#define MOTET_FIND_PATH_MAX 1024
/** Longest reason of a candidate and longest sentence, bytes with the NUL. */
#define MOTET_FIND_DETAIL_MAX   320
#define MOTET_FIND_SENTENCE_MAX 1024
/** Candidates that a report lists; further ones are counted only, and still tried. */
#define MOTET_FIND_CANDIDATES_MAX 48
/** Roots that a request can configure. */
#define MOTET_FIND_SETTINGS_MAX 4
/** Roots and folders of one kind that are looked at. */
#define MOTET_FIND_ROOTS_MAX 64

/** Where one vendor's installs are. */
typedef struct motet_find_install {
    const char *selector;  /**< "/opt/rocm": with its core and core-*; it selects */
    const char *versioned; /**< its siblings: "/opt/rocm-*"                       */
    const char *variable;  /**< what a user sets to choose one: "ROCM_PATH"       */
} motet_find_install;

/** A library that can be looked for. Lists end with NULL, install lists with {NULL}. */
typedef struct motet_find_library {
    const char *what; /**< for sentences: "AMD's HIP runtime"                 */
    const char *const
            *stems; /**< a mapped file of this name, with or without .N, is a copy */
    const char *const *names; /**< file names and SONAMEs, most wanted first          */
    const char *const *folders; /**< of a root; a last part '*' is each of one */
    const motet_find_install
            *installs; /**< in order                                  */
    bool by_name; /**< the linker's own search may be asked, at the end               */
    const char *
            hint; /**< what to do if there is none; no full stop                      */
} motet_find_library;

/**
 * The HIP runtime: libamdhip64.so.7, .6, .5 of ROCm, libgalaxyhip.so.5 of Hygon's DTK.
 * Its roots are configured by DTK_ROOT, ROCM_PATH and HIP_PATH, in this order.
 */
extern const motet_find_library motet_find_hip;

/** A variable and what it says. Unset if @c value is NULL or "". Both stay the caller's. */
typedef struct motet_find_setting {
    const char *variable; /**< "ROCM_PATH", for sentences and the report */
    const char *value;
} motet_find_setting;

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
} motet_find_request;

/** Why a candidate is one. */
typedef enum motet_find_origin {
    MOTET_FIND_MAPPED,     /**< this process has it mapped      */
    MOTET_FIND_OVERRIDE,   /**< the override names it           */
    MOTET_FIND_CONFIGURED, /**< in the configured root          */
    MOTET_FIND_INSTALLED,  /**< in an install of this machine   */
    MOTET_FIND_LINKER,     /**< the linker's own search         */
} motet_find_origin;

/** What became of a candidate. */
typedef enum motet_find_verdict {
    MOTET_FIND_TAKEN,      /**< it is the one                                   */
    MOTET_FIND_ABSENT,     /**< there is no such file                           */
    MOTET_FIND_UNREADABLE, /**< not a file, or not readable; with errno and mode */
    MOTET_FIND_WRONG_FILE, /**< no shared object, or of another class or machine */
    MOTET_FIND_NOT_LOADED, /**< what dlopen said                                */
    MOTET_FIND_LACKS,      /**< lacks a symbol that was asked for; which        */
    MOTET_FIND_NOT_TRIED,  /**< there, but another one decides                  */
} motet_find_verdict;

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

/** The answer: plain data without pointers, except @c handle. About 70 KiB. */
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

#endif
