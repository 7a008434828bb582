/* test_golden.c - pins the bytes of the wire: tests/golden/wire.txt holds `name hex` lines, and
 * run.manifest a canonical manifest. A change in these files is a change of the protocol. On a
 * mismatch, the test prints the new line. */
#include "tests/test.h"

#include <stdbool.h>

#include "base/bytes.h"
#include "proto/cert.h"
#include "proto/control.h"
#include "proto/frame.h"
#include "proto/hello.h"
#include "proto/run/run.h"
#include "proto/ticket.h"

enum { HEX_MAX = 16384, VECTORS_MAX = 64 };

static const char *folder;
static char text[1 << 17];
static struct {
    char name[40];
    uint8_t bytes[HEX_MAX / 2];
    size_t size;
    bool is_used;
} vectors[VECTORS_MAX];
static unsigned vectors_count;
static struct tw_error err;

static size_t read_file(const char *name) {
    char path[1024];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL) return 0;
    const size_t size = fread(text, 1, sizeof(text) - 1, file);
    (void)fclose(file);
    text[size] = '\0';
    return size;
}

static int load(void **state) {
    if (read_file("wire.txt") == 0) return -1;
    char *rest = text;
    for (char *line = strtok_r(rest, "\n", &rest); line; line = strtok_r(rest, "\n", &rest)) {
        if (line[0] == '#') continue;
        char *hex = strchr(line, ' ');
        if (hex == NULL || vectors_count == VECTORS_MAX) return -1;
        *hex++ = '\0';
        (void)snprintf(vectors[vectors_count].name, sizeof(vectors[0].name), "%s", line);
        for (; hex[0] != '\0' && hex[1] != '\0'; hex += 2) {
            const char digits[3] = {hex[0], hex[1], '\0'};
            vectors[vectors_count].bytes[vectors[vectors_count].size++] =
                (uint8_t)strtoul(digits, NULL, 16);
        }
        vectors_count++;
    }
    return 0;
}

/* Compares bytes[size] with the test vector of that name. */
static void expect(const char *name, const uint8_t *bytes, size_t size) {
    for (unsigned i = 0; i < vectors_count; i++) {
        if (strcmp(vectors[i].name, name) != 0) continue;
        if (vectors[i].size != size || memcmp(vectors[i].bytes, bytes, size) != 0) break;
        vectors[i].is_used = true;
        return;
    }
    print_error("%s ", name);
    for (size_t i = 0; i < size; i++) print_error("%02x", bytes[i]);
    print_error("\n");
    fail_msg("%s differs from tests/golden/wire.txt", name);
}

/* 32 times the same byte. */
static struct tw_id id(uint8_t byte) {
    struct tw_id made;
    memset(made.bytes, byte, sizeof(made.bytes));
    return made;
}

static void fill_close(struct tw_record *record) {
    record->lineage = id(0x11);
    record->parent = id(0x12);
    record->base = id(0x13);
    record->round = 0x0102030405060708;
    record->clock_tokens = 1000000;
    record->fragment = 2;
    record->roster_number = 7;
    record->finals = 1;
    record->contributors_count = 2;
    record->contributors[0] = (struct tw_contributor){0, 30, 30720, 61440, id(0x21), {0}};
    memset(record->contributors[0].signature, 0x69, TW_SIGNATURE_BYTES);
    record->contributors[1] = (struct tw_contributor){2, 15, 15360, 15360, id(0x22), {0}};
    record->parts_count = 2;
    record->parts[0] = (struct tw_part){0, 65536, 0x5, id(0x31)};
    record->parts[1] = (struct tw_part){.owner_idx = 2}; /* ABSENT */
    record->next.number = 8;
    record->next.count = 3;
    record->next.members[0] = (struct tw_member){id(0x41), 1, 100, false, 0};
    record->next.members[1] = (struct tw_member){id(0x42), UINT64_MAX, 0, false, 0};
    record->next.members[2] =
        (struct tw_member){id(0x43), 0xABCDEF, TW_WEIGHT_MAX, true, TW_MERGES_MAX};
}

