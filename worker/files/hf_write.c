#include "worker/files/hf_write.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "worker/files/hf_config.h"
#include "worker/files/train_file.h"
#include "worker/support/out_file.h"
#include "worker/support/utf8.h"
#include "worker/tokenizer/byte_tokenizer.h"
#include "worker/tokenizer/tokenizer_text.h"

/* ---- text files ------------------------------------------------------------------------------ */

/* Names of all files that tw_hf_texts_make can make, ended by NULL. */
static const char *const TEXT_NAMES[] = {"tokenizer.json",
                                         "tokenizer_config.json",
                                         "special_tokens_map.json",
                                         "chat_template.jinja",
                                         "generation_config.json",
                                         "tokenizer.model",
                                         "vocab.json",
                                         "merges.txt",
                                         "added_tokens.json",
                                         NULL};

enum { TOKENIZER, TOKENIZER_CONFIG, SPECIALS, TEMPLATE, GENERATION, MODEL, VOCAB, MERGES, ADDED };

void tw_hf_texts_free(struct tw_hf_texts *texts) {
    for (uint32_t i = 0; i < texts->count; i++) free(texts->list[i].text);
    texts->count = 0;
}

/* Takes over `text`. */
static enum tw_status add_text(struct tw_hf_texts *texts, unsigned name, char *text, size_t bytes,
                               struct tw_error *err) {
    if (text == NULL) return tw_fail(err, TW_NOMEM, "no memory for %s", TEXT_NAMES[name]);
    TW_ASSERT(texts->count < TW_HF_TEXTS_MAX);
    texts->list[texts->count++] = (struct tw_hf_text){TEXT_NAMES[name], text, bytes};
    return TW_OK;
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* transformers 5 saves its class of tokenizers under a name that transformers 4 lacks. Both know an
 * older name of the same class. Replaces *text if it has the newer name. */
static void rename_class(char **text, size_t *bytes) {
    static const char KEY[] = "\"tokenizer_class\"", NEW[] = "\"TokenizersBackend\"",
                      OLD[] = "\"PreTrainedTokenizerFast\"";
    const char *at = *text != NULL ? strstr(*text, KEY) : NULL;
    if (at == NULL) return;
    at += sizeof(KEY) - 1;
    at += strspn(at, " \t\r\n:");
    if (strncmp(at, NEW, sizeof(NEW) - 1) != 0) return;
    const size_t before = (size_t)(at - *text);
    char *const renamed = malloc(*bytes + sizeof(OLD));
    if (renamed == NULL) return; /* the file is copied as it is */
    const char *const rest = at + sizeof(NEW) - 1;
    const int size =
        snprintf(renamed, *bytes + sizeof(OLD), "%.*s%s%s", (int)before, *text, OLD, rest);
    free(*text);
    *text = renamed;
    *bytes = (size_t)size;
}

/* Copies a file from the folder `path` or, if is_file, from the folder of the file `path`. Sets
 * *is_there to whether that file exists. */
static enum tw_status copy_text(struct tw_hf_texts *texts, unsigned name, const char *path,
                                bool is_file, bool *is_there, struct tw_error *err) {
    char *text = NULL, from[PATH_MAX];
    size_t bytes = 0;
    *is_there = false;
    if (path == NULL) return TW_OK;
    const char *const slash = is_file ? strrchr(path, '/') : path + strlen(path);
    const int n = snprintf(from, sizeof(from), "%.*s/%s", slash != NULL ? (int)(slash - path) : 1,
                           slash != NULL ? path : ".", TEXT_NAMES[name]);
    if (n >= (int)sizeof(from) || access(from, F_OK) != 0) return TW_OK;
    TW_TRY(tw_in_read_whole(from, TW_TEXT_ENDS_BYTES_MAX, &text, &bytes, err));
    *is_there = true;
    if (name == TOKENIZER_CONFIG) rename_class(&text, &bytes);
    return add_text(texts, name, text, bytes, err);
}

/* ---- tokenizer_config.json ------------------------------------------------------------------- */

/* Writes a token as tokenizer.json spells it, or null. Null also replaces a token that is ordinary
 * text, because readers treat each token named in this file as special wherever it occurs. */
static void put_token(FILE *to, const char *key, const struct tw_tokenizer *tokenizer,
                      uint32_t token) {
    size_t size;
    (void)fprintf(to, ",\n  \"%s\": ", key);
    if (token == TW_TOKEN_NONE || tw_tokenizer_is_text(tokenizer, token)) {
        (void)fputs("null", to);
        return;
    }
    const uint8_t *const text = tw_tokenizer_token(tokenizer, token, &size);
    tw_json_text_print(to, text, size);
}

static enum tw_status make_tokenizer_config(struct tw_hf_texts *texts, const struct tw_run *run,
                                            const struct tw_hf_texts_source *source,
                                            struct tw_error *err) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *const to = open_memstream(&text, &bytes);
    if (to == NULL) return tw_fail(err, TW_NOMEM, "no memory for a tokenizer_config.json");
    (void)fprintf(to,
                  "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\",\n"
                  "  \"clean_up_tokenization_spaces\": false,\n  \"model_max_length\": %u",
                  run->model.context);
    static const struct tw_end_ids NONE = {.bos = TW_TOKEN_NONE, .pad = TW_TOKEN_NONE};
    const bool is_known = source->tokenizer != NULL && source->tokenizer_text != NULL;
    const struct tw_end_ids *const ids = is_known ? &source->ends->tokenizer : &NONE;
    put_token(to, "bos_token", source->tokenizer, ids->bos);
    put_token(to, "eos_token", source->tokenizer, ids->eos_count > 0 ? ids->eos[0] : TW_TOKEN_NONE);
    put_token(to, "pad_token", source->tokenizer, ids->pad);
    /* Without this null, transformers 5 adds "<|endoftext|>" to the tokens of a qwen2 model. */
    put_token(to, "unk_token", source->tokenizer, TW_TOKEN_NONE);
    (void)fputs("\n}\n", to);
    if (fclose(to) != 0) {
        free(text);
        text = NULL;
    }
    return add_text(texts, TOKENIZER_CONFIG, text, bytes, err);
}

