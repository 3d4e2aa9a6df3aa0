/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a hypervisor knows of its guests: definitions of Proxmox and libvirt, and running
 * QEMU processes with the version of the program that runs. Passwords and keys in them
 * are left out here already.
 */
#include "gather.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Settings of a Proxmox definition that nobody needs to see. */
static const char *const secret_keys[] = { "cipassword", "ciuser", "cicustom",
    "sshkeys", "description", "searchdomain", "nameserver", "smbios1", "vmgenid",
    "vmstate", "#" };
/* Words behind which a secret may stand, and what ends it. */
static const struct {
    const char *word, *ends;
} secrets[] = { { "password=", " ,'\"\n>" }, { "passwd=", " ,'\"\n>" },
    { "data=", " ,'\"\n>" }, { "key=", " ,'\"\n>" }, { "passwd='", "'" },
    { "passwd=\"", "\"" }, { "\"data\":\"", "\"" }, { "\"data\": \"", "\"" },
    { "\"password\":\"", "\"" }, { "\"password\": \"", "\"" } };
/* Elements of libvirt that people fill with words. */
static const char *const own_words[] = { "description", "metadata", "title" };

static bool is_secret_line(const char *line)
{
    for (size_t i = 0; i < sizeof(secret_keys) / sizeof(*secret_keys); i++)
        if (dr_begins(line, secret_keys[i]))
            return true;
    return false;
}

/* Overwrite what follows a word that announces a secret, up to what ends it; ",," is a
 * comma of the value in QEMU's options. */
static void hide_secrets(char *text)
{
    for (size_t i = 0; i < sizeof(secrets) / sizeof(*secrets); i++)
        for (char *at = text; (at = strstr(at, secrets[i].word)) != NULL;) {
            at += strlen(secrets[i].word);
            for (; *at != 0 &&
                    (strchr(secrets[i].ends, *at) == NULL ||
                            (at[0] == ',' && at[1] == ','));
                    at++) {
                at += *at == ',';
                *at = '*';
            }
        }
    /* scheme://user:password@host */
    for (char *at = text; (at = strstr(at, "://")) != NULL;) {
        const size_t length = strcspn(at += 3, "@/ ,'\"\n<>");

        if (at[length] == '@')
            memset(at, '*', length);
    }
}

/* What stands in elements of that name becomes blanks. */
static void blank_elements(char *text, const char *name)
{
    const size_t length = strlen(name);

    for (char *at = text; (at = strchr(at, '<')) != NULL;) {
        char *end;

        at++;
        if (strncmp(at, name, length) != 0 || (at[length] != '>' && at[length] != ' '))
            continue;
        at += strcspn(at, ">");
        if (*at == 0 || at[-1] == '/')
            continue;
        at++;
        for (end = at; (end = strstr(end, "</")) != NULL; end += 2)
            if (strncmp(end + 2, name, length) == 0 && end[2 + length] == '>')
                break;
        for (; *at != 0 && at != end; at++)
            if (*at != '\n')
                *at = ' ';
    }
}

static void write_definition(struct dr_gather *g, const char *path, const char *command,
        bool keys)
{
    size_t bytes = 0;
    char *text = dr_slurp(g, path, DR_FILE_MAX, &bytes), *save = NULL;

    if (text == NULL) {
        doctor_unread(g->d, path, "%s", strerror(errno));
        return;
    }
    hide_secrets(text);
    dr_prompt(g, "%s", command);
    for (size_t i = 0; !keys && i < sizeof(own_words) / sizeof(*own_words); i++)
        blank_elements(text, own_words[i]);
    if (!keys) {
        dr_text(g, text, bytes);
        return;
    }
    for (char *line = strtok_r(text, "\n", &save); line != NULL;
            line = strtok_r(NULL, "\n", &save)) {
        if (line[0] == '[')
            break; /* snapshots: what was, not what is */
        if (!is_secret_line(line))
            fprintf(g->out, "%s\n", line);
    }
}

static const char *without_ending(struct dr_gather *g, const char *name,
        const char *ending)
{
    const size_t length = strlen(name), end = strlen(ending);

    if (length <= end || strcmp(name + length - end, ending) != 0)
        return NULL;
    return dr_copy(g->d, name, length - end);
}

static bool write_proxmox(struct dr_gather *g)
{
    static const char folder[] = "/etc/pve/qemu-server";
    const struct dr_names names = dr_names_of(g, folder);

    for (uint32_t i = 0; i < names.num; i++) {
        const char *id = without_ending(g, names.name[i], ".conf");

        if (id == NULL)
            continue;
        dr_begin_capture(g);
        write_definition(g, dr_printf(g->d, "%s/%s", folder, names.name[i]),
                dr_printf(g->d, "qm config %s", id), true);
        dr_end_capture(g, dr_printf(g->d, "qemu-server-%s.conf", id));
    }
    dr_begin_capture(g);
    (void)dr_write_cat(g, "/etc/pve/mapping/pci.cfg");
    dr_end_capture(g, "pci.cfg");
    return names.num > 0;
}

