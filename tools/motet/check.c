/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values that can be checked: see check.h. Independent of the library's kernels. Large
 * buffers are cut into parts for several threads: all ranks of a machine check at once,
 * so that each takes its share of the processors.
 */
#include "check.h"

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

/* Elements handled at a time: their reference stays in the first-level cache. */
#define BLOCK 1024
/* Elements that are worth a thread, and most threads of a rank. */
#define PART        ((size_t)1 << 18)
#define THREADS_MAX 16

/* The floating types: exponent bits, fraction bits, and whether the top exponent is
 * infinity and NaN (e4m3 keeps it for numbers, except the last code). FNUZ: only numbers,
 * a bias that is one larger, and NaN in the place of −0. */
struct format {
    int exponent, fraction;
    bool ieee, fnuz;
};

static struct format formats[MOTET_NUM_TYPES] = {
    [MOTET_FLOAT16] = { 5, 10, true, false },
    [MOTET_BFLOAT16] = { 8, 7, true, false },
    [MOTET_FLOAT8E4M3] = { 4, 3, false, false },
    [MOTET_FLOAT8E5M2] = { 5, 2, true, false },
    [MOTET_FLOAT32] = { 8, 23, true, false },
    [MOTET_FLOAT64] = { 11, 52, true, false },
};

void check_fp8(bool fnuz)
{
    formats[MOTET_FLOAT8E4M3].fnuz = fnuz;
    formats[MOTET_FLOAT8E5M2].fnuz = fnuz;
    formats[MOTET_FLOAT8E5M2].ieee = !fnuz;
}

static bool is_small_float(motet_type type)
{
    return formats[type].exponent != 0 && motet_type_table[type].bytes <= 2;
}

/* ------------------------------------------------------------ small floats */

static int bias_of(const struct format *f)
{
    return (1 << (f->exponent - 1)) - (f->fnuz ? 0 : 1);
}

/* From the bits of the double, since millions are encoded: its fraction is cut to that of
 * the type, and a carry goes where it belongs, into the exponent. */
static unsigned encode_small(const struct format *f, double value)
{
    unsigned sign = signbit(value) ? 1u << (f->exponent + f->fraction) : 0, stored;
    int shift = DBL_MANT_DIG - 1 - f->fraction, e;
    double magnitude = fabs(value);
    uint64_t bits;

    if (magnitude == 0)
        return f->fnuz ? 0 : sign;
    memcpy(&bits, &magnitude, sizeof(bits));
    e = (int)(bits >> (DBL_MANT_DIG - 1)) - (DBL_MAX_EXP - 1);
    if (e < 1 - bias_of(f))
        return sign | (unsigned)lrint(ldexp(magnitude, bias_of(f) - 1 + f->fraction));
    bits &= (1ull << (DBL_MANT_DIG - 1)) - 1;
    stored = (unsigned)(e + bias_of(f)) << f->fraction;
    return sign | (stored + (unsigned)((bits + (1ull << (shift - 1))) >> shift));
}

static float decode_small(const struct format *f, unsigned bits)
{
    unsigned mask = (1u << f->fraction) - 1, fraction = bits & mask;
    unsigned top = (1u << f->exponent) - 1;
    unsigned stored = (bits >> f->fraction) & top;
    bool negative = (bits >> (f->exponent + f->fraction)) & 1;
    double value;

    if (f->fnuz && negative && stored == 0 && fraction == 0)
        value = NAN;
    else if (stored == top && f->ieee)
        value = fraction == 0 ? INFINITY : NAN;
    else if (stored == top && fraction == mask && !f->fnuz)
        value = NAN;
    else if (stored == 0)
        value = ldexp(fraction, 1 - bias_of(f) - f->fraction);
    else
        value = ldexp(mask + 1 + fraction, (int)stored - bias_of(f) - f->fraction);
    return (float)(negative ? -value : value);
}

/* Every code's value: decoding is a look-up. Made once, at the first use of a type. */
static float value16[2][1 << 16], value8[2][1 << 8];
static pthread_once_t tables_made = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
    for (unsigned i = 0; i < 1 << 16; i++) {
        value16[0][i] = decode_small(&formats[MOTET_FLOAT16], i);
        value16[1][i] = decode_small(&formats[MOTET_BFLOAT16], i);
    }
    for (unsigned i = 0; i < 1 << 8; i++) {
        value8[0][i] = decode_small(&formats[MOTET_FLOAT8E4M3], i);
        value8[1][i] = decode_small(&formats[MOTET_FLOAT8E5M2], i);
    }
}

/* ------------------------------------------------------- elements ↔ numbers */

