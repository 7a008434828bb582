#include "daemon/node/health.h"

#include <stdio.h>
#include <stdlib.h>

#include "daemon/api/health.h"
#include "daemon/api/merge_health.h"
#include "daemon/api/status_view.h"
#include "daemon/api/view_warning.h"
#include "daemon/node/budget.h"
#include "daemon/node/checkpoints.h"
#include "daemon/node/reports.h"
#include "daemon/workerlink/worker_host.h"

enum { LOOK_US = 1000 * 1000 };

struct tw_daemon_health {
    struct tw_merge_health merge;
    struct tw_health signs;
    struct tw_view_health shown; /* values at the last evaluation */
    uint64_t look_us;
    uint64_t look_step; /* step of the evaluation at which signs were judged last */
};

/* ---- events -------------------------------------------------------------------------------- */

/* Logs that a finding began or ended, with the sentence that the status shows. */
static void note_finding(struct tw_daemon *daemon, enum tw_finding finding) {
    const struct tw_daemon_health *health = daemon->health;
    const bool is_bad = tw_health_has(&health->signs, finding);
    char text[TW_VIEW_TEXT_BYTES] = "";
    if (is_bad) tw_view_finding_text(&health->shown, finding, text);
    tw_daemon_note(daemon, is_bad ? TW_LOG_WARN : TW_LOG_INFO,
                   is_bad ? "bad_merging" : "bad_merging_over", "finding=%s text=\"%s\"",
                   tw_finding_name(finding), text);
}

static void set_shown(struct tw_daemon *daemon) {
    struct tw_daemon_health *health = daemon->health;
    for (enum tw_finding f = 0; f < TW_FINDINGS; f++)
        health->shown.has[f] = tw_health_has(&health->signs, f);
}

/* ---- evaluations --------------------------------------------------------------------------- */

/* Returns the number of rounds that every fragment of the anchor contains. At a receiver, the
 * core's count may be ahead of the anchor. */
static uint64_t rounds_applied(const struct tw_daemon *daemon) {
    const struct tw_shm *shm = &daemon->host->memory.shm;
    uint64_t least = UINT64_MAX;
    for (uint32_t p = 0; p < shm->fragments_count; p++) {
        struct tw_shm_view view;
        tw_shm_view(shm, p, &view);
        if (view.state.rounds < least) least = view.state.rounds;
    }
    return least;
}

static void judge_anchor(struct tw_daemon *daemon, const struct tw_wmsg_evaluated *evaluated) {
    struct tw_merge_health *merge = &daemon->health->merge;
    if (!tw_merge_health_note(merge, evaluated->loss_live, evaluated->loss_anchor,
                              rounds_applied(daemon), daemon->setup->layout.fragments_count))
        return;
    daemon->host->is_theta_held = merge->is_bad;
    tw_daemon_note(daemon, merge->is_bad ? TW_LOG_WARN : TW_LOG_INFO,
                   merge->is_bad ? "merging_hurts" : "merging_helps_again",
                   "step=%llu loss_live=%.4f loss_anchor=%.4f distance=%.4f text=\"%s\"",
                   (unsigned long long)evaluated->step, (double)evaluated->loss_live,
                   (double)evaluated->loss_anchor, (double)evaluated->distance,
                   merge->is_bad ? "this node goes on with its own parameters"
                                 : "this node merges again");
}

/* Signs are counted between two evaluations. A worker makes one more soon after it has loaded a
 * state, and counts over so short a time would say nothing, so signs wait for half of eval_steps.
 */
static bool is_look_due(struct tw_daemon *daemon, uint64_t step) {
    struct tw_daemon_health *const health = daemon->health;
    const uint64_t least = daemon->setup->config.node.eval_steps / 2;
    const bool trains = daemon->setup->config.node.role == TW_NODE_ROLE_TRAIN;
    if (trains && step >= health->look_step && step - health->look_step < least) return false;
    health->look_step = step;
    return true;
}

