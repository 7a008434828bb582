/* Daemons that have the run's dataset, and daemons with an empty disk. The dataset is fetched
 * within the caps and checked, despite false data and killed nodes. The worker waits for it. */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/exit_codes.h"
#include "tests/daemon/dataset/dataset_sample.h"
#include "tests/system/cluster.h"
#include "tests/test.h"

enum { TRAIN_SHARDS = 4, TOKENS = 500000, NODES = 3, CAP_BYTES_S = 1000000 };

static struct cluster cluster;
static struct dataset_sample sample;
static char folders[NODES][96];

static double now_s(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Nodes 0 and 2 have a copy of the dataset each, node 1 has an empty disk. */
static int open_all(void **state) {
    char hex[TW_ID_HEX_BYTES];
    const struct sample_options options = {
        .train = TRAIN_SHARDS, .heldout = 1, .tokens = TOKENS, .tokenizer_bytes = 400000};
    dataset_sample_make(&sample, &options);
    cluster_open(&cluster, "1g");
    tw_id_hex(&sample.hash, hex);
    const char *const keys[][2] = {{"data.form", "dataset"}, {"data.sha256", hex},
                                   {"data.heldout", "0.01"}, {"data.tokenizer", "ids"},
                                   {"model.vocab", "300"},   {NULL, NULL}};
    cluster_set_run(&cluster, keys);
    cluster_make(&cluster, NODES);
    for (uint32_t i = 0; i < NODES; i++) {
        (void)snprintf(folders[i], sizeof(folders[i]), "%s/n%u/text", cluster.dir, i);
        const struct cluster_options plain = {.no_data = folders[i]};
        const struct cluster_options empty = {.has_no_data = true};
        cluster_configure(&cluster, i, i == 1 ? &empty : &plain);
        if (i == 1) continue;
        assert_int_equal(mkdir(folders[i], 0755), 0);
        dataset_sample_write_all(&sample, folders[i]);
    }
    return 0;
}

static int close_all(void **state) {
    cluster_close(&cluster, !test_has_passed);
    dataset_sample_free(&sample);
    return 0;
}

#define FACT(name) TEST_IN(open_all, close_all, name)

static uint64_t bytes_all(void) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < sample.files_count; i++) bytes += sample.files[i].size;
    return bytes;
}

/* Writes the path STATE_DIR/RUN/data of a node that has one run to `path`. */
static void fetched_folder(uint32_t node, char path[160]) {
    char hex[96];
    json_t *run = cluster_get(&cluster, node, "/v1/run");
    assert_non_null(run);
    (void)snprintf(hex, sizeof(hex), "%s", json_string_value(json_object_get(run, "id")));
    json_decref(run);
    (void)snprintf(path, 160, "%s/state/%.16s/data", cluster.nodes[node].dir, hex);
}

static void assert_folder_is_equal(uint32_t node) {
    char folder[160];
    fetched_folder(node, folder);
    for (uint32_t i = 0; i < sample.files_count; i++) {
        const struct sample_file *file = &sample.files[i];
        char path[256];
        (void)snprintf(path, sizeof(path), "%s/%s", folder, file->name);
        uint8_t *bytes = malloc(file->size + 1);
        const int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) fail_msg("no %s", path);
        assert_int_equal(read(fd, bytes, file->size + 1), (ssize_t)file->size);
        (void)close(fd);
        assert_memory_equal(bytes, file->bytes, file->size);
        free(bytes);
    }
}

static void assert_arrives(double patience_s) {
    assert_true(cluster_reaches(&cluster, 1, "data.files_whole", sample.files_count, patience_s));
    assert_folder_is_equal(1);
}

static void end_all(uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(cluster_end(&cluster, i, SIGTERM, 20), TW_EXIT_OK);
    }
}

/* Configures the node again, with these lines in [network]. The node must be stopped, because its
 * worker's program file is written again too. */
static void cap_upload(uint32_t node, const char *network) {
    const struct cluster_options capped = {.no_data = folders[node], .network = network};
    assert_int_equal(cluster.nodes[node].pid, 0);
    cluster_configure(&cluster, node, &capped);
}

FACT(node_with_an_empty_disk_gets_the_dataset_and_trains) {
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 10, 20));
    cluster_start(&cluster, 1, NULL);
    assert_true(cluster_reaches(&cluster, 1, "train.steps", 10, 30));
    assert_arrives(30);
    assert_true(cluster_reaches(&cluster, 1, "sync.mixed_peers", 1, 20));
    assert_true(cluster_number(&cluster, 1, "data.chunks_refused") == 0);
    assert_true(cluster_number(&cluster, 1, "data.in_bytes") == (double)bytes_all());
    assert_true(cluster_reaches(&cluster, 0, "data.out_bytes", (double)bytes_all(), 5));
    const char *log = cluster_log(&cluster, 1);
    const char *ready = strstr(log, "ev=data_ready"), *worker = strstr(log, "ev=worker_attached");
    assert_non_null(ready);
    assert_true(ready < worker);
    end_all(2);
}

