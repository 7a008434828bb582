/* shell.c - the runtime around a core, in virtual time: delivers events, carries out actions,
 * writes the disk, starts and ends the process. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "sync/core/position.h"
#include "sync/core/state.h"
#include "sync/trace/trace.h"
#include "tests/sim/world.h"
#include "tests/sync/signing.h"

enum {
    FSYNC_US = 4 * 1000,
    SAVE_US = 500 * 1000,
    WORKER_START_US = 800 * 1000,
    VERIFY_US = 3 * 1000,
    GOODBYE_US = 2 * 1000 * 1000,
};

/* ---- disk ----------------------------------------------------------------------------------- */

static void store_vote(struct tw_sim_world *world, struct tw_sim_node *node,
                       const struct tw_action *action) {
    struct tw_sim_store *store = malloc(sizeof *store);
    TW_ASSERT(store != NULL);
    store->seq = action->u.store.seq;
    store->vote = *action->u.store.vote;
    if (node->disk_free_us < world->now_us) node->disk_free_us = world->now_us;
    node->disk_free_us += tw_sim_exponential_us(&node->rng, FSYNC_US) + 1;
    if (tw_rng_below(&node->rng, 64) == 0) node->disk_free_us += 100 * FSYNC_US;
    node->disk.pending = store;
    tw_sim_push(world, node->disk_free_us, TW_SIM_TIMER_STORED, node->idx, 0, node->life, store);
}

static void note_durable_vote(struct tw_sim_world *world, struct tw_sim_node *node,
                              const struct tw_vote *vote) {
    node->disk.has_vote = true;
    node->disk.vote = *vote;
    world->result->votes++;
    tw_sim_check_vote(world, node, vote);
}

static void finish_store(struct tw_sim_world *world, struct tw_sim_node *node,
                         const struct tw_sim_store *store) {
    struct tw_event event = {.kind = TW_EV_STORED, .ok = !tw_sim_node_refuses(node)};
    event.u.store_seq = store->seq;
    /* After a failed fsync, the disk may hold the old vote or the new one. */
    if (event.ok || tw_rng_below(&node->rng, 2) == 0) {
        note_durable_vote(world, node, &store->vote);
    } else {
        tw_sim_check_unwritten(world, node, &store->vote);
    }
    if (node->disk.pending == store) node->disk.pending = NULL;
    tw_sim_deliver(world, node, &event);
}

/* Fills in a checkpoint of this moment. Returns false if the worker has applied a round, but the
 * core has not been told yet. */
static bool fill_checkpoint(struct tw_sim_world *world, struct tw_sim_node *node,
                            struct tw_sim_checkpoint *checkpoint) {
    const struct tw_sim_worker *worker = &node->worker;
    tw_node_position(node->core, &checkpoint->position);
    for (uint32_t f = 0; f < world->model.fragments_count; f++) {
        const uint64_t rounds = checkpoint->position.fragment_rounds[f];
        if (rounds != UINT64_MAX && rounds != worker->replica.fragment_rounds[f]) return false;
    }
    checkpoint->is_there = true;
    checkpoint->step = worker->step;
    checkpoint->tokens = worker->tokens;
    checkpoint->replica = worker->replica;
    return true;
}

static void start_checkpoint(struct tw_sim_world *world, struct tw_sim_node *node) {
    uint64_t next_us = world->options.checkpoint_us;
    struct tw_sim_checkpoint *copy = NULL;
    if (node->worker.is_up) copy = malloc(sizeof *copy);
    if (copy != NULL && fill_checkpoint(world, node, copy)) {
        tw_sim_push(world, world->now_us + SAVE_US, TW_SIM_TIMER_SAVED, node->idx, 0, node->life,
                    copy);
    } else {
        free(copy);
        next_us = SAVE_US;
    }
    tw_sim_push(world, world->now_us + next_us, TW_SIM_TIMER_CHECKPOINT, node->idx, 0, node->life,
                NULL);
}

/* ---- the core ------------------------------------------------------------------------------- */

