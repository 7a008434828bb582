/* file.h - file functions of the store and the recorder, replaceable by a simulated disk.
 *
 * There are two implementations: the operating system (tw_file_system) and the simulated disk of
 * tests/daemon/store/disk.h, which loses unsynced bytes. Each function is one system call and
 * returns its result: >= 0, or a negative errno. durable.h builds durable files from them. Handles
 * are small numbers that only the implementation can interpret. */
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

#endif
