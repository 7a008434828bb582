/* pair.h - the state of topology pair: the current exchange, the last ones, the clock. */
#ifndef TW_SYNC_CORE_STATE_PAIR_H
#define TW_SYNC_CORE_STATE_PAIR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "proto/message.h"

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

#endif
