/* fetch.c - the fetcher of datasets: its peers, the plain file under way, events, view. */
#include "sync/fetch/fetch_internal.h"

/* ---- queueing and waking --------------------------------------------------------------------- */

static struct tw_fetch_action *push_action(struct tw_fetch *fetch, enum tw_fetch_action_kind kind,
                                           uint32_t file) {
    TW_ASSERT(fetch->actions_end < ACTIONS_MAX);
    struct tw_fetch_action *action = &fetch->actions[fetch->actions_end++];
    *action = (struct tw_fetch_action){.kind = kind, .peer = TW_FETCH_NO_PEER, .file = file};
    action->hash = *tw_fetch_hash(fetch, file);
    return action;
}

void tw_fetch_wake(struct tw_fetch *fetch, uint64_t at_us) {
    if (at_us < fetch->deadline_us) fetch->deadline_us = at_us;
}

/* Returns the time until the download cap allows another chunk. */
static uint64_t credit_left_us(const struct tw_fetch *fetch) {
    if (fetch->download == NULL) return 0;
    const bool is_starving = fetch->now_us >= fetch->paid_us + TW_FETCH_STARVED_US;
    const uint64_t full = is_starving ? 1 : TW_CHUNK_BYTES_MAX;
    return tw_rate_wait_us(fetch->download, full, fetch->now_us);
}

/* Restarts the plain file under way with another source: below, under plain files. */
static void reset_plain(struct tw_fetch *fetch);

/* ==== peers =================================================================================== */

/* The peers of the fetcher: speed, missing files, bans.
 *
 *   usable -> SILENT    nothing arrived for TW_FETCH_SILENT_US plus 4 times its time per chunk: its
 *                       asks are late, and the chunks may be requested from others
 *   SILENT -> usable    a late chunk or MISSING arrives; or TW_FETCH_RETRY_US << silences have
 *                       passed: its late asks are forgotten, and one chunk is requested
 *   any -> BANNED       it sent a wrong chunk: banned on any link for the time set in penalty.c */

enum { SILENCES_MAX = 4 }; /* number of doublings of the pause before a retry */

static bool can_ask(const struct fetch_peer *peer) {
    return peer->is_up && !peer->is_silent && peer->banned_until_us == 0;
}

static uint32_t window(const struct fetch_peer *peer) {
    if (peer->chunk_us == 0) return 1;
    const uint32_t ahead = TW_FETCH_AHEAD_US / peer->chunk_us + 1;
    if (ahead < 2) return 2;
    return ahead < TW_FETCH_WINDOW_MAX ? ahead : TW_FETCH_WINDOW_MAX;
}

uint32_t tw_fetch_room(const struct tw_fetch *fetch, const struct fetch_peer *peer) {
    const uint32_t most = window(peer);
    if (!can_ask(peer) || peer->asks_count >= most) return 0;
    if (credit_left_us(fetch) > 0) return 0;
    const bool is_capped = fetch->download != NULL && fetch->download->per_s > 0;
    const uint32_t here = is_capped ? 1 : most - peer->asks_count;
    const uint32_t in_all = TW_FETCH_ASKED_MAX - fetch->under_way;
    return here < in_all ? here : in_all;
}

void tw_fetch_ask(struct tw_fetch *fetch, uint16_t at, uint32_t file, uint32_t first,
                  uint32_t count) {
    struct fetch_peer *peer = &fetch->peers[at];
    TW_ASSERT(count > 0 && count <= tw_fetch_room(fetch, peer));
    if (peer->asks_count == 0) peer->heard_us = fetch->now_us;
    for (uint32_t i = 0; i < count; i++) {
        peer->asks[peer->asks_count++] =
            (struct ask){.asked_us = fetch->now_us, .file = file, .idx = first + i};
    }
    fetch->paid_us = fetch->now_us;
    if (fetch->download != NULL)
        tw_rate_spend(fetch->download, (uint64_t)count * TW_CHUNK_BYTES_MAX, fetch->now_us);
    tw_fetch_state(fetch, file)->under_way += (uint16_t)count;
    fetch->under_way += count;
    struct tw_fetch_action *action = push_action(fetch, TW_FETCH_PULL, file);
    action->peer = at;
    action->first = first;
    action->count = count;
}

