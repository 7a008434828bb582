/* transport.h - links to other nodes: TCP, TLS 1.3, admission, two connections per pair.
 *
 * A transport belongs to one uv loop and is used only from that loop's thread. A peer is a node
 * that proved its id and its right to be in the run. It has a number `peer` < TW_PEERS_MAX from
 * peer_up to peer_down. The side that dialled the control connection also dials the bulk
 * connection. If either breaks, the peer is down.
 *
 * Callbacks are called only by the loop, never from inside a tw_transport_* call. The runtime may
 * therefore call any function from any callback and between two actions of the core.
 *
 * Bounds (limits.h):
 * - control queue: TW_CONTROL_QUEUE_BYTES per peer; full = the peer is closed
 * - bulk queue: TW_BULK_QUEUE_CHUNKS chunks per peer; full = the peer is closed
 * - ciphertext in flight: 64 KiB per connection
 * - connections not yet admitted: TW_HANDSHAKES_MAX; bans.h limits new ones
 * - time for a started frame to arrive: see link.h
 * - control messages: TW_MESSAGES_PER_S per peer; the rest is read later
 * - repeated protocol violations: ban (bans.h)
 * - links: TW_PEERS_MAX; full = wanted nodes, then nodes with certificates, displace others
 *
 * All uploads count against the upload cap; only bulk waits for it.
 *
 * Background chunks (TW_BACKGROUND_QUEUE_CHUNKS per peer, full = closed) are sent when no payload
 * chunk waits for any peer. A payload thus waits for the rest of at most one background chunk per
 * connection. Two rules keep background from starving. A payload that made no progress for a second
 * no longer blocks others. After 10 s without a background record, one background chunk is sent
 * first. */
#ifndef TW_DAEMON_NET_TRANSPORT_H
#define TW_DAEMON_NET_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/status.h"
#include "daemon/auth/gate.h"
#include "daemon/auth/identity.h"
#include "daemon/net/dial.h"
#include "daemon/net/pacer.h"
#include "proto/frame.h"
#include "proto/hello.h"
#include "proto/message.h"
#include "proto/ticket.h"

struct uv_loop_s;
struct tw_transport;
struct tw_hello;
struct tw_bans;
struct tw_handshake_limiter;

/* A chunk to send. `bytes` is borrowed until released or dropped. */
struct tw_chunk {
    struct tw_id payload;
    uint32_t idx;  /* index of the chunk in the payload */
    uint32_t size; /* 1..TW_CHUNK_BYTES_MAX */
    const uint8_t *bytes;
    bool is_background; /* part of the dataset: waits behind the payloads of all peers */
};

/* Result of a dial. Valid during the callback only. */
struct tw_dial_result {
    enum tw_status status;    /* TW_OK: `id` is at the address, and is linked by this connection or,
                                 now or soon, by another one */
    enum tw_dial_cause cause; /* TW_DIAL_NONE when TW_OK */
    const struct tw_id *id;   /* node that answered, even if not the expected one; or NULL */
    const char *sentence;     /* sentence of tw_dial_sentence, or "connected" */
};

/* A guest with a ticket. Valid during the callback only, except the number. */
struct tw_guest {
    uint32_t number;
    const struct tw_hello *hello; /* HELLO of the guest, whose id TLS has proved */
    const uint8_t *ticket_id;     /* ticket id, TW_TICKET_ID_BYTES bytes */
    /* Keying material of the session, TW_TLS_EXPORT_BYTES bytes, for tw_hello_check_ticket. */
    const uint8_t *ekm;
};

/* A pipe that this node relays. Valid during the callback only. */
struct tw_relay_pipe {
    struct tw_id caller, called;
    uint64_t bytes; /* bytes relayed so far, both directions together */
    bool is_open;
    const char *sentence; /* "open", or why the pipe ended */
};

/* Two machines have one key. Valid during the callback only. */
struct tw_twin_report {
    struct tw_id id;     /* id of the key: a peer's, or this node's own */
    const char *address; /* address of the other machine, which has no link to this node; "" if
                            unknown, NULL if unchanged since the last report */
    const char *linked;  /* address of the linked machine; NULL if the key is this node's own */
};

