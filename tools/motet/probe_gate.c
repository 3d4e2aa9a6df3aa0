/* SPDX-License-Identifier: Apache-2.0 */
/* The gate: which cards, in which order, and what the launches come to. See probe_gate.h. */
#include "probe_gate.h"

#include "apart.h"
#include "cmd.h"
#include "probe_run.h"
#include "serving.h"
#include "term.h"

#include "codeobj.h"
#include "gate/gate_args.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COMMAND     "probe"
#define IMAGE_BYTES (1u << 20)
#define SOMEONE     "someone else computes on a GPU of this host"

const struct gate_test gate_tests[GATE_TESTS] = {
    [GATE_PLAIN] = { .name = "plain",
            .kernel = "probe_gate_plain",
            .what = "stores a word" },
    [GATE_HOSTCALL] = { .name = "hostcall",
            .kernel = "probe_gate_hostcall",
            .what = "the same, and declares a hostcall",
            .second = true },
    { .name = "hidden",
            .kernel = "probe_gate_hidden",
            .what = "the other hidden arguments",
            .second = true },
    { .name = "arguments",
            .kernel = "probe_gate_wide",
            .what = "4 KiB of arguments",
            .wide = true },
    { .name = "event",
            .kernel = "probe_gate_plain",
            .what = "an event tells its end",
            .event = true },
    { .name = "streams",
            .kernel = "probe_gate_plain",
            .what = "another stream waits for it",
            .event = true,
            .other_stream = true },
    { .name = "host",
            .kernel = "probe_gate_plain",
            .what = "stores to fine-grained host memory",
            .to_host = true },
    { .name = "lds",
            .kernel = "probe_gate_lds",
            .what = "64 KiB of dynamic LDS",
            .lds_bytes = GATE_LDS_BYTES },
};

/* ---- the code ---- */

/* @p folder's file for @p target; false if it has none. */
static bool try_folder(const char *folder, int length, const char *target,
        char path[PATH_MAX])
{
    return length > 0 &&
            snprintf(path, PATH_MAX, "%.*s/" GATE_IMAGE, length, folder,
                    (int)strcspn(target, ":"), target) < PATH_MAX &&
            access(path, R_OK) == 0;
}

/* Where MOTET_KERNEL_PATH says, where it was installed, and where the build puts it. */
static bool find_image(const char *target, char path[PATH_MAX])
{
    static const char *const places[] = { MOTET_BIN_TO_KERNELS,
        "../share/motet/kernels", "../../images/gate" };
    const char *list = getenv("MOTET_KERNEL_PATH");
    char folder[2 * PATH_MAX], own[PATH_MAX];

    for (; list != NULL && *list != 0; list += *list == ':') {
        int length = (int)strcspn(list, ":");

        if (try_folder(list, length, target, path))
            return true;
        list += length;
    }
    if (!library_own_folder(own))
        return false;
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        int length = snprintf(folder, sizeof(folder), "%s/%s", own, places[i]);

        if (try_folder(folder, length, target, path))
            return true;
    }
    return false;
}

static void *read_image(const char *path, size_t *bytes_out, char *why, size_t room)
{
    void *data = malloc(IMAGE_BYTES);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t done = 0;
    ssize_t n = data != NULL && fd >= 0 ? 1 : -1;

    while (n > 0 && done < IMAGE_BYTES) {
        n = read(fd, (char *)data + done, IMAGE_BYTES - done);
        done += n > 0 ? (size_t)n : 0;
    }
    if (n < 0 || done == IMAGE_BYTES) {
        snprintf(why, room, "read %.700s: %s", path, strerror(n < 0 ? errno : EFBIG));
        free(data);
        data = NULL;
    }
    if (fd >= 0)
        close(fd);
    *bytes_out = done;
    return data;
}

