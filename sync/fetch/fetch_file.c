/* fetch_file.c - the files of a dataset: their chunks, and the order in which they are fetched. */
#include "sync/fetch/fetch_internal.h"

/* ---- chunks -------------------------------------------------------------------------------- */

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

/* ---- chunks that are in the folder --------------------------------------------------------- */

struct file_state *tw_fetch_state(struct tw_fetch *fetch, uint32_t file) {
    if (file == TW_FETCH_INDEX) return &fetch->index;
    TW_ASSERT(file < fetch->files_count);
    return &fetch->states[file];
}

static uint64_t *bits_of(struct tw_fetch *fetch, uint32_t file) {
    return file == TW_FETCH_INDEX ? &fetch->index_bits : fetch->bits + fetch->states[file].word;
}

const uint64_t *tw_fetch_bits(const struct tw_fetch *fetch, uint32_t file) {
    return file == TW_FETCH_INDEX ? &fetch->index_bits : fetch->bits + fetch->states[file].word;
}

const struct tw_id *tw_fetch_hash(const struct tw_fetch *fetch, uint32_t file) {
    return file == TW_FETCH_INDEX ? &fetch->index_hash : &fetch->files[file].hash;
}

bool tw_fetch_is_plain(const struct tw_fetch *fetch, uint32_t file) {
    return file == TW_FETCH_INDEX || fetch->files[file].head_bytes == 0;
}

bool tw_fetch_is_here(const struct tw_fetch *fetch, uint32_t file, uint32_t idx) {
    return (tw_fetch_bits(fetch, file)[idx / 64] >> (idx % 64) & 1) != 0;
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

/* ---- order --------------------------------------------------------------------------------- */

uint64_t tw_fetch_rank(uint64_t seed, uint32_t file) {
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
    const uint64_t rank_a = tw_fetch_rank(fetch->seed, a), rank_b = tw_fetch_rank(fetch->seed, b);
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
