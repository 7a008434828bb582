/* fetch_choose.c - the files of a dataset, their order, and the chunks that a peer is asked for. */
#include "sync/fetch/fetch_internal.h"

/* ---- chunks ---------------------------------------------------------------------------------- */

static uint64_t chunks_of(const struct tw_fetch_file *file) {
    const uint64_t body = file->bytes - file->head_bytes;
    const uint64_t pieces = body / TW_CHUNK_BYTES_MAX + (body % TW_CHUNK_BYTES_MAX != 0);
    return pieces + (file->head_bytes > 0);
}

uint32_t tw_fetch_chunks(const struct tw_fetch_file *file) {
    const uint64_t chunks = chunks_of(file);
    return chunks < UINT32_MAX ? (uint32_t)chunks : UINT32_MAX;
}

void tw_fetch_range(const struct tw_fetch_file *file, uint32_t idx, uint64_t *offset,
                    uint32_t *bytes) {
    if (file->head_bytes > 0 && idx == 0) {
        *offset = 0;
        *bytes = file->head_bytes;
        return;
    }
    const uint64_t piece = file->head_bytes > 0 ? idx - 1 : idx;
    *offset = file->head_bytes + piece * TW_CHUNK_BYTES_MAX;
    const uint64_t left = *offset < file->bytes ? file->bytes - *offset : 0;
    *bytes = left < TW_CHUNK_BYTES_MAX ? (uint32_t)left : TW_CHUNK_BYTES_MAX;
}

enum tw_status tw_fetch_plan(const struct tw_fetch_file *files, uint32_t count, size_t *bytes,
                             struct tw_error *err) {
    size_t words = 0;
    if (count > TW_FETCH_FILES_MAX)
        return tw_fail(err, TW_LIMIT, "%u files are more than a dataset can have (%d)", count,
                       TW_FETCH_FILES_MAX);
    for (uint32_t i = 0; i < count; i++) {
        const struct tw_fetch_file *file = &files[i];
        if (file->head_bytes > TW_CHUNK_BYTES_MAX || file->head_bytes > file->bytes)
            return tw_fail(err, TW_LIMIT, "the head of file %u of the dataset has %u bytes", i,
                           file->head_bytes);
        const uint64_t chunks = chunks_of(file);
        if (chunks == 0 || chunks > TW_FETCH_FILE_CHUNKS_MAX)
            return tw_fail(err, TW_LIMIT, "file %u of the dataset has %llu chunks, not 1 to %d", i,
                           (unsigned long long)chunks, TW_FETCH_FILE_CHUNKS_MAX);
        words += (size_t)(chunks + 63) / 64;
    }
    *bytes = words * sizeof(uint64_t) + count * (sizeof(struct file_state) + sizeof(uint32_t));
    return TW_OK;
}

/* ---- chunks that are in the folder ----------------------------------------------------------- */

struct file_state *tw_fetch_state(struct tw_fetch *fetch, uint32_t file) {
    if (file == TW_FETCH_INDEX) return &fetch->index;
    TW_ASSERT(file < fetch->files_count);
    return &fetch->states[file];
}

static uint64_t *bits_of(struct tw_fetch *fetch, uint32_t file) {
    return file == TW_FETCH_INDEX ? &fetch->index_bits : fetch->bits + fetch->states[file].word;
}

static const uint64_t *read_bits(const struct tw_fetch *fetch, uint32_t file) {
    return file == TW_FETCH_INDEX ? &fetch->index_bits : fetch->bits + fetch->states[file].word;
}

const struct tw_id *tw_fetch_hash(const struct tw_fetch *fetch, uint32_t file) {
    return file == TW_FETCH_INDEX ? &fetch->index_hash : &fetch->files[file].hash;
}

bool tw_fetch_is_plain(const struct tw_fetch *fetch, uint32_t file) {
    return file == TW_FETCH_INDEX || fetch->files[file].head_bytes == 0;
}

