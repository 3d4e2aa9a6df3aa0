/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The finder on RCCL and NCCL: hipfire's policy as rules (amd-hosts.md 2.2 and 16), in
 * scratch trees. The finder is compiled in as an engine would.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "find_rig_lib.h"

/* The candidates are these, in this order; the list ends with NULL. */
static void expect_candidates(const char *const *paths)
{
    size_t num = 0;

    for (; paths[num] != NULL; num++)
        if (num >= report.num_candidates ||
                strcmp(report.candidates[num].path, at(paths[num])) != 0)
            fail_msg("candidate %zu is not %s in:\n%s", num, at(paths[num]), text);
    assert_int_equal(report.num_candidates, num);
}

/* A whole SDK at top/path, without RCCL. */
static void put_sdk(const char *path)
{
    static const char *const files[] = { "include/hip/hip_runtime.h",
        "lib/libamdhip64.so.7", "bin/hipcc", "lib/libhsa-runtime64.so.1" };
    char file[256];

    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        snprintf(file, sizeof(file), "%s/%s", path, files[i]);
        make_folders(at(file));
        put_bytes(at(file), 0, "x", 1);
    }
}

static void put_link(const char *to, const char *path)
{
    make_folders(at(path));
    assert_int_equal(symlink(to, at(path)), 0);
}

/* Configured roots. */

static void test_a_root_with_one_file_gives_that_file(void **state)
{
    (void)state;
    put(GOOD, "/r/lib/librccl.so.1");
    set(0, "ROCM_PATH", at("/r"));
    ask(&motet_find_rccl, NULL);
    expect_found(at("/r/lib/librccl.so.1"), MOTET_FIND_CONFIGURED);
    expect_candidates((const char *const[]){ "/r/lib/librccl.so.1", NULL });
    assert_string_equal(report.root, at("/r"));
    assert_int_equal(report.num_ambiguous, 0);
}

static void test_a_file_one_level_down_is_found(void **state)
{
    (void)state;
    put(GOOD, "/r/lib/rocm_sysdeps/librccl.so");
    set(0, "ROCM_PATH", at("/r"));
    ask(&motet_find_rccl, NULL);
    expect_found(at("/r/lib/rocm_sysdeps/librccl.so"), MOTET_FIND_CONFIGURED);
    expect_candidates((const char *const[]){ "/r/lib/rocm_sysdeps/librccl.so", NULL });
}

static void test_a_root_with_none_names_six_paths_and_the_hint(void **state)
{
    (void)state;
    make_folders(at("/r/lib/"));
    set(0, "HIPFIRE_ROCM_PATH", at("/r"));
    ask(&motet_find_rccl, "hipfire");
    expect_outcome(MOTET_FIND_REFUSED);
    expect_candidates((const char *const[]){ "/r/lib/librccl.so", "/r/lib/librccl.so.1",
            "/r/lib/librccl.so.1.0", "/r/lib64/librccl.so", "/r/lib64/librccl.so.1",
            "/r/lib64/librccl.so.1.0", NULL });
    expect_row(at("/r/lib64/librccl.so.1.0"), MOTET_FIND_ABSENT, "");
    expect_words("HIPFIRE_ROCM_PATH=");
    expect_words("it is authoritative, nothing else was tried for RCCL");
    expect_words("is RCCL installed (apt install rccl, or /opt/rocm/lib/librccl.so.1)? "
                 "If it lives outside the ROCm root, set "
                 "HIPFIRE_RCCL_LIB=/path/to/librccl.so");
}

static void test_an_empty_variable_is_skipped_and_a_last_hip_dropped(void **state)
{
    (void)state;
    put(GOOD, "/opt/rocm/lib/librccl.so");
    set(0, "HIPFIRE_ROCM_PATH", "");
    set(1, "ROCM_PATH", at("/opt/rocm/hip"));
    ask(&motet_find_rccl, "hipfire");
    expect_found(at("/opt/rocm/lib/librccl.so"), MOTET_FIND_CONFIGURED);
    assert_string_equal(report.root, at("/opt/rocm"));
}

