/* state.h - struct tw_node: all state of the core. Private to sync/.
 *
 * The core is level-triggered. An event is only recorded. Then node.c calls the *_advance function
 * of each file in a fixed order (the walk). Each function requests all data that is missing and not
 * yet requested. A lost message, a dead worker or a restart therefore needs no code of its own: the
 * next walk asks again.
 *
 * The state is the lowest layer: every folder of sync/ reads it. Calls between folders go downward
 * only, in the order of README.md. Sets of members are bit masks by roster index, sets of peers by
 * peer number, sets of parts by part number, sets of ranks by rank. */
#ifndef TW_SYNC_CORE_STATE_H
#define TW_SYNC_CORE_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fragment_set.h"
#include "base/id.h"
#include "base/limits.h"
#include "base/rng.h"
#include "proto/message.h"
#include "proto/record.h"
#include "proto/worker_request.h"
#include "sync/core/interface.h"
#include "sync/core/penalty.h"
#include "sync/core/position.h"

#ifdef TW_MUTANTS
#include "sync/mutants.h"
#define TW_IS_MUTANT(node, bug) ((node)->cfg.mutant == (bug))
#else
#define TW_IS_MUTANT(node, bug) ((void)(node), false)
#endif

/* ---- bounds and times that several folders share --------------------------------------------- */

/* A bound that only one file uses is defined in that file. Sizes on the wire and of tables are in
 * base/limits.h. Some times adapt to measurements; here are their floors and ceilings. */

enum {
    NO_PEER = 0xFFFF,  /* no peer; as a sender: this node itself */
    PULL_RUN_MAX = 16, /* chunks of one PULL */
    SOURCES_MAX = 4,   /* peers that send chunks of one payload at a time */
};

/* Upper bounds of numbers that a peer sends. An honest number is never larger, and sums of larger
 * ones could overflow. */
#define ROUNDS_MAX (UINT64_C(1) << 40)
#define TOKENS_MAX (UINT64_C(1) << 48) /* tokens of one contribution */
/* Most by which a ballot may exceed the highest ballot so far of its round. */
#define BALLOT_LEAP_MAX (TW_MEMBERS_MAX * 1024)

#define NOT_HELD UINT64_MAX /* value of fragment_rounds: (phi, u) belong to another lineage */

#define SECOND_US UINT64_C(1000000)
#define RETRY_US (2 * SECOND_US)
#define ASK_US (SECOND_US / 2) /* time between two equal requests to one peer */
#define PATIENCE_FLOOR_US                                                                          \
    (10 * SECOND_US) /* least wait for contributions and results of a round                        \
                      */
/* Timeout of a ballot; doubles with each failed ballot of a round. */
#define BALLOT_TIMEOUT_US (5 * SECOND_US)
#define TAKEOVER_STEP_US (5 * SECOND_US) /* extra wait of each rank beyond the rank before it */
#define MEMBER_DEAD_US (15 * SECOND_US)  /* silence after which the next roster omits a member */
#define JOIN_VALID_US (5 * SECOND_US)    /* validity of a JOIN */
#define SOLO_HOLD_US (5 * SECOND_US)     /* pause of solo rounds while a peer copies the state */
/* Time for which solo rounds do not wait for a peer that was refused chunks: it gets the rest too
 * slowly. */
#define REFUSED_US (120 * SECOND_US)
/* Time for which a packed state is kept after a peer last pulled from it. */
#define STATE_KEEP_US (30 * SECOND_US)
/* Time after which a receiver without a linked donor (a member that serves the state) looks for
 * another lineage. */
#define LINEAGE_LOST_US (10 * SECOND_US)
#define FULL_US (600 * SECOND_US) /* time between two reports that the roster is full */

static inline uint64_t at_most(uint64_t value, uint64_t most) {
    return value < most ? value : most;
}

static inline uint32_t tw_bits(uint64_t set) {
    return (uint32_t)__builtin_popcountll(set);
}

/* ---- links ----------------------------------------------------------------------------------- */

enum { PULLS_MAX = 64 }; /* chunks under way from one peer */

/* A chunk that was requested from a peer. */
struct pull {
    uint64_t asked_us;
    uint64_t moved_us; /* last arrival of a chunk that was requested before this one */
    uint16_t payload;  /* row of the payload table */
    uint16_t chunk;
};