/* Clears the twin flag of the requests for this chunk, of which one of two has ended. */
static void untwin(struct tw_fetch *fetch, uint32_t file, uint32_t idx) {
    for (uint32_t p = 0; p < TW_PEERS_MAX; p++) {
        struct fetch_peer *peer = &fetch->peers[p];
        for (uint32_t i = 0; i < peer->asks_count; i++) {
            if (peer->asks[i].file == file && peer->asks[i].idx == idx)
                peer->asks[i].is_twin = false;
        }
    }
}

static void end_under_way(struct tw_fetch *fetch, const struct ask *ask) {
    if (ask->is_late) return;
    struct file_state *state = tw_fetch_state(fetch, ask->file);
    TW_ASSERT(state->under_way > 0);
    TW_ASSERT(fetch->under_way > 0);
    state->under_way--;
    fetch->under_way--;
}

static void unask(struct tw_fetch *fetch, struct fetch_peer *peer, uint32_t i) {
    const struct ask ask = peer->asks[i];
    end_under_way(fetch, &ask);
    peer->asks_count--;
    for (uint32_t k = i; k < peer->asks_count; k++) peer->asks[k] = peer->asks[k + 1];
    if (ask.is_twin) untwin(fetch, ask.file, ask.idx);
}

/* Forgets all asks of a file, or of every file (ALL_FILES). */
static void forget_asks(struct tw_fetch *fetch, struct fetch_peer *peer, uint32_t file) {
    for (uint32_t i = peer->asks_count; i-- > 0;) {
        if (file == ALL_FILES || peer->asks[i].file == file) unask(fetch, peer, i);
    }
    fetch->changes++;
}

/* ---- missing files --------------------------------------------------------------------------- */

bool tw_fetch_lacks(const struct fetch_peer *peer, uint32_t file, uint64_t now_us) {
    for (uint32_t i = 0; i < peer->misses_count; i++) {
        if (peer->misses[i].file == file && peer->misses[i].until_us > now_us) return true;
    }
    return false;
}

static void note_miss(struct tw_fetch *fetch, struct fetch_peer *peer, uint32_t file) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < peer->misses_count; i++) {
        if (peer->misses[i].until_us > fetch->now_us && peer->misses[i].file != file)
            peer->misses[kept++] = peer->misses[i];
    }
    /* A peer with a full table gets no requests, but it may still answer earlier ones with MISSING.
     * The oldest row is then dropped. */
    if (kept == TW_FETCH_MISSES_MAX) {
        kept--;
        for (uint32_t i = 0; i < kept; i++) peer->misses[i] = peer->misses[i + 1];
    }
    peer->misses[kept++] =
        (struct miss){.file = file, .until_us = fetch->now_us + TW_FETCH_MISSING_US};
    peer->misses_count = kept;
    fetch->changes++;
}

/* ---- coming and going ------------------------------------------------------------------------ */

static uint64_t seed_of(const struct tw_id *id) {
    uint64_t seed = 0;
    for (uint32_t i = 0; i < 8; i++) seed |= (uint64_t)id->bytes[i] << (8 * i);
    return seed;
}

static void on_peer_down(struct tw_fetch *fetch, uint16_t at) {
    struct fetch_peer *peer = &fetch->peers[at];
    struct plain *plain = &fetch->plain;
    forget_asks(fetch, peer, ALL_FILES);
    if (plain->is_active && plain->source == at) {
        if (plain->is_checking)
            plain->source = TW_FETCH_NO_PEER;
        else
            reset_plain(fetch);
    }
    *peer = (struct fetch_peer){.idle_us = UINT64_MAX, .idle_changes = UINT64_MAX};
}

