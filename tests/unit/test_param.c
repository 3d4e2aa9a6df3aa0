/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/log.h"
#include "base/param.h"
#include "child.h"

#include <fcntl.h>
#include <inttypes.h>
#include <strings.h>

/* A fake environment of at most a few variables. */
typedef struct pair {
    const char *name, *value;
} pair;

static const char *fake(const char *name, void *arg)
{
    for (const pair *p = arg; p->name != NULL; p++) {
        if (strcmp(p->name, name) == 0)
            return p->value;
    }
    return NULL;
}

static motet_params params, untouched; /* too big for a stack */

static motet_result load(const char *name, const char *value)
{
    pair environment[] = { { name, value }, { NULL, NULL } };

    return motet_params_load(fake, environment, &params);
}

static int64_t number_of(const char *name)
{
    for (size_t i = 0; i < MOTET_PARAM_COUNT; i++) {
        if (strcmp(motet_param_table[i].name, name) == 0)
            return params.value[i].number;
    }
    fail_msg("no parameter %s", name);
    return 0;
}

static void test_unset_gives_the_default(void **state)
{
    (void)state;
    assert_int_equal(load("OTHER", "1"), MOTET_OK);
    for (size_t i = 0; i < MOTET_PARAM_COUNT; i++) {
        assert_false(params.value[i].set);
        assert_int_equal(params.value[i].number, motet_param_table[i].dflt);
        assert_string_equal(params.value[i].text, motet_param_table[i].dflt_text);
    }
}

