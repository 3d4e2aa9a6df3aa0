/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AMD code objects: what a GPU's ELF file says of itself. Which GPU it is for, and for
 * each kernel its arguments, the hidden ones too, and what it needs to run. Versions 2 to
 * 6 of the format; the metadata of version 2 is YAML, msgpack afterwards.
 *
 * Needs libelf and msgpack-c at build time; without one codeobj_read() says so. Input may
 * be hostile: every count, offset and depth is checked before it is believed.
 * Layouts: LLVM's AMDGPUUsage, amd-hosts.md §9.5.
 */
#ifndef MOTET_CODEOBJ_H
#define MOTET_CODEOBJ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Longest target, "gfx90a:sramecc+:xnack-", bytes with the NUL. */
#define CODEOBJ_TARGET_MAX 64
/** Longest kernel name, bytes with the NUL; a file with a longer one is refused. */
#define CODEOBJ_NAME_MAX 16384
/** Most kernels in an object and arguments of one; a file with more is refused. */
#define CODEOBJ_KERNELS_MAX 65536
#define CODEOBJ_ARGS_MAX    4096
/** Longest sentence about a file that cannot be read, bytes with the NUL. */
#define CODEOBJ_WHY_MAX 256

/*
 * Kinds of arguments: K(NAME, "value_kind", "short name"). Those of one thing for three
 * dimensions share a short name.
 */
/* clang-format off */
#define CODEOBJ_KINDS(K)                                                              \
    K(BY_VALUE,               "by_value",                     "value")                \
    K(GLOBAL_BUFFER,          "global_buffer",                "buffer")               \
    K(DYNAMIC_SHARED_POINTER, "dynamic_shared_pointer",       "LDS pointer")          \
    K(SAMPLER,                "sampler",                      "sampler")              \
    K(IMAGE,                  "image",                        "image")                \
    K(PIPE,                   "pipe",                         "pipe")                 \
    K(QUEUE,                  "queue",                        "queue")                \
    K(BLOCK_COUNT_X,          "hidden_block_count_x",         "block_count")          \
    K(BLOCK_COUNT_Y,          "hidden_block_count_y",         "block_count")          \
    K(BLOCK_COUNT_Z,          "hidden_block_count_z",         "block_count")          \
    K(GROUP_SIZE_X,           "hidden_group_size_x",          "group_size")           \
    K(GROUP_SIZE_Y,           "hidden_group_size_y",          "group_size")           \
    K(GROUP_SIZE_Z,           "hidden_group_size_z",          "group_size")           \
    K(REMAINDER_X,            "hidden_remainder_x",           "remainder")            \
    K(REMAINDER_Y,            "hidden_remainder_y",           "remainder")            \
    K(REMAINDER_Z,            "hidden_remainder_z",           "remainder")            \
    K(GLOBAL_OFFSET_X,        "hidden_global_offset_x",       "global_offset")        \
    K(GLOBAL_OFFSET_Y,        "hidden_global_offset_y",       "global_offset")        \
    K(GLOBAL_OFFSET_Z,        "hidden_global_offset_z",       "global_offset")        \
    K(GRID_DIMS,              "hidden_grid_dims",             "grid_dims")            \
    K(PRINTF_BUFFER,          "hidden_printf_buffer",         "printf")               \
    K(HOSTCALL_BUFFER,        "hidden_hostcall_buffer",       "hostcall")             \
    K(MULTIGRID_SYNC,         "hidden_multigrid_sync_arg",    "multigrid_sync")       \
    K(HEAP_V1,                "hidden_heap_v1",               "heap")                 \
    K(DEFAULT_QUEUE,          "hidden_default_queue",         "default_queue")        \
    K(COMPLETION_ACTION,      "hidden_completion_action",     "completion_action")    \
    K(DYNAMIC_LDS_SIZE,       "hidden_dynamic_lds_size",      "dynamic_lds_size")     \
    K(PRIVATE_BASE,           "hidden_private_base",          "private_base")         \
    K(SHARED_BASE,            "hidden_shared_base",           "shared_base")          \
    K(QUEUE_PTR,              "hidden_queue_ptr",             "queue_ptr")            \
    K(NONE,                   "hidden_none",                  "none")                 \
    K(HIDDEN_OTHER,           "hidden_*",                     "other")                \
    K(OTHER,                  "*",                            "other")