/* ---- generation_config.json ------------------------------------------------------------------ */

static enum tw_status make_generation_config(struct tw_hf_texts *texts,
                                             const struct tw_end_ids *ids, struct tw_error *err) {
    char *text = NULL;
    size_t bytes = 0;
    /* No file names an end token, so readers find none either. */
    if (ids->eos_count == 0) return TW_OK;
    FILE *const to = open_memstream(&text, &bytes);
    if (to == NULL) return tw_fail(err, TW_NOMEM, "no memory for a generation_config.json");
    (void)fputs("{\n", to);
    if (ids->bos != TW_TOKEN_NONE) (void)fprintf(to, "  \"bos_token_id\": %u,\n", ids->bos);
    if (ids->pad != TW_TOKEN_NONE) (void)fprintf(to, "  \"pad_token_id\": %u,\n", ids->pad);
    (void)fprintf(to, "  \"eos_token_id\": %s", ids->eos_count > 1 ? "[" : "");
    for (uint32_t i = 0; i < ids->eos_count; i++) {
        (void)fprintf(to, "%s%u", i > 0 ? ", " : "", ids->eos[i]);
    }
    (void)fprintf(to, "%s\n}\n", ids->eos_count > 1 ? "]" : "");
    if (fclose(to) != 0) {
        free(text);
        text = NULL;
    }
    return add_text(texts, GENERATION, text, bytes, err);
}

