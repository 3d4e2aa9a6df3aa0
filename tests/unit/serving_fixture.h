/* SPDX-License-Identifier: Apache-2.0 */
/* Trees of files that look like hosts, for what serving.h reads. */
#ifndef MOTET_TESTS_SERVING_FIXTURE_H
#define MOTET_TESTS_SERVING_FIXTURE_H

#include "serving_parts.h"

#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define SERVING_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

static char tree[64], state_dir[96];

static inline void make_folders(const char *path)
{
    char part[512];

    for (const char *at = path + 1; (at = strchr(at, '/')) != NULL; at++) {
        snprintf(part, sizeof(part), "%.*s", (int)(at - path), path);
        (void)mkdir(part, 0700);
    }
}

static inline void put_bytes(const char *name, const char *text, size_t bytes)
{
    char path[512];
    FILE *file;

    snprintf(path, sizeof(path), "%s%s", tree, name);
    make_folders(path);
    file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static inline void put(const char *name, const char *text)
{
    put_bytes(name, text, strlen(text));
}

static inline void put_link(const char *name, const char *target)
{
    char path[512];

    snprintf(path, sizeof(path), "%s%s", tree, name);
    make_folders(path);
    assert_int_equal(symlink(target, path), 0);
}

static inline int begin(void **state)
{
    (void)state;
    snprintf(tree, sizeof(tree), "/tmp/motet-test-XXXXXX");
    if (mkdtemp(tree) == NULL)
        return 1;
    snprintf(state_dir, sizeof(state_dir), "%s/state/motet", tree);
    return setenv("MOTET_HOST_ROOT", tree, 1) != 0 ||
            setenv("MOTET_STATE_DIR", state_dir, 1) != 0;
}

static inline int forget(const char *path, const struct stat *status, int type,
        struct FTW *at)
{
    (void)status, (void)type, (void)at;
    return remove(path);
}

static inline int end(void **state)
{
    (void)state;
    return nftw(tree, forget, 16, FTW_DEPTH | FTW_PHYS);
}

/* What @p call writes to stderr; static. */
static inline const char *words_of(int (*call)(void), int *code_out)
{
    static char text[8192];
    char path[96];
    int saved = dup(STDERR_FILENO), fd;
    ssize_t n;

    snprintf(path, sizeof(path), "%s/words", tree);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(saved >= 0 && fd >= 0);
    fflush(stderr);
    assert_true(dup2(fd, STDERR_FILENO) >= 0);
    *code_out = call();
    fflush(stderr);
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    n = pread(fd, text, sizeof(text) - 1, 0);
    assert_true(n >= 0);
    text[n] = 0;
    close(fd);
    close(saved);
    return text;
}

static inline void assert_says(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("no '%s' in:\n%s", part, text);
}

#endif
