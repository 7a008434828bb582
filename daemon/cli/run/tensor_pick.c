#include "daemon/cli/run/tensor_pick.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/cli/run/weight_files.h"
#include "proto/safetensors.h"

#define NAME_CHARACTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

enum {
    HEADER_TENSORS_MAX = 1 << 16, /* maximum number of tensors in one file */
    HEADER_BYTES_MAX = 64 << 20,  /* largest header of one file */
};

enum tw_exit cli_pick_read(struct cli *cli, struct cli_pick *pick) {
    const char *pattern;
    (void)cli_option(cli, "--tensors", &pick->path);
    (void)cli_option(cli, "--base", &pick->base);
    while (cli_option(cli, "--train", &pattern)) {
        if (pick->train_count == CLI_PATTERNS_MAX)
            return cli_fail(TW_EXIT_USAGE, "too many --train");
        pick->train[pick->train_count++] = pattern;
    }
    while (cli_option(cli, "--frozen", &pattern)) {
        if (pick->frozen_count == CLI_PATTERNS_MAX)
            return cli_fail(TW_EXIT_USAGE, "too many --frozen");
        pick->frozen[pick->frozen_count++] = pattern;
    }
    if (pick->path == NULL && (pick->base != NULL || pick->train_count + pick->frozen_count > 0))
        return cli_fail(TW_EXIT_USAGE, "--train, --frozen and --base need --tensors FILE, whose "
                                       "tensors they choose");
    return TW_EXIT_OK;
}

/* Tensors of all files read so far, and whether each pattern has matched. */
struct picking {
    struct cli_pick *pick;
    json_t *places;             /* path of each tensor's file, by the tensor's name */
    struct cli_tensor *tensors; /* TW_TENSORS_MAX entries */
    bool has_train[CLI_PATTERNS_MAX], has_frozen[CLI_PATTERNS_MAX];
};

static bool is_float(enum tw_dtype dtype) {
    return dtype == TW_DTYPE_F32 || dtype == TW_DTYPE_BF16 || dtype == TW_DTYPE_F16 ||
           dtype == TW_DTYPE_F64;
}

/* Returns whether weights have 8 bits, which cannot be trained directly. */
static bool is_quantised(enum tw_dtype dtype) {
    return dtype == TW_DTYPE_F8_E4M3 || dtype == TW_DTYPE_F8_E5M2;
}

/* Returns whether any pattern matches. Notes every pattern that does. */
static bool matches(const char *name, const char *const *patterns, uint32_t count, bool *has) {
    bool is_match = false;
    for (uint32_t i = 0; i < count; i++) {
        if (fnmatch(patterns[i], name, 0) != 0) continue;
        has[i] = is_match = true;
    }
    return is_match;
}

static bool is_wanted(struct picking *picking, const char *name) {
    struct cli_pick *pick = picking->pick;
    const bool is_trained = matches(name, pick->train, pick->train_count, picking->has_train);
    const bool is_frozen = matches(name, pick->frozen, pick->frozen_count, picking->has_frozen);
    return (is_trained || pick->train_count == 0) && !is_frozen;
}

static enum tw_status add_tensor(struct picking *picking, const struct tw_safetensors_tensor *from,
                                 struct tw_error *err) {
    struct cli_pick *pick = picking->pick;
    uint64_t elements = 1;
    pick->seen++;
    if (!is_float(from->dtype) && !is_quantised(from->dtype)) {
        pick->no_floats++;
        return TW_OK;
    }
    for (uint32_t i = 0; i < from->rank; i++) elements *= from->shape[i];
    pick->elements_seen += elements;
    if (!is_wanted(picking, from->name)) return TW_OK;
    if (is_quantised(from->dtype))
        return tw_fail(err, TW_CONFIG,
                       "tensor %.100s is quantised to 8 bits, which no optimizer trains: convert "
                       "the model to bf16, or train adapters over it (--train, --base)",
                       from->name);
    if (from->name[strspn(from->name, NAME_CHARACTERS)] != 0)
        return tw_fail(err, TW_CONFIG,
                       "tensor `%.100s`: a name in a run has only A-Z, a-z, 0-9, point, hyphen and "
                       "underscore; leave it out with --frozen, or rename it",
                       from->name);
    if (pick->tensors == TW_TENSORS_MAX)
        return tw_fail(err, TW_CONFIG,
                       "more than %d tensors: train fewer of them (--train PATTERN), such as "
                       "adapters",
                       TW_TENSORS_MAX);
    struct cli_tensor *to = &picking->tensors[pick->tensors++];
    memset(to, 0, sizeof(*to));
    if (strlen(from->name) >= sizeof(to->name) || from->rank > TW_TENSOR_RANK_MAX || elements == 0)
        return tw_fail(err, TW_CONFIG,
                       "tensor %.130s has no place in a run: it is empty, has a name of more than "
                       "127 characters, or more than %d sides; leave it out with --frozen",
                       from->name, TW_TENSOR_RANK_MAX);
    memcpy(to->name, from->name, strlen(from->name));
    to->shape.rank = from->rank > 0 ? from->rank : 1; /* a scalar becomes a tensor of rank 1 */
    to->shape.sides[0] = 1;
    for (uint32_t i = 0; i < from->rank; i++) {
        if (from->shape[i] > INT32_MAX)
            return tw_fail(err, TW_CONFIG, "tensor %s is too large for a run", from->name);
        to->shape.sides[i] = (uint32_t)from->shape[i];
    }
    return TW_OK;
}