static void on_peer_up(struct tw_fetch *fetch, uint16_t at, const struct tw_id *id) {
    struct fetch_peer *peer = &fetch->peers[at];
    const struct tw_penalty *ban = tw_penalty_find(fetch->bans, TW_FETCH_BANS_MAX, id);
    on_peer_down(fetch, at);
    peer->is_up = true;
    peer->id = *id;
    peer->seed = seed_of(id);
    peer->current = TW_FETCH_INDEX;
    if (ban != NULL && ban->until_us > fetch->now_us) peer->banned_until_us = ban->until_us;
}

static void note_sent(struct tw_fetch *fetch, struct fetch_peer *peer, const struct ask *ask,
                      uint32_t size) {
    const uint64_t since_us =
        peer->sent_us > ask->asked_us && peer->has_sent ? peer->sent_us : ask->asked_us;
    uint64_t took_us = fetch->now_us - since_us;
    if (took_us > TW_FETCH_CHUNK_US_MAX) took_us = TW_FETCH_CHUNK_US_MAX;
    if (took_us == 0) took_us = 1;
    if (peer->chunk_us == 0)
        peer->chunk_us = (uint32_t)took_us;
    else if (size >= TW_CHUNK_BYTES_MAX / 2) /* a short chunk says little about the rate */
        peer->chunk_us = (uint32_t)((3 * (uint64_t)peer->chunk_us + took_us + 3) / 4);
    peer->has_sent = true;
    peer->sent_us = peer->heard_us = fetch->now_us;
    peer->is_silent = false;
    peer->silences = 0;
    peer->idle_changes = UINT64_MAX; /* with this peer's new speed, chunks of slower peers may be
                                        requested from it */
}

/* ---- silence and strikes --------------------------------------------------------------------- */

static void fall_silent(struct tw_fetch *fetch, uint16_t at) {
    struct fetch_peer *peer = &fetch->peers[at];
    fetch->changes++;
    peer->is_silent = true;
    peer->retry_us = fetch->now_us + ((uint64_t)TW_FETCH_RETRY_US << peer->silences);
    if (peer->silences < SILENCES_MAX) peer->silences++;
    for (uint32_t i = 0; i < peer->asks_count; i++) {
        struct ask *ask = &peer->asks[i];
        end_under_way(fetch, ask);
        ask->is_late = true;
        if (ask->is_twin) untwin(fetch, ask->file, ask->idx);
    }
}

static uint64_t silent_at_us(const struct fetch_peer *peer) {
    return peer->heard_us + TW_FETCH_SILENT_US + 4 * (uint64_t)peer->chunk_us;
}

static void walk_peer(struct tw_fetch *fetch, uint16_t at) {
    struct fetch_peer *peer = &fetch->peers[at];
    if (!peer->is_up) return;
    if (peer->banned_until_us != 0 && fetch->now_us >= peer->banned_until_us)
        peer->banned_until_us = 0;
    if (peer->is_silent && fetch->now_us >= peer->retry_us) {
        forget_asks(fetch, peer, ALL_FILES);
        peer->is_silent = false;
        peer->chunk_us = 0;
    }
    if (!peer->is_silent && peer->asks_count > 0 && fetch->now_us >= silent_at_us(peer))
        fall_silent(fetch, at);
}

static void wake_for_peer(struct tw_fetch *fetch, const struct fetch_peer *peer) {
    if (!peer->is_up) return;
    if (peer->banned_until_us != 0) tw_fetch_wake(fetch, peer->banned_until_us);
    if (peer->is_silent) tw_fetch_wake(fetch, peer->retry_us);
    if (!peer->is_silent && peer->asks_count > 0) tw_fetch_wake(fetch, silent_at_us(peer));
    if (tw_fetch_room(fetch, peer) > 0 && peer->idle_us > fetch->now_us)
        tw_fetch_wake(fetch, peer->idle_us);
}

