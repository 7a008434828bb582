#include "daemon/node/health.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/api/health.h"
#include "daemon/api/status_view.h"
#include "daemon/api/view_warning.h"
#include "daemon/node/budget.h"
#include "daemon/node/checkpoints.h"
#include "daemon/node/reports.h"
#include "daemon/store/notes.h"
#include "daemon/workerlink/worker_host.h"

/* ==== the farthest round ====================================================================== */

/* Between two writes of the note: a sync or two of a small file. */
#define WRITE_US UINT64_C(5000000)
/* Time for which a loss is shown. */
#define SHOWN_US UINT64_C(3600000000)

enum stage { STAGE_PRESENT, STAGE_BEHIND, STAGE_LOST };

struct tw_daemon_reached {
    int dir;                  /* the run's state folder; negative: not open */
    struct tw_reached noted;  /* on disk, or being written */
    struct tw_reached before; /* note of the process before this one */
    struct tw_reached now;    /* newest known point; its origin is that of `origin_lineage` */
    struct tw_id origin_lineage;
    bool is_shared;         /* a round was merged with others since the start */
    struct tw_message told; /* STATUS with the fields for people */
    enum stage stage;
    bool has_round;        /* a round was committed here since the start */
    uint64_t saved_unix_s; /* time of the loaded checkpoint; 0: none was loaded */
    uint64_t checkpoint_rounds, checkpoint_tokens; /* its rounds and run clock */
    uint64_t lost_at_us;
    uint64_t told_anew;        /* origin of the new run, of which the loss was told; 0: none */
    struct tw_id lost_lineage; /* lineage in which the run went on behind */
    struct tw_view_lost lost;
    bool is_writing, has_failed;
    uint64_t written_us;
    struct tw_reached writing;
    enum tw_status status;
    struct tw_error err;
    uv_work_t work;
};

/* ---- the note ------------------------------------------------------------------------------ */

static void on_write_work(uv_work_t *work) {
    struct tw_daemon_reached *reached = ((struct tw_daemon *)work->data)->reached;
    reached->status =
        tw_reached_write(tw_file_system(), reached->dir, &reached->writing, &reached->err);
}

static void on_write_done(uv_work_t *work, int status) {
    struct tw_daemon *daemon = work->data;
    struct tw_daemon_reached *reached = daemon->reached;
    reached->is_writing = false;
    if (status != 0 || daemon->stage == TW_DAEMON_CLOSING) return;
    const bool has_failed = reached->status != TW_OK;
    if (has_failed && !reached->has_failed)
        tw_daemon_note(daemon, TW_LOG_WARN, "note_not_saved", "text=\"%s\"", reached->err.message);
    reached->has_failed = has_failed;
    if (!has_failed) reached->noted = reached->writing;
    tw_daemon_leave_step(daemon);
}

static bool is_noted(const struct tw_daemon_reached *reached) {
    return reached->noted.rounds == reached->now.rounds &&
           reached->noted.clock_tokens == reached->now.clock_tokens &&
           tw_id_equal(&reached->noted.lineage, &reached->now.lineage);
}

static void write_note(struct tw_daemon *daemon, uint64_t now_us) {
    struct tw_daemon_reached *reached = daemon->reached;
    if (reached->is_writing || now_us < reached->written_us + WRITE_US) return;
    if (reached->dir < 0 || reached->now.rounds == 0 || is_noted(reached)) return;
    reached->is_writing = true;
    reached->written_us = now_us;
    reached->writing = reached->now;
    /* To begin alone and then to join the others is no loss. */
    if (!reached->is_shared && reached->now.origin != reached->before.origin)
        reached->writing.origin = 0;
    reached->work.data = daemon;
    if (uv_queue_work(&daemon->loop, &reached->work, on_write_work, on_write_done) != 0)
        reached->is_writing = false;
}

/* ---- the origin ---------------------------------------------------------------------------- */

static uint64_t origin_of(const struct tw_id *lineage) {
    uint64_t origin = 0;
    for (unsigned i = 0; i < 8; i++) origin |= (uint64_t)lineage->bytes[i] << (8 * i);
    return origin;
}

