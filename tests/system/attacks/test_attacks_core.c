/* Attacks on the decisions of a live group by a node that holds the secret: each names the promise
 * of SECURITY.md that it tries to break. */
#include <signal.h>
#include <time.h>

#include <jansson.h>

#include "base/exit_codes.h"
#include "daemon/auth/identity.h"
#include "proto/control.h"
#include "tests/system/attacks/hostile.h"
#include "tests/system/cluster.h"
#include "tests/test.h"

static struct cluster cluster;
static struct hostile_target target;
static struct tw_secret secret;
static struct hostile liar;

static void open_group(uint32_t count) {
    cluster_open(&cluster, "1g");
    cluster_make(&cluster, count);
    hostile_know(&target, &secret, cluster.dir, cluster.nodes[0].port);
    target.secret = &secret;
    for (uint32_t i = 0; i < count; i++) cluster_start(&cluster, i, NULL);
    assert_true(cluster_reaches(&cluster, 0, "sync.roster_members", count, 30));
}

static int close_all(void **state) {
    cluster_close(&cluster, !test_has_passed);
    return 0;
}

#define FACT(name) TEST_IN(NULL, close_all, name)

/* Reads frames until the next message of this kind. */
static bool hear(enum tw_message_kind kind, struct tw_message *message) {
    struct tw_frame frame;
    while (hostile_next(&liar, 10, &frame) == TW_OK) {
        if (frame.kind != kind) continue;
        return tw_control_decode(frame.kind, frame.body, frame.body_bytes, message, NULL) == TW_OK;
    }
    return false;
}

/* Fetches the newest record of the group, as any linked node can. */
static bool fetch_tip(struct tw_record *tip) {
    static struct tw_message message;
    if (!hear(TW_MSG_STATUS, &message)) return false;
    const struct tw_msg_log_get get = {.lineage = message.u.status.lineage,
                                       .round = message.u.status.rounds - 1};
    message = (struct tw_message){.kind = TW_MSG_LOG_GET, .u.log_get = get};
    if (!hostile_message(&liar, &message) || !hear(TW_MSG_COMMIT, &message)) return false;
    *tip = message.u.commit.record;
    return true;
}

static uint32_t count_fragments(void) {
    json_t *status = cluster_get(&cluster, 0, "/v1/status");
    const json_t *run = json_object_get(status, "run");
    const size_t count = json_array_size(json_object_get(run, "fragment_rounds"));
    json_decref(status);
    assert_true(count > 0);
    return (uint32_t)count;
}

/* Forges a decided record of the next round. It has no parts, and its roster is the attacker
 * alone. */
static void forge(const struct tw_record *tip, uint32_t fragments, struct tw_msg_commit *commit) {
    struct tw_record *record = &commit->record;
    *record = *tip;
    record->parent = tw_record_digest(tip);
    record->round++;
    record->fragment = (uint32_t)(record->round % fragments);
    record->contributors_count = record->parts_count = 0;
    record->roster_number = tip->next.number;
    record->next = (struct tw_roster){.number = tip->next.number + 1, .count = 1};
    record->next.members[0] = (struct tw_member){liar.identity.id, 1, 1, false, 0};
    /* The proof names voters, but contains no signatures. */
    commit->proof = (struct tw_proof){.ballot = 1, .voters = 0x3};
}

/* Returns true if the node's status has a warning that contains these words. */
static bool warns(uint32_t node, const char *words) {
    json_t *const status = cluster_get(&cluster, node, "/v1/status");
    char *const text = json_dumps(json_object_get(status, "warnings"), 0);
    const bool is_said = text != NULL && strstr(text, words) != NULL;
    free(text);
    json_decref(status);
    return is_said;
}

/* A linked node that is no member tells one node that a round is decided. No node believes it,
 * the link ends, and the log names the attack. */
