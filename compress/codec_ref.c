/* codec_ref.c - reference implementations of the codecs (codec_ref.h), one element and one bit at a
 * time. They share no code with the fast variants, with two exceptions that are plain code already:
 * the choice of a step of ecsq, and the model of the entropy coder. */
#include "compress/codec_ref.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "compress/codec_sparse.h"
#include "compress/ecsq.h"
#include "compress/rans.h"
#include "kernels/type.h"

/* ---- scales --------------------------------------------------------------------------------- */

static float max_of(const float *x, size_t count) {
    float max = 0.0f;
    for (size_t i = 0; i < count; i++) max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
    return max;
}

/* Returns the smallest bf16 that is at least x >= 0; for max > 0 it is not 0. */
static uint16_t bf16_up(float x, float max) {
    uint16_t up = tw_bf16_from_f32(x);
    if (tw_bf16_to_f32(up) < x) up++;
    return max > 0.0f && up == 0 ? 1 : up;
}

/* x * (1 / scale), correct even if the reciprocal of a tiny scale overflows a float. */
static float quotient_of(float x, float scale, float max) {
    if (scale == 0.0f) return 0.0f;
    const float lift = max < 0x1p-100f ? 0x1p64f : 1.0f;
    return x * lift * (1.0f / (scale * lift));
}

/* Returns true if every element is finite and below 2^126. A NaN fails the comparison, too. */
static bool can_send(const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!(fabsf(x[i]) < 0x1p126f)) return false;
    }
    return true;
}

/* ---- bits of a list of positions: rice.h ---------------------------------------------------- */

struct bit_writer {
    uint8_t *dst;
    size_t bits; /* bits written; the last byte is padded with 0 */
};

struct bit_reader {
    const uint8_t *src;
    size_t at, end; /* bits */
};

/* Writes the low `count` bits of `value`, lowest first. */
static void put_bits(struct bit_writer *to, uint32_t value, unsigned count) {
    for (unsigned i = 0; i < count; i++, to->bits++) {
        uint8_t *const byte = &to->dst[to->bits / 8];
        if (to->bits % 8 == 0) *byte = 0;
        *byte = (uint8_t)(*byte | (value >> i & 1) << to->bits % 8);
    }
}

static void put_gap(struct bit_writer *to, uint32_t gap, unsigned r) {
    for (uint32_t i = 0; i < gap >> r; i++) put_bits(to, 0, 1);
    put_bits(to, 1, 1);
    put_bits(to, gap, r);
}

/* Reads `count` bits. Returns false if there are fewer left. */
static bool get_bits(struct bit_reader *from, unsigned count, uint32_t *value) {
    *value = 0;
    for (unsigned i = 0; i < count; i++, from->at++) {
        if (from->at == from->end) return false;
        *value |= (uint32_t)(from->src[from->at / 8] >> from->at % 8 & 1) << i;
    }
    return true;
}

/* Reads a gap. Returns false if there are too few bits, or if the gap is `end` or more. */
static bool get_gap(struct bit_reader *from, unsigned r, uint32_t end, uint32_t *gap) {
    uint64_t zeros = 0;
    uint32_t bit, low;
    for (;; zeros++) {
        if (!get_bits(from, 1, &bit)) return false;
        if (bit != 0) break;
    }
    if (!get_bits(from, r, &low) || (zeros << r | low) >= end) return false;
    *gap = (uint32_t)(zeros << r | low);
    return true;
}

/* Moves to the next byte boundary. Returns false unless the skipped bits are 0. */
static bool get_padding(struct bit_reader *from) {
    uint32_t bit;
    while (from->at % 8 != 0) {
        if (!get_bits(from, 1, &bit) || bit != 0) return false;
    }
    return true;
}

/* ---- topk: selection by sorting ------------------------------------------------------------- */

enum { CHUNK = TW_SPARSE_CHUNK };

static uint32_t count_of(size_t n, size_t begin) {
    return (uint32_t)(n - begin < CHUNK ? n - begin : CHUNK);
}

/* Finds the k largest by insertion into a descending list, in which equal ones keep their order. */
void tw_topk_select_ref(const uint32_t *magnitudes, uint32_t count, uint32_t k, uint16_t *kept) {
    uint16_t sorted[TW_TOPK_MAX];
    bool is_kept[CHUNK] = {false};
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = i < k ? i : k;
        for (; at > 0 && magnitudes[i] > magnitudes[sorted[at - 1]]; at--) {
            if (at < k) sorted[at] = sorted[at - 1];
        }
        if (at < k) sorted[at] = (uint16_t)i;
    }
    for (uint32_t i = 0; i < k; i++) is_kept[sorted[i]] = true;
    for (uint32_t i = 0; i < count; i++) {
        if (is_kept[i]) *kept++ = (uint16_t)i;
    }
}

static uint32_t topk_k_of(enum tw_codec_id id) {
    return id == TW_CODEC_TOPK256 ? 256 : id == TW_CODEC_TOPK64 ? 64 : 32;
}

/* Returns ceil(k * count / 4096). */
static uint32_t topk_kept_of(enum tw_codec_id id, uint32_t count) {
    return (topk_k_of(id) * count + CHUNK - 1) / CHUNK;
}

