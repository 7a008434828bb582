/* node.h - the protocol core: a pure state machine.
 *
 *      TW_EV_*  -->  tw_node_event()  -->  tw_node_next_action()  -->  TW_ACT_*
 *
 * No socket, clock, thread, file, heap or float; no randomness but the seed. daemon/node/runtime.c
 * drives it with libuv, tests/sim/ under virtual time. Same events, times and seed give the same
 * actions. Long work is asked for by an action and answered by a later event; payload bytes never
 * pass through here, only their SHA-256 names. ARCHITECTURE.md tells the story of a round. */
#ifndef TW_SYNC_NODE_H
#define TW_SYNC_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/rate.h"
#include "base/rng.h"
#include "proto/message.h"
#include "proto/record.h"
#include "proto/worker_request.h"

enum { TW_JUDGES_MIN = 5 }; /* for judges_min; the robust merges want as many */

struct tw_node_config {
    struct tw_id self;
    struct tw_id run; /* run id: parent of every first lineage */
    uint64_t seed;
    uint32_t boot;

    /* the run, from its manifest */
    uint32_t fragments_count;
    uint64_t fragment_elements[TW_FRAGMENTS_MAX];
    uint32_t period_steps;  /* inner steps between two rounds of any fragment: H / P, >= 1 */
    uint32_t overlap_steps; /* tau */
    uint64_t pace_us;       /* clock pace: time between rounds; 0 = steps pace */
    uint64_t overlap_us;    /* clock pace: tau at the planned speed; 0 = steps pace */
    uint32_t quorum;
    uint64_t grace_us;
    uint64_t budget_tokens;
    uint32_t members_max;
    bool has_result_codec; /* results are in another codec than outer gradients */
    bool is_pair;          /* topology: two by two (pair.c) instead of one group */
    uint64_t step_tokens;  /* of one inner step; pairs only */
    /* From so many tokens of the clock on nothing is merged any more, and each of so many nodes
     * trains its share of what is left of the budget, its clock running for all of them. Topology
     * solo: from 0 on. alone_nodes 0: nodes merge to the end. */
    uint64_t together_tokens;
    uint32_t alone_nodes;

    /* this node */
    uint32_t weight;    /* share of parts it offers to own, > 0 */
    uint64_t orphan_us; /* no majority for this long: form a child lineage (120 s) */
    /* What the chunks that are asked for are paid from, in bytes; borrowed for the node's life,
     * shared with whoever else downloads. NULL: no cap. */
    struct tw_rate *download;
    /* Insane results are refused in rosters of so many. In a smaller group one honest member that
     * is new, or back after long, makes a merge as unlike those before as a lie would be: there
     * only wild ones are. */
    uint32_t judges_min;
#ifdef TW_MUTANTS
    int mutant; /* enum tw_mutant: a bug switched on, in tests of the simulator alone */
#endif
};

/* ---- what survives a restart -------------------------------------------------------------- */

/* The vote of this node in the newest round it took part in. Must be durable before it is told. */
struct tw_vote {
    struct tw_id lineage;
    uint64_t nonce; /* membership this vote belongs to */
    uint64_t round;
    uint64_t promised;
    uint64_t accepted_ballot;
    uint32_t has_accepted;
    struct tw_record accepted;
};

/* Where the node stands in its lineage; part of a checkpoint, together with (phi, u). */
struct tw_position {
    struct tw_id lineage, lineage_parent;
    uint64_t nonce;
    uint64_t first_round; /* of this lineage: older rounds are its ancestors' */
    uint64_t rounds;      /* committed rounds known: the next one to decide */
    uint32_t has_tip, has_held;
    struct tw_record tip;  /* manifest of round `rounds` - 1 */
    struct tw_record held; /* the newest with all of its past in (phi, u), maybe of the lineage
                             before this one: how far our weights are, and where a child begins */
    uint64_t fragment_rounds[TW_FRAGMENTS_MAX]; /* rounds applied to (phi, u): all below this;
                                                   UINT64_MAX: must be fetched */
    struct tw_id fragment_digests[TW_FRAGMENTS_MAX];
    uint32_t is_moving; /* (phi, u) become those of `lineage`; theta still is of what `held` says */
    uint64_t tokens_listed; /* own counter at the last listed contribution: the clock has these */
    /* Own counters where the work that Delta of a fragment holds began: account.c. */
    uint64_t delta_tokens[TW_FRAGMENTS_MAX], delta_steps[TW_FRAGMENTS_MAX];
};

