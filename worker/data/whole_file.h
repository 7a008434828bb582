/* whole_file.h - writes a small file in one call. */
#ifndef TW_WORKER_DATA_WHOLE_FILE_H
#define TW_WORKER_DATA_WHOLE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "base/status.h"

/* Writes the parts, concatenated, to FOLDER/NAME. After a failure the file is unchanged
 * (out_file.h). Fails with TW_IO or TW_CONFIG. */
enum tw_status tw_whole_file_write(const char *folder, const char *name,
                                   const struct tw_range *parts, size_t count,
                                   struct tw_error *err);

#endif
