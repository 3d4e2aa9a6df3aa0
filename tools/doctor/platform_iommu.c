/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the types of IOMMU domains and the registers of access control. */
#include "platform.h"
#include "typed.h"

#include <string.h>

/* Words of one command that are told apart. */
#define WORDS_MAX 128
/* "0000:40:03.1 (ecap 000d @2a0) @2a6 = 001d" and the like are no longer. */
#define REGISTER_LINE_MAX 64

/* ---- domain types ---- */

static bool domain_type(struct dr_span word, bool *translated)
{
    *translated = dr_span_is(word, "DMA") || dr_span_is(word, "DMA-FQ");
    return *translated || dr_span_is(word, "identity");
}

/* "…/iommu_groups/17/type", "…/0000:c1:00.0/iommu_group/type" or just an address, anywhere
 * in @p text. */
static void whose(const char *text, struct dr_domain *domain)
{
    struct dr_span found[1];
    uint64_t group;

    domain->group = -1;
    domain->bdf[0] = 0;
    if (dr_scan(text, "iommu_groups/%d/", found) && dr_span_u64(found[0], &group) &&
            group < 1u << 20)
        domain->group = (int64_t)group;
    else if (dr_scan(text, "%b", found))
        (void)dr_span_bdf(found[0], domain->bdf);
    else if ((dr_scan(text, "^%d", found) || dr_scan(text, "roup %d", found)) &&
            dr_span_u64(found[0], &group) && group < 1u << 20)
        domain->group = (int64_t)group;
}

/* The value is the last word of a line, or follows the path and a colon. */
static bool domain_of_line(const char *text, struct dr_domain *domain)
{
    const char *last = strrchr(text, ' ');
    const char *colon;

    last = last != NULL ? last + 1 : text;
    colon = strrchr(last, ':');
    if (colon != NULL)
        last = colon + 1;
    return domain_type((struct dr_span){ last, strlen(last) }, &domain->translated);
}

static void add_domain(struct doctor *d, uint32_t i, const struct dr_domain *domain)
{
    struct dr_kernel *k = d->kernel;
    struct dr_domain *new;

    if (k->num_domains == DR_RECORDS_MAX)
        return;
    new = DR_PUSH(d, k->domains, k->num_domains, k->room_domains);
    *new = *domain;
    new->line = i;
    new->machine = d->lines[i].machine;
    dr_known(d, i);
}

/* `cat` of several files prints values only: they come in the order of the words. */
static void domains_of_command(struct doctor *d, uint32_t command)
{
    const char *text = d->lines[command].text;
    const uint32_t end = dr_output_end(d, command);
    const char *words[WORDS_MAX];
    uint32_t values = 0, next = 0;
    const uint32_t count = dr_typed_words(d, text, "/sys/", words, WORDS_MAX);
    struct dr_domain domain = { 0 };
    const char *head = NULL;

    for (uint32_t i = command + 1; i < end; i++)
        values += strchr(d->lines[i].text, ' ') == NULL &&
                domain_of_line(d->lines[i].text, &domain);
    for (uint32_t i = command + 1; i < end; i++) {
        const char *line = d->lines[i].text;

        if (dr_begins(line, "==> "))
            head = line; /* head prints the path above */
        if (!domain_of_line(line, &domain))
            continue;
        if (strchr(line, ' ') == NULL && strchr(line, ':') == NULL) {
            whose(values == count ? words[next++] : head != NULL ? head : "", &domain);
        } else {
            whose(line, &domain);
            if (strstr(text, "uniq") != NULL)
                domain.group = -1; /* the number is a count */
        }
        add_domain(d, i, &domain);
    }
}

void dr_read_domains(struct doctor *d)
{
    for (uint32_t i = 0; i < d->num_lines; i++) {
        const struct dr_line *line = &d->lines[i];
        struct dr_domain domain = { 0 };
        const bool typed_here = dr_has(dr_command(d, i), "iommu_group") &&
                dr_has(dr_command(d, i), "type");

        if (line->flags & DR_COMMAND) {
            if (dr_has(line->text, "iommu_group") && dr_has(line->text, "type"))
                domains_of_command(d, i);
        } else if (!typed_here && dr_has(line->text, "iommu_group") &&
                dr_has(line->text, "/type:") && domain_of_line(line->text, &domain)) {
            whose(line->text, &domain);
            add_domain(d, i, &domain);
        }
    }
}

/* The IOMMU groups that GPUs of a machine are in. */
struct groups {
    int64_t numbers[256];
    uint32_t count;
};

static void add_group(struct groups *g, int64_t number)
{
    if (number >= 0 && g->count < sizeof(g->numbers) / sizeof(*g->numbers))
        g->numbers[g->count++] = number;
}

static void groups_of_gpus(const struct doctor *d, uint32_t machine, struct groups *g)
{
    g->count = 0;
    for (uint32_t i = 0; i < d->kernel->num_lines; i++) {
        const struct dr_kernel_line *k = &d->kernel->lines[i];

        if (k->kind == DR_K_GROUP && k->machine == machine && k->value < 1u << 20 &&
                dr_is_gpu_address(d, machine, k->bdf))
            add_group(g, (int64_t)k->value);
    }
    for (uint32_t i = 0; i < d->pci->num_devices; i++)
        if (d->pci->devices[i].machine == machine && dr_is_gpu(&d->pci->devices[i]))
            add_group(g, d->pci->devices[i].iommu_group);
}

