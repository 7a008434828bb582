/* ecsq_rate.c - chooses the step of an ecsq payload: a histogram of sampled |x| / r, fine enough to
 * count each size at any step, and a bisection. Only the sampling uses floats, one product per
 * element, so the step is the same on every machine. */
#include <string.h>

#include "compress/ecsq/ecsq.h"
#include "compress/rans/rans.h"

enum {
    PIECE = 1024, /* elements sampled from a block, if there are many blocks */
    FEW = 16,     /* number of blocks up to which all elements are sampled */
    BINS_PER_RMS = 64,
    BIN_STEPS = TW_ECSQ_STEP_ONE / BINS_PER_RMS, /* width of a bin, in units of c */
    BINS = 64 * BINS_PER_RMS,
    LOG_BITS = 16, /* fractional bits of logarithms */
    /* Overhead in bits of a stream besides its model, codes and signs. A quarter of the states'
     * bits is not overhead, because the states contain code bits. */
    STREAM_BITS = 8 * (TW_ECSQ_STREAM_HEAD_BYTES + 4 + TW_RANS_STATES_BYTES * 3 / 4),
    SIZE_BITS_MAX = 5,
    /* bits of the model per code that occurs, including a share for codes that do not occur */
    MODEL_BITS_PER_CODE = 12,
    WRITTEN_BITS = 16, /* bits of a size written in full */
};
_Static_assert(TW_ECSQ_BLOCK / PIECE == 4, "pieces come from all quarters of blocks");

struct sample {
    uint32_t below[BINS + 1]; /* below[i]: number of sampled elements in bins before bin i */
    uint32_t count;
};

/* Returns log2(x) in units of 2^-16, rounded down; x > 0. Each squaring of the mantissa doubles the
 * logarithm and so gives one more bit. */
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
    memset(sample, 0, sizeof(*sample));
    for (size_t i = 0; i < tw_ecsq_sampled(blocks); i++) {
        const size_t b = tw_ecsq_sampled_block(blocks, i);
        const uint16_t scale = tw_ecsq_scale(source->scales, b);
        if (scale == 0) continue;
        const uint32_t count = tw_ecsq_count(source->n, b);
        const float *const x = source->x + b * TW_ECSQ_BLOCK;
        if (blocks <= FEW || count < TW_ECSQ_BLOCK) { /* the whole block: there are few blocks, or
                                                         it is the shorter last one */
            sample_piece(sample, x, count, scale);
        } else {
            sample_piece(sample, x + i % 4 * PIECE, PIECE, scale);
        }
    }
    for (uint32_t i = 0; i < BINS; i++) sample->below[i + 1] += sample->below[i];
}

/* Returns the number of sampled elements of a size below a. Elements are assumed to be evenly
 * distributed within their bin. */
static uint32_t below_size(const struct sample *sample, const struct tw_ecsq *ecsq, uint32_t c,
                           uint32_t a) {
    const uint64_t edge = (uint64_t)(256 * a - 128 + ecsq->dead_256) * c / 256;
    const uint64_t bin = edge / BIN_STEPS, part = edge % BIN_STEPS;
    if (bin >= BINS) return sample->count;
    const uint64_t inside = sample->below[bin + 1] - sample->below[bin];
    return sample->below[bin] + (uint32_t)(inside * part / BIN_STEPS);
}

/* Counts each size in the sample at step c. */
static void count_sizes(const struct sample *sample, const struct tw_ecsq *ecsq, uint32_t c,
                        uint32_t *counts) {
    const uint32_t limit = tw_ecsq_limit(ecsq);
    uint32_t before = 0;
    for (uint32_t a = 0; a <= limit; a++) {
        const uint32_t end = a < limit ? below_size(sample, ecsq, c, a + 1) : sample->count;
        counts[a] = end - before;
        before = end;
    }
}

/* Returns the bits of the sample in units of 2^-16: entropy, signs, and sizes written in full. Here
 * and below, the two elements of a code are assumed to be independent. */
static uint64_t sample_bits(const struct sample *sample, const struct tw_ecsq *ecsq,
                            const uint32_t *counts) {
    const uint64_t log_count = log2_of(sample->count);
    const uint32_t limit = tw_ecsq_limit(ecsq);
    uint64_t bits = 0;
    for (uint32_t a = 0; a <= limit; a++) {
        if (counts[a] > 0) bits += counts[a] * (log_count - log2_of(counts[a]));
        if (a > 0) bits += ((uint64_t)counts[a] << LOG_BITS) * (a < limit ? 1 : 1 + WRITTEN_BITS);
    }
    return bits;
}

