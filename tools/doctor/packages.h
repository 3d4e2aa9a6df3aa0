/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of collective libraries (librccl.so*, libnccl.so* and nothing longer), the
 * packages that bring them, and what loaders and programs say of them.
 */
#ifndef MOTET_DOCTOR_PACKAGES_H
#define MOTET_DOCTOR_PACKAGES_H

#include "doctor.h"
#include "scan.h"

/** How a program came to a file, the surest last. */
enum dr_origin {
    DR_BY_NOTHING, /* it only lies there                     */
    DR_BY_LDD,     /* ldd says that the loader takes it      */
    DR_BY_LOADER,  /* LD_DEBUG                               */
    DR_BY_PRELOAD, /* LD_PRELOAD                             */
    DR_BY_MAPS,    /* a process has it mapped, or says so    */
};

/** A path of a collective library. */
struct dr_copy_of_library {
    const char *path;    /* absolute, or as it was typed */
    const char *place;   /* container or host that a command went to, "" */
    const char *version; /* that its strings name, or NULL */
    uint32_t machine;
    bool regular; /* certainly a file of its own     */
    bool link;    /* certainly a symbolic link       */
    enum dr_origin origin;
    uint32_t line, line_origin;
};

/** A loader that found no library. */
struct dr_absent {
    const char *name;  /* "librccl.so.1" */
    const char *place; /* as of a copy   */
    uint32_t line, machine;
};

/** A symbol that the library found lacks. */
struct dr_lacking {
    const char *symbol;  /* "ncclCommSplit" */
    const char *caller;  /* file that needs it, or NULL */
    const char *library; /* the library itself, if the message names it */
    const char *place;   /* as of a copy */
    uint32_t line, machine;
};

/** An installed nvidia-nccl-cuN. */
struct dr_wheel {
    unsigned cuda;
    const char *version; /* or NULL */
    const char *place;   /* where it is installed, if that is said, "" */
    uint32_t line, command, source;
};

struct dr_packages {
    struct dr_copy_of_library *copies;
    struct dr_absent *absent;
    struct dr_lacking *lacking;
    struct dr_wheel *wheels;
    uint32_t num_copies, num_absent, num_lacking, num_wheels;
    uint32_t room_copies, room_absent, room_lacking, room_wheels;
    uint32_t line_variable; /* NCCL_VERSION= or NV_LIBNCCL_PACKAGE=, or DR_NONE */
    const char *variable, *promised; /* its name, and the version in it        */
    uint32_t line_asked; /* what ncclGetVersion answered, or DR_NONE        */
    const char *asked;
    uint32_t line_no_symbols; /* a count of 0 in a program                       */
    uint32_t line_option_off; /* the build option                                */
    uint32_t line_setting;    /* an NCCL_* setting that is tried                 */
};

/** The name of a collective library in @p text: "librccl.so.1", with its path. */
bool dr_library_in(const char *text, struct dr_span *path, struct dr_span *name);

/** Whether @p c ends a path in a line. */
bool dr_ends_path(char c);

/** Whether @p text has one of @p words, which end with NULL. */
bool dr_has_one(const char *text, const char *const *words);

/** Reads what packages_settings.c is for; dr_read_packages() calls it. */
void dr_read_settings(struct doctor *d);

#endif
