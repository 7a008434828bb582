/* fuzz_ticket.c - lines that people paste as tickets, and WELCOME, the reply to a ticket.
 *
 * The first byte selects the decoder. A fuzzer cannot guess check digits, so a third choice
 * computes them and reaches the code behind them. Accepted input encodes to the same bytes. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "proto/hello.h"
#include "proto/ticket.h"

enum { BODY_MAX = 512 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_line(const char *line) {
    struct tw_ticket ticket, again;
    struct tw_error err;
    char text[TW_TICKET_TEXT_BYTES];
    if (tw_ticket_decode(line, &ticket, &err) != TW_OK) {
        TW_ASSERT(err.message[0] != '\0');
        return;
    }
    tw_ticket_encode(&ticket, text);
    TW_ASSERT(strlen(text) < sizeof(text));
    TW_ASSERT(tw_ticket_decode(text, &again, &err) == TW_OK);
    TW_ASSERT(memcmp(&ticket, &again, sizeof(ticket)) == 0);
}

static void fuzz_checked(const uint8_t *data, size_t size) {
    static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz";
    uint8_t bytes[BODY_MAX + 4];
    char line[3 + (BODY_MAX + 4) * 8 / 5 + 2] = "tw1";
    size_t at = 3;
    if (size > BODY_MAX) size = BODY_MAX;
    memcpy(bytes, data, size);
    const struct tw_id hash = tw_sha256(bytes, size);
    memcpy(bytes + size, hash.bytes, 4);
    const size_t bits = 8 * (size + 4);
    for (size_t bit = 0; bit < bits; bit += 5) {
        unsigned value = 0;
        for (size_t i = bit; i < bit + 5; i++)
            value = value << 1 | (i < bits ? (unsigned)bytes[i / 8] >> (7 - i % 8) & 1u : 0);
        line[at++] = digits[value];
    }
    line[at] = '\0';
    fuzz_line(line);
}

static void fuzz_welcome(const uint8_t *data, size_t size) {
    static struct tw_welcome welcome, again;
    static uint8_t body[TW_WELCOME_BYTES_MAX];
    struct tw_error err;
    if (tw_welcome_decode(data, size, &welcome, &err) != TW_OK) {
        TW_ASSERT(err.message[0] != '\0');
        return;
    }
    /* Unknown fields are not kept. */
    const uint32_t bytes = tw_welcome_encode(&welcome, body);
    TW_ASSERT(bytes <= size);
    TW_ASSERT(tw_welcome_decode(body, bytes, &again, &err) == TW_OK);
    TW_ASSERT(memcmp(&welcome, &again, sizeof(welcome)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char line[1024];
    if (size == 0) return 0;
    const size_t length = size - 1 < sizeof(line) - 1 ? size - 1 : sizeof(line) - 1;
    switch (data[0] % 3) {
    case 0:
        memcpy(line, data + 1, length);
        line[length] = '\0';
        fuzz_line(line);
        break;
    case 1: fuzz_checked(data + 1, size - 1); break;
    default: fuzz_welcome(data + 1, size - 1); break;
    }
    return 0;
}
