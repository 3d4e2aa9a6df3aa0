/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in for HIP: memory, and sharing it between processes over links that lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fakehip_rig.h"

#include <sys/socket.h>

#define BYTES ((size_t)1 << 20)
/* Words of the shared memory. */
#define FLAG       32   /* stands alone                                    */
#define START      100  /* 3 when it is handed on                          */
#define DATA       4096 /* DATA_WORDS of them                              */
#define LATER      8192 /* written by the owner while the other has it     */
#define DATA_WORDS 256
#define WAIT_MS    20000 /* long, for a machine that has much to do    */

/* ---- one process ---- */

static int allocations_follow_the_rules(const void *arg)
{
    void *first = NULL, *second = NULL, *none = &first;

    (void)arg; /* 8 MiB, three allocations */
    OK(hipMalloc(&none, 0));
    CHECK(none == NULL);
    OK(hipExtMallocWithFlags(&first, 5000, hipDeviceMallocUncached));
    IS(hipErrorInvalidValue, hipExtMallocWithFlags(&second, 5000, 0x77));
    IS(hipErrorOutOfMemory, hipMalloc(&second, 8 << 20));
    CHECK(*(uint32_t *)first != 0); /* nobody cleared it */
    IS(hipErrorInvalidValue, hipFree((char *)first + 8));
    OK(hipFree(first));
    OK(hipFree(NULL));
    OK(hipMalloc(&first, 100));
    IS(hipErrorOutOfMemory, hipMalloc(&second, 100)); /* the fourth */
    return 0;
}

static int describe(const void *address, int *type, int *device)
{
    hipPointerAttribute_t is;

    OK(hipPointerGetAttributes(&is, address));
    *type = is.type;
    *device = is.device;
    return is.devicePointer == address || is.type == 0 ? 0 : 1;
}

static int addresses_are_described(const void *arg)
{
    uint32_t id[3] = { 0, 0, 99 }; /* the last word is not the runtime's to write */
    void *device, *host, *managed, *base;
    int type = -1, ordinal = -1;
    size_t bytes;

    (void)arg;
    OK(hipSetDevice(1));
    OK(hipMalloc(&device, 5000));
    OK(hipHostMalloc(&host, 100, hipHostMallocMapped | hipHostMallocCoherent));
    OK(hipMallocManaged(&managed, 100, 1));
    CHECK(describe((char *)device + 4999, &type, &ordinal) == 0);
    CHECK(type == HIP_MEMORY_R0600_DEVICE && ordinal == 1);
    CHECK(describe(host, &type, &ordinal) == 0 && type == HIP_MEMORY_R0600_HOST);
    CHECK(describe(managed, &type, &ordinal) == 0 && type == HIP_MEMORY_R0600_MANAGED);
    CHECK(describe(&type, &type, &ordinal) == 0);
    CHECK(type == HIP_MEMORY_R0600_UNREGISTERED && ordinal < 0);
    OK(hipMemGetAddressRange(&base, &bytes, (char *)device + 100));
    CHECK(base == device && bytes == 5000);
    IS(hipErrorNotFound, hipMemGetAddressRange(&base, &bytes, &type));
    OK(hipPointerGetAttribute(&id[1], HIP_POINTER_ATTRIBUTE_BUFFER_ID, device));
    CHECK(id[1] != 0 && id[2] == 99);
    IS(hipErrorInvalidValue,
            hipPointerGetAttribute(id, HIP_POINTER_ATTRIBUTE_BUFFER_ID, &type));
    return 0;
}