#define STORE(ctype, element, value)        \
    do {                                    \
        ctype v_ = (ctype)(value);          \
        memcpy((element), &v_, sizeof(v_)); \
    } while (0)

void check_encode(motet_type type, double value, void *element)
{
    switch (type) {
    case MOTET_INT8: STORE(int8_t, element, (int64_t)value); break;
    case MOTET_UINT8: STORE(uint8_t, element, (int64_t)value); break;
    case MOTET_INT32: STORE(int32_t, element, (int64_t)value); break;
    case MOTET_UINT32: STORE(uint32_t, element, (int64_t)value); break;
    case MOTET_INT64: STORE(int64_t, element, value); break;
    case MOTET_UINT64: STORE(uint64_t, element, (int64_t)value); break;
    case MOTET_FLOAT32: STORE(float, element, value); break;
    case MOTET_FLOAT64: STORE(double, element, value); break;
    case MOTET_FLOAT16:
    case MOTET_BFLOAT16:
        STORE(uint16_t, element, encode_small(&formats[type], value));
        break;
    case MOTET_FLOAT8E4M3:
    case MOTET_FLOAT8E5M2:
        STORE(uint8_t, element, encode_small(&formats[type], value));
        break;
    case MOTET_NUM_TYPES: break;
    }
}

#define LOAD_ALL(ctype, convert)                        \
    for (size_t i = 0; i < count; i++) {                \
        ctype v_;                                       \
        memcpy(&v_, from + i * sizeof(v_), sizeof(v_)); \
        out[i] = (convert);                             \
    }                                                   \
    break

/* Elements of a floating type as numbers. */
static void decode_floats(motet_type type, const unsigned char *from, size_t count,
        double *out)
{
    pthread_once(&tables_made, make_tables);
    switch (type) {
    case MOTET_FLOAT16: LOAD_ALL(uint16_t, (double)value16[0][v_]);
    case MOTET_BFLOAT16: LOAD_ALL(uint16_t, (double)value16[1][v_]);
    case MOTET_FLOAT8E4M3: LOAD_ALL(uint8_t, (double)value8[0][v_]);
    case MOTET_FLOAT8E5M2: LOAD_ALL(uint8_t, (double)value8[1][v_]);
    case MOTET_FLOAT32: LOAD_ALL(float, (double)v_);
    case MOTET_FLOAT64: LOAD_ALL(double, v_);
    default: break;
    }
}

/* -------------------------------------------------------------------- input */

static uint64_t mix(uint64_t h)
{
    h ^= h >> 30;
    h *= 0xbf58476d1ce4e5b9ull;
    h ^= h >> 27;
    h *= 0x94d049bb133111ebull;
    return h ^ (h >> 31);
}

static uint64_t dice(const struct check *c, int rank, uint64_t index)
{
    return mix(index * 0x9e3779b97f4a7c15ull +
            (uint64_t)(unsigned)rank * 0xd1b54a32d192ed03ull + c->seed);
}

/* Factors of a product: two ranks differ from ±1 at each index, so it stays small. */
static double product_input(const struct check *c, int rank, uint64_t index)
{
    uint64_t h = dice(c, rank, index);
    uint64_t n = (uint64_t)c->nranks, r = (uint64_t)rank;
    bool first = index % n == r, second = (index / n + index + 1) % n == r;
    double value = 1;

    if (!motet_type_table[c->type].is_float)
        return first ? (double)(1 + h % 3) : second ? 2 : 1;
    if (first)
        value = 1 + (double)(h % 4) / 4;
    else if (second)
        value = (h & 4) != 0 ? 1.5 : 0.5;
    return (h & 8) != 0 ? -value : value;
}

/* Small enough that n of them, doubled by mulsum, stay inside an int8 as long as they can. */
static double integer_input(const struct check *c, int rank, uint64_t index)
{
    int64_t reach = 63 / c->nranks > 0 ? 63 / c->nranks : 1;
    uint64_t h = dice(c, rank, index);
    bool is_signed =
            c->type == MOTET_INT8 || c->type == MOTET_INT32 || c->type == MOTET_INT64;

    if (is_signed)
        return (double)((int64_t)(h % (uint64_t)(2 * reach + 1)) - reach);
    return (double)(h % (uint64_t)(2 * reach + 1));
}

/* ±[0.5, 3.5] with as many fraction bits as the type has (20 at most for float: sums
 * of many ranks still round, sums of a few are exact). */
