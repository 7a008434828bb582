#include "kernels/cuda/gemm_plans.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"

#define MAGIC 0x31504754u /* "TGP1" */

enum {
    WORDS = TW_GEMM_KEY_WORDS + TW_GEMM_ALGO_WORDS + 2,
    ENTRY_BYTES = WORDS * 8,
    HEAD_BYTES = 8 + TW_GEMM_OWNER_BYTES, /* header of the file: magic, count of plans, owner */
    SUM_BYTES = 8,
    FILE_BYTES_MAX = HEAD_BYTES + TW_CUDA_GEMM_PLANS_MAX * ENTRY_BYTES + SUM_BYTES,
};

struct tw_gemm_key tw_gemm_key(const struct tw_cuda_gemm *gemm, uint32_t align) {
    const struct tw_matmul *const shape = &gemm->shape;
    const uint64_t count = gemm->count == 0 ? 1 : gemm->count;
    const uint64_t kinds = (uint64_t)shape->form | (uint64_t)shape->type << 8 |
                           (uint64_t)shape->y_type << 16 | (uint64_t)gemm->epilogue << 32;
    return (struct tw_gemm_key){{shape->m, shape->k, shape->n, kinds, shape->a_stride,
                                 shape->b_stride, shape->y_stride, count, gemm->a_step,
                                 gemm->b_step, gemm->y_step, align}};
}

void tw_gemm_plans_init(struct tw_gemm_plans *plans, const char *owner) {
    memset(plans, 0, sizeof(*plans));
    (void)snprintf(plans->owner, sizeof(plans->owner), "%s", owner);
}

uint32_t tw_gemm_plans_find(const struct tw_gemm_plans *plans, const struct tw_gemm_key *key) {
    for (uint32_t i = 0; i < plans->count; i++) {
        if (memcmp(&plans->keys[i], key, sizeof(*key)) == 0) return i;
    }
    return TW_CUDA_GEMM_PLANS_MAX;
}

uint32_t tw_gemm_plans_put(struct tw_gemm_plans *plans, const struct tw_gemm_key *key,
                           const struct tw_gemm_plan *plan) {
    uint32_t slot = tw_gemm_plans_find(plans, key);
    if (slot == TW_CUDA_GEMM_PLANS_MAX && plans->count < TW_CUDA_GEMM_PLANS_MAX) {
        slot = plans->count++;
    } else if (slot == TW_CUDA_GEMM_PLANS_MAX) {
        slot = plans->oldest;
        plans->oldest = (slot + 1) % TW_CUDA_GEMM_PLANS_MAX;
    }
    plans->keys[slot] = *key;
    plans->plans[slot] = *plan;
    plans->is_changed = plans->is_changed || plan->is_timed != 0;
    return slot;
}

/* ---- the file ------------------------------------------------------------------------------ */

char *tw_gemm_plans_path(const char *path, const char *device) {
    const size_t length = strlen(path), bytes = length + strlen(device) + sizeof(".plans");
    if (length == 0 || path[length - 1] != '/') return strdup(path);
    char *const file = malloc(bytes);
    if (file == NULL) return NULL;
    (void)snprintf(file, bytes, "%s%s.plans", path, device);
    for (char *at = file + length; *at != '\0'; at++) {
        const bool is_plain = (*at >= '0' && *at <= '9') || (*at >= 'a' && *at <= 'z') ||
                              (*at >= 'A' && *at <= 'Z') || *at == '.' || *at == '-';
        if (!is_plain) *at = '_';
    }
    return file;
}

static void put_words(uint8_t **at, const uint64_t *words, size_t count) {
    for (size_t i = 0; i < count; i++, *at += 8) tw_put_u64(*at, words[i]);
}

static void get_words(const uint8_t **at, uint64_t *words, size_t count) {
    for (size_t i = 0; i < count; i++, *at += 8) words[i] = tw_get_u64(*at);
}

