/* round.c - the open round of a world: contributions, merging, and application. The rules follow
 * sync/round/round.c and sync/history/log.c. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/rng.h"
#include "tests/bench/quality/dump.h"
#include "tests/bench/quality/proposer.h"
#include "tests/bench/quality/world.h"

enum { REACH_ONE_IN = 16 }; /* must equal the value in sync/core/membership.c */

#define GRACE_FLOOR_US UINT64_C(200000) /* must equal the value in sync/round/round.c */

static uint32_t fragment_of(const struct world *world) {
    return (uint32_t)(world->rounds % world->layout->fragments_count);
}

/* Divides the round's parts among the contributors of the last round. */
static void divide(struct world *world) {
    struct division *division = &world->round.division;
    const uint32_t weights[TW_PARTS_MAX] = {0}, fragment = fragment_of(world);
    const uint64_t elements =
        world->layout->fragment_begin[fragment + 1] - world->layout->fragment_begin[fragment];
    *division = (struct division){.parts = 0};
    for (uint32_t i = 0; i < world->count && division->parts < TW_PARTS_MAX; i++) {
        if (world->nodes[i].is_owner) division->owners[division->parts++] = i;
    }
    for (uint32_t k = 0; k < division->parts; k++) {
        tw_layout_part(elements, weights, division->parts, k, &division->begin[k],
                       &division->count[k]);
    }
}

void round_drop(struct world *world) {
    for (uint32_t i = 0; i < world->count; i++) {
        for (uint32_t k = 0; k < TW_PARTS_MAX; k++) payload_free(&world->round.from[i].parts[k]);
    }
    memset(&world->round, 0, sizeof(world->round));
}

void round_open(struct world *world) {
    round_drop(world);
    if (world->jury != NULL) {
        proposer_open(world);
    } else {
        divide(world);
    }
}

/* ---- contributing -------------------------------------------------------------------------- */

/* Returns the time at which the clock starts the round. A node with long steps encodes at the step
 * boundary before (is_due_soon of sync/round/round.c). */
static uint64_t clock_due_us(const struct world *world) {
    return world->last_commit_us + (uint64_t)world->setting->run.sync.pace_ms * 1000;
}

static bool has_seat(const struct world *world, uint32_t node) {
    return world->jury == NULL || (world->open.members >> node & 1) != 0;
}

bool round_is_due(const struct world *world, const struct node *node) {
    const struct tw_run *run = &world->setting->run;
    const uint64_t stride = run->sync.period / run->sync.fragments;
    const uint64_t pace_us = (uint64_t)run->sync.pace_ms * 1000;
    if (!node->is_alive || world->round.from[node->index].has) return false;
    if (!has_seat(world, node->index)) return false;
    if (node->applied < world->rounds) return false;
    if (world->is_final) return true;
    if (run->sync.pace == TW_PACE_CLOCK) {
        const uint64_t early_us = node->step_us < pace_us ? node->step_us : pace_us;
        return world->now_us + early_us >= clock_due_us(world);
    }
    const uint64_t early = world->round.is_active ? stride / 4 : 0;
    return node->steps >= node->last_send_step + stride - early;
}

/* An encoded contribution counts once it is due, or once another node has begun the round. */
static void enter(struct world *world) {
    struct round *round = &world->round;
    const bool is_paced = world->setting->run.sync.pace == TW_PACE_CLOCK && !world->is_final;
    if (round->waiting == 0) return;
    if (is_paced && !round->is_active && world->now_us < clock_due_us(world)) return;
    if (!round->is_active) round->first_us = world->now_us;
    round->is_active = true;
    for (uint32_t i = 0; i < world->count; i++) {
        if ((round->waiting >> i & 1) != 0) round->heard_us[i] = world->now_us;
    }
    round->heard |= round->waiting;
    round->merged |= round->waiting & round->sound;
    round->waiting = 0;
}

static bool is_sound(struct world *world, const struct contribution *from) {
    const struct division *division = &world->round.division;
    for (uint32_t k = 0; k < division->parts; k++) {
        struct node *owner = &world->nodes[division->owners[k]];
        if (!node_check(owner, &from->parts[k], division->count[k], TW_CONTENT_DELTA)) return false;
    }
    return true;
}

