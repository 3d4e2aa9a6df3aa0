/* SPDX-License-Identifier: Apache-2.0 */
/* What is remembered of paths: lines, what they say, and the file, which others may have
 * spoilt or write at the same time. */
#include "transport/history.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define FOLDER "/tmp/motet-history-XXXXXX"

static char folder[sizeof(FOLDER)];

static int make_folder(void **state)
{
    (void)state;
    memcpy(folder, FOLDER, sizeof(folder));
    return mkdtemp(folder) == NULL;
}

static void path_in(char path[PATH_MAX], const char *name)
{
    snprintf(path, PATH_MAX, "%s/%s", folder, name);
}

static int drop_folder(void **state)
{
    char path[PATH_MAX];

    (void)state;
    path_in(path, "paths");
    (void)unlink(path);
    path_in(path, "deeper/still/paths");
    (void)unlink(path);
    path_in(path, "deeper/still");
    (void)rmdir(path);
    path_in(path, "deeper");
    (void)rmdir(path);
    return rmdir(folder);
}

static motet_history_line line_of(motet_history_kind kind, const char *one,
        const char *other)
{
    motet_history_line line = motet_history_begin(kind, "amd-60200-60200", "1.2-abc");

    motet_history_set_pair(&line, one, other);
    if (kind == MOTET_HISTORY_VETO) {
        motet_history_set(&line, MOTET_HISTORY_PATH, "direct");
        motet_history_set(&line, MOTET_HISTORY_PROTOCOL, "ll");
        motet_history_set(&line, MOTET_HISTORY_WHY, "late");
    }
    return line;
}

static void add(motet_history_line line)
{
    assert_int_equal(motet_history_add(folder, &line, 1, false), MOTET_OK);
}

static motet_history load(void)
{
    motet_history history;

    assert_int_equal(motet_history_load(folder, &history), MOTET_OK);
    return history;
}

/* ---- lines ---- */

static void test_a_line_is_read_as_it_was_written(void **state)
{
    char text[MOTET_HISTORY_LINE + 1], long_word[300];
    motet_history_line line = line_of(MOTET_HISTORY_VETO, "b", "a"), seen;
    size_t n;

    (void)state;
    memset(long_word, 'x', sizeof(long_word) - 1);
    long_word[sizeof(long_word) - 1] = '\0';
    motet_history_set(&line, MOTET_HISTORY_DRIVER, "two words\n");
    motet_history_set(&line, MOTET_HISTORY_BUILD, "");
    motet_history_set(&line, MOTET_HISTORY_WHY, long_word);
    assert_string_equal(line.word[MOTET_HISTORY_DRIVER], "two_words_");
    assert_string_equal(line.word[MOTET_HISTORY_BUILD], "-");
    assert_string_equal(line.word[MOTET_HISTORY_A], "a");
    assert_string_equal(line.word[MOTET_HISTORY_B], "b");
    assert_int_equal(strlen(line.word[MOTET_HISTORY_WHY]), MOTET_HISTORY_WORD - 1);
    n = motet_history_format(&line, text);
    assert_int_equal(text[n - 1], '\n');
    assert_true(motet_history_parse(text, n - 1, &seen));
    assert_int_equal(seen.kind, line.kind);
    for (int i = 0; i < MOTET_HISTORY_NUM_WORDS; i++)
        assert_string_equal(seen.word[i], line.word[i]);
}

static void test_what_is_no_line_is_left_out(void **state)
{
    static const char text[] = "veto 1 2 3 4 5 6 7 8\n"
                               "veto 1 2 3 4 5 6 7\n"     /* a word less      */
                               "veto 1 2 3 4 5 6 7 8 9\n" /* a word more      */
                               "veto 1 2 3 4 5 6 7 8 \n"
                               "veto  1 2 3 4 5 6 7 8\n"
                               "vetoed 1 2 3 4 5 6 7 8\n"
                               "\n"
                               "veto 1 2 3 4 5 6 7 \x80\n"
                               "touch 1 2 3 4 5 6 7 8"; /* not ended: still one */
    motet_history history;

    (void)state;
    assert_int_equal(motet_history_read(text, sizeof(text) - 1, &history), MOTET_OK);
    assert_int_equal(history.count, 2);
    assert_int_equal(history.line[1].kind, MOTET_HISTORY_TOUCH);
    motet_history_free(&history);
}

/* ---- what they say ---- */

static bool hung(motet_history_line now)
{
    motet_history history = load();
    bool answer = motet_history_hung(&history, &now);

    motet_history_free(&history);
    return answer;
}