/* Every chunk of every shard is changed on the donor's disk after the donor began to serve them.
 * The donor notices this before it sends a changed chunk. tests/sync/test_fetch_hostile.c has a
 * donor that does not check. */
FACT(donor_whose_files_changed_sends_none_of_them) {
    cap_upload(0, "upload = 1mbit"); /* so slow that node 1 asks the other donor too */
    cluster_start(&cluster, 0, NULL);
    cluster_start(&cluster, 2, NULL);
    assert_true(cluster_says(&cluster, 2, "ev=data_known", 20));
    for (uint32_t i = 2; i < sample.files_count; i++) {
        char path[160];
        (void)snprintf(path, sizeof(path), "%s/%s", folders[2], sample.files[i].name);
        const int fd = open(path, O_WRONLY | O_CLOEXEC);
        for (size_t at = 5000; at < sample.files[i].size; at += 100000) {
            assert_int_equal(pwrite(fd, "lie", 3, (off_t)at), 3);
        }
        (void)close(fd);
    }
    cluster_start(&cluster, 1, NULL);
    assert_true(cluster_says(&cluster, 2, "ev=data_lost", 60));
    assert_int_equal(cluster_post(&cluster, 0, "/v1/limit?upload=8mbit"), 200);
    assert_arrives(60);
    assert_true(cluster_number(&cluster, 1, "data.chunks_refused") < 1);
    assert_true(cluster_reaches(&cluster, 1, "sync.mixed_peers", 2, 30));
    assert_true(cluster_number(&cluster, 1, "sync.alive_peers") == 2);
    end_all(3);
}

FACT(killed_joiner_fetches_only_the_missing_bytes) {
    const double all = (double)bytes_all();
    cap_upload(0, "upload = 8mbit");
    cluster_start(&cluster, 0, NULL);
    cluster_start(&cluster, 1, NULL);
    assert_true(cluster_reaches(&cluster, 1, "data.bytes_here", all / 3, 60));
    assert_int_equal(cluster_end(&cluster, 1, SIGKILL, 5), 1000 + SIGKILL);
    cluster_start(&cluster, 1, NULL);
    assert_true(cluster_reaches(&cluster, 1, "data.files", sample.files_count, 20));
    const double here = cluster_number(&cluster, 1, "data.bytes_here");
    print_message("%.1f MB of %.1f MB were there\n", here / 1e6, all / 1e6);
    assert_true(here >= all / 3);
    assert_arrives(60);
    assert_true(cluster_number(&cluster, 1, "data.in_bytes") <= all - all / 3);
    end_all(2);
}

static void assert_sent_within(double from, double from_s, double cap_bytes_s) {
    const double sent = cluster_number(&cluster, 0, "network.bulk_out_bytes") - from;
    const double took_s = now_s() - from_s;
    print_message("%.2f MB in %.2f s under a cap of %.2f MB/s\n", sent / 1e6, took_s,
                  cap_bytes_s / 1e6);
    assert_true(sent <= 1.1 * cap_bytes_s * took_s + 300e3);
}

FACT(caps_are_kept_and_rounds_go_on_while_it_travels) {
    cap_upload(0, "upload = 8mbit");
    cluster_start(&cluster, 0, NULL);
    cluster_start(&cluster, 1, NULL);
    /* The two nodes train together as soon as node 1 has the first shard, while it fetches the
     * others. The rate is low, so that even on a busy machine the test sees this. */
    assert_true(cluster_reaches(&cluster, 1, "data.files_whole", 2, 60));
    assert_int_equal(cluster_post(&cluster, 0, "/v1/limit?upload=1mbit"), 200);
    double from_s = now_s(), from = cluster_number(&cluster, 0, "network.bulk_out_bytes");
    assert_true(cluster_reaches(&cluster, 1, "sync.mixed_peers", 1, 60));
    const double rounds = cluster_number(&cluster, 1, "sync.rounds_contributed");
    assert_true(cluster_reaches(&cluster, 1, "sync.rounds_contributed", rounds + 5, 30));
    const double had = cluster_number(&cluster, 1, "data.files_whole");
    assert_true(had < sample.files_count);
    assert_sent_within(from, from_s, 125000);
    assert_int_equal(cluster_post(&cluster, 0, "/v1/limit?upload=8mbit"), 200);
    from_s = now_s(), from = cluster_number(&cluster, 0, "network.bulk_out_bytes");
    assert_arrives(60);
    assert_sent_within(from, from_s, CAP_BYTES_S);
    end_all(2);
}

