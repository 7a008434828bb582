#include "tests/sync/mesh.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/rng.h"
#include "tests/sync/signing.h"

enum { MESSAGE_US = 10000, WORK_US = 1000, STEP_US = 100000, BYTES = 100 };

struct tw_id mesh_digest(uint64_t value) {
    return tw_sha256(&value, sizeof(value));
}

static void post(struct mesh *mesh, uint32_t to, uint64_t delay_us, const struct tw_event *event) {
    TW_ASSERT(mesh->events_count < MESH_EVENTS_MAX);
    mesh->events[mesh->events_count++] = (struct mesh_event){
        .at_us = mesh->now_us + delay_us, .seq = mesh->seq++, .to = to, .event = *event};
}

static void post_answer(struct mesh *mesh, uint32_t node, const struct tw_event *event) {
    if (mesh->workers[node].is_up) post(mesh, node, WORK_US, event);
}

static void answer_applied(struct mesh *mesh, uint32_t node, uint32_t fragment, uint64_t rounds) {
    struct mesh_worker *worker = &mesh->workers[node];
    worker->rounds[fragment] = rounds;
    struct tw_event event = {.kind = TW_EV_APPLIED, .ok = true};
    event.u.applied.fragment = fragment;
    event.u.applied.rounds = rounds;
    event.u.applied.digest = mesh_digest(worker->phi[fragment]);
    post_answer(mesh, node, &event);
}

static void answer_encode(struct mesh *mesh, uint32_t node, const struct tw_action *action) {
    struct tw_event event = {.kind = TW_EV_ENCODED, .ok = true};
    event.u.encoded.round = action->u.encode.round;
    event.u.encoded.step = mesh->workers[node].step;
    event.u.encoded.tokens = mesh->workers[node].tokens;
    event.u.encoded.cursor = mesh->is_unplaced[node] ? 0 : mesh->workers[node].tokens;
    event.u.encoded.parts_count = action->u.encode.parts_count;
    event.ok = !mesh->is_poor[node];
    for (uint32_t k = 0; event.ok && k < action->u.encode.parts_count; k++) {
        if (action->u.encode.parts[k].count == 0) continue;
        event.u.encoded.hashes[k] = mesh_digest(mesh->workers[node].tokens * 64 + node + k * 8);
        event.u.encoded.bytes[k] = BYTES;
    }
    post_answer(mesh, node, &event);
}

static void answer_reduce(struct mesh *mesh, uint32_t node, const struct tw_action *action) {
    struct tw_event event = {.kind = TW_EV_REDUCED, .ok = true};
    struct tw_id sum = {{0}};
    for (uint32_t i = 0; i < action->u.reduce.inputs_count; i++) {
        for (unsigned b = 0; b < 32; b++) sum.bytes[b] ^= action->inputs[i].bytes[b];
    }
    event.u.reduced.round = action->u.reduce.round;
    event.u.reduced.part = action->u.reduce.part;
    event.u.reduced.is_audit = action->u.reduce.is_audit;
    event.u.reduced.hash = tw_sha256(sum.bytes, 32);
    event.u.reduced.bytes = BYTES;
    post_answer(mesh, node, &event);
}

static void answer_apply(struct mesh *mesh, uint32_t node, const struct tw_action *action) {
    struct mesh_worker *worker = &mesh->workers[node];
    const uint32_t fragment = action->u.apply.fragment;
    TW_ASSERT(worker->rounds[fragment] <= action->u.apply.round);
    for (uint32_t k = 0; k < action->u.apply.parts_count; k++) {
        uint64_t value = 0;
        if (action->u.apply.parts[k].mode == TW_APPLY_ABSENT) continue;
        memcpy(&value, action->inputs[k].bytes, sizeof(value));
        worker->phi[fragment] = worker->phi[fragment] * 3 + value;
    }
    answer_applied(mesh, node, fragment, action->u.apply.round + 1);
}

void mesh_say(struct mesh *mesh, uint32_t from, uint32_t to, const struct tw_message *message) {
    if (!mesh->is_linked[from][to]) return;
    struct tw_message *copy = malloc(sizeof(*copy));
    TW_ASSERT(copy != NULL);
    *copy = *message;
    post(mesh, to, MESSAGE_US, &(struct tw_event){.kind = TW_EV_MESSAGE, .peer = (uint16_t)from});
    mesh->events[mesh->events_count - 1].message = copy;
}

