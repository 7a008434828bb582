/* message.h - control messages as plain C values.
 *
 * control.h converts them to protobuf bodies and back, and checks every bound. The sync core and
 * the simulator see only these structs. Fixed size, no pointers. */
#ifndef TW_PROTO_MESSAGE_H
#define TW_PROTO_MESSAGE_H

#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/status.h"
#include "proto/record.h"

/* X(NAME, value, struct member). Values are the frame kinds of PROTOCOL.md. The missing ones are
 * frames of frame.h, so a new message is 36. */
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
    X(PROBED, 26, probed)                                                                          \
    X(LINKS, 29, links)                                                                            \
    X(RELAY_CALL, 30, relay_call)                                                                  \
    X(PUNCH, 32, punch)                                                                            \
    X(LOCK, 33, lock)                                                                              \
    X(EVIDENCE, 34, evidence)                                                                      \
    X(GATHER, 36, gather)                                                                          \
    X(CREW, 37, crew)                                                                              \
    X(CREW_GET, 38, crew_get)

enum tw_message_kind {
#define X(name, value, member) TW_MSG_##name = (value),
    TW_MESSAGE_LIST(X)
#undef X
};

/* Has a byte for each kind up to the highest one. */
union tw_message_kinds {
#define X(name, value, member) char name##_[(value) + 1];
    TW_MESSAGE_LIST(X)
#undef X
};
enum { TW_MESSAGE_KINDS = sizeof(union tw_message_kinds) };

enum tw_node_state {
    TW_STATE_SOLO,     /* alone in its lineage: ordinary training */
    TW_STATE_RECEIVER, /* follows a lineage without being a member (yet) */
    TW_STATE_MEMBER,   /* in the roster */
    TW_STATE_FINISHED, /* the token budget is spent; the node still serves its peers */
};

/* The part of a node in its run. */
enum tw_node_role {
    TW_NODE_ROLE_TRAIN,
    TW_NODE_ROLE_FOLLOW, /* no steps and no work: it has, serves and evaluates the agreed model */
    TW_NODE_ROLE_REDUCE, /* no steps and no work either, but it owns parts: it merges for others */
};

/* Heartbeat: the sender's position, every TW_HEARTBEAT_US on each control link. */
enum tw_node_wait {
    TW_WAIT_NONE,
    TW_WAIT_ROOM, /* its disk cannot store the data of the run */
};

struct tw_msg_status {
    enum tw_node_state state;
    struct tw_id lineage;
    struct tw_id tip; /* digest of the newest committed record that the sender knows; zero = none */
    enum tw_node_role role;
    uint64_t rounds; /* committed rounds that the sender knows; also the number of its next round */
    uint64_t clock_tokens; /* run clock at the tip */
    uint64_t step, tokens; /* totals of the sender's own training */
    uint32_t tokens_per_s;
    uint32_t upload_kib_s; /* the sender's measured upload rate to all its peers together; 0 = not
                              known */
    uint32_t boot;         /* how often the sender has been started */
    uint64_t
        nonce; /* nonce of the sender's membership: it votes as the roster entry with this nonce */
    /* The first bytes of the id of the lineage with which the run began, little-endian; 0: not
     * known. For people only: the core neither sets nor uses it (daemon/node/health.h). */
    uint64_t origin;
    /* enum tw_node_wait: the lack that keeps the sender from training. For people only; a value
     * that this program does not know is TW_WAIT_NONE. */
    uint32_t waits;
};

/* One row of the member table. Unused addresses are empty strings. */
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
    uint32_t reason; /* enum tw_status; 0 = ordinary shutdown */
};

/* "I hold every fragment of this lineage up to `rounds`: put me on the roster." */
struct tw_msg_join {
    struct tw_id lineage;
    uint64_t rounds;
    uint64_t nonce;
    uint32_t weight;
    uint8_t signature[TW_SIGNATURE_BYTES]; /* the sender's signature of tw_ballot_vote_text, phase 4
                                            */
};

/* Largest number of nodes that join in one round. */
enum { TW_JOINS_MAX = 16 };

/* "My outer gradient for this round, part by part." Sent to every member and receiver. */
struct tw_msg_contrib {
    struct tw_id lineage;
    uint64_t round;
    struct tw_id base;                /* digest of (phi, u) of the fragment before the round */
    uint64_t tokens, fragment_tokens; /* counts as in struct tw_contributor */
    uint64_t cursor; /* position in the order in which the member draws its data, when Delta was
                        encoded, in tokens; 0: not known. Only sync/check/audit.c uses it */
    uint32_t fragment_steps;
    uint32_t parts_count;
    struct tw_id hashes[TW_PARTS_MAX];
    uint32_t bytes[TW_PARTS_MAX];
    uint8_t signature[TW_SIGNATURE_BYTES]; /* the sender's signature of tw_contributor_text; zero if
                                              it has no contribution */
    /* Of a head: number of nodes whose work this is the mean of, and tw_crew_root of their rows; 0
     * and zero: the work of the sender alone. */
    uint32_t crew_count;
    struct tw_id crew_root;
};

