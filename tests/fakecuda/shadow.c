/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of another process over a bad link. Whoever maps it gets a copy of its own, the
 * shadow, and a thread carries words from one to the other: late, in the wrong order, or
 * in one direction only.
 *
 * A word has one writer at a time, so a word of the shadow that is not what it was
 * (`written`) was written here, and one of the memory (`known`) by its owner. What was
 * written here is put into the memory by batches. Except where order is what is wrong, a
 * batch is taken only when nothing changes while it is, and is put down so that flags come
 * last: from the newest mapping to the oldest, from the highest address to the lowest. That
 * is motet's order: windows are mapped after arenas, and in these the flags come first.
 *
 * Of a shadow only the pages are looked at that exist: those that were not all zeros, and
 * those that were touched since.
 */
#include "fake.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PAGE       ((size_t)4096)
#define PAGE_WORDS (PAGE / sizeof(uint64_t))
#define SHOW_NS    20000000u /* between looks at what owners wrote                     */
#define LINE_WORDS \
    ((size_t)16) /* 128 bytes                                           */
#define FLAG_WORDS \
    2 /* most words of a line that are taken for flags                  */

typedef struct shadow {
    LIST_ENTRY(shadow) link;
    const void
            *address; /* where the caller has it                                    */
    size_t words;
    int fd; /* of the copy                                                             */
    uint64_t *seen, *memory; /* the copy, and what it is of                          */
    uint64_t *written,
            *known; /* either of them, as last taken notice of              */
    uint64_t began_ns;
} shadow;

typedef struct change {
    shadow *of;
    size_t word;
    uint64_t value;
} change;

typedef struct batch {
    TAILQ_ENTRY(batch) link;
    uint64_t due_ns;
    change *at;
    size_t count, room;
} batch;

/* Pages that follow each other. */
typedef struct extent {
    size_t first, count;
} extent;

