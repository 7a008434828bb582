/* whole_file.h - reads and writes small files as a whole. */
#ifndef TW_WORKER_DATA_WHOLE_FILE_H
#define TW_WORKER_DATA_WHOLE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/status.h"

/* Writes the parts, concatenated, to FOLDER/NAME. On failure the file is unchanged (out_file.h).
 * TW_IO, TW_CONFIG. */
enum tw_status tw_whole_file_write(const char *folder, const char *name,
                                   const struct tw_range *parts, size_t count,
                                   struct tw_error *err);

/* Reads a file of at most bytes_max into *bytes, with an extra NUL; the caller frees it. TW_AGAIN:
 * missing; TW_IO; TW_LIMIT; TW_NOMEM. */
enum tw_status tw_whole_file_read(const char *path, size_t bytes_max, char **bytes, size_t *size,
                                  struct tw_error *err);

#endif
