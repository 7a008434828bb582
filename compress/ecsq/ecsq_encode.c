/* ecsq_encode.c - the encoder of codec_ecsq.h. It chooses one step for all blocks from the scales
 * of a sample of them. Then, stream by stream, it computes scales, signs and codes, counts the
 * codes as they are produced, and entropy-codes them. Each block of a large array is read from
 * memory once. */
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/limits.h"
#include "compress/block.h"
#include "compress/ecsq/ecsq.h"
#include "compress/ecsq/ecsq_isa.h"
#include "compress/rans/rans_isa.h"

enum {
    BLOCK = TW_ECSQ_BLOCK,
    PIECE = 64, /* elements whose maximum is computed together */
    MADE = TW_ECSQ_MADE,
    LAG = 512,  /* codes are counted this many codes after they were produced */
    TABLES = 4, /* number of tables of counts, used in turn: in one table, equal adjacent codes
                   would wait for each other */
    COUNTED = TW_ECSQ_COUNTED,
    EVERY = TW_ECSQ_COUNTED_EVERY,
};
#define TOO_LARGE 0x1p126f

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
    uint32_t written; /* number of sizes written in full in the current stream */
};

/* Content of the stream being encoded. */
struct content {
    uint32_t made, counted; /* number of codes */
    uint32_t counts[TABLES][TW_RANS_SYMBOLS_MAX];
    /* set of the codes for which add_unseen has ensured a nonzero count */
    struct tw_ecsq_set seen;
    struct tw_ecsq_signs signs;
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
    float most[PIECE] = {0}, max = 0.0f;
    const size_t whole = count - count % PIECE;
    for (size_t at = 0; at < whole; at += PIECE) {
        for (size_t i = 0; i < PIECE; i++) {
            const float size = fabsf(x[at + i]);
            most[i] = size > most[i] ? size : most[i];
        }
    }
    for (size_t i = whole; i < count; i++) most[0] = fabsf(x[i]) > most[0] ? fabsf(x[i]) : most[0];
    for (size_t i = 0; i < PIECE; i++) max = most[i] > max ? most[i] : max;
    return max;
}

/* Returns the rms of x[count], whose largest magnitude is `max`. Partial sums have a fixed order,
 * the same in every vector width. They are in units of max, so that their squares fit float32. */
static float rms_of(const float *x, uint32_t count, float max) {
    const struct tw_block_unit unit = tw_block_unit(tw_ecsq_bits(max));
    float sums[PIECE] = {0};
    double sum = 0.0;
    const size_t whole = count - count % PIECE;
    for (size_t at = 0; at < whole; at += PIECE) {
        for (size_t i = 0; i < PIECE; i++) {
            const float part = x[at + i] * unit.into;
            sums[i] += part * part;
        }
    }
    for (size_t i = whole; i < count; i++) {
        const float part = x[i] * unit.into;
        sums[i % PIECE] += part * part;
    }
    for (size_t i = 0; i < PIECE; i++) sum += (double)sums[i];
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
    if (max >= TOO_LARGE) return TW_CORRUPT;
    const float rms = rms_of(x, count, max);
    const uint16_t scale = tw_bf16_from_f32(scale_of(w->ecsq, rms, max));
    if (scale >= TW_ECSQ_SCALE_END) return TW_CORRUPT; /* this also refuses a block with a NaN */
    const bool is_zero = scale < TW_ECSQ_SCALE_MIN;
    const float size = is_zero ? 0.0f : max / tw_bf16_to_f32(scale);
    w->peak = size > w->peak ? size : w->peak;
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
    w->step = tw_ecsq_choose(w->ecsq, &source);
    return TW_OK;
}

static struct tw_ecsq_quantiser quantiser_of(const struct writer *w, size_t b) {
    return (struct tw_ecsq_quantiser){
        .inverse = 1.0f / tw_ecsq_unit(tw_ecsq_scale(w->scales, b), w->step.c),
        .bias = tw_ecsq_bias(w->ecsq),
        .limit = tw_ecsq_limit(w->ecsq),
        .size_bits = w->ecsq->size_bits,
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
        tw_ecsq_set_add(&content->seen, codes[i]);
    }
}

static bool are_seen(const struct content *content, const uint8_t *codes, uint32_t count) {
    bool are = true;
    for (uint32_t i = 0; i < count; i += TW_ECSQ_PIECE) {
        are &= tw_ecsq_set_has(&content->seen, codes + i);
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
static void put_large(struct writer *w, const struct tw_ecsq_quantiser *q, const float *x,
                      uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        const int32_t a = tw_ecsq_size(q, x[i]);
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
    const struct tw_ecsq_quantiser q = quantiser_of(w, b);
    const int32_t more = w->step.shift_more, one = w->step.shift_one - more;
    const int32_t limit = (int32_t)q.limit;
    const float s = tw_ecsq_unit(scale, w->step.c);
    for (uint32_t i = 0; i < count; i++) {
        const int32_t a = tw_ecsq_size(&q, x[i]);
        const int32_t shift = (more & -(a < limit)) + (one & -(a == 1)), has = -(a > 0);
        const float size = (float)((256 * a + shift) & has) * 0x1p-8f * s;
        const uint32_t sign = tw_ecsq_bits(x[i]) & (uint32_t)has & 1u << 31;
        x[i] -= tw_ecsq_float(tw_ecsq_bits(size) | sign);
    }
}

/* Encodes block b to codes. Counting codes is limited by memory latency, computing them by
 * arithmetic. The two overlap, because counting reads codes that were stored LAG codes before. */
static void make_codes(struct writer *w, size_t b, struct content *content) {
    const struct tw_ecsq_quantiser q = quantiser_of(w, b);
    const float *const x = w->x + b * BLOCK;
    const uint32_t count = tw_ecsq_count(w->n, b), whole = count - count % MADE;
    const uint32_t in_group = MADE / q.in_code;
    struct tw_ecsq_signs signs = content->signs;
    for (uint32_t i = 0; i < whole; i += MADE) {
        fetch_next(x + i);
        if (tw_ecsq_make(&q, x + i, content->codes + content->made, &signs)) {
            put_large(w, &q, x + i, MADE);
        }
        content->made += in_group;
        if (content->made - content->counted > LAG) count_codes(content, in_group);
    }
    if (tw_ecsq_make_some(&q, x + whole, count - whole, content->codes + content->made, &signs)) {
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
    tw_ecsq_signs_put(&content->signs, 0, (8 - content->signs.rest_count) % 8);
    const size_t bytes = (size_t)(content->signs.at - content->sign_bytes);
    TW_ASSERT((size_t)(w->end - w->at) >= bytes);
    memcpy(w->at, content->sign_bytes, bytes);
    w->at += bytes;
}

static enum tw_status put_stream(struct writer *w, size_t begin, size_t end) {
    struct content content;
    uint8_t *const head = w->at;
    content.made = content.counted = 0;
    content.signs = (struct tw_ecsq_signs){.at = content.sign_bytes};
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
    while (content.counted < content.made) count_codes(&content, MADE / w->ecsq->in_code);
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
    tw_put_u16(dst, (uint16_t)w.step.c);
    dst[2] = (uint8_t)w.step.shift_one;
    dst[3] = (uint8_t)w.step.shift_more;
    for (size_t b = 0; b < blocks; b = tw_ecsq_stream_end(ecsq, b, blocks)) {
        TW_TRY(put_stream(&w, b, tw_ecsq_stream_end(ecsq, b, blocks)));
    }
    *bytes_out = (size_t)(w.at - dst);
    return TW_OK;
}
