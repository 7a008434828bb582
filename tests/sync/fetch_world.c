/* fetch_world.c - the virtual network, its clock, and how each node answers a PULL. */
#include "tests/sync/fetch_world.h"

#include <stdlib.h>

#include "tests/sync/fetch_audit.h"
#include "tests/test.h"

/* ---- event queue ----------------------------------------------------------------------------- */

static bool is_sooner(const struct world_event *a, const struct world_event *b) {
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->seq < b->seq;
}

static void push(struct world *world, struct world_event event) {
    assert_true(world->heap_count < WORLD_EVENTS_MAX);
    event.seq = world->seq++;
    uint32_t at = world->heap_count++;
    while (at > 0 && is_sooner(&event, &world->heap[(at - 1) / 2])) {
        world->heap[at] = world->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    world->heap[at] = event;
}

static struct world_event pop(struct world *world) {
    const struct world_event top = world->heap[0], last = world->heap[--world->heap_count];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= world->heap_count) break;
        if (child + 1 < world->heap_count &&
            is_sooner(&world->heap[child + 1], &world->heap[child]))
            child++;
        if (!is_sooner(&world->heap[child], &last)) break;
        world->heap[at] = world->heap[child];
        at = child;
    }
    world->heap[at] = last;
    return top;
}

/* ---- the dataset --------------------------------------------------------------------------- */

void world_init(struct world *world, uint32_t heldout, uint32_t train, uint32_t pieces,
                uint64_t seed) {
    memset(world, 0, sizeof(*world));
    tw_rng_seed(&world->rng, seed);
    world->latency_us = 20 * 1000;
    world->index_hash = (struct tw_id){{0xDD}};
    world->index_bytes = TW_CHUNK_BYTES_MAX + 1000;
    world->files_count = 1 + heldout + train;
    assert_true(world->files_count <= WORLD_FILES_MAX && pieces < WORLD_CHUNKS_MAX);
    for (uint32_t i = 0; i < world->files_count; i++) {
        struct tw_fetch_file *file = &world->files[i];
        *file = (struct tw_fetch_file){.hash = {{1, (uint8_t)i, (uint8_t)(i >> 8)}},
                                       .kind = TW_FETCH_TRAIN};
        file->head_bytes = 4096;
        file->bytes = 4096 + (uint64_t)pieces * TW_CHUNK_BYTES_MAX - 100;
        if (i <= heldout) file->kind = TW_FETCH_HELDOUT;
    }
    world->files[0].kind = TW_FETCH_TOKENIZER;
    world->files[0].head_bytes = 0;
    world->files[0].bytes = 2 * TW_CHUNK_BYTES_MAX + 5;
}

void world_deinit(struct world *world) {
    for (uint32_t i = 0; i < world->nodes_count; i++) {
        free(world->nodes[i].fetch);
        free(world->nodes[i].memory);
    }
}

static const struct tw_fetch_file *file_named(const struct world *world, const struct tw_id *hash,
                                              uint32_t *number) {
    static struct tw_fetch_file index;
    index = (struct tw_fetch_file){.hash = world->index_hash, .bytes = world->index_bytes};
    *number = TW_FETCH_INDEX;
    if (tw_id_equal(hash, &index.hash)) return &index;
    for (uint32_t i = 0; i < world->files_count; i++) {
        *number = i;
        if (tw_id_equal(hash, &world->files[i].hash)) return &world->files[i];
    }
    fail_msg("a PULL of no file of the dataset");
    return NULL;
}

uint64_t world_bytes(const struct world *world) {
    uint64_t bytes = world->index_bytes;
    for (uint32_t i = 0; i < world->files_count; i++) bytes += world->files[i].bytes;
    return bytes;
}

uint32_t world_chunks(const struct world *world) {
    uint32_t chunks = 2;
    for (uint32_t i = 0; i < world->files_count; i++) chunks += tw_fetch_chunks(&world->files[i]);
    return chunks;
}

/* ---- nodes --------------------------------------------------------------------------------- */

static uint16_t node_add(struct world *world, uint64_t bytes_per_s) {
    assert_true(world->nodes_count < WORLD_NODES_MAX);
    const uint16_t at = (uint16_t)world->nodes_count++;
    struct world_fetcher *node = &world->nodes[at];
    const size_t bytes = (tw_fetch_bytes() + 63) / 64 * 64;
    node->is_up = true;
    node->bytes_per_s = bytes_per_s;
    node->store_us = 1000;
    node->struck = TW_FETCH_NO_PEER;
    for (uint32_t i = 0; i < 32; i++) node->id.bytes[i] = (uint8_t)tw_rng_next(&world->rng);
    node->fetch = aligned_alloc(64, bytes);
    assert_non_null(node->fetch);
    tw_fetch_init(node->fetch, &node->id, world->now_us);
    return at;
}

