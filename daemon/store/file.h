/* file.h - file functions of the store and the recorder, replaceable by a simulated disk.
 *
 * There are two implementations: the operating system (tw_file_system) and the simulated disk of
 * tests/daemon/store/disk.h, which loses unsynced bytes. Each function is one system call and
 * returns its result: >= 0, or a negative errno. durable.h combines them into durable files.
 * Handles are small numbers, private to the implementation. */
#ifndef TW_DAEMON_STORE_FILE_H
#define TW_DAEMON_STORE_FILE_H

#include <stddef.h>
#include <stdint.h>

struct tw_file_ops {
    void *ctx;

    /* Opens an existing folder. */
    int (*dir_open)(void *ctx, const char *path);
    /* Makes every create, link, rename and unlink in the folder durable. */
    int (*dir_sync)(void *ctx, int dir);

    /* Creates a new file, open for writing and without a name until `link`. On any error, use
     * `create`. */
    int (*create_nameless)(void *ctx, int dir);
    /* Creates a new file with that name, open for writing, mode 0600. -EEXIST if the name
     * exists. */
    int (*create)(void *ctx, int dir, const char *name);
    /* Opens an existing file for reading. */
    int (*open)(void *ctx, int dir, const char *name);
    /* Opens an existing file for reading and writing. */
    int (*open_write)(void *ctx, int dir, const char *name);

    /* Reserves the blocks of bytes [0, size), so that a full disk shows before any work.
     * -EOPNOTSUPP if the file system cannot. */
    int (*allocate)(void *ctx, int file, uint64_t size);
    /* May transfer fewer bytes than requested. */
    int64_t (*write)(void *ctx, int file, const void *bytes, size_t size, uint64_t offset);
    int64_t (*read)(void *ctx, int file, void *bytes, size_t size, uint64_t offset);
    int64_t (*size)(void *ctx, int file);
    /* Bytes that this user may still write on the file system of the folder. */
    int64_t (*room)(void *ctx, int dir);
    /* Starts write-back of dirty bytes; a hint without guarantees. */
    int (*sync_start)(void *ctx, int file);
    /* Makes the contents durable. After an error they are unknown for ever: the file is discarded,
     * never synced again. */
    int (*sync)(void *ctx, int file);

    /* Names a nameless file; -EEXIST if the name exists. */
    int (*link)(void *ctx, int file, int dir, const char *name);
    /* Atomically replaces `to`. */
    int (*rename)(void *ctx, int dir, const char *from, const char *to);
    int (*unlink)(void *ctx, int dir, const char *name);
    int (*close)(void *ctx, int handle); /* closes a file or a folder */
};

/* The operating system's functions. Static storage; any thread. */
const struct tw_file_ops *tw_file_system(void);

/* Like tw_file_system, but the daemon's group may read new files (mode 0640). For the fetched
 * dataset alone, which a worker with a user of its own reads. */
const struct tw_file_ops *tw_file_system_shared(void);

#endif
