/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/images.h"

#include "base/log.h"
#include "base/param.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <motet_stamp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MACHINE_AMDGPU 224
#define TARGET_PREFIX  "amdgcn-amd-amdhsa--"
#define LARGEST        (64 << 20)

/* With its NUL, so that it is no longer one's beginning. */
static const char stamp[] = "motet kernels " MOTET_STAMP;

static bool is_of_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* Does every ":feature+" or ":feature-" at @p features, which end somewhere before
 * @p end, stand in @p target too? Code without any runs with every setting. */
static bool features_fit(const char *features, const char *end, const char *target)
{
    while (features < end && *features == ':') {
        const char *next = features + 1;
        char feature[32];

        while (next < end && is_of_name(*next) && *next != '-')
            next++;
        if (next == end || (*next != '+' && *next != '-') ||
                (size_t)(next + 1 - features) >= sizeof(feature))
            return false;
        next++;
        snprintf(feature, sizeof(feature), "%.*s", (int)(next - features), features);
        if (strstr(target, feature) == NULL)
            return false;
        features = next;
    }
    return true;
}

/* The metadata names the target once, between other strings of its document. */
static bool is_for(const char *data, size_t bytes, const char *target)
{
    const size_t prefix = strlen(TARGET_PREFIX), arch = strcspn(target, ":");
    const char *end = data + bytes, *at = data;

    while ((at = memmem(at, (size_t)(end - at), TARGET_PREFIX, prefix)) != NULL) {
        at += prefix;
        if ((size_t)(end - at) > arch && memcmp(at, target, arch) == 0 &&
                !is_of_name(at[arch]) && features_fit(at + arch, end, target))
            return true;
    }
    return false;
}

/* The tables that its header names lie in the file; a linker writes the sections' last. */
static bool is_whole(const Elf64_Ehdr *head, size_t bytes)
{
    size_t segments = (size_t)head->e_phnum * head->e_phentsize;
    size_t sections = (size_t)head->e_shnum * head->e_shentsize;

    return head->e_shoff != 0 && head->e_shoff <= bytes &&
            sections <= bytes - head->e_shoff && head->e_phoff <= bytes &&
            segments <= bytes - head->e_phoff;
}

const char *motet_image_unfit(const void *data, size_t bytes, const char *target)
{
    Elf64_Ehdr head;

    if (bytes < sizeof(head))
        return "it is no code object";
    memcpy(&head, data, sizeof(head));
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
            head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_machine != MACHINE_AMDGPU)
        return "it is no code object for AMD GPUs";
    if (!is_whole(&head, bytes))
        return "it is not whole";
    if (!is_for(data, bytes, target))
        return "it is for another device";
    if (memmem(data, bytes, stamp, sizeof(stamp)) == NULL)
        return "it was made from the sources of another motet: run `motet kernels "
               "build` "
               "of this one";
    return NULL;
}

/* The whole file; NULL with errno. *raw_out has a NUL behind it. */
static char *read_whole(const char *path, size_t *bytes_out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat about;
    char *raw = NULL;
    size_t done = 0;
    ssize_t n = 1;
    int error = 0;

    if (fd < 0)
        return NULL;
    if (fstat(fd, &about) != 0)
        error = errno;
    else if (!S_ISREG(about.st_mode))
        error = S_ISDIR(about.st_mode) ? EISDIR : EINVAL;
    else if (about.st_size > LARGEST)
        error = EFBIG;
    else if ((raw = calloc(1, (size_t)about.st_size + 1)) == NULL)
        error = errno;
    while (error == 0 && n > 0 && done < (size_t)about.st_size) {
        n = read(fd, raw + done, (size_t)about.st_size - done);
        if (n > 0)
            done += (size_t)n;
        else if (n < 0)
            error = errno;
    }
    close(fd);
    if (error != 0) {
        free(raw);
        errno = error;
        return NULL;
    }
    *bytes_out = done;
    return raw;
}

/* @p asked: the user named it, so that there should be one. */
static bool take_file(const char *path, bool asked, const char *target, void **raw_out,
        size_t *bytes_out)
{
    size_t bytes = 0;
    char *raw = read_whole(path, &bytes);
    const char *unfit;

    if (raw == NULL) {
        if (asked || errno != ENOENT)
            motet_info(MOTET_SUB_INIT, "device code in %s is passed over: %s", path,
                    strerror(errno));
        return false;
    }
    unfit = motet_image_unfit(raw, bytes, target);
    if (unfit != NULL) {
        motet_info(MOTET_SUB_INIT, "device code in %s is passed over for %s: %s", path,
                target, unfit);
        free(raw);
        return false;
    }
    motet_info(MOTET_SUB_INIT, "device code for %s is that of %s", target, path);
    *raw_out = raw;
    *bytes_out = bytes;
    return true;
}

/* A folder, for its motet-TARGET.co, or a file. */
static bool take_entry(const char *entry, int length, bool asked, const char *target,
        void **raw_out, size_t *bytes_out)
{
    char path[PATH_MAX];
    struct stat about;

    if (length == 0 || length >= PATH_MAX)
        return false;
    snprintf(path, sizeof(path), "%.*s", length, entry);
    if (stat(path, &about) == 0 && S_ISDIR(about.st_mode)) {
        int more = snprintf(path, sizeof(path), "%.*s/motet-%.*s.co", length, entry,
                (int)strcspn(target, ":"), target);

        if (more >= PATH_MAX)
            return false;
        asked = false; /* a folder need not have code for every device */
    }
    return take_file(path, asked, target, raw_out, bytes_out);
}

bool motet_image_user_folder(char *path, size_t bytes)
{
    const char *data = motet_param_environment("XDG_DATA_HOME");
    const char *home = motet_param_environment("HOME");
    int length = -1;

    if (data != NULL && data[0] == '/')
        length = snprintf(path, bytes, "%s/motet/kernels", data);
    else if (home != NULL && home[0] == '/')
        length = snprintf(path, bytes, "%s/.local/share/motet/kernels", home);
    return length > 0 && (size_t)length < bytes;
}

bool motet_image_from_files(const char *list, const char *target, void **raw_out,
        size_t *bytes_out)
{
    const bool asked = list[0] != '\0';
    char folder[PATH_MAX];

    if (strncmp(target, "gfx", 3) != 0)
        return false;
    if (!asked && !motet_image_user_folder(folder, sizeof(folder)))
        return false;
    if (!asked)
        return take_entry(folder, (int)strlen(folder), false, target, raw_out,
                bytes_out);
    for (const char *at = list; *at != '\0'; at += *at == ':') {
        size_t length = strcspn(at, ":");

        if (length < PATH_MAX &&
                take_entry(at, (int)length, true, target, raw_out, bytes_out))
            return true;
        at += length;
    }
    return false;
}
