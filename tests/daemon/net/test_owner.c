/* Tests of runs with an owner over real links: admission, revocation, and expired certificates.
 * The rules themselves are tested in tests/daemon/auth/test_gate.c. */
#include "daemon/auth/gate.h"
#include "daemon/auth/identity.h"
#include "tests/daemon/net/world.h"
#include "tests/test.h"

enum { DAY_S = 86400, NODES = 3 };

static struct tw_identity owner;
static struct tw_gate gates[NODES];
static uint64_t clocks_s[NODES]; /* each node's own */
static unsigned starting;        /* index of the node that world_start is starting */

static uint64_t clock_0(void) {
    return clocks_s[0];
}
static uint64_t clock_1(void) {
    return clocks_s[1];
}
static uint64_t clock_2(void) {
    return clocks_s[2];
}

static void sign(unsigned i, uint32_t may) {
    uint8_t text[TW_CERT_SIGNED_BYTES];
    struct tw_certs certs = {.count = 1};
    certs.certs[0] = (struct tw_cert){.may = may,
                                      .from_s = 1800000000 - 60,
                                      .until_s = 1800000000 + 10 * DAY_S,
                                      .run = world.run,
                                      .node = world.nodes[i].identity.id,
                                      .issuer = tw_public_key(owner.key)};
    tw_cert_signed(&certs.certs[0], text);
    tw_sign(owner.key, text, sizeof(text), certs.certs[0].signature);
    assert_int_equal(tw_gate_adopt(&gates[i], &certs, NULL), TW_OK);
}

static void shut_out(struct tw_gate *gate, uint64_t version, const struct tw_id *node) {
    static struct tw_revoked list;
    static uint8_t bytes[TW_REVOKED_BYTES_MAX];
    uint8_t text[TW_REVOKED_SIGNED_BYTES];
    memset(&list, 0, sizeof(list));
    list.version = version;
    list.run = world.run;
    assert_true(tw_revoked_add(&list, node));
    tw_revoked_signed(&list, text);
    tw_sign(owner.key, text, sizeof(text), list.signature);
    const size_t size = tw_revoked_encode(&list, bytes);
    assert_int_equal(tw_gate_revoke(gate, bytes, size, NULL), TW_OK);
}

static int setup(void **state) {
    static uint64_t (*const CLOCKS[NODES])(void) = {clock_0, clock_1, clock_2};
    if (tw_identity_ephemeral(&owner, NULL) != TW_OK) return -1;
    const struct tw_id key = tw_public_key(owner.key);
    world_init(&world);
    for (unsigned i = 0; i < NODES; i++) {
        clocks_s[i] = 1800000000;
        tw_gate_init(&gates[i], &world.run, &key, &world.nodes[i].identity);
        gates[i].clock_s = CLOCKS[i];
    }
    return 0;
}

static int teardown(void **state) {
    world_deinit(&world);
    tw_identity_close(&owner);
    return 0;
}

#define FACT(name) TEST_IN(setup, teardown, name)

static void with_gate(struct tw_transport_config *config) {
    config->secrets = NULL;
    config->gate = &gates[starting];
}

static struct world_node *start(unsigned i) {
    starting = i;
    return world_start(&world, i, with_gate);
}

static bool a_dial_is_over(struct world *w) {
    return w->nodes[0].dials > 0;
}

static bool both_have_bulk(struct world *w) {
    return world_has_bulk(&w->nodes[0]) && world_has_bulk(&w->nodes[1]);
}

/* Node 0 dials node 1, and both check certificates. The sentence that node 0 gets must contain
 * `word`. */
static void meets(enum tw_status wanted, const char *word) {
    struct world_node *a = start(0), *b = start(1);
    world_dial(a, b);
    world_run(&world, wanted == TW_OK ? both_have_bulk : a_dial_is_over);
    assert_int_equal(a->dial_status, wanted);
    if (wanted == TW_OK) return;
    if (strstr(a->dial_sentence, word) == NULL) fail_msg("no '%s' in: %s", word, a->dial_sentence);
    WAIT_WHILE(&world, world_peers(a) + world_peers(b) > 0);
}

FACT(certificates_let_nodes_in_without_a_secret) {
    sign(0, TW_CERT_TRAIN);
    sign(1, TW_CERT_TRAIN | TW_CERT_ADMIT);
    meets(TW_OK, "");
    const int peer = world_peer_of(&world.nodes[0], &world.nodes[1]);
    const struct tw_certs certs = tw_transport_certs(world.nodes[0].transport, (uint16_t)peer);
    assert_memory_equal(&certs, &gates[1].own, sizeof(certs));
}

FACT(the_dialled_node_refuses_a_node_without_certificate) {
    sign(1, TW_CERT_TRAIN);
    meets(TW_NOT_ADMITTED, "has no certificate");
    assert_int_equal(world.nodes[1].ups, 0);
    assert_int_equal(world.nodes[1].refused_reason, TW_NOT_ADMITTED);
}

FACT(the_dialler_refuses_a_node_without_certificate) {
    sign(0, TW_CERT_TRAIN);
    meets(TW_NOT_ADMITTED, "has no certificate");
    assert_int_equal(world.nodes[0].ups, 0);
}

