#include "proto/dataset_run.h"

#include "proto/shard.h"

enum { BYTES_VOCAB = 256 };

static enum tw_status check_tokens(const struct tw_dataset *dataset, const struct tw_run *run,
                                   struct tw_error *err) {
    if (run->data.tokenizer == TW_TOKENIZER_BYTES && !tw_id_is_zero(&dataset->tokenizer)) {
        return tw_fail(err, TW_DATA,
                       "its tokens are those of a tokenizer.json, and data.tokenizer of the run is "
                       "bytes: prepare it with --tokenizer bytes, or make another run");
    }
    const bool is_bytes = tw_id_is_zero(&dataset->tokenizer) && dataset->vocab <= BYTES_VOCAB;
    if (run->data.tokenizer == TW_TOKENIZER_IDS && is_bytes && run->model.vocab > BYTES_VOCAB) {
        return tw_fail(
            err, TW_DATA,
            "its tokens are bytes, and data.tokenizer of the run is ids: prepare it with "
            "the tokenizer of this model");
    }
    if (dataset->vocab > run->model.vocab) {
        return tw_fail(err, TW_DATA,
                       "its tokens go up to %u, and model.vocab of the run is %u: prepare it with "
                       "the tokenizer of this model, or make a run with a larger vocabulary",
                       dataset->vocab - 1, run->model.vocab);
    }
    return TW_OK;
}

enum tw_status tw_dataset_check_run(const struct tw_dataset *dataset, const struct tw_run *run,
                                    struct tw_error *err) {
    TW_TRY(check_tokens(dataset, run, err));
    if (run->data.documents == TW_DOCUMENTS_MASKED &&
        dataset->separator != (int64_t)run->data.separator) {
        return tw_fail(err, TW_DATA,
                       dataset->separator == TW_SHARD_NO_SEPARATOR
                           ? "its documents begin with no separator, and the run masks by "
                             "token %u: set data.documents = joined"
                           : "its documents begin with another token than %u, by which the run "
                             "masks: data.separator must be the dataset's",
                       run->data.separator);
    }
    if (run->data.form == TW_FORM_DATASET &&
        dataset->heldout_millionths != run->data.heldout_millionths) {
        return tw_fail(err, TW_DATA,
                       "it holds out a share of %.6g, and data.heldout of the run is %.6g: they "
                       "must be equal",
                       dataset->heldout_millionths / 1e6, run->data.heldout_millionths / 1e6);
    }
    return TW_OK;
}

void tw_dataset_set_run(const struct tw_dataset *dataset, const struct tw_id *digest,
                        struct tw_run *run) {
    const bool is_bytes = tw_id_is_zero(&dataset->tokenizer) && dataset->vocab <= BYTES_VOCAB;
    run->data.form = TW_FORM_DATASET;
    run->data.sha256 = *digest;
    run->data.heldout_millionths = dataset->heldout_millionths;
    run->data.separator = dataset->separator < 0 ? 0 : (uint32_t)dataset->separator;
    run->data.tokenizer = is_bytes ? TW_TOKENIZER_BYTES : TW_TOKENIZER_IDS;
    run->model.vocab = is_bytes ? BYTES_VOCAB : dataset->vocab;
}
