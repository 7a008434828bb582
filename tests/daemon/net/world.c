#include "tests/daemon/net/world.h"

#include "daemon/net/transport_impl.h"
#include "tests/test.h"

static void on_watchdog(uv_timer_t *timer) {
    ((struct world *)timer->data)->is_late = true;
    uv_stop(timer->loop);
}

void world_init(struct world *w) {
    memset(w, 0, sizeof(*w));
    assert_int_equal(uv_loop_init(&w->loop), 0);
    assert_int_equal(uv_timer_init(&w->loop, &w->watchdog), 0);
    w->watchdog.data = w;
    w->secrets.count = 1;
    memset(&w->secrets.list[0], 0x5e, sizeof(w->secrets.list[0]));
    memset(&w->run, 0x17, sizeof(w->run));
    world_identities(w);
}

/* Node 0 has the lowest id, the last one the highest. */
void world_identities(struct world *w) {
    for (unsigned i = 0; i < WORLD_NODES_MAX; i++) {
        struct tw_identity fresh;
        assert_int_equal(tw_identity_ephemeral(&fresh, NULL), TW_OK);
        unsigned at = i;
        for (; at > 0; at--) {
            if (tw_id_compare(&w->nodes[at - 1].identity.id, &fresh.id) < 0) break;
            w->nodes[at].identity = w->nodes[at - 1].identity;
        }
        w->nodes[at].identity = fresh;
    }
}

static void on_closed(void *user) {
    ((struct world_node *)user)->world->closed++;
}

static bool all_closed(struct world *w) {
    for (unsigned i = 0; i < WORLD_NODES_MAX; i++) {
        if (w->nodes[i].transport != NULL) return false;
    }
    return w->closed == 0;
}

void world_stop(struct world_node *node) {
    tw_transport_destroy(node->transport, "the test is over", on_closed);
    node->transport = NULL;
    memset(node->is_up, 0, sizeof(node->is_up));
    node->world->closed--; /* `closed` returns to zero when all transports are closed */
}

void world_deinit(struct world *w) {
    for (unsigned i = 0; i < WORLD_NODES_MAX; i++) {
        if (w->nodes[i].transport != NULL) world_stop(&w->nodes[i]);
    }
    world_run(w, all_closed);
    uv_close((uv_handle_t *)&w->watchdog, NULL);
    (void)uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
    for (unsigned i = 0; i < WORLD_NODES_MAX; i++) tw_identity_close(&w->nodes[i].identity);
}

static void peer_up(void *user, uint16_t peer, const struct tw_member_row *hello) {
    struct world_node *node = user;
    assert_false(node->is_up[peer]);
    /* The runtime must hear of the old link's end before a new link to the same node. */
    for (unsigned i = 0; i < TW_PEERS_MAX; i++)
        assert_false(node->is_up[i] && tw_id_equal(&node->records[i].id, &hello->id));
    node->is_up[peer] = true;
    node->records[peer] = *hello;
    node->ups++;
    if (node->on_up != NULL) node->on_up(node, peer);
}

static void peer_down(void *user, uint16_t peer, enum tw_status reason, const char *sentence) {
    struct world_node *node = user;
    assert_true(node->is_up[peer]);
    node->is_up[peer] = false;
    node->downs++;
    node->down_reason = reason;
    (void)snprintf(node->down_sentence, sizeof(node->down_sentence), "%s", sentence);
}

static void frame(void *user, uint16_t peer, bool is_bulk, const struct tw_frame *frame) {
    struct world_node *node = user;
    assert_true(node->is_up[peer]);
    if (is_bulk) {
        node->chunks++;
        node->chunk_bytes += frame->body_bytes - TW_CHUNK_HEADER_BYTES;
    } else {
        node->frames++;
    }
    node->last_kind = frame->kind;
    node->last_body_bytes = frame->body_bytes;
    const size_t kept = frame->body_bytes < 64 ? frame->body_bytes : 64;
    memcpy(node->last_body, frame->body, kept);
    if (node->on_frame != NULL) node->on_frame(node, peer, is_bulk, frame);
}

static void released(void *user, uint16_t peer, const struct tw_chunk *chunk, bool sent) {
    struct world_node *node = user;
    if (sent)
        node->released++;
    else
        node->unsent++;
}