bool tw_fetch_is_here(const struct tw_fetch *fetch, uint32_t file, uint32_t idx) {
    return (read_bits(fetch, file)[idx / 64] >> (idx % 64) & 1) != 0;
}

bool tw_fetch_needs_first(const struct tw_fetch *fetch, uint32_t file) {
    const bool has_first = file == TW_FETCH_INDEX || fetch->files[file].head_bytes > 0;
    return has_first && !tw_fetch_is_here(fetch, file, 0);
}

uint32_t tw_fetch_size(const struct tw_fetch *fetch, uint32_t file, uint32_t idx) {
    const struct tw_fetch_file index = {.bytes = fetch->index_bytes};
    uint64_t offset = 0;
    uint32_t bytes = 0;
    tw_fetch_range(file == TW_FETCH_INDEX ? &index : &fetch->files[file], idx, &offset, &bytes);
    return bytes;
}

void tw_fetch_put(struct tw_fetch *fetch, uint32_t file, uint32_t idx) {
    struct file_state *state = tw_fetch_state(fetch, file);
    TW_ASSERT(idx < state->chunks);
    if (tw_fetch_is_here(fetch, file, idx)) return;
    bits_of(fetch, file)[idx / 64] |= UINT64_C(1) << (idx % 64);
    TW_ASSERT(state->left > 0);
    state->left--;
    if (file == TW_FETCH_INDEX) return;
    fetch->bytes_here += tw_fetch_size(fetch, file, idx);
    if (idx == 0)
        fetch->changes++; /* chunk 0 is the head: its digests allow requests for the pieces */
}

void tw_fetch_is_whole(struct tw_fetch *fetch, uint32_t file) {
    fetch->files_whole++;
    fetch->bytes_whole += fetch->files[file].bytes;
    fetch->train_whole += fetch->files[file].kind == TW_FETCH_TRAIN;
}

void tw_fetch_clear(struct tw_fetch *fetch, uint32_t file) {
    struct file_state *state = tw_fetch_state(fetch, file);
    uint64_t *bits = bits_of(fetch, file);
    for (uint32_t idx = 0; file != TW_FETCH_INDEX && idx < state->chunks; idx++) {
        if (tw_fetch_is_here(fetch, file, idx))
            fetch->bytes_here -= tw_fetch_size(fetch, file, idx);
    }
    for (uint32_t i = 0; i < (state->chunks + 63u) / 64; i++) bits[i] = 0;
    if (file == TW_FETCH_INDEX) {
        state->chunks = INDEX_CHUNKS_MAX;
        fetch->index_bytes = 0;
    }
    state->left = state->chunks;
    fetch->order_begin = 0;
    fetch->changes++;
}

void tw_fetch_files(struct tw_fetch *fetch, const struct tw_fetch_file *files, uint32_t count,
                    void *memory, uint64_t now_us) {
    TW_ASSERT(!fetch->has_index && !fetch->plain.is_active);
    TW_ASSERT((uintptr_t)memory % sizeof(uint64_t) == 0);
    size_t words = 0;
    for (uint32_t i = 0; i < count; i++) words += (tw_fetch_chunks(&files[i]) + 63) / 64;
    fetch->has_index = fetch->needs_order = true;
    fetch->files = files;
    fetch->files_count = count;
    fetch->bits = memory;
    fetch->states = (struct file_state *)(fetch->bits + words);
    fetch->order = (uint32_t *)(fetch->states + count);
    memset(fetch->bits, 0, words * sizeof(uint64_t));
    uint32_t word = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint16_t chunks = (uint16_t)tw_fetch_chunks(&files[i]);
        TW_ASSERT(chunks > 0 && chunks <= TW_FETCH_FILE_CHUNKS_MAX);
        fetch->states[i] = (struct file_state){.word = word, .chunks = chunks, .left = chunks};
        word += (chunks + 63u) / 64;
        fetch->bytes_count += files[i].bytes;
    }
    fetch->changes++;
    tw_fetch_wake(fetch, now_us);
}