static struct tw_proof proof_at(uint64_t ballot) {
    struct tw_proof proof = {.ballot = ballot, .voters = 0x5};
    memset(proof.signatures[0], 0x5A, TW_SIGNATURE_BYTES);
    memset(proof.signatures[2], 0xA5, TW_SIGNATURE_BYTES);
    return proof;
}

static void fill_voting(struct tw_message *message) {
    switch ((int)message->kind) {
    case TW_MSG_PREPARE: message->u.prepare = (struct tw_msg_prepare){id(1), 5, 0x300000002}; break;
    case TW_MSG_PROMISE:
        fill_close(&message->u.promise.locked);
        message->u.promise.lineage = id(0x11);
        message->u.promise.round = message->u.promise.locked.round;
        message->u.promise.ballot = 9;
        message->u.promise.lock = proof_at(4);
        memset(message->u.promise.signature, 0x3C, TW_SIGNATURE_BYTES);
        break;
    case TW_MSG_PROPOSE:
        message->u.propose.ballot = 9;
        fill_close(&message->u.propose.record);
        message->u.propose.promises.voters = 0x3;
        message->u.propose.promises.lock_ballots[1] = 4;
        memset(message->u.propose.promises.signatures[0], 0x3C, TW_SIGNATURE_BYTES);
        memset(message->u.propose.promises.signatures[1], 0xC3, TW_SIGNATURE_BYTES);
        message->u.propose.lock = proof_at(4);
        break;
    case TW_MSG_EVIDENCE:
        message->u.evidence = (struct tw_msg_evidence){.author = id(3),
                                                       .lineage = id(1),
                                                       .nonce = 8,
                                                       .round = 5,
                                                       .ballot = 9,
                                                       .phase = TW_VOTE_COMMIT};
        message->u.evidence.first.digest = id(2);
        message->u.evidence.second.digest = id(4);
        memset(message->u.evidence.first.signature, 0x5A, TW_SIGNATURE_BYTES);
        memset(message->u.evidence.second.signature, 0xA5, TW_SIGNATURE_BYTES);
        break;
    case TW_MSG_LOCK: message->u.lock = (struct tw_msg_lock){id(1), 5, id(2), proof_at(9)}; break;
    case TW_MSG_ACCEPT:
        message->u.accept = (struct tw_msg_accept){id(1), 5, 9, TW_VOTE_COMMIT, id(2), {0}};
        memset(message->u.accept.signature, 0x5A, TW_SIGNATURE_BYTES);
        break;
    case TW_MSG_NACK: message->u.nack = (struct tw_msg_nack){id(1), 5, 10, 5}; break;
    case TW_MSG_COMMIT:
        fill_close(&message->u.commit.record);
        message->u.commit.proof = proof_at(9);
        break;
    default: fail();
    }
}

static void fill_round(struct tw_message *message) {
    struct tw_msg_contrib *contrib = &message->u.contrib;
    struct tw_msg_result *result = &message->u.result;
    if (message->kind == TW_MSG_CONTRIB) {
        contrib->lineage = id(1);
        contrib->round = 5;
        contrib->base = id(2);
        contrib->tokens = 30720;
        contrib->fragment_tokens = 61440;
        contrib->fragment_steps = 30;
        contrib->parts_count = 2;
        contrib->hashes[0] = id(3);
        contrib->hashes[1] = id(4);
        contrib->bytes[0] = 70000;
        contrib->bytes[1] = 1;
        memset(contrib->signature, 0x69, TW_SIGNATURE_BYTES);
    } else {
        result->lineage = id(1);
        result->round = 5;
        result->part = 1;
        result->bytes = 70000;
        result->hash = id(2);
        memset(result->signature, 0x96, TW_SIGNATURE_BYTES);
        result->contributors_count = 2;
        result->contributors[0] = (struct tw_contributor){0, 30, 30720, 61440, id(3), {0}};
        memset(result->contributors[0].signature, 0x69, TW_SIGNATURE_BYTES);
        result->contributors[1] = (struct tw_contributor){63, 0, 0, 0, id(4), {0}};
    }
}

