/* The screens, drawn from one fixed view, are compared with the files in tests/golden/cli/. Set
 * TW_GOLDEN_WRITE=1 to write these files again, and review the difference. */
#include <ctype.h>
#include <math.h>

#include "base/units.h"
#include "daemon/api/ledger.h"
#include "daemon/api/view_json.h"
#include "daemon/cli/common/json_path.h"
#include "daemon/cli/common/line.h"
#include "daemon/cli/show/screen.h"
#include "tests/daemon/api/view_sample.h"
#include "tests/test.h"

static struct tw_status_view view;
static const char *golden_folder;
static char drawn[16384];
static unsigned rows; /* of the terminal; 0: any number */

static int start(void **state) {
    tw_status_view_init(&view);
    view_sample(&view);
    rows = 0;
    return 0;
}

#define FACT(name) TEST_IN(start, NULL, name)

enum look { ASCII, UTF8, COLOUR };

static void draw(void (*screen_fn)(const struct screen *, const json_t *), json_t *json,
                 enum look look, unsigned width) {
    memset(drawn, 0, sizeof(drawn));
    FILE *const to = fmemopen(drawn, sizeof(drawn) - 1, "w");
    assert_non_null(to);
    assert_non_null(json);
    const struct screen screen = {to, look == COLOUR, look != ASCII, width, rows, NULL};
    screen_fn(&screen, json);
    assert_int_equal(fclose(to), 0);
    json_decref(json);
}

static void compare(const char *name) {
    char path[512], want[sizeof(drawn)] = "";
    (void)snprintf(path, sizeof(path), "%s/%s", golden_folder, name);
    const bool is_write = getenv("TW_GOLDEN_WRITE") != NULL;
    FILE *const file = fopen(path, is_write ? "w" : "r");
    if (file == NULL) fail_msg("%s is missing", path);
    if (is_write) {
        assert_true(fputs(drawn, file) >= 0);
    } else {
        want[fread(want, 1, sizeof(want) - 1, file)] = 0;
        assert_string_equal(drawn, want);
    }
    (void)fclose(file);
}

static unsigned lines_drawn(void) {
    unsigned lines = 0;
    for (const char *c = drawn; *c != 0; c++) lines += *c == '\n';
    return lines;
}

static unsigned widest(void) {
    unsigned columns = 0, most = 0;
    for (const char *c = drawn; *c != 0; c++) {
        if (*c == '\n')
            columns = 0;
        else
            columns += ((unsigned char)*c & 0xC0) != 0x80;
        most = columns > most ? columns : most;
    }
    return most;
}

/* A model that has learned little writes such long words. */
FACT(words_wider_than_the_screen_stay_whole_characters) {
    static const unsigned widths[] = {40, 79, 80, 81, 200};
    memset(view.train.sample.text, 0, sizeof(view.train.sample.text));
    for (size_t i = 0; i + 3 < sizeof(view.train.sample.text); i += 3)
        memcpy(view.train.sample.text + i, "\xE2\x82\xAC", 3);
    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
        draw(screen_status, tw_view_json_status(&view), UTF8, widths[i]);
        json_t *const text = json_string(drawn); /* NULL: not UTF-8 */
        assert_non_null(text);
        json_decref(text);
        assert_true(widest() <= widths[i]);
        unsigned count = 0;
        for (const char *c = drawn; (c = strstr(c, "\xE2\x82\xAC")) != NULL; c += 3) count++;
        assert_int_equal(count, (sizeof(view.train.sample.text) - 1) / 3);
    }
}

/* An untrained model writes bytes that are no text. */
FACT(a_sample_that_is_no_text_is_not_shown) {
    draw(screen_status, tw_view_json_status(&view), UTF8, 80);
    assert_non_null(strstr(drawn, "  Sample "));
    memcpy(view.train.sample.text, "\xEF\xBF\xBD", 3); /* one broken character is no harm */
    draw(screen_status, tw_view_json_status(&view), UTF8, 80);
    assert_non_null(strstr(drawn, "  Sample "));
    (void)snprintf(view.train.sample.text, sizeof(view.train.sample.text),
                   "e\xEF\xBF\xBDtt\xEF\xBF\xBD\x01 a");
    draw(screen_status, tw_view_json_status(&view), UTF8, 80);
    assert_null(strstr(drawn, "  Sample "));
}