static enum tw_status read_header(struct tw_safetensors *st, FILE *file, struct tw_error *err) {
    uint8_t prefix[TW_SAFETENSORS_PREFIX_BYTES];
    uint64_t json_bytes = 0;
    if (fseeko(file, 0, SEEK_END) != 0) return tw_fail(err, TW_DATA, "%s", strerror(errno));
    const off_t file_bytes = ftello(file);
    if (file_bytes < 0 || fseeko(file, 0, SEEK_SET) != 0)
        return tw_fail(err, TW_DATA, "%s", strerror(errno));
    if (fread(prefix, 1, sizeof(prefix), file) != sizeof(prefix))
        return tw_fail(err, TW_DATA, "it is too short for a safetensors file");
    TW_TRY(tw_safetensors_prefix(prefix, (uint64_t)file_bytes, HEADER_BYTES_MAX, &json_bytes, err));
    char *json = malloc((size_t)json_bytes + 1);
    if (json == NULL) return tw_fail(err, TW_NOMEM, "no memory for its header");
    const bool is_read = fread(json, 1, (size_t)json_bytes, file) == json_bytes;
    enum tw_status status = TW_DATA;
    if (is_read)
        status = tw_safetensors_parse(st, json, (size_t)json_bytes,
                                      (uint64_t)file_bytes - sizeof(prefix) - json_bytes, err);
    else
        (void)tw_fail(err, TW_DATA, "it cannot be read");
    free(json);
    return status;
}

