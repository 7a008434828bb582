/* Tests of daemon/recorder/ and daemon/replay/: cores are recorded, and their recordings
 * replayed. */
#include "tests/test.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "daemon/recorder/recorder.h"
#include "daemon/replay/replay.h"
#include "daemon/replay/words.h"
#include "tests/sync/mesh.h"
#include "tests/sync/signing.h"

enum { NODES = 3, SECOND_US = 1000 * 1000 };

static struct mesh mesh;
static struct tw_recorder *recorders[NODES];
static char folders[NODES][64], home[48], manifest[TW_MANIFEST_BYTES_MAX + 1];
static struct tw_rate rate;
static uint64_t events; /* of node 0 */
static bool is_lying;   /* the result of the next payload check is recorded falsely */
static uint64_t lie_at; /* number of the event recorded falsely */
static struct tw_error err;

/* ---- a recorded mesh ------------------------------------------------------------------------- */

static void hears(struct mesh *of, uint32_t node, const struct tw_event *event) {
    struct tw_event told = *event;
    events += node == 0;
    if (node == 0 && is_lying && event->kind == TW_EV_VERIFIED) {
        told.ok = !told.ok;
        is_lying = false;
        lie_at = events;
    }
    tw_recorder_event(recorders[node], of->nodes[node], &told, &rate, of->now_us);
}

static void acts(struct mesh *of, uint32_t node, const struct tw_action *action) {
    tw_recorder_action(recorders[node], action);
}

static void ends(struct mesh *of, uint32_t node) {
    tw_recorder_done(recorders[node]);
}

/* Signs with the node's key, and records the signature. */
static void sign(void *key, const void *text, size_t size, uint8_t signature[TW_SIGNATURE_BYTES]) {
    const uint32_t *const node = key;
    signing_sign(&mesh.ids[*node], text, size, signature);
    tw_recorder_signed(recorders[*node], signature);
}

static void record(uint64_t bytes_max) {
    static uint32_t numbers[NODES] = {0, 1, 2};
    static const struct tw_sizes any_size;
    for (uint32_t i = 0; i < NODES; i++) {
        struct tw_recorder_about about = {.manifest = manifest, .bytes_max = bytes_max};
        const struct tw_signing signing = {
            .key = &numbers[i], .sign = sign, .is_signed = signing_is_signed};
        (void)snprintf(about.node, sizeof(about.node), "n%u", i);
        (void)snprintf(folders[i], sizeof(folders[i]), "%s/n%u", home, i);
        assert_int_equal(tw_recorder_create(&recorders[i], folders[i], &about, &err), TW_OK);
        tw_node_rebind(mesh.nodes[i], &signing, &any_size, NULL);
    }
    mesh.tap.hears = hears;
    mesh.tap.acts = acts;
    mesh.tap.ends = ends;
}

static void stop_recording(void) {
    memset(&mesh.tap, 0, sizeof(mesh.tap));
    for (uint32_t i = 0; i < NODES; i++) tw_recorder_destroy(recorders[i]);
    memset(recorders, 0, sizeof(recorders));
}

static int set_up(void **state) {
    static struct tw_run run;
    size_t size;
    events = lie_at = 0;
    is_lying = false;
    tw_run_defaults(&run);
    tw_run_encode(&run, manifest, &size);
    manifest[size] = '\0';
    (void)snprintf(home, sizeof(home), "/tmp/tw_recorder_XXXXXX");
    assert_non_null(mkdtemp(home));
    mesh_init(&mesh, NODES, 2);
    mesh_link_all(&mesh);
    return 0;
}

static int tear_down(void **state) {
    char command[96];
    mesh_deinit(&mesh);
    (void)snprintf(command, sizeof(command), "rm -rf %s", home);
    return system(command);
}

#define FACT(name) TEST_IN(set_up, tear_down, name)

