/* ecsq_encode.c - the encoder of the ecsq codecs (ecsq.h), and their list. It chooses one step for
 * all blocks from the scales of a sample of them. Then, stream by stream, it computes scales, signs
 * and codes, counts the codes as they are produced, and entropy-codes them. Each block of a large
 * array is read from memory once. */
#include <math.h>

#include "compress/ecsq.h"
#include "compress/rans.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

/* ---- the step ------------------------------------------------------------------------------- */

/* The step comes from a histogram of sampled |x| / r, fine enough to count each magnitude at any
 * step, and a bisection. Only the sampling uses floats, one product per element, so the step is the
 * same on every machine. */

enum {
    SAMPLE_PIECE = 1024, /* elements sampled from a block, if there are many blocks */
    FEW = 16,            /* number of blocks up to which all elements are sampled */
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
    WRITTEN_BITS = 16, /* bits of a magnitude written in full */
};
_Static_assert(TW_ECSQ_BLOCK / SAMPLE_PIECE == 4, "pieces come from all quarters of blocks");

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
        float magnitude;
        memcpy(&bits, x + i, sizeof(bits));
        bits &= 0x7FFFFFFFu;
        memcpy(&magnitude, &bits, sizeof(magnitude));
        const uint32_t bin = (uint32_t)(magnitude * into_bins);
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
            sample_piece(sample, x + i % 4 * SAMPLE_PIECE, SAMPLE_PIECE, scale);
        }
    }
    for (uint32_t i = 0; i < BINS; i++) sample->below[i + 1] += sample->below[i];
}

/* Returns the number of sampled elements of a magnitude below a. Elements are assumed to be evenly
 * distributed within their bin. */
static uint32_t below_size(const struct sample *sample, const struct tw_ecsq *ecsq, uint32_t c,
                           uint32_t a) {
    const uint64_t edge = (uint64_t)(256 * a - 128 + ecsq->dead_256) * c / 256;
    const uint64_t bin = edge / BIN_STEPS, part = edge % BIN_STEPS;
    if (bin >= BINS) return sample->count;
    const uint64_t inside = sample->below[bin + 1] - sample->below[bin];
    return sample->below[bin] + (uint32_t)(inside * part / BIN_STEPS);
}

/* Counts each magnitude in the sample at step c. */
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

/* Returns the bits of the sample in units of 2^-16: entropy, signs, and magnitudes written in full.
 * Here and below, the two elements of a code are assumed to be independent. */
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

/* Returns the mean of |x| / s - a over the sampled elements of magnitudes a in [first, end), times
 * 256.
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

struct tw_ecsq_step TW_COMPRESS_ISA(ecsq_choose)(const struct tw_ecsq *ecsq,
                                                 const struct tw_ecsq_source *source) {
    struct sample sample;
    sample_take(&sample, source);
    if (sample.count == 0) return (struct tw_ecsq_step){.c = 2 * ecsq->step_min};
    const struct extent extent = extent_of(ecsq, source);
    TW_ASSERT(extent.active > 0 && extent.streams > 0);
    uint32_t low = ecsq->step_min, high = step_of_peak(ecsq, source->peak);
    if (is_within(&sample, ecsq, &extent, low)) high = low;
    TW_ASSERT(high >= low); /* the largest element is nonzero at the smallest step */
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

/* ---- elements to codes and signs ------------------------------------------------------------ */

enum {
    BLOCK = TW_ECSQ_BLOCK,
    MAX_PIECE = 64,       /* elements whose maximum is computed together */
    MADE = TW_ECSQ_GROUP, /* elements encoded at a time: enough to fill vectors */
    PIECE = 32,           /* codes examined at a time */
    LAG = 512,            /* codes are counted this many codes after they were produced */
    TABLES = 4, /* number of tables of counts, used in turn: in one table, equal adjacent codes
                   would wait for each other */
    COUNTED = TW_ECSQ_COUNTED,
    EVERY = TW_ECSQ_COUNTED_EVERY,
};

/* Parameters for encoding a block's values to codes. */
struct quantiser {
    float inverse, bias;
    uint32_t limit, magnitude_bits, in_code;
};

