/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the finder's tests share: a scratch tree that stands before /opt and /usr, copies
 * of small libraries (find_copy.c) in it, and what a search is expected to say. Included
 * by one file of each program, after cmocka.h.
 */
#ifndef MOTET_TESTS_FIND_RIG_H
#define MOTET_TESTS_FIND_RIG_H

#include "find/find.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

/* What the build made of find_copy.c: FIND_COPIES/KIND.so. */
#define GOOD  "good"  /* SONAME libamdhip64.so.6 */
#define PLAIN "plain" /* SONAME libamdhip64.so   */
#define LAME  "lame"  /* lacks find_second       */
#define NEEDY "needy" /* needs a missing library */

static char top[64];
static motet_find_report report;
static char text[1 << 16];         /* of the last report */
static motet_find_library library; /* what is looked for, without the linker's search */
static motet_find_request request;

/* A fresh scratch tree, and a request for @p what that stays in it. */
static int start(const motet_find_library *what)
{
    snprintf(top, sizeof(top), "/tmp/motet-find-XXXXXX");
    if (mkdtemp(top) == NULL)
        return -1;
    library = *what;
    library.by_name = false;
    request = (motet_find_request){ .library = &library, .prefix = top };
    memset(&report, 0x5a, sizeof(report));
    return chmod(top, 0755);
}

static int remove_one(const char *path, const struct stat *st, int type,
        struct FTW *walk)
{
    (void)st;
    (void)type;
    (void)walk;
    return remove(path);
}

static int teardown(void **state)
{
    (void)state;
    return nftw(top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* top/path, in one of a few buffers that take turns. */
static const char *at(const char *path)
{
    static char paths[8][512];
    static unsigned turn;
    char *out = paths[turn++ % 8];

    snprintf(out, sizeof(paths[0]), "%s%s", top, path);
    return out;
}

static void make_folders(const char *path)
{
    char folder[256];

    snprintf(folder, sizeof(folder), "%s", path);
    for (char *slash = strchr(folder + strlen(top) + 1, '/'); slash != NULL;
            slash = strchr(slash + 1, '/')) {
        *slash = 0;
        (void)mkdir(folder, 0755); /* most are there */
        *slash = '/';
    }
}

/* A copy of @p kind as top/path. */
static const char *put(const char *kind, const char *path)
{
    const char *to = at(path);
    char from[512];
    struct stat st;
    int in, out;

    make_folders(to);
    snprintf(from, sizeof(from), "%s/%s.so", getenv("FIND_COPIES"), kind);
    in = open(from, O_RDONLY);
    out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(in >= 0 && out >= 0);
    assert_int_equal(fstat(in, &st), 0);
    assert_int_equal(sendfile(out, in, NULL, (size_t)st.st_size), st.st_size);
    close(in);
    close(out);
    return to;
}

static void put_bytes(const char *path, off_t offset, const void *bytes, size_t size)
{
    int fd;

    make_folders(path);
    fd = open(path, O_WRONLY | O_CREAT, 0644);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, size, offset), size);
    close(fd);
}

static motet_find_outcome look(void)
{
    bool found = motet_find_open(&request, &report);
    size_t length = motet_find_text(&report, text, sizeof(text));

    assert_int_equal(length, strlen(text));
    assert_int_equal(found, report.outcome == MOTET_FIND_FOUND);
    assert_int_equal(found, report.handle != NULL);
    assert_int_equal(found, report.path[0] != 0);
    assert_true(strlen(report.sentence) > 0);
    return report.outcome;
}

static void expect_words(const char *words)
{
    if (strstr(text, words) == NULL)
        fail_msg("'%s' is not in:\n%s", words, text);
}

static void expect_no_words(const char *words)
{
    if (strstr(text, words) != NULL)
        fail_msg("'%s' is in:\n%s", words, text);
}

/* Found as @p path; closes it. */
static void expect_found(const char *path, motet_find_origin origin)
{
    if (look() != MOTET_FIND_FOUND)
        fail_msg("not found:\n%s", text);
    assert_string_equal(report.path, path);
    assert_int_equal(report.origin, origin);
    assert_non_null(dlsym(report.handle, "find_probe"));
    assert_int_equal(dlclose(report.handle), 0);
}

static void expect_outcome(motet_find_outcome outcome)
{
    if (look() != outcome)
        fail_msg("outcome %d, not %d:\n%s", (int)report.outcome, (int)outcome, text);
}

static const motet_find_candidate *row_of(const char *path)
{
    for (size_t i = 0; i < report.num_candidates; i++)
        if (strcmp(report.candidates[i].path, path) == 0)
            return &report.candidates[i];
    fail_msg("%s is not in:\n%s", path, text);
    return NULL;
}

static void expect_row(const char *path, motet_find_verdict verdict, const char *detail)
{
    const motet_find_candidate *row = row_of(path);

    if (row->verdict != verdict || strstr(row->detail, detail) == NULL)
        fail_msg("%s is not '%s: %s' in:\n%s", path, motet_find_verdict_name(verdict),
                detail, text);
}

#endif
