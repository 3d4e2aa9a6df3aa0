/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The images for GPUs in a file of any kind: told by content, never by name. A library or
 * program (.hip_fatbin, wrappers, .rocm_kpack_ref), a bundle of clang's, a compressed one
 * (CCOB), a kpack archive, an archive of objects, a bare code object. Each image is handed
 * to a visitor once; at any time one image at most lies in memory unpacked.
 *
 * Files may be hostile: every size is checked against what is there, and what a file costs
 * (images, bytes unpacked) is bounded by IMAGES_* below. Layouts: amd-hosts.md §9.
 */
#ifndef MOTET_CODEOBJ_IMAGES_H
#define MOTET_CODEOBJ_IMAGES_H

#include "codeobj.h"
#include "sha256.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Images of one file; further ones are left out, which is said. */
#define IMAGES_MAX 65536u
/** Largest image and largest sum of one file's, bytes unpacked. */
#define IMAGES_ONE_MAX   (UINT64_C(4) << 30)
#define IMAGES_TOTAL_MAX (UINT64_C(64) << 30)

/** What a kernel that declares a hostcall tells of itself by its object's symbols. */
enum image_class {
    IMAGE_NO_HOSTCALL,  /* no kernel declares one                                   */
    IMAGE_REAL,         /* functions that make one are in the object                */
    IMAGE_CONSERVATIVE, /* none is: the compiler did not know what the kernel calls */
    IMAGE_STRIPPED      /* its symbols were removed: cannot be told                 */
};

/** An image whose bytes are there, though they may not be one that can be read. Valid while
 *  the visitor runs. */
struct image {
    const char *container;           /* how it lies there, outermost first:
                                        "elf/ccob v3 zstd/bundle", "code object"    */
    uint64_t offset;                 /* of what holds it, in the file or in the kpack
                                        archive that the file refers to             */
    uint64_t holder;                 /* where its bundle begins, or it itself: a GPU
                                        loads one image of those with one holder    */
    uint64_t bytes;                  /* unpacked                                    */
    const char *member;              /* "librccl.so#0" of a kpack archive, "a.o" of an
                                        archive; "" elsewhere                       */
    char target[CODEOBJ_TARGET_MAX]; /* "gfx90a:xnack-", by the object itself, else by
                                        its entry; "" if neither says               */
    const struct codeobj *object;    /* NULL: not read                              */
    const char *why;                 /* then why not, with the offset               */
    enum image_class class;
    char sha256[SHA256_TEXT]; /* of the unpacked bytes; "" if not had */
};

/** False ends the walk. */
typedef bool image_visitor(const struct image *image, void *arg);

/** What a walk came to. */
struct images_result {
    /* Of the whole file: "elf", "bundle", "ccob", "kpack", "archive", "code object" or
     * "spirv"; NULL: nothing for GPUs. */
    const char *container;
    uint64_t images; /* that were handed over  */
    uint64_t unread; /* of those, without object */
    /* What keeps the file, or its rest, from being read, with the offset; "" if nothing
     * does. */
    char why[CODEOBJ_WHY_MAX];
};

/**
 * Hand each image in the file @p path to @p visit.
 * @return 0; or −1 if the file cannot be read at all, or became shorter meanwhile, with the
 *         sentence in @p result
 */
int images_open(const char *path, image_visitor *visit, void *arg,
        struct images_result *result);

/** The same of a file in memory. @p path is where a reference to a kpack file starts from;
 *  NULL: such are not followed. */
void images_read(const void *data, size_t bytes, const char *path, image_visitor *visit,
        void *arg, struct images_result *result);

/** "real", "conservative", "unknown", and "none"; never NULL. */
const char *image_class_name(enum image_class class);

/** A GPU as it asks for code. */
struct image_gpu {
    char processor[CODEOBJ_TARGET_MAX];  /* "gfx90a" */
    enum codeobj_setting sramecc, xnack; /* NOT_THERE if the GPU has no such setting or
                                            it is not known: both fit */
};

/** Read "gfx90a:sramecc+:xnack-". False if it is no target of a GPU. */
bool image_gpu_of(const char *text, struct image_gpu *out);

/** The same of code, which may be for a family, "gfx11-generic". */
bool image_target_of(const char *text, struct codeobj_target *out);

/**
 * How well code for @p target runs on @p gpu: 0 not at all; more is what a loader prefers:
 * its processor with features named over any, and that over a generic one of its family.
 */
int image_fits(const struct codeobj_target *target, const struct image_gpu *gpu);

/** A GPU some settings of which are not known may be any of so many. */
#define IMAGE_GPU_VARIANTS 4u
/** Number @p i of them: each setting that is not known, off or on. */
struct image_gpu image_gpu_variant(const struct image_gpu *gpu, unsigned i);

#endif
