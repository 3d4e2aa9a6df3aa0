/* SPDX-License-Identifier: Apache-2.0 */
/* Who computes on a host's GPUs: on trees of files that look like hosts. */
#include "serving_fixture.h"

#define ID "3f2a9c0d1e5b7a8899aabbccddeeff00112233445566778899aabbccddeeff00"

static void put_for(int pid, const char *file, const char *text)
{
    char name[128];

    snprintf(name, sizeof(name), "/proc/%d/%s", pid, file);
    put(name, text);
}

/* A process with @p vram bytes on GPU @p gpu, and so many queues there. */
static void put_user(int pid, unsigned gpu, const char *vram, int queues)
{
    char name[200], text[64];

    snprintf(name, sizeof(name), "/sys/class/kfd/kfd/proc/%d/pasid", pid);
    put(name, "32770\n");
    snprintf(name, sizeof(name), "/sys/class/kfd/kfd/proc/%d/vram_%u", pid, gpu);
    put(name, vram);
    snprintf(name, sizeof(name), "/sys/class/kfd/kfd/proc/%d/sdma_%u", pid, gpu);
    put(name, "123456\n");
    snprintf(text, sizeof(text), "%u\n", gpu);
    for (int i = 0; i < queues; i++) {
        snprintf(name, sizeof(name), "/sys/class/kfd/kfd/proc/%d/queues/%d/gpuid", pid,
                i);
        put(name, text);
    }
}

static void put_process(int pid, int parent, const char *comm, const char *cgroup)
{
    char text[128];

    snprintf(text, sizeof(text), "%d (%s) S %d 1 1 0 -1 4194560\n", pid, comm, parent);
    put_for(pid, "stat", text);
    snprintf(text, sizeof(text), "%s\n", comm);
    put_for(pid, "comm", text);
    put_for(pid, "cgroup", cgroup);
}

/* ---- KFD ---- */

static void test_a_host_without_gpus_has_no_users(void **state)
{
    struct serving s;

    (void)state;
    serving_look(&s);
    assert_int_equal(s.num_users, 0);
    assert_int_equal(s.num_unmasked, 0);
    assert_null(s.unknown);
    assert_false(serving_busy(&s));
    assert_int_equal(serving_refuse("smoke", false), -1);
}

static void test_who_only_opened_the_driver_is_no_user(void **state)
{
    struct serving s;

    (void)state;
    put_user(100, 51234, "0\n", 0);
    put_user(101, 51234, "65536\n", 0);
    put_user(102, 51234, "1048576\n", 0);
    put("/sys/class/kfd/kfd/proc/garbage/vram_51234", "9999999999\n");
    put("/sys/class/kfd/kfd/proc/103x/vram_51234", "9999999999\n");
    serving_look(&s);
    assert_int_equal(s.num_users, 0);
    assert_false(serving_busy(&s));
}

static void test_memory_or_a_queue_makes_a_user(void **state)
{
    struct serving s;

    (void)state;
    put_user(4712, 51234, "21474836480\n", 0);
    put_user(4711, 51234, "0\n", 2);
    put_user(4711, 777, "0\n", 0);
    put("/sys/class/kfd/kfd/proc/4713/context_1/vram_777", "2097152\n");
    put("/sys/class/kfd/kfd/topology/nodes/0/gpu_id", "0\n");
    put("/sys/class/kfd/kfd/topology/nodes/1/gpu_id", "51234\n");
    put("/sys/class/kfd/kfd/topology/nodes/1/properties",
            "simd_count 96\nlocation_id 17152\ndomain 0\nmax_waves_per_simd 16\n");
    serving_look(&s);
    assert_int_equal(s.num_users, 3);
    assert_int_equal(s.users[0].pid, 4711);
    assert_string_equal(s.users[0].gpu,
            "KFD gpu_id 51234 (0000:43:00.0): 2 queues, 0 MiB");
    assert_int_equal(s.users[1].pid, 4712);
    assert_string_equal(s.users[1].gpu,
            "KFD gpu_id 51234 (0000:43:00.0): 0 queues, 20480 MiB");
    assert_int_equal(s.users[2].pid, 4713);
    assert_string_equal(s.users[2].gpu, "KFD gpu_id 777: 0 queues, 2 MiB");
    assert_true(serving_busy(&s));
    assert_string_equal(s.users[2].stop, "kill 4713");
}

