/* SPDX-License-Identifier: Apache-2.0 */
/*
 * src/find in scratch trees: each test has a folder that stands before /opt, and copies
 * of small libraries (find_copy.c) in it. The finder is compiled in as an engine would.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "find_rig.h"

#include <elf.h>

static const char *const wanted[] = { "find_probe", "find_second", NULL };

static int setup(void **state)
{
    (void)state;
    if (start(&motet_find_hip) != 0)
        return -1;
    request.symbols = wanted;
    request.override.variable = "THE_LIB";
    request.roots[0].variable = "DTK_ROOT";
    request.roots[1].variable = "ROCM_PATH";
    return 0;
}

/* What is mapped. */

static void use_of_a_mapped_copy(const char *kind, const char *path, int flags)
{
    void *mine = dlopen(put(kind, path), RTLD_NOW | flags);

    assert_non_null(mine);
    put(GOOD, "/opt/rocm/lib/libamdhip64.so.7");
    request.override.value = "/nowhere.so";
    expect_found(at(path), MOTET_FIND_MAPPED);
    assert_ptr_equal(report.handle, mine);
    expect_row(at(path), MOTET_FIND_TAKEN, "");
    expect_row("/nowhere.so", MOTET_FIND_NOT_TRIED, "has mapped");
    assert_int_equal(dlclose(mine), 0);
}

static void test_a_mapped_copy_is_used_whatever_its_path(void **state)
{
    (void)state;
    use_of_a_mapped_copy(GOOD, "/venv/torch/lib/libamdhip64.so.6", RTLD_GLOBAL);
    use_of_a_mapped_copy(GOOD, "/private/libamdhip64.so.5.2.3", RTLD_GLOBAL);
}

static void test_a_mapped_copy_is_used_whatever_its_soname(void **state)
{
    (void)state;
    use_of_a_mapped_copy(PLAIN, "/venv/torch/lib/libamdhip64.so", RTLD_GLOBAL);
    use_of_a_mapped_copy(PLAIN, "/opt/dtk/lib/libgalaxyhip.so.5", RTLD_GLOBAL);
}

static void test_a_copy_mapped_rtld_local_is_used(void **state)
{
    (void)state;
    use_of_a_mapped_copy(GOOD, "/here/libamdhip64.so.6", RTLD_LOCAL);
}

static void test_a_mapped_copy_that_lacks_a_symbol_is_refused(void **state)
{
    void *mine = dlopen(put(LAME, "/a/libamdhip64.so.6"), RTLD_NOW);

    (void)state;
    assert_non_null(mine);
    put(GOOD, "/opt/rocm/lib/libamdhip64.so.6");
    expect_outcome(MOTET_FIND_REFUSED);
    expect_row(at("/a/libamdhip64.so.6"), MOTET_FIND_LACKS, "lacks symbol find_second");
    assert_int_equal(report.num_candidates, 1);
    assert_int_equal(dlclose(mine), 0);
}

static void test_two_mapped_copies_are_refused_by_name(void **state)
{
    void *a = dlopen(put(GOOD, "/a/libamdhip64.so.6"), RTLD_NOW);
    void *b = dlopen(put(PLAIN, "/b/libamdhip64.so"), RTLD_NOW);

    (void)state;
    assert_non_null(a);
    assert_non_null(b);
    expect_outcome(MOTET_FIND_TWO);
    assert_non_null(strstr(report.sentence, at("/a/libamdhip64.so.6")));
    assert_non_null(strstr(report.sentence, at("/b/libamdhip64.so")));
    assert_int_equal(report.num_candidates, 2);
    assert_int_equal(dlclose(a), 0);
    assert_int_equal(dlclose(b), 0);
}

static void test_other_names_are_no_copies(void **state)
{
    void *mine = dlopen(put(GOOD, "/a/libamdhip64.sound.so"), RTLD_NOW);

    (void)state;
    assert_non_null(mine);
    expect_outcome(MOTET_FIND_NONE);
    assert_int_equal(dlclose(mine), 0);
}

/* Overrides. */

static void test_an_override_is_used_before_everything(void **state)
{
    (void)state;
    put(GOOD, "/opt/rocm/lib/libamdhip64.so.7");
    request.roots[1].value = at("/opt/rocm");
    request.override.value = put(PLAIN, "/mine/any name.so");
    expect_found(at("/mine/any name.so"), MOTET_FIND_OVERRIDE);
    assert_int_equal(report.num_candidates, 1);
    expect_words("THE_LIB names it");
}

