#include "worker/files/model_source.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "worker/files/hf_write.h"
#include "worker/support/out_file.h"
#include "worker/tokenizer/tokenizer_text.h"

enum { PATH_BYTES = 1024, COMPARE_ELEMENTS = 16 * 1024 };

/* Default context length in tokens, unless the model's positions are weights. */
enum { TW_ENGINE_CONTEXT = 2048 };

/* ---- parameters to write --------------------------------------------------------------------- */

enum tw_dtype tw_model_feed_dtype(const struct tw_model_feed *feed, uint32_t i,
                                  enum tw_dtype dtype) {
    if ((int)dtype != TW_FEED_KEEP) return dtype;
    return feed->params != NULL ? TW_DTYPE_F32 : tw_model_source_dtype(feed->source, i);
}

enum tw_status tw_model_feed_read(const struct tw_model_feed *feed, uint32_t i, uint64_t first,
                                  uint64_t count, float *to, struct tw_error *err) {
    const struct tw_tensor *const tensor = &feed->layout->tensors[i];
    if (feed->is_interrupted != NULL && feed->is_interrupted()) {
        return tw_fail(err, TW_AGAIN, "interrupted; nothing was written");
    }
    if (feed->progress != NULL) feed->progress(feed->user, count);
    if (feed->params == NULL) return tw_model_source_read(feed->source, i, first, count, to, err);
    TW_ASSERT(first + count <= (uint64_t)tensor->rows * tensor->cols);
    memcpy(to, feed->params + tensor->offset + first, count * sizeof(*to));
    return TW_OK;
}

enum tw_status tw_model_feed_store(const struct tw_model_feed *feed, uint32_t i,
                                   enum tw_dtype dtype, float *values, uint64_t count,
                                   struct tw_error *err) {
    const char *const name = feed->layout->tensors[i].name;
    for (uint64_t k = 0; k < count; k++) {
        if (!isfinite(values[k])) {
            return tw_fail(err, TW_CORRUPT, "%s holds numbers that are not finite", name);
        }
    }
    if (tw_elements_store(dtype, (uint8_t *)values, values, count) == count) return TW_OK;
    return tw_fail(err, TW_CONFIG,
                   "%s holds numbers too large for %s: choose another --dtype (f32 takes all)",
                   name, tw_dtype_name(dtype));
}

/* ---- folders without a model that is read ---------------------------------------------------- */

static bool has_file(const char *folder, const char *name) {
    char path[PATH_BYTES];
    const int n = snprintf(path, sizeof(path), "%s/%s", folder, name);
    return n < (int)sizeof(path) && access(path, F_OK) == 0;
}

/* Finds the safetensors file whose name sorts first in the folder. */
static bool find_other(const char *folder, char name[TW_HF_FILE_BYTES]) {
    static const char END[] = ".safetensors";
    DIR *const dir = opendir(folder);
    const struct dirent *entry;
    name[0] = 0;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        const size_t size = strlen(entry->d_name), end = sizeof(END) - 1;
        if (size <= end || size >= TW_HF_FILE_BYTES) continue;
        if (strcmp(entry->d_name + size - end, END) != 0) continue;
        if (name[0] == 0 || strcmp(entry->d_name, name) < 0) memcpy(name, entry->d_name, size + 1);
    }
    if (dir != NULL) (void)closedir(dir);
    return name[0] != 0;
}

/* Explains why a folder has no weights under the names that are read. Always fails: with TW_CONFIG,
 * naming the weights that are there, or with TW_IO if there are none. */
static enum tw_status absent_weights(const char *folder, struct tw_error *err) {
    static const char *const OTHERS[] = {"pytorch_model.bin", "pytorch_model.bin.index.json",
                                         "tf_model.h5", "flax_model.msgpack",
                                         "consolidated.00.pth"};
    char name[TW_HF_FILE_BYTES];
    if (find_other(folder, name)) {
        const bool is_shard = strstr(name, "-of-") != NULL;
        return tw_fail(err, TW_CONFIG,
                       is_shard
                           ? "%.120s holds %.80s, a part of a model, but no "
                             "model.safetensors.index.json: fetch that file too"
                           : "%.120s holds %.80s, not model.safetensors: name that file itself",
                       folder, name);
    }
    for (unsigned i = 0; i < sizeof(OTHERS) / sizeof(OTHERS[0]); i++) {
        if (!has_file(folder, OTHERS[i])) continue;
        return tw_fail(
            err, TW_CONFIG,
            "%.90s holds %s, which is not read. This makes safetensors of it: python3 -c "
            "'from transformers import AutoModelForCausalLM as M; "
            "M.from_pretrained(\"%.90s\").save_pretrained(\"OUT\")'",
            folder, OTHERS[i], folder);
    }
    return tw_fail(err, TW_IO,
                   "%s holds neither model.safetensors nor model.safetensors.index.json: fetch the "
                   "weights too",
                   folder);
}