static void test_one_process_on_two_gpus_is_one_user(void **state)
{
    struct serving s;

    (void)state;
    put_user(4711, 1, "0\n", 0);
    put_user(4711, 2, "4194304\n", 0);
    put("/sys/class/kfd/kfd/proc/4711/vram_3", "8388608\n");
    serving_look(&s);
    assert_int_equal(s.num_users, 1);
    assert_int_equal(s.num_busy, 1);
    assert_says(s.users[0].gpu, "gpu_id 2: 0 queues, 4 MiB");
    assert_says(s.users[0].gpu, "gpu_id 3: 0 queues, 8 MiB");
}

static void test_more_users_than_are_named_are_counted(void **state)
{
    struct serving s;

    (void)state;
    for (int i = 0; i < SERVING_MAX + 5; i++)
        put_user(2000 - i, 51234, "0\n", 1);
    serving_look(&s);
    assert_int_equal(s.num_users, SERVING_MAX);
    assert_int_equal(s.num_more, 5);
    assert_int_equal(s.num_busy, SERVING_MAX + 5);
    for (int i = 0; i < SERVING_MAX; i++)
        assert_int_equal(s.users[i].pid, 2000 - SERVING_MAX - 4 + i);
}

static void test_a_list_that_cannot_be_read_is_said(void **state)
{
    struct serving s;

    (void)state;
    put_link("/sys/class/kfd/kfd/proc", "proc");
    serving_look(&s);
    assert_int_equal(s.num_users, 0);
    assert_non_null(s.unknown);
    assert_says(s.unknown, "kfd/proc: ");
}

static void test_the_caller_and_its_children_are_not_counted(void **state)
{
    struct serving s;
    int self = (int)getpid();

    (void)state;
    put_user(self, 51234, "0\n", 1);
    put_process(self, 1, "motet", "0::/user.slice\n");
    put_user(900001, 51234, "0\n", 1);
    put_process(900001, self, "a) S 1 (b", "0::/\n");
    put_user(900002, 51234, "0\n", 1);
    put_process(900002, 900001, "rank", "0::/\n");
    put_user(900003, 51234, "0\n", 1);
    put_process(900003, 1, "rank", "0::/\n");
    put_user(900004, 51234, "0\n", 1); /* its own parent, as a lie */
    put_process(900004, 900004, "loop", "0::/\n");
    serving_look(&s);
    assert_int_equal(s.num_users, 2);
    assert_int_equal(s.users[0].pid, 900003);
    assert_int_equal(s.users[1].pid, 900004);
}

/* ---- who it is ---- */

static void test_a_command_is_one_printable_line(void **state)
{
    static const char line[] = "python3\0-m\0vllm\x1b[31m\0--api\nkey\0\0";
    char long_line[5000];
    struct serving s;

    (void)state;
    put_user(11, 1, "0\n", 1);
    put_bytes("/proc/11/cmdline", line, sizeof(line) - 1);
    put_user(12, 1, "0\n", 1);
    put_bytes("/proc/12/cmdline", "", 0);
    put_process(12, 1, "kworker", "0::/\n");
    put_user(13, 1, "0\n", 1);
    put_user(14, 1, "0\n", 1);
    memset(long_line, 'x', sizeof(long_line));
    put_bytes("/proc/14/cmdline", long_line, sizeof(long_line));
    serving_look(&s);
    assert_int_equal(s.num_users, 4);
    assert_string_equal(s.users[0].command, "python3 -m vllm [31m --api key");
    assert_string_equal(s.users[1].command, "kworker");
    assert_string_equal(s.users[2].command, "(its command cannot be read from here)");
    assert_int_equal(strlen(s.users[3].command), sizeof(s.users[3].command) - 1);
}

