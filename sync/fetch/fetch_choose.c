/* fetch_choose.c - the chunks that a peer is asked for next.
 *
 *   1  the index, while it is not known; then nothing else
 *   2  the first training shard, while none is whole
 *   3  the other files, in the order of fetch_file.c; a peer that is still fetching itself is asked
 *      in the order in which it fetches them
 *   4  if all chunks that the peer may have are under way: a chunk that was requested from a slower
 *      peer */
#include "sync/fetch/fetch_internal.h"

struct run {
    uint32_t file, first, count;
};

/* ---- chunks of one file -------------------------------------------------------------------- */

static void mark_chunk(uint64_t *taken, uint32_t idx) {
    taken[idx / 64] |= UINT64_C(1) << (idx % 64);
}

/* Marks chunks not to request from peer `at`: stored, asked from any peer, or late from `at`. */
static void mark_busy(const struct tw_fetch *fetch, uint16_t at, uint32_t file, uint64_t *taken) {
    for (uint16_t p = 0; p < TW_PEERS_MAX; p++) {
        const struct fetch_peer *peer = &fetch->peers[p];
        for (uint32_t i = 0; i < peer->asks_count; i++) {
            if (peer->asks[i].file == file && (p == at || !peer->asks[i].is_late))
                mark_chunk(taken, peer->asks[i].idx);
        }
    }
    for (uint32_t i = 0; i < TW_FETCH_ASKED_MAX; i++) {
        const struct check *check = &fetch->checks[i];
        if (check->is_used && !check->is_stale && check->file == file)
            mark_chunk(taken, check->idx);
    }
}

static bool may_fetch_plain(const struct tw_fetch *fetch, uint16_t at, uint32_t file) {
    const struct plain *plain = &fetch->plain;
    if (!plain->is_active) return plain->checks == 0;
    return plain->file == file && plain->source == at && !plain->is_checking;
}

/* Finds the first run of at most `most` chunks of a file to request from peer `at`. */
static bool find_run(struct tw_fetch *fetch, uint16_t at, uint32_t file, uint32_t most,
                     struct run *run) {
    const struct file_state *state = tw_fetch_state(fetch, file);
    uint64_t taken[WORDS_MAX];
    if (state->left == 0 || tw_fetch_lacks(&fetch->peers[at], file, fetch->now_us)) return false;
    if (tw_fetch_is_plain(fetch, file) && !may_fetch_plain(fetch, at, file)) return false;
    const uint32_t words = (state->chunks + 63u) / 64;
    memcpy(taken, tw_fetch_bits(fetch, file), words * sizeof(taken[0]));
    if (state->under_way > 0 || fetch->peers[at].asks_count > 0) mark_busy(fetch, at, file, taken);
    const uint32_t end = tw_fetch_needs_first(fetch, file) ? 1 : state->chunks;
    uint32_t word = 0;
    while (word < words && taken[word] == UINT64_MAX) word++;
    uint32_t first = word * 64;
    while (first < end && (taken[first / 64] >> (first % 64) & 1) != 0) first++;
    uint32_t count = 0;
    while (count < most && first + count < end &&
           (taken[(first + count) / 64] >> ((first + count) % 64) & 1) == 0)
        count++;
    *run = (struct run){.file = file, .first = first, .count = count};
    return count > 0;
}

/* ---- one chunk from two peers -------------------------------------------------------------- */

static bool is_stored(const struct tw_fetch *fetch, uint32_t file, uint32_t idx) {
    for (uint32_t i = 0; i < TW_FETCH_ASKED_MAX; i++) {
        const struct check *check = &fetch->checks[i];
        if (check->is_used && !check->is_stale && check->file == file && check->idx == idx)
            return true;
    }
    return false;
}

static bool may_twin(const struct tw_fetch *fetch, uint16_t at, const struct ask *ask) {
    const struct fetch_peer *peer = &fetch->peers[at];
    if (ask->is_late || ask->is_twin || tw_fetch_is_plain(fetch, ask->file)) return false;
    if (ask->idx > 0 && tw_fetch_needs_first(fetch, ask->file)) return false;
    for (uint32_t i = 0; i < peer->asks_count; i++) {
        if (peer->asks[i].file == ask->file && peer->asks[i].idx == ask->idx) return false;
    }
    return !tw_fetch_lacks(peer, ask->file, fetch->now_us) &&
           !tw_fetch_is_here(fetch, ask->file, ask->idx) && !is_stored(fetch, ask->file, ask->idx);
}

/* Finds the oldest chunk under way from other peers, of `file` or of any file (TW_FETCH_ALL), to
 * request it from this peer too. Returns NULL if its request is younger than TW_FETCH_AGED_US, or
 * than this peer's time for four chunks. *ready_us is then the time at which it is old enough. */
