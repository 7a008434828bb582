/* frame.c - headers of frames, the reader that splits a stream into frames, and TWIN. */
#include "proto/frame.h"

#include <string.h>

#include "base/address.h"
#include "base/assert.h"
#include "base/bytes.h"
#include "base/hash.h"

static const uint8_t magic[4] = {'T', 'W', 'F', '1'};
enum { CHECKSUM_AT = 24 };

uint32_t tw_frame_body_max(uint16_t kind) {
    if (kind == TW_FRAME_CHUNK) return TW_FRAME_BODY_MAX;
    if (kind == TW_FRAME_HELLO || kind == TW_FRAME_GOODBYE) return TW_HELLO_BYTES_MAX;
    if (kind == TW_FRAME_WELCOME) return TW_WELCOME_BYTES_MAX;
    return TW_CONTROL_BYTES_MAX;
}

/* ---- writing ------------------------------------------------------------------------------- */

static void put_header(uint8_t header[TW_FRAME_HEADER_BYTES], uint16_t kind, uint32_t stream,
                       uint32_t body_bytes) {
    TW_ASSERT(body_bytes <= tw_frame_body_max(kind));
    memset(header, 0, TW_FRAME_HEADER_BYTES);
    memcpy(header, magic, sizeof(magic));
    header[4] = TW_WIRE_VERSION;
    tw_put_u16(header + 6, kind);
    tw_put_u32(header + 8, body_bytes);
    tw_put_u32(header + 16, stream);
}

void tw_frame_header(uint8_t header[TW_FRAME_HEADER_BYTES], uint16_t kind, uint32_t stream,
                     const uint8_t *body, uint32_t body_bytes) {
    put_header(header, kind, stream, body_bytes);
    const struct tw_range ranges[] = {{header, CHECKSUM_AT}, {body, body_bytes}};
    tw_put_u64(header + CHECKSUM_AT, tw_xxh64_ranges(ranges, 2));
}

void tw_frame_chunk_headers(uint8_t headers[TW_FRAME_CHUNK_HEADERS_BYTES],
                            const struct tw_id *payload, uint32_t idx, const uint8_t *bytes,
                            uint32_t size) {
    TW_ASSERT(size > 0);
    TW_ASSERT(size <= TW_CHUNK_BYTES_MAX);
    uint8_t *chunk = headers + TW_FRAME_HEADER_BYTES;
    put_header(headers, TW_FRAME_CHUNK, 0, TW_CHUNK_HEADER_BYTES + size);
    memcpy(chunk, payload->bytes, sizeof(payload->bytes));
    tw_put_u32(chunk + 32, idx);
    tw_put_u32(chunk + 36, 0);
    const struct tw_range ranges[] = {
        {headers, CHECKSUM_AT}, {chunk, TW_CHUNK_HEADER_BYTES}, {bytes, size}};
    tw_put_u64(headers + CHECKSUM_AT, tw_xxh64_ranges(ranges, 3));
}

enum tw_status tw_frame_chunk_decode(const struct tw_frame *frame, struct tw_id *payload,
                                     uint32_t *idx, const uint8_t **bytes, uint32_t *size,
                                     struct tw_error *err) {
    if (frame->kind != TW_FRAME_CHUNK)
        return tw_fail(err, TW_PROTO, "frame kind 0x%x where a chunk belongs", frame->kind);
    if (frame->body_bytes <= TW_CHUNK_HEADER_BYTES)
        return tw_fail(err, TW_PROTO, "chunk of %u bytes with its header", frame->body_bytes);
    if (tw_get_u32(frame->body + 36) != 0)
        return tw_fail(err, TW_PROTO, "chunk: reserved bytes are not zero");
    if (tw_get_u32(frame->body + 32) >= TW_CHUNKS_MAX)
        return tw_fail(err, TW_PROTO, "chunk %u, at most %d", tw_get_u32(frame->body + 32),
                       TW_CHUNKS_MAX - 1);
    memcpy(payload->bytes, frame->body, sizeof(payload->bytes));
    *idx = tw_get_u32(frame->body + 32);
    *bytes = frame->body + TW_CHUNK_HEADER_BYTES;
    *size = frame->body_bytes - TW_CHUNK_HEADER_BYTES;
    return TW_OK;
}

/* ---- reading ------------------------------------------------------------------------------- */

void tw_reader_init(struct tw_reader *reader, uint8_t *buffer, size_t capacity) {
    TW_ASSERT(capacity >= TW_FRAME_HEADER_BYTES);
    *reader = (struct tw_reader){.buffer = buffer, .capacity = capacity};
}

size_t tw_reader_frame_bytes(const struct tw_reader *reader) {
    const size_t held = reader->end - reader->begin;
    if (held < TW_FRAME_HEADER_BYTES) return TW_FRAME_HEADER_BYTES;
    const size_t body = tw_get_u32(reader->buffer + reader->begin + 8);
    const size_t room = reader->capacity - TW_FRAME_HEADER_BYTES;
    return TW_FRAME_HEADER_BYTES + (body < room ? body : room);
}