FACT(node_alone_names_the_data_it_waits_for) {
    char text[96];
    cluster_start(&cluster, 1, NULL);
    assert_true(cluster_reaches(&cluster, 1, "data.files", 0, 20));
    cluster_string(&cluster, 1, "worker.state", text);
    assert_string_equal(text, "waiting");
    cluster_string(&cluster, 1, "data.state", text);
    assert_string_equal(text, "waiting");
    cluster_string(&cluster, 1, "data.waits_for", text);
    assert_string_equal(text, "nothing of the dataset's index yet, no linked peer has it");
    cluster_start(&cluster, 0, NULL); /* in the end */
    assert_true(cluster_reaches(&cluster, 1, "train.steps", 10, 30));
    cluster_string(&cluster, 1, "data.waits_for", text);
    assert_string_equal(text, "");
    end_all(2);
}

/* A worker that systemd starts attaches long before there is any training data. */
FACT(worker_of_somebody_else_waits_for_the_data) {
    char worker[128], socket[128];
    const struct cluster_options options = {.has_no_data = true, .more = "spawn_worker = off"};
    cluster_configure(&cluster, 1, &options);
    (void)snprintf(worker, sizeof(worker), "%s/worker", cluster.nodes[1].dir);
    (void)snprintf(socket, sizeof(socket), "%s/worker.sock", cluster.nodes[1].dir);
    cluster_start(&cluster, 1, NULL);
    assert_true(cluster_reaches(&cluster, 1, "data.files", 0, 20));
    const pid_t pid = fork();
    if (pid == 0) {
        (void)execl(worker, worker, "--socket", socket, (char *)NULL);
        _exit(127);
    }
    cluster_pause(0.5);
    assert_true(cluster_number(&cluster, 1, "train.steps") == 0);
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_reaches(&cluster, 1, "train.steps", 10, 40));
    assert_null(strstr(cluster_log(&cluster, 1), "ev=worker_gone"));
    assert_int_equal(kill(pid, SIGTERM), 0);
    end_all(2);
}

/* A file exists where the dataset's folder should be. The daemon reports this, retries, and keeps
 * running. */
FACT(folder_that_cannot_be_made_is_reported_and_tried_again) {
    char folder[160], text[96];
    cluster_start(&cluster, 1, NULL);
    assert_true(cluster_reaches(&cluster, 1, "data.files", 0, 20));
    fetched_folder(1, folder);
    assert_int_equal(cluster_end(&cluster, 1, SIGTERM, 20), TW_EXIT_OK);
    (void)rmdir(folder);
    const int fd = open(folder, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    cluster_start(&cluster, 1, NULL);
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_says(&cluster, 1, "ev=data_trouble", 20));
    cluster_string(&cluster, 1, "data.error", text);
    assert_non_null(strstr(text, "Not a directory"));
    assert_int_equal(unlink(folder), 0);
    assert_true(cluster_reaches(&cluster, 1, "train.steps", 10, 40));
    cluster_string(&cluster, 1, "data.error", text);
    assert_string_equal(text, "");
    end_all(2);
}

/* ---- refusals at the start ----------------------------------------------------------------- */

static void assert_refused(uint32_t node, const struct cluster_options *options,
                           const char *words) {
    cluster_configure(&cluster, node, options);
    cluster_start(&cluster, node, NULL);
    assert_int_equal(cluster_wait_end(&cluster, node, 20), TW_EXIT_DATA);
    const char *said = strstr(cluster_log(&cluster, node), "thinwired: ");
    assert_non_null(said);
    print_message("%.*s\n", (int)strcspn(said, "\n"), said);
    if (strstr(said, words) == NULL) fail_msg("no \"%s\"", words);
}

FACT(nobody_can_be_asked_without_links) {
    const struct cluster_options options = {.has_no_data = true, .is_unlinked = true};
    assert_refused(1, &options, "with network.links = off nobody can be asked");
}

FACT(folder_that_is_not_the_dataset_is_refused) {
    const struct cluster_options empty = {.no_data = cluster.dir};
    assert_refused(1, &empty, "is no dataset");
    char path[160];
    (void)snprintf(path, sizeof(path), "%s/dataset", folders[0]);
    const int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    assert_int_equal(write(fd, "\n", 1), 1);
    (void)close(fd);
    const struct cluster_options other = {.no_data = folders[0]};
    assert_refused(0, &other, "is another dataset than the run's");
    for (uint32_t i = 2; i < 2 + TRAIN_SHARDS; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", folders[2], sample.files[i].name);
        assert_int_equal(unlink(path), 0);
    }
    const struct cluster_options bare = {.no_data = folders[2]};
    assert_refused(2, &bare, "no whole training shard");
}
