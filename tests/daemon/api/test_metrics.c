/* Tests of daemon/api/metrics.c, which writes the metrics text that a scraper reads. */
#include <math.h>

#include "daemon/api/metrics.h"
#include "daemon/api/view_json.h"
#include "tests/test.h"
#include "view_sample.h"

static struct tw_status_view view;
static char text[128 * 1024];

static void encode(void) {
    assert_true(tw_metrics_encode(&view, text, sizeof(text)) < sizeof(text));
}

static int start(void **state) {
    tw_status_view_init(&view);
    view_sample(&view);
    return 0;
}

#define FACT(name) TEST_IN(start, NULL, name)

FACT(values_are_in_base_units) {
    encode();
    assert_non_null(strstr(text, "\nthinwire_train_steps_total 12000\n"));
    assert_non_null(strstr(text, "\nthinwire_audits_total 9\n"));
    assert_non_null(strstr(text, "\nthinwire_contributions_refused_total 5\n"));
    assert_non_null(strstr(text, "\nthinwire_loop_lag_seconds 0.0019\n"));
    assert_non_null(strstr(text, "\nthinwire_start_time_seconds 1769853416.000\n"));
    assert_non_null(strstr(text, "\nthinwire_checkpoint_timestamp_seconds 1769860610.000\n"));
    assert_non_null(strstr(text, "\nthinwire_utilisation_ratio 0.9921\n"));
    assert_non_null(strstr(
        text, "\nthinwire_network_bytes_total{direction=\"out\",plane=\"bulk\"} 72000000\n"));
    assert_non_null(strstr(text, "\nthinwire_peers_mixed 3\n"));
    assert_non_null(strstr(text, "\nthinwire_sync_state{state=\"member\"} 1\n"));
    assert_non_null(strstr(text, "\nthinwire_sync_state{state=\"solo\"} 0\n"));
    assert_non_null(strstr(text, "\nthinwire_upload_cap_bytes_per_second 625000\n"));
}

/* Messages without effect are counted by reason; the JSON leaves out reasons that did not occur. */
FACT(drops_have_their_reason) {
    encode();
    assert_non_null(strstr(text, "\nthinwire_dropped_total{reason=\"old_round\"} 4\n"));
    assert_non_null(strstr(text, "\nthinwire_dropped_total{reason=\"twice\"} 0\n"));
    json_t *const status = tw_view_json_status(&view);
    const json_t *const dropped = json_object_get(json_object_get(status, "core"), "dropped");
    assert_int_equal(json_object_size(dropped), 1);
    assert_int_equal(json_integer_value(json_object_get(dropped, "old_round")), 4);
    json_decref(status);
}

/* An alert about missing steps leaves out the nodes that take none. */
FACT(role_has_a_line) {
    encode();
    assert_non_null(strstr(text, "\nthinwire_node_role{role=\"train\"} 1\n"));
    view.node.role = TW_NODE_ROLE_FOLLOW;
    encode();
    assert_non_null(strstr(text, "\nthinwire_node_role{role=\"follow\"} 1\n"));
    assert_null(strstr(text, "role=\"train\""));
}

FACT(scores_have_their_names) {
    encode();
    assert_non_null(strstr(text, "\nthinwire_evaluation_rounds 1100\n"));
    assert_non_null(strstr(text, "\nthinwire_evaluation{name=\"loss/poems.txt\"} 1.8125\n"));
    assert_non_null(strstr(text, "\nthinwire_evaluation{name=\"accuracy\"} 0.375\n"));
    view.scores.age_us = TW_VIEW_NEVER;
    encode();
    assert_null(strstr(text, "thinwire_evaluation"));
}

FACT(every_kind_of_warning_has_a_line) {
    view.attacks_count = 2;
    view.attacks[0] = view.attacks[1] = (struct tw_attack){.kind = TW_ATTACK_FORGED, .count = 1};
    encode();
    assert_non_null(strstr(text, "\nthinwire_warnings{kind=\"attack_forged\"} 2\n"));
    assert_non_null(strstr(text, "\nthinwire_warnings{kind=\"worker_failed\"} 0\n"));
}