/* ---- events ------------------------------------------------------------------------------- */

enum tw_event_kind {
    TW_EV_TICK,      /* the deadline passed */
    TW_EV_PEER_UP,   /* an authenticated control link: `peer`, `id` */
    TW_EV_PEER_DOWN, /* it is gone: `peer` */
    TW_EV_MESSAGE,   /* `peer` said `message` */
    TW_EV_CHUNK,     /* chunk `idx` of payload `hash` was stored by the shell */
    TW_EV_VERIFIED,  /* answers TW_ACT_VERIFY: `ok` */
    TW_EV_WORKER_UP, /* `worker`: a worker is ready, (phi, u) are as it says */
    TW_EV_WORKER_DOWN,
    TW_EV_STEP,     /* `step`: an inner step was done */
    TW_EV_ENCODED,  /* answers TW_ACT_ENCODE and TW_ACT_PAIR_ENCODE */
    TW_EV_REDUCED,  /* answers TW_ACT_REDUCE */
    TW_EV_APPLIED,  /* answers TW_ACT_APPLY, TW_ACT_PAIR_APPLY, TW_ACT_SOLO and TW_ACT_LOAD */
    TW_EV_EXPORTED, /* answers TW_ACT_EXPORT */
    TW_EV_STORED,   /* answers TW_ACT_STORE_VOTE */
    TW_EV_LEAVE,    /* the user asked this node to say goodbye */
    TW_EV_MEASURED, /* `measured`: what this node's links are like, when that changed */
};

struct tw_event {
    enum tw_event_kind kind;
    uint16_t peer; /* < TW_PEERS_MAX: the shell's number of the link */
    bool ok;
    union {
        struct tw_id id;                  /* PEER_UP */
        const struct tw_message *message; /* MESSAGE; borrowed for the call */
        struct {
            struct tw_id hash;
            uint32_t idx;
            enum tw_sanity sanity; /* ok: of a result */
            bool is_unfit;         /* not ok: the bytes have this SHA-256, and are of no use */
        } chunk;                   /* CHUNK (hash, idx); VERIFIED (hash, sanity, is_unfit) */
        struct {
            uint64_t step, tokens;
        } step; /* STEP: totals of this node */
        struct {
            uint64_t step, tokens;
            /* rounds applied to (phi, u) of each fragment, as the memory that survived says */
            uint64_t fragment_rounds[TW_FRAGMENTS_MAX];
            struct tw_id fragment_digests[TW_FRAGMENTS_MAX];
        } worker; /* WORKER_UP */
        struct {
            uint64_t round;
            uint64_t step, tokens; /* totals when Delta was taken */
            uint32_t parts_count;
            struct tw_id hashes[TW_PARTS_MAX]; /* of a pair: Delta, phi */
            uint32_t bytes[TW_PARTS_MAX];
        } encoded; /* ENCODED; ok = false: could not (non-finite, no memory, no budget), sit this
                      round out */
        struct {
            uint64_t round;
            uint64_t refused; /* bit i = inputs[i] was left out: it is no contributor */
            uint32_t part, bytes;
            struct tw_id hash;
            bool is_audit; /* as it was asked for */
        } reduced;         /* REDUCED */
        struct {
            uint32_t fragment;
            uint64_t rounds;     /* applied rounds after it */
            struct tw_id digest; /* of (phi, u) after it */
            bool is_alone;       /* pair step: the partner's phi was of no use, done without it */
            bool is_outlier;     /* for its share is far larger than shares are */
        } applied; /* APPLIED; ok = false: the payload did not decode, nothing changed */
        struct {
            uint32_t fragment;
            uint64_t rounds;
            struct tw_id digest, hash;
            uint32_t bytes;
        } exported;         /* EXPORTED */
        uint64_t store_seq; /* STORED */
        struct {
            uint32_t upload_kib_s; /* of this node, to all peers together; 0 = not known */
            uint64_t odd;  /* set of peers that are far slower, or less reliable, than the others */
            bool is_short; /* the budget has no room for a contribution now; heeded in pairs */
        } measured;        /* MEASURED */
    } u;
};

