/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Most lines of a long log are no measurement. One walk over each line, for all readers
 * of measurements together, tells which of them have to look at it at all.
 */
#include "measure.h"

#include <string.h>

/* Words of lower case, at least three bytes each, whatever their case in the text; as
 * many as a mask has bits. */
static const struct {
    const char *word;
    unsigned char signs;
} words[] = {
    { "test", DR_SIGN_TABLE },
    { "nccl_", DR_SIGN_TABLE },
    { "net/ib", DR_SIGN_TABLE },
    { "] via ", DR_SIGN_TABLE },
    { "] [send] via ", DR_SIGN_TABLE },
    { "nthread", DR_SIGN_TABLE },
    { "rank ", DR_SIGN_TABLE },
    { "maxbytes", DR_SIGN_TABLE },
    { "out of bounds", DR_SIGN_TABLE },
    { "avg bus ", DR_SIGN_TABLE },
    { "algbw", DR_SIGN_TABLE },
    { "gdr", DR_SIGN_TABLE },
    { "gpudirect", DR_SIGN_TABLE },
    { "gpu", DR_SIGN_DEVICE },
    { "cpu", DR_SIGN_DEVICE },
    { "dcu", DR_SIGN_DEVICE | DR_SIGN_VENDOR },
    { "hcu", DR_SIGN_DEVICE | DR_SIGN_VENDOR },
    { "d\\d", DR_SIGN_DEVICE },
    { "d/d", DR_SIGN_DEVICE },
    { ":00.", DR_SIGN_DEVICE },
    { "peer", DR_SIGN_PEER },
    { "p2p", DR_SIGN_PEER | DR_SIGN_TABLE },
    { "owner", DR_SIGN_PEER },
    { "tensor([", DR_SIGN_PAIR },
    { " to ", DR_SIGN_PAIR },
    { "wrong", DR_SIGN_WRONG },
    { "mismatch", DR_SIGN_WRONG },
    { "error", DR_SIGN_WRONG },
    { "bad", DR_SIGN_WRONG },
    { "differ", DR_SIGN_WRONG },
    { "incorrect", DR_SIGN_WRONG },
    { "expected", DR_SIGN_WRONG },
    { "want", DR_SIGN_WRONG },
    { "fail", DR_SIGN_WRONG },
    { "corrupt", DR_SIGN_WRONG },
    { "zero", DR_SIGN_WRONG },
    { "all ones", DR_SIGN_WRONG },
    { "stale", DR_SIGN_WRONG },
    { "old data", DR_SIGN_WRONG },
    { "not equal", DR_SIGN_WRONG },
    { "device='", DR_SIGN_WRONG },
    { "/sys/class/", DR_SIGN_PORT },
    { "symbol", DR_SIGN_PORT },
    { "rate:", DR_SIGN_PORT },
    { "speed", DR_SIGN_PORT },
    { " fec ", DR_SIGN_PORT },
    { "ck_", DR_SIGN_PORT },
    { " ==> ", DR_SIGN_PORT },
    { " netdev ", DR_SIGN_PORT },
    { "ca '", DR_SIGN_PORT },
    { "infiniband device", DR_SIGN_PORT },
    { "settings for ", DR_SIGN_PORT },
    { "fec parameters", DR_SIGN_PORT },
    { "hca_id", DR_SIGN_PORT },
    { "device: ", DR_SIGN_PORT },
    { "mthreads", DR_SIGN_VENDOR },
    { "mtt s", DR_SIGN_VENDOR },
    { "hygon", DR_SIGN_VENDOR },
    { "hy-smi", DR_SIGN_VENDOR },
    { "link_type", DR_SIGN_VENDOR },
    { "link type", DR_SIGN_VENDOR },
    { "lnk", DR_SIGN_LANES },
};

#define NUM_WORDS (sizeof(words) / sizeof(*words))
_Static_assert(NUM_WORDS <= 64, "one bit of a mask each");

/* [n][byte]: the words whose byte number n that is. */
struct finder {
    uint64_t words[3][256];
};

static void prepare(struct finder *f)
{
    memset(f, 0, sizeof(*f));
    for (size_t i = 0; i < NUM_WORDS; i++)
        for (size_t n = 0; n < 3; n++) {
            const unsigned char byte = (unsigned char)words[i].word[n];

            f->words[n][byte] |= 1ull << i;
            if (byte >= 'a' && byte <= 'z')
                f->words[n][byte - ('a' - 'A')] |= 1ull << i;
        }
}

static unsigned signs_of(const struct finder *f, const char *text)
{
    unsigned signs = 0;

    for (const unsigned char *at = (const unsigned char *)text; *at != 0; at++) {
        uint64_t may = f->words[0][at[0]] & f->words[1][at[1]];

        if (at[0] == '-' && at[1] == '>')
            signs |= DR_SIGN_PAIR;
        if (may == 0)
            continue;
        for (may &= f->words[2][at[2]]; may != 0; may &= may - 1) {
            const int i = __builtin_ctzll(may);

            if ((signs & words[i].signs) != words[i].signs &&
                    strncasecmp((const char *)at, words[i].word,
                            strlen(words[i].word)) == 0)
                signs |= words[i].signs;
        }
    }
    return signs;
}

void dr_read_signs(struct doctor *d)
{
    struct finder *f = dr_alloc(d, sizeof(*f));

    prepare(f);
    d->measure->signs = dr_alloc(d, d->num_lines + 1);
    for (uint32_t i = 0; i < d->num_lines; i++)
        d->measure->signs[i] = (unsigned char)signs_of(f, d->lines[i].text);
}