static unsigned topk_r_of(enum tw_codec_id id) {
    return id == TW_CODEC_TOPK256 ? 3 : id == TW_CODEC_TOPK64 ? 5 : 6;
}

/* Writes the bits of a chunk. Returns the mean. */
static uint16_t topk_put_chunk(enum tw_codec_id id, const float *x, uint32_t count,
                               struct bit_writer *to) {
    const uint32_t k = topk_kept_of(id, count);
    uint32_t magnitudes[CHUNK] = {0}, next = 0;
    uint16_t kept[TW_TOPK_MAX];
    double sum = 0.0;
    for (uint32_t i = 0; i < count; i++) {
        const float magnitude = fabsf(x[i]); /* its bits have the order of the values */
        memcpy(&magnitudes[i], &magnitude, sizeof(magnitude));
    }
    tw_topk_select_ref(magnitudes, count, k, kept);
    for (uint32_t i = 0; i < k; i++) sum += (double)fabsf(x[kept[i]]);
    const uint16_t mean = tw_bf16_from_f32((float)(sum / k));
    for (uint32_t i = 0; mean != 0 && i < k; i++) {
        put_gap(to, kept[i] - next, topk_r_of(id));
        put_bits(to, signbit(x[kept[i]]) != 0 ? 1 : 0, 1);
        next = (uint32_t)kept[i] + 1;
    }
    return mean;
}

static enum tw_status topk_encode(enum tw_codec_id id, const float *src, size_t n, uint8_t *dst,
                                  size_t *bytes_out) {
    const size_t chunks = (n + CHUNK - 1) / CHUNK;
    struct bit_writer to = {.dst = dst + 2 * chunks};
    if (!can_send(src, n)) return TW_CORRUPT;
    for (size_t c = 0; c < chunks; c++) {
        const float *const x = src + c * CHUNK;
        tw_put_u16(dst + 2 * c, topk_put_chunk(id, x, count_of(n, c * CHUNK), &to));
    }
    *bytes_out = 2 * chunks + (to.bits + 7) / 8;
    return TW_OK;
}

static bool topk_read_all(enum tw_codec_id id, const uint8_t *src, size_t bytes, float *dst,
                          size_t n) {
    const size_t chunks = (n + CHUNK - 1) / CHUNK;
    if (bytes < 2 * chunks) return false;
    struct bit_reader from = {.src = src + 2 * chunks, .end = 8 * (bytes - 2 * chunks)};
    for (size_t i = 0; i < n; i++) dst[i] = 0.0f;
    for (size_t c = 0; c < chunks; c++) {
        const uint32_t count = count_of(n, c * CHUNK);
        const float mean = tw_bf16_to_f32(tw_get_u16(src + 2 * c));
        uint32_t next = 0;
        if (signbit(mean) != 0 || !isfinite(mean)) return false;
        for (uint32_t i = 0; mean > 0.0f && i < topk_kept_of(id, count); i++) {
            uint32_t gap, is_minus;
            if (!get_gap(&from, topk_r_of(id), count - next, &gap)) return false;
            if (!get_bits(&from, 1, &is_minus)) return false;
            dst[c * CHUNK + next + gap] = is_minus != 0 ? -mean : mean;
            next += gap + 1;
        }
    }
    return get_padding(&from) && from.at == from.end;
}

static enum tw_status topk_decode(enum tw_codec_id id, const uint8_t *src, size_t bytes, float *dst,
                                  size_t n) {
    if (n > TW_PAYLOAD_BYTES_MAX) return TW_CORRUPT;
    return topk_read_all(id, src, bytes, dst, n) ? TW_OK : TW_CORRUPT;
}

/* ---- sparse8 -------------------------------------------------------------------------------- */

enum { HEAD_BYTES = 4 };

/* Returns the least r for which 32 * (2 * elements - count) < 133 * count * 2^r; count > 0. */
static unsigned sparse8_r_of(uint32_t elements, uint32_t count) {
    unsigned r = 0;
    while (!(32 * (2 * elements - count) < 133 * count * (1u << r))) r++;
    return r;
}

/* Writes the positions of the nonzero codes. Returns the number of bytes: fewer than two bits per
 * element. */
static size_t sparse8_put_positions(const int8_t *codes, uint32_t elements, uint32_t count,
                                    uint8_t *list) {
    struct bit_writer to = {.dst = list};
    uint32_t next = 0;
    for (uint32_t i = 0; i < elements; i++) {
        if (codes[i] == 0) continue;
        put_gap(&to, i - next, sparse8_r_of(elements, count));
        next = i + 1;
    }
    return (to.bits + 7) / 8;
}

/* Writes a chunk. Returns the number of bytes. */
static size_t sparse8_put_chunk(const float *x, uint32_t elements, uint8_t *dst) {
    int8_t codes[CHUNK];
    uint8_t list[CHUNK];
    uint32_t count = 0;
    const float max = max_of(x, elements);
    const uint16_t scale = bf16_up(max / 127.0f, max);
    for (uint32_t i = 0; i < elements; i++) {
        codes[i] = (int8_t)lrintf(quotient_of(x[i], tw_bf16_to_f32(scale), max));
        count += codes[i] != 0;
    }
    const size_t list_bytes = sparse8_put_positions(codes, elements, count, list);
    const bool is_dense = list_bytes + count >= elements;
    tw_put_u16(dst, scale);
    tw_put_u16(dst + 2, (uint16_t)(is_dense ? elements : count));
    size_t at = HEAD_BYTES;
    for (size_t i = 0; !is_dense && i < list_bytes; i++) dst[at++] = list[i];
    for (uint32_t i = 0; i < elements; i++) {
        if (is_dense || codes[i] != 0) dst[at++] = (uint8_t)codes[i];
    }
    return at;
}

