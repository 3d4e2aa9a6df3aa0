/* SPDX-License-Identifier: Apache-2.0 */
/* Engines of two to four ranks: sends and receives, and messages out of band. */
#include "engine_rig.h"

#define CHUNK     (16u << 10)
#define RING      (MOTET_PAIR_SLOTS * CHUNK)
#define MAX_BYTES (1u << 20)

static uint8_t value(int from, int to, size_t i, unsigned salt)
{
    return (uint8_t)((unsigned)from * 31u + (unsigned)to * 17u + i * 7u + (i >> 8) +
            salt);
}

/* A message, as both its ends know it. */
typedef struct message {
    int from, to;
    size_t bytes;
} message;

typedef struct messages {
    const message *list;
    int count;
    bool one_by_one; /* each message is a call of its own */
} messages;

static motet_transfer transfer_of(const message *m, bool sends, uint8_t *buf)
{
    return (motet_transfer){ .op = { .kind = sends ? MOTET_SEND : MOTET_RECV,
                                     .type = MOTET_UINT8,
                                     .root = sends ? m->to : m->from,
                                     .send = sends ? buf : NULL,
                                     .recv = sends ? NULL : buf,
                                     .count = m->bytes } };
}

static void check_message(rig_rank *rank, const message *m, unsigned salt,
        const uint8_t *buf)
{
    for (size_t i = 0; i < m->bytes; i++)
        if (buf[i] != value(m->from, m->to, i, salt)) {
            rig_wrong(rank, "message %u, %d to %d, %zu bytes: byte %zu is %d", salt,
                    m->from, m->to, m->bytes, i, buf[i]);
            return;
        }
    if (buf[m->bytes] != 0xee)
        rig_wrong(rank, "message %u wrote beyond its end", salt);
}

/* This rank's ends of all messages: in one group, or one by one. */
static void exchange_messages(rig_rank *rank)
{
    const messages *all = rank->arg;
    motet_transfer *t = calloc((size_t)all->count * 2, sizeof(*t));
    uint8_t **buf = calloc((size_t)all->count * 2, sizeof(*buf));
    int count = 0;

    for (int i = 0; i < all->count; i++)
        for (int sends = 1; sends >= 0; sends--) {
            const message *m = &all->list[i];

            if ((sends ? m->from : m->to) != rank->rank)
                continue;
            buf[count] = malloc(m->bytes + 1);
            memset(buf[count], 0xee, m->bytes + 1);
            for (size_t k = 0; sends && k < m->bytes; k++)
                buf[count][k] = value(m->from, m->to, k, (unsigned)i);
            t[count] = transfer_of(m, sends, buf[count]);
            count++;
        }
    if (rig_keep(rank, motet_pairs_check(rank->rank, t, count))) {
        for (int i = 0; all->one_by_one && i < count; i++)
            rig_keep(rank, motet_engine_pairs(rank->engine, &t[i], 1));
        if (!all->one_by_one)
            rig_keep(rank, motet_engine_pairs(rank->engine, t, count));
    }
    count = 0;
    for (int i = 0; i < all->count; i++) {
        const message *m = &all->list[i];

        count += m->from == rank->rank;
        if (m->to == rank->rank && rank->result == MOTET_OK)
            check_message(rank, m, (unsigned)i, buf[count]);
        count += m->to == rank->rank;
    }
    for (int i = 0; i < all->count * 2; i++)
        free(buf[i]);
    free(buf);
    free(t);
}

static void run_messages(int n, uint64_t epoch, const messages *all)
{
    rig *g = rig_make(&(rig_options){ .n = n, .epoch = epoch, .oversubscribed = true });

    rig_run_well(g, exchange_messages, (void *)(uintptr_t)all);
    rig_run_well(g, exchange_messages, (void *)(uintptr_t)all);
    rig_free(g);
}

static void test_messages_of_every_size_arrive(void **state)
{
    static const size_t sizes[] = { 0, 1, 95, 96, 97, 4096, CHUNK - 1, CHUNK, CHUNK + 1,
        RING - 1, RING, RING + 1, MAX_BYTES, 3 };
    message list[sizeof(sizes) / sizeof(*sizes)];
    messages all = { list, (int)(sizeof(sizes) / sizeof(*sizes)), true };

    (void)state;
    for (int i = 0; i < all.count; i++)
        list[i] = (message){ 0, 1, sizes[i] };
    run_messages(2, 0, &all);
    all.one_by_one = false;
    run_messages(2, 4294967290ull, &all);
    run_messages(2, INT64_MAX - 3ull, &all);
}

