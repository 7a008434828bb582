/* Tests of daemon/net/pacer.c with a numerical model of a path: a link with a queue, a sender
 * that sends as much as it may, and another sender. */
#include "base/rng.h"
#include "daemon/net/pacer.h"
#include "tests/test.h"

static const uint64_t S = 1000 * 1000;
enum { LINK = 2500 * 1000, RTT_US = 100 * 1000, TICK_US = 20 * 1000, BUFFER = 1000 * 1000 };

struct path {
    struct tw_pacer pace;
    struct tw_link_pace config;
    struct tw_rng rng;
    uint64_t now_us, delivered;
    uint64_t link;   /* bytes per second */
    uint64_t sender; /* rate of the sender without a limit, in bytes per second */
    bool has_found; /* whether the sender met a limit; it then grows by 25 % in eight round trips */
    uint64_t other; /* rate of another sender on the same link, in bytes per second */
    uint64_t queued;              /* bytes */
    uint32_t jitter_us, extra_us; /* variation of round trips, and added delay without a queue */
    bool is_idle, is_timid;       /* timid: losses hold the sender below the link's rate */
    bool has_no_room;             /* at the receiver */
    uint64_t worst_us, queue_us_sum, ticks;
};

static void path_init(struct path *path) {
    *path = (struct path){.link = LINK, .sender = 100 * 1000, .now_us = 17};
    tw_rng_seed(&path->rng, 1);
    tw_pacer_init(&path->pace);
}

static uint64_t limit(const struct path *path) {
    return tw_pacer_limit(&path->pace, &path->config, 0);
}

/* The sender's rate doubles every round trip until it meets a limit, then grows in small steps. */
static void sender_grow(struct path *path, uint64_t cap) {
    if (path->is_timid) return;
    if (cap > 0) {
        path->has_found = true;
        if (path->sender > cap) path->sender -= (path->sender - cap) / 50;
    }
    if (path->sender < path->link + path->link / 4)
        path->sender += path->has_found ? path->sender / 160 : path->sender / 7;
}

/* One tick of the link: sent bytes enter the queue, and the link drains it. */
static void tick(struct path *path) {
    const uint64_t cap = limit(path);
    uint64_t rate = path->is_idle ? 0 : path->sender;
    if (cap > 0 && rate > cap) rate = cap;
    const uint64_t in = rate * TICK_US / S, others = path->other * TICK_US / S;
    const uint64_t room = path->link * TICK_US / S;
    uint64_t out = path->queued + in + others;
    if (out > room) out = room;
    path->queued += in + others - out;
    if (path->queued > BUFFER) path->queued = BUFFER;
    path->now_us += TICK_US;
    path->delivered += in + others > 0 ? out * in / (in + others) : 0;
    sender_grow(path, cap);
    const uint64_t late_us = path->queued * S / path->link;
    if (late_us > path->worst_us) path->worst_us = late_us;
    path->queue_us_sum += late_us;
    path->ticks++;
    const struct tw_pacer_sample sample = {
        .now_us = path->now_us,
        .delivered_bytes = path->delivered,
        .rtt_us = RTT_US + (uint32_t)late_us + path->extra_us +
                  (path->jitter_us > 0 ? (uint32_t)tw_rng_below(&path->rng, path->jitter_us) : 0),
        .rtt_least_us = RTT_US,
        .is_idle = path->is_idle || path->has_no_room,
    };
    tw_pacer_take(&path->pace, &sample);
}

static void run(struct path *path, uint64_t seconds) {
    const uint64_t end_us = path->now_us + seconds * S;
    path->worst_us = path->queue_us_sum = path->ticks = 0;
    while (path->now_us < end_us) tick(path);
}

/* Checks that the pacer's estimate of the path's rate is right within 10 %. */
static void knows(const struct path *path, uint64_t bytes_per_s) {
    assert_in_range(path->pace.path_bytes_per_s, bytes_per_s * 90 / 100, bytes_per_s * 110 / 100);
}