/* Refused with @p detail, and the good copy in /opt/rocm was not looked at. */
static void expect_override_refused(const char *path, motet_find_verdict verdict,
        const char *detail)
{
    request.override.value = path;
    expect_outcome(MOTET_FIND_REFUSED);
    assert_int_equal(report.num_candidates, 1);
    expect_row(path, verdict, detail);
    expect_words("; it is authoritative, nothing else was tried");
    assert_non_null(strstr(report.sentence, path));
    assert_non_null(strstr(report.sentence, detail));
}

static void test_an_override_that_cannot_be_used_says_why_and_stops(void **state)
{
    const unsigned char class = ELFCLASS32;
    const uint16_t machine = EM_MIPS, type = ET_REL;
    const char *path;

    (void)state;
    put(GOOD, "/opt/rocm/lib/libamdhip64.so.7");
    expect_override_refused(at("/absent.so"), MOTET_FIND_ABSENT, "");
    assert_non_null(strstr(report.sentence, "no such file"));
    expect_override_refused(at("/opt"), MOTET_FIND_UNREADABLE, "a folder");
    expect_override_refused(put(NEEDY, "/needy.so"), MOTET_FIND_NOT_LOADED,
            "libmotetfindneeded.so");
    expect_override_refused(put(LAME, "/lame.so"), MOTET_FIND_LACKS, "find_second");
    path = put(GOOD, "/class.so");
    put_bytes(path, EI_CLASS, &class, 1);
    expect_override_refused(path, MOTET_FIND_WRONG_FILE,
            "32-bit, this process is 64-bit");
    path = put(GOOD, "/machine.so");
    put_bytes(path, offsetof(Elf64_Ehdr, e_machine), &machine, 2);
    expect_override_refused(path, MOTET_FIND_WRONG_FILE, "for ELF machine 8");
    path = put(GOOD, "/object.so");
    put_bytes(path, offsetof(Elf64_Ehdr, e_type), &type, 2);
    expect_override_refused(path, MOTET_FIND_WRONG_FILE, "no shared object");
    path = at("/script.so");
    put_bytes(path, 0, "INPUT(libamdhip64.so.7)\n", 24);
    expect_override_refused(path, MOTET_FIND_WRONG_FILE, "not an ELF file");
    path = at("/pipe.so");
    assert_int_equal(mkfifo(path, 0644), 0);
    expect_override_refused(path, MOTET_FIND_UNREADABLE, "not a regular file");
    path = at("/loop.so");
    assert_int_equal(symlink(path, path), 0);
    expect_override_refused(path, MOTET_FIND_UNREADABLE, "symbolic links");
    request.override.value = "";
    expect_found(at("/opt/rocm/lib/libamdhip64.so.7"), MOTET_FIND_INSTALLED);
}

static void test_an_unreadable_file_is_named_with_its_mode(void **state)
{
    const char *path = put(GOOD, "/closed.so");
    uid_t me = geteuid();

    (void)state;
    assert_int_equal(chmod(path, 0), 0);
    if (me == 0)
        assert_int_equal(seteuid(65534), 0);
    expect_override_refused(path, MOTET_FIND_UNREADABLE,
            "Permission denied (mode 0000");
    if (me == 0)
        assert_int_equal(seteuid(0), 0);
}

/* Configured roots. */

static void test_a_configured_root_is_searched_in_order(void **state)
{
    static const char *const paths[] = { "/r/hip/lib/libamdhip64.so.7",
        "/r/lib64/sys/libamdhip64.so.6", "/r/lib64/libamdhip64.so.5",
        "/r/lib/rocm_sysdeps/libamdhip64.so.5", "/r/lib/libgalaxyhip.so.5",
        "/r/lib/libamdhip64.so.6", "/r/lib/libamdhip64.so.7" };

    (void)state;
    put(GOOD, "/opt/rocm/lib/libamdhip64.so.7");
    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
        put(GOOD, paths[i]);
        request.roots[1].value =
                at("/r/hip//"); /* HIP_PATH is often ROCm's folder hip */
        expect_found(at(paths[i]), MOTET_FIND_CONFIGURED);
        request.roots[1].value = at("/r/");
        expect_found(at(paths[i]), MOTET_FIND_CONFIGURED);
        expect_words("ROCM_PATH=");
    }
}

