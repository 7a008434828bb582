/* node_internal.h - the state of one node, shared by the files of sync/ and nobody else.
 *
 * Design: level-triggered. An event only records what happened; then tw_node_advance() walks the
 * concerns in a fixed order, and each asks for what is missing and not already under way. So a lost
 * message, a dead worker or a restart needs no code of its own: the next walk asks again.
 *
 *   peers.c    links, heartbeats, who is alive        payload.c  bytes by name: want, pull, serve
 *   round.c    contributions, owner's merge, results  acceptor.c     ballots: the acceptor
 *   proposer.c   ballots: who proposes, and when        proposal.c what is proposed
 *   veto.c   what is not accepted, and then         proposal_check.c   what no honest proposer
 * proposes log.c      committed manifests, applying them     lineage.c  adopt, fork, join account.c
 * own tokens and steps, listed or not     stall.c    who holds up rounds ballot_lease.c    whom the
 * acceptor promises next chunk_scheduler.c     who is asked for which chunk state_transfer.c (phi,
 * u) given and taken pair.c     topology pair, instead of rounds and votes: exchanges of two nodes
 *   pair_clock.c  the run's clock there, and whose state is taken over */
#ifndef TW_SYNC_NODE_INTERNAL_H
#define TW_SYNC_NODE_INTERNAL_H

#include <stddef.h>

#include "sync/ballot_lease.h"

#include "sync/node.h"
#include "sync/proposal_check.h"
#include "sync/stall.h"
#include "sync/veto.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/hash.h"

#ifdef TW_MUTANTS
#include "sync/mutants.h"
#define TW_IS_MUTANT(node, bug) ((node)->cfg.mutant == (bug))
#else
#define TW_IS_MUTANT(node, bug) ((void)(node), false)
#endif

enum {
    NO_PEER = 0xFFFF, /* "no peer", and "this node" where a sender is meant */
    REPLIES_MAX = 8,
    MESSAGES_PER_EVENT_MAX = 48,
    BODIES_PER_EVENT_MAX = 32,
    BODIES_NOT_REPORTS = 12, /* of them are for what one event and the walk after it may ask for */
    JOINS_MAX = 16,
    LOG_PER_REPLY_MAX = 16,
    VAIN_MAX = 2,      /* times everybody may be asked in vain before a payload is lost */
    PULL_RUN_MAX = 16, /* chunks of one PULL */
    PULLS_MAX = 64,    /* chunks one peer is asked for at a time */
    SOURCES_MAX = 4,   /* peers that send chunks of one payload at a time */
    ARRIVALS_KEPT = 32,
    RESULT_ROUNDS_MAX = 24,  /* results are kept for: see tw_round_keep */
    MISSED_MAX = 12,         /* then it is waited for in every 64th round */
    PAIR_CANDIDATES_MAX = 4, /* asked in vain, the round is taken alone */
    PAIRS_KEPT = 8,
    DONORS_KEPT = 8,
    DONOR_DOUBLINGS = 6,
    PAIRS_MISSED_MAX = 6, /* then it is asked in every 64th round */
    AUDIT_ROUNDS = 4,     /* contributions are kept so long after they were merged */
    AUDIT_ONE_IN = 16,    /* parts, and who looks at it is one member */
    STRIKE_DOUBLED_MAX = 6,
};

/* What no honest run comes near: beyond it a number of a peer is a lie, and sums could wrap. */
#define ROUNDS_MAX (UINT64_C(1) << 40)
#define TOKENS_MAX (UINT64_C(1) << 48)          /* of one contribution */
#define BALLOT_LEAP_MAX (TW_MEMBERS_MAX * 1024) /* above the highest ballot of the round so far */

#define NOT_HELD UINT64_MAX /* fragment_rounds: (phi, u) belong to another lineage */

/* Times in us. What follows measured behaviour is adaptive; these are its floors and ceilings. */
#define SECOND_US UINT64_C(1000000)
#define GRACE_FLOOR_US UINT64_C(200000)
#define PATIENCE_FLOOR_US (10 * SECOND_US) /* for the parts of a round */
#define PATIENCE_START_US (60 * SECOND_US)
#define PATIENCE_CEILING_US (3600 * SECOND_US)
#define BALLOT_TIMEOUT_US (5 * SECOND_US) /* doubled at each failed ballot of a round */
#define TAKEOVER_STEP_US (5 * SECOND_US)  /* between the ranks that try to close */
#define TRANSFER_TIMEOUT_US (30 * SECOND_US)
#define RETRY_US (2 * SECOND_US)
#define ASK_US (SECOND_US / 2) /* least time between two equal questions */
#define JOIN_US SECOND_US
#define JOIN_VALID_US (5 * SECOND_US)
#define SOLO_HOLD_US (5 * SECOND_US)  /* no solo round while somebody copies our state */
#define PART_HOLD_US (10 * SECOND_US) /* a member keeps its last results for the others */
#define STATE_KEEP_US (30 * SECOND_US)
#define STATE_RESUME_US                                                                            \
    (120 * SECOND_US)                    /* kept so long for who was cut off in the middle of it   \
                                          */