static void send_message(struct mesh *mesh, uint32_t node, const struct tw_action *action) {
    const uint32_t to = action->peer;
    if (!mesh->is_linked[node][to]) return;
    static struct tw_message said;
    struct tw_message *copy = &said;
    *copy = *action->u.message;
    mesh->states_asked += copy->kind == TW_MSG_STATE_GET;
    if (mesh->is_liar[node] && copy->kind == TW_MSG_PAIR_OFFER)
        copy->u.pair_offer.clock_tokens = UINT64_MAX;
    if (mesh->is_boaster[node] && copy->kind == TW_MSG_STATUS)
        copy->u.status.clock_tokens = UINT64_C(1) << 40;
    if (mesh->says != NULL && !mesh->says(mesh, node, to, copy)) return;
    mesh_say(mesh, node, to, copy);
}

static void load_state(struct mesh *mesh, uint32_t node, const struct tw_action *action) {
    const uint32_t fragment = action->u.load.fragment;
    const uint64_t phi_before = mesh->workers[node].phi[fragment];
    if (!tw_id_is_zero(
            &action->inputs[0])) /* the value is part of the payload's name: see export_state() */
        memcpy(&mesh->workers[node].phi[fragment], action->inputs[0].bytes, 8);
    const struct tw_id digest = mesh_digest(mesh->workers[node].phi[fragment]);
    TW_ASSERT(tw_id_equal(&digest, &action->u.load.digest) || action->u.load.mode == TW_LOAD_BACK);
    if (mesh->config.is_pair && action->u.load.mode == TW_LOAD_TURN) {
        for (uint32_t p = 0; p < mesh->config.fragments_count; p++)
            mesh_pair_load(&mesh->workers[node], p, TW_LOAD_RESET, 0);
    } else if (mesh->config.is_pair)
        mesh_pair_load(&mesh->workers[node], fragment, action->u.load.mode, phi_before);
    answer_applied(mesh, node, fragment, action->u.load.rounds);
}

/* Name of a packed (phi, u). export_state() writes the value into its first 8 bytes. */
static struct tw_id state_name(uint32_t fragment) {
    return mesh_digest(fragment + 77);
}

static bool is_state(const struct tw_id *hash) {
    for (uint32_t p = 0; p < MESH_FRAGMENTS_MAX; p++) {
        const struct tw_id name = state_name(p);
        if (memcmp(name.bytes + 8, hash->bytes + 8, sizeof(name.bytes) - 8) == 0) return true;
    }
    return false;
}

static void export_state(struct mesh *mesh, uint32_t node, const struct tw_action *action) {
    struct tw_event event = {.kind = TW_EV_EXPORTED, .ok = true};
    const uint32_t fragment = action->u.export.fragment;
    event.u.exported.fragment = fragment;
    event.u.exported.rounds = mesh->workers[node].rounds[fragment];
    event.u.exported.digest = mesh_digest(mesh->workers[node].phi[fragment]);
    event.u.exported.hash = state_name(fragment);
    memcpy(event.u.exported.hash.bytes, &mesh->workers[node].phi[fragment], 8);
    event.u.exported.bytes =
        mesh->chunk_us[node] > 0 ? mesh->state_chunks * TW_CHUNK_BYTES_MAX : BYTES;
    if (mesh->workers[node].is_up) post(mesh, node, WORK_US + mesh->export_us, &event);
}

/* Returns the table row of a payload that the node holds, or NULL. The zero name finds a free row.
 */
static struct tw_id *find_held(struct mesh *mesh, uint32_t node, const struct tw_id *hash) {
    for (uint32_t i = 0; i < MESH_HELD_MAX; i++) {
        if (tw_id_equal(&mesh->held[node][i], hash)) return &mesh->held[node][i];
    }
    return NULL;
}

/* Returns whether one of `these` nodes holds the payload. Since no node verifies its own payloads,
 * the payload is then theirs. */
static bool is_of(struct mesh *mesh, const bool *these, const struct tw_id *hash) {
    for (uint32_t i = 0; i < mesh->nodes_count; i++) {
        if (these[i] && find_held(mesh, i, hash) != NULL) return true;
    }
    return false;
}

