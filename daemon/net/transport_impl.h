/* transport_impl.h - the state of a transport, shared by the five files that own its parts.
 * Private to them:
 *
 *   transport.c  the loop, listeners, announced addresses, statistics
 *   admit.c      accepted connections, until they are a peer's; held connections; guests
 *   dialer.c     dialled connections: dials, calls through a relay, punches
 *   peer.c       the table of peers, their queues and their pacing
 *   relay.c      pipes between two other nodes
 *
 * Everything that may call back into the runtime or free something happens in transport_step of
 * transport.c. A timer runs that step, and after tw_transport_soon an idle handle does. The runtime
 * is thus never called back from inside its own call. */
#ifndef TW_DAEMON_NET_TRANSPORT_IMPL_H
#define TW_DAEMON_NET_TRANSPORT_IMPL_H

#include <uv.h>

#include "base/rate.h"
#include "daemon/net/bans.h"
#include "daemon/net/dial.h"
#include "daemon/net/handshake.h"
#include "daemon/net/link.h"
#include "daemon/net/pacer.h"
#include "daemon/net/socket.h"
#include "daemon/net/sockopt.h"
#include "daemon/net/tls.h"
#include "daemon/net/transport.h"
#include "daemon/net/twin.h"

enum {
    TW_CONNS_MAX = 4 * TW_PEERS_MAX + TW_HANDSHAKES_MAX + TW_DIALS_MAX + 2 * TW_RELAY_PIPES_MAX +
                   2 * TW_PUNCHES_MAX, /* includes connections that are draining */
    TW_BULK_RETRY_US = 500 * 1000,
    /* Time after which a peer without a bulk connection is closed. */
    TW_BULK_UP_US = 20 * 1000 * 1000,
    /* Time without an acknowledgement, after which a link is closed. */
    TW_BULK_STUCK_US = 6 * 1000 * 1000,
    /* Time without progress, after which a payload no longer blocks background chunks. */
    TW_BACKGROUND_STALL_US = 1000 * 1000,
    /* Time without a background record, after which one background chunk goes first. */
    TW_BACKGROUND_PATIENCE_US = 10 * 1000 * 1000,
};

/* A call through a relay, as one of its ends sees it. */
struct tw_call {
    bool is_caller;
    enum tw_role role; /* role of the connection inside the pipe, once it is open */
    struct tw_id relay, other;
    uint8_t token[TW_RELAY_TOKEN_BYTES];
    char seen[2][TW_ADDR_BYTES]; /* once the pipe is open: addresses at which the relay sees this
                                    end and the other end, or "" if the relay does not tell */
};

/* One connection in any role, from opening its socket until it is closed. */
#define TW_CLOCK_MAX_S (UINT64_C(1) << 40) /* a later clock counts as none */

struct tw_conn {
    struct tw_link link; /* first member: the link's address is the conn's */
    struct tw_transport *transport;
    uv_connect_t connect;
    struct sockaddr_storage remote;
    enum tw_role role; /* role of a dialled connection */
    /* Call that this connection serves, if it has the role relay or is_relayed. */
    struct tw_call call;
    bool is_relayed;    /* the connection is an end of a relay's pipe; is_dialled then means the
                           caller's end */
    int pipe;           /* on a relay: index of the pipe that this connection is in, else -1 */
    int punch;          /* 2 * index of its punch + lane, while it belongs to a punch; else -1 */
    bool is_punched;    /* both ends dialled this connection at the same time */
    uint64_t ask_token; /* if it is a probe: token of the PUNCH to ask for, or 0 */
    bool is_spare;      /* made by a punch as the bulk connection to call.other, and not used yet */
    bool is_dialled, is_accepted, has_spoken;
    bool is_held;   /* its HELLO is unanswered while the node's older link is tested (admit.c) */
    bool is_known;  /* accepted from a host of members, or after a valid knock */
    bool is_proven; /* its HELLO proved the right to be in the run */
    int peer;       /* number of the peer once admitted, else -1 */
    int bulk_of;    /* dialled bulk, not yet admitted: number of its peer, else -1 */
    struct tw_dialling *dialling; /* dialled control, not yet admitted */
    uint32_t candidate;           /* index in the race of `dialling` */
    enum tw_dial_cause cause;     /* cause of a failure, where the status is not specific enough */
    uint64_t deadline_us; /* time by which the node must be admitted; UINT64_MAX once it is */
    uint64_t since_us;
    uint32_t secret; /* index in transport->secrets of the secret that both HELLOs prove */
    uint32_t guest;  /* number of an accepted guest, or 0 */
    uint8_t ekm[TW_TLS_EXPORT_BYTES];
    struct tw_certs certs; /* certificates that admitted the node, in runs with an owner */
    uint64_t clock_s;      /* the node's wall clock in its HELLO, Unix seconds; 0: not said */
};

