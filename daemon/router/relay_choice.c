#include "daemon/router/relay_choice.h"

#include <stddef.h>

#include "base/assert.h"

enum { SECOND_US = 1000 * 1000 };

/* ---- tables -------------------------------------------------------------------------------- */

static struct tw_relay_target *target_find(struct tw_relay_choice *choice, const struct tw_id *id) {
    for (uint32_t i = 0; i < TW_RELAY_TARGETS_MAX; i++) {
        struct tw_relay_target *target = &choice->targets[i];
        if (target->state != TW_RELAY_FREE && tw_id_equal(&target->id, id)) return target;
    }
    return NULL;
}

/* Adds a row for a node that has none. If the table is full, replaces the WAITING row that was
 * listed longest ago, but none that was listed at `now_us`. Returns NULL if no row can be replaced.
 */
static struct tw_relay_target *target_new(struct tw_relay_choice *choice, const struct tw_id *id,
                                          uint64_t now_us) {
    struct tw_relay_target *row = NULL;
    for (uint32_t i = 0; i < TW_RELAY_TARGETS_MAX; i++) {
        struct tw_relay_target *target = &choice->targets[i];
        if (target->state == TW_RELAY_FREE) {
            row = target;
            break;
        }
        if (target->state != TW_RELAY_WAITING || target->listed_us == now_us) continue;
        if (row == NULL || target->listed_us < row->listed_us) row = target;
    }
    if (row == NULL) return NULL;
    *row = (struct tw_relay_target){
        .state = TW_RELAY_WAITING, .id = *id, .since_us = now_us, .listed_us = now_us};
    return row;
}

static struct tw_relay_pause *pause_find(struct tw_relay_choice *choice, const struct tw_id *target,
                                         const struct tw_id *relay) {
    for (uint32_t i = 0; i < TW_RELAY_PAUSES_MAX; i++) {
        struct tw_relay_pause *pause = &choice->pauses[i];
        if (pause->is_used && tw_id_equal(&pause->target, target) &&
            tw_id_equal(&pause->relay, relay))
            return pause;
    }
    return NULL;
}

/* Returns the row of that pair of relay and node. If it is new and the table is full, it replaces
 * the pause that ends first. */
static struct tw_relay_pause *pause_get(struct tw_relay_choice *choice, const struct tw_id *target,
                                        const struct tw_id *relay) {
    struct tw_relay_pause *row = pause_find(choice, target, relay);
    if (row != NULL) return row;
    row = &choice->pauses[0];
    for (uint32_t i = 0; i < TW_RELAY_PAUSES_MAX && row->is_used; i++) {
        struct tw_relay_pause *pause = &choice->pauses[i];
        if (!pause->is_used || pause->until_us < row->until_us) row = pause;
    }
    *row = (struct tw_relay_pause){.is_used = true, .target = *target, .relay = *relay};
    return row;
}

/* Records that the relay failed for that node, and doubles the relay's pause. */
static void punish(struct tw_relay_choice *choice, const struct tw_id *target,
                   const struct tw_id *relay, uint64_t now_us) {
    struct tw_relay_pause *pause = pause_get(choice, target, relay);
    pause->pause_us *= 2;
    if (pause->pause_us < TW_RELAY_PAUSE_MIN_US) pause->pause_us = TW_RELAY_PAUSE_MIN_US;
    if (pause->pause_us > TW_RELAY_PAUSE_MAX_US) pause->pause_us = TW_RELAY_PAUSE_MAX_US;
    pause->until_us = now_us + pause->pause_us;
}

/* ---- looking ------------------------------------------------------------------------------- */

static const struct tw_relay_linked *link_find(const struct tw_relay_view *view,
                                               const struct tw_id *id) {
    for (uint32_t i = 0; i < view->linked_count; i++) {
        if (tw_id_equal(&view->linked[i].id, id)) return &view->linked[i];
    }
    return NULL;
}

/* Handles the end of a relayed link: its relay pauses, and another one may be called at once. */
static void relayed_lost(struct tw_relay_choice *choice, struct tw_relay_target *target,
                         uint64_t now_us) {
    if (now_us - target->since_us < TW_RELAY_STEADY_US) {
        punish(choice, &target->id, &target->relay, now_us);
    } else {
        struct tw_relay_pause *pause = pause_get(choice, &target->id, &target->relay);
        pause->pause_us = 0;
        pause->until_us = now_us + TW_RELAY_LOST_US;
    }
    target->was_relayed = true;
}

