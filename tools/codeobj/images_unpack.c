/* SPDX-License-Identifier: Apache-2.0 */
/* One image out of packed bytes: in memory only if it is one, and only while it is read. */
#include "images_walk.h"

#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

/* An image is looked at when this much of it is unpacked. */
#define HEAD_BYTES    64u
#define SCRATCH_BYTES 16384u

/* The digest of @p head and what follows it, nothing of which is kept. */
static void digest_rest(struct source *s, const void *head, size_t head_bytes,
        uint64_t bytes, char text[SHA256_TEXT])
{
    unsigned char scratch[SCRATCH_BYTES];
    struct sha256 sum;
    uint64_t done = head_bytes;
    size_t got = 1;

    sha256_start(&sum);
    sha256_add(&sum, head, head_bytes);
    while (done < bytes && got > 0) {
        got = source_read(s, scratch,
                bytes - done < sizeof(scratch) ? (size_t)(bytes - done)
                                               : sizeof(scratch));
        sha256_add(&sum, scratch, got);
        done += got;
    }
    text[0] = 0;
    if (done == bytes)
        sha256_end(&sum, text);
}

/* Unpack the rest of an image whose head is at @p to. What keeps it from that, or NULL. */
static const char *unpack_rest(struct source *s, unsigned char *to, size_t head_bytes,
        size_t bytes)
{
    for (size_t at = head_bytes; at < bytes; at += IMAGES_STEP) {
        const size_t want = bytes - at < IMAGES_STEP ? bytes - at : IMAGES_STEP;

        if (source_read(s, to + at, want) < want)
            return s->why[0] != 0 ? s->why : "it ends within the image";
    }
    return s->why[0] != 0 ? s->why : NULL;
}

static void unpack_known(struct images_walk *w, struct source *s, uint64_t offset,
        const void *head, size_t head_bytes, size_t bytes, const char *target)
{
    unsigned char *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const struct images_span span = { .data = data,
        .bytes = bytes,
        .offset = offset,
        .unpacked = true };
    const char *why;

    if (data == MAP_FAILED) {
        images_unread(w, offset, bytes, target, NULL,
                "no memory for an image of %zu bytes", bytes);
        (void)source_skip(s, bytes - head_bytes);
        return;
    }
    memcpy(data, head, head_bytes);
    why = unpack_rest(s, data, head_bytes, bytes);
    if (why == NULL) {
        w->parse_left += IMAGES_PARSE_FACTOR * bytes;
        images_entry(w, &span, target);
    } else
        images_problem(w, offset, "the image for '%s': %s", target, why);
    munmap(data, bytes);
}

void images_pay(struct images_walk *w, struct source *s)
{
    w->unpack_left -= s->given < w->unpack_left ? s->given : w->unpack_left;
    source_close(s);
}

void images_unpack(struct images_walk *w, struct source *s, uint64_t offset,
        uint64_t bytes, const char *target)
{
    unsigned char head[HEAD_BYTES];
    const size_t head_bytes = bytes < HEAD_BYTES ? (size_t)bytes : HEAD_BYTES;
    enum images_content content;
    char digest[SHA256_TEXT];

    if (bytes > IMAGES_ONE_MAX) {
        images_problem(w, offset,
                "the image for '%s' has %" PRIu64 " bytes, at most %" PRIu64
                " are read",
                target, bytes, IMAGES_ONE_MAX);
        return;
    }
    if (source_read(s, head, head_bytes) < head_bytes) {
        images_problem(w, offset, "the image for '%s': %s", target,
                s->why[0] != 0 ? s->why : "it is not there");
        return;
    }
    content = images_sniff(head, head_bytes);
    if (content == IMAGES_OBJECT || content == IMAGES_HOST ||
            content == IMAGES_BUNDLE || content == IMAGES_CCOB) {
        unpack_known(w, s, offset, head, head_bytes, (size_t)bytes, target);
        return;
    }
    digest_rest(s, head, head_bytes, bytes, digest);
    if (digest[0] == 0)
        images_problem(w, offset, "the image for '%s': %s", target,
                s->why[0] != 0 ? s->why : "it is cut off");
    else
        images_unread(w, offset, bytes, target, digest, "%s",
                images_untold(content) != NULL ? images_untold(content)
                                               : "neither an ELF file nor SPIR-V");
}
