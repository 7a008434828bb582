/* ecsq_rate.c - which step an ecsq payload takes: a histogram of sampled |x| / rms, fine enough to
 * tell for any step how often each code comes, and a bisection. In integers but for the sampling,
 * which is one product per element: the same on every machine. */
#include <string.h>

#include "compress/ecsq.h"
#include "compress/rans.h"

enum {
    PIECES = 64, /* of the sample, from as many blocks spread evenly */
    PIECE = 1024,
    BINS_PER_RMS = 64,
    BIN_STEPS = TW_ECSQ_STEP_ONE / BINS_PER_RMS, /* a bin in units of c */
    BINS = 64 * BINS_PER_RMS,
    LOG_BITS = 16, /* fractional bits of logarithms */
    /* What a stream takes besides its symbols: a quarter of the states' bits are content, and half
     * of the symbols do not occur. */
    STREAM_BITS = 8 * (TW_ECSQ_STREAM_HEAD_BYTES + 1 + 4 + TW_RANS_STATES_BYTES * 3 / 4),
    MODEL_BITS_PER_LIMIT = 24,
    CODE_BITS = 16, /* of a code written out */
};
_Static_assert(TW_ECSQ_BLOCK / PIECE == 4, "pieces come from all quarters of blocks");

struct sample {
    uint32_t below[BINS + 1]; /* elements in bins before this one */
    uint32_t count;
};

/* log2(x) in 2^-16, rounded down: the square of the mantissa doubles the logarithm. x > 0. */
static uint32_t log2_of(uint32_t x) {
    uint32_t log = 31;
    while (x >> 31 == 0) {
        x <<= 1;
        log--;
    }
    uint64_t mantissa = x;
    for (int i = 0; i < LOG_BITS; i++) {
        mantissa = mantissa * mantissa >> 31;
        log <<= 1;
        if (mantissa >> 32 != 0) {
            mantissa >>= 1;
            log |= 1;
        }
    }
    return log;
}

static void sample_piece(struct sample *sample, const float *x, uint32_t count, uint16_t scale) {
    const float into_bins = (float)BINS_PER_RMS / tw_bf16_to_f32(scale);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bits;
        float size;
        memcpy(&bits, x + i, sizeof(bits));
        bits &= 0x7FFFFFFFu;
        memcpy(&size, &bits, sizeof(size));
        const uint32_t bin = (uint32_t)(size * into_bins);
        sample->below[(bin < BINS ? bin : BINS - 1) + 1]++;
    }
    sample->count += count;
}

static void sample_take(struct sample *sample, const struct tw_ecsq_source *source) {
    const size_t blocks = tw_ecsq_blocks(source->n);
    const size_t pieces = blocks < PIECES ? blocks : PIECES;
    memset(sample, 0, sizeof(*sample));
    for (size_t i = 0; i < pieces; i++) {
        const size_t b = i * blocks / pieces;
        const uint16_t scale = tw_ecsq_scale(source->scales, b);
        if (scale == 0) continue;
        const uint32_t count = tw_ecsq_count(source->n, b);
        const float *const x = source->x + b * TW_ECSQ_BLOCK;
        if (blocks <= PIECES / 4 || count < TW_ECSQ_BLOCK) { /* few, or the last */
            sample_piece(sample, x, count, scale);
        } else {
            sample_piece(sample, x + i % 4 * PIECE, PIECE, scale);
        }
    }
    for (uint32_t i = 0; i < BINS; i++) sample->below[i + 1] += sample->below[i];
}

/* Sampled elements with a code below a: in their bin they are taken to lie evenly. */
static uint32_t below_code(const struct sample *sample, const struct tw_ecsq *ecsq, uint32_t c,
                           uint32_t a) {
    const uint64_t edge = (uint64_t)(256 * a - 128 + ecsq->dead_256) * c / 256;
    const uint64_t bin = edge / BIN_STEPS, part = edge % BIN_STEPS;
    if (bin >= BINS) return sample->count;
    const uint64_t inside = sample->below[bin + 1] - sample->below[bin];
    return sample->below[bin] + (uint32_t)(inside * part / BIN_STEPS);
}

