/* world.c - virtual time: inner steps, deaths and returns of nodes, rounds, and the end of the run.
 */
#include "tests/bench/quality/world.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tests/bench/quality/dump.h"
#include "tests/bench/quality/pairs.h"
#include "tests/bench/quality/state.h"

static bool has_rounds(const struct world *world) {
    return world->setting->kind == KIND_GROUP && !world->is_apart &&
           world->setting->run.sync.topology != TW_TOPOLOGY_SOLO;
}

static bool is_paired(const struct world *world) {
    return world->setting->run.sync.topology == TW_TOPOLOGY_PAIR;
}

static enum tw_status open_world(struct world *world, const struct texts *texts,
                                 struct outcome *outcome, struct tw_error *err) {
    world->count = world->setting->kind == KIND_GROUP ? world->setting->nodes : 1;
    world->layout = calloc(1, sizeof(*world->layout));
    world->nodes = calloc(world->count, sizeof(*world->nodes));
    if (world->layout == NULL || world->nodes == NULL) {
        return tw_fail(err, TW_NOMEM, "no memory for %u nodes", world->count);
    }
    TW_TRY(tw_layout_init(world->layout, &world->setting->run, err));
    outcome->params = world->layout->params;
    for (uint32_t i = 0; i < world->count; i++) {
        TW_TRY(node_open(&world->nodes[i], world->setting, world->layout, i, texts, err));
    }
    TW_TRY(measure_open(&world->measure, world->layout, err));
    if (world->setting->hostile.is_proposer && has_rounds(world))
        world->jury =
            jury_new(world->count, world->count - world->setting->hostile.count, world->layout);
    if (has_rounds(world)) round_open(world);
    return TW_OK;
}

static void close_world(struct world *world) {
    for (uint32_t i = 0; world->nodes != NULL && i < world->count; i++) {
        node_close(&world->nodes[i]);
    }
    for (uint64_t r = 0; world->commits != NULL && r < world->rounds; r++) {
        for (uint32_t k = 0; k < TW_PARTS_MAX; k++) payload_free(&world->commits[r].results[k]);
    }
    round_drop(world);
    jury_free(world->jury);
    measure_close(&world->measure);
    free(world->commits);
    free(world->nodes);
    free(world->layout);
}

/* ---- events -------------------------------------------------------------------------------- */

static uint64_t death_us(const struct world *world) {
    return (uint64_t)world->setting->death.at * world->setting->step_ms * 1000;
}

static uint64_t return_us(const struct world *world) {
    return death_us(world) + (uint64_t)world->setting->death.steps * world->setting->step_ms * 1000;
}

static void sooner(const struct world *world, uint64_t at_us, uint64_t *next_us) {
    if (at_us > world->now_us && at_us < *next_us) *next_us = at_us;
}

static uint64_t next_event_us(const struct world *world) {
    uint64_t next_us = UINT64_MAX;
    for (uint32_t i = 0; i < world->count; i++) {
        if (world->nodes[i].is_alive) sooner(world, world->nodes[i].next_us, &next_us);
    }
    if (world->setting->death.steps > 0) {
        sooner(world, death_us(world), &next_us);
        sooner(world, return_us(world), &next_us);
    }
    if (has_rounds(world)) sooner(world, round_deadline_us(world), &next_us);
    return next_us;
}

static enum tw_status fate(struct world *world, struct tw_error *err) {
    if (world->setting->death.steps == 0 || !has_rounds(world)) return TW_OK;
    struct node *node = &world->nodes[world->setting->death.node];
    if (world->now_us == death_us(world)) node->is_alive = false;
    if (world->now_us != return_us(world)) return TW_OK;
    uint64_t bytes = 0;
    struct node *donor = &world->nodes[node->index == 0 ? 1 : 0];
    TW_TRY(node_join(node, donor, &bytes, err));
    world->traffic.states += traffic_of(bytes);
    node->next_us = world->now_us + node->step_us;
    return TW_OK;
}