/* clang-format on */

enum codeobj_kind {
#define CODEOBJ_KIND(name, value_kind, short_name) CODEOBJ_##name,
    CODEOBJ_KINDS(CODEOBJ_KIND)
#undef CODEOBJ_KIND
            CODEOBJ_NUM_KINDS
};

struct codeobj_arg {
    enum codeobj_kind kind;
    uint32_t offset, bytes; /* in the kernel's argument block */
};

struct codeobj_kernel {
    char *name;
    size_t num_args, num_hidden; /* hidden ones are among num_args */
    struct codeobj_arg *args;    /* in the metadata's order        */
    uint64_t kinds;              /* bit 1 << codeobj_kind for each kind among them */
    uint32_t kernarg_bytes;
    uint32_t lds_bytes;                /* static; a launch may add more        */
    uint32_t scratch_bytes;            /* private memory of a work-item, fixed */
    bool dynamic_stack;                /* and more, unknown at build time      */
    uint32_t wavefront, max_workgroup; /* work-items                */
    uint32_t sgprs, vgprs, agprs, sgpr_spills, vgpr_spills;
};

/** Of a feature that changes code: of the object, or asked of one. */
enum codeobj_setting {
    CODEOBJ_NOT_THERE, /* the target has no such feature   */
    CODEOBJ_ANY,       /* the code runs with either setting */
    CODEOBJ_OFF,
    CODEOBJ_ON
};

struct codeobj_target {
    char text[CODEOBJ_TARGET_MAX]; /* as a target id: "gfx90a:sramecc+:xnack-" */
    char processor
            [CODEOBJ_TARGET_MAX]; /* "gfx90a", "gfx11-generic"; "mach 0x99" if unknown */
    unsigned mach;                /* low byte of e_flags                      */
    unsigned generic_version;     /* of a generic target, from 1; 0: none     */
    bool generic;                 /* for a family of GPUs                     */
    enum codeobj_setting sramecc, xnack;
};

struct codeobj {
    int version;                       /* of the format, 2 to 6 */
    struct codeobj_target target;      /* by e_flags */
    char declared[CODEOBJ_TARGET_MAX]; /* the metadata's target id; "" if it has none */
    bool has_symbols;                  /* of its own functions: it is not stripped    */
    bool makes_hostcall; /* functions that make one are among all symbols */
    size_t num_kernels;
    struct codeobj_kernel *kernels; /* in the metadata's order */
};

/** Whether @p data begins as an AMD code object does. Looks at the ELF header only. */
bool codeobj_is(const void *data, size_t bytes);

/**
 * Read a code object in memory, which is needed no longer afterwards.
 * @return 0 and *@p out, for codeobj_clear(); or −1 with a sentence in @p why, and *@p out
 *         is empty.
 */
int codeobj_read(const void *data, size_t bytes, struct codeobj *out,
        char why[CODEOBJ_WHY_MAX]);

/** Read the file @p path, mapped; as codeobj_read(). */
int codeobj_open(const char *path, struct codeobj *out, char why[CODEOBJ_WHY_MAX]);

/** Release what codeobj_read() made; an empty one is fine. */
void codeobj_clear(struct codeobj *object);

/** The target that e_flags of an object of format @p version mean. */
void codeobj_target_of(uint32_t e_flags, int version, struct codeobj_target *out);

/** "hidden_hostcall_buffer" and "hostcall"; never NULL. */
const char *codeobj_kind_name(enum codeobj_kind kind);
const char *codeobj_kind_short(enum codeobj_kind kind);

/** Whether the runtime passes it, not the caller. */
bool codeobj_kind_hidden(enum codeobj_kind kind);

/** Whether an argument of @p kernel is of @p kind, and how many kernels have such a one. */
bool codeobj_has(const struct codeobj_kernel *kernel, enum codeobj_kind kind);
size_t codeobj_count(const struct codeobj *object, enum codeobj_kind kind);

/** Names of the libraries that read objects, "libelf 0.188" …; NULL past the last. */
const char *codeobj_library(size_t i);

#endif
