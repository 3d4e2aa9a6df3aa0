/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AMD code objects: written here byte by byte, well formed and not; made by clang 19 (the
 * fuzzer's seeds, whose values are llvm-readelf's); and those of this build.
 */
#include "codeobj_file.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

/* Targets. */

static void test_flags_name_the_target(void **state)
{
    static const struct {
        uint32_t flags;
        int version;
        const char *text;
        unsigned generic_version;
    } rows[] = {
        { 0x041, 5, "gfx1100", 0 },
        { 0x53f, 5, "gfx90a", 0 }, /* any, any */
        { 0x73f, 5, "gfx90a:xnack+", 0 },
        { 0x63f, 4, "gfx90a:xnack-", 0 },
        { 0xf4c, 5, "gfx942:sramecc+:xnack+", 0 },
        { 0xa3f, 4, "gfx90a:sramecc-:xnack-", 0 },
        { 0x02f, 3, "gfx906", 0 },
        { 0x32f, 3, "gfx906:sramecc+:xnack+", 0 },
        { 0x01000054, 6, "gfx11-generic", 1 },
        { 0x2000005f, 6, "gfx9-4-generic", 32 },
        { 0x02f, 6, "gfx906", 0 },
        { 0x0ff, 5, "mach 0xff", 0 },
    };
    struct codeobj_target target;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        codeobj_target_of(rows[i].flags, rows[i].version, &target);
        assert_string_equal(target.text, rows[i].text);
        assert_int_equal(target.generic_version, rows[i].generic_version);
        assert_int_equal(target.generic, strstr(rows[i].text, "-generic") != NULL);
        assert_int_equal(target.mach, rows[i].flags & 0xff);
    }
    codeobj_target_of(0x53f, 5, &target);
    assert_int_equal(target.xnack, CODEOBJ_ANY);
    assert_int_equal(target.sramecc, CODEOBJ_ANY);
    codeobj_target_of(0x041, 5, &target);
    assert_int_equal(target.xnack, CODEOBJ_NOT_THERE);
}

static void test_kinds_have_names_and_are_hidden_or_not(void **state)
{
    (void)state;
    for (int i = 0; i < CODEOBJ_NUM_KINDS; i++) {
        enum codeobj_kind kind = (enum codeobj_kind)i;
        const char *name = codeobj_kind_name(kind);

        assert_non_null(codeobj_kind_short(kind));
        assert_int_equal(codeobj_kind_hidden(kind), strncmp(name, "hidden_", 7) == 0);
    }
    assert_true(CODEOBJ_NUM_KINDS <= 64); /* struct codeobj_kernel has a bit for each */
}

/* What is written here. */

/* An object for a GPU that is not in the table, whose first kernel has everything. */
static void write_full(void)
{
    begin();
    put_map(3);
    put_text("amdhsa.version");
    put_array(2);
    put_byte(1);
    put_byte(2);
    put_text("amdhsa.kernels");
    put_array(2);
    put_map(13);
    put_text(".agpr_count");
    put_number(7);
    put_text(".args");
    put_array(4);
    put_arg("by_value", 0, 12);
    put_arg("hidden_hostcall_buffer", 80, 8);
    put_arg("hidden_of_the_future", 88, 8);
    put_arg("of_the_future", 12, 4);
    put_text(".group_segment_fixed_size");
    put_number(1024);
    put_text(".kernarg_segment_size");
    put_number(256);
    put_text(".max_flat_workgroup_size");
    put_number(512);
    put_text(".name");
    put_text("a name of more than thirty-one characters");
    put_text(".private_segment_fixed_size");
    put_number(64);
    put_text(".sgpr_count");
    put_number(40);
    put_text(".sgpr_spill_count");
    put_number(3);
    put_text(".uses_dynamic_stack");
    put_byte(0xc3);
    put_text(".vgpr_count");
    put_number(128);
    put_text(".vgpr_spill_count");
    put_number(5);
    put_text(".wavefront_size");
    put_byte(32);
    put_kernel("second", 0);
    put_text("amdhsa.target");
    put_text("amdgcn-amd-amdhsa--gfx928:xnack-");
    finish(5, 0xee);
}