/* Writer of sign bits, eight bytes at a time. */
struct signs {
    uint64_t rest; /* bits that do not yet fill a byte */
    unsigned rest_count;
    uint8_t *at;
};

/* A set of codes, one bit per code c: bit c mod 8 of bits[bit 3 of c][upper four bits of c]. */
struct set {
    uint8_t bits[2][16];
};

static inline int32_t size_of(const struct quantiser *q, float x) {
    return (int32_t)(fabsf(x) * q->inverse +
                     q->bias); /* at most 64 / c + 1, which fits an int32_t */
}

/* Appends `count` sign bits, at most 32. All higher bits of `bits` must be 0. */
static inline void signs_put(struct signs *signs, uint64_t bits, unsigned count) {
    const uint64_t all = signs->rest | bits << signs->rest_count;
    const unsigned all_count = signs->rest_count + count;
    tw_put_u64(signs->at, all);
    signs->at += all_count / 8;
    signs->rest = all >> (all_count & ~7u);
    signs->rest_count = all_count % 8;
}

#ifdef __AVX2__

static inline uint32_t nonzero(__m256i magnitudes) {
    return (uint32_t)_mm256_movemask_epi8(_mm256_cmpgt_epi8(magnitudes, _mm256_setzero_si256()));
}

/* Packs 4 vectors of 8 integers into signed bytes, with saturation. */
static inline __m256i pack_bytes(const __m256i *from) {
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(from[0], from[1]),
                                             _mm256_packs_epi32(from[2], from[3]));
    /* Packing works within 128-bit halves, so groups of four bytes are in the order 0 2 4 6 1 3 5
     * 7. */
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Returns the magnitudes of x[32], and writes their signs. */
static inline __m256i put_sizes_avx2(const struct quantiser *q, const float *x,
                                     struct signs *signs) {
    const __m256 inverse = _mm256_set1_ps(q->inverse), bias = _mm256_set1_ps(q->bias),
                 most = _mm256_set1_ps((float)q->limit), minus = _mm256_set1_ps(-0.0f);
    __m256i bits[4], a[4];
    for (int i = 0; i < 4; i++) {
        const __m256 v = _mm256_loadu_ps(x + 8 * i);
        const __m256 magnitude =
            _mm256_add_ps(_mm256_mul_ps(_mm256_andnot_ps(minus, v), inverse), bias);
        bits[i] = _mm256_castps_si256(v);
        a[i] = _mm256_cvttps_epi32(_mm256_min_ps(magnitude, most));
    }
    const __m256i magnitudes = pack_bytes(a);
    const uint32_t some = nonzero(magnitudes);
    const uint32_t is_minus = (uint32_t)_mm256_movemask_epi8(pack_bytes(bits));
    signs_put(signs, _pext_u32(is_minus, some), (unsigned)__builtin_popcount(some));
    return magnitudes;
}

static inline bool quantise_avx2(const struct quantiser *q, const float *x, uint8_t *codes,
                                 struct signs *signs) {
    const __m256i a = put_sizes_avx2(q, x, signs), b = put_sizes_avx2(q, x + 32, signs);
    const __m256i limit = _mm256_set1_epi8((char)q->limit);
    __m256i *const to = (__m256i *)(void *)codes;
    if (q->in_code == 1) {
        _mm256_storeu_si256(to, a);
        _mm256_storeu_si256(to + 1, b);
    } else {
        const __m256i weights = _mm256_set1_epi16((short)(1 | 1 << q->magnitude_bits << 8));
        const __m256i both =
            _mm256_packus_epi16(_mm256_maddubs_epi16(a, weights), _mm256_maddubs_epi16(b, weights));
        _mm256_storeu_si256(to, _mm256_permute4x64_epi64(both, 0xD8));
    }
    return _mm256_movemask_epi8(
               _mm256_or_si256(_mm256_cmpeq_epi8(a, limit), _mm256_cmpeq_epi8(b, limit))) != 0;
}

