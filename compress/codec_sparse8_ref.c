/* codec_sparse8_ref.c - sparse8 as specified in codec_sparse8.h, with bits written one by one. */
#include <string.h>

#include "base/bytes.h"
#include "base/limits.h"
#include "compress/codec_ref.h"
#include "compress/codec_sparse8.h"
#include "compress/ref.h"

enum { CHUNK = TW_SPARSE8_CHUNK, HEAD_BYTES = 4 };

static uint32_t count_of(size_t n, size_t begin) {
    return (uint32_t)(n - begin < CHUNK ? n - begin : CHUNK);
}

/* Returns the least r for which 32 * (2 * elements - count) < 133 * count * 2^r; count > 0. */
static unsigned r_of(uint32_t elements, uint32_t count) {
    unsigned r = 0;
    while (!(32 * (2 * elements - count) < 133 * count * (1u << r))) r++;
    return r;
}

/* Writes the positions of the nonzero codes. Returns the number of bytes: fewer than two bits per
 * element. */
static size_t put_positions(const int8_t *codes, uint32_t elements, uint32_t count, uint8_t *list) {
    struct tw_ref_writer to = {.dst = list};
    uint32_t next = 0;
    for (uint32_t i = 0; i < elements; i++) {
        if (codes[i] == 0) continue;
        tw_ref_put_gap(&to, i - next, r_of(elements, count));
        next = i + 1;
    }
    return (to.bits + 7) / 8;
}

/* Writes a chunk. Returns the number of bytes. */
static size_t put_chunk(const float *x, uint32_t elements, uint8_t *dst) {
    int8_t codes[CHUNK];
    uint8_t list[CHUNK];
    uint32_t count = 0;
    const float max = tw_ref_max(x, elements);
    const uint16_t scale = tw_ref_bf16_up(max / 127.0f, max);
    for (uint32_t i = 0; i < elements; i++) {
        codes[i] = (int8_t)lrintf(tw_ref_quotient(x[i], tw_bf16_to_f32(scale), max));
        count += codes[i] != 0;
    }
    const size_t list_bytes = put_positions(codes, elements, count, list);
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

enum tw_status tw_sparse8_encode_ref(const float *src, size_t n, uint8_t *dst, size_t *bytes_out) {
    *bytes_out = 0;
    if (!tw_ref_can_send(src, n)) return TW_CORRUPT;
    for (size_t begin = 0; begin < n; begin += CHUNK) {
        *bytes_out += put_chunk(src + begin, count_of(n, begin), dst + *bytes_out);
    }
    return TW_OK;
}

/* Reads positions[count]: those of the codes that follow. */
static bool read_positions(struct tw_ref_reader *from, uint32_t elements, uint32_t count,
                           uint32_t *positions) {
    uint32_t next = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t gap = 0;
        if (count < elements &&
            !tw_ref_get_gap(from, r_of(elements, count), elements - next, &gap)) {
            return false;
        }
        positions[i] = next + gap;
        next += gap + 1;
    }
    return tw_ref_get_padding(from);
}

/* Decodes a chunk to dst[elements], and moves *at to the next chunk. */
static bool read_chunk(const uint8_t *src, size_t bytes, size_t *at, float *dst,
                       uint32_t elements) {
    if (bytes - *at < HEAD_BYTES) return false;
    const float scale = tw_bf16_to_f32(tw_get_u16(src + *at));
    const uint32_t count = tw_get_u16(src + *at + 2);
    uint32_t positions[CHUNK];
    struct tw_ref_reader from = {.src = src, .at = 8 * (*at + HEAD_BYTES), .end = 8 * bytes};
    if (signbit(scale) != 0 || !(scale < 0x1p120f) || count > elements) return false;
    if (!read_positions(&from, elements, count, positions)) return false;
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

static bool read_all(const uint8_t *src, size_t bytes, float *dst, size_t n) {
    size_t at = 0;
    for (size_t begin = 0; begin < n; begin += CHUNK) {
        if (!read_chunk(src, bytes, &at, dst + begin, count_of(n, begin))) return false;
    }
    return at == bytes;
}

enum tw_status tw_sparse8_decode_ref(const uint8_t *src, size_t bytes, float *dst, size_t n) {
    if (n > TW_PAYLOAD_BYTES_MAX) return TW_CORRUPT;
    return read_all(src, bytes, dst, n) ? TW_OK : TW_CORRUPT;
}