/* Every node whose step ends now trains, applies and contributes whatever is due. */
static enum tw_status steps_end(struct world *world, struct tw_error *err) {
    for (uint32_t i = 0; i < world->count; i++) {
        struct node *node = &world->nodes[i];
        if (!node->is_alive || node->next_us != world->now_us) continue;
        TW_TRY(node_step(node, err));
        node->boundary_us = world->now_us;
        node->next_us = world->now_us + node->step_us;
        if (!has_rounds(world)) continue;
        if (is_paired(world)) {
            TW_TRY(pairs_apply(world, node, err));
            continue;
        }
        TW_TRY(round_apply(world, node, err));
        if (round_is_due(world, node)) TW_TRY(round_contribute(world, node, err));
    }
    return TW_OK;
}

/* Ends a run whose budget is spent: each fragment is merged once more, and all nodes end with the
 * anchor. */
static enum tw_status finish(struct world *world, struct tw_error *err) {
    world->is_final = true;
    for (uint32_t p = 0; p < world->layout->fragments_count; p++) {
        for (uint32_t i = 0; i < world->count; i++) {
            struct node *node = &world->nodes[i];
            TW_TRY(round_apply(world, node, err));
            if (round_is_due(world, node)) TW_TRY(round_contribute(world, node, err));
        }
        TW_TRY(round_advance(world, err));
        world->now_us += (uint64_t)world->setting->latency_ms * 1000;
        TW_TRY(round_advance(world, err));
    }
    for (uint32_t i = 0; i < world->count; i++) TW_TRY(round_apply(world, &world->nodes[i], err));
    world->is_over = true;
    return TW_OK;
}

/* Ends a run of pairs in the same way. Each node ends with its own anchor. */
static enum tw_status finish_pairs(struct world *world, struct tw_error *err) {
    world->is_final = true;
    for (uint32_t p = 0; p <= world->layout->fragments_count; p++) {
        for (uint32_t i = 0; i < world->count; i++) {
            TW_TRY(pairs_apply(world, &world->nodes[i], err));
        }
        if (p < world->layout->fragments_count) TW_TRY(pairs_meet(world, err));
    }
    world->is_over = true;
    return TW_OK;
}

static void count_clock(struct world *world) {
    world->clock = 0;
    for (uint32_t i = 0; i < world->count; i++) world->clock += world->nodes[i].trained;
}

/* Ends the part of the budget that nodes train together: merges in flight are applied, and each
 * node continues alone. Its clock then counts for all nodes. */
static enum tw_status part_ways(struct world *world, struct tw_error *err) {
    for (uint32_t i = 0; i < world->count; i++) {
        struct node *node = &world->nodes[i];
        node->last_send_step = 0; /* applies the last results at once, not after the overlap */
        TW_TRY(round_apply(world, node, err));
        node->told.contributors = world->count;
        node->is_apart = true;
    }
    world->is_apart = true;
    return TW_OK;
}

static enum tw_status settle_pairs(struct world *world, struct tw_error *err) {
    count_clock(world);
    if (world->clock >= world->setting->run.train.tokens) return finish_pairs(world, err);
    TW_TRY(pairs_meet(world, err));
    for (uint32_t i = 0; i < world->count; i++) {
        struct node *node = &world->nodes[i];
        if (node->boundary_us == world->now_us) TW_TRY(pairs_apply(world, node, err));
    }
    return TW_OK;
}

/* Handles everything else at this moment, after the steps that end now. */
static enum tw_status settle(struct world *world, struct tw_error *err) {
    const uint64_t budget = world->setting->run.train.tokens;
    if (!has_rounds(world)) {
        count_clock(world);
        world->is_over = world->clock >= budget;
        return TW_OK;
    }
    if (is_paired(world)) return settle_pairs(world, err);
    const uint64_t before = world->rounds;
    TW_TRY(round_advance(world, err));
    if (world->rounds == before) return TW_OK;
    if (world->clock >= budget) return finish(world, err);
    if (world->clock >= tw_run_together_tokens(&world->setting->run)) return part_ways(world, err);
    /* Without overlap, a merge is applied before the next step begins. */
    for (uint32_t i = 0; i < world->count; i++) {
        struct node *node = &world->nodes[i];
        if (node->boundary_us == world->now_us) TW_TRY(round_apply(world, node, err));
    }
    return TW_OK;
}

