/* fetch.c - entry points of the fetcher: start, events, requests to each peer in turn, actions. */
#include "sync/fetch/fetch_internal.h"

size_t tw_fetch_bytes(void) {
    return sizeof(struct tw_fetch);
}

void tw_fetch_wake(struct tw_fetch *fetch, uint64_t at_us) {
    if (at_us < fetch->deadline_us) fetch->deadline_us = at_us;
}

uint64_t tw_fetch_deadline(const struct tw_fetch *fetch) {
    return fetch->deadline_us;
}

uint64_t tw_fetch_credit_us(const struct tw_fetch *fetch) {
    if (fetch->download == NULL) return 0;
    const bool is_starving = fetch->now_us >= fetch->paid_us + TW_FETCH_STARVED_US;
    const uint64_t full = is_starving ? 1 : TW_CHUNK_BYTES_MAX;
    return tw_rate_wait_us(fetch->download, full, fetch->now_us);
}

void tw_fetch_set_download(struct tw_fetch *fetch, struct tw_rate *download) {
    fetch->download = download;
}

void tw_fetch_init(struct tw_fetch *fetch, const struct tw_id *self, uint64_t now_us) {
    memset(fetch, 0, sizeof(*fetch));
    fetch->self = *self;
    fetch->now_us = now_us;
    fetch->deadline_us = UINT64_MAX;
    fetch->first = TW_FETCH_INDEX;
    fetch->plain.file = TW_FETCH_INDEX;
    for (uint16_t at = 0; at < TW_PEERS_MAX; at++) tw_fetch_peer_down(fetch, at);
    for (uint32_t i = 0; i < 8; i++) fetch->seed |= (uint64_t)self->bytes[i] << (8 * i);
    fetch->turn = (uint16_t)(fetch->seed % TW_PEERS_MAX);
    fetch->index.chunks = fetch->index.left = INDEX_CHUNKS_MAX;
}

/* ---- actions ------------------------------------------------------------------------------- */

struct tw_fetch_action *tw_fetch_act(struct tw_fetch *fetch, enum tw_fetch_action_kind kind,
                                     uint32_t file) {
    TW_ASSERT(fetch->actions_end < ACTIONS_MAX);
    struct tw_fetch_action *action = &fetch->actions[fetch->actions_end++];
    *action = (struct tw_fetch_action){.kind = kind, .peer = TW_FETCH_NO_PEER, .file = file};
    action->hash = *tw_fetch_hash(fetch, file);
    return action;
}

bool tw_fetch_next_action(struct tw_fetch *fetch, struct tw_fetch_action *action) {
    if (fetch->actions_begin == fetch->actions_end) return false;
    *action = fetch->actions[fetch->actions_begin++];
    return true;
}

/* ---- the walk ------------------------------------------------------------------------------ */

static void begin_call(struct tw_fetch *fetch, uint64_t now_us) {
    TW_ASSERT(fetch->actions_begin == fetch->actions_end);
    TW_ASSERT(now_us >= fetch->now_us);
    fetch->actions_begin = fetch->actions_end = 0;
    fetch->now_us = now_us;
}

/* Requests every missing chunk that is not already under way. Runs after every event, so that no
 * event needs a request of its own. */
static void advance(struct tw_fetch *fetch) {
    fetch->deadline_us = UINT64_MAX;
    if (fetch->needs_order) tw_fetch_sort(fetch);
    for (uint16_t at = 0; at < TW_PEERS_MAX; at++) tw_fetch_peer_walk(fetch, at);
    tw_fetch_plain_walk(fetch);
    const bool is_paused = fetch->now_us < fetch->pause_us;
    if (is_paused) tw_fetch_wake(fetch, fetch->pause_us);
    if (tw_fetch_credit_us(fetch) > 0)
        tw_fetch_wake(fetch, fetch->now_us + tw_fetch_credit_us(fetch));
    fetch->turn = (uint16_t)((fetch->turn + 1) % TW_PEERS_MAX);
    for (uint16_t i = 0; i < TW_PEERS_MAX && !is_paused; i++) {
        const uint16_t at = (uint16_t)((fetch->turn + i) % TW_PEERS_MAX);
        if (tw_fetch_room(fetch, &fetch->peers[at]) > 0) tw_fetch_fill(fetch, at);
    }
    /* A peer may have become the source in the loop above. */
    if (fetch->plain.is_active && !fetch->plain.is_checking)
        tw_fetch_wake(fetch, fetch->plain.until_us);
    for (uint16_t at = 0; at < TW_PEERS_MAX; at++) tw_fetch_peer_wake(fetch, &fetch->peers[at]);
}

/* ---- chunks -------------------------------------------------------------------------------- */

