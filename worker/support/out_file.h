/* out_file.h - a file that appears whole or not at all, and never in place of another.
 *
 * It is written as PATH.part, made durable, and renamed. A new file: what exists as PATH is
 * refused, nothing is overwritten. A folder is made the same way around its files. A file that is
 * written again and again (a training): PATH.part is held from the first save's time to the last's,
 * and what is replaced is what was there at first, or an earlier save.
 *
 * Whoever writes PATH.part holds a lock on it, which ends with the process: what one that was
 * killed left is taken over. */
#ifndef TW_WORKER_SUPPORT_OUT_FILE_H
#define TW_WORKER_SUPPORT_OUT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { TW_OUT_PATH_BYTES = 1024 }; /* with NUL; of any path written */

struct tw_out_file {
    char path[TW_OUT_PATH_BYTES], part[TW_OUT_PATH_BYTES + 8];
    int fd;      /* -1: not open */
    uint64_t at; /* bytes written */
    /* Of a held file: what may be replaced, -1: nothing. Open, or its inode could be another's. */
    int seen_fd;
};

/* Makes PATH.part, or takes over that of a process that is dead, and disk space for `bytes` where
 * the file system can. TW_CONFIG: PATH exists, another process writes PATH.part, or the name is too
 * long; TW_IO: cannot be made, or the disk has not that much. Nothing is left behind on failure. */
enum tw_status tw_out_open(struct tw_out_file *file, const char *path, uint64_t bytes,
                           struct tw_error *err);

/* Appends. TW_IO; the caller then aborts. */
enum tw_status tw_out_write(struct tw_out_file *file, const void *bytes, size_t size,
                            struct tw_error *err);

/* Durable under its name, or TW_IO / TW_CONFIG and PATH.part removed. Closes in either case. */
enum tw_status tw_out_commit(struct tw_out_file *file, struct tw_error *err);

/* Makes PATH.part, empty, or takes over that of a process that is dead, and notes what PATH is.
 * TW_CONFIG: another process writes it, or it is no plain file; TW_IO. Nothing is left behind on
 * failure; a caller that is done aborts. */
enum tw_status tw_out_hold(struct tw_out_file *file, const char *path, struct tw_error *err);

/* Of a held file: what was written becomes durable as PATH, and PATH.part is held anew. TW_CONFIG:
 * PATH is another file than was noted or saved, and stays; TW_IO. After a failure here or in
 * tw_out_write PATH is as it was; tw_out_rewind begins again. */
enum tw_status tw_out_save(struct tw_out_file *file, struct tw_error *err);

/* Of a held file: PATH.part is empty again, and held again where that had failed. TW_IO,
 * TW_CONFIG. */
enum tw_status tw_out_rewind(struct tw_out_file *file, struct tw_error *err);

/* Closes and removes PATH.part. */
void tw_out_abort(struct tw_out_file *file);

/* Renames without replacing, for folders and files alike. TW_CONFIG when `to` exists; TW_IO. On
 * failure it is called `from` still. */
enum tw_status tw_out_rename(const char *from, const char *to, struct tw_error *err);

/* A new name lasts only when its folder, that of `path`, is on disk as well. False: errno says. */
bool tw_out_sync_folder(const char *path);

/* TW_CONFIG when something is there already: for a clear word before hours of work. */
enum tw_status tw_out_is_free(const char *path, struct tw_error *err);

#endif
