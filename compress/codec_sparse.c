/* codec_sparse.c - codecs that send the positions of few elements in each chunk of 4096: topk256,
 * topk64, topk32 and sparse8. */
#include "compress/codec_sparse.h"
#include "compress/codec_row.h"
#include "compress/rice.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

enum { CHUNK = TW_SPARSE_CHUNK };

static size_t chunks_of(size_t n) {
    return n / CHUNK + (n % CHUNK != 0);
}

static uint32_t count_of(size_t n, size_t chunk) {
    const size_t left = n - chunk * CHUNK;
    return (uint32_t)(left < CHUNK ? left : CHUNK);
}

/* ---- the k largest of a chunk --------------------------------------------------------------- */

/* topk_select first searches a bound with slightly more than k elements above it, by counting,
 * which vectorises well; usually the last chunk's bound is good enough. Then it lists these
 * elements and finds the k-th largest of them by bisection. */

enum {
    FIRST_STEP = 20,  /* log2 of the first search step: 2^20 in the bits of a float is 6 to 12 % of
                         its value */
    MARGIN = 1 << 19, /* a chunk's k-th largest minus the first bound tried for the next chunk */
    WORD = 64,
    SOME = 8, /* positions extracted from a word at a time */
};
#define LAST (UINT64_C(1) << (WORD - 1))

static uint32_t count_above(const uint32_t *magnitudes, uint32_t count, uint32_t bound) {
    int32_t above = 0;
    for (uint32_t i = 0; i < count; i++) above += (int32_t)magnitudes[i] > (int32_t)bound;
    return (uint32_t)above;
}

static uint32_t largest(const uint32_t *magnitudes, uint32_t count) {
    int32_t max = 0;
    for (uint32_t i = 0; i < count; i++) {
        const int32_t value = (int32_t)magnitudes[i];
        max = value > max ? value : max;
    }
    return (uint32_t)max;
}

#define NONE UINT32_MAX /* removed element: as a signed number -1, below all magnitudes */

struct search {
    const uint32_t *magnitudes;
    uint32_t count, k;
    uint32_t low, high; /* range that contains the k-th largest */
    uint32_t least;     /* number of elements >= low; at least k */
};

/* Narrows [low, high] by testing low <= at < high. Returns true if the k-th largest is above `at`.
 */
static bool probe(struct search *s, uint32_t at) {
    const uint32_t above = count_above(s->magnitudes, s->count, at);
    if (above >= s->k) {
        s->low = at + 1;
        s->least = above;
    } else {
        s->high = at;
    }
    return above >= s->k;
}

static bool is_done(const struct search *s, uint32_t enough) {
    return s->least <= enough || s->low == s->high;
}

/* Narrows until at most `enough` elements are >= low, or low = high. */
static void narrow(struct search *s, uint32_t enough) {
    while (!is_done(s, enough)) (void)probe(s, s->low + (s->high - s->low) / 2);
}

/* Like narrow(), but starts from a guess and searches with growing steps. */
static void narrow_from(struct search *s, uint32_t enough, uint32_t guess) {
    if (guess >= s->high) guess = s->high - 1;
    const bool is_up = probe(s, guess);
    for (unsigned log = FIRST_STEP; log < 31 && !is_done(s, enough); log += 2) {
        const uint32_t step = 1u << log;
        if (step >= s->high - s->low) break;
        if (probe(s, is_up ? s->low + step : s->high - step) != is_up) break;
    }
    narrow(s, enough);
}

#ifdef __AVX2__
/* Returns a bit mask of the elements of magnitudes[64] that are above `bound`. */
static uint64_t above_of_word(const uint32_t *magnitudes, int32_t bound) {
    const __m256i least = _mm256_set1_epi32(bound);
    uint64_t word = 0;
    for (unsigned i = 0; i < 64; i += 8) {
        const __m256i some = _mm256_loadu_si256((const __m256i *)(const void *)(magnitudes + i));
        const __m256 is_above = _mm256_castsi256_ps(_mm256_cmpgt_epi32(some, least));
        word |= (uint64_t)(uint32_t)_mm256_movemask_ps(is_above) << i;
    }
    return word;
}
#endif