static enum tw_status make_tokenizer(struct tw_hf_texts *texts, const struct tw_run *run,
                                     const struct tw_hf_texts_source *source,
                                     struct tw_error *err) {
    const bool is_bytes = source->tokenizer_text == NULL;
    bool has_config = false, is_there = false;
    if (is_bytes && run->data.tokenizer != TW_TOKENIZER_BYTES) return TW_OK;
    const size_t bytes = is_bytes ? TW_BYTE_TOKENIZER_BYTES : source->tokenizer_bytes;
    char *const text = malloc(bytes + 1);
    size_t size = bytes;
    if (text != NULL && is_bytes) size = tw_byte_tokenizer_json(text);
    if (text != NULL && !is_bytes) memcpy(text, source->tokenizer_text, bytes);
    TW_TRY(add_text(texts, TOKENIZER, text, size, err));
    if (!is_bytes) {
        const char *const path = source->tokenizer_path;
        TW_TRY(copy_text(texts, TOKENIZER_CONFIG, path, true, &has_config, err));
        TW_TRY(copy_text(texts, SPECIALS, path, true, &is_there, err));
        TW_TRY(copy_text(texts, TEMPLATE, path, true, &is_there, err));
        /* Other forms of the tokenizer, for the slow tokenizers of transformers 4 and for
         * converters. */
        for (unsigned name = MODEL; name <= ADDED; name++) {
            TW_TRY(copy_text(texts, name, path, true, &is_there, err));
        }
    }
    return has_config ? TW_OK : make_tokenizer_config(texts, run, source, err);
}

enum tw_status tw_hf_texts_make(struct tw_hf_texts *texts, const struct tw_run *run,
                                const struct tw_hf_texts_source *source, struct tw_error *err) {
    bool is_there = false;
    texts->count = 0;
    TW_TRY(make_tokenizer(texts, run, source, err));
    if (!source->is_eos_chosen) {
        TW_TRY(copy_text(texts, GENERATION, source->model, false, &is_there, err));
    }
    return is_there ? TW_OK : make_generation_config(texts, &source->ends->generation, err);
}

enum {
    BLOCK_ELEMENTS = 1024 * 1024,
    SHARDS_MAX = 512, /* limit of shards in an index (hf_config.h) */
};

/* ---- weights --------------------------------------------------------------------------------- */

/* The file that is being written: tensors [first, first + count) of the layout. */
struct shard {
    const struct tw_model_feed *feed;
    enum tw_dtype dtype;
    bool is_hugging_face; /* whether tensors get transformers' names, not the layout's */
    uint32_t first, count;
    float *block;
};

static uint64_t tensor_bytes(const struct tw_model_feed *feed, uint32_t i, enum tw_dtype dtype) {
    const struct tw_tensor *const tensor = &feed->layout->tensors[i];
    return (uint64_t)tensor->rows * tensor->cols *
           tw_dtype_bytes(tw_model_feed_dtype(feed, i, dtype));
}

/* In GPT2LMHeadModel, all tensor names except the head's begin with "transformer.". */
static void name_of(const struct shard *shard, uint32_t i, char name[TW_SAFETENSORS_NAME_BYTES]) {
    const char *const ours = shard->feed->layout->tensors[i].name;
    const bool is_below = shard->is_hugging_face &&
                          shard->feed->run->model.family == TW_FAMILY_GPT2 &&
                          strcmp(ours, "lm_head.weight") != 0;
    (void)snprintf(name, TW_SAFETENSORS_NAME_BYTES, "%s%s", is_below ? "transformer." : "", ours);
}