static void test_what_an_object_says_is_read(void **state)
{
    const struct codeobj_kernel *k;

    (void)state;
    write_full();
    expect_read();
    assert_int_equal(object.version, 5);
    assert_string_equal(object.target.text, "mach 0xee");
    assert_string_equal(object.declared, "gfx928:xnack-");
    assert_int_equal(object.num_kernels, 2);
    k = &object.kernels[0];
    assert_string_equal(k->name, "a name of more than thirty-one characters");
    assert_int_equal(k->num_args, 4);
    assert_int_equal(k->num_hidden, 2);
    assert_int_equal(k->args[0].kind, CODEOBJ_BY_VALUE);
    assert_int_equal(k->args[0].bytes, 12);
    assert_int_equal(k->args[1].kind, CODEOBJ_HOSTCALL_BUFFER);
    assert_int_equal(k->args[1].offset, 80);
    assert_int_equal(k->args[2].kind, CODEOBJ_HIDDEN_OTHER);
    assert_int_equal(k->args[3].kind, CODEOBJ_OTHER);
    assert_true(k->kinds ==
            (UINT64_C(1) << CODEOBJ_BY_VALUE | UINT64_C(1) << CODEOBJ_HOSTCALL_BUFFER |
                    UINT64_C(1) << CODEOBJ_HIDDEN_OTHER |
                    UINT64_C(1) << CODEOBJ_OTHER));
    assert_int_equal(k->kernarg_bytes, 256);
    assert_int_equal(k->lds_bytes, 1024);
    assert_int_equal(k->scratch_bytes, 64);
    assert_true(k->dynamic_stack);
    assert_int_equal(k->wavefront, 32);
    assert_int_equal(k->max_workgroup, 512);
    assert_int_equal(k->sgprs, 40);
    assert_int_equal(k->vgprs, 128);
    assert_int_equal(k->agprs, 7);
    assert_int_equal(k->sgpr_spills, 3);
    assert_int_equal(k->vgpr_spills, 5);
    assert_string_equal(object.kernels[1].name, "second");
    assert_int_equal(object.kernels[1].num_args, 0);
    assert_false(object.kernels[1].dynamic_stack);
}

static void test_every_version_from_3_to_6_is_read(void **state)
{
    (void)state;
    for (int version = 3; version <= 6; version++) {
        write_small(version, 0x30);
        expect_read();
        assert_int_equal(object.version, version);
        assert_string_equal(object.target.processor, "gfx908");
        assert_int_equal(object.num_kernels, 1);
        codeobj_clear(&object);
    }
    write_small(2, 0x30); /* whose metadata is no msgpack */
    expect_refused("no note with AMD's metadata");
    write_small(7, 0x30);
    expect_refused("a code object of version 7, 2 to 6 are read");
}

/* The same bytes by two segments are one document. */
static void test_a_document_counts_once(void **state)
{
    Elf64_Ehdr header;
    Elf64_Phdr segments[2];

    (void)state;
    write_small(5, 0x41);
    memcpy(&header, file, sizeof(header));
    memcpy(&segments[0], file + sizeof(header), sizeof(segments[0]));
    segments[1] = segments[0];
    header.e_phoff = file_bytes;
    header.e_phnum = 2;
    put(segments, sizeof(segments));
    memcpy(file, &header, sizeof(header));
    expect_read();
    assert_int_equal(object.num_kernels, 1);
}

static void test_a_note_in_a_section_will_do(void **state)
{
    Elf64_Ehdr header;
    Elf64_Shdr sections[2] = { { 0 },
        { .sh_type = SHT_NOTE, .sh_offset = NOTE_AT, .sh_addralign = 4 } };

    (void)state;
    write_small(5, 0x41);
    memcpy(&header, file, sizeof(header));
    sections[1].sh_size = file_bytes - NOTE_AT;
    while (file_bytes % 8 != 0)
        put_byte(0);
    header.e_phoff = 0;
    header.e_phnum = 0;
    header.e_shoff = file_bytes;
    header.e_shnum = 2;
    put(sections, sizeof(sections));
    memcpy(file, &header, sizeof(header));
    expect_read();
    assert_int_equal(object.num_kernels, 1);
}

static void test_other_notes_before_it_are_skipped(void **state)
{
    static const uint32_t other[] = { 4, 4, 32, 0x00554e47, 0x01020304 };
    Elf64_Phdr segment;

    (void)state;
    write_small(5, 0x41);
    memmove(file + NOTE_AT + sizeof(other), file + NOTE_AT, file_bytes - NOTE_AT);
    memcpy(file + NOTE_AT, other, sizeof(other));
    file_bytes += sizeof(other);
    memcpy(&segment, file + sizeof(Elf64_Ehdr), sizeof(segment));
    segment.p_filesz += sizeof(other);
    memcpy(file + sizeof(Elf64_Ehdr), &segment, sizeof(segment));
    expect_read();
    assert_string_equal(object.kernels[0].name, "k");
}