/* Returns a bit mask of the elements of magnitudes[count], count <= 64, that are above `bound`. */
static uint64_t above(const uint32_t *magnitudes, uint32_t count, int32_t bound) {
    uint8_t flags[WORD] = {0};
    uint64_t word = 0;
#ifdef __AVX2__
    if (count == WORD) return above_of_word(magnitudes, bound);
#endif
    for (uint32_t i = 0; i < count; i++) flags[i] = (int32_t)magnitudes[i] > bound;
    for (uint32_t i = 0; i < WORD; i += 8) { /* packs eight byte flags into one byte */
        word |= tw_get_u64(flags + i) * UINT64_C(0x0102040810204080) >> 56 << i;
    }
    return word;
}

/* Lists the positions in [begin, end) of elements above `bound`, in ascending order. Up to SOME
 * meaningless entries follow: extracting a fixed number from each word avoids branches on its
 * count. */
static uint32_t list_above(const uint32_t *magnitudes, uint32_t begin, uint32_t end, int32_t bound,
                           uint16_t *found) {
    uint32_t found_count = 0;
    for (uint32_t i = begin; i < end; i += WORD) {
        uint64_t word = above(magnitudes + i, end - i < WORD ? end - i : WORD, bound);
        const uint32_t all = found_count + (uint32_t)__builtin_popcountll(word);
        do {
            for (uint32_t j = 0; j < SOME; j++, word &= word - 1) {
                found[found_count + j] = (uint16_t)(i + (uint32_t)__builtin_ctzll(word | LAST));
            }
            found_count += SOME;
        } while (found_count < all);
        found_count = all;
    }
    return found_count;
}

/* Lists the elements above low, but only as many of those equal to low as could be needed: a chunk
 * may be nearly all zeros. */
static uint32_t list_ties(const uint32_t *magnitudes, uint32_t count, uint32_t k, uint32_t low,
                          uint16_t *found) {
    uint32_t end = 0;
    for (uint32_t ties = 0; end < count && ties < k; end++) ties += magnitudes[end] == low;
    const uint32_t found_count = list_above(magnitudes, 0, end, (int32_t)low - 1, found);
    return found_count + list_above(magnitudes, end, count, (int32_t)low, found + found_count);
}

void TW_COMPRESS_ISA(topk_select)(const uint32_t *magnitudes, uint32_t count, uint32_t k,
                                  uint16_t *kept, uint32_t *guess) {
    TW_ASSERT(count <= CHUNK);
    TW_ASSERT(k > 0 && k <= count && k <= TW_TOPK_MAX);
    uint16_t found[CHUNK + SOME];
    uint32_t listed[CHUNK];
    struct search s = {
        .magnitudes = magnitudes, .count = count, .k = k, .high = INT32_MAX, .least = count};
    narrow_from(&s, 2 * k, *guess);
    const uint32_t found_count = s.low < s.high
                                     ? list_above(magnitudes, 0, count, (int32_t)s.low - 1, found)
                                     : list_ties(magnitudes, count, k, s.low, found);
    TW_ASSERT(found_count >= k && found_count <= count);
    for (uint32_t i = 0; i < found_count; i++) listed[i] = magnitudes[found[i]];
    s.magnitudes = listed;
    s.count = s.least = found_count;
    const uint32_t max = largest(listed, found_count);
    s.high = max < s.high ? max : s.high;
    narrow(&s, k);
    TW_ASSERT(s.least >= k);
    *guess = s.low > MARGIN ? s.low - MARGIN : 0;
    /* If more than k elements are >= low, removes the last ones that equal low. */
    for (uint32_t i = found_count, extra = s.least - k; extra > 0; i--) {
        if (listed[i - 1] != s.low) continue;
        listed[i - 1] = NONE;
        extra--;
    }
    for (uint32_t i = 0, n = 0; n < k; i++) {
        kept[n] = found[i];
        n += (int32_t)listed[i] >= (int32_t)s.low;
    }
}

/* ---- topk ----------------------------------------------------------------------------------- */