/* Every `sentence` is meant for people: log it. Arguments are valid during the call only. Callbacks
 * may be NULL, except peer_up, peer_down and frame. */
struct tw_transport_events {
    /* A peer is admitted. `hello` has its id and the addresses that it announces. */
    void (*peer_up)(void *user, uint16_t peer, const struct tw_member_row *hello);

    /* Returns true if node `id` is wanted: a member of the roster, or a configured peer. Wanted
     * nodes displace others when the table of peers is full, and pipes are relayed for them.
     * Without this callback no node displaces another, and a relay carries pipes of all nodes. */
    bool (*is_wanted)(void *user, const struct tw_id *id);

    /* A peer's link has ended, also by tw_transport_close. Another node may get the number `peer`
     * afterwards. */
    void (*peer_down)(void *user, uint16_t peer, enum tw_status reason, const char *sentence);

    /* A whole frame arrived, with a correct checksum, and with a kind and size allowed on that
     * connection. On bulk its kind is TW_FRAME_CHUNK, otherwise one of message.h. The body is valid
     * during the call only. */
    void (*frame)(void *user, uint16_t peer, bool is_bulk, const struct tw_frame *frame);

    /* The bytes of `chunk` are no longer needed. `sent` is false if the peer went down first. */
    void (*released)(void *user, uint16_t peer, const struct tw_chunk *chunk, bool sent);

    /* Called once for each tw_transport_connect and tw_transport_visit. */
    void (*dial_done)(void *user, const char *address, const struct tw_dial_result *result);

    /* Called once for each tw_transport_probe. Status TW_OK means that the expected node is at
     * `address`. */
    void (*probe_done)(void *user, const char *address, const struct tw_id *expected,
                       const struct tw_dial_result *result);

    /* Called once for each tw_transport_call. Status TW_OK means that the node is linked, by this
     * call or otherwise. */
    void (*call_done)(void *user, const struct tw_id *relay, const struct tw_id *target,
                      const struct tw_dial_result *result);

    /* A probe of node `id` came from `address`, and asks for a PUNCH with `token` in return. */
    void (*observed)(void *user, const struct tw_id *id, uint64_t token, const char *address);

    /* Returns TW_OK if this node may carry a pipe of these two nodes, of which at least one is
     * wanted, else the reason. Called for each call, and again for each open pipe about once a
     * second or after TW_RELAY_JUDGE_BYTES, with the `bytes` relayed since then. An open pipe ends
     * if an error is returned. */
    enum tw_status (*relay_judge)(void *user, const struct tw_id *caller,
                                  const struct tw_id *called, uint64_t bytes, struct tw_error *err);

    /* This node opened a pipe for two other nodes, or such a pipe ended. */
    void (*relayed)(void *user, const struct tw_relay_pipe *pipe);

    /* Returns true if the `size` bytes at `name` are a knock (tickets.h) made with a ticket of this
     * node. They are untrusted. */
    bool (*is_knock)(void *user, const char *name, size_t size);

    /* A node presents a ticket. Everything but the ticket was checked: check the ticket, first by
     * tw_hello_check_ticket. Answer within the time of a handshake by tw_transport_welcome or
     * tw_transport_turn_away. Without this callback all tickets are unknown. */
    void (*guest)(void *user, const struct tw_guest *guest);

    /* tw_transport_visit received the body of a WELCOME. dial_done follows. */
    void (*welcomed)(void *user, const uint8_t *body, uint32_t size);

    /* A peer broke the protocol so often that it is banned for `seconds`. Save the table of bans.
     */
    void (*banned)(void *user, const struct tw_id *id, uint32_t seconds, const char *sentence);

    /* Another machine has the key of a peer, or of this node. Not called again for a finding that
     * is known already (twin.h). */
    void (*twin)(void *user, const struct tw_twin_report *report);

    /* A node was refused, or an accepted connection failed before it became a peer. */
    void (*refused)(void *user, const char *address, enum tw_status reason, const char *sentence);
};