/* ---- actions ------------------------------------------------------------------------------ */

enum tw_action_kind {
    TW_ACT_SEND,        /* `message` to `peer` on its control link */
    TW_ACT_CLOSE,       /* close the link to `peer` because of `reason`; PEER_DOWN follows */
    TW_ACT_SEND_CHUNK,  /* chunk `idx` of the held payload to `peer` on its bulk link */
    TW_ACT_EXPECT,      /* make room for payload `hash` of `bytes` bytes; chunks will come */
    TW_ACT_VERIFY,      /* all chunks are here: SHA-256, and a trial decode of what is not OPAQUE */
    TW_ACT_DROP,        /* payload `hash` is no longer needed */
    TW_ACT_ENCODE,      /* at the next step boundary: Delta of `fragment`, one payload per part */
    TW_ACT_REDUCE,      /* merge `inputs` (held payloads, in this order), encode once */
    TW_ACT_APPLY,       /* outer step with committed results, then mix or shift theta */
    TW_ACT_SOLO,        /* alone: phi := theta for `fragment`, u := 0 */
    TW_ACT_PAIR_ENCODE, /* at the next step boundary: Delta and phi of `fragment`, a payload each */
    TW_ACT_PAIR_APPLY,  /* outer step with our and the partner's payloads, or alone */
    TW_ACT_EXPORT,      /* pack (phi, u) of `fragment` into a payload */
    TW_ACT_LOAD,        /* (phi, u) of `fragment` := packed payload */
    TW_ACT_STORE_VOTE,  /* write `vote` durably, then say STORED with `store_seq` */
    TW_ACT_CLOCK,       /* tell the worker the run clock */
    TW_ACT_FINISH,      /* the run is over: stop stepping, keep serving; or it is not, after all.
                           For every worker from now on */
    TW_ACT_REPORT,      /* something an operator or an invariant wants to know */
};

/* What happened, for logs, /v1/rounds, metrics and the simulator's checkers. */
enum tw_report_kind {
    TW_REPORT_PEER_DEAD,       /* silent for TW_PEER_SILENCE_US */
    TW_REPORT_ROUND_COMMITTED, /* `close`: learnt that it is committed */
    TW_REPORT_LINEAGE,         /* now in lineage `id` (fork or adoption) */
    TW_REPORT_STATE,           /* `state` changed */
    TW_REPORT_MISBEHAVED,      /* `peer` broke the rules: `reason` */
    TW_REPORT_REFUSED,         /* what member `id` contributed was too large to be merged here, for
                                  the first, second, fourth, eighth ... time in a row */
    TW_REPORT_STRUCK,          /* `id` owns no part for a while: `reason` TW_CORRUPT, its result is
                                  not the merge; TW_LIMIT, it was insane. In pairs nothing is merged
                                  with it: its share could not be read, or was insane */
    TW_REPORT_STALLED,         /* `id` held up rounds, and is not waited for any more for a while */
    TW_REPORT_INSANE,          /* a result of member `id` was not taken here: `close` is NULL */
    TW_REPORT_FULL,            /* the roster has members_max members, and `id` asks to join it; it
                                  may be this node itself */
    TW_REPORT_PAIRED,          /* the round just committed merged with node `id` */
    TW_REPORT_ONE_SIDED,       /* we merged with node `id`, and it did not with us */
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
            uint32_t fragment; /* of a RESULT: what it is the merge of */
            uint64_t begin;
        } payload;                    /* SEND_CHUNK, EXPECT, VERIFY, DROP */
        struct tw_wmsg_encode encode; /* bytes_max: 0, for a shell that has a budget to set */
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
        struct tw_wmsg_clock clock;
        struct tw_wmsg_finish finish; /* goes_on: in a lineage that has not spent its budget */
        struct {
            enum tw_report_kind kind;
            enum tw_status reason;
            enum tw_node_state state;
            struct tw_id id;
            const struct tw_record *record; /* borrowed until the next event */
            uint64_t round;                 /* STRUCK: of the result, and its part; REFUSED */
            uint32_t part;
            uint32_t times; /* REFUSED: in a row */
        } report;
    } u;
    /* Payloads that the request reads: of each input of REDUCE, of each part of APPLY (zero when
     * ABSENT), of PAIR_APPLY (TW_PAIR_*), of LOAD (zero: (phi, u) are right as they are). */
    struct tw_id inputs[TW_MEMBERS_MAX];
    struct tw_id partner; /* PAIR_ENCODE: the node whose link Delta goes over */
};

