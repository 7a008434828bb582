/* codec_ecsq_ref.c - ecsq as specified in codec_ecsq.h and rans.h. It shares two parts with the
 * fast variants, because those are already plain code: the choice of a step (ecsq_rate.c) and the
 * model of the entropy coder (rans.c). */
#include "compress/codec_ref.h"

#include <math.h>
#include <string.h>

#include "base/limits.h"
#include "compress/ecsq/ecsq.h"
#include "compress/rans/rans.h"
#include "compress/ref.h"

enum { BLOCK = TW_ECSQ_BLOCK, LANES = TW_RANS_LANES, TOTAL = TW_RANS_TOTAL, ALPHABET = 256 };

/* Header and scales of a payload, with the array's size and codec. */
struct array {
    const struct tw_ecsq *row;
    size_t n;
    const uint8_t *scales;
    struct tw_ecsq_step step;
};

/* Returns s of element i; 0 if its block has no codes. */
static float step_of(const struct array *array, size_t i) {
    return tw_bf16_to_f32(tw_ecsq_scale(array->scales, i / BLOCK)) *
           ((float)array->step.c / 4096.0f);
}

/* Returns the end of the stream that begins with element i. */
static size_t stream_end(const struct array *array, size_t i) {
    const size_t elements = (size_t)TW_ECSQ_STREAM_CODES * array->row->in_code;
    return array->n - i < elements ? array->n : i + elements;
}

/* Computes the start of each symbol's range in [0, 2^12), and the end of the last range. */
static void starts_of(const struct tw_rans_model *model, uint32_t *starts) {
    starts[0] = 0;
    for (uint32_t s = 0; s < ALPHABET; s++) starts[s + 1] = starts[s] + model->frequency[s];
}

/* ---- encode -------------------------------------------------------------------------------- */

/* Returns the rms of x, computed in units of the largest element and in 64 partial sums, in the
 * same order as all variants. */
