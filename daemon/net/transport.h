/* transport.h - links to other nodes: TCP, TLS 1.3, admission, two connections per pair.
 *
 * One transport lives on one uv loop and is used from that loop's thread only. A peer is a node
 * that proved its id and its right to be in the run; it has a number `peer` < TW_PEERS_MAX from
 * peer_up until peer_down. The side that dialled the control connection dials the bulk connection
 * too; if either breaks, the peer is down.
 *
 * Rule for callbacks: they are called by the loop alone, never from inside a tw_transport_* call,
 * so the runtime may call any function from any callback and from between two actions of the core.
 *
 * Bounds (limits.h): control queue TW_CONTROL_QUEUE_BYTES per peer, full = the peer is closed;
 * TW_BULK_QUEUE_CHUNKS chunks per peer, full = closed; 64 KiB of ciphertext in flight per
 * connection; TW_HANDSHAKES_MAX connections not yet admitted, and handshake_limiter.h says how many
 * may knock; a started frame ends in time (link.h); TW_MESSAGES_PER_S control messages a second of
 * one peer, the rest is read later. Who breaks the protocol again and again is banned (bans.h).
 * Upload of everything counts against the cap; only bulk waits for it.
 *
 * Background chunks (TW_BACKGROUND_QUEUE_CHUNKS per peer, full = closed) go when no payload chunk
 * waits for any peer, so a payload waits for the rest of one background chunk per connection at
 * most. Two things keep them from starving: a payload that moved nothing for a second holds up
 * nobody, and after 10 s without a background record one background chunk goes first. */
#ifndef TW_DAEMON_NET_TRANSPORT_H
#define TW_DAEMON_NET_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/status.h"
#include "daemon/auth/gate.h"
#include "daemon/auth/identity.h"
#include "daemon/auth/secret.h"
#include "daemon/net/dial_error.h"
#include "daemon/net/pacer.h"
#include "proto/extension.h"
#include "proto/frame.h"
#include "proto/message.h"
#include "proto/ticket.h"

struct uv_loop_s;
struct tw_transport;
struct tw_hello;
struct tw_bans;

/* A chunk on its way out. `bytes` is borrowed until released or dropped. */
struct tw_chunk {
    struct tw_id payload;
    uint32_t idx;  /* of the chunk within the payload */
    uint32_t size; /* 1..TW_CHUNK_BYTES_MAX */
    const uint8_t *bytes;
    bool is_background; /* data sets: waits behind the payloads of every peer */
};

/* How a dial ended. Borrowed for the call. */
struct tw_dial_result {
    enum tw_status status; /* TW_OK: the address leads to `id`, which is up by this connection, or
                              up (or about to be) by another: see peer_up */
    enum tw_dial_cause cause; /* TW_DIAL_NONE when TW_OK */
    const struct tw_id *id;   /* of who answered, also one not wanted; else NULL */
    const char *sentence;     /* of tw_dial_sentence; "connected" */
};

/* Who asks to come in with a ticket. Borrowed for the call, but for the number. */
struct tw_guest {
    uint32_t number;
    const struct tw_hello *hello; /* its id is proven */
    const uint8_t *ticket_id;     /* TW_TICKET_ID_BYTES */
    const uint8_t *ekm;           /* TW_TLS_EXPORT_BYTES, for tw_hello_check_ticket */
};

/* Every `sentence` is for a person: log it. Borrowed for the call. Unused callbacks may be NULL,
 * except peer_up, peer_down and frame. */
struct tw_transport_events {
    /* `hello`: the id of the peer and the addresses it says it can be dialled at. */
    void (*peer_up)(void *user, uint16_t peer, const struct tw_member_row *hello);

    /* Also follows tw_transport_close. `peer` may be given to somebody else afterwards. */
    void (*peer_down)(void *user, uint16_t peer, enum tw_status reason, const char *sentence);

    /* A whole frame, checksum right, kind and size allowed on that connection: a kind of message.h
     * with is_bulk false, TW_FRAME_CHUNK with is_bulk true. Body borrowed for the call. */
    void (*frame)(void *user, uint16_t peer, bool is_bulk, const struct tw_frame *frame);

    /* The bytes of `chunk` are no longer needed; `sent` false: the peer went away first. */
    void (*released)(void *user, uint16_t peer, const struct tw_chunk *chunk, bool sent);

    /* The one answer to each tw_transport_connect. */
    void (*dial_done)(void *user, const char *address, const struct tw_dial_result *result);

    /* The one answer to each tw_transport_probe. TW_OK: `address` leads to the node. */
    void (*probe_done)(void *user, const char *address, const struct tw_id *expected,
                       const struct tw_dial_result *result);