FACT(the_expected_loss_stands_below_the_measured_ones) {
    json_t *status = tw_view_json_status(&view);
    json_t *const expected = json_pack("{s:f,s:f,s:f,s:n}", "loss_ratio", .024, "loss_low_ratio",
                                       .0171, "loss_high_ratio", .0336, "now_loss_ratio");
    (void)json_object_set_new(status, "expected", json_incref(expected));
    draw(screen_status, status, UTF8, 120);
    assert_non_null(strstr(drawn, " expected at the end: +2.4 % (1.7 to 3.4) above one machine "
                                  "with the batch of all\n"));
    (void)json_object_set_new(expected, "now_loss_ratio", json_real(.0291));
    status = tw_view_json_status(&view);
    (void)json_object_set_new(status, "expected", expected);
    draw(screen_status, status, UTF8, 160);
    assert_non_null(strstr(drawn, " of all; with nodes and rounds as now: +2.9 %\n"));
}

FACT(a_joining_node_shows_no_losses_of_its_own) {
    view.node.state = TW_STATE_RECEIVER;
    view.join.phase = TW_VIEW_JOIN_STATE;
    view.join.bytes = 2900000;
    view.join.bytes_here = 1200000;
    view.train.loss = view.train.loss_live = view.train.loss_anchor = view.train.distance = NAN;
    view.train.losses_count = 0;
    view.train.eval_step = 0;
    draw(screen_status, tw_view_json_status(&view), UTF8, 80);
    assert_non_null(strstr(drawn, "attic joins bible: fetches its state, 41 %, 1.20 of 2.90 MB\n"));
    assert_non_null(strstr(drawn, "  Loss      not measured before the run's state is here\n"));
    json_t *const json = tw_view_json_status(&view);
    assert_true(fabs(json_num(json, "join.percent") - 41.38) < 0.01);
    assert_string_equal(json_str(json, "join.phase"), "state");
    json_decref(json);
}

FACT(a_finished_run_says_what_becomes_of_its_model) {
    draw(screen_status, tw_view_json_status(&view), UTF8, 80);
    assert_null(strstr(drawn, "thinwire export"));
    view.node.state = TW_STATE_FINISHED;
    view.worker.state = TW_VIEW_WORKER_FINISHED;
    draw(screen_status, tw_view_json_status(&view), UTF8, 80);
    assert_non_null(strstr(drawn, "Model     thinwire generate, export --out DIR or leave\n"));
}

FACT(a_paused_node_has_no_speed_but_the_run_has) {
    view.worker.state = TW_VIEW_WORKER_PAUSED;
    view.pause.is_by_user = true;
    view.train.tokens_per_s = 0;
    draw(screen_status, tw_view_json_status(&view), UTF8, 80);
    assert_non_null(strstr(drawn, "step 12,000 · paused, while 3 others train 39.2k tokens/s\n"));
}

/* The last round of a run may go beyond its budget. */
FACT(a_finished_node_has_no_speed_and_all_of_its_run) {
    view.node.state = TW_STATE_FINISHED;
    view.worker.state = TW_VIEW_WORKER_FINISHED;
    view.run.clock_tokens = view.run.budget_tokens + view.run.budget_tokens / 50;
    draw(screen_status, tw_view_json_status(&view), UTF8, 80);
    assert_non_null(strstr(drawn, " 100.0 % of "));
    assert_non_null(strstr(drawn, "step 12,000 · finished\n"));
}

FACT(status_looks_as_it_should) {
    draw(screen_status, tw_view_json_status(&view), UTF8, 80);
    compare("status.txt");
    draw(screen_status, tw_view_json_status(&view), ASCII, 80);
    compare("status_ascii.txt");
}

FACT(trouble_comes_first_with_its_way_out) {
    view.worker.state = TW_VIEW_WORKER_FAILED;
    view.worker.restarts = 9;
    (void)snprintf(view.worker.error, sizeof(view.worker.error), "/srv/bible.txt: No such file");
    view.sync.alive = view.sync.mixed = 0;
    (void)snprintf(view.checkpoint.error, sizeof(view.checkpoint.error),
                   "/var/lib/thinwire: no space left");
    view.net.reach_state = TW_REACHABILITY_NO;
    (void)snprintf(view.net.reach_text, sizeof(view.net.reach_text),
                   "No peer can dial this node; 1b1b1b1b tried 198.51.100.7:4747: no answer; open "
                   "TCP port 4747 in this machine's firewall");
    draw(screen_status, tw_view_json_status(&view), UTF8, 80);
    compare("status_trouble.txt");
}

/* Makes the longest status: several warnings, advice of several lines, a sample, events. */
static void make_long(void) {
    view.worker.state = TW_VIEW_WORKER_FAILED;
    view.worker.restarts = 9;
    (void)snprintf(view.worker.error, sizeof(view.worker.error), "/srv/bible.txt: No such file");
    (void)snprintf(view.checkpoint.error, sizeof(view.checkpoint.error),
                   "/var/lib/thinwire: no space left");
    view.sync.alive = view.sync.mixed = 0;
}