static void test_a_wrong_root_is_not_fallen_through(void **state)
{
    (void)state;
    put(GOOD, "/opt/rocm/lib/librccl.so");
    set(0, "HIPFIRE_ROCM_PATH", at("/nonexistent"));
    set(1, "ROCM_PATH", at("/opt/rocm"));
    ask(&motet_find_rccl, "hipfire");
    expect_outcome(MOTET_FIND_REFUSED);
    assert_string_equal(report.root, at("/nonexistent"));
    expect_words("No such file or directory; it is authoritative");
    expect_row(at("/nonexistent/lib/librccl.so"), MOTET_FIND_ABSENT, "");
    expect_row(at("/opt/rocm/lib/librccl.so"), MOTET_FIND_NOT_TRIED,
            "to use it set HIPFIRE_RCCL_LIB=");
}

static void test_folders_and_names_have_their_order(void **state)
{
    static const char *const paths[] = { "/r/lib/librccl.so", "/r/lib/librccl.so.1",
        "/r/lib/librccl.so.1.0", "/r/lib/b-2.10/librccl.so", "/r/lib/b-2.9/librccl.so",
        "/r/lib64/librccl.so.1", "/r/lib64/sys/librccl.so", NULL };

    (void)state;
    for (size_t i = 0; paths[i] != NULL; i++)
        put(GOOD, paths[i]);
    set(0, "ROCM_PATH", at("/r"));
    ask(&motet_find_rccl, NULL);
    expect_found(at(paths[0]), MOTET_FIND_CONFIGURED);
    expect_candidates(paths);
    expect_row(at(paths[6]), MOTET_FIND_NOT_TRIED, "to use it set MOTET_RCCL_LIB=");
}

static void test_the_first_of_a_root_that_loads_is_taken(void **state)
{
    (void)state;
    put(NEEDY, "/r/lib/librccl.so");
    put(GOOD, "/r/lib64/librccl.so");
    set(0, "ROCM_PATH", at("/r"));
    ask(&motet_find_rccl, NULL);
    expect_found(at("/r/lib64/librccl.so"), MOTET_FIND_CONFIGURED);
    expect_row(at("/r/lib/librccl.so"), MOTET_FIND_NOT_LOADED, "libmotetfindneeded.so");
}

static void test_a_root_whose_copies_do_not_load_is_refused(void **state)
{
    (void)state;
    put(NEEDY, "/r/lib/librccl.so");
    put(GOOD, "/opt/rocm/lib/librccl.so");
    set(0, "ROCM_PATH", at("/r"));
    ask(&motet_find_rccl, NULL);
    expect_outcome(MOTET_FIND_REFUSED);
    expect_words("libmotetfindneeded.so");
    expect_row(at("/opt/rocm/lib/librccl.so"), MOTET_FIND_NOT_TRIED, "to use it set ");
}

static void test_families_are_ordered_as_integers(void **state)
{
    (void)state;
    put(GOOD, "/r/core-7/lib/librccl.so");
    put(GOOD, "/r/core-7.9/lib/librccl.so");
    put(GOOD, "/r/core-7.14/lib/librccl.so");
    set(0, "ROCM_PATH", at("/r"));
    ask(&motet_find_rccl, NULL);
    expect_found(at("/r/core-7.14/lib/librccl.so"), MOTET_FIND_CONFIGURED);
    put_link("core-7.9", "/r/core");
    expect_found(at("/r/core/lib/librccl.so"), MOTET_FIND_CONFIGURED);
}

static void test_a_family_below_the_selector_is_no_choice(void **state)
{
    (void)state;
    put(GOOD, "/opt/rocm/core-7.9/lib/librccl.so");
    put(GOOD, "/opt/rocm/core-7.14/lib/librccl.so");
    put(GOOD, "/opt/rocm-7.1.0/lib/librccl.so");
    ask(&motet_find_rccl, NULL);
    expect_found(at("/opt/rocm/core-7.14/lib/librccl.so"), MOTET_FIND_INSTALLED);
    assert_string_equal(report.root, at("/opt/rocm/core-7.14"));
    put_link("core-7.9", "/opt/rocm/core");
    expect_found(at("/opt/rocm/core/lib/librccl.so"), MOTET_FIND_INSTALLED);
}