static void target_look(struct tw_relay_choice *choice, struct tw_relay_target *target,
                        const struct tw_relay_view *view, uint64_t now_us) {
    const struct tw_relay_linked *link = link_find(view, &target->id);
    const bool is_linked = target->state == TW_RELAY_RELAYED || target->state == TW_RELAY_DIRECT;
    if (link == NULL) {
        if (is_linked) {
            const bool was_relayed = target->state == TW_RELAY_RELAYED;
            target->was_relayed = false;
            if (was_relayed) relayed_lost(choice, target, now_us);
            target->state = TW_RELAY_WAITING;
            target->since_us = now_us;
        }
        if (target->state == TW_RELAY_WAITING && now_us - target->listed_us >= TW_RELAY_FORGET_US)
            target->state = TW_RELAY_FREE;
        return;
    }
    if (target->state == TW_RELAY_CALLING) return; /* the call has not ended yet */
    const enum tw_relay_target_state now = link->is_relayed ? TW_RELAY_RELAYED : TW_RELAY_DIRECT;
    const bool is_same =
        target->state == now && (!link->is_relayed || tw_id_equal(&target->relay, &link->relay));
    target->listed_us = now_us;
    target->failures = 0;
    if (is_same) return;
    target->state = now;
    target->since_us = now_us;
    target->relay = link->relay;
}

static void note(struct tw_relay_choice *choice, const struct tw_id *id, uint64_t now_us) {
    struct tw_relay_target *target = target_find(choice, id);
    if (target != NULL)
        target->listed_us = now_us;
    else
        (void)target_new(choice, id, now_us);
}

void tw_relay_choice_look(struct tw_relay_choice *choice, const struct tw_relay_view *view,
                          uint64_t now_us) {
    TW_ASSERT(view->offers_count <= TW_PEERS_MAX && view->linked_count <= TW_PEERS_MAX);
    for (uint32_t i = 0; i < view->linked_count; i++) {
        if (view->linked[i].is_relayed) note(choice, &view->linked[i].id, now_us);
    }
    for (uint32_t i = 0; i < view->offers_count; i++) {
        const struct tw_relay_offer *offer = &view->offers[i];
        TW_ASSERT(offer->direct_count <= TW_PEERS_MAX);
        for (uint32_t k = 0; k < offer->direct_count; k++) {
            if (!tw_id_equal(&offer->direct[k], &view->self))
                note(choice, &offer->direct[k], now_us);
        }
    }
    for (uint32_t i = 0; i < TW_RELAY_TARGETS_MAX; i++) {
        if (choice->targets[i].state != TW_RELAY_FREE)
            target_look(choice, &choice->targets[i], view, now_us);
    }
}

/* ---- choosing ------------------------------------------------------------------------------ */

static bool is_hopeful(const struct tw_relay_view *view, const struct tw_id *id) {
    for (uint32_t i = 0; i < view->hopeful_count; i++) {
        if (tw_id_equal(&view->hopeful[i], id)) return true;
    }
    return false;
}

static uint64_t due_us(const struct tw_relay_view *view, const struct tw_relay_target *target) {
    uint64_t wait_us = TW_RELAY_GRACE_US;
    if (is_hopeful(view, &target->id)) wait_us = TW_RELAY_HOPE_US;
    if (target->was_relayed) wait_us = 0;
    if (tw_id_compare(&view->self, &target->id) > 0) wait_us += TW_RELAY_YIELD_US;
    return target->since_us + wait_us;
}

static uint32_t calls_by(const struct tw_relay_choice *choice, const struct tw_id *relay) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < TW_RELAY_TARGETS_MAX; i++) {
        const struct tw_relay_target *target = &choice->targets[i];
        if (target->state != TW_RELAY_CALLING) continue;
        count += relay == NULL || tw_id_equal(&target->relay, relay);
    }
    return count;
}

struct rank {
    uint32_t octave, load;
    uint64_t cost_us;
};