/* A test whose premise is wrong decides nothing: the pair must be a pair. */
static bool is_the_pair(const void *data, size_t bytes, const char *path,
        const char *target, char *why, size_t room)
{
    char bad[CODEOBJ_WHY_MAX];
    struct codeobj object;
    bool declares = false, others = false, fits;

    if (codeobj_library(0) == NULL)
        return true; /* this build does not read code objects */
    if (codeobj_read(data, bytes, &object, bad) != 0) {
        snprintf(why, room, "%.700s: %s", path, bad);
        return false;
    }
    for (size_t i = 0; i < object.num_kernels; i++) {
        const struct codeobj_kernel *k = &object.kernels[i];
        bool hostcall = strcmp(k->name, gate_tests[GATE_HOSTCALL].kernel) == 0;

        declares |= hostcall && codeobj_has(k, CODEOBJ_HOSTCALL_BUFFER);
        others |= !hostcall && codeobj_has(k, CODEOBJ_HOSTCALL_BUFFER);
    }
    fits = strlen(object.target.processor) == strcspn(target, ":") &&
            strncmp(object.target.processor, target, strcspn(target, ":")) == 0;
    if (!fits)
        snprintf(why, room, "%.700s: its code is for %s, not %s", path,
                object.target.text, target);
    else if (!declares || others)
        snprintf(why, room, "%.700s: need a hostcall in %s and in no other kernel",
                path, gate_tests[GATE_HOSTCALL].kernel);
    codeobj_clear(&object);
    return fits && declares && !others;
}

/* The code for a card, the caller's; NULL with the reason. */
static void *get_image(struct gate_card *card, char *why, size_t room)
{
    const char *target = card->about->target;
    size_t bytes = 0;
    void *data;

    if (!find_image(target, card->image)) {
        card->image[0] = 0;
        snprintf(why, room,
                "no " GATE_IMAGE " beside this command or in MOTET_KERNEL_PATH: it is "
                "built for the AMD GPUs that the library has code for",
                (int)strcspn(target, ":"), target);
        return NULL;
    }
    data = read_image(card->image, &bytes, why, room);
    if (data != NULL && !is_the_pair(data, bytes, card->image, target, why, room)) {
        free(data);
        return NULL;
    }
    return data;
}

/* ---- one card ---- */

static const struct gate_seen nothing_seen = {
    .code = { GATE_NOT_REACHED, GATE_NOT_REACHED, GATE_NOT_REACHED },
    .atomics = -1,
};

static void not_tried(struct gate_cell *cell, const char *why)
{
    cell->seen = nothing_seen;
    probe_not_run(&cell->rank, 1, "%s", why);
}

/* Run one launch, written down before it begins. @return −1, or an exit code: stop. */
static int try_test(const struct probe_options *options, struct gate_card *card, int t,
        const void *image, struct gate_seen *seen)
{
    struct gate_cell *cell = &card->cells[t];
    struct gate_launch launch = { .test = &gate_tests[t],
        .device = card->device,
        .image = image,
        .seen = seen };
    char stage[160], buf[256];
    const char *why;
    int code = -1;

    snprintf(stage, sizeof(stage), "gate %s %s",
            card->about->identity[0] != 0 ? card->about->identity
                                          : card->about->address,
            gate_tests[t].name);
    why = probe_begin(options, stage, &code, buf, sizeof(buf));
    if (why != NULL) {
        not_tried(cell, why);
        return code;
    }
    *seen = nothing_seen;
    cell->rank = (struct probe_rank){ .device = card->device };
    probe_cell(options, gate_run, &launch, &cell->rank, 1);
    probe_end(stage, &cell->rank, 1);
    cell->seen = *seen;
    return -1;
}

/* What comes behind a launch that did not come back is not tried: the card may hang. */
static int try_card(const struct probe_options *options, struct gate_card *card,
        struct gate_seen *seen)
{
    char why[PROBE_MESSAGE_BYTES] = "";
    void *image = get_image(card, why, sizeof(why));
    int code = -1;