FACT(dataset_transfers_are_counted) {
    encode();
    assert_non_null(strstr(text, "\nthinwire_data_ready 1\n"));
    assert_non_null(strstr(text, "\nthinwire_data_files 66\n"));
    assert_non_null(strstr(text, "\nthinwire_data_local_files 12\n"));
    assert_non_null(strstr(text, "\nthinwire_data_local_bytes 195000000\n"));
    assert_non_null(
        strstr(text, "\nthinwire_data_transferred_bytes_total{direction=\"in\"} 120000000\n"));
    assert_non_null(
        strstr(text, "\nthinwire_data_transferred_bytes_total{direction=\"out\"} 34000000\n"));
    assert_non_null(strstr(text, "\nthinwire_data_chunks_refused_total 1\n"));
    assert_non_null(strstr(text, "\nthinwire_train_token_share_ratio 0.252\n"));
    view.worker.state = TW_VIEW_WORKER_WAITING;
    view.data.train_whole = 0;
    encode();
    assert_non_null(strstr(text, "\nthinwire_data_ready 0\n"));
    assert_non_null(strstr(text, "\nthinwire_worker_up 0\n"));
    view.data.state = TW_VIEW_DATA_TEXT; /* a local text file has no dataset metrics */
    encode();
    assert_null(strstr(text, "thinwire_data_"));
}

FACT(gpu_that_is_not_seen_has_no_line) {
    encode();
    assert_null(strstr(text, "thinwire_gpu_"));
    view.worker.gpu = (struct tw_view_gpu){.is_seen = true,
                                           .temperature_c = 61,
                                           .load_percent = 97,
                                           .power_w = 412.5,
                                           .memory_used_bytes = 10737418240,
                                           .memory_bytes = 85899345920};
    encode();
    assert_non_null(strstr(text, "\nthinwire_gpu_temperature_celsius 61\n"));
    assert_non_null(strstr(text, "\nthinwire_gpu_power_watts 412.5\n"));
    assert_non_null(strstr(text, "\nthinwire_gpu_memory_used_bytes 1.07374182e+10\n"));
    assert_non_null(strstr(text, "\nthinwire_gpu_load_ratio 0.97\n"));
    view.worker.gpu.power_w = 0; /* the driver does not report the power */
    encode();
    assert_null(strstr(text, "thinwire_gpu_power_watts"));
}

FACT(a_pause_has_a_line_for_each_reason) {
    encode();
    assert_non_null(strstr(text, "\nthinwire_worker_paused{reason=\"owner\"} 0\n"));
    assert_non_null(strstr(text, "\nthinwire_worker_paused{reason=\"hours\"} 0\n"));
    assert_non_null(strstr(text, "\nthinwire_worker_paused{reason=\"user\"} 0\n"));
    assert_non_null(strstr(text, "\nthinwire_worker_paused{reason=\"run\"} 0\n"));
    assert_null(strstr(text, "thinwire_others_cpu_ratio"));
    view.worker.state = TW_VIEW_WORKER_PAUSED;
    view.pause = (struct tw_view_pause){
        .is_by_hours = true, .is_memory_back = true, .yield_percent = 20, .others_cpu = 0.25};
    encode();
    assert_non_null(strstr(text, "\nthinwire_worker_paused{reason=\"owner\"} 0\n"));
    assert_non_null(strstr(text, "\nthinwire_worker_paused{reason=\"hours\"} 1\n"));
    assert_non_null(strstr(text, "\nthinwire_worker_memory_given_back 1\n"));
    assert_non_null(strstr(text, "\nthinwire_worker_up 0\n"));
    assert_non_null(strstr(text, "\nthinwire_others_cpu_ratio 0.25\n"));
    view.pause.others_cpu = (double)NAN;
    encode();
    assert_null(strstr(text, "thinwire_others_cpu_ratio"));
}

