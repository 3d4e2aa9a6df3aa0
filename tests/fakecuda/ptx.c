/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modules as PTX text. Of each `.entry` its name, the sizes of its parameters and its
 * limit of threads are read; the code is the host build of the same name.
 */
#include "fake.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static bool word_char(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '.' || c == '%';
}

/* The next word or mark from *at on, without comments; its length, 0 at the end. */
static size_t token(const char **at)
{
    const char *p = *at;
    size_t n = 0;

    for (;;) {
        bool line;

        while (isspace((unsigned char)*p))
            p++;
        if (p[0] != '/' || (p[1] != '/' && p[1] != '*'))
            break;
        /* No strstr(): the address sanitizer's measures all of the text each time. */
        line = p[1] == '/';
        for (p += 2; *p != '\0' && !(line ? *p == '\n' : p[-1] == '*' && *p == '/');)
            p++;
        p += *p != '\0';
    }
    *at = p;
    while (word_char(p[n]))
        n++;
    return n > 0 || *p == '\0' ? n : 1;
}

static bool is(const char *at, size_t n, const char *word)
{
    return n == strlen(word) && memcmp(at, word, n) == 0;
}

/* Bytes of a type: ".b8", ".u64"; 0 if it is none. */
static size_t type_bytes(const char *at, size_t n)
{
    char digits[4] = "";

    if (n < 3 || n > 5 || at[0] != '.' || strchr("busf", at[1]) == NULL)
        return 0;
    memcpy(digits, at + 2, n - 2);
    return strtoul(digits, NULL, 10) / 8;
}

/* One parameter, after `.param`, up to its comma or the parenthesis: adds its bytes. */
static const char *read_parameter(const char *at, size_t *total)
{
    size_t align = 1, bytes = 0, n;

    for (; (n = token(&at)) > 0 && *at != ',' && *at != ')'; at += n) {
        if (is(at, n, ".align"))
            align = strtoul(at + n, NULL, 10);
        else if (*at == '[')
            bytes *= strtoul(at + 1, NULL, 10);
        else if (bytes == 0)
            bytes = type_bytes(at, n);
    }
    if (align > 0)
        *total = (*total + align - 1) / align * align + bytes;
    return at;
}

/* From behind `.entry`. @return behind the head, NULL: not PTX */
static const char *read_entry(const char *at, fake_function *function)
{
    size_t n = token(&at);

    if (n == 0 || n >= sizeof(function->name))
        return NULL;
    memcpy(function->name, at, n);
    function->threads = FAKE_BLOCK_LIMIT;
    for (at += n; (n = token(&at)) > 0 && *at != '{' && *at != ';';) {
        bool parameter = is(at, n, ".param");

        if (is(at, n, ".maxntid") || is(at, n, ".reqntid"))
            function->threads = (unsigned)strtoul(at + n, NULL, 10);
        at = parameter ? read_parameter(at + n, &function->bytes) : at + n;
    }
    return n > 0 ? at : NULL;
}

static CUresult parse(const char *text, fake_module *module)
{
    CUresult code = CUDA_SUCCESS;
    bool version = false;
    size_t n;

    while (code == CUDA_SUCCESS && (n = token(&text)) > 0) {
        bool entry = is(text, n, ".entry"), target = is(text, n, ".target");

        version |= is(text, n, ".version");
        text += n;
        if (target && (n = token(&text)) > 3 && strtoul(text + 3, NULL, 10) > 70)
            return CUDA_ERROR_NO_BINARY_FOR_GPU;
        if (entry) {
            fake_function *function = fake_module_add(module);

            text = read_entry(text, function);
            code = text != NULL ? fake_module_bind(function) : CUDA_ERROR_INVALID_PTX;
        }
    }
    return code == CUDA_SUCCESS && !version ? CUDA_ERROR_INVALID_IMAGE : code;
}

/* Code of real devices: an ELF file, or one of NVIDIA's containers. */
static bool binary(const void *image)
{
    static const unsigned char elf[4] = { 0x7f, 'E', 'L', 'F' },
                               wrapper[4] = { 0xb1, 0x43, 0x62, 0x46 },
                               fat[4] = { 0x50, 0xed, 0x55, 0xba };

    return memcmp(image, elf, 4) == 0 || memcmp(image, wrapper, 4) == 0 ||
            memcmp(image, fat, 4) == 0;
}

CUresult fake_ptx_read(const void *image, fake_module *module)
{
    return binary(image) ? CUDA_ERROR_NO_BINARY_FOR_GPU : parse(image, module);
}