static void test_ranks_that_send_to_each_other_first_do_not_wait_for_ever(void **state)
{
    static const message list[] = { { 0, 1, MAX_BYTES }, { 1, 0, MAX_BYTES },
        { 1, 0, 10 }, { 0, 1, RING * 2 } };

    (void)state;
    run_messages(2, 0, &(messages){ list, 4, false });
}

static void test_all_to_all_of_unequal_sizes(void **state)
{
    message list[16];
    messages all = { list, 16, false };

    (void)state;
    for (int i = 0; i < 16; i++)
        list[i] = (message){ i / 4, i % 4, (size_t)(i * i) * 1237 };
    run_messages(4, 2147483640ull, &all);
}

static void test_a_rank_sends_to_itself(void **state)
{
    static const message list[] = { { 1, 1, MAX_BYTES }, { 1, 1, 0 }, { 1, 1, 5 },
        { 0, 1, RING + 7 } };

    (void)state;
    run_messages(2, 0, &(messages){ list, 4, false });
}

static void test_a_send_to_self_needs_its_receive(void **state)
{
    uint8_t buf[8] = { 0 };
    const message m = { 1, 1, 8 }, shorter = { 1, 1, 7 };
    motet_transfer t[3] = { transfer_of(&m, true, buf), transfer_of(&m, false, buf),
        transfer_of(&shorter, false, buf) };
    motet_transfer unequal[2] = { t[0], t[2] };

    (void)state;
    assert_int_equal(motet_pairs_check(1, t, 2), MOTET_OK);
    assert_int_equal(motet_pairs_check(0, t, 1), MOTET_OK);
    assert_int_equal(motet_pairs_check(1, t, 1), MOTET_ERR_USAGE);
    assert_non_null(strstr(motet_error_trail(), "without a matching recv"));
    assert_int_equal(motet_pairs_check(1, &t[1], 1), MOTET_ERR_USAGE);
    assert_non_null(strstr(motet_error_trail(), "without a matching send"));
    assert_int_equal(motet_pairs_check(1, t, 3), MOTET_ERR_USAGE);
    assert_int_equal(motet_pairs_check(1, unequal, 2), MOTET_ERR_USAGE);
    assert_non_null(strstr(motet_error_trail(), "8 bytes to itself but receives 7"));
}

/* Rank 0 sends the first size of the argument, rank 1 receives the second. */
static void unequal_ends(rig_rank *rank)
{
    const size_t *bytes = rank->arg;
    const message m = { 0, 1, bytes[rank->rank] };
    uint8_t *buf = calloc(1, m.bytes + 1);
    motet_transfer t = transfer_of(&m, rank->rank == 0, buf);

    rig_keep(rank, motet_engine_pairs(rank->engine, &t, 1));
    if (rank->rank == 0 &&
            rank->result == MOTET_OK) { /* it fitted: the next call tells */
        rig_sleep_ms(300);
        rig_keep(rank, motet_engine_poll(rank->engine));
    }
    free(buf);
}

static void test_ends_that_differ_in_size_both_fail(void **state)
{
    static size_t sizes[][2] = { { 100, 90 }, { 0, 1 }, { 1, 0 }, { RING * 3, 10 },
        { 10, RING * 3 }, { CHUNK, CHUNK + 1 } };

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        rig_rank ranks[RIG_RANKS];
        rig *g = rig_make(&(rig_options){ .n = 2, .oversubscribed = true });
        char words[64];

        rig_run(g, unequal_ends, sizes[i], ranks);
        (void)snprintf(words, sizeof(words), "sends %zu bytes, rank 1 receives %zu",
                sizes[i][0], sizes[i][1]);
        for (int r = 0; r < 2; r++)
            if (ranks[r].result != MOTET_ERR_USAGE ||
                    strstr(ranks[r].text, words) == NULL)
                fail_msg("case %zu rank %d: result %d, \"%s\" has no \"%s\"", i, r,
                        (int)ranks[r].result, ranks[r].text, words);
        rig_free(g);
    }
}