static enum tw_status make_header(const struct shard *shard, uint8_t **header_out, size_t *size_out,
                                  struct tw_error *err) {
    static const struct tw_safetensors EMPTY;
    struct tw_safetensors st = EMPTY;
    st.tensors = calloc(shard->count, sizeof(*st.tensors));
    if (st.tensors == NULL) return tw_fail(err, TW_NOMEM, "no memory for a header");
    st.tensors_capacity = st.tensors_count = shard->count;
    for (uint32_t i = 0; i < shard->count; i++) {
        const struct tw_tensor *const tensor = &shard->feed->layout->tensors[shard->first + i];
        struct tw_safetensors_tensor *const to = &st.tensors[i];
        name_of(shard, shard->first + i, to->name);
        to->dtype = tw_model_feed_dtype(shard->feed, shard->first + i, shard->dtype);
        to->rank = tensor->shape.rank;
        for (uint32_t s = 0; s < to->rank; s++) to->shape[s] = tensor->shape.sides[s];
    }
    /* Loaders in Python require the metadata "format": "pt". */
    char manifest[TW_MANIFEST_BYTES_MAX];
    if (shard->feed->says_run) {
        st.metadata_count = 1;
        st.metadata[1].key.bytes = TW_TRAIN_FILE_MANIFEST;
        st.metadata[1].key.size = strlen(TW_TRAIN_FILE_MANIFEST);
        st.metadata[1].value.bytes = manifest;
        tw_train_file_manifest(shard->feed->run, manifest, &st.metadata[1].value.size);
    }
    st.metadata_count++;
    st.metadata[0].key = (struct tw_safetensors_text){"format", 6};
    st.metadata[0].value = (struct tw_safetensors_text){"pt", 2};
    const size_t capacity = tw_safetensors_bound(&st);
    enum tw_status status = TW_OK;
    *header_out = malloc(capacity);
    if (*header_out == NULL) status = tw_fail(err, TW_NOMEM, "no memory for a header");
    if (status == TW_OK) status = tw_safetensors_encode(&st, *header_out, capacity, size_out, err);
    free(st.tensors);
    return status;
}

static enum tw_status write_tensor(const struct shard *shard, uint32_t i, struct tw_out_file *file,
                                   struct tw_error *err) {
    const struct tw_tensor *const tensor = &shard->feed->layout->tensors[i];
    const enum tw_dtype dtype = tw_model_feed_dtype(shard->feed, i, shard->dtype);
    const uint64_t count = (uint64_t)tensor->rows * tensor->cols;
    for (uint64_t at = 0; at < count; at += BLOCK_ELEMENTS) {
        const uint64_t n = count - at < BLOCK_ELEMENTS ? count - at : BLOCK_ELEMENTS;
        TW_TRY(tw_model_feed_read(shard->feed, i, at, n, shard->block, err));
        TW_TRY(tw_model_feed_store(shard->feed, i, dtype, shard->block, n, err));
        TW_TRY(tw_out_write(file, shard->block, n * tw_dtype_bytes(dtype), err));
    }
    return TW_OK;
}

static enum tw_status write_shard(const char *path, const struct shard *shard, uint64_t *bytes_out,
                                  struct tw_error *err) {
    uint8_t *header = NULL;
    size_t header_bytes = 0;
    struct tw_out_file file = {.fd = -1, .seen_fd = -1};
    enum tw_status status = make_header(shard, &header, &header_bytes, err);
    uint64_t bytes = header_bytes;
    for (uint32_t i = 0; i < shard->count; i++) {
        bytes += tensor_bytes(shard->feed, shard->first + i, shard->dtype);
    }
    if (status == TW_OK) status = tw_out_open(&file, path, bytes, err);
    if (status == TW_OK) status = tw_out_write(&file, header, header_bytes, err);
    for (uint32_t i = 0; status == TW_OK && i < shard->count; i++) {
        status = write_tensor(shard, shard->first + i, &file, err);
    }
    free(header);
    if (status == TW_OK) {
        TW_ASSERT(file.at == bytes);
        if (bytes_out != NULL) *bytes_out = bytes;
        return tw_out_commit(&file, err);
    }
    tw_out_abort(&file);
    return status;
}

