/* interface.h - the exchange between the core and its runtime: configuration, events in, actions
 * and reports out. */
#ifndef TW_SYNC_CORE_INTERFACE_H
#define TW_SYNC_CORE_INTERFACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/rate.h"
#include "base/status.h"
#include "proto/message.h"
#include "proto/record.h"
#include "proto/worker_request.h"
#include "sync/core/position.h"

/* ---- configuration --------------------------------------------------------------------------- */

enum { TW_REFUSED_MAX = 16 };

enum { TW_JUDGES_MIN = 5 }; /* default of judges_min; robust merge rules also need five members */

/* Signature functions, which the runtime provides. Both are pure, and Ed25519 is deterministic, so
 * the same events still give the same actions. */
struct tw_signing {
    void *key; /* signing key of this node; borrowed for its life */
    void (*sign)(void *key, const void *text, size_t size, uint8_t signature[TW_SIGNATURE_BYTES]);
    /* True if the node `id` signed text[size]. */
    bool (*is_signed)(const struct tw_id *id, const void *text, size_t size,
                      const uint8_t signature[TW_SIGNATURE_BYTES]);
};

/* Payload sizes. They depend on the codecs, which the core does not know. */
struct tw_sizes {
    const void *run; /* borrowed for the node's life */
    /* Returns the largest size in bytes of a payload with this content and `elements` elements.
     * With OPAQUE, the payload is the packed (phi, u) of a fragment with `elements` elements. Equal
     * on all nodes of a run. NULL: only TW_PAYLOAD_BYTES_MAX bounds a payload. */
    uint64_t (*bytes_max)(const void *run, enum tw_content content, uint64_t elements);
};

struct tw_node_config {
    struct tw_id self;
    struct tw_id run; /* run id; also the parent of every lineage that did not fork from another */
    uint64_t seed;
    uint32_t boot;

    /* values from the run manifest */
    uint32_t fragments_count;
    uint64_t fragment_elements[TW_FRAGMENTS_MAX];
    uint32_t period_steps;  /* inner steps between two rounds of any fragment, >= 1: period /
                               fragments */
    uint32_t overlap_steps; /* tau: inner steps from sending a contribution to applying the round */
    uint64_t pace_us; /* time between rounds with sync.pace = clock; 0 with sync.pace = steps */
    uint64_t
        overlap_us; /* time of the overlap at the planned speed, with sync.pace = clock; else 0 */
    uint32_t quorum;
    uint64_t grace_us;
    uint64_t budget_tokens;
    uint32_t members_max;
    bool has_result_codec; /* results use another codec than outer gradients */
    bool is_pair;          /* topology pair (pair/pair.c) instead of one group */
    bool has_own_start;    /* each node starts from different weights: another trainer supplies the
                              model */
    uint64_t step_tokens;  /* planned tokens of one inner step; 0: unknown, so no bound is derived
                              from it */
    /* When the run clock reaches this value, merging ends (topology solo: 0). From then on, each of
     * alone_nodes nodes trains an equal part of the remaining tokens alone, and its own clock
     * counts each of its tokens alone_nodes times. With alone_nodes = 0, nodes merge to the end. */
    uint64_t together_tokens;
    uint32_t alone_nodes;

    /* this node */
    struct tw_signing signing;
    struct tw_sizes sizes;
    bool has_rights;   /* certificates say which nodes may vote (security.admission = owner);
                          otherwise every member votes */
    bool lacks_vote;   /* this node's certificate gives no vote: it founds no lineage, and its
                          seat is one without a vote (sync/core/voters.h) */
    bool is_hand;      /* this node asks for no seat, and follows the members as a receiver */
    uint32_t crew_max; /* most nodes whose work a member contributes together, itself included, the
                          same at all nodes; 0: hands train, and nobody contributes their work */
    enum tw_node_role role; /* a node that does not train votes and serves, and announces in each
                               round that it contributes nothing; one that reduces owns parts too */
    uint32_t weight;        /* relative size of the parts that this node wants to own, > 0 */
    uint64_t orphan_us;     /* time without a majority, after which this node founds a child lineage
                               (120 s) */
    /* Lineages that this node neither continues nor follows, because its operator rolled it back. A
     * position in one of them begins a child lineage instead. */
    uint32_t refused_count;
    struct tw_id refused[TW_REFUSED_MAX];
    /* Lineage of nobody (DESIGN.md, Recall): a node without a position waits in it for the run's
     * state, and founds no lineage. Zero: the node founds one. */
    struct tw_id awaited;
    /* Download rate limit that is charged for each requested chunk, in bytes. Borrowed for the
     * node's life, and shared with other downloads. NULL: no limit. */
    struct tw_rate *download;
    /* Roster size from which outlier results are refused. A smaller group refuses only extreme
     * results: an honest member that is new or was away for long can make a merge an outlier. */
    uint32_t judges_min;
    /* From the run manifest: share of listed contributions that are checked for training on their
     * sender's data (check/audit.h), in millionths. Needs a worker that answers JUDGE. */
    uint32_t jury_millionths;
#ifdef TW_MUTANTS
    int mutant; /* enum tw_mutant that is switched on; tests of the simulator only */
#endif
};