#define STATE_LOST_US (10 * SECOND_US)   /* nobody has the rest of it: another one is asked for */
#define STATE_OTHERS_US (5 * SECOND_US)  /* between two searches for more sources */
#define LINEAGE_LOST_US (10 * SECOND_US) /* a follower looks elsewhere */
#define RATE_WINDOW_US (5 * SECOND_US)
#define BURST_GAP_US (SECOND_US / 20)   /* steps closer to each other were waiting to be told */
#define MEMBER_DEAD_US (15 * SECOND_US) /* then the next roster drops it */
#define FULL_US (600 * SECOND_US)       /* who asks in vain is reported so often */
#define STRIKE_US (600 * SECOND_US)     /* an owner owns nothing for so long; doubled each time */
#define AUDIT_KEEP_US (10 * SECOND_US)
#define AUDIT_PATIENCE_US (120 * SECOND_US)
#define PAIR_ANSWER_US (2 * SECOND_US) /* for a PAIR_REQUEST */
#define DONOR_REST_US (10 * SECOND_US) /* before its state is taken over again; doubled */
#define PAIR_PATIENCE_CEILING_US (600 * SECOND_US)
#define STEP_US_MAX (3600 * SECOND_US)    /* of one step; beyond, the others' tokens do not count */
#define STEP_RATE_MAX (UINT64_C(1) << 40) /* tokens per second of everybody together */

static inline uint64_t at_most(uint64_t value, uint64_t most) {
    return value < most ? value : most;
}

/* A chunk that a peer was asked for. */
struct pull {
    uint64_t asked_us, moved_us; /* moved: when one that was asked for before it came */
    uint16_t payload, chunk;
};

struct link {
    bool is_up, has_status;
    bool has_left; /* it said goodbye: what it still says of itself counts no more */
    bool is_dry;   /* what it was asked for last did not come: chunk_scheduler.c */
    struct tw_id id;
    struct tw_msg_status status;
    uint64_t up_us, heard_us;
    uint64_t log_asked_us;
    uint64_t log_begin;        /* the oldest round it still has, as far as it told */
    uint8_t pairs_missed;      /* exchanges in a row in which its payloads did not come */
    uint64_t unheard_until_us; /* it accused somebody for nothing */
    bool was_told_contrib, was_told_result; /* of the open round, since it said it is there */
    uint64_t told_prepare, told_propose;    /* likewise: ballots */
    /* chunks that it was asked for, in this order; times per chunk and to the first, 0: not known
     */
    uint64_t chunk_us, near_us, measured_us;
    uint32_t measured_count, pulls_count;
    struct pull pulls[PULLS_MAX];
};

enum payload_state {
    PAYLOAD_FREE,
    PAYLOAD_WANTED,
    PAYLOAD_CHECKING,
    PAYLOAD_HELD,
    PAYLOAD_UNFIT, /* its bytes were seen and are of no use: never asked for again */
};

struct payload {
    enum payload_state state;
    struct tw_id hash;
    struct tw_id from; /* who surely has it; others of the lineage are asked if `is_shared` */
    bool is_shared, is_expected;
    /* HELD: of a result. An outlier gets our vote only where few others judge, an extreme one
     * never. */
    enum tw_sanity sanity;
    bool is_mixed;   /* its chunks are of several peers, or of one that has gone */
    bool is_alone;   /* its bytes were wrong, and mixed: one source at a time */
    bool is_put_off; /* the shell had no room for it */
    bool is_decided; /* a result of a committed round: a majority has it */
    uint32_t bytes, chunks, chunks_have, under_way;
    uint32_t vain; /* times in a row that everybody here was asked in vain: no chunk since */
    enum tw_content content;
    uint64_t elements; /* not OPAQUE: must decode to so many finite values, > 0 */
    uint32_t fragment; /* RESULT: what it is the merge of */
    uint64_t begin;
    uint64_t packed;              /* HELD: elements of (phi, u), if we packed it for others */
    uint16_t given[TW_PEERS_MAX]; /* chunks of it that each was given, those given twice too */
    bool is_left;                 /* and all who asked for it went on to others: it makes room */
    uint64_t pullers;             /* HELD: peers that asked for some of it */
    uint64_t offered;             /* peers that said they have it */
    uint64_t sources;             /* peers it is being pulled from */
    uint64_t senders;             /* peers whose chunks are in it */
    uint64_t tried;               /* peers that could not give it */
    uint64_t asked;               /* peers whose chunks are taken */
    uint64_t progress_us;
    uint64_t keep_round, keep_us; /* dropped when both have passed */
    uint64_t have[TW_CHUNKS_MAX / 64];
};

struct contribution {
    bool has, is_bad;
    bool is_absent; /* it said that it has nothing for this round: nobody waits for it */
    uint64_t heard_us, ready_us; /* announced; all its bytes for our part are here and good */
    struct tw_msg_contrib said;
};

enum own_state {
    OWN_IDLE,
    OWN_ENCODING,
    OWN_READY, /* encoded before it was time */
    OWN_SENT,
    OWN_REFUSED, /* tried again until the round is active; then it is said that nothing will come */
};
enum proposer_phase { PROPOSER_IDLE, PROPOSER_STORING, PROPOSER_PREPARING, PROPOSER_PROPOSING };

/* The one round being decided: number node->at.rounds. */
struct round {
    uint64_t active_us; /* first sign of life, or when it is due; 0 = none yet */
    uint64_t begin[TW_PARTS_MAX], count[TW_PARTS_MAX];
    uint32_t owners[TW_PARTS_MAX], owners_count;
    uint32_t rank[TW_MEMBERS_MAX];      /* rank[i] = roster index of the i-th proposer */
    int self_idx, self_part, self_rank; /* -1: not in the roster, no owner */

