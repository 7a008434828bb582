#include "base/address.h"

#include <string.h>

static bool port_parse(const char *text, uint16_t *port) {
    uint32_t value = 0;
    const size_t digits = strnlen(text, 6);
    if (digits == 0 || digits > 5) return false;
    for (size_t i = 0; i < digits; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        value = 10 * value + (uint32_t)(text[i] - '0');
    }
    if (value > UINT16_MAX) return false;
    *port = (uint16_t)value;
    return true;
}

static bool host_is_valid(const char *host, size_t length, bool is_bracketed) {
    if (length == 0) return false;
    for (size_t i = 0; i < length; i++) {
        const char c = host[i];
        const bool is_name = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                             (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
        if (!is_name && !(is_bracketed && (c == ':' || c == '%'))) return false;
    }
    return true;
}

bool tw_address_split(const char *address, char host[TW_ADDR_BYTES], uint16_t *port) {
    const size_t length = strnlen(address, TW_ADDR_BYTES);
    if (length == TW_ADDR_BYTES) return false;
    const bool is_bracketed = address[0] == '[';
    const char *begin = is_bracketed ? address + 1 : address;
    const char *end = strchr(begin, is_bracketed ? ']' : ':');
    uint16_t parsed = 0;
    if (end == NULL) return false;
    const char *colon = is_bracketed ? end + 1 : end;
    if (*colon != ':' || !port_parse(colon + 1, &parsed)) return false;
    if (!host_is_valid(begin, (size_t)(end - begin), is_bracketed)) return false;
    memcpy(host, begin, (size_t)(end - begin));
    host[end - begin] = '\0';
    *port = parsed;
    return true;
}

bool tw_address_is_valid(const char *address) {
    char host[TW_ADDR_BYTES];
    uint16_t port = 0;
    return tw_address_split(address, host, &port) && port != 0;
}