    /* A node with a ticket asks to come in; all but the ticket is right. Judge it, by
     * tw_hello_check_ticket first, and answer, now or within the seconds of a handshake, with
     * tw_transport_welcome or tw_transport_turn_away. Without this callback no ticket is known. */
    void (*guest)(void *user, const struct tw_guest *guest);

    /* To tw_transport_visit: the body of the WELCOME. dial_done follows. */
    void (*welcomed)(void *user, const uint8_t *body, uint32_t size);

    /* A peer broke the protocol so often that it is left alone for so long; keep the table. */
    void (*banned)(void *user, const struct tw_id *id, uint32_t seconds, const char *sentence);

    /* Somebody was refused, or an accepted connection failed before it became a peer. */
    void (*refused)(void *user, const char *address, enum tw_status reason, const char *sentence);
};

struct tw_transport_config {
    struct uv_loop_s *loop;
    const struct tw_identity *identity; /* borrowed until destroy */
    const struct tw_secrets *secrets;   /* copied; NULL = `open` admission: loopback only */
    const struct tw_gate *gate;         /* borrowed until destroy; NULL: the run has no owner */
    struct tw_id run;
    uint32_t boot;

    char listen[TW_LISTEN_MAX][TW_ADDR_BYTES];   /* "127.0.0.1:4300", "[::]:4300"; port 0 = any */
    uint32_t listen_count;                       /* 0: dials only */
    char advertise[TW_ADDRS_MAX][TW_ADDR_BYTES]; /* empty after the last; none: the addresses
                                                    listened on, and for wildcards those this
                                                    machine dials the internet from */
    char interface[TW_ADDR_BYTES];               /* to listen and dial by; empty: any */
    char bind[TW_BIND_MAX][TW_ADDR_BYTES];       /* IP addresses to dial from; empty after the last;
                                                    none: any */
    uint64_t upload_bytes_per_s;                 /* 0 = no cap */
    struct tw_link_pace pace;                    /* of bulk connections */
    uint64_t handshake_us;                       /* 0 = TW_HANDSHAKE_US; tests make it short */
    uint64_t connect_us;                         /* 0 = TW_CONNECT_US; the same */
    uint64_t background_us;                      /* 0 = 10 s: the longest wait of background */

    struct tw_transport_events events;
    void *user;
};

/* Binds and listens before it returns: TW_IO names the address and the way out (port in use, not
 * an address of this machine), TW_CONFIG for `open` on an address others can reach. Makes the
 * process ignore SIGPIPE. */
enum tw_status tw_transport_create(const struct tw_transport_config *config,
                                   struct tw_transport **transport, struct tw_error *err);

/* Says GOODBYE to every peer and closes everything; peer_down and dial_done are not called any
 * more. `closed` (may be NULL) is called by the loop when the last handle is gone and the memory
 * freed: at once where nothing waits, within 2 s otherwise, or when a name lookup under way
 * ends. Chunks are not read after the call. */
void tw_transport_destroy(struct tw_transport *transport, const char *sentence,
                          void (*closed)(void *user));

/* Dials host:port; `expected` (or NULL) pins the id. Answered by dial_done. TW_LIMIT: too many
 * dials under way, TW_CONFIG: not host:port; then dial_done is not called. */
enum tw_status tw_transport_connect(struct tw_transport *transport, const char *address,
                                    const struct tw_id *expected, struct tw_error *err);

/* Tries whether `address` leads to that node, and makes no link. Answered by probe_done; refused as
 * a connect is. */
enum tw_status tw_transport_probe(struct tw_transport *transport, const char *address,
                                  const struct tw_id *expected, struct tw_error *err);

/* Asks the node that made the ticket, at one of its addresses, for a WELCOME. Answered by welcomed
 * and dial_done, or by dial_done alone; refused as a connect is. */
enum tw_status tw_transport_visit(struct tw_transport *transport, const char *address,
                                  const struct tw_ticket *ticket, struct tw_error *err);

/* Answers a guest: with the key of its ticket and the body of a WELCOME, or with the reason why
 * not. A guest that is gone meanwhile is forgotten. */
void tw_transport_welcome(struct tw_transport *transport, uint32_t guest, const uint8_t *ticket_key,
                          const uint8_t *body, uint32_t size);
void tw_transport_turn_away(struct tw_transport *transport, uint32_t guest, enum tw_status status,
                            const char *sentence);

/* Sends a control frame now. Ignored for a peer that is already on its way down, and for a kind of
 * a feature that the peer does not have. A peer that does not read TW_CONTROL_QUEUE_BYTES is
 * closed. */
void tw_transport_send_control(struct tw_transport *transport, uint16_t peer, uint16_t kind,
                               const void *body, uint32_t body_bytes);

