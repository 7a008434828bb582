/* rans_avx512.c - rANS in AVX-512. 64 lanes are 4 vectors of 16 states. For up to 64 symbols, the
 * tables are vectors that stay in registers. Larger alphabets need loads for every lane, for which
 * AVX2 is as fast. The decoder is in rans_vbmi2.c. */
#include <immintrin.h>

#include "compress/rans/rans_isa.h"
#include "kernels/processor.h"

enum {
    VECTORS = 4,
    WIDTH = 16,
    LANES = TW_RANS_LANES,
    SMALL = 32,
    LARGE = 64,
    TABLE = LARGE / WIDTH
};

_Static_assert(VECTORS *WIDTH == LANES, "a group is every lane once");
_Static_assert(SMALL == 2 * WIDTH && LARGE == 4 * WIDTH, "a table is 2 or 4 vectors of integers");
_Static_assert(TW_RANS_WORDS_SLACK >= 2 * WIDTH, "the words of a vector are stored whole");

static __m512i load(const void *from) {
    return _mm512_loadu_si512(from);
}

static void load_states(__m512i *x, const uint32_t *states) {
    for (int j = 0; j < VECTORS; j++) x[j] = load(states + WIDTH * j);
}

static void store_states(uint32_t *states, const __m512i *x) {
    for (int j = 0; j < VECTORS; j++) _mm512_storeu_si512(states + WIDTH * j, x[j]);
}

/* transpose_integers: transposes x as a 4 by 4 matrix of integers. transpose_bytes: transposes each
 * 128-bit lane of x as a 4 by 4 matrix of bytes. Together, in this order, they move byte i of lane
 * j to byte j of integer i; in the opposite order they undo that. */
static __m512i transpose_integers(__m512i x) {
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), x);
}

static __m512i transpose_bytes(__m512i x) {
    const int a = 0x0C080400, b = 0x0D090501, c = 0x0E0A0602, d = 0x0F0B0703;
    return _mm512_shuffle_epi8(x,
                               _mm512_setr_epi32(a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d));
}

/* ---- encode -------------------------------------------------------------------------------- */

struct divisions {
    __m512i reciprocal[TABLE], step[TABLE];
};

static struct divisions divisions_of(const struct tw_rans_encoder *encoder) {
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    struct divisions to;
    for (int i = 0; i < TABLE; i++) {
        const __m512i a = load(encoder->division + WIDTH * i);
        const __m512i b = load(encoder->division + WIDTH * i + WIDTH / 2);
        to.reciprocal[i] = _mm512_permutex2var_epi32(a, even, b);
        to.step[i] = _mm512_permutex2var_epi32(a, odd, b);
    }
    return to;
}

/* Returns the table entries of the symbols in the low bits of each lane. */
static __m512i pick(const __m512i *table, __m512i symbols, bool is_large) {
    const __m512i low = _mm512_permutex2var_epi32(table[0], symbols, table[1]);
    if (!is_large) return low;
    const __m512i high = _mm512_permutex2var_epi32(table[2], symbols, table[3]);
    return _mm512_mask_mov_epi32(low, _mm512_movepi32_mask(_mm512_slli_epi32(symbols, 26)), high);
}

/* Emits the low halves of the lanes in `mask`, in ascending order, before *to. */
static void emit(__m512i x, unsigned mask, uint8_t **to) {
    /* The 16 entries from n on are permutation indices: the last n words of the result are the low
     * halves of the first n integers. */
    static const uint16_t wheel[2 * WIDTH] = {0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20,
                                              22, 24, 26, 28, 30, 0,  2,  4,  6,  8,  10,
                                              12, 14, 16, 18, 20, 22, 24, 26, 28, 30};
    const int n = __builtin_popcount(mask);
    const __m256i last = _mm256_loadu_si256((const __m256i *)(wheel + n));
    const __m512i first = _mm512_maskz_compress_epi32((__mmask16)mask, x);
    const __m512i words = _mm512_permutexvar_epi16(_mm512_castsi256_si512(last), first);
    _mm256_storeu_si256((__m256i *)(*to - 2 * WIDTH), _mm512_castsi512_si256(words));
    *to -= 2 * n;
}

