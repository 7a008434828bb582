/* tensor_file.h - a safetensors file open for reading: its header, and numbers block by block.
 *
 * proto/safetensors.h bounds and checks the header before it is used. Numbers are read with pread,
 * so a file that shrinks meanwhile causes an error, not a signal. */
#ifndef TW_WORKER_FILES_TENSOR_FILE_H
#define TW_WORKER_FILES_TENSOR_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/safetensors.h"

enum {
    TW_TENSOR_FILE_JSON_MAX = 16 * 1024 * 1024, /* size of a header */
    TW_TENSOR_FILE_COUNT_MAX = 5 * 4096 + 4096, /* limit of tensors; a checkpoint has five per
                                                   tensor of the model */
    TW_TENSOR_FILE_NAME_BYTES = 128,
};

struct tw_tensor_file {
    char name[TW_TENSOR_FILE_NAME_BYTES]; /* name of the file, for messages */
    int fd;
    uint64_t data_at; /* offset of the data in the file */
    char *json;
    struct tw_safetensors st; /* sorted by name */
};

/* Opens path, following symbolic links. Fails with TW_IO if it is missing or not a regular file, or
 * with TW_CORRUPT if it is damaged. Fails with TW_CONFIG for a file of another kind or an
 * unsupported header; also with TW_NOMEM. On failure nothing is left open. */
enum tw_status tw_tensor_file_open(struct tw_tensor_file *file, const char *path,
                                   struct tw_error *err);

void tw_tensor_file_close(struct tw_tensor_file *file);

/* Reads elements [first, first + count) of a tensor of this file as float. Asserts that the dtype
 * is one of tw_elements_can and that the range is within the tensor. Fails with TW_IO, or with
 * TW_CORRUPT if an element is not finite. */
enum tw_status tw_tensor_file_read(const struct tw_tensor_file *file,
                                   const struct tw_safetensors_tensor *tensor, uint64_t first,
                                   uint64_t count, float *to, struct tw_error *err);

/* Returns the last component of a path, for messages. The result points into `path`. */
const char *tw_tensor_file_base(const char *path);

/* ---- converts elements of model files (float32, bfloat16, float16) to float and back --------- */

/* *
 * Widening is exact. Narrowing rounds to nearest, ties to even, so a widened value converts back to
 * the same bits. Elements are little-endian and need no alignment. */

/* Returns true for F32, BF16 and F16, the types that these functions convert. */
bool tw_elements_can(enum tw_dtype dtype);

/* Converts n elements of `dtype` to floats. `from` may overlap `to` if both end at the same
 * address. Returns the index of the first element that is not finite, or n. */
size_t tw_elements_load(enum tw_dtype dtype, float *to, const uint8_t *from, size_t n);

/* Converts `from` (n) to n elements of `dtype`. `to` may be `from`. Returns the index of the first
 * result that is not finite (the largest float16 is 65504), or n. */
size_t tw_elements_store(enum tw_dtype dtype, uint8_t *to, const float *from, size_t n);

#endif
