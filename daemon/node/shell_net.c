/* shell_net.c - links: frames in, messages and chunks out, whom to dial, who told us of whom. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "daemon/node/shell.h"
#include "proto/control.h"
#include "proto/frame.h"

/* ---- sending ------------------------------------------------------------------------------- */

void tw_shell_net_send(struct tw_shell *shell, uint16_t peer, const struct tw_message *message) {
    size_t size = 0;
    struct tw_error err = {0};
    if (shell->transport == NULL) return;
    if (tw_control_encode(message, shell->body, TW_CONTROL_BYTES_MAX, &size, &err) != TW_OK) {
        tw_log(TW_LOG_ERROR, "not_encoded", "kind=%s text=\"%s\"", tw_message_name(message->kind),
               err.message);
        return;
    }
    tw_transport_send_control(shell->transport, peer, (uint16_t)message->kind, shell->body,
                              (uint32_t)size);
}

static void sends_end(struct tw_shell *shell, uint32_t row, uint32_t count) {
    shell->sends[row] -= count;
    if (shell->sends[row] == 0) tw_pool_release(&shell->host->payloads.pool, row);
}

void tw_shell_net_chunk(struct tw_shell *shell, const struct tw_action *action) {
    struct tw_payloads *payloads = &shell->host->payloads;
    struct tw_chunk chunk = {.payload = action->u.payload.hash, .idx = action->u.payload.idx};
    uint32_t row;
    if (shell->transport == NULL) return;
    if (tw_transport_has_chunk(shell->transport, action->peer, &chunk.payload, chunk.idx)) return;
    if (tw_payloads_chunk_get(payloads, &chunk.payload, chunk.idx, &chunk.bytes, &chunk.size,
                              &row) != TW_OK) {
        return;
    }
    /* One hold per row however many of its chunks are queued: a drop forgets them all at once. */
    if (shell->sends[row]++ > 0) tw_pool_release(&payloads->pool, row);
    if (!tw_transport_send_chunk(shell->transport, action->peer, &chunk)) {
        sends_end(shell, row, 1); /* the peer is on its way down */
    }
}

static void on_released(void *user, uint16_t peer, const struct tw_chunk *chunk, bool sent) {
    struct tw_shell *shell = user;
    if (tw_shell_data_released(shell, peer, chunk, sent)) return;
    const int row = tw_payloads_row_at(&shell->host->payloads, chunk->bytes);
    if (sent) shell->chunk_bytes_out += chunk->size;
    if (row < 0 || shell->sends[row] == 0) return;
    if (!tw_id_equal(&shell->host->payloads.pool.rows[row].hash, &chunk->payload)) return;
    sends_end(shell, (uint32_t)row, 1);
}

void tw_shell_net_drop(struct tw_shell *shell, const struct tw_id *payload) {
    const int row = tw_pool_find(&shell->host->payloads.pool, payload);
    if (shell->transport == NULL || row < 0 || shell->sends[row] == 0) return;
    tw_transport_drop(shell->transport, payload);
    sends_end(shell, (uint32_t)row, shell->sends[row]);
}

/* ---- arriving ------------------------------------------------------------------------------ */

static void chunk_take(struct tw_shell *shell, uint16_t peer, const struct tw_frame *frame) {
    struct tw_fetch_arrival chunk = {.peer = peer};
    struct tw_error err = {0};
    const uint8_t *bytes;
    if (tw_frame_chunk_decode(frame, &chunk.hash, &chunk.idx, &bytes, &chunk.size, &err) != TW_OK) {
        tw_transport_blame(shell->transport, peer, TW_PROTO, err.message);
        return;
    }
    if (tw_shell_data_chunk(shell, &chunk, bytes)) return;
    shell->chunk_bytes_in += chunk.size;
    /* Late, repeated, or never asked for: it must not touch what is there. */
    if (!tw_node_wants_chunk(shell->node, peer, &chunk.hash, chunk.idx)) {
        /* Of a payload that is still known it is here; else nobody needs it any more. */
        if (tw_pool_find(&shell->host->payloads.pool, &chunk.hash) >= 0)
            shell->chunk_bytes_again += chunk.size;
        return;
    }
    const enum tw_status status =
        tw_payloads_chunk_put(&shell->host->payloads, &chunk.hash, chunk.idx, bytes, chunk.size);
    if (status == TW_OK) {
        const struct tw_event event = {
            .kind = TW_EV_CHUNK, .peer = peer, .u.chunk = {.hash = chunk.hash, .idx = chunk.idx}};
        tw_shell_event(shell, &event);
        tw_shell_crowd_arrived(shell, peer, chunk.size);
    } else if (status != TW_AGAIN) { /* AGAIN: asked for once, not needed any more */
        tw_transport_close(shell->transport, peer, status, "a chunk that is not of its payload");
    }
}