static void test_a_display_server_is_named_and_no_user(void **state)
{
    static const char *const names[] = { "Xorg", "Xwayland", "gnome-shell", "sway" };
    struct serving s;

    (void)state;
    for (int i = 0; i < 4; i++) {
        put_user(50 + i, 1, "268435456\n", 1);
        put_process(50 + i, 1, names[i], "0::/system.slice/gdm.service\n");
    }
    serving_look(&s);
    assert_int_equal(s.num_users, 4);
    assert_int_equal(s.num_busy, 0);
    assert_true(s.users[0].display);
    assert_false(serving_busy(&s));
    assert_int_equal(serving_refuse("smoke", false), -1);
    put_user(54, 1, "268435456\n", 1);
    put_process(54, 1, "swayed", "0::/\n"); /* only begins like one */
    assert_int_equal(serving_refuse("smoke", false), 2);
}

static void test_the_drivers_own_daemons_are_no_users(void **state)
{
    struct serving s;

    (void)state;
    put_user(60, 1, "268435456\n", 1);
    put_process(60, 1, "nvidia-cuda-mps", "0::/\n");
    put_user(61, 1, "268435456\n", 1);
    put_process(61, 1, "nvidia-persiste", "0::/\n");
    serving_look(&s);
    assert_int_equal(s.num_users, 0);
}

static const struct {
    const char *cgroup, *unit, *stop;
    bool is_unit;
} cgroups[] = {
    { "0::/system.slice/vllm.service\n", "vllm.service",
            "systemctl stop vllm.service && systemctl mask vllm.service", true },
    { "12:pids:/x\n1:name=systemd:/system.slice/ollama.service\n0::/\n",
            "ollama.service",
            "systemctl stop ollama.service && systemctl mask ollama.service", true },
    { "0::/system.slice/system-vllm.slice/vllm@a.service\n", "vllm@a.service",
            "systemctl stop vllm@a.service && systemctl mask vllm@a.service", true },
    { "0::/user.slice/user-1000.slice/user@1000.service/app.slice/ollama.service\n",
            "ollama.service of user 1000",
            "systemctl --user stop ollama.service && systemctl --user mask "
            "ollama.service (as user 1000)",
            true },
    { "0::/user.slice/user-1000.slice/session-3.scope\n", "", "kill 7", false },
    { "0::/system.slice/sshd.service\n", "", "kill 7", false },
    { "0::/system.slice/cron.service\n", "", "kill 7", false },
    { "0::/\n", "", "kill 7", false },
    { "", "", "kill 7", false },
    { "0::/system.slice/docker-" ID ".scope\n", "docker container 3f2a9c0d1e5b",
            "docker update --restart=no 3f2a9c0d1e5b && docker stop 3f2a9c0d1e5b "
            "(with another restart policy it may come back)",
            false },
    { "5:devices:/docker/" ID "\n", "docker container 3f2a9c0d1e5b",
            "docker update --restart=no 3f2a9c0d1e5b && docker stop 3f2a9c0d1e5b "
            "(with another restart policy it may come back)",
            false },
    { "0::/system.slice/docker-" ID ".scope/system.slice/vllm.service\n",
            "docker container 3f2a9c0d1e5b", NULL, false },
    { "0::/machine.slice/libpod-" ID ".scope/container\n",
            "podman container 3f2a9c0d1e5b",
            "podman stop 3f2a9c0d1e5b (a restart policy, or a unit of systemd, may "
            "start it again)",
            false },
    { "0::/system.slice/vllm.service/libpod-payload-" ID "\n", "vllm.service",
            "systemctl stop vllm.service && systemctl mask vllm.service", true },
    { "0::/kubepods.slice/kubepods-burstable.slice/"
      "kubepods-burstable-pod1.slice/cri-containerd-" ID ".scope\n",
            "Kubernetes container 3f2a9c0d1e5b", NULL, false },
    { "0::/system.slice/containerd.service/kubepods-besteffort-pod1.slice:"
      "cri-containerd:" ID "\n",
            "Kubernetes container 3f2a9c0d1e5b", NULL, false },
    { "4:memory:/kubepods/burstable/pod1/" ID "\n", "Kubernetes container 3f2a9c0d1e5b",
            NULL, false },
    { "0::/odd/" ID "\n", "container 3f2a9c0d1e5b",
            "kill 7 (what started the container may do so again)", false },
    { "0::/lxc/104/ns/user.slice\n", "LXC container 104",
            "pct stop 104 (and take its start at boot away)", false },
    { "0::/lxc.payload.web/system.slice/x.service\n", "LXC container web",
            "lxc-stop -n web (and take its start at boot away)", false },
    { "0::/system.slice/slurmstepd.scope/job_812/step_0/user/task_0\n", "Slurm job 812",
            "scancel 812", false },
};

