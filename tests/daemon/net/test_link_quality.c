/* Tests of daemon/net/link_quality.c: how a peer's link is measured and compared with other
 * links. */
#include "daemon/net/link_quality.h"
#include "tests/test.h"

static const uint64_t MS = 1000, S = 1000 * 1000;
static struct tw_link_quality quality;
static uint64_t now_us;
static char text[TW_LINK_QUALITY_TEXT_BYTES];

static struct tw_id id_of(uint8_t number) {
    struct tw_id id;
    memset(&id, number, sizeof(id));
    return id;
}

static int setup(void **state) {
    memset(&quality, 0, sizeof(quality));
    now_us = 1000 * S;
    return 0;
}

#define FACT(name) TEST_IN(setup, NULL, name)

static void up(uint8_t peer) {
    const struct tw_id id = id_of(peer);
    tw_link_quality_up(&quality, &id, 1, now_us);
}

static void down(uint8_t peer, bool broke) {
    const struct tw_id id = id_of(peer);
    tw_link_quality_down(&quality, &id, broke ? TW_LINK_QUALITY_BREAK : TW_LINK_QUALITY_GOODBYE,
                         now_us);
}

static void look(uint8_t peer, struct tw_link_quality_look what) {
    const struct tw_id id = id_of(peer);
    tw_link_quality_look(&quality, &id, &what, now_us);
}

/* Notes `count` transfers of 1 MB each at `rate` bytes per second. */
static void transfers(uint8_t peer, uint64_t rate, unsigned count) {
    const struct tw_id id = id_of(peer);
    for (unsigned i = 0; i < count; i++) {
        look(peer, (struct tw_link_quality_look){.is_pulling = true});
        for (unsigned k = 0; k < 16; k++) {
            now_us += UINT64_C(65536) * S / rate;
            if (k % 4 == 3) look(peer, (struct tw_link_quality_look){.is_pulling = true});
            tw_link_quality_arrived(&quality, &id, 65536, k == 15, now_us);
        }
        now_us += S; /* no transfer is requested: idle, not slow */
    }
}

static const struct tw_link_quality_peer *peer_of(uint8_t number) {
    const struct tw_id id = id_of(number);
    const struct tw_link_quality_peer *peer = tw_link_quality_find(&quality, &id);
    assert_non_null(peer);
    return peer;
}

static void is(uint8_t peer, enum tw_link_quality_anomaly anomaly, const char *words) {
    tw_link_quality_judge(&quality, now_us);
    assert_int_equal(peer_of(peer)->anomaly, anomaly);
    tw_link_quality_evidence(peer_of(peer), text);
    if (strstr(text, words) == NULL) fail_msg("no '%s' in: %s", words, text);
}

/* ---- measuring ----------------------------------------------------------------------------- */

FACT(rate_of_a_sender_is_that_of_its_transfers) {
    up(1);
    transfers(1, 1000 * 1000, 5);
    assert_in_range(peer_of(1)->in_bytes_s, 950 * 1000, 1000 * 1000);
    assert_int_equal(peer_of(1)->in_count, 5);
    now_us += 1000 * S; /* idle time does not lower the measured rate */
    look(1, (struct tw_link_quality_look){0});
    assert_in_range(peer_of(1)->in_bytes_s, 950 * 1000, 1000 * 1000);
}

FACT(transfer_that_stands_still_is_noticed_while_it_does) {
    up(1);
    transfers(1, 1000 * 1000, 4);
    look(1, (struct tw_link_quality_look){.is_pulling = true});
    for (unsigned i = 0; i < 120; i++) {
        now_us += 250 * MS;
        look(1, (struct tw_link_quality_look){.is_pulling = true});
    }
    assert_true(peer_of(1)->in_bytes_s < 300 * 1000);
}

