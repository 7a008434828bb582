/* codec_topk_ref.c - topk as specified in codec_topk.h: selection by sorting, bits written one by
 * one. */
#include <string.h>

#include "base/bytes.h"
#include "base/limits.h"
#include "compress/codec_ref.h"
#include "compress/codec_topk.h"
#include "compress/ref.h"

enum { CHUNK = TW_TOPK_CHUNK };

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

static uint32_t k_of(enum tw_codec_id id) {
    return id == TW_CODEC_TOPK256 ? 256 : id == TW_CODEC_TOPK64 ? 64 : 32;
}

/* Returns ceil(k * count / 4096). */
static uint32_t kept_of(enum tw_codec_id id, uint32_t count) {
    return (k_of(id) * count + CHUNK - 1) / CHUNK;
}

static unsigned r_of(enum tw_codec_id id) {
    return id == TW_CODEC_TOPK256 ? 3 : id == TW_CODEC_TOPK64 ? 5 : 6;
}

static uint32_t count_of(size_t n, size_t begin) {
    return (uint32_t)(n - begin < CHUNK ? n - begin : CHUNK);
}

/* Writes the bits of a chunk. Returns the mean. */
static uint16_t put_chunk(enum tw_codec_id id, const float *x, uint32_t count,
                          struct tw_ref_writer *to) {
    const uint32_t k = kept_of(id, count);
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
        tw_ref_put_gap(to, kept[i] - next, r_of(id));
        tw_ref_put(to, signbit(x[kept[i]]) != 0 ? 1 : 0, 1);
        next = (uint32_t)kept[i] + 1;
    }
    return mean;
}

enum tw_status tw_topk_encode_ref(enum tw_codec_id id, const float *src, size_t n, uint8_t *dst,
                                  size_t *bytes_out) {
    const size_t chunks = (n + CHUNK - 1) / CHUNK;
    struct tw_ref_writer to = {.dst = dst + 2 * chunks};
    if (!tw_ref_can_send(src, n)) return TW_CORRUPT;
    for (size_t c = 0; c < chunks; c++) {
        const float *const x = src + c * CHUNK;
        tw_put_u16(dst + 2 * c, put_chunk(id, x, count_of(n, c * CHUNK), &to));
    }
    *bytes_out = 2 * chunks + (to.bits + 7) / 8;
    return TW_OK;
}

static bool read_all(enum tw_codec_id id, const uint8_t *src, size_t bytes, float *dst, size_t n) {
    const size_t chunks = (n + CHUNK - 1) / CHUNK;
    if (bytes < 2 * chunks) return false;
    struct tw_ref_reader from = {.src = src + 2 * chunks, .end = 8 * (bytes - 2 * chunks)};
    for (size_t i = 0; i < n; i++) dst[i] = 0.0f;
    for (size_t c = 0; c < chunks; c++) {
        const uint32_t count = count_of(n, c * CHUNK);
        const float mean = tw_bf16_to_f32(tw_get_u16(src + 2 * c));
        uint32_t next = 0;
        if (signbit(mean) != 0 || !isfinite(mean)) return false;
        for (uint32_t i = 0; mean > 0.0f && i < kept_of(id, count); i++) {
            uint32_t gap, is_minus;
            if (!tw_ref_get_gap(&from, r_of(id), count - next, &gap)) return false;
            if (!tw_ref_get(&from, 1, &is_minus)) return false;
            dst[c * CHUNK + next + gap] = is_minus != 0 ? -mean : mean;
            next += gap + 1;
        }
    }
    return tw_ref_get_padding(&from) && from.at == from.end;
}

enum tw_status tw_topk_decode_ref(enum tw_codec_id id, const uint8_t *src, size_t bytes, float *dst,
                                  size_t n) {
    if (n > TW_PAYLOAD_BYTES_MAX) return TW_CORRUPT;
    return read_all(id, src, bytes, dst, n) ? TW_OK : TW_CORRUPT;
}