uint8_t *tw_reader_space(struct tw_reader *reader, size_t *space) {
    /* Moves a partial frame to the front of the buffer, but only if the frame's remaining bytes
     * would not fit behind it. */
    if (reader->begin == reader->end) reader->begin = reader->end = 0;
    if (reader->begin > 0 && tw_reader_frame_bytes(reader) > reader->capacity - reader->begin) {
        reader->end -= reader->begin;
        memmove(reader->buffer, reader->buffer + reader->begin, reader->end);
        reader->begin = 0;
    }
    *space = reader->capacity - reader->end;
    return reader->buffer + reader->end;
}

void tw_reader_fill(struct tw_reader *reader, size_t bytes) {
    TW_ASSERT(bytes <= reader->capacity - reader->end);
    reader->end += bytes;
}

/* Does all checks of the header that need no body. */
static enum tw_status check_header(const uint8_t header[TW_FRAME_HEADER_BYTES], size_t room,
                                   struct tw_error *err) {
    const uint16_t kind = tw_get_u16(header + 6);
    const uint32_t body_bytes = tw_get_u32(header + 8);
    if (memcmp(header, magic, sizeof(magic)) != 0)
        return tw_fail(err, TW_PROTO, "frame does not start with TWF1");
    if (header[4] != TW_WIRE_VERSION)
        return tw_fail(err, TW_VERSION, "frame of wire version %u, this is %d", header[4],
                       TW_WIRE_VERSION);
    if (body_bytes > tw_frame_body_max(kind) || body_bytes > room)
        return tw_fail(err, TW_LIMIT, "frame kind 0x%x has %u bytes", kind, body_bytes);
    if (header[5] != 0 || tw_get_u32(header + 12) != 0 || tw_get_u32(header + 20) != 0)
        return tw_fail(err, TW_PROTO, "frame kind 0x%x: reserved bytes are not zero", kind);
    return TW_OK;
}

enum tw_status tw_reader_next(struct tw_reader *reader, struct tw_frame *frame,
                              struct tw_error *err) {
    const uint8_t *header = reader->buffer + reader->begin;
    const size_t held = reader->end - reader->begin;
    if (held < TW_FRAME_HEADER_BYTES) return TW_AGAIN;
    TW_TRY(check_header(header, reader->capacity - TW_FRAME_HEADER_BYTES, err));
    const uint32_t body_bytes = tw_get_u32(header + 8);
    if (held - TW_FRAME_HEADER_BYTES < body_bytes) return TW_AGAIN;
    const uint8_t *body = header + TW_FRAME_HEADER_BYTES;
    const struct tw_range ranges[] = {{header, CHECKSUM_AT}, {body, body_bytes}};
    if (tw_xxh64_ranges(ranges, 2) != tw_get_u64(header + CHECKSUM_AT))
        return tw_fail(err, TW_CORRUPT, "frame kind 0x%x of %u bytes: wrong checksum",
                       tw_get_u16(header + 6), body_bytes);
    *frame = (struct tw_frame){.kind = tw_get_u16(header + 6),
                               .stream = tw_get_u32(header + 16),
                               .body_bytes = body_bytes,
                               .body = body};
    reader->begin += TW_FRAME_HEADER_BYTES + body_bytes;
    return TW_OK;
}

/* ---- TWIN ----------------------------------------------------------------------------------- */

enum { TWIN_AT_NONCE = 0, TWIN_AT_FORM = 8 };

uint32_t tw_twin_encode(const struct tw_twin_word *word, uint8_t body[TW_TWIN_BYTES_MAX]) {
    const size_t length = strnlen(word->address, TW_ADDR_BYTES - 1);
    tw_put_u64(body + TWIN_AT_NONCE, word->nonce);
    tw_put_u32(body + TWIN_AT_FORM, word->is_answer);
    memcpy(body + TW_TWIN_HEAD_BYTES, word->address, length);
    return (uint32_t)(TW_TWIN_HEAD_BYTES + length);
}

enum tw_status tw_twin_decode(const uint8_t *body, size_t size, struct tw_twin_word *word,
                              struct tw_error *err) {
    if (size < TW_TWIN_HEAD_BYTES || size >= TW_TWIN_BYTES_MAX)
        return tw_fail(err, TW_PROTO, "TWIN of %zu bytes", size);
    const uint32_t form = tw_get_u32(body + TWIN_AT_FORM);
    const size_t length = size - TW_TWIN_HEAD_BYTES;
    struct tw_twin_word read = {.nonce = tw_get_u64(body + TWIN_AT_NONCE), .is_answer = form == 1};
    if (form > 1) return tw_fail(err, TW_PROTO, "TWIN: form %u", form);
    if (read.is_answer && length > 0)
        return tw_fail(err, TW_PROTO, "TWIN: an answer with an address");
    memcpy(read.address, body + TW_TWIN_HEAD_BYTES, length);
    if (strlen(read.address) != length || (length > 0 && !tw_address_is_valid(read.address)))
        return tw_fail(err, TW_PROTO, "TWIN: the address is not host:port");
    *word = read;
    return TW_OK;
}

void tw_twin_address(const char *text, char address[TW_ADDR_BYTES]) {
    const size_t length = strnlen(text, TW_ADDR_BYTES);
    address[0] = '\0';
    if (length >= TW_ADDR_BYTES || !tw_address_is_valid(text)) return;
    /* A wildcard is where a node listens, and leads nowhere. */
    if (strncmp(text, "0.0.0.0:", 8) == 0 || strncmp(text, "[::]:", 5) == 0) return;
    memcpy(address, text, length + 1);
}