static void fill_pair(struct tw_message *message) {
    const struct tw_pair_id pair = {0x1122334455667788, 0x99AABBCCDDEEFF00};
    switch ((int)message->kind) {
    case TW_MSG_PAIR_REQUEST:
        message->u.pair_request = (struct tw_msg_pair_request){pair, 3, 1};
        break;
    case TW_MSG_PAIR_ACCEPT: message->u.pair_accept = (struct tw_msg_pair_accept){pair, 1}; break;
    case TW_MSG_PAIR_BUSY: message->u.pair_busy.pair = pair; break;
    default:
        message->u.pair_offer =
            (struct tw_msg_pair_offer){pair, 98304000, id(1), id(2), 70000, 270000};
        break;
    }
}

static void fill(struct tw_message *message, enum tw_message_kind kind) {
    memset(message, 0, sizeof(*message));
    message->kind = kind;
    switch (kind) {
    case TW_MSG_STATUS:
        message->u.status = (struct tw_msg_status){.state = TW_STATE_MEMBER,
                                                   .lineage = id(1),
                                                   .tip = id(2),
                                                   .rounds = 812,
                                                   .clock_tokens = 1 << 30,
                                                   .step = 24000,
                                                   .tokens = 98304000,
                                                   .tokens_per_s = 51200,
                                                   .upload_kib_s = 2441,
                                                   .boot = 3,
                                                   .nonce = 0x1122334455667788};
        break;
    case TW_MSG_PEERS:
        message->u.peers.count = 2;
        message->u.peers.rows[0].id = id(1);
        memcpy(message->u.peers.rows[0].addrs[0], "10.0.0.1:4300", 13);
        memcpy(message->u.peers.rows[0].addrs[1], "[2001:db8::1]:4300", 18);
        message->u.peers.rows[1].id = id(2);
        break;
    case TW_MSG_LEAVE: message->u.leave.reason = TW_DENIED; break;
    case TW_MSG_JOIN:
        message->u.join = (struct tw_msg_join){id(1), 812, 0x1122334455667788, 5, {0}};
        memset(message->u.join.signature, 0xC6, TW_SIGNATURE_BYTES);
        break;
    case TW_MSG_CONTRIB:
    case TW_MSG_RESULT: fill_round(message); break;
    case TW_MSG_PREPARE:
    case TW_MSG_PROMISE:
    case TW_MSG_PROPOSE:
    case TW_MSG_ACCEPT:
    case TW_MSG_LOCK:
    case TW_MSG_EVIDENCE:
    case TW_MSG_NACK:
    case TW_MSG_COMMIT: fill_voting(message); break;
    case TW_MSG_LOG_GET: message->u.log_get = (struct tw_msg_log_get){id(1), 700}; break;
    case TW_MSG_LOG_NONE: message->u.log_none = (struct tw_msg_log_none){id(1), 748, 812}; break;
    case TW_MSG_STATE_GET:
        message->u.state_get.lineage = id(1);
        message->u.state_get.digest = id(2);
        message->u.state_get.fragment = 3;
        break;
    case TW_MSG_STATE:
        message->u.state.lineage = id(1);
        message->u.state.fragment = 3;
        message->u.state.rounds = 812;
        message->u.state.digest = id(2);
        message->u.state.hash = id(3);
        message->u.state.bytes = 1 << 20;
        break;
    case TW_MSG_PULL: message->u.pull = (struct tw_msg_pull){id(1), 4, 16}; break;
    case TW_MSG_MISSING: message->u.missing.hash = id(1); break;
    case TW_MSG_PROBE: message->u.probe.token = 0x1122334455667788; break;
    case TW_MSG_PROBED:
        message->u.probed.token = 0x1122334455667788;
        message->u.probed.outcome = TW_PROBE_FAILED;
        memcpy(message->u.probed.addr, "10.0.0.1:4300", 13);
        break;
    case TW_MSG_LINKS:
        message->u.links.is_relay = 1;
        message->u.links.direct_count = 2;
        message->u.links.direct[0] = id(1);
        message->u.links.direct[1] = id(2);
        message->u.links.relayed_count = 1;
        message->u.links.relayed[0] = id(3);
        break;
    case TW_MSG_RELAY_CALL:
        message->u.relay_call.from = id(1);
        memset(message->u.relay_call.token, 7, TW_RELAY_TOKEN_BYTES);
        break;
    case TW_MSG_PUNCH:
        message->u.punch.stage = TW_PUNCH_GO;
        message->u.punch.token = 0x1122334455667788;
        memcpy(message->u.punch.control, "10.0.0.1:4300", 13);
        memcpy(message->u.punch.bulk, "10.0.0.1:4301", 13);
        break;
    case TW_MSG_GATHER: message->u.gather = (struct tw_msg_gather){id(1), 812}; break;
    case TW_MSG_CREW:
        message->u.crew.lineage = id(1);
        message->u.crew.head = id(2);
        message->u.crew.round = 812;
        message->u.crew.parts_root = id(3);
        message->u.crew.rows_count = 2;
        message->u.crew.rows[0] = (struct tw_crew_row){0x1122334455667788, id(4)};
        message->u.crew.rows[1] = (struct tw_crew_row){1, id(5)};
        break;
    case TW_MSG_CREW_GET:
        message->u.crew_get = (struct tw_msg_crew_get){id(1), id(2), 812, id(3)};
        break;
    case TW_MSG_ACCUSE: message->u.accuse = (struct tw_msg_accuse){id(1), 812, 3, 0}; break;
    case TW_MSG_PAIR_REQUEST:
    case TW_MSG_PAIR_ACCEPT:
    case TW_MSG_PAIR_BUSY:
    case TW_MSG_PAIR_OFFER: fill_pair(message); break;
    }
}