/* What is refused. */

static void test_other_files_are_named_for_what_they_are(void **state)
{
    (void)state;
    begin();
    file_bytes = 0;
    expect_refused("ends after 0 bytes");
    put("#!/bin/sh\n", 10);
    expect_refused("not an ELF file");
    write_small(5, 0x41);
    file[EI_CLASS] = ELFCLASS32;
    expect_refused("not a 64-bit little-endian ELF file");
    write_small(5, 0x41);
    file[offsetof(Elf64_Ehdr, e_machine)] = EM_X86_64;
    expect_refused("an ELF file for machine 62");
    write_small(5, 0x41);
    file[EI_OSABI] = 65;
    expect_refused("another system than ROCm");
    write_small(5, 0x41);
    assert_true(codeobj_is(file, file_bytes));
    assert_false(codeobj_is(file, 63));
    file[NOTE_AT + 12] = 'X';
    expect_refused("no note with AMD's metadata");
}

static void test_every_truncation_is_refused(void **state)
{
    (void)state;
    write_small(5, 0x41);
    for (size_t bytes = 0; bytes < file_bytes - 4; bytes++)
        if (read_bytes(bytes) == 0)
            fail_msg("%zu of %zu bytes are read", bytes, file_bytes);
}

static void expect_document_refused(const char *words, const char *bytes, size_t size)
{
    begin();
    put(bytes, size);
    finish(5, 0x41);
    expect_refused(words);
    assert_non_null(strstr(why, "metadata at offset 140"));
}

#define EXPECT_DOCUMENT_REFUSED(words, bytes) \
    expect_document_refused(words, bytes, sizeof(bytes) - 1)

static void test_lying_and_deep_metadata_is_refused(void **state)
{
    static char deep[64];

    (void)state;
    EXPECT_DOCUMENT_REFUSED("ends early", "\x81\xa3xy");
    EXPECT_DOCUMENT_REFUSED("claims more than it holds", "\xdd\xff\xff\xff\xff");
    EXPECT_DOCUMENT_REFUSED("claims more than it holds",
            "\xdf\xff\xff\xff\xff\x01\x01");
    EXPECT_DOCUMENT_REFUSED("ends early", "\xdb\xff\xff\xff\xff");
    EXPECT_DOCUMENT_REFUSED("ends early", "\xc9\xff\xff\xff\xff\x01");
    EXPECT_DOCUMENT_REFUSED("no msgpack", "\xc1");
    EXPECT_DOCUMENT_REFUSED("not a map", "\x90");
    EXPECT_DOCUMENT_REFUSED("no list amdhsa.kernels", "\x80");
    EXPECT_DOCUMENT_REFUSED("no list amdhsa.kernels",
            "\x81\xaf"
            "amdhsa.kernelsX\x90");
    EXPECT_DOCUMENT_REFUSED("no list amdhsa.kernels",
            "\x81\xae"
            "amdhsa.kernels\x01");
    EXPECT_DOCUMENT_REFUSED("kernel 0 has no .name",
            "\x81\xae"
            "amdhsa.kernels\x91\x80");
    EXPECT_DOCUMENT_REFUSED("kernel 0 has no .name",
            "\x81\xae"
            "amdhsa.kernels\x91\x01");
    memset(deep, '\x91', sizeof(deep) - 1);
    EXPECT_DOCUMENT_REFUSED("nested too deep", deep);
    begin();
    put_document(1);
    put_kernel("k\033[2J\177x\n", 1); /* no name commands a terminal */
    put_map(0);
    finish(5, 0x41);
    expect_refused("argument 0 of kernel 'k?[2J?x?' has no .value_kind");
}