/* Returns the origin that more than half of the linked peers of this lineage tell; 0: none. */
static uint64_t told_origin(const struct tw_node_view *view) {
    uint64_t origin = 0;
    uint32_t votes = 0, told = 0, agreeing = 0;
    for (int pass = 0; pass < 2; pass++) { /* the only candidate (Boyer-Moore), then its count */
        for (uint32_t i = 0; i < TW_PEERS_MAX; i++) {
            const struct tw_msg_status *const status = &view->peers[i].status;
            if (!view->peers[i].is_up || status->origin == 0 ||
                !tw_id_equal(&status->lineage, &view->lineage))
                continue;
            if (pass == 1) {
                told++;
                agreeing += status->origin == origin;
            } else if (votes == 0) {
                origin = status->origin;
                votes = 1;
            } else {
                votes = status->origin == origin ? votes + 1 : votes - 1;
            }
        }
    }
    return 2 * agreeing > told ? origin : 0;
}

/* Returns the origin of the lineage that this node is in or follows; 0: not known. */
static uint64_t origin_here(const struct tw_daemon *daemon) {
    const struct tw_daemon_reached *const reached = daemon->reached;
    if (daemon->setup->run.sync.topology == TW_TOPOLOGY_PAIR) return 0; /* a lineage each */
    const bool is_known = tw_id_equal(&reached->origin_lineage, &daemon->view.lineage);
    return is_known && reached->now.origin != 0 ? reached->now.origin : told_origin(&daemon->view);
}

/* Follows the origin of the state that this node holds. A receiver holds that of its old lineage.
 */
static void learn_origin(struct tw_daemon *daemon) {
    struct tw_daemon_reached *reached = daemon->reached;
    const struct tw_node_view *const view = &daemon->view;
    if (daemon->setup->run.sync.topology == TW_TOPOLOGY_PAIR) return;
    if (view->is_founder) {
        if (reached->now.origin == 0) reached->now.origin = origin_of(&view->lineage);
    } else if (view->state == TW_STATE_RECEIVER) {
        return;
    } else {
        reached->now.origin = origin_here(daemon);
    }
    reached->origin_lineage = view->lineage;
}

const struct tw_message *tw_daemon_reached_tell(struct tw_daemon *daemon,
                                                const struct tw_message *message) {
    struct tw_daemon_reached *reached = daemon->reached;
    struct tw_msg_status *const status = &reached->told.u.status;
    if (message->kind != TW_MSG_STATUS) return message;
    reached->told.kind = TW_MSG_STATUS;
    *status = message->u.status;
    if (tw_id_equal(&status->lineage, &reached->origin_lineage))
        status->origin = reached->now.origin;
    status->waits = daemon->waits;
    return &reached->told;
}

/* ---- the comparison ------------------------------------------------------------------------ */

/* Points at which this node is now, as the core knows them. */
static void look(struct tw_daemon *daemon) {
    struct tw_daemon_reached *reached = daemon->reached;
    struct tw_reached *const now = &reached->now;
    tw_node_view(daemon->node, &daemon->view);
    learn_origin(daemon);
    reached->is_shared |=
        reached->has_round && daemon->view.state == TW_STATE_MEMBER && daemon->view.mixed > 0;
    now->lineage = daemon->view.lineage;
    now->rounds = daemon->view.rounds;
    now->clock_tokens = daemon->view.clock_tokens;
    now->step = daemon->counts.step;
    now->tokens = daemon->counts.tokens;
    now->unix_s = tw_daemon_unix_us() / 1000000;
}

static uint64_t less(uint64_t from, uint64_t value) {
    return from > value ? from - value : 0;
}

/* True if the run goes on here: rounds are decided, or the run is over. */
static bool is_settled(const struct tw_daemon *daemon) {
    const enum tw_node_state state = daemon->view.state;
    return state == TW_STATE_FINISHED || (daemon->reached->has_round && state != TW_STATE_RECEIVER);
}

/* Returns the time that lost tokens took: their part of the time from this node's checkpoint to the
 * note. */
