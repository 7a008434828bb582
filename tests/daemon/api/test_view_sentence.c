/* Tests the sentence that describes a node, for each of the node's states. */
#include "tests/test.h"

#include "daemon/api/view_sentence.h"
#include "daemon/api/view_warning.h"
#include "view_sample.h"

static struct tw_status_view view;

static int set_up(void **state) {
    tw_status_view_init(&view);
    view_sample(&view);
    return 0;
}

#define FACT(name) TEST_IN(set_up, NULL, name)

FACT(each_state_has_its_sentence) {
    static const struct {
        enum tw_node_state state;
        enum tw_view_worker worker;
        bool links;
        uint32_t alive, mixed;
        const char *sentence;
    } CASES[] = {
        {TW_STATE_MEMBER, TW_VIEW_WORKER_RUNNING, true, 3, 3,
         "attic trains bible together with 3 others"},
        {TW_STATE_MEMBER, TW_VIEW_WORKER_RUNNING, true, 1, 1,
         "attic trains bible together with 1 other"},
        {TW_STATE_SOLO, TW_VIEW_WORKER_RUNNING, false, 0, 0,
         "attic trains bible alone, as configured"},
        {TW_STATE_SOLO, TW_VIEW_WORKER_RUNNING, true, 0, 0,
         "attic trains bible alone; no peer is reachable"},
        {TW_STATE_SOLO, TW_VIEW_WORKER_RUNNING, true, 2, 0,
         "attic trains bible alone so far; 2 peers are alive"},
        {TW_STATE_RECEIVER, TW_VIEW_WORKER_RUNNING, true, 2, 0,
         "attic trains bible and fetches the state of the other nodes"},
        {TW_STATE_MEMBER, TW_VIEW_WORKER_PAUSED, true, 2, 2,
         "attic is paused; `thinwire resume` continues"},
        {TW_STATE_FINISHED, TW_VIEW_WORKER_FINISHED, true, 2, 2,
         "attic has finished bible and serves it to others"},
        {TW_STATE_MEMBER, TW_VIEW_WORKER_RESTARTING, true, 2, 2, "attic is restarting its worker"},
        {TW_STATE_SOLO, TW_VIEW_WORKER_ABSENT, true, 2, 2,
         "attic does not train: no worker is attached"},
        {TW_STATE_SOLO, TW_VIEW_WORKER_WAITING, true, 2, 0, "attic waits for training data"},
        {TW_STATE_SOLO, TW_VIEW_WORKER_LOADING, true, 0, 0,
         "attic looks for other nodes of the run before it trains"},
        {TW_STATE_RECEIVER, TW_VIEW_WORKER_LOADING, true, 2, 0,
         "attic fetches the state of the run before it trains"},
        {TW_STATE_MEMBER, TW_VIEW_WORKER_FAILED, true, 2, 2,
         "attic does not train: its worker failed"},
    };
    for (unsigned i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        char sentence[TW_VIEW_TEXT_BYTES];
        view.node.state = CASES[i].state;
        view.worker.state = CASES[i].worker;
        view.node.links = CASES[i].links;
        view.sync.alive = CASES[i].alive;
        view.sync.mixed = CASES[i].mixed;
        view.node.uptime_us = UINT64_C(60000000);
        tw_view_sentence(&view, sentence);
        assert_string_equal(sentence, CASES[i].sentence);
        if (CASES[i].worker != TW_VIEW_WORKER_ABSENT) continue;
        view.node.uptime_us = UINT64_C(1000000); /* a worker of systemd comes a moment later */
        tw_view_sentence(&view, sentence);
        assert_string_equal(sentence, "attic has started and waits for its worker");
    }
}

