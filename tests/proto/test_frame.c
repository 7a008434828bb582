/* Tests of proto/frame.c. */
#include "tests/test.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "base/rng.h"
#include "proto/frame.h"

enum { SEED = 20240401, FRAMES = 40, STREAM_BYTES = 1 << 20 };

static struct tw_rng rng;
static struct tw_error err;
static uint8_t stream[STREAM_BYTES];
static size_t stream_bytes;
static struct tw_frame sent[FRAMES];

static int seed(void **state) {
    tw_rng_seed(&rng, SEED);
    return 0;
}

#define FACT(name) TEST_IN(seed, NULL, name)

/* Appends a frame of random bytes to the stream. */
static void send(struct tw_frame *frame, uint16_t kind, uint32_t body_bytes) {
    uint8_t *header = stream + stream_bytes, *body = header + TW_FRAME_HEADER_BYTES;
    assert_true(stream_bytes + TW_FRAME_HEADER_BYTES + body_bytes <= STREAM_BYTES);
    for (uint32_t i = 0; i < body_bytes; i++) body[i] = (uint8_t)tw_rng_next(&rng);
    *frame = (struct tw_frame){.kind = kind,
                               .stream = (uint32_t)tw_rng_next(&rng),
                               .body_bytes = body_bytes,
                               .body = body};
    tw_frame_header(header, kind, frame->stream, body, body_bytes);
    stream_bytes += TW_FRAME_HEADER_BYTES + body_bytes;
}

/* Takes each complete frame from the reader and compares it with the frame that was sent. */
static unsigned take(struct tw_reader *reader, unsigned received) {
    struct tw_frame frame;
    enum tw_status status;
    while ((status = tw_reader_next(reader, &frame, &err)) == TW_OK) {
        assert_true(received < FRAMES);
        assert_int_equal(frame.kind, sent[received].kind);
        assert_int_equal(frame.stream, sent[received].stream);
        assert_int_equal(frame.body_bytes, sent[received].body_bytes);
        assert_memory_equal(frame.body, sent[received].body, frame.body_bytes);
        received++;
    }
    assert_int_equal(status, TW_AGAIN);
    return received;
}

/* Feeds the stream in pieces of 1 to `piece_max` bytes. */
static unsigned feed(struct tw_reader *reader, uint64_t piece_max) {
    unsigned received = 0;
    for (size_t at = 0; at < stream_bytes;) {
        size_t space, piece = 1 + tw_rng_below(&rng, piece_max);
        uint8_t *to = tw_reader_space(reader, &space);
        assert_true(space > 0);
        if (piece > space) piece = space;
        if (piece > stream_bytes - at) piece = stream_bytes - at;
        memcpy(to, stream + at, piece);
        tw_reader_fill(reader, piece);
        at += piece;
        received = take(reader, received);
    }
    return received;
}

FACT(frames_survive_any_split) {
    enum { BODY_MAX = 1000 };
    static uint8_t buffer[TW_FRAME_HEADER_BYTES + 3 * BODY_MAX];
    for (unsigned trial = 0; trial < 300; trial++) {
        struct tw_reader reader;
        stream_bytes = 0;
        for (unsigned i = 0; i < FRAMES; i++)
            send(&sent[i], (uint16_t)tw_rng_below(&rng, 0x300),
                 (uint32_t)tw_rng_below(&rng, i % 4 == 0 ? 1 : BODY_MAX + 1));
        const size_t slack = tw_rng_below(&rng, 2 * BODY_MAX + 1);
        tw_reader_init(&reader, buffer, TW_FRAME_HEADER_BYTES + BODY_MAX + slack);
        assert_int_equal(feed(&reader, trial % 3 == 0 ? 1 : 1 + (trial * 37) % 5000), FRAMES);
    }
}

FACT(largest_chunk_fits) {
    static uint8_t buffer[TW_FRAME_HEADER_BYTES + TW_FRAME_BODY_MAX];
    struct tw_reader reader;
    stream_bytes = 0;
    send(&sent[0], TW_FRAME_CHUNK, TW_FRAME_BODY_MAX);
    send(&sent[1], TW_FRAME_CHUNK, TW_FRAME_BODY_MAX);
    tw_reader_init(&reader, buffer, sizeof(buffer));
    assert_int_equal(feed(&reader, 100000), 2);
}

/* Returns the reader's result for stream[], fed as one piece. */
static enum tw_status read_once(size_t capacity) {
    static uint8_t buffer[TW_FRAME_HEADER_BYTES + TW_FRAME_BODY_MAX];
    struct tw_reader reader;
    struct tw_frame frame;
    size_t space;
    tw_reader_init(&reader, buffer, capacity);
    uint8_t *to = tw_reader_space(&reader, &space);
    const size_t bytes = stream_bytes < space ? stream_bytes : space;
    memcpy(to, stream, bytes);
    tw_reader_fill(&reader, bytes);
    const enum tw_status first = tw_reader_next(&reader, &frame, &err);
    if (first != TW_OK && first != TW_AGAIN)
        assert_int_equal(tw_reader_next(&reader, &frame, &err), first); /* final */
    return first;
}