static enum tw_status sparse8_encode(const float *src, size_t n, uint8_t *dst, size_t *bytes_out) {
    *bytes_out = 0;
    if (!can_send(src, n)) return TW_CORRUPT;
    for (size_t begin = 0; begin < n; begin += CHUNK) {
        *bytes_out += sparse8_put_chunk(src + begin, count_of(n, begin), dst + *bytes_out);
    }
    return TW_OK;
}

/* Reads positions[count]: those of the codes that follow. */
static bool sparse8_read_positions(struct bit_reader *from, uint32_t elements, uint32_t count,
                                   uint32_t *positions) {
    uint32_t next = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t gap = 0;
        if (count < elements &&
            !get_gap(from, sparse8_r_of(elements, count), elements - next, &gap)) {
            return false;
        }
        positions[i] = next + gap;
        next += gap + 1;
    }
    return get_padding(from);
}

/* Decodes a chunk to dst[elements], and moves *at to the next chunk. */
static bool sparse8_read_chunk(const uint8_t *src, size_t bytes, size_t *at, float *dst,
                               uint32_t elements) {
    if (bytes - *at < HEAD_BYTES) return false;
    const float scale = tw_bf16_to_f32(tw_get_u16(src + *at));
    const uint32_t count = tw_get_u16(src + *at + 2);
    uint32_t positions[CHUNK];
    struct bit_reader from = {.src = src, .at = 8 * (*at + HEAD_BYTES), .end = 8 * bytes};
    if (signbit(scale) != 0 || !(scale < 0x1p120f) || count > elements) return false;
    if (!sparse8_read_positions(&from, elements, count, positions)) return false;
    const uint8_t *const codes = src + from.at / 8;
    if (bytes - from.at / 8 < count) return false;
    for (uint32_t i = 0; i < elements; i++) dst[i] = 0.0f;
    for (uint32_t i = 0; i < count; i++) {
        const int code = codes[i] < 128 ? codes[i] : codes[i] - 256;
        if (code == -128 || (code == 0 && count < elements)) return false;
        dst[positions[i]] = scale * (float)code;
    }
    *at = from.at / 8 + count;
    return true;
}

static bool sparse8_read_all(const uint8_t *src, size_t bytes, float *dst, size_t n) {
    size_t at = 0;
    for (size_t begin = 0; begin < n; begin += CHUNK) {
        if (!sparse8_read_chunk(src, bytes, &at, dst + begin, count_of(n, begin))) return false;
    }
    return at == bytes;
}

static enum tw_status sparse8_decode(const uint8_t *src, size_t bytes, float *dst, size_t n) {
    if (n > TW_PAYLOAD_BYTES_MAX) return TW_CORRUPT;
    return sparse8_read_all(src, bytes, dst, n) ? TW_OK : TW_CORRUPT;
}

/* ---- ecsq ----------------------------------------------------------------------------------- */

enum { BLOCK = TW_ECSQ_BLOCK, LANES = TW_RANS_LANES, TOTAL = TW_RANS_TOTAL, ALPHABET = 256 };

/* Header and scales of a payload, with the array's size and codec. */
struct array {
    const struct tw_ecsq *row;
    size_t n;
    const uint8_t *scales;
    struct tw_ecsq_step step;
};

/* Returns s of element i; 0 if its block has no codes. */
static float ecsq_step_of(const struct array *array, size_t i) {
    return tw_bf16_to_f32(tw_ecsq_scale(array->scales, i / BLOCK)) *
           ((float)array->step.c / 4096.0f);
}

/* Returns the end of the stream that begins with element i. */
static size_t ecsq_stream_end(const struct array *array, size_t i) {
    const size_t elements = (size_t)TW_ECSQ_STREAM_CODES * array->row->in_code;
    return array->n - i < elements ? array->n : i + elements;
}

/* Computes the start of each symbol's range in [0, 2^12), and the end of the last range. */
static void ecsq_starts_of(const struct tw_rans_model *model, uint32_t *starts) {
    starts[0] = 0;
    for (uint32_t s = 0; s < ALPHABET; s++) starts[s + 1] = starts[s] + model->frequency[s];
}

/* Returns the rms of x, computed in units of the largest element and in 64 partial sums, in the
 * same order as all variants. */
static float ecsq_rms_of(const float *x, size_t count, float max) {
    int exponent;
    (void)frexpf(max, &exponent);
    exponent = max < 0x1p-126f ? -126 : exponent - 1;
    float sums[64] = {0};
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) {
        const float part = ldexpf(x[i], -exponent);
        sums[i % 64] += part * part;
    }
    for (size_t j = 0; j < 64; j++) sum += (double)sums[j];
    return (float)ldexp(sqrt(sum / (double)count), exponent);
}

