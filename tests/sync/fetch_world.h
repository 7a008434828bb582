/* fetch_world.h - nodes that fetch a dataset from each other: real fetchers, virtual time.
 *
 * Each node has one uplink with a fixed rate; each message takes latency_us. Chunks queue in the
 * uplink, as in a real transport. A node can lie or stay silent (enum manner). Every PULL is
 * checked when it is sent: the file is known, the chunks are in range, bounds are kept, and the
 * peer is up and not banned. */
#ifndef TW_TESTS_SYNC_FETCH_WORLD_H
#define TW_TESTS_SYNC_FETCH_WORLD_H

#include "base/rng.h"
#include "sync/fetch/fetch.h"

enum {
    WORLD_NODES_MAX = 16,
    WORLD_FILES_MAX = 640,
    WORLD_EVENTS_MAX = 1 << 15,
    WORLD_CHUNKS_MAX = 64, /* per file */
};

enum manner {
    HONEST,
    LIAR,       /* sends wrong bytes */
    MUTE,       /* never answers */
    LACKING,    /* answers every PULL with MISSING */
    MISSIZED,   /* sends chunks one byte short */
    HALF_HEART, /* sends only the first chunk of every PULL */
};

struct world_fetcher {
    bool is_up, is_started;
    enum manner manner;
    struct tw_id id;
    uint64_t bytes_per_s, free_us; /* uplink: rate, and the time at which it is next free */
    uint64_t store_us;             /* time to store one chunk */
    bool fails_to_store;
    struct tw_fetch *fetch;
    void *memory;
    bool has_index, knows_files;
    bool has[WORLD_FILES_MAX], has_head[WORLD_FILES_MAX];
    uint64_t poison_index, poison[WORLD_FILES_MAX]; /* bit sets of chunks stored with wrong bytes */
    uint64_t whole_us[WORLD_FILES_MAX];
    uint32_t order[WORLD_FILES_MAX], order_count; /* files in order of completion */
    uint64_t chunks_sent, chunks_taken, pulls_sent, strikes, checks_open, checks_most;
    uint64_t asked_of[WORLD_NODES_MAX]; /* chunks requested from each peer */
    uint64_t pulls_of[WORLD_NODES_MAX], last_pull_us[WORLD_NODES_MAX];
    uint16_t struck; /* the peer of the last STRIKE */
    uint64_t struck_until_us;
    uint8_t copies[WORLD_FILES_MAX][WORLD_CHUNKS_MAX]; /* requests for each chunk */
};

struct world_event {
    uint64_t at_us, seq;
    enum { EV_PULL, EV_MISSING, EV_CHUNK, EV_STORED, EV_CHECKED } kind;
    uint16_t from, to;
    uint32_t epoch; /* epoch of the link; messages of an older epoch are lost */
    struct tw_id hash;
    uint32_t idx, count, size, number, file;
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

/* The dataset: a tokenizer of 3 chunks (file 0), then held-out shards, then training shards.
 * Each shard has a head and `pieces` pieces. */
void world_init(struct world *world, uint32_t heldout, uint32_t train, uint32_t pieces,
                uint64_t seed);
void world_deinit(struct world *world);

/* Adds a node and returns its number. A donor has the whole dataset; a joiner has nothing and
 * starts to fetch at once. */
uint16_t world_donor(struct world *world, uint64_t bytes_per_s);
uint16_t world_joiner(struct world *world, uint64_t bytes_per_s);
void world_link(struct world *world, uint16_t a, uint16_t b);
void world_unlink(struct world *world, uint16_t a, uint16_t b);
void world_mesh(struct world *world);

/* Gives the node's fetcher the list of files, as if the index had arrived. Files marked in `has`
 * count as stored already. */
void world_know(struct world *world, uint16_t node);
/* Tells the node's fetcher that a chunk is in its folder. */
void world_have(struct world *world, uint16_t node, uint32_t file, uint32_t idx);
/* Deletes a file of the node. */
void world_lose(struct world *world, uint16_t node, uint32_t file);
/* Delivers an event to the node's fetcher and carries out the actions. */
void world_tell(struct world *world, uint16_t node, const struct tw_fetch_event *event);
void world_drain(struct world *world, uint16_t node);

void world_run_until(struct world *world, uint64_t at_us);
/* Runs until the node has every file; fails the test after limit_us. */
void world_run_whole(struct world *world, uint16_t node, uint64_t limit_us);
bool world_is_whole(const struct world *world, uint16_t node);

uint64_t world_bytes(const struct world *world); /* size of the dataset with its index */
uint32_t world_chunks(const struct world *world);
struct tw_fetch_view world_view(const struct world *world, uint16_t node);

#endif