FACT(forged_commit_takes_no_node_out_of_its_group) {
    static struct tw_message message;
    open_group(2);
    const unsigned states = cluster_lines(&cluster, 0, "ev=state state=");
    const double rounds = cluster_number(&cluster, 1, "sync.rounds_committed");
    const uint32_t fragments = count_fragments();
    uint32_t told = 0;
    for (int attempt = 0; attempt < 3; attempt++) {
        struct tw_record tip;
        if (!hostile_join(&liar, &target, NULL)) break;
        if (fetch_tip(&tip)) {
            memset(&message, 0, sizeof(message));
            message.kind = TW_MSG_COMMIT;
            forge(&tip, fragments, &message.u.commit);
            told += hostile_message(&liar, &message);
            assert_true(hostile_ends(&liar, 10));
        }
        hostile_close(&liar);
    }
    assert_true(told > 0);
    assert_in_range(cluster_lines(&cluster, 0, "level=warn ev=round_forged "), 1, told);
    assert_true(warns(0, "sent a round that its group did not decide"));
    assert_false(warns(1, "sent a round"));
    assert_true(cluster_reaches(&cluster, 1, "sync.rounds_committed", rounds + 5, 30));
    assert_true(cluster_number(&cluster, 0, "sync.roster_members") == 2);
    assert_int_equal(cluster_lines(&cluster, 0, "ev=state state="), states);
    assert_true(cluster_digests(&cluster, 0, 1) >= 3);
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
    assert_int_equal(cluster_end(&cluster, 1, SIGTERM, 20), TW_EXIT_OK);
}

/* ---- an invented lineage -------------------------------------------------------------------- */

enum { INVENTED = 12, INVENTED_ROUNDS = 1000 };

static struct tw_identity invented[INVENTED]; /* sorted by id */

static int compare_ids(const void *a, const void *b) {
    const struct tw_identity *const left = a, *const right = b;
    return tw_id_compare(&left->id, &right->id);
}

static void invent_nodes(void) {
    for (uint32_t i = 0; i < INVENTED; i++)
        assert_int_equal(tw_identity_ephemeral(&invented[i], NULL), TW_OK);
    qsort(invented, INVENTED, sizeof(invented[0]), compare_ids);
}

/* Makes a record of the invented lineage, decided by all invented nodes. */
static void invent_round(uint64_t round, uint32_t fragments, const struct tw_id *parent,
                         struct tw_msg_commit *commit) {
    struct tw_record *record = &commit->record;
    memset(commit, 0, sizeof(*commit));
    memset(record->lineage.bytes, 0xAB, sizeof(record->lineage.bytes));
    record->parent = *parent;
    record->round = round;
    record->fragment = (uint32_t)(round % fragments);
    record->clock_tokens = UINT64_C(1) << 40;
    record->next.count = INVENTED;
    for (uint32_t i = 0; i < INVENTED; i++)
        record->next.members[i] = (struct tw_member){invented[i].id, i + 1, 1, false, 0};
    struct tw_ballot_vote vote = {.run = target.run,
                                  .lineage = record->lineage,
                                  .round = round,
                                  .ballot = 1,
                                  .phase = TW_VOTE_COMMIT,
                                  .digest = tw_record_digest(record)};
    uint8_t text[TW_VOTE_TEXT_BYTES];
    commit->proof.ballot = 1;
    for (uint32_t i = 0; i < INVENTED; i++) {
        commit->proof.voters |= UINT64_C(1) << i;
        vote.nonce = record->next.members[i].nonce;
        tw_ballot_vote_text(&vote, text);
        tw_sign(invented[i].key, text, sizeof(text), commit->proof.signatures[i]);
    }
}

/* Sends a STATUS that claims the invented lineage. */
static bool claim_lineage(void) {
    static struct tw_message message;
    memset(&message, 0, sizeof(message));
    message.kind = TW_MSG_STATUS;
    message.u.status.state = TW_STATE_MEMBER;
    memset(message.u.status.lineage.bytes, 0xAB, sizeof(message.u.status.lineage.bytes));
    message.u.status.rounds = INVENTED_ROUNDS;
    message.u.status.clock_tokens = UINT64_C(1) << 40;
    message.u.status.nonce = message.u.status.boot = 1;
    return hostile_message(&liar, &message);
}

/* Answers a LOG_GET with records of the invented lineage. */
static void answer_claim(const struct tw_msg_log_get *get, uint32_t fragments) {
    static struct tw_message message;
    struct tw_id parent = {{0}};
    for (uint64_t round = get->round; round < INVENTED_ROUNDS; round++) {
        message.kind = TW_MSG_COMMIT;
        invent_round(round, fragments, &parent, &message.u.commit);
        parent = tw_record_digest(&message.u.commit.record);
        assert_true(hostile_message(&liar, &message));
    }
}

