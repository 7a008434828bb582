/* membership.h - which nodes are there: rounds known and due, links, the graph of links, and the
 * members of the roster that vote, contribute and are waited for. */
#ifndef TW_SYNC_CORE_MEMBERSHIP_H
#define TW_SYNC_CORE_MEMBERSHIP_H

#include "proto/run/layout.h"
#include "sync/core/interface.h"
#include "sync/core/state.h"

/* ---- the position: rounds known, rounds due, the run clock ----------------------------------- */

/* Returns the fragment that a round merges. */
uint32_t tw_progress_fragment(const struct tw_node *node, uint64_t round);
/* Returns the record of a committed round, or NULL if it is not in the log. */
const struct tw_record *tw_progress_record(const struct tw_node *node, uint64_t round);
/* Returns the oldest committed round that the fragment still has to apply, or UINT64_MAX. */
uint64_t tw_progress_due(const struct tw_node *node, uint32_t fragment);
/* Returns the first round of the fragment from `round` (at most ROUNDS_MAX) on, decided or not. */
uint64_t tw_progress_from(const struct tw_node *node, uint32_t fragment, uint64_t round);
/* Like tw_progress_due, as if all rounds below `round` were applied to the fragment. */
uint64_t tw_progress_next(const struct tw_node *node, uint32_t fragment, uint64_t round);
/* Returns this node's tokens per second; 0 while it takes no steps, as in a pause. */
uint32_t tw_progress_speed(const struct tw_node *node);
/* True while the worker changes (phi, u) of the fragment. */
bool tw_progress_is_applying(const struct tw_node *node, uint32_t fragment);
/* True if every fragment is held and every committed round is applied. */
bool tw_progress_is_current(const struct tw_node *node);

/* Returns the run clock: tokens trained by all nodes together. */
uint64_t tw_progress_clock_tokens(const struct tw_node *node);
/* Returns the run clock of the state that this node holds. */
uint64_t tw_progress_held_tokens(const struct tw_node *node);
/* True if the clock has reached the budget: each fragment gets one last round. */
bool tw_progress_is_final(const struct tw_node *node);
/* Returns the number of final rounds: one of each fragment, and in groups one that closes the run.
 */
uint32_t tw_progress_finals(const struct tw_node *node);
/* True if the record closes the run: it merges nothing, and its base is the root of all digests. */
bool tw_progress_is_closing(const struct tw_node *node, const struct tw_record *record);
/* True if the open round closes the run. */
bool tw_progress_closes(const struct tw_node *node);
/* True if the clock has passed config.together_tokens: nothing is merged any more. */
bool tw_progress_is_apart(const struct tw_node *node);
/* Returns the tokens by which the run clock advances per token of a listed contributor: 1 while
 * nodes merge, config.alone_nodes once they train apart. */
uint64_t tw_progress_share(const struct tw_node *node);

/* Returns the least number of inner steps from sending to applying. With sync.pace = clock, this
 * number is capped by a time: on a slow node, the configured steps could last many rounds. */
uint64_t tw_progress_overlap(const struct tw_node *node);

/* Returns the payloads that this node keeps for others. */
struct tw_kept tw_progress_kept(const struct tw_node *node);

/* ---- links ----------------------------------------------------------------------------------- */

/* Handles a new link: PEER_UP. */
void tw_peers_up(struct tw_node *node, uint16_t peer, const struct tw_event *event);
void tw_peers_down(struct tw_node *node, uint16_t peer);
enum tw_drop tw_peers_status(struct tw_node *node, uint16_t peer,
                             const struct tw_msg_status *status);
/* Handles LEAVE from the peer. */
void tw_peers_left(struct tw_node *node, uint16_t peer);
/* Closes links that were silent for TW_PEER_SILENCE_US. */
void tw_peers_drop_silent(struct tw_node *node);
/* Sends STATUS to all peers when it is due. */
void tw_peers_send_status(struct tw_node *node);

/* Returns the peer with this id, or NO_PEER. */
uint16_t tw_peers_find(const struct tw_node *node, const struct tw_id *id);
/* True if the link is up and STATUS was received. */
bool tw_peers_is_live(const struct tw_node *node, uint16_t peer);
bool tw_peers_in_lineage(const struct tw_node *node, uint16_t peer);
/* True for a peer of our lineage that may serve its state and log to others. */
bool tw_peers_is_donor(const struct tw_node *node, uint16_t peer);
/* True for a member of the roster whose STATUS says that it is at the open round too. */
bool tw_peers_is_at_round(const struct tw_node *node, uint16_t peer);
/* True if the runtime measured that this link is far worse than all others. */
bool tw_peers_is_outlier(const struct tw_node *node, uint16_t peer);
/* Sends the message to all members of the roster and all peers of the lineage. */
void tw_peers_broadcast(struct tw_node *node, const struct tw_message *message);
/* Allows no solo round for `for_us`, because a peer copies our state or is about to. An earlier
 * hold that ends later stays in force. history/lineage.c bounds the total time of holds. */
void tw_peers_hold_solo(struct tw_node *node, uint64_t for_us);
/* Does so for a peer that copies the state, unless this node refused it chunks lately. */
void tw_peers_hold_solo_for(struct tw_node *node, uint16_t peer, uint64_t for_us);
/* Notes that work of node `id` entered our anchor in this round. */
void tw_peers_note_mixed(struct tw_node *node, const struct tw_id *id, uint64_t round);

/* ---- the graph of links ---------------------------------------------------------------------- */