/* One that is taken is listed, however many were looked at before it. */
static void test_the_chosen_one_stands_in_a_full_report(void **state)
{
    char path[64];

    (void)state;
    for (int i = 0; i < MOTET_FIND_CANDIDATES_MAX + 2; i++) {
        snprintf(path, sizeof(path), "/r/lib/%03d/librccl.so", i);
        put(NEEDY, path);
    }
    put(GOOD, "/r/lib64/librccl.so");
    set(0, "ROCM_PATH", at("/r"));
    ask(&motet_find_rccl, NULL);
    expect_found(at("/r/lib64/librccl.so"), MOTET_FIND_CONFIGURED);
    assert_int_equal(report.num_candidates, MOTET_FIND_CANDIDATES_MAX);
    assert_int_equal(report.num_more, 3);
    expect_row(at("/r/lib64/librccl.so"), MOTET_FIND_TAKEN, "");
}

/* Cut off, it would be another path. */
static void test_a_path_that_is_too_long_is_refused(void **state)
{
    static char path[MOTET_FIND_PATH_MAX + 16];

    (void)state;
    for (size_t i = 0; i + 1 < sizeof(path); i++)
        path[i] = i % 2 == 0 ? '/' : 'x';
    set(0, "ROCM_PATH", path);
    ask(&motet_find_rccl, NULL);
    expect_outcome(MOTET_FIND_REFUSED);
    assert_int_equal(report.num_candidates, 0);
    expect_words("ROCM_PATH is a path longer than 1023 bytes; it is authoritative");
    request.override = (motet_find_setting){ "MOTET_RCCL_LIB", path };
    expect_outcome(MOTET_FIND_REFUSED);
    expect_words("MOTET_RCCL_LIB is a path longer than 1023 bytes");
    request.override.value = NULL;
    path[MOTET_FIND_PATH_MAX - 9] = 0;
    expect_outcome(MOTET_FIND_REFUSED);
    assert_int_equal(report.num_candidates, 6);
    assert_int_equal(report.candidates[0].verdict, MOTET_FIND_UNREADABLE);
    expect_words("the paths of its files are longer than 1023 bytes");
}

static void test_dtk_is_a_root_of_its_own(void **state)
{
    (void)state;
    put(GOOD, "/opt/dtk/lib/librccl.so.1");
    ask(&motet_find_rccl, NULL);
    expect_found(at("/opt/dtk/lib/librccl.so.1"), MOTET_FIND_INSTALLED);
    put(GOOD, "/dtk/lib64/librccl.so.1");
    set(0, "DTK_ROOT", at("/dtk"));
    set(1, "ROCM_PATH", at("/gone"));
    ask(&motet_find_rccl, NULL);
    expect_found(at("/dtk/lib64/librccl.so.1"), MOTET_FIND_CONFIGURED);
}

/* Overrides. */

static void test_an_override_that_loads_ends_the_search(void **state)
{
    (void)state;
    make_folders(at("/merged/lib/"));
    put(GOOD, "/nix/store/c8dc-rccl-7.2.3/lib/librccl.so");
    set(0, "HIPFIRE_RCCL_LIB", at("/nix/store/c8dc-rccl-7.2.3/lib/librccl.so"));
    set(1, "HIPFIRE_ROCM_PATH", at("/merged"));
    ask(&motet_find_rccl, "hipfire");
    expect_found(at("/nix/store/c8dc-rccl-7.2.3/lib/librccl.so"), MOTET_FIND_OVERRIDE);
    assert_int_equal(report.num_candidates, 1);
    expect_words("HIPFIRE_RCCL_LIB names it");
}