TEST(control_messages_have_their_golden_bodies) {
    static struct tw_message message, back;
    static uint8_t body[TW_CONTROL_BYTES_MAX];
    static const enum tw_message_kind kinds[] = {
#define X(name, value, member) TW_MSG_##name,
        TW_MESSAGE_LIST(X)
#undef X
    };
    for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        const enum tw_message_kind kind = kinds[i];
        size_t size;
        memset(&back, 0, sizeof(back));
        fill(&message, kind);
        assert_int_equal(tw_control_encode(&message, body, sizeof(body), &size, &err), TW_OK);
        expect(tw_message_name(message.kind), body, size);
        assert_int_equal(tw_control_decode((uint16_t)kind, body, size, &back, &err), TW_OK);
        assert_memory_equal(&message, &back, sizeof(message));
    }
}

TEST(frames_have_their_golden_bytes) {
    uint8_t frame[256];
    const uint8_t payload[] = "payload";
    const struct tw_id hash = id(1);
    for (uint8_t i = 0; i < 8; i++) frame[TW_FRAME_HEADER_BYTES + i] = i;
    tw_frame_header(frame, TW_MSG_PREPARE, 0, frame + TW_FRAME_HEADER_BYTES, 8);
    expect("frame", frame, TW_FRAME_HEADER_BYTES + 8);
    tw_frame_header(frame, TW_FRAME_HELLO, 0, NULL, 0);
    expect("frame-empty", frame, TW_FRAME_HEADER_BYTES);
    tw_frame_chunk_headers(frame, &hash, 3, payload, sizeof(payload));
    memcpy(frame + TW_FRAME_CHUNK_HEADERS_BYTES, payload, sizeof(payload));
    expect("frame-chunk", frame, TW_FRAME_CHUNK_HEADERS_BYTES + sizeof(payload));
}

