/* vote.h - the state of an acceptor: replies that wait for the disk, and the ballot lease. */
#ifndef TW_SYNC_CORE_STATE_VOTE_H
#define TW_SYNC_CORE_STATE_VOTE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"

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
 * ballot_lease.c has the rules. */
struct lease {
    bool is_taken, has_proposed;
    bool has_robbed; /* the holder took the lease while another proposer held it */
    uint32_t member; /* roster index of the holder */
    uint64_t ballot, began_us, until_us;
    uint32_t distrusted_count; /* promises in this round to proposers that are not waited for (L4 of
                                  ballot_lease.c) */
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

#endif
