/* whole_file.h - small files read and written at once. */
#ifndef TW_WORKER_DATA_WHOLE_FILE_H
#define TW_WORKER_DATA_WHOLE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/status.h"

/* FOLDER/NAME becomes the parts, one after the other, or stays as it was (out_file.h). TW_IO,
 * TW_CONFIG. */
enum tw_status tw_whole_file_write(const char *folder, const char *name,
                                   const struct tw_range *parts, size_t count,
                                   struct tw_error *err);

/* All of a file of at most bytes_max, and a NUL that is not counted; *bytes is the caller's to
 * free. TW_IO; TW_LIMIT; TW_NOMEM. A missing one: TW_AGAIN. */
enum tw_status tw_whole_file_read(const char *path, size_t bytes_max, char **bytes, size_t *size,
                                  struct tw_error *err);

#endif