static bool is_needed(struct tw_fetch *fetch, uint32_t file, uint32_t idx) {
    if (tw_fetch_is_here(fetch, file, idx)) return false;
    if (idx > 0 && tw_fetch_needs_first(fetch, file))
        return false; /* chunk 0 is lost too: the head with the digests of the pieces */
    for (uint32_t i = 0; i < TW_FETCH_ASKED_MAX; i++) {
        const struct check *check = &fetch->checks[i];
        if (check->is_used && !check->is_stale && check->file == file && check->idx == idx)
            return false;
    }
    return true;
}

static bool take_chunk(struct tw_fetch *fetch, const struct check *what, uint32_t *number) {
    if (fetch->under_way == TW_FETCH_ASKED_MAX)
        return false; /* a late chunk would exceed the limit */
    uint32_t row = 0;
    while (row < TW_FETCH_ASKED_MAX && fetch->checks[row].is_used) row++;
    TW_ASSERT(row < TW_FETCH_ASKED_MAX);
    fetch->checks[row] = *what;
    fetch->under_way++;
    tw_fetch_state(fetch, what->file)->under_way++;
    if (tw_fetch_is_plain(fetch, what->file)) fetch->plain.checks++;
    *number = row;
    return true;
}

static enum tw_fetch_verdict judge_chunk(struct tw_fetch *fetch, struct fetch_peer *peer,
                                         const struct ask *ask, uint32_t size, uint32_t *number) {
    const uint32_t expected = tw_fetch_size(fetch, ask->file, ask->idx);
    const struct check check = {
        .is_used = true, .file = ask->file, .idx = ask->idx, .size = size, .from = peer->id};
    if (size == 0 || size > TW_CHUNK_BYTES_MAX || (expected != 0 && size != expected)) {
        tw_fetch_strike(fetch, &peer->id, ask->file);
        return TW_FETCH_DROP;
    }
    tw_fetch_peer_sent(fetch, peer, ask, size);
    if (!is_needed(fetch, ask->file, ask->idx) || !take_chunk(fetch, &check, number)) {
        fetch->chunks_dropped++;
        fetch->changes++;
        return TW_FETCH_DROP;
    }
    fetch->chunks_taken++;
    peer->chunks_taken++;
    return TW_FETCH_TAKE;
}

enum tw_fetch_verdict tw_fetch_chunk(struct tw_fetch *fetch, const struct tw_fetch_arrival *arrival,
                                     struct tw_fetch_taken *taken, uint64_t now_us) {
    TW_ASSERT(arrival->peer < TW_PEERS_MAX);
    begin_call(fetch, now_us);
    struct fetch_peer *peer = &fetch->peers[arrival->peer];
    enum tw_fetch_verdict verdict = TW_FETCH_UNKNOWN;
    for (uint32_t i = 0; i < peer->asks_count; i++) {
        const struct ask ask = peer->asks[i];
        if (ask.idx != arrival->idx || !tw_id_equal(tw_fetch_hash(fetch, ask.file), &arrival->hash))
            continue;
        tw_fetch_unask(fetch, peer, i);
        taken->file = ask.file;
        verdict = judge_chunk(fetch, peer, &ask, arrival->size, &taken->number);
        break;
    }
    if (verdict != TW_FETCH_UNKNOWN) advance(fetch);
    return verdict;
}

/* ---- events -------------------------------------------------------------------------------- */

static void on_stored(struct tw_fetch *fetch, const struct tw_fetch_event *event) {
    TW_ASSERT(event->number < TW_FETCH_ASKED_MAX);
    const struct check check = fetch->checks[event->number];
    const bool is_plain = tw_fetch_is_plain(fetch, check.file);
    TW_ASSERT(check.is_used);
    fetch->checks[event->number].is_used = false;
    fetch->under_way--;
    if (is_plain) fetch->plain.checks--;
    if (is_plain || event->result != TW_FETCH_OK || check.is_stale) fetch->changes++;
    if (event->result == TW_FETCH_FAILED) fetch->pause_us = fetch->now_us + TW_FETCH_FAILED_US;
    if (!check.is_stale) tw_fetch_state(fetch, check.file)->under_way--;
    /* Wrong bytes are a strike even if the chunk is no longer needed. */
    bool is_wrong = event->result == TW_FETCH_WRONG;
    const bool is_here = !check.is_stale && event->result == TW_FETCH_OK &&
                         tw_fetch_state(fetch, check.file)->left > 0;
    if (is_here && check.file == TW_FETCH_INDEX && check.idx == 0)
        is_wrong = !tw_fetch_plain_sized(fetch, event->index_bytes, check.size);
    if (is_wrong) tw_fetch_strike(fetch, &check.from, check.file);
    if (!is_here || is_wrong) return;
    tw_fetch_put(fetch, check.file, check.idx);
    if (is_plain) {
        tw_fetch_plain_stored(fetch);
    } else if (tw_fetch_state(fetch, check.file)->left == 0) {
        tw_fetch_is_whole(fetch, check.file);
        (void)tw_fetch_act(fetch, TW_FETCH_WHOLE, check.file);
    }
}