static void test_nothing_is_sent_to_a_rank_that_is_gone(void **state)
{
    uint8_t buf[8] = { 0 };
    const message m = { 0, 1, 8 };
    motet_transfer t = transfer_of(&m, true, buf);
    rig *g = rig_make(&(rig_options){ .n = 3 });

    (void)state;
    motet_engine_peer_died(&g->engine[0], 2); /* another one died first */
    motet_engine_peer_died(&g->engine[0], 1);
    assert_int_equal(motet_engine_pairs(&g->engine[0], &t, 1), MOTET_ERR_REMOTE);
    assert_non_null(strstr(motet_error_trail(), "rank 1 (pid 10001) has died"));
    rig_free(g);

    g = rig_make(&(rig_options){ .n = 2 });
    atomic_store(&g->arena[1][1].head->life, MOTET_LIFE_LEFT);
    assert_int_equal(motet_engine_pairs(&g->engine[0], &t, 1), MOTET_ERR_REMOTE);
    assert_non_null(strstr(motet_error_trail(), "has destroyed its communicator"));
    rig_free(g);
}

static void test_a_message_of_a_rank_that_left_can_be_received(void **state)
{
    uint8_t buf[8] = { 1, 2, 3 }, got[8] = { 0 };
    const message m = { 0, 1, 8 };
    motet_transfer send = transfer_of(&m, true, buf);
    motet_transfer recv = transfer_of(&m, false, got);
    rig *g = rig_make(&(rig_options){ .n = 2 });

    (void)state;
    assert_int_equal(motet_engine_pairs(&g->engine[0], &send, 1), MOTET_OK);
    atomic_store(&g->arena[0][0].head->life, MOTET_LIFE_LEFT);
    assert_int_equal(motet_engine_pairs(&g->engine[1], &recv, 1), MOTET_OK);
    assert_memory_equal(buf, got, 8);
    assert_int_equal(motet_engine_pairs(&g->engine[1], &recv, 1), MOTET_ERR_REMOTE);
    rig_free(g);
}

static void receive_only(rig_rank *rank)
{
    uint8_t buf[8];
    const message m = { 1, 0, 8 };
    motet_transfer t = transfer_of(&m, false, buf);

    if (rank->rank == 0)
        rig_keep(rank, motet_engine_pairs(rank->engine, &t, 1));
}

static void test_a_receive_whose_send_never_comes_meets_its_deadline(void **state)
{
    rig_rank ranks[RIG_RANKS];
    rig *g = rig_make(&(rig_options){ .n = 2, .timeout_ms = 60 });

    (void)state;
    rig_run(g, receive_only, NULL, ranks);
    assert_int_equal(ranks[0].result, MOTET_ERR_REMOTE);
    assert_non_null(strstr(ranks[0].text, "recv(count 8"));
    assert_non_null(strstr(ranks[0].text, "rank 1 (pid 10001), which has not come"));
    rig_free(g);
}

/* ---- out of band ---- */

typedef struct round_args {
    bool member[RIG_RANKS];
    int rounds;
} round_args;

static void oob_rounds(rig_rank *rank)
{
    const round_args *args = rank->arg;
    uint8_t mine[MOTET_OOB_MAX], all[RIG_RANKS * MOTET_OOB_MAX];

    for (int i = 0; i < args->rounds && args->member[rank->rank]; i++) {
        size_t bytes = (size_t)(i * 101) % MOTET_OOB_MAX + 1;

        for (size_t k = 0; k < bytes; k++)
            mine[k] = value(rank->rank, 0, k, (unsigned)i);
        memset(all, 0xee, sizeof(all));
        if (!rig_keep(rank,
                    motet_engine_oob(rank->engine, args->member, mine, bytes, all,
                            motet_deadline_after_s(20), NULL)))
            return;
        for (int r = 0; r < rank->g->n; r++)
            for (size_t k = 0; k < bytes; k++) {
                uint8_t want =
                        args->member[r] ? value(r, 0, k, (unsigned)i) : (uint8_t)0xee;

                if (all[(size_t)r * bytes + k] != want)
                    rig_wrong(rank, "round %d: byte %zu of rank %d", i, k, r);
            }
    }
}

static void test_rounds_among_all_and_among_some(void **state)
{
    round_args some = { { true, false, true, true }, 15 };
    round_args all = { { true, true, true, true }, 30 },
               two = { { false, true, true }, 5 };
    rig *g = rig_make(&(rig_options){ .n = 4 });

    (void)state;
    rig_run_well(g, oob_rounds, &all);
    rig_run_well(g, oob_rounds, &some);
    rig_run_well(g, oob_rounds, &two);
    rig_run_well(g, oob_rounds, &all);
    rig_free(g);
}