static void test_a_touch_hangs_until_it_came_back(void **state)
{
    motet_history_line touch = line_of(MOTET_HISTORY_TOUCH, "b", "a"), other = touch,
                       gone = touch, before = touch;

    (void)state;
    assert_false(hung(touch));
    add(touch);
    assert_false(hung(touch)); /* by this process, which still runs */
    motet_history_set(&gone, MOTET_HISTORY_START, "1");
    add(gone);
    assert_true(hung(touch));
    motet_history_set_pair(&other, "a", "c");
    assert_false(hung(other));
    other = touch;
    motet_history_set(&other, MOTET_HISTORY_BUILD, "1.3");
    assert_false(hung(other));
    other = touch;
    motet_history_set(&other, MOTET_HISTORY_HOST, "elsewhere");
    assert_false(hung(other));
    add(line_of(MOTET_HISTORY_TOUCHED, "a", "b"));
    assert_false(hung(touch));
    motet_history_set(&before, MOTET_HISTORY_BOOT, "the-boot-before");
    add(before);
    assert_true(hung(touch));
}

static void test_vetoes_are_those_of_this_boot_driver_build_and_pair(void **state)
{
    motet_history_line now = line_of(MOTET_HISTORY_TOUCH, "a", "b");

    (void)state;
    for (int i = MOTET_HISTORY_BOOT; i < MOTET_HISTORY_PATH; i++) {
        motet_history_line line = line_of(MOTET_HISTORY_VETO, "b", "a");

        assert_true(motet_history_fits(&line, &now));
        motet_history_set(&line, i, "another");
        assert_false(motet_history_fits(&line, &now));
    }
}

/* ---- the file ---- */

static void test_nothing_is_remembered_twice(void **state)
{
    motet_history history;

    (void)state;
    history = load(); /* there is no file */
    assert_int_equal(history.count, 0);
    motet_history_free(&history);
    for (int i = 0; i < 3; i++)
        add(line_of(MOTET_HISTORY_VETO, "a", "b"));
    history = load();
    assert_int_equal(history.count, 1);
    motet_history_free(&history);
}

static void test_lines_are_added_together(void **state)
{
    const motet_history_line lines[] = { line_of(MOTET_HISTORY_TOUCH, "a", "b"),
        line_of(MOTET_HISTORY_TOUCH, "a", "c"), line_of(MOTET_HISTORY_TOUCH, "a", "b"),
        line_of(MOTET_HISTORY_TOUCHED, "a", "c") };
    motet_history history;

    (void)state;
    assert_int_equal(motet_history_add(folder, lines, 4, true), MOTET_OK);
    history = load();
    assert_int_equal(history.count, 3);
    assert_int_equal(history.line[2].kind, MOTET_HISTORY_TOUCHED);
    assert_true(motet_history_touched(&history, &lines[1]));
    assert_false(motet_history_touched(&history, &lines[0]));
    motet_history_free(&history);
}

static void test_the_file_is_the_user_s_alone(void **state)
{
    char path[PATH_MAX], other[PATH_MAX];
    motet_history_line line = line_of(MOTET_HISTORY_VETO, "a", "b");
    struct stat status;
    motet_history history;

    (void)state;
    add(line);
    path_in(path, "paths");
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    path_in(other, "other");
    assert_int_equal(rename(path, other), 0);
    assert_int_equal(symlink(other, path), 0);
    assert_int_equal(motet_history_add(folder, &line, 1, false), MOTET_ERR_SYSTEM);
    assert_int_equal(motet_history_load(folder, &history), MOTET_ERR_SYSTEM);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(motet_history_load(folder, &history), MOTET_ERR_SYSTEM);
    assert_non_null(strstr(motet_error_trail(), "no file of this user's"));
    assert_int_equal(unlink(other), 0);
    motet_error_clear();
}

static void test_folders_are_made_and_a_missing_one_is_an_error(void **state)
{
    motet_history_line line = line_of(MOTET_HISTORY_VETO, "a", "b");
    char path[PATH_MAX];
    motet_history history;

    (void)state;
    path_in(path, "deeper/still");
    assert_int_equal(motet_history_add(path, &line, 1, true), MOTET_OK);
    assert_int_equal(motet_history_load(path, &history), MOTET_OK);
    assert_int_equal(history.count, 1);
    motet_history_free(&history);
    assert_int_equal(motet_history_add("/dev/null/none", &line, 1, false),
            MOTET_ERR_SYSTEM);
    motet_error_clear();
}

static void test_a_torn_line_does_not_spoil_the_next(void **state)
{
    char path[PATH_MAX];
    motet_history history;
    FILE *file;

    (void)state;
    path_in(path, "paths");
    file = fopen(path, "w");
    assert_non_null(file);
    fputs("veto half of", file);
    assert_int_equal(fclose(file), 0);
    add(line_of(MOTET_HISTORY_VETO, "a", "b"));
    history = load();
    assert_int_equal(history.count, 1);
    motet_history_free(&history);
}

/* As others write it, without looking whether there is room. */
static void append(FILE *file, motet_history_line line, const char *boot)
{
    char text[MOTET_HISTORY_LINE + 1];
    size_t n;

    motet_history_set(&line, MOTET_HISTORY_BOOT, boot);
    n = motet_history_format(&line, text);
    assert_int_equal(fwrite(text, 1, n, file), n);
}