/* A linked node claims a lineage far ahead of all others, and proves it with the votes of many
 * invented nodes. The group is not affected. */
FACT(invented_lineage_draws_no_node_out_of_its_group) {
    static struct tw_message message;
    struct tw_frame frame;
    uint32_t asked = 0;
    open_group(3);
    invent_nodes();
    const unsigned states = cluster_lines(&cluster, 0, "ev=state state=");
    const unsigned lineages = cluster_lines(&cluster, 0, "ev=lineage ");
    const double rounds = cluster_number(&cluster, 0, "sync.rounds_committed");
    const uint32_t fragments = count_fragments();
    assert_true(hostile_join(&liar, &target, NULL));
    for (uint32_t told = 0; told < 5; told++) {
        assert_true(claim_lineage());
        while (hostile_next(&liar, 0.5, &frame) == TW_OK) {
            if (frame.kind != TW_MSG_LOG_GET) continue;
            if (tw_control_decode(frame.kind, frame.body, frame.body_bytes, &message, NULL) !=
                TW_OK)
                continue;
            answer_claim(&message.u.log_get, fragments);
            asked++;
        }
    }
    assert_true(asked > 0);
    hostile_close(&liar);
    for (uint32_t i = 0; i < INVENTED; i++) tw_identity_close(&invented[i]);
    assert_true(cluster_reaches(&cluster, 0, "sync.rounds_committed", rounds + 5, 30));
    assert_true(cluster_reaches(&cluster, 0, "sync.roster_members", 3, 30));
    assert_true(cluster_number(&cluster, 0, "sync.roster_members") <= 3);
    assert_int_equal(cluster_lines(&cluster, 0, "ev=state state="), states);
    assert_int_equal(cluster_lines(&cluster, 0, "ev=lineage "), lineages);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(cluster_end(&cluster, i, SIGTERM, 20), TW_EXIT_OK);
}

/* ---- evidence ------------------------------------------------------------------------------- */

/* Makes evidence against `author`: two votes, signed with this key, for different records in one
 * ballot. */
static void deny_vote(struct tw_identity *author, struct tw_message *message) {
    struct tw_msg_evidence *evidence = &message->u.evidence;
    memset(message, 0, sizeof(*message));
    message->kind = TW_MSG_EVIDENCE;
    evidence->author = author->id;
    evidence->lineage = evidence->first.digest = target.run;
    evidence->second.digest = author->id;
    evidence->ballot = 64;
    evidence->phase = TW_VOTE_ACCEPT;
    struct tw_statement *statements[2] = {&evidence->first, &evidence->second};
    for (uint32_t i = 0; i < 2; i++) {
        const struct tw_ballot_vote vote = {.run = target.run,
                                            .lineage = evidence->lineage,
                                            .ballot = evidence->ballot,
                                            .phase = evidence->phase,
                                            .digest = statements[i]->digest};
        uint8_t text[TW_VOTE_TEXT_BYTES];
        tw_ballot_vote_text(&vote, text);
        tw_sign(author->key, text, sizeof(text), statements[i]->signature);
    }
}

/* A node is banned if it signed two contradictory votes. False evidence against an honest node
 * harms only its sender. */
FACT(evidence_bans_its_author_alone) {
    static struct tw_message message;
    static struct hostile witness;
    struct tw_record tip;
    open_group(2);
    const double rounds = cluster_number(&cluster, 0, "sync.rounds_committed");
    assert_true(hostile_join(&liar, &target, NULL));
    assert_true(fetch_tip(&tip));
    assert_int_equal(tip.next.count, 2);
    /* One of the two accused members is node 0, which ignores evidence against itself. */
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(hostile_join(&witness, &target, NULL));
        deny_vote(&witness.identity, &message);
        message.u.evidence.author = tip.next.members[i].id;
        assert_true(hostile_message(&witness, &message));
        (void)hostile_ends(&witness, 2);
        hostile_close(&witness);
    }
    assert_true(cluster_number(&cluster, 0, "network.banned") == 0);
    assert_true(hostile_join(&witness, &target, NULL));
    deny_vote(&liar.identity, &message);
    assert_true(hostile_message(&witness, &message));
    assert_true(hostile_ends(&liar, 10));
    assert_true(cluster_reaches(&cluster, 0, "network.banned", 1, 10));
    assert_true(warns(0, "signed two statements that exclude each other"));
    hostile_close(&witness);
    hostile_close(&liar);
    assert_true(cluster_reaches(&cluster, 0, "sync.rounds_committed", rounds + 5, 30));
    assert_true(cluster_number(&cluster, 0, "sync.roster_members") == 2);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(cluster_end(&cluster, i, SIGTERM, 20), TW_EXIT_OK);
}