FACT(round_trips_and_losses_are_smoothed) {
    up(1);
    look(1, (struct tw_link_quality_look){.rtt_us = 40000, .segments = 1000, .retransmits = 10});
    assert_int_equal(peer_of(1)->rtt_us, 40000);
    assert_int_equal(peer_of(1)->loss_ppm, 10000);
    look(1, (struct tw_link_quality_look){.rtt_us = 120000, .segments = 1050, .retransmits = 60});
    assert_int_equal(peer_of(1)->rtt_us, 50000);
    assert_int_equal(peer_of(1)->loss_ppm, 10000); /* too few segments */
    look(1,
         (struct tw_link_quality_look){.segments = 2000, .retransmits = 10}); /* falling counters */
    down(1, true);
    up(1); /* counters of a new link start at zero */
    look(1, (struct tw_link_quality_look){.segments = 1000, .retransmits = 0});
    assert_true(peer_of(1)->loss_ppm < 10000);
}

FACT(reliability_is_the_time_linked) {
    up(1);
    now_us += 300 * S;
    assert_int_equal(tw_link_quality_reliability(peer_of(1), now_us), 1000);
    down(1, true);
    now_us += 100 * S;
    assert_int_equal(tw_link_quality_reliability(peer_of(1), now_us), 750);
    up(1);
    now_us += UINT64_C(500) * 3600 * S; /* old measurements decay */
    down(1, false);
    up(1);
    now_us += UINT64_C(100) * 3600 * S;
    assert_in_range(tw_link_quality_reliability(peer_of(1), now_us), 999, 1000);
}

FACT(own_upload_is_measured_while_more_waits) {
    uint64_t sent = 0;
    tw_link_quality_sent(&quality, sent, false, 0, now_us);
    for (unsigned i = 0; i < 20; i++) { /* too little is sent for a measurement */
        tw_link_quality_sent(&quality, sent += 1000, false, 0, now_us += S);
        assert_int_equal(quality.upload_bytes_s, 0);
    }
    for (unsigned i = 0; i < 20; i++)
        tw_link_quality_sent(&quality, sent += 500 * 1000, true, 0, now_us += S);
    assert_in_range(quality.upload_bytes_s, 490 * 1000, 500 * 1000);
    for (unsigned i = 0; i < 3; i++) tw_link_quality_sent(&quality, sent, true, 0, now_us += S);
    assert_true(quality.upload_bytes_s > 400 * 1000); /* a receiver stalls */
    up(1);
    look(1, (struct tw_link_quality_look){.path_bytes_s = 900 * 1000});
    tw_link_quality_sent(&quality, sent, false, 0, now_us += S);
    assert_int_equal(quality.upload_bytes_s, 900 * 1000); /* at least the rate of one path */
    tw_link_quality_sent(&quality, sent, false, 300 * 1000, now_us += S);
    assert_int_equal(quality.upload_bytes_s, 300 * 1000); /* the upload cap limits the rate */
}

/* ---- judging ------------------------------------------------------------------------------- */

/* Rates as on the loopback interface of a busy machine. */
FACT(fast_sender_is_not_slow_beside_faster_ones) {
    for (uint8_t peer = 1; peer <= 4; peer++) up(peer);
    for (uint8_t peer = 1; peer <= 3; peer++) transfers(peer, 115 * 1000 * 1000, 4);
    transfers(4, 20 * 1000 * 1000, 4);
    is(4, TW_LINK_QUALITY_FINE, "");
    transfers(4, 1000 * 1000, 16);
    is(4, TW_LINK_QUALITY_SLOW_SENDER, "slow sender");
}

/* On busy machines a short transfer takes as long as the sender waits for a processor. */
FACT(sender_of_short_transfers_is_not_slow) {
    for (uint8_t peer = 1; peer < 6; peer++) up(peer);
    for (unsigned i = 0; i < 10; i++) {
        for (uint8_t peer = 1; peer < 6; peer++) {
            const struct tw_id id = id_of(peer);
            look(peer, (struct tw_link_quality_look){.is_pulling = true});
            now_us += peer == 3 ? 20 * MS : 3 * MS;
            tw_link_quality_arrived(&quality, &id, 65536, true, now_us);
            is(peer, TW_LINK_QUALITY_FINE, "");
        }
    }
    assert_in_range(peer_of(3)->in_bytes_s, 3000 * 1000, 4000 * 1000);
}