static void test_the_first_configured_root_that_is_set_decides(void **state)
{
    (void)state;
    put(GOOD, "/a/lib/libamdhip64.so.7");
    put(GOOD, "/b/lib/libamdhip64.so.7");
    request.roots[0].value = "";
    request.roots[1].value = at("/b");
    request.roots[2] = (motet_find_setting){ "HIP_PATH", at("/a") };
    expect_found(at("/b/lib/libamdhip64.so.7"), MOTET_FIND_CONFIGURED);
    request.roots[0].value = at("/c");
    expect_outcome(MOTET_FIND_REFUSED);
}

static void test_an_empty_configured_root_lists_what_it_could_have(void **state)
{
    (void)state;
    put(GOOD, "/opt/rocm/lib/libamdhip64.so.7");
    request.roots[1].value = at("/gone");
    expect_outcome(MOTET_FIND_REFUSED);
    assert_int_equal(report.num_candidates, 8);
    expect_row(at("/gone/lib/libamdhip64.so.7"), MOTET_FIND_ABSENT, "");
    expect_row(at("/gone/lib64/libgalaxyhip.so.5"), MOTET_FIND_ABSENT, "");
    expect_words(
            "No such file or directory; it is authoritative, nothing else was tried");
    make_folders(at("/gone/lib/"));
    expect_outcome(MOTET_FIND_REFUSED);
    expect_words("has no libamdhip64.so.7, libamdhip64.so.6, libamdhip64.so.5 or "
                 "libgalaxyhip.so.5 in its library folders");
    expect_no_words(at("/opt/rocm"));
}

static void test_a_configured_root_takes_the_newest_of_its_family(void **state)
{
    (void)state;
    put(GOOD, "/r/core-7.9/lib/libamdhip64.so.7");
    put(GOOD, "/r/core-7.12/lib/libamdhip64.so.7");
    put(GOOD, "/r/core-7/lib/libamdhip64.so.7");
    request.roots[1].value = at("/r");
    expect_found(at("/r/core-7.12/lib/libamdhip64.so.7"), MOTET_FIND_CONFIGURED);
    assert_int_equal(symlink("core-7.9", at("/r/core")), 0);
    expect_found(at("/r/core/lib/libamdhip64.so.7"), MOTET_FIND_CONFIGURED);
}

static void test_a_root_whose_first_copy_is_bad_gives_its_next(void **state)
{
    (void)state;
    put(GOOD, "/r/lib64/libamdhip64.so.6");
    put_bytes(at("/r/lib/libamdhip64.so.7"), 0, "no", 2);
    assert_int_equal(symlink("libamdhip64.so.7", at("/r/lib/libamdhip64.so.6")), 0);
    assert_int_equal(symlink("gone", at("/r/lib/libamdhip64.so.5")), 0);
    request.roots[1].value = at("/r");
    expect_found(at("/r/lib64/libamdhip64.so.6"), MOTET_FIND_CONFIGURED);
    expect_row(at("/r/lib/libamdhip64.so.7"), MOTET_FIND_WRONG_FILE, "not an ELF file");
    expect_row(at("/r/lib/libamdhip64.so.5"), MOTET_FIND_ABSENT, "");
    assert_int_equal(report.num_candidates,
            3); /* the link to .so.7 is not tried again */
}

static void test_a_root_with_pattern_characters_is_taken_as_it_is(void **state)
{
    (void)state;
    put(GOOD, "/r[1]*?/lib/x/libamdhip64.so.7");
    request.roots[1].value = at("/r[1]*?");
    expect_found(at("/r[1]*?/lib/x/libamdhip64.so.7"), MOTET_FIND_CONFIGURED);
}

static void test_a_path_that_is_too_long_is_absent(void **state)
{
    static char longest[2 * MOTET_FIND_PATH_MAX];

    (void)state;
    memset(longest, 'x', sizeof(longest) - 1);
    longest[0] = '/';
    request.override.value = longest;
    expect_outcome(MOTET_FIND_REFUSED);
    request.override.value = NULL;
    request.roots[1].value = longest;
    expect_outcome(MOTET_FIND_REFUSED);
}

/* Installs. */

static void test_an_unversioned_install_selects(void **state)
{
    (void)state;
    put(GOOD, "/opt/rocm-7.9.0/lib/libamdhip64.so.7");
    put(GOOD, "/opt/rocm-7.14.0/lib/libamdhip64.so.7");
    assert_int_equal(symlink("rocm-7.9.0", at("/opt/rocm")), 0);
    expect_found(at("/opt/rocm/lib/libamdhip64.so.7"), MOTET_FIND_INSTALLED);
    expect_row(at("/opt/rocm-7.14.0"), MOTET_FIND_NOT_TRIED,
            "to use it set ROCM_PATH=");
    expect_row(at("/opt/dtk"), MOTET_FIND_ABSENT, "");
}

