/* Tests of daemon/pause/pauses.c: pauses as the node sees them, and the sentences about them. */
#include "daemon/pause/pauses.h"

#include <math.h>
#include <time.h>

#include "daemon/api/view_sentence.h"
#include "tests/test.h"

#define S UINT64_C(1000000)

static struct tw_config config;
static struct tw_pauses pauses;
static uint64_t now_us;
static uint32_t minute;

static bool is_paused, can_rest;
static unsigned rests, notes;
static char last[400]; /* the last event */

static uint32_t on_minute(void) {
    return minute;
}

static pid_t on_worker(void *user) {
    return 0;
}

static double gpu_others;

static double on_gpu(void *user) {
    return gpu_others;
}

static void on_pause(void *user, bool is_on) {
    assert_int_not_equal(is_on, is_paused); /* told once */
    is_paused = is_on;
}

static bool on_rest(void *user) {
    rests++;
    return can_rest;
}

static void on_note(void *user, bool is_warning, const char *name, const char *pairs) {
    notes++;
    (void)snprintf(last, sizeof(last), "%s%s %s", is_warning ? "warning " : "", name, pairs);
}

static int begin(void **state) {
    const struct tw_pauses_config wanted = {.config = &config,
                                            .minute_of_day = on_minute,
                                            .worker = on_worker,
                                            .gpu_others = on_gpu,
                                            .pause = on_pause,
                                            .rest = on_rest,
                                            .note = on_note};
    tw_config_defaults(&config, "test");
    is_paused = false;
    gpu_others = (double)NAN;
    can_rest = true;
    rests = notes = 0;
    last[0] = '\0';
    now_us = 1000 * S;
    minute = 12 * 60;
    tw_pauses_init(&pauses, &wanted);
    return 0;
}

#define FACT(name) TEST_IN(begin, NULL, name)

static void hours(const char *text) {
    assert_int_equal(tw_hours_parse_off(text, &config.manners.hours, NULL), TW_OK);
    tw_pauses_apply(&pauses, now_us);
}

static void user_pauses(bool is_on, const char *wanted) {
    struct tw_error answer = {0};
    tw_pauses_user(&pauses, is_on, now_us, &answer);
    assert_string_equal(answer.message, wanted);
}

static void ticks(double seconds) {
    for (double s = 0; s < seconds; s += 0.25) {
        now_us += S / 4;
        tw_pauses_tick(&pauses, now_us);
    }
}

static void assert_text(const char *wanted) {
    char text[TW_VIEW_TEXT_BYTES];
    const struct tw_view_pause view = tw_pauses_view(&pauses, now_us);
    tw_view_pause_text(&view, text);
    assert_string_equal(text, wanted);
}

FACT(without_keys_nothing_pauses) {
    tw_pauses_apply(&pauses, now_us);
    ticks(300);
    assert_false(is_paused);
    assert_int_equal(notes, 0);
    assert_int_equal(rests, 0);
    assert_true(isnan(tw_pauses_view(&pauses, now_us).others_cpu));
}

FACT(hours_pause_and_end_by_the_clock) {
    hours("13:00-18:00 off");
    ticks(10);
    assert_false(is_paused);
    minute = 13 * 60;
    ticks(1.25);
    assert_true(is_paused);
    assert_string_equal(
        last, "paused by=hours text=\"paused: worker.hours forbids training until 18:00\"");
    minute = 18 * 60;
    ticks(1.25);
    assert_false(is_paused);
    assert_string_equal(last, "resumed by=hours");
    assert_int_equal(notes, 2);
    hours("0-24 off");
    assert_true(is_paused);
    assert_text("paused: worker.hours forbids training at all hours");
    hours(""); /* reloaded */
    assert_false(is_paused);
}

FACT(resume_says_what_still_holds_training) {
    user_pauses(true, "training is paused");
    assert_string_equal(last, "paused by=user");
    assert_text("paused; `thinwire resume` continues");
    hours("12-14 off");
    assert_text("paused: worker.hours forbids training until 14:00; `thinwire resume` is awaited");
    user_pauses(false, "training is still paused: worker.hours forbids training until 14:00");
    assert_string_equal(
        last, "still_paused ended=user text=\"paused: worker.hours forbids training until 14:00\"");
    assert_true(is_paused);
    minute = 14 * 60;
    ticks(1.25);
    assert_false(is_paused);
    user_pauses(false, "training goes on");
}

FACT(end_of_the_hours_does_not_undo_the_user) {
    hours("12-14 off");
    user_pauses(true, "training is paused");
    minute = 14 * 60;
    ticks(1.25);
    assert_true(is_paused);
    assert_string_equal(last,
                        "still_paused ended=hours text=\"paused; `thinwire resume` continues\"");
    user_pauses(false, "training goes on");
    assert_string_equal(last, "resumed by=user");
    assert_false(is_paused);
}

FACT(memory_is_given_back_once_in_each_pause) {
    can_rest = false; /* for example, a merge is under way */
    user_pauses(true, "training is paused");
    ticks(119);
    assert_int_equal(rests, 0);
    ticks(2);
    assert_true(rests > 1);
    can_rest = true;
    rests = 0;
    ticks(600);
    assert_int_equal(rests, 1);
    user_pauses(false, "training goes on");
    ticks(600);
    user_pauses(true, "training is paused");
    ticks(121);
    assert_int_equal(rests, 2);
}

FACT(owner_is_named_with_the_share) {
    char text[TW_VIEW_TEXT_BYTES];
    struct tw_view_pause view = {
        .is_by_owner = true, .quiet_us = 29400 * 1000, .others_cpu = 0.611, .until_min = 18 * 60};
    tw_view_pause_text(&view, text);
    assert_string_equal(text,
                        "paused: the owner uses the computer (61 % of the CPU); goes on after "
                        "30 s of quiet");
    view.is_gpu = true;
    view.others_gpu = 0.93;
    tw_view_pause_text(&view, text);
    assert_non_null(strstr(text, "the owner uses the computer (93 % of the GPU); goes on after"));
    view.is_gpu = false;
    view.is_memory_back = true;
    view.others_cpu = (double)NAN;
    tw_view_pause_text(&view, text);
    assert_string_equal(text, "paused: the owner uses the computer; goes on after 30 s of quiet; "
                              "its memory is given back");
    const struct tw_view_pause of_run = {.is_by_run = true};
    tw_view_pause_text(&of_run, text);
    assert_string_equal(
        text, "paused: the owner of the run paused all its nodes, until thinwire resume --run");
    view.is_by_hours = view.is_by_user = true;
    tw_view_pause_text(&view, text);
    assert_string_equal(
        text, "paused: the owner uses the computer; goes on after 30 s of quiet; "
              "worker.hours forbids training until 18:00; `thinwire resume` is awaited; its "
              "memory is given back");
}

/* Uses real CPU samples of this machine: they must be a share, and turning yield off discards
 * them. */
FACT(load_is_measured_only_while_yield_is_on) {
    config.manners.yield_percent = 99;
    tw_pauses_apply(&pauses, now_us);
    for (unsigned i = 0; i < 200 && isnan(tw_pauses_view(&pauses, now_us).others_cpu); i++) {
        (void)nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        ticks(0.5);
    }
    const double others = tw_pauses_view(&pauses, now_us).others_cpu;
    assert_true(others >= 0 && others <= 1);
    config.manners.yield_percent = 0;
    tw_pauses_apply(&pauses, now_us);
    assert_true(isnan(tw_pauses_view(&pauses, now_us).others_cpu));
}
