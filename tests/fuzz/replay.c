/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands in for libFuzzer where there is none: replay PATH… [-n COUNT] feeds each file
 * (of each folder) to LLVMFuzzerTestOneInput(), and then COUNT mutations of them from a
 * fixed seed, so that two runs see the same inputs. Each input is a heap block of
 * exactly its length, for AddressSanitizer to guard.
 */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { SEEDS_MAX = 1000, INPUT_MAX = 1 << 16, MUTATIONS = 4000, STEPS_MAX = 6 };

typedef struct input {
    uint8_t *data;
    size_t bytes;
} input;

static input seeds[SEEDS_MAX];
static size_t num_seeds;

static uint64_t random_state = 0x9e3779b97f4a7c15u;

/* xorshift64*, and a number below @p limit. */
static size_t below(size_t limit)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return limit == 0 ? 0
                      : (size_t)((random_state * 0x2545f4914f6cdd1du) >> 11) % limit;
}

static int read_seed(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(INPUT_MAX);
    size_t bytes;

    if (file == NULL || data == NULL || num_seeds == SEEDS_MAX) {
        fprintf(stderr, "replay: read '%s': %s\n", path, strerror(errno));
        free(data);
        if (file != NULL)
            fclose(file);
        return -1;
    }
    bytes = fread(data, 1, INPUT_MAX, file);
    fclose(file);
    seeds[num_seeds++] = (input){ data, bytes };
    return 0;
}

/* Sorted, since mutations choose seeds by number. */
static int read_folder(const char *path)
{
    struct dirent **entries;
    int n = scandir(path, &entries, NULL, alphasort), rc = 0;

    if (n < 0) {
        fprintf(stderr, "replay: read folder '%s': %s\n", path, strerror(errno));
        return -1;
    }
    for (int i = 0; i < n; i++) {
        char name[4096];

        snprintf(name, sizeof(name), "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.' && rc == 0)
            rc = read_seed(name);
        free(entries[i]);
    }
    free(entries);
    return rc;
}

static void feed(const uint8_t *data, size_t bytes)
{
    uint8_t *copy = malloc(bytes);

    if (copy == NULL && bytes > 0)
        abort();
    if (bytes > 0)
        memcpy(copy, data, bytes);
    (void)LLVMFuzzerTestOneInput(copy, bytes);
    free(copy);
}

/* Make room for, or drop, @p change bytes at @p at. */
static size_t resize(uint8_t *data, size_t bytes, size_t at, size_t change, int grow)
{
    if (grow && bytes + change <= INPUT_MAX) {
        memmove(data + at + change, data + at, bytes - at);
        return bytes + change;
    }
    if (!grow && at + change <= bytes) {
        memmove(data + at, data + at + change, bytes - at - change);
        return bytes - change;
    }
    return bytes;
}

/* One step: change a bit, a byte or a number, delete, insert, repeat, or splice. */
static size_t mutate(uint8_t *data, size_t bytes)
{
    static const uint8_t interesting[] = { 0, 1, 0x7f, 0x80, 0xff, '=', '\n', ' ', '-',
        '0', '9', '#', ',' };
    const size_t at = below(bytes + 1), change = 1 + below(below(2) ? 4 : 64);
    const input *other = &seeds[below(num_seeds)];
    size_t grown;

    switch (below(6)) {
    case 0:
        if (at < bytes)
            data[at] ^= (uint8_t)(1u << below(8));
        return bytes;
    case 1:
        if (at < bytes)
            data[at] = below(2) ? interesting[below(sizeof(interesting))]
                                : (uint8_t)below(256);
        return bytes;
    case 2: return resize(data, bytes, at, change, 0);
    case 3:
        grown = resize(data, bytes, at, change, 1);
        for (size_t i = 0; grown > bytes && i < change; i++)
            data[at + i] = interesting[below(sizeof(interesting))];
        return grown;
    case 4: /* what follows is repeated */
        grown = at + change <= bytes ? resize(data, bytes, at, change, 1) : bytes;
        return grown;
    default:
        if (other->bytes > 0 && at < bytes) {
            size_t from = below(other->bytes), length = other->bytes - from;

            length = length < bytes - at ? length : bytes - at;
            memmove(data + at, other->data + from, length);
        }
        return bytes;
    }
}

static void run(size_t mutations)
{
    uint8_t *data = malloc(INPUT_MAX);

    if (data == NULL)
        abort();
    feed(NULL, 0);
    for (size_t i = 0; i < num_seeds; i++)
        feed(seeds[i].data, seeds[i].bytes);
    for (size_t i = 0; i < mutations; i++) {
        const input *seed = &seeds[below(num_seeds)];
        size_t bytes = seed->bytes;

        if (bytes > 0)
            memcpy(data, seed->data, bytes);
        for (size_t step = 1 + below(STEPS_MAX); step > 0; step--)
            bytes = mutate(data, bytes);
        feed(data, bytes);
    }
    free(data);
}

int main(int argc, char **argv)
{
    size_t mutations = MUTATIONS;

    for (int i = 1; i < argc; i++) {
        struct stat st;

        if (strcmp(argv[i], "-n") == 0 && i + 1 < argc)
            mutations = strtoul(argv[++i], NULL, 10);
        else if (stat(argv[i], &st) == 0 && S_ISREG(st.st_mode)
                        ? read_seed(argv[i]) != 0
                        : read_folder(argv[i]) != 0)
            return EXIT_FAILURE;
    }
    if (num_seeds == 0) {
        fprintf(stderr, "usage: %s FILE|FOLDER... [-n MUTATIONS]: no seed found\n",
                argv[0]);
        return EXIT_FAILURE;
    }
    run(mutations);
    printf("%zu seeds and %zu mutations\n", num_seeds, mutations);
    for (size_t i = 0; i < num_seeds; i++)
        free(seeds[i].data);
    return EXIT_SUCCESS;
}
