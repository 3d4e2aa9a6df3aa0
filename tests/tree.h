/* SPDX-License-Identifier: Apache-2.0 */
/* A tree of files that looks like a machine, for what looks at one below a folder. */
#ifndef MOTET_TESTS_TREE_H
#define MOTET_TESTS_TREE_H

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

static char tree[64];

/* Those that lead to the file @p path. */
static inline void make_folders(char *path)
{
    for (char *slash = strchr(path + strlen(tree) + 1, '/'); slash != NULL;
            slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0755);
        *slash = '/';
    }
}

static inline void put_bytes(const char *name, const void *bytes, size_t count)
{
    char path[512];
    FILE *out;

    snprintf(path, sizeof(path), "%s%s", tree, name);
    make_folders(path);
    out = fopen(path, "we");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, count, out), count);
    assert_int_equal(fclose(out), 0);
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

/* For cmocka: an empty tree before a test, and none after it. */
static inline int tree_begin(void **state)
{
    (void)state;
    snprintf(tree, sizeof(tree), "/tmp/motet-test-XXXXXX");
    return mkdtemp(tree) == NULL;
}

static inline int tree_forget(const char *path, const struct stat *status, int type,
        struct FTW *at)
{
    (void)status, (void)type, (void)at;
    return remove(path);
}

static inline int tree_end(void **state)
{
    (void)state;
    return nftw(tree, tree_forget, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
