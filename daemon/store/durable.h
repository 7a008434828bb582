/* durable.h - the one recipe by which a node writes a file that must survive a power cut.
 *
 *   create (nameless, else NAME.tmp) | allocate | write ... | sync | link NAME.tmp | rename to NAME
 *   | sync the folder
 *
 * A crash at any point leaves NAME as it was or wholly new. TW_OK from tw_durable_commit means the
 * new contents are on the disk; any failure before it leaves NAME as it was, or wholly new but
 * unacknowledged. A failed sync is final for that file: it is thrown away, never synced again. */
#ifndef TW_DAEMON_STORE_DURABLE_H
#define TW_DAEMON_STORE_DURABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "daemon/store/file.h"

enum {
    TW_DURABLE_NAME_BYTES = 48,
    /* A large file is synced this often on its way: what goes out shows how fast the disk takes it,
     * and no sync, of this file or of a vote beside it, waits for gigabytes. */
    TW_UNSYNCED_BYTES_MAX = 64 << 20,
};

/* One file being written. Caller's memory; begin .. (commit | abort). */
struct tw_durable {
    const struct tw_file_ops *ops; /* borrowed */
    int dir, file;
    bool is_named;                             /* NAME.tmp exists already */
    char name[TW_DURABLE_NAME_BYTES];          /* asserted to fit */
    char temporary[TW_DURABLE_NAME_BYTES + 4]; /* NAME.tmp */
    uint64_t dirty_bytes;                      /* since write-back was last started */
    uint64_t unsynced_bytes;                   /* since the last sync */
};

/* Starts replacing `name` in the open folder `dir` by a file of `size` bytes. TW_IO when it cannot
 * be created or the disk has no room; nothing to abort then. */
enum tw_status tw_durable_begin(struct tw_durable *durable, const struct tw_file_ops *ops, int dir,
                                const char *name, uint64_t size, struct tw_error *err);

/* Writes all of bytes[size] at `offset`, through short writes and interruptions. After an error the
 * file can only be thrown away. */
enum tw_status tw_durable_write(struct tw_durable *durable, const void *bytes, size_t size,
                                uint64_t offset, struct tw_error *err);

/* Makes it durable under its name. Ends the use of *durable whether it succeeds or not. */
enum tw_status tw_durable_commit(struct tw_durable *durable, struct tw_error *err);

/* Throws the file away. */
void tw_durable_abort(struct tw_durable *durable);

/* Reads exactly bytes[size] at `offset`. TW_IO on an error, TW_CORRUPT when the file ends first.
 * `name` is for the sentence. */
enum tw_status tw_durable_read(const struct tw_file_ops *ops, int file, const char *name,
                               void *bytes, size_t size, uint64_t offset, struct tw_error *err);

#endif