static bool is_of_gpu(const struct doctor *d, const struct dr_domain *domain,
        const struct groups *g)
{
    if (domain->bdf[0] != 0)
        return dr_is_gpu_address(d, domain->machine, domain->bdf);
    for (uint32_t i = 0; domain->group >= 0 && i < g->count; i++)
        if (g->numbers[i] == domain->group)
            return true;
    return false;
}

/* Of the kinds in @p set the last line: a log may hold several boots. */
static const struct dr_kernel_line *last_of(const struct doctor *d, uint32_t machine,
        unsigned set)
{
    const struct dr_kernel_line *last = NULL;

    for (uint32_t i = 0; i < d->kernel->num_lines; i++) {
        const struct dr_kernel_line *line = &d->kernel->lines[i];

        if (line->machine == machine && (set >> line->kind & 1))
            last = line;
    }
    return last;
}

/* By the types of single groups: with @p gpus of those of GPUs, else of all. */
static enum dr_answer by_groups(const struct doctor *d, uint32_t machine, bool gpus,
        uint32_t *line)
{
    struct groups of_gpus;
    uint32_t yes = 0, no = 0;

    groups_of_gpus(d, machine, &of_gpus);
    for (uint32_t i = 0; i < d->kernel->num_domains; i++) {
        const struct dr_domain *domain = &d->kernel->domains[i];

        if (domain->machine != machine || (gpus && !is_of_gpu(d, domain, &of_gpus)))
            continue;
        if (line != NULL && (domain->translated ? yes == 0 : yes + no == 0))
            *line = domain->line;
        yes += domain->translated;
        no += !domain->translated;
    }
    if (gpus)
        return yes > 0 ? DR_YES : no > 0 ? DR_NO : DR_UNSURE;
    return yes > 0 && no == 0 ? DR_YES : no > 0 && yes == 0 ? DR_NO : DR_UNSURE;
}

enum dr_answer dr_iommu_translates(const struct doctor *d, uint32_t machine,
        uint32_t *line)
{
    const struct dr_kernel_line *last;
    enum dr_answer answer = by_groups(d, machine, true, line);

    if (answer == DR_UNSURE) {
        bool owned = false;

        for (uint32_t i = 0; i < d->kernel->num_domains; i++)
            owned = owned || d->kernel->domains[i].bdf[0] != 0;
        if (!owned)
            answer = by_groups(d, machine, false, line);
    }
    if (answer != DR_UNSURE)
        return answer;
    last = last_of(d, machine,
            1u << DR_K_DOMAIN_TRANSLATED | 1u << DR_K_DOMAIN_PASSTHROUGH |
                    1u << DR_K_IOMMU_OFF);
    if (last == NULL)
        return DR_UNSURE;
    if (line != NULL)
        *line = last->line;
    return last->kind == DR_K_DOMAIN_TRANSLATED ? DR_YES : DR_NO;
}

/* ---- access control ---- */

static void set_control(struct doctor *d, uint32_t i, const char *bdf, uint64_t value)
{
    struct dr_pci_device *device = dr_pci_device(d, d->lines[i].machine, bdf, i);

    if (device == NULL)
        return;
    device->acs_source_validation = value & 1;
    device->acs_redirect_requests = value >> 2 & 1;
    device->acs_redirect_completions = value >> 3 & 1;
    device->line_acs = i;
    dr_known(d, i);
}

static bool is_register(const char *text, uint64_t *value)
{
    struct dr_span word;

    return dr_scan(text, "^%x%e", &word) && word.length == 4 &&
            dr_span_hex(word, value);
}

/* `setpci -s A ECAP_ACS+6.w; setpci -s B …` prints a value for each. */
static void registers_of_command(struct doctor *d, uint32_t command)
{
    const char *text = d->lines[command].text;
    const uint32_t end = dr_output_end(d, command);
    const char *words[WORDS_MAX];
    const uint32_t count = dr_typed_words(d, text, "-s ", words, WORDS_MAX);
    uint32_t values = 0, next = 0;
    struct dr_span found[4];
    uint64_t value;
    char bdf[DR_BDF_MAX];

    for (uint32_t i = command + 1; i < end; i++)
        values += is_register(d->lines[i].text, &value);
    for (uint32_t i = command + 1; i < end; i++) {
        const char *line = d->lines[i].text;

        if (is_register(line, &value)) {
            const char *word = values == count ? words[next++] : "";

            if (dr_span_bdf((struct dr_span){ word, strlen(word) }, bdf))
                set_control(d, i, bdf, value);
        } else if (d->lines[i].length <= REGISTER_LINE_MAX &&
                (dr_scan(line, "%b %*= %x%e", found) ||
                        dr_scan(line, "%b%*%<%x%e", found)) &&
                found[2].length == 4 && dr_span_bdf(found[0], bdf) &&
                dr_span_hex(found[2], &value)) {
            set_control(d, i, bdf, value);
        }
    }
}

void dr_read_acs_registers(struct doctor *d)
{
    for (uint32_t i = 0; i < d->num_lines; i++) {
        const struct dr_line *line = &d->lines[i];

        if ((line->flags & DR_COMMAND) && dr_has(line->text, "setpci") &&
                dr_has_any_case(line->text, "ECAP_ACS") &&
                (dr_has_any_case(line->text, "+6.w") ||
                        dr_has_any_case(line->text, "+0x6.w")))
            registers_of_command(d, i);
    }
}
