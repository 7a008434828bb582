/* repair.h - a mutator for payloads of codecs: u8 codec, u16 elements, payload. Entropy-coded
 * payloads get a stream that ends correctly, lists of positions get all their positions, and auto
 * gets heads that match its pieces. */
#ifndef TW_TESTS_FUZZ_REPAIR_H
#define TW_TESTS_FUZZ_REPAIR_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/rng.h"
#include "compress/codec.h"
#include "compress/codec_auto.h"
#include "compress/ecsq.h"
#include "compress/rans.h"
#include "compress/rice.h"
#include "tests/fuzz/decode.h"

/* Elements: two blocks of any codec and a part of one. */
enum { REPAIR_PREFIX_BYTES = 3, REPAIR_ELEMENTS_MAX = 10000 };

#ifdef TW_LIBFUZZER

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

enum { FEW = 512, CHUNK = 4096, WRITTEN_MAX = 8, PAYLOAD_MAX = 8 * REPAIR_ELEMENTS_MAX };

/* ---- entropy coding ---------------------------------------------------------------------------
 */

static bool is_ecsq(enum tw_codec_id id) {
    return id >= TW_CODEC_ECSQ4 && id <= TW_CODEC_ECSQ05;
}

/* Draws the codes of n elements of random sizes. About `written` elements get the escape size,
 * tw_ecsq_limit(); their value follows outside the code. */
static void draw_codes(struct tw_rng *rng, const struct tw_ecsq *ecsq, uint8_t *codes, size_t n,
                       size_t written) {
    static uint8_t sizes[REPAIR_ELEMENTS_MAX + 1];
    const uint32_t limit = tw_ecsq_limit(ecsq), in_code = ecsq->in_code;
    const uint64_t spread = 1 + tw_rng_below(rng, limit);
    for (size_t i = 0; i < n; i++) sizes[i] = (uint8_t)tw_rng_below(rng, spread);
    for (size_t i = 0; i < written; i++) sizes[tw_rng_below(rng, n)] = (uint8_t)limit;
    sizes[n] = 0;
    for (size_t i = 0; i < tw_ecsq_codes(ecsq, (uint32_t)n); i++) {
        codes[i] = in_code == 1
                       ? sizes[i]
                       : (uint8_t)(sizes[2 * i] | sizes[2 * i + 1] << ecsq->magnitude_bits);
    }
}

/* Writes a random sign for every nonzero size in n codes. Returns the number of bytes. */
static size_t put_signs(struct tw_rng *rng, const struct tw_ecsq *ecsq, const uint8_t *codes,
                        size_t n, uint8_t *to) {
    size_t bits = 0;
    for (size_t i = 0; i < n; i++) {
        for (uint32_t size = codes[i]; size != 0; size >>= ecsq->magnitude_bits) {
            if ((size & tw_ecsq_limit(ecsq)) == 0) continue;
            if (bits % 8 == 0) to[bits / 8] = 0;
            to[bits / 8] |= (uint8_t)(tw_rng_below(rng, 2) << bits % 8);
            bits++;
        }
    }
    return (bits + 7) / 8;
}

/* Writes the model, words and states of n symbols. Returns the number of bytes, or 0 if all symbols
 * are equal. */
static size_t put_stream(const uint8_t *symbols, size_t n, uint8_t *to) {
    static struct tw_rans_encoder encoder;
    static uint8_t words[2 * REPAIR_ELEMENTS_MAX + TW_RANS_WORDS_SLACK];
    uint32_t counts[TW_RANS_SYMBOLS_MAX] = {0};
    struct tw_rans_model model;
    for (size_t i = 0; i < n; i++) counts[symbols[i]]++;
    if (!tw_rans_model_fit(&model, counts, (uint32_t)n)) return 0;
    const size_t at = tw_rans_model_encode(&model, to);
    tw_rans_encoder_init(&encoder, &model);
    const size_t bytes = tw_rans_form(0)->encode(&encoder, symbols, n, words + sizeof(words));
    tw_put_u32(to + at, (uint32_t)bytes / 2);
    tw_rans_encoder_finish(&encoder, to + at + 4);
    memcpy(to + at + 4 + TW_RANS_STATES_BYTES, words + sizeof(words) - bytes, bytes);
    return at + 4 + TW_RANS_STATES_BYTES + bytes;
}

/* Rewrites the only stream of an ecsq payload, after the sizes that are written out. Returns the
 * payload's size. */