void world_know(struct world *world, uint16_t at) {
    struct world_fetcher *node = &world->nodes[at];
    struct tw_error err;
    size_t bytes = 0;
    assert_int_equal(tw_fetch_plan(world->files, world->files_count, &bytes, &err), TW_OK);
    node->memory = malloc(bytes); /* exact size, so that a sanitizer reports any access beyond it */
    assert_non_null(node->memory);
    tw_fetch_files(node->fetch, world->files, world->files_count, node->memory, world->now_us);
    for (uint32_t i = 0; i < world->files_count; i++) {
        if (node->has[i]) tw_fetch_have_file(node->fetch, i);
    }
    node->has_index = node->knows_files = true;
}

void world_have(struct world *world, uint16_t at, uint32_t file, uint32_t idx) {
    if (idx == 0) world->nodes[at].has_head[file] = true;
    tw_fetch_have(world->nodes[at].fetch, file, idx);
    world_drain(world, at);
}

void world_lose(struct world *world, uint16_t at, uint32_t file) {
    const struct tw_fetch_event lost = {.kind = TW_FETCH_LOST, .file = file};
    world->nodes[at].has[file] = world->nodes[at].has_head[file] = false;
    world_tell(world, at, &lost);
}

uint16_t world_donor(struct world *world, uint64_t bytes_per_s) {
    const uint16_t at = node_add(world, bytes_per_s);
    memset(world->nodes[at].has, 1, sizeof(world->nodes[at].has));
    world_know(world, at);
    return at;
}

uint16_t world_joiner(struct world *world, uint64_t bytes_per_s) {
    const uint16_t at = node_add(world, bytes_per_s);
    struct tw_fetch_event event = {.kind = TW_FETCH_START, .id = world->index_hash};
    world->nodes[at].is_started = true;
    world_tell(world, at, &event);
    return at;
}

static void link_one_way(struct world *world, uint16_t at, uint16_t peer, bool is_up) {
    struct tw_fetch_event event = {.kind = is_up ? TW_FETCH_PEER_UP : TW_FETCH_PEER_DOWN};
    event.peer = peer;
    event.id = world->nodes[peer].id;
    world_tell(world, at, &event);
}

void world_link(struct world *world, uint16_t a, uint16_t b) {
    world->links[a][b] = world->links[b][a] = true;
    world->epochs[a][b] = ++world->epochs[b][a];
    link_one_way(world, a, b, true);
    link_one_way(world, b, a, true);
}

void world_unlink(struct world *world, uint16_t a, uint16_t b) {
    world->links[a][b] = world->links[b][a] = false;
    world->epochs[a][b] = ++world->epochs[b][a];
    link_one_way(world, a, b, false);
    link_one_way(world, b, a, false);
}

void world_mesh(struct world *world) {
    for (uint16_t a = 0; a < world->nodes_count; a++) {
        for (uint16_t b = 0; b < a; b++) {
            if (!world->links[a][b]) world_link(world, a, b);
        }
    }
}

bool world_is_whole(const struct world *world, uint16_t at) {
    const struct world_fetcher *node = &world->nodes[at];
    bool is_whole = node->knows_files;
    for (uint32_t i = 0; i < world->files_count; i++) is_whole &= node->has[i];
    return is_whole;
}

struct tw_fetch_view world_view(const struct world *world, uint16_t at) {
    struct tw_fetch_view view;
    tw_fetch_view(world->nodes[at].fetch, world->now_us, &view);
    return view;
}

/* ---- actions of a fetcher -------------------------------------------------------------------- */

static struct world_event new_message(struct world *world, uint16_t from, uint16_t to) {
    struct world_event event = {.at_us = world->now_us + world->latency_us};
    event.from = from;
    event.to = to;
    event.epoch = world->epochs[from][to];
    return event;
}

