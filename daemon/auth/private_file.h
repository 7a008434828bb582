/* private_file.h - small files that nobody but their owner may read: keys, secrets.
 *
 * Mode 0600, opened without following links, refused, with the command that repairs it, when others
 * could read them. */
#ifndef TW_DAEMON_AUTH_PRIVATE_FILE_H
#define TW_DAEMON_AUTH_PRIVATE_FILE_H

#include <stddef.h>

#include "base/status.h"

enum { TW_PRIVATE_BYTES_MAX = 4096 }; /* of a key or a secret file, with NUL */

/* Reads a whole file of at most capacity - 1 bytes and ends it with NUL. TW_CONFIG: missing, a
 * link, readable by others, of another owner, too large. `text` is wiped on failure. */
enum tw_status tw_private_read(const char *path, char *text, size_t capacity, size_t *size,
                               struct tw_error *err);

/* Writes a new file, durably, or leaves nothing behind. TW_CONFIG when `path` exists. */
enum tw_status tw_private_create(const char *path, const char *text, size_t size,
                                 struct tw_error *err);

/* Puts a new file in the place of `path`, durably: a crash leaves the old one or the new one. */
enum tw_status tw_private_replace(const char *path, const char *text, size_t size,
                                  struct tw_error *err);

/* Makes durable that `path` is in its folder, or is not any more. */
enum tw_status tw_folder_sync(const char *path, struct tw_error *err);

#endif
