/* codec_ecsq.c - defines the ecsq codecs (struct tw_codec). */
#include "compress/codec_ecsq.h"

#include "base/limits.h"
#include "compress/ecsq/ecsq.h"

/* Returns the size of the longest payload in bytes: raw codes, signs, and sizes written in full. An
 * element whose size is written in full is at least 3.2 * rms, so these are fewer than a tenth of a
 * block. */
static size_t ecsq_bound(const struct tw_ecsq *ecsq, size_t n) {
    if (n == 0) return 0;
    const size_t blocks = tw_ecsq_blocks(n), in_stream = tw_ecsq_stream_end(ecsq, 0, SIZE_MAX);
    const size_t streams = blocks / in_stream + (blocks % in_stream != 0);
    return TW_ECSQ_HEAD_BYTES + 2 * blocks + (TW_ECSQ_STREAM_HEAD_BYTES + 2) * streams +
           n / ecsq->in_code + n / 8 + n / 5;
}

static enum tw_status ecsq_encode(const struct tw_ecsq *ecsq, struct tw_codec_source source,
                                  uint8_t *dst, size_t capacity, size_t *bytes_out) {
    const size_t bound = ecsq_bound(ecsq, source.n);
    if (source.n > TW_PAYLOAD_BYTES_MAX || capacity < bound) return TW_LIMIT;
    return TW_COMPRESS_ISA(ecsq_encode)(ecsq, source, dst, bound, bytes_out);
}

static enum tw_status ecsq_check(const struct tw_ecsq *ecsq, const uint8_t *src, size_t bytes,
                                 size_t n) {
    return TW_COMPRESS_ISA(ecsq_decode)(ecsq, src, bytes, n, NULL);
}

static enum tw_status ecsq_decode(const struct tw_ecsq *ecsq, const uint8_t *src, size_t bytes,
                                  size_t n, struct tw_codec_sink sink) {
    return TW_COMPRESS_ISA(ecsq_decode)(ecsq, src, bytes, n, &sink);
}

/* bits per element of each codec, times 256 */
enum { BITS_4 = 1024, BITS_3 = 768, BITS_2 = 512, BITS_1 = 256, BITS_05 = 128 };

static const struct tw_ecsq ecsq4 = {
    .bits_256 = BITS_4, .size_bits = 5, .in_code = 1, .step_min = 1 << 9};
static const struct tw_ecsq ecsq3 = {
    .bits_256 = BITS_3, .size_bits = 4, .in_code = 2, .step_min = 1 << 10};
static const struct tw_ecsq ecsq2 = {
    .bits_256 = BITS_2, .size_bits = 3, .in_code = 2, .step_min = 1 << 11};
static const struct tw_ecsq ecsq1 = {
    .bits_256 = BITS_1, .size_bits = 3, .in_code = 2, .dead_256 = 40, .step_min = 1 << 11};
static const struct tw_ecsq ecsq05 = {
    .bits_256 = BITS_05, .size_bits = 3, .in_code = 2, .dead_256 = 52, .step_min = 1 << 11};

const struct tw_ecsq *TW_COMPRESS_ISA(ecsq_row)(enum tw_codec_id id) {
    if (id == TW_CODEC_ECSQ4) return &ecsq4;
    if (id == TW_CODEC_ECSQ3) return &ecsq3;
    if (id == TW_CODEC_ECSQ2) return &ecsq2;
    return id == TW_CODEC_ECSQ1 ? &ecsq1 : &ecsq05;
}

static enum tw_status encode_at(enum tw_codec_id id, uint32_t bits_256,
                                struct tw_codec_source source, uint8_t *dst, size_t capacity,
                                size_t *bytes_out) {
    struct tw_ecsq ecsq = *TW_COMPRESS_ISA(ecsq_row)(id);
    ecsq.bits_256 = bits_256;
    return ecsq_encode(&ecsq, source, dst, capacity, bytes_out);
}

TW_CODEC_ROW(ecsq, ecsq4, ECSQ4, .bits = BITS_4 / 256.0, .encode_at = encode_at)
TW_CODEC_ROW(ecsq, ecsq3, ECSQ3, .bits = BITS_3 / 256.0, .encode_at = encode_at)
TW_CODEC_ROW(ecsq, ecsq2, ECSQ2, .bits = BITS_2 / 256.0, .encode_at = encode_at,
             .needs_feedback = true)
TW_CODEC_ROW(ecsq, ecsq1, ECSQ1, .bits = BITS_1 / 256.0, .encode_at = encode_at,
             .needs_feedback = true)
TW_CODEC_ROW(ecsq, ecsq05, ECSQ05, .bits = BITS_05 / 256.0, .encode_at = encode_at,
             .needs_feedback = true)
