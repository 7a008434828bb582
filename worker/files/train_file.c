#include "worker/files/train_file.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/id.h"
#include "kernels/norm.h"
#include "proto/safetensors.h"
#include "worker/files/tensor_file.h"

enum {
    SLOTS = 2,
    BLOCK_BYTES = 1 << 20, /* size of the data blocks that have a SHA-256 digest each */
    DIGEST_DIGITS = TW_ID_HEX_BYTES - 1,
    RUN_DIGITS = 16, /* number of digits of a run's id in the name of its folder */
};

/* ---- checkpoints of a node ------------------------------------------------------------------- */

static const char *const SLOT_NAMES[SLOTS] = {"ckpt.a.safetensors", "ckpt.b.safetensors"};
static const char FORMAT[] = "thinwire checkpoint 1";

/* One of the two checkpoint files. */
struct slot {
    char path[TW_STATE_PATH_BYTES];
    bool exists;
    enum tw_status status;
    struct tw_error err;
    uint64_t generation, step;
    char run[TW_ID_HEX_BYTES];
};

static enum tw_status path_in(const char *folder, const char *name, char path[TW_STATE_PATH_BYTES],
                              struct tw_error *err) {
    const int n = snprintf(path, TW_STATE_PATH_BYTES, "%s/%s", folder, name);
    if (n < TW_STATE_PATH_BYTES) return TW_OK;
    return tw_fail(err, TW_CONFIG, "the path is too long: %.80s...", folder);
}

/* ---- header ---------------------------------------------------------------------------------- */

static enum tw_status metadata_of(const struct tw_tensor_file *file, const char *key, size_t size,
                                  const struct tw_safetensors_text **text, struct tw_error *err) {
    *text = tw_safetensors_metadata(&file->st, key);
    if (*text != NULL && (size == 0 || (*text)->size == size)) return TW_OK;
    return tw_fail(err, TW_CORRUPT, "%s: its metadata '%s' is missing or cut", file->name, key);
}

static enum tw_status number_of(const struct tw_tensor_file *file, const char *key, uint64_t *value,
                                struct tw_error *err) {
    const struct tw_safetensors_text *text;
    TW_TRY(metadata_of(file, key, 0, &text, err));
    bool is_good = text->size > 0 && text->size < 20;
    *value = 0;
    for (size_t i = 0; is_good && i < text->size; i++) {
        is_good = text->bytes[i] >= '0' && text->bytes[i] <= '9';
        *value = *value * 10 + (uint64_t)(text->bytes[i] - '0');
    }
    if (is_good) return TW_OK;
    return tw_fail(err, TW_CORRUPT, "%s: its metadata '%s' is not a number", file->name, key);
}

/* Checks the digest of the header. It covers the whole header, with zeros in place of the digest
 * itself. Writes these zeros into file->json. */
static enum tw_status check_header(struct tw_tensor_file *file, struct tw_error *err) {
    const struct tw_safetensors_text *text;
    char written[TW_ID_HEX_BYTES] = {0}, computed[TW_ID_HEX_BYTES];
    uint8_t prefix[TW_SAFETENSORS_PREFIX_BYTES];
    const uint64_t json_bytes = file->data_at - sizeof(prefix);
    TW_TRY(metadata_of(file, "format", 0, &text, err));
    if (text->size != sizeof(FORMAT) - 1 || memcmp(text->bytes, FORMAT, text->size) != 0) {
        return tw_fail(err, TW_VERSION, "%s: its format is '%.*s', this program reads '%s'",
                       file->name, (int)(text->size < 40 ? text->size : 40), text->bytes, FORMAT);
    }
    TW_TRY(metadata_of(file, "digest", DIGEST_DIGITS, &text, err));
    memcpy(written, text->bytes, DIGEST_DIGITS);
    memset(file->json + (text->bytes - file->json), '0', DIGEST_DIGITS);
    for (unsigned i = 0; i < sizeof(prefix); i++) prefix[i] = (uint8_t)(json_bytes >> 8 * i);
    const struct tw_id digest = tw_sha256_pair(prefix, sizeof(prefix), file->json, json_bytes);
    tw_id_hex(&digest, computed);
    if (memcmp(written, computed, DIGEST_DIGITS) == 0) return TW_OK;
    return tw_fail(err, TW_CORRUPT, "%s: its header does not match its SHA-256", file->name);
}