static void strike_node(struct tw_fetch *fetch, const struct tw_id *id, uint32_t file) {
    struct tw_penalty *ban = tw_penalty_take(fetch->bans, TW_FETCH_BANS_MAX, id);
    /* Wrong chunks that were already under way at the first strike do not count as a second one. */
    if (ban->count > 0 && ban->until_us > fetch->now_us) return;
    tw_penalty_add(ban, TW_PENALTY_FETCH, fetch->now_us);
    uint16_t found = TW_FETCH_NO_PEER;
    for (uint16_t at = 0; at < TW_PEERS_MAX; at++) {
        struct fetch_peer *peer = &fetch->peers[at];
        if (!peer->is_up || !tw_id_equal(&peer->id, id)) continue;
        found = at;
        forget_asks(fetch, peer, ALL_FILES);
        peer->is_silent = false;
        peer->chunk_us = 0;
        peer->banned_until_us = ban->until_us;
        if (fetch->plain.is_active && fetch->plain.source == at && !fetch->plain.is_checking)
            reset_plain(fetch);
    }
    struct tw_fetch_action *action = push_action(fetch, TW_FETCH_STRIKE, file);
    action->peer = found;
    action->id = *id;
    action->count = ban->count;
    action->until_us = ban->until_us;
}

/* ==== plain files ============================================================================= */

/* The plain file that is being fetched: the index, later the tokenizer.
 *
 *   none -> ACTIVE       the first chunk is requested from a peer, which becomes the only source
 *   ACTIVE -> CHECKING   all chunks are stored: CHECK is sent
 *   CHECKING -> none     right hash: the index is known, the tokenizer is WHOLE; wrong: a strike
 *   ACTIVE -> none       the source has gone, lacks the file or was struck; or it is silent or
 *                        slow, and there is another peer. All bytes from it are discarded
 *
 * The next attempt begins once STORED has answered every chunk of the last one. One file thus never
 * has bytes of two sources, and a peer that is struck has sent the whole file. */

enum { ATTEMPTS_MAX = 8 }; /* most doublings of the time allowed for a source */

static uint64_t allowance_us(struct tw_fetch *fetch) {
    const struct plain *plain = &fetch->plain;
    const bool is_sized = plain->file != TW_FETCH_INDEX || fetch->index_bytes > 0;
    const uint64_t chunks = is_sized ? tw_fetch_state(fetch, plain->file)->chunks : 0;
    const uint32_t doubled = plain->attempts < ATTEMPTS_MAX ? plain->attempts : ATTEMPTS_MAX;
    return (TW_FETCH_PLAIN_US + chunks * TW_FETCH_PLAIN_CHUNK_US) << doubled;
}

void tw_fetch_plain_begin(struct tw_fetch *fetch, uint32_t file, uint16_t source) {
    struct plain *plain = &fetch->plain;
    TW_ASSERT(!plain->is_active && plain->checks == 0);
    if (plain->file != file) plain->attempts = 0;
    plain->is_active = true;
    plain->is_checking = false;
    plain->file = file;
    plain->source = source;
    plain->from = fetch->peers[source].id;
    plain->until_us = fetch->now_us + allowance_us(fetch);
}

/* Stops fetching the plain file. Open checks become stale. */
static void give_up(struct tw_fetch *fetch) {
    struct plain *plain = &fetch->plain;
    TW_ASSERT(plain->is_active);
    plain->is_active = plain->is_checking = false;
    if (plain->source != TW_FETCH_NO_PEER)
        forget_asks(fetch, &fetch->peers[plain->source], plain->file);
    for (uint32_t i = 0; i < TW_FETCH_ASKED_MAX; i++) {
        struct check *check = &fetch->checks[i];
        if (!check->is_used || check->is_stale || check->file != plain->file) continue;
        check->is_stale = true;
        tw_fetch_state(fetch, plain->file)->under_way--;
    }
    fetch->changes++;
}

static void reset_plain(struct tw_fetch *fetch) {
    give_up(fetch);
    fetch->plain.attempts++;
    tw_fetch_clear(fetch, fetch->plain.file);
}

/* Sets the size of the index, which its first chunk states. Returns false if that chunk's length
 * contradicts the size. */