/* A score with a noise of at most 1.5, from the round and the two nodes. */
static void answer_judge(struct mesh *mesh, uint32_t node, const struct tw_action *action) {
    struct tw_event event = {.kind = TW_EV_JUDGED, .ok = !mesh->is_no_juror[node]};
    uint32_t of = 0;
    while (tw_get_u64(mesh->ids[of].bytes) != action->u.judge.seed) of++;
    uint64_t state = action->u.judge.draw;
    event.u.judged.round = action->u.judge.round;
    event.u.judged.score = mesh->score[of] + (int32_t)(tw_splitmix64(&state) % 3001) - 1500;
    event.u.judged.share = 500;
    mesh->judged[node][of]++;
    post(mesh, node, 20 * WORK_US, &event);
}

static void put_held(struct mesh *mesh, uint32_t node, const struct tw_id *hash) {
    const struct tw_id none = {{0}};
    if (find_held(mesh, node, hash) != NULL) return;
    struct tw_id *place = find_held(mesh, node, &none);
    TW_ASSERT(place != NULL);
    *place = *hash;
}

static void drop_held(struct mesh *mesh, uint32_t node, const struct tw_id *hash) {
    struct tw_id *place = find_held(mesh, node, hash);
    if (place != NULL) *place = (struct tw_id){{0}};
}

static void answer_pair_encode(struct mesh *mesh, uint32_t node, const struct tw_action *action) {
    struct tw_event event = {.kind = TW_EV_ENCODED, .ok = true};
    event.u.encoded.round = action->u.pair_encode.round;
    event.u.encoded.step = mesh->workers[node].step;
    event.u.encoded.tokens = mesh->workers[node].tokens;
    event.u.encoded.parts_count = TW_PAIR_PAYLOADS;
    event.ok = !mesh->is_poor[node];
    if (event.ok) mesh_pair_encode(mesh, node, action, event.u.encoded.hashes);
    for (unsigned k = 0; event.ok && k < TW_PAIR_PAYLOADS; k++) {
        event.u.encoded.bytes[k] = BYTES;
        put_held(mesh, node, &event.u.encoded.hashes[k]);
    }
    post_answer(mesh, node, &event);
}

static void answer_pair_apply(struct mesh *mesh, uint32_t node, const struct tw_action *action) {
    struct mesh_worker *worker = &mesh->workers[node];
    const uint32_t fragment = action->u.pair_apply.fragment;
    TW_ASSERT(worker->rounds[fragment] <= action->u.pair_apply.round);
    for (unsigned k = 0; k < TW_PAIR_PAYLOADS && !action->u.pair_apply.is_alone; k++) {
        TW_ASSERT(find_held(mesh, node, &action->inputs[k]) != NULL);
        TW_ASSERT(find_held(mesh, node, &action->inputs[TW_PAIR_THEIRS + k]) != NULL);
    }
    struct tw_event event = {.kind = TW_EV_APPLIED, .ok = true};
    event.u.applied.is_outlier =
        !action->u.pair_apply.is_alone && !mesh->is_giant[node] &&
        is_of(mesh, mesh->is_giant, &action->inputs[TW_PAIR_THEIRS + TW_PAIR_DELTA]);
    event.u.applied.is_alone = mesh_pair_apply(mesh, node, action, event.u.applied.is_outlier);
    worker->rounds[fragment] = action->u.pair_apply.round + 1;
    event.u.applied.fragment = fragment;
    event.u.applied.rounds = worker->rounds[fragment];
    event.u.applied.digest = mesh_digest(worker->phi[fragment]);
    post_answer(mesh, node, &event);
}

/* Queues a chunk of a state behind the others on the node's uplink, unless it is queued already. */
static void queue_chunk(struct mesh *mesh, uint32_t node, uint16_t to,
                        const struct tw_event *chunk) {
    uint64_t *const free_us = &mesh->uplink_free_us[node];
    for (uint32_t i = 0; i < mesh->events_count; i++) {
        const struct mesh_event *event = &mesh->events[i];
        if (event->event.kind == TW_EV_CHUNK && event->to == to && event->event.peer == node &&
            event->event.u.chunk.idx == chunk->u.chunk.idx &&
            tw_id_equal(&event->event.u.chunk.hash, &chunk->u.chunk.hash))
            return;
    }
    if (*free_us < mesh->now_us) *free_us = mesh->now_us;
    *free_us += mesh->chunk_us[node];
    mesh->chunks_sent++;
    post(mesh, to, *free_us - mesh->now_us + MESSAGE_US, chunk);
}