static void trace_report(struct tw_sim_world *world, const struct tw_sim_node *node,
                         const struct tw_action *action) {
    static const char *const states[] = {"solo", "receiver", "member", "finished"};
    char name[9], text[200] = "";
    tw_id_short(&action->u.report.id, name);
    switch (action->u.report.kind) {
    case TW_REPORT_PEER_DEAD: tw_sim_trace(world, node, "** %s is silent", name); break;
    case TW_REPORT_MISBEHAVED: tw_sim_trace(world, node, "** %s misbehaved", name); break;
    case TW_REPORT_REFUSED: tw_sim_trace(world, node, "** %s refused", name); break;
    case TW_REPORT_STRUCK: tw_sim_trace(world, node, "** %s is struck", name); break;
    case TW_REPORT_STALLED: tw_sim_trace(world, node, "** %s stalls", name); break;
    case TW_REPORT_FULL: tw_sim_trace(world, node, "** no seat for %s", name); break;
    case TW_REPORT_INSANE: tw_sim_trace(world, node, "** result of %s not taken", name); break;
    case TW_REPORT_FORGED: tw_sim_trace(world, node, "** %s forged a round", name); break;
    case TW_REPORT_TWO_FACED: tw_sim_trace(world, node, "** %s is two-faced", name); break;
    case TW_REPORT_LEFT: tw_sim_trace(world, node, "** leaves most for %s", name); break;
    case TW_REPORT_OUTLIER: tw_sim_trace(world, node, "** outlier of %s applied", name); break;
    case TW_REPORT_PAIRED: tw_sim_trace(world, node, "** merged with %s", name); break;
    case TW_REPORT_ONE_SIDED: tw_sim_trace(world, node, "** %s did not merge", name); break;
    case TW_REPORT_DIFFERS: tw_sim_trace(world, node, "** anchor of %s differs", name); break;
    case TW_REPORT_UNTRAINED: tw_sim_trace(world, node, "** %s does not train", name); break;
    case TW_REPORT_LARGE: tw_sim_trace(world, node, "** work of %s is large", name); break;
    case TW_REPORT_FALSE_STATE: tw_sim_trace(world, node, "** false state of %s", name); break;
    case TW_REPORT_LINEAGE: tw_sim_trace(world, node, "** lineage %s", name); break;
    case TW_REPORT_STATE: tw_sim_trace(world, node, "** %s", states[action->u.report.state]); break;
    case TW_REPORT_ROUND_COMMITTED: {
        const struct tw_record *record = action->u.report.record;
        size_t used = 0;
        for (uint32_t i = 0; i < record->contributors_count && used < sizeof text - 30; i++) {
            used += (size_t)snprintf(text + used, sizeof text - used, " %u:%llu",
                                     record->contributors[i].member_idx,
                                     (unsigned long long)record->contributors[i].tokens);
        }
        tw_sim_trace(world, node, "** round %llu is %s: clock %llu, next roster %u of %u; tokens%s",
                     (unsigned long long)record->round, name,
                     (unsigned long long)record->clock_tokens, record->next.number,
                     record->next.count, text);
        break;
    }
    }
}

static void note_untrained(struct tw_sim_world *world, struct tw_sim_node *node,
                           const struct tw_action *action) {
    for (uint32_t i = 0; i < world->nodes_count; i++) {
        if (!tw_id_equal(&world->nodes[i].id, &action->u.report.id)) continue;
        world->result->idlers_found++;
        if (!tw_sim_is_idler(world, &world->nodes[i]))
            tw_sim_fail(world, node, "55", "finds that node %u, which trains, does not", i);
    }
}

