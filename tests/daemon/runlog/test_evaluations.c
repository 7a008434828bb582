/* test_evaluations.c - when the evaluation program runs, on which checkpoint, and the values it
 * gives. */
#include "daemon/runlog/alerts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "daemon/api/status_view.h"
#include "daemon/runlog/run_log.h"
#include "tests/test.h"

enum { S = 1000000, EVERY = 10 };

static char folder[] = "/tmp/tw_evaluations_XXXXXX";
static uv_loop_t loop;
static struct tw_run_log *run_log;
static struct tw_evaluations *evaluations;
static struct tw_evaluations_now now;
static struct tw_status_view view;
static struct tw_error err;
static uint64_t now_us;
static unsigned saves, notes;
static char last_note[2048];

static void on_save(void *user) {
    saves++;
}

static void on_note(void *user, bool is_warning, const char *name, const char *text) {
    notes++;
    (void)snprintf(last_note, sizeof(last_note), "%s%s %s", is_warning ? "! " : "", name, text);
}

static void fill_moment(void *user, struct tw_run_moment *moment) {
    static const struct tw_id ID = {{1}};
    moment->node = moment->run = &ID;
    moment->node_name = "attic";
    moment->run_name = "bible";
}

static void open_with(const char *command) {
    const struct tw_run_log_config log = {.loop = &loop, .moment = fill_moment};
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(tw_run_log_open(&run_log, &log, &err), TW_OK);
    const struct tw_evaluations_config config = {.loop = &loop,
                                                 .log = run_log,
                                                 .command = command,
                                                 .rounds = EVERY,
                                                 .timeout_us = 20 * S,
                                                 .folder = folder,
                                                 .config_path = "a.conf",
                                                 .manifest_path = "a.manifest",
                                                 .data_path = "a.txt",
                                                 .save = on_save,
                                                 .note = on_note};
    assert_int_equal(tw_evaluations_open(&evaluations, &config, &err), TW_OK);
    memset(&now, 0, sizeof(now));
    saves = notes = 0;
    now_us = S;
}

static void close_all(void) {
    tw_evaluations_close(evaluations);
    tw_run_log_close(run_log, 0);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    tw_evaluations_free(evaluations);
    tw_run_log_free(run_log);
}

/* Advances the clock by a second, to a state of `rounds` rounds. */
static void tick(uint64_t rounds) {
    now.rounds = rounds;
    now_us += S;
    tw_evaluations_tick(evaluations, &now, now_us);
}

static void save(uint64_t rounds) {
    now.newest.is_whole = true;
    now.newest.rounds = rounds;
    now.newest.step = 100 * rounds;
}

/* Returns true while the evaluation program runs. */
static bool is_running(void) {
    tw_status_view_init(&view);
    tw_evaluations_fill(evaluations, now_us, &view);
    return view.scores.is_running;
}

static void wait_end(void) {
    assert_true(is_running());
    while (is_running()) (void)uv_run(&loop, UV_RUN_ONCE);
}

static int begin(void **state) {
    FILE *const file = fopen("ckpt.a.safetensors", "w");
    if (file == NULL || fputs("value 4.5\n", file) < 0) return -1;
    return fclose(file);
}

#define FACT(name) TEST_IN(begin, NULL, name)

FACT(nothing_runs_without_a_command) {
    open_with("");
    save(30);
    for (uint64_t i = 0; i < 30; i++) tick(i);
    assert_int_equal(saves, 0);
    assert_false(is_running());
    assert_int_equal(view.scores.every_rounds, 0);
    close_all();
}

FACT(every_multiple_asks_for_a_checkpoint_and_runs_once) {
    open_with("cat \"$THINWIRE_CHECKPOINT\" && echo rounds $THINWIRE_ROUNDS && echo step "
              "$THINWIRE_STEP && test \"$THINWIRE_MANIFEST $THINWIRE_DATA\" = 'a.manifest a.txt'");
    save(7);
    tick(17); /* the first round seen lies between two multiples */
    tick(19);
    assert_int_equal(saves, 0);
    tick(20);
    assert_int_equal(saves, 1);
    now.is_saving = true;
    tick(20);
    assert_int_equal(saves, 1);
    now.is_saving = false;
    save(21);
    tick(21);
    wait_end();
    assert_int_equal(view.scores.rounds, 21);
    assert_int_equal(view.scores.step, 2100);
    assert_int_equal(view.scores.scores.count, 3);
    /* read from the checkpoint file */
    assert_float_equal(view.scores.scores.rows[0].value, 4.5, 0);
    assert_float_equal(view.scores.scores.rows[1].value, 21, 0);
    assert_float_equal(view.scores.scores.rows[2].value, 2100, 0);
    assert_int_equal(access(TW_EVALUATIONS_FILE, F_OK), -1);
    assert_non_null(strstr(last_note, "scored rounds=21 step=2100 "));
    for (uint64_t i = 22; i < 30; i++) tick(i);
    assert_int_equal(saves, 1);
    tick(30);
    assert_int_equal(saves, 2);
    close_all();
}

FACT(a_replaced_checkpoint_is_still_the_programs) {
    open_with("while [ ! -e go ]; do sleep 0.02; done; cat \"$THINWIRE_CHECKPOINT\"");
    tick(9);
    save(10);
    tick(10);
    assert_true(is_running());
    FILE *const file = fopen("new", "w");
    assert_non_null(file);
    assert_true(fputs("other 9\n", file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(rename("new", "ckpt.a.safetensors"), 0);
    save(20);
    tick(20); /* one at a time */
    assert_int_equal(saves, 0);
    assert_int_equal(system("touch go"), 0);
    wait_end();
    assert_string_equal(view.scores.scores.rows[0].name, "value");
    /* A multiple passed while the program ran: it is evaluated now, with the newest checkpoint. */
    tick(21);
    wait_end();
    assert_string_equal(view.scores.scores.rows[0].name, "other");
    close_all();
}

FACT(a_checkpoint_that_lacks_a_fragment_is_not_asked_for_at_once_again) {
    open_with("echo a 1");
    tick(9);
    tick(10);
    assert_int_equal(saves, 1);
    save(10);
    now.newest.is_whole = false;
    for (unsigned i = 0; i < 59; i++) tick(10);
    assert_int_equal(saves, 1);
    for (unsigned i = 0; i < 3; i++) tick(10);
    assert_int_equal(saves, 2);
    close_all();
}

FACT(a_lineage_with_fewer_rounds_begins_anew) {
    open_with("echo a 1");
    tick(55);
    tick(12);
    tick(19);
    assert_int_equal(saves, 0);
    tick(20);
    assert_int_equal(saves, 1);
    close_all();
}

FACT(closing_ends_the_program_and_its_file) {
    open_with("sleep 1000");
    tick(9);
    save(10);
    tick(10);
    assert_true(is_running());
    assert_int_equal(access(TW_EVALUATIONS_FILE, F_OK), 0);
    close_all();
    assert_int_equal(access(TW_EVALUATIONS_FILE, F_OK), -1);
    assert_int_equal(notes, 0);
}

int main(void) {
    char command[64];
    if (mkdtemp(folder) == NULL || chdir(folder) != 0) return 2;
    const int failures = test_run(NULL, NULL);
    (void)snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command) == 0 ? failures : 2;
}
