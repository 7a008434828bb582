/* text_stream.h - the bytes of a file, unpacked if it is called .gz or .zst. */
#ifndef TW_WORKER_DATA_TEXT_STREAM_H
#define TW_WORKER_DATA_TEXT_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum tw_packing { TW_PACKING_NONE, TW_PACKING_GZIP, TW_PACKING_ZSTD };

/* By the end of a file's name. */
enum tw_packing tw_packing_of_name(const char *path);

/* By how a file begins. */
enum tw_packing tw_packing_of_bytes(const uint8_t *bytes, size_t size);

struct tw_text_stream;

/* Errors name the file, and say what to do. Several members or frames one after the other are one
 * text. Memory: 128 KiB, and the window the file was packed with, 128 MiB at most. TW_IO; TW_NOMEM;
 * TW_DATA: not what its name says, or no plain file. */
enum tw_status tw_text_stream_open(struct tw_text_stream **stream, const char *path,
                                   enum tw_packing packing, struct tw_error *err);
void tw_text_stream_close(struct tw_text_stream *stream); /* NULL is fine */

/* The next bytes into to[room]; *got < room only at the end. TW_IO; TW_DATA: damaged, or cut short
 * (to[*got] is what came before). */
enum tw_status tw_text_stream_read(struct tw_text_stream *stream, uint8_t *to, size_t room,
                                   size_t *got, struct tw_error *err);

/* Goes on `bytes` further than it stands. TW_DATA: it ends before. */
enum tw_status tw_text_stream_skip(struct tw_text_stream *stream, uint64_t bytes,
                                   struct tw_error *err);

/* Bytes of the file, as it lies on the disk, that were read so far. */
uint64_t tw_text_stream_taken(const struct tw_text_stream *stream);

/* Whether the file still has the size and time of change that it was listed with. */
bool tw_text_stream_is_as_listed(const struct tw_text_stream *stream, uint64_t bytes,
                                 int64_t changed_ns);

#endif