/* ---- many ids ------------------------------------------------------------------------------- */

enum { SYBILS = 8, GROUP = 3, OLD_ROUNDS = 40 };

static struct hostile sybils[SYBILS][GROUP]; /* links of each id to each node */
static struct hostile bulks[SYBILS][GROUP];  /* their bulk connections */
static bool is_shut[SYBILS][GROUP];

static uint64_t nonce_of(uint32_t sybil) {
    return 1000 + sybil;
}

static bool open_bulk(struct hostile *bulk, const struct hostile *control) {
    struct tw_hello hello;
    struct tw_frame frame;
    if (!hostile_open(bulk, &target, control)) return false;
    hostile_hello(bulk, &target, TW_ROLE_BULK, control->tag, &hello);
    return hostile_say(bulk, &hello) && hostile_next(bulk, 10, &frame) == TW_OK &&
           frame.kind == TW_FRAME_HELLO;
}

/* Claims to be a member at this node's round, and asks for a seat in it. */
static bool ask_for_seat(struct hostile *link, uint64_t nonce, const struct tw_msg_status *theirs) {
    static struct tw_message message;
    memset(&message, 0, sizeof(message));
    message.kind = TW_MSG_STATUS;
    message.u.status = *theirs;
    message.u.status.state = TW_STATE_MEMBER;
    message.u.status.nonce = nonce;
    if (!hostile_message(link, &message)) return false;
    memset(&message, 0, sizeof(message));
    message.kind = TW_MSG_JOIN;
    struct tw_msg_join *const join = &message.u.join;
    *join = (struct tw_msg_join){
        .lineage = theirs->lineage, .rounds = theirs->rounds, .nonce = nonce, .weight = 1};
    const struct tw_ballot_vote vote = {.run = target.run,
                                        .lineage = join->lineage,
                                        .nonce = nonce,
                                        .round = join->rounds,
                                        .phase = TW_VOTE_JOIN};
    uint8_t text[TW_VOTE_TEXT_BYTES];
    tw_ballot_vote_text(&vote, text);
    tw_sign(link->identity.key, text, sizeof(text), join->signature);
    return hostile_message(link, &message);
}

/* All ids answer each STATUS by their own, and say nothing else. */
static void keep_seats(void) {
    static struct tw_message message;
    struct tw_frame frame;
    for (uint32_t i = 0; i < SYBILS; i++) {
        for (uint32_t k = 0; k < GROUP; k++) {
            struct hostile *const link = &sybils[i][k];
            enum tw_status status = is_shut[i][k] ? TW_IO : TW_OK;
            while (status == TW_OK) {
                status = hostile_next(link, 0.001, &frame);
                if (status != TW_OK || frame.kind != TW_MSG_STATUS) continue;
                if (tw_control_decode(frame.kind, frame.body, frame.body_bytes, &message, NULL) ==
                        TW_OK &&
                    !ask_for_seat(link, nonce_of(i), &message.u.status))
                    status = TW_IO;
            }
            is_shut[i][k] = status == TW_IO;
        }
    }
}

/* Links are kept alive from the first on: on a busy machine they take seconds. */
static void link_sybils(void) {
    for (uint32_t i = 0; i < SYBILS; i++) {
        for (uint32_t k = 0; k < GROUP; k++) is_shut[i][k] = true;
    }
    for (uint32_t i = 0; i < SYBILS; i++) {
        for (uint32_t k = 0; k < GROUP; k++) {
            target.port = cluster.nodes[k].port;
            const struct hostile *const like = k > 0 ? &sybils[i][0] : NULL;
            assert_true(hostile_join(&sybils[i][k], &target, like));
            assert_true(open_bulk(&bulks[i][k], &sybils[i][k]));
            is_shut[i][k] = false;
            keep_seats();
        }
    }
    target.port = cluster.nodes[0].port;
}

