/* durable.h - writes files that must survive a power cut.
 *
 *   create (nameless, else NAME.tmp) | allocate | write ... | sync | link NAME.tmp | rename to NAME
 *   | sync the folder
 *
 * A crash at any point leaves the old NAME or the complete new one. TW_OK from tw_durable_commit
 * means that the new contents are on disk. After a failure NAME is the old file, or the new one
 * without an acknowledgement. After a failed sync the file is discarded, never synced again. */
#ifndef TW_DAEMON_STORE_DURABLE_H
#define TW_DAEMON_STORE_DURABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "daemon/store/file.h"

enum {
    TW_DURABLE_NAME_BYTES = 48,
    /* A large file is synced after so many bytes. The syncs reveal how fast the disk is, and no
     * sync, of this file or of a vote beside it, has to wait for gigabytes. */
    TW_UNSYNCED_BYTES_MAX = 64 << 20,
};

/* A file being written, from begin to commit or abort. Provided by the caller. */
struct tw_durable {
    const struct tw_file_ops *ops; /* borrowed */
    int dir, file;
    bool is_named;                    /* the file has the name NAME.tmp already; false: it is
                                         nameless */
    char name[TW_DURABLE_NAME_BYTES]; /* asserted to fit */
    char temporary[TW_DURABLE_NAME_BYTES + 4]; /* NAME.tmp */
    uint64_t dirty_bytes;                      /* bytes since write-back was last started */
    uint64_t unsynced_bytes;                   /* bytes since the last sync */
};

/* Starts to replace `name` in the open folder `dir` by a file of `size` bytes. Returns TW_IO if the
 * file cannot be created or the disk is full; then there is nothing to abort. */
enum tw_status tw_durable_begin(struct tw_durable *durable, const struct tw_file_ops *ops, int dir,
                                const char *name, uint64_t size, struct tw_error *err);

/* Writes all of bytes[size] at `offset`, despite short writes and interruptions. After an error,
 * the file must be discarded. */
enum tw_status tw_durable_write(struct tw_durable *durable, const void *bytes, size_t size,
                                uint64_t offset, struct tw_error *err);

/* Makes the file durable under its name. Ends the use of *durable, even on failure. */
enum tw_status tw_durable_commit(struct tw_durable *durable, struct tw_error *err);

/* Discards the file. */
void tw_durable_abort(struct tw_durable *durable);

/* Reads exactly bytes[size] at `offset`. Returns TW_IO on an error, or TW_CORRUPT if the file ends
 * early. `name` is for the error sentence. */
enum tw_status tw_durable_read(const struct tw_file_ops *ops, int file, const char *name,
                               void *bytes, size_t size, uint64_t offset, struct tw_error *err);

#endif
