/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine that compiles the finder in: it runs without RCCL, and says where it looked.
 * Needs nothing but libc and the installed folder share/motet/find.
 */
#include "find.h"

#include <stdio.h>
#include <stdlib.h>

static const char *look_up(const char *variable, void *arg)
{
    (void)arg;
    return getenv(variable);
}

int main(void)
{
    static motet_find_report report;
    static char text[65536];
    motet_find_request request;

    motet_find_ask(&request, &motet_find_rccl,
            motet_find_client_of("hipfire", &motet_find_rccl), look_up, NULL);
    if (!motet_find_open(&request, &report))
        printf("one GPU only: ");
    (void)motet_find_text(&report, text, sizeof(text));
    fputs(text, stdout);
    return 0;
}