    enum own_state own;
    uint64_t own_step, own_tokens, own_retry_us;
    struct contribution contributions[TW_MEMBERS_MAX];

    bool intake_closed, is_reducing, is_reduced;
    uint64_t merged; /* set of members whose part we merged */
    uint64_t intake_closed_us;
    struct {
        bool has;
        uint64_t told_us;
        struct tw_msg_result said;
    } results[TW_PARTS_MAX];
    uint64_t results_us; /* every one of them is here since; 0 = not yet */

    /* acceptor: the proposal we would accept once its results are here */
    bool has_offer, is_lost; /* is_lost: nobody has one of its results */
    bool is_offer_heard;     /* it is no weak one: acceptor.c; its proposer has the floor */
    uint16_t offer_from;     /* NO_PEER = ourselves */
    uint64_t offer_ballot;
    struct tw_record offer;

    /* results that somebody does not take: veto.c */
    uint32_t left_out;                 /* set of parts that this proposer does not propose */
    uint64_t refused_by[TW_PARTS_MAX]; /* sets of members: what they did not take of our ballot */
    uint64_t refused_ranks;            /* proposers whose proposals we did not take */
    uint64_t empty_ranks;              /* and of these who left out most of the round */
    uint64_t refused_us;               /* the first of them */
    bool has_refused_late;             /* one of them may have carried on what others accepted */
    uint64_t reported;                 /* owners whose results were reported */

    /* proposer */
    enum proposer_phase phase;
    uint32_t attempt;
    uint64_t ballot, ballot_seq, phase_us, retry_us;
    uint64_t promised_by, accepted_by, nacked_by; /* sets of members: of this ballot */
    bool has_best;
    uint64_t best_ballot;
    struct tw_id promised_digest[TW_MEMBERS_MAX]; /* what each accepted; zero: nothing */
    struct tw_record best, proposal;
};

/* What it takes to do the merges of a committed round again. */
struct past_round {
    uint64_t round; /* + 1; 0: none */
    struct tw_roster roster;
    uint64_t begin[TW_PARTS_MAX], count[TW_PARTS_MAX];
    uint32_t told; /* set of parts: the manifest has what their owners told us */
    struct contribution contributions[TW_MEMBERS_MAX];
};

struct audit_input {
    struct tw_id from, hash;
    uint64_t tokens;
    uint32_t steps, bytes;
};

enum audit_phase { AUDIT_IDLE, AUDIT_FETCHING, AUDIT_MERGING };

struct audit {
    enum audit_phase phase;
    uint64_t round, begin, count, began_us;
    uint32_t fragment, part, inputs_count;
    struct tw_id owner, result;
    bool is_hinted; /* another member said so */
    struct tw_id accuser;
    struct audit_input inputs[TW_MEMBERS_MAX];
};

/* What this node found out about an owner. */
struct strike {
    struct tw_id id;
    uint32_t count; /* ever; 0: a free row */
    uint64_t until_us, false_until_us;
    bool is_false; /* its result is no merge, which is proven; else it was insane */
    uint64_t round;
    uint32_t part; /* of the newest */
};

/* A member whose contributions to our part were too large to be merged. */
struct unmerged {
    struct tw_id id;
    uint32_t rounds; /* in a row; 0: a free row */
};

enum reply_kind { REPLY_PROMISE, REPLY_ACCEPT };

/* An answer that must not leave before the vote is on disk. */
struct reply {
    enum reply_kind kind;
    bool to_self;
    struct tw_id to;
    uint64_t ballot, seq;
};

struct state_fetch {
    enum tw_load_mode mode; /* what its LOAD makes of theta, while the fragment is not held */
    bool has_offer;         /* `offer` answers our STATE_GET */
    struct tw_id donor;
    struct tw_msg_state offer;
    uint64_t asked_us;
    uint64_t others_us;            /* others were asked for the same */
    uint64_t fed_us;               /* when it was being fed last; is_fed() */
    uint32_t fed_chunks, fed_vain; /* chunks here then, and how often all were asked in vain */
};

struct state_export {
    bool is_valid;             /* (phi, u) are still as they were packed */
    struct tw_msg_state offer; /* what STATE_GET is answered with */
    struct tw_msg_state old;   /* and before that: somebody may be in the middle of it */
    uint64_t waiting;          /* set of peers */
};

enum pair_phase { PAIR_IDLE, PAIR_ASKING, PAIR_ENCODING, PAIR_TRADING, PAIR_APPLYING };

/* Our side of pair rounds; pair.c has the transitions. */
struct pair {
    enum pair_phase phase;
    uint32_t fragment;
    bool has_partner; /* ASKING: who was asked; later: with whom */
    struct tw_id partner;
    struct tw_pair_id id;
    bool owes_request, owes_accept, owes_offer; /* not yet said */
    bool is_whole;                              /* the partner wants our phi whole */
    uint64_t deadline_us, began_us, retry_us, ask_us;
    uint64_t asked; /* set of peers asked in this round */
    uint32_t asked_count;
    bool is_encoding; /* the worker owes an answer, maybe to an exchange that was abandoned */
    uint64_t step;    /* own step when Delta was taken */
    struct tw_msg_pair_offer own, theirs;
    bool has_theirs, is_merging;
    bool is_deserted; /* merging, and the partner said meanwhile that it does not */

