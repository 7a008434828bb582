#include "worker/data/prepare/prepare_shards.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "kernels/ops.h"
#include "proto/dataset.h"
#include "worker/support/out_file.h"

/* ---- small files ----------------------------------------------------------------------------- */

enum tw_status tw_whole_file_write(const char *folder, const char *name,
                                   const struct tw_range *parts, size_t count,
                                   struct tw_error *err) {
    char path[TW_OUT_PATH_BYTES + 1];
    struct tw_out_file file;
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    TW_TRY(tw_out_hold(&file, path, err));
    enum tw_status status = TW_OK;
    for (size_t i = 0; i < count && status == TW_OK; i++) {
        status = tw_out_write(&file, parts[i].bytes, parts[i].size, err);
    }
    if (status == TW_OK) status = tw_out_save(&file, err);
    tw_out_abort(&file);
    return status;
}

/* ---- state ----------------------------------------------------------------------------------- */

enum { HEAD_BYTES_MAX = 2048, SUM_BYTES = 4 + 16 + 1 };
static const char magic[] = "thinwire-prepare ";

/* Number of counters in struct tw_prepare_counts, which is copied as an array. */
enum { COUNTS = sizeof(struct tw_prepare_counts) / sizeof(uint64_t) };
_Static_assert(COUNTS * sizeof(uint64_t) == sizeof(struct tw_prepare_counts), "numbers alone");

/* ---- encode ---------------------------------------------------------------------------------- */

static size_t put_head(const struct tw_prepare_state *state, char text[HEAD_BYTES_MAX]) {
    char options[TW_ID_HEX_BYTES], inputs[TW_ID_HEX_BYTES];
    uint64_t counts[COUNTS];
    tw_id_hex(&state->options, options);
    tw_id_hex(&state->inputs, inputs);
    memcpy(counts, &state->counts, sizeof(counts));
    int used =
        snprintf(text, HEAD_BYTES_MAX,
                 "%s3\noptions %s\ninputs %s\nnext %" PRIu64 " %" PRIu64 " %" PRIu64 "\ncounts",
                 magic, options, inputs, state->next.file, state->next.at, state->line);
    for (unsigned i = 0; i < COUNTS; i++) {
        used += snprintf(text + used, HEAD_BYTES_MAX - (size_t)used, " %" PRIu64, counts[i]);
    }
    used += snprintf(text + used, HEAD_BYTES_MAX - (size_t)used,
                     "\npending %" PRIu64 " %" PRIu64 " %016" PRIx64 "\nfirst %s\ndone %d\n",
                     state->pending.documents, state->pending.bytes, state->pending.checksum,
                     state->first_bad, state->is_done);
    return (size_t)used;
}

enum tw_status tw_prepare_state_encode(const struct tw_prepare_state *state, char **text,
                                       size_t *size, struct tw_error *err) {
    /* The line of a shard has at most 200 bytes, the line of a source at most 60. */
    const size_t index_bytes =
        512 + 200 * (size_t)state->dataset.shards_count + 60 * (size_t)state->dataset.sources_count;
    *text = malloc(HEAD_BYTES_MAX + index_bytes + SUM_BYTES + 1);
    if (*text == NULL) return tw_fail(err, TW_NOMEM, "no memory for the state");
    const size_t head = put_head(state, *text);
    size_t index = 0;
    const enum tw_status status =
        tw_dataset_encode(&state->dataset, *text + head, index_bytes, &index, err);
    if (status != TW_OK) {
        free(*text);
        *text = NULL;
        return status;
    }
    *size = head + index;
    (void)snprintf(*text + *size, SUM_BYTES + 1, "sum %016" PRIx64 "\n", tw_xxh64(*text, *size));
    *size += SUM_BYTES;
    return TW_OK;
}

/* ---- decode ---------------------------------------------------------------------------------- */

struct reader {
    const char *at, *end;
    bool is_bad;
};

static void take_text(struct reader *reader, const char *text) {
    const size_t length = strlen(text);
    if (reader->is_bad || (size_t)(reader->end - reader->at) < length ||
        memcmp(reader->at, text, length) != 0) {
        reader->is_bad = true;
        return;
    }
    reader->at += length;
}