/* Writes r of block b; *magnitude is the block's largest |x| / r. */
static enum tw_status ecsq_put_scale(const struct tw_ecsq *row, const float *x, size_t n, size_t b,
                                     uint8_t *scales, float *magnitude) {
    const size_t count = tw_ecsq_count(n, b);
    const float max = max_of(x + b * BLOCK, count);
    if (max >= 0x1p126f) return TW_CORRUPT;
    const float rms = ecsq_rms_of(x + b * BLOCK, count, max);
    const bool is_flat = row->dead_256 > 0 && rms > max / 3.0f;
    const uint16_t scale = tw_bf16_from_f32(is_flat ? max / 3.0f : rms);
    if (scale >= TW_ECSQ_SCALE_END) return TW_CORRUPT;
    tw_put_u16(scales + 2 * b, scale < TW_ECSQ_SCALE_MIN ? 0 : scale);
    *magnitude = scale < TW_ECSQ_SCALE_MIN ? 0.0f : max / tw_bf16_to_f32(scale);
    return TW_OK;
}

/* Writes r of each block; *peak is the largest |x| / r of the sampled blocks. */
static enum tw_status ecsq_put_scales(const struct tw_ecsq *row, const float *x, size_t n,
                                      uint8_t *scales, float *peak) {
    const size_t blocks = tw_ecsq_blocks(n);
    float magnitude;
    for (size_t b = 0; b < blocks; b++) TW_TRY(ecsq_put_scale(row, x, n, b, scales, &magnitude));
    *peak = 0.0f;
    for (size_t i = 0; i < tw_ecsq_sampled(blocks); i++) {
        TW_TRY(ecsq_put_scale(row, x, n, tw_ecsq_sampled_block(blocks, i), scales, &magnitude));
        *peak = fmaxf(*peak, magnitude);
    }
    return TW_OK;
}

/* Returns the magnitude a of element i; 0 if its block has no codes. */
static uint32_t ecsq_size_of(const struct array *array, const float *x, size_t i) {
    const float s = ecsq_step_of(array, i), bias = tw_ecsq_bias(array->row);
    return s == 0.0f ? 0 : (uint32_t)(fabsf(x[i]) * (1.0f / s) + bias);
}

/* Returns the code that begins with element i, in a stream that ends before element `end`. */
static uint8_t ecsq_code_of(const struct array *array, const float *x, size_t i, size_t end) {
    const uint32_t limit = tw_ecsq_limit(array->row);
    uint32_t code = 0;
    for (uint32_t j = 0; j < array->row->in_code && i + j < end; j++) {
        const uint32_t a = ecsq_size_of(array, x, i + j);
        code |= (a < limit ? a : limit) << j * array->row->magnitude_bits;
    }
    return (uint8_t)code;
}

/* Encodes codes[count]: writes the words before `end` and the states. If `end` is NULL, only counts
 * words. Returns the number of words. */
static uint32_t ecsq_put_words(const struct tw_rans_model *model, const uint8_t *codes,
                               uint32_t count, uint32_t *states, uint8_t *end) {
    uint32_t words = 0, starts[ALPHABET + 1];
    ecsq_starts_of(model, starts);
    for (uint32_t j = 0; j < LANES; j++) states[j] = TW_RANS_FIRST_STATE;
    for (uint32_t i = count; i-- > 0;) {
        const uint32_t f = model->frequency[codes[i]];
        uint32_t x = states[i % LANES];
        if (x >= f << 19) {
            words++;
            if (end != NULL) tw_put_u16(end - (size_t)2 * words, (uint16_t)(x % 65536));
            x /= 65536;
        }
        states[i % LANES] = x / f * TOTAL + starts[codes[i]] + x % f;
    }
    return words;
}

/* Counts the codes of the first groups and then of every eighth group on average. Each code that
 * occurs counts at least once. Returns the sum of counts. */
static uint32_t ecsq_count_codes(const struct tw_ecsq *row, const uint8_t *codes, uint32_t count,
                                 uint32_t *counts) {
    const uint32_t in_group = 64 / row->in_code;
    uint32_t total = 0;
    memset(counts, 0, ALPHABET * sizeof(*counts));
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t group = i / in_group;
        const bool is_early = group * in_group < 16384;
        const uint32_t first = counts[codes[i]] == 0;
        const uint32_t more = is_early ? 1 : tw_ecsq_is_counted(group) ? 8 : first;
        counts[codes[i]] += more;
        total += more;
    }
    return total;
}

/* Writes codes[count], entropy-coded if that is shorter. Returns the number of bytes. */
static size_t ecsq_put_codes(const struct tw_ecsq *row, const uint8_t *codes, uint32_t count,
                             uint8_t *kind, uint8_t *dst) {
    struct tw_rans_model model;
    uint32_t counts[ALPHABET], states[LANES];
    uint8_t head[TW_RANS_MODEL_BYTES_MAX];
    const uint32_t total = ecsq_count_codes(row, codes, count, counts);
    if (!tw_rans_model_fit(&model, counts, total)) {
        *kind = TW_ECSQ_ONE;
        dst[0] = codes[0];
        return 1;
    }
    const size_t model_bytes = tw_rans_model_encode(&model, head);
    const uint32_t words = ecsq_put_words(&model, codes, count, states, NULL);
    const size_t bytes = model_bytes + 4 + sizeof(states) + (size_t)2 * words;
    if (bytes > count) {
        *kind = TW_ECSQ_RAW;
        memcpy(dst, codes, count);
        return count;
    }
    *kind = TW_ECSQ_CODED;
    memcpy(dst, head, model_bytes);
    tw_put_u32(dst + model_bytes, words);
    (void)ecsq_put_words(&model, codes, count, states, dst + bytes);
    for (uint32_t j = 0; j < LANES; j++) tw_put_u32(dst + model_bytes + 4 + 4 * j, states[j]);
    return bytes;
}

