/* world.h - several transports on one loop in one process, with their events recorded. */
#ifndef TW_TESTS_DAEMON_NET_WORLD_H
#define TW_TESTS_DAEMON_NET_WORLD_H

#include <stdbool.h>

#include <uv.h>

#include "daemon/net/transport.h"

enum { WORLD_NODES_MAX = 6 };

struct world_node {
    struct world *world;
    struct tw_identity identity;
    struct tw_transport *transport;
    bool is_up[TW_PEERS_MAX];
    struct tw_member_row records[TW_PEERS_MAX];
    uint32_t ups, downs, dials, twins, refusals, limit_refusals, frames, chunks, released, unsent;
    uint64_t chunk_bytes;
    enum tw_status down_reason, dial_status, refused_reason;
    enum tw_dial_cause dial_cause;
    char down_sentence[256], dial_sentence[256], refused_sentence[256];
    uint32_t calls, relays_opened, relays_ended;
    enum tw_status call_status;
    char call_sentence[256], relay_sentence[256];
    uint64_t relay_bytes; /* bytes of the relayed link that ended last */
    uint64_t observed_token;
    char observed_address[TW_ADDR_BYTES];
    uint32_t probes;
    enum tw_status probe_status;
    enum tw_dial_cause probe_cause;
    struct tw_id dial_id;
    bool has_dial_id;
    uint16_t last_kind;
    uint8_t last_body[64];
    uint32_t last_body_bytes;
    void (*on_frame)(struct world_node *node, uint16_t peer, bool is_bulk,
                     const struct tw_frame *frame);
    void (*on_up)(struct world_node *node, uint16_t peer);
};

/* A bare TCP client: plays a stranger. */
struct world_raw {
    uv_tcp_t tcp;
    uv_connect_t connect;
    uv_write_t write;
    const uint8_t *bytes; /* sent once connected */
    uint32_t size;
    bool is_over; /* the node closed this connection */
    bool is_gone;
    uint64_t bytes_in;
};

struct world {
    uv_loop_t loop;
    uv_timer_t watchdog;
    bool is_late;
    uint32_t closed;
    struct tw_secrets secrets; /* one secret */
    struct tw_id run;
    struct world_node nodes[WORLD_NODES_MAX];
};

/* The world of the program's tests, and what most do before and after. */
extern struct world world;
int world_set_up(void **state);
int world_tear_down(void **state);
#define WORLD_TEST(name) TEST_IN(world_set_up, world_tear_down, name)

void world_init(struct world *w);
/* Stops all transports that still run. Checks that no handle remains. */
void world_deinit(struct world *w);

/* Starts a node that listens on a free port of 127.0.0.1, in the world's run, with its secret.
 * `change` may edit the configuration first. */
struct world_node *world_start(struct world *w, unsigned i,
                               void (*change)(struct tw_transport_config *config));
void world_stop(struct world_node *node);

/* Makes the nodes' keys, and sorts the nodes by id. To be called before world_start. */
void world_identities(struct world *w);

void world_dial(struct world_node *from, const struct world_node *to);
void world_dial_pinned(struct world_node *from, const struct world_node *to,
                       const struct tw_id *expected);

void world_raw_open(struct world_raw *raw, const struct world_node *to, const void *bytes,
                    uint32_t size);
void world_raw_close(struct world_raw *raw);

/* Runs the loop until `done` is true. Fails the test after 20 s. */
void world_run(struct world *w, bool (*done)(struct world *w));
/* Runs a few turns of the loop, and waits up to `ms` milliseconds. */
void world_turn(struct world *w, unsigned ms);

/* Turns the loop while the condition holds; fails the test after 20 s. */
#define WAIT_WHILE(w, condition)                                                                   \
    do {                                                                                           \
        const uint64_t limit_ns = uv_hrtime() + UINT64_C(20000000000);                             \
        while (condition) {                                                                        \
            assert_true(uv_hrtime() < limit_ns);                                                   \
            world_turn((w), 0);                                                                    \
        }                                                                                          \
    } while (0)

unsigned world_peers(const struct world_node *node);
int world_peer_of(const struct world_node *node, const struct world_node *other);
/* As world_peer_of; the two are linked. */
uint16_t world_linked(const struct world_node *node, const struct world_node *other);
bool world_has_bulk(const struct world_node *node);

/* Stops or resumes the node's reading of a peer's connection. */
void world_hold(const struct world_node *node, int peer, bool is_bulk);
void world_let_go(const struct world_node *node, int peer, bool is_bulk);

#endif