static double float_input(const struct check *c, int rank, uint64_t index)
{
    /* a table, not branches, which random bits would mislead */
    static const double scale[4] = { 0.5, 1, -0.5, -1 };
    uint64_t h = dice(c, rank, index);
    int bits = is_small_float(c->type) ? 2 : formats[c->type].fraction - 1;
    double fraction = (double)(int64_t)(h >> (64 - bits)) / (double)(1ll << bits);

    return (1 + fraction) * scale[h & 3]; /* exact, all of it */
}

static double input(const struct check *c, int rank, uint64_t index)
{
    if (c->redop == MOTET_PROD)
        return product_input(c, rank, index);
    if (!motet_type_table[c->type].is_float)
        return integer_input(c, rank, index);
    return float_input(c, rank, index);
}

double check_scalar(int rank)
{
    return rank % 2 == 0 ? 1 : 2;
}

/* -------------------------------------------------------------------- parts */

/* Elements first … first + count − 1, which begin at buf. */
struct part {
    const struct check *check;
    unsigned char *buf;
    size_t count;
    uint64_t first;
    int rank;
    size_t (*run)(const struct part *part); /* how many are wrong */
    size_t wrong;
    pthread_t thread;
};

static void *run_part(void *arg)
{
    struct part *part = arg;

    part->wrong = part->run(part);
    return NULL;
}

static size_t threads_for(const struct check *c, size_t count)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    size_t n = cpus > 0 ? (size_t)cpus / (size_t)c->nranks : 1;

    n = n < THREADS_MAX ? n : THREADS_MAX;
    n = n < count / PART ? n : count / PART;
    return n > 0 ? n : 1;
}

/* Run @p whole, cut up. A part that gets no thread is run by this one. */
static size_t run_parts(const struct part *whole)
{
    size_t n = threads_for(whole->check, whole->count), wrong = 0;
    size_t bytes = motet_type_table[whole->check->type].bytes;
    size_t each = (whole->count / n + BLOCK - 1) / BLOCK * BLOCK;
    struct part parts[THREADS_MAX];
    bool started[THREADS_MAX];

    for (size_t i = 0; i < n; i++) {
        size_t at = i * each < whole->count ? i * each : whole->count;

        parts[i] = *whole;
        parts[i].buf += at * bytes;
        parts[i].first += at;
        parts[i].count =
                i == n - 1 || whole->count - at < each ? whole->count - at : each;
        started[i] = i > 0 &&
                pthread_create(&parts[i].thread, NULL, run_part, &parts[i]) == 0;
    }
    for (size_t i = 0; i < n; i++) {
        if (started[i])
            pthread_join(parts[i].thread, NULL);
        else
            run_part(&parts[i]);
        wrong += parts[i].wrong;
    }
    return wrong;
}

/* Elements first … first + n − 1 of a part, counted within it. */
static void fill_some(const struct part *p, size_t first, size_t n, unsigned char *out)
{
    size_t bytes = motet_type_table[p->check->type].bytes;

    for (size_t i = 0; i < n; i++)
        check_encode(p->check->type, input(p->check, p->rank, p->first + first + i),
                out + i * bytes);
}

static size_t fill_part(const struct part *p)
{
    fill_some(p, 0, p->count, p->buf);
    return 0;
}

void check_fill(const struct check *c, void *buf, size_t count, int rank,
        uint64_t first)
{
    struct part whole = { .check = c,
        .buf = buf,
        .count = count,
        .first = first,
        .rank = rank,
        .run = fill_part };

    run_parts(&whole);
}

static size_t moved_part(const struct part *p)
{
    size_t bytes = motet_type_table[p->check->type].bytes, wrong = 0;
    unsigned char expected[8 * BLOCK];

    for (size_t done = 0; done < p->count; done += BLOCK) {
        size_t n = p->count - done < BLOCK ? p->count - done : BLOCK;
        const unsigned char *got = p->buf + done * bytes;

        fill_some(p, done, n, expected);
        if (memcmp(got, expected, n * bytes) == 0)
            continue;
        for (size_t i = 0; i < n; i++)
            wrong += memcmp(got + i * bytes, expected + i * bytes, bytes) != 0;
    }
    return wrong;
}

/* Parts are read only here; the same struct serves what fills them. */
static unsigned char *only_read(const void *buf)
{
    unsigned char *out;

    memcpy(&out, &buf, sizeof(out));
    return out;
}

size_t check_moved(const struct check *c, const void *buf, size_t count, int rank,
        uint64_t first)
{
    struct part whole = { .check = c,
        .buf = only_read(buf),
        .count = count,
        .first = first,
        .rank = rank,
        .run = moved_part };

    return run_parts(&whole);
}

/* ---------------------------------------------------------------- reduction */