    uint64_t synced_step[TW_FRAGMENTS_MAX], synced_us[TW_FRAGMENTS_MAX];
    struct { /* whose states were taken over lately: what they say of their clock may be a lie */
        struct tw_id id;
        uint32_t count;
        uint64_t until_us; /* not again before */
    } donors[DONORS_KEPT];
    bool is_donor_lost;                 /* whose state we take over does not deliver it */
    bool needs_whole[TW_FRAGMENTS_MAX]; /* the last phi in lattice form was too far away */
    struct { /* the newest pair steps, until the partner says that it took none */
        bool is_open;
        struct tw_pair_id id;
        struct tw_id with;
    } merged[PAIRS_KEPT];
    uint64_t patience_us; /* for one exchange; learnt */
    /* What the others trained since the last round of ours; as much of it as is in the round under
     * way. */
    uint64_t gained_tokens, counted_tokens;
    uint64_t merged_count, alone_count, one_sided_count, refused_count, short_count;
};

struct queued_action {
    enum tw_action_kind kind;
    uint16_t peer;
    uint16_t slot; /* of messages or bodies */
    uint32_t idx, bytes;
    uint64_t elements, begin;
    uint32_t fragment;
    enum tw_content content;
    struct tw_id hash;
};

struct tw_node {
    struct tw_node_config cfg;
    struct tw_rng rng;
    uint64_t now_us, deadline_us;
    enum tw_node_state state;

    /* where we stand */
    struct tw_position at;
    struct tw_id tip_digest; /* of at.tip; zero without one */
    struct tw_roster roster; /* that decides round at.rounds; count 0 = not known (follower) */
    bool needs_tip;          /* following a lineage whose newest manifest we have not seen */
    bool was_shared;         /* what we hold has been the merge of a group */
    bool has_left;
    bool is_finish_told; /* to the shell, which tells every worker */
    bool is_shut_out;    /* a RECEIVER that asks to join a full roster */
    uint64_t contributed_count, missed_count;
    struct tw_record log[TW_ROUNDS_KEPT]; /* round r at r % TW_ROUNDS_KEPT */
    uint64_t log_begin;                   /* rounds [log_begin, at.rounds) are in the log */

    /* worker */
    bool worker_up, is_exporting, is_solo_pending;
    bool is_turning;   /* theta := phi at the worker: the last step into another lineage */
    bool is_settling;  /* the lineage is about to change: no more rounds of it are applied */
    uint64_t applying; /* set of fragments with an APPLY, LOAD or SOLO at the worker */
    uint64_t step, tokens, last_send_step;
    uint64_t entered_step;        /* when it became a member, or came back as one */
    uint64_t stepped_us, step_us; /* when the last inner step ended, and how long one takes */
    uint64_t rate_us, rate_tokens,
        rate_step; /* start of the window tokens_per_s is measured over */
    uint32_t tokens_per_s;

    /* what the shell measured */
    uint32_t upload_kib_s; /* 0: not known */
    uint64_t odd;          /* set of peers */
    bool is_short;         /* of bytes, for a contribution */

    /* time */
    uint64_t last_commit_us, majority_us, lineage_us, solo_hold_us, status_us, join_us;
    bool was_active;                /* in the round that was committed last: round.c */
    uint64_t hold_began_us, fed_us; /* of solo_hold_us; a state went further to somebody */
    uint64_t patience_us;
    uint64_t arrivals_us[ARRIVALS_KEPT];
    uint32_t arrivals_count;
    uint64_t member_seen_us[TW_MEMBERS_MAX]; /* seated last, by roster index */
    uint64_t member_live_us[TW_MEMBERS_MAX];
    bool member_left[TW_MEMBERS_MAX];      /* it said goodbye, and is not back under its nonce */
    uint8_t member_missed[TW_MEMBERS_MAX]; /* rounds it announced itself for and did not deliver */

    /* vote */
    struct tw_vote vote;
    uint64_t vote_floor; /* from disk: we may have voted in rounds below this */
    uint64_t store_seq, stored_seq, nonce_seq;
    uint64_t store_failed_us; /* 0 = the last one asked for has not failed */
    struct reply replies[REPLIES_MAX];
    uint32_t replies_count;

    struct round round;
    struct tw_lease floor; /* of that round */
    struct past_round past[AUDIT_ROUNDS];
    struct audit audit;
    uint64_t audits_count;
    struct {
        bool is_there;
        struct tw_id accuser;
        uint64_t round;
        uint32_t part;
    } hint; /* an accusation that is looked at next */
    struct strike strikes[TW_MEMBERS_MAX];
    struct tw_stall stalls[TW_STALL_KINDS][TW_MEMBERS_MAX];
    struct unmerged unmerged[TW_MEMBERS_MAX];
    uint64_t unmerged_count; /* contributions, ever */
    struct pair pair;
    struct link links[TW_PEERS_MAX];
    uint64_t link_keys[TW_PEERS_MAX]; /* of ids, so that who is looked for is found in one place */
    uint16_t links_end;               /* none is up from here on */
    struct payload payloads[TW_PAYLOADS_MAX];
    uint32_t payloads_end; /* all behind it are free */
    struct state_fetch fetch[TW_FRAGMENTS_MAX];
    struct state_export exports[TW_FRAGMENTS_MAX];
    struct {
        struct tw_id id;
        struct tw_msg_join said;
        uint64_t heard_us, full_us; /* full: when it was reported that there is no seat for it */
    } joins[JOINS_MAX];
    struct {
        struct tw_id id;
        uint64_t round; /* + 1 */
    } mixed[TW_MEMBERS_MAX];