struct link {
    bool is_up, has_status;
    bool has_left;    /* the peer sent LEAVE: its later STATUS does not count */
    bool was_refused; /* the peer was in a lineage that this node refuses */
    bool is_relayed;  /* the link runs through another member */
    bool lacks_roles; /* the peer is of a version without roles */
    bool lacks_vote;  /* the peer's certificate gives it no vote */
    bool has_links;   /* LINKS was received */
    bool is_relay;    /* the peer relays links between other nodes */
    bool is_silent;   /* the last chunks requested from it did not arrive: payload.c */
    struct tw_id id;
    struct tw_msg_status status; /* newest STATUS received */
    uint64_t up_us, received_us; /* when the link came up; when anything last arrived on it */
    uint64_t log_asked_us;       /* when LOG_GET was last sent */
    uint64_t log_told_us;        /* when this node last answered a message of an old round with
                                    records */
    uint64_t claim_us;    /* when this peer's claim about its lineage was last checked; 0: never */
    uint64_t log_begin;   /* oldest round in the peer's log, as announced by the peer */
    uint8_t pairs_missed; /* exchanges in a row whose payloads did not arrive */
    uint64_t refused_us;  /* when this node last refused it chunks for its budget; 0: never */
    uint64_t ignored_until_us; /* end of the time in which its accusations are ignored */
    /* Messages and ballots sent to the peer since it announced that it is at the open round. */
    bool was_sent_contrib, was_sent_result, was_shown; /* was_shown: RESULT with all signatures */
    uint64_t sent_prepare, sent_propose, sent_lock;
    /* Chunks under way, in the order of requests. */
    uint32_t pulls_count;
    struct pull pulls[PULLS_MAX];
    /* Measured time per chunk, and shortest time from request to arrival; 0: not known. */
    uint64_t chunk_us, near_us;
    /* Nodes that the peer reports links to: first direct_count without a relay, then those through
     * a relay. */
    uint32_t direct_count, linked_count;
    struct tw_id linked[TW_PEERS_MAX];
    uint64_t linked_members; /* set of the members of the roster among `linked` */
    uint64_t measured_us;    /* start of the present measurement; 0: none */
    uint32_t measured_count;
};

/* ---- the graph of links ---------------------------------------------------------------------- */

struct reach {
    uint64_t of[TW_MEMBERS_MAX];      /* set of members that member i is linked to, and i itself */
    uint64_t present;                 /* set of present members: see tw_reach_is_present */
    uint16_t peers[TW_MEMBERS_MAX];   /* link to member i, or NO_PEER: see tw_reach_peer */
    struct tw_id ids[TW_MEMBERS_MAX]; /* members of the roster to which `of` belongs */
    uint32_t ids_count;
    bool is_due;           /* the links of this node changed since LINKS was sent */
    uint64_t announced_us; /* when LINKS was sent last; 0: never */
};

/* ---- the worker ------------------------------------------------------------------------------ */

struct worker {
    bool is_up;
    bool is_exporting, is_solo_pending;
    bool is_turning; /* the worker has not yet answered LOAD_TURN, the last step of an adoption */
    struct tw_fragment_set applying; /* fragments with an unanswered APPLY, LOAD or SOLO */
    uint64_t step, tokens;           /* inner steps and tokens trained by this node so far */
    uint64_t last_send_step;
    uint64_t entered_step; /* step at which the node last became a member */
    uint64_t stepped_us;   /* when the last inner step ended; 0: none yet */
    uint64_t step_us;      /* moving average of the time of an inner step; 0: not known */
    /* Start of the window over which tokens_per_s is measured. */
    uint64_t rate_us, rate_tokens, rate_step;
    uint32_t tokens_per_s;
};

/* The runtime's measurements of this node's links. */
struct measured {
    uint32_t upload_kib_s; /* 0: not known */
    uint64_t outliers;     /* set of peers whose links are far worse than all others */
    bool is_relay;         /* this node relays links between other nodes, and announces that */
    bool is_over_budget;   /* the byte budget allows no contribution now */
};

/* ---- payloads -------------------------------------------------------------------------------- */

enum payload_state {
    PAYLOAD_FREE,
    PAYLOAD_WANTED,
    PAYLOAD_CHECKING,
    PAYLOAD_HELD,
    PAYLOAD_UNFIT, /* the bytes have the right hash but do not decode: never requested again */
};

/* Sets of peers are bit masks by peer number. */
struct payload {
    enum payload_state state;
    struct tw_id hash;
    struct tw_id from; /* node that announced the payload and therefore holds it */
    bool is_shared;    /* other nodes of the lineage may have the payload too */
    bool is_expected;  /* EXPECT was sent: the runtime makes room for the payload */
    /* Rating of a HELD result. This node votes for an outlier only in rosters below
     * config.judges_min, and never for an extreme one. */
    enum tw_sanity sanity;
    bool is_mixed; /* chunks came from several peers, or from a peer that is gone */
    bool is_alone; /* bytes of several peers had the wrong hash: one source at a time from now on */
    bool is_put_off; /* the runtime had no room for the payload */
    bool is_decided; /* result of a committed round: a majority has the payload */
    uint32_t bytes, chunks, chunks_have, under_way;
    uint32_t failed_rounds; /* number of times in a row that every peer was asked and no chunk
                               arrived */
    enum tw_content content;
    uint64_t elements; /* finite values that the payload must decode to; 0: OPAQUE */
    uint32_t fragment; /* RESULT: fragment and first element of the part; packed: fragment */
    uint64_t begin;
    uint64_t packed; /* HELD: elements, if this node packed the payload from (phi, u); else 0 */
    uint16_t given[TW_PEERS_MAX]; /* chunks sent to each peer, repetitions included */
    bool is_left;                 /* no peer needs the payload any more, so it is dropped first */
    uint64_t pullers;             /* HELD: peers that requested chunks of the payload */
    uint64_t offered;             /* peers that announced the payload */
    uint64_t sources;             /* peers from which this node requests chunks */
    uint64_t senders;             /* peers whose chunks are in the payload */
    uint64_t tried;               /* peers that could not serve the payload */
    uint64_t lacking;             /* peers that sent MISSING for it since they last announced it */
    uint64_t asked; /* peers that were asked for chunks, so their chunks are accepted */
    uint64_t progress_us;
    uint64_t keep_round,
        keep_us; /* the payload is kept until both this round and this time have passed */
    uint64_t have[TW_CHUNKS_MAX / 64];
};

