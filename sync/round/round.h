/* round.h - the open round: our contribution, the merge of the part we own, the results. */
#ifndef TW_SYNC_ROUND_ROUND_H
#define TW_SYNC_ROUND_ROUND_H

#include "sync/core/event.h"
#include "sync/core/state/node.h"

/* Takes over the roster of the next round and opens it. */
void tw_round_set_roster(struct tw_node *node, const struct tw_roster *roster);
void tw_round_open(struct tw_node *node);
/* There is a sign of life of the open round: it is active, if it is time. */
void tw_round_touch(struct tw_node *node);
void tw_round_contrib(struct tw_node *node, uint16_t peer, const struct tw_msg_contrib *contrib);
void tw_round_result(struct tw_node *node, uint16_t peer, const struct tw_msg_result *result);
void tw_round_encoded(struct tw_node *node, const struct tw_event *event);
void tw_round_reduced(struct tw_node *node, const struct tw_event *event);
void tw_round_advance(struct tw_node *node);
/* Learns the grace from the members that this record, about to be committed, does not list. */
void tw_round_note_missed(struct tw_node *node, const struct tw_record *record);

/* A row of a record has the hashes and counts of the contribution received from that member. */
bool tw_round_is_as_announced(const struct contribution *entry, const struct tw_contributor *row);
/* This round waits for a contribution that the member announced. */
bool tw_round_awaits(const struct tw_node *node, uint32_t member);
/* The result announced for part k had as long as patience allows: nobody waits for it any more. */
bool tw_round_is_late(struct tw_node *node, uint32_t k);
/* No result is announced for part k, and rounds wait for its owner. */
bool tw_round_is_unannounced(const struct tw_node *node, uint32_t k);
/* Results of the open round are kept until this round is decided, for nodes that missed them. */
uint64_t tw_round_keep(const struct tw_node *node);

#endif