TEST(extensions_have_their_golden_bytes) {
    uint8_t bytes[256];
    struct tw_extensions list = {0};
    tw_extensions_add(&list, TW_EXTENSION_FEATURES, "\x01\x02\x03\x04\x05\x06\x07\x08", 8);
    tw_extensions_add(&list, TW_EXTENSION_SOFTWARE, "thinwire 0.1.0", 14);
    expect("extensions", bytes, tw_extensions_encode(&list, bytes));
    tw_extensions_add(&list, TW_EXTENSION_PROCESS, "\x08\x07\x06\x05\x04\x03\x02\x01", 8);
    expect("extensions-process", bytes, tw_extensions_encode(&list, bytes));
}

TEST(twin_words_have_their_golden_bytes) {
    uint8_t body[TW_TWIN_BYTES_MAX];
    const struct tw_twin_word question = {.nonce = 0x1122334455667788,
                                          .address = "[2001:db8::1]:4747"};
    const struct tw_twin_word answer = {.nonce = 0x1122334455667788, .is_answer = true};
    expect("twin-question", body, tw_twin_encode(&question, body));
    expect("twin-answer", body, tw_twin_encode(&answer, body));
}

TEST(tickets_and_welcomes_have_their_golden_bytes) {
    char line[TW_TICKET_TEXT_BYTES];
    static uint8_t body[TW_WELCOME_BYTES_MAX];
    static struct tw_welcome welcome;
    struct tw_ticket ticket = {.expires_s = 1790000000, .uses = 2, .addrs_count = 2};
    for (unsigned i = 0; i < 32; i++) {
        ticket.run.bytes[i] = (uint8_t)(i + 1);
        ticket.inviter.bytes[i] = (uint8_t)(0xf0 - i);
    }
    memset(ticket.id, 0xab, sizeof(ticket.id));
    memset(ticket.key, 0x5e, sizeof(ticket.key));
    (void)snprintf(ticket.addrs[0], TW_ADDR_BYTES, "one.example:4747");
    (void)snprintf(ticket.addrs[1], TW_ADDR_BYTES, "[2001:db8::1]:4747");
    tw_ticket_encode(&ticket, line);
    expect("ticket", (const uint8_t *)line, strlen(line));
    welcome.manifest_bytes = 17;
    memcpy(welcome.manifest, "thinwire-run 1\na\n", 17);
    welcome.secrets_count = 1;
    memset(welcome.secrets[0], 0x5e, sizeof(welcome.secrets[0]));
    welcome.peers_count = 2;
    welcome.peers[0].id = id(1);
    welcome.peers[1].id = id(2);
    (void)snprintf(welcome.peers[0].addr, TW_ADDR_BYTES, "one:4747");
    (void)snprintf(welcome.peers[1].addr, TW_ADDR_BYTES, "[::1]:4747");
    expect("welcome", body, tw_welcome_encode(&welcome, body));
}

TEST(golden_frames_are_read) {
    unsigned frames = 0;
    for (unsigned i = 0; i < vectors_count; i++) {
        uint8_t buffer[512];
        struct tw_reader reader;
        struct tw_frame frame;
        size_t space;
        if (strncmp(vectors[i].name, "frame", 5) != 0) continue;
        tw_reader_init(&reader, buffer, sizeof(buffer));
        memcpy(tw_reader_space(&reader, &space), vectors[i].bytes, vectors[i].size);
        tw_reader_fill(&reader, vectors[i].size);
        assert_int_equal(tw_reader_next(&reader, &frame, &err), TW_OK);
        assert_int_equal(frame.body_bytes, vectors[i].size - TW_FRAME_HEADER_BYTES);
        frames++;
    }
    assert_int_equal(frames, 3);
}

