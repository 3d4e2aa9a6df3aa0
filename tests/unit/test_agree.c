/* SPDX-License-Identifier: Apache-2.0 */
/* Do the ranks of a rendezvous fit together, and which one is odd. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bootstrap/agree.h"
#include "hello_fixture.h"

#define GROUP_MAX 8

typedef struct group {
    motet_hello hello[GROUP_MAX];
    motet_member member[GROUP_MAX];
    int n;
    motet_root_facts root;
} group;

static group *new_group(int n)
{
    group *g = calloc(1, sizeof(*g));

    assert_non_null(g);
    g->n = n;
    g->root = (motet_root_facts){ .pid = 7,
        .uid = 1000,
        .boot_hash = 11,
        .host = "alpha" };
    for (int r = 0; r < n; r++) {
        g->hello[r] = sample_hello((uint32_t)r, (uint32_t)n);
        g->member[r] = (motet_member){ .hello = &g->hello[r],
            .pid = g->hello[r].pid,
            .version = MOTET_WIRE_VERSION };
    }
    return g;
}

/* What the judge says; "" if it agrees. The members' order must not matter. */
static void check_verdict(group *g, const char *sentence)
{
    char text[MOTET_SENTENCE_MAX], turned[MOTET_SENTENCE_MAX];
    motet_result result =
            motet_members_agree(g->member, g->n, &g->root, text, sizeof(text));
    motet_member reversed[GROUP_MAX];

    assert_int_equal(result, sentence[0] == '\0' ? MOTET_OK : MOTET_ERR_USAGE);
    assert_string_equal(text, sentence);
    for (int i = 0; i < g->n; i++)
        reversed[i] = g->member[g->n - 1 - i];
    assert_int_equal(motet_members_agree(reversed, g->n, &g->root, turned,
                             sizeof(turned)),
            result);
    assert_string_equal(turned, text);
    free(g);
}

static void test_equal_ranks_agree(void **state)
{
    (void)state;
    check_verdict(new_group(4), "");
}

static void test_the_odd_setting_is_named_by_majority(void **state)
{
    group *g = new_group(4);

    (void)state;
    strncpy(g->hello[0].settings, "path=copy\nchunk=16384\n", MOTET_SETTINGS_MAX - 1);
    check_verdict(g,
            "rank 0 has 'path' = copy, but ranks 1-3 have 'path' = shared: all "
            "ranks must agree");
}

static void test_a_tie_is_right_where_rank_0_is(void **state)
{
    group *g = new_group(2);

    (void)state;
    strncpy(g->hello[1].settings, "path=shared\nchunk=4096\n", MOTET_SETTINGS_MAX - 1);
    check_verdict(g,
            "rank 1 has 'chunk' = 4096, but rank 0 has 'chunk' = 16384: all "
            "ranks must agree");
}

static void test_a_missing_setting_is_named(void **state)
{
    group *g = new_group(3);

    (void)state;
    strncpy(g->hello[2].settings, "path=shared\nchunk=16384\nextra=1\n",
            MOTET_SETTINGS_MAX - 1);
    check_verdict(g,
            "rank 2 has 'extra' = 1, but ranks 0, 1 have 'extra' = (unset): all "
            "ranks must agree");
}

static void test_settings_that_differ_in_order_only_are_said_to(void **state)
{
    group *g = new_group(2);

    (void)state;
    strncpy(g->hello[1].settings, "chunk=16384\npath=shared\n", MOTET_SETTINGS_MAX - 1);
    check_verdict(g, "the ranks' settings differ in their order");
}

static void test_another_library_version_is_named(void **state)
{
    group *g = new_group(3);

    (void)state;
    strncpy(g->hello[1].version, "0.2.0", sizeof(g->hello[1].version) - 1);
    check_verdict(g,
            "rank 1 runs motet 0.2.0, but ranks 0, 2 run motet 0.1.0: all ranks "
            "must agree");
}

static void test_another_wire_version_is_named_first(void **state)
{
    group *g = new_group(2);

    (void)state;
    memset(&g->hello[1], 0, sizeof(g->hello[1])); /* nothing else can be read */
    g->hello[1].rank = 1;
    g->hello[1].nranks = 2;
    g->member[1].version = 9;
    check_verdict(g,
            "rank 1 speaks wire version 9, but rank 0 speaks wire version 1: all "
            "ranks must agree");
}

static void test_another_nranks_is_named(void **state)
{
    group *g = new_group(3);

    (void)state;
    g->hello[1].nranks = 5;
    check_verdict(g,
            "rank 1 was given nranks 5, but ranks 0, 2 were given nranks 3: all "
            "ranks must agree");
}

static void test_a_rank_that_comes_twice_is_named(void **state)
{
    group *g = new_group(2);
    char text[MOTET_SENTENCE_MAX];

    (void)state;
    g->hello[0].rank = 1;
    assert_int_equal(motet_members_agree(g->member, 2, &g->root, text, sizeof(text)),
            MOTET_ERR_USAGE);
    assert_string_equal(text,
            "rank 1 joined twice: pid 100 on alpha and pid 101 on alpha");
    free(g);
}

