/* SPDX-License-Identifier: Apache-2.0 */
/* Linked with flavour_rccl.c, as librccl is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/log.h"
#include "base/param.h"
#include "child.h"

#include <fcntl.h>

static motet_params params;

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static int show(const void *arg)
{
    (void)arg;
    motet_log_version();
    if (motet_params_from_environment(&params) != MOTET_OK)
        return 1;
    printf("host id %s\n", motet_param_text(&params, MOTET_P_HOSTID));
    return 0;
}

static void test_librccl_has_its_own_version_line_and_files(void **state)
{
    char folder[] = "/tmp/motet-flavour-XXXXXX", nccl[64], rccl[64], home[64];
    const char *environment[] = { "NCCL_DEBUG=VERSION", home, NULL };
    child_result child;

    (void)state;
    assert_string_equal(motet_conf_name, "rccl");
    assert_non_null(mkdtemp(folder));
    snprintf(home, sizeof(home), "HOME=%s", folder);
    snprintf(nccl, sizeof(nccl), "%s/.nccl.conf", folder);
    snprintf(rccl, sizeof(rccl), "%s/.rccl.conf", folder);
    write_file(nccl, "NCCL_HOSTID=wrong\n");
    write_file(rccl, "NCCL_HOSTID=right\n");
    child = child_run(show, NULL, environment);
    unlink(nccl);
    unlink(rccl);
    rmdir(folder);
    assert_int_equal(child.status, 0);
    assert_non_null(strstr(child.out, "RCCL version : 2.27.7-motet"));
    assert_non_null(strstr(child.out, "host id right\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_librccl_has_its_own_version_line_and_files),
    };

    return cmocka_run_group_tests_name("flavour", tests, NULL, NULL);
}
