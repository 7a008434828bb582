#include "worker/data/prepare/prepare_shards.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "proto/shard.h"
#include "worker/data/prepare/prepare.h"
#include "worker/data/whole_file.h"
#include "worker/support/out_file.h"

enum { PENDING_NAME_BYTES = TW_DATASET_FILE_BYTES + 16 };

static struct tw_filling *side(struct tw_prepare_shards *shards, bool is_heldout) {
    return is_heldout ? &shards->heldout : &shards->train;
}

void tw_prepare_shards_init(struct tw_prepare_shards *shards, const char *out,
                            const struct tw_dataset *dataset, uint32_t shard_tokens) {
    memset(shards, 0, sizeof(*shards));
    shards->out = out;
    shards->dataset = *dataset;
    shards->dataset.shards = NULL;
    shards->dataset.shards_count = shards->dataset.shards_capacity = 0;
    shards->token_bytes = tw_shard_token_bytes(dataset->vocab);
    shards->train.tokens_max = shard_tokens;
    const uint32_t part = shard_tokens / TW_PREPARE_HELDOUT_PARTS;
    const uint32_t least =
        shard_tokens < TW_PREPARE_HELDOUT_TOKENS_MIN ? shard_tokens : TW_PREPARE_HELDOUT_TOKENS_MIN;
    shards->heldout.tokens_max = part < least ? least : part;
}

void tw_prepare_shards_deinit(struct tw_prepare_shards *shards) {
    free(shards->train.tokens);
    free(shards->train.documents);
    free(shards->heldout.tokens);
    free(shards->heldout.documents);
    free(shards->dataset.shards);
    memset(shards, 0, sizeof(*shards));
}

/* ---- filling --------------------------------------------------------------------------------- */

bool tw_prepare_shards_has_room(const struct tw_prepare_shards *shards, bool is_heldout,
                                uint32_t tokens_count) {
    const struct tw_filling *const filling = is_heldout ? &shards->heldout : &shards->train;
    return filling->documents_count == 0 ||
           filling->tokens_count + tokens_count <= filling->tokens_max;
}

static enum tw_status reserve(struct tw_filling *filling, size_t bytes, struct tw_error *err) {
    if (filling->capacity_bytes < bytes) {
        size_t capacity = filling->capacity_bytes == 0 ? 1 << 20 : filling->capacity_bytes;
        while (capacity < bytes) capacity *= 2;
        uint8_t *const more = realloc(filling->tokens, capacity);
        if (more == NULL)
            return tw_fail(err, TW_NOMEM, "no memory for a shard of %zu bytes", bytes);
        filling->tokens = more;
        filling->capacity_bytes = capacity;
    }
    if (filling->documents_count == filling->documents_capacity) {
        const size_t capacity =
            filling->documents_capacity == 0 ? 1024 : 2 * filling->documents_capacity;
        uint32_t *const more = realloc(filling->documents, capacity * sizeof(*more));
        if (more == NULL) return tw_fail(err, TW_NOMEM, "no memory for %zu documents", capacity);
        filling->documents = more;
        filling->documents_capacity = capacity;
    }
    return TW_OK;
}

static void put_tokens(uint8_t *to, const uint32_t *tokens, uint32_t count, uint32_t token_bytes) {
    for (uint32_t i = 0; i < count; i++) {
        if (token_bytes == 1) to[i] = (uint8_t)tokens[i];
        if (token_bytes == 2) tw_put_u16(to + 2 * (size_t)i, (uint16_t)tokens[i]);
        if (token_bytes == 4) tw_put_u32(to + 4 * (size_t)i, tokens[i]);
    }
}

enum tw_status tw_prepare_shards_add(struct tw_prepare_shards *shards, bool is_heldout,
                                     const uint32_t *tokens, uint32_t tokens_count,
                                     struct tw_error *err) {
    struct tw_filling *const filling = side(shards, is_heldout);
    const size_t begin = filling->tokens_count * shards->token_bytes;
    TW_TRY(reserve(filling, begin + (size_t)tokens_count * shards->token_bytes, err));
    put_tokens(filling->tokens + begin, tokens, tokens_count, shards->token_bytes);
    filling->documents[filling->documents_count++] = (uint32_t)filling->tokens_count;
    filling->tokens_count += tokens_count;
    return TW_OK;
}