/* `thinwire status --watch` on a terminal: below the top row nothing may push the headline out. */
FACT(a_low_terminal_shows_the_important_lines) {
    static const unsigned widths[] = {40, 60, 80, 160};
    make_long();
    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
        rows = 0;
        draw(screen_status, tw_view_json_status(&view), UTF8, widths[i]);
        const unsigned all = lines_drawn();
        for (rows = 12; rows <= all + 1; rows++) {
            draw(screen_status, tw_view_json_status(&view), UTF8, widths[i]);
            assert_true(lines_drawn() <= rows);
            assert_true(widest() <= widths[i]);
            assert_memory_equal(drawn, "● attic does not train", 22);
            assert_non_null(strstr(drawn, "\n! The worker died 9 times"));
            assert_non_null(strstr(drawn, "\n  Loss      1.652 training"));
            const bool is_cut = strstr(drawn, " more line") != NULL;
            assert_int_equal(is_cut, all > rows);
            /* the order of the cuts */
            if (strstr(drawn, "  Sample ") != NULL) assert_non_null(strstr(drawn, "  Lately "));
            if (strstr(drawn, "  Lately ") != NULL) assert_non_null(strstr(drawn, "  Network "));
            if (strstr(drawn, "  Network ") != NULL) assert_non_null(strstr(drawn, "  Run "));
        }
    }
    rows = 23;
    draw(screen_status, tw_view_json_status(&view), UTF8, 80);
    compare("status_trouble_24.txt");
    start(NULL);
    rows = 23;
    draw(screen_status, tw_view_json_status(&view), UTF8, 80);
    compare("status_24.txt");
}

FACT(hidden_warnings_are_counted) {
    make_long();
    rows = 10;
    draw(screen_status, tw_view_json_status(&view), UTF8, 80);
    assert_non_null(strstr(drawn, " more lines, 2 warnings in them: thinwire status\n"));
    rows = 60;
    draw(screen_status, tw_view_json_status(&view), UTF8, 80);
    assert_null(strstr(drawn, " in them"));
}

TEST(a_low_terminal_shows_the_newest_rows_of_a_list) {
    static const char LIST[] = "1\n2\n3\n4\n5\n";
    char text[256] = "";
    for (unsigned is_last = 0; is_last < 2; is_last++) {
        FILE *const to = fmemopen(text, sizeof(text), "w");
        const struct screen screen = {to, false, true, 80, 3, NULL};
        assert_non_null(to);
        fit_list(&screen, LIST, is_last == 1, "events");
        assert_int_equal(fclose(to), 0);
        assert_string_equal(text, is_last ? "… 3 more lines: thinwire events\n4\n5\n"
                                          : "1\n2\n… 3 more lines: thinwire events\n");
    }
    FILE *const to = fmemopen(text, sizeof(text), "w");
    const struct screen screen = {to, false, true, 80, 5, NULL};
    assert_non_null(to);
    fit_list(&screen, LIST, true, "events");
    assert_int_equal(fclose(to), 0);
    assert_string_equal(text, LIST);
}

TEST(advice_is_shown_as_it_must_be_typed_here) {
    char text[256] = "";
    FILE *const to = fmemopen(text, sizeof(text), "w");
    const struct screen screen = {to, false, true, 80, 0, "sudo thinwire --config bible "};
    assert_non_null(to);
    line_wrap_advice(&screen, PLAIN, "> ", 2, "`thinwire peers` names it; `thinwire leave` there");
    assert_int_equal(fclose(to), 0);
    assert_string_equal(text, "> `sudo thinwire --config bible peers` names it; `sudo thinwire "
                              "--config bible\n  leave` there\n");
}

FACT(working_node_behind_nat_has_one_quiet_line) {
    view.net.reach_state = TW_REACHABILITY_NO;
    view.net.mapping_state = "no_router";
    (void)snprintf(view.net.reach_text, sizeof(view.net.reach_text), "No peer can dial this node");
    (void)snprintf(view.net.mapping_text, sizeof(view.net.mapping_text), "No router answers");
    draw(screen_status, tw_view_json_status(&view), UTF8, 80);
    assert_non_null(strstr(drawn, "            others cannot dial this node, so it dials them "
                                  "(`thinwire doctor`)\n"));
    assert_null(strstr(drawn, "No peer can dial"));
    assert_null(strstr(drawn, "No router"));
    view.sync.alive = 0; /* now a person may want to open the port */
    draw(screen_status, tw_view_json_status(&view), UTF8, 80);
    assert_non_null(strstr(drawn, "No peer can dial"));
    assert_non_null(strstr(drawn, "No router"));
}

static void expects_word(const char *word, bool wanted) {
    draw(screen_status, tw_view_json_status(&view), UTF8, 160);
    if ((strstr(drawn, word) != NULL) != wanted) fail_msg("'%s': %s", word, drawn);
}