FACT(one_wrong_bit_anywhere_is_noticed) {
    stream_bytes = 0;
    send(&sent[0], 7, 50);
    assert_int_equal(read_once(1000), TW_OK);
    for (size_t bit = 0; bit < stream_bytes * 8; bit++) {
        stream[bit / 8] ^= (uint8_t)(1 << bit % 8);
        const enum tw_status status = read_once(1000);
        assert_int_not_equal(status, TW_OK);
        /* Only a changed length may make the reader wait for more bytes. */
        if (status == TW_AGAIN) assert_in_range(bit / 8, 8, 11);
        stream[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

FACT(length_is_judged_before_the_body_arrives) {
    stream_bytes = 0;
    send(&sent[0], 7, 100);
    stream_bytes = TW_FRAME_HEADER_BYTES;
    assert_int_equal(read_once(TW_FRAME_HEADER_BYTES + 100), TW_AGAIN);
    assert_int_equal(read_once(TW_FRAME_HEADER_BYTES + 99), TW_LIMIT);
    tw_put_u32(stream + 8, UINT32_MAX);
    assert_int_equal(read_once(TW_FRAME_HEADER_BYTES + TW_FRAME_BODY_MAX), TW_LIMIT);
    tw_put_u32(stream + 8, TW_CONTROL_BYTES_MAX + 1); /* larger than this kind allows */
    assert_int_equal(read_once(TW_FRAME_HEADER_BYTES + TW_FRAME_BODY_MAX), TW_LIMIT);
    tw_put_u16(stream + 6, TW_FRAME_CHUNK);
    assert_int_equal(read_once(TW_FRAME_HEADER_BYTES + TW_FRAME_BODY_MAX), TW_AGAIN);
    tw_put_u16(stream + 6, TW_FRAME_HELLO);
    assert_int_equal(read_once(TW_FRAME_HEADER_BYTES + TW_FRAME_BODY_MAX), TW_LIMIT);
}

/* Changes one header byte, repairs the checksum, and reads the frame. */
static enum tw_status read_with(size_t at, uint8_t value) {
    stream_bytes = 0;
    send(&sent[0], 7, 10);
    stream[at] = value;
    const struct tw_range ranges[] = {{stream, 24}, {stream + TW_FRAME_HEADER_BYTES, 10}};
    tw_put_u64(stream + 24, tw_xxh64_ranges(ranges, 2));
    return read_once(1000);
}

FACT(header_is_checked_even_when_its_checksum_is_right) {
    assert_int_equal(read_with(0, 'T'), TW_OK);
    assert_int_equal(read_with(0, 'X'), TW_PROTO);
    assert_int_equal(read_with(4, 2), TW_VERSION);
    assert_int_equal(read_with(4, 0), TW_VERSION);
    assert_int_equal(read_with(5, 1), TW_PROTO);
    assert_int_equal(read_with(12, 1), TW_PROTO);
    assert_int_equal(read_with(15, 1), TW_PROTO);
    assert_int_equal(read_with(20, 1), TW_PROTO);
    assert_int_equal(read_with(23, 128), TW_PROTO);
    assert_int_equal(read_with(16, 99), TW_OK);
}

FACT(chunk_headers_make_a_whole_frame) {
    const uint8_t bytes[] = "a piece of a payload";
    struct tw_id payload, back;
    struct tw_reader reader;
    struct tw_frame frame;
    uint8_t buffer[256];
    const uint8_t *inside;
    uint32_t idx, size;
    size_t space;
    memset(&payload, 0x5a, sizeof(payload));
    tw_reader_init(&reader, buffer, sizeof(buffer));
    uint8_t *to = tw_reader_space(&reader, &space);
    tw_frame_chunk_headers(to, &payload, 3, bytes, sizeof(bytes));
    memcpy(to + TW_FRAME_CHUNK_HEADERS_BYTES, bytes, sizeof(bytes));
    tw_reader_fill(&reader, TW_FRAME_CHUNK_HEADERS_BYTES + sizeof(bytes));
    assert_int_equal(tw_reader_next(&reader, &frame, &err), TW_OK);
    assert_int_equal(tw_frame_chunk_decode(&frame, &back, &idx, &inside, &size, &err), TW_OK);
    assert_memory_equal(&payload, &back, sizeof(payload));
    assert_int_equal(idx, 3);
    assert_int_equal(size, sizeof(bytes));
    assert_memory_equal(inside, bytes, sizeof(bytes));
}

FACT(malformed_chunks_are_refused) {
    uint8_t body[TW_CHUNK_HEADER_BYTES + 1] = {0};
    struct tw_frame frame = {.kind = TW_FRAME_CHUNK, .body_bytes = sizeof(body), .body = body};
    struct tw_id payload;
    const uint8_t *inside;
    uint32_t idx, size;
    assert_int_equal(tw_frame_chunk_decode(&frame, &payload, &idx, &inside, &size, &err), TW_OK);
    frame.body_bytes--;
    assert_int_equal(tw_frame_chunk_decode(&frame, &payload, &idx, &inside, &size, &err), TW_PROTO);
    frame.body_bytes++;
    body[36] = 1;
    assert_int_equal(tw_frame_chunk_decode(&frame, &payload, &idx, &inside, &size, &err), TW_PROTO);
    body[36] = 0;
    tw_put_u32(body + 32, TW_CHUNKS_MAX);
    assert_int_equal(tw_frame_chunk_decode(&frame, &payload, &idx, &inside, &size, &err), TW_PROTO);
    tw_put_u32(body + 32, 0);
    frame.kind = 7;
    assert_int_equal(tw_frame_chunk_decode(&frame, &payload, &idx, &inside, &size, &err), TW_PROTO);
}

int main(void) {
    print_message("seed %d\n", SEED);
    return test_run(NULL, NULL);
}