/* ---- states given and fetched ---------------------------------------------------------------- */

/* The fetch of the state of a fragment that this node lacks. */
struct state_fetch {
    enum tw_load_mode mode; /* effect of its LOAD on theta */
    bool has_offer;         /* `offer` is the answer to our STATE_GET */
    struct tw_id donor;     /* node that made the offer */
    struct tw_msg_state offer;
    uint64_t asked_us;          /* when STATE_GET was last sent */
    uint64_t others_us;         /* when other members were last asked for the same state */
    uint64_t fed_us;            /* last time at which the transfer made progress: see is_fed() in
                                   state_transfer.c */
    uint32_t fed_chunks;        /* chunks received at that time */
    uint32_t fed_failed_rounds; /* failed rounds of the payload at that time */
    /* The word of others on the offer (transfer/state_transfer.h): sets of peers; when they were
     * last asked; when the bytes were complete, 0 before. */
    uint64_t agreeing, objecting, witness_us, here_us;
    bool is_unproven; /* the state was loaded, and no round has yet shown it to be the members' */
};

/* The digests of all fragments at the end of the run, as a donor told them (state_proof.c). */
struct state_list {
    struct tw_id tip;  /* digest of the closing record that proves the list; zero: none does */
    struct tw_id from; /* the donor; zero: none is asked */
    uint64_t rounds;   /* at.rounds when it was asked first */
    uint64_t asked_us; /* when it was asked last; 0: not yet */
    uint64_t fed_us;   /* when it last told one */
    uint32_t told_count;
    struct tw_fragment_set told;
    struct tw_id digests[TW_FRAGMENTS_MAX];
};

/* Digest of a state of a fragment that this node held. */
struct state_memory {
    uint64_t lineage_key, rounds; /* lineage_key: first bytes of the lineage */
    struct tw_id digest;          /* zero: unused */
    uint32_t fragment;
};

/* The states that this node held before the last rounds: as many as records are kept, so that each
 * state that can still be brought up to date is remembered. */
struct old_states {
    uint32_t next; /* row of the next state */
    struct state_memory rows[TW_ROUNDS_KEPT];
};

/* The state of a fragment, packed for other nodes. */
struct state_export {
    bool is_valid;             /* (phi, u) have not changed since they were packed */
    struct tw_msg_state offer; /* answer to STATE_GET */
    struct tw_msg_state old;   /* previous offer, which a peer may still be pulling */
    uint64_t waiting;          /* set of peers that asked and have no answer yet */
};

/* ---- the open round -------------------------------------------------------------------------- */

enum { ARRIVALS_KEPT = 32 };

/* The contribution of one member. */
struct contribution {
    bool has;       /* CONTRIB was received */
    bool is_absent; /* CONTRIB had zero bytes: the member sits the round out */
    bool is_bad;    /* this node cannot merge the contribution */
    uint64_t received_us;
    uint64_t
        ready_us; /* when the payload for our part had arrived and passed its check; 0: not yet */
    struct tw_msg_contrib announced;
};

enum own_state {
    OWN_IDLE,
    OWN_ENCODING,
    OWN_READY, /* encoded, but the round is neither due nor active */
    OWN_SENT,
    OWN_GATHERING, /* encoded as a part of the crew's contribution (crew/crew.c) */
    OWN_FAILED, /* encoding failed; retried until the round is active, then announced as absent */
};
enum proposer_phase {
    PROPOSER_IDLE,
    PROPOSER_STORING,
    PROPOSER_PREPARING,
    PROPOSER_PROPOSING,
    PROPOSER_LOCKING,
};

/* The one round that is being decided: number node->at.rounds. Sets of members are bit masks by
 * roster index, sets of parts by part number, sets of ranks by rank. */
