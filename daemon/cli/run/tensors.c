#include "daemon/cli/run/tensors.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "base/hash.h"
#include "base/id.h"
#include "base/status.h"
#include "daemon/config/config.h"
#include "proto/run/layout.h"
#include "proto/safetensors.h"

enum { CLI_WEIGHT_FILES_MAX = 512 };

struct cli_weight_files {
    uint32_t count;
    json_t *map; /* weight_map of the index, from tensor to file; owned; NULL: there is no index */
    char paths[CLI_WEIGHT_FILES_MAX][TW_PATH_BYTES]; /* sorted by name */
};

/* ---- files of weights ------------------------------------------------------------------------ */

static const char single_name[] = "model.safetensors",
                  index_name[] = "model.safetensors.index.json";

static bool ends_with(const char *text, const char *end) {
    const size_t size = strlen(text), end_size = strlen(end);
    return size >= end_size && strcmp(text + size - end_size, end) == 0;
}

static int compare_paths(const void *a, const void *b) {
    return strcmp(a, b);
}

/* Adds a file of the folder, unless it is listed already. */
static enum tw_status add_file(struct cli_weight_files *files, const char *folder, const char *name,
                               struct tw_error *err) {
    char path[TW_PATH_BYTES];
    const int size = snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (size < 0 || (size_t)size >= sizeof(path))
        return tw_fail(err, TW_DATA, "%.100s/%.100s: the path is too long", folder, name);
    for (uint32_t i = 0; i < files->count; i++) {
        if (strcmp(files->paths[i], path) == 0) return TW_OK;
    }
    if (files->count == CLI_WEIGHT_FILES_MAX)
        return tw_fail(err, TW_DATA, "%.150s has more than %d weight files", folder,
                       CLI_WEIGHT_FILES_MAX);
    memcpy(files->paths[files->count++], path, (size_t)size + 1);
    return TW_OK;
}

static enum tw_status add_indexed(struct cli_weight_files *files, const char *folder,
                                  const json_t *index, struct tw_error *err) {
    const char *tensor;
    json_t *file;
    json_t *const map = json_object_get(index, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0)
        return tw_fail(err, TW_DATA, "%.150s/%s has no weight_map", folder, index_name);
    json_object_foreach(map, tensor, file) {
        const char *const name = json_string_value(file);
        if (name == NULL || name[0] == '\0' || strchr(name, '/') != NULL)
            return tw_fail(err, TW_DATA, "%.150s/%s names no file of the folder for %.60s", folder,
                           index_name, tensor);
        TW_TRY(add_file(files, folder, name, err));
        if (access(files->paths[files->count - 1], F_OK) != 0)
            return tw_fail(err, TW_DATA, "%.80s lacks %.80s, which its %s names: copy it too",
                           folder, name, index_name);
    }
    files->map = json_incref(map);
    return TW_OK;
}

static enum tw_status add_all(struct cli_weight_files *files, const char *folder,
                              struct tw_error *err) {
    DIR *const dir = opendir(folder);
    enum tw_status status = TW_OK;
    if (dir == NULL) return tw_fail(err, TW_DATA, "%.200s: %s", folder, strerror(errno));
    for (const struct dirent *row = readdir(dir); row != NULL && status == TW_OK;
         row = readdir(dir)) {
        if (ends_with(row->d_name, ".safetensors"))
            status = add_file(files, folder, row->d_name, err);
    }
    (void)closedir(dir);
    return status;
}

static enum tw_status add_folder(struct cli_weight_files *files, const char *folder,
                                 struct tw_error *err) {
    char path[TW_PATH_BYTES + sizeof(index_name)];
    json_error_t why;
    (void)snprintf(path, sizeof(path), "%s/%s", folder, single_name);
    if (access(path, F_OK) == 0) return add_file(files, folder, single_name, err);
    (void)snprintf(path, sizeof(path), "%s/%s", folder, index_name);
    if (access(path, F_OK) != 0) return add_all(files, folder, err);
    json_t *const index = json_load_file(path, 0, &why);
    if (index == NULL) return tw_fail(err, TW_DATA, "%.150s: %.100s", path, why.text);
    const enum tw_status status = add_indexed(files, folder, index, err);
    json_decref(index);
    return status;
}

