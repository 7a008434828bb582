/* cluster_dataset.c - a cluster of daemons whose run trains on a dataset. */
#include "tests/system/cluster_dataset.h"
#include "tests/test.h"

#include <sys/stat.h>

void cluster_dataset_make(struct cluster *cluster, struct dataset_sample *sample,
                          const char *tokens, uint32_t count, char *folder, size_t size) {
    char hex[TW_ID_HEX_BYTES];
    const struct sample_options options = {.train = 3, .heldout = 1, .tokens = 400000};
    dataset_sample_make(sample, &options);
    tw_id_hex(&sample->hash, hex);
    cluster_open(cluster, tokens);
    const char *const keys[][2] = {
        {"data.form", "dataset"}, {"data.sha256", hex}, {"data.heldout", "0.01"}, {NULL, NULL}};
    cluster_set_run(cluster, keys);
    cluster_make(cluster, count);
    (void)snprintf(folder, size, "%s/text", cluster->nodes[0].dir);
    assert_int_equal(mkdir(folder, 0755), 0);
    dataset_sample_write_all(sample, folder);
}