void tw_daemon_health_evaluated(struct tw_daemon *daemon,
                                const struct tw_wmsg_evaluated *evaluated) {
    struct tw_daemon_health *health = daemon->health;
    tw_node_view(daemon->node, &daemon->view);
    judge_anchor(daemon, evaluated);
    if (!is_look_due(daemon, evaluated->step)) return;
    const struct tw_node_view *view = &daemon->view;
    const struct tw_health_look look = {
        .listed = view->rounds_contributed,
        .missed = view->rounds_missed,
        .refused = view->rounds_refused,
        .budget_left_out = tw_daemon_budget_left_out(daemon),
        .states = daemon->counts.states_taken,
        .fragments = daemon->setup->layout.fragments_count,
        .is_alone = view->state == TW_STATE_SOLO && view->mixed == 0,
        .live = evaluated->loss_live,
        .distance = evaluated->distance,
    };
    const struct tw_health_look *last = &health->signs.rounds_look;
    health->shown.rounds = look.listed + look.missed - last->listed - last->missed;
    health->shown.refused = look.refused - last->refused;
    health->shown.refused_by = view->refused_by;
    health->shown.distance = look.distance;
    health->shown.live = look.live;
    const uint32_t changed = tw_health_note(&health->signs, &look);
    health->shown.distance_most = health->signs.distance_most;
    health->shown.live_least = health->signs.live_least;
    set_shown(daemon);
    const bool is_hurt = health->merge.is_bad || health->signs.signs[TW_FINDING_RISING] > 0;
    tw_daemon_checkpoints_judged(daemon, evaluated->loss_anchor, is_hurt);
    for (enum tw_finding f = 0; f < TW_FINDINGS; f++) {
        if ((changed >> f & 1) != 0) note_finding(daemon, f);
    }
}

void tw_daemon_health_resumed(struct tw_daemon *daemon) {
    struct tw_health_look *last = &daemon->health->signs.rounds_look;
    tw_node_view(daemon->node, &daemon->view);
    last->listed = daemon->view.rounds_contributed;
    last->missed = daemon->view.rounds_missed;
    last->refused = daemon->view.rounds_refused;
}

/* ---- the open round ------------------------------------------------------------------------ */

/* Counts the reachable members of the roster, including this node if it is one. */
static uint32_t count_here(const struct tw_node_view *view) {
    uint32_t count = view->state == TW_STATE_RECEIVER ? 0 : 1;
    for (uint16_t i = 0; i < TW_PEERS_MAX; i++)
        count += view->peers[i].is_up && view->peers[i].is_member;
    return count;
}

void tw_daemon_health_tick(struct tw_daemon *daemon, uint64_t now_us) {
    struct tw_daemon_health *health = daemon->health;
    if (now_us < health->look_us + LOOK_US) return;
    health->look_us = now_us;
    tw_node_view(daemon->node, &daemon->view);
    const struct tw_node_view *view = &daemon->view;
    const uint32_t here = count_here(view);
    const uint64_t period_us = tw_daemon_reports_period_us(daemon);
    const bool is_group =
        daemon->setup->run.sync.topology == TW_TOPOLOGY_GROUP && view->roster_count > 1;
    health->shown.open_us = is_group && 2 * here > view->roster_count ? view->open_us : 0;
    health->shown.open_round = view->rounds;
    health->shown.members = view->roster_count;
    health->shown.members_here = here;
    health->shown.seatless_us = view->is_shut_out ? 0 : view->seatless_us;
    const bool is_stuck_changed =
        tw_health_note_open(&health->signs, health->shown.open_us, period_us);
    const bool is_seat_changed =
        tw_health_note_seat(&health->signs, health->shown.seatless_us, period_us);
    const bool is_over = tw_health_tick(&health->signs, now_us);
    set_shown(daemon);
    if (is_stuck_changed) note_finding(daemon, TW_FINDING_STUCK);
    if (is_seat_changed) note_finding(daemon, TW_FINDING_NO_SEAT);
    if (is_over) note_finding(daemon, TW_FINDING_DIFFERS);
}

void tw_daemon_health_differs(struct tw_daemon *daemon, uint64_t round) {
    struct tw_daemon_health *health = daemon->health;
    health->shown.differed++;
    health->shown.differed_round = round;
    const bool is_changed = tw_health_note_differs(&health->signs, tw_daemon_now_us());
    set_shown(daemon);
    if (is_changed) note_finding(daemon, TW_FINDING_DIFFERS);
}

/* ---- life ---------------------------------------------------------------------------------- */

enum tw_status tw_daemon_health_open(struct tw_daemon *daemon, struct tw_error *err) {
    daemon->health = tw_daemon_alloc(sizeof(*daemon->health), err);
    return daemon->health != NULL ? TW_OK : TW_NOMEM;
}

void tw_daemon_health_fill(const struct tw_daemon *daemon, struct tw_status_view *view) {
    view->health = daemon->health->shown;
    view->train.is_anchor_bad = daemon->health->merge.is_bad;
}

void tw_daemon_health_free(struct tw_daemon *daemon) {
    free(daemon->health);
}
