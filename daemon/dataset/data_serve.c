#include "daemon/dataset/data_serve.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

/* ---- reading ------------------------------------------------------------------------------- */

static void on_read(uv_work_t *work) {
    struct tw_data_serve *serve = work->data;
    const struct tw_data_folder *folder = &serve->store->folder;
    uint8_t *bytes = serve->peers[serve->read.peer].slots[serve->read.slot].bytes;
    serve->read.err = (struct tw_error){0};
    serve->read.is_changed = false;
    serve->read.status = tw_data_folder_read(folder, serve->read.file, serve->read.idx, bytes,
                                             &serve->read.size, &serve->read.err);
    if (serve->read.status == TW_OK) {
        serve->read.status = tw_data_folder_check(folder, serve->read.file, serve->read.idx, bytes,
                                                  &serve->read.head, &serve->read.err);
        serve->read.is_changed = serve->read.status == TW_CORRUPT;
    }
    if (serve->read.status != TW_OK) serve->read.head.file = 0;
}

static void read_begin(struct tw_data_serve *serve);

static void ranges_forget(struct tw_data_reader *peer, uint32_t file) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < peer->ranges_count; i++) {
        if (peer->ranges[i].file != file) peer->ranges[kept++] = peer->ranges[i];
    }
    peer->ranges_count = kept;
}

/* The file is gone, truncated or changed: stops serving it. */
static void file_lost(struct tw_data_serve *serve) {
    const uint32_t file = serve->read.file;
    const struct tw_id *hash = &serve->store->folder.files[file].hash;
    serve->store->folder.rows[file].state = TW_DATA_ABSENT;
    serve->store->folder.rows[file].is_bad = serve->read.is_changed;
    for (uint16_t i = 0; i < TW_PEERS_MAX; i++) {
        const uint32_t before = serve->peers[i].ranges_count;
        ranges_forget(&serve->peers[i], file);
        const bool was_reading = i == serve->read.peer && serve->read.life == serve->peers[i].life;
        if (serve->peers[i].life != 0 && (was_reading || serve->peers[i].ranges_count < before)) {
            serve->events.missing(serve->user, i, hash);
        }
    }
    serve->events.lost(serve->user, file, serve->read.err.message);
}

static void on_read_done(uv_work_t *work, int cancelled) {
    struct tw_data_serve *serve = work->data;
    struct tw_data_reader *peer = &serve->peers[serve->read.peer];
    serve->is_reading = false;
    if (serve->is_closing || cancelled != 0) return;
    peer->slots[serve->read.slot].state = TW_DATA_SLOT_FREE;
    if (serve->read.status != TW_OK) {
        file_lost(serve);
    } else if (peer->life == serve->read.life) {
        const struct tw_chunk chunk = {
            .payload = serve->store->folder.files[serve->read.file].hash,
            .idx = serve->read.idx,
            .size = serve->read.size,
            .bytes = peer->slots[serve->read.slot].bytes,
        };
        if (serve->events.send(serve->user, serve->read.peer, &chunk)) {
            peer->slots[serve->read.slot].state = TW_DATA_SLOT_SENDING;
        }
    }
    read_begin(serve);
}

/* Returns the index of a free chunk buffer (slot) of this peer, or -1 if both are in use. */
static int slot_free(struct tw_data_reader *peer) {
    for (int i = 0; i < TW_DATA_SLOTS; i++) {
        if (peer->slots[i].state != TW_DATA_SLOT_FREE) continue;
        if (peer->slots[i].bytes == NULL) peer->slots[i].bytes = malloc(TW_CHUNK_BYTES_MAX);
        return peer->slots[i].bytes != NULL ? i
                                            : -1; /* without memory, the next turn tries again */
    }
    return -1;
}

/* Returns the size of the next chunk that the peer requested. */
static uint32_t next_bytes(const struct tw_data_serve *serve, const struct tw_data_reader *peer) {
    uint64_t at;
    uint32_t size;
    tw_fetch_range(&serve->store->folder.files[peer->ranges[0].file], peer->ranges[0].first, &at,
                   &size);
    return size;
}

/* Answers all requests of a peer by `missing`, if it may get no more. */
static bool is_refused(struct tw_data_serve *serve, uint16_t number) {
    struct tw_data_reader *peer = &serve->peers[number];
    if (serve->events.may_give == NULL ||
        serve->events.may_give(serve->user, number, next_bytes(serve, peer)))
        return false;
    while (peer->ranges_count > 0) {
        const uint32_t file = peer->ranges[0].file;
        ranges_forget(peer, file);
        serve->events.missing(serve->user, number, &serve->store->folder.files[file].hash);
    }
    return true;
}