static unsigned count_files(const char *folder) {
    DIR *const dir = opendir(folder);
    unsigned count = 0;
    assert_non_null(dir);
    for (const struct dirent *row; (row = readdir(dir)) != NULL;) count += row->d_name[0] != '.';
    (void)closedir(dir);
    return count;
}

static struct replay replay_of(uint32_t node) {
    static const struct replay_eyes eyes = {.is_signed = signing_is_signed};
    struct replay replay;
    if (tw_replay_run(&replay, folders[node], &eyes, &err) != TW_OK) fail_msg("%s", err.message);
    return replay;
}

/* ---- tests ----------------------------------------------------------------------------------- */

FACT(recorded_cores_are_repeated) {
    record(64 << 20);
    mesh_run(&mesh, 60 * SECOND_US);
    mesh_stop_worker(&mesh, 1);
    mesh_run(&mesh, 5 * SECOND_US);
    mesh_start_worker(&mesh, 1);
    mesh_run(&mesh, 30 * SECOND_US);
    stop_recording();
    assert_true(mesh.merged[0] > 10);
    for (uint32_t i = 0; i < NODES; i++) {
        struct replay replay = replay_of(i);
        struct tw_node_view then;
        assert_true(replay.counts.events > 1000);
        assert_int_equal(replay.counts.starts, 1);
        assert_int_equal(replay.counts.gaps, 0);
        assert_int_equal(replay.difference.event, 0);
        assert_false(replay.counts.is_cut);
        const struct tw_node_view now = mesh_view(&mesh, i);
        tw_node_view(replay.node, &then);
        assert_int_equal(then.rounds, now.rounds);
        assert_true(tw_id_equal(&then.tip, &now.tip));
        tw_replay_free(&replay);
    }
}

FACT(a_planted_difference_is_named) {
    record(64 << 20);
    mesh_run(&mesh, 20 * SECOND_US);
    is_lying = true;
    mesh_run(&mesh, 10 * SECOND_US);
    assert_false(is_lying);
    stop_recording();
    struct replay honest = replay_of(1), lied = replay_of(0);
    assert_int_equal(honest.difference.event, 0);
    assert_int_equal(lied.difference.event, lie_at);
    tw_replay_free(&honest);
    tw_replay_free(&lied);
}

FACT(the_ring_keeps_its_bound) {
    record(64 << 10);
    mesh_run(&mesh, 60 * SECOND_US);
    stop_recording();
    assert_true(count_files(folders[0]) > 2);
    assert_true(count_files(folders[0]) <= TW_RECORDER_FILES);
    struct replay replay = replay_of(0);
    assert_int_equal(replay.difference.event, 0);
    assert_int_equal(replay.counts.gaps, 0);
    assert_true(replay.about.events > 0);
    tw_replay_free(&replay);
}

/* Gives the recorder's writing thread time to run. */
static void let_write(void) {
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
}