/* Encodes one symbol on each of 16 lanes. The symbols are in the low bits of `symbols`. */
static __m512i push(const struct divisions *tables, bool is_large, __m512i x, __m512i symbols,
                    uint8_t **to) {
    const __m512i step = pick(tables->step, symbols, is_large);
    const __m512i reciprocal = pick(tables->reciprocal, symbols, is_large);
    const __m512i growth = _mm512_and_si512(step, _mm512_set1_epi32(TW_RANS_TOTAL - 1));
    const __m512i bias = _mm512_and_si512(_mm512_srli_epi32(step, TW_RANS_STEP_BIAS),
                                          _mm512_set1_epi32((1 << TW_RANS_BIAS_BITS) - 1));
    /* A lane emits a word if x >= f * 2^19: exactly if x + (2^12 - f) * 2^19 sets the sign bit. */
    const __mmask16 mask = _mm512_movepi32_mask(_mm512_add_epi32(x, _mm512_slli_epi32(step, 19)));
    emit(x, mask, to);
    x = _mm512_mask_mov_epi32(x, mask, _mm512_srli_epi32(x, 16));
    const __m512i even = _mm512_srli_epi64(_mm512_mul_epu32(x, reciprocal), 32);
    const __m512i odd =
        _mm512_mul_epu32(_mm512_srli_epi64(x, 32), _mm512_srli_epi64(reciprocal, 32));
    const __m512i quotient = _mm512_srlv_epi32(_mm512_mask_blend_epi32(0xAAAA, even, odd),
                                               _mm512_srli_epi32(step, TW_RANS_STEP_SHIFT));
    return _mm512_add_epi32(_mm512_add_epi32(x, bias), _mm512_mullo_epi32(quotient, growth));
}

static inline uint8_t *encode_groups(bool is_large, struct tw_rans_encoder *encoder,
                                     const uint8_t *symbols, size_t groups, uint8_t *to) {
    const struct divisions tables = divisions_of(encoder);
    __m512i x[VECTORS];
    load_states(x, encoder->states);
    for (size_t g = groups; g-- > 0;) {
        __m512i s = transpose_bytes(transpose_integers(load(symbols + LANES * g)));
        for (int j = VECTORS - 1; j >= 0; j--) {
            s = _mm512_rol_epi32(s, 8);
            x[j] = push(&tables, is_large, x[j], s, &to);
        }
    }
    store_states(encoder->states, x);
    return to;
}

static size_t encode(struct tw_rans_encoder *encoder, const uint8_t *symbols, size_t n,
                     uint8_t *words_end) {
    if (encoder->symbols_end > LARGE) {
        return tw_avx2_rans.encode(encoder, symbols, n, words_end);
    }
    const size_t whole = n - n % LANES;
    uint8_t *to = words_end - tw_base_rans.encode(encoder, symbols + whole, n - whole, words_end);
    to = encoder->symbols_end > SMALL ? encode_groups(true, encoder, symbols, whole / LANES, to)
                                      : encode_groups(false, encoder, symbols, whole / LANES, to);
    return (size_t)(words_end - to);
}

/* ---- decode -------------------------------------------------------------------------------- */

static enum tw_status decode(struct tw_rans_decoder *decoder, uint8_t *symbols, size_t n) {
    if (decoder->symbols_end > LARGE || !tw_cpu_has_avx512_vbmi2()) {
        return tw_avx2_rans.decode(decoder, symbols, n);
    }
    return tw_rans_decode_vbmi2(decoder, symbols, n);
}

const struct tw_rans_form tw_avx512_rans = {.name = "AVX-512", .encode = encode, .decode = decode};
