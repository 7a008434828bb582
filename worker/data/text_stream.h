/* text_stream.h - reads a file's bytes, decompressed if they are gzip or zstd. */
#ifndef TW_WORKER_DATA_TEXT_STREAM_H
#define TW_WORKER_DATA_TEXT_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct tw_text_stream;

/* Opens a file; its first bytes show whether it is compressed. Error messages name the file and a
 * remedy. Concatenated members or frames are one text. Memory: 128 KiB plus the compression window:
 * at most 128 MiB, or half the free memory if a zstd file needs more. Fails with TW_IO, TW_NOMEM,
 * or TW_DATA if this is not a regular file. */
enum tw_status tw_text_stream_open(struct tw_text_stream **stream, const char *path,
                                   struct tw_error *err);
void tw_text_stream_close(struct tw_text_stream *stream); /* NULL is allowed */

/* Reads the next bytes into to[room]; *got < room only at the end. Fails with TW_IO, TW_NOMEM, or
 * TW_DATA if the file is damaged, truncated, or compressed in a way that this program cannot undo.
 * After TW_DATA, to[*got] is the text before that place. */
enum tw_status tw_text_stream_read(struct tw_text_stream *stream, uint8_t *to, size_t room,
                                   size_t *got, struct tw_error *err);

/* Skips `bytes` bytes of the text. Fails with TW_DATA if the text is shorter. */
enum tw_status tw_text_stream_skip(struct tw_text_stream *stream, uint64_t bytes,
                                   struct tw_error *err);

/* Returns the number of bytes consumed from the file as stored on disk. */
uint64_t tw_text_stream_taken(const struct tw_text_stream *stream);

/* Whether the file still has the size and change time with which it was listed. */
bool tw_text_stream_is_as_listed(const struct tw_text_stream *stream, uint64_t bytes,
                                 int64_t changed_ns);

#endif