static void test_a_cgroup_says_what_has_to_be_stopped(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cgroups) / sizeof(*cgroups); i++) {
        struct serving_user u = { .pid = 7, .stop = "kill 7" };

        serving_place(cgroups[i].cgroup, &u);
        assert_string_equal(u.unit, cgroups[i].unit);
        if (cgroups[i].stop != NULL)
            assert_string_equal(u.stop, cgroups[i].stop);
        else
            assert_says(u.stop, "3f2a9c0d1e5b");
        assert_int_equal(u.is_unit, cgroups[i].is_unit);
    }
}

static void test_cgroups_that_lie_are_survived(void **state)
{
    static char text[9000];
    struct serving_user u = { .pid = 7, .stop = "kill 7" };

    (void)state;
    memset(text, 'a', sizeof(text) - 1);
    serving_place(text, &u);
    memset(text, '/', sizeof(text) - 1);
    serving_place(text, &u);
    snprintf(text, 20, "0::/");
    memset(text + 4, 'u', 3000);
    snprintf(text + 3004, 100, ".service\n");
    serving_place(text, &u);
    assert_string_equal(u.unit, "");
    serving_place("0::\n\n:::\n0::/user@.service/.service\n", &u);
    assert_true(strlen(u.unit) < sizeof(u.unit));
}

/* ---- what is said ---- */

static int refuse(void)
{
    return serving_refuse("bench", false);
}

static int warn(void)
{
    return serving_refuse("bench", true);
}

static void test_a_refusal_names_who_and_how_to_stop_it(void **state)
{
    const char *text;
    int code;

    (void)state;
    put_user(4711, 51234, "21474836480\n", 3);
    put_process(4711, 1, "python3", "0::/system.slice/vllm.service\n");
    put_bytes("/proc/4711/cmdline", "python3\0-m\0vllm", 15);
    put_user(4800, 51234, "21474836480\n", 3);
    put_process(4800, 1, "serve", "0::/system.slice/docker-" ID ".scope\n");
    put_user(4801, 51234, "21474836480\n", 3);
    put_process(4801, 1, "Xorg", "0::/system.slice/gdm.service\n");
    text = words_of(refuse, &code);
    assert_int_equal(code, 2);
    assert_says(text, "motet bench: refused: ");
    assert_says(text, "pid 4711: python3 -m vllm\n");
    assert_says(text, "unit vllm.service\n");
    assert_says(text, "systemctl stop vllm.service && systemctl mask vllm.service");
    assert_says(text, "pid 4800: serve\n");
    assert_says(text, "docker container 3f2a9c0d1e5b");
    assert_says(text, "docker stop 3f2a9c0d1e5b");
    assert_says(text, "pid 4801: Xorg\n");
    assert_says(text, "a display server, which may stay");
    assert_null(strstr(text, "systemctl stop gdm.service"));
    assert_says(text, "--serving-anyway");
    text = words_of(warn, &code);
    assert_int_equal(code, -1);
    assert_says(text, "motet bench: warning: ");
    assert_says(text, "pid 4711: ");
    text = words_of(warn, &code);
    assert_int_equal(code, -1);
    assert_string_equal(text, ""); /* once is enough */
}

/* ---- units ---- */