/* Refuses an adapter of peft, which holds only changes to a model. Returns TW_OK if the folder
 * holds none. */
static enum tw_status absent_adapter(const char *folder, struct tw_error *err) {
    if (!has_file(folder, "adapter_config.json") || has_file(folder, "config.json")) return TW_OK;
    return tw_fail(
        err, TW_CONFIG,
        "%.120s holds an adapter of peft (adapter_config.json), not a whole model: eval, generate "
        "and export take it by --adapter, with the model below it as FILE",
        folder);
}

/* Finds the subfolder with a config.json whose name sorts first, such as checkpoint-500 of a
 * Trainer. */
static bool find_below(const char *folder, char name[TW_HF_FILE_BYTES]) {
    DIR *const dir = opendir(folder);
    const struct dirent *entry;
    char path[PATH_BYTES];
    name[0] = 0;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        const size_t size = strlen(entry->d_name);
        if (entry->d_name[0] == '.' || size >= TW_HF_FILE_BYTES) continue;
        const int n = snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        if (n >= (int)sizeof(path) || !has_file(path, "config.json")) continue;
        if (name[0] == 0 || strcmp(entry->d_name, name) < 0) memcpy(name, entry->d_name, size + 1);
    }
    if (dir != NULL) (void)closedir(dir);
    return name[0] != 0;
}

/* Explains why a folder without config.json cannot be read. Always fails: with TW_CONFIG, naming a
 * model in another format or in a subfolder, or with TW_IO if there is none. */
static enum tw_status absent_config(const char *folder, struct tw_error *err) {
    static const char *const WITHIN[] = {"", "/snapshots"}; /* subfolder in Hugging Face's cache */
    char path[PATH_BYTES], name[TW_HF_FILE_BYTES];
    for (unsigned i = 0; i < sizeof(WITHIN) / sizeof(WITHIN[0]); i++) {
        if (snprintf(path, sizeof(path), "%s%s", folder, WITHIN[i]) >= (int)sizeof(path)) continue;
        if (!find_below(path, name)) continue;
        return tw_fail(err, TW_CONFIG,
                       "%.100s holds no model itself, but a folder in it does: %.100s/%.60s",
                       folder, path, name);
    }
    if (has_file(folder, "params.json") || has_file(folder, "consolidated.00.pth")) {
        return tw_fail(err, TW_CONFIG,
                       "%.120s holds a model in its maker's own form (params.json, consolidated): "
                       "fetch it in the form of Hugging Face, with config.json and safetensors",
                       folder);
    }
    if (find_other(folder, name)) {
        return tw_fail(err, TW_CONFIG,
                       "%.120s holds %.80s, but no config.json, which describes the model: fetch "
                       "that file too",
                       folder, name);
    }
    return tw_fail(err, TW_IO,
                   "%.100s holds no model (config.json and safetensors), and no checkpoint: a "
                   "node saves one now and then, or at once by `thinwire checkpoint`",
                   folder);
}

/* ---- files ----------------------------------------------------------------------------------- */

static const char HEAD[] = "lm_head.weight";

struct tw_model_place {
    uint32_t file;
    const struct tw_safetensors_tensor *tensor;
};

/* ---- open ------------------------------------------------------------------------------------ */

static enum tw_status path_in(const char *folder, const char *name, char path[PATH_BYTES],
                              struct tw_error *err) {
    if (snprintf(path, PATH_BYTES, "%s/%s", folder, name) < PATH_BYTES) return TW_OK;
    return tw_fail(err, TW_CONFIG, "the path is too long: %.80s...", folder);
}

static enum tw_status open_files(struct tw_model_source *source, const char *folder,
                                 const char *const *names, uint32_t count, struct tw_error *err) {
    source->files = calloc(count, sizeof(*source->files));
    if (source->files == NULL) return tw_fail(err, TW_NOMEM, "no memory for %u files", count);
    for (uint32_t i = 0; i < count; i++) {
        char path[PATH_BYTES];
        TW_TRY(path_in(folder, names[i], path, err));
        TW_TRY(tw_tensor_file_open(&source->files[i], path, err));
        source->files_count++;
    }
    return TW_OK;
}

