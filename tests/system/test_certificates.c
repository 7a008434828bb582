/* Runs with an owner, with real daemons. They train together, a certificate is renewed over the
 * link before it expires, and a clock that is wrong by a day has its own message. test_owner.sh
 * tests the commands. */
#include <signal.h>
#include <time.h>

#include "daemon/auth/gate.h"
#include "daemon/auth/identity.h"
#include "proto/run/run.h"
#include "tests/system/cluster.h"
#include "tests/test.h"

enum { DAY_S = 86400 };

static struct cluster cluster;
static struct tw_identity owner, nodes[2];
static struct tw_id run_id;
static struct tw_error err;

static void ok(enum tw_status status) {
    if (status != TW_OK) fail_msg("%s", err.message);
}

static uint64_t now_s(void) {
    return (uint64_t)time(NULL);
}

static int setup(void **state) {
    char hex[TW_ID_HEX_BYTES], path[128];
    cluster_open(&cluster, "1g");
    ok(tw_identity_ephemeral(&owner, &err));
    const struct tw_id key = tw_public_key(owner.key);
    tw_id_hex(&key, hex);
    const char *const keys[][2] = {
        {"security.admission", "owner"}, {"security.owner", hex}, {NULL, NULL}};
    cluster_set_run(&cluster, keys);
    cluster_make(&cluster, 2);
    run_id = cluster_run_id(&cluster);
    for (unsigned i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof(path), "%s/state/identity.key", cluster.nodes[i].dir);
        ok(tw_identity_open(path, &nodes[i], &err));
    }
    return 0;
}

static int teardown(void **state) {
    cluster_close(&cluster, false);
    for (unsigned i = 0; i < 2; i++) tw_identity_close(&nodes[i]);
    tw_identity_close(&owner);
    return 0;
}

#define FACT(name) TEST_IN(setup, teardown, name)

/* Makes a certificate signed by `issuer`, valid from `from_s` until `until_s`. */
static struct tw_cert sign(unsigned node, uint32_t may, const struct tw_identity *issuer,
                           uint64_t from_s, uint64_t until_s) {
    uint8_t text[TW_CERT_SIGNED_BYTES];
    struct tw_cert cert = {.may = may,
                           .from_s = from_s,
                           .until_s = until_s,
                           .run = run_id,
                           .node = nodes[node].id,
                           .issuer = tw_public_key(issuer->key)};
    tw_cert_signed(&cert, text);
    tw_sign(issuer->key, text, sizeof(text), cert.signature);
    return cert;
}

static void give(unsigned node, const struct tw_certs *certs) {
    char folder[128];
    (void)snprintf(folder, sizeof(folder), "%s/state", cluster.nodes[node].dir);
    ok(tw_certs_save(folder, TW_CERT_FILE, certs, &err));
}

static void give_one(unsigned node, uint32_t may, uint64_t from_s, uint64_t until_s) {
    struct tw_certs certs = {.count = 1};
    certs.certs[0] = sign(node, may, &owner, from_s, until_s);
    give(node, &certs);
}

static bool both_are_members(void) {
    return cluster_reaches(&cluster, 0, "sync.roster_members", 2, 60) &&
           cluster_reaches(&cluster, 1, "sync.roster_members", 2, 60);
}