/* From a head to its hands: "send me your work for this round now". */
struct tw_msg_gather {
    struct tw_id lineage;
    uint64_t round;
};

/* The nodes whose work a head contributes to a round. With the head's row in the record of the
 * round, it proves which work is in the merge: a receipt for each of them. */
struct tw_msg_crew {
    struct tw_id lineage, head;
    uint64_t round;
    struct tw_id parts_root; /* tw_contribution_root of the head's payloads */
    uint32_t rows_count;
    struct tw_crew_row rows[TW_CREW_MAX];
};

/* Asks for the CREW of this head's contribution to a round. */
struct tw_msg_crew_get {
    struct tw_id lineage, head;
    uint64_t round;
    struct tw_id root; /* root of the contribution, as in the record */
};

/* An owner's merged part. */
struct tw_msg_result {
    struct tw_id lineage;
    uint64_t round;
    uint32_t part;
    uint32_t bytes;
    struct tw_id hash;
    uint32_t contributors_count;
    struct tw_contributor contributors[TW_MEMBERS_MAX]; /* signatures may be zero for members that
                                                           sent their CONTRIB to everybody */
    uint64_t refused; /* set of members whose contribution the owner received but left out because
                         it is too large */
    uint8_t signature[TW_SIGNATURE_BYTES]; /* the owner's signature of tw_ballot_vote_text, phase 3;
                                              zero if the part is absent */
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
    struct tw_proof lock; /* phase 1: the newest lock that the sender holds; empty if it has none */
    struct tw_record locked;               /* record of that lock; zero without a lock */
    uint8_t signature[TW_SIGNATURE_BYTES]; /* the sender's signature of tw_ballot_vote_text */
};

struct tw_msg_propose {
    uint64_t ballot;
    struct tw_record record;
    struct tw_promises promises; /* promises that allow this proposal; none at the lowest ballot */
    struct tw_proof lock; /* the newest lock that the promises report, a proof for `record`; empty
                             if they report none */
    /* If `lock` is empty: the owner's signature for each part of the record that is not ABSENT. */
    uint8_t results[TW_PARTS_MAX][TW_SIGNATURE_BYTES];
    /* If `lock` is empty: the JOIN signature of each new member of the next roster, in roster
     * order. A member is new unless the roster of this round lists it with the same nonce. */
    uint32_t joins_count;
    uint8_t joins[TW_JOINS_MAX][TW_SIGNATURE_BYTES];
};

struct tw_msg_accept {
    struct tw_id lineage;
    uint64_t round;
    uint64_t ballot;
    enum tw_vote_phase phase; /* TW_VOTE_ACCEPT or TW_VOTE_COMMIT */
    struct tw_id digest;
    uint8_t signature[TW_SIGNATURE_BYTES]; /* the sender's signature of tw_ballot_vote_text */
};

/* Sent by a proposer: proof that enough members accepted its record. */
struct tw_msg_lock {
    struct tw_id lineage;
    uint64_t round;
    struct tw_id digest;
    struct tw_proof proof; /* phase 1 */
};

/* The fields of a signed statement in which two statements of the same phase, lineage, round and
 * ballot can differ. */
struct tw_statement {
    uint64_t lock_ballot; /* in a promise: ballot of its lock; else 0 */
    struct tw_id digest;  /* in a vote: digest of its record; in a result: tw_part_digest; in a
                             promise: zero */
    uint8_t signature[TW_SIGNATURE_BYTES];
};

/* Proof of equivocation: two signed statements of one node that contradict each other. */
struct tw_msg_evidence {
    struct tw_id author, lineage;
    uint64_t nonce; /* nonce under which the author signed both statements */
    uint64_t round, ballot;
    enum tw_vote_phase phase;
    struct tw_statement first, second;
};

struct tw_msg_nack {
    struct tw_id lineage;
    uint64_t round;
    uint64_t promised;
    uint32_t refused_parts; /* set of vetoed parts; if not 0, `promised` is the ballot of the vetoed
                               proposal */
};

/* A committed record: sent by the proposer, and as the answer to LOG_GET. */
struct tw_msg_commit {
    struct tw_record record;
    struct tw_proof proof; /* proof of phase 2; may be empty if a lineage began with the record */
};

struct tw_msg_log_get {
    struct tw_id lineage;
    uint64_t round; /* first round requested; at most 16 COMMITs answer */
};

struct tw_msg_log_none {
    struct tw_id lineage;
    uint64_t oldest_round; /* oldest round that the answering node still holds */
    uint64_t rounds;       /* committed rounds that the answering node knows */
};

struct tw_msg_state_get {
    struct tw_id lineage;
    /* digest of the (phi, u) that the asker holds: if equal, nothing is transferred */
    struct tw_id digest;
    struct tw_id wanted; /* digest of a (phi, u) that the asker has partly fetched, so no other
                            state is useful; zero: any */
    /* not 0: no state is asked for, but the digest that the receiver's had after these rounds */
    uint64_t rounds;
    uint32_t fragment;
};