struct tw_transport_config {
    struct uv_loop_s *loop;
    const struct tw_identity *identity; /* borrowed until destroy */
    const struct tw_secrets *secrets;   /* copied; NULL = `open` admission, on loopback only */
    const struct tw_gate *gate;         /* borrowed until destroy; NULL if the run has no owner */
    struct tw_id run;
    char name[TW_NODE_NAME_BYTES]; /* name of this node for people; "" = none */
    uint32_t boot;
    uint64_t process; /* number of this process in HELLO; 0 = random; fixed in tests */

    char listen[TW_LISTEN_MAX][TW_ADDR_BYTES];   /* addresses to listen on, such as "127.0.0.1:4300"
                                                    or "[::]:4300"; port 0 = any port */
    uint32_t listen_count;                       /* 0 = this node only dials */
    char advertise[TW_ADDRS_MAX][TW_ADDR_BYTES]; /* announced addresses, empty after the last; if
                                                    none: those listened on, and for wildcards the
                                                    addresses from which this machine dials the
                                                    internet */
    char interface[TW_ADDR_BYTES]; /* network interface to listen on and to dial from; "" = any */
    char bind[TW_BIND_MAX][TW_ADDR_BYTES]; /* source addresses of dials; none = any */
    uint64_t upload_bytes_per_s;           /* 0 = no cap */
    struct tw_link_pace pace;              /* limits of bulk connections */
    uint64_t handshake_us;                 /* 0 = TW_HANDSHAKE_US; shorter in tests */
    uint64_t connect_us;                   /* 0 = TW_CONNECT_US; shorter in tests */
    uint64_t background_us;                /* longest wait of a background chunk; 0 = 10 s */
    uint64_t twin_us;                      /* 0 = TW_TWIN_ANSWER_US; shorter in tests */

    struct tw_transport_events events;
    void *user;
};

/* Binds and listens before it returns. The sentence of TW_IO names the address and the remedy (port
 * in use, not an address of this machine). Returns TW_CONFIG for `open` admission on an address
 * that others can reach. Makes the process ignore SIGPIPE. */
enum tw_status tw_transport_create(const struct tw_transport_config *config,
                                   struct tw_transport **transport, struct tw_error *err);

/* Sends GOODBYE to every peer and closes everything. peer_down and dial_done are not called any
 * more. The loop calls `closed` (or NULL) when the last handle is closed and the memory is freed:
 * at once if nothing waits, otherwise within 2 s, or when a running DNS lookup ends. Queued chunks
 * are not read any more after this call. */
void tw_transport_destroy(struct tw_transport *transport, const char *sentence,
                          void (*closed)(void *user));

/* Dials host:port; `expected` (or NULL) pins the id. dial_done is called later, unless this returns
 * TW_LIMIT (too many dials in progress) or TW_CONFIG (not host:port). */
enum tw_status tw_transport_connect(struct tw_transport *transport, const char *address,
                                    const struct tw_id *expected, struct tw_error *err);

/* Like tw_transport_connect, for an address that came from other nodes. If its host is a name, only
 * its public addresses are dialled. */
enum tw_status tw_transport_connect_hearsay(struct tw_transport *transport, const char *address,
                                            const struct tw_id *expected, struct tw_error *err);

/* Tests whether node `expected` is at `address`, without making a link. probe_done is called later.
 * Fails as tw_transport_connect does. */
enum tw_status tw_transport_probe(struct tw_transport *transport, const char *address,
                                  const struct tw_id *expected, struct tw_error *err);

/* Probes the peer at the host where this node sees it, at the ports of the addresses that the peer
 * announces. Writes the dialled addresses and returns their number; probe_done is called for each.
 * Returns 0 if the link is relayed, or if that host has asked too often (bans.h). */
uint32_t tw_transport_dial_back(struct tw_transport *transport, uint16_t peer,
                                char dialled[TW_ADDRS_MAX][TW_ADDR_BYTES]);

/* Sends a probe as tw_transport_probe does, but from the local port `from_port` and without
 * probe_done. It asks the node at `address` where that node sees this dial. The answer is a PUNCH
 * of the stage `seen` with `token`. Returns TW_AGAIN if `bind` or `interface` is set, as no port
 * can be chosen then. */
