/* frame.h - the 32-byte frame header of PROTOCOL.md section 2, and the incremental reader.
 *
 *     at  field          content
 *      0  magic u32      "TWF1"
 *      4  version u8     1
 *      5  flags u8       0
 *      6  kind u16
 *      8  body u32       bytes after the header
 *     12  reserved u32   0
 *     16  stream u32     0 on control; free for the sender on bulk
 *     20  reserved u32   0
 *     24  checksum u64   xxh64 of bytes 0 to 23 and the body
 *
 * All are little-endian. */
#ifndef TW_PROTO_FRAME_H
#define TW_PROTO_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/status.h"

enum { TW_WIRE_VERSION = 1 };

/* Kinds below 0x100 are the control messages of message.h, TWIN and, in runs with an owner, REVOKE,
 * RENEW, CERTS and RECALL. */
enum tw_frame_kind {
    TW_FRAME_REVOKE = 24,     /* nodes that the owner revoked: cert.h */
    TW_FRAME_RENEW = 27,      /* asks for a new certificate; empty */
    TW_FRAME_CERTS = 28,      /* a new certificate and its issuer's certificate: cert.h */
    TW_FRAME_TWIN = 31,       /* two machines may have one key: twin.h */
    TW_FRAME_RECALL = 35,     /* the owner returns the run to a round: cert.h */
    TW_FRAME_CHUNK = 0x100,   /* bulk: 32-byte payload id, u32 chunk index, u32 zero, bytes */
    TW_FRAME_HELLO = 0x200,   /* first frame of each side: daemon/net/handshake.h */
    TW_FRAME_GOODBYE = 0x201, /* last frame: u32 enum tw_status, then a sentence */
    TW_FRAME_WELCOME = 0x202, /* for a guest: all data that it needs to become a node of the run */
};

struct tw_frame {
    uint16_t kind;
    uint32_t stream;
    uint32_t body_bytes;
    const uint8_t *body; /* borrowed from the reader until its next call */
};

/* Returns the largest body of a frame of this kind, in bytes. Unknown kinds have the bound of
 * control messages, so that they can be skipped. */
uint32_t tw_frame_body_max(uint16_t kind);

/* Writes the header of a frame with `body` into header[32]. Asserts that body_bytes <=
 * tw_frame_body_max(kind). */
void tw_frame_header(uint8_t header[TW_FRAME_HEADER_BYTES], uint16_t kind, uint32_t stream,
                     const uint8_t *body, uint32_t body_bytes);

/* Writes the frame header and chunk header of a CHUNK frame. The caller sends bytes[size] right
 * after them, with 0 < size <= TW_CHUNK_BYTES_MAX. */
enum { TW_FRAME_CHUNK_HEADERS_BYTES = TW_FRAME_HEADER_BYTES + TW_CHUNK_HEADER_BYTES };
void tw_frame_chunk_headers(uint8_t headers[TW_FRAME_CHUNK_HEADERS_BYTES],
                            const struct tw_id *payload, uint32_t idx, const uint8_t *bytes,
                            uint32_t size);

/* Splits the body of a CHUNK frame; *bytes points into the body. Returns TW_PROTO if the body is
 * malformed. */
enum tw_status tw_frame_chunk_decode(const struct tw_frame *frame, struct tw_id *payload,
                                     uint32_t *idx, const uint8_t **bytes, uint32_t *size,
                                     struct tw_error *err);

/* Incremental parser: splits received bytes into frames. A frame larger than the caller's buffer is
 * refused. */
struct tw_reader {
    uint8_t *buffer;
    size_t capacity; /* >= TW_FRAME_HEADER_BYTES; a body has at most capacity - 32 bytes */
    size_t begin, end;
};

void tw_reader_init(struct tw_reader *reader, uint8_t *buffer, size_t capacity);

/* Returns the address at which to store received bytes, and in *space how many fit. *space is above
 * 0 unless tw_reader_next has a frame or an error to return. */
uint8_t *tw_reader_space(struct tw_reader *reader, size_t *space);

/* Returns the size of the first frame in the buffer: TW_FRAME_HEADER_BYTES until its header is
 * complete, and at most `capacity`. */
size_t tw_reader_frame_bytes(const struct tw_reader *reader);

/* Reports that `bytes` (at most *space) were written at the address from tw_reader_space. */
void tw_reader_fill(struct tw_reader *reader, size_t bytes);

/* Returns TW_OK if *frame is complete and its checksum is correct, TW_AGAIN if more bytes are
 * needed. Any other status (TW_PROTO, TW_VERSION, TW_LIMIT, TW_CORRUPT) is final: close the
 * connection. */
enum tw_status tw_reader_next(struct tw_reader *reader, struct tw_frame *frame,
                              struct tw_error *err);

/* ---- TWIN ----------------------------------------------------------------------------------- */

/* TWIN messages, for two machines that use one key: PROTOCOL.md section 3.
 *
 * Each process of a node draws a random number and states it in HELLO. If a linked node sends a
 * HELLO with another number, this node asks the linked process by a TWIN frame whether it is alive.
 * The body, little-endian:
 *
 *    0  nonce u64
 *    8  form u32       0: a question, 1: its answer
 *   12  address of the second machine, "host:port" without NUL; empty in answers, and if not known
 *
 * The second machine is refused with GOODBYE{TW_TWIN}, whose text is the address of the first one.
 * Pure. */

enum { TW_TWIN_HEAD_BYTES = 12, TW_TWIN_BYTES_MAX = TW_TWIN_HEAD_BYTES + TW_ADDR_BYTES };

struct tw_twin_word {
    uint64_t nonce;
    bool is_answer;
    char address[TW_ADDR_BYTES]; /* address of the second machine; "": not known */
};

/* Writes the body of a TWIN frame. Returns its size in bytes. */
uint32_t tw_twin_encode(const struct tw_twin_word *word, uint8_t body[TW_TWIN_BYTES_MAX]);

/* Decodes untrusted bytes. The TW_PROTO error names the field. */
enum tw_status tw_twin_decode(const uint8_t *body, size_t size, struct tw_twin_word *word,
                              struct tw_error *err);

/* Reads the address from the untrusted text of GOODBYE{TW_TWIN}; "" if the text is not an address,
 * or a wildcard.
 */
void tw_twin_address(const char *text, char address[TW_ADDR_BYTES]);

#endif