static enum tw_status measure(struct world *world, struct outcome *outcome, struct tw_error *err) {
    const uint64_t budget = world->setting->run.train.tokens;
    const uint32_t evals = world->setting->evals;
    if (!world->is_over && world->clock * evals < budget * (world->measure.taken + 1)) {
        return TW_OK;
    }
    world->measure.taken = (uint32_t)(world->clock * evals / budget);
    return measure_take(&world->measure, world->nodes, world->count, &world->traffic,
                        world->is_over, outcome, err);
}

static uint64_t steps_of(const struct world *world) {
    uint64_t steps = 0;
    for (uint32_t i = 0; i < world->count; i++) steps += world->nodes[i].steps;
    return steps;
}

/* Writes the state if it is time, and notes a stop. */
static enum tw_status pause(struct world *world, struct pauses *pauses, uint64_t begin,
                            struct outcome *outcome, struct tw_error *err) {
    if (world->is_over || !state_can_save(world)) return TW_OK;
    const enum pause wish = pauses->ask(pauses->self, steps_of(world) - begin);
    if (wish == PAUSE_NONE) return TW_OK;
    pauses->is_stopped = wish == PAUSE_STOP;
    return state_save(pauses->path, pauses->program, world, outcome, err);
}

static enum tw_status run(struct world *world, struct pauses *pauses, struct outcome *outcome,
                          struct tw_error *err) {
    bool is_found;
    if (state_can_save(world))
        TW_TRY(state_load(pauses->path, pauses->program, world, outcome, &is_found, err));
    const uint64_t begin = steps_of(world);
    while (!world->is_over) {
        world->now_us = next_event_us(world);
        if (world->now_us == UINT64_MAX) return tw_fail(err, TW_AGAIN, "nobody is left to train");
        TW_TRY(fate(world, err));
        TW_TRY(steps_end(world, err));
        TW_TRY(settle(world, err));
        TW_TRY(measure(world, outcome, err));
        TW_TRY(pause(world, pauses, begin, outcome, err));
        if (pauses->is_stopped) return TW_OK;
    }
    if (world->dump != NULL) TW_TRY(dump_state(world->dump, &world->nodes[0], err));
    outcome->rounds = world->rounds;
    outcome->traffic = world->traffic;
    for (uint32_t i = 0; i < world->count; i++) outcome->skipped += world->nodes[i].skipped;
    return TW_OK;
}

/* Removes the links of random pairs, drawn by the seed. The first two nodes keep links to all
 * others. */
static void draw_links(struct world *world) {
    uint64_t state = world->setting->seed * 7919 + 1;
    const uint32_t count = world->setting->nodes;
    const uint64_t all = count == 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1;
    for (uint32_t i = 0; i < count; i++) world->linked[i] = all;
    for (uint32_t cut = 0; cut < world->setting->unlinked;) {
        const uint32_t a = 2 + (uint32_t)(tw_splitmix64(&state) % (count - 2));
        const uint32_t b = 2 + (uint32_t)(tw_splitmix64(&state) % (count - 2));
        if (a == b || (world->linked[a] >> b & 1) == 0) continue;
        world->linked[a] &= ~(UINT64_C(1) << b);
        world->linked[b] &= ~(UINT64_C(1) << a);
        cut++;
    }
}

enum tw_status world_run(const struct setting *setting, const struct texts *texts, const char *dump,
                         struct pauses *pauses, struct outcome *outcome, struct tw_error *err) {
    struct world *world = calloc(1, sizeof(*world));
    if (world == NULL) return tw_fail(err, TW_NOMEM, "no memory for a world");
    memset(outcome, 0, sizeof(*outcome));
    pauses->is_stopped = false;
    world->setting = setting;
    world->dump = dump;
    draw_links(world);
    enum tw_status status = open_world(world, texts, outcome, err);
    if (status == TW_OK) status = run(world, pauses, outcome, err);
    close_world(world);
    free(world);
    return status;
}