FACT(certificates_that_end_are_spoken_of_in_time) {
    view.admission.is_late = true; /* A run with a secret needs no certificates. */
    expects_word("certificate", false);
    view.admission.has_owner = true;
    view.admission.left_s = 13 * 86400;
    view.admission.is_late = false;
    expects_word("certificate", false);
    view.admission.is_late = true;
    expects_word("The certificate of this node ends in 13 d", true);
    expects_word("thinwire owner sign", true);
    view.admission.is_renewed = true; /* other nodes should have renewed the certificate */
    expects_word("link to a node that may admit", true);
    (void)snprintf(view.admission.error, sizeof(view.admission.error), "node 1b is on a list");
    expects_word("No other node admits this one: node 1b is on a list", true);
}

FACT(a_node_without_a_vote_says_so) {
    expects_word("vote", false); /* everybody votes */
    view.admission.has_owner = view.admission.has_vote = true;
    view.sync.voters_alive = 3;
    expects_word("vote", false);
    view.sync.voters = 3;
    expects_word("roster of 4, 3 vote", true);
    expects_word("does not vote", false);
    view.peers[1].is_voter = false; /* node 5e5e5e5e */
    draw(screen_peers, tw_view_json_peers(&view), UTF8, 160);
    assert_true(strstr(drawn, "does not vote") > strstr(drawn, "5e5e5e5e"));
    assert_true(strstr(drawn, "does not vote") < strstr(drawn, "c4c4c4c4"));
    view.admission.has_vote = false;
    expects_word("this node trains, but does not vote\n", true);
    expects_word("no voter is linked", false);
    view.sync.voters_alive = 0;
    expects_word("does not vote, and no voter is linked: nothing is merged until one is", true);
    view.sync.voters = 1;
    expects_word("roster of 4, 1 votes", true);
    view.sync.topology = TW_TOPOLOGY_PAIR; /* nobody votes */
    expects_word("vote", false);
}

FACT(a_newcomer_says_when_it_votes) {
    view.sync.voters = 3;
    view.sync.vote_merges = 64;
    expects_word("this node votes once about 64 more rounds have merged its work\n", true);
    view.sync.vote_merges = 1;
    expects_word("once about 1 more round has merged its work", true);
}

FACT(a_fresh_node_shows_no_numbers_it_does_not_have) {
    tw_status_view_init(&view);
    (void)snprintf(view.node.name, sizeof(view.node.name), "attic");
    (void)snprintf(view.run.name, sizeof(view.run.name), "bible");
    view.node.links = true;
    view.worker.state = TW_VIEW_WORKER_STARTING;
    draw(screen_status, tw_view_json_status(&view), UTF8, 80);
    assert_null(strstr(drawn, "nan"));
    compare("status_fresh.txt");
}

FACT(a_node_without_data_names_the_data_it_waits_for) {
    view.worker.state = TW_VIEW_WORKER_WAITING;
    view.worker.pid = view.worker.restarts = 0;
    view.data.state = TW_VIEW_DATA_WAITING;
    view.data.files_whole = 1;
    view.data.chunks_refused = view.data.out_bytes = view.data.donors = 0;
    (void)snprintf(view.data.text, sizeof(view.data.text),
                   "3 of 64 chunks of the first shard, 2 peers may have it");
    (void)snprintf(view.data.error, sizeof(view.data.error), "/data: No space left on device");
    draw(screen_status, tw_view_json_status(&view), UTF8, 80);
    compare("status_waiting.txt");
}

FACT(data_that_stopped_coming_show_no_rate) {
    (void)snprintf(view.data.text, sizeof(view.data.text), "nothing comes: no peer is linked");
    view.data.in_bytes_per_s = 0;
    view.data.eta_us = TW_VIEW_NEVER;
    draw(screen_status, tw_view_json_status(&view), UTF8, 80);
    assert_non_null(strstr(drawn, "nothing comes: no peer is linked"));
    assert_null(strstr(drawn, "from 3 peers"));
}

FACT(a_peer_that_left_is_not_counted_as_mixed_in) {
    view.sync.mixed = 2;
    view.sync.alive = 1;
    draw(screen_status, tw_view_json_status(&view), UTF8, 80);
    assert_non_null(strstr(drawn, "together with 1 other\n"));
    view.node.state = TW_STATE_RECEIVER;
    view.sync.alive = 0;
    draw(screen_status, tw_view_json_status(&view), UTF8, 80);
    assert_non_null(strstr(drawn, "alone; no peer is reachable"));
    assert_null(strstr(drawn, "fetches the state"));
}

