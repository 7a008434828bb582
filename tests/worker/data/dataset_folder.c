#include "tests/worker/data/dataset_folder.h"

#include "tests/test.h"

#include <dirent.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "proto/dataset.h"

static const char *const NAMES[] = {"prose", "code", "web", "talk"};

static void write_file(const char *folder, const char *name, const void *bytes, size_t size) {
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *const file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static void put_token(uint8_t *to, uint32_t bytes, uint32_t token) {
    if (bytes == 1) to[0] = (uint8_t)token;
    if (bytes == 2) tw_put_u16(to, (uint16_t)token);
    if (bytes == 4) tw_put_u32(to, token);
}

static void write_shard(const char *folder, const struct dataset_plan *plan,
                        const struct tw_dataset *dataset, struct tw_dataset_shard *named) {
    const uint32_t tokens = plan->shard_tokens;
    struct tw_shard shard = {
        .token_bytes = tw_shard_token_bytes(plan->vocab, plan->has_answers),
        .vocab = plan->vocab,
        .separator = plan->separator,
        .tokens_count = tokens,
        .documents_count = (tokens + plan->document_tokens - 1) / plan->document_tokens,
        .tokenizer = plan->tokenizer,
        .source = named->source,
        .number = named->number,
        .is_heldout = named->is_heldout,
        .has_answers = plan->has_answers,
    };
    assert_int_equal(tw_shard_plan(&shard, NULL), TW_OK);
    const size_t size = shard.head_bytes + (size_t)shard.body_bytes;
    uint8_t *const file = calloc(size, 1), *const body = file + shard.head_bytes;
    for (uint32_t i = 0; i < tokens; i++) {
        const uint32_t token = plan->token(named->source, named->is_heldout, named->number, i);
        put_token(body + (size_t)i * shard.token_bytes, shard.token_bytes,
                  plan->has_answers ? 2 * token + i / plan->document_tokens % 2 : token);
    }
    for (uint32_t i = 0; i < shard.documents_count; i++) {
        tw_put_u32(body + shard.documents_begin + 4 * (size_t)i, i * plan->document_tokens);
    }
    struct tw_id *const digests = calloc(shard.pieces_count, sizeof(*digests));
    for (uint32_t i = 0; i < shard.pieces_count; i++) {
        digests[i] =
            tw_sha256(body + (size_t)i * TW_SHARD_PIECE_BYTES, tw_shard_piece_bytes(&shard, i));
    }
    tw_shard_encode(&shard, digests, file);
    named->name = tw_sha256(file, shard.head_bytes);
    named->head_bytes = shard.head_bytes;
    named->file_bytes = size;
    named->tokens_count = tokens;
    named->documents_count = shard.documents_count;
    char name[TW_DATASET_FILE_BYTES];
    tw_dataset_file(dataset, named, name);
    write_file(folder, name, file, size);
    free(digests);
    free(file);
}

struct tw_id dataset_folder_write(const char *folder, const struct dataset_plan *plan) {
    struct tw_dataset *const dataset = calloc(1, sizeof(*dataset));
    const uint32_t each = plan->train_shards + plan->heldout_shards;
    struct tw_error err = {0};
    *dataset = (struct tw_dataset){
        .tokenizer = plan->tokenizer,
        .tokenizer_bytes = tw_id_is_zero(&plan->tokenizer) ? 0 : 2,
        .vocab = plan->vocab,
        .separator = plan->separator,
        .heldout_millionths = plan->heldout_millionths,
        .has_answers = plan->has_answers,
        .sources_count = plan->sources_count,
        .shards_capacity = each * plan->sources_count,
        .shards = calloc((size_t)each * plan->sources_count, sizeof(*dataset->shards)),
    };
    for (uint32_t s = 0; s < plan->sources_count; s++) {
        (void)snprintf(dataset->sources[s].name, TW_DATASET_NAME_BYTES, "%s", NAMES[s]);
        dataset->sources[s].weight_millionths = plan->weights_millionths[s];
        for (uint32_t i = 0; i < each; i++) {
            const bool is_heldout = i >= plan->train_shards;
            dataset->shards[dataset->shards_count] =
                (struct tw_dataset_shard){.source = s,
                                          .number = is_heldout ? i - plan->train_shards : i,
                                          .is_heldout = is_heldout};
            write_shard(folder, plan, dataset, &dataset->shards[dataset->shards_count++]);
        }
    }
    static char text[1 << 16];
    size_t size = 0;
    if (tw_dataset_encode(dataset, text, sizeof(text), &size, &err) != TW_OK) {
        fail_msg("%s", err.message);
    }
    write_file(folder, TW_DATASET_INDEX_FILE, text, size);
    free(dataset->shards);
    free(dataset);
    return tw_sha256(text, size);
}

void dataset_folder_remove(const char *folder) {
    DIR *const dir = opendir(folder);
    if (dir == NULL) return;
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        char path[1024];
        (void)snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] != '.') (void)unlink(path);
    }
    (void)closedir(dir);
    (void)rmdir(folder);
}