static inline bool set_has_avx2(const struct set *set, const uint8_t *codes) {
    const __m256i both = _mm256_loadu_si256((const __m256i *)(const void *)codes);
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i row = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
    __m256i rows[2];
    for (int i = 0; i < 2; i++) {
        rows[i] = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(
                                          (const __m128i *)(const void *)set->bits[i])),
                                      row);
    }
    const __m256i has = _mm256_blendv_epi8(rows[0], rows[1], _mm256_slli_epi16(both, 4));
    const __m256i bit = _mm256_shuffle_epi8(_mm256_set1_epi64x((long long)0x8040201008040201),
                                            _mm256_and_si256(both, _mm256_set1_epi8(7)));
    return _mm256_testc_si256(has, bit) != 0;
}

#endif

/* Quantises x[count], count <= 32: writes magnitudes[count], and appends the signs of nonzero
 * magnitudes. */
static inline void put_magnitudes(const struct quantiser *q, const float *restrict x,
                                  uint32_t count, uint8_t *restrict magnitudes,
                                  struct signs *signs) {
    const float most = (float)q->limit;
    uint64_t bits = 0;
    unsigned bits_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        const float magnitude = fabsf(x[i]) * q->inverse + q->bias;
        magnitudes[i] = (uint8_t)(int32_t)(magnitude < most ? magnitude : most);
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t has_sign = magnitudes[i] > 0;
        bits |= (has_sign & tw_bits_of(x[i]) >> 31) << bits_count;
        bits_count += (unsigned)has_sign;
    }
    signs_put(signs, bits, bits_count);
}

/* Encodes x[count], count <= 64, to codes and signs. Returns true if a magnitude must be written in
 * full. */
static inline bool quantise_some(const struct quantiser *q, const float *x, uint32_t count,
                                 uint8_t *restrict codes, struct signs *signs) {
    const uint32_t first = count < MADE / 2 ? count : MADE / 2;
    const uint32_t codes_count = (count + q->in_code - 1) / q->in_code;
    uint8_t magnitudes[MADE] = {0}, any = 0;
    put_magnitudes(q, x, first, magnitudes, signs);
    put_magnitudes(q, x + first, count - first, magnitudes + first, signs);
    for (uint32_t i = 0; i < codes_count; i++) {
        const uint32_t low = magnitudes[q->in_code * i];
        const uint32_t high = q->in_code == 1 ? 0u : magnitudes[2 * i + 1];
        codes[i] = (uint8_t)(low | high << q->magnitude_bits);
    }
    for (uint32_t i = 0; i < MADE; i++) any = (uint8_t)(any | (magnitudes[i] == q->limit));
    return any != 0;
}

/* Same as quantise_some, for exactly 64 elements. */
static inline bool quantise(const struct quantiser *q, const float *x, uint8_t *codes,
                            struct signs *signs) {
#ifdef __AVX2__
    return quantise_avx2(q, x, codes, signs);
#else
    return quantise_some(q, x, MADE, codes, signs);
#endif
}

static inline void set_add(struct set *set, uint8_t code) {
    uint8_t *const bits = &set->bits[code >> 3 & 1][code >> 4];
    *bits = (uint8_t)(*bits | 1u << (code & 7));
}

/* Returns true if the set contains all of codes[32]. */
static inline bool set_has(const struct set *set, const uint8_t *codes) {
#ifdef __AVX2__
    return set_has_avx2(set, codes);
#else
    uint32_t has = 1;
    for (uint32_t i = 0; i < PIECE; i++) {
        has &= (uint32_t)set->bits[codes[i] >> 3 & 1][codes[i] >> 4] >> (codes[i] & 7);
    }
    return has != 0;
#endif
}

/* ---- streams -------------------------------------------------------------------------------- */

struct writer {
    const struct tw_ecsq *ecsq;
    const float *x;
    float *lost; /* NULL, or x itself, which becomes the residual x - D */
    size_t n;
    uint8_t *scales;
    bool has_scales; /* whether the scales of all blocks have been computed */
    float peak;      /* largest |x| / r of all blocks with a scale */
    struct tw_ecsq_step step;
    uint8_t *at; /* address of the next byte to write */
    const uint8_t *end;
    uint32_t written; /* number of magnitudes written in full in the current stream */
};

