/* out_file.h - output files that appear whole or not at all, and never replace another file.
 *
 * A file is written as PATH.part, made durable, and renamed to PATH. There are two modes:
 * - A new file (tw_out_open): if PATH exists, the file is refused.
 * - A file that is saved repeatedly, such as a training file (tw_out_hold): PATH.part stays locked
 *   between saves. A save replaces only the file that was at PATH at first, or an earlier save.
 *
 * The writer of PATH.part holds a lock on it. The lock ends with the process, so the PATH.part of a
 * killed process can be reused. */
#ifndef TW_WORKER_SUPPORT_OUT_FILE_H
#define TW_WORKER_SUPPORT_OUT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { TW_OUT_PATH_BYTES = 1024 }; /* size of any path to write, including NUL */

struct tw_out_file {
    char path[TW_OUT_PATH_BYTES], part[TW_OUT_PATH_BYTES + 8];
    int fd;      /* -1: not open */
    uint64_t at; /* bytes written */
    /* Held file: descriptor of the file that a save may replace; -1: none. It stays open so that no
     * other file can get its inode number. */
    int seen_fd;
};

/* Gives a new file or folder that root made under sudo to the user who ran sudo. */
void tw_out_give(int fd);

/* Creates PATH.part, or takes over the one that a dead process left, and reserves `bytes` of disk
 * space if the file system can. Leaves nothing behind on failure. Errors:
 * - TW_CONFIG: PATH exists, another process writes PATH.part, or the path is too long;
 * - TW_IO: PATH.part cannot be created, or the disk is too full. */
enum tw_status tw_out_open(struct tw_out_file *file, const char *path, uint64_t bytes,
                           struct tw_error *err);

/* Appends `size` bytes. After TW_IO the caller must call tw_out_abort. */
enum tw_status tw_out_write(struct tw_out_file *file, const void *bytes, size_t size,
                            struct tw_error *err);

/* Makes the file durable as PATH and closes it. After TW_IO or TW_CONFIG, PATH.part is removed. */
enum tw_status tw_out_commit(struct tw_out_file *file, struct tw_error *err);

/* Creates an empty PATH.part, or takes over the one that a dead process left, and records which
 * file is at PATH. Leaves nothing behind on failure. The caller ends the hold with tw_out_abort.
 * Fails with TW_CONFIG if another process writes PATH.part or it is not a regular file, or with
 * TW_IO. */
enum tw_status tw_out_hold(struct tw_out_file *file, const char *path, struct tw_error *err);

/* Held file: makes the bytes written so far durable as PATH, then holds a new PATH.part. Fails with
 * TW_CONFIG if the file at PATH is neither the recorded one nor an earlier save, or with TW_IO.
 * After a failure here or in tw_out_write, PATH is unchanged and tw_out_rewind starts over. */
enum tw_status tw_out_save(struct tw_out_file *file, struct tw_error *err);

/* Held file: empties PATH.part, or holds it again if that failed before. Fails with TW_IO or
 * TW_CONFIG. */
enum tw_status tw_out_rewind(struct tw_out_file *file, struct tw_error *err);

/* Closes and removes PATH.part. */
void tw_out_abort(struct tw_out_file *file);

/* Renames a file or folder without replacing another one. Fails with TW_CONFIG if `to` exists, or
 * with TW_IO. On failure the file keeps the name `from`. */
enum tw_status tw_out_rename(const char *from, const char *to, struct tw_error *err);

/* Syncs the folder of `path`, because a new name is durable only after that. Returns false and sets
 * errno on failure. */
bool tw_out_sync_folder(const char *path);

/* Fails with TW_CONFIG if anything exists at `path`, so that a caller can fail before hours of
 * work. */
enum tw_status tw_out_is_free(const char *path, struct tw_error *err);

/* ---- opens and reads regular files ----------------------------------------------------------- */

/* Others are refused: a FIFO would block, and a device
 * has no end. */

/* Opens path, following symbolic links; the caller closes *fd. Sets *bytes to the size. Fails with
 * TW_IO, naming the path, if the file is missing, forbidden, or not a regular file. */
enum tw_status tw_in_open(const char *path, int *fd, uint64_t *bytes, struct tw_error *err);

/* Reads `size` bytes at offset `at`. Returns 0, ENODATA if the file ends before that, or another
 * errno. */
int tw_in_read_at(int fd, void *to, size_t size, uint64_t at);

/* Explains a result of tw_in_read_at other than 0, for a message. */
const char *tw_in_reason(int why);

/* Reads a whole file of at most bytes_max bytes into *text, which gets an extra NUL at the end; the
 * caller frees it. Fails with TW_IO, TW_CONFIG if the file is larger, or TW_NOMEM. Errors name the
 * path, and *text is then NULL. */
enum tw_status tw_in_read_whole(const char *path, size_t bytes_max, char **text, size_t *size,
                                struct tw_error *err);

#endif