/* topk256, topk64, topk32: the k largest of every 4096 elements, as signs times
 * their mean magnitude; all others are 0. 0.41, 0.14 and 0.08 bits per element.
 *
 *     the k largest |x| of a chunk; among equal ones those of lowest index
 *     mean = bf16(float32(sum of their |x| / k)), added in float64, in order of index
 *     D = +-mean for them, else 0
 *
 * Only for use with error feedback. SparseLoCo, arXiv 2508.15706, sends 2 bits per value; one level
 * is as good for normally distributed values and better for heavy tails. Of the last chunk, with m
 * elements, ceil(k * m / 4096) are kept.
 *
 * Bytes, with b = ceil(n / 4096) chunks: b little-endian bf16 means, not negative. Then one bit
 * stream, padded once at its end: for each chunk whose mean is not 0, for each kept element in
 * order, the position (rice.h, r = 3, 5, 6) and a sign bit, 1 for minus. Encoding returns
 * TW_CORRUPT if an element is 2^126 or more. */

enum {
    MEAN_END = 0x7F80, /* infinity as bf16 */
    LINE = 64,         /* bytes of a cache line */
};

struct topk {
    uint32_t k;
    unsigned r; /* log2(4096 / k) - 1 */
};
_Static_assert(CHUNK <= UINT16_MAX, "positions in a chunk have 16 bits");

static uint32_t topk_kept_of(const struct topk *topk, uint32_t count) {
    return (topk->k * count + CHUNK - 1) / CHUNK;
}

/* Returns the bytes of the longest payload. A chunk has k ones, remainders and signs, and the zeros
 * of gaps whose sum is below 4096. */
static size_t topk_bound(const struct topk *topk, size_t n) {
    const size_t bits = topk->k * (2 + (size_t)topk->r) + (CHUNK >> topk->r);
    return chunks_of(n) * (2 + (bits + 7) / 8);
}

/* Prefetches, at each kept position of this chunk, a slice of the chunk after x. A prefetch past
 * the last chunk is harmless. */
static inline void topk_fetch_next(const struct topk *topk, const float *x, uint32_t position) {
    const uintptr_t at = (uintptr_t)x + CHUNK * sizeof(*x);
    const uint32_t lines = CHUNK * sizeof(*x) / LINE / topk->k, first = position * lines;
    for (uint32_t i = first; i < first + lines; i++) {
        __builtin_prefetch((const void *)(at + (size_t)i * LINE));
    }
}

/* Writes positions and signs, and returns the mean. It is summed in order and in double, so it has
 * the same bits on every machine. */
static uint16_t topk_put_chunk(const struct topk *topk, const float *x, const uint16_t *kept,
                               uint32_t k, struct tw_bits_writer *to) {
    double sum = 0.0;
    uint32_t next = 0;
    for (uint32_t i = 0; i < k; i++) {
        const float value = x[kept[i]];
        topk_fetch_next(topk, x, i);
        tw_bits_put_gap_and(to, kept[i] - next, topk->r, tw_bits_of(value) >> 31, 1);
        next = (uint32_t)kept[i] + 1;
        sum += (double)tw_float_of(tw_magnitude_of(value));
    }
    return tw_bf16_from_f32((float)(sum / k));
}

/* Computes magnitudes[count] and returns the largest. */
static uint32_t topk_measure(const float *restrict x, uint32_t count,
                             uint32_t *restrict magnitudes) {
    int32_t max = 0;
    for (uint32_t i = 0; i < count; i++) {
        const int32_t magnitude = (int32_t)tw_magnitude_of(x[i]);
        magnitudes[i] = (uint32_t)magnitude;
        max = magnitude > max ? magnitude : max;
    }
    return (uint32_t)max;
}

/* Subtracts the decoded values: x = x - D, where k elements of D are not 0. */
static void topk_lose_chunk(float *x, const uint16_t *kept, uint32_t k, uint16_t mean) {
    const uint32_t size = (uint32_t)mean << 16;
    for (uint32_t i = 0; i < k; i++) {
        const uint32_t sign = tw_bits_of(x[kept[i]]) & 0x80000000u;
        x[kept[i]] -= tw_float_of(size | sign);
    }
}