/* Content of the stream being encoded. */
struct content {
    uint32_t made, counted; /* number of codes */
    uint32_t counts[TABLES][TW_RANS_SYMBOLS_MAX];
    /* set of the codes for which add_unseen has ensured a nonzero count */
    struct set seen;
    struct signs signs;
    uint8_t sign_bytes[TW_ECSQ_STREAM_CODES * 2 / 8 + 8];
    uint8_t codes[TW_ECSQ_STREAM_CODES];
};

/* Prefetches the next block while this one is encoded. A prefetch past the last block is harmless.
 */
static void fetch_next(const float *x) {
    const uintptr_t at = (uintptr_t)x + BLOCK * sizeof(*x);
    for (size_t i = 0; i < MADE * sizeof(*x); i += 64) __builtin_prefetch((const void *)(at + i));
}

static float max_of(const float *x, uint32_t count) {
    float most[MAX_PIECE] = {0}, max = 0.0f;
    const size_t whole = count - count % MAX_PIECE;
    for (size_t at = 0; at < whole; at += MAX_PIECE) {
        for (size_t i = 0; i < MAX_PIECE; i++) {
            const float magnitude = fabsf(x[at + i]);
            most[i] = magnitude > most[i] ? magnitude : most[i];
        }
    }
    for (size_t i = whole; i < count; i++) most[0] = fabsf(x[i]) > most[0] ? fabsf(x[i]) : most[0];
    for (size_t i = 0; i < MAX_PIECE; i++) max = most[i] > max ? most[i] : max;
    return max;
}

/* Returns the rms of x[count], whose largest magnitude is `max`. Partial sums have a fixed order,
 * the same in every vector width. They are in units of max, so that their squares fit float32. */
static float rms_of(const float *x, uint32_t count, float max) {
    const struct tw_block_unit unit = tw_block_unit(tw_bits_of(max));
    float sums[MAX_PIECE] = {0};
    double sum = 0.0;
    const size_t whole = count - count % MAX_PIECE;
    for (size_t at = 0; at < whole; at += MAX_PIECE) {
        for (size_t i = 0; i < MAX_PIECE; i++) {
            const float part = x[at + i] * unit.into;
            sums[i] += part * part;
        }
    }
    for (size_t i = whole; i < count; i++) {
        const float part = x[i] * unit.into;
        sums[i % MAX_PIECE] += part * part;
    }
    for (size_t i = 0; i < MAX_PIECE; i++) sum += (double)sums[i];
    return (float)(sqrt(sum / count) * (double)unit.back);
}

/* Returns r of a block, below 2 bits at most max |x| / 3. The residual of a block that sent nothing
 * for a while has no heavy tails. Beside blocks with heavy tails, it would otherwise stay below the
 * common step, however large it grew. */
static float scale_of(const struct tw_ecsq *ecsq, float rms, float max) {
    const float most = max / (float)TW_ECSQ_FLAT;
    return ecsq->dead_256 > 0 && rms > most ? most : rms;
}

/* Computes and writes the scale of block b. */
static enum tw_status put_scale(struct writer *w, size_t b) {
    const float *const x = w->x + b * BLOCK;
    const uint32_t count = tw_ecsq_count(w->n, b);
    const float max = max_of(x, count);
    if (max >= 0x1p126f) return TW_CORRUPT;
    const float rms = rms_of(x, count, max);
    const uint16_t scale = tw_bf16_from_f32(scale_of(w->ecsq, rms, max));
    if (scale >= TW_ECSQ_SCALE_END) return TW_CORRUPT; /* this also refuses a block with a NaN */
    const bool is_zero = scale < TW_ECSQ_SCALE_MIN;
    const float magnitude = is_zero ? 0.0f : max / tw_bf16_to_f32(scale);
    w->peak = magnitude > w->peak ? magnitude : w->peak;
    tw_put_u16(w->scales + 2 * b, is_zero ? 0 : scale);
    return TW_OK;
}