static void twin(void *user, const struct tw_twin_report *report) {
    struct world_node *node = user;
    assert_true(report->address != NULL || report->linked != NULL);
    node->twins++;
}

static void dial_done(void *user, const char *address, const struct tw_dial_result *result) {
    struct world_node *node = user;
    node->dials++;
    node->dial_status = result->status;
    node->dial_cause = result->cause;
    node->has_dial_id = result->id != NULL;
    if (result->id != NULL) node->dial_id = *result->id;
    (void)snprintf(node->dial_sentence, sizeof(node->dial_sentence), "%s", result->sentence);
}

static void probe_done(void *user, const char *address, const struct tw_id *expected,
                       const struct tw_dial_result *result) {
    struct world_node *node = user;
    node->probes++;
    node->probe_status = result->status;
    node->probe_cause = result->cause;
}

static void call_done(void *user, const struct tw_id *relay, const struct tw_id *target,
                      const struct tw_dial_result *result) {
    struct world_node *node = user;
    assert_false(tw_id_equal(relay, target));
    node->calls++;
    node->call_status = result->status;
    (void)snprintf(node->call_sentence, sizeof(node->call_sentence), "%s", result->sentence);
}

static void observed(void *user, const struct tw_id *id, uint64_t token, const char *address) {
    struct world_node *node = user;
    node->observed_token = token;
    (void)snprintf(node->observed_address, sizeof(node->observed_address), "%s", address);
}

static void relayed(void *user, const struct tw_relay_pipe *pipe) {
    struct world_node *node = user;
    node->relays_opened += pipe->is_open;
    node->relays_ended += !pipe->is_open;
    node->relay_bytes = pipe->bytes;
    (void)snprintf(node->relay_sentence, sizeof(node->relay_sentence), "%s", pipe->sentence);
}

static void refused(void *user, const char *address, enum tw_status reason, const char *sentence) {
    struct world_node *node = user;
    node->refusals++;
    node->limit_refusals += reason == TW_LIMIT;
    node->refused_reason = reason;
    (void)snprintf(node->refused_sentence, sizeof(node->refused_sentence), "%s", sentence);
}

struct world_node *world_start(struct world *w, unsigned i,
                               void (*change)(struct tw_transport_config *config)) {
    struct world_node *node = &w->nodes[i];
    struct tw_error err = {0};
    node->world = w;
    struct tw_transport_config config = {
        .loop = &w->loop,
        .identity = &node->identity,
        .secrets = &w->secrets,
        .run = w->run,
        .boot = 1,
        .listen = {"127.0.0.1:0"},
        .listen_count = 1,
        .events = {.peer_up = peer_up,
                   .peer_down = peer_down,
                   .frame = frame,
                   .released = released,
                   .dial_done = dial_done,
                   .probe_done = probe_done,
                   .call_done = call_done,
                   .relayed = relayed,
                   .observed = observed,
                   .twin = twin,
                   .refused = refused},
        .user = node,
    };
    if (change != NULL) change(&config);
    const enum tw_status status = tw_transport_create(&config, &node->transport, &err);
    if (status != TW_OK) fail_msg("node %u: %s", i, err.message);
    return node;
}

void world_dial_pinned(struct world_node *from, const struct world_node *to,
                       const struct tw_id *expected) {
    char address[TW_ADDR_BYTES];
    struct tw_error err;
    (void)snprintf(address, sizeof(address), "127.0.0.1:%u",
                   (unsigned)tw_transport_port(to->transport, 0));
    assert_int_equal(tw_transport_connect(from->transport, address, expected, &err), TW_OK);
}

void world_dial(struct world_node *from, const struct world_node *to) {
    world_dial_pinned(from, to, NULL);
}

/* ---- bare clients -------------------------------------------------------------------------- */

static void raw_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf) {
    static uint8_t bytes[4096];
    *buf = uv_buf_init((char *)bytes, sizeof(bytes));
}

static void raw_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *buf) {
    struct world_raw *raw = stream->data;
    if (got > 0) raw->bytes_in += (uint64_t)got;
    if (got >= 0) return;
    raw->is_over = true;
    (void)uv_read_stop(stream);
}

