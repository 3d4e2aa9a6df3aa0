/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the finder on RCCL and NCCL share: an environment to ask in. */
#ifndef MOTET_TESTS_FIND_RIG_LIB_H
#define MOTET_TESTS_FIND_RIG_LIB_H

#include "find_rig.h"

/* The environment: pairs of a name and a value, ended by NULL. */
static const char *environment[16];

static const char *look_up(const char *variable, void *arg)
{
    const char *const *pairs = arg;

    for (; *pairs != NULL; pairs += 2)
        if (strcmp(*pairs, variable) == 0)
            return pairs[1];
    return NULL;
}

/* Ask as @p client (or NULL) does, in the environment. */
static void ask(const motet_find_library *what, const char *client)
{
    const motet_find_client *row =
            client != NULL ? motet_find_client_of(client, what) : NULL;

    assert_true(client == NULL || row != NULL);
    motet_find_ask(&request, what, row, look_up, environment);
    request.library = &library;
    request.prefix = top;
}

static void set(size_t pair, const char *variable, const char *value)
{
    environment[2 * pair] = variable;
    environment[2 * pair + 1] = value;
}

static int setup_rccl(void **state)
{
    (void)state;
    memset(environment, 0, sizeof(environment));
    return start(&motet_find_rccl);
}

#define RCCL(name) cmocka_unit_test_setup_teardown(name, setup_rccl, teardown)

#endif
