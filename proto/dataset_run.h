/* dataset_run.h - checks a dataset against a run manifest, and sets the keys of a manifest for a
 * dataset. */
#ifndef TW_PROTO_DATASET_RUN_H
#define TW_PROTO_DATASET_RUN_H

#include "proto/dataset.h"
#include "proto/run/run.h"

/* Returns TW_DATA unless the run can train on this dataset. Compares vocabulary, byte tokens and
 * the separator of masked documents. If the manifest names a dataset, compares the held-out share
 * too. */
enum tw_status tw_dataset_check_run(const struct tw_dataset *dataset, const struct tw_run *run,
                                    struct tw_error *err);

/* Sets data.form, data.sha256, data.heldout, data.separator, data.tokenizer and model.vocab of the
 * run. *digest is the SHA-256 of the index. */
void tw_dataset_set_run(const struct tw_dataset *dataset, const struct tw_id *digest,
                        struct tw_run *run);

#endif
