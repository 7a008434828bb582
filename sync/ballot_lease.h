/* ballot_lease.h - whose ballot an acceptor is in the middle of, and whose comes next. */
#ifndef TW_SYNC_BALLOT_LEASE_H
#define TW_SYNC_BALLOT_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"

struct tw_node;

struct tw_lease {
    bool is_taken, has_proposed;
    bool has_robbed; /* it was taken from somebody */
    uint32_t member; /* who has it, with this ballot */
    uint64_t ballot, began_us, until_us;
    uint64_t heard; /* set of members that proposed in this round, or asked in time */
    struct {
        uint64_t ballot, asked_us;
    } asked[TW_MEMBERS_MAX]; /* to be promised; ballot 0: none */
};

/* A round begins: nobody has it, nobody asks. */
static inline void tw_lease_clear(struct tw_lease *lease) {
    lease->is_taken = false;
    lease->heard = 0;
    for (uint32_t i = 0; i < TW_MEMBERS_MAX; i++) lease->asked[i].ballot = 0;
}

/* `member` asks us to promise a ballot above all that we have promised. */
void tw_lease_ask(struct tw_node *node, uint32_t member, uint64_t ballot);
/* Whom to promise now, if anybody: it is asked for no more. */
bool tw_lease_next(struct tw_node *node, uint32_t *member, uint64_t *ballot);
/* The ballot was promised: `member` has the floor. */
void tw_lease_take(struct tw_node *node, uint32_t member, uint64_t ballot);
/* `member` has proposed, soundly. */
void tw_lease_propose(struct tw_node *node, uint32_t member, uint64_t ballot);
/* Somebody else than `member` has the floor. */
bool tw_lease_is_others(struct tw_node *node, uint32_t member);
/* The open round is about to be committed: notes whose turn it was, if it said nothing, or nothing
 * that was worth a vote. */
void tw_lease_note_turns(struct tw_node *node);
void tw_lease_advance(struct tw_node *node);

#endif