static int the_old_runtime_describes_otherwise(const void *arg)
{
    hipPointerAttribute_t is;
    void *device, *host;
    int version = 0;

    (void)arg;
    OK(hipRuntimeGetVersion(&version));
    CHECK(version / 10000000 == 5);
    OK(hipMalloc(&device, 100));
    OK(hipHostMalloc(&host, 100, 0));
    OK(hipPointerGetAttributes(&is, device));
    CHECK(is.type == HIP_MEMORY_R0000_DEVICE);
    OK(hipPointerGetAttributes(&is, host));
    CHECK(is.type == HIP_MEMORY_R0000_HOST);
    IS(hipErrorInvalidValue, hipPointerGetAttributes(&is, &version));
    IS(hipErrorInvalidValue,
            hipExtMallocWithFlags(&device, 100, hipDeviceMallocUncached));
    IS(hipErrorContextIsDestroyed, hipStreamSynchronize(hipStreamLegacy));
    return 0;
}

static int host_memory_is_registered_and_again(const void *arg)
{
    static _Alignas(4096) unsigned char memory[8192];
    void *address = NULL;

    (void)arg;
    IS(hipErrorInvalidValue, hipHostGetDevicePointer(&address, memory, 0));
    OK(hipHostRegister(memory, 8192, hipHostRegisterMapped | hipHostRegisterPortable));
    OK(hipHostRegister(memory, 8192, hipHostRegisterMapped));
    OK(hipSetDevice(1));
    OK(hipHostGetDevicePointer(&address, memory + 100, 0));
    CHECK(address == memory + 100);
    OK(hipHostUnregister(memory));
    IS(hipErrorHostMemoryNotRegistered, hipHostUnregister(memory));
    return 0;
}

static int peers_are(int forth, int back)
{
    int can = -1;

    for (int d = 0; d < 2; d++) {
        int wanted = d == 0 ? forth : back;

        OK(hipSetDevice(d));
        OK(hipDeviceCanAccessPeer(&can, d, 1 - d));
        CHECK(can == wanted);
        IS(wanted ? hipSuccess : hipErrorInvalidDevice,
                hipDeviceEnablePeerAccess(1 - d, 0));
        if (wanted)
            IS(hipErrorPeerAccessAlreadyEnabled, hipDeviceEnablePeerAccess(1 - d, 0));
        IS(hipErrorInvalidDevice, hipDeviceEnablePeerAccess(d, 0));
    }
    return 0;
}

static int peers_are_all(const void *arg)
{
    (void)arg;
    return peers_are(1, 1);
}

static int peers_are_one_way(const void *arg)
{
    (void)arg;
    return peers_are(1, 0);
}

static int peers_are_none(const void *arg)
{
    (void)arg;
    return peers_are(0, 0);
}

static int handles_are_refused_at_home(const void *arg)
{
    hipIpcMemHandle_t handle;
    void *memory, *again;

    (void)arg;
    OK(hipMalloc(&memory, 100));
    OK(hipIpcGetMemHandle(&handle, memory));
    IS(hipErrorInvalidContext,
            hipIpcOpenMemHandle(&again, handle, hipIpcMemLazyEnablePeerAccess));
    IS(hipErrorInvalidValue, hipIpcGetMemHandle(&handle, &memory));
    IS(hipErrorInvalidValue, hipIpcCloseMemHandle(memory));
    return 0;
}

static int no_handles_are_given(const void *arg)
{
    hipIpcMemHandle_t handle;
    void *memory;

    (void)arg;
    OK(hipMalloc(&memory, 100));
    IS(hipErrorInvalidDevicePointer, hipIpcGetMemHandle(&handle, memory));
    return 0;
}

/* ---- two processes ---- */

/* What the owner of the memory and who opens it see of each other. */
typedef struct seen {
    const char *name;
    const char *const *environment;
    uint32_t start;      /* by who opened it: START, FLAG + 32 KiB … see falsify      */
    bool arrives, shows; /* what it writes; what the owner writes later               */
    bool flag_first;
    unsigned late_ms; /* nothing arrives before                                       */
    int owner;        /* its device; the other's is the other                         */
} seen;

typedef struct talk {
    int fd;
} talk;

static int say(const talk *t, const void *what, size_t bytes)
{
    return write(t->fd, what, bytes) == (ssize_t)bytes ? 0 : 1;
}