FACT(slow_sender_is_named_with_its_evidence) {
    for (uint8_t peer = 1; peer <= 4; peer++) up(peer);
    transfers(1, 2000 * 1000, 4);
    transfers(2, 1500 * 1000, 4);
    transfers(3, 100 * 1000, 4);
    is(3, TW_LINK_QUALITY_FINE, ""); /* two other peers are too few to compare with */
    transfers(4, 1000 * 1000, 4);
    is(3, TW_LINK_QUALITY_SLOW_SENDER, "slow sender: 9");
    is(3, TW_LINK_QUALITY_SLOW_SENDER, "transfers; median of the others: 1.5");
    assert_true(tw_link_quality_is_odd(peer_of(3)));
    for (uint8_t peer = 1; peer <= 4; peer++) {
        if (peer != 3) is(peer, TW_LINK_QUALITY_FINE, "");
    }
    transfers(3, 450 * 1000, 16); /* faster, but still too slow; after that fast enough */
    is(3, TW_LINK_QUALITY_SLOW_SENDER, "slow sender");
    transfers(3, 700 * 1000, 16);
    is(3, TW_LINK_QUALITY_FINE, "");
    transfers(3, 450 * 1000, 16); /* this rate prolongs a finding, but does not begin one */
    is(3, TW_LINK_QUALITY_FINE, "");
}

FACT(slow_receiver_is_named) {
    static const uint64_t paths[6] = {0, 900 * 1000, 1000 * 1000, 1100 * 1000, 200 * 1000, 0};
    for (uint8_t peer = 1; peer <= 5; peer++) {
        up(peer);
        look(peer, (struct tw_link_quality_look){.path_bytes_s = paths[peer]});
    }
    is(4, TW_LINK_QUALITY_SLOW_RECEIVER,
       "slow receiver: takes 200 kB/s from us; median of the others: 1.00 MB/s");
    is(5, TW_LINK_QUALITY_FINE, ""); /* a peer of unknown rate is not slow */
}

FACT(link_that_keeps_breaking_is_named_until_it_stays) {
    for (uint8_t peer = 1; peer <= 4; peer++) up(peer);
    for (unsigned i = 0; i < 5; i++) {
        is(2, i < 3 ? TW_LINK_QUALITY_FINE : TW_LINK_QUALITY_FLAPPING, "");
        down(2, true);
        down(3, false); /* each time with GOODBYE, so it does not count */
        now_us += 20 * S;
        up(2);
        up(3);
    }
    is(2, TW_LINK_QUALITY_FLAPPING,
       "flapping link: broke about 5 times within an hour; median of the others: 0");
    is(3, TW_LINK_QUALITY_FINE, "");
    now_us += UINT64_C(3) * 3600 * S;
    is(2, TW_LINK_QUALITY_FINE, "");
}

/* A node that its operator restarts, or that was killed. */
FACT(restarts_are_no_fault_of_the_link) {
    const struct tw_id id = id_of(2);
    for (uint8_t peer = 1; peer <= 4; peer++) up(peer);
    for (uint32_t boot = 2; boot < 10; boot++) {
        now_us += 20 * S;
        down(2, true);
        now_us += 3 * S;
        tw_link_quality_up(&quality, &id, boot, now_us);
        is(2, TW_LINK_QUALITY_FINE, "");
    }
}

/* A laptop that its owner closes again and again. */
FACT(sleep_is_no_fault_of_the_link) {
    for (uint8_t peer = 1; peer <= 4; peer++) up(peer);
    for (unsigned i = 0; i < 8; i++) {
        now_us += 20 * S;
        down(2, true);
        now_us += TW_LINK_QUALITY_AWAY_US;
        up(2);
        is(2, TW_LINK_QUALITY_FINE, "");
    }
}