struct round {
    uint64_t active_us; /* when the round began for this node (round.c); 0: not yet */
    uint64_t begun;     /* set of members that sent a message about the round */
    uint64_t begin[TW_PARTS_MAX], count[TW_PARTS_MAX]; /* first element and number of elements of
                                                          each part */
    uint32_t owners[TW_PARTS_MAX], owners_count;
    uint32_t rank[TW_MEMBERS_MAX];      /* rank[i]: roster index of the voter with rank i */
    int self_idx, self_part, self_rank; /* roster index, part and rank of this node; -1: none */

    enum own_state own;
    uint64_t own_step, own_tokens; /* this node's step and token counts when Delta was computed */
    uint64_t own_retry_us;
    struct contribution contributions[TW_MEMBERS_MAX];

    /* owner */
    bool intake_closed, is_reducing, is_reduced;
    bool has_waited_in_vain; /* intake ended after pace.patience_us, with contributions still
                                missing */
    uint64_t merged;         /* set of members whose contribution is merged into our part */
    uint64_t refused; /* set of members whose contribution the worker left out for its size */
    uint64_t intake_closed_us;
    struct {
        bool has;
        bool is_shown;     /* known from a proposal alone: the owner has not sent the result to this
                              node */
        uint64_t bare;     /* set of contributors whose signatures are missing */
        uint64_t asked_us; /* when the owner was asked for these signatures; 0: not yet */
        uint64_t announced_us;
        struct tw_msg_result announced;
    } results[TW_PARTS_MAX];
    uint64_t result_seq; /* number of the STORE_VOTE that records our signed result; 0: not
                            requested */
    uint64_t results_us; /* when the last result was announced; 0: some are missing */
    uint64_t turn_us;    /* when it became this node's turn to propose; 0: not yet */

    /* acceptor: the offer is a proposal that is accepted once this node holds its results */
    bool has_offer;
    bool is_lost;                    /* no peer can serve one of the offer's results */
    bool is_offer_leased;            /* the offer's proposer got the ballot lease */
    uint16_t offer_from;             /* NO_PEER: this node */
    uint64_t offer_ballot, offer_us; /* offer_us: arrival of the offer */
    struct tw_record offer;
    bool is_offer_carried;      /* a lock requires this record */
    uint64_t voted_us;          /* when we last voted for another member's proposal; 0: its outcome
                                   is not awaited */
    struct tw_proof offer_lock; /* votes of phase 1 at offer_ballot, if LOCK arrived before the
                                   results */

    /* vetoes: veto.c */
    uint32_t left_out;                 /* set of parts that our proposals leave out */
    uint64_t refused_by[TW_PARTS_MAX]; /* sets of members that refused the part in our ballot */
    uint64_t refused_ranks;            /* ranks of proposers that this node refused */
    uint64_t empty_ranks; /* ranks refused because their proposals left out most of the round */
    uint64_t refused_us;  /* when the first proposal was refused */
    uint64_t reported;    /* set of owners whose refused results were reported */

    /* proposer */
    enum proposer_phase phase;
    uint32_t attempt;
    uint64_t ballot, ballot_seq, phase_us, retry_us;
    uint64_t promised_by, accepted_by, nacked_by; /* sets of members that answered this ballot */
    struct tw_promises promises;                  /* promises of the members in promised_by */
    struct tw_proof best_lock;                    /* the newest lock in a promise; none: ballot 0 */
    struct tw_record best;                        /* record of best_lock */
    struct tw_record proposal;
    uint32_t joins_count; /* signed JOINs of the new members of proposal.next, in their order */
    uint8_t joins[TW_JOINS_MAX][TW_SIGNATURE_BYTES];
    struct tw_proof lock,
        proof; /* votes for `proposal` by accepted_by, of phase 1 and of phase 2 */
};

/* Times learned from earlier rounds. */
struct pace {
    uint64_t last_commit_us;
    bool was_active;      /* this node saw the last committed round while it was open */
    uint64_t patience_us; /* longest wait for the parts of a round */
    /* Ring buffer of the delays of contributions after the first one of their round. */
    uint64_t arrivals_us[ARRIVALS_KEPT];
    uint32_t arrivals_count; /* since the start */
};

/* This node's knowledge about a member of the roster, by roster index. */
struct seat {
    uint64_t seen_us; /* last time at which its member was linked under the nonce of the roster */
    uint64_t live_us; /* last time at which its member was live */
    bool has_left;    /* its member sent LEAVE and has not returned under its nonce */
    uint8_t unlisted; /* rounds in a row without its member's work, or its vote where members take
                         no steps; 255: or more */
    uint8_t missed;   /* rounds in a row with a contribution announced but not delivered */
};

/* ---- the acceptor and the ballot lease ------------------------------------------------------- */

enum { REPLIES_MAX = 8 };

enum reply_kind { REPLY_PROMISE, REPLY_ACCEPT, REPLY_COMMIT };

/* A reply that must not be sent before the vote is on disk. */
struct reply {
    enum reply_kind kind;
    bool to_self;
    struct tw_id to;
    uint64_t ballot;
    uint64_t seq; /* number of the STORE_VOTE that must be answered first */
};