static void test_what_exceeds_a_limit_is_refused(void **state)
{
    (void)state;
    begin();
    put_map(1);
    put_text("amdhsa.kernels");
    put("\xdd\x00\x01\x00\x01", 5); /* 65537 kernels */
    for (int i = 0; i < 65537; i++)
        put_byte(0xc0);
    finish(5, 0x41);
    expect_refused("65537 kernels, at most 65536 are read");
    begin();
    put_map(2);
    put_text("amdhsa.kernels");
    put_byte(0x90);
    put_text("other");
    put("\xdd\x01\x00\x00\x00", 5);
    for (int i = 0; i < 0x1000000; i++)
        put_byte(0);
    finish(5, 0x41);
    expect_refused("holds more than 16777216 values");
    begin();
    put_document(1);
    put_map(2);
    put_text(".name");
    put_text("k");
    put_text(".args");
    put("\xdc\x10\x01", 3); /* 4097 arguments */
    for (int i = 0; i < 4097; i++)
        put_byte(0xc0);
    finish(5, 0x41);
    expect_refused("kernel 'k' has 4097 arguments, at most 4096 are read");
    begin();
    put_document(1);
    put_map(1);
    put_text(".name");
    put("\xda\x40\x00", 3); /* 16384 bytes */
    for (int i = 0; i < 16384; i++)
        put_byte('n');
    finish(5, 0x41);
    expect_refused("a name of 16384 bytes");
}

/* Zeros are empty notes; all headers name the same ones. */
static void test_notes_named_again_and_again_are_given_up(void **state)
{
    enum { HEADERS = 200, AT = sizeof(Elf64_Ehdr) + HEADERS * sizeof(Elf64_Phdr) };
    const Elf64_Phdr segment = { .p_type = PT_NOTE,
        .p_offset = AT,
        .p_filesz = sizeof(file) - AT,
        .p_align = 4 };

    (void)state;
    write_small(5, 0x41);
    file[offsetof(Elf64_Ehdr, e_phnum)] = HEADERS;
    for (size_t i = 0; i < HEADERS; i++)
        memcpy(file + sizeof(Elf64_Ehdr) + i * sizeof(segment), &segment,
                sizeof(segment));
    file_bytes = sizeof(file);
    expect_refused("more than 4 times its");
}

static void test_offsets_out_of_the_file_are_no_notes(void **state)
{
    static const uint64_t offsets[] = { UINT64_MAX, UINT64_MAX - 200, 1 << 30, 300 };
    Elf64_Phdr segment;

    (void)state;
    for (size_t i = 0; i < sizeof(offsets) / sizeof(*offsets); i++) {
        write_small(5, 0x41);
        memcpy(&segment, file + sizeof(Elf64_Ehdr), sizeof(segment));
        segment.p_offset = offsets[i];
        memcpy(file + sizeof(Elf64_Ehdr), &segment, sizeof(segment));
        expect_refused("no note with AMD's metadata");
        segment.p_offset = NOTE_AT;
        segment.p_filesz = offsets[i];
        memcpy(file + sizeof(Elf64_Ehdr), &segment, sizeof(segment));
        expect_refused("no note with AMD's metadata");
    }
}

static void test_files_that_cannot_be_read_say_why(void **state)
{
    char folder[] = "/tmp/motet-codeobj-XXXXXX", path[64];
    FILE *empty;

    (void)state;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(codeobj_open(folder, &object, why), -1);
    assert_non_null(strstr(why, "a folder"));
    snprintf(path, sizeof(path), "%s/x", folder);
    assert_int_equal(codeobj_open(path, &object, why), -1);
    assert_non_null(strstr(why, "No such file"));
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(codeobj_open(path, &object, why), -1);
    assert_non_null(strstr(why, "not a regular file"));
    unlink(path);
    empty = fopen(path, "w");
    assert_non_null(empty);
    fclose(empty);
    assert_int_equal(codeobj_open(path, &object, why), -1);
    assert_non_null(strstr(why, "an empty file"));
    unlink(path);
    rmdir(folder);
}

/* What compilers made. */