/* Drops the chunks of this payload (NULL: all messages and chunks) that the node has yet to send.
 */
static void drop_unsent(struct mesh *mesh, uint32_t node, const struct tw_id *hash) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < mesh->events_count; i++) {
        const struct mesh_event *event = &mesh->events[i];
        const bool is_chunk = event->event.kind == TW_EV_CHUNK && event->event.peer == node;
        const bool is_message = event->event.kind == TW_EV_MESSAGE && event->event.peer == node;
        const bool is_sent = event->at_us <= mesh->now_us + MESSAGE_US;
        const bool is_meant = hash == NULL
                                  ? is_chunk || is_message
                                  : is_chunk && tw_id_equal(&event->event.u.chunk.hash, hash);
        if (is_meant && !is_sent) {
            free(event->message);
        } else {
            mesh->events[kept++] = *event;
        }
    }
    mesh->events_count = kept;
}

static void take_action(struct mesh *mesh, uint32_t node, const struct tw_action *action) {
    struct tw_event event = {.ok = true};
    switch (action->kind) {
    case TW_ACT_SEND: send_message(mesh, node, action); break;
    case TW_ACT_CLOSE: mesh_unlink(mesh, node, action->peer); break;
    case TW_ACT_SEND_CHUNK:
        event.kind = TW_EV_CHUNK;
        event.peer = (uint16_t)node;
        event.u.chunk.hash = action->u.payload.hash;
        event.u.chunk.idx = action->u.payload.idx;
        if (mesh->is_mute[node] || mesh->is_starved[action->peer]) break;
        if (!mesh->is_linked[node][action->peer]) break;
        if (mesh->gives != NULL && !mesh->gives(mesh, node, action->peer, &event.u.chunk.hash))
            break;
        if (mesh->chunk_us[node] > 0 && is_state(&event.u.chunk.hash)) {
            queue_chunk(mesh, node, action->peer, &event);
            break;
        }
        post(mesh, action->peer,
             MESSAGE_US + mesh->far_us[node][action->peer] +
                 (is_state(&event.u.chunk.hash) ? mesh->state_us[action->peer] : 0),
             &event);
        break;
    case TW_ACT_VERIFY:
        event.kind = TW_EV_VERIFIED;
        event.u.chunk.hash = action->u.payload.hash;
        if (action->u.payload.content == TW_CONTENT_DELTA &&
            is_of(mesh, mesh->is_garbler, &event.u.chunk.hash)) {
            event.ok = false;
            event.u.chunk.is_unfit = true;
        }
        if (mesh->rates != NULL && action->u.payload.content == TW_CONTENT_RESULT)
            event.u.chunk.sanity = mesh->rates(mesh, node, &event.u.chunk.hash);
        post(mesh, node, WORK_US, &event);
        break;
    case TW_ACT_ENCODE: answer_encode(mesh, node, action); break;
    case TW_ACT_REDUCE: answer_reduce(mesh, node, action); break;
    case TW_ACT_JUDGE: answer_judge(mesh, node, action); break;
    case TW_ACT_GATHER: TW_NEVER("a run without crews");
    case TW_ACT_APPLY: answer_apply(mesh, node, action); break;
    case TW_ACT_PAIR_ENCODE: answer_pair_encode(mesh, node, action); break;
    case TW_ACT_PAIR_APPLY: answer_pair_apply(mesh, node, action); break;
    case TW_ACT_SOLO:
        if (mesh->config.is_pair) {
            mesh_pair_solo(&mesh->workers[node], action->u.solo.fragment);
            answer_applied(mesh, node, action->u.solo.fragment, action->u.solo.round + 1);
            break;
        }
        mesh->workers[node].phi[action->u.solo.fragment] = mesh->workers[node].tokens * 1000 + node;
        answer_applied(mesh, node, action->u.solo.fragment, action->u.solo.round + 1);
        break;
    case TW_ACT_EXPORT: export_state(mesh, node, action); break;
    case TW_ACT_LOAD: load_state(mesh, node, action); break;
    case TW_ACT_STORE_VOTE:
        if (mesh->is_disk_full[node]) break;
        mesh->votes[node] = *action->u.store.vote;
        mesh->has_vote[node] = true;
        event.kind = TW_EV_STORED;
        event.u.store_seq = action->u.store.seq;
        post(mesh, node, WORK_US, &event);
        break;
    case TW_ACT_FINISH: mesh->workers[node].is_finished = !action->u.finish.goes_on; break;
    case TW_ACT_REPORT:
        if (action->u.report.kind == TW_REPORT_ROUND_COMMITTED) {
            mesh->commits[node]++;
            mesh->merged[node] +=
                action->u.report.record->contributors_count > mesh->nodes_count / 2;
        }
        mesh->forks[node] += action->u.report.kind == TW_REPORT_LINEAGE;
        if (action->u.report.kind == TW_REPORT_PAIRED)
            mesh->paired[node][action->u.report.id.bytes[0] / 0x11 - 1]++;
        break;
    case TW_ACT_DROP:
        drop_held(mesh, node, &action->u.payload.hash);
        if (mesh->chunk_us[node] > 0) drop_unsent(mesh, node, &action->u.payload.hash);
        break;
    case TW_ACT_EXPECT:
    case TW_ACT_CLOCK: break;
    }
}