/* Bits of the sample's symbols at step c, in 2^-16: entropy, signs, codes written out. */
static uint64_t sample_bits(const struct sample *sample, const struct tw_ecsq *ecsq, uint32_t c) {
    const uint64_t log_count = log2_of(sample->count);
    uint64_t bits = 0;
    uint32_t before = 0;
    for (uint32_t a = 0; a <= ecsq->limit; a++) {
        const uint32_t end = a < ecsq->limit ? below_code(sample, ecsq, c, a + 1) : sample->count;
        const uint64_t count = end - before;
        if (count > 0) bits += count * (log_count - log2_of((uint32_t)count));
        if (a > 0) bits += (count << LOG_BITS) * (a < ecsq->limit ? 1 : CODE_BITS);
        before = end;
    }
    return bits;
}

/* What the symbols may take, in 2^-16 bits per element with a code: the target less the headers,
 * but at least half of it. */
static uint64_t symbol_bits(const struct tw_ecsq *ecsq, const struct tw_ecsq_source *source) {
    const size_t blocks = tw_ecsq_blocks(source->n);
    uint64_t active = 0, heads = 8 * TW_ECSQ_HEAD_BYTES + 16 * (uint64_t)blocks;
    for (size_t b = 0; b < blocks; b = tw_ecsq_stream_end(b, blocks)) {
        const uint32_t count =
            tw_ecsq_active(source->scales, source->n, b, tw_ecsq_stream_end(b, blocks));
        active += count;
        if (count == 0) continue;
        heads += STREAM_BITS + (uint64_t)ecsq->limit * MODEL_BITS_PER_LIMIT;
    }
    const uint64_t target = (uint64_t)ecsq->bits_256 << (LOG_BITS - 8);
    const uint64_t all = target * active, cost = heads << LOG_BITS;
    return cost < all / 2 ? (all - cost) / active : target / 2;
}

/* Mean of |x| / s - a over the sampled elements with codes a in [first, end), in 2^-8. */
static int8_t mean_shift(const struct sample *sample, const struct tw_ecsq *ecsq, uint32_t c,
                         uint32_t first, uint32_t end) {
    uint64_t sum = 0, total = 0;
    for (uint32_t bin = 0; bin < BINS; bin++) {
        const uint32_t middle = bin * BIN_STEPS + BIN_STEPS / 2;
        const uint32_t a = (256 * middle + (128 - ecsq->dead_256) * c) / (256 * c);
        if (a < first || a >= end) continue;
        const uint64_t count = sample->below[bin + 1] - sample->below[bin];
        sum += count * (256 + 256 * middle / c - 256 * a); /* one step up: not negative */
        total += count;
    }
    if (total == 0) return 0;
    const int shift = (int)((sum + total / 2) / total) - 256;
    return (int8_t)(shift < -128 ? -128 : shift > 127 ? 127 : shift);
}

/* A step at which the largest element is not 0: it may be needed where many are alike. */
static uint32_t step_of_peak(const struct tw_ecsq *ecsq, float peak) {
    const float edge = (float)(128 + ecsq->dead_256) / 256.0f;
    const float step = peak / edge * (TW_ECSQ_STEP_ONE - 1);
    return step < (float)TW_ECSQ_STEP_MAX ? (uint32_t)step : TW_ECSQ_STEP_MAX;
}

struct tw_ecsq_step tw_ecsq_choose(const struct tw_ecsq *ecsq,
                                   const struct tw_ecsq_source *source) {
    struct sample sample;
    sample_take(&sample, source);
    if (sample.count == 0) return (struct tw_ecsq_step){.c = 2 * ecsq->step_min};
    const uint64_t room = symbol_bits(ecsq, source) * sample.count;
    uint32_t low = ecsq->step_min, high = step_of_peak(ecsq, source->peak);
    if (sample_bits(&sample, ecsq, low) <= room) high = low;
    while (high - low > low / 1024) {
        const uint32_t middle = (low + high) / 2;
        if (sample_bits(&sample, ecsq, middle) <= room) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return (struct tw_ecsq_step){.c = high,
                                 .shift_one = mean_shift(&sample, ecsq, high, 1, 2),
                                 .shift_more = mean_shift(&sample, ecsq, high, 2, ecsq->limit)};
}
