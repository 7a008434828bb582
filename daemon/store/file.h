/* file.h - files of the state folder: system calls in a table that tests replace, files that
 * survive a power cut, and small texts that need not. */
#ifndef TW_DAEMON_STORE_FILE_H
#define TW_DAEMON_STORE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* ==== the table of system calls =============================================================== */

/* File functions of the store and the recorder, replaceable by a simulated disk.
 *
 * There are two implementations: the operating system (tw_file_system) and the simulated disk of
 * tests/daemon/store/disk.h, which loses unsynced bytes. Each function is one system call and
 * returns its result: >= 0, or a negative errno. Durable files are built from them. Handles
 * are small numbers that only the implementation can interpret. */

struct tw_file_ops {
    void *ctx;

    /* Opens an existing folder. */
    int (*dir_open)(void *ctx, const char *path);
    /* Makes every create, link, rename and unlink in the folder durable. */
    int (*dir_sync)(void *ctx, int dir);

    /* Creates a new file, open for writing and nameless until `link`. If this fails, use `create`.
     */
    int (*create_nameless)(void *ctx, int dir);
    /* Creates a new file with that name, open for writing, mode 0600. Returns -EEXIST if the name
     * exists. */
    int (*create)(void *ctx, int dir, const char *name);
    /* Opens an existing file for reading. */
    int (*open)(void *ctx, int dir, const char *name);
    /* Opens an existing file for reading and writing. */
    int (*open_write)(void *ctx, int dir, const char *name);

    /* Reserves the blocks of bytes [0, size), so that a full disk is noticed before any work.
     * Returns -EOPNOTSUPP if the file system cannot reserve. */
    int (*allocate)(void *ctx, int file, uint64_t size);
    /* May transfer fewer bytes than requested. */
    int64_t (*write)(void *ctx, int file, const void *bytes, size_t size, uint64_t offset);
    int64_t (*read)(void *ctx, int file, void *bytes, size_t size, uint64_t offset);
    int64_t (*size)(void *ctx, int file);
    /* Returns the bytes that this user may still write on the folder's file system. */
    int64_t (*room)(void *ctx, int dir);
    /* Starts write-back of dirty bytes; a hint without guarantees. */
    int (*sync_start)(void *ctx, int file);
    /* Makes the contents durable. After an error the contents are unknown for ever: the file must
     * be discarded, never synced again. */
    int (*sync)(void *ctx, int file);

    /* Names a nameless file. Returns -EEXIST if the name exists. */
    int (*link)(void *ctx, int file, int dir, const char *name);
    /* Atomically replaces `to` by `from`. */
    int (*rename)(void *ctx, int dir, const char *from, const char *to);
    int (*unlink)(void *ctx, int dir, const char *name);
    int (*close)(void *ctx, int handle); /* closes a file or a folder */
};

/* Returns the operating system's functions. Static storage; usable on any thread. */
const struct tw_file_ops *tw_file_system(void);

/* Like tw_file_system, but new files have mode 0640, readable for the daemon's group. Only for the
 * fetched dataset, which a worker of another user reads. */
const struct tw_file_ops *tw_file_system_shared(void);

/* ==== files that survive a power cut ========================================================== */

/* Writes files that must survive a power cut.
 *
 *   create (nameless, else NAME.tmp) | allocate | write ... | sync | link NAME.tmp | rename to NAME
 *   | sync the folder
 *
 * A crash at any point leaves the old NAME or the complete new one. TW_OK from tw_durable_commit
 * means that the new contents are on disk. After a failure NAME is the old file, or the new one
 * without an acknowledgement. After a failed sync the file is discarded, never synced again. */

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

/* ==== texts that may be lost ================================================================== */

/* Small texts in the run's state folder: known members, bans, measured links. They are replaced by
 * a rename but not synced, because a node can lose them without harm. */

/* Reads the file into text[capacity]. Returns the number of bytes, or 0 if there is no readable
 * file. */
size_t tw_cache_file_load(const char *folder, const char *name, char *text, size_t capacity);

/* Replaces the file. On failure the old file stays. */
void tw_cache_file_save(const char *folder, const char *name, const char *text, size_t size);

#endif