/* Lists the file, or the files in the folder that transformers would load: model.safetensors, or
 * those that model.safetensors.index.json names. Without either, lists all files named
 * *.safetensors. The caller frees the list, also after a failure. Returns TW_DATA on failure, with
 * the remedy. */
static enum tw_status cli_weight_files_find(const char *path, struct cli_weight_files *files,
                                            struct tw_error *err) {
    struct stat info;
    files->count = 0;
    files->map = NULL;
    if (stat(path, &info) != 0) return tw_fail(err, TW_DATA, "%.200s: %s", path, strerror(errno));
    if (!S_ISDIR(info.st_mode)) {
        if (strlen(path) >= TW_PATH_BYTES) return tw_fail(err, TW_DATA, "the path is too long");
        files->count = 1;
        memcpy(files->paths[0], path, strlen(path) + 1);
        return TW_OK;
    }
    TW_TRY(add_folder(files, path, err));
    if (files->count == 0)
        return tw_fail(err, TW_DATA,
                       "%.200s has no safetensors file: `model.save_pretrained(FOLDER)` or "
                       "safetensors.torch.save_file write one",
                       path);
    qsort(files->paths, files->count, sizeof(files->paths[0]), compare_paths);
    return TW_OK;
}

static void cli_weight_files_free(struct cli_weight_files *files) {
    json_decref(files->map);
    files->map = NULL;
}

static enum tw_status hash_file(const char *path, struct tw_id *digest, struct tw_error *err) {
    enum { BLOCK = 1 << 20 };
    static uint8_t block[BLOCK];
    struct tw_sha256_parts parts;
    FILE *const file = fopen(path, "re");
    if (file == NULL) return tw_fail(err, TW_DATA, "%.200s: %s", path, strerror(errno));
    tw_sha256_begin(&parts);
    for (size_t size = BLOCK; size == BLOCK;) {
        size = fread(block, 1, BLOCK, file);
        tw_sha256_add(&parts, block, size);
    }
    const bool is_bad = ferror(file) != 0;
    (void)fclose(file);
    *digest = tw_sha256_end(&parts);
    return is_bad ? tw_fail(err, TW_DATA, "%.200s: cannot be read", path) : TW_OK;
}

/* Computes model.base: the SHA-256 of the file, or of the list of the files' SHA-256. Reads them
 * all. */
static enum tw_status cli_weight_files_digest(const struct cli_weight_files *files,
                                              struct tw_id *digest, struct tw_error *err) {
    struct tw_sha256_parts parts;
    if (files->count == 1) return hash_file(files->paths[0], digest, err);
    tw_sha256_begin(&parts);
    enum tw_status status = TW_OK;
    for (uint32_t i = 0; i < files->count; i++) {
        char hex[TW_ID_HEX_BYTES];
        if (status == TW_OK) status = hash_file(files->paths[i], digest, err);
        tw_id_hex(digest, hex);
        tw_sha256_add(&parts, hex, sizeof(hex) - 1);
        tw_sha256_add(&parts, "\n", 1);
    }
    *digest = tw_sha256_end(&parts);
    return status;
}

/* ---- names with ranges ----------------------------------------------------------------------- */

enum {
    NUMBER_DIGITS = 6, /* decimal digits of TW_TENSOR_NUMBER_MAX */
    DEPTH_MAX = 4,     /* maximum number of numbers in a name that are folded */
};

/* A text being built. If it gets too long, it is truncated, and is_full is set. */
struct text {
    char bytes[TW_TENSORS_TEXT_BYTES];
    size_t size;
    bool is_full;
};

struct folding {
    struct cli_tensor *tensors;
    struct text head; /* common start of the names being folded, with ranges such as {0-11} in place
                         of numbers */
    struct text out;
};

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

__attribute__((format(printf, 2, 3))) static void put(struct text *text, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const size_t room = sizeof(text->bytes) - text->size;
    const int size = vsnprintf(text->bytes + text->size, room, format, args);
    va_end(args);
    if (size < 0 || (size_t)size >= room) {
        text->is_full = true;
        text->size = sizeof(text->bytes) - 1;
    } else {
        text->size += (size_t)size;
    }
}