    /* actions of the current event */
    struct queued_action queue[TW_ACTIONS_MAX];
    uint32_t queue_head, queue_tail;
    struct tw_message messages[MESSAGES_PER_EVENT_MAX];
    struct tw_action bodies[BODIES_PER_EVENT_MAX];
    uint32_t messages_count, bodies_count;
};

static inline uint32_t tw_bits(uint64_t set) {
    return (uint32_t)__builtin_popcountll(set);
}

/* ---- actions.c: the queue of the current event --------------------------------------------- */

/* A message to fill and then send; NULL when this event has said enough (the next walk retries). */
struct tw_message *tw_act_message(struct tw_node *node, enum tw_message_kind kind);
void tw_act_send(struct tw_node *node, const struct tw_message *message, uint16_t peer);
void tw_act_payload(struct tw_node *node, enum tw_action_kind kind, const struct payload *payload);
void tw_act_chunk(struct tw_node *node, uint16_t peer, const struct payload *payload, uint32_t idx);
void tw_act_close(struct tw_node *node, uint16_t peer, enum tw_status reason);
/* The body of a larger action, to be filled by the caller. */
struct tw_action *tw_act_body(struct tw_node *node, enum tw_action_kind kind);
void tw_act_report(struct tw_node *node, enum tw_report_kind kind, const struct tw_id *id);
void tw_act_misbehaved(struct tw_node *node, uint16_t peer, enum tw_status reason);

/* Asks for a tick at `at_us`. */
void tw_act_wake(struct tw_node *node, uint64_t at_us);

/* Inner steps from sending to applying, at least. By the clock it is a time as well, for of a node
 * whose steps are long so many would be rounds and rounds, each of which it had to sit out. */
uint64_t tw_progress_overlap(const struct tw_node *node);
void tw_node_advance(struct tw_node *node);
/* Derives node->state from position, roster and vote; reports a change. */
void tw_membership_derive_state(struct tw_node *node);
/* Takes over the roster of the next round and opens it. */
void tw_round_set_roster(struct tw_node *node, const struct tw_roster *roster);
bool tw_membership_is_voter(const struct tw_node *node);

/* ---- peers.c -------------------------------------------------------------------------------- */

void tw_peers_up(struct tw_node *node, uint16_t peer, const struct tw_id *id);
void tw_peers_down(struct tw_node *node, uint16_t peer);
void tw_peers_status(struct tw_node *node, uint16_t peer, const struct tw_msg_status *status);
void tw_peers_left(struct tw_node *node, uint16_t peer);
void tw_peers_drop_silent(struct tw_node *node);
void tw_peers_send_status(struct tw_node *node);
void tw_membership_note(struct tw_node *node);
uint16_t tw_peers_find(const struct tw_node *node, const struct tw_id *id);
bool tw_peers_is_live(const struct tw_node *node, uint16_t peer);
bool tw_peers_in_lineage(const struct tw_node *node, uint16_t peer);
/* A member of our lineage that may serve others. */
bool tw_peers_is_donor(const struct tw_node *node, uint16_t peer);
/* Member `idx` of the roster is us, or linked, heard, and a member of our lineage as it says: worth
 * waiting for. */
bool tw_membership_is_live(const struct tw_node *node, uint32_t idx);
/* Or it fetches (phi, u) under the nonce that the roster lists: it votes, and delivers nothing. */
bool tw_membership_is_seated(const struct tw_node *node, uint32_t idx);
/* It said goodbye, or is here under another nonce, and will vote in this seat no more. */
bool tw_membership_is_parted(struct tw_node *node, uint32_t idx);
void tw_peers_broadcast(struct tw_node *node, const struct tw_message *message);
/* `peer` is a voter of the open round and said that it is deciding it too: worth talking to. */
bool tw_peers_is_at_round(const struct tw_node *node, uint16_t peer);

/* ---- payload.c ------------------------------------------------------------------------------ */

struct payload *tw_payload_find(struct tw_node *node, const struct tw_id *hash);
struct payload *tw_payload_want(struct tw_node *node, const struct tw_id *hash, uint32_t bytes,
                                enum tw_content content, uint64_t elements);
/* The shell made these bytes; they stay until `keep_round` is decided. */
void tw_payload_hold(struct tw_node *node, const struct tw_id *hash, uint32_t bytes,
                     enum tw_content content, uint64_t elements, uint64_t keep_round);
/* Whether bytes checked for what this payload is to be will do for that, too. */
bool tw_payload_is_as(const struct tw_node *node, const struct payload *payload,
                      enum tw_content content, uint64_t elements);
bool tw_payload_is_held(struct tw_node *node, const struct tw_id *hash);
/* Its bytes are of no use, or everybody here was asked for them in vain, again and again. */
bool tw_payload_is_lost(const struct payload *payload);
void tw_payload_chunk(struct tw_node *node, uint16_t peer, const struct tw_id *hash, uint32_t idx);
void tw_payload_verified(struct tw_node *node, const struct tw_event *event);
/* As tw_payload_want, the result of elements [begin, begin + count) of a fragment. */
struct payload *tw_payload_want_result(struct tw_node *node, const struct tw_part *part,
                                       uint32_t fragment, uint64_t begin, uint64_t count,
                                       uint64_t keep_round);
