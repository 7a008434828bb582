/* out_file.h - a new file that appears whole or not at all, and never in place of another.
 *
 * It is written as PATH.part, made durable, and renamed. What exists under either name is refused:
 * nothing is overwritten. A folder is made the same way around its files. */
#ifndef TW_WORKER_OUT_FILE_H
#define TW_WORKER_OUT_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { TW_OUT_PATH_BYTES = 1024 }; /* with NUL; of any path written */

struct tw_out_file {
    char path[TW_OUT_PATH_BYTES], part[TW_OUT_PATH_BYTES + 8];
    int fd;      /* -1: not open */
    uint64_t at; /* bytes written */
};

/* Makes PATH.part and takes disk space for `bytes` where the file system can. TW_CONFIG: PATH or
 * PATH.part exists, or the name is too long; TW_IO: cannot be made, or the disk has not that much.
 * Nothing is left behind on failure. */
enum tw_status tw_out_open(struct tw_out_file *file, const char *path, uint64_t bytes,
                           struct tw_error *err);

/* Appends. TW_IO; the caller then aborts. */
enum tw_status tw_out_write(struct tw_out_file *file, const void *bytes, size_t size,
                            struct tw_error *err);

/* Durable under its name, or TW_IO / TW_CONFIG and PATH.part removed. Closes in either case. */
enum tw_status tw_out_commit(struct tw_out_file *file, struct tw_error *err);

/* Closes and removes PATH.part. */
void tw_out_abort(struct tw_out_file *file);

/* Renames without replacing, for folders and files alike. TW_CONFIG when `to` exists; TW_IO. On
 * failure it is called `from` still. */
enum tw_status tw_out_rename(const char *from, const char *to, struct tw_error *err);

/* TW_CONFIG when something is there already: for a clear word before hours of work. */
enum tw_status tw_out_is_free(const char *path, struct tw_error *err);

#endif