FACT(a_node_whose_peers_said_goodbye_misses_nobody) {
    char sentence[TW_VIEW_TEXT_BYTES];
    view.node.state = TW_STATE_SOLO;
    view.sync.alive = view.sync.mixed = 0;
    view.peers_count = 1;
    view.peers[0].link = TW_VIEW_LINK_PAUSED;
    view.peers[0].absent_us = 180000000;
    (void)snprintf(view.peers[0].name, sizeof(view.peers[0].name), "barn");
    (void)snprintf(view.peers[0].said, sizeof(view.peers[0].said), "its training is paused");
    tw_view_sentence(&view, sentence);
    assert_string_equal(sentence,
                        "attic trains bible alone; barn paused 3 min ago: its training is paused");
    view.peers[0].absent_us = TW_VIEW_NEVER;
    tw_view_sentence(&view, sentence);
    assert_string_equal(sentence, "attic trains bible alone; no peer is reachable");
    view.caps.resting = "quota";
    tw_view_sentence(&view, sentence);
    assert_string_equal(sentence, "attic trains bible alone; its quota is used up until ");
    view.caps.resting = "hours";
    view.caps.until_min = 7 * 60 + 30;
    tw_view_sentence(&view, sentence);
    assert_string_equal(sentence,
                        "attic trains bible alone; network.hours keeps its links off until 07:30");
}

FACT(each_role_has_its_verb) {
    char sentence[TW_VIEW_TEXT_BYTES];
    view.node.role = TW_NODE_ROLE_FOLLOW;
    tw_view_sentence(&view, sentence);
    assert_string_equal(sentence, "attic follows bible together with 3 others");
    view.node.role = TW_NODE_ROLE_REDUCE;
    tw_view_sentence(&view, sentence);
    assert_string_equal(sentence, "attic merges for bible together with 3 others");
}

static void expects_join(const char *wanted) {
    char sentence[TW_VIEW_TEXT_BYTES];
    tw_view_sentence(&view, sentence);
    assert_string_equal(sentence, wanted);
}

FACT(a_joining_node_tells_its_progress) {
    view.node.state = TW_STATE_RECEIVER;
    view.join.phase = TW_VIEW_JOIN_STATE;
    expects_join("attic joins bible: fetches its state");
    view.join.bytes = 2900000;
    view.join.bytes_here = 1200000;
    expects_join("attic joins bible: fetches its state, 41 %, 1.20 of 2.90 MB");
    view.worker.state = TW_VIEW_WORKER_LOADING; /* it takes no step before the state is here */
    expects_join("attic joins bible: fetches its state, 41 %, 1.20 of 2.90 MB");
    view.worker.state = TW_VIEW_WORKER_RUNNING;
    view.join.bytes_per_s = 80000;
    view.join.eta_us = 21250000;
    expects_join("attic joins bible: fetches its state, 41 %, 1.20 of 2.90 MB at 80.0 kB/s, about "
                 "22 s left");
    view.join.bytes_here = 120000;
    view.join.bytes_per_s = 0;
    view.join.eta_us = TW_VIEW_NEVER;
    view.join.is_return = true;
    expects_join("attic catches up with bible: fetches its state, 4 %, 120 kB of 2.90 MB, nothing "
                 "arrives now");
    view.peers_count = 1;
    (void)snprintf(view.peers[0].name, sizeof(view.peers[0].name), "barn");
    view.peers[0].gives_none_us = 719000000;
    expects_join("attic catches up with bible: fetches its state, 4 %, 120 kB of 2.90 MB; "
                 "barn (1b1b1b1b) gives no more for 12 min");
    struct tw_warning warnings[TW_WARNINGS_MAX];
    assert_int_equal(tw_view_warnings(&view, warnings), 1);
    assert_string_equal(warnings[0].what, "barn (1b1b1b1b) gives this node no more state or data "
                                          "for 12 min: its budget for others has no room");
    view.peers[0].gives_none_us = 0;
    view.peers[0].gets_none_us = 719000000;
    assert_int_equal(tw_view_warnings(&view, warnings), 1);
    assert_string_equal(tw_warning_name(warnings[0].kind), "state_withheld");
    assert_string_equal(warnings[0].what, "barn (1b1b1b1b) gets no more state or data from this "
                                          "node for 12 min: the budget for others has no room");
    view.peers_count = 0;
    view.join.is_return = false;
    view.join.phase = TW_VIEW_JOIN_SEAT;
    expects_join("attic joins bible: has its state, and the next round gives it a seat");
    view.worker.state = TW_VIEW_WORKER_PAUSED;
    expects_join("attic is paused; `thinwire resume` continues");
    view.worker.state = TW_VIEW_WORKER_WAITING;
    view.join.phase = TW_VIEW_JOIN_DATA;
    expects_join(
        "attic joins bible: fetches its data, 4 %, 120 kB of 2.90 MB, nothing arrives now");
    view.join.bytes = 0; /* the local files are being checked */
    expects_join("attic waits for training data");
}

