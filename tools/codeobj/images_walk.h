/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the readers of containers tell each other. Each gets the walk and the bytes that it
 * is to read; what it finds in them goes to images_any(), images_entry() or
 * images_object(), and what it cannot read to images_problem().
 */
#ifndef MOTET_CODEOBJ_IMAGES_WALK_H
#define MOTET_CODEOBJ_IMAGES_WALK_H

#include "images.h"
#include "source.h"

/** How deep containers lie in each other: an archive of files with packed bundles is 4. */
#define IMAGES_DEPTH_MAX 6
/** Of the bytes that lie there: how much is parsed, as several entries may name the same. */
#define IMAGES_PARSE_FACTOR 4
#define IMAGES_CHAIN_MAX    128
/** What beginning to unpack costs, in bytes that are parsed. */
#define IMAGES_UNPACK_COST 1024u
/** Read at a time. */
#define IMAGES_STEP     ((size_t)8 << 20)
#define IMAGES_NAME_MAX 1024

/** Bytes to read, and where in the file they lie. */
struct images_span {
    const unsigned char *data;
    size_t bytes;
    uint64_t offset; /* of data[0]; of unpacked bytes: of what they were packed in */
    bool unpacked;
    bool mapped; /* from the file: pages that were read are given back */
};

struct images_walk {
    image_visitor *visit;
    void *arg;
    struct images_result *result;
    const char *path;   /* where references start from; NULL: not followed  */
    const char *within; /* another file than the one asked for, or NULL     */
    bool stopped;
    unsigned depth;
    uint64_t holder;                                  /* see struct image */
    uint64_t parse_left, unpack_left, unpack_granted; /* bytes */
    char chain[IMAGES_CHAIN_MAX];
    char member[IMAGES_NAME_MAX];
};

/** The little-endian number of so many @p bytes, at most 8. */
static inline uint64_t images_little(const unsigned char *at, unsigned bytes)
{
    uint64_t value = 0;

    for (unsigned i = bytes; i > 0; i--)
        value = value << 8 | at[i - 1];
    return value;
}

/** What the bytes begin as. */
enum images_content {
    IMAGES_NOTHING,
    IMAGES_OBJECT,
    IMAGES_HOST, /* an ELF file of another machine */
    IMAGES_BUNDLE,
    IMAGES_CCOB,
    IMAGES_KPACK,
    IMAGES_ARCHIVE,
    IMAGES_SPIRV,
    IMAGES_BITCODE
};

enum images_content images_sniff(const void *data, size_t bytes);

/** Part of a span; the caller has checked that it lies within. */
struct images_span images_part(const struct images_span *span, size_t at, size_t bytes);
/** Whole pages of a mapped file that were read, and are not needed soon. */
void images_give_back(const struct images_span *span, size_t from, size_t to);
/** Where byte @p at of it lies in the file. */
uint64_t images_where(const struct images_span *span, size_t at);

/** Keep the first sentence about what cannot be read, with @p offset before it. */
__attribute__((format(printf, 3, 4))) void images_problem(struct images_walk *w,
        uint64_t offset, const char *fmt, ...);

/** Go into a container named @p name; the state to go back to, for images_leave(). False,
 *  with a problem kept, if it lies too deep. */
bool images_enter(struct images_walk *w, const char *name, uint64_t offset,
        size_t *state);
void images_leave(struct images_walk *w, size_t state);

/** Whatever it is: a container or an object, or nothing for GPUs. */
void images_any(struct images_walk *w, const struct images_span *span);
/** What an entry for the GPU @p target holds. It is one image at least, read or not. */
void images_entry(struct images_walk *w, const struct images_span *span,
        const char *target);
/** An object. @p target is its entry's, "" if there is none. */
void images_object(struct images_walk *w, const struct images_span *span,
        const char *target);
/** One that cannot be read, at @p offset; @p sha256 NULL if its bytes were not had. */
__attribute__((format(printf, 6, 7))) void images_unread(struct images_walk *w,
        uint64_t offset, uint64_t bytes, const char *target, const char *sha256,
        const char *fmt, ...);
/** Why bytes of that content cannot be told, or NULL if they are an object's. */
const char *images_untold(enum images_content content);

/** The image of @p bytes that comes next out of @p source, packed at @p offset. */
void images_unpack(struct images_walk *w, struct source *source, uint64_t offset,
        uint64_t bytes, const char *target);
/** Close @p source; what it unpacked counts. */
void images_pay(struct images_walk *w, struct source *source);
/** Whether that many more bytes may be parsed; if not, the walk ends with a problem. */
bool images_spend(struct images_walk *w, uint64_t offset, uint64_t bytes);

/** Allow for @p bytes more to be parsed and unpacked: a file was opened. */
void images_allow(struct images_walk *w, size_t bytes);

/** What the id of an entry means, "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack+": whether it is
 *  for a GPU of AMD's, and for which. */
bool images_entry_id(const char *id, size_t length, char target[CODEOBJ_TARGET_MAX]);

/** Bundles, packed or not, one after the other with zeros between them. */
void images_fatbin(struct images_walk *w, const struct images_span *span);
/** One bundle at the beginning of it; the bytes that it takes, 0 if that is not known. */
size_t images_bundle(struct images_walk *w, const struct images_span *span);
/** The same of a packed one. */
size_t images_ccob(struct images_walk *w, const struct images_span *span);
/** Whether a bundle, or a packed one, begins there, and not just the bytes of its magic; how
 *  many bytes were looked at is the cost. */
bool images_bundle_holds(const struct images_span *span, uint64_t *cost);
bool images_ccob_holds(const struct images_span *span, uint64_t *cost);
void images_host(struct images_walk *w, const struct images_span *span);
void images_archive(struct images_walk *w, const struct images_span *span);
/** A kpack archive: all of it, or what is there of the binary @p name. Returns how many
 *  images of it there are. */
uint64_t images_kpack(struct images_walk *w, const struct images_span *span,
        const char *name);
/** The reference to kpack archives in a host's file. */
void images_kpack_reference(struct images_walk *w, const struct images_span *span);

/**
 * Run @p body on the file @p path, mapped.
 * @return 0; or −1 with a sentence in @p why: it cannot be read, or became shorter meanwhile
 */
int images_with_file(const char *path,
        void (*body)(const struct images_span *span, void *arg), void *arg,
        char why[CODEOBJ_WHY_MAX]);

#endif