static void on_frame(void *user, uint16_t peer, bool is_bulk, const struct tw_frame *frame) {
    struct tw_shell *shell = user;
    static struct tw_message message; /* too large for a stack, and the loop is one thread */
    struct tw_error err = {0};
    if (is_bulk) {
        chunk_take(shell, peer, frame);
        return;
    }
    if (tw_shell_gate_frame(shell, peer, frame)) return;
    if (tw_control_decode(frame->kind, frame->body, frame->body_bytes, &message, &err) != TW_OK) {
        tw_shell_note(shell, TW_LOG_WARN, "bad_message", "kind=%u text=\"%s\"", frame->kind,
                      err.message);
        tw_transport_blame(shell->transport, peer, TW_PROTO, err.message);
        return;
    }
    if (message.kind == TW_MSG_PEERS) {
        tw_members_merge(shell->members, &message.u.peers, tw_shell_now_us());
    }
    tw_shell_probe_message(shell, peer, &message);
    if (tw_shell_data_message(shell, peer, &message)) return;
    const struct tw_event event = {.kind = TW_EV_MESSAGE, .peer = peer, .u.message = &message};
    tw_shell_event(shell, &event);
}

/* ---- peers --------------------------------------------------------------------------------- */

static void gossip_send(struct tw_shell *shell, uint16_t peer) {
    struct tw_message message;
    memset(&message, 0, sizeof(message));
    message.kind = TW_MSG_PEERS;
    tw_members_records(shell->members, tw_shell_now_us(), &message.u.peers);
    tw_shell_net_send(shell, peer, &message);
}

static void on_peer_up(void *user, uint16_t peer, const struct tw_record *hello) {
    struct tw_shell *shell = user;
    char hex[9];
    shell->peers[peer] = (struct tw_shell_peer){.is_up = true, .id = hello->id};
    memcpy(shell->peers[peer].addrs, hello->addrs, sizeof(hello->addrs));
    for (unsigned a = 0; a < TW_ADDRS_MAX && hello->addrs[a][0] != '\0'; a++)
        tw_dial_history_worked(&shell->dials, hello->addrs[a]);
    tw_reachability_linked(&shell->probe.reach, tw_shell_now_us());
    tw_members_connected(shell->members, hello, tw_shell_now_us());
    tw_id_short(&hello->id, hex);
    tw_shell_note(shell, TW_LOG_INFO, "peer_up", "peer=%s addr=%s", hex,
                  hello->addrs[0][0] != '\0' ? hello->addrs[0] : "none");
    struct tw_event event = {.kind = TW_EV_PEER_UP, .peer = peer};
    event.u.id = hello->id;
    tw_shell_event(shell, &event);
    tw_shell_data_peer_up(shell, peer, &hello->id);
    tw_shell_crowd_peer_up(shell, peer);
    tw_shell_gate_peer_up(shell, peer);
    for (uint16_t i = 0; i < TW_PEERS_MAX; i++) {
        if (shell->peers[i].is_up) gossip_send(shell, i); /* all learn of the new one at once */
    }
}

static void on_peer_down(void *user, uint16_t peer, enum tw_status reason, const char *sentence) {
    struct tw_shell *shell = user;
    char hex[9];
    tw_id_short(&shell->peers[peer].id, hex);
    tw_shell_note(shell, reason == TW_OK ? TW_LOG_INFO : TW_LOG_WARN, "peer_down",
                  "peer=%s reason=%s text=\"%s\"", hex, tw_status_name(reason),
                  sentence != NULL ? sentence : "");
    tw_members_disconnected(shell->members, &shell->peers[peer].id, tw_shell_now_us());
    tw_shell_crowd_peer_down(shell, peer, reason);
    shell->bulk_gone.bytes_in += shell->peers[peer].bulk.bytes_in;
    shell->bulk_gone.bytes_out += shell->peers[peer].bulk.bytes_out;
    shell->peers[peer] = (struct tw_shell_peer){0};
    const struct tw_event event = {.kind = TW_EV_PEER_DOWN, .peer = peer};
    tw_shell_event(shell, &event);
    tw_shell_data_peer_down(shell, peer);
    tw_shell_gate_peer_down(shell, peer);
}

