/* durable.h - how the store writes a file that must survive a power cut.
 *
 *   create (nameless, else NAME.tmp) | allocate | write ... | sync | link NAME.tmp | rename to NAME
 *   | sync the folder
 *
 * A crash at any point leaves the old NAME or the complete new one. TW_OK from tw_durable_commit
 * means that the new contents are on disk. Any earlier failure leaves the old NAME, or the new one
 * unacknowledged. A failed sync is final for that file: it is discarded, never synced again. */
#ifndef TW_DAEMON_STORE_DURABLE_H
#define TW_DAEMON_STORE_DURABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "daemon/store/file.h"

enum {
    TW_DURABLE_NAME_BYTES = 48,
    /* A large file is synced this often while it is written. This shows how fast the disk is, and
     * no sync, of this file or of a vote beside it, waits for gigabytes. */
    TW_UNSYNCED_BYTES_MAX = 64 << 20,
};

/* One file being written, in the caller's memory, from begin to commit or abort. */
struct tw_durable {
    const struct tw_file_ops *ops; /* borrowed */
    int dir, file;
    bool is_named;                    /* NAME.tmp exists already, instead of a nameless file */
    char name[TW_DURABLE_NAME_BYTES]; /* asserted to fit */
    char temporary[TW_DURABLE_NAME_BYTES + 4]; /* NAME.tmp */
    uint64_t dirty_bytes;                      /* bytes since write-back was last started */
    uint64_t unsynced_bytes;                   /* bytes since the last sync */
};

/* Starts to replace `name` in the open folder `dir` by a file of `size` bytes. TW_IO: it cannot be
 * created, or the disk is full; nothing to abort then. */
enum tw_status tw_durable_begin(struct tw_durable *durable, const struct tw_file_ops *ops, int dir,
                                const char *name, uint64_t size, struct tw_error *err);

/* Writes all of bytes[size] at `offset`, despite short writes and interruptions. After an error the
 * file can only be discarded. */
enum tw_status tw_durable_write(struct tw_durable *durable, const void *bytes, size_t size,
                                uint64_t offset, struct tw_error *err);

/* Makes the file durable under its name. Ends the use of *durable, even on failure. */
enum tw_status tw_durable_commit(struct tw_durable *durable, struct tw_error *err);

/* Discards the file. */
void tw_durable_abort(struct tw_durable *durable);

/* Reads exactly bytes[size] at `offset`. TW_IO on an error, TW_CORRUPT if the file ends first.
 * `name` is used in the sentence. */
enum tw_status tw_durable_read(const struct tw_file_ops *ops, int file, const char *name,
                               void *bytes, size_t size, uint64_t offset, struct tw_error *err);

#endif