static struct rank rank_of(const struct tw_relay_choice *choice, const struct tw_relay_view *view,
                           const struct tw_relay_offer *offer) {
    const uint64_t bytes_per_s =
        offer->bytes_per_s > 0 ? offer->bytes_per_s : TW_RELAY_UNKNOWN_BYTES_PER_S;
    const uint64_t rtt_us = offer->rtt_us > 0 ? offer->rtt_us : TW_RELAY_UNKNOWN_RTT_US;
    struct rank rank = {
        .load = calls_by(choice, &offer->id),
        .cost_us = rtt_us + (uint64_t)TW_RELAY_COST_BYTES * SECOND_US / bytes_per_s,
    };
    for (uint64_t rest = rank.cost_us; rest > 1; rest /= 2) rank.octave++;
    for (uint32_t i = 0; i < view->linked_count; i++)
        rank.load += view->linked[i].is_relayed && tw_id_equal(&view->linked[i].relay, &offer->id);
    return rank;
}

static bool is_better(const struct rank *a, const struct rank *b) {
    if (a->octave != b->octave) return a->octave < b->octave;
    if (a->load != b->load) return a->load < b->load;
    return a->cost_us < b->cost_us;
}

static bool is_listed(const struct tw_relay_offer *offer, const struct tw_id *id) {
    for (uint32_t i = 0; i < offer->direct_count; i++) {
        if (tw_id_equal(&offer->direct[i], id)) return true;
    }
    return false;
}

/* Returns the best relay for that node now. Returns NULL if there is none, or if all have a pause.
 */
static const struct tw_relay_offer *offer_best(struct tw_relay_choice *choice,
                                               const struct tw_relay_view *view,
                                               const struct tw_id *target, uint64_t now_us) {
    const struct tw_relay_offer *best = NULL;
    struct rank best_rank = {0};
    for (uint32_t i = 0; i < view->offers_count; i++) {
        const struct tw_relay_offer *offer = &view->offers[i];
        if (!is_listed(offer, target) || tw_id_equal(&offer->id, target)) continue;
        const struct tw_relay_pause *pause = pause_find(choice, target, &offer->id);
        if (pause != NULL && now_us < pause->until_us) continue;
        if (calls_by(choice, &offer->id) >= TW_RELAY_OWN_CALLS_PER_RELAY) continue;
        const struct rank rank = rank_of(choice, view, offer);
        if (best != NULL && !is_better(&rank, &best_rank)) continue;
        best = offer;
        best_rank = rank;
    }
    return best;
}

/* Returns true if `a` is called before `b`. Nodes with failed calls come last, so that a node that
 * does not exist delays no other. */
static bool is_sooner(const struct tw_relay_target *a, const struct tw_relay_target *b) {
    if (a->failures != b->failures) return a->failures < b->failures;
    return a->since_us < b->since_us;
}

bool tw_relay_choice_next(struct tw_relay_choice *choice, const struct tw_relay_view *view,
                          uint64_t now_us, struct tw_relay_pick *pick) {
    struct tw_relay_target *first = NULL;
    const struct tw_relay_offer *by = NULL;
    if (calls_by(choice, NULL) >= TW_RELAY_OWN_CALLS_MAX) return false;
    for (uint32_t i = 0; i < TW_RELAY_TARGETS_MAX; i++) {
        struct tw_relay_target *target = &choice->targets[i];
        if (target->state != TW_RELAY_WAITING || now_us < due_us(view, target)) continue;
        if (first != NULL && !is_sooner(target, first)) continue;
        const struct tw_relay_offer *offer = offer_best(choice, view, &target->id, now_us);
        if (offer == NULL) continue;
        first = target;
        by = offer;
    }
    if (first == NULL) return false;
    first->state = TW_RELAY_CALLING;
    first->relay = by->id;
    *pick = (struct tw_relay_pick){.peer = by->peer, .relay = by->id, .target = first->id};
    return true;
}

void tw_relay_choice_ended(struct tw_relay_choice *choice, const struct tw_id *id, bool ok,
                           uint64_t now_us) {
    struct tw_relay_target *target = target_find(choice, id);
    if (target == NULL || target->state != TW_RELAY_CALLING) return;
    target->state = TW_RELAY_WAITING; /* the next tw_relay_choice_look sees the link, if there is
                                         one */
    if (!ok) {
        target->failures++;
        punish(choice, id, &target->relay, now_us);
        return;
    }
    struct tw_relay_pause *pause = pause_get(choice, id, &target->relay);
    if (pause->until_us < now_us + TW_RELAY_PAUSE_MIN_US)
        pause->until_us = now_us + TW_RELAY_PAUSE_MIN_US;
}
