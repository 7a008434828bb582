/* private_file.h - small files that only their owner may read: keys, secrets.
 *
 * They have mode 0600 and are opened without following links. A file that others can read is
 * refused, and the error gives the command that repairs it. */
#ifndef TW_DAEMON_AUTH_PRIVATE_FILE_H
#define TW_DAEMON_AUTH_PRIVATE_FILE_H

#include <stddef.h>

#include "base/status.h"

enum { TW_PRIVATE_BYTES_MAX = 4096 }; /* size of a key or secret file, with NUL */

/* Reads a whole file of at most capacity - 1 bytes and appends NUL. TW_CONFIG: missing, a link,
 * readable by others, foreign owner, too large. `text` is wiped on failure. */
enum tw_status tw_private_read(const char *path, char *text, size_t capacity, size_t *size,
                               struct tw_error *err);

/* Writes a new file durably, or leaves nothing behind. TW_CONFIG if `path` exists. */
enum tw_status tw_private_create(const char *path, const char *text, size_t size,
                                 struct tw_error *err);

/* Replaces `path` by a new file, durably: a crash leaves the old one or the new one. */
enum tw_status tw_private_replace(const char *path, const char *text, size_t size,
                                  struct tw_error *err);

/* Syncs the folder of `path`, so that its creation or removal is durable. */
enum tw_status tw_folder_sync(const char *path, struct tw_error *err);

#endif