static void test_an_override_that_does_not_load_stops_with_the_reason(void **state)
{
    (void)state;
    put(GOOD, "/opt/rocm/lib/librccl.so");
    set(0, "HIPFIRE_RCCL_LIB", put(NEEDY, "/mine/librccl.so"));
    set(1, "ROCM_PATH", at("/opt/rocm"));
    ask(&motet_find_rccl, "hipfire");
    expect_outcome(MOTET_FIND_REFUSED);
    expect_words("libmotetfindneeded.so: cannot open shared object file");
    expect_row(at("/opt/rocm/lib/librccl.so"), MOTET_FIND_NOT_TRIED, "to use it set ");
    assert_int_equal(report.num_candidates, 2);
    set(0, "HIPFIRE_RCCL_LIB", at("/gone.so"));
    ask(&motet_find_rccl, "hipfire");
    expect_outcome(MOTET_FIND_REFUSED);
    expect_words("no such file; it is authoritative, nothing else was tried for RCCL");
}

static void test_an_override_belongs_to_its_client(void **state)
{
    (void)state;
    put(GOOD, "/opt/rocm/lib/librccl.so");
    put(GOOD, "/a/librccl.so");
    put(GOOD, "/b/librccl.so");
    set(0, "HIPFIRE_RCCL_LIB", at("/a/librccl.so"));
    ask(&motet_find_rccl, NULL);
    expect_found(at("/opt/rocm/lib/librccl.so"), MOTET_FIND_INSTALLED);
    ask(&motet_find_rccl, "vllm");
    expect_found(at("/opt/rocm/lib/librccl.so"), MOTET_FIND_INSTALLED);
    ask(&motet_find_rccl, "hipfire");
    expect_found(at("/a/librccl.so"), MOTET_FIND_OVERRIDE);
    set(1, "VLLM_NCCL_SO_PATH", at("/b/librccl.so"));
    ask(&motet_find_rccl, "vllm");
    expect_found(at("/b/librccl.so"), MOTET_FIND_OVERRIDE);
    set(2, "MOTET_RCCL_LIB", at("/b/librccl.so"));
    ask(&motet_find_rccl, "hipfire");
    expect_found(at("/b/librccl.so"), MOTET_FIND_OVERRIDE);
    expect_words("MOTET_RCCL_LIB names it");
}

/* Installs. */

static void test_two_whole_versions_without_a_selector_are_refused(void **state)
{
    (void)state;
    put_sdk("/opt/rocm-7.9.0");
    put_sdk("/opt/rocm-7.14.0");
    put(GOOD, "/opt/rocm-7.9.0/lib/librccl.so");
    put(GOOD, "/opt/rocm-7.14.0/lib/librccl.so");
    ask(&motet_find_rccl, "hipfire");
    expect_outcome(MOTET_FIND_AMBIGUOUS);
    assert_int_equal(report.num_candidates, 0);
    assert_string_equal(report.root, "");
    assert_int_equal(report.num_ambiguous, 2);
    assert_string_equal(report.ambiguous[0], at("/opt/rocm-7.14.0"));
    assert_string_equal(report.ambiguous[1], at("/opt/rocm-7.9.0"));
    expect_words("nothing selects one: set HIPFIRE_ROCM_PATH=");
    put_link("rocm-7.9.0", "/opt/rocm");
    expect_found(at("/opt/rocm/lib/librccl.so"), MOTET_FIND_INSTALLED);
    assert_string_equal(report.root, at("/opt/rocm"));
}

static void test_an_sdk_counts_also_without_the_library(void **state)
{
    (void)state;
    put_sdk("/opt/rocm-7.9.0");
    put_sdk("/opt/rocm-7.14.0");
    put(GOOD, "/opt/rocm-7.9.0/lib/librccl.so");
    ask(&motet_find_rccl, NULL);
    expect_outcome(MOTET_FIND_AMBIGUOUS);
    put_sdk("/opt/rocm");
    expect_outcome(MOTET_FIND_NONE);
    assert_string_equal(report.root, at("/opt/rocm"));
    expect_row(at("/opt/rocm/lib/librccl.so"), MOTET_FIND_ABSENT, "");
    expect_row(at("/opt/rocm-7.9.0/lib/librccl.so"), MOTET_FIND_NOT_TRIED,
            "to use it set MOTET_RCCL_LIB=");
    expect_words(" has no librccl.so, librccl.so.1 or librccl.so.1.0");
}