static bool size_index(struct tw_fetch *fetch, uint32_t index_bytes, uint32_t chunk_bytes) {
    struct plain *plain = &fetch->plain;
    const uint32_t first = index_bytes < TW_CHUNK_BYTES_MAX ? index_bytes : TW_CHUNK_BYTES_MAX;
    TW_ASSERT(index_bytes > 0 && index_bytes <= TW_DATASET_BYTES_MAX);
    if (chunk_bytes != first) return false;
    const uint64_t before_us = allowance_us(fetch);
    fetch->index_bytes = index_bytes;
    fetch->index.chunks = (uint16_t)((index_bytes + TW_CHUNK_BYTES_MAX - 1) / TW_CHUNK_BYTES_MAX);
    fetch->index.left = fetch->index.chunks;
    plain->until_us += allowance_us(fetch) - before_us;
    fetch->changes++;
    return true;
}

/* Requests the check of the plain file if the chunk just stored was its last one. */
static void check_if_stored(struct tw_fetch *fetch) {
    struct plain *plain = &fetch->plain;
    if (tw_fetch_state(fetch, plain->file)->left > 0) return;
    plain->is_checking = true;
    (void)push_action(fetch, TW_FETCH_CHECK, plain->file);
}

static void on_plain_checked(struct tw_fetch *fetch, uint32_t file, enum tw_fetch_result result) {
    struct plain *plain = &fetch->plain;
    /* During the check, the file may have been lost, or found in the folder. */
    if (!plain->is_active || !plain->is_checking || plain->file != file) return;
    if (result != TW_FETCH_OK) {
        const struct tw_id from = plain->from;
        reset_plain(fetch);
        if (result == TW_FETCH_WRONG) strike_node(fetch, &from, file);
        return;
    }
    give_up(fetch);
    plain->attempts = 0;
    if (file == TW_FETCH_INDEX) {
        fetch->is_started = false; /* the runtime calls tw_fetch_files next */
        return;
    }
    tw_fetch_is_whole(fetch, file);
    (void)push_action(fetch, TW_FETCH_WHOLE, file);
}

/* Stops fetching the file, because it was copied into the folder or is lost. */
static void leave_plain(struct tw_fetch *fetch, uint32_t file) {
    if (fetch->plain.is_active && fetch->plain.file == file) give_up(fetch);
}

static bool has_other(const struct tw_fetch *fetch) {
    for (uint32_t at = 0; at < TW_PEERS_MAX; at++) {
        const struct fetch_peer *peer = &fetch->peers[at];
        if (at == fetch->plain.source || !can_ask(peer)) continue;
        if (!tw_fetch_lacks(peer, fetch->plain.file, fetch->now_us)) return true;
    }
    return false;
}

static void walk_plain(struct tw_fetch *fetch) {
    struct plain *plain = &fetch->plain;
    if (!plain->is_active || plain->is_checking) return;
    if (fetch->now_us >= plain->until_us || fetch->peers[plain->source].is_silent) {
        if (has_other(fetch)) {
            note_miss(fetch, &fetch->peers[plain->source], plain->file);
            reset_plain(fetch);
            return;
        }
        if (fetch->now_us >= plain->until_us) plain->until_us = fetch->now_us + allowance_us(fetch);
    }
    tw_fetch_wake(fetch, plain->until_us);
}

/* ==== events and actions ====================================================================== */

size_t tw_fetch_bytes(void) {
    return sizeof(struct tw_fetch);
}

uint64_t tw_fetch_deadline(const struct tw_fetch *fetch) {
    return fetch->deadline_us;
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
    for (uint16_t at = 0; at < TW_PEERS_MAX; at++) on_peer_down(fetch, at);
    for (uint32_t i = 0; i < 8; i++) fetch->seed |= (uint64_t)self->bytes[i] << (8 * i);
    fetch->turn = (uint16_t)(fetch->seed % TW_PEERS_MAX);
    fetch->index.chunks = fetch->index.left = INDEX_CHUNKS_MAX;
}

bool tw_fetch_next_action(struct tw_fetch *fetch, struct tw_fetch_action *action) {
    if (fetch->actions_begin == fetch->actions_end) return false;
    *action = fetch->actions[fetch->actions_begin++];
    return true;
}

