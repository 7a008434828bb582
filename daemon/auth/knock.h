/* knock.h - a short MAC (a knock) in the server name of a ClientHello, like WireGuard's mac1. It
 * shows that its sender knows the run secret or a ticket. Pure bytes; PROTOCOL.md section 3 is
 * normative.
 *
 *    name   hex(nonce || mac) ".invalid"
 *    nonce  8 bytes: the low byte of the hour, 7 random bytes
 *    mac    first 16 bytes of HMAC-SHA256(secret, "thinwire-knock" || run id || nonce || hour u64)
 *
 * In a run without a secret, the key is zeros: the knock then shows knowledge of the run id alone,
 * which is in the manifest. A knock proves nothing: an observer can copy it for up to three hours,
 * and the copy is accepted once 256 other knocks have been seen in between. It only decides which
 * bucket of handshake_limiter.h pays for a connection, before this node has computed or sent
 * anything. */
#ifndef TW_DAEMON_AUTH_KNOCK_H
#define TW_DAEMON_AUTH_KNOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"

enum {
    TW_KNOCK_NAME_BYTES = 57, /* with NUL */
    TW_KNOCKS_SEEN = 256,     /* number of remembered knocks, by which a copy is recognised */
};

/* Key of a knock. Borrowed. */
struct tw_knock_key {
    const uint8_t *bytes; /* run secret, or the ticket's key */
    size_t size;
    struct tw_id run;
};

/* Nonces of the newest knocks. A full ring forgets the oldest one. Only holders of a key can fill
 * it. */
struct tw_knocks {
    uint64_t seen[TW_KNOCKS_SEEN];
    uint32_t count; /* next index modulo TW_KNOCKS_SEEN; the ring is full if it is not less */
};

/* Writes a server name with a knock, or "" if the system has no random bytes. */
void tw_knock_write(const struct tw_knock_key *key, uint64_t now_s, char name[TW_KNOCK_NAME_BYTES]);

/* Returns true if the name was made with that key in this hour, the previous or the next one.
 * name[size] is untrusted. */
bool tw_knock_is_of(const struct tw_knock_key *key, const char *name, size_t size, uint64_t now_s);

/* Remembers a knock with a correct MAC. Returns false if the same knock was seen before. */
bool tw_knocks_add(struct tw_knocks *knocks, const char *name);

#endif