/* ---- events ---------------------------------------------------------------------------------- */

enum tw_event_kind {
    TW_EV_TICK,      /* the deadline passed */
    TW_EV_PEER_UP,   /* a control link was authenticated: `peer`, `id` */
    TW_EV_PEER_DOWN, /* the link is gone: `peer` */
    TW_EV_MESSAGE,   /* `message` from `peer` */
    TW_EV_CHUNK,     /* chunk `idx` of payload `hash` was stored by the runtime */
    TW_EV_VERIFIED,  /* answers TW_ACT_VERIFY: `ok` */
    TW_EV_WORKER_UP, /* a worker is ready: `worker` describes its (phi, u) */
    TW_EV_WORKER_DOWN,
    TW_EV_STEP,     /* `step`: an inner step was done */
    TW_EV_ENCODED,  /* answers TW_ACT_ENCODE and TW_ACT_PAIR_ENCODE */
    TW_EV_REDUCED,  /* answers TW_ACT_REDUCE */
    TW_EV_APPLIED,  /* answers TW_ACT_APPLY, TW_ACT_PAIR_APPLY, TW_ACT_SOLO and TW_ACT_LOAD */
    TW_EV_EXPORTED, /* answers TW_ACT_EXPORT */
    TW_EV_STORED,   /* answers TW_ACT_STORE_VOTE */
    TW_EV_LEAVE,    /* the user asked this node to leave the run */
    TW_EV_MEASURED, /* `measured`: the quality of this node's links has changed */
    TW_EV_JUDGED,   /* answers TW_ACT_JUDGE; not ok: this node's worker cannot judge it now */
    TW_EV_REFUSED,  /* the runtime has refused `peer` a PULL: its budget has no room */
    TW_EV_GATHERED, /* answers TW_ACT_GATHER: `encoded`, with the counts of nothing */
};

/* State of a worker that has become ready. */
struct tw_worker_state {
    uint64_t step, tokens;
    /* rounds applied to (phi, u) of each fragment, in the snapshot that the worker restored */
    uint64_t fragment_rounds[TW_FRAGMENTS_MAX];
    struct tw_id fragment_digests[TW_FRAGMENTS_MAX];
};