static void slot_read(struct slot *slot) {
    struct tw_tensor_file file;
    const struct tw_safetensors_text *run;
    slot->status = tw_tensor_file_open(&file, slot->path, &slot->err);
    if (slot->status != TW_OK) return;
    slot->status = check_header(&file, &slot->err);
    if (slot->status == TW_OK) {
        slot->status = number_of(&file, "generation", &slot->generation, &slot->err);
    }
    if (slot->status == TW_OK) slot->status = number_of(&file, "step", &slot->step, &slot->err);
    if (slot->status == TW_OK) {
        slot->status = metadata_of(&file, "run", DIGEST_DIGITS, &run, &slot->err);
    }
    if (slot->status == TW_OK) memcpy(slot->run, run->bytes, DIGEST_DIGITS);
    tw_tensor_file_close(&file);
}

/* ---- data ------------------------------------------------------------------------------------ */

/* Sets [*begin, *end) to the range of data bytes that contains all tensors of a part; empty if
 * there are none. */
static void range_of(const struct tw_safetensors *st, const char *part, uint64_t *begin,
                     uint64_t *end) {
    const size_t size = strlen(part);
    *begin = UINT64_MAX;
    *end = 0;
    for (uint32_t i = 0; i < st->tensors_count; i++) {
        const struct tw_safetensors_tensor *const tensor = &st->tensors[i];
        if (strncmp(tensor->name, part, size) != 0 || tensor->name[size] != '.') continue;
        if (tensor->begin < *begin) *begin = tensor->begin;
        if (tensor->end > *end) *end = tensor->end;
    }
}