static struct ask *find_twin(struct tw_fetch *fetch, uint16_t at, uint32_t file,
                             uint64_t *ready_us) {
    const struct fetch_peer *peer = &fetch->peers[at];
    const uint64_t four_us = 4 * (uint64_t)peer->chunk_us;
    const uint64_t age_us = four_us > TW_FETCH_AGED_US ? four_us : TW_FETCH_AGED_US;
    struct ask *best = NULL;
    if (!peer->has_sent || peer->chunk_us == 0) return NULL;
    for (uint16_t p = 0; p < TW_PEERS_MAX; p++) {
        struct fetch_peer *other = &fetch->peers[p];
        for (uint32_t i = 0; i < other->asks_count && p != at; i++) {
            struct ask *ask = &other->asks[i];
            if (file != TW_FETCH_ALL && ask->file != file) continue;
            if (best != NULL && best->asked_us <= ask->asked_us) continue;
            if (may_twin(fetch, at, ask)) best = ask;
        }
    }
    if (best == NULL || best->asked_us + age_us <= fetch->now_us) return best;
    if (best->asked_us + age_us < *ready_us) *ready_us = best->asked_us + age_us;
    return NULL;
}

static void ask_twin(struct tw_fetch *fetch, uint16_t at, struct ask *ask) {
    struct fetch_peer *peer = &fetch->peers[at];
    ask->is_twin = true;
    tw_fetch_ask(fetch, at, ask->file, ask->idx, 1);
    peer->asks[peer->asks_count - 1].is_twin = true;
}

/* ---- the order ----------------------------------------------------------------------------- */

static bool next_in_own_order(struct tw_fetch *fetch, uint16_t at, uint32_t most, struct run *run) {
    while (fetch->order_begin < fetch->files_count &&
           fetch->states[fetch->order[fetch->order_begin]].left == 0)
        fetch->order_begin++;
    for (uint32_t i = fetch->order_begin; i < fetch->files_count; i++) {
        if (find_run(fetch, at, fetch->order[i], most, run)) return true;
    }
    return false;
}

/* Searches in the peer's own order: a peer that is still fetching most likely has the files that
 * come first in it. */
static bool next_in_its_order(struct tw_fetch *fetch, uint16_t at, uint32_t most, struct run *run) {
    struct fetch_peer *peer = &fetch->peers[at];
    if (peer->current != TW_FETCH_INDEX && find_run(fetch, at, peer->current, most, run))
        return true;
    uint64_t best_rank = UINT64_MAX;
    peer->current = TW_FETCH_INDEX;
    for (uint32_t i = fetch->order_begin; i < fetch->files_count; i++) {
        const uint32_t file = fetch->order[i];
        if (fetch->states[file].left == 0) continue;
        const uint64_t rank = tw_fetch_rank(peer->seed, file);
        if (rank >= best_rank || !find_run(fetch, at, file, most, run)) continue;
        best_rank = rank;
        peer->current = file;
    }
    return peer->current != TW_FETCH_INDEX &&
           find_run(
               fetch, at, peer->current, most,
               run); /* *run belongs to the last file tried, so find the run of this file again */
}

/* Requests the next chunks. Returns false if there is nothing to request before *ready_us. */
static bool ask_next(struct tw_fetch *fetch, uint16_t at, uint64_t *ready_us) {
    const uint32_t most = tw_fetch_room(fetch, &fetch->peers[at]);
    struct run run;
    struct ask *twin = NULL;
    bool is_found = false;
    if (fetch->is_started) {
        is_found = find_run(fetch, at, TW_FETCH_INDEX, most, &run);
    } else if (fetch->has_index) {
        const bool is_first = fetch->train_whole == 0 && fetch->first != TW_FETCH_INDEX;
        if (is_first) is_found = find_run(fetch, at, fetch->first, most, &run);
        if (is_first && !is_found) twin = find_twin(fetch, at, fetch->first, ready_us);
        if (!is_found && twin == NULL)
            is_found = fetch->peers[at].is_partial ? next_in_its_order(fetch, at, most, &run)
                                                   : next_in_own_order(fetch, at, most, &run);
        if (!is_found && twin == NULL) twin = find_twin(fetch, at, TW_FETCH_ALL, ready_us);
    }
    if (twin != NULL) ask_twin(fetch, at, twin);
    if (!is_found) return twin != NULL;
    if (tw_fetch_is_plain(fetch, run.file) && !fetch->plain.is_active)
        tw_fetch_plain_begin(fetch, run.file, at);
    tw_fetch_ask(fetch, at, run.file, run.first, run.count);
    return true;
}

void tw_fetch_fill(struct tw_fetch *fetch, uint16_t at) {
    struct fetch_peer *peer = &fetch->peers[at];
    if (peer->idle_changes == fetch->changes && fetch->now_us < peer->idle_us) return;
    uint32_t misses = 0;
    uint64_t ready_us = UINT64_MAX;
    for (uint32_t i = 0; i < peer->misses_count; i++) {
        const uint64_t until_us = peer->misses[i].until_us;
        if (until_us <= fetch->now_us) continue;
        misses++;
        if (until_us < ready_us) ready_us = until_us;
    }
    while (misses < TW_FETCH_MISSES_MAX && tw_fetch_room(fetch, peer) > 0) {
        if (ask_next(fetch, at, &ready_us)) continue;
        peer->idle_us = ready_us;
        peer->idle_changes = fetch->changes;
        return;
    }
    peer->idle_us = misses < TW_FETCH_MISSES_MAX ? UINT64_MAX : ready_us;
    peer->idle_changes = misses < TW_FETCH_MISSES_MAX ? UINT64_MAX : fetch->changes;
}
