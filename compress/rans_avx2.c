/* rans_avx2.c - rANS in AVX2: 64 lanes are 8 vectors of 8 states. */
#include <immintrin.h>
#include <string.h>

#include "compress/rans.h"

enum { VECTORS = 8, WIDTH = 8, LANES = TW_RANS_LANES, BITS = TW_RANS_TOTAL_BITS };

_Static_assert(VECTORS *WIDTH == LANES, "a group is every lane once");

/* Converts eight bytes to eight 32-bit integers. */
static __m256i widen(uint64_t bytes) {
    return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)bytes));
}

static __m256i load(const uint32_t *from) {
    return _mm256_loadu_si256((const __m256i *)from);
}

/* Encodes one symbol on each of 8 lanes, and emits the words of lanes that overflow before *to.
 * `even` and `odd` are the divisions (reciprocal and step) of the even and odd lanes. */
static __m256i push(const struct tw_rans_encoder *encoder, __m256i x, __m256i even, __m256i odd,
                    uint8_t **to) {
    const __m256i step = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
    const __m256i growth = _mm256_and_si256(step, _mm256_set1_epi32(TW_RANS_TOTAL - 1));
    const __m256i bias = _mm256_and_si256(_mm256_srli_epi32(step, TW_RANS_STEP_BIAS),
                                          _mm256_set1_epi32((1 << TW_RANS_BIAS_BITS) - 1));
    /* A lane emits a word if x >= f * 2^19: exactly if x + (2^12 - f) * 2^19 sets the sign bit. */
    const __m256 is_over = _mm256_castsi256_ps(_mm256_add_epi32(x, _mm256_slli_epi32(step, 19)));
    const unsigned mask = (unsigned)_mm256_movemask_ps(is_over);
    /* Extracts the low half of every lane, and moves those in the mask to the end. */
    const __m256i low = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1,
                                         0, 1, 4, 5, 8, 9, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1);
    const __m256i halves = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(x, low), 0x08);
    const __m128i last = _mm_loadu_si128((const __m128i *)encoder->last[mask]);
    _mm_storeu_si128((__m128i *)(*to - 16), _mm_shuffle_epi8(_mm256_castsi256_si128(halves), last));
    *to -= 2 * __builtin_popcount(mask);
    x = _mm256_castps_si256(_mm256_blendv_ps(
        _mm256_castsi256_ps(x), _mm256_castsi256_ps(_mm256_srli_epi32(x, 16)), is_over));
    const __m256i products =
        _mm256_blend_epi32(_mm256_srli_epi64(_mm256_mul_epu32(x, even), 32),
                           _mm256_mul_epu32(_mm256_srli_epi64(x, 32), odd), 0xAA);
    const __m256i quotient =
        _mm256_srlv_epi32(products, _mm256_srli_epi32(step, TW_RANS_STEP_SHIFT));
    return _mm256_add_epi32(_mm256_add_epi32(x, bias), _mm256_mullo_epi32(quotient, growth));
}

static __m128i two(const struct tw_rans_division *table, const uint8_t *low, const uint8_t *high) {
    return _mm_castps_si128(
        _mm_loadh_pi(_mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)(table + *low))),
                     (const __m64 *)(table + *high)));
}

/* Loads the divisions of symbols 0, 2, 4 and 6. */
static __m256i four(const struct tw_rans_division *table, const uint8_t *symbols) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(two(table, symbols, symbols + 2)),
                                   two(table, symbols + 4, symbols + 6), 1);
}

static uint8_t *encode_groups(struct tw_rans_encoder *encoder, const uint8_t *symbols,
                              size_t groups, uint8_t *to) {
    __m256i x[VECTORS];
    for (int j = 0; j < VECTORS; j++) x[j] = load(encoder->states + WIDTH * j);
    for (size_t g = groups; g-- > 0;) {
#pragma GCC unroll 8
        for (int j = VECTORS - 1; j >= 0; j--) {
            const uint8_t *s = symbols + LANES * g + WIDTH * j;
            x[j] = push(encoder, x[j], four(encoder->division, s), four(encoder->division, s + 1),
                        &to);
        }
    }
    for (int j = 0; j < VECTORS; j++) {
        _mm256_storeu_si256((__m256i *)(encoder->states + WIDTH * j), x[j]);
    }
    return to;
}

static size_t encode(struct tw_rans_encoder *encoder, const uint8_t *symbols, size_t n,
                     uint8_t *words_end) {
    const size_t whole = n - n % LANES;
    uint8_t *to = words_end - tw_base_rans.encode(encoder, symbols + whole, n - whole, words_end);
    to = encode_groups(encoder, symbols, whole / LANES, to);
    return (size_t)(words_end - to);
}

