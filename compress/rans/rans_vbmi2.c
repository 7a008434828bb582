/* rans_vbmi2.c - an rANS decoder in AVX-512 with VBMI2, for up to 64 symbols. 64 lanes are 2
 * vectors of 32 states, with high and low halves in separate vectors; the tables stay in registers.
 * Latency limits its speed, so the search finds two bits of a symbol at a time. */
#include <immintrin.h>

#include "compress/rans/rans_isa.h"

enum {
    VECTORS = 2,
    WIDTH = 32,
    LANES = TW_RANS_LANES,
    SMALL = 32,
    LARGE = 64,
};

_Static_assert(VECTORS *WIDTH == LANES, "a group is every lane once");
_Static_assert(SMALL == WIDTH && LARGE == 2 * WIDTH, "a table is 1 or 2 vectors of halves");

/* Forces inlining, so that is_large is a constant. */
#define INLINE static inline __attribute__((always_inline))

static inline __m512i load(const void *from) {
    return _mm512_loadu_si512(from);
}

/* Three range starts, by which the search finds one digit (base 4) of the symbol at a slot, the low
 * bits of a state. The digit is the number of starts that are at most the slot. They are the starts
 * of the symbols with 1, 2 and 3 as this digit and 0 as all lower digits. */
struct starts {
    __m512i of[3];
};

/* The search finds the highest digit first. Tables are indexed by the digits already found, the
 * highest digit in the lowest bits. With 32 symbols the lowest digit is one bit. */
struct ranges {
    struct starts high, middle, low;
    __m512i start[2], frequency[2], symbols;
};

/* Returns the entries at `index` of a table of 64 16-bit halves. */
static inline __m512i pick(const uint16_t *table, __m512i index) {
    return _mm512_permutex2var_epi16(load(table), index, load(table + WIDTH));
}

static inline struct starts starts_of(const struct tw_rans_decoder *decoder, __m512i first,
                                      int step) {
    struct starts to;
    for (int i = 0; i < 3; i++) {
        to.of[i] = pick(decoder->start,
                        _mm512_add_epi16(first, _mm512_set1_epi16((short)(i * step + step))));
    }
    return to;
}

INLINE struct ranges ranges_of(const struct tw_rans_decoder *decoder, bool is_large) {
    const short middle = is_large ? 4 : 2, high = 4 * middle; /* place values of the digits */
    uint16_t counted[WIDTH];
    for (int i = 0; i < WIDTH; i++) counted[i] = (uint16_t)i;
    const __m512i index = load(counted), three = _mm512_set1_epi16(3);
    const __m512i one = _mm512_mullo_epi16(_mm512_and_si512(index, three), _mm512_set1_epi16(high));
    const __m512i two = _mm512_add_epi16(
        one, _mm512_mullo_epi16(_mm512_and_si512(_mm512_srli_epi16(index, 2), three),
                                _mm512_set1_epi16(middle)));
    const __m512i symbols[2] = {
        _mm512_add_epi16(two, _mm512_srli_epi16(index, 4)),
        _mm512_add_epi16(two, _mm512_add_epi16(_mm512_srli_epi16(index, 4), _mm512_set1_epi16(2))),
    };
    struct ranges to = {
        .high = starts_of(decoder, _mm512_setzero_si512(), high),
        .middle = starts_of(decoder, one, middle),
        .low = starts_of(decoder, two, 1),
        .symbols = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7),
                                            _mm512_packus_epi16(symbols[0], symbols[1])),
    };
    for (int i = 0; i < 2; i++) {
        to.start[i] = pick(decoder->start, symbols[i]);
        to.frequency[i] = pick(decoder->frequency, symbols[i]);
    }
    return to;
}

static inline __m512i look_up(__m512i table, __m512i index) {
    return _mm512_permutexvar_epi16(index, table);
}

/* Sets the bits `set` in each element of `index` whose `sign` element is not negative. */
static inline __m512i add_unless(__m512i index, __m512i sign, short set) {
    return _mm512_ternarylogic_epi32(index, _mm512_srai_epi16(sign, 15), _mm512_set1_epi16(set),
                                     0xF2); /* a | ~b & c */
}

/* Adds the next digit to `index`; `bit` is the digit's lower bit. The upper bit is set if at least
 * two starts are at most the slot, the lower bit if one or three are. */
static inline __m512i add_digit(__m512i index, __m512i slots, __m512i a, __m512i b, __m512i c,
                                short bit) {
    const __m512i from_b = _mm512_sub_epi16(slots, b);
    const __m512i odd = _mm512_ternarylogic_epi32(_mm512_sub_epi16(slots, a), from_b,
                                                  _mm512_sub_epi16(slots, c), 0x96); /* a ^ b ^ c */
    return add_unless(add_unless(index, from_b, (short)(2 * bit)), odd, bit);
}

/* Returns the last symbol whose range starts at or before the slot. Of symbols with equal starts
 * only the last one occurs, because the ranges of the others are empty. */