static enum tw_status choose_step(struct writer *w) {
    const size_t blocks = tw_ecsq_blocks(w->n);
    for (size_t i = 0; i < tw_ecsq_sampled(blocks); i++) {
        TW_TRY(put_scale(w, tw_ecsq_sampled_block(blocks, i)));
    }
    w->has_scales = tw_ecsq_sampled(blocks) == blocks;
    const struct tw_ecsq_source source = {
        .x = w->x, .n = w->n, .scales = w->scales, .peak = w->peak};
    w->step = TW_COMPRESS_ISA(ecsq_choose)(w->ecsq, &source);
    return TW_OK;
}

static struct quantiser quantiser_of(const struct writer *w, size_t b) {
    return (struct quantiser){
        .inverse = 1.0f / tw_ecsq_unit(tw_ecsq_scale(w->scales, b), w->step.c),
        .bias = tw_ecsq_bias(w->ecsq),
        .limit = tw_ecsq_limit(w->ecsq),
        .magnitude_bits = w->ecsq->magnitude_bits,
        .in_code = w->ecsq->in_code,
    };
}

static void add_counts(struct content *content, const uint8_t *codes, uint32_t count,
                       uint32_t each) {
    const uint32_t whole = count - count % TABLES;
    for (uint32_t i = 0; i < whole; i += TABLES) {
        for (uint32_t j = 0; j < TABLES; j++) content->counts[j][codes[i + j]] += each;
    }
    for (uint32_t i = whole; i < count; i++) content->counts[0][codes[i]] += each;
}

/* Sets the count of each code not counted so far to 1: each code that occurs needs a frequency. */
static void add_unseen(struct content *content, const uint8_t *codes, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        uint32_t sum = 0;
        for (uint32_t j = 0; j < TABLES; j++) sum += content->counts[j][codes[i]];
        if (sum == 0) content->counts[0][codes[i]] = 1;
        set_add(&content->seen, codes[i]);
    }
}

static bool are_seen(const struct content *content, const uint8_t *codes, uint32_t count) {
    bool are = true;
    for (uint32_t i = 0; i < count; i += PIECE) {
        are &= set_has(&content->seen, codes + i);
    }
    return are;
}

/* Counts the next group of codes. All groups but the last have `in_group` codes. In long streams
 * only a sample of the groups is counted. */
static inline void count_codes(struct content *content, uint32_t in_group) {
    const uint8_t *const codes = content->codes + content->counted;
    const uint32_t left = content->made - content->counted;
    const uint32_t count = left < in_group ? left : in_group;
    const bool is_early = content->counted < COUNTED;
    if (is_early || tw_ecsq_is_counted(content->counted / in_group)) {
        add_counts(content, codes, count, is_early ? 1 : EVERY);
    } else if (count < in_group || !are_seen(content, codes, count)) {
        add_unseen(content, codes, count);
    }
    content->counted += count;
}

/* Writes, in 16 bits each, the quantised magnitudes of x[count] that are too large for a code. */
static void put_large(struct writer *w, const struct quantiser *q, const float *x, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        const int32_t a = size_of(q, x[i]);
        if (a < (int32_t)q->limit) continue;
        TW_ASSERT(w->end - w->at >= 2);
        tw_put_u16(w->at, (uint16_t)a);
        w->at += 2;
        w->written++;
    }
}

/* Replaces block b by its residual, with the same bits as decoding and subtracting. */
static void put_lost(const struct writer *w, size_t b) {
    float *const x = w->lost + b * BLOCK;
    const uint32_t count = tw_ecsq_count(w->n, b);
    const uint16_t scale = tw_ecsq_scale(w->scales, b);
    if (scale == 0) return;
    const struct quantiser q = quantiser_of(w, b);
    const int32_t more = w->step.shift_more, one = w->step.shift_one - more;
    const int32_t limit = (int32_t)q.limit;
    const float s = tw_ecsq_unit(scale, w->step.c);
    for (uint32_t i = 0; i < count; i++) {
        const int32_t a = size_of(&q, x[i]);
        const int32_t shift = (more & -(a < limit)) + (one & -(a == 1)), has = -(a > 0);
        const float magnitude = (float)((256 * a + shift) & has) * 0x1p-8f * s;
        const uint32_t sign = tw_bits_of(x[i]) & (uint32_t)has & 1u << 31;
        x[i] -= tw_float_of(tw_bits_of(magnitude) | sign);
    }
}