struct tw_event {
    enum tw_event_kind kind;
    uint16_t peer; /* index of the link in the runtime, < TW_PEERS_MAX */
    bool ok;
    bool is_relayed;  /* PEER_UP: the link runs through another member */
    bool lacks_roles; /* PEER_UP: the peer is older than roles (TW_FEATURE_ROLES) */
    bool lacks_vote;  /* PEER_UP: the peer's certificate gives it no vote */
    union {
        struct tw_id id;                  /* PEER_UP */
        const struct tw_message *message; /* MESSAGE; borrowed for the call */
        struct {
            struct tw_id hash;
            uint32_t idx;
            enum tw_sanity sanity; /* VERIFIED of a result with `ok`: rating of its size */
            bool is_unfit;         /* not ok: the hash is right, but the bytes do not decode */
        } chunk; /* CHUNK uses hash and idx; VERIFIED uses hash, sanity and is_unfit */
        struct {
            uint64_t step, tokens;
        } step;                               /* STEP: totals of this node */
        const struct tw_worker_state *worker; /* WORKER_UP; borrowed for the call */
        struct {
            uint64_t round;
            uint64_t step, tokens; /* this node's totals when Delta was computed */
            uint64_t cursor;       /* position in the training data then; 0: not known */
            uint32_t parts_count;
            struct tw_id hashes[TW_PARTS_MAX]; /* one per part; in pairs: of Delta, then of phi */
            uint32_t bytes[TW_PARTS_MAX];
            uint64_t refused; /* GATHERED: bit i: the worker left inputs[i] out; never the first,
                                 its own work */
        } encoded; /* ENCODED; not ok: no payload (non-finite values, no memory, no budget), and the
                      node sits this round out */
        struct {
            uint64_t round;
            uint64_t refused; /* bit i: the worker left inputs[i] out, so its sender is no
                                 contributor */
            uint16_t sizes[TW_MEMBERS_MAX]; /* of large inputs, as in proto/worker_msg.h */
            uint32_t part, bytes;
            struct tw_id hash;
            bool is_audit; /* copied from the request: this merge repeats one of another owner */
        } reduced;         /* REDUCED */
        struct {
            uint32_t fragment;
            uint64_t rounds;     /* rounds applied, this one included */
            struct tw_id digest; /* digest of the new (phi, u) */
            bool is_alone;       /* pair step taken alone, because the partner's payloads were
                                    unusable */
            bool is_outlier;     /* alone because the partner's Delta or phi is an outlier */
        } applied; /* APPLIED; not ok: the payload did not decode, and nothing changed */
        struct {
            uint32_t fragment;
            uint64_t rounds;
            struct tw_id digest, hash;
            uint32_t bytes;
        } exported;         /* EXPORTED */
        uint64_t store_seq; /* STORED */
        struct {
            uint32_t
                upload_kib_s; /* upload rate of this node to all peers together; 0 = not known */
            uint64_t odd;     /* set of peers whose links are far slower or less reliable than the
                                 others */
            bool is_relay;    /* this node relays links between other nodes */
            bool is_short;    /* the byte budget allows no contribution now; used in pairs only */
        } measured;           /* MEASURED */
        struct {
            uint64_t round;
            int32_t score;  /* in thousandths (worker/loop/juror.h) */
            uint32_t share; /* square root of compared windows / trained windows, in thousandths:
                               an honest score is proportional to it */
        } judged;           /* JUDGED */
    } u;
};

/* ---- reports --------------------------------------------------------------------------------- */

enum tw_report_kind {
    TW_REPORT_PEER_DEAD,       /* peer `id` was silent for TW_PEER_SILENCE_US */
    TW_REPORT_ROUND_COMMITTED, /* this node learnt that `record` is committed */
    TW_REPORT_LINEAGE,         /* this node is now in lineage `id` (fork or adoption) */
    TW_REPORT_STATE,           /* `state` changed */
    TW_REPORT_MISBEHAVED,      /* node `id` broke the rules: `reason` */
    TW_REPORT_REFUSED, /* this owner did not merge the contribution of member `id`, because it was
                          too large; sent at the 1st, 2nd, 4th, 8th ... time in a row */
    TW_REPORT_STRUCK, /* member `id` owns no part for a while. `reason`: TW_CORRUPT if its result is
                         not the merge, TW_LIMIT if its result was an outlier. In pairs: its
                         payloads were unreadable or outliers, and this node does not merge with it
                         for a while */
    TW_REPORT_STALLED, /* member `id` held up rounds: this node does not wait for it for a while */
    TW_REPORT_INSANE,  /* this node refused a result of member `id`, because it is an outlier. It
                          audits one (check/audit.c), because a size proves nothing */
    TW_REPORT_FULL,    /* node `id`, perhaps this one, asks to join a full roster */
    TW_REPORT_PAIRED,  /* the round just committed merged with node `id` */
    TW_REPORT_FORGED,  /* peer `id` sent a record that its group did not decide */
    TW_REPORT_LEFT, /* this node leaves its lineage for that of peer `id`, although most members of
                       its roster are linked and still in the old lineage. Not sent if the old
                       lineage has just begun, nor on a return to the lineage that it came from */
    TW_REPORT_OUTLIER,   /* a committed record lists a result of member `id` that this node refuses;
                            it is applied nevertheless */
    TW_REPORT_TWO_FACED, /* node `id` signed two contradicting statements about one ballot: every
                            node bans it */
    TW_REPORT_ONE_SIDED, /* this node merged with node `id`, which did not merge with it */
    TW_REPORT_DIFFERS,   /* if `id` is this node: most members have another anchor of fragment
                            `part`, and this node fetches theirs. Otherwise: member `id` has another
                            anchor than this node, which does not merge its work in this round */
    TW_REPORT_FALSE_STATE, /* node `id` gave a state of fragment `part` that is not the members' */
    TW_REPORT_UNTRAINED, /* checks show that member `id` does not train on the data that it says, so
                            this owner leaves its contributions out for a while. `reason`:
                            TW_CORRUPT, or TW_LIMIT if it never says where it is in its data */
    TW_REPORT_LARGE, /* work of member `id` is far larger than that of the others: scaled down in
                        `times` of the last `merges` merges here, or the cause of a large merge that
                        an audit finds correct. Its newest size is `tenths` of the usual one */
};