static void test_clang_s_objects_are_read_as_llvm_reads_them(void **state)
{
    static const struct {
        const char *name, *target;
        int version, kernels, hostcalls;
        uint32_t args, hidden, scratch, sgprs, vgprs; /* of the kernel `scratch` */
    } rows[] = {
        { "gfx906-v4", "gfx906", 4, 3, 0, 2, 0, 260, 16, 5 },
        { "gfx90a-v5", "gfx90a:xnack-", 5, 3, 0, 2, 0, 260, 16, 5 },
        { "generic-v6", "gfx11-generic", 6, 3, 0, 2, 0, 260, 6, 3 },
        { "hostcall-v4", "gfx1030", 4, 4, 1, 2, 0, 260, 12, 4 },
        { "hostcall-v5", "gfx1201", 5, 4, 4, 21, 19, 312, 34, 9 },
    };
    char path[512];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct codeobj_kernel *k = NULL;

        snprintf(path, sizeof(path), "%s/%s", getenv("CODEOBJ_SEEDS"), rows[i].name);
        if (codeobj_open(path, &object, why) != 0)
            fail_msg("%s: %s", path, why);
        assert_string_equal(object.target.text, rows[i].target);
        assert_string_equal(object.declared, rows[i].target);
        assert_int_equal(object.version, rows[i].version);
        assert_int_equal(object.num_kernels, rows[i].kernels);
        for (size_t n = 0; n < object.num_kernels; n++) {
            if (strcmp(object.kernels[n].name, "scratch") == 0)
                k = &object.kernels[n];
        }
        assert_int_equal(codeobj_count(&object, CODEOBJ_HOSTCALL_BUFFER),
                rows[i].hostcalls);
        assert_non_null(k);
        assert_int_equal(k->num_args, rows[i].args);
        assert_int_equal(k->num_hidden, rows[i].hidden);
        assert_int_equal(k->scratch_bytes, rows[i].scratch);
        assert_int_equal(k->sgprs, rows[i].sgprs);
        assert_int_equal(k->vgprs, rows[i].vgprs);
        codeobj_clear(&object);
    }
}

/* "…gfx1100.co" is for gfx1100 and runs anywhere: no kernel declares a hostcall. */
static void check_image(const char *folder, const char *name)
{
    const char *target = strstr(name, "gfx");
    char path[1024];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (codeobj_open(path, &object, why) != 0)
        fail_msg("%s: %s", path, why);
    assert_int_equal(strncmp(object.target.processor, target, strlen(target) - 3), 0);
    assert_true(object.num_kernels > 0);
    for (size_t i = 0; i < object.num_kernels; i++) {
        const struct codeobj_kernel *k = &object.kernels[i];

        if (codeobj_has(k, CODEOBJ_HOSTCALL_BUFFER) || k->dynamic_stack)
            fail_msg("%s: kernel %s declares a hostcall or a dynamic stack", path,
                    k->name);
        assert_true(k->wavefront == 32 || k->wavefront == 64);
        assert_true(k->num_args > 0 && k->vgprs > 0 && k->sgprs > 0);
        assert_int_equal(strncmp(k->name, "motet_", 6), 0);
    }
    codeobj_clear(&object);
}

static void test_the_build_s_own_images_are_read(void **state)
{
    const char *folder = getenv("CODEOBJ_IMAGES");
    DIR *images = folder != NULL ? opendir(folder) : NULL;
    struct dirent *entry;
    int num = 0;

    (void)state;
    while (images != NULL && (entry = readdir(images)) != NULL) {
        size_t length = strlen(entry->d_name);

        if (length > 3 && strcmp(entry->d_name + length - 3, ".co") == 0 &&
                strstr(entry->d_name, "gfx") != NULL) {
            check_image(folder, entry->d_name);
            num++;
        }
    }
    if (images != NULL)
        closedir(images);
    if (num == 0)
        skip(); /* a build without code for AMD GPUs */
}

#define TEST(name) cmocka_unit_test_teardown(name, codeobj_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_flags_name_the_target),
        TEST(test_kinds_have_names_and_are_hidden_or_not),
        TEST(test_what_an_object_says_is_read),
        TEST(test_every_version_from_3_to_6_is_read),
        TEST(test_a_document_counts_once),
        TEST(test_a_note_in_a_section_will_do),
        TEST(test_other_notes_before_it_are_skipped),
        TEST(test_other_files_are_named_for_what_they_are),
        TEST(test_every_truncation_is_refused),
        TEST(test_lying_and_deep_metadata_is_refused),
        TEST(test_what_exceeds_a_limit_is_refused),
        TEST(test_notes_named_again_and_again_are_given_up),
        TEST(test_offsets_out_of_the_file_are_no_notes),
        TEST(test_files_that_cannot_be_read_say_why),
        TEST(test_clang_s_objects_are_read_as_llvm_reads_them),
        TEST(test_the_build_s_own_images_are_read),
    };

    if (codeobj_library(0) == NULL) {
        fprintf(stderr, "SKIPPED: this build reads no code objects\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
