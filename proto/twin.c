#include "proto/twin.h"

#include <string.h>

#include "base/address.h"
#include "base/bytes.h"

enum { AT_NONCE = 0, AT_FORM = 8 };

uint32_t tw_twin_encode(const struct tw_twin_word *word, uint8_t body[TW_TWIN_BYTES_MAX]) {
    const size_t length = strnlen(word->address, TW_ADDR_BYTES - 1);
    tw_put_u64(body + AT_NONCE, word->nonce);
    tw_put_u32(body + AT_FORM, word->is_answer);
    memcpy(body + TW_TWIN_HEAD_BYTES, word->address, length);
    return (uint32_t)(TW_TWIN_HEAD_BYTES + length);
}

enum tw_status tw_twin_decode(const uint8_t *body, size_t size, struct tw_twin_word *word,
                              struct tw_error *err) {
    if (size < TW_TWIN_HEAD_BYTES || size >= TW_TWIN_BYTES_MAX)
        return tw_fail(err, TW_PROTO, "TWIN of %zu bytes", size);
    const uint32_t form = tw_get_u32(body + AT_FORM);
    const size_t length = size - TW_TWIN_HEAD_BYTES;
    struct tw_twin_word read = {.nonce = tw_get_u64(body + AT_NONCE), .is_answer = form == 1};
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