static size_t repair_ecsq(enum tw_codec_id id, uint8_t *payload, size_t size, size_t n,
                          struct tw_rng *rng) {
    static uint8_t codes[REPAIR_ELEMENTS_MAX];
    const struct tw_ecsq *const ecsq = tw_base_ecsq_row(id);
    uint8_t *const scales = payload + TW_ECSQ_HEAD_BYTES;
    uint8_t *const kind = scales + 2 * tw_ecsq_blocks(n);
    if (size < (size_t)(kind - payload) + TW_ECSQ_STREAM_HEAD_BYTES + 2 * WRITTEN_MAX) return size;
    const uint32_t active = tw_ecsq_active(scales, n, 0, tw_ecsq_blocks(n));
    if (active == 0) return size;
    const uint32_t codes_count = tw_ecsq_codes(ecsq, active);
    const size_t written = tw_rng_below(rng, WRITTEN_MAX + 1);
    kind[0] = TW_ECSQ_CODED;
    tw_put_u32(kind + 1, (uint32_t)written);
    draw_codes(rng, ecsq, codes, active, written);
    uint8_t *to = kind + TW_ECSQ_STREAM_HEAD_BYTES + 2 * written;
    size_t bytes = put_stream(codes, codes_count, to);
    if (bytes == 0 || tw_rng_below(rng, 8) == 0) {
        const bool is_one = tw_rng_below(rng, 4) == 0;
        kind[0] = is_one ? TW_ECSQ_ONE : TW_ECSQ_RAW;
        if (is_one) memset(codes, codes[0], codes_count);
        bytes = is_one ? 1 : codes_count;
        memcpy(to, codes, bytes);
    }
    to += bytes;
    return (size_t)(to - payload) + put_signs(rng, ecsq, codes, codes_count, to);
}

/* Draws a random ecsq payload. Returns its size. */
static size_t draw_ecsq(enum tw_codec_id id, uint8_t *payload, size_t n, struct tw_rng *rng) {
    const size_t head = TW_ECSQ_HEAD_BYTES + 2 * tw_ecsq_blocks(n);
    const uint32_t limit = tw_ecsq_limit(tw_base_ecsq_row(id)),
                   step = (uint32_t)TW_ECSQ_STEP_ONE << tw_rng_below(rng, 4);
    for (size_t i = 0; i < head; i++) payload[i] = (uint8_t)tw_rng_below(rng, 256);
    tw_put_u16(payload, (uint16_t)step);
    for (size_t b = 0; b < tw_ecsq_blocks(n); b++) {
        const bool is_empty = tw_rng_below(rng, 4) == 0;
        const uint64_t scale =
            TW_ECSQ_SCALE_MIN + tw_rng_below(rng, TW_ECSQ_SCALE_END - TW_ECSQ_SCALE_MIN);
        tw_put_u16(payload + TW_ECSQ_HEAD_BYTES + 2 * b, is_empty ? 0 : (uint16_t)scale);
    }
    if (tw_ecsq_active(payload + TW_ECSQ_HEAD_BYTES, n, 0, tw_ecsq_blocks(n)) == 0) return head;
    for (size_t i = 0; i < WRITTEN_MAX; i++)
        tw_put_u16(payload + head + TW_ECSQ_STREAM_HEAD_BYTES + 2 * i, (uint16_t)limit);
    return repair_ecsq(id, payload, head + TW_ECSQ_STREAM_HEAD_BYTES + 2 * WRITTEN_MAX, n, rng);
}

/* ---- lists of positions ---------------------------------------------------------------------- */

/* Writes `count` of `elements` positions in ascending order, each followed by `signs` bits. */
static void put_positions(struct tw_bits_writer *to, uint32_t elements, uint32_t count, unsigned r,
                          unsigned signs, struct tw_rng *rng) {
    uint32_t next = 0;
    for (uint32_t i = 0; i < elements && count > 0; i++) {
        if (tw_rng_below(rng, elements - i) >= count) continue;
        tw_bits_put_gap(to, i - next, r);
        if (signs > 0) tw_bits_put(to, (uint32_t)tw_rng_below(rng, 2), signs);
        next = i + 1;
        count--;
    }
}

static uint32_t chunk_elements(size_t n, size_t chunk) {
    const size_t left = n - chunk * CHUNK;
    return (uint32_t)(left < CHUNK ? left : CHUNK);
}

static size_t draw_topk(enum tw_codec_id id, uint8_t *payload, size_t n, struct tw_rng *rng) {
    const uint32_t k = id == TW_CODEC_TOPK256 ? 256 : id == TW_CODEC_TOPK64 ? 64 : 32;
    const unsigned r = id == TW_CODEC_TOPK256 ? 3 : id == TW_CODEC_TOPK64 ? 5 : 6;
    const size_t chunks = (n + CHUNK - 1) / CHUNK;
    struct tw_bits_writer to = {.at = payload + 2 * chunks};
    for (size_t c = 0; c < chunks; c++) {
        const uint32_t elements = chunk_elements(n, c);
        const uint16_t mean = (uint16_t)(tw_rng_below(rng, 4) * tw_rng_below(rng, 0x2A80));
        tw_put_u16(payload + 2 * c, mean);
        if (mean != 0) put_positions(&to, elements, (k * elements + CHUNK - 1) / CHUNK, r, 1, rng);
    }
    tw_bits_pad(&to);
    return (size_t)(to.at - payload);
}