/* ---- closing --------------------------------------------------------------------------------- */

/* Completes the body in filling->tokens: appends padding and the table of documents. */
static enum tw_status finish_body(struct tw_filling *filling, const struct tw_shard *shard,
                                  struct tw_error *err) {
    const size_t tokens_end = filling->tokens_count * shard->token_bytes;
    TW_TRY(reserve(filling, (size_t)shard->body_bytes, err));
    memset(filling->tokens + tokens_end, 0, (size_t)shard->documents_begin - tokens_end);
    for (size_t i = 0; i < filling->documents_count; i++) {
        tw_put_u32(filling->tokens + shard->documents_begin + 4 * i, filling->documents[i]);
    }
    return TW_OK;
}

static enum tw_status make_head(const struct tw_filling *filling, const struct tw_shard *shard,
                                uint8_t **head, struct tw_error *err) {
    struct tw_id *const digests = malloc(shard->pieces_count * sizeof(*digests));
    *head = malloc(shard->head_bytes);
    if (digests == NULL || *head == NULL) {
        free(digests);
        return tw_fail(err, TW_NOMEM, "no memory for the head of a shard");
    }
    for (uint32_t i = 0; i < shard->pieces_count; i++) {
        digests[i] = tw_sha256(filling->tokens + (size_t)i * TW_SHARD_PIECE_BYTES,
                               tw_shard_piece_bytes(shard, i));
    }
    tw_shard_encode(shard, digests, *head);
    free(digests);
    return TW_OK;
}

static enum tw_status list_shard(struct tw_dataset *dataset, const struct tw_dataset_shard *shard,
                                 struct tw_error *err) {
    if (dataset->shards_count == TW_DATASET_SHARDS_MAX) {
        return tw_fail(err, TW_LIMIT, "more than %d shards; make larger ones with --shard-tokens",
                       TW_DATASET_SHARDS_MAX);
    }
    if (dataset->shards_count == dataset->shards_capacity) {
        const uint32_t capacity = dataset->shards_capacity == 0 ? 64 : 2 * dataset->shards_capacity;
        void *const more = realloc(dataset->shards, capacity * sizeof(*dataset->shards));
        if (more == NULL) return tw_fail(err, TW_NOMEM, "no memory for %u shards", capacity);
        dataset->shards = more;
        dataset->shards_capacity = capacity;
    }
    dataset->shards[dataset->shards_count++] = *shard;
    return TW_OK;
}

static enum tw_status write_shard(struct tw_prepare_shards *shards, struct tw_filling *filling,
                                  const struct tw_shard *shard, struct tw_error *err) {
    char name[TW_DATASET_FILE_BYTES];
    uint8_t *head = NULL;
    enum tw_status status = finish_body(filling, shard, err);
    if (status == TW_OK) status = make_head(filling, shard, &head, err);
    if (status == TW_OK) {
        const struct tw_dataset_shard entry = {.name = tw_sha256(head, shard->head_bytes),
                                               .source = shard->source,
                                               .number = shard->number,
                                               .is_heldout = shard->is_heldout,
                                               .head_bytes = shard->head_bytes,
                                               .file_bytes = shard->head_bytes + shard->body_bytes,
                                               .tokens_count = shard->tokens_count,
                                               .documents_count = shard->documents_count};
        const struct tw_range parts[] = {{head, shard->head_bytes},
                                         {filling->tokens, (size_t)shard->body_bytes}};
        tw_dataset_file(&shards->dataset, &entry, name);
        status = tw_whole_file_write(shards->out, name, parts, 2, err);
        if (status == TW_OK) status = list_shard(&shards->dataset, &entry, err);
    }
    free(head);
    return status;
}