enum tw_status round_contribute(struct world *world, struct node *node, struct tw_error *err) {
    struct round *round = &world->round;
    struct contribution *made = &round->from[node->index];
    if (world->dump != NULL && node->index == 0) {
        TW_TRY(dump_delta(world->dump, node, world->rounds, fragment_of(world), err));
    }
    const enum tw_status status =
        node_encode(node, world->rounds, fragment_of(world), &round->division, made, err);
    if (status == TW_CORRUPT) { /* the node's weights have diverged, so it contributes nothing */
        node->skipped++;
        node->last_send_step = node->steps;
        return TW_OK;
    }
    TW_TRY(status);
    for (uint32_t k = 0; k < round->division.parts; k++) {
        const uint32_t size = made->parts[k].size;
        world->traffic.coded += size;
        world->traffic.elements += round->division.count[k];
        if (round->division.owners[k] == node->index) continue;
        world->traffic.contributions += traffic_of(size);
    }
    if (round->is_closed) {
        world->traffic.missed++;
        return TW_OK;
    }
    round->waiting |= UINT64_C(1) << node->index;
    if (is_sound(world, made)) {
        round->sound |= UINT64_C(1) << node->index;
    } else {
        world->traffic.refused++;
    }
    return TW_OK;
}

/* ---- closing ------------------------------------------------------------------------------- */

static int order(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Returns a high median of the nodes' lateness plus 4 deviations, like grace_us of
 * sync/round/round.c. */
static uint64_t grace_us(const struct world *world) {
    const uint64_t most = (uint64_t)world->setting->run.sync.grace_ms * 1000;
    const uint32_t count =
        world->arrivals_count < WORLD_ARRIVALS_KEPT ? world->arrivals_count : WORLD_ARRIVALS_KEPT;
    uint64_t sorted[WORLD_ARRIVALS_KEPT];
    if (count < 8) return most;
    memcpy(sorted, world->arrivals_us, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), order);
    const uint64_t middle = sorted[count * 3 / 5];
    for (uint32_t i = 0; i < count; i++) {
        sorted[i] = sorted[i] > middle ? sorted[i] - middle : middle - sorted[i];
    }
    qsort(sorted, count, sizeof(*sorted), order);
    const uint64_t grace = middle + 4 * sorted[count / 2] + GRACE_FLOOR_US;
    return grace < most ? grace : most;
}

static void note_arrival(struct world *world, uint64_t late_us) {
    world->arrivals_us[world->arrivals_count++ % WORLD_ARRIVALS_KEPT] = late_us;
}

static bool intake_is_over(const struct world *world) {
    const struct round *round = &world->round;
    uint32_t live = 0, heard = 0;
    for (uint32_t i = 0; i < world->count; i++) {
        if (!has_seat(world, i)) continue;
        live += world->nodes[i].is_alive;
        heard += world->nodes[i].is_alive && (round->heard >> i & 1) != 0;
    }
    if (!round->is_active) return false;
    if (heard >= live || world->is_final) return true;
    const uint32_t quorum = world->setting->run.sync.quorum;
    const uint32_t ready = (uint32_t)__builtin_popcountll(round->merged);
    return world->now_us >= round->first_us + grace_us(world) &&
           ready >= (quorum < live ? quorum : live);
}

uint64_t round_deadline_us(const struct world *world) {
    const struct round *round = &world->round;
    if (round->is_closed) {
        return round->closed_us + (uint64_t)world->setting->latency_ms * 1000;
    }
    if (round->is_active) return round->first_us + grace_us(world);
    return round->waiting != 0 ? clock_due_us(world) : UINT64_MAX;
}

/* ---- committing ---------------------------------------------------------------------------- */

/* Returns true if a majority would vote for the part (sync/check/veto.c). */
static bool is_taken(struct world *world, const struct commit *commit, uint32_t part) {
    uint32_t live = 0, taking = 0;
    for (uint32_t i = 0; i < world->count; i++) {
        if (!world->nodes[i].is_alive) continue;
        live++;
        taking += i == commit->division.owners[part] ||
                  node_takes(&world->nodes[i], &commit->results[part], commit->fragment,
                             commit->division.begin[part], commit->division.count[part]);
    }
    return taking > live / 2;
}