static void test_the_only_version_is_used(void **state)
{
    (void)state;
    put(GOOD, "/opt/rocm-7.1.0/lib/librccl.so");
    make_folders(at("/opt/rocm-6.4.0/lib/"));
    ask(&motet_find_rccl, NULL);
    expect_found(at("/opt/rocm-7.1.0/lib/librccl.so"), MOTET_FIND_INSTALLED);
    assert_string_equal(report.root, at("/opt/rocm-7.1.0"));
}

static void test_a_tool_on_path_shows_its_root(void **state)
{
    char path[512];

    (void)state;
    put_sdk("/tools/rocm");
    put(GOOD, "/tools/rocm/lib/librccl.so");
    make_folders(at("/tools/rocm/lib/llvm/bin/"));
    put_bytes(at("/tools/rocm/lib/llvm/bin/amdclang"), 0, "x", 1);
    snprintf(path, sizeof(path), "/nowhere/bin:%s", at("/tools/rocm/lib/llvm/bin"));
    set(0, "PATH", path);
    ask(&motet_find_rccl, NULL);
    expect_found(at("/tools/rocm/lib/librccl.so"), MOTET_FIND_INSTALLED);
    put_link("../tools/rocm/bin/hipcc", "/links/hipcc");
    set(0, "PATH", at("/links"));
    ask(&motet_find_rccl, NULL);
    expect_found(at("/tools/rocm/lib/librccl.so"), MOTET_FIND_INSTALLED);
    put(GOOD, "/opt/rocm/lib/librccl.so");
    expect_found(at("/opt/rocm/lib/librccl.so"), MOTET_FIND_INSTALLED);
}

/* nixpkgs: the SDK is one store path, RCCL another. */
static void test_a_store_path_is_listed_and_never_opened(void **state)
{
    (void)state;
    put_sdk("/nix/store/k6dy-rocmtoolkit-merged");
    put(GOOD, "/nix/store/c8dc-rccl-7.2.3/lib/librccl.so");
    set(0, "PATH", at("/nix/store/k6dy-rocmtoolkit-merged/bin"));
    ask(&motet_find_rccl, "hipfire");
    expect_outcome(MOTET_FIND_NONE);
    assert_string_equal(report.root, at("/nix/store/k6dy-rocmtoolkit-merged"));
    assert_int_equal(report.num_candidates, 7);
    expect_row(at("/nix/store/c8dc-rccl-7.2.3/lib/librccl.so"), MOTET_FIND_NOT_TRIED,
            "to use it set HIPFIRE_RCCL_LIB=");
    assert_null(dlopen(at("/nix/store/c8dc-rccl-7.2.3/lib/librccl.so"),
            RTLD_NOW | RTLD_NOLOAD));
}

static void test_usr_counts_only_with_something_of_the_sdk(void **state)
{
    (void)state;
    put(GOOD, "/usr/lib/x86_64-linux-gnu/librccl.so.1");
    ask(&motet_find_rccl, NULL);
    expect_outcome(MOTET_FIND_NONE);
    expect_row(at("/usr/lib/x86_64-linux-gnu/librccl.so.1"), MOTET_FIND_NOT_TRIED, "");
    make_folders(at("/usr/bin/"));
    put_bytes(at("/usr/bin/rocminfo"), 0, "x", 1);
    expect_found(at("/usr/lib/x86_64-linux-gnu/librccl.so.1"), MOTET_FIND_INSTALLED);
    assert_string_equal(report.root, at("/usr"));
}