FACT(a_stolen_certificate_is_of_no_use) {
    sign(1, TW_CERT_TRAIN);
    sign(2, TW_CERT_TRAIN);
    gates[0].own = gates[2].own;
    meets(TW_NOT_ADMITTED, "shows the certificate of node");
}

FACT(a_clock_a_day_behind_is_named_to_both) {
    sign(0, TW_CERT_TRAIN);
    sign(1, TW_CERT_TRAIN);
    clocks_s[1] -= DAY_S;
    meets(TW_BAD_CLOCK, "where it is checked it is");
    assert_int_equal(world.nodes[1].refused_reason, TW_BAD_CLOCK);
}

FACT(an_expired_certificate_admits_no_node) {
    sign(0, TW_CERT_TRAIN);
    sign(1, TW_CERT_TRAIN);
    clocks_s[0] = clocks_s[1] = gates[0].own.certs[0].until_s + DAY_S;
    meets(TW_NOT_ADMITTED, "ended at");
}

FACT(the_revoked_are_not_let_in) {
    sign(0, TW_CERT_TRAIN);
    sign(1, TW_CERT_TRAIN);
    shut_out(&gates[1], 1, &world.nodes[0].identity.id);
    meets(TW_REVOKED, "is on list 1 of the revoked");
}

/* ---- established links --------------------------------------------------------------------- */

FACT(links_of_the_revoked_end_at_once) {
    sign(0, TW_CERT_TRAIN);
    sign(1, TW_CERT_TRAIN);
    meets(TW_OK, "");
    struct world_node *a = &world.nodes[0], *b = &world.nodes[1];
    tw_transport_review(b->transport); /* nothing changed */
    world_turn(&world, 20);
    assert_int_equal(world_peers(b), 1);
    shut_out(&gates[1], 1, &world.nodes[2].identity.id); /* another node */
    tw_transport_review(b->transport);
    world_turn(&world, 20);
    assert_int_equal(world_peers(b), 1);
    shut_out(&gates[1], 2, &a->identity.id);
    tw_transport_review(b->transport);
    WAIT_WHILE(&world, world_peers(a) + world_peers(b) > 0);
    assert_int_equal(b->down_reason, TW_REVOKED);
    assert_int_equal(a->down_reason, TW_REVOKED);
    assert_non_null(strstr(a->down_sentence, "is on list 2 of the revoked"));
}

FACT(links_end_with_the_certificate_and_come_back_with_the_next) {
    sign(0, TW_CERT_TRAIN);
    sign(1, TW_CERT_TRAIN);
    meets(TW_OK, "");
    struct world_node *a = &world.nodes[0], *b = &world.nodes[1];
    clocks_s[1] = gates[0].own.certs[0].until_s + TW_CERT_SLACK_S + 1;
    tw_transport_review(b->transport);
    WAIT_WHILE(&world, world_peers(a) + world_peers(b) > 0);
    assert_int_equal(b->down_reason, TW_NOT_ADMITTED);
    assert_non_null(strstr(a->down_sentence, "ended at"));
    /* Both nodes get new certificates from an admitter whose own certificate begins today. */
    struct tw_certs fresh;
    clocks_s[0] = clocks_s[1] = clocks_s[2] = 1800000000;
    sign(2, TW_CERT_TRAIN | TW_CERT_ADMIT);
    for (unsigned i = 0; i < 2; i++) {
        const struct tw_gate_admission admission = {.node = world.nodes[i].identity.id,
                                                    .life_s = DAY_S};
        assert_int_equal(tw_gate_admit(&gates[2], &admission, &fresh, NULL), TW_OK);
        assert_int_equal(tw_gate_adopt(&gates[i], &fresh, NULL), TW_OK);
    }
    world_dial(a, b);
    world_run(&world, both_have_bulk);
}

/* A peer's renewed certificate is accepted on the open link, not only in the next HELLO. */
FACT(a_renewed_peer_stays) {
    struct tw_certs fresh;
    sign(1, TW_CERT_TRAIN | TW_CERT_ADMIT);
    const struct tw_gate_admission admission = {.node = world.nodes[0].identity.id,
                                                .life_s = DAY_S};
    assert_int_equal(tw_gate_admit(&gates[1], &admission, &fresh, NULL), TW_OK);
    assert_int_equal(tw_gate_adopt(&gates[0], &fresh, NULL), TW_OK);
    meets(TW_OK, "");
    struct world_node *b = &world.nodes[1];
    const uint16_t peer = (uint16_t)world_peer_of(b, &world.nodes[0]);
    const struct tw_certs old = tw_transport_certs(b->transport, peer);
    clocks_s[1] += DAY_S - 60;
    assert_int_equal(tw_gate_renew(&gates[1], &old, &fresh, NULL), TW_OK);
    tw_transport_renew(b->transport, peer, &fresh);
    clocks_s[1] += 600;
    tw_transport_review(b->transport);
    world_turn(&world, 20);
    assert_int_equal(world_peers(b), 1);
    clocks_s[1] += DAY_S + 600;
    tw_transport_review(b->transport);
    WAIT_WHILE(&world, world_peers(b) > 0);
}