/* A dial in progress, started by tw_transport_connect, _probe, _visit, _observe or _call. */
struct tw_dialling {
    struct tw_transport *transport;
    struct tw_lookup lookup;
    char address[TW_ADDR_BYTES];
    enum tw_role role;
    bool has_expected, is_over, has_id, is_orphan; /* is_orphan: the dial is over, but its DNS
                                                      lookup still runs and frees the struct when it
                                                      ends */
    bool is_hearsay;  /* the address came from other nodes: a name in it must not resolve to this
                         machine or to a link-local address */
    bool is_awaiting; /* this dial waits until another connection links this node to `id` */
    struct tw_id expected, id;
    uint8_t ticket_id[TW_TICKET_ID_BYTES], ticket_key[TW_TICKET_KEY_BYTES]; /* guest: its ticket */
    struct tw_call call; /* if the role is relay */
    /* Role probe of tw_transport_observe: token of the PUNCH to ask for, or 0. */
    uint64_t ask_token;
    uint16_t from_port; /* local port to dial from; 0 = any */
    struct tw_race race;
    uint64_t deadline_us;
    struct tw_conn *conns[TW_DIAL_CANDIDATES_MAX]; /* connections in progress */
    /* When over: cause of the failure, where the status is not specific enough. */
    enum tw_dial_cause cause;
    struct tw_error result; /* valid when over */
};

struct tw_chunk_ring {
    struct tw_chunk *chunks; /* array of `capacity` chunks */
    uint32_t capacity, begin, count;
};

/* Chunks that wait for a peer's bulk connection. peer.c has the rules. */
struct tw_bulk {
    struct tw_chunk_ring payloads, background;
    bool is_background; /* the half-sent chunk is a background chunk */
    bool is_promoted;   /* a background chunk has waited too long: the next one is sent first */
    uint64_t moved_us; /* time when a payload record was last sent, or the queue became non-empty */
};

/* Pacing of a bulk connection. */
struct tw_pacing {
    struct tw_pacer pacer;
    uint64_t limit_bytes_per_s;                /* limit set in the kernel; 0 = none */
    uint64_t looked_us, bytes_out, no_room_us; /* values at the last sample */
    bool is_idle;
    uint64_t progress_us, acked_bytes; /* time of the last delivery on the path; bytes acknowledged
                                          by then */
    uint64_t progress_due_us;          /* time of the next check for such progress */
};

enum tw_slot_state { TW_SLOT_FREE, TW_SLOT_UP, TW_SLOT_ENDING };