static void test_good_values_are_taken(void **state)
{
    static const struct {
        const char *name, *value;
        const char *row; /* whose number is looked at */
        int64_t number;
    } good[] = {
        { "MOTET_OP_TIMEOUT_S", "0", "MOTET_OP_TIMEOUT_S", 0 },
        { "MOTET_OP_TIMEOUT_S", "0x10", "MOTET_OP_TIMEOUT_S", 16 },
        { "MOTET_OP_TIMEOUT_S", "010", "MOTET_OP_TIMEOUT_S", 10 },
        { "MOTET_EPOCH_START", "9223372036854775807", "MOTET_EPOCH_START", INT64_MAX },
        { "MOTET_CHUNK_BYTES", "4096", "MOTET_CHUNK_BYTES", 4096 },
        { "MOTET_CHUNK_BYTES", "64k", "MOTET_CHUNK_BYTES", 65536 },
        { "MOTET_CHUNK_BYTES", "1M", "MOTET_CHUNK_BYTES", 1 << 20 },
        { "MOTET_CHUNK_BYTES", "0g", "MOTET_CHUNK_BYTES", 0 },
        { "MOTET_DEBUG", "no", "MOTET_DEBUG", 0 },
        { "MOTET_DEBUG", "true", "MOTET_DEBUG", 1 },
        { "MOTET_DEVICE", "cpu", "MOTET_DEVICE", 1 },
        { "MOTET_DEVICE", "HIP", "MOTET_DEVICE", 4 },
        { "MOTET_COMM_BLOCKING", "-1", "MOTET_COMM_BLOCKING", -1 },
        { "MOTET_CTA_POLICY", "zero", "MOTET_CTA_POLICY", 2 },
        { "MOTET_CTA_POLICY", "3", "MOTET_CTA_POLICY", 3 },
        /* NCCL's names, with NCCL's grammar */
        { "NCCL_COMM_BLOCKING", "0x1", "MOTET_COMM_BLOCKING", 1 },
        { "NCCL_MAX_CTAS", "010", "MOTET_MAX_CTAS", 8 },
        { "NCCL_MAX_CTAS", " +7 ", "MOTET_MAX_CTAS", 7 },
        { "NCCL_CHECK_POINTERS", "2", "MOTET_CHECK_POINTERS", 1 },
        { "NCCL_CTA_POLICY", "1", "MOTET_CTA_POLICY", 1 },
        { "NCCL_CTA_POLICY", "EFFICIENCY|ZERO", "MOTET_CTA_POLICY", 3 },
        { "NCCL_SOCKET_FAMILY", "AF_INET6", "MOTET_SOCKET_FAMILY", 2 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        if (load(good[i].name, good[i].value) != MOTET_OK)
            fail_msg("%s=%s: %s", good[i].name, good[i].value, motet_error_trail());
        if (number_of(good[i].row) != good[i].number)
            fail_msg("%s=%s gave %" PRId64, good[i].name, good[i].value,
                    number_of(good[i].row));
    }
    assert_int_equal(load("NCCL_SOCKET_IFNAME", "^docker,lo"), MOTET_OK);
    assert_string_equal(motet_param_text(&params, MOTET_P_SOCKET_IFNAME), "^docker,lo");
    assert_true(params.value[MOTET_P_SOCKET_IFNAME].set);
}

static void test_bad_values_of_ours_are_refused_and_explained(void **state)
{
    static const struct {
        const char *name, *value;
    } bad[] = {
        { "MOTET_WARN_AFTER_S", "0" },          /* below min         */
        { "MOTET_OP_TIMEOUT_S", "1000000001" }, /* above max         */
        { "MOTET_OP_TIMEOUT_S", "+5" },
        { "MOTET_OP_TIMEOUT_S", "-5" },
        { "MOTET_OP_TIMEOUT_S", " 5" },
        { "MOTET_OP_TIMEOUT_S", "5 " },
        { "MOTET_OP_TIMEOUT_S", "10k" }, /* unit on a count   */
        { "MOTET_OP_TIMEOUT_S", "" },
        { "MOTET_OP_TIMEOUT_S", "0x" },
        { "MOTET_OP_TIMEOUT_S", "0x-1" },
        { "MOTET_OP_TIMEOUT_S", "1e3" },
        { "MOTET_EPOCH_START", "9223372036854775808" },
        { "MOTET_EPOCH_START", "99999999999999999999999" },
        { "MOTET_CHUNK_BYTES", "64q" },             /* no such unit      */
        { "MOTET_CHUNK_BYTES", "17592186044417m" }, /* wraps to 1m       */
        { "MOTET_CHUNK_BYTES", "2m" },              /* above max         */
        { "MOTET_DEBUG", "maybe" },
        { "MOTET_DEBUG", "2" },
        { "MOTET_DEVICE", "tpu" },
        { "MOTET_DEVICE", "1" }, /* words only        */
        { "MOTET_DEVICE", "" },
        { "MOTET_DEVICE", "auto cpu" },
        { "MOTET_CTA_POLICY", "4" },
        { "MOTET_COMM_BLOCKING", "-2" },
        { "MOTET_COMM_BLOCKING", "--1" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        char value[64];

        memset(&params, 0x5a, sizeof(params));
        memset(&untouched, 0x5a, sizeof(untouched));
        if (load(bad[i].name, bad[i].value) != MOTET_ERR_ARGUMENT)
            fail_msg("%s=%s was accepted", bad[i].name, bad[i].value);
        assert_memory_equal(&params, &untouched, sizeof(params));
        snprintf(value, sizeof(value), "'%s'", bad[i].value);
        assert_non_null(strstr(motet_error_trail(), bad[i].name));
        assert_non_null(strstr(motet_error_trail(), value));
        assert_non_null(strstr(motet_error_trail(), "need "));
    }
}

static void test_a_text_of_ours_that_is_too_long_is_refused(void **state)
{
    char text[MOTET_PARAM_STRING_MAX + 1];

    (void)state;
    memset(text, 'a', sizeof(text));
    text[MOTET_PARAM_STRING_MAX - 1] = '\0';
    assert_int_equal(load("MOTET_TRACE_DIR", text), MOTET_OK);
    assert_string_equal(motet_param_text(&params, MOTET_P_TRACE_DIR), text);
    text[MOTET_PARAM_STRING_MAX - 1] = 'a';
    text[MOTET_PARAM_STRING_MAX] = '\0';
    assert_int_equal(load("MOTET_TRACE_DIR", text), MOTET_ERR_ARGUMENT);
    assert_non_null(strstr(motet_error_trail(), "need at most 511 bytes"));
    assert_int_equal(load("MOTET_TRACE_DIR", ""), MOTET_OK);
    assert_false(params.value[MOTET_P_TRACE_DIR].set);
}

static void test_our_name_wins_over_nccls(void **state)
{
    pair environment[] = {
        { "NCCL_MAX_CTAS", "7" },
        { "MOTET_MAX_CTAS", "9" },
        { NULL, NULL },
    };

    (void)state;
    assert_int_equal(motet_params_load(fake, environment, &params), MOTET_OK);
    assert_int_equal(motet_param(&params, MOTET_P_MAX_CTAS), 9);
}

static int load_bad_aliases(const void *arg)
{
    static const pair bad[] = {
        { "NCCL_MAX_CTAS", "many" },
        { "NCCL_MAX_CTAS", "7x" },
        { "NCCL_MAX_CTAS", "1025" },
        { "NCCL_COMM_BLOCKING", "99999999999999999999" },
        { "NCCL_CTA_POLICY", "4" },
        { "NCCL_SOCKET_FAMILY", "2" },
        { "NCCL_CHECK_POINTERS", "yes please" },
    };

    (void)arg;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        if (load(bad[i].name, bad[i].value) != MOTET_OK)
            return 1;
        for (size_t p = 0; p < MOTET_PARAM_COUNT; p++) {
            if (params.value[p].set ||
                    params.value[p].number != motet_param_table[p].dflt)
                return 2;
        }
    }
    if (load("NCCL_MAX_CTAS", "") != MOTET_OK) /* as good as unset: no warning */
        return 3;
    return 0;
}

static void test_a_bad_alias_is_a_warning_and_the_default(void **state)
{
    child_result child = child_run(load_bad_aliases, NULL, NULL);

    (void)state;
    assert_int_equal(child.status, 0);
    assert_int_equal(child_count(child.err, "NCCL WARN "), 7);
    assert_non_null(strstr(child.err,
            "NCCL_MAX_CTAS is 'many', need -1..1024: using the default"));
    assert_string_equal(child.out, "");
}

static int load_long_devices(const void *arg)
{
    char text[2 * MOTET_PARAM_STRING_MAX];

    (void)arg;
    memset(text, '7', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    if (load("CUDA_VISIBLE_DEVICES", text) != MOTET_OK)
        return 1;
    if (strlen(motet_param_text(&params, MOTET_P_CUDA_VISIBLE_DEVICES)) !=
            MOTET_PARAM_STRING_MAX - 1)
        return 2;
    return params.value[MOTET_P_CUDA_VISIBLE_DEVICES].set ? 0 : 3;
}

static void test_a_long_list_of_devices_is_still_seen_to_be_set(void **state)
{
    child_result child = child_run(load_long_devices, NULL, NULL);

    (void)state;
    assert_int_equal(child.status, 0);
    assert_int_equal(child_count(child.err, "the rest is cut"), 1);
}

/* Loads twice, as two communicators would; prints what was asked for. */
static int load_environment(const void *arg)
{
    const char *const *names = arg;
    motet_result result = MOTET_OK;

    for (int i = 0; i < 2 && result == MOTET_OK; i++)
        result = motet_params_from_environment(&params);
    if (result != MOTET_OK)
        printf("failed: %s\n", motet_error_trail());
    for (; result == MOTET_OK && *names != NULL; names++) {
        for (size_t i = 0; i < MOTET_PARAM_COUNT; i++) {
            char text[64];

            if (strcmp(motet_param_table[i].name, *names) != 0)
                continue;
            motet_param_format(&params, (motet_param_id)i, text, sizeof(text));
            printf("%s=%s\n", *names, text);
        }
    }
    return (int)result;
}

static void test_an_unknown_name_is_warned_about_once_with_its_neighbour(void **state)
{
    static const char *const environment[] = { "MOTET_OP_TIMEOUT=3", "MOTET_XYZZY=1",
        "NCCL_NO_SUCH_THING=1", "MOTETTE=1", "MOTET_DEBUG\n=1", NULL };
    static const char *const names[] = { "MOTET_OP_TIMEOUT_S", NULL };
    child_result child = child_run(load_environment, names, environment);

    (void)state;
    assert_int_equal(child.status, 0);
    assert_string_equal(child.out, "MOTET_OP_TIMEOUT_S=1800 s\n");
    assert_int_equal(child_count(child.err, "NCCL WARN "), 3);
    assert_int_equal(child_count(child.err,
                             "MOTET_OP_TIMEOUT in the environment is not a "
                             "variable of motet: did you mean "
                             "MOTET_OP_TIMEOUT_S\n"),
            1);
    assert_int_equal(child_count(child.err,
                             "MOTET_XYZZY in the environment is not a "
                             "variable of motet: `motet params` lists"),
            1);
    assert_int_equal(child_count(child.err, "MOTET_DEBUG? in the"), 1);
}

static void test_a_bad_value_in_the_environment_fails_the_caller(void **state)
{
    static const char *const environment[] = { "MOTET_OP_TIMEOUT_S=soon", NULL };
    static const char *const names[] = { NULL };
    child_result child = child_run(load_environment, names, environment);

    (void)state;
    assert_int_equal(child.status, MOTET_ERR_ARGUMENT);
    assert_string_equal(child.out,
            "failed: read the parameters: MOTET_OP_TIMEOUT_S is "
            "'soon', need 0..1000000000 s\n");
}

static void test_what_is_set_is_logged_once_at_info(void **state)
{
    static const char *const environment[] = { "NCCL_DEBUG=INFO", "NCCL_IB_DISABLE=1",
        "NCCL_MAX_CTAS=0x10", "MOTET_HOSTID=a\nb", "HOME=/nowhere",
        "XDG_STATE_HOME=/no", "CUDA_VISIBLE_DEVICES=0,1", "NCCL_ALGO=", NULL };
    static const char *const lines[] = {
        "NCCL INFO NCCL_DEBUG set by environment to INFO\n",
        "NCCL INFO NCCL_IB_DISABLE set by environment to 1\n",
        "NCCL INFO NCCL_MAX_CTAS set by environment to 0x10\n",
        "NCCL INFO MOTET_HOSTID set by environment to a?b\n",
        "NCCL INFO CUDA_VISIBLE_DEVICES set by environment to 0,1\n",
    };
    static const char *const names[] = { NULL };
    child_result child = child_run(load_environment, names, environment);

    (void)state;
    assert_int_equal(child.status, 0);
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++)
        assert_int_equal(child_count(child.out, lines[i]), 1);
    assert_int_equal(child_count(child.out, "set by environment"), 5);
    assert_string_equal(child.err, "");
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static void test_configuration_files_stand_below_the_environment(void **state)
{
    char folder[] = "/tmp/motet-param-XXXXXX", path[64], named[64], home[64];
    char conf_file[96];
    static const char *const names[] = { "MOTET_MAX_CTAS", "MOTET_MIN_CTAS",
        "MOTET_HOSTID", "NCCL_TUNER_PLUGIN", NULL };
    child_result child;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/.nccl.conf", folder);
    snprintf(named, sizeof(named), "%s/mine", folder);
    snprintf(home, sizeof(home), "HOME=%s", folder);
    snprintf(conf_file, sizeof(conf_file), "NCCL_CONF_FILE=%s", named);
    write_file(path,
            "# a comment\nMOTET_MAX_CTAS = 5\n "
            "NCCL_MIN_CTAS=6\r\nNCCL_TUNER_PLUGIN=LL\n"
            "NCCL_HOSTID=home\nMOTET_WRONG=1\nnonsense\n");
    write_file(named, "NCCL_HOSTID=named");
    {
        /* an alias in the environment stands above our name in a file */
        const char *const environment[] = { home, "NCCL_MAX_CTAS=7", "NCCL_DEBUG=INFO",
            NULL };

        child = child_run(load_environment, names, environment);
        assert_int_equal(child.status, 0);
        assert_non_null(strstr(child.out,
                "MOTET_MAX_CTAS=7\nMOTET_MIN_CTAS=6\n"
                "MOTET_HOSTID=home\nNCCL_TUNER_PLUGIN=LL\n"));
        assert_non_null(strstr(child.out,
                "NCCL_TUNER_PLUGIN set by environment to LL (from /tmp/"));
        assert_int_equal(child_count(child.out, "MOTET_WRONG in /tmp/"), 1);
    }
    {
        const char *const environment[] = { home, conf_file, NULL };

        child = child_run(load_environment, names, environment);
        assert_int_equal(child.status, 0);
        assert_non_null(strstr(child.out,
                "MOTET_MAX_CTAS=-1\nMOTET_MIN_CTAS=-1\n"
                "MOTET_HOSTID=named\nNCCL_TUNER_PLUGIN=unset\n"));
    }
    unlink(named);
    unlink(path);
    rmdir(folder);
}

static void test_a_named_file_that_cannot_be_read_is_said_once(void **state)
{
    static const struct {
        const char *environment[2];
        const char *reason;
    } cases[] = {
        { { "NCCL_CONF_FILE=/no/such/file", NULL },
                "/no/such/file is not used: No such file or directory" },
        { { "NCCL_CONF_FILE=/tmp", NULL }, "/tmp is not used: Invalid argument" },
        { { "NCCL_CONF_FILE=/dev/zero", NULL }, "/dev/zero is not used: Invalid" },
    };
    static const char *const names[] = { NULL };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        child_result child = child_run(load_environment, names, cases[i].environment);

        assert_int_equal(child.status, 0);
        assert_int_equal(child_count(child.err, cases[i].reason), 1);
        assert_int_equal(child_count(child.err, "NCCL WARN"), 1);
    }
}

typedef struct found {
    char text[1024];
} found;

static void note(void *arg, const char *key, const char *value)
{
    found *f = arg;
    size_t used = strlen(f->text);

    snprintf(f->text + used, sizeof(f->text) - used, "[%s|%s]", key, value);
}

static void test_a_configuration_file_is_lines_of_pairs(void **state)
{
    static const struct {
        const char *text;
        size_t bytes; /* 0: all */
        const char *found;
    } cases[] = {
        { "", 0, "" },
        { "A=1", 0, "[A|1]" },
        { "A=1\nB=2\n", 0, "[A|1][B|2]" },
        { "\n\n A\t=\t1 \r\n", 0, "[A|1]" },
        { "#A=1\n  # B=2\nC=3 # kept", 0, "[C|3 # kept]" },
        { "A=b=c", 0, "[A|b=c]" },
        { "A=\n=B\n=\nC", 0, "[A|]" },
        { "A=1\0B=2\nC=3", 11, "[C|3]" },
        { "A=12", 3, "[A|1]" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        found f = { "" };

        motet_conf_parse(cases[i].text,
                cases[i].bytes != 0 ? cases[i].bytes : strlen(cases[i].text), note, &f);
        assert_string_equal(f.text, cases[i].found);
    }
    motet_conf_parse(NULL, 0, note, NULL);
}

static void test_the_nearest_name_is_near(void **state)
{
    static const struct {
        const char *name, *nearest;
    } cases[] = {
        { "MOTET_OP_TIMEOUT_S", "MOTET_OP_TIMEOUT_S" },
        { "MOTET_OP_TIMEOUT", "MOTET_OP_TIMEOUT_S" },
        { "MOTET_DEVICES", "MOTET_DEVICE" },
        { "MOTET_COMMID", "MOTET_COMM_ID" },
        { "MOTET_DBUG", "MOTET_DEBUG" },
        { "MOTET_TRACEDIR", "MOTET_TRACE_DIR" },
        { "MOTET_ABCDEFGHIJKLMNOP", NULL },
        { "", NULL },
    };
    char longest[200];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const char *nearest = motet_param_nearest(cases[i].name);

        if (cases[i].nearest == NULL)
            assert_null(nearest);
        else
            assert_string_equal(nearest, cases[i].nearest);
    }
    memset(longest, 'M', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    assert_null(motet_param_nearest(longest));
}

static void test_values_are_shown_with_their_unit(void **state)
{
    static const struct {
        motet_param_id id;
        const char *name, *value, *shown;
    } cases[] = {
        { MOTET_P_OP_TIMEOUT_S, "OTHER", "", "1800 s" },
        { MOTET_P_CHUNK_BYTES, "MOTET_CHUNK_BYTES", "16k", "16384 bytes" },
        { MOTET_P_EPOCH_START, "MOTET_EPOCH_START", "7", "7" },
        { MOTET_P_DEVICE, "OTHER", "", "auto" },
        { MOTET_P_DEVICE, "MOTET_DEVICE", "hip", "hip" },
        { MOTET_P_DEBUG, "MOTET_DEBUG", "0", "no" },
        { MOTET_P_COMM_ID, "OTHER", "", "unset" },
        { MOTET_P_COMM_ID, "NCCL_COMM_ID", "h:1", "h:1" },
        { MOTET_P_NCCL_ALGO, "NCCL_ALGO", "Ring", "Ring" },
    };
    char text[64], tiny[4];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_int_equal(load(cases[i].name, cases[i].value), MOTET_OK);
        motet_param_format(&params, cases[i].id, text, sizeof(text));
        assert_string_equal(text, cases[i].shown);
    }
    motet_param_format(&params, MOTET_P_OP_TIMEOUT_S, tiny, sizeof(tiny));
    assert_string_equal(tiny, "180");
}

static void test_the_table_is_sorted_documented_and_consistent(void **state)
{
    size_t breaks = 0;

    (void)state;
    for (size_t i = 0; i < MOTET_PARAM_COUNT; i++) {
        const motet_param_info *row = &motet_param_table[i];
        size_t length = strlen(row->help);

        if (i > 0 && strcmp(row->name, motet_param_table[i - 1].name) < 0)
            breaks++;
        assert_true(length > 3);
        assert_int_equal(row->help[length - 1], '.');
        assert_int_equal(row->type == MOTET_PARAM_ENUM, row->words != NULL);
        assert_int_equal(row->alias != NULL, row->alias != NULL && row->name[0] == 'M');
        if (row->type == MOTET_PARAM_ENUM) {
            char last[64];

            memset(&params.value[i], 0, sizeof(params.value[i]));
            params.value[i].number = row->max;
            motet_param_format(&params, (motet_param_id)i, last, sizeof(last));
            assert_string_not_equal(last, "?");
            params.value[i].number = row->max + 1;
            motet_param_format(&params, (motet_param_id)i, last, sizeof(last));
            assert_string_equal(last, "?");
        }
        for (size_t j = 0; j < i; j++) {
            assert_string_not_equal(row->name, motet_param_table[j].name);
            if (row->alias != NULL && motet_param_table[j].alias != NULL)
                assert_string_not_equal(row->alias, motet_param_table[j].alias);
        }
    }
    assert_int_equal(breaks, 3); /* four parts */
}

static void test_the_variables_every_job_sets_are_rows(void **state)
{
    static const char *const wanted[] = { "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS",
        "NCCL_DEBUG_FILE", "NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE", "NCCL_IB_HCA",
        "NCCL_IB_GID_INDEX", "NCCL_IB_TIMEOUT", "NCCL_IB_RETRY_CNT", "NCCL_P2P_DISABLE",
        "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_ALGO", "NCCL_PROTO",
        "NCCL_BUFFSIZE", "NCCL_NTHREADS", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS",
        "NCCL_MIN_CTAS", "NCCL_MAX_CTAS", "NCCL_NET_PLUGIN", "NCCL_NET",
        "NCCL_TUNER_PLUGIN", "NCCL_TOPO_FILE", "NCCL_TOPO_DUMP_FILE",
        "NCCL_GRAPH_DUMP_FILE", "NCCL_COMM_ID", "NCCL_COMM_BLOCKING",
        "NCCL_SOCKET_FAMILY", "NCCL_HOSTID", "NCCL_CONF_FILE", "CUDA_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES" };

    (void)state;
    for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++) {
        size_t rows = 0;

        for (size_t r = 0; r < MOTET_PARAM_COUNT; r++) {
            const motet_param_info *row = &motet_param_table[r];

            rows += strcmp(row->name, wanted[i]) == 0 ||
                    (row->alias != NULL && strcmp(row->alias, wanted[i]) == 0);
        }
        if (rows != 1)
            fail_msg("%s has %zu rows", wanted[i], rows);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unset_gives_the_default),
        cmocka_unit_test(test_good_values_are_taken),
        cmocka_unit_test(test_bad_values_of_ours_are_refused_and_explained),
        cmocka_unit_test(test_a_text_of_ours_that_is_too_long_is_refused),
        cmocka_unit_test(test_our_name_wins_over_nccls),
        cmocka_unit_test(test_a_bad_alias_is_a_warning_and_the_default),
        cmocka_unit_test(test_a_long_list_of_devices_is_still_seen_to_be_set),
        cmocka_unit_test(test_an_unknown_name_is_warned_about_once_with_its_neighbour),
        cmocka_unit_test(test_a_bad_value_in_the_environment_fails_the_caller),
        cmocka_unit_test(test_what_is_set_is_logged_once_at_info),
        cmocka_unit_test(test_configuration_files_stand_below_the_environment),
        cmocka_unit_test(test_a_named_file_that_cannot_be_read_is_said_once),
        cmocka_unit_test(test_a_configuration_file_is_lines_of_pairs),
        cmocka_unit_test(test_the_nearest_name_is_near),
        cmocka_unit_test(test_values_are_shown_with_their_unit),
        cmocka_unit_test(test_the_table_is_sorted_documented_and_consistent),
        cmocka_unit_test(test_the_variables_every_job_sets_are_rows),
    };

    return cmocka_run_group_tests_name("param", tests, NULL, NULL);
}
