/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas: where their parts lie, whose they are, and who may write them. */
#include "transport/arena.h"

#include "base/segment.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define NONCE 0x1122334455667788ull

static motet_arena_shape shape_of(int nranks)
{
    return (motet_arena_shape){ .nranks = nranks,
        .board_chunk = nranks <= 64 ? 4096 : 8192,
        .pair_chunk = 4096 };
}

static motet_arena create(const motet_arena_shape *shape, int rank, int *fd_out)
{
    motet_arena arena = { 0 };
    motet_result result = motet_arena_create(shape, rank, NONCE, &arena, fd_out);

    if (result != MOTET_OK)
        fail_msg("rank %d of %d: %s", rank, shape->nranks, motet_error_trail());
    return arena;
}

/* A part of an arena, as an interval of addresses. */
typedef struct part {
    const void *start;
    size_t bytes;
} part;

static void check_inside(const motet_arena *arena, part p, part *before)
{
    uintptr_t start = (uintptr_t)p.start, base = (uintptr_t)arena->head;

    assert_true(start >= base && start + p.bytes <= base + arena->bytes);
    assert_true(start >= (uintptr_t)before->start + before->bytes);
    *before = p;
}

/* Every part in the order in which they lie, none over another. */
static void check_layout(const motet_arena *arena, const motet_arena_shape *shape)
{
    part before = { arena->head, 0 };

    check_inside(arena, (part){ arena->head, sizeof(*arena->head) }, &before);
    for (int peer = 0; peer < shape->nranks; peer++)
        check_inside(arena, (part){ &arena->pair[peer], sizeof(motet_pair) }, &before);
    for (uint64_t p = 0; p < MOTET_BOARD_SLOTS; p++)
        check_inside(arena, (part){ motet_arena_chunk(arena, p), shape->board_chunk },
                &before);
    for (int peer = 0; peer < shape->nranks; peer++)
        for (uint64_t p = 0; p < MOTET_PAIR_SLOTS; p++)
            check_inside(arena,
                    (part){ motet_pair_chunk(arena, peer, p), shape->pair_chunk },
                    &before);
    assert_int_equal((uintptr_t)before.start + before.bytes,
            (uintptr_t)arena->head + arena->bytes);
}

static void test_parts_do_not_overlap_for_any_number_of_ranks(void **state)
{
    (void)state;
    for (int n = 1; n <= 128; n++) {
        motet_arena_shape shape = shape_of(n);
        int fd;
        motet_arena arena = create(&shape, n - 1, &fd);

        assert_int_equal(arena.bytes, motet_arena_bytes(&shape));
        check_layout(&arena, &shape);
        motet_arena_release(&arena);
        close(fd);
    }
}

static void test_chunks_start_pages_and_slots_start_lines(void **state)
{
    motet_arena_shape shape = shape_of(5);
    int fd;
    motet_arena arena = create(&shape, 0, &fd);

    (void)state;
    for (uint64_t p = 0; p < 40; p++) {
        assert_int_equal((uintptr_t)motet_arena_chunk(&arena, p) % 4096, 0);
        assert_int_equal((uintptr_t)motet_arena_slot(&arena, p) % MOTET_LINE, 0);
        assert_int_equal((uintptr_t)motet_pair_chunk(&arena, 3, p) % 4096, 0);
        assert_int_equal((uintptr_t)motet_pair_slot(&arena, 3, p) % MOTET_LINE, 0);
    }
    assert_int_equal((uintptr_t)&arena.head->done % MOTET_LINE, 0);
    assert_int_equal((uintptr_t)&arena.pair[4].taken % MOTET_LINE, 0);
    motet_arena_release(&arena);
    close(fd);
}

static void test_positions_share_a_slot_only_a_whole_ring_apart(void **state)
{
    static const uint64_t starts[] = { 0, 2147483640ull, 4294967290ull,
        INT64_MAX - 20ull, UINT64_MAX - 40 };
    motet_arena_shape shape = shape_of(2);
    int fd;
    motet_arena a = create(&shape, 0, &fd);

    (void)state;
    for (size_t i = 0; i < sizeof(starts) / sizeof(*starts); i++)
        for (uint64_t d = 1; d <= MOTET_BOARD_SLOTS; d++) {
            uint64_t p = starts[i];

            assert_true((motet_arena_slot(&a, p) == motet_arena_slot(&a, p + d)) ==
                    (d == MOTET_BOARD_SLOTS));
            assert_true((motet_arena_chunk(&a, p) == motet_arena_chunk(&a, p + d)) ==
                    (d == MOTET_BOARD_SLOTS));
            assert_true((motet_pair_slot(&a, 1, p) == motet_pair_slot(&a, 1, p + d)) ==
                    (d % MOTET_PAIR_SLOTS == 0));
            assert_true(
                    (motet_pair_chunk(&a, 1, p) == motet_pair_chunk(&a, 1, p + d)) ==
                    (d % MOTET_PAIR_SLOTS == 0));
        }
    motet_arena_release(&a);
    close(fd);
}