/* Writes the stream of elements [begin, end). Returns the number of bytes; 0 if it has no codes. */
static size_t ecsq_put_stream(const struct array *array, const float *x, size_t begin, size_t end,
                              uint8_t *dst) {
    uint8_t codes[TW_ECSQ_STREAM_CODES], *at = dst + TW_ECSQ_STREAM_HEAD_BYTES;
    uint32_t count = 0, written = 0;
    for (size_t i = begin; i < end; i += array->row->in_code) {
        if (ecsq_step_of(array, i) != 0.0f) codes[count++] = ecsq_code_of(array, x, i, end);
    }
    if (count == 0) return 0;
    for (size_t i = begin; i < end; i++) {
        const uint32_t a = ecsq_size_of(array, x, i);
        if (a < tw_ecsq_limit(array->row)) continue;
        tw_put_u16(at, (uint16_t)a);
        at += 2;
        written++;
    }
    tw_put_u32(dst + 1, written);
    at += ecsq_put_codes(array->row, codes, count, dst, at);
    struct bit_writer signs = {.dst = at};
    for (size_t i = begin; i < end; i++) {
        if (ecsq_size_of(array, x, i) > 0) put_bits(&signs, signbit(x[i]) != 0, 1);
    }
    return (size_t)(at - dst) + (signs.bits + 7) / 8;
}

static enum tw_status ecsq_encode(enum tw_codec_id id, const float *src, size_t n, uint8_t *dst,
                                  size_t *bytes_out) {
    uint8_t *const scales = dst + TW_ECSQ_HEAD_BYTES;
    struct array array = {.row = tw_base_ecsq_row(id), .n = n, .scales = scales};
    struct tw_ecsq_source source = {.x = src, .n = n, .scales = scales};
    *bytes_out = 0;
    if (n == 0) return TW_OK;
    TW_TRY(ecsq_put_scales(array.row, src, n, scales, &source.peak));
    array.step = tw_base_ecsq_choose(array.row, &source);
    tw_put_u16(dst, (uint16_t)array.step.c);
    dst[2] = (uint8_t)array.step.shift_one;
    dst[3] = (uint8_t)array.step.shift_more;
    size_t at = TW_ECSQ_HEAD_BYTES + 2 * tw_ecsq_blocks(n);
    for (size_t i = 0; i < n; i = ecsq_stream_end(&array, i)) {
        at += ecsq_put_stream(&array, src, i, ecsq_stream_end(&array, i), dst + at);
    }
    *bytes_out = at;
    return TW_OK;
}

/* Unread bytes of a payload. */
struct rest {
    const uint8_t *at, *end;
};

/* Consumes the next `bytes` and returns their address, or NULL if there are fewer left. */
static const uint8_t *ecsq_take(struct rest *rest, size_t bytes) {
    const uint8_t *const from = rest->at;
    if ((size_t)(rest->end - from) < bytes) return NULL;
    rest->at += bytes;
    return from;
}

/* A stream being read. */
struct stream {
    enum tw_ecsq_kind kind;
    uint32_t count; /* number of codes read so far */
    struct rest written, codes, words;
    struct bit_reader signs;
    uint32_t starts[ALPHABET + 1], states[LANES];
};

static enum tw_status ecsq_open_coded(const struct tw_ecsq *row, struct rest *in,
                                      struct stream *stream) {
    struct tw_rans_model model;
    const size_t model_bytes =
        tw_rans_model_decode(&model, in->at, (size_t)(in->end - in->at), tw_ecsq_alphabet(row));
    if (model_bytes == 0) return TW_CORRUPT;
    ecsq_starts_of(&model, stream->starts);
    (void)ecsq_take(in, model_bytes);
    const uint8_t *const head = ecsq_take(in, 4 + sizeof(stream->states));
    if (head == NULL) return TW_CORRUPT;
    for (uint32_t j = 0; j < LANES; j++) {
        stream->states[j] = tw_get_u32(head + 4 + 4 * j);
        if (stream->states[j] < 1u << 15 || stream->states[j] >= 1u << 31) return TW_CORRUPT;
    }
    const uint8_t *const words = ecsq_take(in, (size_t)2 * tw_get_u32(head));
    if (words == NULL) return TW_CORRUPT;
    stream->words = (struct rest){words, in->at};
    return TW_OK;
}