struct tw_slot {
    enum tw_slot_state state;
    struct tw_conn *control, *bulk;
    struct tw_conn *bulk_dial; /* dial of the bulk connection that is in progress */
    struct tw_member_row record;
    uint32_t boot;
    uint64_t features; /* feature bits of hello.h */
    char software[TW_SOFTWARE_BYTES];
    char name[TW_NODE_NAME_BYTES];
    uint32_t secret; /* index in transport->secrets that proved the link */
    bool is_dialled;
    bool is_relayed;
    bool is_punched;
    struct tw_id relay; /* id of the relay, if is_relayed */
    uint8_t tag[TW_LINK_TAG_BYTES];
    uint64_t bulk_retry_us;    /* if this node dialled the peer: time of the next try for a bulk
                                  connection; UINT64_MAX = none planned */
    uint64_t bulk_deadline_us; /* time by which the peer must have a bulk connection */
    struct tw_error bulk_error;
    struct tw_certs certs;  /* certificates that admitted the peer, in runs with an owner */
    uint64_t clock_s;       /* the peer's wall clock when it linked, Unix seconds; 0: not said */
    uint64_t linked_us;     /* time when it linked */
    struct tw_error reason; /* reason of the end, if ENDING */
    bool needs_pump; /* a connection was resumed: frames buffered for it are to be delivered */
    struct tw_rate messages;
    struct tw_rate calls;   /* rate of calls that this peer makes through us */
    struct tw_rate answers; /* rate of calls that we answer through this peer */
    struct tw_rate relayed; /* rate of relayed bytes while the peer is not wanted */
    uint64_t throttled_us;  /* time until which no control frame of the peer is read; 0 = reading */
    struct tw_bulk queue;
    struct tw_pacing pacing;
};

enum tw_pipe_state { TW_PIPE_FREE, TW_PIPE_CALLING, TW_PIPE_OPEN, TW_PIPE_ENDED };

/* Two connections that this node joins for two other nodes (relay.c). */
struct tw_pipe {
    enum tw_pipe_state state;
    struct tw_id caller, called;
    uint8_t token[TW_RELAY_TOKEN_BYTES];
    struct tw_conn *ends[2]; /* connections of the caller and of the called node */
    uint64_t deadline_us;    /* CALLING: time at which the pipe is given up */
    uint64_t bytes;          /* bytes sent, both directions together */
    int outside;             /* index of the end that is not wanted, or -1 */
    uint64_t judge_us;       /* OPEN: time of the next judgement */
    uint64_t judged_bytes;   /* `bytes` at the last one */
    bool was_open;           /* if ENDED */
    struct tw_error reason;  /* if ENDED */
};

/* One of the two connections that a punch tries to make through the NATs. */
struct tw_lane {
    struct sockaddr_storage from, to;
    /* The connection, dialling or connected. NULL if there is none, or if the lane has handed it
     * over. */
    struct tw_conn *conn;
    uint64_t due_us; /* time of the next dial */
    bool is_connected, is_over;
};

/* An attempt to replace the relayed link to a node by a direct one (dialer.c). */
struct tw_punch {
    bool is_used, is_client;
    struct tw_id id;
    uint64_t until_us;
    struct tw_lane lanes[2]; /* control lane, bulk lane */
};

/* Optional content of HELLO; NULL or 0 = not sent. */
struct tw_greeting {
    const uint8_t *tag;   /* TW_LINK_TAG_BYTES */
    const uint8_t *relay; /* relay extension: token, and for a call the called node's id */
    uint32_t relay_bytes;
    const char *seen_own,
        *seen_other;    /* sent by a relay: addresses at which it sees the two ends */
    uint64_t ask_token; /* sent by a probe: token of the PUNCH to ask for */
};

/* A second process with the key of a linked node: its HELLO waits in admit.c. */
struct tw_held {
    struct tw_conn *conn; /* NULL if the row is free */
    struct tw_hello hello;
};

enum { TW_HELD_MAX = 8 }; /* if all are used, newcomers get TW_AGAIN */

