#include "worker/files/model_source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "worker/files/elements.h"
#include "worker/files/hf_config.h"
#include "worker/files/model_absent.h"
#include "worker/support/out_file.h"
#include "worker/tokenizer/tokenizer_text.h"

enum { PATH_BYTES = 1024, COMPARE_ELEMENTS = 16 * 1024 };

static const char HEAD[] = "lm_head.weight";

struct tw_model_place {
    uint32_t file;
    const struct tw_safetensors_tensor *tensor;
};

/* ---- open -------------------------------------------------------------------------------------
 */

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
        return source->is_folder ? tw_model_absent_config(folder, err) : TW_OK;
    }
    return tw_in_read_whole(path, TW_HF_CONFIG_BYTES_MAX, &source->config, &source->config_bytes,
                            err);
}

static enum tw_status open_folder(struct tw_model_source *source, const char *folder,
                                  struct tw_error *err) {
    static const char *const SINGLE[] = {"model.safetensors"};
    char path[PATH_BYTES];
    TW_TRY(tw_model_absent_adapter(folder, err));
    TW_TRY(read_config(source, folder, err));
    TW_TRY(path_in(folder, SINGLE[0], path, err));
    if (access(path, F_OK) == 0) return open_files(source, folder, SINGLE, 1, err);
    TW_TRY(path_in(folder, "model.safetensors.index.json", path, err));
    if (access(path, F_OK) == 0) return open_index(source, folder, path, err);
    return tw_model_absent_weights(folder, err);
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

/* ---- bind -------------------------------------------------------------------------------------
 */

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
    return tw_tensor_file_read(&source->files[place->file], place->tensor, first, count, to, err);
}