/* The result in float64 and the sum of magnitudes, of elements first … first + n − 1. */
static void reference(const struct check *c, uint64_t first, size_t n, double *result,
        double *magnitude)
{
    for (size_t i = 0; i < n; i++) {
        result[i] = 0;
        magnitude[i] = 0;
    }
    for (int r = 0; r < c->nranks; r++) {
        double scale = c->redop == MOTET_PREMUL_SUM ? check_scalar(r) : 1;

        for (size_t i = 0; i < n; i++) {
            double x = input(c, r, first + i) * scale;

            magnitude[i] += fabs(x);
            if (r == 0)
                result[i] = x;
            else if (c->redop == MOTET_PROD)
                result[i] *= x;
            else if (c->redop == MOTET_MAX)
                result[i] = x > result[i] ? x : result[i];
            else if (c->redop == MOTET_MIN)
                result[i] = x < result[i] ? x : result[i];
            else
                result[i] += x;
        }
    }
}

/* All sums of the inputs above are whole and far below 2^53, so the reference is exact. */
static size_t wrong_integers(const struct check *c, const unsigned char *from, size_t n,
        const double *result)
{
    size_t bytes = motet_type_table[c->type].bytes, wrong = 0;
    unsigned char expected[8];

    for (size_t i = 0; i < n; i++) {
        double value = result[i];

        if (c->redop == MOTET_AVG)
            value = trunc(value / c->nranks);
        check_encode(c->type, value, expected);
        wrong += memcmp(from + i * bytes, expected, bytes) != 0;
    }
    return wrong;
}

/* What errors are measured by: half of the last place, of 1 and of the smallest number
 * that is not rounded away. */
struct unit {
    double of_one, least;
};

static struct unit unit_of(motet_type type)
{
    const struct format *f = &formats[type];
    double of_one = ldexp(1, -f->fraction - 1);

    return (struct unit){ of_one,
        is_small_float(type) ? ldexp(of_one, 1 - bias_of(f)) : 0 };
}

/* Largest error allowed for a result near @p result. */
static double bound(const struct check *c, const struct unit *unit, double result,
        double magnitude)
{
    double n = c->nranks;

    if (c->redop == MOTET_MAX || c->redop == MOTET_MIN)
        return 0;
    if (c->redop == MOTET_PROD)
        magnitude = fabs(result);
    else if (c->redop == MOTET_AVG)
        magnitude /= n;
    if (!is_small_float(c->type) || c->rounds_each_step)
        return 2 * (n + 1) * unit->of_one * magnitude;
    return fmax(unit->of_one * fabs(result), unit->least) + n * 0x1p-24 * magnitude;
}

static size_t wrong_floats(const struct check *c, const unsigned char *from, size_t n,
        const double *result, const double *magnitude)
{
    const struct unit unit = unit_of(c->type);
    double got[BLOCK];
    size_t wrong = 0;

    decode_floats(c->type, from, n, got);
    for (size_t i = 0; i < n; i++) {
        double expected = c->redop == MOTET_AVG ? result[i] / c->nranks : result[i];

        /* written so that a NaN is wrong */
        if (!(fabs(got[i] - expected) <= bound(c, &unit, expected, magnitude[i])))
            wrong++;
    }
    return wrong;
}

static size_t reduced_part(const struct part *p)
{
    const struct check *c = p->check;
    size_t bytes = motet_type_table[c->type].bytes, wrong = 0;
    double result[BLOCK], magnitude[BLOCK];

    for (size_t done = 0; done < p->count; done += BLOCK) {
        size_t n = p->count - done < BLOCK ? p->count - done : BLOCK;

        reference(c, p->first + done, n, result, magnitude);
        if (motet_type_table[c->type].is_float)
            wrong += wrong_floats(c, p->buf + done * bytes, n, result, magnitude);
        else
            wrong += wrong_integers(c, p->buf + done * bytes, n, result);
    }
    return wrong;
}

size_t check_reduced(const struct check *c, const void *buf, size_t count,
        uint64_t first)
{
    struct part whole = { .check = c,
        .buf = only_read(buf),
        .count = count,
        .first = first,
        .run = reduced_part };

    return run_parts(&whole);
}

uint64_t check_digest(const void *buf, size_t bytes)
{
    const unsigned char *p = buf;
    uint64_t h = 0xcbf29ce484222325ull, word;

    for (; bytes >= sizeof(word); bytes -= sizeof(word), p += sizeof(word)) {
        memcpy(&word, p, sizeof(word));
        h = (h ^ word) * 0x100000001b3ull;
        h ^= h >> 32;
    }
    for (; bytes > 0; bytes--, p++)
        h = (h ^ *p) * 0x100000001b3ull;
    return h;
}