static uint64_t take_number(struct reader *reader, const char *before, unsigned base) {
    take_text(reader, before);
    uint64_t value = 0;
    const char *const begin = reader->at;
    while (!reader->is_bad && reader->at < reader->end && reader->at - begin < 20) {
        const char c = *reader->at;
        const unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                               : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                                                      : 16;
        if (digit >= base) break;
        value = value * base + digit;
        reader->at++;
    }
    if (reader->at == begin) reader->is_bad = true;
    return value;
}

static void take_id(struct reader *reader, const char *before, struct tw_id *id) {
    char hex[TW_ID_HEX_BYTES] = {0};
    take_text(reader, before);
    if (reader->is_bad || reader->end - reader->at < TW_ID_HEX_BYTES - 1) {
        reader->is_bad = true;
        return;
    }
    memcpy(hex, reader->at, TW_ID_HEX_BYTES - 1);
    reader->at += TW_ID_HEX_BYTES - 1;
    if (!tw_id_parse(hex, id)) reader->is_bad = true;
}

static void take_sentence(struct reader *reader, char *sentence, size_t room) {
    take_text(reader, "\nfirst ");
    if (reader->is_bad) return;
    const char *const end = memchr(reader->at, '\n', (size_t)(reader->end - reader->at));
    if (end == NULL || (size_t)(end - reader->at) >= room) {
        reader->is_bad = true;
        return;
    }
    memcpy(sentence, reader->at, (size_t)(end - reader->at));
    sentence[end - reader->at] = 0;
    reader->at = end;
}

static void take_head(struct reader *reader, struct tw_prepare_state *state) {
    uint64_t counts[COUNTS];
    take_id(reader, "\noptions ", &state->options);
    take_id(reader, "\ninputs ", &state->inputs);
    state->next.file = take_number(reader, "\nnext ", 10);
    state->next.at = take_number(reader, " ", 10);
    state->line = take_number(reader, " ", 10);
    take_text(reader, "\ncounts");
    for (unsigned i = 0; i < COUNTS; i++) counts[i] = take_number(reader, " ", 10);
    memcpy(&state->counts, counts, sizeof(counts));
    state->pending.documents = take_number(reader, "\npending ", 10);
    state->pending.bytes = take_number(reader, " ", 10);
    state->pending.checksum = take_number(reader, " ", 16);
    take_sentence(reader, state->first_bad, sizeof(state->first_bad));
    state->is_done = take_number(reader, "\ndone ", 2) == 1;
    take_text(reader, "\n");
}

enum tw_status tw_prepare_state_decode(const char *text, size_t size,
                                       struct tw_prepare_state *state, struct tw_error *err) {
    struct reader reader = {.at = text, .end = text + size};
    memset(state, 0, sizeof(*state));
    take_text(&reader, magic);
    if (!reader.is_bad && (reader.at == reader.end || *reader.at != '3')) {
        return tw_fail(err, TW_VERSION, "the state of another version of Thinwire");
    }
    char sum[SUM_BYTES + 1];
    bool is_good = !reader.is_bad && size > SUM_BYTES;
    if (is_good) {
        (void)snprintf(sum, sizeof(sum), "sum %016" PRIx64 "\n", tw_xxh64(text, size - SUM_BYTES));
        reader.end -= SUM_BYTES;
        is_good = memcmp(reader.end, sum, SUM_BYTES) == 0;
    }
    if (is_good) {
        reader.at++;
        take_head(&reader, state);
        is_good = !reader.is_bad;
    }
    if (!is_good) return tw_fail(err, TW_CORRUPT, "it is damaged");
    const size_t left = (size_t)(reader.end - reader.at);
    const uint32_t capacity = tw_dataset_lines(reader.at, left);
    struct tw_dataset_shard *const shards = malloc((capacity + 1) * sizeof(*shards));
    if (shards == NULL) return tw_fail(err, TW_NOMEM, "no memory for %u shards", capacity);
    const enum tw_status status =
        tw_dataset_decode(reader.at, left, shards, capacity, &state->dataset, err);
    if (status != TW_OK) {
        free(shards);
        state->dataset.shards = NULL;
    }
    return status;
}