enum tw_status tw_hf_write_file(const char *path, const struct tw_model_feed *feed,
                                enum tw_dtype dtype, uint64_t *bytes_out, struct tw_error *err) {
    struct shard shard = {.feed = feed, .dtype = dtype, .count = feed->layout->tensors_count};
    TW_TRY(tw_out_is_free(path, err));
    shard.block = malloc(BLOCK_ELEMENTS * sizeof(*shard.block));
    if (shard.block == NULL) return tw_fail(err, TW_NOMEM, "no memory for a block");
    const enum tw_status status = write_shard(path, &shard, bytes_out, err);
    free(shard.block);
    return status;
}

/* ---- folder ---------------------------------------------------------------------------------- */

/* A folder that is being written under its temporary name. */
struct folder {
    char path[TW_OUT_PATH_BYTES];
    int lock;           /* descriptor of the folder, which holds a file lock */
    struct shard shard; /* file that is being written */
    struct tw_hf_folder *result;
    uint32_t first[SHARDS_MAX + 1]; /* file k holds tensors [first[k], first[k + 1]) */
};

static enum tw_status path_in(const struct folder *folder, const char *name,
                              char path[TW_OUT_PATH_BYTES], struct tw_error *err) {
    if (snprintf(path, TW_OUT_PATH_BYTES, "%s/%s", folder->path, name) < TW_OUT_PATH_BYTES) {
        return TW_OK;
    }
    return tw_fail(err, TW_CONFIG, "the path is too long: %.80s...", folder->path);
}

static void shard_name(const struct folder *folder, uint32_t k, char name[TW_HF_FILE_BYTES]) {
    if (folder->result->files_count == 1) {
        (void)snprintf(name, TW_HF_FILE_BYTES, "model.safetensors");
    } else {
        (void)snprintf(name, TW_HF_FILE_BYTES, "model-%05u-of-%05u.safetensors", k + 1,
                       folder->result->files_count);
    }
}

static enum tw_status plan_shards(struct folder *folder, struct tw_error *err) {
    const struct tw_model_feed *const feed = folder->shard.feed;
    const uint64_t limit = folder->result->shard_bytes;
    uint64_t used = 0;
    uint32_t count = 1;
    folder->first[0] = 0;
    folder->result->bytes = 0;
    for (uint32_t i = 0; i < feed->layout->tensors_count; i++) {
        const uint64_t bytes = tensor_bytes(feed, i, folder->shard.dtype);
        if (limit > 0 && used > 0 && (bytes > limit || used > limit - bytes)) {
            if (count == SHARDS_MAX) {
                return tw_fail(err, TW_CONFIG,
                               "more than %d files: give --shard a larger size, such as 5GB",
                               SHARDS_MAX);
            }
            folder->first[count++] = i;
            used = 0;
        }
        used += bytes;
        folder->result->bytes += bytes;
    }
    folder->first[count] = feed->layout->tensors_count;
    folder->result->files_count = count;
    return TW_OK;
}

static enum tw_status write_text(const struct folder *folder, const char *name, const char *text,
                                 size_t size, struct tw_error *err) {
    char path[TW_OUT_PATH_BYTES];
    struct tw_out_file file;
    TW_TRY(path_in(folder, name, path, err));
    TW_TRY(tw_out_open(&file, path, size, err));
    const enum tw_status status = tw_out_write(&file, text, size, err);
    if (status == TW_OK) return tw_out_commit(&file, err);
    tw_out_abort(&file);
    return status;
}

