/* SPDX-License-Identifier: Apache-2.0 */
/* What a table's rates are to be held against; for the rules about measurements. */
#ifndef MOTET_DOCTOR_RATES_H
#define MOTET_DOCTOR_RATES_H

#include "measure.h"

/** Most tables that are judged. */
#define DR_TABLES_MAX 512

struct dr_rates {
    const struct dr_table *table;
    double plateau,
            floor_us; /* GB/s; 0: too few small sizes                          */
    uint64_t largest_bytes;
    uint32_t hosts,
            ranks; /* 0: not said                                              */
    bool direct;   /* XGMI or NVLink joins its GPUs                            */
    bool staged;   /* through host memory                                      */
    bool good;     /* the rate fits the path                                   */
    const char *expectation;
    uint32_t line_plateau, line_expected, line_staged;
};

void dr_look_at_rates(struct doctor *d, const struct dr_table *t, struct dr_rates *r);

/** GB/s that the network of this table can carry, 0: not in the text. */
double dr_network_rate(const struct doctor *d, const struct dr_rates *r,
        uint32_t *line);
/** GDR_NOT_USED, and LINK_DEGRADED of network ports. */
void dr_rule_network_rates(struct doctor *d);

#endif
