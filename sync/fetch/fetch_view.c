/* fetch_view.c - the view of the fetcher for status, metrics and tests. */
#include "sync/fetch/fetch_internal.h"

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