/* Opaque to shells: allocate tw_node_bytes() aligned to 64 and pass it in. */
struct tw_node;

size_t tw_node_bytes(void);

/* Starts without peers and without a worker. `position` and `vote` come from disk, or NULL: then
 * the node starts a lineage of its own. Asserts on a config that breaks limits.h. */
void tw_node_init(struct tw_node *node, const struct tw_node_config *config,
                  const struct tw_position *position, const struct tw_vote *vote, uint64_t now_us);

/* Advances the machine. `now_us` is any monotonic clock and never goes back. All actions must have
 * been drained before the call. Cannot fail: what a peer does wrong becomes TW_ACT_CLOSE. */
void tw_node_event(struct tw_node *node, const struct tw_event *event, uint64_t now_us);

/* Pops the oldest action. False when there is none. */
bool tw_node_next_action(struct tw_node *node, struct tw_action *action);

/* Whether this node waits for this chunk from this peer. A shell asks before it stores the bytes:
 * what nobody asked for must not touch a payload that is arriving, being checked or held. */
bool tw_node_wants_chunk(const struct tw_node *node, uint16_t peer, const struct tw_id *hash,
                         uint32_t idx);

/* Whether chunks that were asked of this peer have not come yet. */
bool tw_node_is_pulling(const struct tw_node *node, uint16_t peer);

/* When TW_EV_TICK is due, in us; UINT64_MAX for never. */
uint64_t tw_node_deadline(const struct tw_node *node);

/* A copy of what a checkpoint must hold, consistent with the last APPLIED event. */
void tw_node_position(const struct tw_node *node, struct tw_position *position);

/* Read-only view for status, metrics and checkers. */
struct tw_node_view {
    enum tw_node_state state;
    struct tw_id lineage, tip;
    bool is_apart;    /* nothing is merged any more: together_tokens */
    bool is_shut_out; /* it asks to join, and the roster is full */
    uint64_t rounds, clock_tokens, step, tokens;
    uint64_t rounds_contributed, rounds_missed; /* committed rounds that list us / do not */
    uint32_t alive; /* peers whose status was heard within TW_PEER_SILENCE_US */
    uint32_t mixed; /* peers that entered our anchor within the last 2 P rounds */
    uint32_t roster_count;
    uint64_t audits;      /* merges of others that were done again here */
    uint64_t unmerged;    /* contributions too large to be merged here */
    bool is_contributing; /* an outer gradient of ours is on its way in the open round */
    struct {
        uint64_t merged, alone, one_sided; /* rounds; of the merged ones, as far as it is known */
        uint64_t short_of_bytes;           /* of those alone: nobody was asked, see is_short */
        uint64_t refused;                  /* requests answered by PAIR_BUSY */
        bool is_trading;                   /* an exchange is under way */
    } pairs;
    struct tw_roster roster;
    struct {
        bool is_up;
        struct tw_id id;
        struct tw_msg_status status; /* last heard */
        uint64_t heard_us;
        bool is_member;
        uint64_t last_mixed_round; /* + 1; 0 = never */
        struct {
            uint32_t count, part; /* count 0: it may own parts */
            uint64_t round, left_us;
            bool is_false; /* that result is no merge; else it was out of all proportion */
        } strike;
        uint64_t owner_stall_us, proposer_stall_us; /* so long it is not waited for as that */
        uint32_t unmerged; /* rounds in a row in which its contribution was too large for us */
    } peers[TW_PEERS_MAX];
};

void tw_node_view(const struct tw_node *node, struct tw_node_view *view);

#endif