static bool write_libvirt(struct dr_gather *g)
{
    static const char folder[] = "/etc/libvirt/qemu";
    const struct dr_names names = dr_names_of(g, folder);
    bool some = false;

    for (uint32_t i = 0; i < names.num; i++) {
        const char *id = without_ending(g, names.name[i], ".xml");

        if (id == NULL)
            continue;
        some = true;
        dr_begin_capture(g);
        write_definition(g, dr_printf(g->d, "%s/%s", folder, names.name[i]),
                dr_printf(g->d, "virsh dumpxml %s", id), false);
        dr_end_capture(g, dr_printf(g->d, "libvirt-%s.xml", id));
    }
    return some;
}

/* ---- running guests ---- */

/* The text that the program would print for --version, without running it. */
static const char *version_in(struct dr_gather *g, const char *path)
{
    static const char mark[] = "QEMU emulator version ";
    const int fd = open(dr_under(g, path), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const char *out = NULL;
    struct stat st;
    char *map;

    if (fd < 0)
        return NULL;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 &&
            (map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0)) !=
                    MAP_FAILED) {
        const char *at = memmem(map, (size_t)st.st_size, mark, sizeof(mark) - 1);
        const size_t left = at != NULL ? (size_t)st.st_size - (size_t)(at - map) : 0;

        if (at != NULL) {
            const size_t length = strnlen(at, left < 128 ? left : 128);

            out = dr_copy(g->d, at, strnlen(at, length));
        }
        munmap(map, (size_t)st.st_size);
    }
    close(fd);
    return out;
}

static void write_version(struct dr_gather *g, const char *path)
{
    const char *version = version_in(g, path);

    if (version == NULL)
        return;
    dr_prompt(g, "%s --version", path);
    fprintf(g->out, "%.*s\n", (int)strcspn(version, "\n"), version);
}

/* A word as a shell would want it. */
static void write_word(struct dr_gather *g, const char *word)
{
    const bool quote = word[0] == 0 || strpbrk(word, " \t\n'\"$\\|&;<>()") != NULL;

    if (!quote) {
        fputs(word, g->out);
        return;
    }
    fputc('\'', g->out);
    for (; *word != 0; word++)
        if (*word == '\'')
            fputs("'\\''", g->out);
        else
            fputc(*word == '\n' ? ' ' : *word, g->out);
    fputc('\'', g->out);
}

static void write_process(struct dr_gather *g, const char *pid)
{
    const char *name = dr_word_of(g, dr_printf(g->d, "/proc/%s/comm", pid));
    size_t bytes = 0;
    char *text;

    /* The command line of a process that hangs in a driver may never be read: its memory
     * is locked. Its name always is, though cut after 15 bytes. */
    if (!dr_begins(name, "qemu-system") && strcmp(name, "kvm") != 0 &&
            strcmp(name, "qemu-kvm") != 0)
        return;
    text = dr_slurp(g, dr_printf(g->d, "/proc/%s/cmdline", pid), 1u << 20, &bytes);
    if (text == NULL || bytes == 0)
        return;
    for (char *word = text; word < text + bytes; word += strlen(word) + 1)
        hide_secrets(word);
    dr_begin_capture(g);
    dr_prompt(g, "ps -o args= -p %s", pid);
    for (const char *word = text; word < text + bytes; word += strlen(word) + 1) {
        if (word != text)
            fputc(' ', g->out);
        write_word(g, word);
    }
    fputc('\n', g->out);
    write_version(g, dr_printf(g->d, "/proc/%s/exe", pid));
    dr_end_capture(g, dr_printf(g->d, "qemu-%s.txt", pid));
}

void dr_gather_vms(struct dr_gather *g)
{
    static const char *const programs[] = { "/usr/bin/qemu-system-x86_64",
        "/usr/bin/qemu-kvm", "/usr/libexec/qemu-kvm", "/usr/bin/kvm" };
    const struct dr_names pids = dr_names_of(g, "/proc");
    const bool proxmox = write_proxmox(g), libvirt = write_libvirt(g);

    for (uint32_t i = 0; i < pids.num; i++)
        if (dr_scan(pids.name[i], "^%d%e", NULL))
            write_process(g, pids.name[i]);
    if (!proxmox && !libvirt)
        return;
    dr_begin_capture(g);
    for (size_t i = 0; i < sizeof(programs) / sizeof(*programs); i++)
        if (dr_is_there(g, programs[i])) {
            write_version(g, programs[i]);
            break;
        }
    dr_end_capture(g, "qemu-installed.txt");
}
