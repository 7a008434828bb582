/* Two daemons with the real worker: one with the dataset, one with an empty disk. Both train the
 * run to its end. */
#include <signal.h>
#include <sys/stat.h>

#include "base/exit_codes.h"
#include "tests/system/cluster_dataset.h"
#include "tests/test.h"

static struct cluster cluster;
static struct dataset_sample sample;
static char folder[96];

static int open_two(void **state) {
    const struct cluster_options empty = {.has_no_data = true, .more = "stop_step = 0"};
    const struct cluster_options whole = {.no_data = folder, .network = "upload = 4mbit"};
    cluster_dataset_make(&cluster, &sample, "200k", 2, folder, sizeof(folder));
    cluster_configure(&cluster, 0, &whole);
    cluster_configure(&cluster, 1, &empty);
    return 0;
}

static int close_all(void **state) {
    cluster_close(&cluster, !test_has_passed);
    dataset_sample_free(&sample);
    return 0;
}

TEST_IN(open_two, close_all, node_with_an_empty_disk_trains_to_the_end) {
    for (uint32_t i = 0; i < 2; i++) cluster_start(&cluster, i, NULL);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(cluster_reaches(&cluster, i, "sync.mixed_peers", 1, 60));
    }
    const double files = cluster_number(&cluster, 1, "data.files_whole");
    print_message("the joiner is mixed in with %.0f of %u files\n", files, sample.files_count);
    for (uint32_t i = 0; i < 2; i++) {
        assert_true(cluster_says(&cluster, i, "state=finished", 120));
        const double loss = cluster_number(&cluster, i, "train.loss_nats");
        print_message("node %u: %.3f nats after %.0f steps, %.0f %% of the tokens\n", i, loss,
                      cluster_number(&cluster, i, "train.steps"),
                      100 * cluster_number(&cluster, i, "train.token_share_ratio"));
        assert_true(loss > 0 && loss < 5);
        const double share = cluster_number(&cluster, i, "train.token_share_ratio");
        assert_true(share > 0 && share < 1);
    }
    assert_true(cluster_reaches(&cluster, 1, "data.files_whole", sample.files_count, 60));
    for (uint32_t i = 0; i < 2; i++) {
        assert_null(strstr(cluster_log(&cluster, i), "ev=misbehaved"));
        assert_int_equal(cluster_end(&cluster, i, SIGTERM, 30), TW_EXIT_OK);
    }
}