/* Encodes block b to codes. Counting codes is limited by memory latency, computing them by
 * arithmetic. The two overlap, because counting reads codes that were stored LAG codes before. */
static void make_codes(struct writer *w, size_t b, struct content *content) {
    const struct quantiser q = quantiser_of(w, b);
    const float *const x = w->x + b * BLOCK;
    const uint32_t count = tw_ecsq_count(w->n, b), whole = count - count % MADE;
    const uint32_t in_group = MADE / q.in_code;
    struct signs signs = content->signs;
    for (uint32_t i = 0; i < whole; i += MADE) {
        fetch_next(x + i);
        if (quantise(&q, x + i, content->codes + content->made, &signs)) {
            put_large(w, &q, x + i, MADE);
        }
        content->made += in_group;
        if (content->made - content->counted > LAG) count_codes(content, in_group);
    }
    if (quantise_some(&q, x + whole, count - whole, content->codes + content->made, &signs)) {
        put_large(w, &q, x + whole, count - whole);
    }
    content->signs = signs;
    content->made += tw_ecsq_codes(w->ecsq, count - whole);
}

/* Entropy-codes the codes and returns the bytes written. Returns 0 if they would exceed one byte
 * per code. */
static size_t put_coded(const struct writer *w, const struct content *content,
                        const struct tw_rans_model *model) {
    struct tw_rans_encoder encoder;
    uint8_t apart[2 * BLOCK + TW_RANS_WORDS_SLACK], head[TW_RANS_MODEL_BYTES_MAX];
    const struct tw_rans_form *const form = &TW_COMPRESS_ISA(rans);
    const size_t room = content->made, model_bytes = tw_rans_model_encode(model, head);
    const size_t head_bytes = model_bytes + 4 + TW_RANS_STATES_BYTES;
    size_t words_bytes = 0;
    tw_rans_encoder_init(&encoder, model);
    for (size_t end = content->made; end > 0;) {
        const size_t begin = (end - 1) / BLOCK * BLOCK;
        /* The words are written in place if the longest possible result fits there. */
        uint8_t *const place = w->at + room - words_bytes;
        const bool is_apart = words_bytes + sizeof(apart) > room;
        uint8_t *const to = is_apart ? apart + sizeof(apart) : place;
        const size_t more = form->encode(&encoder, content->codes + begin, end - begin, to);
        if (head_bytes + words_bytes + more > room) return 0;
        if (is_apart) memcpy(place - more, to - more, more);
        words_bytes += more;
        end = begin;
    }
    memmove(w->at + head_bytes, w->at + room - words_bytes, words_bytes);
    memcpy(w->at, head, model_bytes);
    tw_put_u32(w->at + model_bytes, (uint32_t)(words_bytes / 2));
    tw_rans_encoder_finish(&encoder, w->at + model_bytes + 4);
    return head_bytes + words_bytes;
}

/* Adds up the tables of counts into sums[256]. Returns the total. */
static uint32_t sum_counts(const struct content *content, uint32_t *sums) {
    uint32_t total = 0;
    for (uint32_t s = 0; s < TW_RANS_SYMBOLS_MAX; s++) {
        sums[s] = 0;
        for (uint32_t j = 0; j < TABLES; j++) sums[s] += content->counts[j][s];
        total += sums[s];
    }
    return total;
}

/* Writes the codes and returns the kind of the stream. */
static enum tw_ecsq_kind put_codes(struct writer *w, const struct content *content) {
    struct tw_rans_model model;
    uint32_t sums[TW_RANS_SYMBOLS_MAX];
    const uint32_t total = sum_counts(content, sums);
    if (!tw_rans_model_fit(&model, sums, total)) {
        *w->at++ = content->codes[0];
        return TW_ECSQ_ONE;
    }
    const size_t coded = put_coded(w, content, &model);
    w->at += coded;
    if (coded > 0) return TW_ECSQ_CODED;
    memcpy(w->at, content->codes, content->made);
    w->at += content->made;
    return TW_ECSQ_RAW;
}