/* Reads a stream of `elements` elements up to its signs. */
static enum tw_status ecsq_open_stream(const struct tw_ecsq *row, struct rest *in,
                                       uint32_t elements, struct stream *stream) {
    const uint8_t *const head = ecsq_take(in, TW_ECSQ_STREAM_HEAD_BYTES);
    if (head == NULL || head[0] > TW_ECSQ_ONE) return TW_CORRUPT;
    const uint8_t *const written = ecsq_take(in, (size_t)2 * tw_get_u32(head + 1));
    if (written == NULL) return TW_CORRUPT;
    *stream = (struct stream){.kind = head[0], .written = {written, in->at}};
    if (stream->kind == TW_ECSQ_CODED) {
        TW_TRY(ecsq_open_coded(row, in, stream));
    } else {
        const uint32_t codes = stream->kind == TW_ECSQ_RAW ? tw_ecsq_codes(row, elements) : 1;
        const uint8_t *const from = ecsq_take(in, codes);
        if (from == NULL) return TW_CORRUPT;
        stream->codes = (struct rest){from, in->at};
    }
    stream->signs = (struct bit_reader){.src = in->at, .end = 8 * (size_t)(in->end - in->at)};
    return TW_OK;
}

static enum tw_status ecsq_next_coded(struct stream *stream, uint32_t *code) {
    uint32_t *const x = &stream->states[stream->count % LANES];
    const uint32_t slot = *x % TOTAL;
    uint32_t s = 0;
    while (stream->starts[s + 1] <= slot) s++;
    *x = (stream->starts[s + 1] - stream->starts[s]) * (*x / TOTAL) + slot - stream->starts[s];
    *code = s;
    if (*x >= TW_RANS_FIRST_STATE) return TW_OK;
    const uint8_t *const word = ecsq_take(&stream->words, 2);
    if (word == NULL) return TW_CORRUPT;
    *x = *x * 65536 + tw_get_u16(word);
    return TW_OK;
}

static enum tw_status ecsq_next_code(const struct tw_ecsq *row, struct stream *stream,
                                     uint32_t *code) {
    if (stream->kind == TW_ECSQ_CODED) {
        TW_TRY(ecsq_next_coded(stream, code));
    } else {
        *code = stream->codes.at[stream->kind == TW_ECSQ_RAW ? stream->count : 0];
    }
    stream->count++;
    return *code < tw_ecsq_alphabet(row) ? TW_OK : TW_CORRUPT;
}

/* Computes the value of an element whose code contains `magnitude`: +-(a + shift) * s. */
static enum tw_status ecsq_next_value(const struct array *array, struct stream *stream,
                                      uint32_t magnitude, float s, float *value) {
    const struct tw_ecsq_step step = array->step;
    const float shift = (float)(magnitude == 1 ? step.shift_one : step.shift_more) / 256.0f;
    float level = (float)magnitude + shift;
    uint32_t is_minus;
    *value = 0.0f;
    if (magnitude == 0) return TW_OK;
    if (magnitude == tw_ecsq_limit(array->row)) {
        const uint8_t *const from = ecsq_take(&stream->written, 2);
        if (from == NULL) return TW_CORRUPT;
        const uint32_t a = tw_get_u16(from);
        if (a < magnitude || a * step.c > TW_ECSQ_PEAK * TW_ECSQ_STEP_ONE) return TW_CORRUPT;
        level = (float)a;
    }
    if (!get_bits(&stream->signs, 1, &is_minus)) return TW_CORRUPT;
    *value = is_minus != 0 ? -(level * s) : level * s;
    return TW_OK;
}

/* Returns TW_CORRUPT unless all magnitudes, words and signs of the stream were used. */
static enum tw_status ecsq_close_stream(struct stream *stream, struct rest *in) {
    if (stream->written.at != stream->written.end) return TW_CORRUPT;
    if (stream->words.at != stream->words.end) return TW_CORRUPT;
    for (uint32_t j = 0; j < LANES && stream->kind == TW_ECSQ_CODED; j++) {
        if (stream->states[j] != TW_RANS_FIRST_STATE) return TW_CORRUPT;
    }
    if (!get_padding(&stream->signs)) return TW_CORRUPT;
    (void)ecsq_take(in, stream->signs.at / 8);
    return TW_OK;
}

/* Decodes the stream of elements [begin, end). */
static enum tw_status ecsq_read_stream(const struct array *array, struct rest *in, size_t begin,
                                       size_t end, float *dst) {
    const struct tw_ecsq *const row = array->row;
    struct stream stream = {0};
    uint32_t elements = 0, code = 0;
    for (size_t i = begin; i < end; i++) elements += ecsq_step_of(array, i) != 0.0f;
    if (elements > 0) TW_TRY(ecsq_open_stream(row, in, elements, &stream));
    for (size_t i = begin; i < end; i++) {
        const float s = ecsq_step_of(array, i);
        float value = 0.0f;
        if (s != 0.0f) {
            if (i % row->in_code == 0) TW_TRY(ecsq_next_code(row, &stream, &code));
            TW_TRY(ecsq_next_value(array, &stream, code & tw_ecsq_limit(row), s, &value));
            code >>= row->magnitude_bits;
        }
        dst[i] = value;
    }
    if (code != 0) return TW_CORRUPT; /* the magnitude paired with an odd last element must be 0 */
    return elements > 0 ? ecsq_close_stream(&stream, in) : TW_OK;
}