/* Exact (phi, u) of one fragment, packed without loss, after `rounds` rounds of the lineage. */
struct tw_msg_state {
    struct tw_id lineage;
    uint32_t fragment;
    uint64_t rounds;     /* the fragment includes every committed round below this */
    struct tw_id digest; /* digest of (phi, u) */
    struct tw_id hash;   /* hash of the payload; zero if the asker already holds these values */
    uint32_t bytes;      /* size of the payload; 0 with a zero hash */
};

/* Credit: send chunks [first, first + count) of this payload on the bulk connection. */
struct tw_msg_pull {
    struct tw_id hash;
    uint32_t first, count;
};

struct tw_msg_missing {
    struct tw_id hash;
    uint32_t retry_s; /* seconds after which the sender, which has it, sends more of it; 0: it does
                         not hold the payload. At most TW_RETRY_S_MAX */
};

/* Identifies one exchange of a pair: 128 random bits, drawn by the requesting node. */
struct tw_pair_id {
    uint64_t high, low;
};

/* "Merge this fragment with me." */
struct tw_msg_pair_request {
    struct tw_pair_id pair;
    uint32_t fragment;
    uint32_t wants_whole; /* 1: send phi as float32, because the last phi in lattice form could not
                             be decoded; else 0 */
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

/* "The result of this part is not the merge that the record lists: check it yourself." Or, with a
 * trainer: "the contribution of this member was not trained on its data: check it yourself." */
struct tw_msg_accuse {
    struct tw_id lineage;
    uint64_t round;
    uint32_t part;
    uint32_t trainer; /* 1 + seat of the member; 0: the part's result is meant */
};

/* The sender's outer gradient in the run's codec, and its phi (compress/lattice.h). */
struct tw_msg_pair_offer {
    struct tw_pair_id pair;
    uint64_t clock_tokens; /* the sender's run clock */
    struct tw_id delta_hash, phi_hash;
    uint32_t delta_bytes, phi_bytes;
};

/* "Dial me at the ports of my HELLO, and report the outcome." */
struct tw_msg_probe {
    uint64_t token; /* chosen by the asker */
};

/* Outcome of a dial. The reason of a failure is left out: it would tell the asker which ports are
 * open. */
enum tw_probe_outcome {
    TW_PROBE_REACHED,
    TW_PROBE_FAILED,
    TW_PROBE_OUTCOMES,
};

/* Answers PROBE, once for each address. */
struct tw_msg_probed {
    uint64_t token;
    enum tw_probe_outcome outcome;
    char addr[TW_ADDR_BYTES];
};

/* Nodes that the sender is linked to. The claim is not verified: it only influences which member is
 * asked or given work. */
struct tw_msg_links {
    uint32_t is_relay; /* 1: the sender relays links of other nodes (section 12); else 0 */
    uint32_t direct_count, relayed_count; /* together at most TW_PEERS_MAX */
    struct tw_id direct[TW_PEERS_MAX];    /* nodes linked directly */
    struct tw_id relayed[TW_PEERS_MAX];   /* nodes linked through a relay */
};

/* From a relay: "dial me with this token; node `from` calls you through me" (PROTOCOL.md section
 * 12). */
struct tw_msg_relay_call {
    struct tw_id from;
    uint8_t token[TW_RELAY_TOKEN_BYTES];
};

enum tw_punch_stage {
    TW_PUNCH_ASK,   /* "dial these addresses of mine when I send GO" */
    TW_PUNCH_READY, /* "I will; dial these addresses of mine then" */
    TW_PUNCH_GO,    /* "now" */
    TW_PUNCH_SEEN,  /* "your probe came from this address" */
    TW_PUNCH_STAGES,
};

/* Two nodes with a relayed link arrange to dial each other at the same time (PROTOCOL.md section
 * 13). */
struct tw_msg_punch {
    enum tw_punch_stage stage;
    uint64_t token; /* chosen by the asker */
    /* The sender's addresses as the relay sees them. In SEEN, `control` is the receiver's address
     * and `bulk` is "". */
    char control[TW_ADDR_BYTES], bulk[TW_ADDR_BYTES];
};

struct tw_message {
    enum tw_message_kind kind;
    union {
#define X(name, value, member) struct tw_msg_##member member;
        TW_MESSAGE_LIST(X)
#undef X
    } u;
};

/* Returns the name of a kind, such as "CONTRIB"; "?" for an unknown kind. */
const char *tw_message_name(enum tw_message_kind kind);

/* Converts a RESULT to the part row of a round record. The owner is not set. */
struct tw_part tw_result_part(const struct tw_msg_result *result);

/* Checks the rules of PROTOCOL.md section 5 that concern one message alone: counts, ranges, order
 * and the records inside. The TW_PROTO error names message and field. tw_control_encode requires a
 * valid message, and tw_control_decode returns only valid ones. */
enum tw_status tw_message_check(const struct tw_message *message, struct tw_error *err);

#endif