static uint64_t work_us(const struct tw_daemon_reached *reached, uint64_t lost_tokens) {
    const uint64_t passed_s = less(reached->before.unix_s, reached->saved_unix_s);
    const uint64_t tokens = less(reached->before.clock_tokens, reached->checkpoint_tokens);
    if (reached->saved_unix_s == 0 || tokens == 0) return TW_VIEW_NEVER;
    return (uint64_t)((double)passed_s * 1e6 * (double)lost_tokens / (double)tokens);
}

/* Notes the loss. `from`: the point from which the run goes on. `is_anew`: it began anew. */
static void note_lost(struct tw_daemon *daemon, const struct tw_reached *from, bool is_anew,
                      uint64_t now_us) {
    struct tw_daemon_reached *reached = daemon->reached;
    const struct tw_reached *const before = &reached->before;
    const uint64_t clock_from = is_anew ? 0 : from->clock_tokens;
    struct tw_error err = {0};
    char text[TW_VIEW_TEXT_BYTES];
    reached->stage = STAGE_LOST;
    reached->lost_at_us = now_us;
    reached->lost_lineage = reached->now.lineage;
    reached->told_anew = is_anew ? origin_here(daemon) : 0;
    reached->lost = (struct tw_view_lost){
        .is_lost = true,
        .is_anew = clock_from == 0,
        .rounds_before = before->rounds,
        .rounds = from->rounds,
        .clock_before = before->clock_tokens,
        .tokens = less(before->clock_tokens, clock_from),
        .steps = is_anew ? before->step : less(before->step, from->step),
        .work_us = work_us(reached, less(before->clock_tokens, clock_from)),
        .is_kept = is_anew && tw_daemon_checkpoints_set_aside(daemon, &err),
        .kept_rounds = reached->checkpoint_rounds,
    };
    if (err.message[0] != '\0')
        tw_daemon_note(daemon, TW_LOG_WARN, "checkpoint_not_kept", "text=\"%s\"", err.message);
    tw_view_lost_text(&reached->lost, text);
    tw_daemon_note(daemon, TW_LOG_WARN, "work_lost",
                   "round_before=%" PRIu64 " round=%" PRIu64 " tokens=%" PRIu64 " steps=%" PRIu64
                   " text=\"%s\"",
                   before->rounds, from->rounds, reached->lost.tokens, reached->lost.steps, text);
}

static void judge(struct tw_daemon *daemon, const struct tw_reached *last, uint64_t now_us) {
    struct tw_daemon_reached *reached = daemon->reached;
    const uint64_t before = reached->before.origin, here = before != 0 ? origin_here(daemon) : 0;
    const bool is_anew = here != 0 && here != before;
    const bool is_there = reached->now.clock_tokens >= reached->before.clock_tokens && !is_anew &&
                          (before == 0 || here != 0 || is_settled(daemon));
    if (reached->stage == STAGE_PRESENT) {
        if (is_anew && here != reached->told_anew && is_settled(daemon))
            note_lost(daemon, last, true, now_us);
    } else if (reached->stage == STAGE_BEHIND && is_there) {
        reached->stage = STAGE_PRESENT;
        tw_daemon_note(daemon, TW_LOG_INFO, "run_found",
                       "round=%" PRIu64 " text=\"the run is not behind the round that this node "
                       "was at: nothing is lost\"",
                       reached->now.rounds);
    } else if (reached->stage == STAGE_BEHIND && is_settled(daemon)) {
        note_lost(daemon, last, is_anew, now_us);
    } else if (reached->stage == STAGE_LOST && now_us >= reached->lost_at_us + SHOWN_US) {
        reached->stage = STAGE_PRESENT;
    } else if (reached->stage == STAGE_LOST && is_there &&
               !tw_id_equal(&reached->now.lineage, &reached->lost_lineage)) {
        reached->stage = STAGE_PRESENT;
        tw_daemon_note(daemon, TW_LOG_INFO, "run_found",
                       "round=%" PRIu64 " text=\"other nodes have the work that was lost here\"",
                       reached->now.rounds);
    }
    reached->lost.is_lost = reached->stage == STAGE_LOST;
}

void tw_daemon_reached_round(struct tw_daemon *daemon) {
    daemon->reached->has_round = true;
}