static void put_signs(struct writer *w, struct content *content) {
    signs_put(&content->signs, 0, (8 - content->signs.rest_count) % 8);
    const size_t bytes = (size_t)(content->signs.at - content->sign_bytes);
    TW_ASSERT((size_t)(w->end - w->at) >= bytes);
    memcpy(w->at, content->sign_bytes, bytes);
    w->at += bytes;
}

static enum tw_status put_stream(struct writer *w, size_t begin, size_t end) {
    struct content content;
    uint8_t *const head = w->at;
    content.made = content.counted = 0;
    content.signs = (struct signs){.at = content.sign_bytes};
    memset(content.counts, 0, sizeof(content.counts));
    memset(&content.seen, 0, sizeof(content.seen));
    w->at += TW_ECSQ_STREAM_HEAD_BYTES;
    w->written = 0;
    for (size_t b = begin; b < end; b++) {
        if (!w->has_scales) TW_TRY(put_scale(w, b));
        if (tw_ecsq_scale(w->scales, b) != 0) make_codes(w, b, &content);
        if (w->lost != NULL) put_lost(w, b);
    }
    if (content.made == 0) { /* all blocks are zero, so there is no stream */
        w->at = head;
        return TW_OK;
    }
    TW_ASSERT(content.made <= TW_ECSQ_STREAM_CODES);
    while (content.counted < content.made) count_codes(&content, MADE / w->ecsq->in_code);
    TW_ASSERT(content.counted == content.made);
    tw_put_u32(head + 1, w->written);
    TW_ASSERT((size_t)(w->end - w->at) >= content.made);
    head[0] = (uint8_t)put_codes(w, &content);
    put_signs(w, &content);
    return TW_OK;
}

enum tw_status TW_COMPRESS_ISA(ecsq_encode)(const struct tw_ecsq *ecsq,
                                            struct tw_codec_source source, uint8_t *dst,
                                            size_t capacity, size_t *bytes_out) {
    const size_t n = source.n, blocks = tw_ecsq_blocks(n);
    TW_ASSERT(source.lost == NULL || source.lost == source.x);
    *bytes_out = 0;
    if (n == 0) return TW_OK;
    struct writer w = {.ecsq = ecsq,
                       .x = source.x,
                       .lost = source.lost,
                       .n = n,
                       .scales = dst + TW_ECSQ_HEAD_BYTES,
                       .at = dst + TW_ECSQ_HEAD_BYTES + 2 * blocks,
                       .end = dst + capacity};
    TW_TRY(choose_step(&w));
    TW_ASSERT(w.step.c >= ecsq->step_min && w.step.c <= TW_ECSQ_STEP_MAX); /* as decoders demand */
    tw_put_u16(dst, (uint16_t)w.step.c);
    dst[2] = (uint8_t)w.step.shift_one;
    dst[3] = (uint8_t)w.step.shift_more;
    for (size_t b = 0; b < blocks; b = tw_ecsq_stream_end(ecsq, b, blocks)) {
        TW_TRY(put_stream(&w, b, tw_ecsq_stream_end(ecsq, b, blocks)));
    }
    TW_ASSERT(w.at <= w.end);
    *bytes_out = (size_t)(w.at - dst);
    return TW_OK;
}

/* ---- the codecs ----------------------------------------------------------------------------- */

/* Returns the size of the longest payload in bytes: raw codes, signs, and magnitudes written in
 * full. An element whose magnitude is written in full is at least 3.2 * rms, so these are fewer
 * than a tenth of a block. */
static size_t ecsq_bound(const struct tw_ecsq *ecsq, size_t n) {
    if (n == 0) return 0;
    const size_t blocks = tw_ecsq_blocks(n), in_stream = tw_ecsq_stream_end(ecsq, 0, SIZE_MAX);
    const size_t streams = blocks / in_stream + (blocks % in_stream != 0);
    return TW_ECSQ_HEAD_BYTES + 2 * blocks + (TW_ECSQ_STREAM_HEAD_BYTES + 2) * streams +
           n / ecsq->in_code + n / 8 + n / 5;
}