/* Returns the number of plans, or UINT32_MAX unless `bytes` is a valid plan file of this owner. */
static uint32_t check_bytes(const struct tw_gemm_plans *plans, const uint8_t *bytes, size_t size) {
    if (size < HEAD_BYTES + SUM_BYTES || tw_get_u32(bytes) != MAGIC) return UINT32_MAX;
    const uint32_t count = tw_get_u32(bytes + 4);
    if (count > TW_CUDA_GEMM_PLANS_MAX ||
        size != HEAD_BYTES + (size_t)count * ENTRY_BYTES + SUM_BYTES)
        return UINT32_MAX;
    if (tw_xxh64(bytes, size - SUM_BYTES) != tw_get_u64(bytes + size - SUM_BYTES))
        return UINT32_MAX;
    return memcmp(bytes + 8, plans->owner, sizeof(plans->owner)) == 0 ? count : UINT32_MAX;
}

bool tw_gemm_plans_read(struct tw_gemm_plans *plans, const char *path) {
    bool is_read = false;
    uint8_t *const bytes = malloc(FILE_BYTES_MAX + 1);
    FILE *const file = bytes == NULL ? NULL : fopen(path, "rbe");
    if (file != NULL) {
        const size_t size = fread(bytes, 1, FILE_BYTES_MAX + 1, file);
        const uint32_t count = ferror(file) != 0 ? UINT32_MAX : check_bytes(plans, bytes, size);
        (void)fclose(file);
        is_read = count <= TW_CUDA_GEMM_PLANS_MAX;
        const uint8_t *at = bytes + HEAD_BYTES;
        for (uint32_t i = 0; is_read && i < count; i++) {
            get_words(&at, plans->keys[i].words, TW_GEMM_KEY_WORDS);
            get_words(&at, plans->plans[i].algo, TW_GEMM_ALGO_WORDS);
            get_words(&at, &plans->plans[i].workspace_bytes, 1);
            get_words(&at, &plans->plans[i].is_fused, 1);
            plans->plans[i].is_timed = 1;
        }
        if (is_read) {
            plans->count = count;
            plans->oldest = 0;
            plans->is_changed = false;
        }
    }
    free(bytes);
    return is_read;
}

static size_t bytes_of(const struct tw_gemm_plans *plans, uint8_t *bytes) {
    uint8_t *at = bytes + HEAD_BYTES;
    uint32_t count = 0;
    for (uint32_t i = 0; i < plans->count; i++) count += plans->plans[i].is_timed != 0;
    tw_put_u32(bytes, MAGIC);
    tw_put_u32(bytes + 4, count);
    memcpy(bytes + 8, plans->owner, sizeof(plans->owner));
    for (uint32_t i = 0; i < plans->count; i++) {
        if (plans->plans[i].is_timed == 0) continue;
        put_words(&at, plans->keys[i].words, TW_GEMM_KEY_WORDS);
        put_words(&at, plans->plans[i].algo, TW_GEMM_ALGO_WORDS);
        put_words(&at, &plans->plans[i].workspace_bytes, 1);
        put_words(&at, &plans->plans[i].is_fused, 1);
    }
    tw_put_u64(at, tw_xxh64(bytes, (size_t)(at - bytes)));
    return (size_t)(at - bytes) + SUM_BYTES;
}

/* The file is not synced, because it is a cache: a copy damaged by a power failure is rejected and
 * made again. */
static bool write_file(const char *path, const char *part, const uint8_t *bytes, size_t size) {
    FILE *const file = fopen(part, "wbe");
    if (file == NULL) return false;
    const bool is_written = fwrite(bytes, 1, size, file) == size;
    const bool is_closed = fclose(file) == 0;
    if (is_written && is_closed && rename(part, path) == 0) return true;
    const int why = errno;
    (void)remove(part);
    errno = why;
    return false;
}

enum tw_status tw_gemm_plans_write(struct tw_gemm_plans *plans, const char *path,
                                   struct tw_error *err) {
    const size_t part_bytes = strlen(path) + sizeof(".part");
    char *const part = malloc(part_bytes);
    uint8_t *const bytes = malloc(FILE_BYTES_MAX);
    enum tw_status status = TW_OK;
    if (part == NULL || bytes == NULL) {
        status = tw_fail(err, TW_NOMEM, "no memory to write the plans of matrix products");
    } else {
        (void)snprintf(part, part_bytes, "%s.part", path);
        if (!write_file(path, part, bytes, bytes_of(plans, bytes))) {
            status = tw_fail(err, TW_IO,
                             "could not keep the plans of matrix products in %s: %s (the next "
                             "start will time them again)",
                             path, strerror(errno));
        }
    }
    if (status == TW_OK) plans->is_changed = false;
    free(bytes);
    free(part);
    return status;
}