enum tw_status tw_prepare_shards_close(struct tw_prepare_shards *shards, bool is_heldout,
                                       struct tw_error *err) {
    struct tw_filling *const filling = side(shards, is_heldout);
    if (filling->documents_count == 0) return TW_OK;
    struct tw_shard shard = {.token_bytes = shards->token_bytes,
                             .vocab = shards->dataset.vocab,
                             .separator = shards->dataset.separator,
                             .tokens_count = filling->tokens_count,
                             .documents_count = filling->documents_count,
                             .tokenizer = shards->dataset.tokenizer,
                             .is_heldout = is_heldout,
                             .source = shards->source,
                             .number = filling->number};
    TW_TRY(tw_shard_plan(&shard, err));
    TW_TRY(write_shard(shards, filling, &shard, err));
    filling->number++;
    filling->tokens_count = filling->documents_count = 0;
    if (is_heldout) memset(&shards->pending, 0, sizeof(shards->pending));
    return TW_OK;
}

static int by_place(const void *a, const void *b) {
    const struct tw_dataset_shard *const x = a, *const y = b;
    if (x->source != y->source) return x->source < y->source ? -1 : 1;
    if (x->is_heldout != y->is_heldout) return x->is_heldout ? 1 : -1;
    return x->number < y->number ? -1 : x->number > y->number;
}

void tw_prepare_shards_sort(struct tw_dataset *dataset) {
    if (dataset->shards_count == 0) return;
    qsort(dataset->shards, dataset->shards_count, sizeof(*dataset->shards), by_place);
}

/* ---- pending held-out documents ----------------------------------------------------------------
 */

/* Sets path to the path of the pending file, which has the shard's name and another ending. */
static void pending_path(const struct tw_prepare_shards *shards, uint32_t number,
                         char path[TW_OUT_PATH_BYTES + PENDING_NAME_BYTES]) {
    const struct tw_dataset_shard shard = {
        .source = shards->source, .number = number, .is_heldout = true};
    char name[TW_DATASET_FILE_BYTES];
    tw_dataset_file(&shards->dataset, &shard, name);
    (void)snprintf(path, TW_OUT_PATH_BYTES + PENDING_NAME_BYTES, "%s/%s.pending", shards->out,
                   name);
}

static uint64_t pending_checksum(const struct tw_prepare_shards *shards) {
    const struct tw_filling *const filling = &shards->heldout;
    const struct tw_range ranges[] = {
        {filling->tokens, filling->tokens_count * shards->token_bytes},
        {filling->documents, filling->documents_count * sizeof(*filling->documents)}};
    return tw_xxh64_ranges(ranges, 2);
}

static size_t document_tokens(const struct tw_filling *filling, size_t i) {
    const size_t end =
        i + 1 < filling->documents_count ? filling->documents[i + 1] : filling->tokens_count;
    return end - filling->documents[i];
}

/* Appends the documents that are not on disk yet. Each is a u32 token count and the tokens. */
static enum tw_status append_pending(const struct tw_prepare_shards *shards, FILE *file,
                                     uint64_t *bytes) {
    const struct tw_filling *const filling = &shards->heldout;
    for (size_t i = (size_t)shards->pending.documents; i < filling->documents_count; i++) {
        uint8_t count[4];
        const size_t tokens_bytes = document_tokens(filling, i) * shards->token_bytes;
        const uint8_t *const tokens =
            filling->tokens + (size_t)filling->documents[i] * shards->token_bytes;
        tw_put_u32(count, (uint32_t)document_tokens(filling, i));
        if (fwrite(count, 1, sizeof(count), file) < sizeof(count) ||
            fwrite(tokens, 1, tokens_bytes, file) < tokens_bytes) {
            return TW_IO;
        }
        *bytes += sizeof(count) + tokens_bytes;
    }
    return TW_OK;
}

enum tw_status tw_prepare_pending_save(struct tw_prepare_shards *shards, struct tw_error *err) {
    struct tw_pending *const pending = &shards->pending;
    char path[TW_OUT_PATH_BYTES + PENDING_NAME_BYTES];
    if (pending->documents == shards->heldout.documents_count) return TW_OK;
    pending_path(shards, shards->heldout.number, path);
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    FILE *const file = fd >= 0 ? fdopen(fd, "wb") : NULL;
    uint64_t bytes = pending->bytes;
    /* Remove bytes of an earlier save that was interrupted. */
    bool is_good = file != NULL && ftruncate(fd, (off_t)bytes) == 0 &&
                   fseeko(file, (off_t)bytes, SEEK_SET) == 0 &&
                   append_pending(shards, file, &bytes) == TW_OK && fflush(file) == 0 &&
                   fsync(fd) == 0 && (pending->bytes > 0 || tw_out_sync_folder(path));
    const int why = errno;
    if (file != NULL && fclose(file) != 0) is_good = false;
    if (file == NULL && fd >= 0) (void)close(fd);
    if (!is_good) return tw_fail(err, TW_IO, "%s: %s", path, strerror(why));
    *pending = (struct tw_pending){.documents = shards->heldout.documents_count,
                                   .bytes = bytes,
                                   .checksum = pending_checksum(shards)};
    return TW_OK;
}

