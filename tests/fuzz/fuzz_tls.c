/* fuzz_tls.c - arbitrary bytes at the start of a TLS handshake, to an accepting and to a dialling
 * end, in pieces as TCP may split them. Input: u8 (bit 0: we dialled; others: size of the pieces),
 * then the bytes. The handshake never completes, and the send queue stays small. A rejected client
 * gets no byte. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/assert.h"
#include "daemon/net/tls.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct tw_tls_context context;

static void context_make(void) {
    static struct tw_identity identity;
    TW_ASSERT(tw_identity_ephemeral(&identity, NULL) == TW_OK);
    TW_ASSERT(tw_tls_context_init(&context, &identity, NULL) == TW_OK);
}

/* Reads all bytes of the name, and rejects names whose bytes have an odd sum. */
static enum tw_status judge(void *user, const char *name, size_t size, struct tw_error *err) {
    unsigned sum = 0;
    (void)user;
    for (size_t i = 0; i < size; i++) sum += (unsigned char)name[i];
    return sum % 2 == 0 ? TW_OK : tw_fail(err, TW_LIMIT, "turned away");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct tw_tls tls;
    struct tw_error err = {0};
    if (context.ctx == NULL) context_make();
    if (size < 2) return 0;
    const bool is_dialled = (data[0] & 1) != 0;
    const size_t piece = data[0] > 1 ? data[0] >> 1 : size;
    TW_ASSERT(tw_tls_init(&tls, &context, is_dialled, NULL, &err) == TW_OK);
    tls.judge = judge;
    enum tw_status status = TW_AGAIN;
    for (size_t at = 1; at < size && status == TW_AGAIN;) {
        const size_t count = size - at < piece ? size - at : piece;
        TW_ASSERT(tw_tls_feed(&tls, data + at, count, &err) == TW_OK);
        status = tw_tls_handshake(&tls, &err);
        at += count;
        TW_ASSERT(tw_tls_pending(&tls) <= 8192);
    }
    TW_ASSERT(status != TW_OK && !tls.is_secured);
    if (status != TW_AGAIN) TW_ASSERT(err.message[0] != '\0');
    if (status == TW_LIMIT) TW_ASSERT(tls.is_turned_away && tw_tls_pending(&tls) == 0);
    tw_tls_deinit(&tls);
    return 0;
}