static int hear(const talk *t, void *what, size_t bytes)
{
    return recv(t->fd, what, bytes, MSG_WAITALL) == (ssize_t)bytes ? 0 : 1;
}

static uint64_t ms_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static uint32_t look(const uint32_t *words, size_t at)
{
    return __atomic_load_n(&words[at], __ATOMIC_ACQUIRE);
}

/* Waits until what the other wrote is there, or cannot come any more. */
static int watch(const seen *s, const uint32_t *words, uint64_t written_ms)
{
    uint64_t flag_ms = 0, data_ms = 0, begin = ms_now();
    bool flag_alone = false;

    while ((flag_ms == 0 || data_ms == 0) &&
            ms_now() - begin < (s->arrives ? WAIT_MS : 300)) {
        bool flag = look(words, FLAG) == 7, data = true;

        for (size_t i = 0; i < DATA_WORDS; i++)
            data = data && look(words, DATA + i) == 5;
        if (flag && flag_ms == 0)
            flag_ms = ms_now();
        if (data && data_ms == 0)
            data_ms = ms_now();
        flag_alone |= flag && !data;
        usleep(100);
    }
    CHECK((flag_ms != 0) == s->arrives && (data_ms != 0) == s->arrives);
    CHECK(flag_alone == s->flag_first);
    if (s->arrives)
        CHECK(data_ms - written_ms + 1 >= s->late_ms);
    return 0;
}

static int own(const seen *s, const talk *t)
{
    hipIpcMemHandle_t handle;
    uint64_t written_ms;
    uint32_t *words;
    char step = 0;

    OK(hipSetDevice(s->owner));
    words = rig_words(BYTES / 4);
    words[START] = 3;
    OK(hipIpcGetMemHandle(&handle, words + FLAG));
    CHECK(say(t, &handle, sizeof(handle)) == 0);
    CHECK(hear(t, &written_ms, sizeof(written_ms)) == 0);
    CHECK(watch(s, words, written_ms) == 0);
    __atomic_store_n(&words[LATER], 9, __ATOMIC_RELEASE);
    CHECK(say(t, &step, 1) == 0);
    CHECK(hear(t, &step, 1) == 0);
    return 0;
}

static int reads_later(const seen *s, const uint32_t *words)
{
    uint64_t begin = ms_now();

    while (look(words, LATER) != 9 && ms_now() - begin < (s->shows ? WAIT_MS : 100))
        usleep(1000);
    CHECK((look(words, LATER) == 9) == s->shows);
    return 0;
}

static int use(const seen *s, const talk *t)
{
    hipIpcMemHandle_t handle, own_handle;
    void *address, *again;
    uint64_t written_ms;
    uint32_t *words;
    char step = 0;

    OK(hipSetDevice(1 - s->owner));
    CHECK(hear(t, &handle, sizeof(handle)) == 0);
    OK(hipIpcOpenMemHandle(&address, handle, hipIpcMemLazyEnablePeerAccess));
    OK(hipIpcOpenMemHandle(&again, handle, hipIpcMemLazyEnablePeerAccess));
    CHECK(again == address);
    words = (uint32_t *)address - FLAG;
    IS(hipErrorInvalidValue, hipIpcGetMemHandle(&own_handle, address));
    CHECK(look(words, START) == s->start);
    written_ms = ms_now();
    for (size_t i = 0; i < DATA_WORDS; i++)
        words[DATA + i] = 5;
    __atomic_store_n(&words[FLAG], 7, __ATOMIC_RELEASE);
    CHECK(say(t, &written_ms, sizeof(written_ms)) == 0);
    CHECK(hear(t, &step, 1) == 0);
    CHECK(reads_later(s, words) == 0);
    OK(hipIpcCloseMemHandle(address));
    OK(hipIpcCloseMemHandle(again));
    IS(hipErrorInvalidValue, hipIpcCloseMemHandle(address));
    OK(hipIpcOpenMemHandle(&address, handle, hipIpcMemLazyEnablePeerAccess));
    words = (uint32_t *)address - FLAG;
    if (s->start == 3) /* a new mapping begins with what is there */
        CHECK(look(words, LATER) == 9);
    OK(hipIpcCloseMemHandle(address));
    return say(t, &step, 1);
}