TEST(path_is_learnt_and_the_queue_stays_empty) {
    struct path path;
    path_init(&path);
    assert_int_equal(limit(&path), 0);
    run(&path, 3);
    knows(&path, LINK);
    assert_int_equal(path.queued, 0);
    const uint64_t before = path.delivered;
    run(&path, 2);
    assert_true(path.worst_us < 1000);
    assert_in_range((path.delivered - before) / 2, LINK * 83 / 100, LINK * 88 / 100);
}

TEST(probes_are_short_and_keep_the_known_rate) {
    struct path path;
    path_init(&path);
    path.jitter_us = 8000;
    run(&path, 120);
    knows(&path, LINK);
    assert_true(path.queue_us_sum / path.ticks < 30 * 1000);
}

/* The route becomes longer: round trips take longer, but there is no queue. */
TEST(longer_way_takes_little_of_the_rate) {
    struct path path;
    path_init(&path);
    run(&path, 4);
    path.extra_us = 40 * 1000;
    for (int i = 0; i < 300; i++) {
        run(&path, 1);
        assert_true(path.pace.path_bytes_per_s >= LINK / 100 * 85);
    }
    knows(&path, LINK);
}

/* Noise makes the round trips of every probe longer. */
TEST(noise_in_every_probe_takes_little_of_the_rate) {
    struct path path;
    path_init(&path);
    run(&path, 4);
    const uint64_t end_us = path.now_us + 120 * S;
    while (path.now_us < end_us) {
        path.extra_us = path.pace.state == TW_PACER_OPEN ? 20 * 1000 : 0;
        tick(&path);
    }
    knows(&path, LINK);
}

TEST(bursts_of_the_first_packets_are_no_queue) {
    struct path path;
    path_init(&path);
    path.extra_us = 30 * 1000;
    path.sender = 10 * 1000;
    for (int i = 0; i < 38; i++) tick(&path);
    path.extra_us = 0;
    assert_int_equal(path.pace.path_bytes_per_s, 0);
    run(&path, 2);
    knows(&path, LINK);
}

TEST(faster_path_is_found_by_a_probe) {
    struct path path;
    path_init(&path);
    run(&path, 4);
    knows(&path, LINK);
    path.link = 4 * (uint64_t)LINK;
    run(&path, 100);
    knows(&path, path.link);
}

TEST(slower_path_is_found_at_once) {
    struct path path;
    path_init(&path);
    run(&path, 4);
    path.link = LINK / 2 + LINK / 10;
    run(&path, 3);
    knows(&path, path.link);
    run(&path, 2);
    assert_int_equal(path.queued, 0);
}

/* Another sender uses part of the link for ever, and keeps the link's queue filled. */
TEST(rival_does_not_starve_us) {
    struct path path;
    path_init(&path);
    run(&path, 4);
    path.other = LINK;
    for (int i = 0; i < 50; i++) {
        run(&path, 1);
        assert_true(limit(&path) == 0 || limit(&path) >= LINK / 4 * 28 / 100);
    }
    path.other = 0;
    run(&path, 60);
    knows(&path, LINK);
}

/* Losses keep the sender at a third of the link's rate, so there is no queue and no limit is
 * needed. */
TEST(sender_below_the_path_has_no_limit) {
    struct path path;
    path_init(&path);
    path.is_timid = true;
    path.sender = LINK / 3;
    run(&path, 60);
    assert_int_equal(path.pace.state, TW_PACER_OPEN);
    assert_int_equal(limit(&path), 0);
}

TEST(silence_says_nothing) {
    struct path path;
    path_init(&path);
    path.is_idle = true;
    run(&path, 60);
    assert_int_equal(path.pace.path_bytes_per_s, 0);
    path.is_idle = false;
    run(&path, 4);
    const struct tw_pacer before = path.pace;
    path.is_idle = true;
    run(&path, 100); /* no probe either */
    assert_int_equal(path.pace.state, TW_PACER_PACED);
    assert_int_equal(path.pace.path_bytes_per_s, before.path_bytes_per_s);
    for (int i = 0; i < 500; i++) {
        path.is_idle = i % 3 == 0; /* the application sends in bursts */
        tick(&path);
    }
    assert_true(limit(&path) <= before.path_bytes_per_s / 100 * 89);
    path.is_idle = false;
    /* The link has a queue, but the receiver has no room at times: deliveries show the
     * receiver's rate. */
    path.other = 4 * (uint64_t)LINK;
    for (int i = 0; i < 500; i++) {
        path.has_no_room = i % 3 == 0;
        tick(&path);
    }
    assert_int_equal(path.pace.path_bytes_per_s, before.path_bytes_per_s);
}