static enum tw_status ecsq_read_all(const struct tw_ecsq *row, struct rest in, float *dst,
                                    size_t n) {
    struct array array = {.row = row, .n = n};
    const uint8_t *const head = ecsq_take(&in, TW_ECSQ_HEAD_BYTES);
    array.scales = ecsq_take(&in, 2 * tw_ecsq_blocks(n));
    if (head == NULL || array.scales == NULL) return TW_CORRUPT;
    array.step = (struct tw_ecsq_step){tw_get_u16(head), (int8_t)head[2], (int8_t)head[3]};
    if (array.step.c < row->step_min || array.step.c > TW_ECSQ_STEP_MAX) return TW_CORRUPT;
    for (size_t b = 0; b < tw_ecsq_blocks(n); b++) {
        const uint16_t scale = tw_ecsq_scale(array.scales, b);
        if (scale != 0 && scale < TW_ECSQ_SCALE_MIN) return TW_CORRUPT;
        if (scale >= TW_ECSQ_SCALE_END) return TW_CORRUPT;
    }
    for (size_t i = 0; i < n; i = ecsq_stream_end(&array, i)) {
        TW_TRY(ecsq_read_stream(&array, &in, i, ecsq_stream_end(&array, i), dst));
    }
    return in.at == in.end ? TW_OK : TW_CORRUPT;
}

static enum tw_status ecsq_decode(enum tw_codec_id id, const uint8_t *src, size_t bytes, float *dst,
                                  size_t n) {
    const struct rest in = {src, src + bytes};
    if (n > TW_PAYLOAD_BYTES_MAX) return TW_CORRUPT;
    if (n == 0) return bytes == 0 ? TW_OK : TW_CORRUPT;
    return ecsq_read_all(tw_base_ecsq_row(id), in, dst, n);
}

/* ---- blocks: int8, int4, e3m0, sign --------------------------------------------------------- */

struct format {
    size_t block;
    /* bits per digit; and the number of words: element i is digit i / lanes of word i % lanes */
    unsigned digit_bits, lanes;
    bool has_padding; /* the last block is padded to full size */
    float top;        /* largest level: the scale is max |x| / top; 0: the scale is an average */
    float scale_end;
    float (*average)(const float *x, size_t count);
    unsigned (*digit_of)(float x, float scale, float quotient);
    float (*level)(unsigned digit);
};

/* ---- levels -------------------------------------------------------------------------------- */

static unsigned int_digit(float x, float scale, float quotient) {
    (void)x;
    (void)scale;
    return (unsigned)lrintf(quotient); /* the lowest bits of two's complement */
}

static float int8_level(unsigned digit) {
    return digit < 128 ? (float)digit : (float)digit - 256.0f;
}

static float int4_level(unsigned digit) {
    return digit < 8 ? (float)digit : (float)digit - 16.0f;
}

static float e3m0_level(unsigned digit) {
    float level = digit % 8 == 0 ? 0.0f : 1.0f;
    for (unsigned d = digit % 8; d != 0 && d < 7; d++) level /= 2.0f;
    return digit >= 8 ? -level : level;
}

static unsigned e3m0_digit(float x, float scale, float quotient) {
    unsigned digit = 0;
    (void)scale;
    while (digit < 7 && fabsf(quotient) >= (e3m0_level(digit) + e3m0_level(digit + 1)) / 2.0f) {
        digit++;
    }
    return signbit(x) != 0 ? digit + 8 : digit;
}

static float sign_level(unsigned digit) {
    return digit == 1 ? -1.0f : 1.0f;
}

static unsigned sign_digit(float x, float scale, float quotient) {
    (void)scale;
    (void)quotient;
    return signbit(x) != 0 ? 1 : 0;
}

/* ---- scales -------------------------------------------------------------------------------- */

/* Returns the exponent e of max |x| = 1.m * 2^e, but at least the exponent of the smallest normal
 * float. */
static int exponent_of(const float *x, size_t count) {
    int exponent;
    (void)frexpf(max_of(x, count), &exponent);
    return exponent - 1 < -126 || max_of(x, count) == 0.0f ? -126 : exponent - 1;
}

static float mean(const float *x, size_t count) {
    const int e = exponent_of(x, count);
    int64_t sum = 0;
    for (size_t i = 0; i < count; i++) sum += lrintf(ldexpf(fabsf(x[i]), 21 - e));
    return ldexpf((float)sum / ldexpf((float)count, 21), e);
}

/* ---- formats ------------------------------------------------------------------------------- */

static const struct format formats[] = {
    [TW_CODEC_INT8] = {.block = 256,
                       .digit_bits = 8,
                       .lanes = 256,
                       .top = 127.0f,
                       .scale_end = 0x1p120f,
                       .digit_of = int_digit,
                       .level = int8_level},
    [TW_CODEC_INT4] = {.block = 64,
                       .digit_bits = 4,
                       .lanes = 8,
                       .has_padding = true,
                       .top = 7.0f,
                       .scale_end = 0x1p124f,
                       .digit_of = int_digit,
                       .level = int4_level},
    [TW_CODEC_E3M0] = {.block = 64,
                       .digit_bits = 4,
                       .lanes = 8,
                       .has_padding = true,
                       .top = 1.0f,
                       .scale_end = 0x1p127f,
                       .digit_of = e3m0_digit,
                       .level = e3m0_level},
    [TW_CODEC_SIGN] = {.block = 256,
                       .digit_bits = 1,
                       .lanes = 8,
                       .has_padding = true,
                       .scale_end = 0x1p127f,
                       .average = mean,
                       .digit_of = sign_digit,
                       .level = sign_level},
};