/* Queues a chunk on the bulk connection (which may still be coming up). False, and nothing to be
 * released: the peer is on its way down, or was sent there because its queue was full. */
bool tw_transport_send_chunk(struct tw_transport *transport, uint16_t peer,
                             const struct tw_chunk *chunk);

/* Whether this chunk of a payload waits for the peer already: who asks for it again, because it
 * takes long, need not get it twice. */
bool tw_transport_has_chunk(const struct tw_transport *transport, uint16_t peer,
                            const struct tw_id *payload, uint32_t idx);

/* Forgets queued chunks of this payload at all peers: its bytes are not read after the call, and
 * `released` is not called for them. A chunk half sent is still sent whole (from a copy). */
void tw_transport_drop(struct tw_transport *transport, const struct tw_id *payload);

/* Says GOODBYE{reason, sentence} and closes; peer_down follows from the loop. No frame of this
 * peer is delivered after the call. */
void tw_transport_close(struct tw_transport *transport, uint16_t peer, enum tw_status reason,
                        const char *sentence);

/* The same, and an offence (bans.h): for what the peer's own bytes prove, whatever others said. */
void tw_transport_blame(struct tw_transport *transport, uint16_t peer, enum tw_status reason,
                        const char *sentence);

/* Bytes at the socket: TLS records and handshakes included, TCP/IP headers not. */
struct tw_traffic {
    uint64_t bytes_in, bytes_out;
};

struct tw_peer_net {
    struct tw_id id;
    char address[TW_ADDR_BYTES]; /* the other end of the control connection */
    bool is_dialled;             /* by this node */
    bool has_bulk;
    uint32_t boot;
    uint64_t features;                /* extension.h */
    char software[TW_SOFTWARE_BYTES]; /* what it calls its program; "" */
    struct tw_traffic control, bulk;  /* since peer_up, handshakes included */
    uint32_t chunks_queued, background_queued;
    uint32_t control_queued_bytes;
    uint32_t rtt_us, rtt_var_us;    /* smoothed, control connection; 0 = unknown */
    uint64_t delivery_bytes_per_s;  /* of the bulk connection, as TCP measured it; 0 = unknown */
    uint64_t retransmits, segments; /* with data, both connections; the former among the latter */
    char congestion[16];            /* "bbr", "cubic", ... of the bulk connection */
    uint64_t path_bytes_per_s;      /* what the path from here carries; 0 = not known */
    uint64_t pace_bytes_per_s;      /* the bulk connection is held to; 0 = no limit */
};

/* Asks the kernel: cheap enough for once a second. False for a number that is not up. */
bool tw_transport_peer(const struct tw_transport *transport, uint16_t peer,
                       struct tw_peer_net *out);

/* Of everything ever: peers gone, failed handshakes and refused ones included. */
struct tw_traffic tw_transport_traffic(const struct tw_transport *transport);

/* The links rest: every peer hears GOODBYE with the sentence, nothing is dialled and nobody is let
 * in until it is called with NULL. */
void tw_transport_rest(struct tw_transport *transport, const char *sentence);

/* Changes the cap of a running node; 0 = none. */
void tw_transport_set_upload(struct tw_transport *transport, uint64_t upload_bytes_per_s);
void tw_transport_set_pace(struct tw_transport *transport, const struct tw_link_pace *pace);

/* Changes the run secrets of a running node, of a run that has any. Links that a secret proved
 * which is no longer among them are closed with TW_WRONG_SECRET; honest nodes are back in a moment.
 */
void tw_transport_set_secrets(struct tw_transport *transport, const struct tw_secrets *secrets);

/* Looks again at the certificates by which peers are here: closes those that ran out, or that
 * config.gate says were revoked since. */
void tw_transport_review(struct tw_transport *transport);

/* The certificates of a peer; none in runs without an owner. */
struct tw_certs tw_transport_certs(const struct tw_transport *transport, uint16_t peer);

/* It has newer ones, which this node signed. */
void tw_transport_renew(struct tw_transport *transport, uint16_t peer,
                        const struct tw_certs *certs);

/* Looks whether this machine has other addresses than before: links from one that is gone are
 * closed, what is advertised follows. True: something changed, and dialling anew may help. */
bool tw_transport_refresh(struct tw_transport *transport);

/* Who is banned: for keeping it across restarts (bans.h), and for people. */
struct tw_bans *tw_transport_bans(struct tw_transport *transport);

/* The port really bound by listen entry `idx` (for port 0; 0: [::] on a machine without IPv6), and
 * the addresses advertised. */
uint16_t tw_transport_port(const struct tw_transport *transport, uint32_t idx);
const struct tw_member_row *tw_transport_self(const struct tw_transport *transport);

#endif
