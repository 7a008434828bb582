#include "base/id.h"

#include <string.h>

int tw_id_compare(const struct tw_id *a, const struct tw_id *b) {
    return memcmp(a->bytes, b->bytes, sizeof(a->bytes));
}

bool tw_id_is_zero(const struct tw_id *id) {
    uint8_t any = 0;
    for (unsigned i = 0; i < sizeof(id->bytes); i++) any |= id->bytes[i];
    return any == 0;
}

static void hex_digits(const struct tw_id *id, unsigned count, char *hex) {
    static const char digits[] = "0123456789abcdef";
    for (unsigned i = 0; i < count; i++) {
        hex[2 * i] = digits[id->bytes[i] >> 4];
        hex[2 * i + 1] = digits[id->bytes[i] & 15];
    }
    hex[2 * count] = '\0';
}

void tw_id_hex(const struct tw_id *id, char hex[TW_ID_HEX_BYTES]) {
    hex_digits(id, 32, hex);
}

void tw_id_short(const struct tw_id *id, char hex[9]) {
    hex_digits(id, 4, hex);
}

static int nibble(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

bool tw_id_parse(const char *hex, struct tw_id *id) {
    struct tw_id parsed;
    for (unsigned i = 0; i < 32; i++) {
        const int high = nibble(hex[2 * i]);
        if (high < 0) return false;
        const int low = nibble(hex[2 * i + 1]);
        if (low < 0) return false;
        parsed.bytes[i] = (uint8_t)(high << 4 | low);
    }
    if (hex[64] != '\0') return false;
    *id = parsed;
    return true;
}
