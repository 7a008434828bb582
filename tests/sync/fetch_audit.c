#include "tests/sync/fetch_audit.h"

#include "sync/fetch/fetch_internal.h"

static bool is_whole(const struct tw_fetch *fetch, uint32_t file) {
    const bool is_checked = !fetch->plain.is_active || fetch->plain.file != file;
    return fetch->states[file].left == 0 && is_checked;
}

static void audit_file(struct tw_fetch *fetch, uint32_t file) {
    const struct file_state *state = tw_fetch_state(fetch, file);
    uint32_t clear = 0, under_way = 0;
    for (uint32_t idx = 0; idx < state->chunks; idx++) clear += !tw_fetch_is_here(fetch, file, idx);
    TW_ASSERT(state->left == clear);
    for (uint32_t p = 0; p < TW_PEERS_MAX; p++) {
        const struct fetch_peer *peer = &fetch->peers[p];
        for (uint32_t i = 0; i < peer->asks_count; i++)
            under_way += peer->asks[i].file == file && !peer->asks[i].is_late;
    }
    for (uint32_t i = 0; i < TW_FETCH_ASKED_MAX; i++) {
        const struct check *check = &fetch->checks[i];
        under_way += check->is_used && !check->is_stale && check->file == file;
    }
    TW_ASSERT(state->under_way == under_way);
}

static void audit_peer(struct tw_fetch *fetch, uint16_t at) {
    const struct fetch_peer *peer = &fetch->peers[at];
    const struct plain *plain = &fetch->plain;
    TW_ASSERT(peer->asks_count <= TW_FETCH_WINDOW_MAX);
    TW_ASSERT(peer->misses_count <= TW_FETCH_MISSES_MAX);
    TW_ASSERT(peer->is_up || peer->asks_count == 0);
    TW_ASSERT(peer->banned_until_us == 0 || peer->asks_count == 0);
    for (uint32_t i = 0; i < peer->asks_count; i++) {
        const struct ask *ask = &peer->asks[i];
        TW_ASSERT(!peer->is_silent || ask->is_late);
        TW_ASSERT(ask->idx < tw_fetch_state(fetch, ask->file)->chunks);
        if (tw_fetch_is_plain(fetch, ask->file) && !tw_fetch_is_here(fetch, ask->file, ask->idx)) {
            TW_ASSERT(plain->is_active && plain->file == ask->file && plain->source == at);
        }
        for (uint32_t k = 0; k < i; k++)
            TW_ASSERT(peer->asks[k].file != ask->file || peer->asks[k].idx != ask->idx);
    }
}

/* Asserts that at most two requests for a missing chunk are outstanding, apart from late ones. */
static void audit_copies(struct tw_fetch *fetch) {
    for (uint32_t p = 0; p < TW_PEERS_MAX; p++) {
        for (uint32_t i = 0; i < fetch->peers[p].asks_count; i++) {
            const struct ask *ask = &fetch->peers[p].asks[i];
            uint32_t copies = 0;
            for (uint32_t q = 0; q < TW_PEERS_MAX; q++) {
                for (uint32_t k = 0; k < fetch->peers[q].asks_count; k++) {
                    const struct ask *other = &fetch->peers[q].asks[k];
                    copies += !other->is_late && other->file == ask->file && other->idx == ask->idx;
                }
            }
            TW_ASSERT(copies <= 2);
            TW_ASSERT(copies < 2 || ask->is_late || ask->is_twin);
        }
    }
}

void tw_fetch_audit(struct tw_fetch *fetch) {
    uint32_t under_way = 0, plain_checks = 0, whole = 0, train = 0;
    uint64_t here = 0, bytes = 0;
    TW_ASSERT(fetch->actions_begin == fetch->actions_end);
    for (uint32_t i = 0; i < TW_FETCH_ASKED_MAX; i++) {
        const struct check *check = &fetch->checks[i];
        under_way += check->is_used;
        plain_checks += check->is_used && tw_fetch_is_plain(fetch, check->file);
    }
    for (uint16_t at = 0; at < TW_PEERS_MAX; at++) {
        audit_peer(fetch, at);
        for (uint32_t i = 0; i < fetch->peers[at].asks_count; i++)
            under_way += !fetch->peers[at].asks[i].is_late;
    }
    TW_ASSERT(under_way == fetch->under_way && under_way <= TW_FETCH_ASKED_MAX);
    TW_ASSERT(plain_checks == fetch->plain.checks);
    audit_file(fetch, TW_FETCH_INDEX);
    for (uint32_t file = 0; file < fetch->files_count; file++) {
        audit_file(fetch, file);
        for (uint32_t idx = 0; idx < fetch->states[file].chunks; idx++)
            here += tw_fetch_is_here(fetch, file, idx) ? tw_fetch_size(fetch, file, idx) : 0;
        if (!is_whole(fetch, file)) continue;
        whole++;
        bytes += fetch->files[file].bytes;
        train += fetch->files[file].kind == TW_FETCH_TRAIN;
    }
    TW_ASSERT(whole == fetch->files_whole && train == fetch->train_whole);
    TW_ASSERT(here == fetch->bytes_here && bytes == fetch->bytes_whole);
    audit_copies(fetch);
}