static void read_begin(struct tw_data_serve *serve) {
    if (serve->is_reading || serve->is_closing) return;
    if (serve->read.head.bytes == NULL) serve->read.head.bytes = malloc(TW_CHUNK_BYTES_MAX);
    if (serve->read.head.bytes == NULL) return; /* without memory, the next request tries again */
    for (uint16_t turn = 1; turn <= TW_PEERS_MAX; turn++) {
        const uint16_t number = (uint16_t)((serve->last_peer + turn) % TW_PEERS_MAX);
        struct tw_data_reader *peer = &serve->peers[number];
        if (peer->ranges_count == 0 || is_refused(serve, number)) continue;
        const int slot = slot_free(peer);
        if (slot < 0) continue;
        serve->read.peer = serve->last_peer = number;
        serve->read.life = peer->life;
        serve->read.slot = (uint32_t)slot;
        serve->read.file = peer->ranges[0].file;
        serve->read.idx = peer->ranges[0].first++;
        if (--peer->ranges[0].count == 0) {
            peer->ranges_count--;
            memmove(&peer->ranges[0], &peer->ranges[1],
                    peer->ranges_count * sizeof(peer->ranges[0]));
        }
        peer->slots[slot].state = TW_DATA_SLOT_READING;
        serve->is_reading = true;
        serve->work.data = serve;
        TW_ASSERT(uv_queue_work(serve->loop, &serve->work, on_read, on_read_done) == 0);
        return;
    }
}

/* ---- calls --------------------------------------------------------------------------------- */

enum tw_status tw_data_serve_pull(struct tw_data_serve *serve, uint16_t number,
                                  const struct tw_msg_pull *pull) {
    const struct tw_data_store *store = serve->store;
    struct tw_data_reader *peer = &serve->peers[number];
    const int found = store->is_open ? tw_data_folder_find(&store->folder, &pull->hash) : -1;
    if (found < 0) return TW_AGAIN;
    const uint32_t file = (uint32_t)found;
    const uint32_t chunks = tw_fetch_chunks(&store->folder.files[file]);
    if (pull->count == 0 || pull->count > TW_DATA_PULL_MAX || pull->first >= chunks ||
        pull->count > chunks - pull->first) {
        return TW_PROTO;
    }
    if (store->folder.rows[file].state != TW_DATA_WHOLE) {
        serve->events.missing(serve->user, number, &pull->hash);
        return TW_OK;
    }
    if (peer->life == 0 || peer->ranges_count == TW_DATA_RANGES_MAX) return TW_OK;
    const uint32_t last = peer->ranges_count++;
    peer->ranges[last].file = file;
    peer->ranges[last].first = pull->first;
    peer->ranges[last].count = pull->count;
    read_begin(serve);
    return TW_OK;
}

bool tw_data_serve_released(struct tw_data_serve *serve, uint16_t number,
                            const struct tw_chunk *chunk, bool was_sent) {
    struct tw_data_reader *peer = &serve->peers[number];
    for (unsigned i = 0; i < TW_DATA_SLOTS; i++) {
        if (peer->slots[i].state != TW_DATA_SLOT_SENDING || peer->slots[i].bytes != chunk->bytes) {
            continue;
        }
        peer->slots[i].state = TW_DATA_SLOT_FREE;
        if (was_sent) {
            serve->bytes_served += chunk->size;
            serve->chunks_served++;
        }
        read_begin(serve);
        return true;
    }
    return false;
}

void tw_data_serve_peer_up(struct tw_data_serve *serve, uint16_t peer) {
    serve->peers[peer].life = ++serve->lives;
    serve->peers[peer].ranges_count = 0;
}

void tw_data_serve_peer_down(struct tw_data_serve *serve, uint16_t peer) {
    serve->peers[peer].life = 0;
    serve->peers[peer].ranges_count = 0;
}

uint32_t tw_data_serve_takers(const struct tw_data_serve *serve) {
    uint32_t count = 0;
    for (unsigned i = 0; i < TW_PEERS_MAX; i++) {
        const struct tw_data_reader *peer = &serve->peers[i];
        count += peer->life != 0 && (peer->slots[0].state != TW_DATA_SLOT_FREE ||
                                     peer->slots[1].state != TW_DATA_SLOT_FREE);
    }
    return count;
}

/* ---- life ---------------------------------------------------------------------------------- */

void tw_data_serve_init(struct tw_data_serve *serve, uv_loop_t *loop, struct tw_data_store *store,
                        const struct tw_data_serve_events *events, void *user) {
    memset(serve, 0, sizeof(*serve));
    serve->loop = loop;
    serve->store = store;
    serve->events = *events;
    serve->user = user;
}

void tw_data_serve_close(struct tw_data_serve *serve) {
    serve->is_closing = true;
}

void tw_data_serve_deinit(struct tw_data_serve *serve) {
    TW_ASSERT(!serve->is_reading);
    free(serve->read.head.bytes);
    for (unsigned i = 0; i < TW_PEERS_MAX; i++) {
        for (unsigned k = 0; k < TW_DATA_SLOTS; k++) free(serve->peers[i].slots[k].bytes);
    }
}
