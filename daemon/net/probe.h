/* probe.h - dials an address as a node would and reports how far it got: name, TCP, TLS, HELLO.
 *
 * A probe proves the run secret and then leaves. The other node admits no peer for it, so it may
 * run beside a daemon with the same identity. Blocking; one thread per probe. */
#ifndef TW_DAEMON_NET_PROBE_H
#define TW_DAEMON_NET_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "daemon/net/dial.h"
#include "daemon/net/handshake.h"
#include "daemon/net/socket.h"
#include "daemon/net/tls.h"

/* The stage that failed, or DONE. */
enum tw_probe_stage {
    TW_PROBE_NAME,
    TW_PROBE_TCP,
    TW_PROBE_TLS,
    TW_PROBE_HELLO,
    TW_PROBE_DONE,
};

struct tw_probe_question {
    const char *address;              /* host:port */
    const struct tw_id *expected;     /* id that the node must have, or NULL */
    const struct tw_tls_context *tls; /* context with the identity whose id is in `hello` */
    struct tw_hello hello;            /* role TW_ROLE_PROBE, id and run; the proof is added later */
    const struct tw_secret *secret;   /* NULL = `open` run */
    const struct tw_egress *egress;   /* NULL = no restriction */
    bool is_stranger;                 /* no secret to prove: TLS is the last stage, without HELLO */
    uint64_t patience_us;             /* time limit per stage and address; 0 = 5 s */
};

struct tw_probe_answer {
    enum tw_probe_stage stage;
    enum tw_dial_cause cause;              /* TW_DIAL_NONE when DONE */
    char sentence[TW_DIAL_SENTENCE_BYTES]; /* whole sentence with the remedy; "" when DONE */
    char remote[TW_ADDR_BYTES];            /* IP address and port tried last; or "" */
    uint32_t addresses;                    /* number of addresses of the name that were tried */
    uint64_t took_us[TW_PROBE_DONE];       /* time per stage, for the address in `remote` */
    uint32_t mtu_bytes, mss_bytes;         /* the kernel's values for the path; 0 = unknown */
    bool has_id;
    struct tw_id id; /* node that answered */
};

void tw_probe_run(const struct tw_probe_question *question, struct tw_probe_answer *answer);

#endif
