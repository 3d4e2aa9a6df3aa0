/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the buffers of smoke's and bench's ranks lie, and how streams and time work
 * there: one table of functions for the CPU and one for the GPUs of each vendor. Everything
 * else is common to all.
 *
 * Functions that can fail return NULL, or a sentence that says what went wrong and is
 * valid until the calling thread's next call. They work on the device that the thread
 * has bound; every rank's process loads the driver for itself, the command's first
 * process never does, so that it can fork.
 */
#ifndef MOTET_TOOLS_BACKEND_H
#define MOTET_TOOLS_BACKEND_H

#include "library.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Devices that are told apart; further ones exist but are not named. */
#define BACKEND_DEVICES_MAX 16

struct backend_device {
    char name[96];     /* "NVIDIA H200"               */
    char identity[64]; /* "GPU-…", or its place: what it is, wherever numbered */
    char target[32];   /* "sm_90", "gfx1100": what code is built for; "" unknown */
    unsigned domain, bus, slot; /* its place on PCI; 0 unknown */
};

/** What the machine offers, as a process that has ended found it. */
struct backend_facts {
    int devices;          /* 0: ranks need none */
    int driver_version;   /* the vendor's number, 13000; 0 unknown */
    char driver_text[64]; /* what it means: "CUDA 13.0" */
    char driver_path[256];
    struct backend_device device[BACKEND_DEVICES_MAX];
    char why[1024]; /* why there is no device */
};

struct backend {
    const char *name;      /* as --device spells it */
    const char *vendor;    /* "NVIDIA"; NULL for CPUs */
    const char *allocator; /* what alloc() calls: "cuMemAlloc" */
    /**
     * Buffers are not host memory: they are filled and read through a mirror. Calls
     * return before they have run, and a stream is always needed.
     */
    bool mirrored;
    /** Choose the device that this thread works on; its number counts from 0. */
    const char *(*bind)(int device);
    const char *(*describe)(struct backend_facts *facts_out);

    const char *(*alloc)(void **out, size_t bytes);
    void (*release)(void *memory);
    /** Both are done when they return. */
    const char *(*to_host)(void *host, const void *memory, size_t bytes, void *stream);
    const char *(
            *from_host)(void *memory, const void *host, size_t bytes, void *stream);

    /** *out stays NULL if @p lib's calls return with their results. */
    const char *(*stream_create)(const struct library *lib, void **out);
    void (*stream_destroy)(const struct library *lib, void *stream);
    const char *(*stream_wait)(const struct library *lib, void *stream);
    /** What the runtime remembers of this thread's earlier calls, and forgets with this
     * one; NULL where a runtime remembers nothing. */
    const char *(*last_error)(void);

    /* Marks on a stream, and the time between two; NULL where there are none. */
    const char *(*mark_create)(void **out);
    void (*mark_destroy)(void *mark);
    const char *(*mark)(void *mark, void *stream);
    const char *(*elapsed)(void *from, void *to, double *us_out);

    /* Calls that are captured and replayed; NULL where that cannot be done. All captures
     * of a thread end before one is made into a graph, which uses it up. */
    const char *(*capture_begin)(void *stream);
    const char *(*capture_end)(void *stream, void **captured_out);
    const char *(*graph_create)(void *captured, void **graph_out);
    const char *(*replay)(void *graph, void *stream);
    void (*graph_destroy)(void *graph);
};

extern const struct backend backend_cpu, backend_cuda, backend_hip;

/** A backend and what it found. */
struct backend_choice {
    const struct backend *backend;
    struct backend_facts facts;
};

/**
 * Choose by @p word, what --device says (NULL: by MOTET_DEVICE), and set MOTET_DEVICE to
 * what was found, so that the ranks' library agrees. Looks for GPUs in a process of its
 * own. @p host_memory: the library takes host memory, so the ranks are on CPUs whatever
 * the machine has, and a @p word for a GPU is wrong usage.
 * @return −1: go on; otherwise an exit code, after saying why.
 */
int backend_choose(const char *command, const char *word, bool host_memory,
        struct backend_choice *out);

/** "2 ranks share 1 GPU", for a head, or "" if each rank has a device of its own. */
const char *backend_sharing(const struct backend_choice *c, int nranks, char *buf,
        size_t bytes);

/** How the devices of ranks 0 … nranks − 1 read fp8. */
enum backend_fp8 { FP8_OCP, FP8_FNUZ, FP8_APART /* some one way, some the other */ };

enum backend_fp8 backend_fp8(const struct backend_choice *c, int nranks);

/** The device of a rank, NULL on CPUs and of a device that was not named. */
const struct backend_device *backend_device_of(const struct backend_choice *c,
        int rank);

#endif