INLINE __m512i find(const struct ranges *tables, bool is_large, __m512i slots) {
    const __m512i *const high = tables->high.of, *const middle = tables->middle.of,
                         *const low = tables->low.of;
    __m512i s = add_digit(_mm512_setzero_si512(), slots, high[0], high[1], high[2], 1);
    s = add_digit(s, slots, look_up(middle[0], s), look_up(middle[1], s), look_up(middle[2], s), 4);
    if (!is_large) return add_unless(s, _mm512_sub_epi16(slots, look_up(low[0], s)), 16);
    return add_digit(s, slots, look_up(low[0], s), look_up(low[1], s), look_up(low[2], s), 16);
}

/* Returns the table entries at `index`. */
INLINE __m512i fetch(const __m512i *table, bool is_large, __m512i index) {
    return is_large ? _mm512_permutex2var_epi16(table[0], index, table[1])
                    : look_up(table[0], index);
}

/* States of 32 lanes. */
struct states {
    __m512i high, low;
};

/* Decodes a symbol from each of 32 lanes, returned as its index, and reads words for the lanes that
 * need one. The new state is x' = f * m + r, with m = x >> 12 of 19 bits and r < f. */
INLINE __m512i pull(const struct ranges *tables, bool is_large, struct states *x,
                    const uint8_t **at) {
    const __m512i words = load(*at);
    const __m512i slots = _mm512_and_si512(x->low, _mm512_set1_epi16(TW_RANS_TOTAL - 1));
    const __m512i m = _mm512_shldi_epi16(x->high, x->low, 16 - TW_RANS_TOTAL_BITS);
    const __m512i m_top = _mm512_srli_epi16(x->high, TW_RANS_TOTAL_BITS);
    const __m512i index = find(tables, is_large, slots);
    const __m512i f = fetch(tables->frequency, is_large, index);
    const __m512i r = _mm512_sub_epi16(slots, fetch(tables->start, is_large, index));
    const __m512i product = _mm512_mullo_epi16(f, m);
    const __m512i above = _mm512_add_epi16(_mm512_mulhi_epu16(f, m), _mm512_mullo_epi16(f, m_top));
    /* x' >= 2^15 if any bit of `above` is set, or the highest bit of the saturated sum. */
    const __m512i some =
        _mm512_ternarylogic_epi32(above, _mm512_adds_epu16(product, r),
                                  _mm512_set1_epi16((short)TW_RANS_FIRST_STATE), 0xF8); /* a|b&c */
    const __mmask32 wants = _mm512_testn_epi16_mask(some, some);
    const __m512i low = _mm512_add_epi16(product, r);
    /* The carry: set if two of these three bits are set, the highest bits of both addends and the
     * negated highest bit of the sum. */
    const __m512i carried = _mm512_srli_epi16(_mm512_ternarylogic_epi32(product, r, low, 0xD4), 15);
    x->high = _mm512_mask_mov_epi16(_mm512_add_epi16(above, carried), wants, low);
    x->low = _mm512_mask_expand_epi16(low, wants, words);
    *at += 2 * (size_t)__builtin_popcount(_cvtmask32_u32(wants));
    return index;
}

static inline __m512i join(__m256i low, __m256i high) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

static void load_states(struct states *x, const uint32_t *from) {
    for (int j = 0; j < VECTORS; j++) {
        const __m512i a = load(from + WIDTH * j), b = load(from + WIDTH * j + WIDTH / 2);
        x[j].low = join(_mm512_cvtepi32_epi16(a), _mm512_cvtepi32_epi16(b));
        x[j].high = join(_mm512_cvtepi32_epi16(_mm512_srli_epi32(a, 16)),
                         _mm512_cvtepi32_epi16(_mm512_srli_epi32(b, 16)));
    }
}

static void store_states(uint32_t *to, const struct states *x) {
    for (int j = 0; j < VECTORS; j++) {
        uint16_t low[WIDTH], high[WIDTH];
        _mm512_storeu_si512(low, x[j].low);
        _mm512_storeu_si512(high, x[j].high);
        for (int i = 0; i < WIDTH; i++) to[WIDTH * j + i] = low[i] | (uint32_t)high[i] << 16;
    }
}

/* Decodes groups while enough words certainly remain. Returns the number of symbols decoded. */
INLINE size_t decode_groups(bool is_large, struct tw_rans_decoder *decoder, uint8_t *symbols,
                            size_t n) {
    const struct ranges tables = ranges_of(decoder, is_large);
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    const uint8_t *at = decoder->at;
    size_t i = 0;
    struct states x[VECTORS];
    load_states(x, decoder->states);
    /* A group reads at most one word per lane, and loads no more than that. */
    for (; n - i >= LANES && decoder->end - at >= 2 * LANES; i += LANES) {
        const __m512i a = pull(&tables, is_large, &x[0], &at);
        const __m512i b = pull(&tables, is_large, &x[1], &at);
        const __m512i index = _mm512_permutexvar_epi64(order, _mm512_packus_epi16(a, b));
        _mm512_storeu_si512(symbols + i, _mm512_permutexvar_epi8(index, tables.symbols));
    }
    store_states(decoder->states, x);
    decoder->at = at;
    return i;
}

enum tw_status tw_rans_decode_vbmi2(struct tw_rans_decoder *decoder, uint8_t *symbols, size_t n) {
    const size_t i = decoder->symbols_end > SMALL ? decode_groups(true, decoder, symbols, n)
                                                  : decode_groups(false, decoder, symbols, n);
    return tw_base_rans.decode(decoder, symbols + i, n - i);
}