static enum tw_status topk_encode(const struct topk *topk, struct tw_codec_source source,
                                  uint8_t *dst, size_t capacity, size_t *bytes_out) {
    const size_t n = source.n;
    TW_ASSERT(source.lost == NULL || source.lost == source.x);
    if (n > TW_PAYLOAD_BYTES_MAX || capacity < topk_bound(topk, n)) return TW_LIMIT;
    const size_t chunks = chunks_of(n);
    struct tw_bits_writer to = {.at = dst + 2 * chunks};
    uint32_t magnitudes[CHUNK], guess = 0;
    uint16_t kept[TW_TOPK_MAX];
    for (size_t c = 0; c < chunks; c++) {
        const float *const x = source.x + c * CHUNK;
        const uint32_t count = count_of(n, c), k = topk_kept_of(topk, count);
        if (topk_measure(x, count, magnitudes) >= TW_BLOCK_TOO_LARGE) return TW_CORRUPT;
        TW_COMPRESS_ISA(topk_select)(magnitudes, count, k, kept, &guess);
        const struct tw_bits_writer before = to;
        const uint16_t mean = topk_put_chunk(topk, x, kept, k, &to);
        tw_put_u16(dst + 2 * c, mean);
        if (mean == 0) to = before; /* the mean rounds to 0: no positions are sent */
        if (source.lost != NULL && mean != 0)
            topk_lose_chunk(source.lost + c * CHUNK, kept, k, mean);
    }
    tw_bits_pad(&to);
    *bytes_out = (size_t)(to.at - dst);
    TW_ASSERT(*bytes_out <= topk_bound(topk, n));
    return TW_OK;
}

/* Sets the nonzero elements of a chunk in y[count] to +-value, or adds that. If y is NULL, only
 * checks the bits. */
static inline enum tw_status topk_get_chunk(const struct topk *topk, float value, bool is_add,
                                            uint32_t count, struct tw_bits_reader *from, float *y) {
    const uint32_t k = topk_kept_of(topk, count);
    uint32_t next = 0;
    for (uint32_t i = 0; i < k; i++) {
        uint32_t gap, is_minus;
        if (is_add) topk_fetch_next(topk, y, i);
        if (!tw_bits_get_gap(from, topk->r, count - next, &gap)) return TW_CORRUPT;
        if (!tw_bits_get(from, 1, &is_minus)) return TW_CORRUPT;
        const float signed_value = tw_float_of(tw_bits_of(value) ^ is_minus << 31);
        if (y != NULL) y[next + gap] = is_add ? y[next + gap] + signed_value : signed_value;
        next += gap + 1;
    }
    return TW_OK;
}

/* Decodes all chunks into the sink. If the sink is NULL, only checks them. */
static enum tw_status topk_read_all(const struct topk *topk, const uint8_t *src, size_t bytes,
                                    size_t n, const struct tw_codec_sink *sink) {
    const size_t chunks = chunks_of(n);
    if (n > TW_PAYLOAD_BYTES_MAX || bytes < 2 * chunks) return TW_CORRUPT;
    struct tw_bits_reader from = {.at = src + 2 * chunks, .end = src + bytes};
    for (size_t c = 0; c < chunks; c++) {
        const uint16_t mean = tw_get_u16(src + 2 * c);
        const uint32_t count = count_of(n, c);
        const float value = tw_bf16_to_f32(mean);
        float *const dst = sink == NULL ? NULL : sink->dst + c * CHUNK;
        if (mean >= MEAN_END) return TW_CORRUPT;
        if (dst != NULL && sink->is_add) {
            if (mean == 0) continue;
            TW_TRY(topk_get_chunk(topk, sink->weight * value, true, count, &from, dst));
        } else {
            if (dst != NULL) memset(dst, 0, count * sizeof(*dst));
            if (mean != 0) TW_TRY(topk_get_chunk(topk, value, false, count, &from, dst));
        }
    }
    return tw_bits_end(&from) && from.at == from.end ? TW_OK : TW_CORRUPT;
}

