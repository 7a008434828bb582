/* Checkpoints are not saved while nothing changes, and `thinwire rollback` returns to one of them.
 * TW_CLI: path of `thinwire`. */
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/exit_codes.h"
#include "tests/system/cluster.h"
#include "tests/test.h"

static struct cluster cluster;

static int open_two(void **state) {
    cluster_open(&cluster, "1g");
    cluster_make(&cluster, 2);
    return 0;
}

static int close_all(void **state) {
    cluster_close(&cluster, !test_has_passed);
    return 0;
}

#define FACT(name) TEST_IN(open_two, close_all, name)

/* Runs `thinwire --config CONFIG rollback ...` without a terminal. Returns its exit status. */
static int rollback(uint32_t idx, const char *word, const char *yes, char *said, size_t size) {
    int ends[2];
    size_t used = 0;
    const char *const cli = getenv("TW_CLI");
    assert_non_null(cli);
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        (void)dup2(open("/dev/null", O_RDONLY), 0);
        (void)dup2(ends[1], 1);
        (void)dup2(ends[1], 2);
        (void)close(ends[0]);
        (void)execl(cli, cli, "--config", cluster.nodes[idx].config, "rollback", word, yes, NULL);
        _exit(127);
    }
    (void)close(ends[1]);
    for (ssize_t got = 1; got > 0 && used<size - 1; used += got> 0 ? (size_t)got : 0) {
        got = read(ends[0], said + used, size - 1 - used);
    }
    said[used] = 0;
    (void)close(ends[0]);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static unsigned checkpoints(void) {
    return cluster_lines(&cluster, 0, "ev=checkpoint ");
}

/* A second checkpoint of an unchanged state would overwrite the older generation. */
FACT(unchanged_model_is_not_saved_again) {
    const struct cluster_options often = {.more = "checkpoint_interval = 1s\n"};
    cluster_configure(&cluster, 0, &often);
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 20, 20));
    assert_int_equal(cluster_post(&cluster, 0, "/v1/pause"), 200);
    assert_int_equal(cluster_post(&cluster, 0, "/v1/checkpoint"), 200);
    assert_int_equal(cluster_post(&cluster, 0, "/v1/checkpoint"), 200);
    const unsigned before = checkpoints();
    assert_true(before >= 1);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(cluster_post(&cluster, 0, "/v1/checkpoint"), 200);
    }
    cluster_pause(1.5); /* not even when the checkpoint interval has passed */
    assert_int_equal(checkpoints(), before);
    assert_int_equal(cluster_post(&cluster, 0, "/v1/resume"), 200);
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 200, 20));
    assert_int_equal(cluster_post(&cluster, 0, "/v1/checkpoint"), 200);
    assert_true(checkpoints() > before);
}

/* Returns -1 if the step is not known. */
static double step_of_pinned(void) {
    char said[4096];
    double step = -1;
    assert_int_equal(rollback(0, "--json", NULL, said, sizeof(said)), TW_EXIT_OK);
    json_t *const list = json_loads(said, 0, NULL);
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(list, "generations"), i, row) {
        const json_t *const given = json_object_get(row, "step");
        if (strcmp(json_string_value(json_object_get(row, "file")), "pinned") != 0) continue;
        assert_non_null(given);
        if (!json_is_null(given)) step = json_number_value(given);
        assert_int_equal(json_is_null(given), json_object_get(row, "error") != NULL);
    }
    json_decref(list);
    return step;
}

/* Saves a checkpoint after each of the next `times` evaluations. */
static void save_often(unsigned times) {
    for (unsigned i = 0; i < times; i++) {
        const double step = cluster_number(&cluster, 0, "train.validation_steps");
        assert_true(cluster_reaches(&cluster, 0, "train.validation_steps", step + 1, 20));
        assert_int_equal(cluster_post(&cluster, 0, "/v1/checkpoint"), 200);
    }
}

/* Returns the number of files with this name in node 0's run folders. `path` gets the last one. */
static size_t find(const char *name, char path[256]) {
    char pattern[160];
    glob_t files;
    (void)snprintf(pattern, sizeof(pattern), "%s/state/*/%s", cluster.nodes[0].dir, name);
    if (glob(pattern, 0, NULL, &files) != 0) return 0;
    const size_t count = files.gl_pathc;
    (void)snprintf(path, 256, "%s", files.gl_pathv[count - 1]);
    globfree(&files);
    return count;
}

static size_t found(const char *name) {
    char path[256];
    return find(name, path);
}

