/* SPDX-License-Identifier: Apache-2.0 */
/* AMD code objects of version 2, whose metadata is YAML. */
#include "codeobj_file.h"

static void put_note(const char *owner, uint32_t type, const void *data, size_t bytes)
{
    const Elf64_Nhdr note = { (Elf64_Word)strlen(owner) + 1, (Elf64_Word)bytes, type };

    put(&note, sizeof(note));
    put(owner, note.n_namesz);
    while (file_bytes % 4 != 0)
        put_byte(0);
    put(data, bytes);
    while (file_bytes % 4 != 0)
        put_byte(0);
}

/* An object of version 2 with notes of its own, GPU gfx803, and @p documents. */
static void write_old(uint32_t e_flags, const char *const *documents)
{
    static const struct {
        uint16_t vendor_bytes, name_bytes;
        uint32_t numbers[3];
        char names[12];
    } isa = { 4, 7, { 8, 0, 3 }, "AMD\0AMDGPU" };
    static const uint32_t format[2] = { 2, 1 };
    Elf64_Phdr segment;

    begin();
    put_note("AMD", 1, format, sizeof(format));
    put_note("AMD", 3, &isa, sizeof(isa));
    for (; *documents != NULL; documents++)
        put_note("AMD", 10, *documents, strlen(*documents));
    finish(2, e_flags);
    /* Behind the note that finish() has made. */
    memcpy(&segment, file + sizeof(Elf64_Ehdr), sizeof(segment));
    segment.p_offset = DESC_AT;
    segment.p_filesz = file_bytes - DESC_AT;
    memcpy(file + sizeof(Elf64_Ehdr), &segment, sizeof(segment));
    memset(file + NOTE_AT, 0, DESC_AT - NOTE_AT);
}

static const char old_document[] = "---\n"
                                   "Version:         [ 1, 0 ]\n"
                                   "Printf:\n"
                                   "  - '1:1:4:%d\\n'\n"
                                   "Kernels:\n"
                                   "  - Name:            first\n"
                                   "    SymbolName:      'first@kd'\n"
                                   "    LanguageVersion: [ 2, 0 ]\n"
                                   "    Args:\n"
                                   "      - Name:            c\n"
                                   "        Size:            1\n"
                                   "        Align:           1\n"
                                   "        ValueKind:       ByValue\n"
                                   "      - Name:            p\n"
                                   "        TypeName:        'int*'\n"
                                   "        Size:            8\n"
                                   "        Align:           8\n"
                                   "        ValueKind:       GlobalBuffer\n"
                                   "      - Size:            8\n"
                                   "        Align:           8\n"
                                   "        ValueKind:       HiddenGlobalOffsetX\n"
                                   "      - Size:            8\n"
                                   "        Align:           8\n"
                                   "        ValueKind:       HiddenHostcallBuffer\n"
                                   "    CodeProps:\n"
                                   "      KernargSegmentSize: 32\n"
                                   "      GroupSegmentFixedSize: 64\n"
                                   "      PrivateSegmentFixedSize: 16\n"
                                   "      WavefrontSize:   64\n"
                                   "      NumSGPRs:        8\n"
                                   "      NumVGPRs:        4\n"
                                   "      MaxFlatWorkGroupSize: 256\n"
                                   "  - Name:            second\n"
                                   "    SymbolName:      'second@kd'\n"
                                   "    CodeProps:\n"
                                   "      KernargSegmentSize: 0\n"
                                   "...\n";

static void test_the_yaml_of_version_2_is_read(void **state)
{
    static const char *const documents[] = { old_document, NULL };
    static const struct codeobj_arg args[] = { { CODEOBJ_BY_VALUE, 0, 1 },
        { CODEOBJ_GLOBAL_BUFFER, 8, 8 }, { CODEOBJ_GLOBAL_OFFSET_X, 16, 8 },
        { CODEOBJ_HOSTCALL_BUFFER, 24, 8 } };
    const struct codeobj_kernel *k;

    (void)state;
    write_old(0x2a, documents);
    expect_read();
    assert_int_equal(object.version, 2);
    assert_string_equal(object.target.text, "gfx803");
    assert_int_equal(object.num_kernels, 2);
    k = &object.kernels[0];
    assert_string_equal(k->name, "first");
    assert_int_equal(k->num_args, 4);
    assert_int_equal(k->num_hidden, 2);
    for (size_t i = 0; i < 4; i++)
        assert_memory_equal(&k->args[i], &args[i], sizeof(args[i]));
    assert_int_equal(k->kernarg_bytes, 32);
    assert_int_equal(k->lds_bytes, 64);
    assert_int_equal(k->scratch_bytes, 16);
    assert_int_equal(k->wavefront, 64);
    assert_int_equal(k->max_workgroup, 256);
    assert_int_equal(k->sgprs, 8);
    assert_int_equal(k->vgprs, 4);
    assert_string_equal(object.kernels[1].name, "second");
    assert_int_equal(object.kernels[1].num_args, 0);
    assert_int_equal(codeobj_count(&object, CODEOBJ_HOSTCALL_BUFFER), 1);
}