static void judge_pull(struct world *world, uint16_t at, const struct tw_fetch_action *action) {
    struct world_fetcher *node = &world->nodes[at];
    const uint16_t peer = action->peer;
    uint32_t number = 0;
    const struct tw_fetch_file *file = file_named(world, &action->hash, &number);
    const struct tw_fetch_view view = world_view(world, at);
    assert_int_equal(number, action->file);
    assert_true(peer < world->nodes_count && world->links[at][peer]);
    assert_true(action->count > 0 && action->first + action->count <= tw_fetch_chunks(file));
    /* A piece cannot be checked without the head. */
    assert_true(file->head_bytes == 0 || action->first + action->count == 1 ||
                node->has_head[number]);
    assert_true(view.peers[peer].is_up && !view.peers[peer].is_silent);
    assert_int_equal(view.peers[peer].banned_until_us, 0);
    assert_in_range(view.peers[peer].asked, 1, TW_FETCH_WINDOW_MAX);
    node->pulls_sent++;
    node->pulls_of[peer]++;
    node->last_pull_us[peer] = world->now_us;
    node->asked_of[peer] += action->count;
    for (uint32_t i = 0; number != TW_FETCH_INDEX && i < action->count; i++)
        node->copies[number][action->first + i]++;
}

static void take_action(struct world *world, uint16_t at, const struct tw_fetch_action *action) {
    struct world_fetcher *node = &world->nodes[at];
    struct world_event event = new_message(world, at, action->peer % WORLD_NODES_MAX);
    switch (action->kind) {
    case TW_FETCH_PULL:
        judge_pull(world, at, action);
        event.kind = EV_PULL;
        event.hash = action->hash;
        event.idx = action->first;
        event.count = action->count;
        push(world, event);
        break;
    case TW_FETCH_CHECK:
        event = (struct world_event){.at_us = world->now_us + node->store_us, .kind = EV_CHECKED};
        event.to = at;
        event.file = action->file;
        push(world, event);
        break;
    case TW_FETCH_WHOLE:
        assert_true(action->file < world->files_count && !node->has[action->file]);
        node->has[action->file] = true;
        node->whole_us[action->file] = world->now_us;
        node->order[node->order_count++ % WORLD_FILES_MAX] = action->file;
        break;
    case TW_FETCH_STRIKE:
        node->strikes++;
        node->struck = action->peer;
        node->struck_until_us = action->until_us;
        break;
    }
}

void world_drain(struct world *world, uint16_t at) {
    struct tw_fetch_action action;
    while (tw_fetch_next_action(world->nodes[at].fetch, &action)) take_action(world, at, &action);
    tw_fetch_audit(world->nodes[at].fetch);
}