FACT(incomplete_or_unusable_datasets_are_shown) {
    view.data.state = TW_VIEW_DATA_PARTIAL;
    draw(screen_status, tw_view_json_status(&view), UTF8, 120);
    assert_non_null(strstr(drawn, "lacks 54 of the dataset's 66 files"));
    view.data.state = TW_VIEW_DATA_UNUSABLE;
    (void)snprintf(view.data.error, sizeof(view.data.error), "it holds nothing to train on");
    draw(screen_status, tw_view_json_status(&view), UTF8, 120);
    assert_non_null(strstr(drawn, "The run's dataset cannot be used: it holds nothing"));
    assert_null(strstr(drawn, "cannot be stored"));
}

FACT(text_of_its_own_is_shown_with_its_share) {
    view.data.state = TW_VIEW_DATA_TEXT;
    draw(screen_status, tw_view_json_status(&view), UTF8, 80);
    assert_null(strstr(drawn, "  Data "));
    view.data.is_any = true;
    draw(screen_status, tw_view_json_status(&view), UTF8, 80);
    assert_non_null(strstr(drawn, "  Data      text of its own · 25.2 % of the run's tokens"));
}

FACT(lists_look_as_they_should) {
    draw(screen_peers, tw_view_json_peers(&view), UTF8, 80);
    compare("peers.txt");
    draw(screen_rounds, tw_view_json_rounds(&view), UTF8, 80);
    compare("rounds.txt");
    view.rounds_count = 0;
    draw(screen_rounds, tw_view_json_rounds(&view), UTF8, 80);
    assert_string_equal(drawn, "No rounds yet; `thinwire status` shows whether peers are alive.\n");
    draw(screen_events, tw_view_json_events(&view), UTF8, 80);
    for (char *line = drawn; *line != '\0'; line = strchr(line, '\n') + 1)
        for (unsigned i = 0; i < strlen("01-31 12:00:00"); i++)
            if (isdigit((unsigned char)line[i])) line[i] = '0'; /* the time of the test */
    compare("events.txt");
}

FACT(absent_peers_tell_since_when) {
    static const struct {
        enum tw_view_link link;
        uint64_t absent_us;
        const char *name, *said, *text;
    } cases[] = {
        {TW_VIEW_LINK_LEFT, 180000000, "barn", "", "left 3 min ago"},
        {TW_VIEW_LINK_PAUSED, 7200000000, "a-longer-name-of-a-node", "its training is paused",
         "paused 2 h 0 min ago: its training is paused"},
        {TW_VIEW_LINK_AWAY, 90000000, "", "", "not heard for 90 s"},
        {TW_VIEW_LINK_GONE, 259200000000, "shed", "", "not heard for 3 d 0 h"},
    };
    for (uint32_t i = 0; i < 4; i++) {
        struct tw_view_peer *const peer = &view.peers[i];
        memset(peer, 0, sizeof(*peer));
        memset(&peer->id, (int)(0x11 * (i + 1)), sizeof(peer->id));
        peer->link = cases[i].link;
        peer->absent_us = cases[i].absent_us;
        peer->rtt_us = peer->heard_us = peer->last_mixed_round = TW_VIEW_NEVER;
        (void)snprintf(peer->name, sizeof(peer->name), "%s", cases[i].name);
        (void)snprintf(peer->said, sizeof(peer->said), "%s", cases[i].said);
    }
    draw(screen_peers, tw_view_json_peers(&view), UTF8, 80);
    assert_non_null(strstr(drawn, ", 1 left, 1 paused, 1 away, 1 gone\n"));
    for (uint32_t i = 0; i < 4; i++) assert_non_null(strstr(drawn, cases[i].text));
    assert_non_null(strstr(drawn, "a-longer-name-o")); /* cut to its column */
    assert_null(strstr(drawn, "a-longer-name-of"));
}

FACT(versions_look_as_they_should) {
    view.peers[0].rounds--;
    memset(&view.peers[0].tip, 0x41, sizeof(view.peers[0].tip));
    memset(&view.peers[2].lineage, 0xed, sizeof(view.peers[2].lineage));
    memset(&view.peers[3].id, 0x2f, sizeof(view.peers[3].id));
    view.peers[3].is_member = true;
    draw(screen_versions, tw_view_json_versions(&view), UTF8, 80);
    compare("versions.txt");
    view.sync.topology = TW_TOPOLOGY_PAIR;
    view.checkpoint.step = TW_VIEW_NEVER;
    view.peers_count = 0;
    draw(screen_versions, tw_view_json_versions(&view), UTF8, 80);
    assert_non_null(strstr(drawn, "each node has a model of its own"));
    assert_non_null(strstr(drawn, "no checkpoint with a round yet"));
    assert_null(strstr(drawn, "not heard"));
}