/* LD_LIBRARY_PATH of the test is the folder of copies. */
static void test_the_linker_is_asked_on_amd_only_if_the_caller_says_so(void **state)
{
    static const char *const names[] = { "libmotetfindlinked.so.1", NULL };

    (void)state;
    library.names = names;
    ask(&motet_find_rccl, NULL);
    expect_outcome(MOTET_FIND_NONE);
    request.by_name = true;
    expect_outcome(MOTET_FIND_FOUND);
    assert_int_equal(report.origin, MOTET_FIND_LINKER);
    assert_int_equal(dlclose(report.handle), 0);
    set(0, "ROCM_PATH", at("/gone"));
    ask(&motet_find_rccl, NULL);
    request.by_name = true;
    expect_outcome(MOTET_FIND_REFUSED);
    set(0, "ROCM_PATH", "");
    put_sdk("/opt/rocm");
    ask(&motet_find_rccl, NULL);
    expect_outcome(MOTET_FIND_NONE);
    assert_string_equal(report.root, at("/opt/rocm"));
    request.by_name = true;
    expect_outcome(MOTET_FIND_FOUND);
    assert_string_equal(report.root, ""); /* the linker decided */
    assert_int_equal(dlclose(report.handle), 0);
}

static void test_a_folder_of_library_path_is_listed_on_amd(void **state)
{
    (void)state;
    put(GOOD, "/somewhere/librccl.so.1");
    set(0, "LD_LIBRARY_PATH", at("/somewhere"));
    ask(&motet_find_rccl, NULL);
    expect_outcome(MOTET_FIND_NONE);
    expect_row(at("/somewhere/librccl.so.1"), MOTET_FIND_NOT_TRIED,
            "to use it set MOTET_RCCL_LIB=");
}

static void test_nothing_at_all_is_a_value(void **state)
{
    (void)state;
    ask(&motet_find_rccl, NULL);
    expect_outcome(MOTET_FIND_NONE);
    assert_int_equal(report.num_candidates, 0);
    expect_words("RCCL was not found: no librccl.so, librccl.so.1 or librccl.so.1.0");
    expect_words("set MOTET_RCCL_LIB=/path/to/librccl.so");
    expect_no_words("linker");
}

/* A loader in the finder's place. */

struct trial {
    motet_find_verdict first;
    int calls;
};

static motet_find_verdict loader(const char *name, char path_out[MOTET_FIND_PATH_MAX],
        char detail_out[MOTET_FIND_DETAIL_MAX], void *arg)
{
    struct trial *trial = arg;

    snprintf(path_out, MOTET_FIND_PATH_MAX, "%s", name);
    snprintf(detail_out, MOTET_FIND_DETAIL_MAX, "what the loader says");
    return trial->calls++ == 0 ? trial->first : MOTET_FIND_TAKEN;
}

static motet_find_outcome look_by_loader(struct trial *trial)
{
    put(GOOD, "/r/lib/librccl.so");
    put(GOOD, "/r/lib64/librccl.so");
    set(0, "ROCM_PATH", at("/r"));
    ask(&motet_find_rccl, NULL);
    request.load = loader;
    request.load_arg = trial;
    (void)motet_find_open(&request, &report);
    (void)motet_find_text(&report, text, sizeof(text));
    assert_null(report.handle);
    return report.outcome;
}

static void test_a_loader_takes_the_finders_place(void **state)
{
    struct trial trial = { .first = MOTET_FIND_TAKEN };

    (void)state;
    assert_int_equal(look_by_loader(&trial), MOTET_FIND_FOUND);
    assert_string_equal(report.path, at("/r/lib/librccl.so"));
    assert_int_equal(trial.calls, 1);
    trial = (struct trial){ .first = MOTET_FIND_NOT_LOADED };
    assert_int_equal(look_by_loader(&trial), MOTET_FIND_FOUND);
    assert_string_equal(report.path, at("/r/lib64/librccl.so"));
    expect_row(at("/r/lib/librccl.so"), MOTET_FIND_NOT_LOADED, "what the loader says");
    trial = (struct trial){ .first = MOTET_FIND_NOT_TRIED };
    assert_int_equal(look_by_loader(&trial), MOTET_FIND_FOUND);
    assert_string_equal(report.path, at("/r/lib64/librccl.so"));
}