FACT(a_full_disk_makes_a_gap) {
    char text[128];
    struct rlimit before, none;
    record(64 << 20);
    mesh_run(&mesh, 20 * SECOND_US);
    assert_false(tw_recorder_error(recorders[0], text, sizeof(text)));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    for (unsigned i = 0; i < 2000 && !tw_recorder_error(recorders[0], text, sizeof(text)); i++) {
        mesh_run(&mesh, SECOND_US);
        let_write();
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_string_equal(text, "File too large");
    for (unsigned i = 0; i < 60; i++) {
        mesh_run(&mesh, SECOND_US);
        let_write();
    }
    stop_recording();
    struct replay replay = replay_of(0);
    assert_int_equal(replay.difference.event, 0);
    assert_true(replay.counts.gaps >= 1);
    tw_replay_free(&replay);
}

FACT(damage_is_named) {
    char path[96];
    struct replay replay;
    static const struct replay_eyes eyes = {.is_signed = signing_is_signed};
    record(64 << 20);
    mesh_run(&mesh, 20 * SECOND_US);
    stop_recording();
    (void)snprintf(path, sizeof(path), "%s/00000001.flight", folders[0]);
    FILE *const file = fopen(path, "r+e");
    assert_non_null(file);
    assert_int_equal(fseek(file, 3000, SEEK_SET), 0);
    assert_int_equal(fwrite("damage", 1, 6, file), 6);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(tw_replay_run(&replay, folders[0], &eyes, &err), TW_CORRUPT);
    assert_non_null(strstr(err.message, "00000001.flight: block "));
    tw_replay_free(&replay);
    /* A crash truncates the last block. */
    (void)snprintf(path, sizeof(path), "%s/00000001.flight", folders[1]);
    struct stat about;
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(truncate(path, about.st_size - 5), 0);
    replay = replay_of(1);
    assert_int_equal(replay.difference.event, 0);
    assert_true(replay.counts.events > 100);
    tw_replay_free(&replay);
}

FACT(views_and_lines_have_words) {
    char line[WORDS_LINE_BYTES], time[WORDS_TIME_BYTES];
    char *text = NULL;
    size_t size = 0;
    mesh_run(&mesh, 20 * SECOND_US);
    const struct tw_node_view view = mesh_view(&mesh, 0);
    FILE *const to = open_memstream(&text, &size);
    tw_words_view(to, &view);
    (void)fclose(to);
    assert_non_null(strstr(text, "state     member, lineage "));
    assert_non_null(strstr(text, "roster    3 members: 11000000 22000000 33000000"));
    free(text);
    assert_string_equal(tw_words_time(time, UINT64_C(1764201600123456)),
                        "2025-11-27 00:00:00.123456 UTC");
    struct tw_record record = {.lineage = {{1}},
                               .round = 7,
                               .fragment = 1,
                               .base = {{0xbe, 0xef}},
                               .next = {.count = 1, .members = {{.id = {{1}}, .weight = 1}}}};
    const struct tw_action round = {
        .kind = TW_ACT_REPORT, .u.report = {.kind = TW_REPORT_ROUND_COMMITTED, .record = &record}};
    assert_non_null(strstr(tw_words_action(line, &round), ", base beef0000"));
    memset(&record.base, 0, sizeof(record.base));
    assert_non_null(strstr(tw_words_action(line, &round), ", base not told"));
    const struct tw_event step = {.kind = TW_EV_STEP, .u.step.step = 12};
    assert_string_equal(tw_words_event(line, &step), "step 12");
}

/* ---- two nodes ------------------------------------------------------------------------------- */

static struct decision decide(bool is_anchor, uint64_t round, uint8_t digest) {
    struct decision row = {.is_anchor = is_anchor, .round = round, .unix_us = 1000 * round};
    row.digest.bytes[0] = digest;
    return row;
}

TEST(the_first_difference_of_two_nodes_is_named) {
    struct decision of_a, of_b;
    size_t common;
    struct decision rows_a[] = {decide(false, 1, 10), decide(true, 2, 20), decide(false, 2, 11),
                                decide(true, 3, 99), decide(false, 3, 12)};
    /* The anchor of round 3 is loaded twice; the second load counts. */
    struct decision rows_b[] = {decide(false, 2, 11), decide(true, 3, 99), decide(true, 3, 21),
                                decide(false, 3, 12)};
    rows_b[2].unix_us += 5;
    struct decisions a = {.rows = rows_a, .count = 5}, b = {.rows = rows_b, .count = 4};
    assert_true(tw_decisions_differ(&a, &b, &of_a, &of_b, &common));
    assert_int_equal(of_a.round, 3);
    assert_true(of_a.is_anchor && of_b.is_anchor);
    assert_int_equal(of_b.digest.bytes[0], 21);
    rows_b[3].digest.bytes[0] = 99; /* the rows are sorted now */
    assert_false(tw_decisions_differ(&a, &b, &of_a, &of_b, &common));
    assert_int_equal(common, 3);
}