/* Waits like cluster_reaches, while all ids keep their seats. */
static bool reaches_beside_sybils(const char *path, double least, double patience_s) {
    const time_t end_s = time(NULL) + (time_t)(4 * patience_s);
    while (cluster_number(&cluster, 0, path) < least) {
        if (time(NULL) > end_s) return false;
        keep_seats();
    }
    return true;
}

/* The ids sign the forged record with all the votes that their seats would give them. */
static void sign_as_sybils(const struct tw_record *tip, struct tw_msg_commit *commit) {
    struct tw_ballot_vote vote = {.run = target.run,
                                  .lineage = tip->lineage,
                                  .round = commit->record.round,
                                  .ballot = 1,
                                  .phase = TW_VOTE_COMMIT,
                                  .digest = tw_record_digest(&commit->record)};
    uint8_t text[TW_VOTE_TEXT_BYTES];
    commit->proof = (struct tw_proof){.ballot = 1};
    for (uint32_t i = 0; i < SYBILS; i++) {
        const int at = tw_roster_find(&tip->next, &sybils[i][0].identity.id);
        if (at < 0) continue;
        vote.nonce = tip->next.members[at].nonce;
        tw_ballot_vote_text(&vote, text);
        commit->proof.voters |= UINT64_C(1) << at;
        tw_sign(sybils[i][0].identity.key, text, sizeof(text), commit->proof.signatures[at]);
    }
}

/* One holder of the run secret brings eight ids into a group of three: as many as could decide a
 * round of eleven, were each to vote. They have seats and no votes: rounds go on while they are
 * silent, and a round that they sign is no round. */
FACT(many_ids_of_one_holder_decide_nothing) {
    static struct tw_message message;
    struct tw_record tip;
    open_group(GROUP);
    assert_true(cluster_reaches(&cluster, 0, "sync.rounds_committed", OLD_ROUNDS, 60));
    assert_true(cluster_reaches(&cluster, 0, "sync.roster_voters", GROUP, 60));
    const unsigned states = cluster_lines(&cluster, 0, "ev=state state=");
    const uint32_t fragments = count_fragments();
    link_sybils();
    assert_true(reaches_beside_sybils("sync.roster_members", GROUP + SYBILS, 60));
    const double rounds = cluster_number(&cluster, 0, "sync.rounds_committed");
    assert_true(reaches_beside_sybils("sync.rounds_committed", rounds + 20, 60));
    assert_true(cluster_number(&cluster, 0, "sync.roster_members") == GROUP + SYBILS);
    assert_true(cluster_number(&cluster, 0, "sync.roster_voters") == GROUP);
    uint32_t told = 0;
    for (uint32_t i = 0; i < SYBILS; i++) {
        assert_true(hostile_join(&liar, &target, NULL));
        assert_true(fetch_tip(&tip));
        memset(&message, 0, sizeof(message));
        message.kind = TW_MSG_COMMIT;
        forge(&tip, fragments, &message.u.commit);
        sign_as_sybils(&tip, &message.u.commit);
        if (message.u.commit.proof.voters != 0)
            told += !is_shut[i][0] && hostile_message(&sybils[i][0], &message);
        hostile_close(&liar);
        keep_seats();
    }
    assert_true(told > 0);
    assert_true(cluster_says(&cluster, 0, "level=warn ev=round_forged ", 10));
    assert_true(warns(0, "sent a round that its group did not decide"));
    const double later = cluster_number(&cluster, 0, "sync.rounds_committed");
    assert_true(reaches_beside_sybils("sync.rounds_committed", later + 10, 60));
    assert_true(cluster_number(&cluster, 0, "sync.roster_voters") == GROUP);
    assert_int_equal(cluster_lines(&cluster, 0, "ev=state state="), states);
    for (uint32_t i = 0; i < SYBILS; i++) {
        for (uint32_t k = 0; k < GROUP; k++) {
            hostile_close(&bulks[i][k]);
            hostile_close(&sybils[i][k]);
        }
    }
    for (uint32_t i = 1; i < GROUP; i++) assert_true(cluster_digests(&cluster, 0, i) >= 3);
    for (uint32_t i = 0; i < GROUP; i++)
        assert_int_equal(cluster_end(&cluster, i, SIGTERM, 20), TW_EXIT_OK);
}

int main(void) {
    (void)signal(SIGPIPE, SIG_IGN); /* the daemon closes links of liars */
    return test_run(NULL, NULL);
}