/* Flips a bit of the pinned generation: near its end, or in its head. Twice restores it. */
static void spoil(bool is_head) {
    char path[256];
    uint8_t byte = 0;
    assert_int_equal(find("ckpt.pinned*", path), 1);
    const int file = open(path, O_RDWR);
    const off_t at = is_head ? 24 : lseek(file, -64, SEEK_END);
    assert_true(at > 0);
    assert_int_equal(pread(file, &byte, 1, at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(file, &byte, 1, at), 1);
    assert_int_equal(close(file), 0);
}

/* The anchor is damaged from step 600 on. */
FACT(pinned_generation_is_from_before_the_harm) {
    enum { SPOILT = 600 };
    char said[4096];
    const struct cluster_options options = {.more = "checkpoint_interval = 10m\n",
                                            .stub = "--step-us 2000 --poison-from-update 600"};
    cluster_configure(&cluster, 0, &options);
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_reaches(&cluster, 0, "train.validation_steps", 50, 20));
    while (cluster_number(&cluster, 0, "train.validation_steps") < SPOILT - 100) save_often(1);
    assert_true(cluster_reaches(&cluster, 0, "train.validation_steps", SPOILT + 1, 20));
    save_often(5);
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
    assert_in_range(step_of_pinned(), 1, SPOILT);
    /* After a restart, too, the damaged model does not count as good. */
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_reaches(&cluster, 0, "train.validation_steps", SPOILT + 1, 20));
    save_often(4);
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
    assert_in_range(step_of_pinned(), 1, SPOILT);
    const double step = step_of_pinned();
    spoil(true);
    assert_true(step_of_pinned() < 0);
    spoil(true);
    assert_true(step_of_pinned() == step);
    spoil(false);
    assert_int_equal(rollback(0, "pinned", "--yes", said, sizeof(said)), TW_EXIT_CORRUPT);
    /* No file was changed, so a node that starts stays in its group. */
    assert_int_equal(found("refused"), 0);
    spoil(false);
    assert_int_equal(rollback(0, "pinned", "--yes", said, sizeof(said)), TW_EXIT_OK);
    assert_int_equal(found("refused"), 1);
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 1, 20));
    assert_in_range(cluster_number(&cluster, 0, "checkpoint.steps"), step, step);
}

static void save_twice(uint32_t idx) {
    for (unsigned i = 0; i < 2; i++) {
        const double rounds = cluster_number(&cluster, idx, "sync.rounds_contributed");
        assert_true(cluster_reaches(&cluster, idx, "sync.rounds_contributed", rounds + 3, 60));
        assert_int_equal(cluster_post(&cluster, idx, "/v1/checkpoint"), 200);
    }
}

FACT(group_goes_back_node_by_node) {
    char spoilt[96], text[96], said[4096];
    for (uint32_t i = 0; i < 2; i++) cluster_start(&cluster, i, NULL);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(cluster_reaches(&cluster, i, "sync.roster_members", 2, 60));
    }
    for (uint32_t i = 0; i < 2; i++) save_twice(i);
    cluster_string(&cluster, 0, "run.lineage", spoilt);
    assert_int_equal(strlen(spoilt), 64);
    assert_int_equal(rollback(0, "a", "--yes", said, sizeof(said)), TW_EXIT_STATE_DIR);
    assert_non_null(strstr(said, "the daemon of this node runs"));
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);

    assert_int_equal(rollback(0, NULL, NULL, said, sizeof(said)), TW_EXIT_OK);
    const char *const other = strstr(said, "the one before");
    assert_non_null(other);
    const char *line = other;
    while (line > said && line[-1] != '\n') line--;
    const char file[2] = {line[0], 0}; /* a or b */
    assert_int_equal(rollback(0, file, NULL, said, sizeof(said)), TW_EXIT_USAGE);
    assert_non_null(strstr(said, "--yes"));
    assert_int_equal(rollback(0, "undone", "--yes", said, sizeof(said)), TW_EXIT_USAGE);
    assert_int_equal(rollback(0, "99999999", "--yes", said, sizeof(said)), TW_EXIT_USAGE);
    assert_int_equal(rollback(0, file, "--yes", said, sizeof(said)), TW_EXIT_OK);
    assert_int_equal(rollback(0, NULL, NULL, said, sizeof(said)), TW_EXIT_OK);
    assert_non_null(strstr(said, "undone"));

    /* After a rollback the node starts a new lineage, although the other node is ahead. */
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_reaches(&cluster, 0, "sync.alive_peers", 1, 20));
    const double steps = cluster_number(&cluster, 0, "train.steps");
    assert_true(cluster_reaches(&cluster, 0, "train.steps", steps + 200, 60));
    cluster_string(&cluster, 0, "run.lineage", text);
    assert_string_not_equal(text, spoilt);

    assert_int_equal(cluster_end(&cluster, 1, SIGTERM, 20), TW_EXIT_OK);
    assert_int_equal(rollback(1, "a", "--yes", said, sizeof(said)), TW_EXIT_OK);
    cluster_start(&cluster, 1, NULL);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(cluster_reaches(&cluster, i, "sync.roster_members", 2, 60));
        cluster_string(&cluster, i, "run.lineage", text);
        assert_string_not_equal(text, spoilt);
    }
}
