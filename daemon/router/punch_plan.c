#include "daemon/router/punch_plan.h"

#include <stdio.h>
#include <string.h>

#include "base/address.h"

/* ==== the kind of NAT ========================================================================= */

bool tw_nat_kind_is_due(const struct tw_nat_kind *kind, uint64_t now_us) {
    return now_us >= kind->due_us;
}

void tw_nat_kind_ask(struct tw_nat_kind *kind, uint64_t token, const struct tw_id *peers,
                     const char *own, uint64_t now_us) {
    kind->token = 0;
    kind->due_us = now_us + TW_NAT_LOOK_US;
    if (peers == NULL) return;
    kind->token = token;
    kind->until_us = now_us + TW_NAT_ANSWER_US;
    kind->due_us = now_us + TW_NAT_RETRY_US;
    (void)snprintf(kind->own, sizeof(kind->own), "%s", own);
    for (unsigned i = 0; i < TW_NAT_PEERS; i++)
        kind->seen[i] = (struct tw_nat_seen){.by = peers[i]};
}

static enum tw_nat judge(const struct tw_nat_kind *kind) {
    char host[TW_NAT_PEERS][TW_ADDR_BYTES];
    uint16_t port[TW_NAT_PEERS];
    for (unsigned i = 0; i < TW_NAT_PEERS; i++) {
        if (!tw_address_split(kind->seen[i].address, host[i], &port[i])) return TW_NAT_UNKNOWN;
    }
    if (strcmp(host[0], kind->own) == 0 && strcmp(host[1], kind->own) == 0) return TW_NAT_NONE;
    const bool is_one = strcmp(host[0], host[1]) == 0 && port[0] == port[1];
    return is_one ? TW_NAT_ENDPOINT : TW_NAT_SYMMETRIC;
}

void tw_nat_kind_heard(struct tw_nat_kind *kind, const struct tw_id *by, uint64_t token,
                       const char *address, uint64_t now_us) {
    unsigned answers = 0;
    if (kind->token == 0 || token != kind->token || now_us >= kind->until_us) return;
    for (unsigned i = 0; i < TW_NAT_PEERS; i++) {
        struct tw_nat_seen *seen = &kind->seen[i];
        if (!seen->is_seen && tw_id_equal(&seen->by, by)) {
            (void)snprintf(seen->address, sizeof(seen->address), "%s", address);
            seen->is_seen = true;
        }
        answers += seen->is_seen;
    }
    if (answers < TW_NAT_PEERS) return;
    kind->token = 0;
    const enum tw_nat result = judge(kind);
    if (result == TW_NAT_UNKNOWN) return;
    kind->result = result;
    kind->due_us = now_us + TW_NAT_AGAIN_US;
}

void tw_nat_kind_moved(struct tw_nat_kind *kind, uint64_t now_us) {
    *kind = (struct tw_nat_kind){.due_us = now_us + TW_NAT_SETTLE_US};
}

const char *tw_nat_kind_name(enum tw_nat nat) {
    switch (nat) {
    case TW_NAT_UNKNOWN: return "unknown";
    case TW_NAT_NONE: return "none";
    case TW_NAT_ENDPOINT: return "endpoint_independent";
    case TW_NAT_SYMMETRIC: return "symmetric";
    }
    return "?";
}

void tw_nat_kind_sentence(enum tw_nat nat, uint16_t port, bool is_reached,
                          char text[TW_NAT_SENTENCE_BYTES]) {
    char open[96] = "";
    switch (nat) {
    case TW_NAT_UNKNOWN:
        (void)snprintf(
            text, TW_NAT_SENTENCE_BYTES,
            "The kind of NAT is not known: that takes two peers at public IPv4 addresses "
            "that this node dials");
        return;
    case TW_NAT_NONE:
        (void)snprintf(text, TW_NAT_SENTENCE_BYTES, "No NAT: peers see this machine's own address");
        return;
    case TW_NAT_ENDPOINT:
        (void)snprintf(text, TW_NAT_SENTENCE_BYTES,
                       "The router uses one outer port for a local one (endpoint-independent NAT): "
                       "links to other homes can be punched");
        return;
    case TW_NAT_SYMMETRIC: break;
    }
    if (port != 0)
        (void)snprintf(open, sizeof(open), "forward TCP port %u to this machine in the router",
                       (unsigned)port);
    else
        (void)snprintf(open, sizeof(open), "set `listen`, and forward its port in the router");
    (void)snprintf(text, TW_NAT_SENTENCE_BYTES,
                   "The router uses another outer port for each connection (symmetric NAT): links "
                   "to other homes cannot be punched%s%s",
                   is_reached ? ", but others reach this node" : "; ", is_reached ? "" : open);
}

/* ==== when to punch =========================================================================== */

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