static void take_actions(struct mesh *mesh, uint32_t node) {
    struct tw_action action;
    while (tw_node_next_action(mesh->nodes[node], &action)) {
        if (mesh->tap.acts != NULL) mesh->tap.acts(mesh, node, &action);
        take_action(mesh, node, &action);
    }
}

void mesh_deliver(struct mesh *mesh, uint32_t node, const struct tw_event *event) {
    if (mesh->is_down[node]) return;
    if (mesh->config.is_pair && event->kind == TW_EV_VERIFIED)
        put_held(mesh, node, &event->u.chunk.hash);
    if (mesh->tap.hears != NULL) mesh->tap.hears(mesh, node, event);
    tw_node_event(mesh->nodes[node], event, mesh->now_us);
    take_actions(mesh, node);
    if (mesh->tap.ends != NULL) mesh->tap.ends(mesh, node);
}

void mesh_init(struct mesh *mesh, uint32_t nodes_count, uint32_t fragments_count) {
    memset(mesh, 0, sizeof(*mesh));
    TW_ASSERT(nodes_count <= MESH_NODES_MAX && fragments_count <= MESH_FRAGMENTS_MAX);
    mesh->nodes_count = nodes_count;
    mesh->now_us = 1000000;
    mesh->events = malloc(MESH_EVENTS_MAX * sizeof(*mesh->events));
    mesh->merges = malloc(MESH_MERGES_MAX * sizeof(*mesh->merges));
    TW_ASSERT(mesh->events != NULL && mesh->merges != NULL);
    mesh->config = (struct tw_node_config){.fragments_count = fragments_count,
                                           .period_steps = 10,
                                           .overlap_steps = 2,
                                           .quorum = 1,
                                           .grace_us = 2000000,
                                           .budget_tokens = UINT64_MAX,
                                           .members_max = 64,
                                           .weight = 1,
                                           .orphan_us = 120000000};
    for (uint32_t p = 0; p < fragments_count; p++) mesh->config.fragment_elements[p] = 65536;
    for (uint32_t i = 0; i < nodes_count; i++) mesh->step_us[i] = STEP_US;
    for (uint32_t i = 0; i < nodes_count; i++) mesh_start(mesh, i, NULL);
}

void mesh_deinit(struct mesh *mesh) {
    for (uint32_t i = 0; i < mesh->events_count; i++) free(mesh->events[i].message);
    for (uint32_t i = 0; i < mesh->nodes_count; i++) free(mesh->nodes[i]);
    free(mesh->events);
    free(mesh->merges);
}

void mesh_start(struct mesh *mesh, uint32_t node, const struct tw_position *position) {
    struct tw_node_config config = mesh->config;
    config.self.bytes[0] = (uint8_t)(0x11 * (node + 1));
    config.run.bytes[0] = 0xAA;
    mesh->ids[node] = config.self;
    config.signing = signing_as(&mesh->ids[node]);
    config.seed = node;
    config.lacks_vote = mesh->lacks_vote[node];
    config.boot = ++mesh->boots[node];
    if (mesh->nodes[node] == NULL)
        mesh->nodes[node] = aligned_alloc(64, (tw_node_bytes() + 63) / 64 * 64);
    TW_ASSERT(mesh->nodes[node] != NULL);
    mesh->is_down[node] = false;
    const struct tw_vote *vote = mesh->has_vote[node] ? &mesh->votes[node] : NULL;
    tw_node_init(mesh->nodes[node], &config, position, vote, mesh->now_us);
    take_actions(mesh, node);
    if (position == NULL) memset(&mesh->workers[node], 0, sizeof(mesh->workers[node]));
    mesh->workers[node].is_finished = false;
    mesh_start_worker(mesh, node);
}