TEST(manifests_have_their_golden_bytes_and_digest) {
    static struct tw_record record, back;
    static uint8_t bytes[TW_RECORD_BYTES_MAX];
    fill_close(&record);
    const size_t size = tw_record_encode(&record, bytes);
    expect("close", bytes, size);
    assert_int_equal(tw_record_decode(bytes, size, &back, &err), TW_OK);
    assert_memory_equal(&record, &back, sizeof(record));
    const struct tw_id digest = tw_record_digest(&record);
    expect("close-digest", digest.bytes, sizeof(digest.bytes));
    const struct tw_id hashes[] = {id(1), id(2), id(3)};
    const struct tw_id root = tw_contribution_root(hashes, 3);
    expect("contribution-root", root.bytes, sizeof(root.bytes));
}

static void fill_cert(struct tw_cert *cert, uint8_t node, uint8_t issuer) {
    *cert = (struct tw_cert){.may = TW_CERT_TRAIN,
                             .from_s = 1800000000,
                             .until_s = 1831536000,
                             .serial = 0x1122334455667788,
                             .run = id(0x11),
                             .node = id(node),
                             .issuer = id(issuer)};
    memset(cert->signature, 0x5A, sizeof(cert->signature));
}

TEST(bytes_that_an_owner_signs_are_golden) {
    static struct tw_revoked list;
    static uint8_t bytes[TW_REVOKED_BYTES_MAX];
    uint8_t under[TW_CERT_SIGNED_BYTES];
    struct tw_certs certs = {.count = 2};
    fill_cert(&certs.certs[0], 0x21, 0x31);
    fill_cert(&certs.certs[1], 0x22, 0x32);
    certs.certs[1].may = TW_CERT_TRAIN | TW_CERT_ADMIT;
    expect("certificates", bytes, tw_certs_encode(&certs, bytes));
    certs.certs[0].may |= TW_CERT_VOTELESS;
    expect("certificates-no-vote", bytes, tw_certs_encode(&certs, bytes));
    certs.certs[0].may = TW_CERT_TRAIN;
    tw_cert_signed(&certs.certs[0], under);
    expect("certificate-signed", under, sizeof(under));
    list = (struct tw_revoked){.version = 7, .made_s = 1800000000, .run = id(0x11), .count = 2};
    list.nodes[0] = id(0x41);
    list.nodes[1] = id(0x42);
    memset(list.signature, 0x5A, sizeof(list.signature));
    expect("revocations", bytes, tw_revoked_encode(&list, bytes));
    tw_revoked_signed(&list, under);
    expect("revocations-signed", under, TW_REVOKED_SIGNED_BYTES);
    struct tw_recall recall = {
        .version = 7, .made_s = 1800000000, .run = id(0x11), .lineage = id(0x43), .rounds = 812};
    memset(recall.signature, 0x5A, sizeof(recall.signature));
    tw_recall_encode(&recall, bytes);
    expect("recall", bytes, TW_RECALL_BYTES);
    tw_recall_signed(&recall, bytes);
    expect("recall-signed", bytes, TW_RECALL_SIGNED_BYTES);
}

static void check_manifest(const char *file, const char *vector) {
    static char canonical[TW_MANIFEST_BYTES_MAX];
    struct tw_run run;
    size_t canonical_size;
    const size_t size = read_file(file);
    assert_int_equal(tw_run_decode(text, size, &run, &err), TW_OK);
    const struct tw_id run_id = tw_run_id(&run);
    expect(vector, run_id.bytes, sizeof(run_id.bytes));
    tw_run_encode(&run, canonical, &canonical_size);
    assert_int_equal(canonical_size, size);
    assert_memory_equal(canonical, text, size);
}

TEST(canonical_manifests_have_their_golden_run_ids) {
    check_manifest("run.manifest", "run-id");
    check_manifest("tensors.manifest", "run-id-tensors");
}

TEST(no_golden_line_is_left_over) {
    for (unsigned i = 0; i < vectors_count; i++) {
        if (!vectors[i].is_used) print_error("%s is used by no test\n", vectors[i].name);
        assert_true(vectors[i].is_used);
    }
}

int main(int argc, char **argv) {
    if (argc != 2) {
        print_error("usage: %s tests/golden\n", argv[0]);
        return 2;
    }
    folder = argv[1];
    return test_run(load, NULL);
}
