/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The doctor: readers turn text into facts, rules turn facts into findings, the report
 * prints them. Whatever is looked at is text: a live machine is first collected into the
 * same captures that people paste (collect.h), so both are read by the same readers.
 *
 * A struct doctor owns everything that a judgement needs, from one arena; nothing is
 * freed before doctor_free(). Not for use by several threads. A program that runs out of
 * memory while it holds text of others ends with a sentence: there is nothing to save.
 */
#ifndef MOTET_DOCTOR_H
#define MOTET_DOCTOR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/** Longest line that is kept, bytes; the rest of a longer one is dropped (DR_CUT). */
#define DR_LINE_MAX 16384
/** Findings of one code, and lines quoted by one finding: of more it is only said that
 *  there are more. */
#define DR_FINDINGS_MAX 64
#define DR_QUOTED_MAX   256
/** No line, no command, no machine. */
#define DR_NONE UINT32_MAX

/* ---- codes ---- */

enum dr_severity { DR_ERROR, DR_WARN, DR_UNKNOWN, DR_INFO, DR_OK };

struct doctor;

/** The codes, in the order of the catalogue: rows of codes_*.def. */
enum dr_code {
#define DR_ROW(name, ...) DR_##name,
#include "codes.def"
#undef DR_ROW
    DR_NUM_CODES
};

/** What is known of a code; the table is codes.c. Lists end with NULL. */
struct dr_code_info {
    const char *name; /* "ATOMICS_OK" */
    enum dr_severity severity;
    void (*rule)(struct doctor *d); /* finds it, and maybe its siblings       */
    const char *means;              /* one sentence                           */
    const char *when;               /* what must be true                      */
    const char *const *fix;         /* what to do, unless the rule says better */
    const char *const *will_not_help;
    const char *const *not_this; /* what it is confused with */
    const char *const *sources;  /* where the rule is from   */
};

extern const struct dr_code_info dr_codes[DR_NUM_CODES];

/** "error", … */
const char *dr_severity_name(enum dr_severity severity);
/** The code of that name, or DR_NUM_CODES. */
enum dr_code dr_code_find(const char *name);

/* ---- text ---- */

enum dr_line_flag {
    DR_COMMAND = 1, /* a prompt and what was typed                      */
    DR_REMARK = 2,  /* a person's words: "# hangs here"                 */
    DR_CUT = 4,     /* its end is missing                               */
};

struct dr_line {
    const char *text; /* without colour codes, CR and control bytes; NUL at the end  */
    uint32_t length;
    uint32_t source;  /* index into doctor.sources                                   */
    uint32_t number;  /* in its file, from 1                                         */
    uint32_t command; /* the line whose output this is, or DR_NONE                   */
    uint32_t machine; /* index into doctor.machines                                  */
    unsigned flags;   /* enum dr_line_flag                                           */
};

struct dr_source {
    const char *name;      /* as it is shown: "dmesg.txt", "boot.tar:host/dmesg" */
    uint32_t first, count; /* its lines                                          */
    bool known;            /* some reader made something of it                   */
    bool binary;           /* no text                                            */
};

/** A machine that the text speaks of. Index 0 is always there. */
struct dr_machine {
    const char *name; /* from a prompt or a file's prefix; "" if nothing names it */
    bool is_guest_file, is_host_file; /* by the prefixes guest- and host-          */
};

/* ---- findings ---- */

struct dr_list { /* lines, or words */
    uint32_t *lines;
    const char **words;
    size_t count, room;
};

struct dr_finding {
    enum dr_code code;
    const char *subject; /* what is at fault: a PCI address, "rank 3", a file … or "" */
    const char *summary; /* one sentence; the code's own if the rule gave none        */
    struct dr_list because;      /* lines                                             */
    struct dr_list consequences; /* lines that follow from it                         */
    struct dr_list fix;          /* words; the code's own if empty                    */
    struct dr_list will_not_help; /* words, besides the code's own                    */
    bool dropped; /* overruled by another one                          */
};

struct dr_way_out {
    const char *what, *cost, *verify;
};

struct dr_unread {
    const char *source, *why;
};

/** What the user says of a model, for the bytes of a token step; 0: not said. */
struct dr_model {
    uint64_t hidden, layers, batch, dtype_bytes;
};