    for (int t = 0; t < GATE_TESTS; t++) {
        term_progress("probe: GPU %d, %s", card->device, gate_tests[t].name);
        if (why[0] != 0)
            not_tried(&card->cells[t], why);
        else
            code = try_test(options, card, t, image, seen);
        if (code >= 0 && why[0] == 0)
            snprintf(why, sizeof(why), "%s", card->cells[t].rank.message);
        if (card->cells[t].rank.stage == PROBE_HANG)
            snprintf(why, sizeof(why), "%s did not come back before it",
                    gate_tests[t].name);
    }
    free(image);
    card->verdict = gate_judge(card);
    return code;
}

/* ---- all cards ---- */

static int try_cards(const struct probe_options *options, struct gate_report *report)
{
    struct gate_seen *seen = apart_memory(sizeof(*seen));
    int code = -1;

    if (seen == NULL)
        return cmd_error(COMMAND, EXIT_UNDECIDED, "no memory");
    for (int d = 0; d < report->ncards; d++) {
        struct gate_card *card = &report->cards[d];

        card->device = d;
        card->about = &report->probe.cards[d];
        card->verdict = GATE_UNTRIED;
        for (int t = 0; t < GATE_TESTS; t++)
            not_tried(&card->cells[t], SOMEONE);
        if (code < 0)
            code = try_card(options, card, seen);
    }
    term_progress_end();
    apart_free(seen, sizeof(*seen));
    return code;
}

int gate_exit_status(const struct gate_report *report)
{
    int status = EXIT_FINE;

    for (int d = 0; d < report->ncards; d++) {
        enum gate_verdict v = report->cards[d].verdict;

        if (v == GATE_UNTRIED && status == EXIT_FINE)
            status = EXIT_UNDECIDED;
        else if (v != GATE_UNTRIED && v != GATE_RUNS)
            status = EXIT_PROBLEM;
    }
    return status;
}

/* Only AMD's runtime has what is tested here. */
static int choose(const struct probe_options *options, struct backend_choice *out)
{
    static const char only[] =
            "--gate-kernels asks AMD's runtime whether it takes kernels that declare a "
            "hostcall";
    const char *word =
            options->device != NULL ? options->device : getenv("MOTET_DEVICE");
    int code;

    if (word != NULL && (strcmp(word, "cpu") == 0 || strcmp(word, "cuda") == 0))
        return cmd_error(COMMAND, EXIT_UNDECIDED, "%s: %s has no such gate", only,
                strcmp(word, "cpu") == 0 ? "a CPU" : "NVIDIA's driver");
    code = backend_choose(COMMAND, "hip", false, out);
    if (code >= 0)
        (void)cmd_error(COMMAND, code, "%s", only);
    return code;
}

int gate_look(const struct probe_options *options, struct gate_report *out)
{
    int code;

    memset(out, 0, sizeof(*out));
    out->probe.options = options;
    code = choose(options, &out->probe.place);
    if (code < 0)
        code = serving_refuse(COMMAND, options->anyway);
    if (code >= 0)
        return code;
    out->ncards = out->probe.place.facts.devices < PROBE_RANKS_MAX
            ? out->probe.place.facts.devices
            : PROBE_RANKS_MAX;
    out->probe.nranks = out->ncards;
    probe_look_at_cards(&out->probe);
    return try_cards(options, out);
}

int probe_gate(const struct probe_options *options)
{
    struct gate_report *report = calloc(1, sizeof(*report));
    int code;

    if (report == NULL)
        return cmd_error(COMMAND, EXIT_UNDECIDED, "no memory");
    code = gate_look(options, report);
    errno = 0;
    if (report->ncards > 0 && options->json && !gate_print_json(report, stdout))
        code = cmd_error(COMMAND, EXIT_UNDECIDED, "standard output: %s",
                strerror(errno));
    else if (report->ncards > 0 && !options->json)
        gate_print_text(report, stdout);
    if (code < 0)
        code = gate_exit_status(report);
    free(report);
    return code;
}
