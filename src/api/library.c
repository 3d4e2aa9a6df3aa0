/* SPDX-License-Identifier: Apache-2.0 */
/* A copy of RCCL or NCCL for a program that does not link one: the finder, see src/find. */
#include "api/export.h"
#include "api/internal.h"
#include "base/param.h"
#include "find/find.h"
#include "motet.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *look_up(const char *variable, void *arg)
{
    (void)arg;
    return motet_param_environment(variable);
}

/* ncclGetVersion() of an open library, 0 if it gives none. */
static int version_of(void *handle)
{
    void *symbol = dlsym(handle, "ncclGetVersion");
    ncclResult_t (*get_version)(int *) = NULL;
    int version = 0;

    if (symbol == NULL)
        return 0;
    memcpy(&get_version, &symbol, sizeof(symbol));
    return get_version(&version) == ncclSuccess ? version : 0;
}

static motet_result open_library(const motet_find_library *library,
        const motet_find_client *client, motet_lib_info_t *own)
{
    motet_find_report *report = malloc(sizeof(*report)); /* large */
    motet_find_request request;
    const char *lines;

    if (report == NULL)
        return motet_fail(MOTET_ERR_SYSTEM,
                "motet_lib_open : no memory for the report");
    motet_find_ask(&request, library, client, look_up, NULL);
    if (motet_find_open(&request, report)) {
        own->handle = report->handle;
        own->version = version_of(report->handle);
    }
    snprintf(own->path, sizeof(own->path), "%s", report->path);
    snprintf(own->sentence, sizeof(own->sentence), "%s", report->sentence);
    (void)motet_find_text(report, own->candidates, sizeof(own->candidates));
    lines = strchr(own->candidates, '\n') +
            1; /* behind the sentence, which is shorter */
    memmove(own->candidates, lines, strlen(lines) + 1);
    free(report);
    return MOTET_OK;
}

MOTET_API ncclResult_t motet_lib_open(const char *library, const char *client,
        motet_lib_info_t *info)
{
    static const motet_find_library *const libraries[] = { &motet_find_rccl,
        &motet_find_nccl };
    const motet_find_library *wanted = NULL;
    const motet_find_client *row = NULL;
    motet_lib_info_t own = MOTET_LIB_INFO_INITIALIZER;
    motet_result result = motet_api_check_size("motet_lib_open", info);

    for (size_t i = 0; library != NULL && i < 2; i++)
        if (strcmp(library, libraries[i]->name) == 0)
            wanted = libraries[i];
    if (result == MOTET_OK && wanted == NULL)
        result = motet_fail(MOTET_ERR_ARGUMENT,
                "motet_lib_open : library is '%s', need rccl or nccl",
                library != NULL ? library : "");
    if (result == MOTET_OK && client != NULL) {
        row = motet_find_client_of(client, wanted);
        if (row == NULL)
            result = motet_fail(MOTET_ERR_ARGUMENT,
                    "motet_lib_open : no client '%s' of %s is known", client,
                    wanted->what);
    }
    if (result == MOTET_OK)
        result = open_library(wanted, row, &own);
    if (result == MOTET_OK)
        motet_api_answer(info, &own, sizeof(own));
    return motet_api_report(result);
}