static void test_the_oldest_have_their_gpu_in_a_note(void **state)
{
    static const char *const documents[] = { old_document, NULL };

    (void)state;
    write_old(0x2, documents); /* a trap handler's flag, and no GPU */
    expect_read();
    assert_string_equal(object.target.text, "gfx803");
}

static void test_yaml_that_is_wrong_is_refused(void **state)
{
    static const struct {
        const char *text, *words;
    } rows[] = {
        { "Kernels: 7\n", "its Kernels are no list" },
        { "Kernels:\n  - SymbolName: a\n", "a kernel has no Name" },
        { "Kernels:\n  - Name: a\n    Args:\n      - Size: 8\n",
                "an argument has no ValueKind" },
        { "Kernels:\n  - Name: a\n    Args:\n      - Size: 8\n  - Name: b\n",
                "an argument has no ValueKind" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const char *const documents[] = { rows[i].text, NULL };

        write_old(0x2a, documents);
        expect_refused(rows[i].words);
        assert_non_null(strstr(why, "metadata at offset "));
    }
}

static void test_all_documents_of_an_object_count(void **state)
{
    static const char *const documents[] = { old_document,
        "Kernels:\n  - Name: third\n", NULL };

    (void)state;
    write_old(0x2a, documents);
    expect_read();
    assert_int_equal(object.num_kernels, 3);
    assert_string_equal(object.kernels[2].name, "third");
}

/* Made by llc 14; the values are what llvm-readelf prints of it. */
static void test_llvm_14_s_object_is_read_as_llvm_reads_it(void **state)
{
    static const enum codeobj_kind kinds[] = { CODEOBJ_GLOBAL_BUFFER,
        CODEOBJ_GLOBAL_OFFSET_X, CODEOBJ_GLOBAL_OFFSET_Y, CODEOBJ_GLOBAL_OFFSET_Z,
        CODEOBJ_NONE, CODEOBJ_NONE, CODEOBJ_NONE, CODEOBJ_MULTIGRID_SYNC };
    const struct codeobj_kernel *k;
    char path[1024];

    (void)state;
    assert_non_null(getenv("CODEOBJ_SEEDS"));
    snprintf(path, sizeof(path), "%s/../containers/object_v2_llvm14",
            getenv("CODEOBJ_SEEDS"));
    if (codeobj_open(path, &object, why) != 0)
        fail_msg("%s: %s", path, why);
    assert_int_equal(object.version, 2);
    assert_string_equal(object.target.processor, "gfx906");
    assert_int_equal(object.num_kernels, 2);
    k = &object.kernels[0];
    assert_string_equal(k->name, "first");
    assert_int_equal(k->num_args, 2);
    assert_int_equal(k->args[1].offset, 8);
    assert_int_equal(k->args[1].kind, CODEOBJ_BY_VALUE);
    assert_int_equal(k->kernarg_bytes, 12);
    assert_false(k->dynamic_stack);
    k = &object.kernels[1];
    assert_string_equal(k->name, "second");
    assert_int_equal(k->num_args, 8);
    assert_int_equal(k->num_hidden, 7);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(k->args[i].kind, kinds[i]);
        assert_int_equal(k->args[i].offset, 8 * i);
    }
    assert_int_equal(k->scratch_bytes, 16384);
    assert_int_equal(k->sgprs, 39);
    assert_int_equal(k->vgprs, 32);
    assert_true(k->dynamic_stack);
}

#define TEST(name) cmocka_unit_test_teardown(name, codeobj_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_the_yaml_of_version_2_is_read),
        TEST(test_llvm_14_s_object_is_read_as_llvm_reads_it),
        TEST(test_the_oldest_have_their_gpu_in_a_note),
        TEST(test_yaml_that_is_wrong_is_refused),
        TEST(test_all_documents_of_an_object_count),
    };

    if (codeobj_library(0) == NULL) {
        fprintf(stderr, "SKIPPED: this build reads no code objects\n");
        return 77;
    }
    return cmocka_run_group_tests_name("codeobj_old", tests, NULL, NULL);
}
