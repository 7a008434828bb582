/* tensor_file.h - one safetensors file open for reading: its header, and numbers by the block.
 *
 * The header is bounded and checked by proto/safetensors.h before any of it is used; numbers are
 * read by pread, so that a file that shrinks meanwhile is an error and no signal. */
#ifndef TW_WORKER_FILES_TENSOR_FILE_H
#define TW_WORKER_FILES_TENSOR_FILE_H

#include <stdint.h>

#include "base/status.h"
#include "proto/safetensors.h"

enum {
    TW_TENSOR_FILE_JSON_MAX = 16 * 1024 * 1024, /* bytes of a header */
    TW_TENSOR_FILE_COUNT_MAX = 5 * 4096 + 4096, /* a checkpoint has each tensor in five parts */
    TW_TENSOR_FILE_NAME_BYTES = 128,
};

struct tw_tensor_file {
    char name[TW_TENSOR_FILE_NAME_BYTES]; /* for messages */
    int fd;
    uint64_t data_at; /* bytes from the start of the file */
    char *json;
    struct tw_safetensors st; /* sorted by name */
};

/* Opens path (symbolic links are followed). TW_IO: not there, no regular file; TW_CORRUPT: no
 * safetensors file; TW_NOMEM. On failure nothing is left open. */
enum tw_status tw_tensor_file_open(struct tw_tensor_file *file, const char *path,
                                   struct tw_error *err);
void tw_tensor_file_close(struct tw_tensor_file *file);

/* Elements [first, first + count) of a tensor of this file as float. The dtype is one of
 * tw_elements_can (asserted), the range is within the tensor (asserted). TW_IO; TW_CORRUPT when one
 * is not finite. */
enum tw_status tw_tensor_file_read(const struct tw_tensor_file *file,
                                   const struct tw_safetensors_tensor *tensor, uint64_t first,
                                   uint64_t count, float *to, struct tw_error *err);

/* The last part of a path, for messages. Borrowed from it. */
const char *tw_tensor_file_base(const char *path);

/* Reads a small file whole: *text_out is malloc'd, ends with NUL and has at most bytes_max bytes.
 * TW_IO, TW_CORRUPT when it is larger, TW_NOMEM. */
enum tw_status tw_text_file_read(const char *path, size_t bytes_max, char **text_out,
                                 size_t *size_out, struct tw_error *err);

#endif
