/* SPDX-License-Identifier: Apache-2.0 */
/* Reading recorder files: short, torn, foreign and hostile ones. */
#include "../fuzz/snapshot_invariants.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define HEADER_BYTES offsetof(motet_trace_file, op)

static motet_trace_file good;
static motet_trace_snapshot seen;

static motet_trace_op *record_of(motet_trace_file *file, uint64_t seq)
{
    return &file->op[(seq - 1) % MOTET_TRACE_OPS];
}

/* A file in which @p begun operations have begun, the last of which runs. */
static void fill_good(motet_trace_file *file, uint64_t begun)
{
    memset(file, 0, sizeof(*file));
    file->magic = MOTET_TRACE_MAGIC;
    file->version = MOTET_TRACE_VERSION;
    file->header_bytes = HEADER_BYTES;
    file->op_bytes = sizeof(motet_trace_op);
    file->ops = MOTET_TRACE_OPS;
    file->rank = 2;
    file->nranks = 4;
    file->pid = 4711;
    file->begun = begun;
    snprintf(file->host, sizeof(file->host), "node7");
    snprintf(file->failure, sizeof(file->failure), "not yet true");
    for (uint64_t n = 0; n < MOTET_TRACE_OPS && n < begun; n++) {
        motet_trace_op *op = record_of(file, begun - n);

        op->seq = begun - n;
        op->count = 1000 + begun - n;
        op->kind = MOTET_BROADCAST;
        op->type = MOTET_BFLOAT16;
        op->start_ns = 5000;
        op->end_ns = n == 0 ? 0 : 6000;
        op->state = n == 0 ? MOTET_TRACE_RUNNING : MOTET_TRACE_DONE;
        op->peer = 1;
        op->waits_for = -1;
    }
}

static void parse_good(const void *data, size_t bytes)
{
    if (motet_trace_parse(data, bytes, &seen) != MOTET_OK)
        fail_msg("%s", motet_error_trail());
    if (snapshot_broken(&seen) != NULL)
        fail_msg("%s", snapshot_broken(&seen));
}

static void test_a_good_file_comes_back_sorted(void **state)
{
    static const uint64_t begun[] = { 0, 1, 2, 255, 256, 257, 511, 512, 513, 100000,
        1ull << 32, (1ull << 32) + 1 };

    (void)state;
    for (size_t i = 0; i < sizeof(begun) / sizeof(*begun); i++) {
        uint64_t expected = begun[i] < MOTET_TRACE_OPS ? begun[i] : MOTET_TRACE_OPS;

        fill_good(&good, begun[i]);
        parse_good(&good, sizeof(good));
        assert_int_equal(seen.ops, expected);
        assert_string_equal(seen.file.host, "node7");
        for (unsigned k = 0; k < seen.ops; k++) {
            assert_true(seen.file.op[k].seq == begun[i] - expected + 1 + k);
            assert_true(seen.file.op[k].count == 1000 + seen.file.op[k].seq);
        }
    }
}