static void take_action(struct tw_sim_world *world, struct tw_sim_node *node,
                        const struct tw_action *action) {
    switch (action->kind) {
    case TW_ACT_SEND: tw_sim_net_message(world, node, action->peer, action->u.message); break;
    case TW_ACT_CLOSE: tw_sim_net_close(world, node, action->peer); break;
    case TW_ACT_SEND_CHUNK: tw_sim_pool_send_chunk(world, node, action); break;
    case TW_ACT_EXPECT: tw_sim_pool_expect(world, node, action); break;
    case TW_ACT_VERIFY: tw_sim_pool_verify(world, node, action); break;
    case TW_ACT_DROP: tw_sim_pool_drop(world, node, &action->u.payload.hash); break;
    case TW_ACT_ENCODE:
    case TW_ACT_REDUCE:
    case TW_ACT_APPLY:
    case TW_ACT_SOLO:
    case TW_ACT_PAIR_ENCODE:
    case TW_ACT_PAIR_APPLY:
    case TW_ACT_EXPORT:
    case TW_ACT_LOAD:
    case TW_ACT_CLOCK:
    case TW_ACT_JUDGE:
    case TW_ACT_GATHER:
    case TW_ACT_FINISH: tw_sim_worker_ask(world, node, action); break;
    case TW_ACT_STORE_VOTE: store_vote(world, node, action); break;
    case TW_ACT_REPORT:
        if (action->u.report.kind == TW_REPORT_LINEAGE) world->result->lineages++;
        if (action->u.report.kind == TW_REPORT_LINEAGE && tw_sim_is_invented(&action->u.report.id))
            tw_sim_fail(world, node, "1", "follows a lineage that nobody founded");
        if (action->u.report.kind == TW_REPORT_TWO_FACED && world->options.traitors_count == 0)
            tw_sim_fail(world, node, "17", "a member with an honest core is taken for two-faced");
        if (action->u.report.kind == TW_REPORT_UNTRAINED) note_untrained(world, node, action);
        if (world->trace != NULL) trace_report(world, node, action);
        break;
    }
}

static void take_actions(struct tw_sim_world *world, struct tw_sim_node *node) {
    struct tw_action *action = world->action;
    uint32_t count = 0;
    while (tw_node_next_action(node->core, action)) {
        world->result->actions++;
        tw_sim_hash(world, tw_trace_action(action));
        tw_sim_check_action(world, node, action);
        take_action(world, node, action);
        if (++count > TW_ACTIONS_MAX) {
            tw_sim_fail(world, node, "20", "more than %d actions after one event", TW_ACTIONS_MAX);
            break;
        }
    }
    const uint64_t deadline_us = tw_node_deadline(node->core);
    if (deadline_us == UINT64_MAX) return;
    uint64_t at_us = world->now_us;
    if (deadline_us > world->now_us + node->clock_offset_us) {
        at_us = deadline_us - node->clock_offset_us;
    }
    if (at_us >= node->tick_us) return;
    node->tick_us = at_us;
    tw_sim_push(world, at_us, TW_SIM_TIMER_TICK, node->idx, ++node->tick_number, node->life, NULL);
}

/* Notes the core's lineage and state after an event, for the checks of the event's actions. */
static void note_state(struct tw_sim_world *world, struct tw_sim_node *node) {
    node->lineage = node->core->at.lineage;
    node->state = node->core->state;
    if (node->state == TW_STATE_FINISHED && world->finish_us == 0) world->finish_us = world->now_us;
}

static void trace_event(struct tw_sim_world *world, const struct tw_sim_node *node,
                        const struct tw_event *event, const char *name) {
    if (event->kind == TW_EV_TICK || event->kind == TW_EV_STEP) return;
    if (event->kind == TW_EV_MESSAGE && event->u.message->kind == TW_MSG_STATUS) return;
    if (event->kind == TW_EV_MESSAGE || event->kind == TW_EV_PEER_UP ||
        event->kind == TW_EV_PEER_DOWN || event->kind == TW_EV_CHUNK) {
        const struct tw_sim_link *link = &world->links[node->link_of_peer[event->peer]];
        tw_sim_trace(world, node, "%s from %u", name, link->nodes[link->nodes[0] == node->idx]);
        return;
    }
    tw_sim_trace(world, node, "%s%s", name, event->ok ? "" : " (not ok)");
}

