/* SPDX-License-Identifier: Apache-2.0 */
/* See doctor_live.h. */
#include "doctor_live.h"

#include "archive.h"
#include "cmd.h"
#include "facts.h"
#include "scrub.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

void doctor_live(struct doctor *d, bool for_a_guest)
{
    struct dr_captures captures = { .for_a_guest = for_a_guest };

    dr_collect(d, "", &captures);
    dr_add_captures(d, &captures);
}

struct doctor *doctor_live_gpus(void)
{
    const char *root = getenv("MOTET_HOST_ROOT");
    struct dr_captures captures = { .only_gpus = true };
    struct doctor *d = doctor_new();

    dr_collect(d, root != NULL ? root : "", &captures);
    dr_add_captures(d, &captures);
    doctor_judge(d);
    return d;
}

/* ---- summary ---- */

/* The value of the first line that begins so; "" if there is none. */
static const char *value_of(const struct doctor *d, const char *beginning)
{
    for (uint32_t i = 0; i < d->num_lines; i++)
        if (dr_begins(d->lines[i].text, beginning)) {
            const char *value = d->lines[i].text + strlen(beginning);

            return value + strspn(value, " \t:");
        }
    return "";
}

static void write_gpus(const struct doctor *d, FILE *out)
{
    bool some = false;

    for (uint32_t i = 0; i < d->pci->num_devices; i++) {
        const struct dr_pci_device *p = &d->pci->devices[i];

        if (!dr_is_gpu(p))
            continue;
        some = true;
        fprintf(out, "  GPU %s, %04x:%04x, %s\n", p->bdf, (unsigned)p->vendor & 0xffff,
                (unsigned)p->device & 0xffff,
                p->driver != NULL ? p->driver : "without a driver");
    }
    if (!some)
        fputs("  no GPU that collectives could run on is shown by PCI\n", out);
}

void doctor_live_summary(const struct doctor *d, FILE *out)
{
    const char *board = value_of(d, "/sys/class/dmi/id/board_name:"),
               *vendor = value_of(d, "/sys/class/dmi/id/sys_vendor:"),
               *cpu = value_of(d, "model name");
    struct utsname u;

    fprintf(out, "this machine%s:\n",
            dr_is_guest(d, 0) ? ", a guest of a hypervisor" : "");
    if (uname(&u) == 0)
        fprintf(out, "  Linux %s\n", u.release);
    if (cpu[0] != 0)
        fprintf(out, "  %s\n", cpu);
    if (board[0] != 0 || vendor[0] != 0)
        fprintf(out, "  board %s %s\n", vendor, board);
    write_gpus(d, out);
    for (uint32_t i = 0; i < d->num_lines; i++)
        if (dr_has(dr_command(d, i), "ip -br addr") &&
                !(d->lines[i].flags & DR_COMMAND) && d->lines[i].length > 0 &&
                !dr_begins(d->lines[i].text, "lo "))
            fprintf(out, "  network %s\n", d->lines[i].text);
    fputc('\n', out);
}

/* ---- collecting ---- */

static void add_unread(struct doctor *d, struct dr_captures *captures)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    if (out == NULL)
        return;
    for (uint32_t i = 0; i < d->num_unread; i++)
        fprintf(out, "%s\t%s\n", d->unread[i].source, d->unread[i].why);
    if (fclose(out) == 0 && bytes > 0)
        dr_capture(d, captures, DR_UNREAD_NAME, text, bytes);
    free(text);
}

/* A file beside @p path that only we can read, in @p temporary; -1 and errno. */
static int begin_file(const char *path, char *temporary, size_t bytes)
{
    struct stat st;

    if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        errno = EEXIST; /* a link, a device, a pipe, a folder: not to be replaced */
        return -1;
    }
    if (snprintf(temporary, bytes, "%s.XXXXXX", path) >= (int)bytes) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return mkostemp(temporary, O_CLOEXEC);
}

/* All of it or nothing: a file of that name is replaced when the archive is whole. */
static bool write_archive(const char *path, const struct dr_captures *captures)
{
    const bool standard = strcmp(path, "-") == 0;
    char temporary[PATH_MAX] = "";
    const int fd =
            standard ? STDOUT_FILENO : begin_file(path, temporary, sizeof(temporary));
    FILE *out = fd >= 0 ? fdopen(fd, "w") : NULL;
    bool ok = out != NULL && dr_write_archive(out, captures);
    int reason = errno;

    if (out != NULL && fclose(out) != 0 && ok) {
        ok = false;
        reason = errno;
    }
    if (ok && !standard && rename(temporary, path) != 0) {
        ok = false;
        reason = errno;
    }
    if (!ok && !standard && fd >= 0)
        unlink(temporary);
    errno = reason;
    return ok;
}

void doctor_live_gather(struct doctor *d, struct dr_captures *out)
{
    dr_collect(d, "", out);
    add_unread(d, out);
}

int doctor_live_write(const char *command, struct doctor *d,
        struct dr_captures *captures, const char *path, bool keep_names)
{
    struct dr_scrub scrub = { .d = d };
    uint64_t bytes = 0;
    char size[32];

    if (!keep_names) {
        dr_scrub_own_names(&scrub);
        dr_scrub_captures(&scrub, captures);
    }
    if (!write_archive(path, captures))
        return cmd_error(command, EXIT_UNDECIDED, "write '%s': %s", path,
                strerror(errno));
    for (uint32_t i = 0; i < captures->num; i++)
        bytes += captures->list[i].bytes;
    fprintf(stderr, "%s: %u captures, %s; %s\n", path, captures->num,
            text_from_bytes(bytes, size, sizeof(size)),
            keep_names
                    ? "with all names"
                    : "host and user names, MAC addresses, serial numbers, UUIDs and "
                      "public addresses are pseudonyms");
    for (uint32_t i = 0; i < d->num_unread; i++)
        fprintf(stderr, "not read: %s: %s\n", d->unread[i].source, d->unread[i].why);
    return EXIT_FINE;
}

int doctor_live_collect(struct doctor *d, const char *path, bool keep_names)
{
    struct dr_captures captures = { 0 };

    doctor_live_gather(d, &captures);
    return doctor_live_write("doctor", d, &captures, path, keep_names);
}
