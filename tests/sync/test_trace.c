/* Tests of sync/trace/trace.c: events as bytes and back. */
#include "tests/test.h"

#include "base/rng.h"
#include "sync/trace/trace.h"

static uint8_t bytes[TW_EVENT_BYTES_MAX];
static struct tw_message message;
static struct tw_worker_state sent_state, worker;
static struct tw_error err;

/* An event with random fields, and zeros outside of its kind. */
static struct tw_event draw(enum tw_event_kind kind, struct tw_rng *rng) {
    struct tw_event event = {.kind = kind, .peer = (uint16_t)tw_rng_below(rng, TW_PEERS_MAX)};
    event.ok = tw_rng_below(rng, 2) == 1;
    event.is_relayed = tw_rng_below(rng, 2) == 1;
    struct tw_id id;
    for (unsigned i = 0; i < sizeof(id.bytes); i++) id.bytes[i] = (uint8_t)tw_rng_next(rng);
    if (kind == TW_EV_PEER_UP) {
        event.u.id = id;
        event.is_relayed = tw_rng_below(rng, 2) != 0;
        event.lacks_roles = tw_rng_below(rng, 2) != 0;
        event.lacks_vote = tw_rng_below(rng, 2) != 0;
    }
    if (kind == TW_EV_STEP) event.u.step.step = tw_rng_next(rng);
    if (kind == TW_EV_STORED) event.u.store_seq = tw_rng_next(rng);
    if (kind == TW_EV_CHUNK || kind == TW_EV_VERIFIED) {
        event.u.chunk.hash = id;
        event.u.chunk.idx = (uint32_t)tw_rng_next(rng);
        event.u.chunk.sanity = (enum tw_sanity)tw_rng_below(rng, 3);
        event.u.chunk.is_unfit = event.ok;
    }
    if (kind == TW_EV_WORKER_UP) {
        event.u.worker = &sent_state;
        sent_state.step = tw_rng_next(rng);
        sent_state.fragment_digests[TW_FRAGMENTS_MAX - 1] = id;
    }
    if (kind == TW_EV_ENCODED) {
        event.u.encoded.parts_count = (uint32_t)tw_rng_below(rng, TW_PARTS_MAX + 1);
        for (uint32_t k = 0; k < event.u.encoded.parts_count; k++) event.u.encoded.hashes[k] = id;
    }
    if (kind == TW_EV_GATHERED) {
        event.u.encoded.refused = tw_rng_next(rng);
        event.u.encoded.parts_count = 1;
        event.u.encoded.hashes[0] = id;
    }
    if (kind == TW_EV_REDUCED) {
        event.u.reduced.refused = tw_rng_next(rng);
        event.u.reduced.hash = id;
        for (unsigned i = 0; i < 3; i++)
            event.u.reduced.sizes[tw_rng_below(rng, TW_MEMBERS_MAX)] = (uint16_t)tw_rng_next(rng);
        event.u.reduced.is_audit = event.ok;
    }
    if (kind == TW_EV_APPLIED) {
        event.u.applied.digest = id;
        event.u.applied.rounds = tw_rng_next(rng);
        event.u.applied.is_outlier = event.ok;
    }
    if (kind == TW_EV_EXPORTED) event.u.exported.hash = id;
    if (kind == TW_EV_MEASURED) event.u.measured.odd = tw_rng_next(rng);
    return event;
}

TEST(every_kind_comes_back) {
    struct tw_rng rng;
    tw_rng_seed(&rng, 7);
    for (unsigned kind = TW_EV_TICK; kind <= TW_EV_GATHERED; kind++) {
        for (unsigned trial = 0; kind != TW_EV_MESSAGE && trial < 200; trial++) {
            const struct tw_event event = draw((enum tw_event_kind)kind, &rng);
            struct tw_event again;
            const size_t size = tw_event_encode(&event, bytes);
            assert_int_equal(tw_event_decode(bytes, size, &again, &message, &worker, &err), TW_OK);
            if (kind == TW_EV_WORKER_UP) {
                assert_ptr_equal(again.u.worker, &worker);
                assert_memory_equal(&sent_state, &worker, sizeof(worker));
                again.u.worker = &sent_state;
            }
            assert_memory_equal(&event, &again, sizeof(event));
        }
    }
}

TEST(messages_come_back) {
    static struct tw_message sent;
    struct tw_event event = {.kind = TW_EV_MESSAGE, .peer = 3, .u.message = &sent}, again;
    sent.kind = TW_MSG_PULL;
    sent.u.pull.hash.bytes[5] = 9;
    sent.u.pull.first = 2;
    sent.u.pull.count = 4;
    const size_t size = tw_event_encode(&event, bytes);
    assert_int_equal(tw_event_decode(bytes, size, &again, &message, &worker, &err), TW_OK);
    assert_int_equal(again.peer, 3);
    assert_ptr_equal(again.u.message, &message);
    assert_memory_equal(&sent, &message, sizeof(sent));
    assert_true(tw_trace_event(&event) == tw_trace_event(&again));
}

TEST(other_bytes_are_refused) {
    struct tw_rng rng;
    struct tw_event again;
    tw_rng_seed(&rng, 8);
    for (unsigned kind = TW_EV_TICK; kind <= TW_EV_GATHERED; kind++) {
        if (kind == TW_EV_MESSAGE) continue;
        const struct tw_event event = draw((enum tw_event_kind)kind, &rng);
        const size_t size = tw_event_encode(&event, bytes);
        for (size_t cut = 0; cut < size; cut++)
            assert_int_equal(tw_event_decode(bytes, cut, &again, &message, &worker, &err),
                             TW_CORRUPT);
        assert_int_equal(tw_event_decode(bytes, size + 1, &again, &message, &worker, &err),
                         TW_CORRUPT);
    }
    memset(bytes, 0, 64);
    bytes[0] = TW_EV_GATHERED + 1;
    assert_int_equal(tw_event_decode(bytes, 4, &again, &message, &worker, &err), TW_CORRUPT);
    bytes[0] = TW_EV_TICK;
    bytes[2] = TW_PEERS_MAX;
    assert_int_equal(tw_event_decode(bytes, 4, &again, &message, &worker, &err), TW_CORRUPT);
    memset(bytes, 0, 64);
    bytes[0] = TW_EV_MESSAGE;
    bytes[4] = 200; /* no such message */
    assert_int_equal(tw_event_decode(bytes, 16, &again, &message, &worker, &err), TW_CORRUPT);
}