/* ---- shards ---------------------------------------------------------------------------------- */

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
    shards->token_bytes = tw_shard_token_bytes(dataset->vocab, dataset->has_answers);
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

/* Whether a document of this many tokens fits the open training or held-out shard. */
static bool shards_has_room(const struct tw_prepare_shards *shards, bool is_heldout,
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

static void put_tokens(const struct tw_prepare_shards *shards, uint8_t *to, const uint32_t *tokens,
                       uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t token = tokens[i] & ~TW_TOKEN_UNSCORED;
        const uint32_t number =
            !shards->dataset.has_answers ? token : 2 * token + (token == tokens[i] ? 1 : 0);
        if (shards->token_bytes == 1) to[i] = (uint8_t)number;
        if (shards->token_bytes == 2) tw_put_u16(to + 2 * (size_t)i, (uint16_t)number);
        if (shards->token_bytes == 4) tw_put_u32(to + 4 * (size_t)i, number);
    }
}

/* Appends a document to the open training or held-out shard. Fails with TW_NOMEM. */
static enum tw_status shards_add(struct tw_prepare_shards *shards, bool is_heldout,
                                 const uint32_t *tokens, uint32_t tokens_count,
                                 struct tw_error *err) {
    struct tw_filling *const filling = side(shards, is_heldout);
    const size_t begin = filling->tokens_count * shards->token_bytes;
    TW_TRY(reserve(filling, begin + (size_t)tokens_count * shards->token_bytes, err));
    put_tokens(shards, filling->tokens + begin, tokens, tokens_count);
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

/* Writes the open training or held-out shard, if it has documents. Call shards_sort
 * afterwards to restore the order of the index. Fails with TW_IO, TW_NOMEM or TW_LIMIT. */
static enum tw_status shards_close(struct tw_prepare_shards *shards, bool is_heldout,
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
                             .has_answers = shards->dataset.has_answers,
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

/* Sorts shards into the order of an index: by source, and training before held-out. */
static void shards_sort(struct tw_dataset *dataset) {
    if (dataset->shards_count == 0) return;
    qsort(dataset->shards, dataset->shards_count, sizeof(*dataset->shards), by_place);
}

/* ---- pending held-out documents -------------------------------------------------------------- */

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

/* save: makes the open held-out documents durable and sets shards->pending to the values that the
 * state records. forget: removes older pending files; call it once the state that refers to them is
 * replaced. */
static enum tw_status pending_save(struct tw_prepare_shards *shards, struct tw_error *err) {
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

static void pending_forget(struct tw_prepare_shards *shards) {
    char path[TW_OUT_PATH_BYTES + PENDING_NAME_BYTES];
    for (; shards->pending_oldest < shards->heldout.number; shards->pending_oldest++) {
        pending_path(shards, shards->pending_oldest, path);
        (void)unlink(path); /* missing is fine */
    }
}

/* Starts the next source. Both shards must be closed. */
static void shards_next_source(struct tw_prepare_shards *shards, uint32_t source) {
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

/* ---- writing --------------------------------------------------------------------------------- */

enum { PLACE_BYTES = 160 };

void tw_prepare_writer_begin(struct tw_prepare_writer *writer) {
    const uint64_t file = writer->state.next.file;
    writer->before_bytes = 0;
    for (uint64_t i = 0; i < file; i++) writer->before_bytes += writer->inputs->files[i].bytes;
    /* offset in the file's text; a compressed file is shorter than its text */
    const uint64_t at = writer->state.next.at;
    const uint64_t bytes = file < writer->inputs->count ? writer->inputs->files[file].bytes : 0;
    writer->taken_bytes = writer->before_bytes + (at < bytes ? at : bytes);
    writer->is_end = false;
}

/* ---- the state ------------------------------------------------------------------------------- */

/* All files that the new state refers to are durable before the new state is written. Files that
 * only the old state referred to are removed after that. */
enum tw_status tw_prepare_save(struct tw_prepare_writer *writer, struct tw_error *err) {
    char *text;
    size_t size;
    TW_TRY(pending_save(&writer->shards, err));
    shards_sort(&writer->shards.dataset);
    writer->state.pending = writer->shards.pending;
    writer->state.dataset = writer->shards.dataset;
    TW_TRY(tw_prepare_state_encode(&writer->state, &text, &size, err));
    const enum tw_status status = tw_whole_file_write(writer->options->out, TW_PREPARE_STATE_FILE,
                                                      &(struct tw_range){text, size}, 1, err);
    free(text);
    if (status == TW_OK) pending_forget(&writer->shards);
    return status;
}

/* ---- sources --------------------------------------------------------------------------------- */

static enum tw_status fail_empty(const struct tw_prepare_writer *writer, const char *name,
                                 struct tw_error *err) {
    if (writer->binary == NULL)
        return tw_fail(err, TW_DATA, "the source %s has no text: its files are empty or blank",
                       name);
    return tw_fail(err, TW_DATA,
                   "the source %.16s has no text: %.60s%s binary. Token numbers need no dataset: "
                   "`thinwire run new NAME --data FILE --set data.tokenizer=ids --set "
                   "model.vocab=N`",
                   name, tw_prepare_shown_path(writer->binary),
                   writer->binary_files > 1 ? " and others are" : " is");
}

static enum tw_status check_source(const struct tw_prepare_writer *writer, struct tw_error *err) {
    const struct tw_dataset *const dataset = &writer->shards.dataset;
    const char *const name = dataset->sources[writer->shards.source].name;
    bool has_train = false, has_heldout = dataset->heldout_millionths == 0;
    for (uint32_t i = 0; i < dataset->shards_count; i++) {
        if (dataset->shards[i].source != writer->shards.source) continue;
        if (dataset->shards[i].is_heldout) has_heldout = true;
        if (!dataset->shards[i].is_heldout) has_train = true;
    }
    if (has_train && has_heldout) return TW_OK;
    if (!has_train && !has_heldout) return fail_empty(writer, name, err);
    return tw_fail(
        err, TW_DATA,
        "none of the documents of the source %s is %s: they are too few, or copies of one another; "
        "give more text, cut it into shorter documents (--text lines), or choose another "
        "--heldout, "
        "with --restart",
        name, has_train ? "held out to measure the loss" : "left for training");
}

static enum tw_status end_source(struct tw_prepare_writer *writer, struct tw_error *err) {
    TW_TRY(shards_close(&writer->shards, false, err));
    TW_TRY(shards_close(&writer->shards, true, err));
    TW_TRY(check_source(writer, err));
    writer->binary = NULL;
    writer->binary_files = 0;
    return tw_prepare_save(writer, err);
}

/* ---- documents ------------------------------------------------------------------------------- */

/* Keeps the message about the first skipped input. A path may contain control characters, but a
 * line of the state must not. */
static void keep_first_bad(struct tw_prepare_state *state, const char *sentence) {
    (void)snprintf(state->first_bad, sizeof(state->first_bad), "%s", sentence);
    for (char *at = state->first_bad; *at != 0; at++) {
        if ((unsigned char)*at < ' ') *at = '?';
    }
}

/* Describes where the document is, so that a person finds it, for example "a.jsonl:7". */
static void place_of(const struct tw_prepare_writer *writer, const struct tw_block *block,
                     uint32_t i, char place[PLACE_BYTES]) {
    const struct tw_block_document *const document = &block->documents[i];
    const char *const path = tw_prepare_shown_path(writer->inputs->files[block->file].path);
    const uint64_t line = writer->state.line + document->lines_before;
    if (block->kind == TW_INPUT_TAR) {
        (void)snprintf(place, PLACE_BYTES, "%s", path);
    } else if (block->kind == TW_INPUT_ARRAY || block->kind == TW_INPUT_OBJECTS) {
        (void)snprintf(place, PLACE_BYTES, "%s:%" PRIu64 ", record at byte %" PRIu64, path, line,
                       block->at + document->begin);
    } else {
        (void)snprintf(place, PLACE_BYTES, "%s:%" PRIu64, path, line);
    }
}

static enum tw_status take_bad(struct tw_prepare_writer *writer, const struct tw_block *block,
                               uint32_t i, struct tw_error *err) {
    if (i == block->bad_document && (!writer->options->skip_bad || writer->state.counts.bad == 0)) {
        char place[PLACE_BYTES];
        struct tw_error bad;
        place_of(writer, block, i, place);
        (void)tw_fail(&bad, TW_DATA, "%s: %s", place, block->bad.message);
        if (!writer->options->skip_bad) {
            writer->can_skip = true;
            if (err != NULL) *err = bad;
            return TW_DATA;
        }
        keep_first_bad(&writer->state, bad.message);
    }
    writer->state.counts.bad++;
    return TW_OK;
}

static enum tw_status take_document(struct tw_prepare_writer *writer, const struct tw_block *block,
                                    const struct tw_block_document *document,
                                    struct tw_error *err) {
    struct tw_prepare_counts *const counts = &writer->state.counts;
    const bool is_heldout = document->fate == TW_DOCUMENT_HELDOUT;
    if (!shards_has_room(&writer->shards, is_heldout, document->tokens_count)) {
        TW_TRY(shards_close(&writer->shards, is_heldout, err));
        if (!is_heldout) TW_TRY(tw_prepare_save(writer, err));
    }
    TW_TRY(shards_add(&writer->shards, is_heldout, block->tokens.tokens + document->tokens_begin,
                      document->tokens_count, err));
    counts->documents++;
    counts->tokens += document->tokens_count;
    counts->text_bytes += document->bytes;
    counts->invalid_bytes += document->invalid_bytes;
    counts->lost_bytes += document->lost_bytes;
    counts->names += document->names;
    counts->answer_tokens += document->answer_tokens;
    if (is_heldout) {
        counts->heldout_documents++;
        counts->heldout_tokens += document->tokens_count;
    }
    return TW_OK;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static enum tw_status end_file(struct tw_prepare_writer *writer, const struct tw_block *block,
                               struct tw_error *err) {
    struct tw_prepare_counts *const counts = &writer->state.counts;
    if (block->end == TW_BLOCK_FILE_END) {
        counts->files++;
        counts->kinds[block->kind]++;
    }
    if (block->end == TW_BLOCK_FILE_BINARY) {
        counts->binary_files++;
        if (writer->binary_files++ == 0) writer->binary = writer->inputs->files[block->file].path;
    }
    if (block->end == TW_BLOCK_FILE_EMPTY) counts->empty_files++;
    if (block->end == TW_BLOCK_FILE_BAD) {
        if (!writer->options->skip_bad) {
            writer->can_skip = true;
            if (err != NULL) *err = block->file_bad;
            return block->file_bad.status;
        }
        if (counts->bad++ == 0) keep_first_bad(&writer->state, block->file_bad.message);
    }
    writer->before_bytes += writer->inputs->files[block->file].bytes;
    writer->state.next = (struct tw_prepare_place){.file = block->file + 1};
    writer->state.line = 1;
    return TW_OK;
}

enum tw_status tw_prepare_write(struct tw_prepare_writer *writer, const struct tw_block *block,
                                struct tw_error *err) {
    if (block->failure.status != TW_OK) {
        if (err != NULL) *err = block->failure;
        return block->failure.status;
    }
    if (block->end == TW_BLOCK_INPUTS_END) {
        writer->is_end = true;
        return end_source(writer, err);
    }
    const uint32_t source = writer->inputs->files[block->file].source;
    if (source != writer->shards.source) {
        TW_TRY(end_source(writer, err));
        shards_next_source(&writer->shards, source);
    }
    writer->taken_bytes = writer->before_bytes + block->taken;
    for (uint32_t i = 0; i < block->documents_count; i++) {
        const struct tw_block_document *const document = &block->documents[i];
        if (document->fate == TW_DOCUMENT_BAD) TW_TRY(take_bad(writer, block, i, err));
        if (document->fate == TW_DOCUMENT_PASSED) writer->state.counts.passed_members++;
        if (document->fate == TW_DOCUMENT_EMPTY) writer->state.counts.blank++;
        if (document->fate == TW_DOCUMENT_TRAIN || document->fate == TW_DOCUMENT_HELDOUT) {
            TW_TRY(take_document(writer, block, document, err));
        }
        writer->state.next.at = block->at + document->at + document->taken;
        writer->state.line += document->lines;
    }
    return block->end == TW_BLOCK_GOES_ON ? TW_OK : end_file(writer, block, err);
}
