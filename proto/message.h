/* message.h - control messages as plain C values: what nodes say to each other.
 *
 * control.h turns them into protobuf bodies and back with every bound checked; the sync core and
 * the simulator see only these. Fixed size, no pointers. */
#ifndef TW_PROTO_MESSAGE_H
#define TW_PROTO_MESSAGE_H

#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/status.h"
#include "proto/record.h"

/* X(NAME, value, struct member). Values are the frame kinds of PROTOCOL.md. */
#define TW_MESSAGE_LIST(X)                                                                         \
    X(STATUS, 1, status)                                                                           \
    X(PEERS, 2, peers)                                                                             \
    X(LEAVE, 3, leave)                                                                             \
    X(JOIN, 4, join)                                                                               \
    X(CONTRIB, 5, contrib)                                                                         \
    X(RESULT, 6, result)                                                                           \
    X(PREPARE, 7, prepare)                                                                         \
    X(PROMISE, 8, promise)                                                                         \
    X(PROPOSE, 9, propose)                                                                         \
    X(ACCEPT, 10, accept)                                                                          \
    X(NACK, 11, nack)                                                                              \
    X(COMMIT, 12, commit)                                                                          \
    X(LOG_GET, 13, log_get)                                                                        \
    X(LOG_NONE, 14, log_none)                                                                      \
    X(STATE_GET, 15, state_get)                                                                    \
    X(STATE, 16, state)                                                                            \
    X(PULL, 17, pull)                                                                              \
    X(MISSING, 18, missing)                                                                        \
    X(PAIR_REQUEST, 19, pair_request)                                                              \
    X(PAIR_ACCEPT, 20, pair_accept)                                                                \
    X(PAIR_BUSY, 21, pair_busy)                                                                    \
    X(PAIR_OFFER, 22, pair_offer)                                                                  \
    X(ACCUSE, 23, accuse)                                                                          \
    X(PROBE, 25, probe)                                                                            \
    X(PROBED, 26, probed)

enum tw_message_kind {
#define X(name, value, member) TW_MSG_##name = (value),
    TW_MESSAGE_LIST(X)
#undef X
};

enum tw_node_state {
    TW_STATE_SOLO,     /* alone in its lineage: ordinary training */
    TW_STATE_RECEIVER, /* follows a lineage it is not (yet) a member of */
    TW_STATE_MEMBER,   /* in the roster */
    TW_STATE_FINISHED, /* the token budget is spent; serves others */
};

/* Heartbeat: where the sender stands. Every TW_HEARTBEAT_US on each control link. */
struct tw_msg_status {
    enum tw_node_state state;
    struct tw_id lineage;
    struct tw_id tip;      /* digest of the last committed manifest it knows; zero = none */
    uint64_t rounds;       /* committed rounds it knows: the next round to decide */
    uint64_t clock_tokens; /* of the tip */
    uint64_t step, tokens; /* its own, ever */
    uint32_t tokens_per_s;
    uint32_t upload_kib_s; /* it can send, all peers together, as it measured; 0 = not known */
    uint32_t boot;         /* starts of this node: increases */
    uint64_t nonce; /* of its membership: it votes in the seat that a roster lists under this */
};

/* One row of the member table. Empty strings after the last address. */
struct tw_member_row {
    struct tw_id id;
    char addrs[TW_ADDRS_MAX][TW_ADDR_BYTES];
};

enum { TW_MEMBER_ROWS_PER_MESSAGE = 16 };

struct tw_msg_peers {
    uint32_t count;
    struct tw_member_row rows[TW_MEMBER_ROWS_PER_MESSAGE];
};

struct tw_msg_leave {
    uint32_t reason; /* enum tw_status; 0 = shutting down as asked */
};

/* "I hold every fragment of this lineage up to `rounds`: put me on the roster." */
struct tw_msg_join {
    struct tw_id lineage;
    uint64_t rounds;
    uint64_t nonce;
    uint32_t weight;
};

/* "My outer gradient for this round, part by part." To every member and follower. */
struct tw_msg_contrib {
    struct tw_id lineage;
    uint64_t round;
    struct tw_id base;                /* digest of (phi, u) of the fragment before the round */
    uint64_t tokens, fragment_tokens; /* as in struct tw_contributor */
    uint32_t fragment_steps;
    uint32_t parts_count;
    struct tw_id hashes[TW_PARTS_MAX];
    uint32_t bytes[TW_PARTS_MAX];
};

/* An owner's merged part. */
struct tw_msg_result {
    struct tw_id lineage;
    uint64_t round;
    uint32_t part;
    uint32_t bytes;
    struct tw_id hash;
    uint32_t contributors_count;
    struct tw_contributor contributors[TW_MEMBERS_MAX];
};

struct tw_msg_prepare {
    struct tw_id lineage;
    uint64_t round;
    uint64_t ballot;
};