void tw_sim_deliver(struct tw_sim_world *world, struct tw_sim_node *node,
                    const struct tw_event *event) {
    TW_ASSERT(node->is_running);
    struct tw_sim_result *result = world->result;
    result->events++;
    const uint32_t column = event->kind == TW_EV_MESSAGE
                                ? TW_SIM_MESSAGES + (uint32_t)event->u.message->kind
                                : (uint32_t)event->kind;
    result->histogram[node->state][column]++;
    tw_sim_hash(world, world->now_us);
    tw_sim_hash(world, node->idx);
    tw_sim_hash(world, tw_trace_event(event));
    if (event->kind == TW_EV_WORKER_UP) node->core_sees_worker = true;
    if (event->kind == TW_EV_WORKER_DOWN) node->core_sees_worker = false;
    if (world->trace != NULL) trace_event(world, node, event, tw_sim_event_name(column));
    tw_sim_check_event(world, node, event);
    const struct tw_position *at = &node->core->at;
    const uint64_t clock_tokens = at->has_tip != 0 ? at->tip.clock_tokens : 0;
    const struct tw_id lineage = node->lineage;
    const enum tw_node_state state = node->state;
    tw_node_event(node->core, event, world->now_us + node->clock_offset_us);
    if (event->kind == TW_EV_GATHERED || event->kind == TW_EV_ENCODED)
        tw_sim_check_gathered(world, node, event);
    note_state(world, node);
    if (!tw_id_equal(&lineage, &node->lineage)) {
        tw_sim_check_moved(world, node, &lineage, state, clock_tokens);
    }
    tw_sim_check_whole(world, node);
    take_actions(world, node);
}

static void deliver_tick(struct tw_sim_world *world, struct tw_sim_node *node) {
    node->tick_us = UINT64_MAX;
    const uint64_t now_us = world->now_us + node->clock_offset_us;
    if (tw_node_deadline(node->core) > now_us) {
        take_actions(world, node); /* the deadline moved: only sets the timer anew */
        return;
    }
    world->result->ticks++;
    const struct tw_event event = {.kind = TW_EV_TICK};
    tw_sim_deliver(world, node, &event);
    tw_sim_check_tick(world, node);
}

/* ---- the process ---------------------------------------------------------------------------- */

/* Returns the largest size of a payload of the stub model (model.c), in bytes. */
static uint64_t most_bytes(const void *run, enum tw_content content, uint64_t elements) {
    const struct tw_sim_options *options = run;
    const uint64_t dims = elements / TW_PART_ALIGN;
    const uint64_t floats = content == TW_CONTENT_OPAQUE ? 2 * dims : dims;
    return 8 + floats * sizeof(float) + dims * options->bytes_per_dim;
}

static struct tw_sim_costs *signing_costs; /* counters of the running world */

static void sign(void *key, const void *text, size_t size, uint8_t signature[TW_SIGNATURE_BYTES]) {
    signing_costs->signed_count++;
    signing_sign(key, text, size, signature);
}

static bool is_signed(const struct tw_id *id, const void *text, size_t size,
                      const uint8_t signature[TW_SIGNATURE_BYTES]) {
    signing_costs->checked_count++;
    return signing_is_signed(id, text, size, signature);
}

struct tw_signing tw_sim_signing(struct tw_sim_node *node) {
    return (struct tw_signing){.key = &node->id, .sign = sign, .is_signed = is_signed};
}