struct tw_report {
    enum tw_report_kind kind;
    enum tw_status reason;
    enum tw_node_state state;
    struct tw_id id;
    const struct tw_record *record; /* borrowed until the next event */
    uint64_t round; /* STRUCK: round of the result; REFUSED: round of the contribution; DIFFERS:
                       open round */
    uint32_t part;  /* STRUCK: part of the result; DIFFERS, FALSE_STATE: the fragment */
    uint32_t times; /* REFUSED: number of refusals in a row; LARGE */
    uint32_t merges, tenths; /* LARGE */
};

/* True if the report charges node `id` with a breach of the rules. Each of these has a proof that
 * no load, sleep or lost message can make: signatures, a merge done again, bytes that differ from
 * the members', or measured work. Other reports are facts that accuse nobody. */
static inline bool tw_report_is_charge(const struct tw_report *report) {
    return report->kind == TW_REPORT_MISBEHAVED || report->kind == TW_REPORT_FORGED ||
           report->kind == TW_REPORT_TWO_FACED || report->kind == TW_REPORT_FALSE_STATE ||
           report->kind == TW_REPORT_UNTRAINED ||
           (report->kind == TW_REPORT_STRUCK && report->reason == TW_CORRUPT);
}

/* ---- drops ----------------------------------------------------------------------------------- */

/* Reasons for which a message, chunk or answer has no effect. X(NAME, word, sentence) */
#define TW_DROP_LIST(X)                                                                            \
    X(OTHER_RUN, "other_run", "runs with this manifest do not use such messages")                  \
    X(OTHER_LINEAGE, "other_lineage", "it is about another lineage")                               \
    X(OTHER_HISTORY, "other_history", "its record follows another record than ours")               \
    X(OLD_ROUND, "old_round", "its round is decided already")                                      \
    X(ROUND_TO_COME, "round_to_come", "its round is ahead of this node")                           \
    X(NO_SEAT, "no_seat", "its sender has no seat")                                                \
    X(NO_VOTE, "no_vote", "its sender has no vote")                                                \
    X(NO_OWNER, "no_owner", "its sender does not own the part")                                    \
    X(LEFT, "left", "its sender has left")                                                         \
    X(NOT_VOTING, "not_voting", "this node casts no vote in the open round")                       \
    X(NOT_READY, "not_ready", "this node cannot serve or use it now")                              \
    X(BUSY, "busy", "this node is busy with another one")                                          \
    X(TOO_SOON, "too_soon", "its sender sent another one a moment ago")                            \
    X(NO_BALLOT, "no_ballot", "it is of another ballot or phase than is open")                     \
    X(LOW_BALLOT, "low_ballot", "a higher ballot was promised")                                    \
    X(LEASED, "leased", "another proposer has the ballot lease")                                   \
    X(DISHONEST, "dishonest", "no honest proposer would have made the proposal")                   \
    X(TWICE, "twice", "it is known already")                                                       \
    X(UNASKED, "unasked", "it answers no open question")                                           \
    X(UNKNOWN, "unknown", "this node lacks the thing that it names")                               \
    X(UNUSABLE, "unusable", "the offered state is too old, too new or another one")                \
    X(UNCONFIRMED, "unconfirmed", "too few other members say the same")                            \
    X(IMPOSSIBLE, "impossible", "its numbers fit no honest message")                               \
    X(FALSE, "false", "it breaks the rules: its sender was reported, or its link closed")          \
    X(QUEUE_FULL, "queue_full", "a message of this node found no room, and is sent later")         \
    X(REPORTS_FULL, "reports_full", "a report of this node found no room")                         \
    X(CREW_FULL, "crew_full", "the crew of this node has no place left")

enum tw_drop {
    TW_DROP_NONE, /* it had an effect */
#define X(name, word, sentence) TW_DROP_##name,
    TW_DROP_LIST(X)
#undef X
        TW_DROPS_COUNT
};

/* Returns the word of a reason, as in status and replays. */
static inline const char *tw_drop_word(enum tw_drop why) {
    static const char *const words[] = {"none",
#define X(name, word, sentence) word,
                                        TW_DROP_LIST(X)
#undef X
    };
    return words[why];
}

/* Returns the sentence of a reason. */
static inline const char *tw_drop_sentence(enum tw_drop why) {
    static const char *const sentences[] = {"it had an effect",
#define X(name, word, sentence) sentence,
                                            TW_DROP_LIST(X)
#undef X
    };
    return sentences[why];
}