static enum tw_status write_index(const struct folder *folder, struct tw_error *err) {
    enum { LINE_BYTES = TW_SAFETENSORS_NAME_BYTES + TW_HF_FILE_BYTES + 16, HEAD_BYTES = 128 };
    const uint32_t count = folder->shard.feed->layout->tensors_count;
    const size_t capacity = HEAD_BYTES + (size_t)count * LINE_BYTES;
    char *const text = malloc(capacity);
    if (text == NULL) return tw_fail(err, TW_NOMEM, "no memory for an index");
    size_t size = (size_t)snprintf(text, capacity,
                                   "{\n  \"metadata\": {\"total_size\": %llu},\n"
                                   "  \"weight_map\": {",
                                   (unsigned long long)folder->result->bytes);
    for (uint32_t k = 0; k < folder->result->files_count; k++) {
        char file[TW_HF_FILE_BYTES], name[TW_SAFETENSORS_NAME_BYTES];
        shard_name(folder, k, file);
        for (uint32_t i = folder->first[k]; i < folder->first[k + 1]; i++) {
            name_of(&folder->shard, i, name);
            size += (size_t)snprintf(text + size, capacity - size, "%s\n    \"%s\": \"%s\"",
                                     i == 0 ? "" : ",", name, file);
        }
    }
    size += (size_t)snprintf(text + size, capacity - size, "\n  }\n}\n");
    TW_ASSERT(size < capacity);
    const enum tw_status status =
        write_text(folder, "model.safetensors.index.json", text, size, err);
    free(text);
    return status;
}

static enum tw_status write_own_config(const struct folder *folder, struct tw_error *err) {
    const struct tw_hf_folder *const result = folder->result;
    char *text = NULL;
    const struct tw_hf_config_change change = {
        .dtype = folder->shard.dtype,
        .context = result->context,
        .eos = result->is_eos_chosen && result->ids != NULL ? result->ids : NULL};
    TW_TRY(tw_hf_config_change(result->config, result->config_bytes, &change, &text, err));
    const enum tw_status status = write_text(folder, "config.json", text, strlen(text), err);
    free(text);
    return status;
}

static enum tw_status fill_folder(struct folder *folder, struct tw_error *err) {
    const struct tw_run *const run = folder->shard.feed->run;
    char text[TW_MODEL_CONFIG_BYTES];
    size_t size = 0;
    const struct tw_hf_texts *const texts = folder->result->texts;
    if (folder->result->config != NULL) {
        TW_TRY(write_own_config(folder, err));
    } else {
        TW_TRY(
            tw_model_config_write(run, folder->shard.dtype, folder->result->ids, text, &size, err));
        TW_TRY(write_text(folder, "config.json", text, size, err));
    }
    for (uint32_t i = 0; texts != NULL && i < texts->count; i++) {
        const struct tw_hf_text *const one = &texts->list[i];
        TW_TRY(write_text(folder, one->name, one->text, one->bytes, err));
    }
    for (uint32_t k = 0; k < folder->result->files_count; k++) {
        char name[TW_HF_FILE_BYTES], path[TW_OUT_PATH_BYTES];
        shard_name(folder, k, name);
        TW_TRY(path_in(folder, name, path, err));
        folder->shard.first = folder->first[k];
        folder->shard.count = folder->first[k + 1] - folder->first[k];
        TW_TRY(write_shard(path, &folder->shard, NULL, err));
    }
    return folder->result->files_count > 1 ? write_index(folder, err) : TW_OK;
}

/* Removes only the files that fill_folder may have made, then the folder if it is empty. */
static void clear_folder(const struct folder *folder) {
    static const char *const NAMES[] = {"config.json", "model.safetensors.index.json"};
    char path[TW_OUT_PATH_BYTES], name[TW_HF_FILE_BYTES];
    for (unsigned i = 0; TEXT_NAMES[i] != NULL; i++) {
        if (path_in(folder, TEXT_NAMES[i], path, NULL) == TW_OK) (void)unlink(path);
    }
    for (unsigned i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        if (path_in(folder, NAMES[i], path, NULL) == TW_OK) (void)unlink(path);
    }
    for (uint32_t k = 0; k < folder->result->files_count; k++) {
        shard_name(folder, k, name);
        if (path_in(folder, name, path, NULL) == TW_OK) (void)unlink(path);
    }
    (void)rmdir(folder->path);
}