/* Compares names. A run of digits counts as one number, so h.2 is before h.10. */
static int compare_names(const void *left, const void *right) {
    const char *a = ((const struct cli_tensor *)left)->name;
    const char *b = ((const struct cli_tensor *)right)->name;
    const char *const whole_a = a, *const whole_b = b;
    while (*a != '\0' && *b != '\0') {
        if (is_digit(*a) && is_digit(*b)) {
            a += strspn(a, "0");
            b += strspn(b, "0");
            const size_t size_a = strspn(a, "0123456789"), size_b = strspn(b, "0123456789");
            if (size_a != size_b) return size_a < size_b ? -1 : 1;
            const int order = memcmp(a, b, size_a);
            if (order != 0) return order;
            a += size_a;
            b += size_b;
        } else if (*a != *b) {
            break;
        } else {
            a++;
            b++;
        }
    }
    if (*a != *b) return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
    return strcmp(whole_a, whole_b);
}

/* Finds the first number at or after `from` that fills a whole component of the dotted name:
 * characters [*begin, *end). */
static bool find_number(const char *name, size_t from, size_t *begin, size_t *end) {
    for (size_t at = from; name[at] != '\0'; at++) {
        if (!is_digit(name[at]) || (at > 0 && name[at - 1] != '.')) continue;
        const size_t size = strspn(name + at, "0123456789");
        const char after = name[at + size];
        const bool is_short = size <= NUMBER_DIGITS && (size == 1 || name[at] != '0');
        if (!is_short || (after != '.' && after != '\0')) continue;
        *begin = at;
        *end = at + size;
        return true;
    }
    return false;
}

static uint32_t number_at(const struct folding *folding, uint32_t i, size_t begin) {
    return (uint32_t)strtoul(folding->tensors[i].name + begin, NULL, 10);
}

/* Returns whether tensor i has the same name as tensor `first` up to `begin`, and a number there.
 */
static bool is_like(const struct folding *folding, uint32_t first, uint32_t i, size_t begin) {
    size_t at, end;
    const char *name = folding->tensors[i].name;
    if (strncmp(name, folding->tensors[first].name, begin) != 0) return false;
    return find_number(name, begin, &at, &end) && at == begin;
}

/* Returns the end of the tensors, from i on, whose names have the same number at `begin` as tensor
 * i. */
static uint32_t block_end(const struct folding *folding, uint32_t i, uint32_t end, size_t begin) {
    uint32_t at = i + 1;
    while (at < end && number_at(folding, at, begin) == number_at(folding, i, begin)) at++;
    return at;
}

/* Tensors [first, end) of one layer: their names have the same number. */
struct block {
    uint32_t first, end;
    size_t rest; /* position in their names after that number */
};

static bool is_equal(const struct folding *folding, const struct block *a, const struct block *b) {
    if (a->end - a->first != b->end - b->first) return false;
    for (uint32_t i = 0; i < a->end - a->first; i++) {
        const struct cli_tensor *left = &folding->tensors[a->first + i];
        const struct cli_tensor *right = &folding->tensors[b->first + i];
        if (strcmp(left->name + a->rest, right->name + b->rest) != 0) return false;
        if (memcmp(&left->shape, &right->shape, sizeof(left->shape)) != 0) return false;
    }
    return true;
}

/* Returns the block that begins at tensor i, within the group that ends at `end`. */
static struct block block_at(const struct folding *folding, uint32_t i, uint32_t end,
                             size_t begin) {
    const char *name = folding->tensors[i].name;
    return (struct block){.first = i,
                          .end = block_end(folding, i, end, begin),
                          .rest = begin + strspn(name + begin, "0123456789")};
}

/* Writes the numbers of this block and of all later blocks equal to it: "{0-2,5}", or "4" alone.
 * Marks those blocks as folded. Returns whether there are any. */
