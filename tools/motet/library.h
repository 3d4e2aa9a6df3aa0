/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that speaks the NCCL ABI, as smoke and bench use it: the copy that is
 * linked into the command, or any file, opened with dlopen. Two can be open at once
 * (RTLD_LOCAL; each calls its own functions).
 */
#ifndef MOTET_TOOLS_LIBRARY_H
#define MOTET_TOOLS_LIBRARY_H

#include "sha256.h"

#include "motet.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * F(field, function, required). A library without a required one is refused; without
 * another the feature that needs it is.
 */
/* clang-format off */
#define LIBRARY_FUNCTIONS(F)                                                 \
    F(get_version,          ncclGetVersion,           true)                  \
    F(get_unique_id,        ncclGetUniqueId,          true)                  \
    F(get_error_string,     ncclGetErrorString,       true)                  \
    F(get_last_error,       ncclGetLastError,         false)                 \
    F(comm_init_rank,       ncclCommInitRank,         true)                  \
    F(comm_init_config,     ncclCommInitRankConfig,   false)                 \
    F(comm_init_all,        ncclCommInitAll,          false)                 \
    F(comm_destroy,         ncclCommDestroy,          true)                  \
    F(comm_abort,           ncclCommAbort,            true)                  \
    F(comm_async_error,     ncclCommGetAsyncError,    false)                 \
    F(group_start,          ncclGroupStart,           true)                  \
    F(group_end,            ncclGroupEnd,             true)                  \
    F(mem_alloc,            ncclMemAlloc,             false)                 \
    F(mem_free,             ncclMemFree,              false)                 \
    F(comm_register,        ncclCommRegister,         false)                 \
    F(comm_deregister,      ncclCommDeregister,       false)                 \
    F(window_register,      ncclCommWindowRegister,   false)                 \
    F(window_deregister,    ncclCommWindowDeregister, false)                 \
    F(redop_create_premul,  ncclRedOpCreatePreMulSum, false)                 \
    F(redop_destroy,        ncclRedOpDestroy,         false)                 \
    F(all_reduce,           ncclAllReduce,            true)                  \
    F(reduce,               ncclReduce,               true)                  \
    F(broadcast,            ncclBroadcast,            true)                  \
    F(all_gather,           ncclAllGather,            true)                  \
    F(reduce_scatter,       ncclReduceScatter,        true)                  \
    F(send,                 ncclSend,                 true)                  \
    F(recv,                 ncclRecv,                 true)                  \
    F(all_to_all,           ncclAlltoAll,             false)                 \
    F(all_to_all_v,         ncclAlltoAllv,            false)                 \
    F(gather,               ncclGather,               false)                 \
    F(scatter,              ncclScatter,              false)                 \
    F(stream_create,        motet_stream_create,      false)                 \
    F(stream_destroy,       motet_stream_destroy,     false)                 \
    F(stream_synchronize,   motet_stream_synchronize, false)                 \
    F(explain,              motet_explain,            false)                 \
    F(comm_query,           motet_comm_query,         false)
/* clang-format on */

/* What stands before `handle` can be handed to another process. */
struct library {
    char path[PATH_MAX];      /* the file, or of this command */
    char sha256[SHA256_TEXT]; /* of that file; "unreadable" if it cannot be read, ""
                                 after library_load() */
    int version;              /* ncclGetVersion() */
    bool linked;              /* the copy inside this command */
    bool motet;               /* built from motet: its ranks take host memory */
    bool streams;             /* has motet's host streams */
    void *handle;
#define LIBRARY_FIELD(field, function, required) __typeof__(&function) field;
    LIBRARY_FUNCTIONS(LIBRARY_FIELD)
#undef LIBRARY_FIELD
};

/**
 * Fill @p lib from the functions linked in (@p name NULL), or from the file or
 * library name @p name. Returns 0, or −1 with a sentence in @p why.
 */
int library_open(struct library *lib, const char *name, char *why, size_t why_bytes);

/** Same, without reading the whole file for its hash: for all ranks but the one that says
 * it. */
int library_load(struct library *lib, const char *name, char *why, size_t why_bytes);

/**
 * The file that @p name means: "nccl" and "rccl" are the vendor's library, where `motet
 * lib` finds it, never a build of motet. Any other name is itself. Loads candidates in
 * processes of their own.
 * @return false with a sentence in @p why; true with the name in @p path, else.
 */
bool library_find(const char *name, char path[PATH_MAX], char *why, size_t why_bytes);

/** The folder that this command lies in; false if that is not known. */
bool library_own_folder(char buf[PATH_MAX]);

/**
 * A file of motet's own, "librccl.so.1", where an installation or the build tree has it,
 * seen from the command. False if there is none, or the command's own place is unknown.
 */
bool library_beside(const char *name, char path[PATH_MAX]);

/**
 * The absolute path of a file, by the name that it was given: a link's own name says more
 * than its target's. False, with errno, if there is no such file.
 */
bool library_absolute(const char *given, char path[PATH_MAX]);

/** Most images that are listed; a library of ours carries two dozen. */
#define LIBRARY_IMAGES_MAX 128

/** Code for a kind of GPU in a library. */
struct library_image {
    char name[48];             /* of the build's file, "motet-gfx1100.co" */
    char vendor[16];           /* "nvidia", "amd"                         */
    char target[48];           /* "ptx", "sm_90", "gfx1100"               */
    uint64_t bytes, raw_bytes; /* in the library, and unpacked  */
};

/**
 * The images of the library in the file @p path, which is not loaded.
 * @return 0, or −1 with errno if it cannot be read. A library that carries none, or is not
 *         motet's, has 0.
 */
int library_images(const char *path, struct library_image images[LIBRARY_IMAGES_MAX],
        size_t *num_out);

/** Same, of a file in memory. */
size_t library_images_in(const void *data, size_t bytes,
        struct library_image images[LIBRARY_IMAGES_MAX]);

/** Whether the file has what nvcc and hipcc leave in a library with code for GPUs. */
bool library_has_gpu_code(const char *path);

/** A file that is not empty, to read, for munmap(); NULL with errno. */
void *library_map(const char *path, size_t *bytes_out);

/**
 * Whether @p name, of library_find(), may launch work on GPUs although its ranks are on
 * CPUs: it has code for GPUs, and no motet that would heed MOTET_DEVICE. What only the
 * loader finds may.
 */
bool library_may_launch(const char *name);

/** Whether the file at @p path was built from motet. */
bool library_is_motet(const char *path);

/** Close what library_open() opened. The process may not use its communicators any more. */
void library_close(struct library *lib);

/** The library's last sentence, or the text of @p result if it has none. */
const char *library_error(const struct library *lib, ncclResult_t result);

#endif