static void dial_failed(struct tw_shell *shell, const char *address,
                        const struct tw_dial_result *result) {
    const bool is_other = result->cause == TW_DIAL_WRONG_ID;
    const bool is_self = result->id != NULL && tw_id_equal(result->id, &shell->setup->identity.id);
    const struct tw_dial_failure failure = {.cause = result->cause,
                                            .sentence = result->sentence,
                                            .other = is_other ? result->id : NULL};
    uint64_t held_back;
    if (!tw_dial_history_failed(&shell->dials, address, &failure, tw_shell_now_us(), &held_back))
        return;
    if (is_self) return; /* nothing anybody has to act on */
    tw_shell_note(
        shell, TW_LOG_WARN, tw_dial_is_refusal(result->cause) ? "peer_refused" : "dial_failed",
        "addr=%s reason=%s text=\"%s\" held_back=%llu", address, tw_dial_cause_name(result->cause),
        result->sentence, (unsigned long long)held_back);
}

static void on_dial_done(void *user, const char *address, const struct tw_dial_result *result) {
    struct tw_shell *shell = user;
    const bool is_linked = result->status == TW_OK;
    tw_members_dialled(shell->members, address, is_linked, result->id, tw_shell_now_us());
    if (is_linked)
        tw_dial_history_worked(&shell->dials, address);
    else
        dial_failed(shell, address, result);
}

static void on_probe_done(void *user, const char *address, const struct tw_id *expected,
                          const struct tw_dial_result *result) {
    tw_shell_probe_done(user, address, expected, result);
}

static void on_guest(void *user, const struct tw_guest *guest) {
    tw_shell_invite_guest(user, guest);
}

/* ---- life ---------------------------------------------------------------------------------- */

/* "host:port" or "host:port=id". */
static enum tw_status bootstrap_add(struct tw_shell *shell, const char *entry,
                                    struct tw_error *err) {
    const size_t size = strcspn(entry, "=");
    TW_TRY(tw_members_bootstrap(shell->members, entry, tw_shell_now_us(), err));
    char address[TW_ADDR_BYTES];
    (void)snprintf(address, sizeof(address), "%.*s", (int)size, entry);
    tw_dial_history_configure(&shell->dials, address);
    return TW_OK;
}

static enum tw_status bootstrap_file(struct tw_shell *shell, const char *path,
                                     struct tw_error *err) {
    char line[256];
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        tw_shell_note(shell, TW_LOG_WARN, "no_peers_file", "text=\"%s cannot be read\"", path);
        return TW_OK; /* never fatal: the others may dial us */
    }
    enum tw_status status = TW_OK;
    while (status == TW_OK && fgets(line, sizeof(line), file) != NULL) {
        char entry[256];
        if (sscanf(line, " %255[^# \t\r\n]", entry) != 1) continue;
        struct tw_error reason;
        status = bootstrap_add(shell, entry, &reason);
        if (status != TW_OK) (void)tw_fail(err, status, "%s: %s", path, reason.message);
    }
    (void)fclose(file);
    return status;
}

enum tw_status tw_shell_net_bootstrap(struct tw_shell *shell, struct tw_error *err) {
    const struct tw_config *config = &shell->setup->config;
    for (uint32_t i = 0; i < config->network.peers_count; i++) {
        const struct tw_bootstrap *peer = &config->network.peers[i];
        char entry[TW_ADDR_BYTES + TW_ID_HEX_BYTES + 1], hex[TW_ID_HEX_BYTES];
        tw_id_hex(&peer->id, hex);
        (void)snprintf(entry, sizeof(entry), "%s%s%s", peer->address.text, peer->has_id ? "=" : "",
                       peer->has_id ? hex : "");
        TW_TRY(bootstrap_add(shell, entry, err));
    }
    if (config->network.peers_file[0] != '\0') {
        TW_TRY(bootstrap_file(shell, config->network.peers_file, err));
    }
    return TW_OK;
}

static enum tw_status members_open(struct tw_shell *shell, struct tw_error *err) {
    struct tw_members_config members = {.self = shell->setup->identity.id};
    TW_ASSERT(uv_random(NULL, NULL, &members.seed, sizeof(members.seed), 0, NULL) == 0);
    tw_members_init(shell->members, &members);
    tw_members_set_self(shell->members, tw_transport_self(shell->transport));
    TW_TRY(tw_shell_net_bootstrap(shell, err));
    tw_shell_cache_load(shell);
    tw_shell_bans_load(shell);
    tw_shell_crowd_load(shell);
    return TW_OK;
}