static bool is_file_or_part(const char *name, const char *file) {
    const size_t size = strlen(file);
    return strncmp(name, file, size) == 0 &&
           (name[size] == '\0' || strcmp(name + size, ".part") == 0);
}

static bool is_ours(const char *name) {
    if (is_file_or_part(name, "config.json")) return true;
    for (unsigned i = 0; TEXT_NAMES[i] != NULL; i++) {
        if (is_file_or_part(name, TEXT_NAMES[i])) return true;
    }
    return strncmp(name, "model", 5) == 0 && strstr(name, ".safetensors") != NULL;
}

/* Removes the files of an export that was killed. Returns false and removes nothing if the folder
 * holds other files. */
static bool empty_old_part(const char *path) {
    bool is_left = true;
    for (unsigned pass = 0; pass < 2 && is_left; pass++) {
        DIR *const folder = opendir(path);
        const struct dirent *entry;
        if (folder == NULL) return false;
        while ((entry = readdir(folder)) != NULL) {
            if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
            if (pass == 0) is_left = is_left && is_ours(entry->d_name);
            if (pass == 1) is_left = unlinkat(dirfd(folder), entry->d_name, 0) == 0 && is_left;
        }
        (void)closedir(folder);
    }
    return is_left;
}

static enum tw_status make_folder(struct folder *folder, const char *path, struct tw_error *err) {
    size_t size = strlen(path);
    while (size > 1 && path[size - 1] == '/') size--;
    TW_TRY(tw_out_is_free(path, err));
    if (size + sizeof(".part") > sizeof(folder->path)) {
        return tw_fail(err, TW_CONFIG, "the path is too long: %.80s...", path);
    }
    (void)snprintf(folder->path, sizeof(folder->path), "%.*s.part", (int)size, path);
    const bool is_new = mkdir(folder->path, 0755) == 0;
    if (!is_new && errno != EEXIST) {
        return tw_fail(err, TW_IO, "%s: %s", folder->path, strerror(errno));
    }
    folder->lock = open(folder->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder->lock < 0 && is_new) {
        const int why = errno;
        (void)rmdir(folder->path);
        return tw_fail(err, TW_IO, "%s: %s", folder->path, strerror(why));
    }
    const bool is_locked = folder->lock >= 0 && flock(folder->lock, LOCK_EX | LOCK_NB) == 0;
    if (is_new) tw_out_give(folder->lock);
    if (is_new || (is_locked && empty_old_part(folder->path))) return TW_OK;
    if (folder->lock >= 0) (void)close(folder->lock);
    return tw_fail(err, TW_CONFIG,
                   "%s exists: another process writes it, or it holds files that no export writes; "
                   "remove it, or choose another --out",
                   folder->path);
}

enum tw_status tw_hf_write_folder(const char *path, const struct tw_model_feed *feed,
                                  struct tw_hf_folder *result, struct tw_error *err) {
    struct folder folder = {.result = result};
    TW_ASSERT((int)result->dtype != TW_FEED_KEEP);
    folder.shard = (struct shard){.feed = feed, .dtype = result->dtype, .is_hugging_face = true};
    TW_TRY(plan_shards(&folder, err));
    TW_TRY(make_folder(&folder, path, err));
    folder.shard.block = malloc(BLOCK_ELEMENTS * sizeof(*folder.shard.block));
    enum tw_status status = folder.shard.block != NULL
                                ? fill_folder(&folder, err)
                                : tw_fail(err, TW_NOMEM, "no memory for a block");
    free(folder.shard.block);
    if (status == TW_OK) {
        char to[TW_OUT_PATH_BYTES];
        (void)snprintf(to, sizeof(to), "%.*s", (int)(strlen(folder.path) - strlen(".part")),
                       folder.path);
        status = tw_out_rename(folder.path, to, err);
    }
    if (status != TW_OK) clear_folder(&folder);
    if (folder.lock >= 0) (void)close(folder.lock);
    return status;
}