static void test_the_only_versioned_install_is_used(void **state)
{
    (void)state;
    put(GOOD, "/opt/rocm-7.1.0/lib/libamdhip64.so.7");
    make_folders(at("/opt/rocm-6.4.0/lib/"));
    make_folders(at("/opt/rocm/bin/"));
    expect_found(at("/opt/rocm-7.1.0/lib/libamdhip64.so.7"), MOTET_FIND_INSTALLED);
    expect_row(at("/opt/rocm-6.4.0"), MOTET_FIND_ABSENT, "without the library");
    expect_row(at("/opt/rocm"), MOTET_FIND_ABSENT, "without the library");
}

static void test_several_installs_without_a_selector_are_refused(void **state)
{
    (void)state;
    put(GOOD, "/opt/rocm-7.9.0/lib/libamdhip64.so.7");
    put(GOOD, "/opt/rocm-7.14.0/lib/libamdhip64.so.7");
    expect_outcome(MOTET_FIND_AMBIGUOUS);
    expect_words("2 installs have AMD's HIP runtime, ");
    expect_words("nothing selects one: set ROCM_PATH=");
    assert_int_equal(report.num_candidates, 3);
    assert_string_equal(report.candidates[1].path, at("/opt/rocm-7.14.0"));
    assert_string_equal(report.candidates[2].path, at("/opt/rocm-7.9.0"));
    request.roots[1].value = at("/opt/rocm-7.9.0");
    expect_found(at("/opt/rocm-7.9.0/lib/libamdhip64.so.7"), MOTET_FIND_CONFIGURED);
}

static void test_one_library_behind_several_names_is_not_ambiguous(void **state)
{
    (void)state;
    put(GOOD, "/opt/rocm-7.14.0/lib/libamdhip64.so.7");
    assert_int_equal(symlink("rocm-7.14.0", at("/opt/rocm-7")), 0);
    expect_found(at("/opt/rocm-7.14.0/lib/libamdhip64.so.7"), MOTET_FIND_INSTALLED);
}

static void test_two_vendors_are_not_mixed(void **state)
{
    (void)state;
    put(GOOD, "/opt/dtk-25.04/lib/libgalaxyhip.so.5");
    expect_found(at("/opt/dtk-25.04/lib/libgalaxyhip.so.5"), MOTET_FIND_INSTALLED);
    put(GOOD, "/opt/rocm/lib/libamdhip64.so.7");
    expect_outcome(MOTET_FIND_AMBIGUOUS);
    expect_words("set ROCM_PATH=");
    expect_row(at("/opt/dtk-25.04"), MOTET_FIND_NOT_TRIED, "set DTK_ROOT=");
}

static void test_the_selected_install_is_final(void **state)
{
    (void)state;
    put(NEEDY, "/opt/rocm/lib/libamdhip64.so.7");
    put(GOOD, "/opt/rocm-7.1.0/lib/libamdhip64.so.7");
    library.by_name = true;
    expect_outcome(MOTET_FIND_REFUSED);
    expect_words("libmotetfindneeded.so");
    expect_words(" decides, and its copy of AMD's HIP runtime cannot be used: ");
    expect_row(at("/opt/rocm-7.1.0"), MOTET_FIND_NOT_TRIED, "");
}

static void test_a_copy_that_lacks_a_symbol_ends_the_search(void **state)
{
    (void)state;
    put(LAME, "/opt/rocm/lib/libamdhip64.so.7");
    put(GOOD, "/opt/rocm/lib/libamdhip64.so.6");
    expect_outcome(MOTET_FIND_REFUSED);
    expect_row(at("/opt/rocm/lib/libamdhip64.so.7"), MOTET_FIND_LACKS, "find_second");
    expect_no_words("libamdhip64.so.6 (");
    request.symbols = NULL;
    expect_found(at("/opt/rocm/lib/libamdhip64.so.7"), MOTET_FIND_INSTALLED);
}

static void test_none_is_a_value_with_a_hint(void **state)
{
    (void)state;
    expect_outcome(MOTET_FIND_NONE);
    expect_words("AMD's HIP runtime was not found: no libamdhip64.so.7, ");
    expect_words(" in /opt/rocm, /opt/rocm-*, /opt/dtk, /opt/dtk-*; install ROCm");
    expect_row(at("/opt/rocm"), MOTET_FIND_ABSENT, "");
}

