/* SPDX-License-Identifier: Apache-2.0 */
/* Reads tables of rates, matrices, tests of peer access, topologies. */
#include "measure.h"

#include "facts.h"
#include "rules.h"

void dr_read_measure(struct doctor *d)
{
    d->measure = dr_alloc(d, sizeof(*d->measure));
    d->measure->line_direct = d->measure->line_vendor = DR_NONE;
    dr_read_signs(d);
    dr_read_tables(d);
    dr_read_matrices(d);
    dr_read_pairs(d);
    dr_read_ports(d);
    dr_read_timings(d);
    dr_read_topologies(d);
}

/* KFD's type of a link of XGMI. */
#define KFD_XGMI 11

static bool is_gpu_node(const struct doctor *d, uint32_t machine, int number)
{
    for (uint32_t i = 0; i < d->pci->num_nodes; i++) {
        const struct dr_kfd_node *n = &d->pci->nodes[i];

        if (n->machine == machine && n->number == number)
            return n->cpu_cores == 0 || n->simds > 0;
    }
    return false;
}

static enum dr_answer by_kfd(const struct doctor *d, uint32_t machine, uint32_t *line)
{
    for (uint32_t i = 0; d->pci != NULL && i < d->pci->num_links; i++) {
        const struct dr_kfd_link *l = &d->pci->links[i];

        if ((machine != DR_NONE && l->machine != machine) || l->type != KFD_XGMI ||
                !is_gpu_node(d, l->machine, l->from) ||
                !is_gpu_node(d, l->machine, l->to))
            continue;
        if (line != NULL)
            *line = l->line;
        return DR_YES;
    }
    return DR_UNSURE;
}

enum dr_answer dr_direct_links(const struct doctor *d, uint32_t machine, uint32_t *line)
{
    enum dr_answer answer = by_kfd(d, machine, line);

    if (d->measure == NULL)
        return answer;
    for (uint32_t i = 0; answer != DR_YES && i < d->measure->num_matrices; i++) {
        const struct dr_matrix *m = &d->measure->matrices[i];

        if (m->kind != DR_MATRIX_LINKS || (machine != DR_NONE && m->machine != machine))
            continue;
        for (uint32_t k = 0; k < m->size * m->size && answer != DR_YES; k++) {
            const uint32_t row = k / m->size, column = k % m->size;
            uint64_t count;

            if (row == column || dr_cell(m, row, column).length == 0)
                continue;
            answer = dr_is_direct(dr_cell(m, row, column), &count) ? DR_YES : DR_NO;
            if (line != NULL)
                *line = m->lines[row];
        }
    }
    if (answer == DR_UNSURE && d->measure->line_direct != DR_NONE &&
            (machine == DR_NONE || machine == d->measure->machine_direct)) {
        if (line != NULL)
            *line = d->measure->line_direct;
        answer = DR_YES;
    }
    return answer;
}

double dr_plateau(const struct doctor *d, uint32_t *line)
{
    for (uint32_t i = 0; d->measure != NULL && i < d->measure->num_tables; i++) {
        const struct dr_table *t = &d->measure->tables[i];

        if (t->num_rows == 0)
            continue;
        if (line != NULL)
            *line = t->line_plateau;
        return t->plateau;
    }
    return 0;
}