/* Its machine acknowledges all, while the process is stopped: SIGSTOP, a frozen container. */
FACT(suspended_process_is_no_fault_of_the_link) {
    const struct tw_id id = id_of(2);
    for (uint8_t peer = 1; peer <= 4; peer++) up(peer);
    for (unsigned i = 0; i < 8; i++) {
        look(2, (struct tw_link_quality_look){.segments = 1000 + i, .retransmits = 0});
        now_us += 8 * S;
        tw_link_quality_down(&quality, &id, TW_LINK_QUALITY_SILENCE, now_us);
        now_us += 5 * S;
        up(2);
        is(2, TW_LINK_QUALITY_FINE, "");
    }
    for (unsigned i = 0; i < 4; i++) { /* silence after losses is a fault of the line */
        now_us += 8 * S;
        look(2, (struct tw_link_quality_look){.segments = 2000, .retransmits = 4});
        now_us += 6 * S;
        tw_link_quality_down(&quality, &id, TW_LINK_QUALITY_SILENCE, now_us);
        now_us += 5 * S;
        up(2);
    }
    is(2, TW_LINK_QUALITY_FLAPPING, "flapping");
}

/* Heartbeats stop with the payloads: the time tells nothing of the sender's rate. */
FACT(suspended_sender_is_not_slow) {
    uint64_t control = 1000;
    for (uint8_t peer = 1; peer <= 4; peer++) {
        up(peer);
        transfers(peer, 1000 * 1000, 4);
    }
    const uint64_t rate = peer_of(4)->in_bytes_s;
    for (unsigned i = 0; i < 400; i++) { /* stopped for 5 s of each 10 s */
        now_us += 250 * MS;
        if (i % 40 < 20) control += 10;
        const struct tw_id id = id_of(4);
        look(4, (struct tw_link_quality_look){.is_pulling = true, .control_bytes = control});
        if (i % 40 < 20) tw_link_quality_arrived(&quality, &id, 250 * 1000, i % 4 == 3, now_us);
    }
    assert_in_range(peer_of(4)->in_bytes_s, rate / 2, 2 * rate);
    is(4, TW_LINK_QUALITY_FINE, "");
}

FACT(where_all_links_break_it_is_ours) {
    for (unsigned i = 0; i < 5; i++) {
        for (uint8_t peer = 1; peer <= 4; peer++) up(peer);
        now_us += 20 * S;
        for (uint8_t peer = 1; peer <= 4; peer++) down(peer, true);
    }
    for (uint8_t peer = 1; peer <= 4; peer++) up(peer);
    for (uint8_t peer = 1; peer <= 4; peer++) is(peer, TW_LINK_QUALITY_FINE, "");
}

FACT(lossy_link_is_named_and_not_avoided) {
    for (uint8_t peer = 1; peer <= 4; peer++) {
        up(peer);
        look(peer,
             (struct tw_link_quality_look){.segments = 10000, .retransmits = peer == 2 ? 900 : 10});
    }
    is(2, TW_LINK_QUALITY_LOSSY,
       "lossy link: 9.0 % of our packets to it are lost; median of the others: 0.1 %");
    assert_false(tw_link_quality_is_odd(peer_of(2)));
}

FACT(table_drops_the_peer_that_left_longest_ago) {
    for (uint8_t peer = 1; peer < 250; peer++) {
        up(peer);
        now_us += S;
        if (peer > 5) down(peer, false);
    }
    for (uint8_t peer = 1; peer <= 5; peer++) assert_true(peer_of(peer)->is_linked);
    const struct tw_id first = id_of(6), last = id_of(249);
    assert_null(tw_link_quality_find(&quality, &first));
    assert_non_null(tw_link_quality_find(&quality, &last));
}

/* ---- over a restart ------------------------------------------------------------------------- */

static const uint64_t T = 1800000000;
static char file[TW_LINK_QUALITY_FILE_MAX];

