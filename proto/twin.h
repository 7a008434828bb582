/* twin.h - TWIN messages, for two machines that use one key: PROTOCOL.md section 3.
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
#ifndef TW_PROTO_TWIN_H
#define TW_PROTO_TWIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/status.h"

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
