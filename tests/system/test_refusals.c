/* Tests every refusal to start: one sentence with the cause and a remedy, the documented exit
 * status, and no damage. */
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/exit_codes.h"
#include "tests/system/cluster.h"
#include "tests/test.h"

static struct cluster cluster;

static int open_one(void **state) {
    cluster_open(&cluster, "1g");
    cluster_make(&cluster, 1);
    return 0;
}

static int close_all(void **state) {
    cluster_close(&cluster, !test_has_passed);
    return 0;
}

#define FACT(name) TEST_IN(open_one, close_all, name)

/* Starts node 0, which must end with `code` after one line that contains `names`. */
static void must_refuse(int code, const char *names) {
    cluster_start(&cluster, 0, NULL);
    assert_int_equal(cluster_wait_end(&cluster, 0, 10), code);
    const char *said = strstr(cluster_log(&cluster, 0), "thinwired: ");
    assert_non_null(said);
    print_message("%.*s\n", (int)strcspn(said, "\n"), said);
    assert_non_null(strstr(said, names));
}

static void text_append(const char *path, const char *text) {
    const int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    (void)close(fd);
}

static void path_of(const char *name, char path[96]) {
    (void)snprintf(path, 96, "%s/%s", cluster.nodes[0].dir, name);
}

FACT(bad_configuration_names_line_and_key) {
    text_append(cluster.nodes[0].config, "uplode = 5mbit\n");
    must_refuse(TW_EXIT_USAGE, "upload");
}

FACT(missing_manifest_is_named) {
    char path[160];
    (void)snprintf(path, sizeof(path), "%s/manifest", cluster.dir);
    assert_int_equal(unlink(path), 0);
    must_refuse(TW_EXIT_MANIFEST, path);
}

FACT(malformed_manifest_is_named) {
    char path[160];
    (void)snprintf(path, sizeof(path), "%s/manifest", cluster.dir);
    text_append(path, "sync.colour = red\n");
    must_refuse(TW_EXIT_MANIFEST, path);
}

FACT(missing_training_text_is_named) {
    const struct cluster_options options = {.no_data = "/nowhere/text"};
    cluster_configure(&cluster, 0, &options);
    must_refuse(TW_EXIT_DATA, "/nowhere/text");
}

FACT(unwritable_state_folder_is_named) {
    char path[96];
    path_of("state/lock", path);
    assert_int_equal(mkdir(path, 0700), 0); /* a folder stops even root */
    must_refuse(TW_EXIT_STATE_DIR, cluster.nodes[0].dir);
}

FACT(second_daemon_of_a_folder_is_refused) {
    cluster.nodes_count = 2;
    cluster.nodes[1] = cluster.nodes[0];
    path_of("log2", cluster.nodes[1].log);
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 1, 20));
    cluster_start(&cluster, 1, NULL);
    assert_int_equal(cluster_wait_end(&cluster, 1, 10), TW_EXIT_STATE_DIR);
    assert_non_null(strstr(cluster_log(&cluster, 1), "another daemon uses the state folder"));
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
}

FACT(port_in_use_is_named) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons(cluster.nodes[0].port)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 1), 0);
    char name[32];
    (void)snprintf(name, sizeof(name), "127.0.0.1:%u", cluster.nodes[0].port);
    must_refuse(TW_EXIT_PORT, name);
    (void)close(fd);
}

FACT(missing_identity_is_named) {
    char path[96];
    path_of("state/identity.key", path);
    assert_int_equal(unlink(path), 0);
    must_refuse(TW_EXIT_IDENTITY, "thinwire init");
}

FACT(readable_secret_is_refused) {
    char path[160];
    (void)snprintf(path, sizeof(path), "%s/secret", cluster.dir);
    assert_int_equal(chmod(path, 0644), 0);
    must_refuse(TW_EXIT_IDENTITY, "chmod 600");
}

FACT(worker_that_cannot_begin_ends_the_daemon) {
    const struct cluster_options options = {.stub = "--nonsense"};
    cluster_configure(&cluster, 0, &options);
    must_refuse(TW_EXIT_USAGE, "worker");
}

/* ---- checkpoints --------------------------------------------------------------------------- */

/* Makes two generations on disk: the daemon saves one each time it ends. */
static void two_generations(void) {
    for (unsigned life = 0; life < 2; life++) {
        cluster_start(&cluster, 0, NULL);
        assert_true(cluster_reaches(&cluster, 0, "train.steps", 1, 20));
        /* includes the steps of the loaded checkpoint */
        const double begin = cluster_number(&cluster, 0, "train.steps");
        assert_true(cluster_reaches(&cluster, 0, "train.steps", begin + 30, 20));
        assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
    }
}

/* Finds the folder of the run in node 0's state folder, which has no other folder. */
static void run_dir(char path[320]) {
    char state_dir[96];
    path_of("state", state_dir);
    DIR *folder = opendir(state_dir);
    assert_non_null(folder);
    path[0] = '\0';
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (strlen(entry->d_name) != 16) continue;
        (void)snprintf(path, 320, "%s/%.16s", state_dir, entry->d_name);
    }
    (void)closedir(folder);
    assert_true(path[0] != '\0');
}

static void damage(const char *name) {
    char path[400], dir[320];
    struct stat info;
    run_dir(dir);
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &info), 0);
    char byte;
    const off_t middle = info.st_size / 2;
    assert_int_equal(pread(fd, &byte, 1, middle), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, middle), 1);
    (void)close(fd);
}

FACT(damaged_checkpoint_falls_back_to_the_older_one) {
    two_generations();
    /* Generations 1 and 2 are in slots b and a, or in a and b. */
    damage("ckpt.b.safetensors");
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_says(&cluster, 0, "ev=checkpoint_refused", 10));
    /* the third start, from the other generation */
    assert_true(cluster_says(&cluster, 0, "boot=3", 10));
    assert_true(cluster_says(&cluster, 0, "start=snapshot", 5));
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
}

FACT(two_damaged_checkpoints_are_never_started_over_silently) {
    two_generations();
    damage("ckpt.a.safetensors");
    damage("ckpt.b.safetensors");
    must_refuse(TW_EXIT_CORRUPT, "--fresh");
    cluster_start(&cluster, 0, "--fresh");
    assert_true(cluster_says(&cluster, 0, "ev=checkpoint_given_up", 10));
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 20, 20));
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 30, 20));
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
}

FACT(damaged_vote_costs_the_membership_only) {
    char path[400], dir[320];
    two_generations();
    run_dir(dir);
    (void)snprintf(path, sizeof(path), "%s/vote.a", dir);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, "not a vote", 10), 10);
    (void)close(fd);
    cluster_start(&cluster, 0, NULL);
    assert_true(cluster_says(&cluster, 0, "ev=vote_lost", 10));
    assert_true(cluster_says(&cluster, 0, "start=snapshot", 10));
    assert_true(cluster_reaches(&cluster, 0, "train.steps", 70, 20));
    assert_int_equal(cluster_end(&cluster, 0, SIGTERM, 20), TW_EXIT_OK);
}
