#include "daemon/router/pcp.h"

#include <string.h>

#include <arpa/inet.h>

enum {
    VERSION = 2,
    MAP = 1,
    ANSWER = 0x80, /* bit that marks an answer; the rest is the opcode */
    TCP = 6,
    HEAD_BYTES = 24,
    ADDRESS_BYTES = 16,
};

/* Offsets in the 36 bytes of a MAP body, which follows the header. */
enum { AT_NONCE = 0, AT_PROTOCOL = 12, AT_PORT = 16, AT_OUTER_PORT = 18, AT_OUTER_HOST = 20 };

/* Prefix of an IPv4 address as an IPv6 address: ::ffff:a.b.c.d. */
static const uint8_t MAPPED_PREFIX[12] = {[10] = 0xff, [11] = 0xff};

/* PCP numbers are big-endian. */
static void put(uint8_t *to, uint32_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) to[i] = (uint8_t)(value >> 8 * (bytes - 1 - i));
}

static uint32_t get(const uint8_t *from, size_t bytes) {
    uint32_t value = 0;
    for (size_t i = 0; i < bytes; i++) value = value << 8 | from[i];
    return value;
}

enum tw_status tw_pcp_request(const struct tw_pcp_map *map, uint8_t bytes[TW_PCP_MAP_BYTES]) {
    uint8_t *const body = bytes + HEAD_BYTES;
    struct in_addr host;
    if (inet_pton(AF_INET, map->host, &host) != 1) return TW_CONFIG;
    memset(bytes, 0, TW_PCP_MAP_BYTES);
    bytes[0] = VERSION;
    bytes[1] = MAP;
    put(bytes + 4, map->lease_s, 4);
    memcpy(bytes + 8, MAPPED_PREFIX, sizeof(MAPPED_PREFIX));
    memcpy(bytes + 20, &host, sizeof(host));
    memcpy(body + AT_NONCE, map->nonce, sizeof(map->nonce));
    body[AT_PROTOCOL] = TCP;
    put(body + AT_PORT, map->port, 2);
    put(body + AT_OUTER_PORT, map->outer_port, 2);
    memcpy(body + AT_OUTER_HOST, MAPPED_PREFIX, sizeof(MAPPED_PREFIX)); /* any IPv4 address */
    return TW_OK;
}

enum tw_status tw_pcp_answer(const struct tw_pcp_map *map, const uint8_t *bytes, size_t size,
                             struct tw_pcp_mapped *mapped) {
    const uint8_t *const body = bytes + HEAD_BYTES, *const host = body + AT_OUTER_HOST;
    *mapped = (struct tw_pcp_mapped){.result = 0};
    if (size < HEAD_BYTES || bytes[1] != (ANSWER | MAP)) return TW_PROTO;
    mapped->result = bytes[3];
    /* A router of another version answers with its own version, and possibly without a body. */
    if (mapped->result != 0 && size < TW_PCP_MAP_BYTES) return TW_OK;
    if (bytes[0] != VERSION || size < TW_PCP_MAP_BYTES) return TW_PROTO;
    if (memcmp(body + AT_NONCE, map->nonce, sizeof(map->nonce)) != 0 || body[AT_PROTOCOL] != TCP ||
        get(body + AT_PORT, 2) != map->port)
        return TW_PROTO;
    if (mapped->result != 0) return TW_OK;
    mapped->lease_s = get(bytes + 4, 4);
    mapped->outer_port = (uint16_t)get(body + AT_OUTER_PORT, 2);
    if (memcmp(host, MAPPED_PREFIX, sizeof(MAPPED_PREFIX)) == 0)
        (void)inet_ntop(AF_INET, host + sizeof(MAPPED_PREFIX), mapped->outer_host,
                        sizeof(mapped->outer_host));
    return TW_OK;
}

const char *tw_pcp_words(uint8_t result) {
    static const char *const WORDS[] = {
        [1] = "it does not speak this version", [2] = "not authorized",
        [3] = "it did not understand",          [4] = "it does not forward ports",
        [5] = "it does not know an option",     [6] = "it did not understand an option",
        [7] = "it has no connection",           [8] = "it has no room for another mapping",
        [9] = "it does not forward TCP",        [10] = "this machine has as many as it may",
        [11] = "it cannot give the outer port", [12] = "this machine has another address there",
        [13] = "too many remote peers",
    };
    if (result >= sizeof(WORDS) / sizeof(WORDS[0]) || WORDS[result] == NULL)
        return "an error without a name";
    return WORDS[result];
}