static void test_what_is_no_recorder_file_is_refused_with_the_reason(void **state)
{
    static const struct {
        size_t at;
        int32_t value; /* stored there, 4 bytes */
        const char *words;
    } cases[] = {
        { offsetof(motet_trace_file, magic), 0x1234, "not a recorder file" },
        { offsetof(motet_trace_file, version), MOTET_TRACE_VERSION + 1, "version 3" },
        { offsetof(motet_trace_file, version), 0, "version 0" },
        { offsetof(motet_trace_file, header_bytes), 64, "this build reads" },
        { offsetof(motet_trace_file, op_bytes), 65, "x 65 bytes" },
        { offsetof(motet_trace_file, ops), 0x7fffffff, "2147483647 x" },
        { offsetof(motet_trace_file, nranks), 0, "rank 2 of 0" },
        { offsetof(motet_trace_file, nranks), -4, "of -4" },
        { offsetof(motet_trace_file, rank), 4, "rank 4 of 4" },
        { offsetof(motet_trace_file, rank), -1, "rank -1" },
        { offsetof(motet_trace_file, pid), 0, "pid 0" },
        { offsetof(motet_trace_file, begun) + 4, -1, "corrupt" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        motet_result result;

        fill_good(&good, 300);
        memcpy((char *)&good + cases[i].at, &cases[i].value, sizeof(cases[i].value));
        memset(&seen, 0x5a, sizeof(seen));
        result = motet_trace_parse(&good, sizeof(good), &seen);
        assert_int_equal(result, MOTET_ERR_ARGUMENT);
        if (strstr(motet_error_trail(), cases[i].words) == NULL)
            fail_msg("case %zu: '%s' is not in '%s'", i, cases[i].words,
                    motet_error_trail());
        for (size_t k = 0; k < sizeof(seen); k++)
            assert_int_equal(((unsigned char *)&seen)[k], 0x5a); /* untouched */
    }
}

static void test_a_file_cut_anywhere_gives_what_is_whole(void **state)
{
    size_t rest = HEADER_BYTES;

    (void)state;
    fill_good(&good, 256);
    for (size_t bytes = 0; bytes < HEADER_BYTES; bytes += 7)
        assert_int_equal(motet_trace_parse(&good, bytes, &seen), MOTET_ERR_ARGUMENT);
    assert_non_null(strstr(motet_error_trail(), "too short"));
    for (size_t bytes = HEADER_BYTES; bytes < sizeof(good); bytes += 13) {
        /* An exact copy, so that AddressSanitizer sees the first byte beyond. */
        char *cut = malloc(bytes);

        memcpy(cut, &good, bytes);
        parse_good(cut, bytes);
        assert_int_equal(seen.ops, (bytes - rest) / sizeof(motet_trace_op));
        free(cut);
    }
}

static void test_records_that_make_no_sense_are_left_out(void **state)
{
    static const struct {
        size_t at;
        uint8_t value;
    } cases[] = {
        { offsetof(motet_trace_op, kind), MOTET_NUM_KINDS },
        { offsetof(motet_trace_op, kind), 255 },
        { offsetof(motet_trace_op, type), MOTET_NUM_TYPES },
        { offsetof(motet_trace_op, state), MOTET_TRACE_EMPTY },
        { offsetof(motet_trace_op, state), MOTET_TRACE_FAILED + 1 },
        { offsetof(motet_trace_op, seq) + 7, 1 },     /* far ahead            */
        { offsetof(motet_trace_op, seq), 300 & 255 }, /* another slot's number */
        { offsetof(motet_trace_op, seq) + 1, 0 },     /* a round ago: 290 → 34 */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        fill_good(&good, 300);
        memcpy((char *)record_of(&good, 290) + cases[i].at, &cases[i].value, 1);
        parse_good(&good, sizeof(good));
        if (seen.ops != MOTET_TRACE_OPS - 1)
            fail_msg("case %zu: %u records", i, seen.ops);
        for (unsigned k = 0; k < seen.ops; k++)
            assert_int_not_equal(seen.file.op[k].seq, 290);
    }
}

static void test_a_record_being_written_is_left_out(void **state)
{
    (void)state;
    fill_good(&good, 300);
    record_of(&good, 300)->seq = 0;
    parse_good(&good, sizeof(good));
    assert_int_equal(seen.ops, MOTET_TRACE_OPS - 1);
    /* Visible before the count of operations says so: */
    fill_good(&good, 300);
    good.begun = 299;
    parse_good(&good, sizeof(good));
    assert_int_equal(seen.file.begun, 300);
    assert_int_equal(seen.file.op[seen.ops - 1].seq, 300);
}

static void test_numbers_out_of_range_become_unknown(void **state)
{
    motet_trace_op *op;

    (void)state;
    fill_good(&good, 300);
    op = record_of(&good, 300);
    op->peer = 4;
    op->waits_for = -2;
    op->redop = 200; /* a broadcast has none */
    op->end_ns = 7;  /* and runs */
    good.failed = 77;
    good.closed = 5;
    parse_good(&good, sizeof(good));
    op = &seen.file.op[seen.ops - 1];
    assert_int_equal(op->peer, -1);
    assert_int_equal(op->waits_for, -1);
    assert_int_equal(op->redop, MOTET_SUM);
    assert_int_equal(op->end_ns, 0);
    assert_int_equal(seen.file.failed, MOTET_ERR_INTERNAL);
    assert_int_equal(seen.file.closed, 1);
    record_of(&good, 300)->kind = MOTET_ALL_REDUCE; /* which has an operator */
    parse_good(&good, sizeof(good));
    assert_int_equal(seen.ops, MOTET_TRACE_OPS - 1);
}

static void test_the_sentence_counts_only_with_the_failure(void **state)
{
    (void)state;
    fill_good(&good, 3);
    parse_good(&good, sizeof(good));
    assert_string_equal(seen.file.failure, "");
    good.failed = MOTET_ERR_REMOTE;
    parse_good(&good, sizeof(good));
    assert_string_equal(seen.file.failure, "not yet true");
}

static void test_texts_are_ended_and_safe_for_a_terminal(void **state)
{
    static const struct {
        const char *raw, *clean;
    } cases[] = {
        { "plain text", "plain text" },
        { "red \033[31m", "red ?[31m" },
        { "two\nlines\ttab\177", "two?lines?tab?" },
        { "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8e\xb5",
                "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8e\xb5" },
        { "C1 \xc2\x9b"
          "31m",
                "C1 ??31m" },
        { "overlong \xc0\xaf \xe0\x80\xaf", "overlong ?? ???" },
        { "surrogate \xed\xa0\x80", "surrogate ???" },
        { "beyond \xf4\x90\x80\x80", "beyond ????" },
        { "cut \xe2\x82", "cut ??" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        fill_good(&good, 1);
        snprintf(good.comm_name, sizeof(good.comm_name), "%s", cases[i].raw);
        parse_good(&good, sizeof(good));
        assert_string_equal(seen.file.comm_name, cases[i].clean);
    }
    memset(good.host, 'h', sizeof(good.host));
    parse_good(&good, sizeof(good));
    assert_int_equal(strlen(seen.file.host), sizeof(good.host) - 1);
}

static void test_unaligned_bytes_are_read_too(void **state)
{
    static char shifted[sizeof(motet_trace_file) + 8];

    (void)state;
    fill_good(&good, 300);
    for (size_t by = 1; by < 8; by++) {
        memcpy(shifted + by, &good, sizeof(good));
        parse_good(shifted + by, sizeof(good));
        assert_int_equal(seen.ops, MOTET_TRACE_OPS);
    }
}

static void test_flipped_bytes_never_break_a_promise(void **state)
{
    uint64_t random = 88172645463325252ull;
    unsigned accepted = 0;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        fill_good(&good, (uint64_t)(round % 700));
        for (int k = 0; k < 1 + round % 9; k++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            ((uint8_t *)&good)[random % sizeof(good)] = (uint8_t)(random >> 40);
        }
        if (motet_trace_parse(&good, sizeof(good), &seen) != MOTET_OK)
            continue;
        accepted++;
        if (snapshot_broken(&seen) != NULL)
            fail_msg("round %d: %s", round, snapshot_broken(&seen));
    }
    assert_true(accepted > 10000);
}

static void test_reading_a_path_names_it_when_it_fails(void **state)
{
    char path[] = "/tmp/motet-snapshot-XXXXXX";
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(motet_trace_read(path, &seen), MOTET_ERR_ARGUMENT);
    assert_non_null(strstr(motet_error_trail(), path));
    assert_non_null(strstr(motet_error_trail(), "too short"));
    fill_good(&good, 300);
    assert_int_equal(write(fd, &good, sizeof(good)), sizeof(good));
    assert_int_equal(motet_trace_read(path, &seen), MOTET_OK);
    assert_string_equal(seen.path, path);
    assert_int_equal(seen.ops, MOTET_TRACE_OPS);
    close(fd);
    unlink(path);
    assert_int_equal(motet_trace_read(path, &seen), MOTET_ERR_SYSTEM);
    assert_non_null(strstr(motet_error_trail(), "No such file"));
}

static void test_the_last_sign_is_the_latest_of_all_times(void **state)
{
    (void)state;
    fill_good(&good, 3);
    good.created_ns = 10;
    good.heartbeat_ns = 20;
    parse_good(&good, sizeof(good));
    assert_true(motet_trace_last_sign_ns(&seen) == 6000);
    seen.file.heartbeat_ns = 7000;
    assert_true(motet_trace_last_sign_ns(&seen) == 7000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_good_file_comes_back_sorted),
        cmocka_unit_test(test_what_is_no_recorder_file_is_refused_with_the_reason),
        cmocka_unit_test(test_a_file_cut_anywhere_gives_what_is_whole),
        cmocka_unit_test(test_records_that_make_no_sense_are_left_out),
        cmocka_unit_test(test_a_record_being_written_is_left_out),
        cmocka_unit_test(test_numbers_out_of_range_become_unknown),
        cmocka_unit_test(test_the_sentence_counts_only_with_the_failure),
        cmocka_unit_test(test_texts_are_ended_and_safe_for_a_terminal),
        cmocka_unit_test(test_unaligned_bytes_are_read_too),
        cmocka_unit_test(test_flipped_bytes_never_break_a_promise),
        cmocka_unit_test(test_reading_a_path_names_it_when_it_fails),
        cmocka_unit_test(test_the_last_sign_is_the_latest_of_all_times),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