static LIST_HEAD(, shadow) shadows = LIST_HEAD_INITIALIZER(shadows); /* newest first */
static TAILQ_HEAD(, batch) batches = TAILQ_HEAD_INITIALIZER(batches);
static pthread_mutex_t shadow_lock = PTHREAD_MUTEX_INITIALIZER;
static bool
        carried; /* a thread is there                                              */

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t load(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static void store(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/* ---- batches ---- */

static batch *batch_new(uint64_t due_ns)
{
    batch *b = fake_need(sizeof(*b));

    b->due_ns = due_ns;
    return b;
}

static void batch_add(batch *b, shadow *of, size_t word, uint64_t value)
{
    if (b->count == b->room) {
        b->room = 2 * b->room + 64;
        b->at = fake_grow(b->at, b->room * sizeof(*b->at));
    }
    b->at[b->count++] = (change){ of, word, value };
}

static void batch_free(batch *b)
{
    free(b->at);
    free(b);
}

static void put(const change *c)
{
    store(&c->of->memory[c->word], c->value);
    c->of->known[c->word] = c->value;
}

static void put_all(batch *b)
{
    for (size_t i = 0; i < b->count; i++)
        if (b->at[i].of != NULL)
            put(&b->at[i]);
    batch_free(b);
}

static void put_due(uint64_t now)
{
    batch *b;

    while ((b = TAILQ_FIRST(&batches)) != NULL && b->due_ns <= now) {
        TAILQ_REMOVE(&batches, b, link);
        put_all(b);
    }
}

/* ---- what was written here ---- */

/* The pages of the copy that exist, in order; the caller's. */
static extent *extents_of(const shadow *s, size_t *count_out)
{
    off_t at = 0, end = 0;
    extent *extents = NULL;
    size_t count = 0;

    while ((at = lseek(s->fd, end, SEEK_DATA)) >= 0 &&
            (end = lseek(s->fd, at, SEEK_HOLE)) > at) {
        extents = fake_grow(extents, (count + 1) * sizeof(*extents));
        extents[count++] = (extent){ (size_t)at / PAGE, (size_t)(end - at) / PAGE };
    }
    *count_out = count;
    return extents;
}

static bool same(const uint64_t *a, const uint64_t *b, size_t words)
{
    return memcmp(a, b, words * sizeof(*a)) == 0;
}

/* Words of page @p page that were written, from the last one on. */
static void note_page(shadow *s, size_t page, batch *into)
{
    size_t first = page * PAGE_WORDS;

    for (size_t w = first + PAGE_WORDS; w-- > first;) {
        uint64_t value = load(&s->seen[w]);

        if (value != s->written[w])
            batch_add(into, s, w, value);
    }
}

/* From the last page to the first. */
static void note_pages(shadow *s, batch *into)
{
    size_t count;
    extent *extents = extents_of(s, &count);

    for (size_t e = count; e-- > 0;)
        for (size_t page = extents[e].first + extents[e].count;
                page-- > extents[e].first;)
            if (!same(s->seen + page * PAGE_WORDS, s->written + page * PAGE_WORDS,
                        PAGE_WORDS))
                note_page(s, page, into);
    free(extents);
}

/* What was written. It is due @p late_ns after it was found: counted from when the search
 * began, what came meanwhile would arrive early. */
static batch *note_all(uint64_t late_ns)
{
    batch *b = batch_new(0);
    shadow *s;

    for (s = LIST_FIRST(&shadows); s != NULL; s = LIST_NEXT(s, link))
        note_pages(s, b);
    b->due_ns = now_ns() + late_ns;
    return b;
}

static void take(batch *b)
{
    for (size_t i = 0; i < b->count; i++)
        b->at[i].of->written[b->at[i].word] = b->at[i].value;
    TAILQ_INSERT_TAIL(&batches, b, link);
}

/* All that was written, if nothing is being written. */
static void carry_in_order(uint64_t late_ns)
{
    batch *first = note_all(late_ns), *second = note_all(late_ns);
    bool quiet = first->count == second->count &&
            (first->count == 0 ||
                    memcmp(first->at, second->at, first->count * sizeof(*first->at)) ==
                            0);

    batch_free(second);
    if (quiet && first->count > 0)
        take(first);
    else
        batch_free(first);
}

/* Words that were written alone in their line are put down at once. */
static void carry_flags_first(uint64_t late_ns)
{
    batch *all = note_all(late_ns), *later = batch_new(all->due_ns);

    for (size_t i = 0, n; i < all->count; i += n) {
        const change *c = &all->at[i];

        for (n = 1; i + n < all->count && c[n].of == c->of &&
                c[n].word / LINE_WORDS == c->word / LINE_WORDS;)
            n++;
        for (size_t k = 0; k < n; k++) {
            c->of->written[c[k].word] = c[k].value;
            if (n <= FLAG_WORDS)
                put(&c[k]);
            else
                batch_add(later, c->of, c[k].word, c[k].value);
        }
    }
    batch_free(all);
    TAILQ_INSERT_TAIL(&batches, later, link);
}

/* ---- what the owner wrote ---- */

static void show_page(shadow *s, size_t page)
{
    for (size_t w = page * PAGE_WORDS; w < (page + 1) * PAGE_WORDS; w++) {
        uint64_t value = load(&s->memory[w]), expected = s->written[w];

        if (value == s->known[w])
            continue;
        s->known[w] = value;
        /* not if it was written here meanwhile: that goes the other way */
        if (__atomic_compare_exchange_n(&s->seen[w], &expected, value, false,
                    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            s->written[w] = value;
    }
}

static void show(uint64_t now)
{
    uint64_t wait_ns = fake_set.import_ms * 1000000u;
    shadow *s;

    for (s = LIST_FIRST(&shadows); s != NULL; s = LIST_NEXT(s, link)) {
        if (fake_set.import == FAKE_IMPORT_STALE &&
                (wait_ns == 0 || now - s->began_ns < wait_ns))
            continue;
        for (size_t page = 0; page < s->words / PAGE_WORDS; page++)
            if (!same(s->memory + page * PAGE_WORDS, s->known + page * PAGE_WORDS,
                        PAGE_WORDS))
                show_page(s, page);
    }
}

/* ---- the thread ---- */

static void pass(bool look)
{
    static uint64_t shown_ns;
    uint64_t now = now_ns(), late_ns = fake_set.import_ms * 1000000u;

    if (look || now - shown_ns >= SHOW_NS) {
        show(now);
        shown_ns = now_ns();
    }
    if (fake_set.import == FAKE_IMPORT_FLAGFIRST)
        carry_flags_first(late_ns);
    else
        carry_in_order(fake_set.import == FAKE_IMPORT_STALE ? 0 : late_ns);
    put_due(now_ns());
}

/* What the runtime itself copies is never behind what it copied before. */
void fake_shadow_carry(void)
{
    pthread_mutex_lock(&shadow_lock);
    if (!LIST_EMPTY(&shadows))
        pass(true);
    pthread_mutex_unlock(&shadow_lock);
}

/* Works a third of the time at most. */
static void carry_main(void *arg)
{
    bool more = true;

    (void)arg;
    while (more) {
        uint64_t took_ns;

        pthread_mutex_lock(&shadow_lock);
        took_ns = now_ns();
        pass(false);
        took_ns = now_ns() - took_ns;
        more = carried = !LIST_EMPTY(&shadows);
        pthread_mutex_unlock(&shadow_lock);
        if (more)
            usleep((useconds_t)(200 + 2 * took_ns / 1000));
    }
}

/* ---- mappings ---- */

static bool all_zero(const char *bytes, size_t count)
{
    return count == 0 || (*bytes == 0 && memcmp(bytes, bytes + 1, count - 1) == 0);
}

/* Pages of zeros are left out, and read as such. */
int fake_shadow_copy(int fd, size_t offset, size_t bytes)
{
    int copy = memfd_create(fake_the_face.name, MFD_CLOEXEC);
    off_t at = (off_t)offset, end = (off_t)(offset + bytes);
    bool ok = copy >= 0 && ftruncate(copy, (off_t)bytes) == 0;
    char page[PAGE];

    while (ok && (at = lseek(fd, at, SEEK_DATA)) >= 0 && at < end) {
        ok = pread(fd, page, PAGE, at) == (ssize_t)PAGE &&
                (all_zero(page, PAGE) ||
                        pwrite(copy, page, PAGE, at - (off_t)offset) == (ssize_t)PAGE);
        at += (off_t)PAGE;
    }
    if (!ok && copy >= 0)
        close(copy);
    return ok ? copy : -1;
}

static void *view(int fd, size_t offset, size_t bytes, int flags)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, (off_t)offset);

    return at != MAP_FAILED ? at : NULL;
}

static void shadow_free(shadow *s)
{
    uint64_t *views[] = { s->seen, s->memory, s->written, s->known };

    for (size_t i = 0; i < sizeof(views) / sizeof(*views); i++)
        if (views[i] != NULL)
            munmap(views[i], s->words * sizeof(uint64_t));
    if (s->fd >= 0)
        close(s->fd);
    free(s);
}

/* What the copy is now has been taken notice of. */
static void know(const shadow *s)
{
    size_t count;
    extent *extents = extents_of(s, &count);

    for (size_t e = 0; e < count; e++) {
        size_t word = extents[e].first * PAGE_WORDS;

        memcpy(s->written + word, s->seen + word, extents[e].count * PAGE);
        memcpy(s->known + word, s->seen + word, extents[e].count * PAGE);
    }
    free(extents);
}

bool fake_shadow_map(int fd, size_t offset, size_t bytes, void *address, int protection)
{
    shadow *s = fake_need(sizeof(*s));
    bool ok;

    s->address = address;
    s->words = bytes / sizeof(uint64_t);
    s->began_ns = now_ns();
    s->fd = fake_shadow_copy(fd, offset, bytes);
    if (s->fd >= 0) {
        s->seen = view(s->fd, 0, bytes, MAP_SHARED);
        s->memory = view(fd, offset, bytes, MAP_SHARED);
        s->written = view(-1, 0, bytes, MAP_PRIVATE | MAP_ANONYMOUS);
        s->known = view(-1, 0, bytes, MAP_PRIVATE | MAP_ANONYMOUS);
    }
    ok = s->seen != NULL && s->memory != NULL && s->written != NULL &&
            s->known != NULL &&
            mmap(address, bytes, protection, MAP_SHARED | MAP_FIXED, s->fd, 0) !=
                    MAP_FAILED;
    if (!ok) {
        shadow_free(s);
        return false;
    }
    know(s);
    pthread_mutex_lock(&shadow_lock);
    LIST_INSERT_HEAD(&shadows, s, link);
    if (!carried)
        carried = fake_start(carry_main, NULL);
    ok = carried;
    pthread_mutex_unlock(&shadow_lock);
    return ok;
}

/* What is under way arrives at once. */
static void end(shadow *s)
{
    batch *b, *rest;

    for (b = TAILQ_FIRST(&batches); b != NULL; b = TAILQ_NEXT(b, link))
        for (size_t i = 0; i < b->count; i++)
            if (b->at[i].of == s) {
                put(&b->at[i]);
                b->at[i].of = NULL;
            }
    rest = batch_new(0);
    note_pages(s, rest);
    put_all(rest);
    LIST_REMOVE(s, link);
    shadow_free(s);
}

void fake_shadow_unmap(const void *address, size_t bytes)
{
    const char *begin = address;
    shadow *s, *next;

    pthread_mutex_lock(&shadow_lock);
    for (s = LIST_FIRST(&shadows); s != NULL; s = next) {
        const char *at = s->address;

        next = LIST_NEXT(s, link);
        if (at >= begin && at < begin + bytes)
            end(s);
    }
    pthread_mutex_unlock(&shadow_lock);
}
