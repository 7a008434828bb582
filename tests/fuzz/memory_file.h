/* memory_file.h - a read-only folder with one file in memory, for fuzz targets. */
#ifndef TW_TESTS_FUZZ_MEMORY_FILE_H
#define TW_TESTS_FUZZ_MEMORY_FILE_H

#include <errno.h>
#include <string.h>

#include "daemon/store/file.h"

struct memory_file {
    const char *name;
    const uint8_t *bytes;
    size_t size;
};

static int memory_dir_open(void *ctx, const char *path) {
    (void)ctx;
    (void)path;
    return 0;
}

static int memory_open(void *ctx, int dir, const char *name) {
    const struct memory_file *file = ctx;
    (void)dir;
    return strcmp(name, file->name) == 0 ? 1 : -ENOENT;
}

static int64_t memory_read(void *ctx, int handle, void *bytes, size_t size, uint64_t offset) {
    const struct memory_file *file = ctx;
    (void)handle;
    if (offset >= file->size) return 0;
    if (size > file->size - offset) size = file->size - offset;
    memcpy(bytes, file->bytes + offset, size);
    return (int64_t)size;
}

static int64_t memory_size(void *ctx, int handle) {
    (void)handle;
    return (int64_t)((const struct memory_file *)ctx)->size;
}

static int memory_close(void *ctx, int handle) {
    (void)ctx;
    (void)handle;
    return 0;
}

static struct tw_file_ops memory_file_ops(struct memory_file *file) {
    return (struct tw_file_ops){.ctx = file,
                                .dir_open = memory_dir_open,
                                .open = memory_open,
                                .read = memory_read,
                                .size = memory_size,
                                .close = memory_close};
}

#endif