static void raw_connected(uv_connect_t *connect, int code) {
    struct world_raw *raw = connect->data;
    if (code != 0) {
        raw->is_over = true;
        return;
    }
    assert_int_equal(uv_read_start((uv_stream_t *)&raw->tcp, raw_alloc, raw_read), 0);
    if (raw->size == 0) return;
    const uv_buf_t buf = uv_buf_init((char *)(uintptr_t)raw->bytes, raw->size);
    assert_int_equal(uv_write(&raw->write, (uv_stream_t *)&raw->tcp, &buf, 1, NULL), 0);
}

void world_raw_open(struct world_raw *raw, const struct world_node *to, const void *bytes,
                    uint32_t size) {
    struct sockaddr_in address;
    *raw = (struct world_raw){.bytes = bytes, .size = size};
    assert_int_equal(uv_ip4_addr("127.0.0.1", tw_transport_port(to->transport, 0), &address), 0);
    assert_int_equal(uv_tcp_init(&to->world->loop, &raw->tcp), 0);
    raw->tcp.data = raw->connect.data = raw;
    assert_int_equal(
        uv_tcp_connect(&raw->connect, &raw->tcp, (struct sockaddr *)&address, raw_connected), 0);
}

static void raw_closed(uv_handle_t *handle) {
    ((struct world_raw *)handle->data)->is_gone = true;
}

void world_raw_close(struct world_raw *raw) {
    uv_close((uv_handle_t *)&raw->tcp, raw_closed);
    while (!raw->is_gone) (void)uv_run(raw->tcp.loop, UV_RUN_NOWAIT);
}

/* ---- running ------------------------------------------------------------------------------- */

void world_run(struct world *w, bool (*done)(struct world *w)) {
    enum { PATIENCE_MS = 20 * 1000 };
    w->is_late = false;
    (void)uv_timer_start(&w->watchdog, on_watchdog, PATIENCE_MS, 0);
    while (!done(w) && !w->is_late) (void)uv_run(&w->loop, UV_RUN_ONCE);
    (void)uv_timer_stop(&w->watchdog);
    if (w->is_late) fail_msg("nothing came of it");
}

static void on_turn(uv_timer_t *timer) {
}

void world_turn(struct world *w, unsigned ms) {
    const uint64_t until_us = uv_hrtime() / 1000 + 1000 * (uint64_t)ms;
    uv_update_time(&w->loop);
    (void)uv_timer_start(&w->watchdog, on_turn, 1, 1); /* the loop never blocks for ever */
    do {
        (void)uv_run(&w->loop, UV_RUN_ONCE);
    } while (uv_hrtime() / 1000 < until_us);
    (void)uv_timer_stop(&w->watchdog);
}

unsigned world_peers(const struct world_node *node) {
    unsigned count = 0;
    for (unsigned i = 0; i < TW_PEERS_MAX; i++) count += node->is_up[i];
    return count;
}

int world_peer_of(const struct world_node *node, const struct world_node *other) {
    for (int i = 0; i < TW_PEERS_MAX; i++) {
        if (node->is_up[i] && tw_id_equal(&node->records[i].id, &other->identity.id)) return i;
    }
    return -1;
}

bool world_has_bulk(const struct world_node *node) {
    struct tw_peer_net net;
    for (uint16_t i = 0; i < TW_PEERS_MAX; i++) {
        if (!node->is_up[i]) continue;
        if (!tw_transport_peer(node->transport, i, &net) || !net.has_bulk) return false;
    }
    return world_peers(node) > 0;
}

static struct tw_link *link_of(const struct world_node *node, int peer, bool is_bulk) {
    const struct tw_slot *slot = &node->transport->peers[peer];
    return &(is_bulk ? slot->bulk : slot->control)->link;
}

void world_hold(const struct world_node *node, int peer, bool is_bulk) {
    tw_link_pause(link_of(node, peer, is_bulk));
}

void world_let_go(const struct world_node *node, int peer, bool is_bulk) {
    tw_link_resume(link_of(node, peer, is_bulk));
    node->transport->peers[peer].needs_pump = true;
    tw_transport_soon(node->transport);
}

uint16_t world_linked(const struct world_node *node, const struct world_node *other) {
    const int peer = world_peer_of(node, other);
    assert_true(peer >= 0);
    return (uint16_t)peer;
}

struct world world;

int world_set_up(void **state) {
    world_init(&world);
    return 0;
}

int world_tear_down(void **state) {
    world_deinit(&world);
    return 0;
}