static void test_a_copy_that_ends_the_process_ends_the_search(void **state)
{
    struct trial trial = { .first = MOTET_FIND_FATAL };

    (void)state;
    assert_int_equal(look_by_loader(&trial), MOTET_FIND_REFUSED);
    assert_int_equal(trial.calls, 1);
    assert_string_equal(report.path, "");
    expect_row(at("/r/lib/librccl.so"), MOTET_FIND_FATAL, "what the loader says");
    expect_row(at("/r/lib64/librccl.so"), MOTET_FIND_NOT_TRIED, "");
}

/* Tables. */

static void test_versions_are_decoded_by_both_rules(void **state)
{
    static const struct {
        int code;
        const char *text;
    } rows[] = { { 22707, "2.27.7" }, { 23004, "2.30.4" }, { 22203, "2.22.3" },
        { 20903, "2.9.3" }, { 2708, "2.7.8" }, { 2804, "2.8.4" }, { 0, "0.0.0" } };
    char buf[32];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        assert_string_equal(motet_find_version(rows[i].code, buf, sizeof(buf)),
                rows[i].text);
}

static void test_the_clients_are_complete(void **state)
{
    size_t num = 0;

    (void)state;
    for (const motet_find_client *c = motet_find_clients; c->name != NULL; c++, num++) {
        assert_ptr_equal(motet_find_client_of(c->name, c->library), c);
        assert_true(c->library == &motet_find_rccl || c->library == &motet_find_nccl);
        assert_true(c->symbols != NULL && c->symbols[0] != NULL);
        for (size_t i = 0; c->symbols[i] != NULL; i++)
            for (size_t k = 0; k < i; k++)
                assert_string_not_equal(c->symbols[i], c->symbols[k]);
    }
    assert_int_equal(num, 9);
    assert_null(motet_find_client_of("hipfire", &motet_find_nccl));
    assert_null(motet_find_client_of("nobody", NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RCCL(test_a_root_with_one_file_gives_that_file),
        RCCL(test_a_file_one_level_down_is_found),
        RCCL(test_a_root_with_none_names_six_paths_and_the_hint),
        RCCL(test_an_empty_variable_is_skipped_and_a_last_hip_dropped),
        RCCL(test_a_wrong_root_is_not_fallen_through),
        RCCL(test_folders_and_names_have_their_order),
        RCCL(test_the_first_of_a_root_that_loads_is_taken),
        RCCL(test_a_root_whose_copies_do_not_load_is_refused),
        RCCL(test_families_are_ordered_as_integers),
        RCCL(test_a_family_below_the_selector_is_no_choice),
        RCCL(test_the_chosen_one_stands_in_a_full_report),
        RCCL(test_a_path_that_is_too_long_is_refused),
        RCCL(test_dtk_is_a_root_of_its_own),
        RCCL(test_an_override_that_loads_ends_the_search),
        RCCL(test_an_override_that_does_not_load_stops_with_the_reason),
        RCCL(test_an_override_belongs_to_its_client),
        RCCL(test_two_whole_versions_without_a_selector_are_refused),
        RCCL(test_an_sdk_counts_also_without_the_library),
        RCCL(test_the_only_version_is_used),
        RCCL(test_a_tool_on_path_shows_its_root),
        RCCL(test_a_store_path_is_listed_and_never_opened),
        RCCL(test_usr_counts_only_with_something_of_the_sdk),
        RCCL(test_the_linker_is_asked_on_amd_only_if_the_caller_says_so),
        RCCL(test_a_folder_of_library_path_is_listed_on_amd),
        RCCL(test_nothing_at_all_is_a_value),
        RCCL(test_a_loader_takes_the_finders_place),
        RCCL(test_a_copy_that_ends_the_process_ends_the_search),
        RCCL(test_versions_are_decoded_by_both_rules),
        RCCL(test_the_clients_are_complete),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