struct tw_transport {
    struct tw_transport_config config;
    struct tw_secrets secrets;
    bool is_closing;
    struct tw_tls_context tls;
    struct tw_member_row self;
    char mapped[TW_ADDR_BYTES]; /* outer address at a router, or "" */
    char rest[96];              /* why links are suspended; "" if they are not */
    bool are_strangers_out;     /* only nodes that knock, and hosts from which members were
                                   admitted, get an answer */
    uint64_t strangers_refused; /* strangers that got no answer for that reason, since the start */
    uv_idle_t idle;
    uv_timer_t timer;
    uint32_t handles_count; /* open handles: idle, timer, listeners, connections */
    uint32_t guests_count;  /* number of guests since the start */
    uint32_t orphans_count; /* DNS lookups that outlive their dial */
    struct tw_egress egress;
    struct tw_listener listeners[TW_LISTEN_MAX];
    struct tw_conn *conns[TW_CONNS_MAX];
    struct tw_dialling *dials[TW_DIALS_MAX];
    struct tw_slot peers[TW_PEERS_MAX];
    struct tw_rate upload, accepts;
    struct tw_pipe pipes[TW_RELAY_PIPES_MAX];
    struct tw_punch punches[TW_PUNCHES_MAX];
    bool relay_is_on;
    uint64_t relay_bytes_per_s;   /* cap of relayed bytes as configured; 0 = none */
    struct tw_rate relay;         /* cap of relayed bytes in force */
    struct tw_rate relay_outside; /* rate of relayed bytes of all nodes that are not wanted */
    uint64_t relay_bytes, relay_refused; /* relayed bytes and refused calls since the start */
    uint64_t relay_cut;                  /* open pipes that were ended as they may carry no more */
    uint64_t relay_wait_us; /* pause until the cap allows more relayed bytes; 0 = none */
    uint32_t relay_turn;
    struct tw_handshake_limiter limiter;
    struct tw_knocks knocks;
    struct tw_bans bans;
    struct tw_twins twins;
    struct tw_held held[TW_HELD_MAX];
    uint64_t process;       /* number of this process for its HELLO; 0 = none */
    uint64_t accept_due_us; /* time when listeners may accept again; 0 = once there is room */
    uint16_t turn, background_turn;
    uint64_t upload_wait_us;     /* pause until the upload cap allows more bulk records; 0 = none */
    uint64_t background_wait_us; /* time until a background record may be sent; 0 = now, or none
                                    waits */
    uint64_t background_us; /* time when a background record was last sent, or when one began to
                               wait */
    struct tw_traffic retired,
        strangers; /* traffic of closed connections: those that were
                      admitted, and those of strangers (is_stranger of transport.c) */
    void (*closed)(void *user);
};

/* transport.c */
void tw_transport_soon(struct tw_transport *t);
struct tw_conn *tw_conn_create(struct tw_transport *t, struct tw_error *err);
void tw_conn_fail(struct tw_conn *conn, enum tw_status status, const char *sentence);

/* admit.c: turns a secured connection into a peer, or refuses it. */
void tw_admit_secured(struct tw_conn *conn);
void tw_admit_frame(struct tw_conn *conn, const struct tw_frame *frame);
/* Reports the failure of a connection that is not a peer's to its dial or guest. Called from the
 * loop. */
void tw_admit_failed(struct tw_conn *conn);
void tw_admit_accepted(uv_stream_t *server, int status);
/* Sends this node's HELLO. */
void tw_admit_greet(struct tw_conn *conn, enum tw_role role, const struct tw_greeting *greeting);
/* Ends a connection that is not a peer's, and reports that to its dial or guest. */
void tw_admit_refuse(struct tw_conn *conn, enum tw_status status, const char *sentence);

/* admit.c: a second process with the key of a linked node. */
/* Returns a random number above 0, or 0 if the system has no random bytes. */
uint64_t tw_held_number(void);
/* Another node reports that this node's key is on another machine too, at the address in `text`. */
void tw_held_told(struct tw_transport *t, const char *text);
/* Handles a TWIN frame of a peer. */
void tw_held_frame(struct tw_conn *conn, const struct tw_frame *frame);
/* Stops holding a connection, because it ends. */
void tw_held_forget(struct tw_conn *conn);
void tw_held_step(struct tw_transport *t, uint64_t now_us);
uint64_t tw_held_deadline_us(const struct tw_transport *t);

/* dialer.c: the two ends of a relayed link. */
void tw_call_secured(struct tw_conn *conn);
/* Handles the relay's HELLO, which means that its pipe is open. */
void tw_call_joined(struct tw_conn *conn, const struct tw_hello *hello);

/* dialer.c: hole punching, where both ends dial at the same time. */
/* Writes the address of a connection's other end as other nodes would: IPv4 is never mapped to
 * IPv6. */
void tw_seen_address(const struct sockaddr_storage *from, char text[TW_ADDR_BYTES]);
/* Handles the failure of a punch's connection, and frees the connection. */
void tw_punch_lost(struct tw_conn *conn);
void tw_punch_step(struct tw_transport *t, uint64_t now_us);
void tw_punch_close(struct tw_transport *t);
uint64_t tw_punch_deadline_us(const struct tw_transport *t);