void world_tell(struct world *world, uint16_t at, const struct tw_fetch_event *event) {
    tw_fetch_event(world->nodes[at].fetch, event, world->now_us);
    world_drain(world, at);
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Answers a PULL according to the peer's manner. */
static void on_pull(struct world *world, const struct world_event *pull) {
    struct world_fetcher *node = &world->nodes[pull->to];
    uint32_t number = 0, size = 0;
    uint64_t offset = 0;
    const struct tw_fetch_file *file = file_named(world, &pull->hash, &number);
    const bool has = number == TW_FETCH_INDEX ? node->has_index : node->has[number];
    struct world_event event = new_message(world, pull->to, pull->from);
    event.hash = pull->hash;
    if (node->manner == MUTE) return;
    if (!has || node->manner == LACKING) {
        event.kind = EV_MISSING;
        push(world, event);
        return;
    }
    event.kind = EV_CHUNK;
    event.is_bad = node->manner == LIAR;
    const uint32_t count = node->manner == HALF_HEART ? 1 : pull->count;
    for (uint32_t i = 0; i < count; i++) {
        event.idx = pull->idx + i;
        tw_fetch_range(file, event.idx, &offset, &size);
        if (node->free_us < world->now_us) node->free_us = world->now_us;
        node->free_us += (uint64_t)size * MB / node->bytes_per_s;
        event.at_us = node->free_us + world->latency_us;
        event.size = node->manner == MISSIZED ? size - 1 : size;
        node->chunks_sent++;
        push(world, event);
    }
}

static void on_chunk(struct world *world, const struct world_event *chunk) {
    struct world_fetcher *node = &world->nodes[chunk->to];
    const struct tw_fetch_arrival arrival = {
        .peer = chunk->from, .hash = chunk->hash, .idx = chunk->idx, .size = chunk->size};
    struct tw_fetch_taken taken;
    const enum tw_fetch_verdict verdict =
        tw_fetch_chunk(node->fetch, &arrival, &taken, world->now_us);
    if (verdict == TW_FETCH_TAKE) {
        struct world_event event = {.kind = EV_STORED, .at_us = world->now_us + node->store_us};
        assert_true(taken.number < TW_FETCH_ASKED_MAX);
        event.to = chunk->to;
        event.number = taken.number;
        event.file = taken.file;
        event.idx = chunk->idx;
        event.is_bad = chunk->is_bad;
        if (taken.file != TW_FETCH_INDEX && world->files[taken.file].head_bytes > 0)
            assert_true(chunk->idx == 0 || node->has_head[taken.file]);
        node->chunks_taken++;
        if (++node->checks_open > node->checks_most) node->checks_most = node->checks_open;
        push(world, event);
    }
    world_drain(world, chunk->to);
}

static void on_stored(struct world *world, const struct world_event *stored) {
    struct world_fetcher *node = &world->nodes[stored->to];
    struct tw_fetch_event event = {.kind = TW_FETCH_STORED, .number = stored->number};
    const bool is_index = stored->file == TW_FETCH_INDEX;
    node->checks_open--;
    if (is_index || world->files[stored->file].head_bytes == 0) {
        uint64_t *poison = is_index ? &node->poison_index : &node->poison[stored->file];
        *poison &= ~(UINT64_C(1) << stored->idx);
        if (stored->is_bad) *poison |= UINT64_C(1) << stored->idx;
    } else if (stored->is_bad) {
        event.result = TW_FETCH_WRONG;
    }
    if (node->fails_to_store) event.result = TW_FETCH_FAILED;
    if (!is_index && stored->idx == 0 && event.result == TW_FETCH_OK)
        node->has_head[stored->file] = true;
    if (is_index && stored->idx == 0) event.index_bytes = world->index_bytes;
    world_tell(world, stored->to, &event);
}

static void on_checked(struct world *world, const struct world_event *checked) {
    struct world_fetcher *node = &world->nodes[checked->to];
    struct tw_fetch_event event = {.kind = TW_FETCH_CHECKED, .file = checked->file};
    const bool is_index = checked->file == TW_FETCH_INDEX;
    const uint64_t poison = is_index ? node->poison_index : node->poison[checked->file];
    if (poison != 0) event.result = TW_FETCH_WRONG;
    world_tell(world, checked->to, &event);
    if (is_index && event.result == TW_FETCH_OK) world_know(world, checked->to);
}

static void deliver_event(struct world *world, const struct world_event *event) {
    const bool is_message = event->kind <= EV_CHUNK;
    if (is_message && (!world->links[event->from][event->to] ||
                       event->epoch != world->epochs[event->from][event->to]))
        return;
    switch (event->kind) {
    case EV_PULL: on_pull(world, event); break;
    case EV_CHUNK: on_chunk(world, event); break;
    case EV_STORED: on_stored(world, event); break;
    case EV_CHECKED: on_checked(world, event); break;
    case EV_MISSING: {
        const struct tw_fetch_event missing = {
            .kind = TW_FETCH_MISSING, .peer = event->from, .id = event->hash};
        world_tell(world, event->to, &missing);
        break;
    }
    }
}

/* Runs the next message or deadline due by at_us. Returns false if there is none; the clock then
 * shows at_us. */
static bool run_next(struct world *world, uint64_t at_us) {
    uint64_t next_us = world->heap_count > 0 ? world->heap[0].at_us : UINT64_MAX;
    uint16_t due = WORLD_NODES_MAX;
    for (uint16_t i = 0; i < world->nodes_count; i++) {
        const uint64_t deadline_us = tw_fetch_deadline(world->nodes[i].fetch);
        if (deadline_us >= next_us) continue;
        next_us = deadline_us;
        due = i;
    }
    if (next_us > at_us) {
        world->now_us = at_us;
        return false;
    }
    if (next_us > world->now_us) world->now_us = next_us;
    if (due < WORLD_NODES_MAX) {
        world_tell(world, due, &(struct tw_fetch_event){.kind = TW_FETCH_TICK});
        assert_true(tw_fetch_deadline(world->nodes[due].fetch) > world->now_us); /* no busy loop */
        return true;
    }
    const struct world_event event = pop(world);
    deliver_event(world, &event);
    return true;
}

void world_run_until(struct world *world, uint64_t at_us) {
    while (run_next(world, at_us)) continue;
}

void world_run_whole(struct world *world, uint16_t node, uint64_t limit_us) {
    const uint64_t at_us = world->now_us + limit_us;
    while (!world_is_whole(world, node)) {
        if (run_next(world, at_us)) continue;
        const struct tw_fetch_view view = world_view(world, node);
        fail_msg("node %u: stage %d, %u of %u files after %llu s", node, (int)view.stage,
                 view.files_whole, view.files_count, (unsigned long long)(limit_us / MB));
    }
    assert_int_equal(world_view(world, node).stage, TW_FETCH_DONE);
    assert_int_equal(world_view(world, node).bytes_here, world_view(world, node).bytes_count);
}