static const char *base_name(const char *path) {
    const char *const slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* Notes the file of each tensor. Fails if a tensor is in two files. */
static enum tw_status note_places(struct picking *picking, const struct tw_safetensors *st,
                                  const char *path, struct tw_error *err) {
    for (uint32_t i = 0; i < st->tensors_count; i++) {
        const char *const name = st->tensors[i].name;
        const char *const other = json_string_value(json_object_get(picking->places, name));
        if (other != NULL)
            return tw_fail(err, TW_DATA,
                           "%.80s and %.80s both have tensor %.80s: name the one file that is "
                           "meant",
                           base_name(other), base_name(path), name);
        if (json_object_set_new(picking->places, name, json_string(path)) != 0)
            return tw_fail(err, TW_NOMEM, "no memory for the names of tensors");
    }
    return TW_OK;
}

/* Checks that each tensor of the index is in the file that the index names. */
static enum tw_status check_index(const struct picking *picking,
                                  const struct cli_weight_files *files, struct tw_error *err) {
    const char *name;
    json_t *file;
    json_object_foreach(files->map, name, file) {
        const char *const place = json_string_value(json_object_get(picking->places, name));
        if (place != NULL && strcmp(base_name(place), json_string_value(file)) == 0) continue;
        return tw_fail(err, TW_DATA,
                       "the index of %.80s says that %.60s has tensor %.80s, and it has not: the "
                       "files belong to different models, or one is cut short",
                       picking->pick->path, json_string_value(file), name);
    }
    return TW_OK;
}

static enum tw_status take_file(struct picking *picking, const char *path, struct tw_error *err) {
    static struct tw_safetensors st;
    struct tw_error why;
    FILE *const file = fopen(path, "re");
    if (file == NULL) return tw_fail(err, TW_DATA, "%.200s: %s", path, strerror(errno));
    st = (struct tw_safetensors){.tensors_capacity = HEADER_TENSORS_MAX};
    st.tensors = calloc(HEADER_TENSORS_MAX, sizeof(*st.tensors));
    enum tw_status status = TW_NOMEM;
    if (st.tensors != NULL)
        status = read_header(&st, file, &why);
    else
        (void)tw_fail(&why, TW_NOMEM, "no memory for its tensors");
    for (uint32_t i = 0; status == TW_OK && i < st.tensors_count; i++)
        status = add_tensor(picking, &st.tensors[i], &why);
    if (status != TW_OK) (void)tw_fail(err, status, "%.100s: %.220s", path, why.message);
    if (status == TW_OK) status = note_places(picking, &st, path, err);
    free(st.tensors);
    (void)fclose(file);
    return status;
}

/* Fails if a pattern has no match: that is a mistake, and the run would have too many tensors or
 * too few. */
static enum tw_status check_patterns(const struct picking *picking, struct tw_error *err) {
    const struct cli_pick *pick = picking->pick;
    for (uint32_t i = 0; i < pick->train_count; i++) {
        if (!picking->has_train[i])
            return tw_fail(err, TW_CONFIG, "--train '%.80s': %.80s has no tensor of such a name",
                           pick->train[i], pick->path);
    }
    for (uint32_t i = 0; i < pick->frozen_count; i++) {
        if (!picking->has_frozen[i])
            return tw_fail(err, TW_CONFIG, "--frozen '%.80s': %.80s has no tensor of such a name",
                           pick->frozen[i], pick->path);
    }
    if (pick->tensors > 0) return TW_OK;
    return tw_fail(err, TW_CONFIG, "%.150s has no tensor to train%s", pick->path,
                   pick->train_count + pick->frozen_count > 0 ? " with these patterns" : "");
}

/* Returns whether --tensors is a list like model.tensors, rather than a path. */
static bool is_list(const char *text) {
    return strchr(text, ':') != NULL && access(text, F_OK) != 0;
}

static enum tw_status take_list(struct cli_pick *pick, struct tw_error *err) {
    struct tw_tensor_list_size size;
    TW_TRY(tw_tensor_list_check(pick->path, &size, err));
    if (pick->train_count + pick->frozen_count > 0)
        return tw_fail(err, TW_CONFIG,
                       "--train and --frozen choose from a file, and --tensors is "
                       "a list: leave out the tensors that are not trained");
    (void)snprintf(pick->text, sizeof(pick->text), "%s", pick->path);
    pick->tensors = pick->seen = size.tensors;
    pick->elements_seen = size.elements;
    pick->path = "the list";
    return TW_OK;
}

static enum tw_status take_files(struct cli_pick *pick, struct tw_error *err) {
    static struct cli_weight_files files;
    struct picking picking = {.pick = pick, .places = json_object()};
    enum tw_status status = cli_weight_files_find(pick->path, &files, err);
    picking.tensors = calloc(TW_TENSORS_MAX, sizeof(*picking.tensors));
    if (status == TW_OK && (picking.tensors == NULL || picking.places == NULL))
        status = tw_fail(err, TW_NOMEM, "no memory for the tensors");
    for (uint32_t i = 0; status == TW_OK && i < files.count; i++)
        status = take_file(&picking, files.paths[i], err);
    if (status == TW_OK) status = check_index(&picking, &files, err);
    if (status == TW_OK) status = check_patterns(&picking, err);
    if (status == TW_OK) status = cli_tensors_fold(picking.tensors, pick->tensors, pick->text, err);
    free(picking.tensors);
    json_decref(picking.places);
    cli_weight_files_free(&files);
    return status;
}

enum tw_status cli_pick_tensors(struct cli_pick *pick, struct tw_error *err) {
    static struct cli_weight_files files;
    TW_TRY(is_list(pick->path) ? take_list(pick, err) : take_files(pick, err));
    if (pick->base == NULL) return TW_OK;
    enum tw_status status = cli_weight_files_find(pick->base, &files, err);
    if (status == TW_OK) status = cli_weight_files_digest(&files, &pick->base_digest, err);
    cli_weight_files_free(&files);
    return status;
}
