/* Tests of daemon/net/admit.c: a node with a ticket and its inviter on one loop. */
#include "daemon/net/handshake.h"
#include "tests/daemon/net/world.h"
#include "tests/test.h"

static void has_word(const char *sentence, const char *word) {
    if (strstr(sentence, word) == NULL) fail_msg("no '%s' in: %s", word, sentence);
}

static struct {
    struct tw_ticket ticket;
    uint32_t number, guests, welcomes;
    enum tw_status verdict;
    struct tw_id id;
    uint8_t body[64];
    uint32_t size;
} visit;

static void on_guest(void *user, const struct tw_guest *guest) {
    struct tw_error err;
    visit.guests++;
    visit.number = guest->number;
    visit.id = guest->hello->id;
    assert_memory_equal(guest->ticket_id, visit.ticket.id, TW_TICKET_ID_BYTES);
    uint8_t key[TW_TICKET_KEY_BYTES];
    memset(key, 0x77, sizeof(key));
    visit.verdict = tw_hello_check_ticket(guest->hello, key, guest->ekm, &err);
}

static void on_welcomed(void *user, const uint8_t *body, uint32_t size) {
    visit.welcomes++;
    visit.size = size;
    memcpy(visit.body, body, size < sizeof(visit.body) ? size : sizeof(visit.body));
}

static void takes_guests(struct tw_transport_config *config) {
    config->events.guest = on_guest;
}

static void is_a_guest(struct tw_transport_config *config) {
    config->events.welcomed = on_welcomed;
    config->secrets = NULL;
    config->listen_count = 0;
}

/* Starts a visit: node 0 has a ticket of node 1. */
static void visit_begin(void) {
    struct world_node *b = &world.nodes[1];
    struct tw_error err;
    char address[TW_ADDR_BYTES];
    memset(&visit, 0, sizeof(visit));
    visit.ticket.inviter = b->identity.id;
    memset(visit.ticket.id, 0x11, sizeof(visit.ticket.id));
    memset(visit.ticket.key, 0x77, sizeof(visit.ticket.key));
    (void)snprintf(address, sizeof(address), "127.0.0.1:%u",
                   (unsigned)tw_transport_port(b->transport, 0));
    assert_int_equal(tw_transport_visit(world.nodes[0].transport, address, &visit.ticket, &err),
                     TW_OK);
}

WORLD_TEST(a_guest_gets_a_welcome_and_goes) {
    static uint8_t body[TW_WELCOME_BYTES_MAX];
    struct world_node *a = world_start(&world, 0, is_a_guest);
    struct world_node *b = world_start(&world, 1, takes_guests);
    memset(body, 0x3c, sizeof(body));
    visit_begin();
    WAIT_WHILE(&world, visit.guests == 0);
    assert_int_equal(visit.verdict, TW_OK);
    assert_true(tw_id_equal(&visit.id, &a->identity.id));
    world_turn(&world, 20); /* a slow disk delays the welcome */
    assert_int_equal(visit.welcomes + a->dials, 0);
    tw_transport_welcome(b->transport, visit.number + 1, visit.ticket.key, body, 5); /* unknown */
    tw_transport_welcome(b->transport, visit.number, visit.ticket.key, body, sizeof(body));
    WAIT_WHILE(&world, a->dials == 0);
    assert_int_equal(a->dial_status, TW_OK);
    assert_int_equal(visit.welcomes, 1);
    assert_int_equal(visit.size, sizeof(body));
    assert_memory_equal(visit.body, body, sizeof(visit.body));
    assert_int_equal(a->ups + b->ups + b->refusals, 0);
}

WORLD_TEST(a_guest_is_turned_away_with_the_reason) {
    struct world_node *a = world_start(&world, 0, is_a_guest);
    struct world_node *b = world_start(&world, 1, takes_guests);
    visit_begin();
    WAIT_WHILE(&world, visit.guests == 0);
    tw_transport_turn_away(b->transport, visit.number, TW_TICKET_USED, "2 of 2");
    WAIT_WHILE(&world, a->dials == 0 || b->refusals == 0);
    assert_int_equal(a->dial_status, TW_TICKET_USED);
    has_word(a->dial_sentence, "2 of 2");
    has_word(a->dial_sentence, "thinwire invite");
    assert_int_equal(b->refused_reason, TW_TICKET_USED);
    assert_int_equal(visit.welcomes, 0);
}

WORLD_TEST(a_node_without_tickets_knows_none) {
    struct world_node *a = world_start(&world, 0, is_a_guest);
    world_start(&world, 1, NULL);
    visit_begin();
    WAIT_WHILE(&world, a->dials == 0);
    assert_int_equal(a->dial_status, TW_TICKET_UNKNOWN);
}

WORLD_TEST(another_key_proves_nothing_to_either_side) {
    struct world_node *a = world_start(&world, 0, is_a_guest);
    struct world_node *b = world_start(&world, 1, takes_guests);
    visit_begin();
    WAIT_WHILE(&world, visit.guests == 0);
    const uint8_t other[TW_TICKET_KEY_BYTES] = {5};
    tw_transport_welcome(b->transport, visit.number, other, other, sizeof(other));
    WAIT_WHILE(&world, a->dials == 0);
    assert_int_equal(a->dial_status, TW_TICKET_UNKNOWN);
    assert_int_equal(visit.welcomes, 0);
}