static bool put_numbers(struct folding *folding, const struct block *block, uint32_t end,
                        size_t begin, bool may_fold) {
    uint32_t first = number_at(folding, block->first, begin), last = first;
    bool is_several = false;
    const size_t head_size = folding->head.size;
    put(&folding->head, "{");
    for (uint32_t i = block->end; may_fold && i < end;) {
        const struct block other = block_at(folding, i, end, begin);
        i = other.end;
        if (folding->tensors[other.first].is_folded || !is_equal(folding, block, &other)) continue;
        for (uint32_t k = other.first; k < other.end; k++) folding->tensors[k].is_folded = true;
        const uint32_t number = number_at(folding, other.first, begin);
        is_several = true;
        if (number == last + 1) {
            last = number;
            continue;
        }
        put(&folding->head, "%" PRIu32, first);
        if (last > first) put(&folding->head, "-%" PRIu32, last);
        put(&folding->head, ",");
        first = last = number;
    }
    if (!is_several) folding->head.size = head_size; /* a single number needs no braces */
    put(&folding->head, "%" PRIu32, first);
    if (last > first) put(&folding->head, "-%" PRIu32, last);
    if (is_several) put(&folding->head, "}");
    return is_several;
}

static void put_entry(struct folding *folding, struct cli_tensor *tensor, size_t from) {
    put(&folding->out, "%s%.*s%s:", folding->out.size > 0 ? " " : "", (int)folding->head.size,
        folding->head.bytes, tensor->name + from);
    for (uint32_t i = 0; i < tensor->shape.rank; i++)
        put(&folding->out, "%s%" PRIu32, i > 0 ? "x" : "", tensor->shape.sides[i]);
    tensor->is_folded = true;
}

/* Writes tensors [i, end). `head` replaces the first `from` characters of their names. */
static void fold(struct folding *folding, uint32_t i, uint32_t end, size_t from, uint32_t braces,
                 uint32_t depth) {
    while (i < end) {
        size_t begin = 0, number_end = 0;
        uint32_t group_end = i + 1;
        if (folding->tensors[i].is_folded) {
            i++;
            continue;
        }
        if (depth == DEPTH_MAX ||
            !find_number(folding->tensors[i].name, from, &begin, &number_end)) {
            put_entry(folding, &folding->tensors[i++], from);
            continue;
        }
        while (group_end < end && is_like(folding, i, group_end, begin)) group_end++;
        while (i < group_end) {
            const struct block block = block_at(folding, i, group_end, begin);
            i = block.end;
            if (folding->tensors[block.first].is_folded) continue;
            const size_t head_size = folding->head.size;
            put(&folding->head, "%.*s", (int)(begin - from),
                folding->tensors[block.first].name + from);
            const bool is_several =
                put_numbers(folding, &block, group_end, begin, braces < TW_TENSOR_BRACES_MAX);
            fold(folding, block.first, block.end, block.rest, braces + is_several, depth + 1);
            folding->head.size = head_size;
        }
    }
}

/* Checks that the list expands to the same tensors again. */
static enum tw_status check_list(const struct folding *folding, uint32_t count,
                                 struct tw_error *err) {
    struct tw_tensor_list_size size;
    uint64_t elements = 0;
    TW_TRY(tw_tensor_list_check(folding->out.bytes, &size, err));
    for (uint32_t i = 0; i < count; i++)
        elements += tw_tensor_shape_elements(&folding->tensors[i].shape);
    if (size.tensors == count && size.elements == elements) return TW_OK;
    return tw_fail(err, TW_CONFIG, "these names cannot be folded: %u tensors became %u", count,
                   size.tensors);
}

enum tw_status cli_tensors_fold(struct cli_tensor *tensors, uint32_t count,
                                char text[TW_TENSORS_TEXT_BYTES], struct tw_error *err) {
    static struct folding folding;
    memset(&folding, 0, sizeof(folding));
    folding.tensors = tensors;
    qsort(tensors, count, sizeof(*tensors), compare_names);
    for (uint32_t i = 0; i < count; i++) tensors[i].is_folded = false;
    fold(&folding, 0, count, 0, 0, 0);
    if (folding.head.is_full || folding.out.is_full)
        return tw_fail(err, TW_CONFIG,
                       "names and shapes of %u tensors take more than %d characters: train fewer "
                       "of them (--train PATTERN), such as adapters",
                       count, TW_TENSORS_TEXT_BYTES - 1);
    TW_TRY(check_list(&folding, count, err));
    memcpy(text, folding.out.bytes, folding.out.size + 1);
    return TW_OK;
}

/* ---- the tensors of a run -------------------------------------------------------------------- */

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