static bool is_block(enum tw_codec_id id) {
    return (size_t)id < sizeof(formats) / sizeof(formats[0]) && formats[id].block != 0;
}

static bool is_topk(enum tw_codec_id id) {
    return id == TW_CODEC_TOPK256 || id == TW_CODEC_TOPK64 || id == TW_CODEC_TOPK32;
}

static bool is_ecsq(enum tw_codec_id id) {
    return id >= TW_CODEC_ECSQ4 && id <= TW_CODEC_ECSQ05;
}

bool tw_codec_has_ref(enum tw_codec_id id) {
    return is_block(id) || is_topk(id) || is_ecsq(id) || id == TW_CODEC_SPARSE8;
}

static const struct format *format_of(enum tw_codec_id id) {
    TW_ASSERT(is_block(id));
    return &formats[id];
}

static size_t blocks_of(const struct format *format, size_t n) {
    return (n + format->block - 1) / format->block;
}

static size_t bytes_of(const struct format *format, size_t n) {
    const size_t blocks = blocks_of(format, n),
                 coded = format->has_padding ? blocks * format->block : n;
    return 2 * blocks + coded * format->digit_bits / 8;
}

/* Returns the position of the first bit of element i, counted from the payload's first bit, lowest
 * bit of a byte first. */
static size_t bit_of(const struct format *format, size_t n, size_t i) {
    const size_t within = i % format->block,
                 word_bits = format->block / format->lanes * format->digit_bits;
    return 16 * blocks_of(format, n) + i / format->block * format->block * format->digit_bits +
           within % format->lanes * word_bits + within / format->lanes * format->digit_bits;
}

/* ---- encode, decode ------------------------------------------------------------------------ */

static uint16_t scale_of(const struct format *format, const float *x, size_t count) {
    if (format->average != NULL) return tw_bf16_from_f32(format->average(x, count));
    const float max = max_of(x, count);
    return bf16_up(max / format->top, max);
}

static unsigned digit_at(const struct format *format, const uint8_t *src, size_t n, size_t i) {
    const size_t bit = bit_of(format, n, i);
    return src[bit / 8] >> bit % 8 & ((1u << format->digit_bits) - 1);
}

enum tw_status tw_codec_encode_ref(enum tw_codec_id id, const float *src, size_t n, uint8_t *dst,
                                   size_t capacity, size_t *bytes_out) {
    if (n > TW_PAYLOAD_BYTES_MAX || capacity < tw_codec_get(id)->bound(n)) return TW_LIMIT;
    if (is_topk(id)) return topk_encode(id, src, n, dst, bytes_out);
    if (is_ecsq(id)) return ecsq_encode(id, src, n, dst, bytes_out);
    if (id == TW_CODEC_SPARSE8) return sparse8_encode(src, n, dst, bytes_out);
    const struct format *format = format_of(id);
    if (capacity < bytes_of(format, n)) return TW_LIMIT;
    if (!can_send(src, n)) return TW_CORRUPT;
    memset(dst, 0, bytes_of(format, n));
    for (size_t b = 0; b < blocks_of(format, n); b++) {
        const size_t begin = b * format->block, left = n - begin;
        const size_t count = left < format->block ? left : format->block;
        const uint16_t scale = scale_of(format, src + begin, count);
        const float max = max_of(src + begin, count);
        tw_put_u16(dst + 2 * b, scale);
        for (size_t i = begin; i < begin + count; i++) {
            const float value = tw_bf16_to_f32(scale);
            const unsigned digit =
                format->digit_of(src[i], value, quotient_of(src[i], value, max)) &
                ((1u << format->digit_bits) - 1);
            const size_t bit = bit_of(format, n, i);
            dst[bit / 8] = (uint8_t)(dst[bit / 8] | digit << bit % 8);
        }
    }
    *bytes_out = bytes_of(format, n);
    return TW_OK;
}

enum tw_status tw_codec_decode_ref(enum tw_codec_id id, const uint8_t *src, size_t bytes,
                                   float *dst, size_t n) {
    if (is_topk(id)) return topk_decode(id, src, bytes, dst, n);
    if (is_ecsq(id)) return ecsq_decode(id, src, bytes, dst, n);
    if (id == TW_CODEC_SPARSE8) return sparse8_decode(src, bytes, dst, n);
    const struct format *format = format_of(id);
    if (n > TW_PAYLOAD_BYTES_MAX || bytes != bytes_of(format, n)) return TW_CORRUPT;
    for (size_t b = 0; b < blocks_of(format, n); b++) {
        const float scale = tw_bf16_to_f32(tw_get_u16(src + 2 * b));
        if (signbit(scale) != 0 || !(scale < format->scale_end)) return TW_CORRUPT;
    }
    for (size_t i = n; format->has_padding && i % format->block != 0; i++) {
        if (digit_at(format, src, n, i) != 0) return TW_CORRUPT;
    }
    for (size_t i = 0; i < n; i++) {
        const float scale = tw_bf16_to_f32(tw_get_u16(src + 2 * (i / format->block)));
        dst[i] = scale * format->level(digit_at(format, src, n, i));
    }
    return TW_OK;
}
