#include "worker/files/state_folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/id.h"
#include "proto/run/run.h"
#include "worker/files/tensor_file.h"
#include "worker/support/out_file.h"

enum {
    SLOTS = 2,
    BLOCK_BYTES = 1 << 20, /* size of the data blocks that have a SHA-256 digest each */
    DIGEST_DIGITS = TW_ID_HEX_BYTES - 1,
    RUN_DIGITS = 16, /* number of digits of a run's id in the name of its folder */
};

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

/* ---- header -----------------------------------------------------------------------------------
 */

static enum tw_status text_of(const struct tw_tensor_file *file, const char *key, size_t size,
                              const struct tw_safetensors_text **text, struct tw_error *err) {
    *text = tw_safetensors_metadata(&file->st, key);
    if (*text != NULL && (size == 0 || (*text)->size == size)) return TW_OK;
    return tw_fail(err, TW_CORRUPT, "%s: its metadata '%s' is missing or cut", file->name, key);
}

static enum tw_status number_of(const struct tw_tensor_file *file, const char *key, uint64_t *value,
                                struct tw_error *err) {
    const struct tw_safetensors_text *text;
    TW_TRY(text_of(file, key, 0, &text, err));
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
    TW_TRY(text_of(file, "format", 0, &text, err));
    if (text->size != sizeof(FORMAT) - 1 || memcmp(text->bytes, FORMAT, text->size) != 0) {
        return tw_fail(err, TW_VERSION, "%s: its format is '%.*s', this program reads '%s'",
                       file->name, (int)(text->size < 40 ? text->size : 40), text->bytes, FORMAT);
    }
    TW_TRY(text_of(file, "digest", DIGEST_DIGITS, &text, err));
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
        slot->status = text_of(&file, "run", DIGEST_DIGITS, &run, &slot->err);
    }
    if (slot->status == TW_OK) memcpy(slot->run, run->bytes, DIGEST_DIGITS);
    tw_tensor_file_close(&file);
}

/* ---- data -------------------------------------------------------------------------------------
 */

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
    TW_TRY(text_of(file, "sha256", (size_t)blocks * DIGEST_DIGITS, &hashes, err));
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

/* ---- manifest ---------------------------------------------------------------------------------
 */

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
