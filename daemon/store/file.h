/* file.h - the table of functions every durable operation of a node goes through.
 *
 * Two implementations: the operating system (tw_file_system) and the simulated disk of
 * tests/daemon/store/disk.h, which loses what was not synced. Each function is one system call and
 * returns what it does: >= 0, or a negative errno. The recipe that makes a file durable out of
 * them is in durable.h. Handles are small numbers of the implementation's own. */
#ifndef TW_DAEMON_STORE_FILE_H
#define TW_DAEMON_STORE_FILE_H

#include <stddef.h>
#include <stdint.h>

struct tw_file_ops {
    void *ctx;

    /* A handle of an existing folder. */
    int (*dir_open)(void *ctx, const char *path);
    /* Makes every create, link, rename and unlink done in the folder durable. */
    int (*dir_sync)(void *ctx, int dir);

    /* A new file open for writing, with no name until `link` gives it one. Any error means: use
     * `create`. */
    int (*create_nameless)(void *ctx, int dir);
    /* A new file of that name open for writing; -EEXIST when there is one. Mode 0600. */
    int (*create)(void *ctx, int dir, const char *name);
    /* An existing file open for reading. */
    int (*open)(void *ctx, int dir, const char *name);
    /* An existing file open for reading and writing. */
    int (*open_write)(void *ctx, int dir, const char *name);

    /* Reserves the blocks of bytes [0, size): a full disk is known before any work. -EOPNOTSUPP
     * where the file system cannot. */
    int (*allocate)(void *ctx, int file, uint64_t size);
    /* May transfer less than asked. */
    int64_t (*write)(void *ctx, int file, const void *bytes, size_t size, uint64_t offset);
    int64_t (*read)(void *ctx, int file, void *bytes, size_t size, uint64_t offset);
    int64_t (*size)(void *ctx, int file);
    /* Bytes this user may still write in the file system of the folder. */
    int64_t (*room)(void *ctx, int dir);
    /* Starts writing back what is dirty; promises nothing. */
    int (*sync_start)(void *ctx, int file);
    /* Makes the contents durable. After an error the contents are unknown for ever: the file is
     * given up, never synced again. */
    int (*sync)(void *ctx, int file);

    /* Names a nameless file; -EEXIST when the name is taken. */
    int (*link)(void *ctx, int file, int dir, const char *name);
    /* Atomically replaces `to`. */
    int (*rename)(void *ctx, int dir, const char *from, const char *to);
    int (*unlink)(void *ctx, int dir, const char *name);
    int (*close)(void *ctx, int handle); /* of a file or a folder */
};

/* The operating system's. Static storage; any thread. */
const struct tw_file_ops *tw_file_system(void);

#endif