/* Which members are linked to each other: the graph of links that a round depends on.
 *
 * Nodes behind NAT can only dial, so two members may have no link. A member without a link to us
 * may still be alive. An owner that a contributor cannot reach gets nothing from it. A proposer
 * that reaches no majority decides nothing. Each node sends its own links to its peers (LINKS).
 * From these, and from its own links, each node derives the part of the graph that it sees.
 *
 * A link counts if either end claims it. A lying member can therefore invent links to itself. At
 * most it then becomes an owner that some contributors cannot reach. It cannot deny a link that the
 * other end claims. */

/* Handles LINKS from the peer. */
void tw_reach_received(struct tw_node *node, uint16_t peer, const struct tw_msg_links *links);
/* Derives the graph anew and lets LINKS be sent, because the links of this node changed. */
void tw_reach_changed(struct tw_node *node);
/* Derives the graph anew for a new roster. Costs nothing if the members are the same. */
void tw_reach_set_roster(struct tw_node *node);
/* Notes which members are present (tw_reach_is_present). */
void tw_reach_note(struct tw_node *node);
/* Sends LINKS to all peers when it is due. */
void tw_reach_send(struct tw_node *node);

/* Returns the link to member `idx`, or NO_PEER. */
uint16_t tw_reach_peer(const struct tw_node *node, uint32_t idx);
/* True if member `idx` is linked to us, or a live member claims a link to it. Such a claim counts
 * only for a member whose work was listed within the last HEARSAY_ROUNDS rounds. If some members
 * take no steps, a vote in these rounds counts as listed work. */
bool tw_reach_is_present(const struct tw_node *node, uint32_t idx);
/* Returns the number of present members that member `idx` is linked to, itself included. */
uint32_t tw_reach_count(const struct tw_node *node, uint32_t idx);
/* True if member `idx` reaches so many voters that it can decide a round. */
bool tw_reach_has_majority(const struct tw_node *node, uint32_t idx);
/* True if the node is linked to us, or more voters than may lie claim a link to it. */
bool tw_reach_is_known(const struct tw_node *node, const struct tw_id *id);
/* True if so many voters are linked to the node, by their own word, that they can decide a round.
 * A voter counts as linked to itself. */
bool tw_reach_sees_voters(const struct tw_node *node, const struct tw_id *id);
/* Returns the members of `among` that most contributors can reach. Their number of links to present
 * members is at most one in REACH_ONE_IN below the highest. In a full mesh: all members. */
uint64_t tw_reach_owners(const struct tw_node *node, uint64_t among);

/* ---- members of the roster ------------------------------------------------------------------- */

/* True if enough members vote to withstand a liar among them, so that they judge proposals for the
 * next roster. */
bool tw_membership_has_judges(const struct tw_node *node);
/* True if this node is linked to so many voters that fewer than half of them can be liars. A node
 * with fewer links trusts the members that it sees. */
bool tw_membership_sees_most(const struct tw_node *node);
/* Returns the number of votes that decide in the roster (proto/record.h). */
uint32_t tw_membership_votes_needed(const struct tw_node *node);
/* Returns how many of the roster's voters may lie; 0 if the roster is not known. */
uint32_t tw_membership_liars_max(const struct tw_node *node);
/* Returns the roster index of a message's sender, or -1 if it is no member with a vote. `peer` is
 * NO_PEER for this node's own messages. */
int tw_membership_voter(const struct tw_node *node, uint16_t peer);
/* True if this node contributes, merges and votes in the open round, as far as its seat allows. */
bool tw_membership_takes_part(const struct tw_node *node);
/* True if this node votes in the open round. */
bool tw_membership_is_voter(const struct tw_node *node);
/* True if member `idx` is worth waiting for: this node, or a linked donor of our lineage, which
 * holds the state and serves it. */
bool tw_membership_is_live(const struct tw_node *node, uint32_t idx);
/* True if member `idx` is live, or is a receiver that still has the nonce in the roster: such a
 * member votes but contributes nothing. */
bool tw_membership_is_seated(const struct tw_node *node, uint32_t idx);
/* True if member `idx` sent LEAVE, or is linked under a new nonce: its seat never votes again. */
bool tw_membership_is_parted(struct tw_node *node, uint32_t idx);
/* True if member `idx` has left, or has been silent so long that the next roster omits it. */
bool tw_membership_is_silent(const struct tw_node *node, uint32_t idx);
/* True if member `idx` trains, by its own claim: rounds wait for its contributions. A member
 * without a link to this node counts as a trainer. */
bool tw_membership_trains(const struct tw_node *node, uint32_t idx);
/* True if member `idx` claims to reduce: it owns parts without contributing. */
bool tw_membership_reduces(const struct tw_node *node, uint32_t idx);
/* True if some member is known to take no steps. */
bool tw_membership_has_roles(const struct tw_node *node);
/* True if some live member trains, so that contributions begin rounds. */
bool tw_membership_has_trainer(const struct tw_node *node);
/* Returns the number of members that may lie among the members that train. */
uint32_t tw_membership_lying_trainers(const struct tw_node *node);
/* Returns the set of members that this node waits for until a quorum has contributed, and learns
 * its patience from: those that train and have a vote, or all that train if no voter does. With
 * certificates, no id is free, so these are all members that train. */
uint64_t tw_membership_pacers(const struct tw_node *node);
/* True if a node without a seat asks for one in the open round, and one is free. */
bool tw_membership_is_asked(const struct tw_node *node);
/* Derives node->state from position, roster and vote, and reports a change. */
void tw_membership_derive_state(struct tw_node *node);
/* Updates the time at which each seat's member was last present. Also updates the times at which a
 * majority was last present (majority_us) and a donor was last linked (donor_us). */
void tw_membership_note(struct tw_node *node);

#endif