bool tw_payload_is_refused(struct tw_node *node, const struct tw_id *hash, uint64_t count);
void tw_payload_pull(struct tw_node *node, uint16_t peer, const struct tw_msg_pull *pull);
void tw_payload_missing(struct tw_node *node, uint16_t peer, const struct tw_id *hash);
void tw_payload_peer_down(struct tw_node *node, uint16_t peer);
void tw_payload_worker_up(struct tw_node *node);
void tw_payload_drop_all(struct tw_node *node);
void tw_payload_advance(struct tw_node *node);

/* ---- chunk_scheduler.c
 * --------------------------------------------------------------------------------- */

/* Lets go of sources that do not deliver, and finds others. */
void tw_chunks_prepare(struct tw_node *node, struct payload *payload);
/* Asks the sources for as much as they may be asked for. */
void tw_chunks_ask(struct tw_node *node, struct payload *payload);
/* Chunk `idx` was stored. */
void tw_chunks_arrived(struct tw_node *node, struct payload *payload, uint16_t peer, uint32_t idx);
/* A majority has it from now on: who had it not may have it, and nobody waits for a dry link. */
void tw_chunks_decided(struct tw_node *node, struct payload *payload);
/* The peer is none of its sources (any more). */
void tw_chunks_source_lost(struct tw_node *node, struct payload *payload, uint16_t peer);
/* Nobody is asked for it any more. */
void tw_chunks_forget(struct tw_node *node, struct payload *payload);

/* ---- round.c -------------------------------------------------------------------------------- */

void tw_round_open(struct tw_node *node);
void tw_round_contrib(struct tw_node *node, uint16_t peer, const struct tw_msg_contrib *contrib);
void tw_round_result(struct tw_node *node, uint16_t peer, const struct tw_msg_result *result);
void tw_round_encoded(struct tw_node *node, const struct tw_event *event);
void tw_round_reduced(struct tw_node *node, const struct tw_event *event);
void tw_round_advance(struct tw_node *node);
void tw_round_touch(struct tw_node *node);
void tw_round_note_missed(struct tw_node *node, const struct tw_record *record);
/* A row of a manifest has the hashes and the counts of the contribution that was heard. */
bool tw_round_is_as_said(const struct contribution *heard, const struct tw_contributor *row);
uint32_t tw_progress_fragment(const struct tw_node *node, uint64_t round);
bool tw_progress_is_final(const struct tw_node *node);
/* Whether this round waits for what this member says it contributes. */
bool tw_round_awaits(const struct tw_node *node, uint32_t member);
/* What was told of part k has had as long as patience allows: who has it not is not to wait more.
 */
bool tw_round_is_late(struct tw_node *node, uint32_t k);
/* Nobody has told what part k comes to, and its owner is one that rounds wait for. */
bool tw_round_is_untold(const struct tw_node *node, uint32_t k);
/* The part of the budget that nodes train together is over. */
bool tw_progress_is_apart(const struct tw_node *node);
/* By how much a token of a listed contributor moves the clock. */
uint64_t tw_progress_share(const struct tw_node *node);
/* Results of the open round are kept until this round is decided, for those who missed them. */
uint64_t tw_round_keep(const struct tw_node *node);

/* ---- acceptor.c ---------------------------------------------------------------------------------
 */

void tw_acceptor_prepare(struct tw_node *node, uint16_t peer, const struct tw_msg_prepare *prepare);
void tw_acceptor_propose(struct tw_node *node, uint16_t peer, const struct tw_msg_propose *propose);
void tw_acceptor_stored(struct tw_node *node, uint64_t seq, bool ok);
/* Somebody has proposed what may come to something. */
bool tw_acceptor_has_offer(struct tw_node *node);
bool tw_record_is_sound(const struct tw_node *node, const struct tw_record *record);
void tw_acceptor_reset(struct tw_node *node); /* a new membership: nothing promised; stored */
/* The membership we ask for is on disk; asks for it again when writing it failed. */
bool tw_acceptor_has_nonce(struct tw_node *node);
void tw_acceptor_promise(struct tw_node *node);
void tw_acceptor_consider(struct tw_node *node);
bool tw_acceptor_reply(struct tw_node *node, struct tw_msg_accept *own);
bool tw_vote_reply(struct tw_node *node);
void tw_vote_advance(struct tw_node *node);
uint32_t tw_membership_majority(const struct tw_node *node);
/* The rank of the proposer that uses this ballot. */
uint32_t tw_ballot_rank(uint64_t ballot);
/* Whose message it is, by roster index; NO_PEER: our own. -1: no member's. */
int tw_membership_sender(const struct tw_node *node, uint16_t peer);
/* Makes the vote be about the open round; older rounds are decided and need no memory. */
void tw_acceptor_turn(struct tw_node *node);
/* Has the vote written down; the STORED that answers it names what is returned. */
uint64_t tw_acceptor_store(struct tw_node *node);

/* ---- proposer.c -------------------------------------------------------------------------------
 */