static void test_more_candidates_than_a_report_lists_are_counted_and_tried(void **state)
{
    char path[64];

    (void)state;
    for (int i = 0; i < MOTET_FIND_CANDIDATES_MAX + 5; i++) {
        snprintf(path, sizeof(path), "/r/lib/%03d/libamdhip64.so.7", 900 - i);
        put_bytes(at(path), 0, "no", 2);
    }
    put(GOOD, "/r/lib64/libamdhip64.so.7");
    request.roots[1].value = at("/r");
    expect_found(at("/r/lib64/libamdhip64.so.7"), MOTET_FIND_CONFIGURED);
    assert_int_equal(report.num_candidates, MOTET_FIND_CANDIDATES_MAX);
    assert_int_equal(report.num_more, 6);
    expect_words("and 6 more");
}

/* The linker's own search: LD_LIBRARY_PATH is the folder of copies. */

static const char *const linker_names[] = { "libmotetfindabsent.so.1",
    "libmotetfindlinked.so.1", NULL };
static const char *const needy_names[] = { "libmotetfindabsent.so.1", "needy.so",
    NULL };

static void test_the_linker_is_asked_last(void **state)
{
    (void)state;
    library.names = linker_names;
    expect_outcome(MOTET_FIND_NONE);
    library.by_name = true;
    expect_outcome(MOTET_FIND_FOUND);
    assert_int_equal(report.origin, MOTET_FIND_LINKER);
    assert_non_null(strstr(report.path, "/libmotetfindlinked.so.1"));
    expect_row("libmotetfindabsent.so.1", MOTET_FIND_ABSENT, "cannot open");
    expect_row("libmotetfindlinked.so.1", MOTET_FIND_TAKEN, "");
    assert_int_equal(dlclose(report.handle), 0);
}

static void test_what_the_linker_finds_but_cannot_load_is_said(void **state)
{
    (void)state;
    library.names = needy_names;
    library.by_name = true;
    expect_outcome(MOTET_FIND_REFUSED);
    expect_words("the linker finds a copy of AMD's HIP runtime that cannot be used: "
                 "needy.so: libmotetfindneeded.so");
}

/* The report. */

static void test_the_text_is_cut_at_the_buffer_and_its_length_is_not(void **state)
{
    char small[10];
    size_t whole;

    (void)state;
    expect_outcome(MOTET_FIND_NONE);
    whole = strlen(text);
    memset(small, 'x', sizeof(small));
    assert_int_equal(motet_find_text(&report, small, sizeof(small)), whole);
    assert_memory_equal(small, text, sizeof(small) - 1);
    assert_int_equal(small[sizeof(small) - 1], 0);
    assert_int_equal(motet_find_text(&report, NULL, 0), whole);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_mapped_copy_is_used_whatever_its_path),
        TEST(test_a_mapped_copy_is_used_whatever_its_soname),
        TEST(test_a_copy_mapped_rtld_local_is_used),
        TEST(test_a_mapped_copy_that_lacks_a_symbol_is_refused),
        TEST(test_two_mapped_copies_are_refused_by_name),
        TEST(test_other_names_are_no_copies),
        TEST(test_an_override_is_used_before_everything),
        TEST(test_an_override_that_cannot_be_used_says_why_and_stops),
        TEST(test_an_unreadable_file_is_named_with_its_mode),
        TEST(test_a_configured_root_is_searched_in_order),
        TEST(test_the_first_configured_root_that_is_set_decides),
        TEST(test_an_empty_configured_root_lists_what_it_could_have),
        TEST(test_a_configured_root_takes_the_newest_of_its_family),
        TEST(test_a_root_whose_first_copy_is_bad_gives_its_next),
        TEST(test_a_root_with_pattern_characters_is_taken_as_it_is),
        TEST(test_a_path_that_is_too_long_is_absent),
        TEST(test_an_unversioned_install_selects),
        TEST(test_the_only_versioned_install_is_used),
        TEST(test_several_installs_without_a_selector_are_refused),
        TEST(test_one_library_behind_several_names_is_not_ambiguous),
        TEST(test_two_vendors_are_not_mixed),
        TEST(test_the_selected_install_is_final),
        TEST(test_a_copy_that_lacks_a_symbol_ends_the_search),
        TEST(test_none_is_a_value_with_a_hint),
        TEST(test_more_candidates_than_a_report_lists_are_counted_and_tried),
        TEST(test_the_linker_is_asked_last),
        TEST(test_what_the_linker_finds_but_cannot_load_is_said),
        TEST(test_the_text_is_cut_at_the_buffer_and_its_length_is_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