enum tw_status tw_transport_observe(struct tw_transport *transport, const char *address,
                                    const struct tw_id *expected, uint16_t from_port,
                                    uint64_t token, struct tw_error *err);

/* Asks the node that made the ticket, at one of its addresses, for a WELCOME. If it arrives,
 * `welcomed` is called, and in any case dial_done. Fails as tw_transport_connect does. */
enum tw_status tw_transport_visit(struct tw_transport *transport, const char *address,
                                  const struct tw_ticket *ticket, struct tw_error *err);

/* tw_transport_welcome answers a guest with the body of a WELCOME, proved by the ticket's key.
 * tw_transport_turn_away refuses it with a reason. Both are ignored if the guest has left. */
void tw_transport_welcome(struct tw_transport *transport, uint32_t guest, const uint8_t *ticket_key,
                          const uint8_t *body, uint32_t size);
void tw_transport_turn_away(struct tw_transport *transport, uint32_t guest, enum tw_status status,
                            const char *sentence);

/* Links this node to `target` through the linked peer `relay` (PROTOCOL.md section 12). call_done
 * is called later, unless this returns TW_AGAIN (the peer cannot relay now), TW_LIMIT (too many
 * dials) or TW_CONFIG (no address of the relay is known). */
enum tw_status tw_transport_call(struct tw_transport *transport, uint16_t relay,
                                 const struct tw_id *target, struct tw_error *err);

/* Answers a RELAY_CALL of the peer `relay` by dialling it with the token. Success shows only in
 * peer_up. Fails as tw_transport_call does. Also returns TW_LIMIT if the relay passes on too many
 * calls, and TW_AGAIN if `from` is linked directly already. */
enum tw_status tw_transport_answer(struct tw_transport *transport, uint16_t relay,
                                   const struct tw_id *from,
                                   const uint8_t token[TW_RELAY_TOKEN_BYTES], struct tw_error *err);

/* Addresses at which the relay sees the two ends of a link: [0] by the control connection, [1] by
 * the bulk connection. */
struct tw_punch_info {
    bool is_client; /* this node dialled the relayed link, so it asks for the punch */
    char own[2][TW_ADDR_BYTES], other[2][TW_ADDR_BYTES];
};

/* Returns TW_AGAIN with the reason if the relayed link to this peer cannot be punched (PROTOCOL.md
 * section 13). */
enum tw_status tw_transport_punch_info(const struct tw_transport *transport, uint16_t peer,
                                       struct tw_punch_info *info, struct tw_error *err);

/* Returns true if the other end names the same addresses that the relay sees. Only then may the
 * link be punched: one member alone must not make this node dial anywhere. */
bool tw_punch_is_agreed(const struct tw_punch_info *info, const struct tw_msg_punch *punch);

/* Dials the other end of the relayed link in `delay_us`, while the other end dials this node.
 * Success shows only in peer_up. Returns TW_AGAIN if the link cannot be punched
 * (tw_transport_punch_info), TW_LIMIT if too many punches are running. */
enum tw_status tw_transport_punch(struct tw_transport *transport, uint16_t peer, uint64_t delay_us,
                                  struct tw_error *err);

/* Sets whether this node relays for others, and at which rate, both directions together; 0 = no
 * cap. If there is an upload cap, relayed bytes get at most half of it. Turning relaying off ends
 * open pipes. It is off at first. */
void tw_transport_set_relay(struct tw_transport *transport, bool is_on, uint64_t bytes_per_s);

/* State of relaying for other nodes. */
struct tw_relay_info {
    bool is_on;
    uint64_t bytes_per_s;    /* cap in force; 0 = none */
    uint64_t bytes, refused; /* relayed bytes and refused calls since the start */
    uint64_t cut;            /* open pipes that were ended as they may carry no more */
    uint32_t pipes, calls;   /* pipes that are open, calls that are waiting */
};
struct tw_relay_info tw_transport_relay(const struct tw_transport *transport);

/* Sends a control frame now. Ignored if the peer is going down or lacks the feature that this kind
 * needs. A peer whose queue reaches TW_CONTROL_QUEUE_BYTES is closed. */