/* Loads table[index] by plain loads, because gathers are slow on many processors. */
static __m256i fetch(const uint32_t *table, __m256i index) {
    const __m128i low = _mm256_castsi256_si128(index), high = _mm256_extracti128_si256(index, 1);
    const uint64_t a = (uint64_t)_mm_cvtsi128_si64(low), b = (uint64_t)_mm_extract_epi64(low, 1);
    const uint64_t c = (uint64_t)_mm_cvtsi128_si64(high), d = (uint64_t)_mm_extract_epi64(high, 1);
    __m128i l = _mm_cvtsi32_si128((int)table[(uint32_t)a]);
    __m128i h = _mm_cvtsi32_si128((int)table[(uint32_t)c]);
    l = _mm_insert_epi32(l, (int)table[a >> 32], 1);
    h = _mm_insert_epi32(h, (int)table[c >> 32], 1);
    l = _mm_insert_epi32(l, (int)table[(uint32_t)b], 2);
    h = _mm_insert_epi32(h, (int)table[(uint32_t)d], 2);
    l = _mm_insert_epi32(l, (int)table[b >> 32], 3);
    h = _mm_insert_epi32(h, (int)table[d >> 32], 3);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(l), h, 1);
}

/* Decodes one symbol from each of 8 lanes, into the low bytes of *entry. Returns the new states. */
static __m256i pull(const struct tw_rans_decoder *decoder, __m256i x, __m256i *entry,
                    const uint8_t **at) {
    const __m256i slot = _mm256_and_si256(x, _mm256_set1_epi32(TW_RANS_TOTAL - 1));
    const __m256i e = fetch(decoder->slots, slot);
    const __m256i f = _mm256_and_si256(_mm256_srli_epi32(e, 8), _mm256_set1_epi32(0xFFF));
    x = _mm256_add_epi32(_mm256_mullo_epi32(f, _mm256_srli_epi32(x, BITS)),
                         _mm256_srli_epi32(e, 20));
    *entry = e;
    const __m256i wants = _mm256_cmpgt_epi32(_mm256_set1_epi32(TW_RANS_FIRST_STATE), x);
    const unsigned mask = (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(wants));
    const __m256i words = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)*at));
    const __m256i mine = _mm256_permutevar8x32_epi32(words, widen(decoder->rank[mask]));
    *at += 2 * __builtin_popcount(mask);
    return _mm256_blendv_epi8(x, _mm256_or_si256(_mm256_slli_epi32(x, 16), mine), wants);
}

/* Returns the low bytes of the integers in 4 vectors, in order. */
static __m256i low_bytes(const __m256i *entry) {
    const __m256i byte = _mm256_set1_epi32(0xFF);
    const __m256i a =
        _mm256_packus_epi32(_mm256_and_si256(entry[0], byte), _mm256_and_si256(entry[1], byte));
    const __m256i b =
        _mm256_packus_epi32(_mm256_and_si256(entry[2], byte), _mm256_and_si256(entry[3], byte));
    /* Packing works within 128-bit halves, so groups of four bytes are in the order 0 4 1 5 2 6 3
     * 7. */
    return _mm256_permutevar8x32_epi32(_mm256_packus_epi16(a, b),
                                       _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

static enum tw_status decode(struct tw_rans_decoder *decoder, uint8_t *symbols, size_t n) {
    const uint8_t *at = decoder->at;
    size_t i = 0;
    __m256i x[VECTORS], entry[VECTORS];
    for (int j = 0; j < VECTORS; j++) x[j] = load(decoder->states + WIDTH * j);
    /* A group reads at most one word per lane, and loads no more than that. */
    for (; n - i >= LANES && decoder->end - at >= 2 * LANES; i += LANES) {
#pragma GCC unroll 8
        for (int j = 0; j < VECTORS; j++) x[j] = pull(decoder, x[j], &entry[j], &at);
        _mm256_storeu_si256((__m256i *)(symbols + i), low_bytes(entry));
        _mm256_storeu_si256((__m256i *)(symbols + i + 32), low_bytes(entry + 4));
    }
    for (int j = 0; j < VECTORS; j++) {
        _mm256_storeu_si256((__m256i *)(decoder->states + WIDTH * j), x[j]);
    }
    decoder->at = at;
    return tw_base_rans.decode(decoder, symbols + i, n - i);
}

const struct tw_rans_form tw_avx2_rans = {.name = "AVX2", .encode = encode, .decode = decode};
