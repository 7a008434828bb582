/* fuzz_handshake.c - bodies of HELLO, GOODBYE and TWIN, and the member cache, from untrusted
 * sources.
 *
 * The first byte chooses the decoder. An accepted HELLO must encode to the same bytes, because the
 * proof covers the encoded form. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "daemon/net/handshake.h"
#include "proto/frame.h"
#include "sync/members/members.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_hello(const uint8_t *data, size_t size) {
    struct tw_hello hello;
    struct tw_error err;
    uint8_t again[TW_HELLO_BYTES_MAX];
    static const struct tw_secrets secrets = {.count = 2, .list = {{{1}}, {{2}}}};
    uint32_t which = 0;
    static const uint8_t ekm[TW_TLS_EXPORT_BYTES] = {2}, ticket_key[TW_TICKET_KEY_BYTES] = {3};
    if (tw_hello_decode(data, size, &hello, &err) != TW_OK) {
        TW_ASSERT(err.message[0] != '\0');
        return;
    }
    TW_ASSERT(tw_hello_encode(&hello, again) == size);
    TW_ASSERT(memcmp(again, data, size) == 0);
    const struct tw_hello ours = hello;
    /* The proof cannot be guessed. */
    TW_ASSERT(tw_hello_check_proof(&hello, &ours, &secrets, ekm, &which, &err) == TW_WRONG_SECRET);
    TW_ASSERT(tw_hello_check_ticket(&hello, ticket_key, ekm, &err) == TW_TICKET_UNKNOWN);
}

static void fuzz_goodbye(const uint8_t *data, size_t size) {
    struct tw_goodbye goodbye;
    if (tw_goodbye_decode(data, size, &goodbye, NULL) != TW_OK) return;
    const size_t length = strnlen(goodbye.sentence, sizeof(goodbye.sentence));
    TW_ASSERT(length > 0 && length < sizeof(goodbye.sentence));
    for (size_t i = 0; i < length; i++)
        TW_ASSERT(goodbye.sentence[i] >= ' ' && goodbye.sentence[i] <= '~');
}

static void fuzz_twin(const uint8_t *data, size_t size) {
    struct tw_twin_word word;
    uint8_t again[TW_TWIN_BYTES_MAX];
    if (tw_twin_decode(data, size, &word, NULL) != TW_OK) return;
    TW_ASSERT(tw_twin_encode(&word, again) == size);
    TW_ASSERT(memcmp(again, data, size) == 0);
}

static void fuzz_cache(const uint8_t *data, size_t size) {
    static struct tw_members members;
    static char text[TW_MEMBERS_TEXT_MAX];
    size_t text_bytes = 0;
    const struct tw_members_config config = {.self = {{9}}, .seed = 1};
    tw_members_init(&members, &config);
    (void)tw_members_decode(&members, (const char *)data, size, 5);
    tw_members_encode(&members, text, sizeof(text), &text_bytes);
    const uint32_t known = tw_members_known(&members);
    tw_members_init(&members, &config);
    TW_ASSERT(tw_members_decode(&members, text, text_bytes, 5) == 0);
    TW_ASSERT(tw_members_known(&members) == known);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    switch (data[0] % 4) {
    case 0: fuzz_hello(data + 1, size - 1); break;
    case 1: fuzz_goodbye(data + 1, size - 1); break;
    case 3: fuzz_twin(data + 1, size - 1); break;
    default: fuzz_cache(data + 1, size - 1); break;
    }
    return 0;
}