struct acceptor {
    uint64_t vote_floor; /* this node may have voted in any round below this one; read from disk */
    uint64_t store_seq;  /* number of the newest STORE_VOTE requested */
    uint64_t stored_seq; /* number of the newest STORE_VOTE on disk */
    uint64_t nonce_seq;  /* number of the STORE_VOTE that stores the present nonce */
    uint64_t store_failed_us; /* time of the last write's failure; 0: no failure */
    struct reply replies[REPLIES_MAX];
    uint32_t replies_count;
};

/* The ballot lease. While it runs, this acceptor promises only ballots of one proposer, the holder.
 * acceptor.c has the rules. */
struct lease {
    bool is_taken, has_proposed;
    bool has_robbed; /* the holder took the lease while another proposer held it */
    uint32_t member; /* roster index of the holder */
    uint64_t ballot, began_us, until_us;
    uint32_t distrusted_count; /* promises in this round to proposers that are not waited for (L4 of
                                  acceptor.c) */
    /* set of members that proposed in this round, or sent PREPARE before other ranks were due to
     * propose */
    uint64_t active;
    struct {
        uint64_t ballot, asked_us;
    } asked[TW_MEMBERS_MAX]; /* PREPAREs that wait for a promise; ballot 0: none */
};

/* Clears the lease for a new round: no holder, no waiting PREPARE. */
static inline void tw_lease_clear(struct lease *lease) {
    lease->is_taken = false;
    lease->active = 0;
    lease->distrusted_count = 0;
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) lease->asked[i].ballot = 0;
}

/* Returns the rank of the proposer that uses this ballot. */
static inline uint32_t tw_ballot_rank(uint64_t ballot) {
    return ballot == 1 ? 0 : (uint32_t)(ballot % TW_MEMBERS_MAX);
}

/* ---- the log and the lineage ----------------------------------------------------------------- */

enum { JOINS_MAX = TW_JOINS_MAX };

/* Committed rounds. */
struct log {
    struct tw_record records[TW_ROUNDS_KEPT]; /* record of round r in row r % TW_ROUNDS_KEPT */
    struct tw_proof proofs[TW_ROUNDS_KEPT];   /* votes that prove the record in the same row */
    /* Round r, in row r % TW_ROUNDS_KEPT: an owner left this node's contribution out because it was
     * too large. */
    bool was_refused[TW_ROUNDS_KEPT];
    uint64_t begin;     /* rounds [begin, at.rounds) are in `records` */
    bool is_begin_told; /* the oldest record came from the peer whose lineage this node adopted, so
                           no earlier record of this log proves it */
    uint64_t contributed_count, missed_count; /* committed rounds with and without this node's work;
                                                 a node without steps misses none */
    uint64_t refused_count;                   /* committed rounds for which was_refused was set */
    struct tw_id refused_by;                  /* the owner that refused last; zero: none yet */
    bool is_reported;    /* a report of the current event borrows a row of `records`, so none may be
                            overwritten */
    bool is_finish_sent; /* FINISH was sent: the run is over */
    struct {
        struct tw_id id;
        uint64_t round;      /* number of the newest round with that node's work, plus 1; 0: free
                                row */
    } mixed[TW_MEMBERS_MAX]; /* nodes whose work entered this node's anchor */
};

/* Nodes that had a vote in a roster with a seat of this node: they are not strangers if they lost
 * their seat for a while, or meet again in a child lineage. The oldest row is replaced. */
struct elders {
    uint64_t noted_count; /* rosters noted so far */
    struct {
        struct tw_id id;
        uint64_t noted; /* value of noted_count when the node last had a vote; 0: free row */
    } rows[TW_MEMBERS_MAX];
};

/* Supporters of a lineage: nodes that signed its newest records. */
struct support {
    uint32_t met; /* supporters that this node is linked to, or that are in its own roster */
    uint32_t all;
    bool is_ours; /* this node itself, which is not counted, has signed one as a voter */
};

/* The claim of one peer that its lineage is better than ours: history/claim.c. */
struct claim {
    enum { CLAIM_NONE, CLAIM_ASKED, CLAIM_PROVEN } phase;
    uint16_t peer;
    struct tw_id from;           /* id of the peer */
    struct tw_id lineage;        /* the lineage that the peer claims to be in */
    uint64_t asked_us;           /* when LOG_GET was sent */
    uint64_t next_round, rounds; /* rounds [next_round, rounds) have yet to arrive */
    bool has_record;
    struct tw_record record; /* the newest record received; once PROVEN, the tip of that lineage */
    struct tw_proof proof;   /* votes that prove `record` */
    struct tw_id digest;     /* digest of `record` */
    uint64_t signers;        /* set of members of record.next that signed a record so far */
};

