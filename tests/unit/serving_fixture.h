/* SPDX-License-Identifier: Apache-2.0 */
/* Trees of files that look like hosts, for what serving.h reads. */
#ifndef MOTET_TESTS_SERVING_FIXTURE_H
#define MOTET_TESTS_SERVING_FIXTURE_H

#include "serving_parts.h"

#include "../tree.h"

#include <fcntl.h>

#define SERVING_TEST(name) cmocka_unit_test_setup_teardown(name, begin, tree_end)

static char state_dir[96];

static inline int begin(void **state)
{
    if (tree_begin(state) != 0)
        return 1;
    snprintf(state_dir, sizeof(state_dir), "%s/state/motet", tree);
    return setenv("MOTET_HOST_ROOT", tree, 1) != 0 ||
            setenv("MOTET_STATE_DIR", state_dir, 1) != 0;
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
