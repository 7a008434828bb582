/* fuzz_reader.c - arbitrary bytes, split anywhere, through the frame reader and its decoders.
 *
 * Input: u64 seed of the splits, u8 choice of buffer size, then the stream. The stream is read
 * twice with different splits; both must give the same frames and the same end. The mutator repairs
 * lengths and checksums, which random bytes would never pass. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/rng.h"
#include "proto/control.h"
#include "proto/frame.h"

enum { PREFIX_BYTES = 9, CHECKSUM_AT = 24 };

static const size_t capacities[] = {
    32, 64, 300, 4096, 32 + TW_CONTROL_BYTES_MAX, 32 + TW_FRAME_BODY_MAX};
enum { CAPACITIES_COUNT = sizeof(capacities) / sizeof(capacities[0]) };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Hash of all frames and results of one reading. */
static uint64_t fold(uint64_t seen, const void *bytes, size_t size) {
    const struct tw_range ranges[] = {{&seen, sizeof(seen)}, {bytes, size}};
    return tw_xxh64_ranges(ranges, 2);
}

static uint64_t use_frame(const struct tw_frame *frame, size_t capacity, uint64_t seen) {
    struct tw_message message;
    struct tw_id payload;
    struct tw_error err;
    const uint8_t *bytes;
    uint32_t idx, count;
    TW_ASSERT(frame->body_bytes <= capacity - TW_FRAME_HEADER_BYTES);
    TW_ASSERT(frame->body_bytes <= tw_frame_body_max(frame->kind));
    if (frame->kind == TW_FRAME_CHUNK) {
        if (tw_frame_chunk_decode(frame, &payload, &idx, &bytes, &count, &err) == TW_OK) {
            TW_ASSERT(count <= TW_CHUNK_BYTES_MAX);
            seen = fold(seen, bytes, count);
        }
    } else if (tw_control_decode(frame->kind, frame->body, frame->body_bytes, &message, &err) ==
               TW_OK) {
        TW_ASSERT(tw_message_check(&message, NULL) == TW_OK);
        seen++;
    }
    seen = fold(seen, &frame->kind, sizeof(frame->kind));
    seen = fold(seen, &frame->stream, sizeof(frame->stream));
    return fold(seen, frame->body, frame->body_bytes);
}

static uint64_t read_all(const uint8_t *stream, size_t size, size_t capacity, uint64_t seed) {
    static uint8_t buffer[32 + TW_FRAME_BODY_MAX];
    struct tw_reader reader;
    struct tw_error err;
    struct tw_rng rng;
    uint64_t seen = 0;
    enum tw_status status = TW_AGAIN;
    size_t taken = 0, at = 0;
    tw_rng_seed(&rng, seed);
    tw_reader_init(&reader, buffer, capacity);
    const uint64_t piece_max = seed % 4 == 0 ? 1 : seed % 4 == 1 ? 40 : 1 << 20;
    while (at < size && status == TW_AGAIN) {
        size_t space, piece = 1 + tw_rng_below(&rng, piece_max);
        uint8_t *to = tw_reader_space(&reader, &space);
        TW_ASSERT(space > 0);
        if (piece > space) piece = space;
        if (piece > size - at) piece = size - at;
        memcpy(to, stream + at, piece);
        tw_reader_fill(&reader, piece);
        at += piece;
        struct tw_frame frame;
        while ((status = tw_reader_next(&reader, &frame, &err)) == TW_OK) {
            taken += TW_FRAME_HEADER_BYTES + frame.body_bytes;
            TW_ASSERT(taken <= at);
            seen = use_frame(&frame, capacity, seen);
        }
    }
    return fold(seen, &status, sizeof(status));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < PREFIX_BYTES) return 0;
    const uint64_t seed = tw_get_u64(data);
    const size_t capacity = capacities[data[8] % CAPACITIES_COUNT];
    const uint64_t first = read_all(data + PREFIX_BYTES, size - PREFIX_BYTES, capacity, seed);
    const uint64_t second = read_all(data + PREFIX_BYTES, size - PREFIX_BYTES, capacity, seed + 1);
    TW_ASSERT(first == second);
    return 0;
}

#ifdef TW_LIBFUZZER

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

/* Usually makes the bytes at `frame` a valid frame. Returns its size. */
static size_t repair(uint8_t *frame, size_t size, struct tw_rng *rng) {
    static const uint8_t magic[] = {'T', 'W', 'F', '1', TW_WIRE_VERSION, 0};
    const size_t room = size - TW_FRAME_HEADER_BYTES;
    if (tw_rng_below(rng, 32) != 0) memcpy(frame, magic, sizeof(magic));
    if (tw_rng_below(rng, 32) != 0) tw_put_u32(frame + 12, 0);
    if (tw_rng_below(rng, 32) != 0) tw_put_u32(frame + 20, 0);
    if (tw_rng_below(rng, 4) == 0) {
        static const uint16_t kinds[] = {TW_FRAME_CHUNK, TW_FRAME_HELLO, TW_FRAME_GOODBYE};
        const uint64_t pick = tw_rng_below(rng, 24);
        tw_put_u16(frame + 6, pick < 3 ? kinds[pick] : (uint16_t)(pick - 3));
    }
    if (tw_get_u32(frame + 8) > room && tw_rng_below(rng, 32) != 0)
        tw_put_u32(frame + 8, (uint32_t)tw_rng_below(rng, room + 1));
    const uint32_t body_bytes = tw_get_u32(frame + 8);
    if (body_bytes > room) return size;
    const struct tw_range ranges[] = {{frame, CHECKSUM_AT},
                                      {frame + TW_FRAME_HEADER_BYTES, body_bytes}};
    if (tw_rng_below(rng, 64) != 0) tw_put_u64(frame + CHECKSUM_AT, tw_xxh64_ranges(ranges, 2));
    return TW_FRAME_HEADER_BYTES + body_bytes;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    struct tw_rng rng;
    tw_rng_seed(&rng, seed);
    size = LLVMFuzzerMutate(data, size, max_size);
    for (size_t at = PREFIX_BYTES; at + TW_FRAME_HEADER_BYTES <= size;)
        at += repair(data + at, size - at, &rng);
    return size;
}

#endif