FACT(mfu_is_never_above_one) {
    /* A peak of 100 GFLOP/s, measured on a busy processor. A later inner step reaches 134
     * GFLOP/s. */
    uint64_t peak = 100000000000;
    const uint64_t flops = 67000000000, took_us = 500000;
    peak = tw_view_peak(peak, flops, took_us);
    assert_int_equal(peak, 134000000000);
    assert_true(tw_view_mfu((double)flops * 1e6 / (double)took_us, peak) <= 1);
    assert_int_equal(tw_view_peak(peak, flops, 2 * took_us),
                     peak); /* a slower step does not lower the peak */
    assert_true(fabs(tw_view_mfu(67e9, peak) - 0.5) < 1e-9);
    assert_true(tw_view_mfu(150e9, peak) <= 1); /* the speed sample counted one step too many */
    assert_int_equal(tw_view_peak(0, flops, took_us), 0);
    assert_int_equal(tw_view_peak(peak, flops, 0), peak);
    /* A worker of another program may report an absurd number of FLOPs. */
    assert_int_equal(tw_view_peak(peak, UINT64_MAX, 1), peak);
    assert_true(isnan(tw_view_mfu(67e9, 0)));
    assert_true(isnan(tw_view_mfu((double)NAN, peak)));
}

FACT(unmeasured_values_have_no_line) {
    tw_status_view_init(&view);
    encode();
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "validation_live"));
    assert_null(strstr(text, "checkpoint_timestamp"));
    assert_non_null(strstr(text, "thinwire_train_steps_total 0\n"));
}

/* Each line is a comment or `name{labels} number`, each name has one HELP and TYPE before it. */
FACT(every_line_is_well_formed) {
    encode();
    char last_type[128] = "";
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (strncmp(line, "# HELP thinwire_", 16) == 0) continue;
        if (strncmp(line, "# TYPE ", 7) == 0) {
            assert_int_equal(sscanf(line, "# TYPE %127s", last_type), 1);
            continue;
        }
        const size_t name = strcspn(line, "{ ");
        assert_int_equal(name, strlen(last_type));
        assert_memory_equal(line, last_type, name);
        char *end;
        (void)strtod(strrchr(line, ' ') + 1, &end);
        assert_int_equal(*end, 0);
    }
}

FACT(a_hostile_name_stays_inside_its_label) {
    (void)snprintf(view.node.name, sizeof(view.node.name), "a\"} 1\nthinwire_up \\ 2");
    encode();
    assert_non_null(strstr(text, "name=\"a\\\"} 1\\nthinwire_up \\\\ 2\""));
    assert_null(strstr(text, "\nthinwire_up "));
}

FACT(a_short_buffer_is_reported_and_never_overrun) {
    char small[100];
    memset(small, 'x', sizeof(small));
    assert_true(tw_metrics_encode(&view, small, 50) > 50);
    assert_int_equal(small[49], 0);
    assert_int_equal(small[50], 'x');
}

FACT(rings_keep_the_newest_and_tell_their_age) {
    static struct tw_event_ring events;
    static struct tw_round_ring rounds;
    memset(&events, 0, sizeof(events));
    memset(&rounds, 0, sizeof(rounds));
    for (unsigned i = 0; i < 100; i++) {
        const struct tw_view_round round = {.round = i, .age_us = 12345};
        tw_event_ring_add(&events, 1000 * i, 5000 * i, i % 2 == 0, "step", "n=%u", i);
        tw_round_ring_add(&rounds, 1000 * i, &round);
    }
    tw_event_ring_fill(&events, 100000, &view);
    tw_round_ring_fill(&rounds, 100000, &view);
    assert_int_equal(view.events_count, TW_VIEW_EVENTS_MAX);
    assert_string_equal(view.events[0].text, "n=99");
    assert_int_equal(view.events[0].age_us, 1000);
    assert_int_equal(view.events[0].id, 100);
    assert_int_equal(view.events[0].unix_us, 495000);
    assert_string_equal(view.events[TW_VIEW_EVENTS_MAX - 1].text, "n=36");
    assert_int_equal(view.rounds_count, TW_VIEW_ROUNDS_MAX);
    assert_int_equal(view.rounds[0].round, 99);
    assert_int_equal(view.rounds[TW_VIEW_ROUNDS_MAX - 1].age_us, 64000);
}
