/* data_file.h - a file in memory with a path, and all windows of it, for fuzz targets of training
 * data. */
#ifndef TW_TESTS_FUZZ_DATA_FILE_H
#define TW_TESTS_FUZZ_DATA_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "worker/data/data.h"

struct data_file {
    int fd;
    char path[64];
};

static inline void data_file_open(struct data_file *file) {
    file->fd = memfd_create("fuzz", MFD_CLOEXEC);
    TW_ASSERT(file->fd >= 0);
    (void)snprintf(file->path, sizeof(file->path), "/proc/self/fd/%d", file->fd);
}

static inline void data_file_set(const struct data_file *file, const void *bytes, size_t size) {
    TW_ASSERT(ftruncate(file->fd, (off_t)size) == 0);
    TW_ASSERT(pwrite(file->fd, bytes, size, 0) == (ssize_t)size);
}

/* Opens the data as a run does, and reads training and held-out windows. All tokens must be below
 * the vocabulary size. */
static inline void data_use(const char *path, const struct tw_run *run) {
    enum { DRAWN = 24, HELDOUT = 8, CONTEXT_MAX = 64 };
    struct tw_data data;
    struct tw_error err;
    uint32_t tokens[CONTEXT_MAX + 1];
    uint64_t cursor = 0;
    TW_ASSERT(run->model.context <= CONTEXT_MAX);
    if (tw_data_open(&data, path, run, &err) != TW_OK) return;
    TW_ASSERT(data.train_count + data.heldout_count == data.tokens_count);
    for (unsigned i = 0; i < DRAWN; i++) {
        if (tw_data_draw(&data, 5, &cursor, 1, tokens, &err) != TW_OK) {
            cursor += run->model.context;
            continue;
        }
        for (uint32_t k = 0; k <= run->model.context; k++) TW_ASSERT(tokens[k] < run->model.vocab);
    }
    TW_ASSERT(cursor == DRAWN * (uint64_t)run->model.context);
    const uint64_t windows = tw_data_heldout_count(&data);
    const uint64_t count = windows < HELDOUT ? windows : HELDOUT;
    for (uint64_t i = 0; i < count; i++) {
        if (tw_data_heldout(&data, i, count, tokens, &err) != TW_OK) continue;
        for (uint32_t k = 0; k <= run->model.context; k++) TW_ASSERT(tokens[k] < run->model.vocab);
    }
    tw_data_refresh(&data);
    tw_data_close(&data);
}

/* Sets up a small run; bits of `choice` select how the run reads its data. */
static inline void data_run(struct tw_run *run, uint8_t choice) {
    tw_run_defaults(run);
    run->model.context = (choice & 1) != 0 ? 4 : 33;
    run->model.vocab = (choice & 2) != 0 ? 300 : 66000;
    run->data.tokenizer = TW_TOKENIZER_IDS;
    if ((choice & 4) != 0) run->data.curriculum_millionths = 500000;
    run->train.tokens = 640;
    run->sync.nodes = 1;
}

#endif