/* ---- actions --------------------------------------------------------------------------------- */

enum tw_action_kind {
    TW_ACT_SEND,       /* send `message` to `peer` on its control link */
    TW_ACT_CLOSE,      /* close the link to `peer` for `reason` (TW_AGAIN: the peer is silent);
                          PEER_DOWN follows */
    TW_ACT_SEND_CHUNK, /* send chunk `idx` of the held payload to `peer` on its bulk link */
    TW_ACT_EXPECT,     /* make room for payload `hash` of `bytes` bytes; its chunks will arrive */
    TW_ACT_VERIFY,     /* all chunks have arrived: check SHA-256, then trial-decode unless OPAQUE */
    TW_ACT_DROP,       /* payload `hash` is no longer needed */
    TW_ACT_ENCODE,     /* encode Delta of `fragment` at the next step boundary, one payload per
                          part */
    TW_ACT_REDUCE, /* merge `inputs` (held payloads, in this order) and encode the result once */
    TW_ACT_APPLY,  /* take the outer step with committed results, then mix or shift theta */
    TW_ACT_SOLO,   /* phi := theta and u := 0 for `fragment`, in a lineage of one */
    TW_ACT_PAIR_ENCODE, /* encode Delta and phi of `fragment` at the next step boundary, a payload
                           each */
    TW_ACT_PAIR_APPLY,  /* take the outer step with our and the partner's payloads, or alone */
    TW_ACT_EXPORT,      /* pack (phi, u) of `fragment` into a payload */
    TW_ACT_LOAD,        /* replace (phi, u) of `fragment` by the packed payload */
    TW_ACT_STORE_VOTE,  /* write `vote` durably, then answer STORED with `store_seq` */
    TW_ACT_CLOCK,       /* send the run clock to the worker */
    TW_ACT_FINISH,      /* the run is over: stop stepping, keep serving. With `goes_on` it is not
                           over: step again. Applies to later workers too */
    TW_ACT_REPORT,      /* pass `report` to operators and checkers */
    TW_ACT_JUDGE,       /* check that `inputs`, a contribution, were trained on the sender's data */
    TW_ACT_GATHER, /* merge `inputs`, Deltas of the whole fragment, in this order, and encode the
                      mean as ENCODE does, one payload per part */
};

/* The work of a crew: as in ENCODE and REDUCE. */
struct tw_gather {
    uint64_t round;
    uint32_t fragment, parts_count, inputs_count;
    struct {
        uint64_t begin, count;
    } parts[TW_PARTS_MAX];
    struct {
        uint64_t tokens;
        uint32_t steps;
    } inputs[TW_CREW_MAX];
};

struct tw_action {
    enum tw_action_kind kind;
    uint16_t peer;
    union {
        struct tw_message *message; /* SEND; borrowed until the next call of next_action */
        enum tw_status reason;      /* CLOSE */
        struct {
            struct tw_id hash;
            uint32_t bytes, idx;
            uint64_t elements; /* 0 when OPAQUE */
            enum tw_content content;
            uint32_t fragment; /* RESULT: fragment and first element of the merged part */
            uint64_t begin;
        } payload; /* SEND_CHUNK, EXPECT, VERIFY, DROP */
        struct tw_wmsg_encode
            encode; /* bytes_max is 0 here; a runtime with a byte budget sets it */
        struct tw_wmsg_reduce reduce;
        struct tw_wmsg_apply apply;
        struct tw_wmsg_solo solo;
        struct tw_wmsg_pair_encode pair_encode;
        struct tw_wmsg_pair_apply pair_apply;
        struct tw_wmsg_export export;
        struct tw_wmsg_load load;
        struct {
            uint64_t seq;
            const struct tw_vote *vote; /* borrowed until the next event */
        } store;
        struct tw_wmsg_judge judge;
        struct tw_gather gather;
        struct tw_wmsg_clock clock;
        struct tw_wmsg_finish
            finish; /* goes_on: this node is now in a lineage that has tokens left to train */
        struct tw_report report;
    } u;
    /* Hashes of the payloads that the request reads. REDUCE: one per input. APPLY: one per part,
     * zero when ABSENT. JUDGE: one per part. PAIR_APPLY: indexed by TW_PAIR_*. LOAD: one, or zero
     * if (phi, u) are already right. */
    struct tw_id inputs[TW_MEMBERS_MAX]; /* GATHER: TW_CREW_MAX is no more */
    struct tw_id partner;                /* PAIR_ENCODE: node that receives Delta */
};

#endif
