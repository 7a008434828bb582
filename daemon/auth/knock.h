/* knock.h - a short MAC (a knock) in the server name of a ClientHello, like WireGuard's mac1: its
 * sender knows the run secret, or a ticket. Pure bytes; PROTOCOL.md section 3 is normative.
 *
 *    name   hex(nonce || mac) ".invalid"
 *    nonce  8 bytes: the low byte of the hour, 7 random bytes
 *    mac    first 16 bytes of HMAC-SHA256(secret, "thinwire-knock" || run id || nonce || hour u64)
 *
 * Where a run has no secret, the key is zeros: a sender then knows the run id alone, as anybody
 * with the manifest does. A knock proves nothing: a node that sees one may copy it for up to three
 * hours, and the copy is right once 256 others were seen in between. It only decides which bucket
 * of handshake_limiter.h a connection pays into, before this node has computed or sent anything. */
#ifndef TW_DAEMON_AUTH_KNOCK_H
#define TW_DAEMON_AUTH_KNOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"

enum {
    TW_KNOCK_NAME_BYTES = 57, /* with NUL */
    TW_KNOCKS_SEEN = 256, /* number of knocks that are remembered, so that a copy is recognised */
};

/* Key of a knock. Borrowed. */
struct tw_knock_key {
    const uint8_t *bytes; /* run secret, or key of a ticket */
    size_t size;
    struct tw_id run;
};

/* Nonces of the newest knocks. A full ring forgets the oldest one. Only holders of a key fill it.
 */
struct tw_knocks {
    uint64_t seen[TW_KNOCKS_SEEN];
    uint32_t count; /* in total */
};

/* Makes a name. "": the system has no random bytes. */
void tw_knock_write(const struct tw_knock_key *key, uint64_t now_s, char name[TW_KNOCK_NAME_BYTES]);

/* True if the name was made with that key in this hour, the one before or the one after. name[size]
 * is untrusted. */
bool tw_knock_is_of(const struct tw_knock_key *key, const char *name, size_t size, uint64_t now_s);

/* Remembers a knock with a correct MAC. False: it was seen before. */
bool tw_knocks_add(struct tw_knocks *knocks, const char *name);

#endif