static uint32_t restart(uint64_t passed_s) {
    const size_t size = tw_link_quality_encode(&quality, file, now_us, T);
    assert_in_range(size, 1, TW_LINK_QUALITY_FILE_MAX);
    memset(&quality, 0, sizeof(quality));
    now_us = 5 * S; /* another monotonic clock */
    return tw_link_quality_decode(&quality, file, size, now_us, T + passed_s);
}

FACT(restart_keeps_link_quality) {
    up(1);
    look(1, (struct tw_link_quality_look){
                .rtt_us = 40000, .path_bytes_s = 700000, .segments = 1000, .retransmits = 20});
    transfers(1, 2000000, 4);
    up(2);
    now_us += 100 * S;
    down(2, true);
    now_us += 300 * S;
    quality.upload_bytes_s = 123456;
    const struct tw_link_quality_peer one = *peer_of(1);
    const uint32_t reliability = tw_link_quality_reliability(peer_of(2), now_us);
    assert_int_equal(restart(60), 0);
    assert_int_equal(quality.upload_bytes_s, 123456);
    assert_int_equal(peer_of(1)->rtt_us, one.rtt_us);
    assert_int_equal(peer_of(1)->in_bytes_s, one.in_bytes_s);
    assert_int_equal(peer_of(1)->in_count, 4);
    assert_int_equal(peer_of(1)->out_bytes_s, 700000);
    assert_true(peer_of(1)->has_loss);
    assert_int_equal(peer_of(1)->loss_ppm, one.loss_ppm);
    assert_false(peer_of(2)->has_loss);
    assert_int_equal(peer_of(2)->breaks_milli, 1000);
    assert_false(peer_of(1)->is_linked || peer_of(2)->is_linked);
    /* The time in which the daemon was not running counts for no peer. */
    assert_int_equal(tw_link_quality_reliability(peer_of(1), now_us), 1000);
    assert_in_range(tw_link_quality_reliability(peer_of(2), now_us), reliability - 2,
                    reliability + 2);
    up(1);
    up(2);
    now_us += 10 * S;
    assert_int_equal(tw_link_quality_reliability(peer_of(1), now_us), 1000);
}

FACT(stored_measurements_decay_with_time) {
    for (unsigned i = 0; i < 4; i++) {
        up(1);
        now_us += S;
        down(1, true);
    }
    assert_int_equal(restart(2 * 3600), 0);
    assert_int_equal(peer_of(1)->breaks_milli, 1000);
    assert_int_equal(restart(TW_LINK_QUALITY_OLD_S), 0);
    assert_int_equal(peer_of(1)->breaks_milli, 0);
    up(1);
    assert_int_equal(restart(TW_LINK_QUALITY_OLD_S + 1), 0);
    const struct tw_id id = id_of(1);
    assert_null(tw_link_quality_find(&quality, &id));
    assert_int_equal(quality.upload_bytes_s, 0);
}

FACT(odd_peer_is_known_after_a_restart) {
    for (uint8_t peer = 1; peer <= 5; peer++) {
        up(peer);
        transfers(peer, peer == 3 ? 50000 : 2000000, 4);
    }
    is(3, TW_LINK_QUALITY_SLOW_SENDER, "slow sender");
    assert_int_equal(restart(60), 0);
    for (uint8_t peer = 1; peer <= 5; peer++) up(peer);
    is(3, TW_LINK_QUALITY_SLOW_SENDER, "slow sender: 48.0 kB/s to us in 16 transfers");
    is(1, TW_LINK_QUALITY_FINE, "");
}

static uint32_t decode(const char *text_in) {
    memset(&quality, 0, sizeof(quality));
    return tw_link_quality_decode(&quality, text_in, strlen(text_in), now_us, T);
}

