/* dataset_run.h - whether a dataset fits a run manifest, and setting a manifest to a dataset. */
#ifndef TW_PROTO_DATASET_RUN_H
#define TW_PROTO_DATASET_RUN_H

#include "proto/dataset.h"
#include "proto/run/run.h"

/* Whether the run can train on this dataset: vocabulary, byte tokens, the separator of masked
 * documents and, if the manifest names a dataset, the held-out share. TW_DATA. */
enum tw_status tw_dataset_check_run(const struct tw_dataset *dataset, const struct tw_run *run,
                                    struct tw_error *err);

/* Sets data.form, sha256, heldout, separator and tokenizer, and model.vocab; *digest is the SHA-256
 * of the index. */
void tw_dataset_set_run(const struct tw_dataset *dataset, const struct tw_id *digest,
                        struct tw_run *run);

#endif