static enum tw_status read_block(const struct tw_tensor_file *file, uint8_t *block, size_t size,
                                 uint64_t at, struct tw_error *err) {
    for (size_t done = 0; done < size;) {
        const ssize_t n = pread(file->fd, block + done, size - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return tw_fail(err, TW_IO, "%s: %s", file->name, strerror(errno));
        if (n == 0) return tw_fail(err, TW_CORRUPT, "%s ends too early", file->name);
        done += (size_t)n;
    }
    return TW_OK;
}

static enum tw_status check_blocks(const struct tw_tensor_file *file, const char *part,
                                   uint8_t *block, struct tw_error *err) {
    const struct tw_safetensors_text *hashes;
    struct stat info;
    uint64_t begin, end;
    if (fstat(file->fd, &info) != 0) {
        return tw_fail(err, TW_IO, "%s: %s", file->name, strerror(errno));
    }
    const uint64_t bytes = (uint64_t)info.st_size - file->data_at;
    const uint64_t blocks = (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
    TW_TRY(metadata_of(file, "sha256", (size_t)blocks * DIGEST_DIGITS, &hashes, err));
    range_of(&file->st, part, &begin, &end);
    for (uint64_t i = begin / BLOCK_BYTES; begin < end && i * BLOCK_BYTES < end; i++) {
        char hex[TW_ID_HEX_BYTES];
        const uint64_t left = bytes - i * BLOCK_BYTES;
        const size_t size = left < BLOCK_BYTES ? (size_t)left : BLOCK_BYTES;
        TW_TRY(read_block(file, block, size, file->data_at + i * BLOCK_BYTES, err));
        const struct tw_id hash = tw_sha256(block, size);
        tw_id_hex(&hash, hex);
        if (memcmp(hex, hashes->bytes + i * DIGEST_DIGITS, DIGEST_DIGITS) == 0) continue;
        return tw_fail(err, TW_CORRUPT, "%s: MiB %llu of its data does not match its SHA-256",
                       file->name, (unsigned long long)i);
    }
    return TW_OK;
}

static void slot_check(struct slot *slot, const char *part) {
    struct tw_tensor_file file;
    uint8_t *const block = malloc(BLOCK_BYTES);
    if (block == NULL) {
        slot->status = tw_fail(&slot->err, TW_NOMEM, "no memory for a block");
        return;
    }
    slot->status = tw_tensor_file_open(&file, slot->path, &slot->err);
    if (slot->status == TW_OK) {
        slot->status = check_blocks(&file, part, block, &slot->err);
        tw_tensor_file_close(&file);
    }
    free(block);
}

/* ---- manifest -------------------------------------------------------------------------------- */

/* Whether the file is the manifest of the run with this id. */
static bool is_of_run(const char *path, const char *id) {
    char hex[TW_ID_HEX_BYTES], canonical[TW_MANIFEST_BYTES_MAX], *text = NULL;
    struct tw_run run;
    size_t size = 0;
    if (tw_in_read_whole(path, TW_MANIFEST_BYTES_MAX, &text, &size, NULL) != TW_OK) return false;
    const bool is_good = tw_run_read(text, size, &run, NULL) == TW_OK;
    free(text);
    if (!is_good) return false;
    tw_run_encode(&run, canonical, &size);
    const struct tw_id found = tw_sha256(canonical, size);
    tw_id_hex(&found, hex);
    return strcmp(hex, id) == 0;
}

/* Looks for the manifest beside the checkpoints and one folder above, where an invited node keeps
 * it. */
static void find_manifest(const char *folder, const char *id, char path[TW_STATE_PATH_BYTES]) {
    static const char *const PLACES[] = {"run.manifest", "../run.manifest"};
    for (unsigned i = 0; i < sizeof(PLACES) / sizeof(PLACES[0]); i++) {
        if (path_in(folder, PLACES[i], path, NULL) == TW_OK && is_of_run(path, id)) return;
    }
    path[0] = 0;
}

/* ---- folder ---------------------------------------------------------------------------------- */

static bool has_slots(const char *folder) {
    char path[TW_STATE_PATH_BYTES];
    for (unsigned i = 0; i < SLOTS; i++) {
        if (path_in(folder, SLOT_NAMES[i], path, NULL) == TW_OK && access(path, F_OK) == 0) {
            return true;
        }
    }
    return false;
}

/* Finds the folder with the checkpoints: `path` itself or a subfolder. Sets folder to "" if there
 * is none. */
static enum tw_status find_folder(const char *path, char folder[TW_STATE_PATH_BYTES],
                                  struct tw_error *err) {
    char below[TW_STATE_PATH_BYTES];
    folder[0] = 0;
    if (has_slots(path)) {
        size_t size = strlen(path);
        while (size > 1 && path[size - 1] == '/') size--;
        /* The path fits, because has_slots built longer paths in this folder. */
        memcpy(folder, path, size);
        folder[size] = 0;
        return TW_OK;
    }
    DIR *const dir = opendir(path);
    /* `path` is a file or unreadable: opening it as a model reports the error. */
    if (dir == NULL) return TW_OK;
    enum tw_status status = TW_OK;
    const struct dirent *entry;
    while (status == TW_OK && (entry = readdir(dir)) != NULL) {
        const bool is_run = strlen(entry->d_name) == RUN_DIGITS &&
                            strspn(entry->d_name, "0123456789abcdef") == RUN_DIGITS;
        if (!is_run || path_in(path, entry->d_name, below, NULL) != TW_OK || !has_slots(below)) {
            continue;
        }
        if (folder[0] != 0) {
            status = tw_fail(err, TW_CONFIG,
                             "%.100s holds checkpoints of several runs: name the folder of one of "
                             "them, such as %.100s",
                             path, below);
        }
        memcpy(folder, below, sizeof(below));
    }
    (void)closedir(dir);
    return status;
}

/* Returns the newer of the checkpoint files that are not known to be damaged, or NULL if there is
 * none. */
static struct slot *newest(struct slot slots[SLOTS]) {
    struct slot *best = NULL;
    for (unsigned i = 0; i < SLOTS; i++) {
        const bool is_good = slots[i].exists && slots[i].status == TW_OK;
        if (is_good && (best == NULL || slots[i].generation > best->generation)) best = &slots[i];
    }
    return best;
}

static enum tw_status choose(struct slot slots[SLOTS], const char *folder, const char *part,
                             struct tw_state_found *found, struct tw_error *err) {
    struct slot *best = newest(slots);
    while (best != NULL) {
        slot_check(best, part);
        if (best->status == TW_OK) break;
        best = newest(slots);
    }
    for (unsigned i = 0; i < SLOTS; i++) {
        if (!slots[i].exists || slots[i].status == TW_OK) continue;
        if (best == NULL) {
            return tw_fail(err, slots[i].status, "no checkpoint in %.80s is whole: %.140s", folder,
                           slots[i].err.message);
        }
        memcpy(found->refused, slots[i].err.message, sizeof(found->refused) - 1);
    }
    if (best == NULL) return tw_fail(err, TW_IO, "the checkpoints in %.100s have gone", folder);
    memcpy(found->checkpoint, best->path, sizeof(best->path));
    found->step = best->step;
    find_manifest(folder, best->run, found->manifest);
    return TW_OK;
}

enum tw_status tw_state_folder_find(const char *path, const char *part, bool *is_one,
                                    struct tw_state_found *found, struct tw_error *err) {
    char folder[TW_STATE_PATH_BYTES];
    struct slot slots[SLOTS];
    memset(found, 0, sizeof(*found));
    memset(slots, 0, sizeof(slots));
    *is_one = false;
    TW_TRY(find_folder(path, folder, err));
    if (folder[0] == 0) return TW_OK;
    *is_one = true;
    for (unsigned i = 0; i < SLOTS; i++) {
        TW_TRY(path_in(folder, SLOT_NAMES[i], slots[i].path, err));
        slots[i].exists = access(slots[i].path, F_OK) == 0;
        if (slots[i].exists) slot_read(&slots[i]);
    }
    return choose(slots, folder, part, found, err);
}

/* ---- training files -------------------------------------------------------------------------- */

enum { PARTS = 3 };
static const char *const PREFIXES[PARTS] = {"live", "adam_m", "adam_v"};

static void arrays_of(const struct tw_train_state *state, float *arrays[PARTS]) {
    arrays[0] = state->theta;
    arrays[1] = state->m;
    arrays[2] = state->v;
}

/* ---- metadata -------------------------------------------------------------------------------- */

/* A metadata value is one line of printable ASCII, so '|' replaces the line ends of a manifest,
 * which never contains '|'. */
enum { LINE_END = '|' };

enum field {
    VERSION,
    STEP,
    TOKENS,
    UPDATES,
    CURSOR,
    SEED,
    SKIPPED,
    SUM,
    MICRO_BATCH,
    COMPUTE_BITS,
    FIELDS
};

static const char *const FIELD_NAMES[FIELDS] = {
    "thinwire.training",    "thinwire.step",        "thinwire.tokens",  "thinwire.updates",
    "thinwire.cursor",      "thinwire.data_seed",   "thinwire.skipped", "thinwire.xxh64",
    "thinwire.micro_batch", "thinwire.compute_bits"};

enum { FORMAT_VERSION = 1 };

/* Files of older versions lack micro_batch and compute_bits, and their checksum does not cover
 * them. */
static unsigned fields_count(const struct tw_train_pass *pass) {
    return pass->micro_batch > 0 ? FIELDS : MICRO_BATCH;
}

/* Text of the manifest as saved. If an older version wrote it, it lacks newer keys. */
struct manifest {
    char text[TW_MANIFEST_BYTES_MAX];
    size_t size;
};

struct metadata {
    struct manifest manifest;
    char numbers[FIELDS][24];
    unsigned numbers_count;
};

static void counters_of(const struct tw_train_file *file, uint64_t values[FIELDS]) {
    const uint64_t counters[FIELDS] = {[VERSION] = FORMAT_VERSION,
                                       [STEP] = file->state.step,
                                       [TOKENS] = file->state.tokens,
                                       [UPDATES] = file->state.updates,
                                       [CURSOR] = file->state.cursor,
                                       [SEED] = file->data_seed,
                                       [SKIPPED] = file->skipped,
                                       [MICRO_BATCH] = file->pass.micro_batch,
                                       [COMPUTE_BITS] =
                                           file->pass.compute == TW_COMPUTE_BF16 ? 16 : 32};
    memcpy(values, counters, sizeof(counters));
}

void tw_train_file_manifest(const struct tw_run *run, char text[TW_MANIFEST_BYTES_MAX],
                            size_t *size) {
    tw_run_encode(run, text, size);
    for (size_t i = 0; i < *size; i++) {
        TW_ASSERT(text[i] != LINE_END);
        if (text[i] == '\n') text[i] = LINE_END;
    }
}

static void metadata_fill(struct metadata *to, const struct tw_train_file *file, uint64_t sum) {
    uint64_t values[FIELDS];
    counters_of(file, values);
    values[SUM] = sum;
    tw_train_file_manifest(&file->run, to->manifest.text, &to->manifest.size);
    to->numbers_count = fields_count(&file->pass);
    for (unsigned i = 0; i < to->numbers_count; i++) {
        (void)snprintf(to->numbers[i], sizeof(to->numbers[i]), "%" PRIu64, values[i]);
    }
}

static struct tw_safetensors_text text_of(const char *text) {
    return (struct tw_safetensors_text){text, strlen(text)};
}

static void metadata_put(struct tw_safetensors *st, const struct metadata *from) {
    st->metadata[0].key = text_of("format");
    st->metadata[0].value = text_of("pt");
    st->metadata[1].key = text_of(TW_TRAIN_FILE_MANIFEST);
    st->metadata[1].value = (struct tw_safetensors_text){from->manifest.text, from->manifest.size};
    for (unsigned i = 0; i < from->numbers_count; i++) {
        st->metadata[2 + i].key = text_of(FIELD_NAMES[i]);
        st->metadata[2 + i].value = text_of(from->numbers[i]);
    }
    st->metadata_count = 2 + from->numbers_count;
}

static bool read_number(const struct tw_safetensors *st, enum field field, uint64_t *value) {
    const struct tw_safetensors_text *const text = tw_safetensors_metadata(st, FIELD_NAMES[field]);
    *value = 0;
    if (text == NULL || text->size == 0 || text->size > 20) return false;
    for (size_t i = 0; i < text->size; i++) {
        const char digit = text->bytes[i];
        if (digit < '0' || digit > '9' || *value > (UINT64_MAX - 9) / 10) return false;
        *value = *value * 10 + (uint64_t)(digit - '0');
    }
    return true;
}

/* Reads the size and type of the passes, which may be absent. Returns false if they are invalid. */
static bool read_pass(const struct tw_safetensors *st, struct tw_train_pass *pass) {
    uint64_t micro_batch, bits;
    *pass = (struct tw_train_pass){.compute = TW_COMPUTE_AUTO};
    const bool has_size = read_number(st, MICRO_BATCH, &micro_batch);
    const bool has_type = read_number(st, COMPUTE_BITS, &bits);
    if (!has_size && !has_type) return true;
    if (!has_size || !has_type || micro_batch == 0 || micro_batch > UINT32_MAX) return false;
    if (bits != 16 && bits != 32) return false;
    pass->micro_batch = (uint32_t)micro_batch;
    pass->compute = bits == 16 ? TW_COMPUTE_BF16 : TW_COMPUTE_FP32;
    return true;
}

static enum tw_status read_manifest(const struct tw_tensor_file *source, struct manifest *manifest,
                                    struct tw_run *run, struct tw_error *err) {
    struct tw_error why = {.message = "it is missing, or too long"};
    const struct tw_safetensors_text *const line =
        tw_safetensors_metadata(&source->st, TW_TRAIN_FILE_MANIFEST);
    bool is_good = line != NULL && line->size <= sizeof(manifest->text);
    manifest->size = is_good ? line->size : 0;
    for (size_t i = 0; i < manifest->size; i++) {
        manifest->text[i] = line->bytes[i] == LINE_END ? '\n' : line->bytes[i];
    }
    is_good = is_good && tw_run_read_older(manifest->text, manifest->size, run, &why) == TW_OK;
    if (is_good) return TW_OK;
    return tw_fail(err, TW_CORRUPT, "%s: its manifest is damaged, or of a later version: %.120s",
                   source->name, why.message);
}

/* ---- write ----------------------------------------------------------------------------------- */

/* Computes the checksum of counters, manifest and tensors. */
static enum tw_status sum_of(const struct tw_layout *layout, const struct tw_train_file *file,
                             const struct manifest *manifest, uint64_t *sum_out,
                             struct tw_error *err) {
    float *arrays[PARTS];
    uint64_t counters[FIELDS];
    struct tw_range *const ranges =
        calloc(2 + PARTS * (size_t)layout->tensors_count, sizeof(*ranges));
    if (ranges == NULL) return tw_fail(err, TW_NOMEM, "no memory for a checksum");
    counters_of(file, counters);
    ranges[0] = (struct tw_range){counters, fields_count(&file->pass) * sizeof(*counters)};
    ranges[1] = (struct tw_range){manifest->text, manifest->size};
    size_t count = 2;
    arrays_of(&file->state, arrays);
    for (unsigned part = 0; part < PARTS; part++) {
        for (uint32_t i = 0; i < layout->tensors_count; i++) {
            const struct tw_tensor *const tensor = &layout->tensors[i];
            ranges[count++] = (struct tw_range){
                arrays[part] + tensor->offset, (size_t)tensor->rows * tensor->cols * sizeof(float)};
        }
    }
    *sum_out = tw_xxh64_ranges(ranges, count);
    free(ranges);
    return TW_OK;
}

/* Describes all 3 * tensors_count tensors in the order of the file. */
static void describe(struct tw_safetensors *st, const struct tw_layout *layout) {
    st->tensors_count = 0;
    for (unsigned part = 0; part < PARTS; part++) {
        for (uint32_t i = 0; i < layout->tensors_count; i++) {
            const struct tw_tensor *const tensor = &layout->tensors[i];
            struct tw_safetensors_tensor *const to = &st->tensors[st->tensors_count++];
            (void)snprintf(to->name, sizeof(to->name), "%s.%s", PREFIXES[part], tensor->name);
            to->dtype = TW_DTYPE_F32;
            to->rank = tensor->shape.rank;
            to->shape[0] = tensor->rows;
            to->shape[1] = tensor->cols;
        }
    }
}

static enum tw_status write_all(struct tw_out_file *out, const uint8_t *header, size_t header_bytes,
                                const struct tw_layout *layout, const struct tw_train_state *state,
                                struct tw_error *err) {
    const uint16_t one = 1;
    float *arrays[PARTS];
    TW_ASSERT(*(const uint8_t *)&one == 1); /* needs a little-endian machine: floats are written as
                                               in memory */
    TW_TRY(tw_out_rewind(out, err));
    TW_TRY(tw_out_write(out, header, header_bytes, err));
    arrays_of(state, arrays);
    for (unsigned part = 0; part < PARTS; part++) {
        for (uint32_t i = 0; i < layout->tensors_count; i++) {
            const struct tw_tensor *const tensor = &layout->tensors[i];
            const size_t bytes = (size_t)tensor->rows * tensor->cols * sizeof(float);
            TW_TRY(tw_out_write(out, arrays[part] + tensor->offset, bytes, err));
        }
    }
    return tw_out_save(out, err);
}

enum tw_status tw_train_file_save(struct tw_out_file *out, const struct tw_layout *layout,
                                  const struct tw_train_file *file, struct tw_error *err) {
    struct tw_safetensors st = {.tensors_capacity = PARTS * layout->tensors_count};
    struct metadata metadata;
    uint64_t sum = 0;
    float *arrays[PARTS];
    arrays_of(&file->state, arrays);
    for (unsigned part = 0; part < PARTS; part++) {
        if (tw_is_finite(arrays[part], layout->elements)) continue;
        return tw_fail(err, TW_CORRUPT, "the training state is not finite and was not saved");
    }
    tw_run_encode(&file->run, metadata.manifest.text, &metadata.manifest.size);
    TW_TRY(sum_of(layout, file, &metadata.manifest, &sum, err));
    metadata_fill(&metadata, file, sum);
    st.tensors = calloc(st.tensors_capacity, sizeof(*st.tensors));
    if (st.tensors == NULL) return tw_fail(err, TW_NOMEM, "no memory for a header");
    describe(&st, layout);
    metadata_put(&st, &metadata);
    const size_t capacity = tw_safetensors_bound(&st);
    uint8_t *const header = malloc(capacity);
    size_t header_bytes = 0;
    enum tw_status status = header != NULL
                                ? tw_safetensors_encode(&st, header, capacity, &header_bytes, err)
                                : tw_fail(err, TW_NOMEM, "no memory for a header");
    if (status == TW_OK) {
        status = write_all(out, header, header_bytes, layout, &file->state, err);
    }
    free(header);
    free(st.tensors);
    return status;
}

/* ---- read ------------------------------------------------------------------------------------ */

static enum tw_status read_version(const struct tw_tensor_file *source, bool *is_one,
                                   struct tw_error *err) {
    uint64_t version = 0;
    *is_one = tw_safetensors_metadata(&source->st, FIELD_NAMES[VERSION]) != NULL;
    if (!*is_one || (read_number(&source->st, VERSION, &version) && version == FORMAT_VERSION)) {
        return TW_OK;
    }
    return tw_fail(err, TW_VERSION, "%s: training file of version %" PRIu64 ", %d is known",
                   source->name, version, FORMAT_VERSION);
}

static enum tw_status damaged(const struct tw_tensor_file *source, struct tw_error *err) {
    return tw_fail(err, TW_CORRUPT, "%s: its counters are damaged", source->name);
}

static enum tw_status peek_header(const struct tw_tensor_file *source, bool *is_one,
                                  struct tw_run *run, struct tw_train_pass *pass,
                                  struct tw_error *err) {
    struct manifest manifest;
    struct tw_train_pass found;
    TW_TRY(read_version(source, is_one, err));
    if (!*is_one) return TW_OK;
    TW_TRY(read_manifest(source, &manifest, run, err));
    if (!read_pass(&source->st, &found)) return damaged(source, err);
    if (pass != NULL) *pass = found;
    return TW_OK;
}

enum tw_status tw_train_file_peek(const char *path, bool *is_one, struct tw_run *run,
                                  struct tw_train_pass *pass, struct tw_error *err) {
    struct tw_tensor_file source;
    *is_one = false;
    if (tw_tensor_file_open(&source, path, NULL) != TW_OK) return TW_OK;
    const enum tw_status status = peek_header(&source, is_one, run, pass, err);
    tw_tensor_file_close(&source);
    return status;
}

enum tw_status tw_train_file_run(const char *path, bool *has_run, struct tw_run *run,
                                 struct tw_error *err) {
    struct tw_tensor_file source;
    struct manifest manifest;
    *has_run = false;
    if (tw_tensor_file_open(&source, path, NULL) != TW_OK) return TW_OK;
    enum tw_status status = peek_header(&source, has_run, run, NULL, err);
    if (status == TW_OK && !*has_run &&
        tw_safetensors_metadata(&source.st, TW_TRAIN_FILE_MANIFEST) != NULL) {
        *has_run = true;
        status = read_manifest(&source, &manifest, run, err);
    }
    tw_tensor_file_close(&source);
    return status;
}

static enum tw_status read_counters(const struct tw_tensor_file *source, struct tw_train_file *file,
                                    uint64_t *sum, struct tw_error *err) {
    bool is_one = false;
    TW_TRY(read_version(source, &is_one, err));
    if (!is_one) {
        return tw_fail(err, TW_CORRUPT,
                       "%s holds no state of a training, only numbers to start another from",
                       source->name);
    }
    const bool is_whole = read_number(&source->st, STEP, &file->state.step) &&
                          read_number(&source->st, TOKENS, &file->state.tokens) &&
                          read_number(&source->st, UPDATES, &file->state.updates) &&
                          read_number(&source->st, CURSOR, &file->state.cursor) &&
                          read_number(&source->st, SEED, &file->data_seed) &&
                          read_number(&source->st, SKIPPED, &file->skipped) &&
                          read_number(&source->st, SUM, sum) && read_pass(&source->st, &file->pass);
    return is_whole ? TW_OK : damaged(source, err);
}

static enum tw_status read_tensor(const struct tw_tensor_file *source, const char *prefix,
                                  const struct tw_tensor *tensor, float *to, struct tw_error *err) {
    char name[TW_SAFETENSORS_NAME_BYTES];
    (void)snprintf(name, sizeof(name), "%s.%s", prefix, tensor->name);
    const struct tw_safetensors_tensor *const found = tw_safetensors_find(&source->st, name);
    if (found == NULL) {
        return tw_fail(err, TW_CONFIG,
                       "%s holds no %s: it belongs to a model of another shape; name the manifest "
                       "it was trained with",
                       source->name, name);
    }
    if (found->dtype != TW_DTYPE_F32 || found->rank != tensor->shape.rank ||
        found->shape[0] != tensor->rows ||
        (tensor->shape.rank > 1 && found->shape[1] != tensor->cols)) {
        return tw_fail(err, TW_CONFIG,
                       "%s: %s has another shape than the manifest's model; name the manifest it "
                       "was trained with",
                       source->name, name);
    }
    return tw_tensor_file_read(source, found, 0, (uint64_t)tensor->rows * tensor->cols, to, err);
}

static enum tw_status read_all(const struct tw_tensor_file *source, const struct tw_layout *layout,
                               struct tw_train_file *file, struct tw_error *err) {
    float *arrays[PARTS];
    uint64_t wanted = 0, sum = 0;
    struct manifest manifest;
    TW_TRY(read_counters(source, file, &wanted, err));
    TW_TRY(read_manifest(source, &manifest, &file->run, err));
    arrays_of(&file->state, arrays);
    for (unsigned part = 0; part < PARTS; part++) {
        memset(arrays[part], 0, layout->elements * sizeof(float));
        for (uint32_t i = 0; i < layout->tensors_count; i++) {
            const struct tw_tensor *const tensor = &layout->tensors[i];
            TW_TRY(read_tensor(source, PREFIXES[part], tensor, arrays[part] + tensor->offset, err));
        }
    }
    TW_TRY(sum_of(layout, file, &manifest, &sum, err));
    if (sum == wanted) return TW_OK;
    return tw_fail(err, TW_CORRUPT, "%s is damaged: its checksum does not match", source->name);
}

enum tw_status tw_train_file_load(const char *path, const struct tw_layout *layout,
                                  struct tw_train_file *file, struct tw_error *err) {
    struct tw_tensor_file source;
    TW_TRY(tw_tensor_file_open(&source, path, err));
    const enum tw_status status = read_all(&source, layout, file, err);
    tw_tensor_file_close(&source);
    return status;
}