FACT(file_is_not_trusted) {
#define HEAD "thinwire-crowd 1 1800000000 5\n"
#define ID "abababababababababababababababababababababababababababababababab"
    static const char *const bad[] = {
        ID " 10 11 0 0 0 0 0 -",       /* time linked exceeds time known */
        ID " 172801 0 0 0 0 0 0 -",    /* time known exceeds its limit */
        ID " 10 10 1000001 0 0 0 0 -", /* each number exceeds its bound */
        ID " 10 10 0 600000001 0 0 0 -",
        ID " 10 10 0 0 1000000000001 0 0 -",
        ID " 10 10 0 0 0 4294967296 0 -",
        ID " 10 10 0 0 0 0 1000000000001 -",
        ID " 10 10 0 0 0 0 0 1000001",
        ID " 10 10 0 0 0 0 0 ",
        ID " 10 10 0 0 0 0 0",
        ID " 10 10 0 0 0 0 0 - ",
        ID " 10 -1 0 0 0 0 0 -",
        ID " 10  10 0 0 0 0 0 -",
        ID "0 10 10 0 0 0 0 0 -",
        "ab 10 10 0 0 0 0 0 -",
        ID " 99999999999999999999 0 0 0 0 0 0 -",
        "",
        "0000000000000000000000000000000000000000000000000000000000000000 1 1 0 0 0 0 0 -"};
    char text_in[TW_LINK_QUALITY_FILE_MAX];
    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        (void)snprintf(text_in, sizeof(text_in), HEAD "%s\n" ID " 10 10 0 0 0 0 0 -\n", bad[i]);
        if (decode(text_in) != 1) fail_msg("taken: %s", bad[i]);
        assert_int_equal(peer_of(0xab)->known_us, 10 * S);
    }
    assert_int_equal(decode(HEAD ID " 1 1 0 0 0 0 0 -\n" ID " 2 2 0 0 0 0 0 -\n"), 1); /* twice */
    assert_int_equal(peer_of(0xab)->known_us, S);
    static const char *const heads[] = {"thinwire-crowd 2 1800000000 5\n", "x", "\n",
                                        "thinwire-crowd 1 1800000000\n",
                                        "thinwire-crowd 1 1800000000 1000000000001\n"};
    for (unsigned i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        (void)snprintf(text_in, sizeof(text_in), "%s" ID " 10 10 0 0 0 0 0 -\n", heads[i]);
        assert_int_equal(decode(text_in), 1);
        assert_int_equal(quality.upload_bytes_s, 0);
    }
    /* A clock that was far ahead when the file was written. */
    assert_int_equal(decode("thinwire-crowd 1 1900000000 5\n" ID " 1 1 0 0 0 0 0 -\n"), 0);
    assert_int_equal(quality.upload_bytes_s, 0);
}

FACT(full_table_fits_its_file) {
    for (uint32_t i = 0; i < TW_LINK_QUALITY_ROWS; i++) {
        quality.peers[i] = (struct tw_link_quality_peer){.is_used = true,
                                                         .is_linked = true,
                                                         .changed_us = now_us,
                                                         .faded_us = now_us,
                                                         .known_us = UINT64_MAX / 4,
                                                         .linked_us = UINT64_MAX / 4,
                                                         .breaks_milli = 1000 * 1000,
                                                         .rtt_us = 600 * 1000 * 1000,
                                                         .in_bytes_s = UINT64_C(1000000000000),
                                                         .out_bytes_s = UINT64_C(1000000000000),
                                                         .in_count = UINT32_MAX,
                                                         .has_loss = true,
                                                         .loss_ppm = 1000 * 1000};
        quality.peers[i].id = id_of((uint8_t)(i + 1));
    }
    quality.upload_bytes_s = UINT64_C(1000000000000);
    assert_int_equal(restart(0), 0);
    for (uint32_t i = 0; i < TW_LINK_QUALITY_ROWS; i++) assert_true(quality.peers[i].is_used);
    assert_int_equal(peer_of(TW_LINK_QUALITY_ROWS)->in_count, UINT32_MAX);
    for (unsigned i = 0; i < sizeof(file); i++) file[i] = (char)(i * 7919 % 251); /* noise */
    memset(&quality, 0, sizeof(quality));
    assert_int_equal(tw_link_quality_decode(&quality, file, sizeof(file), now_us, T), 1);
}
