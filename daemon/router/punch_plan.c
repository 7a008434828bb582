#include "daemon/router/punch_plan.h"

#include <string.h>

static bool is_busy(const struct tw_punch_target *target) {
    return target->state == TW_PUNCH_ASKED || target->state == TW_PUNCH_READIED ||
           target->state == TW_PUNCH_PUNCHING;
}

static struct tw_punch_target *find(struct tw_punch_plan *plan, const struct tw_id *id) {
    for (unsigned i = 0; i < TW_PUNCH_TARGETS_MAX; i++) {
        struct tw_punch_target *target = &plan->targets[i];
        if (target->state != TW_PUNCH_FREE && tw_id_equal(&target->id, id)) return target;
    }
    return NULL;
}

const struct tw_punch_target *tw_punch_plan_find(const struct tw_punch_plan *plan,
                                                 const struct tw_id *id) {
    for (unsigned i = 0; i < TW_PUNCH_TARGETS_MAX; i++) {
        const struct tw_punch_target *target = &plan->targets[i];
        if (target->state != TW_PUNCH_FREE && tw_id_equal(&target->id, id)) return target;
    }
    return NULL;
}

/* Returns a free row, or the row that has been without a link for longest, or NULL if all rows are
 * linked. */
static struct tw_punch_target *make(struct tw_punch_plan *plan, const struct tw_id *id,
                                    uint64_t now_us) {
    struct tw_punch_target *made = NULL;
    for (unsigned i = 0; i < TW_PUNCH_TARGETS_MAX; i++) {
        struct tw_punch_target *target = &plan->targets[i];
        if (target->state == TW_PUNCH_FREE) {
            made = target;
            break;
        }
        if (target->state != TW_PUNCH_GONE) continue;
        if (made == NULL || target->since_us < made->since_us) made = target;
    }
    if (made == NULL) return NULL;
    *made = (struct tw_punch_target){.state = TW_PUNCH_GONE, .id = *id, .since_us = now_us};
    return made;
}

static void enter(struct tw_punch_target *target, enum tw_punch_state state, uint64_t now_us) {
    target->state = state;
    target->since_us = now_us;
}

static void fail(struct tw_punch_target *target, uint64_t now_us) {
    target->pause_us =
        target->pause_us == 0 ? (uint64_t)TW_PUNCH_PAUSE_MIN_US : 2 * target->pause_us;
    if (target->pause_us > TW_PUNCH_PAUSE_MAX_US) target->pause_us = TW_PUNCH_PAUSE_MAX_US;
    target->rest_us = now_us + target->pause_us;
}

/* Ends a state in which the other end did not act in time. */
static void expire(struct tw_punch_target *target, uint64_t now_us) {
    if (!is_busy(target) || now_us < target->due_us) return;
    if (target->state != TW_PUNCH_READIED) fail(target, now_us);
    enter(target, TW_PUNCH_WAITING, now_us);
    target->due_us = target->rest_us;
}

static void lose_direct(struct tw_punch_target *target, uint64_t now_us) {
    if (target->state != TW_PUNCH_DIRECT || !target->is_punched) return;
    if (now_us - target->since_us < TW_PUNCH_STEADY_US)
        fail(target, now_us);
    else
        target->pause_us = 0;
}

static void take_row(struct tw_punch_plan *plan, struct tw_punch_target *target,
                     const struct tw_punch_row *row, uint64_t now_us) {
    target->peer = row->peer;
    if (!row->is_relayed) {
        if (target->state == TW_PUNCH_DIRECT) return;
        plan->successes += row->is_punched;
        target->is_punched = row->is_punched;
        enter(target, TW_PUNCH_DIRECT, now_us);
        return;
    }
    target->can = row->can;
    target->is_client = row->is_client;
    if (target->state != TW_PUNCH_GONE && target->state != TW_PUNCH_DIRECT) {
        expire(target, now_us);
        return;
    }
    lose_direct(target, now_us);
    enter(target, TW_PUNCH_WAITING, now_us);
    target->due_us = now_us + TW_PUNCH_SETTLE_US;
    if (target->due_us < target->rest_us) target->due_us = target->rest_us;
}

/* Handles a target that is not among the links. */
static void take_absent(struct tw_punch_target *target, const struct tw_punch_row *rows,
                        uint32_t count, uint64_t now_us) {
    if (target->state == TW_PUNCH_FREE) return;
    for (uint32_t i = 0; i < count; i++) {
        if (tw_id_equal(&rows[i].id, &target->id)) return;
    }
    if (target->state == TW_PUNCH_GONE) {
        if (now_us - target->since_us >= TW_PUNCH_FORGET_US) target->state = TW_PUNCH_FREE;
        return;
    }
    lose_direct(target, now_us);
    if (target->state == TW_PUNCH_ASKED || target->state == TW_PUNCH_PUNCHING) fail(target, now_us);
    enter(target, TW_PUNCH_GONE, now_us);
}

