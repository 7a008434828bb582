/* in_file.h - opens and reads regular files. Others are refused: a FIFO would block, and a device
 * has no end. */
#ifndef TW_WORKER_SUPPORT_IN_FILE_H
#define TW_WORKER_SUPPORT_IN_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Opens path, following symbolic links; the caller closes *fd. Sets *bytes to the size. Fails with
 * TW_IO, naming the path, if the file is missing, forbidden, or not a regular file. */
enum tw_status tw_in_open(const char *path, int *fd, uint64_t *bytes, struct tw_error *err);

/* Reads `size` bytes at offset `at`. Returns 0, ENODATA if the file ends before that, or another
 * errno. */
int tw_in_read_at(int fd, void *to, size_t size, uint64_t at);

/* Explains a result of tw_in_read_at other than 0, for a message. */
const char *tw_in_reason(int why);

/* Reads a whole file of at most bytes_max bytes into *text, which gets an extra NUL at the end; the
 * caller frees it. Fails with TW_IO, TW_CONFIG if the file is larger, or TW_NOMEM. Errors name the
 * path, and *text is then NULL. */
enum tw_status tw_in_read_whole(const char *path, size_t bytes_max, char **text, size_t *size,
                                struct tw_error *err);

#endif