/* The kernel sends somewhat slower than its limit. The pacer raises the limit to compensate, but
 * never up to the path's rate. */
TEST(sender_that_falls_behind_is_told_more) {
    struct tw_pacer pace;
    tw_pacer_init(&pace);
    pace.state = TW_PACER_PACED;
    pace.path_bytes_per_s = LINK;
    pace.told_bytes_per_s = LINK * 85 / 100;
    pace.probe_us = 3600 * S;
    struct tw_pacer_sample sample = {.rtt_us = RTT_US, .rtt_least_us = RTT_US};
    for (int i = 0; i < 150; i++) {
        sample.now_us += RTT_US;
        sample.delivered_bytes += pace.told_bytes_per_s * 93 / 100 * RTT_US / S;
        tw_pacer_take(&pace, &sample);
        assert_true(pace.told_bytes_per_s <= LINK / 100 * 95);
    }
    assert_in_range(pace.told_bytes_per_s * 93 / 100, LINK / 100 * 87, LINK / 100 * 89);
    for (int i = 0; i < 40; i++) {
        sample.now_us += RTT_US;
        sample.delivered_bytes += (uint64_t)LINK / 2 * RTT_US / S;
        tw_pacer_take(&pace, &sample);
        assert_true(pace.told_bytes_per_s <= LINK / 100 * 95);
    }
    assert_true(pace.told_bytes_per_s > LINK / 100 * 94);
}

TEST(limit_is_the_least_of_all) {
    struct path path;
    struct tw_link_pace config = {.mode = TW_LINK_PACE_AUTO};
    path_init(&path);
    assert_int_equal(tw_pacer_limit(&path.pace, &config, 1000), 1000); /* the node's cap */
    run(&path, 4);
    assert_int_equal(tw_pacer_limit(&path.pace, &config, 1000), 1000);
    assert_true(tw_pacer_limit(&path.pace, &config, LINK) < LINK);
    config.mode = TW_LINK_PACE_OFF;
    assert_int_equal(tw_pacer_limit(&path.pace, &config, 0), 0);
    assert_int_equal(tw_pacer_limit(&path.pace, &config, 5000), 5000);
    config = (struct tw_link_pace){TW_LINK_PACE_FIXED, 7000};
    assert_int_equal(tw_pacer_limit(&path.pace, &config, 0), 7000);
    assert_int_equal(tw_pacer_limit(&path.pace, &config, 5000), 5000);
}

/* Delayed acknowledgements can make one window seem to deliver far more than the path carries. */
TEST(burst_of_acknowledgements_does_not_turn_the_pace_around) {
    struct tw_pacer pace;
    struct tw_link_pace config = {.mode = TW_LINK_PACE_AUTO};
    tw_pacer_init(&pace);
    pace.state = TW_PACER_PACED;
    pace.path_bytes_per_s = 1000 * 1000;
    pace.told_bytes_per_s = 900 * 1000;
    pace.probe_us = TW_PACER_PROBE_US;
    struct tw_pacer_sample sample = {.now_us = S, .rtt_us = RTT_US, .rtt_least_us = RTT_US};
    tw_pacer_take(&pace, &sample);
    sample.now_us += 2 * (uint64_t)RTT_US;
    sample.delivered_bytes = UINT64_C(1000) * 1000 * 1000;
    tw_pacer_take(&pace, &sample);
    assert_int_equal(pace.state, TW_PACER_PACED);
    assert_int_equal(tw_pacer_limit(&pace, &config, 0), TW_PACER_PERCENT * 10 * 1000);
}