static enum tw_status ecsq_encode(const struct tw_ecsq *ecsq, struct tw_codec_source source,
                                  uint8_t *dst, size_t capacity, size_t *bytes_out) {
    const size_t bound = ecsq_bound(ecsq, source.n);
    if (source.n > TW_PAYLOAD_BYTES_MAX || capacity < bound) return TW_LIMIT;
    return TW_COMPRESS_ISA(ecsq_encode)(ecsq, source, dst, bound, bytes_out);
}

static enum tw_status ecsq_check(const struct tw_ecsq *ecsq, const uint8_t *src, size_t bytes,
                                 size_t n) {
    return TW_COMPRESS_ISA(ecsq_decode)(ecsq, src, bytes, n, NULL);
}

static enum tw_status ecsq_decode(const struct tw_ecsq *ecsq, const uint8_t *src, size_t bytes,
                                  size_t n, struct tw_codec_sink sink) {
    return TW_COMPRESS_ISA(ecsq_decode)(ecsq, src, bytes, n, &sink);
}

/* bits per element of each codec, times 256 */
enum { BITS_4 = 1024, BITS_3 = 768, BITS_2 = 512, BITS_1 = 256, BITS_05 = 128 };

static const struct tw_ecsq ecsq4 = {
    .bits_256 = BITS_4, .magnitude_bits = 5, .in_code = 1, .step_min = 1 << 9};
static const struct tw_ecsq ecsq3 = {
    .bits_256 = BITS_3, .magnitude_bits = 4, .in_code = 2, .step_min = 1 << 10};
static const struct tw_ecsq ecsq2 = {
    .bits_256 = BITS_2, .magnitude_bits = 3, .in_code = 2, .step_min = 1 << 11};
static const struct tw_ecsq ecsq1 = {
    .bits_256 = BITS_1, .magnitude_bits = 3, .in_code = 2, .dead_256 = 40, .step_min = 1 << 11};
static const struct tw_ecsq ecsq05 = {
    .bits_256 = BITS_05, .magnitude_bits = 3, .in_code = 2, .dead_256 = 52, .step_min = 1 << 11};

const struct tw_ecsq *TW_COMPRESS_ISA(ecsq_row)(enum tw_codec_id id) {
    TW_ASSERT(id >= TW_CODEC_ECSQ4 && id <= TW_CODEC_ECSQ05);
    if (id == TW_CODEC_ECSQ4) return &ecsq4;
    if (id == TW_CODEC_ECSQ3) return &ecsq3;
    if (id == TW_CODEC_ECSQ2) return &ecsq2;
    return id == TW_CODEC_ECSQ1 ? &ecsq1 : &ecsq05;
}

static enum tw_status encode_at(enum tw_codec_id id, uint32_t bits_256,
                                struct tw_codec_source source, uint8_t *dst, size_t capacity,
                                size_t *bytes_out) {
    TW_ASSERT(bits_256 > 0);
    struct tw_ecsq ecsq = *TW_COMPRESS_ISA(ecsq_row)(id);
    ecsq.bits_256 = bits_256;
    return ecsq_encode(&ecsq, source, dst, capacity, bytes_out);
}

TW_CODEC_ROW(ecsq, ecsq4, ECSQ4, .bits = BITS_4 / 256.0, .encode_at = encode_at)
TW_CODEC_ROW(ecsq, ecsq3, ECSQ3, .bits = BITS_3 / 256.0, .encode_at = encode_at)
TW_CODEC_ROW(ecsq, ecsq2, ECSQ2, .bits = BITS_2 / 256.0, .encode_at = encode_at)
TW_CODEC_ROW(ecsq, ecsq1, ECSQ1, .bits = BITS_1 / 256.0, .encode_at = encode_at)
TW_CODEC_ROW(ecsq, ecsq05, ECSQ05, .bits = BITS_05 / 256.0, .encode_at = encode_at)