static enum tw_status topk_check(const struct topk *topk, const uint8_t *src, size_t bytes,
                                 size_t n) {
    return topk_read_all(topk, src, bytes, n, NULL);
}

static enum tw_status topk_decode(const struct topk *topk, const uint8_t *src, size_t bytes,
                                  size_t n, struct tw_codec_sink sink) {
    return topk_read_all(topk, src, bytes, n, &sink);
}

static const struct topk topk256 = {.k = 256, .r = 3};
static const struct topk topk64 = {.k = 64, .r = 5};
static const struct topk topk32 = {.k = 32, .r = 6};

TW_CODEC_ROW(topk, topk256, TOPK256, .bits = 0.409, .is_sparse = true)
TW_CODEC_ROW(topk, topk64, TOPK64, .bits = 0.137, .is_sparse = true)
TW_CODEC_ROW(topk, topk32, TOPK32, .bits = 0.0784, .is_sparse = true)

/* ---- sparse8 -------------------------------------------------------------------------------- */

/* For merges of sparse contributions. Elements that are 0 stay 0 and need only
 * the bits of a gap; the others are 8-bit integers times a bf16 scale per chunk of 4096 elements.
 *
 *     m = max |x| over the chunk,  scale = bf16(m / 127) rounded up,  code = RNE(x * (1 / scale))
 *     D = scale * code, exact in float32
 *
 * No element is left out at any density: a chunk is sent as plain codes, at 8.01 bits per element,
 * unless a list of the nonzero codes is shorter. The codec therefore needs no error feedback.
 *
 * Bytes, per chunk of 4096 (the last may be shorter): scale (bf16) and count (u16). If count <
 * elements, then the positions of the nonzero codes, padded to a byte, and these codes. Positions
 * are coded by rice.h, with the least r for which 32 * (2 * elements - count) < 133 * count * 2^r.
 * If count = elements, then all codes. Codes are in two's complement, from -127 to 127. Encoding
 * returns TW_CORRUPT if an element is 2^126 or more. */

enum { HEAD_BYTES = 4, SCALE_END = 0x7B80 /* 2^120 as bf16 */ };

static size_t sparse8_bound(size_t n) {
    return chunks_of(n) * HEAD_BYTES + n;
}

/* Returns the Rice parameter r with the shortest code for randomly distributed positions; count >
 * 0. r + 1 is better than r once the mean gap exceeds about 2.078 * 2^r + 1/2, where (1 - 1 /
 * mean)^(2^r) is the golden ratio minus 1. */
static unsigned sparse8_r_of(uint32_t elements, uint32_t count) {
    unsigned r = 0;
    TW_ASSERT(count > 0 && count <= elements);
    while (32 * (2 * elements - count) >= (133 * count) << r) r++;
    return r;
}

/* Computes RNE(x * lift * inverse) by adding 1.5 * 2^23, because |product| <= 127. */
static void sparse8_quantise(const float *restrict x, uint32_t elements,
                             struct tw_block_factor factor, int8_t *restrict codes) {
    for (uint32_t i = 0; i < elements; i++) {
        const float shifted = x[i] * factor.lift * factor.inverse + 12582912.0f;
        codes[i] = (int8_t)(uint8_t)(tw_bits_of(shifted) & 0xFFu);
    }
}

static uint32_t sparse8_positions_bytes(const uint16_t *positions, uint32_t count, unsigned r) {
    uint32_t bits = count * (1 + r), next = 0;
    for (uint32_t i = 0; i < count; i++) {
        bits += (positions[i] - next) >> r;
        next = (uint32_t)positions[i] + 1;
    }
    return (bits + 7) / 8;
}

/* Writes the nonzero codes and their positions, or all codes if that is not longer. Returns the end
 * of the chunk. */
