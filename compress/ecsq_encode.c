/* ecsq_encode.c - the encoder of codec_ecsq.h: scales of all blocks, a step for all of them, then
 * stream by stream the symbols, which are counted as they are made, and their code. */
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/limits.h"
#include "compress/ecsq.h"
#include "compress/rans_form.h"

enum {
    BLOCK = TW_ECSQ_BLOCK,
    PIECE = 64,   /* elements whose maxima are separate */
    AHEAD = 2048, /* elements between those at work and those fetched */
    CHUNK = 32,   /* symbols made at a time: vectors of bytes are full */
    LAG = 512,    /* symbols between one that is made and one that is counted */
    TABLES = 4,   /* of counts, so that equal neighbours do not wait for each other */
};
#define TOO_LARGE 0x1p126f

struct writer {
    const struct tw_ecsq *ecsq;
    const float *x;
    size_t n;
    const uint8_t *scales;
    uint32_t c;
    uint8_t *at; /* where the next byte goes */
    const uint8_t *end;
};

/* What makes symbols of a block. */
struct quantiser {
    float inverse, bias, most;
    uint8_t last;
};

/* The symbols of a stream, of all blocks that have any. */
struct symbols {
    uint32_t made, counted;
    uint32_t counts[TABLES][TW_RANS_SYMBOLS_MAX];
    uint8_t of[TW_ECSQ_STREAM_BLOCKS * BLOCK];
};

/* A loop over much memory is faster than a processor fetches by itself. There may be nothing. */
static void fetch_ahead(const float *x) {
    const uintptr_t at = (uintptr_t)x + AHEAD * sizeof(*x);
    for (size_t i = 0; i < PIECE * sizeof(*x); i += 64) __builtin_prefetch((const void *)(at + i));
}

/* The rms of x (count) and the largest |x|. Partial sums and maxima are in a fixed order, sums in
 * double: every width of vector has the same bits. */
static float rms_of(const float *x, uint32_t count, float *max) {
    double sums[8] = {0}, sum = 0.0;
    float most[PIECE] = {0};
    const size_t whole = count - count % PIECE;
    for (size_t at = 0; at < whole; at += PIECE) {
        fetch_ahead(x + at);
        for (size_t i = 0; i < PIECE; i++) {
            const float size = fabsf(x[at + i]);
            most[i] = size > most[i] ? size : most[i];
        }
        for (size_t i = at; i < at + PIECE; i += 8) {
            double wide[8];
            for (size_t j = 0; j < 8; j++) wide[j] = (double)x[i + j];
            for (size_t j = 0; j < 8; j++) sums[j] += wide[j] * wide[j];
        }
    }
    for (size_t i = whole; i < count; i++) {
        most[0] = fabsf(x[i]) > most[0] ? fabsf(x[i]) : most[0];
        sums[i % 8] += (double)x[i] * (double)x[i];
    }
    *max = 0.0f;
    for (size_t i = 0; i < PIECE; i++) *max = most[i] > *max ? most[i] : *max;
    for (size_t j = 0; j < 8; j++) sum += sums[j];
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
        float max;
        const float rms = rms_of(x + b * BLOCK, count, &max);
        if (max >= TOO_LARGE) return TW_CORRUPT;
        const uint16_t scale = tw_bf16_from_f32(scale_of(ecsq, rms, max));
        if (scale >= TW_ECSQ_SCALE_END) return TW_CORRUPT; /* as of a block with a NaN */
        const bool is_zero = scale < TW_ECSQ_SCALE_MIN;
        const float size = is_zero ? 0.0f : max / tw_bf16_to_f32(scale);
        *peak = size > *peak ? size : *peak;
        tw_put_u16(scales + 2 * b, is_zero ? 0 : scale);
    }
    return TW_OK;
}

static struct quantiser quantiser_of(const struct writer *w, size_t b) {
    return (struct quantiser){
        .inverse = 1.0f / tw_ecsq_unit(tw_ecsq_scale(w->scales, b), w->c),
        .bias = tw_ecsq_bias(w->ecsq),
        .most = (float)w->ecsq->limit,
        .last = (uint8_t)(2 * w->ecsq->limit - 1),
    };
}

/* Clamping gives what is written out its symbol. */
static void quantise(const struct quantiser *q, const float *restrict x, uint8_t *restrict to,
                     uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        const float size = fabsf(x[i]) * q->inverse + q->bias;
        const int32_t a = (int32_t)(size < q->most ? size : q->most);
        const int32_t symbol = 2 * a - (int32_t)(tw_ecsq_bits(x[i]) >> 31);
        const uint8_t byte = (uint8_t)(symbol < 0 ? 0 : symbol);
        to[i] = byte < q->last ? byte : q->last;
    }
}

static void count_symbols(struct symbols *symbols, uint32_t count) {
    const uint8_t *const from = symbols->of + symbols->counted;
    const uint32_t whole = count - count % 8;
    for (uint32_t i = 0; i < whole; i += 8) {
        const uint64_t eight = tw_get_u64(from + i);
        symbols->counts[0][eight & 0xFF]++;
        symbols->counts[1][eight >> 8 & 0xFF]++;
        symbols->counts[2][eight >> 16 & 0xFF]++;
        symbols->counts[3][eight >> 24 & 0xFF]++;
        symbols->counts[0][eight >> 32 & 0xFF]++;
        symbols->counts[1][eight >> 40 & 0xFF]++;
        symbols->counts[2][eight >> 48 & 0xFF]++;
        symbols->counts[3][eight >> 56]++;
    }
    for (uint32_t i = whole; i < count; i++) symbols->counts[0][from[i]]++;
    symbols->counted += count;
}

