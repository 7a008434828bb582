/* fetch_world.h - nodes with and without a dataset under virtual time, their fetchers being real.
 *
 * A node has one uplink of a rate, every message takes latency_us. Chunks queue in the uplink as a
 * donor's transport would send them. Nodes can lie, keep silent and babble. Every PULL is judged as
 * it leaves: known file, chunks in range, bounds kept, nobody asked who is banned or down. */
#ifndef TW_TESTS_SYNC_FETCH_WORLD_H
#define TW_TESTS_SYNC_FETCH_WORLD_H

#include "base/rng.h"
#include "sync/fetch/fetch.h"

enum {
    WORLD_NODES_MAX = 16,
    WORLD_FILES_MAX = 640,
    WORLD_EVENTS_MAX = 1 << 15,
    WORLD_CHUNKS_MAX = 64, /* of one file */
};

enum manner {
    HONEST,
    LIAR,       /* chunks of wrong bytes */
    MUTE,       /* answers nothing */
    LACKING,    /* says MISSING to everything */
    MISSIZED,   /* chunks one byte short */
    HALF_HEART, /* answers the first chunk of every PULL and no more */
};

struct world_fetcher {
    bool is_up, is_started;
    enum manner manner;
    struct tw_id id;
    uint64_t bytes_per_s, free_us; /* uplink: when it is free again */
    uint64_t store_us;             /* how long storing a chunk takes */
    bool fails_to_store;
    struct tw_fetch *fetch;
    void *memory;
    bool has_index, knows_files;
    bool has[WORLD_FILES_MAX], has_head[WORLD_FILES_MAX];
    uint64_t poison_index,
        poison[WORLD_FILES_MAX]; /* wrong bytes stored in a plain file, by chunk */
    uint64_t whole_us[WORLD_FILES_MAX];
    uint32_t order[WORLD_FILES_MAX], order_count; /* as files became whole */
    uint64_t chunks_sent, chunks_taken, pulls_sent, strikes, checks_open, checks_most;
    uint64_t asked_of[WORLD_NODES_MAX]; /* chunks */
    uint64_t pulls_of[WORLD_NODES_MAX], last_pull_us[WORLD_NODES_MAX];
    uint16_t struck; /* the peer of the last STRIKE */
    uint64_t struck_until_us;
    uint8_t copies[WORLD_FILES_MAX][WORLD_CHUNKS_MAX]; /* of each chunk that was asked for */
};

struct world_event {
    uint64_t at_us, seq;
    enum { EV_PULL, EV_MISSING, EV_CHUNK, EV_STORED, EV_CHECKED } kind;
    uint16_t from, to;
    uint32_t epoch; /* of the link: messages of an older one are lost with it */
    struct tw_id hash;
    uint32_t idx, count, size, ticket, file;
    bool is_bad;
};

struct world {
    uint64_t now_us, latency_us, seq;
    struct tw_rng rng;
    struct tw_id index_hash;
    uint32_t index_bytes;
    uint32_t files_count;
    struct tw_fetch_file files[WORLD_FILES_MAX];
    uint32_t nodes_count;
    struct world_fetcher nodes[WORLD_NODES_MAX];
    bool links[WORLD_NODES_MAX][WORLD_NODES_MAX];
    uint32_t epochs[WORLD_NODES_MAX][WORLD_NODES_MAX];
    struct world_event heap[WORLD_EVENTS_MAX];
    uint32_t heap_count;
};

enum { MB = 1000 * 1000 };

/* A dataset of a tokenizer of 3 chunks (file 0), held-out shards, then training shards, each a head
 * and `pieces` pieces. */
void world_init(struct world *world, uint32_t heldout, uint32_t train, uint32_t pieces,
                uint64_t seed);
void world_deinit(struct world *world);

/* A node with all of the dataset, or with nothing (and started). */
uint16_t world_donor(struct world *world, uint64_t bytes_per_s);
uint16_t world_joiner(struct world *world, uint64_t bytes_per_s);
void world_link(struct world *world, uint16_t a, uint16_t b);
void world_unlink(struct world *world, uint16_t a, uint16_t b);
void world_mesh(struct world *world);

/* The node's own index is known: gives its fetcher the files, which it has as `has` tells. */
void world_know(struct world *world, uint16_t node);
/* Tells its fetcher of a chunk that is in its folder. */
void world_have(struct world *world, uint16_t node, uint32_t file, uint32_t idx);
/* The file is gone. */
void world_lose(struct world *world, uint16_t node, uint32_t file);
/* Delivers an event to a node's fetcher, then its actions. */
void world_tell(struct world *world, uint16_t node, const struct tw_fetch_event *event);
void world_drain(struct world *world, uint16_t node);

void world_run_until(struct world *world, uint64_t at_us);
/* Runs until the node has everything; fails the test when that takes longer than limit_us. */
void world_run_whole(struct world *world, uint16_t node, uint64_t limit_us);
bool world_is_whole(const struct world *world, uint16_t node);

uint64_t world_bytes(const struct world *world); /* of the dataset and its index */
uint32_t world_chunks(const struct world *world);
struct tw_fetch_view world_view(const struct world *world, uint16_t node);

#endif