static float rms_of(const float *x, size_t count, float max) {
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

/* Writes r of block b; *size is the block's largest |x| / r. */
static enum tw_status put_scale(const struct tw_ecsq *row, const float *x, size_t n, size_t b,
                                uint8_t *scales, float *size) {
    const size_t count = tw_ecsq_count(n, b);
    const float max = tw_ref_max(x + b * BLOCK, count);
    if (max >= 0x1p126f) return TW_CORRUPT;
    const float rms = rms_of(x + b * BLOCK, count, max);
    const bool is_flat = row->dead_256 > 0 && rms > max / 3.0f;
    const uint16_t scale = tw_bf16_from_f32(is_flat ? max / 3.0f : rms);
    if (scale >= TW_ECSQ_SCALE_END) return TW_CORRUPT;
    tw_put_u16(scales + 2 * b, scale < TW_ECSQ_SCALE_MIN ? 0 : scale);
    *size = scale < TW_ECSQ_SCALE_MIN ? 0.0f : max / tw_bf16_to_f32(scale);
    return TW_OK;
}

/* Writes r of each block; *peak is the largest |x| / r of the sampled blocks. */
static enum tw_status put_scales(const struct tw_ecsq *row, const float *x, size_t n,
                                 uint8_t *scales, float *peak) {
    const size_t blocks = tw_ecsq_blocks(n);
    float size;
    for (size_t b = 0; b < blocks; b++) TW_TRY(put_scale(row, x, n, b, scales, &size));
    *peak = 0.0f;
    for (size_t i = 0; i < tw_ecsq_sampled(blocks); i++) {
        TW_TRY(put_scale(row, x, n, tw_ecsq_sampled_block(blocks, i), scales, &size));
        *peak = fmaxf(*peak, size);
    }
    return TW_OK;
}

/* Returns the size a of element i; 0 if its block has no codes. */
static uint32_t size_of(const struct array *array, const float *x, size_t i) {
    const float s = step_of(array, i), bias = tw_ecsq_bias(array->row);
    return s == 0.0f ? 0 : (uint32_t)(fabsf(x[i]) * (1.0f / s) + bias);
}

/* Returns the code that begins with element i, in a stream that ends before element `end`. */
static uint8_t code_of(const struct array *array, const float *x, size_t i, size_t end) {
    const uint32_t limit = tw_ecsq_limit(array->row);
    uint32_t code = 0;
    for (uint32_t j = 0; j < array->row->in_code && i + j < end; j++) {
        const uint32_t a = size_of(array, x, i + j);
        code |= (a < limit ? a : limit) << j * array->row->size_bits;
    }
    return (uint8_t)code;
}

/* Encodes codes[count]: writes the words before `end` and the states. If `end` is NULL, only counts
 * words. Returns the number of words. */
static uint32_t put_words(const struct tw_rans_model *model, const uint8_t *codes, uint32_t count,
                          uint32_t *states, uint8_t *end) {
    uint32_t words = 0, starts[ALPHABET + 1];
    starts_of(model, starts);
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
static uint32_t count_codes(const struct tw_ecsq *row, const uint8_t *codes, uint32_t count,
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
static size_t put_codes(const struct tw_ecsq *row, const uint8_t *codes, uint32_t count,
                        uint8_t *kind, uint8_t *dst) {
    struct tw_rans_model model;
    uint32_t counts[ALPHABET], states[LANES];
    uint8_t head[TW_RANS_MODEL_BYTES_MAX];
    const uint32_t total = count_codes(row, codes, count, counts);
    if (!tw_rans_model_fit(&model, counts, total)) {
        *kind = TW_ECSQ_ONE;
        dst[0] = codes[0];
        return 1;
    }
    const size_t model_bytes = tw_rans_model_encode(&model, head);
    const uint32_t words = put_words(&model, codes, count, states, NULL);
    const size_t bytes = model_bytes + 4 + sizeof(states) + (size_t)2 * words;
    if (bytes > count) {
        *kind = TW_ECSQ_RAW;
        memcpy(dst, codes, count);
        return count;
    }
    *kind = TW_ECSQ_CODED;
    memcpy(dst, head, model_bytes);
    tw_put_u32(dst + model_bytes, words);
    (void)put_words(&model, codes, count, states, dst + bytes);
    for (uint32_t j = 0; j < LANES; j++) tw_put_u32(dst + model_bytes + 4 + 4 * j, states[j]);
    return bytes;
}

/* Writes the stream of elements [begin, end). Returns the number of bytes; 0 if it has no codes. */
static size_t put_stream(const struct array *array, const float *x, size_t begin, size_t end,
                         uint8_t *dst) {
    uint8_t codes[TW_ECSQ_STREAM_CODES], *at = dst + TW_ECSQ_STREAM_HEAD_BYTES;
    uint32_t count = 0, written = 0;
    for (size_t i = begin; i < end; i += array->row->in_code) {
        if (step_of(array, i) != 0.0f) codes[count++] = code_of(array, x, i, end);
    }
    if (count == 0) return 0;
    for (size_t i = begin; i < end; i++) {
        const uint32_t a = size_of(array, x, i);
        if (a < tw_ecsq_limit(array->row)) continue;
        tw_put_u16(at, (uint16_t)a);
        at += 2;
        written++;
    }
    tw_put_u32(dst + 1, written);
    at += put_codes(array->row, codes, count, dst, at);
    struct tw_ref_writer signs = {.dst = at};
    for (size_t i = begin; i < end; i++) {
        if (size_of(array, x, i) > 0) tw_ref_put(&signs, signbit(x[i]) != 0, 1);
    }
    return (size_t)(at - dst) + (signs.bits + 7) / 8;
}

enum tw_status tw_ecsq_encode_ref(enum tw_codec_id id, const float *src, size_t n, uint8_t *dst,
                                  size_t *bytes_out) {
    uint8_t *const scales = dst + TW_ECSQ_HEAD_BYTES;
    struct array array = {.row = tw_base_ecsq_row(id), .n = n, .scales = scales};
    struct tw_ecsq_source source = {.x = src, .n = n, .scales = scales};
    *bytes_out = 0;
    if (n == 0) return TW_OK;
    TW_TRY(put_scales(array.row, src, n, scales, &source.peak));
    array.step = tw_ecsq_choose(array.row, &source);
    tw_put_u16(dst, (uint16_t)array.step.c);
    dst[2] = (uint8_t)array.step.shift_one;
    dst[3] = (uint8_t)array.step.shift_more;
    size_t at = TW_ECSQ_HEAD_BYTES + 2 * tw_ecsq_blocks(n);
    for (size_t i = 0; i < n; i = stream_end(&array, i)) {
        at += put_stream(&array, src, i, stream_end(&array, i), dst + at);
    }
    *bytes_out = at;
    return TW_OK;
}

/* ---- decode -------------------------------------------------------------------------------- */

/* Unread bytes of a payload. */
struct rest {
    const uint8_t *at, *end;
};

/* Consumes the next `bytes` and returns their address, or NULL if there are fewer left. */
static const uint8_t *take(struct rest *rest, size_t bytes) {
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
    struct tw_ref_reader signs;
    uint32_t starts[ALPHABET + 1], states[LANES];
};

static enum tw_status open_coded(const struct tw_ecsq *row, struct rest *in,
                                 struct stream *stream) {
    struct tw_rans_model model;
    const size_t model_bytes =
        tw_rans_model_decode(&model, in->at, (size_t)(in->end - in->at), tw_ecsq_alphabet(row));
    if (model_bytes == 0) return TW_CORRUPT;
    starts_of(&model, stream->starts);
    (void)take(in, model_bytes);
    const uint8_t *const head = take(in, 4 + sizeof(stream->states));
    if (head == NULL) return TW_CORRUPT;
    for (uint32_t j = 0; j < LANES; j++) {
        stream->states[j] = tw_get_u32(head + 4 + 4 * j);
        if (stream->states[j] < 1u << 15 || stream->states[j] >= 1u << 31) return TW_CORRUPT;
    }
    const uint8_t *const words = take(in, (size_t)2 * tw_get_u32(head));
    if (words == NULL) return TW_CORRUPT;
    stream->words = (struct rest){words, in->at};
    return TW_OK;
}

/* Reads a stream of `elements` elements up to its signs. */
static enum tw_status open_stream(const struct tw_ecsq *row, struct rest *in, uint32_t elements,
                                  struct stream *stream) {
    const uint8_t *const head = take(in, TW_ECSQ_STREAM_HEAD_BYTES);
    if (head == NULL || head[0] > TW_ECSQ_ONE) return TW_CORRUPT;
    const uint8_t *const written = take(in, (size_t)2 * tw_get_u32(head + 1));
    if (written == NULL) return TW_CORRUPT;
    *stream = (struct stream){.kind = head[0], .written = {written, in->at}};
    if (stream->kind == TW_ECSQ_CODED) {
        TW_TRY(open_coded(row, in, stream));
    } else {
        const uint32_t codes = stream->kind == TW_ECSQ_RAW ? tw_ecsq_codes(row, elements) : 1;
        const uint8_t *const from = take(in, codes);
        if (from == NULL) return TW_CORRUPT;
        stream->codes = (struct rest){from, in->at};
    }
    stream->signs = (struct tw_ref_reader){.src = in->at, .end = 8 * (size_t)(in->end - in->at)};
    return TW_OK;
}

static enum tw_status next_coded(struct stream *stream, uint32_t *code) {
    uint32_t *const x = &stream->states[stream->count % LANES];
    const uint32_t slot = *x % TOTAL;
    uint32_t s = 0;
    while (stream->starts[s + 1] <= slot) s++;
    *x = (stream->starts[s + 1] - stream->starts[s]) * (*x / TOTAL) + slot - stream->starts[s];
    *code = s;
    if (*x >= TW_RANS_FIRST_STATE) return TW_OK;
    const uint8_t *const word = take(&stream->words, 2);
    if (word == NULL) return TW_CORRUPT;
    *x = *x * 65536 + tw_get_u16(word);
    return TW_OK;
}

static enum tw_status next_code(const struct tw_ecsq *row, struct stream *stream, uint32_t *code) {
    if (stream->kind == TW_ECSQ_CODED) {
        TW_TRY(next_coded(stream, code));
    } else {
        *code = stream->codes.at[stream->kind == TW_ECSQ_RAW ? stream->count : 0];
    }
    stream->count++;
    return *code < tw_ecsq_alphabet(row) ? TW_OK : TW_CORRUPT;
}

/* Computes the value of an element whose code contains `size`: +-(a + shift) * s. */
static enum tw_status next_value(const struct array *array, struct stream *stream, uint32_t size,
                                 float s, float *value) {
    const struct tw_ecsq_step step = array->step;
    const float shift = (float)(size == 1 ? step.shift_one : step.shift_more) / 256.0f;
    float level = (float)size + shift;
    uint32_t is_minus;
    *value = 0.0f;
    if (size == 0) return TW_OK;
    if (size == tw_ecsq_limit(array->row)) {
        const uint8_t *const from = take(&stream->written, 2);
        if (from == NULL) return TW_CORRUPT;
        const uint32_t a = tw_get_u16(from);
        if (a < size || a * step.c > TW_ECSQ_PEAK * TW_ECSQ_STEP_ONE) return TW_CORRUPT;
        level = (float)a;
    }
    if (!tw_ref_get(&stream->signs, 1, &is_minus)) return TW_CORRUPT;
    *value = is_minus != 0 ? -(level * s) : level * s;
    return TW_OK;
}

/* Returns TW_CORRUPT unless all sizes, words and signs of the stream were used. */
static enum tw_status close_stream(struct stream *stream, struct rest *in) {
    if (stream->written.at != stream->written.end) return TW_CORRUPT;
    if (stream->words.at != stream->words.end) return TW_CORRUPT;
    for (uint32_t j = 0; j < LANES && stream->kind == TW_ECSQ_CODED; j++) {
        if (stream->states[j] != TW_RANS_FIRST_STATE) return TW_CORRUPT;
    }
    if (!tw_ref_get_padding(&stream->signs)) return TW_CORRUPT;
    (void)take(in, stream->signs.at / 8);
    return TW_OK;
}

/* Decodes the stream of elements [begin, end). */
static enum tw_status read_stream(const struct array *array, struct rest *in, size_t begin,
                                  size_t end, float *dst) {
    const struct tw_ecsq *const row = array->row;
    struct stream stream = {0};
    uint32_t elements = 0, code = 0;
    for (size_t i = begin; i < end; i++) elements += step_of(array, i) != 0.0f;
    if (elements > 0) TW_TRY(open_stream(row, in, elements, &stream));
    for (size_t i = begin; i < end; i++) {
        const float s = step_of(array, i);
        float value = 0.0f;
        if (s != 0.0f) {
            if (i % row->in_code == 0) TW_TRY(next_code(row, &stream, &code));
            TW_TRY(next_value(array, &stream, code & tw_ecsq_limit(row), s, &value));
            code >>= row->size_bits;
        }
        dst[i] = value;
    }
    if (code != 0) return TW_CORRUPT; /* the size paired with an odd last element must be 0 */
    return elements > 0 ? close_stream(&stream, in) : TW_OK;
}

static enum tw_status read_all(const struct tw_ecsq *row, struct rest in, float *dst, size_t n) {
    struct array array = {.row = row, .n = n};
    const uint8_t *const head = take(&in, TW_ECSQ_HEAD_BYTES);
    array.scales = take(&in, 2 * tw_ecsq_blocks(n));
    if (head == NULL || array.scales == NULL) return TW_CORRUPT;
    array.step = (struct tw_ecsq_step){tw_get_u16(head), (int8_t)head[2], (int8_t)head[3]};
    if (array.step.c < row->step_min || array.step.c > TW_ECSQ_STEP_MAX) return TW_CORRUPT;
    for (size_t b = 0; b < tw_ecsq_blocks(n); b++) {
        const uint16_t scale = tw_ecsq_scale(array.scales, b);
        if (scale != 0 && scale < TW_ECSQ_SCALE_MIN) return TW_CORRUPT;
        if (scale >= TW_ECSQ_SCALE_END) return TW_CORRUPT;
    }
    for (size_t i = 0; i < n; i = stream_end(&array, i)) {
        TW_TRY(read_stream(&array, &in, i, stream_end(&array, i), dst));
    }
    return in.at == in.end ? TW_OK : TW_CORRUPT;
}

enum tw_status tw_ecsq_decode_ref(enum tw_codec_id id, const uint8_t *src, size_t bytes, float *dst,
                                  size_t n) {
    const struct rest in = {src, src + bytes};
    if (n > TW_PAYLOAD_BYTES_MAX) return TW_CORRUPT;
    if (n == 0) return bytes == 0 ? TW_OK : TW_CORRUPT;
    return read_all(tw_base_ecsq_row(id), in, dst, n);
}
