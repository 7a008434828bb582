/* checkpoint_export.c - the model in the form other programs read. */
#include "daemon/checkpoint_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

struct export {
    const struct tw_file_ops *ops;
    const struct tw_layout *layout;
    const struct tw_checkpoint_arrays *arrays;
    enum tw_checkpoint_kind kind;
    int dir;
    struct tw_safetensors st;
    uint8_t *header, *block;
    size_t header_size;
};

/* Finishes a durable file: commits it if everything before went well. */
static enum tw_status conclude(struct tw_durable *durable, enum tw_status status,
                               struct tw_error *err) {
    if (status == TW_OK) return tw_durable_commit(durable, err);
    tw_durable_abort(durable);
    return status;
}

static enum tw_status write_config(const struct export *export, const struct tw_run *run,
                                   struct tw_error *err) {
    char text[1024];
    struct tw_durable durable;
    const int size = snprintf(text, sizeof(text),
                              "{\n"
                              "  \"architectures\": [\"GPT2LMHeadModel\"],\n"
                              "  \"model_type\": \"gpt2\",\n"
                              "  \"vocab_size\": %u,\n"
                              "  \"n_positions\": %u,\n"
                              "  \"n_ctx\": %u,\n"
                              "  \"n_embd\": %u,\n"
                              "  \"n_layer\": %u,\n"
                              "  \"n_head\": %u,\n"
                              "  \"activation_function\": \"gelu_new\",\n"
                              "  \"layer_norm_epsilon\": 1e-05,\n"
                              "  \"attn_pdrop\": 0.0,\n"
                              "  \"embd_pdrop\": 0.0,\n"
                              "  \"resid_pdrop\": 0.0,\n"
                              "  \"bos_token_id\": null,\n"
                              "  \"eos_token_id\": null,\n"
                              "  \"tie_word_embeddings\": true,\n"
                              "  \"torch_dtype\": \"float32\"\n"
                              "}\n",
                              run->model.vocab, run->model.context, run->model.context,
                              run->model.width, run->model.layers, run->model.heads);
    TW_ASSERT(size > 0 && (size_t)size < sizeof(text));
    TW_TRY(
        tw_durable_begin(&durable, export->ops, export->dir, "config.json", (uint64_t)size, err));
    return conclude(&durable, tw_durable_write(&durable, text, (size_t)size, 0, err), err);
}

static enum tw_status stream_model(const struct export *export, struct tw_durable *durable,
                                   struct tw_error *err) {
    struct stream stream = {.durable = durable, .block = export->block, .err = err};
    TW_TRY(tw_checkpoint_stream_put(&stream, export->header, export->header_size));
    for (uint32_t i = 0; i < export->layout->tensors_count; i++) {
        const struct tw_tensor *tensor = &export->layout->tensors[i];
        const uint8_t *from =
            tw_checkpoint_tensor_at(export->arrays, export->kind, export->layout, tensor);
        TW_TRY(tw_checkpoint_stream_put(&stream, from, (uint64_t)tensor->rows * tensor->cols * 4));
    }
    return tw_checkpoint_stream_flush(&stream);
}

static enum tw_status write_model(struct export *export, struct tw_error *err) {
    struct tw_safetensors *st = &export->st;
    struct tw_durable durable;
    /* "pt" is what loaders of the Python world insist on. */
    st->metadata_count = 1;
    st->metadata[0].key = (struct tw_safetensors_text){"format", 6};
    st->metadata[0].value = (struct tw_safetensors_text){"pt", 2};
    tw_checkpoint_describe(st, export->layout, export->kind, false, false);
    const size_t capacity = tw_safetensors_bound(st);
    export->header = malloc(capacity);
    if (export->header == NULL) return tw_fail(err, TW_NOMEM, "no memory for the export");
    TW_TRY(tw_safetensors_encode(st, export->header, capacity, &export->header_size, err));
    TW_TRY(tw_durable_begin(&durable, export->ops, export->dir, "model.safetensors",
                            export->header_size + export->layout->params * 4, err));
    return conclude(&durable, stream_model(export, &durable, err), err);
}

enum tw_status tw_checkpoint_export(const struct tw_file_ops *ops, const char *dir_path,
                                    const struct tw_run *run, const struct tw_layout *layout,
                                    const struct tw_checkpoint_arrays *arrays,
                                    enum tw_checkpoint_kind kind, struct tw_error *err) {
    TW_ASSERT(arrays->at[kind][0] != NULL && !arrays->is_bf16[kind]);
    struct export export = {.ops = ops, .layout = layout, .arrays = arrays, .kind = kind};
    export.dir = ops->dir_open(ops->ctx, dir_path);
    if (export.dir < 0) {
        return tw_fail(err, TW_IO, "cannot open the folder %s: %s", dir_path,
                       strerror(-export.dir));
    }
    export.block = malloc(BLOCK_BYTES);
    export.st.tensors = calloc(layout->tensors_count + 1, sizeof(*export.st.tensors));
    export.st.tensors_capacity = layout->tensors_count;
    enum tw_status status = TW_OK;
    if (export.block == NULL || export.st.tensors == NULL) {
        status = tw_fail(err, TW_NOMEM, "no memory for the export");
    }
    if (status == TW_OK) status = write_model(&export, err);
    if (status == TW_OK) status = write_config(&export, run, err);
    free(export.header);
    free(export.st.tensors);
    free(export.block);
    (void)ops->close(ops->ctx, export.dir);
    return status;
}
