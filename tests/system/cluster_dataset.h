/* cluster_dataset.h - a cluster whose run trains on a dataset: node 0 has its files in a folder. */
#ifndef TW_TESTS_CLUSTER_DATASET_H
#define TW_TESTS_CLUSTER_DATASET_H

#include <stddef.h>
#include <stdint.h>

#include "tests/daemon/dataset/dataset_sample.h"
#include "tests/system/cluster.h"

/* Opens a cluster of `count` ordinary nodes for a run over `tokens`, and writes the path of the
 * dataset's folder to `folder`. The caller configures the nodes, and frees the sample. */
void cluster_dataset_make(struct cluster *cluster, struct dataset_sample *sample,
                          const char *tokens, uint32_t count, char *folder, size_t size);

#endif
