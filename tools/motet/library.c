/* SPDX-License-Identifier: Apache-2.0 */
/* Opening libraries that speak the NCCL ABI: see library.h. */
#include "library.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What the version line of every build of motet holds, and of nothing else. */
static const char motet_mark[] = "+motet";

static void take_linked(struct library *lib)
{
#define LIBRARY_LINKED(field, function, required) lib->field = function;
    LIBRARY_FUNCTIONS(LIBRARY_LINKED)
#undef LIBRARY_LINKED
    lib->linked = true;
    lib->motet = true;
}

/* dlsym() gives an object pointer; POSIX says that it converts. */
static void take_symbol(void *handle, const char *name, void *field)
{
    void *symbol = dlsym(handle, name);

    memcpy(field, &symbol, sizeof(symbol));
}

static const char *take_symbols(struct library *lib)
{
    const char *missing = NULL;

#define LIBRARY_SYMBOL(field, function, required)     \
    take_symbol(lib->handle, #function, &lib->field); \
    if (lib->field == NULL && (required) && !missing) \
        missing = #function;
    LIBRARY_FUNCTIONS(LIBRARY_SYMBOL)
#undef LIBRARY_SYMBOL
    return missing;
}

/* Whether @p text stands anywhere in the file. */
static bool holds(const char *path, const char *text)
{
    size_t bytes;
    void *map = library_map(path, &bytes);
    bool found;

    if (map == NULL)
        return false;
    found = memmem(map, bytes, text, strlen(text)) != NULL;
    munmap(map, bytes);
    return found;
}

bool library_is_motet(const char *path)
{
    return holds(path, motet_mark);
}

bool library_has_gpu_code(const char *path)
{
    return holds(path, ".nv_fatbin") || holds(path, ".hip_fatbin");
}

bool library_may_launch(const char *name)
{
    if (access(name, R_OK) != 0)
        return true;
    if (library_is_motet(name))
        return false;
    return library_has_gpu_code(name);
}

static int open_file(struct library *lib, const char *name, char *why, size_t why_bytes)
{
    struct link_map *map = NULL;
    const char *missing;

    lib->handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (lib->handle == NULL) {
        snprintf(why, why_bytes, "open library: %s", dlerror());
        return -1;
    }
    if (dlinfo(lib->handle, RTLD_DI_LINKMAP, &map) != 0 || map == NULL ||
            realpath(map->l_name, lib->path) == NULL)
        snprintf(lib->path, sizeof(lib->path), "%s", name);
    missing = take_symbols(lib);
    if (missing != NULL) {
        snprintf(why, why_bytes, "'%s' has no %s: not a library with the NCCL ABI",
                lib->path, missing);
        dlclose(lib->handle);
        return -1;
    }
    lib->motet = library_is_motet(lib->path);
    return 0;
}

int library_load(struct library *lib, const char *name, char *why, size_t why_bytes)
{
    ncclResult_t result;

    memset(lib, 0, sizeof(*lib));
    if (name == NULL) {
        ssize_t n = readlink("/proc/self/exe", lib->path, sizeof(lib->path) - 1);

        if (n < 0)
            snprintf(lib->path, sizeof(lib->path), "/proc/self/exe");
        take_linked(lib);
    } else if (open_file(lib, name, why, why_bytes) != 0) {
        return -1;
    }
    lib->streams = lib->stream_create != NULL && lib->stream_destroy != NULL &&
            lib->stream_synchronize != NULL;
    result = lib->get_version(&lib->version);
    if (result != ncclSuccess) {
        snprintf(why, why_bytes, "ncclGetVersion of '%s': %s", lib->path,
                library_error(lib, result));
        library_close(lib);
        return -1;
    }
    return 0;
}

int library_open(struct library *lib, const char *name, char *why, size_t why_bytes)
{
    if (library_load(lib, name, why, why_bytes) != 0)
        return -1;
    if (sha256_file(lib->path, lib->sha256) != 0)
        snprintf(lib->sha256, sizeof(lib->sha256), "unreadable");
    return 0;
}

void library_close(struct library *lib)
{
    if (lib->handle != NULL)
        dlclose(lib->handle);
    lib->handle = NULL;
}

const char *library_error(const struct library *lib, ncclResult_t result)
{
    const char *text = lib->get_last_error != NULL ? lib->get_last_error(NULL) : "";

    if (text != NULL && *text != 0)
        return text;
    return lib->get_error_string(result);
}