void tw_transport_send_control(struct tw_transport *transport, uint16_t peer, uint16_t kind,
                               const void *body, uint32_t body_bytes);

/* Queues a chunk for the bulk connection, which may still be coming up. Returns false, and
 * `released` is not called, if the peer is going down or is closed now because its queue is full.
 */
bool tw_transport_send_chunk(struct tw_transport *transport, uint16_t peer,
                             const struct tw_chunk *chunk);

/* Returns true if this chunk already waits for the peer. A peer that repeats its request because
 * the answer is slow need not get the chunk twice. */
bool tw_transport_has_chunk(const struct tw_transport *transport, uint16_t peer,
                            const struct tw_id *payload, uint32_t idx);

/* Drops queued chunks of this payload for all peers. Their bytes are not read after the call, and
 * `released` is not called for them. A half-sent chunk is completed from a copy. */
void tw_transport_drop(struct tw_transport *transport, const struct tw_id *payload);

/* Sends GOODBYE{reason, sentence} and closes the link. The loop calls peer_down later. No frame of
 * this peer is delivered after the call. */
void tw_transport_close(struct tw_transport *transport, uint16_t peer, enum tw_status reason,
                        const char *sentence);

/* Like tw_transport_close, and counts an offence (bans.h). Only for faults that the peer's own
 * bytes prove, not for data that the peer passed on from other nodes. */
void tw_transport_blame(struct tw_transport *transport, uint16_t peer, enum tw_status reason,
                        const char *sentence);

/* Bans a node at once, linked or not, for a fault that its own signatures prove. */
void tw_transport_ban(struct tw_transport *transport, const struct tw_id *id, const char *sentence);

/* Bytes counted at the socket: TLS records and handshakes included, TCP/IP headers not. */
struct tw_traffic {
    uint64_t bytes_in, bytes_out;
};

struct tw_peer_net {
    struct tw_id id;
    char address[TW_ADDR_BYTES]; /* address of the other end of the control connection */
    bool is_dialled;             /* dialled by this node */
    bool is_relayed;             /* linked through another member */
    struct tw_id relay; /* if is_relayed: id of that member, whose address is in `address` */
    bool is_neighbour;  /* if is_relayed: that member says that it sees both ends at one IP address,
                           so one router has both */
    bool is_punched;    /* both nodes dialled at the same time (hole punching) */
    bool has_bulk;
    uint32_t boot;
    uint64_t features;                /* feature bits of hello.h */
    char software[TW_SOFTWARE_BYTES]; /* name of the peer's program, as it announced; or "" */
    char name[TW_NODE_NAME_BYTES];    /* name of the peer, as it announced; or "" */
    struct tw_traffic control, bulk;  /* traffic since peer_up, handshakes included */
    uint32_t chunks_queued, background_queued;
    uint32_t control_queued_bytes;
    uint32_t rtt_us, rtt_var_us; /* smoothed round trip of the control connection and its variance;
                                    0 = unknown */
    uint64_t delivery_bytes_per_s; /* measured by TCP on the bulk connection; 0 = unknown */
    uint64_t clock_s; /* the peer's wall clock now, Unix seconds, by that in its HELLO; 0 = not
                         said. A peer that sets its clock later is linked again before this is
                         right */
    uint64_t retransmits,
        segments;              /* totals of both connections; segments include retransmissions */
    char congestion[16];       /* congestion control of the bulk connection: "bbr", "cubic", ... */
    uint64_t path_bytes_per_s; /* rate of the path from this node to the peer; 0 = unknown */
    uint64_t pace_bytes_per_s; /* limit of the bulk connection; 0 = none */
};

/* Reads the kernel's statistics; cheap enough for once a second. Returns false if no such peer is
 * up. */
bool tw_transport_peer(const struct tw_transport *transport, uint16_t peer,
                       struct tw_peer_net *out);

/* Returns the total traffic, including peers that left and connections that failed or were refused.
 */
struct tw_traffic tw_transport_traffic(const struct tw_transport *transport);