/* Returns the number of distinct codes expected among `codes` codes. */
static uint32_t codes_likely(const struct sample *sample, const struct tw_ecsq *ecsq,
                             const uint32_t *counts, uint32_t codes) {
    const uint64_t one = (uint64_t)sample->count * sample->count;
    uint32_t likely = 0;
    for (uint32_t a = 0; a <= tw_ecsq_limit(ecsq); a++) {
        if (ecsq->in_code == 1) likely += counts[a] > 0;
        for (uint32_t b = 0; b <= tw_ecsq_limit(ecsq) && ecsq->in_code == 2; b++) {
            likely += (uint64_t)counts[a] * counts[b] * codes >= one;
        }
    }
    return likely;
}

/* Estimated size of a payload's nonzero blocks. */
struct extent {
    uint64_t active, streams, heads; /* active: elements with a code; heads: bits of all headers
                                        except models */
};

/* Estimates the extent from the sampled blocks. If there are few blocks, all are sampled. */
static struct extent extent_of(const struct tw_ecsq *ecsq, const struct tw_ecsq_source *source) {
    const size_t blocks = tw_ecsq_blocks(source->n);
    const size_t in_stream = tw_ecsq_stream_end(ecsq, 0, SIZE_MAX);
    const uint64_t streams = blocks / in_stream + (blocks % in_stream != 0);
    uint64_t active = 0, all = 0, streams_active = 0, streams_all = 0;
    size_t last_active = SIZE_MAX, last = SIZE_MAX;
    for (size_t i = 0; i < tw_ecsq_sampled(blocks); i++) {
        const size_t b = tw_ecsq_sampled_block(blocks, i), stream = b / in_stream;
        const uint32_t count = tw_ecsq_count(source->n, b);
        const bool is_active = tw_ecsq_scale(source->scales, b) != 0;
        all += count;
        streams_all += stream != last;
        last = stream;
        if (!is_active) continue;
        active += count;
        streams_active += stream != last_active;
        last_active = stream;
    }
    const uint64_t likely = (streams * streams_active + streams_all - 1) / streams_all;
    return (struct extent){
        .active = active * source->n / all,
        .streams = likely,
        .heads = 8 * TW_ECSQ_HEAD_BYTES + 16 * (uint64_t)blocks + STREAM_BITS * likely,
    };
}

/* Returns true if step c stays within the target bits. Codes and signs may always use half of the
 * target, however large the headers are. */
static bool is_within(const struct sample *sample, const struct tw_ecsq *ecsq,
                      const struct extent *extent, uint32_t c) {
    uint32_t counts[1 << SIZE_BITS_MAX];
    count_sizes(sample, ecsq, c, counts);
    const uint32_t codes = tw_ecsq_codes(ecsq, (uint32_t)(extent->active / extent->streams));
    const uint64_t models =
        extent->streams * MODEL_BITS_PER_CODE * codes_likely(sample, ecsq, counts, codes);
    const uint64_t target = (uint64_t)ecsq->bits_256 << (LOG_BITS - 8);
    const uint64_t all = target * extent->active, cost = (extent->heads + models) << LOG_BITS;
    const uint64_t room = cost < all / 2 ? (all - cost) / extent->active : target / 2;
    return sample_bits(sample, ecsq, counts) <= room * sample->count;
}

/* Returns the mean of |x| / s - a over the sampled elements of sizes a in [first, end), times 256.
 */
static int8_t mean_shift(const struct sample *sample, const struct tw_ecsq *ecsq, uint32_t c,
                         uint32_t first, uint32_t end) {
    uint64_t sum = 0, total = 0;
    for (uint32_t bin = 0; bin < BINS; bin++) {
        const uint32_t middle = bin * BIN_STEPS + BIN_STEPS / 2;
        const uint32_t a = (256 * middle + (128 - ecsq->dead_256) * c) / (256 * c);
        if (a < first || a >= end) continue;
        const uint64_t count = sample->below[bin + 1] - sample->below[bin];
        sum += count * (256 + 256 * middle / c -
                        256 * a); /* adds one step per element, so that the sum is never negative */
        total += count;
    }
    if (total == 0) return 0;
    const int shift = (int)((sum + total / 2) / total) - 256;
    return (int8_t)(shift < -128 ? -128 : shift > 127 ? 127 : shift);
}

/* Returns the largest step at which the largest element is still nonzero, for arrays with many
 * equal elements. */
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
    const struct extent extent = extent_of(ecsq, source);
    uint32_t low = ecsq->step_min, high = step_of_peak(ecsq, source->peak);
    if (is_within(&sample, ecsq, &extent, low)) high = low;
    while (high - low > low / 1024) {
        const uint32_t middle = (low + high) / 2;
        if (is_within(&sample, ecsq, &extent, middle)) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return (struct tw_ecsq_step){.c = high,
                                 .shift_one = mean_shift(&sample, ecsq, high, 1, 2),
                                 .shift_more =
                                     mean_shift(&sample, ecsq, high, 2, tw_ecsq_limit(ecsq))};
}
