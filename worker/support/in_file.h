/* in_file.h - files opened for reading. Only regular ones: a FIFO would block, and a device has no
 * end. */
#ifndef TW_WORKER_SUPPORT_IN_FILE_H
#define TW_WORKER_SUPPORT_IN_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Opens path, following symbolic links. TW_IO names the path: missing, not allowed, or no regular
 * file. The caller closes *fd. */
enum tw_status tw_in_open(const char *path, int *fd, uint64_t *bytes, struct tw_error *err);

/* Reads `size` bytes at offset `at`. Returns 0, ENODATA if the file ends before, else errno. */
int tw_in_read_at(int fd, void *to, size_t size, uint64_t at);

/* The reason for a result of tw_in_read_at other than 0, for a message. */
const char *tw_in_reason(int why);

/* Reads a whole file of at most bytes_max into *text, which ends with an extra NUL; the caller
 * frees it. Errors name the path: TW_IO; TW_CONFIG if the file is larger; TW_NOMEM. Then *text is
 * NULL. */
enum tw_status tw_in_read_whole(const char *path, size_t bytes_max, char **text, size_t *size,
                                struct tw_error *err);

#endif