static uint8_t *sparse8_put_codes(const int8_t *codes, uint32_t elements, uint8_t *head) {
    uint16_t positions[CHUNK];
    uint32_t count = 0, zeros = 0, next = 0;
    for (uint32_t i = 0; i < elements; i++) zeros += codes[i] == 0;
    for (uint32_t i = 0; zeros > elements / 10 && i < elements; i++) {
        positions[count] = (uint16_t)i;
        count += codes[i] != 0;
    }
    const unsigned r = count > 0 ? sparse8_r_of(elements, count) : 0;
    uint8_t *const at = head + HEAD_BYTES;
    /* A position needs at least one bit. With at most a tenth of zeros, a list of positions is
     * therefore longer than all codes. */
    if (zeros <= elements / 10 ||
        sparse8_positions_bytes(positions, count, r) + count >= elements) {
        tw_put_u16(head + 2, (uint16_t)elements);
        memcpy(at, codes, elements);
        return at + elements;
    }
    tw_put_u16(head + 2, (uint16_t)count);
    struct tw_bits_writer to = {.at = at};
    for (uint32_t i = 0; i < count; i++) {
        tw_bits_put_gap(&to, positions[i] - next, r);
        next = (uint32_t)positions[i] + 1;
    }
    tw_bits_pad(&to);
    for (uint32_t i = 0; i < count; i++) *to.at++ = (uint8_t)codes[positions[i]];
    return to.at;
}

static enum tw_status sparse8_encode(const float *src, size_t n, uint8_t *dst, size_t capacity,
                                     size_t *bytes_out) {
    if (n > TW_PAYLOAD_BYTES_MAX || capacity < sparse8_bound(n)) return TW_LIMIT;
    int8_t codes[CHUNK];
    uint8_t *at = dst;
    for (size_t c = 0; c < chunks_of(n); c++) {
        const float *const x = src + c * CHUNK;
        const uint32_t elements = count_of(n, c), max = tw_block_max(x, elements);
        if (max >= TW_BLOCK_TOO_LARGE) return TW_CORRUPT;
        const uint16_t scale = tw_block_scale_up(max, 127.0f);
        tw_put_u16(at, scale);
        sparse8_quantise(x, elements, tw_block_factor(max, scale), codes);
        at = sparse8_put_codes(codes, elements, at);
    }
    *bytes_out = (size_t)(at - dst);
    TW_ASSERT(*bytes_out <= sparse8_bound(n));
    return TW_OK;
}

/* A chunk being decoded. */
struct chunk {
    float scale;
    uint32_t elements, count;
    const uint8_t *codes;
};

/* Returns true if no code is -128, and none is 0 unless may_be_zero. */
static bool sparse8_are_codes(const uint8_t *codes, uint32_t count, bool may_be_zero) {
    uint8_t bad = 0, zeros = 0; /* bytes, like the codes, so that the loop vectorises */
    for (uint32_t i = 0; i < count; i++) {
        bad = (uint8_t)(bad | (codes[i] == 0x80));
        zeros = (uint8_t)(zeros | (codes[i] == 0));
    }
    return bad == 0 && (may_be_zero || zeros == 0);
}

/* Reads positions[count], and sets chunk->codes to the bytes after them. */
static enum tw_status sparse8_read_positions(struct chunk *chunk, const uint8_t *end,
                                             uint16_t *positions) {
    struct tw_bits_reader from = {.at = chunk->codes, .end = end};
    uint32_t next = 0;
    const unsigned r = chunk->count > 0 ? sparse8_r_of(chunk->elements, chunk->count) : 0;
    for (uint32_t i = 0; i < chunk->count; i++) {
        uint32_t gap;
        if (!tw_bits_get_gap(&from, r, chunk->elements - next, &gap)) return TW_CORRUPT;
        positions[i] = (uint16_t)(next + gap);
        next += gap + 1;
    }
    if (!tw_bits_end(&from)) return TW_CORRUPT;
    chunk->codes = from.at;
    return TW_OK;
}

/* Reads the header of a chunk and moves *src to the next chunk. Writes the positions of the codes
 * to positions[CHUNK], unless all elements have a code. */