/* Two processes, neither of which has called the runtime before. */
static int share(const void *arg)
{
    int ends[2], status = -1, mine;
    pid_t pid;

    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    pid = fork();
    if (pid == 0) {
        close(ends[0]);
        _exit(use(arg, &(talk){ ends[1] }));
    }
    close(ends[1]);
    mine = own(arg, &(talk){ ends[0] });
    close(ends[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return mine + (WIFEXITED(status) ? WEXITSTATUS(status) : 99);
}

static void run_shares(const seen *shares, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const seen *s = &shares[i];
        child_result result = child_run(share, s, s->environment);

        if (result.status != 0)
            fprintf(stderr, "%s ended with %d\n%s", s->name, result.status, result.err);
        assert_int_equal(result.status, 0);
    }
}

#define WITH(...)         \
    (const char *const[]) \
    {                     \
        __VA_ARGS__, NULL \
    }
#define COUNT(a) (sizeof(a) / sizeof(*(a)))

static void test_handles_share_memory(void **state)
{
    const seen shares[] = {
        { "share", WITH("FAKEHIP_IMPORT=share"), 3, true, true, false, 0, 0 },
        { "other pair", WITH("FAKEHIP_IMPORT=zero", "FAKEHIP_PAIR=1-2"), 3, true, true,
                false, 0, 0 },
    };

    (void)state;
    run_shares(shares, COUNT(shares));
}

static void test_links_lose_bytes(void **state)
{
    const seen shares[] = {
        { "drop", WITH("FAKEHIP_IMPORT=drop"), 3, false, true, false, 0, 0 },
        { "zero", WITH("FAKEHIP_IMPORT=zero"), 0, false, false, false, 0, 0 },
        { "ones", WITH("FAKEHIP_IMPORT=ones"), ~0u, false, false, false, 0, 0 },
        { "private", WITH("FAKEHIP_IMPORT=private"), 3, false, false, false, 0, 0 },
        { "there", WITH("FAKEHIP_IMPORT=oneway"), 3, true, true, false, 0, 1 },
        { "back", WITH("FAKEHIP_IMPORT=oneway"), 3, false, true, false, 0, 0 },
        { "good", WITH("FAKEHIP_IMPORT=zero", "FAKEHIP_IMPORT_FROM=65536"), 3, true,
                true, false, 0, 0 },
    };

    (void)state;
    run_shares(shares, COUNT(shares));
}

static void test_links_are_late(void **state)
{
    const seen shares[] = {
        { "slow", WITH("FAKEHIP_IMPORT=slow"), 3, true, true, false, 200, 0 },
        { "stale", WITH("FAKEHIP_IMPORT=stale"), 3, true, false, false, 0, 0 },
        { "stale for a while", WITH("FAKEHIP_IMPORT=stale", "FAKEHIP_IMPORT_MS=300"), 3,
                true, true, false, 0, 0 },
        { "flag first", WITH("FAKEHIP_IMPORT=flagfirst", "FAKEHIP_IMPORT_MS=300"), 3,
                true, true, true, 300, 0 },
    };

    (void)state;
    run_shares(shares, COUNT(shares));
}

/* The other process is given a handle that it cannot use. */
static int open_is_refused(const void *arg)
{
    int ends[2], status = -1;
    hipIpcMemHandle_t handle;
    uint32_t *words;
    void *address;
    pid_t pid;

    (void)arg;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    pid = fork();
    if (pid == 0) {
        OK(hipSetDevice(1));
        if (hear(&(talk){ ends[1] }, &handle, sizeof(handle)) != 0)
            _exit(1);
        _exit(hipIpcOpenMemHandle(&address, handle, hipIpcMemLazyEnablePeerAccess) !=
                hipErrorInvalidDevicePointer);
    }
    words = rig_words(100);
    OK(hipIpcGetMemHandle(&handle, words));
    CHECK(say(&(talk){ ends[0] }, &handle, sizeof(handle)) == 0);
    CHECK(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

/* Each process sees one card, and calls it 0. */
static int cards_differ_between_processes(const void *arg)
{
    int ends[2], status = -1;
    hipIpcMemHandle_t handle;
    uint32_t *words;
    void *address;
    pid_t pid;

    (void)arg;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    pid = fork();
    setenv("HIP_VISIBLE_DEVICES", pid == 0 ? "1" : "0", 1);
    if (pid == 0) {
        char bus_id[16], step = 0;
        int count = 0;

        OK(hipGetDeviceCount(&count));
        OK(hipDeviceGetPCIBusId(bus_id, sizeof(bus_id), 0));
        CHECK(count == 1 && strcmp(bus_id, "0000:43:00.0") == 0);
        CHECK(hear(&(talk){ ends[1] }, &handle, sizeof(handle)) == 0);
        OK(hipIpcOpenMemHandle(&address, handle, hipIpcMemLazyEnablePeerAccess));
        *(uint32_t *)address = 8;
        _exit(say(&(talk){ ends[1] }, &step, 1));
    }
    words = rig_words(100);
    OK(hipIpcGetMemHandle(&handle, words));
    CHECK(say(&(talk){ ends[0] }, &handle, sizeof(handle)) == 0);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(words[0] == 8);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

TEST_WITH(allocations_follow_the_rules, allocations_follow_the_rules,
        "FAKEHIP_MEMORY=8388608", "FAKEHIP_ALLOCATIONS=3")
TEST_WITH(addresses_are_described, addresses_are_described, NULL)
TEST_WITH(the_old_runtime_describes_otherwise, the_old_runtime_describes_otherwise,
        "FAKEHIP_VERSION=5")
TEST_WITH(host_memory_is_registered_and_again, host_memory_is_registered_and_again,
        NULL)
TEST_WITH(peers_are_all, peers_are_all, NULL)
TEST_WITH(peers_are_one_way, peers_are_one_way, "FAKEHIP_PEER=oneway")
TEST_WITH(peers_are_none, peers_are_none, "FAKEHIP_PEER=none")
TEST_WITH(handles_are_refused_at_home, handles_are_refused_at_home, NULL)
TEST_WITH(no_handles_are_given, no_handles_are_given, "FAKEHIP_IPC=noget")
TEST_WITH(open_is_refused, no_handle_is_opened, "FAKEHIP_IPC=noopen")
TEST_WITH(open_is_refused, no_handle_is_opened_without_a_way, "FAKEHIP_PEER=none")
TEST_WITH(cards_differ_between_processes, cards_differ_between_processes, NULL)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allocations_follow_the_rules),
        cmocka_unit_test(test_addresses_are_described),
        cmocka_unit_test(test_the_old_runtime_describes_otherwise),
        cmocka_unit_test(test_host_memory_is_registered_and_again),
        cmocka_unit_test(test_peers_are_all),
        cmocka_unit_test(test_peers_are_one_way),
        cmocka_unit_test(test_peers_are_none),
        cmocka_unit_test(test_handles_are_refused_at_home),
        cmocka_unit_test(test_no_handles_are_given),
        cmocka_unit_test(test_no_handle_is_opened),
        cmocka_unit_test(test_no_handle_is_opened_without_a_way),
        cmocka_unit_test(test_cards_differ_between_processes),
        cmocka_unit_test(test_handles_share_memory),
        cmocka_unit_test(test_links_lose_bytes),
        cmocka_unit_test(test_links_are_late),
    };

    return cmocka_run_group_tests_name("fakehip_memory", tests, NULL, NULL);
}