enum tw_status tw_shell_net_open(struct tw_shell *shell, struct tw_error *err) {
    const struct tw_config *config = &shell->setup->config;
    if (!config->network.links) return TW_OK;
    struct tw_transport_config transport = {
        .loop = &shell->loop,
        .identity = &shell->setup->identity,
        .secrets = shell->setup->secrets.count > 0 ? &shell->setup->secrets : NULL,
        .gate = shell->setup->has_gate ? &shell->setup->gate : NULL,
        .run = shell->setup->run_id,
        .boot = shell->setup->boot,
        .listen_count = config->network.listen_count,
        .upload_bytes_per_s = config->network.upload_bytes_s,
        .pace = config->network.pace,
        .events = {.peer_up = on_peer_up,
                   .peer_down = on_peer_down,
                   .frame = on_frame,
                   .released = on_released,
                   .dial_done = on_dial_done,
                   .probe_done = on_probe_done,
                   .banned = tw_shell_banned,
                   .guest = on_guest,
                   .refused = tw_shell_refused},
        .user = shell,
    };
    for (uint32_t i = 0; i < config->network.listen_count; i++) {
        memcpy(transport.listen[i], config->network.listen[i].text, TW_ADDR_BYTES);
    }
    for (uint32_t i = 0; i < config->network.advertise_count; i++) {
        memcpy(transport.advertise[i], config->network.advertise[i].text, TW_ADDR_BYTES);
    }
    for (uint32_t i = 0; i < config->network.bind_count; i++) {
        memcpy(transport.bind[i], config->network.bind[i].text, TW_ADDR_BYTES);
    }
    (void)snprintf(transport.interface, sizeof(transport.interface), "%s",
                   config->network.interface);
    TW_TRY(tw_transport_create(&transport, &shell->transport, err));
    tw_shell_gate_open(shell);
    return members_open(shell, err);
}

static void dial_due(struct tw_shell *shell, uint64_t now_us) {
    struct tw_dial dial;
    while (tw_members_next_dial(shell->members, now_us, &dial)) {
        struct tw_error err = {0};
        if (dial.has_id && tw_shell_gate_is_out(shell, &dial.id)) {
            tw_members_dialled(shell->members, dial.address, false, NULL, now_us);
            continue;
        }
        const enum tw_status status = tw_transport_connect(shell->transport, dial.address,
                                                           dial.has_id ? &dial.id : NULL, &err);
        if (status == TW_OK) continue;
        tw_members_dialled(shell->members, dial.address, false, NULL, now_us);
        if (status == TW_LIMIT) return; /* enough under way */
        const struct tw_dial_result result = {.status = status, .sentence = err.message};
        dial_failed(shell, dial.address, &result);
    }
}

static void refresh(struct tw_shell *shell, uint64_t now_us) {
    shell->refresh_due_us = now_us + TW_REFRESH_US;
    if (!tw_transport_refresh(shell->transport)) return;
    const struct tw_record *self = tw_transport_self(shell->transport);
    tw_shell_note(shell, TW_LOG_INFO, "address_changed", "addr=%s next=%s",
                  self->addrs[0][0] != '\0' ? self->addrs[0] : "none",
                  self->addrs[1][0] != '\0' ? self->addrs[1] : "none");
    tw_members_set_self(shell->members, self);
    tw_members_moved(shell->members, now_us);
    tw_reachability_moved(&shell->probe.reach, now_us);
}

void tw_shell_net_chores(struct tw_shell *shell, uint64_t now_us) {
    if (shell->transport == NULL) return;
    for (uint16_t i = 0; i < TW_PEERS_MAX; i++) {
        struct tw_peer_net net;
        if (!shell->peers[i].is_up || !tw_transport_peer(shell->transport, i, &net)) continue;
        shell->peers[i].control = net.control;
        shell->peers[i].bulk = net.bulk;
    }
    if (shell->stage != TW_SHELL_RUNNING) return;
    if (now_us >= shell->refresh_due_us) refresh(shell, now_us);
    if (shell->caps.rest == TW_REST_NONE) {
        dial_due(shell, now_us);
        tw_shell_probe_chores(shell, now_us);
    }
    tw_shell_crowd_chores(shell, now_us);
    if (now_us >= shell->gossip_due_us) {
        shell->gossip_due_us = now_us + TW_GOSSIP_US;
        for (uint16_t i = 0; i < TW_PEERS_MAX; i++) {
            if (shell->peers[i].is_up) gossip_send(shell, i);
        }
    }
    if (now_us >= shell->cache_due_us) {
        tw_shell_bans_clock(shell);
        if (shell->cache_due_us != 0) {
            tw_shell_cache_save(shell);
            tw_shell_crowd_save(shell);
        }
        shell->cache_due_us = now_us + TW_CACHE_US;
    }
}

void tw_shell_net_close(struct tw_shell *shell) {
    if (shell->transport == NULL) return;
    tw_transport_destroy(shell->transport, "this node is shutting down", NULL);
    shell->transport = NULL;
}