struct lineage {
    bool needs_tip;       /* this node follows a lineage whose newest record has not arrived yet */
    bool was_shared;      /* this node's state is, or once was, merged by a group */
    bool is_settling;     /* the lineage is about to change: no more of its rounds are applied */
    bool is_shut_out;     /* this node is a RECEIVER that asks to join a full roster */
    uint64_t majority_us; /* last time at which a majority of the roster was live */
    uint64_t donor_us;    /* last time at which a donor (member that serves the state) was live */
    struct support support; /* supporters of our lineage: its roster, or the supporters that it had
                               when it was adopted */
    struct claim claim;     /* the claim about another lineage that is being checked */
    struct tw_id leader;    /* peer on whose claim the lineage was adopted; zero: none */
    uint64_t moved_us;      /* last time at which a chunk arrived, or this node was owed no data */
    /* Time before which no solo round may start, and the start of that hold. */
    uint64_t solo_hold_us, hold_began_us;
    uint64_t fed_us; /* when a peer last received a chunk of our state that was new to it */
    uint64_t join_us, join_round; /* time and round of the last JOIN */
    uint64_t seatless_us; /* time of the first JOIN since this node has had no seat; 0: it does not
                             ask for one */
    struct {
        struct tw_id id;
        struct tw_msg_join join;
        uint64_t received_us;
        uint64_t full_us; /* when the full roster was last reported */
        uint64_t claimed; /* number, plus 1, of the round in which this node last proposed it as an
                             elder, in vain so far; 0: never */
    } joins[JOINS_MAX];
};

/* ---- audits ---------------------------------------------------------------------------------- */

enum { AUDIT_ROUNDS = 4 }; /* rounds for which contributions are kept after their merge */

/* A committed round with all that is needed to repeat its merges. */
struct past_round {
    uint64_t round; /* number of the round + 1; 0: free */
    struct tw_roster roster;
    uint64_t begin[TW_PARTS_MAX], count[TW_PARTS_MAX];
    uint32_t announced; /* set of parts for which the record agrees with the owner's announcement to
                           this node */
    struct contribution contributions[TW_MEMBERS_MAX];
};

struct audit_input {
    struct tw_id from, hash;
    uint64_t tokens;
    uint32_t steps, bytes;
};

enum audit_phase { AUDIT_IDLE, AUDIT_FETCHING, AUDIT_MERGING };

/* The audit of one part of a committed round. */
struct audit {
    enum audit_phase phase;
    uint64_t round, begin, count, began_us;
    uint32_t fragment, part, inputs_count;
    struct tw_id owner, result;
    bool is_hinted;   /* started by an accusation, not because the record's hash chose this node */
    bool is_doubt;    /* this node refused the result for its size */
    bool is_unlisted; /* the record does not list the result, so no other member can audit it */
    struct tw_id accuser;
    struct audit_input inputs[TW_MEMBERS_MAX];
};

struct audits {
    struct past_round past[AUDIT_ROUNDS]; /* round r in row r % AUDIT_ROUNDS */
    struct audit running;
    uint64_t done_count;  /* finished audits since the start */
    uint64_t doubt_round; /* first round in which this node may audit a refused result again */
    struct {
        bool is_there;
        struct tw_id accuser;
        uint64_t round;
        uint32_t part;
    } hint; /* accusation that is audited next */
};

/* ---- checks of training ---------------------------------------------------------------------- */

/* Findings of this node's checks of a member. */
struct jury_row {
    struct tw_id id;
    uint32_t checks;   /* finished checks that the record's hash chose */
    int64_t gain;      /* sum of score * share, in millionths */
    int64_t share;     /* sum of share^2, in millionths: gain / share is the member's strength */
    int64_t doubt;     /* log-likelihood, in thousandths, that the Delta is of other data; >= 0 */
    uint32_t unplaced; /* rounds in a row in which it did not say where it is in its data */
    uint64_t hinted_round; /* 1 + the last round in which a doubt of this member was followed */
};

enum jury_phase { JURY_IDLE, JURY_FETCHING, JURY_MEASURING };

/* The check of one contribution of a committed round. */
struct jury_check {
    enum jury_phase phase;
    uint64_t round, began_us;
    uint32_t seat; /* of the member, in the roster of that round */
    struct tw_id id;
    bool is_hinted; /* a doubt asked for it, not the record's hash */
};

struct tw_jury {
    struct jury_check running;
    struct {
        bool is_there;
        uint64_t round;
        uint32_t seat;
    } hint; /* doubt of another juror that is followed next */
    struct jury_row rows[TW_MEMBERS_MAX];
    uint64_t checks; /* finished checks since the start */
};

/* ---- evidence -------------------------------------------------------------------------------- */

enum { STATEMENT_KINDS = TW_VOTE_RESULT + 1, LIARS_MAX = 64 };

struct evidence {
    struct tw_id lineage, parent; /* parent: digest of the newest record, which holds the roster */
    uint64_t round;
    /* Newest checked statement of each member and phase; ballot 0: none. */
    struct {
        uint64_t ballot;
        struct tw_statement statement;
    } heard[STATEMENT_KINDS][TW_MEMBERS_MAX];
    uint64_t convicted_us; /* time of the newest evidence */
    /* Ring buffer of nodes against which this node has passed evidence on. */
    uint32_t liars_count;
    struct tw_id liars[LIARS_MAX];
};