/* ---- the walk -------------------------------------------------------------------------------- */

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
    for (uint16_t at = 0; at < TW_PEERS_MAX; at++) walk_peer(fetch, at);
    walk_plain(fetch);
    const bool is_paused = fetch->now_us < fetch->pause_us;
    if (is_paused) tw_fetch_wake(fetch, fetch->pause_us);
    if (credit_left_us(fetch) > 0) tw_fetch_wake(fetch, fetch->now_us + credit_left_us(fetch));
    fetch->turn = (uint16_t)((fetch->turn + 1) % TW_PEERS_MAX);
    for (uint16_t i = 0; i < TW_PEERS_MAX && !is_paused; i++) {
        const uint16_t at = (uint16_t)((fetch->turn + i) % TW_PEERS_MAX);
        if (tw_fetch_room(fetch, &fetch->peers[at]) > 0) tw_fetch_fill(fetch, at);
    }
    /* A peer may have become the source in the loop above. */
    if (fetch->plain.is_active && !fetch->plain.is_checking)
        tw_fetch_wake(fetch, fetch->plain.until_us);
    for (uint16_t at = 0; at < TW_PEERS_MAX; at++) wake_for_peer(fetch, &fetch->peers[at]);
}

/* ---- chunks ---------------------------------------------------------------------------------- */

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
        strike_node(fetch, &peer->id, ask->file);
        return TW_FETCH_DROP;
    }
    note_sent(fetch, peer, ask, size);
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
        unask(fetch, peer, i);
        taken->file = ask.file;
        verdict = judge_chunk(fetch, peer, &ask, arrival->size, &taken->number);
        break;
    }
    if (verdict != TW_FETCH_UNKNOWN) advance(fetch);
    return verdict;
}

/* ---- events ---------------------------------------------------------------------------------- */

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
        is_wrong = !size_index(fetch, event->index_bytes, check.size);
    if (is_wrong) strike_node(fetch, &check.from, check.file);
    if (!is_here || is_wrong) return;
    tw_fetch_put(fetch, check.file, check.idx);
    if (is_plain) {
        check_if_stored(fetch);
    } else if (tw_fetch_state(fetch, check.file)->left == 0) {
        tw_fetch_is_whole(fetch, check.file);
        (void)push_action(fetch, TW_FETCH_WHOLE, check.file);
    }
}

static void on_missing(struct tw_fetch *fetch, uint16_t at, const struct tw_id *hash) {
    struct fetch_peer *peer = &fetch->peers[at];
    struct plain *plain = &fetch->plain;
    uint32_t file = ALL_FILES;
    for (uint32_t i = 0; i < peer->asks_count; i++) {
        if (tw_id_equal(tw_fetch_hash(fetch, peer->asks[i].file), hash)) file = peer->asks[i].file;
    }
    if (file == ALL_FILES) return;
    peer->is_partial = true;
    peer->is_silent = false;
    peer->silences = 0;
    forget_asks(fetch, peer, file);
    note_miss(fetch, peer, file);
    if (plain->is_active && plain->file == file && plain->source == at) reset_plain(fetch);
}

static void on_lost(struct tw_fetch *fetch, uint32_t file) {
    TW_ASSERT(file < fetch->files_count);
    const bool was_whole =
        fetch->states[file].left == 0 && !(fetch->plain.is_active && fetch->plain.file == file);
    leave_plain(fetch, file);
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
    case TW_FETCH_PEER_UP: on_peer_up(fetch, event->peer, &event->id); break;
    case TW_FETCH_PEER_DOWN: on_peer_down(fetch, event->peer); break;
    case TW_FETCH_MISSING: on_missing(fetch, event->peer, &event->id); break;
    case TW_FETCH_STORED: on_stored(fetch, event); break;
    case TW_FETCH_CHECKED:
        if (event->result == TW_FETCH_FAILED) fetch->pause_us = now_us + TW_FETCH_FAILED_US;
        on_plain_checked(fetch, event->file, event->result);
        break;
    case TW_FETCH_LOST: on_lost(fetch, event->file); break;
    }
    advance(fetch);
}