void tw_daemon_reached_tick(struct tw_daemon *daemon, uint64_t now_us) {
    struct tw_daemon_reached *reached = daemon->reached;
    const struct tw_reached last = reached->now;
    if (daemon->stage == TW_DAEMON_CLOSING) return;
    look(daemon);
    judge(daemon, &last, now_us);
    if (reached->stage != STAGE_BEHIND) write_note(daemon, now_us);
}

/* ---- life ---------------------------------------------------------------------------------- */

enum tw_status tw_daemon_reached_open(struct tw_daemon *daemon, struct tw_error *err) {
    struct tw_daemon_reached *reached = tw_daemon_alloc(sizeof(*reached), err);
    struct tw_error why = {0};
    if (reached == NULL) return TW_NOMEM;
    daemon->reached = reached;
    reached->dir = tw_file_system()->dir_open(NULL, daemon->setup->run_state_dir);
    if (reached->dir < 0) return TW_OK; /* the checkpoints report it */
    if (tw_reached_read(tw_file_system(), reached->dir, &reached->before, &why) != TW_OK)
        tw_daemon_note(daemon, TW_LOG_WARN, "note_unreadable", "text=\"%s\"", why.message);
    reached->noted = reached->before;
    return TW_OK;
}

void tw_daemon_reached_loaded(struct tw_daemon *daemon) {
    struct tw_daemon_reached *reached = daemon->reached;
    const struct tw_position *const position = tw_daemon_checkpoints_position(daemon);
    const bool has_tip = position != NULL && position->has_tip != 0;
    struct tw_reached *const now = &reached->now;
    bool is_wanted = !tw_id_is_zero(&daemon->setup->awaited);   /* the owner recalled the run */
    for (uint32_t i = 0; i < daemon->setup->refused.count; i++) /* it was rolled back */
        is_wanted |= tw_id_equal(&daemon->setup->refused.ids[i], &reached->before.lineage);
    if (has_tip) {
        now->lineage = position->lineage;
        now->rounds = position->rounds;
        now->clock_tokens = position->tip.clock_tokens;
        now->origin = reached->before.origin;
        reached->origin_lineage = position->lineage;
    }
    now->step = daemon->counts.step;
    reached->saved_unix_s = tw_daemon_checkpoints_saved_unix_s(daemon, &reached->checkpoint_rounds);
    reached->checkpoint_tokens = now->clock_tokens;
    if (reached->before.unix_s != 0 && now->clock_tokens < reached->before.clock_tokens &&
        !is_wanted)
        reached->stage = STAGE_BEHIND;
    if (is_wanted) reached->before.origin = 0;
}

bool tw_daemon_reached_is_behind(const struct tw_daemon *daemon, char *text, size_t room) {
    const struct tw_daemon_reached *const reached = daemon->reached;
    if (reached->stage != STAGE_BEHIND) return false;
    if (reached->saved_unix_s == 0)
        (void)snprintf(text, room,
                       "this node was at round %" PRIu64 " and has no checkpoint: it waits for a "
                       "node that has the run's state, or the run begins anew",
                       reached->before.rounds);
    else
        (void)snprintf(text, room,
                       "this node was at round %" PRIu64 "; its newest checkpoint is of round "
                       "%" PRIu64,
                       reached->before.rounds, reached->checkpoint_rounds);
    return true;
}

uint64_t tw_daemon_reached_steps_before(const struct tw_daemon *daemon) {
    return daemon->reached->before.step;
}

bool tw_daemon_reached_any(const struct tw_daemon *daemon) {
    return daemon->reached->before.unix_s != 0 || daemon->reached->has_round;
}

void tw_daemon_reached_fill(const struct tw_daemon *daemon, uint64_t now_us,
                            struct tw_status_view *view) {
    const struct tw_daemon_reached *const reached = daemon->reached;
    view->lost = reached->lost;
    if (view->lost.is_lost) view->lost.age_us = now_us - reached->lost_at_us;
}

bool tw_daemon_reached_is_saving(const struct tw_daemon *daemon) {
    return daemon->reached->is_writing;
}

void tw_daemon_reached_free(struct tw_daemon *daemon) {
    if (daemon->reached == NULL) return;
    if (daemon->reached->dir >= 0) (void)tw_file_system()->close(NULL, daemon->reached->dir);
    free(daemon->reached);
}

/* ==== signs of bad merging ==================================================================== */

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