/* Those of block b are made. Counting waits for memory and making for arithmetic, so a processor
 * does both at once, if what is counted has long been stored. */
static void make_symbols(const struct writer *w, size_t b, struct symbols *symbols) {
    const struct quantiser q = quantiser_of(w, b);
    const float *const x = w->x + b * BLOCK;
    uint8_t *const to = symbols->of + symbols->made;
    const uint32_t count = tw_ecsq_count(w->n, b), whole = count - count % CHUNK;
    for (uint32_t i = 0; i < whole; i += CHUNK) {
        quantise(&q, x + i, to + i, CHUNK);
        if (symbols->made + i >= symbols->counted + LAG) count_symbols(symbols, CHUNK);
    }
    quantise(&q, x + whole, to + whole, count - whole);
    symbols->made += count;
}

/* Codes of block b that are too large for a symbol. */
static void put_codes(struct writer *w, size_t b, const uint8_t *symbols) {
    const struct quantiser q = quantiser_of(w, b);
    const uint32_t count = tw_ecsq_count(w->n, b);
    for (const uint8_t *s = memchr(symbols, q.last, count); s != NULL;
         s = memchr(s + 1, q.last, (size_t)(symbols + count - s - 1))) {
        const float x = w->x[b * BLOCK + (size_t)(s - symbols)];
        const int32_t a = (int32_t)(fabsf(x) * q.inverse + q.bias); /* <= 64 / c + 1: it fits */
        TW_ASSERT(w->end - w->at >= 2);
        tw_put_u16(w->at, (uint16_t)(x < 0.0f ? -a : a));
        w->at += 2;
    }
}

/* The symbols, rANS coded, in at most as many bytes as they are; 0 if they do not fit. */
static size_t put_coded(const struct writer *w, const struct symbols *symbols,
                        const struct tw_rans_model *model) {
    struct tw_rans_encoder encoder;
    uint8_t words[2 * BLOCK + TW_RANS_WORDS_SLACK], head[TW_RANS_MODEL_BYTES_MAX];
    const struct tw_rans_form *const form = &TW_FORM(rans);
    const size_t room = symbols->made, model_bytes = tw_rans_model_encode(model, head);
    const size_t head_bytes = model_bytes + 4 + TW_RANS_STATES_BYTES;
    size_t words_bytes = 0;
    tw_rans_encoder_init(&encoder, model);
    for (size_t end = symbols->made; end > 0;) {
        const size_t begin = (end - 1) / BLOCK * BLOCK;
        const size_t more =
            form->encode(&encoder, symbols->of + begin, end - begin, words + sizeof(words));
        if (head_bytes + words_bytes + more > room) return 0;
        words_bytes += more;
        memcpy(w->at + room - words_bytes, words + sizeof(words) - more, more);
        end = begin;
    }
    memmove(w->at + head_bytes, w->at + room - words_bytes, words_bytes);
    memcpy(w->at, head, model_bytes);
    tw_put_u32(w->at + model_bytes, (uint32_t)(words_bytes / 2));
    tw_rans_encoder_finish(&encoder, w->at + model_bytes + 4);
    return head_bytes + words_bytes;
}

/* Counts of symbols into sums (256). */
static void sum_counts(const struct symbols *symbols, uint32_t *sums) {
    for (uint32_t s = 0; s < TW_RANS_SYMBOLS_MAX; s++) {
        sums[s] = 0;
        for (uint32_t j = 0; j < TABLES; j++) sums[s] += symbols->counts[j][s];
    }
}

static void put_stream(struct writer *w, size_t begin, size_t end) {
    struct symbols symbols;
    struct tw_rans_model model;
    uint32_t sums[TW_RANS_SYMBOLS_MAX];
    uint8_t *const head = w->at;
    symbols.made = symbols.counted = 0;
    memset(symbols.counts, 0, sizeof(symbols.counts));
    w->at += TW_ECSQ_STREAM_HEAD_BYTES;
    for (size_t b = begin; b < end; b++) {
        if (tw_ecsq_scale(w->scales, b) == 0) continue;
        const uint8_t *const made = symbols.of + symbols.made;
        make_symbols(w, b, &symbols);
        put_codes(w, b, made);
    }
    count_symbols(&symbols, symbols.made - symbols.counted);
    sum_counts(&symbols, sums);
    tw_put_u32(head + 1, sums[2 * w->ecsq->limit - 1]);
    TW_ASSERT((size_t)(w->end - w->at) >= symbols.made);
    if (!tw_rans_model_fit(&model, sums, symbols.made)) {
        head[0] = TW_ECSQ_ONE;
        *w->at++ = symbols.of[0];
        return;
    }
    const size_t coded = put_coded(w, &symbols, &model);
    head[0] = coded > 0 ? TW_ECSQ_CODED : TW_ECSQ_RAW;
    w->at += coded;
    if (coded > 0) return;
    memcpy(w->at, symbols.of, symbols.made);
    w->at += symbols.made;
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
