/* SPDX-License-Identifier: Apache-2.0 */
/* What /proc knows of the process behind a recorder file, and whether it lives. */
#include "trace/recorder.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Reads a small file of /proc whole; returns its length, 0 if it cannot be read. */
static size_t read_text(const char *path, char *buf, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    buf[0] = '\0';
    if (fd < 0)
        return 0;
    n = read(fd, buf, bytes - 1);
    close(fd);
    if (n < 0)
        n = 0;
    buf[n] = '\0';
    return (size_t)n;
}

bool motet_trace_process_read(int32_t pid, motet_trace_process *out)
{
    char path[64], text[1024];
    const char *at;
    char *end;
    unsigned long long start;
    char state;

    if (pid <= 0)
        return false;
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    if (read_text(path, text, sizeof(text)) == 0)
        return false;
    /* The command stands in parentheses and may hold anything, ')' included. */
    at = strrchr(text, ')');
    if (at == NULL || at[1] != ' ' || at[2] == '\0')
        return false;
    state = at[2];
    at += 2; /* field 3; the start is field 22 */
    for (int field = 3; field < 22; field++) {
        at = strchr(at, ' ');
        if (at == NULL)
            return false;
        at++;
    }
    start = strtoull(at, &end, 10);
    if (end == at)
        return false;
    *out = (motet_trace_process){ .start = start, .state = state };
    return true;
}

void motet_trace_boot_id(char *buf, size_t bytes)
{
    char text[64];

    read_text("/proc/sys/kernel/random/boot_id", text, sizeof(text));
    text[strcspn(text, "\n")] = '\0';
    snprintf(buf, bytes, "%s", text);
}

bool motet_trace_alive(const motet_trace_file *file)
{
    motet_trace_process process;
    char boot_id[sizeof(file->boot_id)];

    motet_trace_boot_id(boot_id, sizeof(boot_id));
    if (strncmp(boot_id, file->boot_id, sizeof(boot_id)) != 0)
        return false;
    if (!motet_trace_process_read(file->pid, &process))
        return false;
    return process.start == file->pid_start && strchr("ZXx", process.state) == NULL;
}