/* ---- order ----------------------------------------------------------------------------------- */

static uint64_t rank_of(uint64_t seed, uint32_t file) {
    uint64_t state = seed ^ ((uint64_t)file << 32);
    return tw_splitmix64(&state);
}

/* Class of a file in the order. 0: tokenizer and held-out shards; 1: begun training shards; 2:
 * others. */
static uint32_t class_of(const struct tw_fetch *fetch, uint32_t file) {
    if (fetch->files[file].kind != TW_FETCH_TRAIN) return 0;
    return fetch->states[file].left < fetch->states[file].chunks ? 1 : 2;
}

static bool is_before(const struct tw_fetch *fetch, uint32_t a, uint32_t b) {
    const uint32_t class_a = class_of(fetch, a), class_b = class_of(fetch, b);
    if (class_a != class_b) return class_a < class_b;
    const uint64_t rank_a = rank_of(fetch->seed, a), rank_b = rank_of(fetch->seed, b);
    return rank_a != rank_b ? rank_a < rank_b : a < b;
}

static void sift_down(struct tw_fetch *fetch, uint32_t at, uint32_t count) {
    uint32_t *order = fetch->order;
    for (uint32_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && is_before(fetch, order[child], order[child + 1])) child++;
        if (!is_before(fetch, order[at], order[child])) return;
        const uint32_t held = order[at];
        order[at] = order[child];
        order[child] = held;
        at = child;
    }
}

/* Returns the training shard with the most chunks in the folder; among equals, the first in this
 * node's order. */
static uint32_t find_nearest(const struct tw_fetch *fetch) {
    uint32_t best = TW_FETCH_INDEX, best_here = 0;
    for (uint32_t i = 0; i < fetch->files_count; i++) {
        const uint32_t file = fetch->order[i];
        const uint32_t here = (uint32_t)fetch->states[file].chunks - fetch->states[file].left;
        if (fetch->files[file].kind != TW_FETCH_TRAIN) continue;
        if (best != TW_FETCH_INDEX && here <= best_here) continue;
        best = file;
        best_here = here;
    }
    return best;
}

void tw_fetch_sort(struct tw_fetch *fetch) {
    const uint32_t count = fetch->files_count;
    for (uint32_t i = 0; i < count; i++) fetch->order[i] = i;
    for (uint32_t i = count / 2; i-- > 0;) sift_down(fetch, i, count);
    for (uint32_t end = count; end-- > 1;) {
        const uint32_t last = fetch->order[0];
        fetch->order[0] = fetch->order[end];
        fetch->order[end] = last;
        sift_down(fetch, 0, end);
    }
    fetch->order_begin = 0;
    fetch->first = find_nearest(fetch);
    fetch->needs_order = false;
}

/* ==== the choice of requests ================================================================== */

/* The chunks that a peer is asked for next.
 *
 *   1  the index, while it is not known; then nothing else
 *   2  the first training shard, while none is whole
 *   3  the other files, in the order of fetch_choose.c; a peer that is still fetching itself is
 * asked in the order in which it fetches them 4  if all chunks that the peer may have are under
 * way: a chunk that was requested from a slower peer */

struct run {
    uint32_t file, first, count;
};

/* ---- chunks of one file ---------------------------------------------------------------------- */

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
    memcpy(taken, read_bits(fetch, file), words * sizeof(taken[0]));
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

/* ---- one chunk from two peers ---------------------------------------------------------------- */

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

/* Finds the oldest chunk under way from other peers, of `file` or of any file (ALL_FILES), to
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
            if (file != ALL_FILES && ask->file != file) continue;
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

/* ---- the order ------------------------------------------------------------------------------- */

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
        const uint64_t rank = rank_of(peer->seed, file);
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
        if (!is_found && twin == NULL) twin = find_twin(fetch, at, ALL_FILES, ready_us);
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