static size_t draw_sparse8(uint8_t *payload, size_t n, struct tw_rng *rng) {
    uint8_t *at = payload;
    for (size_t c = 0; c * CHUNK < n; c++) {
        const uint32_t elements = chunk_elements(n, c);
        const uint32_t some = (uint32_t)tw_rng_below(rng, elements / 16 + 2);
        const uint32_t count = tw_rng_below(rng, 8) == 0 ? elements : some % (elements + 1);
        unsigned r = 0;
        while (count > 0 && 32 * (2 * elements - count) >= (133 * count) << r) r++;
        tw_put_u16(at, (uint16_t)tw_rng_below(rng, 0x7B80));
        tw_put_u16(at + 2, (uint16_t)count);
        struct tw_bits_writer to = {.at = at + 4};
        if (count < elements) put_positions(&to, elements, count, r, 0, rng);
        tw_bits_pad(&to);
        at = to.at;
        for (uint32_t i = 0; i < count; i++) *at++ = (uint8_t)(1 + tw_rng_below(rng, 127));
    }
    return (size_t)(at - payload);
}

/* ---- all together ---------------------------------------------------------------------------- */

/* Draws a payload that the codec accepts. For fixed-rate codecs, their own encoder makes it. */
static size_t draw_payload(enum tw_codec_id id, uint8_t *payload, size_t n, struct tw_rng *rng) {
    static float x[REPAIR_ELEMENTS_MAX];
    size_t bytes = 0;
    if (n == 0) return 0;
    if (is_ecsq(id)) return draw_ecsq(id, payload, n, rng);
    if (id >= TW_CODEC_TOPK256 && id <= TW_CODEC_TOPK32) return draw_topk(id, payload, n, rng);
    if (id == TW_CODEC_SPARSE8) return draw_sparse8(payload, n, rng);
    for (size_t i = 0; i < n; i++) x[i] = (float)(tw_rng_unit(rng) - 0.5);
    TW_ASSERT(tw_codec_get(id)->encode(x, n, payload, PAYLOAD_MAX, &bytes) == TW_OK);
    return bytes;
}

/* Draws one or more pieces, each in a random codec of the ladder. */
static size_t draw_auto(uint8_t *payload, size_t n, struct tw_rng *rng) {
    const size_t most = n < TW_AUTO_BLOCK ? 1 : n / TW_AUTO_BLOCK;
    const size_t count = 1 + tw_rng_below(rng, most);
    uint8_t *head = payload + TW_AUTO_HEAD_BYTES, *to = head + count * TW_AUTO_PIECE_HEAD_BYTES;
    size_t left = n;
    if (n == 0) return 0;
    tw_put_u32(payload, (uint32_t)count);
    for (size_t i = 0; i < count; i++, head += TW_AUTO_PIECE_HEAD_BYTES) {
        const size_t spare = left - (count - i) * TW_AUTO_BLOCK * (count > 1);
        const size_t elements =
            i + 1 == count ? left : TW_AUTO_BLOCK + tw_rng_below(rng, spare + 1);
        const uint32_t rung = (uint32_t)tw_rng_below(rng, TW_AUTO_RUNGS);
        const size_t bytes = draw_payload(tw_auto_rung(rung)->id, to, elements, rng);
        tw_put_u32(head, (uint32_t)elements | rung << 24);
        tw_put_u32(head + 4, (uint32_t)bytes);
        to += bytes;
        left -= elements;
    }
    return (size_t)(to - payload);
}

static size_t draw(enum tw_codec_id id, uint8_t *payload, size_t n, struct tw_rng *rng) {
    return id == TW_CODEC_AUTO ? draw_auto(payload, n, rng) : draw_payload(id, payload, n, rng);
}

/* Redraws half of the inputs. Of the ecsq inputs, another quarter is repaired. Three
 * in four inputs have few elements, which is many times as fast and suffices for most cases. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    static uint8_t payload[PAYLOAD_MAX];
    struct tw_rng rng;
    tw_rng_seed(&rng, seed);
    size = LLVMFuzzerMutate(data, size, max_size);
    if (size < REPAIR_PREFIX_BYTES || size > PAYLOAD_MAX) return size;
    const uint64_t how = tw_rng_below(&rng, 16), few = how % 4;
    const enum tw_codec_id id = codec_of(data[0]);
    const size_t wanted = tw_get_u16(data + 1) % REPAIR_ELEMENTS_MAX;
    const size_t n = few != 0 ? wanted % FEW : wanted;
    tw_put_u16(data + 1, (uint16_t)n);
    size_t bytes = size - REPAIR_PREFIX_BYTES;
    memcpy(payload, data + REPAIR_PREFIX_BYTES, bytes);
    if (how < 8) bytes = draw(id, payload, n, &rng);
    if (how >= 12 && is_ecsq(id)) bytes = repair_ecsq(id, payload, bytes, n, &rng);
    if (bytes > max_size - REPAIR_PREFIX_BYTES) return size;
    memcpy(data + REPAIR_PREFIX_BYTES, payload, bytes);
    return REPAIR_PREFIX_BYTES + bytes;
}

#endif
#endif
