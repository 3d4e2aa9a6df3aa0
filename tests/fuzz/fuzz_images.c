/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a library that lists its images: what is listed must be words and numbers. */
#include "library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_word(const char *word, size_t room)
{
    size_t length = strnlen(word, room);

    for (size_t i = 0; i < length; i++)
        if (word[i] <= ' ' || word[i] > '~')
            length = 0;
    if (length > 0 && length < room)
        return;
    fprintf(stderr, "fuzz_images: a word is none\n");
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct library_image images[LIBRARY_IMAGES_MAX];
    size_t num = library_images_in(data, bytes, images);

    if (num > LIBRARY_IMAGES_MAX)
        abort();
    for (size_t i = 0; i < num; i++) {
        check_word(images[i].name, sizeof(images[i].name));
        check_word(images[i].vendor, sizeof(images[i].vendor));
        check_word(images[i].target, sizeof(images[i].target));
    }
    return 0;
}
