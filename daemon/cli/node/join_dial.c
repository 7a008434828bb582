#include "daemon/cli/node/join_dial.h"

#include <stdio.h>
#include <string.h>

#include <uv.h>

#include "base/assert.h"
#include "daemon/cli/common/cli.h"
#include "daemon/net/transport.h"

struct dial {
    struct tw_transport *transport;
    const struct tw_ticket *ticket;
    struct tw_welcome *welcome;
    uint32_t next; /* index of the next address */
    bool is_welcome;
    char *address;
};

/* ---- events -------------------------------------------------------------------------------- */

static void next_address(struct dial *dial) {
    struct tw_error err = {0};
    while (dial->next < dial->ticket->addrs_count) {
        const char *address = dial->ticket->addrs[dial->next++];
        (void)fprintf(stderr, "thinwire: dialling %s\n", address);
        if (tw_transport_visit(dial->transport, address, dial->ticket, &err) == TW_OK) return;
        (void)cli_fail(TW_EXIT_JOIN, "%s: %s", address, err.message);
    }
    tw_transport_destroy(dial->transport, "done", NULL);
}

static void on_welcomed(void *user, const uint8_t *body, uint32_t size) {
    struct dial *dial = user;
    struct tw_error err = {0};
    dial->is_welcome = tw_welcome_decode(body, size, dial->welcome, &err) == TW_OK;
    if (!dial->is_welcome)
        (void)cli_fail(TW_EXIT_JOIN, "the inviter's answer is malformed: %s", err.message);
}

static void on_dial_done(void *user, const char *address, const struct tw_dial_result *result) {
    struct dial *dial = user;
    const char *const way_out = strrchr(result->sentence, ';');
    /* The way out of this sentence is that of a daemon, which dials again by itself. */
    if (result->cause == TW_DIAL_OFFLINE && way_out != NULL)
        (void)cli_fail(TW_EXIT_JOIN, "%.*s; join again once it has a line",
                       (int)(way_out - result->sentence), result->sentence);
    else if (result->status != TW_OK)
        (void)cli_fail(TW_EXIT_JOIN, "%s", result->sentence);
    if (dial->is_welcome) (void)snprintf(dial->address, TW_ADDR_BYTES, "%s", address);
    /* An inviter that refuses would also refuse at its other addresses. */
    const bool is_over = result->status == TW_OK || tw_dial_is_refusal(result->cause);
    if (is_over && result->cause != TW_DIAL_WRONG_ID) dial->next = dial->ticket->addrs_count;
    next_address(dial);
}

/* never called: a guest has no peers */
static void on_peer_up(void *user, uint16_t peer, const struct tw_member_row *hello) {
    (void)user, (void)peer, (void)hello;
}

static void on_peer_down(void *user, uint16_t peer, enum tw_status reason, const char *sentence) {
    (void)user, (void)peer, (void)reason, (void)sentence;
}

static void on_frame(void *user, uint16_t peer, bool is_bulk, const struct tw_frame *frame) {
    (void)user, (void)peer, (void)is_bulk, (void)frame;
}

/* -------------------------------------------------------------------------------------------- */

enum tw_exit join_dial(const struct tw_ticket *ticket, const struct tw_identity *identity,
                       const char *name, struct tw_welcome *welcome, char *address) {
    uv_loop_t loop;
    struct tw_error err = {0};
    struct dial dial = {.ticket = ticket, .welcome = welcome, .address = address};
    TW_ASSERT(uv_loop_init(&loop) == 0);
    struct tw_transport_config config = {
        .loop = &loop,
        .identity = identity,
        .run = ticket->run,
        .events = {.peer_up = on_peer_up,
                   .peer_down = on_peer_down,
                   .frame = on_frame,
                   .welcomed = on_welcomed,
                   .dial_done = on_dial_done},
        .user = &dial,
    };
    tw_node_name_clean(name, config.name);
    if (tw_transport_create(&config, &dial.transport, &err) != TW_OK) {
        (void)uv_run(&loop, UV_RUN_DEFAULT);
        return cli_fail(TW_EXIT_FAILURE, "%s", err.message);
    }
    next_address(&dial);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    TW_ASSERT(uv_loop_close(&loop) == 0);
    return dial.is_welcome ? TW_EXIT_OK : TW_EXIT_JOIN;
}