/* Returns the part of tw_transport_traffic that is due to strangers: accepted connections that have
 * not proved their right to be in the run. When a connection proves it, its bytes leave this sum.
 */
struct tw_traffic tw_transport_strangers(const struct tw_transport *transport);

/* Sets whether strangers get an answer: nodes that do not knock (tickets.h), at hosts from which no
 * member was admitted within a day. At first they do. Otherwise their connection ends after its
 * ClientHello, without a byte. */
void tw_transport_admit_strangers(struct tw_transport *transport, bool is_on);
/* Returns the number of strangers that got no answer for that reason, since the start. */
uint64_t tw_transport_strangers_refused(const struct tw_transport *transport);

/* Suspends all links: every peer receives GOODBYE with the sentence, nothing is dialled, and no
 * node is admitted. NULL as the sentence ends the suspension. */
void tw_transport_rest(struct tw_transport *transport, const char *sentence);

/* Change the limits of a running node; 0 = none. */
void tw_transport_set_upload(struct tw_transport *transport, uint64_t upload_bytes_per_s);
void tw_transport_set_pace(struct tw_transport *transport, const struct tw_link_pace *pace);

/* Changes the run secrets of a running node, in a run that has secrets. Closes links whose secret
 * was removed, with the reason TW_WRONG_SECRET. Honest nodes reconnect with the new one. */
void tw_transport_set_secrets(struct tw_transport *transport, const struct tw_secrets *secrets);

/* Checks the certificates of all peers again. Closes peers whose certificate expired or was revoked
 * according to config.gate. */
void tw_transport_review(struct tw_transport *transport);

/* Returns the certificates of a peer. A run without an owner has none. */
struct tw_certs tw_transport_certs(const struct tw_transport *transport, uint16_t peer);

/* Replaces the peer's certificates by newer ones, which this node signed. */
void tw_transport_renew(struct tw_transport *transport, uint16_t peer,
                        const struct tw_certs *certs);

/* Checks whether this machine's addresses changed. Closes links from an address that is gone and
 * updates the announced addresses. Returns true if something changed, so that dialling again may
 * help. */
bool tw_transport_refresh(struct tw_transport *transport);

/* Sets the "host:port" at which a router forwards connections to this node, or "". It is announced
 * from the next tw_transport_refresh on, unless config.advertise is set. Returns true if the
 * address changed. */
bool tw_transport_set_mapped(struct tw_transport *transport, const char *address);

/* Finds the private IPv4 address and port to which a router would have to forward. Returns false if
 * this node listens on no such address. */
bool tw_transport_inner(const struct tw_transport *transport, char host[TW_ADDR_BYTES],
                        uint16_t *port);

/* Finds the IPv4 address from which this machine dials the internet, without a port. Returns false
 * if there is none. */
bool tw_transport_own_v4(const struct tw_transport *transport, char host[TW_ADDR_BYTES]);

/* Returns the table of bans, to show it and to save it for the next start (bans.h). */
struct tw_bans *tw_transport_bans(struct tw_transport *transport);

/* Returns the limiter, to save the hosts of members for the next start (bans.h). */
struct tw_handshake_limiter *tw_transport_limiter(struct tw_transport *transport);

/* A key that two machines have. */
struct tw_twin_info {
    struct tw_id id;
    bool is_self;                /* the key is this node's own */
    char address[TW_ADDR_BYTES]; /* address of the machine that has no link to this node; or "" */
    char linked[TW_ADDR_BYTES];  /* address of the linked machine; "" if none is linked */
};
enum { TW_TWIN_INFOS_MAX = 8 };

/* Lists the keys that two machines had within the last minutes. Returns their number. */
uint32_t tw_transport_twins(const struct tw_transport *transport,
                            struct tw_twin_info twins[TW_TWIN_INFOS_MAX]);

/* tw_transport_port returns the port that listen entry `idx` has bound (also for port 0), or 0 for
 * [::] on a machine without IPv6. tw_transport_self returns the announced addresses. */
uint16_t tw_transport_port(const struct tw_transport *transport, uint32_t idx);
const struct tw_member_row *tw_transport_self(const struct tw_transport *transport);

#endif
