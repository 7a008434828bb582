/* data_serve.h - serves chunks of the dataset's whole files to peers: PULLs in, CHUNKs out.
 *
 *      PULL --> ranges of the peer --> a thread reads one chunk --> the transport --> released
 *
 * Chunks are checked before they are sent: if bytes had changed on the disk, the receiver would
 * give this node a strike. One read is in progress at a time, peers take turns, and a peer has at
 * most two chunks between disk and socket. The cost of serving is thus bounded by the number of
 * links. Ranges beyond TW_DATA_RANGES_MAX are dropped; the peer asks again. A PULL for chunks that
 * cannot exist breaks the protocol. */
#ifndef TW_DAEMON_DATASET_DATA_SERVE_H
#define TW_DAEMON_DATASET_DATA_SERVE_H

#include "daemon/dataset/data_store.h"
#include "daemon/net/transport.h"
#include "proto/message.h"

enum {
    TW_DATA_RANGES_MAX = 16,
    TW_DATA_PULL_MAX = 2 * TW_FETCH_WINDOW_MAX, /* most chunks in one PULL */
    TW_DATA_SLOTS = 2,
};

struct tw_data_serve_events {
    /* Queues a chunk. Returns false if the peer's link is closing: `released` will then not be
     * called. */
    bool (*send)(void *user, uint16_t peer, const struct tw_chunk *chunk);
    void (*missing)(void *user, uint16_t peer, const struct tw_id *hash);
    /* A whole file has become unreadable, or its contents changed. */
    void (*lost)(void *user, uint32_t file, const char *sentence);
    /* Returns true if so many bytes may be sent to the peer now. Otherwise its requests are
     * answered by `missing`. NULL: always. */
    bool (*may_give)(void *user, uint16_t peer, uint32_t bytes);
};

enum tw_data_slot_state { TW_DATA_SLOT_FREE, TW_DATA_SLOT_READING, TW_DATA_SLOT_SENDING };

struct tw_data_reader {
    uint64_t life; /* serial number of the link; 0: the link is down */
    uint32_t ranges_count;
    struct {
        uint32_t file, first, count;
    } ranges[TW_DATA_RANGES_MAX];
    struct {
        enum tw_data_slot_state state;
        uint8_t *bytes; /* TW_CHUNK_BYTES_MAX bytes, allocated at first use, owned */
    } slots[TW_DATA_SLOTS];
};

struct tw_data_serve {
    uv_loop_t *loop;
    struct tw_data_store *store; /* borrowed */
    struct tw_data_serve_events events;
    void *user;
    struct tw_data_reader peers[TW_PEERS_MAX];
    uint64_t lives;
    uint16_t last_peer; /* peer served in the last turn */
    bool is_reading, is_closing;
    uv_work_t work;
    struct { /* the read in progress */
        uint16_t peer;
        uint64_t life;
        uint32_t slot, file, idx, size;
        enum tw_status status;
        struct tw_error err;
        bool is_changed; /* the bytes read differ from the index */
        /* used by the thread; its bytes are allocated at first use, owned */
        struct tw_data_head head;
    } read;
    uint64_t bytes_served, chunks_served;
};

void tw_data_serve_init(struct tw_data_serve *serve, uv_loop_t *loop, struct tw_data_store *store,
                        const struct tw_data_serve_events *events, void *user);
/* May be called only when no work is in progress on the loop. */
void tw_data_serve_deinit(struct tw_data_serve *serve);
void tw_data_serve_close(struct tw_data_serve *serve);

void tw_data_serve_peer_up(struct tw_data_serve *serve, uint16_t peer);
void tw_data_serve_peer_down(struct tw_data_serve *serve, uint16_t peer);

/* Queues the requested chunks. Returns TW_AGAIN if the hash is of no file of the dataset (another
 * module may know it), or TW_PROTO if such chunks cannot exist: close the peer. */
enum tw_status tw_data_serve_pull(struct tw_data_serve *serve, uint16_t peer,
                                  const struct tw_msg_pull *pull);

/* Takes back a chunk that the transport has finished with. Returns false if another module sent it.
 */
bool tw_data_serve_released(struct tw_data_serve *serve, uint16_t peer,
                            const struct tw_chunk *chunk, bool was_sent);

/* Returns the number of peers with a chunk in progress. */
uint32_t tw_data_serve_takers(const struct tw_data_serve *serve);

#endif