void tw_prepare_pending_forget(struct tw_prepare_shards *shards) {
    char path[TW_OUT_PATH_BYTES + PENDING_NAME_BYTES];
    for (; shards->pending_oldest < shards->heldout.number; shards->pending_oldest++) {
        pending_path(shards, shards->pending_oldest, path);
        (void)unlink(path); /* missing is fine */
    }
}

void tw_prepare_shards_next_source(struct tw_prepare_shards *shards, uint32_t source) {
    TW_ASSERT(shards->train.documents_count == 0);
    TW_ASSERT(shards->heldout.documents_count == 0);
    shards->source = source;
    shards->train.number = shards->heldout.number = shards->pending_oldest = 0;
}

static enum tw_status damaged(const char *path, struct tw_error *err) {
    return tw_fail(err, TW_CORRUPT, "%s is damaged; start over with --restart", path);
}

/* Parses a pending file. Its size already matches the state; its content is untrusted. */
static enum tw_status parse_pending(struct tw_prepare_shards *shards, const uint8_t *bytes,
                                    size_t size, const char *path, struct tw_error *err) {
    struct tw_filling *const filling = &shards->heldout;
    for (size_t at = 0; at < size;) {
        if (size - at < 4) return damaged(path, err);
        const uint32_t count = tw_get_u32(bytes + at);
        const uint64_t tokens_bytes = (uint64_t)count * shards->token_bytes;
        at += 4;
        if (tokens_bytes > size - at) return damaged(path, err);
        const size_t begin = filling->tokens_count * shards->token_bytes;
        TW_TRY(reserve(filling, begin + (size_t)tokens_bytes, err));
        memcpy(filling->tokens + begin, bytes + at, (size_t)tokens_bytes);
        filling->documents[filling->documents_count++] = (uint32_t)filling->tokens_count;
        filling->tokens_count += count;
        at += (size_t)tokens_bytes;
    }
    return TW_OK;
}

static enum tw_status load_pending(struct tw_prepare_shards *shards, struct tw_pending pending,
                                   struct tw_error *err) {
    char path[TW_OUT_PATH_BYTES + PENDING_NAME_BYTES], *bytes;
    size_t size = 0;
    if (pending.documents == 0) return TW_OK;
    pending_path(shards, shards->heldout.number, path);
    if (access(path, F_OK) != 0) return damaged(path, err);
    enum tw_status status = tw_in_read_whole(path, (size_t)1 << 32, &bytes, &size, err);
    if (status == TW_OK && size < pending.bytes) status = damaged(path, err);
    if (status == TW_OK) {
        status = parse_pending(shards, (const uint8_t *)bytes, (size_t)pending.bytes, path, err);
    }
    free(bytes);
    if (status == TW_OK && (shards->heldout.documents_count != pending.documents ||
                            pending_checksum(shards) != pending.checksum)) {
        status = damaged(path, err);
    }
    if (status == TW_OK) shards->pending = pending;
    return status;
}

enum tw_status tw_prepare_shards_resume(struct tw_prepare_shards *shards,
                                        const struct tw_dataset *dataset, uint32_t source,
                                        struct tw_pending pending, struct tw_error *err) {
    shards->source = source;
    for (uint32_t i = 0; i < dataset->shards_count; i++) {
        const struct tw_dataset_shard *const shard = &dataset->shards[i];
        TW_TRY(list_shard(&shards->dataset, shard, err));
        if (shard->source == source) side(shards, shard->is_heldout)->number = shard->number + 1;
    }
    return load_pending(shards, pending, err);
}