/* ---- files that the folder has already ------------------------------------------------------- */

void tw_fetch_have_file(struct tw_fetch *fetch, uint32_t file) {
    begin_call(fetch, fetch->now_us);
    struct file_state *state = tw_fetch_state(fetch, file);
    TW_ASSERT(file < fetch->files_count);
    const bool was_whole =
        state->left == 0 && !(fetch->plain.is_active && fetch->plain.file == file);
    leave_plain(fetch, file);
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
    (void)push_action(fetch, TW_FETCH_WHOLE, file);
}

/* ==== view ==================================================================================== */

/* Returns the incomplete training shard with the most chunks in the folder; with !is_train, the
 * first incomplete file. */
static uint32_t find_nearest(const struct tw_fetch *fetch, bool is_train) {
    uint32_t best = TW_FETCH_INDEX;
    for (uint32_t i = 0; i < fetch->files_count; i++) {
        const uint32_t file = fetch->needs_order ? i : fetch->order[i];
        const struct file_state *state = &fetch->states[file];
        if (state->left == 0) continue;
        if (!is_train) return file;
        if (fetch->files[file].kind != TW_FETCH_TRAIN) continue;
        if (best == TW_FETCH_INDEX ||
            state->chunks - state->left > fetch->states[best].chunks - fetch->states[best].left)
            best = file;
    }
    return best;
}

static enum tw_fetch_stage stage_of(const struct tw_fetch *fetch, uint32_t *file) {
    *file = TW_FETCH_INDEX;
    if (!fetch->has_index) return fetch->is_started ? TW_FETCH_STARTS : TW_FETCH_IDLE;
    if (fetch->files_whole == fetch->files_count) return TW_FETCH_DONE;
    if (fetch->train_whole == 0) *file = find_nearest(fetch, true);
    if (*file != TW_FETCH_INDEX) return TW_FETCH_FIRST;
    *file = find_nearest(fetch, false);
    return TW_FETCH_REST;
}

void tw_fetch_view(const struct tw_fetch *fetch, uint64_t now_us, struct tw_fetch_view *view) {
    *view = (struct tw_fetch_view){.files_whole = fetch->files_whole,
                                   .files_count = fetch->files_count,
                                   .train_whole = fetch->train_whole,
                                   .bytes_whole = fetch->bytes_whole,
                                   .bytes_here = fetch->bytes_here,
                                   .bytes_count = fetch->bytes_count,
                                   .chunks_taken = fetch->chunks_taken,
                                   .chunks_dropped = fetch->chunks_dropped};
    view->stage = stage_of(fetch, &view->file);
    if (view->stage == TW_FETCH_STARTS && fetch->index_bytes > 0) {
        view->chunks_count = fetch->index.chunks;
        view->chunks_here = (uint32_t)fetch->index.chunks - fetch->index.left;
    } else if (view->file != TW_FETCH_INDEX) {
        const struct file_state *state = &fetch->states[view->file];
        view->chunks_count = state->chunks;
        view->chunks_here = (uint32_t)state->chunks - state->left;
    }
    for (uint16_t at = 0; at < TW_PEERS_MAX; at++) {
        const struct fetch_peer *peer = &fetch->peers[at];
        if (!peer->is_up) continue;
        view->peers[at].is_up = true;
        view->peers[at].is_giving = peer->has_sent && now_us < peer->sent_us + TW_FETCH_MISSING_US;
        view->peers[at].is_lacking = tw_fetch_lacks(peer, view->file, now_us);
        view->peers[at].is_silent = peer->is_silent;
        view->peers[at].banned_until_us =
            peer->banned_until_us > now_us ? peer->banned_until_us : 0;
        view->peers[at].asked = peer->asks_count;
        view->peers[at].chunk_us = peer->chunk_us;
        view->peers[at].chunks_taken = peer->chunks_taken;
        view->asked += peer->asks_count;
    }
}
