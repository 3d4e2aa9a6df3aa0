/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of motet hostcall share: images as they are kept after reading, the GPUs
 * that may load them, and what is written of both.
 */
#ifndef MOTET_TOOLS_HOSTCALL_H
#define MOTET_TOOLS_HOSTCALL_H

#include "json.h"

#include "facts.h"
#include "images.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/** Bytes of the names of one file that are kept; further ones are counted. */
#define HOSTCALL_NAMES_BYTES (UINT64_C(64) << 20)

/** An image after it was read. */
struct hostcall_image {
    char *container, *member;
    char *why; /* it was not read; NULL: it was */
    uint64_t offset, bytes;
    uint64_t holder;               /* see struct image */
    char text[CODEOBJ_TARGET_MAX]; /* its target, "" unknown */
    struct codeobj_target target;
    int version;
    enum image_class class;
    size_t kernels, declaring; /* a hostcall, of those           */
    char **names;              /* of the declaring ones, in order */
    size_t num_names;          /* fewer than `declaring` only if there were too many */
    bool collective;           /* has kernels of RCCL's                        */
    bool classic;              /* declaring ones carry the classic collectives */
    uint32_t kinds[CODEOBJ_NUM_KINDS]; /* kernels with an argument of that kind */
    size_t dynamic_stack;              /* kernels with a stack of unknown size  */
    uint32_t scratch;                  /* most of one kernel, bytes             */
    char sha256[SHA256_TEXT];
};

struct hostcall_file {
    const char *path;
    char container[64]; /* "" if it holds nothing for GPUs */
    struct hostcall_image *images;
    size_t num, room;
    uint64_t name_bytes;
    bool unreadable;           /* none of it                    */
    char why[CODEOBJ_WHY_MAX]; /* it or its rest cannot be read */
};

/** A GPU that loads images. */
struct hostcall_gpu {
    char name[48];                /* "0000:0b:00.0"; "" of one that was only named */
    char own[CODEOBJ_TARGET_MAX]; /* its own target, "" not known                  */
    struct image_gpu asks;        /* what it loads code for, which may be another  */
    bool overridden;              /* by HSA_OVERRIDE_GFX_VERSION                   */
    const char *refused;          /* its value, if it is none; NULL: it is, or unset */
    enum dr_answer atomics;       /* whether it sends AtomicOps to host memory     */
};

struct hostcall_gpus {
    struct hostcall_gpu *list;
    size_t num, room;
};

/** What a GPU loads of a file. */
struct hostcall_load {
    bool *chosen;              /* of each image                                */
    size_t images;             /* that are loaded                              */
    size_t kernels, declaring; /* of those that were read                      */
    size_t unread;             /* of those that are loaded, not read           */
    bool classic;              /* see hostcall_image                           */
};

enum hostcall_verdict {
    HOSTCALL_NOTHING, /* it loads nothing of the file             */
    HOSTCALL_FINE,    /* nothing that it loads is refused         */
    HOSTCALL_FAILS,   /* the first classic collective is refused  */
    HOSTCALL_SOME,    /* the kernels that declare are refused     */
    HOSTCALL_OPEN     /* not known: its AtomicOps, or an image    */
};

/** Patterns of kernels that may declare a hostcall. */
struct hostcall_allow {
    char *text; /* what `pattern` points into */
    const char **pattern;
    size_t num, room;
};

/** A kernel that the gate refuses. */
struct hostcall_offender {
    char *path, *target, *kernel;
};

/** Offenders that are kept for the report; further ones are counted. */
#define HOSTCALL_OFFENDERS_MAX 4096

struct hostcall_gate {
    struct hostcall_allow allow;
    struct hostcall_offender *offenders;
    size_t num, room;
    size_t refused, allowed; /* kernels, each image's counted */
};

/* ---- hostcall_read.c ---- */

/** Read a file's images, or keep why it cannot be looked at. Clear it afterwards. */
void hostcall_read(const char *path, const char *why, struct hostcall_file *out);
void hostcall_clear(struct hostcall_file *file);

/** Called for each file: `named` itself, or found in a folder. @p why not NULL: what lies
 *  there cannot be looked at. */
typedef void hostcall_visitor(const char *path, bool named, const char *why, void *arg);

/** Visit the file @p path, or the regular files below the folder @p path, sorted; links in
 *  folders are not followed. True if it is a folder. */
bool hostcall_walk(const char *path, hostcall_visitor *visit, void *arg);

/** One more element of @p size bytes behind @p num of an array, zeroed; does not return
 *  when memory ends. */
void *hostcall_more(void *array, size_t *num, size_t *room, size_t size);
char *hostcall_copy(const char *text);

/** "motet hostcall: PATH: text" to stderr, control bytes replaced. */
void hostcall_complain(const char *path, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));

/* ---- hostcall_load.c ---- */

/** The GPUs of this machine, as HSA_OVERRIDE_GFX_VERSION changes them. */
void hostcall_machine(struct hostcall_gpus *out);
/** One GPU by its target. False if @p target is none. */
bool hostcall_named(const char *target, struct hostcall_gpus *out);
void hostcall_gpus_clear(struct hostcall_gpus *gpus);

/** What @p gpu loads of @p file; free `chosen`. */
void hostcall_choose(const struct hostcall_file *file, const struct hostcall_gpu *gpu,
        struct hostcall_load *out);
/** Forget the images that @p gpu does not load. */
void hostcall_keep(struct hostcall_file *file, const struct hostcall_gpu *gpu);

enum hostcall_verdict hostcall_judge(const struct hostcall_file *file,
        const struct hostcall_gpu *gpu, const struct hostcall_load *load);
/** "fails" … of JSON. */
const char *hostcall_verdict_name(enum hostcall_verdict verdict);
/** The verdict as a sentence. */
void hostcall_say(FILE *out, const struct hostcall_file *file,
        const struct hostcall_gpu *gpu, const struct hostcall_load *load);

/* ---- hostcall_gate.c ---- */

/** Read the file of patterns; false if it cannot be, which was said. */
bool hostcall_read_allow(const char *path, struct hostcall_allow *out);
/** Hold the kernels of a file against the gate, and complain of those that it refuses. */
void hostcall_gate(struct hostcall_gate *gate, const struct hostcall_file *file);
void hostcall_gate_clear(struct hostcall_gate *gate);

/* ---- hostcall_diff.c ---- */

/** Compare two files or folders; the exit code. @p only: only what this GPU loads, or NULL. */
int hostcall_diff(const char *a, const char *b, const struct hostcall_gpu *only,
        bool as_json);

/* ---- hostcall_write.c ---- */

/** A file's images and what the GPUs make of them, for people; @p all: every name. */
void hostcall_write(const struct hostcall_file *file, const struct hostcall_gpus *gpus,
        bool all);
void hostcall_json(struct json *j, const struct hostcall_file *file,
        const struct hostcall_gpus *gpus);
void hostcall_json_gpus(struct json *j, const struct hostcall_gpus *gpus);
/** "gate": null if there is none. */
void hostcall_json_gate(struct json *j, const struct hostcall_gate *gate, bool passed);

#endif