void tw_proposer_promise(struct tw_node *node, uint16_t peer, const struct tw_msg_promise *promise);
bool tw_proposer_accept(struct tw_node *node, uint16_t peer, const struct tw_msg_accept *accept);
void tw_proposer_nack(struct tw_node *node, uint16_t peer, const struct tw_msg_nack *nack);
/* Gives the ballot up, and lets others try: longer each time. */
void tw_proposer_write(struct tw_node *node);
void tw_proposer_advance(struct tw_node *node);
/* Says what this phase has to say, and ends one that takes too long. */
void tw_proposer_tell(struct tw_node *node);

/* ---- proposal.c ----------------------------------------------------------------------------- */

/* Writes round.proposal. */
void tw_proposal_write(struct tw_node *node);
void tw_proposal_draft(struct tw_node *node);
/* Weights that the members of `next`, which may be close->next, should have: of those who were in
 * time, by their uploads, and 0 for whom this node proved false. Members agree on it, but for what
 * is on its way. */
void tw_proposal_fair(const struct tw_node *node, const struct tw_record *record,
                      struct tw_roster *next);
/* Set of members that contributed to a result, as its owner told. */
uint64_t tw_proposal_told_by(const struct tw_msg_result *result);

/* ---- strike.c -------------------------------------------------------------------------------- */

void tw_strike_add(struct tw_node *node, const struct tw_id *id, bool is_false, uint64_t round,
                   uint32_t part);
/* It owns nothing where others need not agree or there is proof (proposal.c), and is not waited for
 * as a proposer. */
bool tw_strike_is(const struct tw_node *node, const struct tw_id *id);
/* And that is proven: a merge that this node did again, or bytes that decode to nothing. */
bool tw_strike_is_false(const struct tw_node *node, const struct tw_id *id);
/* Takes the parts of owners that are struck, those struck most often first: of so much weight at
 * most. Returns of how much. */
uint64_t tw_strike_pass_over(const struct tw_node *node, struct tw_roster *next, uint64_t most);
/* Strikes whose results a manifest leaves out that is about to be committed, and we do not take. */
void tw_findings_note_strikes(struct tw_node *node, const struct tw_record *record);
void tw_findings_note_stalls(struct tw_node *node, const struct tw_record *record);

/* ---- unmerged.c ------------------------------------------------------------------------------ */

/* What became of the contribution of member `id` to the part that we own. */
void tw_unmerged_note(struct tw_node *node, const struct tw_id *id, bool is_merged);
/* In how many rounds in a row it was left out. */
uint32_t tw_unmerged_rounds(const struct tw_node *node, const struct tw_id *id);

/* ---- part_weights.c
 * --------------------------------------------------------------------------------- */

/* Gives the owners of a roster (weight above 0) their weights. */
void tw_part_weights_set(const struct tw_node *node, struct tw_roster *next);
/* Takes the parts of those who are out of line, of so much weight at most; where most are it is we
 * who are. */
void tw_part_weights_drop_outliers(const struct tw_node *node, struct tw_roster *next,
                                   uint64_t most);
/* Leaves TW_PARTS_MAX owners, who upload most. */
void tw_part_weights_limit(struct tw_roster *next);
/* Out of line with the other peers, as the shell measured it. */
bool tw_peers_is_outlier(const struct tw_node *node, uint16_t peer);

/* ---- audit.c --------------------------------------------------------------------------------- */

/* The open round is about to be committed: what is needed to audit it. */
void tw_audit_note(struct tw_node *node, const struct tw_record *record);
/* It is the newest in the log: audits a part of it if that falls to us. */
void tw_audit_choose(struct tw_node *node, uint64_t round);
void tw_audit_accuse(struct tw_node *node, uint16_t peer, const struct tw_msg_accuse *accuse);
/* True when it answered an audit. */
void tw_audit_reduced(struct tw_node *node, const struct tw_event *event);
void tw_audit_forget(struct tw_node *node);
void tw_audit_advance(struct tw_node *node);

/* ---- log.c ---------------------------------------------------------------------------------- */

const struct tw_record *tw_progress_record(const struct tw_node *node, uint64_t round);
void tw_log_commit(struct tw_node *node, const struct tw_record *record);
void tw_log_received(struct tw_node *node, uint16_t peer, const struct tw_record *record);
void tw_log_get(struct tw_node *node, uint16_t peer, const struct tw_msg_log_get *get);
void tw_log_none(struct tw_node *node, uint16_t peer, const struct tw_msg_log_none *none);
/* Is a message about the round being decided here? A sender that is behind gets the log, and one
 * that is ahead is asked for it. */
bool tw_log_is_at(struct tw_node *node, uint16_t peer, const struct tw_id *lineage, uint64_t round);
void tw_log_ask(struct tw_node *node, uint16_t peer, uint64_t round);
void tw_log_clock(struct tw_node *node);
/* `id` entered our anchor in this round. */
void tw_peers_note_mixed(struct tw_node *node, const struct tw_id *id, uint64_t round);
void tw_log_applied(struct tw_node *node, const struct tw_event *event);
void tw_log_advance(struct tw_node *node);
/* The oldest committed round that fragment p still has to apply, or UINT64_MAX. */
uint64_t tw_progress_due(const struct tw_node *node, uint32_t fragment);
/* The same, if all rounds below this one were applied to it. */
uint64_t tw_progress_next(const struct tw_node *node, uint32_t fragment, uint64_t round);
bool tw_progress_is_current(const struct tw_node *node);
/* Keeps at.held true: after everything that is committed, applied or loaded. */
void tw_log_note_held(struct tw_node *node);
/* The run clock of what (phi, u) stand for. */
uint64_t tw_progress_held_tokens(const struct tw_node *node);
/* Begins at this manifest, with no older one in the log; NULL: before the first round. */
void tw_log_begin_at(struct tw_node *node, const struct tw_record *tip);
/* The run clock: tokens trained by all nodes together. */
uint64_t tw_progress_clock_tokens(const struct tw_node *node);
/* Every fragment is held, and none is so far behind that its results could be gone soon. */
bool tw_log_is_close(const struct tw_node *node);
/* (phi, u) of fragment p are being changed. */
bool tw_progress_is_applying(const struct tw_node *node, uint32_t fragment);