static void test_what_the_owner_writes_is_seen_where_it_is_mapped(void **state)
{
    motet_arena_shape shape = shape_of(3);
    int fd;
    motet_arena own = create(&shape, 1, &fd), theirs = { 0 };

    (void)state;
    assert_int_equal(motet_arena_map(&shape, 1, NONCE, fd, &theirs), MOTET_OK);
    assert_ptr_not_equal(own.head, theirs.head);
    assert_int_equal(theirs.head->failed_rank, -1);
    memset(motet_arena_chunk(&own, 21), 0xab, shape.board_chunk);
    memset(motet_pair_chunk(&own, 2, 7), 0xcd, shape.pair_chunk);
    motet_arena_slot(&own, 21)->fingerprint = 77;
    assert_memory_equal(motet_arena_chunk(&theirs, 21), motet_arena_chunk(&own, 21),
            shape.board_chunk);
    assert_memory_equal(motet_pair_chunk(&theirs, 2, 7), motet_pair_chunk(&own, 2, 7),
            shape.pair_chunk);
    assert_int_equal(motet_arena_slot(&theirs, 21)->fingerprint, 77);
    motet_arena_release(&own);
    /* The mapping outlives the owner's. */
    assert_int_equal(motet_arena_slot(&theirs, 21)->fingerprint, 77);
    motet_arena_release(&theirs);
    motet_arena_release(&theirs);
    close(fd);
}

static void test_an_arena_of_somebody_else_is_refused(void **state)
{
    static const struct {
        const char *what;
        int rank;
        uint64_t nonce;
        motet_arena_shape shape;
    } wrong[] = {
        { "rank", 1, NONCE, { 4, 8192, 8192 } },
        { "nonce", 2, NONCE + 1, { 4, 8192, 8192 } },
        { "number of ranks", 2, NONCE, { 3, 8192, 8192 } },
        { "board chunk", 2, NONCE, { 4, 4096, 8192 } },
        { "pair chunk", 2, NONCE, { 4, 8192, 4096 } },
        { "size", 2, NONCE, { 128, 8192, 8192 } },
    };
    const motet_arena_shape shape = { 4, 8192, 8192 };
    int fd;
    motet_arena own = create(&shape, 2, &fd), out = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        motet_result result = motet_arena_map(&wrong[i].shape, wrong[i].rank,
                wrong[i].nonce, fd, &out);

        if (result != MOTET_ERR_SYSTEM || out.head != NULL)
            fail_msg("another %s: result %d", wrong[i].what, (int)result);
        assert_non_null(strstr(motet_error_trail(), "segment"));
    }
    assert_int_equal(motet_arena_map(&shape, 2, NONCE, fd, &out), MOTET_OK);
    motet_arena_release(&out);
    motet_arena_release(&own);
    close(fd);
}

static void test_a_segment_that_is_no_arena_is_refused(void **state)
{
    const motet_arena_shape shape = { 2, 4096, 4096 };
    size_t bytes = motet_arena_bytes(&shape);
    motet_arena out = { 0 };
    void *map;
    int fd, unsealed = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    (void)state;
    assert_int_equal(motet_segment_create("foreign", bytes, &map, &fd), MOTET_OK);
    assert_int_equal(motet_arena_map(&shape, 0, 0, fd, &out), MOTET_ERR_SYSTEM);
    assert_non_null(strstr(motet_error_trail(), "does not hold a version"));
    assert_true(unsealed >= 0 && ftruncate(unsealed, (off_t)bytes) == 0);
    assert_int_equal(motet_arena_map(&shape, 0, 0, unsealed, &out), MOTET_ERR_SYSTEM);
    assert_int_equal(motet_arena_map(&shape, 0, 0, -1, &out), MOTET_ERR_SYSTEM);
    assert_null(out.head);
    motet_segment_unmap(map, bytes);
    close(fd);
    close(unsealed);
}

/* How a child ends that stores one byte at @p at. */
static int status_of_a_store(uint8_t *at)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL); /* sanitizers handle it */
        prctl(PR_SET_DUMPABLE, 0);
        __atomic_store_n(at, 1, __ATOMIC_RELAXED);
        _exit(0);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void test_a_peer_cannot_write_what_it_has_mapped(void **state)
{
    motet_arena_shape shape = shape_of(2);
    int fd;
    motet_arena own = create(&shape, 0, &fd), theirs = { 0 };
    motet_arena *arena[2] = { &own, &theirs };

    (void)state;
    assert_int_equal(motet_arena_map(&shape, 0, NONCE, fd, &theirs), MOTET_OK);
    for (int i = 0; i < 2; i++) {
        uint8_t *places[] = { (uint8_t *)arena[i]->head, (uint8_t *)arena[i]->pair,
            arena[i]->board, arena[i]->pair_data,
            (uint8_t *)arena[i]->head + arena[i]->bytes - 1 };

        for (size_t k = 0; k < sizeof(places) / sizeof(*places); k++) {
            int status = status_of_a_store(places[k]);

            if (i == 0)
                assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
            else
                assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
        }
    }
    motet_arena_release(&own);
    motet_arena_release(&theirs);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_do_not_overlap_for_any_number_of_ranks),
        cmocka_unit_test(test_chunks_start_pages_and_slots_start_lines),
        cmocka_unit_test(test_positions_share_a_slot_only_a_whole_ring_apart),
        cmocka_unit_test(test_what_the_owner_writes_is_seen_where_it_is_mapped),
        cmocka_unit_test(test_an_arena_of_somebody_else_is_refused),
        cmocka_unit_test(test_a_segment_that_is_no_arena_is_refused),
        cmocka_unit_test(test_a_peer_cannot_write_what_it_has_mapped),
    };

    return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}