static void fill_config(struct tw_sim_world *world, struct tw_sim_node *node,
                        struct tw_node_config *config) {
    const struct tw_sim_options *options = &world->options;
    signing_costs = &world->result->costs;
    *config = (struct tw_node_config){
        .self = node->id,
        .signing = tw_sim_signing(node),
        .sizes = {.run = options, .bytes_max = most_bytes},
        .run = world->run,
        .seed = tw_rng_next(&node->rng),
        .boot = (uint32_t)node->life,
        .fragments_count = options->fragments_count,
        .period_steps = options->period_steps,
        .overlap_steps = options->overlap_steps,
        .pace_us = options->pace_us,
        .overlap_us = options->overlap_steps * options->pace_us / options->period_steps,
        .quorum = options->quorum,
        .jury_millionths = options->jury_millionths,
        .grace_us = options->grace_us,
        .budget_tokens = options->budget_tokens,
        .together_tokens = options->together_tokens,
        .alone_nodes = options->together_tokens < options->budget_tokens ? options->nodes_count : 0,
        .members_max = options->members_max,
        .role = tw_sim_role(world, node),
        .is_hand = options->heads_count > 0 && node->idx >= options->heads_count,
        .crew_max = options->crew_max,
        .has_rights = options->voters_count > 0,
        .lacks_vote = !tw_sim_has_vote(world, node->idx),
        .weight = (uint32_t)(node->upload_bytes_per_s / 1000 + 1),
        .orphan_us = options->orphan_us,
        .is_pair = options->is_pair,
        .has_own_start = options->has_own_starts,
        .step_tokens = options->tokens_per_step,
#ifdef TW_MUTANTS
        .mutant = options->mutant,
#endif
    };
    for (uint32_t f = 0; f < options->fragments_count; f++) {
        config->fragment_elements[f] = (uint64_t)options->dims_per_fragment * TW_PART_ALIGN;
    }
}

void tw_sim_node_start(struct tw_sim_world *world, struct tw_sim_node *node) {
    if (node->is_running) return;
    node->is_running = true;
    node->is_leaving = false;
    node->has_started = true;
    node->core_sees_worker = false;
    node->life++;
    node->up_us = world->now_us;
    node->clock_offset_us = tw_rng_below(&node->rng, (uint64_t)1 << 40);
    node->tick_us = UINT64_MAX;
    node->pool_count = 0;
    struct tw_node_config config;
    fill_config(world, node, &config);
    const struct tw_sim_disk *disk = &node->disk;
    tw_node_init(node->core, &config, disk->checkpoint.is_there ? &disk->checkpoint.position : NULL,
                 disk->has_vote ? &disk->vote : NULL, world->now_us + node->clock_offset_us);
    note_state(world, node);
    tw_sim_trace(world, node, "starts, life %u%s", (unsigned)node->life,
                 disk->checkpoint.is_there ? " from a checkpoint" : "");
    tw_sim_check_start(world, node);
    take_actions(world, node);
    if (world->options.is_measured) {
        struct tw_event measured = {.kind = TW_EV_MEASURED};
        measured.u.measured.upload_kib_s = (uint32_t)(node->upload_bytes_per_s / 1024 + 1);
        tw_sim_deliver(world, node, &measured);
    }
    tw_sim_net_node_up(world, node);
    tw_sim_push(world, world->now_us + tw_sim_exponential_us(&node->rng, WORKER_START_US),
                TW_SIM_TIMER_WORKER_UP, node->idx, 0, node->life, NULL);
    tw_sim_push(world, world->now_us + tw_rng_below(&node->rng, world->options.checkpoint_us),
                TW_SIM_TIMER_CHECKPOINT, node->idx, 0, node->life, NULL);
}

static void end_process(struct tw_sim_world *world, struct tw_sim_node *node, bool is_told) {
    node->is_running = false;
    node->is_leaving = false;
    node->core_sees_worker = false;
    node->stalled_until_us = 0;
    node->up_total_us += world->now_us - node->up_us;
    tw_sim_worker_end(node);
    tw_sim_net_node_down(world, node, is_told);
}

void tw_sim_node_crash(struct tw_sim_world *world, struct tw_sim_node *node, bool is_told) {
    tw_sim_trace(world, node, "crashes%s", is_told ? "" : " with its machine");
    /* A vote still being written may have reached the disk. */
    if (node->disk.pending != NULL && tw_rng_below(&node->rng, 2) == 0) {
        note_durable_vote(world, node, &node->disk.pending->vote);
    }
    node->disk.pending = NULL;
    end_process(world, node, is_told);
}

void tw_sim_node_leave(struct tw_sim_world *world, struct tw_sim_node *node) {
    if (!node->is_running || node->is_leaving) return;
    tw_sim_trace(world, node, "is asked to leave");
    node->is_leaving = true;
    const struct tw_event event = {.kind = TW_EV_LEAVE};
    tw_sim_deliver(world, node, &event);
    tw_sim_push(world, world->now_us + GOODBYE_US, TW_SIM_TIMER_STOP, node->idx, 0, node->life,
                NULL);
}