FACT(ledger_looks_as_it_should) {
    static struct tw_ledger ledger;
    draw(screen_ledger, tw_ledger_json(&ledger, &view.node.id), UTF8, 80);
    assert_string_equal(drawn, "No round of a group was seen here yet.\n");
    ledger = (struct tw_ledger){.first_round = 12,
                                .rounds = 3400,
                                .unseen = 41,
                                .base = {{0xbe, 0xef}},
                                .base_round = 3452,
                                .others = {.tokens = 90000, .rounds = 8, .last_round = 300},
                                .rows_count = 2,
                                .rows = {{.id = {{0xab}}, .parts = 7, .merged_bytes = 12000},
                                         {.id = view.node.id,
                                          .tokens = 1234567,
                                          .rounds = 3300,
                                          .parts = 3100,
                                          .merged_bytes = 52000000,
                                          .last_round = 3452}}};
    draw(screen_ledger, tw_ledger_json(&ledger, &view.node.id), UTF8, 80);
    compare("ledger.txt");
}

FACT(no_line_is_wider_than_the_terminal) {
    memset(view.events[0].text, 'x', sizeof(view.events[0].text) - 1);
    memset(view.worker.device, 'd', sizeof(view.worker.device) - 1);
    for (unsigned width = 60; width <= 120; width += 20) {
        draw(screen_status, tw_view_json_status(&view), UTF8, width);
        assert_in_range(widest(), 1, width);
        draw(screen_status, tw_view_json_status(&view), ASCII, width);
        assert_in_range(widest(), 1, width);
        draw(screen_peers, tw_view_json_peers(&view), ASCII, width);
        assert_in_range(widest(), 1, width);
    }
}

/* Bytes from a peer or a log line must not control the operator's terminal. */
FACT(escape_bytes_of_strangers_are_not_printed) {
    (void)snprintf(view.events[0].text, sizeof(view.events[0].text), "\033]0;owned\007\033[2J");
    (void)snprintf(view.node.name, sizeof(view.node.name), "a\033[31mb");
    draw(screen_status, tw_view_json_status(&view), ASCII, 80);
    assert_null(strchr(drawn, '\033'));
    assert_null(strchr(drawn, '\007'));
}

FACT(colour_changes_nothing_but_colour) {
    static char plain[sizeof(drawn)], stripped[sizeof(drawn)];
    draw(screen_status, tw_view_json_status(&view), UTF8, 80);
    memcpy(plain, drawn, sizeof(drawn));
    draw(screen_status, tw_view_json_status(&view), COLOUR, 80);
    size_t used = 0;
    for (const char *c = drawn; *c != 0; c++) {
        if (*c == '\033') {
            while (*c != 'm') c++;
        } else {
            stripped[used++] = *c;
        }
    }
    assert_string_equal(stripped, plain);
    assert_string_not_equal(drawn, plain);
}

/* The screen of a run in pairs shows the partner or its absence, but no roster, vote or missed
 * round. */
FACT(a_run_in_pairs_has_partners_and_no_roster) {
    view.node.state = TW_STATE_SOLO;
    view.sync.topology = TW_TOPOLOGY_PAIR;
    view.sync.roster_count = view.sync.voters = 1;
    view.sync.mixed = 2;
    view.sync.pairs_merged = 1100;
    view.sync.pairs_alone = 87;
    view.sync.pairs_one_sided = 3;
    view.sync.partner = view.rounds[0].partner = view.peers[1].id;
    view.sync.partner_age_us = 2000000;
    view.sync.partner_distance = 0.0312f;
    for (uint32_t i = 0; i < view.peers_count; i++) view.peers[i].same_lineage = false;
    draw(screen_status, tw_view_json_status(&view), UTF8, 80);
    assert_null(strstr(drawn, "roster"));
    assert_null(strstr(drawn, "missed"));
    compare("status_pair.txt");
    draw(screen_peers, tw_view_json_peers(&view), UTF8, 80);
    compare("peers_pair.txt");
    draw(screen_rounds, tw_view_json_rounds(&view), UTF8, 80);
    compare("rounds_pair.txt");
}

FACT(a_gpu_shows_the_values_of_its_driver) {
    (void)snprintf(view.worker.engine, sizeof(view.worker.engine),
                   "cuda:0, NVIDIA H100 80GB HBM3, bf16, cuBLASLt");
    view.worker.gpu = (struct tw_view_gpu){.is_seen = true,
                                           .temperature_c = 61,
                                           .load_percent = 97,
                                           .power_w = 412.5,
                                           .power_max_w = 700,
                                           .memory_used_bytes = 10737418240,
                                           .memory_bytes = 85899345920};
    draw(screen_status, tw_view_json_status(&view), UTF8, 100);
    assert_non_null(strstr(drawn, "running on cuda:0, NVIDIA H100 80GB HBM3, bf16, cuBLASLt"));
    assert_non_null(strstr(drawn, " GPU 97 % busy · 61 °C · 412 of 700 W · 10.7 GB of 85.9 GB\n"));
    view.worker.gpu.temperature_c = 0;
    view.worker.gpu.power_max_w = 0;
    view.worker.gpu.memory_used_bytes = 0;
    draw(screen_status, tw_view_json_status(&view), ASCII, 100);
    assert_non_null(strstr(drawn, " GPU 97 % busy, 412 W\n"));
    view.worker.gpu.is_seen = false; /* the worker hangs, so its values are stale */
    draw(screen_status, tw_view_json_status(&view), UTF8, 100);
    assert_null(strstr(drawn, "GPU"));
}