void mesh_start_worker(struct mesh *mesh, uint32_t node) {
    struct mesh_worker *worker = &mesh->workers[node];
    worker->is_up = true;
    worker->step_due_us = mesh->now_us + mesh->step_us[node];
    struct tw_event event = {.kind = TW_EV_WORKER_UP, .ok = true};
    static struct tw_worker_state state;
    event.u.worker = &state;
    state.step = worker->step;
    state.tokens = worker->tokens;
    for (uint32_t p = 0; p < mesh->config.fragments_count; p++) {
        state.fragment_rounds[p] = worker->rounds[p];
        state.fragment_digests[p] = mesh_digest(worker->phi[p]);
    }
    mesh_deliver(mesh, node, &event);
}

static bool is_answer_of_worker(enum tw_event_kind kind) {
    return kind == TW_EV_ENCODED || kind == TW_EV_REDUCED || kind == TW_EV_APPLIED ||
           kind == TW_EV_EXPORTED;
}

void mesh_stop_worker(struct mesh *mesh, uint32_t node) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < mesh->events_count; i++) {
        const struct mesh_event *event = &mesh->events[i];
        if (event->to == node && is_answer_of_worker(event->event.kind)) continue;
        mesh->events[kept++] = *event;
    }
    mesh->events_count = kept;
    mesh->workers[node].is_up = false;
    for (uint32_t p = 0; p < MESH_FRAGMENTS_MAX; p++) mesh->workers[node].pair[p].has_sent = false;
    mesh_deliver(mesh, node, &(struct tw_event){.kind = TW_EV_WORKER_DOWN});
}

void mesh_kill(struct mesh *mesh, uint32_t node) {
    for (uint32_t i = 0; i < mesh->nodes_count; i++) {
        if (mesh->is_linked[node][i]) mesh_unlink(mesh, node, i);
    }
    mesh->is_down[node] = true;
    mesh->workers[node].is_up = false;
    memset(mesh->held[node], 0, sizeof(mesh->held[node]));
    uint32_t kept = 0;
    for (uint32_t i = 0; i < mesh->events_count; i++) {
        if (mesh->events[i].to == node) {
            free(mesh->events[i].message);
        } else {
            mesh->events[kept++] = mesh->events[i];
        }
    }
    mesh->events_count = kept;
}

void mesh_stop(struct mesh *mesh, uint32_t node) {
    mesh->is_down[node] = true;
    drop_unsent(mesh, node, NULL);
}

void mesh_leave(struct mesh *mesh, uint32_t node) {
    mesh_deliver(mesh, node, &(struct tw_event){.kind = TW_EV_LEAVE});
    mesh_run(mesh, 2 * MESSAGE_US);
    mesh_kill(mesh, node);
}

void mesh_link(struct mesh *mesh, uint32_t a, uint32_t b) {
    if (mesh->is_linked[a][b] || mesh->is_down[a] || mesh->is_down[b]) return;
    mesh->is_linked[a][b] = mesh->is_linked[b][a] = true;
    for (unsigned side = 0; side < 2; side++) {
        const uint32_t to = side == 0 ? a : b, from = side == 0 ? b : a;
        struct tw_event event = {.kind = TW_EV_PEER_UP,
                                 .peer = (uint16_t)from,
                                 .lacks_roles = mesh->lacks_roles[from],
                                 .lacks_vote = mesh->lacks_vote[from]};
        event.u.id.bytes[0] = (uint8_t)(0x11 * (from + 1));
        mesh_deliver(mesh, to, &event);
    }
}