/* Returns true for one part in sixteen. Its audit finds a committed lie (sync/check/audit.c). */
static bool is_audited(const struct world *world, const struct commit *commit, uint32_t part) {
    uint64_t state = world->setting->seed * 1000003 + commit->round * TW_PARTS_MAX + part;
    return tw_splitmix64(&state) % 16 == 0;
}

/* Merges all parts. A vetoed part becomes absent, and its owner gets a strike. */
static enum tw_status reduce(struct world *world, struct commit *commit, struct tw_error *err) {
    const struct round *round = &world->round;
    uint32_t live = 0;
    for (uint32_t i = 0; i < world->count; i++) live += world->nodes[i].is_alive;
    for (uint32_t k = 0; k < commit->division.parts; k++) {
        struct node *owner = &world->nodes[commit->division.owners[k]];
        struct payload *result = &commit->results[k];
        const uint64_t brought = round->merged & world->linked[owner->index];
        if (!owner->is_alive || brought == 0 || commit->division.count[k] == 0) continue;
        commit->listed[k] = brought;
        TW_TRY(node_reduce(owner, commit->round, commit->fragment, &commit->division, k,
                           round->from, &commit->listed[k], result, err));
        commit->refused |= brought & ~commit->listed[k];
        world->traffic.results += (live - 1) * traffic_of(result->size);
        world->traffic.refused += (uint64_t)__builtin_popcountll(brought & ~commit->listed[k]);
        if (world->jury != NULL) continue; /* the proposer decides instead */
        const bool is_lie = owner->is_hostile && world->setting->hostile.is_owner;
        if (is_lie && is_audited(world, commit, k)) owner->is_false = true;
        if (is_taken(world, commit, k)) continue;
        owner->strikes++;
        world->traffic.refused++;
        payload_free(result);
        commit->listed[k] = 0;
    }
    return TW_OK;
}

/* Returns the set of nodes that contributors can reach, as tw_reach_owners does. In a full mesh,
 * these are all nodes. */
static uint64_t owners_reached(const struct world *world) {
    uint64_t live = 0, owners = 0;
    uint32_t most = 0;
    for (uint32_t i = 0; i < world->count; i++) live |= (uint64_t)world->nodes[i].is_alive << i;
    for (uint32_t i = 0; i < world->count; i++) {
        const uint32_t links = (uint32_t)__builtin_popcountll(world->linked[i] & live);
        if ((live >> i & 1) != 0 && links > most) most = links;
    }
    for (uint32_t i = 0; i < world->count; i++) {
        const uint32_t links = (uint32_t)__builtin_popcountll(world->linked[i] & live);
        owners |= (uint64_t)(links >= most - most / REACH_ONE_IN) << i;
    }
    return owners;
}

static uint32_t owners_of(const struct world *world) {
    uint32_t owners = 0;
    for (uint32_t i = 0; i < world->count; i++) owners += world->nodes[i].is_owner;
    return owners;
}

/* Takes parts away from struck owners, most strikes first, up to so many owners. */
static void drop_struck(struct world *world, uint32_t most) {
    for (; most > 0; most--) {
        struct node *worst = NULL;
        for (uint32_t i = 0; i < world->count; i++) {
            struct node *node = &world->nodes[i];
            if (!node->is_owner || node->strikes == 0) continue;
            if (worst == NULL || node->strikes > worst->strikes) worst = node;
        }
        if (worst == NULL) return;
        worst->is_owner = false;
    }
}

/* Of the contributors, those that own parts of the next round, as in sync/round/proposal.c: no
 * owner whose part is absent now, and none that an audit found false. In groups with judges, other
 * strikes cost at most a third of the owners: a liar may have made all results look false. If
 * nobody is left, all live nodes are owners. */
static void choose_owners(struct world *world, const struct commit *commit) {
    for (uint32_t k = 0; k < commit->division.parts; k++) {
        if (commit->results[k].size == 0 && commit->division.count[k] > 0)
            world->nodes[commit->division.owners[k]].is_owner = false;
    }
    for (uint32_t i = 0; i < world->count; i++) {
        if (world->nodes[i].is_false) world->nodes[i].is_owner = false;
    }
    const uint32_t owners = owners_of(world);
    drop_struck(world, world->count >= TW_JUDGES_MIN ? owners / 3 : owners);
    if (owners_of(world) > 0) return;
    for (uint32_t i = 0; i < world->count; i++) world->nodes[i].is_owner = world->nodes[i].is_alive;
}

