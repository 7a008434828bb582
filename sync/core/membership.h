/* membership.h - the seats of the roster, and the state of this node among them. */
#ifndef TW_SYNC_CORE_MEMBERSHIP_H
#define TW_SYNC_CORE_MEMBERSHIP_H

#include "sync/core/state/node.h"

/* Members that decide together. */
uint32_t tw_membership_majority(const struct tw_node *node);
/* Roster index of a message's sender; NO_PEER: this node. -1: no member. */
int tw_membership_sender(const struct tw_node *node, uint16_t peer);
/* This node votes in the open round. */
bool tw_membership_is_voter(const struct tw_node *node);
/* Member `idx` is this node, or a linked donor of our lineage: worth waiting for. */
bool tw_membership_is_live(const struct tw_node *node, uint32_t idx);
/* The same, or a receiver under the nonce of the roster: it votes, and delivers nothing. */
bool tw_membership_is_seated(const struct tw_node *node, uint32_t idx);
/* Member `idx` sent LEAVE, or is here under another nonce: nobody will vote in this seat again. */
bool tw_membership_is_parted(struct tw_node *node, uint32_t idx);
/* Derives node->state from position, roster and vote; reports a change. */
void tw_membership_derive_state(struct tw_node *node);
/* Notes which seats are taken at present, and whether they are a majority. */
void tw_membership_note(struct tw_node *node);

#endif