static void on_missing(struct tw_fetch *fetch, uint16_t at, const struct tw_id *hash) {
    struct fetch_peer *peer = &fetch->peers[at];
    struct plain *plain = &fetch->plain;
    uint32_t file = TW_FETCH_ALL;
    for (uint32_t i = 0; i < peer->asks_count; i++) {
        if (tw_id_equal(tw_fetch_hash(fetch, peer->asks[i].file), hash)) file = peer->asks[i].file;
    }
    if (file == TW_FETCH_ALL) return;
    peer->is_partial = true;
    peer->is_silent = false;
    peer->silences = 0;
    tw_fetch_forget(fetch, peer, file);
    tw_fetch_miss(fetch, peer, file);
    if (plain->is_active && plain->file == file && plain->source == at) tw_fetch_plain_reset(fetch);
}

static void on_lost(struct tw_fetch *fetch, uint32_t file) {
    TW_ASSERT(file < fetch->files_count);
    const bool was_whole =
        fetch->states[file].left == 0 && !(fetch->plain.is_active && fetch->plain.file == file);
    tw_fetch_plain_left(fetch, file);
    for (uint32_t i = 0; i < TW_FETCH_ASKED_MAX; i++) {
        struct check *check = &fetch->checks[i];
        if (!check->is_used || check->is_stale || check->file != file) continue;
        check->is_stale = true;
        fetch->states[file].under_way--;
    }
    if (was_whole) {
        fetch->files_whole--;
        fetch->bytes_whole -= fetch->files[file].bytes;
        fetch->train_whole -= fetch->files[file].kind == TW_FETCH_TRAIN;
    }
    tw_fetch_clear(fetch, file);
}

void tw_fetch_event(struct tw_fetch *fetch, const struct tw_fetch_event *event, uint64_t now_us) {
    begin_call(fetch, now_us);
    TW_ASSERT(event->peer < TW_PEERS_MAX);
    switch (event->kind) {
    case TW_FETCH_TICK: break;
    case TW_FETCH_START:
        TW_ASSERT(!fetch->is_started && !fetch->has_index);
        fetch->is_started = true;
        fetch->index_hash = event->id;
        fetch->changes++;
        break;
    case TW_FETCH_PEER_UP: tw_fetch_peer_up(fetch, event->peer, &event->id); break;
    case TW_FETCH_PEER_DOWN: tw_fetch_peer_down(fetch, event->peer); break;
    case TW_FETCH_MISSING: on_missing(fetch, event->peer, &event->id); break;
    case TW_FETCH_STORED: on_stored(fetch, event); break;
    case TW_FETCH_CHECKED:
        if (event->result == TW_FETCH_FAILED) fetch->pause_us = now_us + TW_FETCH_FAILED_US;
        tw_fetch_plain_checked(fetch, event->file, event->result);
        break;
    case TW_FETCH_LOST: on_lost(fetch, event->file); break;
    }
    advance(fetch);
}

/* ---- files that the folder has already ------------------------------------------------------ */

void tw_fetch_have_file(struct tw_fetch *fetch, uint32_t file) {
    begin_call(fetch, fetch->now_us);
    struct file_state *state = tw_fetch_state(fetch, file);
    TW_ASSERT(file < fetch->files_count);
    const bool was_whole =
        state->left == 0 && !(fetch->plain.is_active && fetch->plain.file == file);
    tw_fetch_plain_left(fetch, file);
    for (uint32_t idx = 0; idx < state->chunks; idx++) tw_fetch_put(fetch, file, idx);
    if (!was_whole) tw_fetch_is_whole(fetch, file);
    fetch->changes++;
    tw_fetch_wake(fetch, fetch->now_us);
}

void tw_fetch_have(struct tw_fetch *fetch, uint32_t file, uint32_t idx) {
    begin_call(fetch, fetch->now_us);
    TW_ASSERT(file < fetch->files_count && !tw_fetch_is_plain(fetch, file));
    if (tw_fetch_is_here(fetch, file, idx)) return;
    tw_fetch_put(fetch, file, idx);
    tw_fetch_wake(fetch, fetch->now_us);
    if (fetch->states[file].left > 0) return;
    tw_fetch_is_whole(fetch, file);
    (void)tw_fetch_act(fetch, TW_FETCH_WHOLE, file);
}