/* Checks that every tensor is in the file that the index names, and in no other. */
static enum tw_status check_index(const struct tw_model_source *source, struct tw_error *err) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < source->files_count; i++) {
        const struct tw_tensor_file *const file = &source->files[i];
        for (uint32_t k = 0; k < file->st.tensors_count; k++) {
            const char *const name = file->st.tensors[k].name;
            const struct tw_hf_entry *const entry = tw_hf_index_find(&source->index, name);
            if (entry == NULL || entry->file != i) {
                return tw_fail(err, TW_CORRUPT, "%s holds %s, which the index puts %s%s",
                               file->name, name, entry == NULL ? "nowhere" : "into ",
                               entry == NULL ? "" : source->index.files[entry->file]);
            }
        }
        count += file->st.tensors_count;
    }
    if (count == source->index.entries_count) return TW_OK;
    for (uint32_t i = 0; i < source->index.entries_count; i++) {
        const struct tw_hf_entry *const entry = &source->index.entries[i];
        if (tw_safetensors_find(&source->files[entry->file].st, entry->name) == NULL) {
            return tw_fail(err, TW_CORRUPT, "%s holds no tensor %s, though the index says so",
                           source->index.files[entry->file], entry->name);
        }
    }
    return TW_OK;
}

static enum tw_status open_index(struct tw_model_source *source, const char *folder,
                                 const char *path, struct tw_error *err) {
    char *json = NULL;
    size_t size = 0;
    struct tw_error why;
    const char *names[TW_HF_INDEX_FILES_MAX];
    TW_TRY(tw_in_read_whole(path, TW_HF_INDEX_BYTES_MAX, &json, &size, err));
    const enum tw_status status = tw_hf_index_parse(&source->index, json, size, &why);
    free(json);
    if (status != TW_OK) {
        return tw_fail(err, status, "%s: %s", tw_tensor_file_base(path), why.message);
    }
    source->has_index = true;
    for (uint32_t i = 0; i < source->index.files_count; i++) names[i] = source->index.files[i];
    TW_TRY(open_files(source, folder, names, source->index.files_count, err));
    return check_index(source, err);
}

static enum tw_status read_config(struct tw_model_source *source, const char *folder,
                                  struct tw_error *err) {
    char path[PATH_BYTES];
    TW_TRY(path_in(folder, "config.json", path, err));
    if (access(path, F_OK) != 0 && errno == ENOENT) {
        return source->is_folder ? absent_config(folder, err) : TW_OK;
    }
    return tw_in_read_whole(path, TW_HF_CONFIG_BYTES_MAX, &source->config, &source->config_bytes,
                            err);
}

static enum tw_status open_folder(struct tw_model_source *source, const char *folder,
                                  struct tw_error *err) {
    static const char *const SINGLE[] = {"model.safetensors"};
    char path[PATH_BYTES];
    TW_TRY(absent_adapter(folder, err));
    TW_TRY(read_config(source, folder, err));
    TW_TRY(path_in(folder, SINGLE[0], path, err));
    if (access(path, F_OK) == 0) return open_files(source, folder, SINGLE, 1, err);
    TW_TRY(path_in(folder, "model.safetensors.index.json", path, err));
    if (access(path, F_OK) == 0) return open_index(source, folder, path, err);
    return absent_weights(folder, err);
}

static enum tw_status open_file(struct tw_model_source *source, const char *path,
                                struct tw_error *err) {
    static const char END[] = ".index.json";
    const char *const name = tw_tensor_file_base(path), *names[] = {name};
    const size_t size = strlen(path), end = sizeof(END) - 1, folder_size = (size_t)(name - path);
    char folder[PATH_BYTES];
    if (folder_size >= sizeof(folder)) return tw_fail(err, TW_CONFIG, "the path is too long");
    (void)snprintf(folder, sizeof(folder), "%.*s", (int)folder_size, path);
    if (folder_size == 0) (void)snprintf(folder, sizeof(folder), ".");
    TW_TRY(read_config(source, folder, err));
    if (size > end && strcmp(path + size - end, END) == 0) {
        return open_index(source, folder, path, err);
    }
    return open_files(source, folder, names, 1, err);
}

enum tw_status tw_model_source_open(struct tw_model_source *source, const char *path,
                                    struct tw_error *err) {
    struct stat info;
    memset(source, 0, sizeof(*source));
    source->path = path;
    if (stat(path, &info) != 0) {
        return tw_fail(err, TW_IO, "%.160s: %s; name the folder or the file of a model", path,
                       strerror(errno));
    }
    source->is_folder = S_ISDIR(info.st_mode);
    const enum tw_status status =
        source->is_folder ? open_folder(source, path, err) : open_file(source, path, err);
    if (status != TW_OK) tw_model_source_close(source);
    return status;
}

