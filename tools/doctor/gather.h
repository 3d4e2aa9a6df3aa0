/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the collector (collect*.c) share. */
#ifndef MOTET_DOCTOR_GATHER_H
#define MOTET_DOCTOR_GATHER_H

#include "collect.h"
#include "scan.h"

/** A file of a machine that is longer is cut. */
#define DR_FILE_MAX (4u << 20)
/** A folder's further entries are not looked at, which is said. */
#define DR_NAMES_MAX 65536u

/** A GPU that the PCI tree shows. */
struct dr_gathered_gpu {
    char bdf[DR_BDF_MAX];
    unsigned vendor;
    const char *driver; /* "" if none is bound */
};

struct dr_gather {
    struct doctor *d;
    struct dr_captures *captures;
    const char *root; /* stands before every path; "" is this machine */
    const char *host;
    FILE *out; /* the capture that is being written */
    char *text;
    size_t bytes;
    struct dr_gathered_gpu *gpus;
    uint32_t num_gpus, room_gpus;
};

/** Sorted names of a folder, memory of the doctor's. */
struct dr_names {
    const char **name;
    uint32_t num;
};

/** Whether the machine is this one, and not a folder of files. */
bool dr_gather_live(const struct dr_gather *g);

/** "ROOT/PATH", memory of the doctor's. */
const char *dr_under(struct dr_gather *g, const char *path);

/** The beginning of a file, at most @p max bytes and a NUL; NULL and errno. */
char *dr_slurp(struct dr_gather *g, const char *path, size_t max, size_t *bytes);
/** The same as one line without blanks at its end; "" if it cannot be read. */
const char *dr_word_of(struct dr_gather *g, const char *path);
/** The last part of where a link points to; "" if it is none. */
const char *dr_link_of(struct dr_gather *g, const char *path);
struct dr_names dr_names_of(struct dr_gather *g, const char *path);
bool dr_is_there(struct dr_gather *g, const char *path);

/** Write the prompt and a command that prints what follows. */
void dr_prompt(struct dr_gather *g, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));
/** Write text, and a newline if it lacks one. */
void dr_text(struct dr_gather *g, const char *text, size_t bytes);
/** "PATH:LINE" for each line of a file, as grep -r . prints them; what keeps it from
 *  being read, unless it is not there. False if nothing was written. */
bool dr_write_file(struct dr_gather *g, const char *path);
/** The same with another path in front, for links. */
bool dr_write_file_as(struct dr_gather *g, const char *path, const char *shown);
/** "PATH:NAME" of what a link points to. */
bool dr_write_link(struct dr_gather *g, const char *path, const char *shown);
/** "$ cat PATH" and the whole text; nothing if it is not there. */
bool dr_write_cat(struct dr_gather *g, const char *path);
/** One line as ls -ln prints it, or as ls complains. */
void dr_write_ls(struct dr_gather *g, const char *path);

/** A clock for deadlines, milliseconds. */
int64_t dr_now_ms(void);

/* The parts; each writes into the current capture. */
void dr_gather_system(struct dr_gather *g);
void dr_gather_kernel_log(struct dr_gather *g);
void dr_gather_pci(struct dr_gather *g);
void dr_gather_config_space(struct dr_gather *g);
void dr_gather_kfd(struct dr_gather *g);
void dr_gather_slots(struct dr_gather *g);
void dr_gather_access(struct dr_gather *g);
void dr_gather_network(struct dr_gather *g);
void dr_gather_runtimes(struct dr_gather *g);
/** GPUs that wait for a guest. */
void dr_gather_vfio(struct dr_gather *g);
/** Why a GPU whose attribute reset_method ("" if it has none) reads so is not asked, or
 *  NULL if it may be. */
const char *dr_why_not_vfio(bool for_a_guest, const char *reset_method);
void dr_gather_libraries(struct dr_gather *g);
void dr_gather_probes(struct dr_gather *g);
/** Begins captures of its own, one for each definition of a machine. */
void dr_gather_vms(struct dr_gather *g);

/** Begin and end a capture; an empty one is left out. */
void dr_begin_capture(struct dr_gather *g);
void dr_end_capture(struct dr_gather *g, const char *name);

/** Whether a GPU of @p vendor (0: any) is bound to @p driver (NULL: whatever). */
bool dr_gathered(const struct dr_gather *g, unsigned vendor, const char *driver);

/** Write the records of type 9 of an SMBIOS table as dmidecode prints them. */
void dr_write_smbios_slots(FILE *out, const unsigned char *table, size_t bytes);

/** What the line of an image says, as access_images.c reads it. */
struct dr_image_line {
    const char *shown;  /* the file's name      */
    const char *target; /* "" if it is not known */
    const char *why;    /* the image could not be read; NULL: it was, and then: */
    size_t kernels, declaring;
    const char *const *names; /* of those that declare       */
    size_t num_names, most;   /* how many of them are shown  */
};

/** Names of classic collectives stand first: verdicts depend on them. */
void dr_write_image_line(FILE *out, const struct dr_image_line *line);

/** Write what a file's code for AMD GPUs declares, a line an image, and a line for what
 *  cannot be read; it is called @p shown. */
void dr_write_images(FILE *out, const char *path, const char *shown);

/** Whether every collective of RCCL's but those on registered windows goes through kernels
 *  of this name, which may be mangled. */
bool dr_is_classic(const char *kernel);

/** Write text from a file, at most @p max bytes, which may neither end the line nor command
 *  a terminal. */
void dr_write_clean(FILE *out, const char *text, size_t max);

#endif