void mesh_unlink(struct mesh *mesh, uint32_t a, uint32_t b) {
    if (!mesh->is_linked[a][b]) return;
    mesh->is_linked[a][b] = mesh->is_linked[b][a] = false;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < mesh->events_count; i++) { /* messages in flight are lost */
        struct mesh_event *event = &mesh->events[i];
        const bool is_link = event->event.kind == TW_EV_MESSAGE || event->event.kind == TW_EV_CHUNK;
        if (is_link && ((event->to == a && event->event.peer == b) ||
                        (event->to == b && event->event.peer == a))) {
            free(event->message);
        } else {
            mesh->events[kept++] = *event;
        }
    }
    mesh->events_count = kept;
    post(mesh, a, 0, &(struct tw_event){.kind = TW_EV_PEER_DOWN, .peer = (uint16_t)b});
    post(mesh, b, 0, &(struct tw_event){.kind = TW_EV_PEER_DOWN, .peer = (uint16_t)a});
}

void mesh_link_all(struct mesh *mesh) {
    for (uint32_t a = 0; a < mesh->nodes_count; a++) {
        for (uint32_t b = 0; b < a; b++) {
            if (!mesh->is_cut[a][b] && !mesh->is_cut[b][a]) mesh_link(mesh, a, b);
        }
    }
}

/* Runs the earliest of: a posted event, a worker's step, a node's deadline. */
static void run_next(struct mesh *mesh) {
    uint64_t at_us = UINT64_MAX;
    uint32_t first = UINT32_MAX, stepper = UINT32_MAX, ticker = UINT32_MAX;
    for (uint32_t i = 0; i < mesh->events_count; i++) {
        const struct mesh_event *event = &mesh->events[i];
        if (event->at_us < at_us || (event->at_us == at_us && first != UINT32_MAX &&
                                     event->seq < mesh->events[first].seq)) {
            at_us = event->at_us;
            first = i;
        }
    }
    for (uint32_t i = 0; i < mesh->nodes_count; i++) {
        if (mesh->is_down[i]) continue;
        if (mesh->workers[i].is_up && !mesh->workers[i].is_finished &&
            mesh->workers[i].step_due_us < at_us) {
            at_us = mesh->workers[i].step_due_us;
            stepper = i;
            ticker = UINT32_MAX;
        }
        if (tw_node_deadline(mesh->nodes[i]) < at_us) {
            at_us = tw_node_deadline(mesh->nodes[i]);
            ticker = i;
            stepper = UINT32_MAX;
        }
    }
    TW_ASSERT(at_us != UINT64_MAX);
    if (at_us > mesh->now_us) mesh->now_us = at_us;
    if (ticker != UINT32_MAX) {
        mesh_deliver(mesh, ticker, &(struct tw_event){.kind = TW_EV_TICK});
    } else if (stepper != UINT32_MAX) {
        struct mesh_worker *worker = &mesh->workers[stepper];
        worker->step++;
        worker->tokens += 100;
        mesh_pair_step(worker, stepper, mesh->config.fragments_count);
        worker->step_due_us += mesh->step_us[stepper];
        struct tw_event event = {.kind = TW_EV_STEP};
        event.u.step.step = worker->step;
        event.u.step.tokens = worker->tokens;
        mesh_deliver(mesh, stepper, &event);
    } else {
        struct mesh_event event = mesh->events[first];
        mesh->events[first] = mesh->events[--mesh->events_count];
        event.event.u.message = event.message != NULL ? event.message : event.event.u.message;
        mesh_deliver(mesh, event.to, &event.event);
        free(event.message);
    }
}

void mesh_run(struct mesh *mesh, uint64_t for_us) {
    const uint64_t end_us = mesh->now_us + for_us;
    uint64_t turns = 0;
    while (mesh->now_us < end_us) {
        run_next(mesh);
        TW_ASSERT(++turns < 100 * 1000 * 1000);
    }
}

struct tw_node_view mesh_view(const struct mesh *mesh, uint32_t node) {
    struct tw_node_view view;
    tw_node_view(mesh->nodes[node], &view);
    return view;
}

bool mesh_agree(const struct mesh *mesh, uint32_t a, uint32_t b) {
    const struct tw_node_view left = mesh_view(mesh, a), right = mesh_view(mesh, b);
    bool is_equal = tw_id_equal(&left.lineage, &right.lineage);
    for (uint32_t p = 0; p < mesh->config.fragments_count; p++) {
        const struct mesh_worker *one = &mesh->workers[a], *other = &mesh->workers[b];
        is_equal &= one->rounds[p] != other->rounds[p] || one->phi[p] == other->phi[p];
    }
    return is_equal;
}