static void test_several_nodes_are_named(void **state)
{
    group *g = new_group(4);

    (void)state;
    for (int r = 2; r < 4; r++) {
        strncpy(g->hello[r].node, "beta", sizeof(g->hello[r].node) - 1);
        g->hello[r].node_hash = g->hello[r].boot_hash = 22;
        g->member[r].tcp = true;
    }
    check_verdict(g,
            "ranks are on several nodes (ranks 0, 1 on alpha, ranks 2, 3 on "
            "beta), which this version of motet does not support yet: run all "
            "ranks on one node");
}

static void test_hostid_makes_nodes_even_over_unix_sockets(void **state)
{
    group *g = new_group(2);

    (void)state;
    strncpy(g->hello[1].node, "island", sizeof(g->hello[1].node) - 1);
    g->hello[1].node_hash = 33;
    check_verdict(g,
            "ranks are on several nodes (rank 0 on alpha, rank 1 on island), "
            "which this version of motet does not support yet: run all ranks on "
            "one node");
}

static void test_one_node_without_a_shared_socket_is_explained(void **state)
{
    group *g = new_group(2);

    (void)state;
    g->member[1].tcp = true;
    check_verdict(g,
            "rank 1 and the process that made the id (pid 7 on alpha) are on the same "
            "node but share no Unix socket: they are in different network namespaces "
            "and "
            "see different /tmp or XDG_RUNTIME_DIR folders (containers); share one of "
            "the two");
}

static void test_another_user_is_named(void **state)
{
    group *g = new_group(2);

    (void)state;
    g->member[1].tcp = true;
    g->hello[1].uid = 1001;
    check_verdict(g,
            "rank 1 runs as user 1001, and the process that made the id (pid 7 on "
            "alpha) "
            "as user 1000: the ranks of one node must belong to one user");
}

static void test_an_id_made_elsewhere_is_explained(void **state)
{
    group *g = new_group(2);

    (void)state;
    g->member[0].tcp = g->member[1].tcp = true;
    g->root.boot_hash = 99;
    g->root.host = "head";
    check_verdict(g,
            "ranks 0, 1 on alpha reached the process that made the id (pid 7 on head) "
            "from another node, which this version of motet does not support yet: make "
            "the id on the ranks' node");
}

static void test_the_absent_are_listed(void **state)
{
    group *g = new_group(8);
    char text[MOTET_SENTENCE_MAX];

    (void)state;
    g->member[1] = g->member[2]; /* ranks 0, 2, 2 are there */
    motet_members_absent(g->member, 3, 8, 299999, text, sizeof(text));
    assert_string_equal(text, "ranks 1, 3-7 of 8 did not join within 300 s");
    motet_members_absent(g->member, 1, 2, 200, text, sizeof(text));
    assert_string_equal(text, "rank 1 of 2 did not join within 200 ms");
    free(g);
}

static void test_rank_lists_are_short_and_stay_in_their_buffer(void **state)
{
    bool in[MOTET_MAX_RANKS] = { false };
    char text[32], small[12];

    (void)state;
    in[0] = in[1] = in[4] = in[5] = in[6] = true;
    motet_rank_list(in, 8, text, sizeof(text));
    assert_string_equal(text, "ranks 0, 1, 4-6");
    for (int r = 0; r < MOTET_MAX_RANKS; r += 2)
        in[r] = true;
    motet_rank_list(in, MOTET_MAX_RANKS, small, sizeof(small));
    assert_true(strlen(small) < sizeof(small));
    assert_int_equal(strncmp(small, "ranks 0", 7), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_ranks_agree),
        cmocka_unit_test(test_the_odd_setting_is_named_by_majority),
        cmocka_unit_test(test_a_tie_is_right_where_rank_0_is),
        cmocka_unit_test(test_a_missing_setting_is_named),
        cmocka_unit_test(test_settings_that_differ_in_order_only_are_said_to),
        cmocka_unit_test(test_another_library_version_is_named),
        cmocka_unit_test(test_another_wire_version_is_named_first),
        cmocka_unit_test(test_another_nranks_is_named),
        cmocka_unit_test(test_a_rank_that_comes_twice_is_named),
        cmocka_unit_test(test_several_nodes_are_named),
        cmocka_unit_test(test_hostid_makes_nodes_even_over_unix_sockets),
        cmocka_unit_test(test_one_node_without_a_shared_socket_is_explained),
        cmocka_unit_test(test_another_user_is_named),
        cmocka_unit_test(test_an_id_made_elsewhere_is_explained),
        cmocka_unit_test(test_the_absent_are_listed),
        cmocka_unit_test(test_rank_lists_are_short_and_stay_in_their_buffer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