static void stop_process(struct tw_sim_world *world, struct tw_sim_node *node) {
    struct tw_sim_checkpoint *copy = malloc(sizeof *copy);
    TW_ASSERT(copy != NULL);
    if (node->worker.is_up && fill_checkpoint(world, node, copy)) node->disk.checkpoint = *copy;
    free(copy);
    node->disk.pending = NULL;
    tw_sim_trace(world, node, "stops");
    end_process(world, node, true);
}

void tw_sim_shell_timer(struct tw_sim_world *world, const struct tw_sim_timer *timer) {
    struct tw_sim_node *node = &world->nodes[timer->a];
    if (timer->kind == TW_SIM_TIMER_START) {
        if (tw_sim_treason_is_early(world, node)) return;
        if (node->is_leaving) {
            tw_sim_push(world, world->now_us + GOODBYE_US, TW_SIM_TIMER_START, node->idx, 0, 0,
                        NULL);
        }
        tw_sim_node_start(world, node);
        return;
    }
    if (!node->is_running || timer->life != node->life) return;
    if (timer->kind == TW_SIM_TIMER_TICK) {
        if (timer->b == node->tick_number) deliver_tick(world, node);
    } else if (timer->kind == TW_SIM_TIMER_TO_CORE) {
        tw_sim_pool_hold_made(world, node, timer->data);
        tw_sim_deliver(world, node, timer->data);
    } else if (timer->kind == TW_SIM_TIMER_CHECKPOINT) {
        start_checkpoint(world, node);
    } else if (timer->kind == TW_SIM_TIMER_STORED) {
        finish_store(world, node, timer->data);
    } else if (timer->kind == TW_SIM_TIMER_SAVED) {
        node->disk.checkpoint = *(const struct tw_sim_checkpoint *)timer->data;
    } else if (timer->kind == TW_SIM_TIMER_STOP) {
        stop_process(world, node);
    }
}

void tw_sim_node_init(struct tw_sim_world *world, struct tw_sim_node *node, uint32_t idx) {
    const struct tw_sim_options *options = &world->options;
    *node = (struct tw_sim_node){.idx = idx, .slow = 1};
    tw_rng_seed(&node->rng, options->seed ^ ((uint64_t)(idx + 1) << 48));
    const uint64_t name[2] = {options->seed, idx};
    node->id = tw_sha256(name, sizeof name);
    node->speed = 1 + options->speed_spread * (2 * tw_rng_unit(&node->rng) - 1);
    if (idx == 0 && options->slow_first > 1) node->speed /= options->slow_first;
    node->upload_bytes_per_s =
        (uint64_t)((double)options->upload_bytes_per_s * (0.3 + 1.4 * tw_rng_unit(&node->rng)));
    if (idx == 0 && options->thin_first > 1)
        node->upload_bytes_per_s =
            (uint64_t)((double)node->upload_bytes_per_s / options->thin_first);
    node->core = aligned_alloc(64, (tw_node_bytes() + 63) & ~(size_t)63);
    node->pool = calloc(TW_SIM_POOL_MAX, sizeof *node->pool);
    node->pool_prefix = calloc(TW_SIM_POOL_MAX, sizeof *node->pool_prefix);
    TW_ASSERT(node->core != NULL);
    TW_ASSERT(node->pool != NULL);
    TW_ASSERT(node->pool_prefix != NULL);
    for (uint32_t i = 0; i < TW_PEERS_MAX; i++) node->link_of_peer[i] = -1;
    for (uint32_t d = 0; d < world->model.dims_count; d++) {
        node->worker.target[d] = world->model.optimum[d] +
                                 options->spread * 3.4f * (float)(tw_rng_unit(&node->rng) - 0.5);
    }
}

void tw_sim_node_deinit(struct tw_sim_node *node) {
    tw_sim_worker_end(node);
    free(node->core);
    free(node->pool);
    free(node->pool_prefix);
}