FACT(a_pause_shows_its_reasons) {
    view.worker.state = TW_VIEW_WORKER_PAUSED;
    view.pause = (struct tw_view_pause){.is_by_owner = true,
                                        .is_by_hours = true,
                                        .yield_percent = 20,
                                        .others_cpu = 0.61,
                                        .quiet_us = 30000000,
                                        .until_min = 18 * 60,
                                        .age_us = 5000000};
    json_t *const status = tw_view_json_status(&view);
    assert_non_null(status);
    const json_t *const pause = json_object_get(json_object_get(status, "worker"), "pause");
    assert_int_equal(json_array_size(json_object_get(pause, "by")), 2);
    assert_string_equal(json_string_value(json_object_get(pause, "hours_until")), "18:00");
    assert_true(json_real_value(json_object_get(pause, "quiet_s")) == 30);
    assert_true(json_is_false(json_object_get(pause, "memory_given_back")));
    draw(screen_status, status, UTF8, 100);
    assert_non_null(strstr(drawn, "is paused: the owner uses the computer (61 % of the CPU)"));
    assert_non_null(strstr(drawn, " paused by owner and hours on cpu"));
    view.pause.is_memory_back = true;
    draw(screen_status, tw_view_json_status(&view), UTF8, 100);
    assert_non_null(strstr(drawn, " paused by owner and hours · memory given back on cpu"));
    view.pause.is_by_owner = view.pause.is_by_hours = false;
    json_t *const none = tw_view_json_status(&view);
    assert_true(json_is_null(json_object_get(json_object_get(none, "worker"), "pause")));
    json_decref(none);
}

FACT(a_run_of_each_for_itself_talks_of_no_merges) {
    view.node.state = TW_STATE_SOLO;
    view.node.uptime_us = UINT64_C(7200000000);
    view.sync.topology = TW_TOPOLOGY_SOLO;
    view.sync.roster_count = view.sync.voters = 1;
    view.sync.mixed = 0;
    draw(screen_status, tw_view_json_status(&view), UTF8, 80);
    assert_null(strstr(drawn, "roster"));
    assert_null(strstr(drawn, "mixed"));
    assert_null(strstr(drawn, "!"));
    compare("status_solo.txt");
    draw(screen_peers, tw_view_json_peers(&view), UTF8, 80);
    assert_null(strstr(drawn, "lately"));
    view.sync.alive = 0;
    draw(screen_status, tw_view_json_status(&view), UTF8, 80);
    assert_non_null(strstr(drawn, "attic trains bible on its own, as the run says\n"));
}

/* A wrong secret is reported at once, not after half a minute; the reason is never cut. */
FACT(refusal_is_shown_at_once_and_in_full) {
    view.node.uptime_us = 2000000;
    view.peers[0].link = TW_VIEW_LINK_REFUSED;
    (void)snprintf(view.peers[0].error, sizeof(view.peers[0].error),
                   "10.0.0.9:4747: wrong run secret (these two nodes hold different files); the "
                   "remedy comes at the very end of a sentence longer than a lifeline");
    draw(screen_status, tw_view_json_status(&view), ASCII, 80);
    assert_non_null(strstr(drawn, "10.0.0.9:4747: wrong run secret"));
    draw(screen_peers, tw_view_json_peers(&view), ASCII, 80);
    assert_non_null(strstr(drawn, "lifeline"));
    assert_in_range(widest(), 1, 80);
}

FACT(one_peer_is_spoken_of_as_one) {
    view.sync.alive = view.sync.mixed = 0;
    view.net.bootstrap_count = 1;
    draw(screen_status, tw_view_json_status(&view), ASCII, 80);
    assert_non_null(strstr(drawn, "The configured peer is not reachable; this node trains alone"));
    view.sync.alive = 1;
    draw(screen_status, tw_view_json_status(&view), ASCII, 80);
    assert_non_null(strstr(drawn, "1 peer is alive, but its work was not merged here lately"));
    view.sync.alive = 2;
    draw(screen_status, tw_view_json_status(&view), ASCII, 80);
    assert_non_null(
        strstr(drawn, "2 peers are alive, but none of their work was merged here lately"));
}