struct tw_msg_promise {
    struct tw_id lineage;
    uint64_t round;
    uint64_t ballot;
    uint32_t has_accepted; /* 0 or 1 */
    uint64_t accepted_ballot;
    struct tw_record accepted; /* when has_accepted */
};

struct tw_msg_propose {
    uint64_t ballot;
    struct tw_record record;
};

struct tw_msg_accept {
    struct tw_id lineage;
    uint64_t round;
    uint64_t ballot;
    struct tw_id digest;
};

struct tw_msg_nack {
    struct tw_id lineage;
    uint64_t round;
    uint64_t promised;
    uint32_t refused_parts; /* set of parts; not 0: in ballot `promised`, for their results */
};

/* A committed manifest: pushed by the proposer, and the answer to LOG_GET. */
struct tw_msg_commit {
    struct tw_record record;
};

struct tw_msg_log_get {
    struct tw_id lineage;
    uint64_t round; /* first one wanted; up to 16 COMMITs come back */
};

struct tw_msg_log_none {
    struct tw_id lineage;
    uint64_t oldest_round; /* held by the answerer */
    uint64_t rounds;       /* committed rounds the answerer knows */
};

struct tw_msg_state_get {
    struct tw_id lineage;
    struct tw_id digest; /* of the (phi, u) the asker holds: equal means nothing to transfer */
    struct tw_id wanted; /* of the (phi, u) the asker is in the middle of: no other is of use to it;
                            zero: any */
    uint32_t fragment;
};

/* Exact (phi, u) of one fragment, packed without loss, after `rounds` rounds of the lineage. */
struct tw_msg_state {
    struct tw_id lineage;
    uint32_t fragment;
    uint64_t rounds;     /* the fragment has every committed round below this applied */
    struct tw_id digest; /* of (phi, u) */
    struct tw_id hash;   /* payload; zero when the asker already holds these values */
    uint32_t bytes;      /* 0 then */
};

/* Credit: send chunks [first, first + count) of this payload on the bulk connection. */
struct tw_msg_pull {
    struct tw_id hash;
    uint32_t first, count;
};

struct tw_msg_missing {
    struct tw_id hash;
};

/* One exchange between two nodes; drawn by who asks, 128 random bits. */
struct tw_pair_id {
    uint64_t high, low;
};

/* "Merge this fragment with me." */
struct tw_msg_pair_request {
    struct tw_pair_id pair;
    uint32_t fragment;
    uint32_t wants_whole; /* 0 or 1: send phi whole, the last one in lattice form was of no use */
};

/* "Yes: my offer follows." */
struct tw_msg_pair_accept {
    struct tw_pair_id pair;
    uint32_t wants_whole;
};

/* "Not, or no longer, with me." */
struct tw_msg_pair_busy {
    struct tw_pair_id pair;
};

/* "The result of this part is not the merge of what the manifest lists: see for yourself." */
struct tw_msg_accuse {
    struct tw_id lineage;
    uint64_t round;
    uint32_t part;
};

/* What the sender brings: its outer gradient in the run's codec, and its phi (compress/lattice.h).
 */
struct tw_msg_pair_offer {
    struct tw_pair_id pair;
    uint64_t clock_tokens; /* its run clock */
    struct tw_id delta_hash, phi_hash;
    uint32_t delta_bytes, phi_bytes;
};

/* "Dial me at the addresses of my HELLO, and say what came of it." */
struct tw_msg_probe {
    uint64_t token; /* of the asker's */
};

enum tw_probe_outcome {
    TW_PROBE_REACHED,
    TW_PROBE_NO_NAME,  /* the name has no address there */
    TW_PROBE_CLOSED,   /* nothing listens on the port */
    TW_PROBE_REJECTED, /* a firewall or router answered */
    TW_PROBE_SILENT,   /* nothing came back */
    TW_PROBE_NO_ROUTE, /* the prober has no way there: says nothing about the asker */
    TW_PROBE_OTHER,    /* somebody else answered */
    TW_PROBE_FAILED,   /* anything else */
    TW_PROBE_OUTCOMES,
};

/* Answers PROBE, once for each address. */
struct tw_msg_probed {
    uint64_t token;
    enum tw_probe_outcome outcome;
    char addr[TW_ADDR_BYTES];
};

struct tw_message {
    enum tw_message_kind kind;
    union {
#define X(name, value, member) struct tw_msg_##member member;
        TW_MESSAGE_LIST(X)
#undef X
    } u;
};

/* "CONTRIB"; "?" for a value outside the list. */
const char *tw_message_name(enum tw_message_kind kind);

/* The rules of PROTOCOL.md section 5 that a message keeps by itself: counts, ranges, order, the
 * manifests inside. TW_PROTO names message and field. What is encoded must pass, what was decoded
 * has passed. */
enum tw_status tw_message_check(const struct tw_message *message, struct tw_error *err);

#endif