/* ---- penalties ------------------------------------------------------------------------------- */

/* Cause of the newest strike of the member in the same row of `strikes`, for reports. */
struct strike_cause {
    uint64_t round;
    uint32_t part;
    bool is_proven;           /* the bytes do not decode, or an audit had another result */
    uint64_t proven_until_us; /* end of the penalty of the newest proven strike */
};

enum { DONORS_KEPT = 8, CLAIMS_KEPT = 16 };

/* How often a member's work was far larger than that of the others, in merges made here. */
enum { LARGE_MERGES = 16, LARGE_MASK = (1 << LARGE_MERGES) - 1 };

struct large_work {
    struct tw_id id;
    uint32_t merges; /* merges of its work, at most LARGE_MERGES; 0: free row */
    uint32_t recent; /* one bit for each, the newest the lowest: 1 if its work was large */
    uint32_t tenths; /* newest size, in tenths of the usual one */
};

struct penalties {
    struct tw_penalty strikes[TW_MEMBERS_MAX];
    struct strike_cause causes[TW_MEMBERS_MAX];
    struct tw_penalty owner_stalls[TW_MEMBERS_MAX], proposer_stalls[TW_MEMBERS_MAX];
    struct tw_penalty unmerged[TW_MEMBERS_MAX];
    struct tw_penalty donors[DONORS_KEPT];
    struct tw_penalty claims[CLAIMS_KEPT];
    struct tw_penalty untrained[TW_MEMBERS_MAX];
    struct large_work large[TW_MEMBERS_MAX];
    uint64_t unmerged_count; /* contributions that this owner left out since the start */
};

/* ---- topology pair --------------------------------------------------------------------------- */

enum { PAIRS_KEPT = 8 };

enum pair_phase { PAIR_IDLE, PAIR_ASKING, PAIR_ENCODING, PAIR_TRADING, PAIR_APPLYING };

/* The current exchange. pair.c describes the phases. */
struct pair {
    enum pair_phase phase;
    uint32_t fragment;
    bool has_partner;
    struct tw_id partner; /* ASKING: node that was asked; later: node that accepted */
    struct tw_pair_id id;
    bool owes_request, owes_accept, owes_offer; /* true for messages that are yet to be sent */
    bool is_whole;                              /* the partner wants our phi uncompressed */
    uint64_t deadline_us, began_us, retry_us, ask_us;
    uint64_t asked; /* set of peers asked in this round */
    uint32_t asked_count;
    bool is_encoding; /* the worker has yet to answer with ENCODED, perhaps for an abandoned
                         exchange */
    uint64_t step;    /* this node's step at which Delta was computed */
    struct tw_msg_pair_offer own, theirs;
    bool has_theirs, is_merging;
    bool is_deserted; /* the partner gave up this exchange while we are already merging */

    /* this node's step, and the time, at the fragment's last merge */
    uint64_t synced_step[TW_FRAGMENTS_MAX], synced_us[TW_FRAGMENTS_MAX];
    bool is_donor_lost;                 /* the node whose state is being fetched does not deliver */
    bool needs_whole[TW_FRAGMENTS_MAX]; /* a partner's payloads were unusable, so the next phi is
                                           requested uncompressed */
    struct {                            /* ring buffer of the newest pair steps */
        bool is_open;                   /* the partner has not announced that it took no step */
        struct tw_pair_id id;
        struct tw_id with;
    } merged[PAIRS_KEPT];
    uint64_t patience_us;    /* longest wait for one exchange; learned */
    uint64_t gained_tokens;  /* tokens that the other nodes trained since our last round */
    uint64_t counted_tokens; /* the part of gained_tokens that the current round counts */
    uint64_t merged_count, alone_count, one_sided_count, refused_count, over_budget_count;
};

/* ---- crews ----------------------------------------------------------------------------------- */

enum {
    CREWS_KEPT = 128
}; /* lists of crews that this node can show others: 4 rounds of 32 heads.
      A new one replaces the oldest */

/* The work of one node of the crew for the open round. */
struct crew_work {
    uint64_t tokens, fragment_tokens;
    uint32_t fragment_steps, bytes;
    struct tw_id hash, root, leaf; /* root: of the node's own contribution */
};

/* A hand, at its head. */
struct crew_hand {
    struct tw_id id;  /* zero: a free row */
    uint8_t missed;   /* rounds in a row that waited for it in vain */
    bool has, is_bad; /* its contribution to the open round arrived; it cannot be merged */
    bool is_ready;    /* its payload is here and passed its check */
    struct crew_work work;
};

/* A head that this hand left, because its work was not merged there. */
struct crew_left {
    struct tw_id id; /* zero: a free row */
    uint32_t times;
    uint64_t until_us;
};

