/* Two daemons with the real worker: a run from its first step to its end. */
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "base/exit_codes.h"
#include "tests/system/cluster.h"
#include "tests/test.h"

static struct cluster cluster;

static int open_two(void **state) {
    /* The nodes train for some seconds before they are linked. */
    cluster_open(&cluster, "400k");
    cluster_make(&cluster, 2);
    return 0;
}

static int close_all(void **state) {
    cluster_close(&cluster, !test_has_passed);
    return 0;
}

#define FACT(name) TEST_IN(open_two, close_all, name)

FACT(run_is_trained_to_its_end_by_both) {
    for (uint32_t i = 0; i < 2; i++) cluster_start(&cluster, i, NULL);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(cluster_reaches(&cluster, i, "sync.mixed_peers", 1, 60));
    }
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(cluster_says(&cluster, i, "state=finished", 120));
        assert_true(cluster_number(&cluster, i, "run.clock_tokens") >= 400e3);
        const double loss = cluster_number(&cluster, i, "train.loss_nats");
        print_message("node %u: %.3f nats after %.0f steps\n", i, loss,
                      cluster_number(&cluster, i, "train.steps"));
        assert_true(loss > 0 && loss < 5); /* an untrained model has ln 256 = 5.55 nats */
    }
    print_message("%.0f and %.0f merges of the other done again\n",
                  cluster_number(&cluster, 0, "sync.audits"),
                  cluster_number(&cluster, 1, "sync.audits"));
    for (uint32_t i = 0; i < 2; i++) {
        assert_null(strstr(cluster_log(&cluster, i), "ev=misbehaved"));
        assert_null(strstr(cluster_log(&cluster, i), "ev=owner_struck"));
        assert_null(strstr(cluster_log(&cluster, i), "ev=contribution_refused"));
        assert_int_equal(cluster_end(&cluster, i, SIGTERM, 30), TW_EXIT_OK);
    }
}

FACT(text_too_short_to_train_on_is_named) {
    char path[64];
    (void)snprintf(path, sizeof(path), "%s/short", cluster.dir);
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_int_equal(write(fd, "In the", 6), 6);
    (void)close(fd);
    const struct cluster_options options = {.no_data = path};
    cluster_configure(&cluster, 0, &options);
    cluster_start(&cluster, 0, NULL);
    assert_int_equal(cluster_wait_end(&cluster, 0, 20), TW_EXIT_DATA);
    const char *said = strstr(cluster_log(&cluster, 0), "thinwired: ");
    assert_non_null(said);
    print_message("%.*s\n", (int)strcspn(said, "\n"), said);
    assert_non_null(strstr(said, path));
}