/* relay.c: pipes between two other nodes. */
/* Handles a valid HELLO with the role relay. */
void tw_relay_hello(struct tw_conn *conn, const struct tw_hello *hello);
/* Ends the pipe of a connection that failed or closed. */
void tw_relay_lost(struct tw_conn *conn);
/* Ends the pipes of a node whose link has ended. */
void tw_relay_peer_gone(struct tw_transport *t, const struct tw_id *id);
/* Applies the configured cap on relayed bytes. */
void tw_relay_apply(struct tw_transport *t);
void tw_relay_step(struct tw_transport *t, uint64_t now_us);
uint64_t tw_relay_deadline_us(const struct tw_transport *t, uint64_t now_us);

/* dialer.c: dials of control and bulk connections. */
void tw_dialer_step(struct tw_transport *t, uint64_t now_us);
void tw_dialer_over(struct tw_dialling *dialling, enum tw_status status, const struct tw_id *id,
                    const char *sentence);
/* Blames this machine's own line for a dial that failed, if that is down. */
void tw_dialer_check_line(struct tw_conn *conn);
/* Handles the failure of a dial's connection. Returns true if it failed before HELLO: the race
 * continues without it, and it is freed. */
bool tw_dialer_lost(struct tw_conn *conn, const struct tw_error *why);
/* Makes the dial wait for another link to node `id`, because that node answered that one exists or
 * soon will. The answer alone proves nothing: the dial fails if no link comes up in time. */
void tw_dialer_await(struct tw_dialling *dialling, const struct tw_id *id, const char *sentence);
/* Ends dials to a node that is now linked, if they have not reached HELLO. */
void tw_dialer_linked(struct tw_transport *t, const struct tw_id *id);
uint64_t tw_dialer_deadline_us(const struct tw_transport *t);
enum tw_status tw_dialer_bulk(struct tw_transport *t, int peer, struct tw_error *err);
void tw_dialer_close(struct tw_transport *t);

/* peer.c: admitted peers, their queues and their end. */
int tw_peer_find(const struct tw_transport *t, const struct tw_id *id);
/* Returns false for a node that is neither in the roster nor configured (events.is_wanted). */
bool tw_peer_is_wanted(const struct tw_transport *t, const struct tw_id *id);
int tw_peer_open(struct tw_conn *conn, const struct tw_hello *hello, struct tw_error *err);
/* Writes an address where the sender of `hello` can be dialled, else the one it connects from, or
 * "" if neither is known. */
void tw_peer_address(const struct tw_conn *conn, const struct tw_hello *hello,
                     char address[TW_ADDR_BYTES]);
void tw_peer_attach_bulk(struct tw_conn *conn, int peer);
/* Ends a peer's link: its connections send GOODBYE{reason, sentence}, and the next step calls
 * peer_down. */
void tw_peer_end(struct tw_transport *t, int peer, enum tw_status reason, const char *sentence);
/* Ends a peer whose own bytes prove the reason. A broken rule also counts towards a ban (bans.h).
 */
void tw_peer_blame(struct tw_transport *t, int peer, enum tw_status reason, const char *sentence);
/* Calls peer_down for an ending peer and frees its row. Only called from the loop. */
void tw_peer_finish(struct tw_transport *t, int peer);
void tw_peer_frame(struct tw_conn *conn, const struct tw_frame *frame);
void tw_peers_step(struct tw_transport *t, uint64_t now_us);

/* peer.c: queues of chunks, and the choice of the next record to send. */
void tw_bulk_deinit(struct tw_bulk *bulk);
void tw_bulk_clear(struct tw_bulk *bulk);
bool tw_bulk_push(struct tw_transport *t, struct tw_bulk *bulk, const struct tw_chunk *chunk);
bool tw_bulk_has(const struct tw_bulk *bulk, const struct tw_id *payload, uint32_t idx);
void tw_bulk_drop(struct tw_bulk *bulk, const struct tw_id *payload);

#endif
