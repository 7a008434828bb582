#include "daemon/auth/knock.h"

#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "base/assert.h"
#include "base/bytes.h"

enum {
    NONCE_BYTES = 8,
    MAC_BYTES = 16,
    HEX_BYTES = 2 * (NONCE_BYTES + MAC_BYTES),
    HOUR_S = 3600,
};
static const char DOMAIN_TEXT[] = "thinwire-knock";
static const char SUFFIX[] = ".invalid";
_Static_assert(HEX_BYTES + sizeof(SUFFIX) == TW_KNOCK_NAME_BYTES, "the name fits");

static void mac_compute(const struct tw_knock_key *key, const uint8_t nonce[NONCE_BYTES],
                        uint64_t hour, uint8_t mac[MAC_BYTES]) {
    uint8_t text[sizeof(DOMAIN_TEXT) - 1 + 32 + NONCE_BYTES + 8], whole[32];
    unsigned size = 0;
    size_t at = sizeof(DOMAIN_TEXT) - 1;
    memcpy(text, DOMAIN_TEXT, at);
    memcpy(text + at, key->run.bytes, 32);
    at += 32;
    memcpy(text + at, nonce, NONCE_BYTES);
    at += NONCE_BYTES;
    tw_put_u64(text + at, hour);
    TW_ASSERT(HMAC(EVP_sha256(), key->bytes, (int)key->size, text, sizeof(text), whole, &size) !=
              NULL);
    memcpy(mac, whole, MAC_BYTES);
}

void tw_knock_write(const struct tw_knock_key *key, uint64_t now_s,
                    char name[TW_KNOCK_NAME_BYTES]) {
    static const char digits[] = "0123456789abcdef";
    const uint64_t hour = now_s / HOUR_S;
    uint8_t bytes[NONCE_BYTES + MAC_BYTES];
    name[0] = '\0';
    if (RAND_bytes(bytes, NONCE_BYTES) != 1) return;
    bytes[0] = (uint8_t)hour;
    mac_compute(key, bytes, hour, bytes + NONCE_BYTES);
    for (unsigned i = 0; i < sizeof(bytes); i++) {
        name[2 * i] = digits[bytes[i] >> 4];
        name[2 * i + 1] = digits[bytes[i] & 15];
    }
    memcpy(name + HEX_BYTES, SUFFIX, sizeof(SUFFIX));
}

static int digit_value(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

static bool hex_decode(const char *text, uint8_t *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const int high = digit_value(text[2 * i]), low = digit_value(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

bool tw_knock_is_of(const struct tw_knock_key *key, const char *name, size_t size, uint64_t now_s) {
    uint8_t bytes[NONCE_BYTES + MAC_BYTES], mac[MAC_BYTES];
    const uint64_t now_hour = now_s / HOUR_S;
    if (size != TW_KNOCK_NAME_BYTES - 1 ||
        memcmp(name + HEX_BYTES, SUFFIX, size - HEX_BYTES) != 0 ||
        !hex_decode(name, bytes, sizeof(bytes)))
        return false;
    const uint8_t ahead = (uint8_t)(bytes[0] - (uint8_t)(now_hour - 1)); /* 0, 1 or 2 */
    if (ahead > 2) return false;
    mac_compute(key, bytes, now_hour - 1 + ahead, mac);
    return CRYPTO_memcmp(mac, bytes + NONCE_BYTES, MAC_BYTES) == 0;
}

bool tw_knocks_add(struct tw_knocks *knocks, const char *name) {
    uint8_t nonce[NONCE_BYTES];
    if (!hex_decode(name, nonce, NONCE_BYTES)) return false;
    const uint64_t value = tw_get_u64(nonce);
    const uint32_t count = knocks->count < TW_KNOCKS_SEEN ? knocks->count : TW_KNOCKS_SEEN;
    for (uint32_t i = 0; i < count; i++)
        if (knocks->seen[i] == value) return false;
    knocks->seen[knocks->count++ % TW_KNOCKS_SEEN] = value;
    if (knocks->count == 2 * TW_KNOCKS_SEEN) knocks->count = TW_KNOCKS_SEEN;
    return true;
}
