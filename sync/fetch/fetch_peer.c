/* fetch_peer.c - the peers of the fetcher: speed, missing files, bans.
 *
 *   usable -> SILENT    nothing arrived for TW_FETCH_SILENT_US plus 4 times its time per chunk: its
 *                       asks are late, and the chunks may be requested from others
 *   SILENT -> usable    a late chunk or MISSING arrives; or TW_FETCH_RETRY_US << silences have
 *                       passed: its late asks are forgotten, and one chunk is requested
 *   any -> BANNED       it sent a wrong chunk: banned on any link for the time set in penalty.c */
#include "sync/fetch/fetch_internal.h"

enum { SILENCES_MAX = 4 }; /* number of doublings of the pause before a retry */

/* ---- asking -------------------------------------------------------------------------------- */

bool tw_fetch_can_ask(const struct fetch_peer *peer) {
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
    if (!tw_fetch_can_ask(peer) || peer->asks_count >= most) return 0;
    if (tw_fetch_credit_us(fetch) > 0) return 0;
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
    struct tw_fetch_action *action = tw_fetch_act(fetch, TW_FETCH_PULL, file);
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

void tw_fetch_unask(struct tw_fetch *fetch, struct fetch_peer *peer, uint32_t i) {
    const struct ask ask = peer->asks[i];
    end_under_way(fetch, &ask);
    peer->asks_count--;
    for (uint32_t k = i; k < peer->asks_count; k++) peer->asks[k] = peer->asks[k + 1];
    if (ask.is_twin) untwin(fetch, ask.file, ask.idx);
}

void tw_fetch_forget(struct tw_fetch *fetch, struct fetch_peer *peer, uint32_t file) {
    for (uint32_t i = peer->asks_count; i-- > 0;) {
        if (file == TW_FETCH_ALL || peer->asks[i].file == file) tw_fetch_unask(fetch, peer, i);
    }
    fetch->changes++;
}

/* ---- missing files -------------------------------------------------------------------------- */

bool tw_fetch_lacks(const struct fetch_peer *peer, uint32_t file, uint64_t now_us) {
    for (uint32_t i = 0; i < peer->misses_count; i++) {
        if (peer->misses[i].file == file && peer->misses[i].until_us > now_us) return true;
    }
    return false;
}

void tw_fetch_miss(struct tw_fetch *fetch, struct fetch_peer *peer, uint32_t file) {
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

/* ---- coming and going ---------------------------------------------------------------------- */

static uint64_t seed_of(const struct tw_id *id) {
    uint64_t seed = 0;
    for (uint32_t i = 0; i < 8; i++) seed |= (uint64_t)id->bytes[i] << (8 * i);
    return seed;
}

void tw_fetch_peer_up(struct tw_fetch *fetch, uint16_t at, const struct tw_id *id) {
    struct fetch_peer *peer = &fetch->peers[at];
    const struct tw_penalty *ban = tw_penalty_find(fetch->bans, TW_FETCH_BANS_MAX, id);
    tw_fetch_peer_down(fetch, at);
    peer->is_up = true;
    peer->id = *id;
    peer->seed = seed_of(id);
    peer->current = TW_FETCH_INDEX;
    if (ban != NULL && ban->until_us > fetch->now_us) peer->banned_until_us = ban->until_us;
}

void tw_fetch_peer_down(struct tw_fetch *fetch, uint16_t at) {
    struct fetch_peer *peer = &fetch->peers[at];
    struct plain *plain = &fetch->plain;
    tw_fetch_forget(fetch, peer, TW_FETCH_ALL);
    if (plain->is_active && plain->source == at) {
        if (plain->is_checking)
            plain->source = TW_FETCH_NO_PEER;
        else
            tw_fetch_plain_reset(fetch);
    }
    *peer = (struct fetch_peer){.idle_us = UINT64_MAX, .idle_changes = UINT64_MAX};
}

void tw_fetch_peer_sent(struct tw_fetch *fetch, struct fetch_peer *peer, const struct ask *ask,
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

/* ---- silence and strikes -------------------------------------------------------------------- */

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

void tw_fetch_peer_walk(struct tw_fetch *fetch, uint16_t at) {
    struct fetch_peer *peer = &fetch->peers[at];
    if (!peer->is_up) return;
    if (peer->banned_until_us != 0 && fetch->now_us >= peer->banned_until_us)
        peer->banned_until_us = 0;
    if (peer->is_silent && fetch->now_us >= peer->retry_us) {
        tw_fetch_forget(fetch, peer, TW_FETCH_ALL);
        peer->is_silent = false;
        peer->chunk_us = 0;
    }
    if (!peer->is_silent && peer->asks_count > 0 && fetch->now_us >= silent_at_us(peer))
        fall_silent(fetch, at);
}

void tw_fetch_peer_wake(struct tw_fetch *fetch, const struct fetch_peer *peer) {
    if (!peer->is_up) return;
    if (peer->banned_until_us != 0) tw_fetch_wake(fetch, peer->banned_until_us);
    if (peer->is_silent) tw_fetch_wake(fetch, peer->retry_us);
    if (!peer->is_silent && peer->asks_count > 0) tw_fetch_wake(fetch, silent_at_us(peer));
    if (tw_fetch_room(fetch, peer) > 0 && peer->idle_us > fetch->now_us)
        tw_fetch_wake(fetch, peer->idle_us);
}

void tw_fetch_strike(struct tw_fetch *fetch, const struct tw_id *id, uint32_t file) {
    struct tw_penalty *ban = tw_penalty_take(fetch->bans, TW_FETCH_BANS_MAX, id);
    /* Wrong chunks that were already under way at the first strike do not count as a second one. */
    if (ban->count > 0 && ban->until_us > fetch->now_us) return;
    tw_penalty_add(ban, TW_PENALTY_FETCH, fetch->now_us);
    uint16_t found = TW_FETCH_NO_PEER;
    for (uint16_t at = 0; at < TW_PEERS_MAX; at++) {
        struct fetch_peer *peer = &fetch->peers[at];
        if (!peer->is_up || !tw_id_equal(&peer->id, id)) continue;
        found = at;
        tw_fetch_forget(fetch, peer, TW_FETCH_ALL);
        peer->is_silent = false;
        peer->chunk_us = 0;
        peer->banned_until_us = ban->until_us;
        if (fetch->plain.is_active && fetch->plain.source == at && !fetch->plain.is_checking)
            tw_fetch_plain_reset(fetch);
    }
    struct tw_fetch_action *action = tw_fetch_act(fetch, TW_FETCH_STRIKE, file);
    action->peer = found;
    action->id = *id;
    action->count = ban->count;
    action->until_us = ban->until_us;
}