FACT(a_lonely_node_says_why) {
    view.worker.state = TW_VIEW_WORKER_RUNNING;
    view.node.state = TW_STATE_SOLO;
    view.node.links = true;
    view.join.phase = TW_VIEW_JOIN_NONE;
    view.sync.alive = view.sync.mixed = view.peers_count = view.bootstrap_count = 0;
    expects_join("attic trains bible alone; no other machine has joined yet");
    view.bootstrap_count = 1;
    expects_join("attic trains bible alone; no peer is reachable");
    view.peers_count = 2;
    for (unsigned i = 0; i < 2; i++) {
        view.peers[i].link = TW_VIEW_LINK_LEFT;
        view.peers[i].absent_us = (20 + 100 * i) * UINT64_C(1000000);
        (void)snprintf(view.peers[i].name, sizeof(view.peers[i].name), i == 0 ? "bob" : "carol");
    }
    expects_join("attic trains bible alone; bob left 20 s ago, 1 other before");
    view.peers_count = 1;
    expects_join("attic trains bible alone; bob left 20 s ago");
    view.peers[0].link = TW_VIEW_LINK_AWAY;
    expects_join("attic trains bible alone; bob was not heard for 20 s");
    view.net.is_offline = true;
    expects_join("attic trains bible alone; this machine is offline, its cable or wireless link is "
                 "down");
    view.caps.resting = "quota";
    (void)snprintf(view.caps.month_end, sizeof(view.caps.month_end), "2026-12-01");
    expects_join("attic trains bible alone; its quota is used up until 2026-12-01");
    view.caps.resting = "hours";
    view.caps.until_min = 1380;
    expects_join("attic trains bible alone; network.hours keeps its links off until 23:00");
}

/* The disk has no room for the data: no rate, and no time that nobody can know. */
FACT(a_node_that_cannot_store_its_data_waits) {
    view.worker.state = TW_VIEW_WORKER_WAITING;
    view.join.phase = TW_VIEW_JOIN_DATA;
    view.join.bytes = 2900000;
    view.join.bytes_per_s = 1000;
    (void)snprintf(view.data.error, sizeof(view.data.error), "no room");
    expects_join("attic joins bible: waits until its data can be stored");
}

FACT(a_node_of_any_model_waits_for_its_trainer) {
    char sentence[TW_VIEW_TEXT_BYTES];
    view.worker.state = TW_VIEW_WORKER_ABSENT;
    view.run.is_any_model = true;
    tw_view_sentence(&view, sentence);
    assert_string_equal(sentence, "attic waits for its trainer");
}

FACT(a_trainer_that_does_something_else_is_told) {
    char sentence[TW_VIEW_TEXT_BYTES];
    view.run.is_any_model = true;
    view.worker.still_us = UINT64_C(180) * 1000 * 1000;
    tw_view_sentence(&view, sentence);
    assert_string_equal(sentence, "attic waits for its trainer, which has taken no step for 3 min");
}

FACT(a_joiner_without_room_is_named_by_the_others) {
    view.node.state = TW_STATE_MEMBER;
    view.sync.alive = 1;
    view.sync.mixed = 0;
    view.peers_count = 1;
    view.peers[0].link = TW_VIEW_LINK_ALIVE;
    (void)snprintf(view.peers[0].name, sizeof(view.peers[0].name), "barn");
    expects_join("attic trains bible alone so far; 1 peer is alive");
    view.peers[0].waits_for_room = true;
    expects_join("attic trains bible alone so far; the disk of barn has no room for the data");
    view.peers[0].link = TW_VIEW_LINK_AWAY; /* its last word may be old */
    expects_join("attic trains bible alone so far; 1 peer is alive");
}