FACT(full_disk_is_said_where_it_hurts_others) {
    (void)snprintf(view.checkpoint.vote_error, sizeof(view.checkpoint.vote_error),
                   "cannot reserve room for vote.a: No space left on device");
    draw(screen_status, tw_view_json_status(&view), ASCII, 80);
    assert_non_null(strstr(drawn, "! This node cannot save its votes: cannot reserve"));
    assert_non_null(strstr(drawn, "free some space"));
}

FACT(rounds_skipped_for_the_budget_are_shown) {
    draw(screen_status, tw_view_json_status(&view), ASCII, 80);
    assert_non_null(strstr(drawn, "1.31 bits per parameter, ecsq2 62 %, topk64 38 %"));
    assert_non_null(strstr(drawn, "101 kB/s used of 125 kB/s upload, 2 rounds left out"));
    json_t *const even = tw_view_json_status(&view);
    json_t *const shares = json_object_get(json_object_get(even, "contributions"), "rung_shares");
    assert_int_equal(json_object_set_new(shares, "ecsq2", json_real(0.5)), 0);
    assert_int_equal(json_object_set_new(shares, "topk64", json_real(0.5)), 0);
    draw(screen_status, even, ASCII, 80); /* neither of two equal shares is dropped */
    assert_true(strstr(drawn, "ecsq2 50 %") != NULL && strstr(drawn, "topk64 50 %") != NULL);
    view.spend.is_left_out = true;
    draw(screen_status, tw_view_json_status(&view), ASCII, 80);
    assert_non_null(strstr(drawn, "! This round is left out to keep to the budget, like 2 so far"));
    view.spend.is_hopeless = true;
    draw(screen_status, tw_view_json_status(&view), ASCII, 80);
    assert_non_null(strstr(drawn, "! A member without contributions moves 40 kB/s"));
    assert_non_null(strstr(drawn, "raise network.budget"));
    assert_in_range(widest(), 1, 80);
}

/* While rounds stand still, as in a cut of the line, the run clock does so too. */
FACT(work_since_the_last_round_is_told) {
    draw(screen_status, tw_view_json_status(&view), ASCII, 80);
    assert_null(strstr(drawn, "to be merged"));
    assert_non_null(strstr(drawn, "1,180 with this node"));
    view.run.unmerged_tokens = 640000;
    view.sync.rounds_given = 5180; /* the daemon was started anew */
    draw(screen_status, tw_view_json_status(&view), ASCII, 80);
    assert_non_null(
        strstr(drawn, " and 640k tokens of this node, to be merged with the next round\n"));
    assert_non_null(strstr(drawn, "5,180 with this node"));
    assert_in_range(widest(), 1, 80);
}

FACT(group_without_a_seat_is_reported) {
    view.sync.members_max = 16;
    draw(screen_status, tw_view_json_status(&view), ASCII, 80);
    assert_null(strstr(drawn, "The group is full"));
    view.sync.is_shut_out = true;
    draw(screen_status, tw_view_json_status(&view), ASCII, 80);
    assert_non_null(strstr(drawn, "! The group is full: 16 members"));
    assert_non_null(strstr(drawn, "larger sync.members"));
    assert_in_range(widest(), 1, 80);
}

TEST(numbers_have_one_unit_and_three_digits) {
    char text[TW_UNITS_BYTES];
    assert_string_equal(tw_units_count(text, 0), "0");
    assert_string_equal(tw_units_count(text, 999), "999");
    assert_string_equal(tw_units_count(text, 1234567), "1,234,567");
    assert_string_equal(tw_units_count(text, -1234), "-1,234");
    assert_string_equal(tw_units_short(text, 48758784), "48.8M");
    assert_string_equal(tw_units_short(text, 999999), "1.00M");
    assert_string_equal(tw_units_bytes(text, 0), "0 B");
    assert_string_equal(tw_units_bytes(text, 101000), "101 kB");
    assert_string_equal(tw_units_bytes(text, 9999), "10.0 kB");
    assert_string_equal(tw_units_bytes(text, 75e6), "75.0 MB");
    assert_string_equal(tw_units_duration(text, 0.0412), "41 ms");
    assert_string_equal(tw_units_duration(text, 9.97), "9 s");
    assert_string_equal(tw_units_duration(text, 119), "119 s");
    assert_string_equal(tw_units_duration(text, 3720), "1 h 2 min");
    assert_string_equal(tw_units_duration(text, 100000), "1 d 3 h");
    assert_string_equal(tw_units_duration(text, -1), "-");
    assert_string_equal(tw_units_percent(text, 0.9921), "99.2 %");
}

int main(int argc, char **argv) {
    golden_folder = argc > 1 ? argv[1] : "tests/golden/cli";
    return test_run(NULL, NULL);
}
