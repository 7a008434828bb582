/* jury.h - the state of checks of training, in which this node measures contributions of others. */
#ifndef TW_SYNC_CORE_STATE_JURY_H
#define TW_SYNC_CORE_STATE_JURY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"

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

#endif
