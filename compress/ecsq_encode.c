/* ecsq_encode.c - the encoder of codec_ecsq.h. Elements are quantised twice, once to count symbols
 * and once to code them from the last to the first: it is cheaper than to keep the symbols. */
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/limits.h"
#include "compress/ecsq.h"
#include "compress/rans_form.h"

enum { BLOCK = TW_ECSQ_BLOCK, TOO_LARGE = 0x7E800000 /* 2^126 as a float */ };

struct writer {
    const struct tw_ecsq *ecsq;
    const float *x;
    size_t n;
    const uint8_t *scales;
    uint32_t c;
    uint8_t *at; /* where the next byte goes */
    const uint8_t *end;
};

static uint32_t magnitude(float x) {
    return tw_ecsq_bits(x) & 0x7FFFFFFFu;
}

/* Eight partial sums in a fixed order, in double: every width of vector has the same bits. */
static float rms_of(const float *x, uint32_t count) {
    double sums[8] = {0}, sum = 0.0;
    const size_t whole = count - count % 8;
    for (size_t i = 0; i < whole; i += 8) {
        double wide[8];
        for (size_t j = 0; j < 8; j++) wide[j] = (double)x[i + j];
        for (size_t j = 0; j < 8; j++) sums[j] += wide[j] * wide[j];
    }
    for (size_t i = whole; i < count; i++) sums[i % 8] += (double)x[i] * (double)x[i];
    for (uint32_t j = 0; j < 8; j++) sum += sums[j];
    return (float)sqrt(sum / count);
}

/* r of a block. What error feedback leaves of a block that sent nothing for a while is flat: beside
 * blocks with tails it would stay below a step that suits these, however much of it there were. */
static float scale_of(const struct tw_ecsq *ecsq, float rms, float max) {
    const float most = max / (float)TW_ECSQ_FLAT;
    return ecsq->dead_256 > 0 && rms > most ? most : rms;
}

static enum tw_status put_scales(const struct tw_ecsq *ecsq, const float *x, size_t n,
                                 uint8_t *scales, float *peak) {
    *peak = 0.0f;
    for (size_t b = 0; b < tw_ecsq_blocks(n); b++) {
        const uint32_t count = tw_ecsq_count(n, b);
        uint32_t max = 0;
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t bits = magnitude(x[b * BLOCK + i]);
            max = bits > max ? bits : max;
        }
        if (max >= TOO_LARGE) return TW_CORRUPT;
        const float rms = rms_of(x + b * BLOCK, count);
        const uint16_t scale = tw_bf16_from_f32(scale_of(ecsq, rms, tw_ecsq_float(max)));
        if (scale >= TW_ECSQ_SCALE_END) return TW_CORRUPT;
        const bool is_zero = scale < TW_ECSQ_SCALE_MIN;
        const float size = is_zero ? 0.0f : tw_ecsq_float(max) / tw_bf16_to_f32(scale);
        *peak = size > *peak ? size : *peak;
        tw_put_u16(scales + 2 * b, is_zero ? 0 : scale);
    }
    return TW_OK;
}

/* Symbols of block b. a <= 64 / c + 1 fits easily; clamping gives what is written out its symbol.
 */
static void quantise(const struct writer *w, size_t b, uint8_t *restrict symbols) {
    const float *restrict x = w->x + b * BLOCK;
    const float inverse = 1.0f / tw_ecsq_unit(tw_ecsq_scale(w->scales, b), w->c);
    const float bias = tw_ecsq_bias(w->ecsq);
    const int32_t last = (int32_t)(2 * w->ecsq->limit - 1);
    const uint32_t count = tw_ecsq_count(w->n, b);
    for (uint32_t i = 0; i < count; i++) {
        const int32_t a = (int32_t)(fabsf(x[i]) * inverse + bias);
        int32_t symbol = 2 * a - (int32_t)(tw_ecsq_bits(x[i]) >> 31);
        symbol = symbol < 0 ? 0 : symbol;
        symbols[i] = (uint8_t)(symbol > last ? last : symbol);
    }
}

/* Codes of block b that are too large for a symbol. */
static void put_codes(struct writer *w, size_t b, const uint8_t *symbols) {
    const float inverse = 1.0f / tw_ecsq_unit(tw_ecsq_scale(w->scales, b), w->c);
    const float bias = tw_ecsq_bias(w->ecsq);
    const uint32_t count = tw_ecsq_count(w->n, b);
    const int last = (int)(2 * w->ecsq->limit - 1);
    for (const uint8_t *s = memchr(symbols, last, count); s != NULL;
         s = memchr(s + 1, last, (size_t)(symbols + count - s - 1))) {
        const float x = w->x[b * BLOCK + (size_t)(s - symbols)];
        const int32_t a = (int32_t)(fabsf(x) * inverse + bias);
        TW_ASSERT(w->end - w->at >= 2);
        tw_put_u16(w->at, (uint16_t)(x < 0.0f ? -a : a));
        w->at += 2;
    }
}