void tw_model_source_close(struct tw_model_source *source) {
    for (uint32_t i = 0; i < source->files_count; i++) tw_tensor_file_close(&source->files[i]);
    free(source->files);
    tw_hf_index_free(&source->index);
    free(source->config);
    free(source->places);
    tw_adapter_close(source->adapter);
    memset(source, 0, sizeof(*source));
}

/* Whether the tokenizer.json beside config.json maps every byte to the token of the same number. A
 * vocabulary of 256 alone proves nothing, because other tokenizers have 256 tokens too. */
static enum tw_status find_bytes(const struct tw_model_source *source, bool *is_bytes,
                                 struct tw_error *err) {
    char path[PATH_BYTES];
    struct tw_tokenizer *tokenizer = NULL;
    const char *const base = tw_tensor_file_base(source->path);
    const int folder = source->is_folder ? (int)strlen(source->path) : (int)(base - source->path);
    const int n = snprintf(path, sizeof(path), "%.*s%stokenizer.json", folder, source->path,
                           source->is_folder ? "/" : "");
    *is_bytes = false;
    if (n >= PATH_BYTES || access(path, F_OK) != 0) return TW_OK;
    const enum tw_status status = tw_tokenizer_create_file(&tokenizer, path, err);
    if (status == TW_IO || status == TW_NOMEM) return status;
    /* a tokenizer of an unsupported kind, whose tokens are not bytes */
    if (status != TW_OK) return TW_OK;
    *is_bytes = tw_tokenizer_is_bytes(tokenizer);
    tw_tokenizer_destroy(tokenizer);
    return TW_OK;
}

enum tw_status tw_model_source_run(const struct tw_model_source *source, struct tw_run *run,
                                   struct tw_error *err) {
    struct tw_error why;
    if (source->config == NULL) {
        return tw_fail(err, TW_CONFIG, "there is no config.json beside %s to describe the model",
                       source->path);
    }
    const enum tw_status status =
        tw_hf_config_parse(run, source->config, source->config_bytes, &why);
    if (status != TW_OK) return tw_fail(err, status, "config.json: %s", why.message);
    bool is_bytes = false;
    if (run->model.vocab == 256) TW_TRY(find_bytes(source, &is_bytes, err));
    if (is_bytes) run->data.tokenizer = TW_TOKENIZER_BYTES;
    return TW_OK;
}

/* ---- bind ------------------------------------------------------------------------------------ */

static struct tw_model_place find(const struct tw_model_source *source, const char *name) {
    struct tw_model_place place = {0, NULL};
    if (source->has_index) {
        const struct tw_hf_entry *const entry = tw_hf_index_find(&source->index, name);
        if (entry == NULL) return place;
        place.file = entry->file;
    }
    place.tensor = tw_safetensors_find(&source->files[place.file].st, name);
    return place;
}

/* How a file names the tensors of a layout: `prefix`, then the layout's name without `dropped`. */
struct names {
    char prefix[16];
    const char *dropped;
};