/* ---- account.c ------------------------------------------------------------------------------ */

/* Whatever was trained so far is accounted for: in the clock and in every fragment. */
void tw_account_settle(struct tw_node *node);
void tw_account_settle_clock(struct tw_node *node);
/* Delta of the fragment begins now. */
void tw_account_settle_delta(struct tw_node *node, uint32_t fragment);
/* A worker is there, maybe at an earlier step than the one before it. */
void tw_account_greet(struct tw_node *node);
/* What our contribution of own_step and own_tokens brings: counters of the row, nothing else. */
void tw_account_row(const struct tw_node *node, uint32_t fragment, struct tw_contributor *row);
/* The open round is committed: whether it lists us. */
bool tw_account_commit(struct tw_node *node, const struct tw_record *record);

/* ---- pair.c --------------------------------------------------------------------------------- */

void tw_pair_request(struct tw_node *node, uint16_t peer, const struct tw_msg_pair_request *said);
void tw_pair_accept(struct tw_node *node, uint16_t peer, const struct tw_msg_pair_accept *said);
void tw_pair_busy(struct tw_node *node, uint16_t peer, const struct tw_msg_pair_busy *said);
void tw_pair_offer(struct tw_node *node, uint16_t peer, const struct tw_msg_pair_offer *said);
void tw_pair_peer_down(struct tw_node *node, const struct tw_id *id);
/* Forgets the exchange under way: the worker, the lineage or the wish to go on is gone. */
void tw_pair_abandon(struct tw_node *node);
void tw_pair_encoded(struct tw_node *node, const struct tw_event *event);
/* True when it answered a step of ours. */
bool tw_pair_applied(struct tw_node *node, const struct tw_event *event, struct tw_record *record);
bool tw_pair_is_step(const struct tw_node *node, const struct tw_event *event);
void tw_pair_committed(struct tw_node *node, uint64_t round);
void tw_pair_advance(struct tw_node *node);

/* ---- pair_clock.c --------------------------------------------------------------------------- */

uint64_t tw_pair_clock(const struct tw_node *node);
/* Where the clock stands now, rounds being late: as far as our own tokens tell. */
uint64_t tw_pair_clock_now(const struct tw_node *node);
/* The clock after a round in which we trained on so many tokens. */
uint64_t tw_pair_clock_after(const struct tw_node *node, uint64_t tokens);
/* Whether a clock is so far behind another that its anchors would only drag: less than half, beyond
 * what two periods of everybody explain. */
bool tw_pair_is_far_behind(const struct tw_node *node, uint64_t clock, uint64_t other);
/* The peer whose state should be taken over instead of ours, or NO_PEER. */
uint16_t tw_pair_find_ahead(struct tw_node *node);
/* We trained on so many tokens in a step that took so long; 0: not known how long. */
void tw_pair_stepped(struct tw_node *node, uint64_t took_us, uint64_t tokens);
/* Its state is being taken over. */
void tw_pair_note_donor(struct tw_node *node, const struct tw_id *id);
/* How many times faster than our own tokens the run's clock advances at present, in 1024ths. */
uint64_t tw_pair_clock_factor(const struct tw_node *node);

/* ---- lineage.c ------------------------------------------------------------------------------ */

uint64_t tw_lineage_nonce(struct tw_node *node);
void tw_lineage_fork(struct tw_node *node);
/* This node founded the lineage it is in; then its first round was decided by this roster. */
bool tw_lineage_is_ours(const struct tw_node *node);
struct tw_roster tw_lineage_founder(const struct tw_node *node);
/* The worker has made theta phi, or could not. */
void tw_lineage_turned(struct tw_node *node, bool ok);
void tw_lineage_join(struct tw_node *node, uint16_t peer, const struct tw_msg_join *join);
void tw_lineage_solo_done(struct tw_node *node);
/* Somebody copies our state, or is about to: no solo round for so long, or for longer if that was
 * said before. Without end only while the state gets further. */
void tw_peers_hold_solo(struct tw_node *node, uint64_t for_us);
void tw_lineage_advance(struct tw_node *node);

/* ---- state_transfer.c: (phi, u) of a fragment, given and taken
 * ---------------------------------------- */

void tw_state_get(struct tw_node *node, uint16_t peer, const struct tw_msg_state_get *get);
void tw_state_exported(struct tw_node *node, const struct tw_event *event);
void tw_state_export(struct tw_node *node);
void tw_state_offer(struct tw_node *node, uint16_t peer, const struct tw_msg_state *state);
bool tw_state_receive(struct tw_node *node);
void tw_state_peer_down(struct tw_node *node, uint16_t peer);
void tw_state_refetch(struct tw_node *node, uint32_t fragment, enum tw_load_mode mode);

#endif