/* Four tables, so that equal neighbours do not wait for each other. */
static void count_symbols(uint32_t (*counts)[4], const uint8_t *symbols, uint32_t count) {
    uint32_t i = 0;
    for (; i + 4 <= count; i += 4) {
        for (uint32_t j = 0; j < 4; j++) counts[symbols[i + j]][j]++;
    }
    for (; i < count; i++) counts[symbols[i]][0]++;
}

/* The symbols of blocks [begin, end), rANS coded, in at most `room` bytes; 0 if they do not fit. */
static size_t put_coded(const struct writer *w, size_t begin, size_t end,
                        const struct tw_rans_model *model, size_t room) {
    struct tw_rans_encoder encoder;
    uint8_t symbols[BLOCK], words[2 * BLOCK + TW_RANS_WORDS_SLACK], head[TW_RANS_MODEL_BYTES_MAX];
    const struct tw_rans_form *const form = &TW_FORM(rans);
    const size_t model_bytes = tw_rans_model_encode(model, head);
    const size_t head_bytes = model_bytes + 4 + TW_RANS_STATES_BYTES;
    size_t words_bytes = 0;
    tw_rans_encoder_init(&encoder, model);
    for (size_t b = end; b-- > begin;) {
        if (tw_ecsq_scale(w->scales, b) == 0) continue;
        quantise(w, b, symbols);
        const size_t more =
            form->encode(&encoder, symbols, tw_ecsq_count(w->n, b), words + sizeof(words));
        if (head_bytes + words_bytes + more > room) return 0;
        words_bytes += more;
        memcpy(w->at + room - words_bytes, words + sizeof(words) - more, more);
    }
    memmove(w->at + head_bytes, w->at + room - words_bytes, words_bytes);
    memcpy(w->at, head, model_bytes);
    tw_put_u32(w->at + model_bytes, (uint32_t)(words_bytes / 2));
    tw_rans_encoder_finish(&encoder, w->at + model_bytes + 4);
    return head_bytes + words_bytes;
}

static void put_raw(struct writer *w, size_t begin, size_t end) {
    for (size_t b = begin; b < end; b++) {
        if (tw_ecsq_scale(w->scales, b) == 0) continue;
        quantise(w, b, w->at);
        w->at += tw_ecsq_count(w->n, b);
    }
}

static void put_stream(struct writer *w, size_t begin, size_t end) {
    uint32_t counts[TW_RANS_SYMBOLS_MAX][4] = {0}, sums[TW_RANS_SYMBOLS_MAX];
    uint8_t symbols[BLOCK];
    uint8_t *const head = w->at;
    const uint32_t active = tw_ecsq_active(w->scales, w->n, begin, end);
    const uint32_t last = 2 * w->ecsq->limit - 1;
    w->at += TW_ECSQ_STREAM_HEAD_BYTES;
    for (size_t b = begin; b < end; b++) {
        if (tw_ecsq_scale(w->scales, b) == 0) continue;
        quantise(w, b, symbols);
        count_symbols(counts, symbols, tw_ecsq_count(w->n, b));
        put_codes(w, b, symbols);
    }
    for (uint32_t s = 0; s < TW_RANS_SYMBOLS_MAX; s++) {
        sums[s] = counts[s][0] + counts[s][1] + counts[s][2] + counts[s][3];
    }
    tw_put_u32(head + 1, sums[last]);
    TW_ASSERT((size_t)(w->end - w->at) >= active);
    struct tw_rans_model model;
    if (!tw_rans_model_fit(&model, sums, active)) {
        head[0] = TW_ECSQ_ONE;
        *w->at++ = symbols[0]; /* of the last block that has any, as of all */
        return;
    }
    const size_t coded = put_coded(w, begin, end, &model, active);
    head[0] = coded > 0 ? TW_ECSQ_CODED : TW_ECSQ_RAW;
    w->at += coded;
    if (coded == 0) put_raw(w, begin, end);
}

enum tw_status TW_FORM(ecsq_encode)(const struct tw_ecsq *ecsq, const float *src, size_t n,
                                    uint8_t *dst, size_t capacity, size_t *bytes_out) {
    *bytes_out = 0;
    if (n == 0) return TW_OK;
    const size_t blocks = tw_ecsq_blocks(n);
    uint8_t *const scales = dst + TW_ECSQ_HEAD_BYTES;
    struct tw_ecsq_source source = {.x = src, .n = n, .scales = scales};
    TW_TRY(put_scales(ecsq, src, n, scales, &source.peak));
    const struct tw_ecsq_step step = tw_ecsq_choose(ecsq, &source);
    tw_put_u16(dst, (uint16_t)step.c);
    dst[2] = (uint8_t)step.shift_one;
    dst[3] = (uint8_t)step.shift_more;
    struct writer w = {.ecsq = ecsq,
                       .x = src,
                       .n = n,
                       .scales = scales,
                       .c = step.c,
                       .at = scales + 2 * blocks,
                       .end = dst + capacity};
    for (size_t b = 0; b < blocks; b = tw_ecsq_stream_end(b, blocks)) {
        const size_t end = tw_ecsq_stream_end(b, blocks);
        if (tw_ecsq_active(scales, n, b, end) > 0) put_stream(&w, b, end);
    }
    *bytes_out = (size_t)(w.at - dst);
    return TW_OK;
}