void tw_punch_plan_look(struct tw_punch_plan *plan, const struct tw_punch_row *rows, uint32_t count,
                        uint64_t now_us) {
    for (unsigned i = 0; i < TW_PUNCH_TARGETS_MAX; i++)
        take_absent(&plan->targets[i], rows, count, now_us);
    for (uint32_t i = 0; i < count; i++) {
        struct tw_punch_target *target = find(plan, &rows[i].id);
        if (target == NULL) target = make(plan, &rows[i].id, now_us);
        if (target != NULL) take_row(plan, target, &rows[i], now_us);
    }
}

static bool has_room(const struct tw_punch_plan *plan) {
    unsigned busy = 0;
    for (unsigned i = 0; i < TW_PUNCH_TARGETS_MAX; i++) busy += is_busy(&plan->targets[i]);
    return busy < TW_PUNCH_AT_ONCE;
}

bool tw_punch_plan_next(struct tw_punch_plan *plan, uint64_t token, uint64_t now_us,
                        struct tw_punch_pick *pick) {
    if (!has_room(plan)) return false;
    for (unsigned i = 0; i < TW_PUNCH_TARGETS_MAX; i++) {
        struct tw_punch_target *target = &plan->targets[i];
        if (target->state != TW_PUNCH_WAITING || !target->is_client || !target->can) continue;
        if (now_us < target->due_us) continue;
        enter(target, TW_PUNCH_ASKED, now_us);
        target->due_us = now_us + TW_PUNCH_ASK_US;
        target->token = token;
        *pick = (struct tw_punch_pick){.peer = target->peer, .token = token};
        return true;
    }
    return false;
}

static void begin(struct tw_punch_plan *plan, struct tw_punch_target *target, uint64_t delay_us,
                  uint64_t now_us) {
    plan->tries++;
    enter(target, TW_PUNCH_PUNCHING, now_us);
    /* Twice the time of a punch leaves room for the TLS handshake of the last connection. */
    target->due_us = now_us + delay_us + 2 * (uint64_t)TW_PUNCH_US;
}

enum tw_punch_action tw_punch_plan_heard(struct tw_punch_plan *plan, const struct tw_id *id,
                                         enum tw_punch_stage stage, uint64_t token, uint64_t now_us,
                                         uint64_t *delay_us) {
    struct tw_punch_target *target = find(plan, id);
    *delay_us = 0;
    if (target == NULL || !target->can) return TW_PUNCH_NOTHING;
    expire(target, now_us);
    if (stage == TW_PUNCH_ASK) {
        if (target->state != TW_PUNCH_WAITING || target->is_client || !has_room(plan))
            return TW_PUNCH_NOTHING;
        if (target->readied_us != 0 && now_us < target->readied_us + TW_PUNCH_ANSWER_US)
            return TW_PUNCH_NOTHING;
        enter(target, TW_PUNCH_READIED, now_us);
        target->due_us = now_us + TW_PUNCH_ASK_US;
        target->readied_us = now_us;
        target->token = token;
        return TW_PUNCH_SEND_READY;
    }
    if (target->token != token) return TW_PUNCH_NOTHING;
    if (stage == TW_PUNCH_READY && target->state == TW_PUNCH_ASKED) {
        const uint64_t half_us = (now_us - target->since_us) / 2;
        *delay_us = half_us < TW_PUNCH_DELAY_MAX_US ? half_us : TW_PUNCH_DELAY_MAX_US;
        begin(plan, target, *delay_us, now_us);
        return TW_PUNCH_SEND_GO;
    }
    if (stage == TW_PUNCH_GO && target->state == TW_PUNCH_READIED) {
        begin(plan, target, 0, now_us);
        return TW_PUNCH_BEGIN;
    }
    return TW_PUNCH_NOTHING;
}

void tw_punch_plan_moved(struct tw_punch_plan *plan, uint64_t now_us) {
    for (unsigned i = 0; i < TW_PUNCH_TARGETS_MAX; i++) {
        struct tw_punch_target *target = &plan->targets[i];
        target->pause_us = target->rest_us = 0;
        if (target->state == TW_PUNCH_WAITING && target->due_us > now_us + TW_PUNCH_SETTLE_US)
            target->due_us = now_us + TW_PUNCH_SETTLE_US;
    }
}
