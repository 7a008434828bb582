/* fetch_plain.c - the plain file that is being fetched: the index, later the tokenizer.
 *
 *   none -> ACTIVE       the first chunk is requested from a peer, which becomes the only source
 *   ACTIVE -> CHECKING   all chunks are stored: CHECK is sent
 *   CHECKING -> none     right hash: the index is known, the tokenizer is WHOLE; wrong: a strike
 *   ACTIVE -> none       the source has gone, lacks the file or was struck; or it is silent or
 *                        slow, and there is another peer. All bytes from it are discarded
 *
 * The next attempt begins once STORED has answered every chunk of the last one. One file thus never
 * has bytes of two sources, and a peer that is struck has sent the whole file. */
#include "sync/fetch/fetch_internal.h"

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
        tw_fetch_forget(fetch, &fetch->peers[plain->source], plain->file);
    for (uint32_t i = 0; i < TW_FETCH_ASKED_MAX; i++) {
        struct check *check = &fetch->checks[i];
        if (!check->is_used || check->is_stale || check->file != plain->file) continue;
        check->is_stale = true;
        tw_fetch_state(fetch, plain->file)->under_way--;
    }
    fetch->changes++;
}

void tw_fetch_plain_reset(struct tw_fetch *fetch) {
    give_up(fetch);
    fetch->plain.attempts++;
    tw_fetch_clear(fetch, fetch->plain.file);
}

bool tw_fetch_plain_sized(struct tw_fetch *fetch, uint32_t index_bytes, uint32_t chunk_bytes) {
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

void tw_fetch_plain_stored(struct tw_fetch *fetch) {
    struct plain *plain = &fetch->plain;
    if (tw_fetch_state(fetch, plain->file)->left > 0) return;
    plain->is_checking = true;
    (void)tw_fetch_act(fetch, TW_FETCH_CHECK, plain->file);
}

void tw_fetch_plain_checked(struct tw_fetch *fetch, uint32_t file, enum tw_fetch_result result) {
    struct plain *plain = &fetch->plain;
    /* During the check, the file may have been lost, or found in the folder. */
    if (!plain->is_active || !plain->is_checking || plain->file != file) return;
    if (result != TW_FETCH_OK) {
        const struct tw_id from = plain->from;
        tw_fetch_plain_reset(fetch);
        if (result == TW_FETCH_WRONG) tw_fetch_strike(fetch, &from, file);
        return;
    }
    give_up(fetch);
    plain->attempts = 0;
    if (file == TW_FETCH_INDEX) {
        fetch->is_started = false; /* the runtime calls tw_fetch_files next */
        return;
    }
    tw_fetch_is_whole(fetch, file);
    (void)tw_fetch_act(fetch, TW_FETCH_WHOLE, file);
}

void tw_fetch_plain_left(struct tw_fetch *fetch, uint32_t file) {
    if (fetch->plain.is_active && fetch->plain.file == file) give_up(fetch);
}

static bool has_other(const struct tw_fetch *fetch) {
    for (uint32_t at = 0; at < TW_PEERS_MAX; at++) {
        const struct fetch_peer *peer = &fetch->peers[at];
        if (at == fetch->plain.source || !tw_fetch_can_ask(peer)) continue;
        if (!tw_fetch_lacks(peer, fetch->plain.file, fetch->now_us)) return true;
    }
    return false;
}

void tw_fetch_plain_walk(struct tw_fetch *fetch) {
    struct plain *plain = &fetch->plain;
    if (!plain->is_active || plain->is_checking) return;
    if (fetch->now_us >= plain->until_us || fetch->peers[plain->source].is_silent) {
        if (has_other(fetch)) {
            tw_fetch_miss(fetch, &fetch->peers[plain->source], plain->file);
            tw_fetch_plain_reset(fetch);
            return;
        }
        if (fetch->now_us >= plain->until_us) plain->until_us = fetch->now_us + allowance_us(fetch);
    }
    tw_fetch_wake(fetch, plain->until_us);
}