static enum tw_status sparse8_chunk_open(struct chunk *chunk, uint16_t *positions,
                                         uint32_t elements, const uint8_t **src,
                                         const uint8_t *end) {
    if (end - *src < HEAD_BYTES) return TW_CORRUPT;
    const uint16_t scale = tw_get_u16(*src);
    *chunk = (struct chunk){.scale = tw_bf16_to_f32(scale),
                            .elements = elements,
                            .count = tw_get_u16(*src + 2),
                            .codes = *src + HEAD_BYTES};
    if (scale >= SCALE_END || chunk->count > elements) return TW_CORRUPT;
    const bool is_dense = chunk->count == elements;
    if (!is_dense) TW_TRY(sparse8_read_positions(chunk, end, positions));
    if ((size_t)(end - chunk->codes) < chunk->count) return TW_CORRUPT;
    if (!sparse8_are_codes(chunk->codes, chunk->count, is_dense)) return TW_CORRUPT;
    *src = chunk->codes + chunk->count;
    return TW_OK;
}

/* Decodes a checked chunk to y[elements]. */
static void sparse8_chunk_get(const struct chunk *chunk, const uint16_t *positions,
                              float *restrict y) {
    const uint32_t elements = chunk->elements;
    const uint8_t *const restrict codes = chunk->codes;
    const float scale = chunk->scale;
    if (chunk->count == elements) {
        for (uint32_t i = 0; i < elements; i++) y[i] = scale * (float)(int8_t)codes[i];
        return;
    }
    for (uint32_t i = 0; i < elements; i++) y[i] = 0.0f;
    for (uint32_t i = 0; i < chunk->count; i++) y[positions[i]] = scale * (float)(int8_t)codes[i];
}

/* sum[elements] += weight * D, rounded twice. */
static void sparse8_chunk_add(const struct chunk *chunk, const uint16_t *positions, float weight,
                              float *restrict sum) {
    const uint32_t elements = chunk->elements;
    const uint8_t *const restrict codes = chunk->codes;
    const float scale = chunk->scale;
    float y[CHUNK];
    if (chunk->count == elements) {
        for (uint32_t i = 0; i < elements; i++) {
            sum[i] = sum[i] + weight * (scale * (float)(int8_t)codes[i]);
        }
        return;
    }
    sparse8_chunk_get(chunk, positions, y);
    for (uint32_t i = 0; i < elements; i++) sum[i] = sum[i] + weight * y[i];
}

/* Decodes all chunks into the sink. If the sink is NULL, only checks them. */
static enum tw_status sparse8_read_all(const uint8_t *src, size_t bytes, size_t n,
                                       const struct tw_codec_sink *sink) {
    if (n > TW_PAYLOAD_BYTES_MAX) return TW_CORRUPT;
    const uint8_t *at = src, *const end = src + bytes;
    uint16_t positions[CHUNK];
    for (size_t c = 0; c < chunks_of(n); c++) {
        struct chunk chunk;
        TW_TRY(sparse8_chunk_open(&chunk, positions, count_of(n, c), &at, end));
        if (sink == NULL) continue;
        if (sink->is_add) {
            sparse8_chunk_add(&chunk, positions, sink->weight, sink->dst + c * CHUNK);
        } else {
            sparse8_chunk_get(&chunk, positions, sink->dst + c * CHUNK);
        }
    }
    return at == end ? TW_OK : TW_CORRUPT;
}

static enum tw_status sparse8_check(const uint8_t *src, size_t bytes, size_t n) {
    return sparse8_read_all(src, bytes, n, NULL);
}

static enum tw_status sparse8_decode(const uint8_t *src, size_t bytes, float *dst, size_t n) {
    return sparse8_read_all(src, bytes, n, &(struct tw_codec_sink){.dst = dst});
}

static enum tw_status sparse8_decode_add(const uint8_t *src, size_t bytes, float weight, float *dst,
                                         size_t n) {
    return sparse8_read_all(src, bytes, n,
                            &(struct tw_codec_sink){.dst = dst, .weight = weight, .is_add = true});
}

const struct tw_codec TW_COMPRESS_ISA(codec_sparse8) = {.name = "sparse8",
                                                        .id = TW_CODEC_SPARSE8,
                                                        .bits = 8.0 + 8.0 * HEAD_BYTES / CHUNK,
                                                        .bound = sparse8_bound,
                                                        .encode = sparse8_encode,
                                                        .decode = sparse8_decode,
                                                        .decode_add = sparse8_decode_add,
                                                        .check = sparse8_check};