static void test_stopped_units_that_are_not_masked_are_named(void **state)
{
    struct serving s;

    (void)state;
    put("/etc/systemd/system/vllm.service", "[Service]\nExecStart=/opt/vllm serve\n");
    serving_look(&s);
    assert_int_equal(s.num_unmasked, 0); /* nothing starts units here */
    put("/run/systemd/system/x", "");
    put("/usr/lib/systemd/system/llama.service",
            "[Service]\nExecStart=/bin/sh -c \\\n  'llama-server -m x'\n");
    put_link("/etc/systemd/system/llama.service", "/dev/null");
    put("/usr/lib/systemd/system/ollama.service",
            "[Service]\nExecStart=ollama serve\n");
    put_process(77, 1, "ollama", "0::/system.slice/ollama.service\n");
    put("/usr/lib/systemd/system/vllm@.service", "[Service]\nExecStart=vllm\n");
    put("/usr/lib/systemd/system/web.service",
            "[Unit]\nDescription=not a vllm\n# "
            "ExecStart=vllm\n[Service]\nExecStart=web\n");
    put("/usr/lib/systemd/system/empty.service", "");
    put("/etc/systemd/system/kfd.service", "[Service]\nDeviceAllow=/dev/kfd rw\n");
    serving_look(&s);
    assert_int_equal(s.num_unmasked, 2);
    assert_true(strcmp(s.unmasked[0], "vllm.service") == 0 ||
            strcmp(s.unmasked[1], "vllm.service") == 0);
    assert_true(strcmp(s.unmasked[0], "kfd.service") == 0 ||
            strcmp(s.unmasked[1], "kfd.service") == 0);
}

static void test_a_unit_that_was_a_user_is_remembered(void **state)
{
    char path[128];
    struct serving s;

    (void)state;
    put("/run/systemd/system/x", "");
    put("/etc/systemd/system/inference.service", "[Service]\nExecStart=/opt/run.sh\n");
    serving_look(&s);
    assert_int_equal(s.num_unmasked, 0);
    put_user(4711, 1, "0\n", 1);
    put_process(4711, 1, "run", "0::/system.slice/inference.service\n");
    serving_look(&s);
    assert_int_equal(s.num_users, 1);
    assert_int_equal(s.num_unmasked, 0); /* it runs */
    snprintf(path, sizeof(path), "%s/proc/4711", tree);
    assert_int_equal(nftw(path, tree_forget, 16, FTW_DEPTH | FTW_PHYS), 0);
    snprintf(path, sizeof(path), "%s/sys", tree);
    assert_int_equal(nftw(path, tree_forget, 16, FTW_DEPTH | FTW_PHYS), 0);
    serving_look(&s);
    assert_int_equal(s.num_users, 0);
    assert_int_equal(s.num_unmasked, 1);
    assert_string_equal(s.unmasked[0], "inference.service");
    snprintf(path, sizeof(path), "%s/etc/systemd/system/inference.service", tree);
    assert_int_equal(unlink(path), 0);
    put_link("/etc/systemd/system/inference.service", "/dev/null");
    serving_look(&s);
    assert_int_equal(s.num_unmasked, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVING_TEST(test_a_host_without_gpus_has_no_users),
        SERVING_TEST(test_who_only_opened_the_driver_is_no_user),
        SERVING_TEST(test_memory_or_a_queue_makes_a_user),
        SERVING_TEST(test_one_process_on_two_gpus_is_one_user),
        SERVING_TEST(test_more_users_than_are_named_are_counted),
        SERVING_TEST(test_a_list_that_cannot_be_read_is_said),
        SERVING_TEST(test_the_caller_and_its_children_are_not_counted),
        SERVING_TEST(test_a_command_is_one_printable_line),
        SERVING_TEST(test_a_display_server_is_named_and_no_user),
        SERVING_TEST(test_the_drivers_own_daemons_are_no_users),
        SERVING_TEST(test_a_cgroup_says_what_has_to_be_stopped),
        SERVING_TEST(test_cgroups_that_lie_are_survived),
        SERVING_TEST(test_a_refusal_names_who_and_how_to_stop_it),
        SERVING_TEST(test_stopped_units_that_are_not_masked_are_named),
        SERVING_TEST(test_a_unit_that_was_a_user_is_remembered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