static bool is_below(const char *name, const char *prefix) {
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* Whether the output head keeps its plain name. This is so if the other tensors are below
 * "transformer.", or the file is a base model. */
static bool has_bare_head(const struct names *names) {
    return strcmp(names->prefix, "transformer.") == 0 || names->dropped[0] != 0;
}

/* Sets full to the file's name of the layout's tensor `ours`. An overlong name becomes empty, which
 * matches no tensor. */
static void full_name(const struct names *names, const char *ours,
                      char full[TW_SAFETENSORS_NAME_BYTES]) {
    const bool is_bare = strcmp(ours, HEAD) == 0 && has_bare_head(names);
    const char *const rest =
        is_below(ours, names->dropped) && !is_bare ? ours + strlen(names->dropped) : ours;
    const int size =
        snprintf(full, TW_SAFETENSORS_NAME_BYTES, "%s%s", is_bare ? "" : names->prefix, rest);
    if (size >= TW_SAFETENSORS_NAME_BYTES) full[0] = 0;
}

/* Sets ours to the layout's name of the file's tensor `full`. Returns false if the file's names
 * have another form. */
static bool our_name(const struct names *names, const char *full,
                     char ours[TW_SAFETENSORS_NAME_BYTES]) {
    char again[TW_SAFETENSORS_NAME_BYTES];
    const bool is_head = strcmp(full, HEAD) == 0 && has_bare_head(names);
    if (!is_head && !is_below(full, names->prefix)) return false;
    const int size =
        snprintf(ours, TW_SAFETENSORS_NAME_BYTES, "%s%s", is_head ? "" : names->dropped,
                 is_head ? full : full + strlen(names->prefix));
    if (size >= TW_SAFETENSORS_NAME_BYTES) return false;
    full_name(names, ours, again);
    return strcmp(again, full) == 0;
}

/* An embedding that is also the output head may be stored under the head's name alone. */
static bool can_be_head(const struct tw_model_source *source, uint32_t i) {
    return i == 0 && tw_layout_find(source->layout, HEAD) == NULL;
}

static struct tw_model_place find_tensor(const struct tw_model_source *source,
                                         const struct names *names, uint32_t i) {
    char full[TW_SAFETENSORS_NAME_BYTES];
    full_name(names, source->layout->tensors[i].name, full);
    const struct tw_model_place place = find(source, full);
    if (place.tensor != NULL || !can_be_head(source, i)) return place;
    full_name(names, HEAD, full);
    return find(source, full);
}

/* Chooses the first form of names under which one of the layout's first two tensors exists. Two are
 * tried, because the embedding may be stored under the head's name. */
static enum tw_status choose_names(const struct tw_model_source *source, const char *part,
                                   struct names *names, struct tw_error *err) {
    const struct {
        const char *prefix, *dropped;
    } CHOICES[] = {{part, ""}, {"", ""}, {"transformer", ""}, {"", "model."}};
    const char *const first = source->layout->tensors[0].name;
    for (unsigned i = source->is_folder ? 1 : 0; i < 4; i++) {
        const char *const prefix = CHOICES[i].prefix;
        (void)snprintf(names->prefix, sizeof(names->prefix), "%s%s", prefix,
                       prefix[0] != 0 ? "." : "");
        names->dropped = CHOICES[i].dropped;
        for (uint32_t k = 0; k < 2 && k < source->layout->tensors_count; k++) {
            char full[TW_SAFETENSORS_NAME_BYTES];
            full_name(names, source->layout->tensors[k].name, full);
            if (find(source, full).tensor != NULL) return TW_OK;
        }
    }
    return tw_fail(err, TW_CONFIG,
                   "%s holds no tensor %s, nor %s.%s: is it a checkpoint or an export of this "
                   "model?",
                   source->path, first, part, first);
}

enum { SHAPE_BYTES = 24 * TW_SAFETENSORS_RANK_MAX };

static void show_shape(const struct tw_safetensors_tensor *tensor, char text[SHAPE_BYTES]) {
    int used = snprintf(text, SHAPE_BYTES, tensor->rank == 0 ? "a number" : "");
    for (uint32_t i = 0; i < tensor->rank; i++) {
        used += snprintf(text + used, SHAPE_BYTES - (size_t)used, "%s%llu", i == 0 ? "" : " x ",
                         (unsigned long long)tensor->shape[i]);
    }
}

static enum tw_status check_tensor(const struct tw_model_source *source,
                                   const struct tw_model_place *place,
                                   const struct tw_tensor *tensor, struct tw_error *err) {
    const struct tw_safetensors_tensor *const found = place->tensor;
    const char *const file = source->files[place->file].name;
    struct tw_safetensors_tensor own = {.rank = tensor->shape.rank};
    bool has_shape = found->rank == own.rank;
    for (uint32_t i = 0; i < own.rank; i++) {
        own.shape[i] = tensor->shape.sides[i];
        has_shape = has_shape && found->shape[i] == own.shape[i];
    }
    if (!has_shape) {
        char is[SHAPE_BYTES], wanted[SHAPE_BYTES];
        show_shape(found, is);
        show_shape(&own, wanted);
        return tw_fail(err, TW_CONFIG, "%s: %s has another shape than the model's: %s, not %s",
                       file, found->name, is, wanted);
    }
    if (!tw_elements_can(found->dtype)) {
        return tw_fail(err, TW_CONFIG, "%s: %s is %s; F32, BF16 and F16 can be read", file,
                       found->name, tw_dtype_name(found->dtype));
    }
    return TW_OK;
}

/* Whether the tensor is a buffer, a mask or frequencies that old releases saved with the
 * parameters. */
static bool is_buffer(const char *name) {
    static const char *const ENDS[] = {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"};
    const size_t size = strlen(name);
    for (unsigned i = 0; i < sizeof(ENDS) / sizeof(ENDS[0]); i++) {
        const size_t end = strlen(ENDS[i]);
        if (size > end && strcmp(name + size - end, ENDS[i]) == 0) return true;
    }
    return false;
}

/* Checks that an output head stored beside the embedding it is tied to has the same numbers. */
static enum tw_status check_tie(const struct tw_model_source *source,
                                const struct tw_model_place *head, struct tw_error *err) {
    const struct tw_tensor *const tensor = &source->layout->tensors[0];
    const struct tw_tensor_file *const file = &source->files[head->file];
    TW_TRY(check_tensor(source, head, tensor, err));
    float *const both = malloc(2 * COMPARE_ELEMENTS * sizeof(*both));
    if (both == NULL) return tw_fail(err, TW_NOMEM, "no memory to compare %s", HEAD);
    const uint64_t count = (uint64_t)tensor->rows * tensor->cols;
    enum tw_status status = TW_OK;
    for (uint64_t at = 0; at < count && status == TW_OK; at += COMPARE_ELEMENTS) {
        const uint64_t n = count - at < COMPARE_ELEMENTS ? count - at : COMPARE_ELEMENTS;
        status = tw_tensor_file_read(file, head->tensor, at, n, both, err);
        if (status == TW_OK) {
            status = tw_model_source_read(source, 0, at, n, both + COMPARE_ELEMENTS, err);
        }
        if (status == TW_OK && memcmp(both, both + COMPARE_ELEMENTS, n * sizeof(*both)) != 0) {
            status = tw_fail(err, TW_CONFIG,
                             "%s: %s differs from %s, but the model's head is tied to it "
                             "(tie_word_embeddings, model.tied)",
                             file->name, HEAD, tensor->name);
        }
    }
    free(both);
    return status;
}

/* Refuses tensors that the model does not have, because they show that the file is of another
 * model. */
static enum tw_status check_rest(const struct tw_model_source *source, const struct names *names,
                                 struct tw_error *err) {
    const bool is_part = names->prefix[0] != 0 && strcmp(names->prefix, "transformer.") != 0;
    for (uint32_t i = 0; i < source->files_count; i++) {
        const struct tw_safetensors *const st = &source->files[i].st;
        for (uint32_t k = 0; k < st->tensors_count; k++) {
            const char *const name = st->tensors[k].name;
            char ours[TW_SAFETENSORS_NAME_BYTES];
            if (is_part && !is_below(name, names->prefix)) {
                continue; /* other data of a checkpoint, such as the outer momentum */
            }
            const bool is_ours = our_name(names, name, ours);
            if (is_ours && tw_layout_find(source->layout, ours) != NULL) continue;
            if (is_ours && strcmp(ours, HEAD) == 0) {
                if (source->places[0].tensor == &st->tensors[k]) continue;
                TW_TRY(check_tie(source, &(struct tw_model_place){i, &st->tensors[k]}, err));
                continue;
            }
            if (is_buffer(name)) continue;
            return tw_fail(err, TW_CONFIG,
                           "%s holds the tensor %s, which this model has no place "
                           "for",
                           source->files[i].name, name);
        }
    }
    return TW_OK;
}

/* Names the missing tensor and, if the other tensors show it, the reason. */
static enum tw_status no_tensor(const struct tw_model_source *source, const struct names *names,
                                uint32_t i, struct tw_error *err) {
    static const char *const PACKED[] = {".qweight", ".weight_packed", ".weight_scale"};
    static const char WEIGHT[] = ".weight";
    char full[TW_SAFETENSORS_NAME_BYTES], packed[TW_SAFETENSORS_NAME_BYTES];
    full_name(names, source->layout->tensors[i].name, full);
    const size_t stem = strlen(full) - strlen(WEIGHT);
    for (unsigned k = 0; strlen(full) > strlen(WEIGHT) && k < 3; k++) {
        const int size = snprintf(packed, sizeof(packed), "%.*s%s", (int)stem, full, PACKED[k]);
        if (size >= (int)sizeof(packed) || find(source, packed).tensor == NULL) continue;
        return tw_fail(err, TW_CONFIG,
                       "%s holds %s in place of %s: quantised weights are not read; take the "
                       "model in bf16, f16 or f32",
                       source->path, packed, full);
    }
    const bool is_head = strcmp(source->layout->tensors[i].name, HEAD) == 0;
    return tw_fail(err, TW_CONFIG, "%s holds no tensor %s, which this model needs%s", source->path,
                   full,
                   is_head ? ": its head is not tied to the embedding, and was not saved" : "");
}

enum tw_status tw_model_source_bind(struct tw_model_source *source, const struct tw_layout *layout,
                                    const char *part, struct tw_error *err) {
    struct names names;
    TW_ASSERT(source->layout == NULL);
    TW_ASSERT(strlen(part) < sizeof(names.prefix) - 1);
    source->layout = layout;
    source->places = calloc(layout->tensors_count, sizeof(*source->places));
    if (source->places == NULL) return tw_fail(err, TW_NOMEM, "no memory for a list of tensors");
    TW_TRY(choose_names(source, part, &names, err));
    for (uint32_t i = 0; i < layout->tensors_count; i++) {
        source->places[i] = find_tensor(source, &names, i);
        if (source->places[i].tensor == NULL) return no_tensor(source, &names, i, err);
        TW_TRY(check_tensor(source, &source->places[i], &layout->tensors[i], err));
    }
    return check_rest(source, &names, err);
}

enum tw_dtype tw_model_source_dtype(const struct tw_model_source *source, uint32_t i) {
    TW_ASSERT(source->layout != NULL && i < source->layout->tensors_count);
    return source->places[i].tensor->dtype;
}

enum tw_status tw_model_source_read(const struct tw_model_source *source, uint32_t i,
                                    uint64_t first, uint64_t count, float *to,
                                    struct tw_error *err) {
    TW_ASSERT(source->layout != NULL && i < source->layout->tensors_count);
    const struct tw_model_place *const place = &source->places[i];
    TW_TRY(tw_tensor_file_read(&source->files[place->file], place->tensor, first, count, to, err));
    if (source->adapter != NULL) tw_adapter_add(source->adapter, i, first, count, to);
    return TW_OK;
}

enum tw_status tw_model_source_adapt(struct tw_model_source *source, const char *folder,
                                     const struct tw_run *run, struct tw_error *err) {
    TW_ASSERT(source->layout != NULL && source->adapter == NULL);
    return tw_adapter_open(&source->adapter, folder, run, source->layout, err);
}

/* ---- comparison of two models ---------------------------------------------------------------- */

enum tw_status tw_model_same(const struct tw_run *found, const struct tw_run *wanted,
                             struct tw_error *err) {
    const struct tw_run_shape a = tw_run_shape(found), b = tw_run_shape(wanted);
    const bool is_llama = found->model.family == TW_FAMILY_LLAMA;
    const bool is_scaled = is_llama && found->model.rope_factor_millionths != 1000000;
    const struct {
        const char *key;
        uint32_t found, wanted;
        bool matters;
    } PAIRS[] = {
        {"model.family (0 gpt2, 1 llama)", found->model.family, wanted->model.family, true},
        {"model.layers", found->model.layers, wanted->model.layers, true},
        {"model.width", found->model.width, wanted->model.width, true},
        {"model.heads", a.heads, b.heads, true},
        {"model.kv_heads", a.kv_heads, b.kv_heads, true},
        {"model.head_size", a.head_size, b.head_size, true},
        {"model.ffn", a.ffn, b.ffn, true},
        {"model.vocab", found->model.vocab, wanted->model.vocab, true},
        {"model.context", found->model.context, wanted->model.context, !is_llama},
        {"model.tied (1 yes)", found->model.is_tied, wanted->model.is_tied, true},
        {"model.norm_eps, in millionths,", found->model.norm_eps_millionths,
         wanted->model.norm_eps_millionths, true},
        {"model.qk_norm (1 yes)", found->model.qk_norm, wanted->model.qk_norm, is_llama},
        {"model.qkv_bias (1 yes)", found->model.qkv_bias, wanted->model.qkv_bias, is_llama},
        {"model.rope_theta", found->model.rope_theta, wanted->model.rope_theta, is_llama},
        {"model.rope_factor, in millionths,", found->model.rope_factor_millionths,
         wanted->model.rope_factor_millionths, is_llama},
        {"model.rope_low, in millionths,", found->model.rope_low_millionths,
         wanted->model.rope_low_millionths, is_scaled},
        {"model.rope_high, in millionths,", found->model.rope_high_millionths,
         wanted->model.rope_high_millionths, is_scaled},
        {"model.rope_original", found->model.rope_original, wanted->model.rope_original, is_scaled},
    };
    for (unsigned i = 0; i < sizeof(PAIRS) / sizeof(PAIRS[0]); i++) {
        if (PAIRS[i].matters && PAIRS[i].found != PAIRS[i].wanted)
            return tw_fail(err, TW_CONFIG, "%s is %u in config.json and %u in the manifest",
                           PAIRS[i].key, PAIRS[i].found, PAIRS[i].wanted);
    }
    return TW_OK;
}

/* ---- manifests ------------------------------------------------------------------------------- */

enum tw_status tw_engine_manifest_read(const char *path, struct tw_run *run,
                                       struct tw_layout *layout, struct tw_error *err) {
    char *text = NULL;
    size_t size = 0;
    struct tw_error why;
    TW_TRY(tw_in_read_whole(path, TW_MANIFEST_BYTES_MAX, &text, &size, err));
    enum tw_status status = tw_run_read(text, size, run, &why);
    if (status == TW_OK) status = tw_layout_init(layout, run, &why);
    free(text);
    return status == TW_OK ? TW_OK : tw_fail(err, status, "%s: %s", path, why.message);
}

/* Derives a run name from a model name: "SmolLM2-135M/" becomes "smollm2-135m". */
static void name_run(struct tw_run *run, const char *name) {
    size_t size = 0;
    for (; *name != 0 && size < sizeof(run->name) - 1; name++) {
        const char lower = *name >= 'A' && *name <= 'Z' ? (char)(*name + 'a' - 'A') : *name;
        const bool is_good = (lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9');
        if (is_good) {
            run->name[size++] = lower;
        } else if (size > 0 && run->name[size - 1] != '-') {
            run->name[size++] = '-';
        }
    }
    while (size > 0 && run->name[size - 1] == '-') size--;
    memset(run->name + size, 0, sizeof(run->name) - size);
    if (size == 0) memcpy(run->name, "imported", sizeof("imported"));
}

/* Sets training keys for a model that is already trained: a low learning rate, 4096 tokens per
 * step, 1000 steps. */
static void plan_training(struct tw_run *run) {
    enum { STEP_TOKENS = 4096, STEPS = 1000, RATE_MILLIONTHS = 50 };
    const uint32_t batch = STEP_TOKENS / run->model.context;
    run->train.batch = batch > 0 ? batch : 1;
    run->train.tokens = (uint64_t)run->train.batch * run->model.context * STEPS;
    run->train.warmup_tokens = run->train.tokens / 20;
    run->train.lr_millionths = RATE_MILLIONTHS;
    tw_run_apply_preset(run, run->sync.preset);
}

enum tw_status tw_engine_manifest_make(const struct tw_model_source *source, const char *name,
                                       uint32_t context, struct tw_run *run, uint32_t *known,
                                       struct tw_error *err) {
    tw_run_defaults(run);
    TW_TRY(tw_model_source_run(source, run, err));
    const uint32_t most = run->model.context;
    if (known != NULL) *known = most;
    if (run->model.family == TW_FAMILY_GPT2) {
        if (context != 0 && context != most) {
            return tw_fail(err, TW_CONFIG,
                           "--context %u: the positions of this model are weights, "
                           "%u of them",
                           context, most);
        }
    } else if (context > most) {
        return tw_fail(err, TW_CONFIG, "--context %u: the model knows %u positions", context, most);
    } else {
        run->model.context = context != 0               ? context
                             : most < TW_ENGINE_CONTEXT ? most
                                                        : TW_ENGINE_CONTEXT;
    }
    name_run(run, name);
    plan_training(run);
    return tw_run_check(run, err);
}

static enum tw_status check_config(const struct tw_model_source *source, const struct tw_run *run,
                                   struct tw_error *err) {
    /* In a folder, config.json certainly describes the model. Beside a single file, it may belong
     * to another one. */
    if (source->config == NULL || !source->is_folder) return TW_OK;
    struct tw_run found;
    tw_run_defaults(&found);
    TW_TRY(tw_model_source_run(source, &found, err));
    return tw_model_same(&found, run, err);
}

enum tw_status tw_engine_source_open(struct tw_model_source *source, const char *path,
                                     const struct tw_run *run, const struct tw_layout *layout,
                                     const char *part, struct tw_error *err) {
    TW_TRY(tw_model_source_open(source, path, err));
    enum tw_status status = check_config(source, run, err);
    if (status == TW_OK) status = tw_model_source_bind(source, layout, part, err);
    if (status != TW_OK) tw_model_source_close(source);
    return status;
}

/* ---- weights of an engine -------------------------------------------------------------------- */

enum tw_status tw_weights_save(const char *path, const struct tw_layout *layout,
                               const struct tw_run *run, const float *params,
                               struct tw_error *err) {
    const struct tw_model_feed feed = {
        .run = run, .layout = layout, .params = params, .says_run = run != NULL};
    return tw_hf_write_file(path, &feed, TW_DTYPE_F32, NULL, err);
}