/* A node whose contribution is in the result of any part has contributed, and the clock counts its
 * tokens once. */
static uint64_t list(struct world *world, struct commit *commit) {
    const struct round *round = &world->round;
    const uint64_t grace = (uint64_t)world->setting->run.sync.grace_ms * 1000;
    const uint64_t reached = owners_reached(world);
    uint64_t listed = 0;
    double steps = 0, tokens = 0;
    for (uint32_t k = 0; k < commit->division.parts; k++) listed |= commit->listed[k];
    for (uint32_t i = 0; i < world->count; i++) {
        struct node *node = &world->nodes[i];
        const bool is_listed = (listed >> i & 1) != 0;
        if (is_listed) {
            note_arrival(world, round->heard_us[i] - round->first_us);
            world->clock += round->from[i].tokens;
            tokens += (double)round->from[i].fragment_tokens;
            steps += (double)round->from[i].fragment_tokens * round->from[i].fragment_steps;
            node->listed_tokens = node->delta_tokens[commit->fragment] = node->own_tokens;
            node->delta_steps[commit->fragment] = node->own_steps;
        } else if (node->is_alive) {
            note_arrival(world, grace);
        }
        node->is_owner = is_listed && node->is_alive && (reached >> i & 1) != 0;
    }
    choose_owners(world, commit);
    commit->steps = tokens > 0 ? (uint32_t)(steps / tokens + 0.5) : 0;
    return listed;
}

static void tell_clock(struct world *world, uint64_t listed) {
    const uint32_t contributors = (uint32_t)__builtin_popcountll(listed);
    for (uint32_t i = 0; i < world->count; i++) {
        world->nodes[i].told =
            (struct tw_wmsg_clock){.clock_tokens = world->clock,
                                   .tokens_listed = world->nodes[i].listed_tokens,
                                   .contributors = contributors};
    }
}

static struct commit *commit_new(struct world *world) {
    if (world->rounds == world->commits_room) {
        world->commits_room = world->commits_room * 2 + 64;
        world->commits = realloc(world->commits, world->commits_room * sizeof(*world->commits));
        TW_ASSERT(world->commits != NULL);
    }
    struct commit *commit = &world->commits[world->rounds];
    memset(commit, 0, sizeof(*commit));
    commit->round = world->rounds;
    commit->fragment = fragment_of(world);
    commit->is_final = world->is_final;
    commit->division = world->round.division;
    return commit;
}

static enum tw_status commit(struct world *world, struct tw_error *err) {
    struct commit *made = commit_new(world);
    uint64_t live = 0;
    for (uint32_t i = 0; i < world->count; i++) live += world->nodes[i].is_alive;
    world->traffic.control += live * (live - 1) * CONTROL_BYTES;
    world->rounds++;
    world->last_commit_us = world->now_us;
    TW_TRY(reduce(world, made, err));
    if (world->jury != NULL) TW_TRY(proposer_decide(world, made, err));
    tell_clock(world, list(world, made));
    round_open(world);
    return TW_OK;
}

enum tw_status round_advance(struct world *world, struct tw_error *err) {
    struct round *round = &world->round;
    enter(world);
    if (!round->is_closed && intake_is_over(world)) {
        round->is_closed = true;
        round->closed_us = world->now_us;
    }
    if (!round->is_closed || world->now_us < round_deadline_us(world)) return TW_OK;
    return commit(world, err);
}

/* ---- applying ------------------------------------------------------------------------------ */

/* Frees the payloads of a round once every live node has applied it. */
static void forget(struct world *world, const struct commit *commit) {
    for (uint32_t i = 0; i < world->count; i++) {
        if (world->nodes[i].is_alive && world->nodes[i].applied <= commit->round) return;
    }
    struct commit *gone = &world->commits[commit->round];
    for (uint32_t k = 0; k < gone->division.parts; k++) payload_free(&gone->results[k]);
}

enum tw_status round_apply(struct world *world, struct node *node, struct tw_error *err) {
    while (node->is_alive && node->applied < world->rounds) {
        struct commit *next = &world->commits[node->applied];
        const uint64_t least = node->last_send_step + world->setting->run.sync.overlap;
        if (!world->is_final && node->steps < least) return TW_OK;
        TW_TRY(node_apply(node, next, err));
        forget(world, next);
    }
    return TW_OK;
}