static void test_rounds_work_on_a_failed_engine_without_the_dead(void **state)
{
    round_args rest = { { true, false, true }, 6 };
    rig *g = rig_make(&(rig_options){ .n = 3 });

    (void)state;
    for (int r = 0; r < 3; r += 2) {
        motet_engine_peer_died(&g->engine[r], 1);
        (void)motet_engine_fail(&g->engine[r], MOTET_ERR_REMOTE, 1, "gone");
    }
    rig_run_well(g, oob_rounds, &rest);
    rig_free(g);
}

static motet_result one_round(rig *g, int rank, size_t bytes, uint64_t deadline_ns,
        const _Atomic uint32_t *cancel)
{
    static const bool everybody[RIG_RANKS] = { true, true, true, true };
    uint8_t all[RIG_RANKS * MOTET_OOB_MAX];
    uint8_t mine[MOTET_OOB_MAX] = { 0 };

    return motet_engine_oob(&g->engine[rank], everybody, mine, bytes, all, deadline_ns,
            cancel);
}

static void test_a_round_that_cannot_end_says_why(void **state)
{
    _Atomic uint32_t cancel = 1;
    uint64_t far = motet_deadline_after_s(3600);
    rig *g = rig_make(&(rig_options){ .n = 3 });

    (void)state;
    assert_int_equal(one_round(g, 0, 8, motet_now_ns() + 30 * MOTET_NS_PER_MS, NULL),
            MOTET_ERR_REMOTE);
    assert_non_null(strstr(motet_error_trail(), "rank 1 (pid 10001) has not made"));
    assert_int_equal(one_round(g, 0, 8, far, &cancel), MOTET_ERR_REMOTE);
    assert_non_null(strstr(motet_error_trail(), "aborted here"));
    /* The second death counts as much as the first. */
    motet_engine_peer_died(&g->engine[0], 2);
    motet_engine_peer_died(&g->engine[0], 1);
    assert_int_equal(one_round(g, 0, 8, far, NULL), MOTET_ERR_REMOTE);
    assert_non_null(strstr(motet_error_trail(), "rank 1 (pid 10001) has died"));
    rig_free(g);

    g = rig_make(&(rig_options){ .n = 2 });
    atomic_store(&g->arena[1][1].head->life, MOTET_LIFE_LEFT);
    assert_int_equal(one_round(g, 0, 8, far, NULL), MOTET_ERR_REMOTE);
    assert_non_null(strstr(motet_error_trail(), "rank 1 has destroyed"));
    assert_int_equal(one_round(g, 0, MOTET_OOB_MAX + 1, far, NULL), MOTET_ERR_INTERNAL);
    rig_free(g);
}

static void other_sizes(rig_rank *rank)
{
    rig_keep(rank,
            one_round(rank->g, rank->rank, rank->rank == 1 ? 8 : 16,
                    motet_deadline_after_s(20), NULL));
}

static void test_rounds_of_different_calls_do_not_mix(void **state)
{
    rig_rank ranks[RIG_RANKS];
    rig *g = rig_make(&(rig_options){ .n = 2 });

    (void)state;
    rig_run(g, other_sizes, NULL, ranks);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(ranks[r].result, MOTET_ERR_USAGE);
        assert_non_null(strstr(ranks[r].text, "makes another call"));
    }
    rig_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_of_every_size_arrive),
        cmocka_unit_test(test_ranks_that_send_to_each_other_first_do_not_wait_for_ever),
        cmocka_unit_test(test_all_to_all_of_unequal_sizes),
        cmocka_unit_test(test_a_rank_sends_to_itself),
        cmocka_unit_test(test_a_send_to_self_needs_its_receive),
        cmocka_unit_test(test_ends_that_differ_in_size_both_fail),
        cmocka_unit_test(test_nothing_is_sent_to_a_rank_that_is_gone),
        cmocka_unit_test(test_a_message_of_a_rank_that_left_can_be_received),
        cmocka_unit_test(test_a_receive_whose_send_never_comes_meets_its_deadline),
        cmocka_unit_test(test_rounds_among_all_and_among_some),
        cmocka_unit_test(test_rounds_work_on_a_failed_engine_without_the_dead),
        cmocka_unit_test(test_a_round_that_cannot_end_says_why),
        cmocka_unit_test(test_rounds_of_different_calls_do_not_mix),
    };

    return cmocka_run_group_tests_name("pairs", tests, NULL, NULL);
}