FACT(nodes_train_together_and_are_renewed) {
    enum { LIFE_S = 3000, LEFT_S = 900 }; /* the certificate is in its last third */
    const uint64_t start_s = now_s();
    char path[128];
    struct tw_certs certs = {.count = 2}, kept;
    give_one(0, TW_CERT_TRAIN | TW_CERT_ADMIT, start_s - DAY_S, start_s + 30 * DAY_S);
    certs.certs[0] = sign(1, TW_CERT_TRAIN, &nodes[0], start_s + LEFT_S - LIFE_S, start_s + LEFT_S);
    certs.certs[1] =
        sign(0, TW_CERT_TRAIN | TW_CERT_ADMIT, &owner, start_s - DAY_S, start_s + 30 * DAY_S);
    give(1, &certs);
    for (uint32_t i = 0; i < 2; i++) cluster_start(&cluster, i, NULL);
    assert_true(both_are_members());
    assert_true(cluster_reaches(&cluster, 1, "admission.certificate_left_s", LIFE_S - 300, 60));
    assert_true(cluster_says(&cluster, 0, "ev=certificate_renewed", 10));
    /* The renewed certificate is on disk, and the node can start with it. */
    (void)snprintf(path, sizeof(path), "%s/state/%s", cluster.nodes[1].dir, TW_CERT_FILE);
    kept.certs[0].until_s = 0;
    for (int i = 0; i < 100 && kept.certs[0].until_s < start_s + LIFE_S; i++) {
        ok(tw_certs_load(path, &kept, &err)); /* another thread writes the file a moment later */
        (void)nanosleep(&(struct timespec){.tv_nsec = 100 * 1000 * 1000}, NULL);
    }
    assert_true(kept.certs[0].until_s >= start_s + LIFE_S);
    assert_int_equal(cluster_end(&cluster, 1, SIGTERM, 60), 0);
    cluster_start(&cluster, 1, NULL);
    assert_true(both_are_members());
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 60), 0);
    assert_int_equal(cluster_end(&cluster, 1, SIGTERM, 60), 0);
}

FACT(a_clock_off_by_a_day_has_its_own_sentence) {
    /* The certificate is valid only from tomorrow, as if this machine's clock were a day behind. */
    give_one(0, TW_CERT_TRAIN, now_s() + DAY_S, now_s() + 30 * DAY_S);
    give_one(1, TW_CERT_TRAIN, now_s() - DAY_S, now_s() + 30 * DAY_S);
    for (uint32_t i = 0; i < 2; i++) cluster_start(&cluster, i, NULL);
    assert_true(cluster_says(&cluster, 0, "the clocks of the two machines are far apart", 60));
    assert_true(cluster_says(&cluster, 1, "timedatectl set-ntp true", 60));
    assert_true(cluster_number(&cluster, 0, "sync.alive_peers") <= 0);
    /* A valid certificate is adopted if its file appears while the node runs. */
    give_one(0, TW_CERT_TRAIN, now_s() - DAY_S, now_s() + 30 * DAY_S);
    assert_true(both_are_members());
    for (uint32_t i = 0; i < 2; i++) (void)cluster_end(&cluster, i, SIGTERM, 60);
}

/* A node without a vote says so. A certificate with another right counts from the next start. */
FACT(the_right_to_vote_counts_from_the_start) {
    const uint64_t from_s = now_s() - DAY_S, until_s = now_s() + 30 * DAY_S;
    give_one(0, TW_CERT_TRAIN, from_s, until_s);
    give_one(1, TW_CERT_TRAIN, from_s, until_s);
    for (uint32_t i = 0; i < 2; i++) cluster_start(&cluster, i, NULL);
    assert_true(both_are_members());
    assert_true(cluster_number(&cluster, 1, "admission.has_vote") == 1);
    give_one(1, TW_CERT_TRAIN | TW_CERT_VOTELESS, from_s, until_s);
    assert_true(cluster_says(&cluster, 1, "ev=vote_changes", 20));
    assert_true(cluster_number(&cluster, 1, "admission.has_vote") == 1);
    assert_int_equal(cluster_end(&cluster, 1, SIGTERM, 60), 0);
    cluster_start(&cluster, 1, NULL);
    assert_true(cluster_reaches(&cluster, 1, "sync.alive_voters", 1, 60));
    assert_true(cluster_number(&cluster, 1, "admission.has_vote") == 0);
    assert_true(cluster_number(&cluster, 0, "sync.alive_voters") == 0);
    for (uint32_t i = 0; i < 2; i++) (void)cluster_end(&cluster, i, SIGTERM, 60);
}
