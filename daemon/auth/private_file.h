/* private_file.h - small files that only their owner may read: keys, secrets.
 *
 * They have mode 0600 and are opened without following links. A file that others can read is
 * refused, and the error ends with `; ` and the command that repairs it.
 *
 * The owner is the user of this process. Root works for other users: there the owner is that of
 * the file's folder. The state folder of a service belongs to the service's user, and all that
 * judge its files (daemon, `doctor`, `config check`) judge by this rule. */
#ifndef TW_DAEMON_AUTH_PRIVATE_FILE_H
#define TW_DAEMON_AUTH_PRIVATE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum {
    TW_PRIVATE_BYTES_MAX = 4096, /* size of a key or secret file, with NUL */
    TW_USER_NAME_BYTES = 32,     /* size of the name of a system user, with NUL */
};

/* Returns the user (uid) that private files in the folder must belong to. */
uint32_t tw_private_owner(const char *folder);

/* Writes the user's name, or its number if it has none. Returns `name`. */
const char *tw_user_name(uint32_t uid, char name[TW_USER_NAME_BYTES]);

/* Reads a whole file of at most capacity - 1 bytes and appends NUL. Returns TW_CONFIG if the file
 * is missing, a link, readable by others, owned by another user, or too large. Wipes `text` on
 * failure. */
enum tw_status tw_private_read(const char *path, char *text, size_t capacity, size_t *size,
                               struct tw_error *err);

/* Writes a new file durably, or leaves nothing behind. Root gives it to the owner of the folder.
 * Returns TW_CONFIG if `path` exists. */
enum tw_status tw_private_create(const char *path, const char *text, size_t size,
                                 struct tw_error *err);

/* Replaces `path` durably and atomically: after a crash, the old file or the new one is there. */
enum tw_status tw_private_replace(const char *path, const char *text, size_t size,
                                  struct tw_error *err);

/* Syncs the folder of `path`, so that its creation or removal is durable. */
enum tw_status tw_folder_sync(const char *path, struct tw_error *err);

#endif