static void test_a_full_file_keeps_what_counts(void **state)
{
    const motet_history_line touch = line_of(MOTET_HISTORY_TOUCH, "x", "y");
    const motet_history_line veto = line_of(MOTET_HISTORY_VETO, "a", "b");
    const motet_history_line more = line_of(MOTET_HISTORY_VETO, "a", "c");
    motet_history history;
    char path[PATH_MAX];
    FILE *file;

    (void)state;
    path_in(path, "paths");
    file = fopen(path, "w");
    assert_non_null(file);
    append(file, touch, "the-boot-before");
    append(file, veto, veto.word[MOTET_HISTORY_BOOT]);
    for (int i = 2; i < MOTET_HISTORY_LINES; i++)
        append(file, veto, "the-boot-before");
    assert_int_equal(fclose(file), 0);
    add(more);
    history = load();
    assert_int_equal(history.count, 3);
    assert_true(motet_history_hung(&history, &touch));
    assert_true(motet_history_fits(&history.line[1], &veto));
    assert_true(motet_history_fits(&history.line[2], &more));
    motet_history_free(&history);
}

enum { WRITERS = 6, WRITES = 20 };

static void *write_some(void *arg)
{
    int writer = *(const int *)arg;

    for (int i = 0; i < WRITES; i++) {
        motet_history_line line = line_of(MOTET_HISTORY_VETO, "a", "b");
        char word[32];

        snprintf(word, sizeof(word), "%d-%d", writer, i);
        motet_history_set(&line, MOTET_HISTORY_WHY, word);
        if (motet_history_add(folder, &line, 1, false) != MOTET_OK)
            return arg;
    }
    return NULL;
}

static void test_several_write_at_once(void **state)
{
    pthread_t thread[WRITERS];
    int number[WRITERS];
    motet_history history;

    (void)state;
    for (int i = 0; i < WRITERS; i++) {
        number[i] = i;
        assert_int_equal(pthread_create(&thread[i], NULL, write_some, &number[i]), 0);
    }
    for (int i = 0; i < WRITERS; i++) {
        void *failed;

        assert_int_equal(pthread_join(thread[i], &failed), 0);
        assert_null(failed);
    }
    history = load();
    assert_int_equal(history.count, WRITERS * WRITES);
    motet_history_free(&history);
}

static void test_a_lock_that_stays_is_an_error_in_bounded_time(void **state)
{
    motet_history_line line = line_of(MOTET_HISTORY_VETO, "a", "b");
    motet_history history;
    char path[PATH_MAX];
    int fd;

    (void)state;
    add(line);
    path_in(path, "paths");
    fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(motet_history_load(folder, &history), MOTET_ERR_SYSTEM);
    assert_non_null(strstr(motet_error_trail(), "locked"));
    motet_error_clear();
    close(fd);
}

static void set_text(motet_params *params, motet_param_id id, const char *text)
{
    snprintf(params->value[id].text, sizeof(params->value[id].text), "%s", text);
}

static void test_the_folder_is_the_setting_s_or_a_standard_one(void **state)
{
    static const struct {
        const char *own, *xdg, *home, *expected;
    } cases[] = {
        { "/own", "/xdg", "/home/u", "/own" },
        { "", "/xdg", "/home/u", "/xdg/motet" },
        { "", "", "/home/u", "/home/u/.local/state/motet" },
        { "", "relative", "/home/u", "/home/u/.local/state/motet" },
        { "", "", "", "" },
    };
    static motet_params params;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char dir[PATH_MAX];

        set_text(&params, MOTET_P_STATE_DIR, cases[i].own);
        set_text(&params, MOTET_P_XDG_STATE_HOME, cases[i].xdg);
        set_text(&params, MOTET_P_HOME, cases[i].home);
        motet_history_dir(&params, dir, sizeof(dir));
        assert_string_equal(dir, cases[i].expected);
    }
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, drop_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_line_is_read_as_it_was_written),
        cmocka_unit_test(test_what_is_no_line_is_left_out),
        IN_FOLDER(test_a_touch_hangs_until_it_came_back),
        cmocka_unit_test(test_vetoes_are_those_of_this_boot_driver_build_and_pair),
        IN_FOLDER(test_nothing_is_remembered_twice),
        IN_FOLDER(test_lines_are_added_together),
        IN_FOLDER(test_the_file_is_the_user_s_alone),
        IN_FOLDER(test_folders_are_made_and_a_missing_one_is_an_error),
        IN_FOLDER(test_a_torn_line_does_not_spoil_the_next),
        IN_FOLDER(test_a_full_file_keeps_what_counts),
        IN_FOLDER(test_several_write_at_once),
        IN_FOLDER(test_a_lock_that_stays_is_an_error_in_bounded_time),
        cmocka_unit_test(test_the_folder_is_the_setting_s_or_a_standard_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