enum { HEADS_LEFT_MAX = 8 }; /* a new one replaces that whose time ends first */

enum crew_phase { CREW_NONE, CREW_ENCODING, CREW_COLLECTING, CREW_MERGING };

/* Whether the results of a round contain this node's work. */
enum crew_word {
    CREW_BY_ROW, /* as the row of this node's seat says; without a seat they do not */
    CREW_IN,
    CREW_OUT,
    CREW_OPEN, /* the record lists the head, whose CREW is not known yet */
    CREW_LOST, /* no node gave the CREW */
};

struct crew {
    /* of a head */
    enum crew_phase phase;
    uint64_t began_us;
    struct crew_work own;
    uint32_t merged_count;
    struct tw_id merged[TW_CREW_MAX]; /* nodes whose work is being merged; this node is the first */
    struct crew_work works[TW_CREW_MAX];
    struct crew_hand hands[TW_CREW_MAX];

    /* of a hand: the contribution that no record has answered yet */
    bool has_greeted;       /* a worker has been up since the start */
    bool is_out, is_called; /* is_called: the head gathers work for the open round */
    struct tw_id lineage, head, leaf;
    uint64_t round, step, tokens, asked_us, committed_us;
    uint32_t fragment, misses; /* misses: contributions in a row that the head left out */
    struct tw_id root;         /* root of the head's row in the record of `round` */
    struct crew_left left[HEADS_LEFT_MAX];

    struct tw_msg_crew kept[CREWS_KEPT]; /* ring buffer; rows_count 0: free */
    uint32_t kept_next;
    /* Round r, in row r % TW_ROUNDS_KEPT: whether its results contain this node's work, and the
     * seat of its head. */
    uint8_t words[TW_ROUNDS_KEPT], seats[TW_ROUNDS_KEPT];
};

/* ---- the queue of actions -------------------------------------------------------------------- */

enum { MESSAGES_PER_EVENT_MAX = 48, BODIES_PER_EVENT_MAX = 32 };

struct queued_action {
    enum tw_action_kind kind;
    uint16_t peer;
    uint16_t slot; /* index of `messages` or `bodies` */
    /* used by SEND_CHUNK, EXPECT, VERIFY and DROP; CLOSE has its reason in idx */
    uint32_t idx, bytes;
    uint64_t elements, begin;
    uint32_t fragment;
    enum tw_content content;
    struct tw_id hash;
};

/* Messages, chunks and answers without effect, by reason. Not part of a hash. */
struct drops {
    uint64_t counts[TW_DROPS_COUNT]; /* since the start */
    enum tw_drop newest;             /* of the present event; NONE: all had an effect */
};

struct queue {
    struct queued_action actions[TW_ACTIONS_MAX];
    uint32_t head, tail;
    struct tw_message messages[MESSAGES_PER_EVENT_MAX];
    struct tw_action bodies[BODIES_PER_EVENT_MAX];
    uint32_t messages_count, bodies_count;
};

/* ---- the whole ------------------------------------------------------------------------------- */

struct tw_node {
    struct tw_node_config cfg;
    struct tw_rng rng;
    uint64_t now_us, deadline_us;
    uint64_t status_us; /* when STATUS is due */
    enum tw_node_state state;
    bool has_left; /* the user asked this node to leave the run */

    struct tw_position at;
    struct tw_id tip_digest; /* digest of at.tip; zero if there is none */
    struct tw_roster roster; /* roster of round at.rounds; count 0: not known (receiver) */
    uint64_t voters;         /* set of its members with a vote */
    struct seat seats[TW_MEMBERS_MAX];

    struct reach reach;
    struct worker worker;
    struct measured measured;
    struct lineage lineage;
    struct elders elders;
    struct log log;
    struct pace pace;
    struct round round;
    struct tw_vote vote;
    struct acceptor acceptor;
    struct lease lease; /* ballot lease of the open round */
    struct audits audits;
    struct tw_jury jury;
    struct evidence evidence;
    struct penalties penalties;
    struct pair pair;
    struct crew crew;

    struct link links[TW_PEERS_MAX];
    uint64_t link_keys[TW_PEERS_MAX]; /* first 8 bytes of the peers' ids: eight per cache line */
    uint16_t links_end;               /* highest number of a link that is up, plus 1 */

    struct payload payloads[TW_PAYLOADS_MAX];
    uint32_t payloads_end; /* all rows from this one on are free */
    struct state_fetch fetch[TW_FRAGMENTS_MAX];
    struct state_export exports[TW_FRAGMENTS_MAX];
    struct state_memory memory[TW_FRAGMENTS_MAX]; /* the newest state of each fragment */
    struct old_states old_states;
    struct state_list list;
    /* Since when this node fetches states with too few voters linked to bear them out; 0: it does
     * not. */
    uint64_t few_witnesses_us;

    struct drops drops;
    struct queue queue;
};

#endif
