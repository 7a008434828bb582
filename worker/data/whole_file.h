/* whole_file.h - writes small files as a whole. */
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

#endif