struct doctor {
    struct dr_arena *arena;
    struct dr_source *sources;
    struct dr_line *lines;
    struct dr_machine *machines;
    struct dr_finding *findings;
    struct dr_way_out *ways_out;
    struct dr_unread *unread;
    uint32_t num_sources, num_lines, num_machines, num_findings, num_ways_out,
            num_unread;
    uint32_t room_sources, room_lines, room_machines, room_findings, room_ways_out,
            room_unread;
    uint32_t
            findings_of[DR_NUM_CODES]; /* kept of each code                           */
    bool more_of[DR_NUM_CODES];        /* there were more than DR_FINDINGS_MAX        */
    struct dr_finding not_kept;        /* the last one of those                       */
    uint64_t text_bytes;               /* of all lines                                */
    uint32_t *troubles;                /* lines where something fails or stands still */
    uint32_t num_troubles, room_troubles;
    struct dr_model model;
    bool live; /* this machine itself was looked at */

    /* facts, one owner each; see facts.h */
    struct dr_pci *pci;           /* devices, bridges, KFD nodes, IOMMU groups, slots */
    struct dr_kernel *kernel;     /* kernel log, command line, configuration          */
    struct dr_vm *vm;             /* definitions of virtual machines                  */
    struct dr_job *job;           /* ranks, hosts, transports, interfaces             */
    struct dr_watch *watch;       /* watchdogs, RAS, stacks, loops                    */
    struct dr_measure *measure;   /* tables of rates, matrices, topology of links     */
    struct dr_access *access;     /* device nodes, shared memory, launches refused    */
    struct dr_packages *packages; /* files of libraries, packages, symbols            */
};

struct doctor *doctor_new(void);
void doctor_free(struct doctor *d);

/**
 * Add a file's text: recognised by content later, whatever its name. @p bytes may hold
 * anything; what is kept of a very large text is said in `unread`. Copies what it keeps.
 */
void doctor_add(struct doctor *d, const char *name, const char *bytes, size_t count);
/** The same from an open file, in bounded memory whatever its size. False: not read. */
bool doctor_add_stream(struct doctor *d, const char *name, FILE *in);
/** Say that @p source was not read, and why. */
void doctor_unread(struct doctor *d, const char *source, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

/** Read everything that was added, apply the rules, put the findings in order. */
void doctor_judge(struct doctor *d);

/** 1 if any error or warn; else 2 if any unknown or nothing was readable; else 0. */
int doctor_status(const struct doctor *d);

/* ---- for readers and rules ---- */

/** Memory of the doctor's, zeroed. */
void *dr_alloc(struct doctor *d, size_t bytes);
char *dr_printf(struct doctor *d, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));
char *dr_copy(struct doctor *d, const char *text, size_t length);
void *dr_grow(struct doctor *d, void *array, uint32_t count, uint32_t *room,
        size_t size);

/**
 * Append to an array of the doctor's: DR_PUSH(d, array, num, room) is a pointer to a new
 * zeroed element. Pointers to older elements are void after it: keep indices.
 */
#define DR_PUSH(d, array, num, room)                                    \
    ((array) = dr_grow((d), (array), (num), &(room), sizeof(*(array))), \
            &(array)[(num)++])

/** Make something of a line: its source counts as readable. */
void dr_known(struct doctor *d, uint32_t line);
/** At @p line something fails or stands still: without an error or warn that becomes
 *  UNDETERMINED. */
void dr_trouble(struct doctor *d, uint32_t line);
/** What was typed before the output that @p line is part of; "" if nothing was. */
const char *dr_command(const struct doctor *d, uint32_t line);

/** A finding; the one that is there already if code and subject are the same. The
 *  pointer is good until the next call. */
struct dr_finding *dr_found(struct doctor *d, enum dr_code code, const char *subject,
        ...) __attribute__((format(printf, 3, 4)));
/** Its sentence: what is so, of whom. Lower case is not required; ends with a full stop. */
void dr_say(struct doctor *d, struct dr_finding *f, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));
void dr_because(struct doctor *d, struct dr_finding *f, uint32_t line);
void dr_consequence(struct doctor *d, struct dr_finding *f, uint32_t line);
void dr_fix(struct doctor *d, struct dr_finding *f, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));
void dr_will_not_help(struct doctor *d, struct dr_finding *f, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));
void dr_way_out(struct doctor *d, const char *what, const char *cost,
        const char *verify);
/** The first finding of @p code that is not dropped, or NULL. */
struct dr_finding *dr_finding_of(struct doctor *d, enum dr_code code);
/** Whether @p code stands for @p subject (any subject if NULL). */
bool dr_has_finding(struct doctor *d, enum dr_code code, const char *subject);

#endif
