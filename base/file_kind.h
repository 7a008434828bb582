/* file_kind.h - names files that are no plain text by their first bytes, and says how each becomes
 * text. The user's data decide, never the name of a file. */
#ifndef TW_BASE_FILE_KIND_H
#define TW_BASE_FILE_KIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { TW_FILE_KIND_BYTES = 512 }; /* first bytes of a file that decide its kind */

enum tw_file_holds {
    TW_HOLDS_NOTHING, /* no text: a picture, a program */
    TW_HOLDS_TEXT,    /* text or tokens that are wanted, so the file is not passed over */
    TW_HOLDS_MARKUP,  /* a text, but its markup would be read as text, too */
    TW_HOLDS_POINTER, /* the name of a file that was not fetched */
};

struct tw_file_kind {
    const char *name;   /* "a Parquet file" */
    const char *remedy; /* how it becomes text: a command with IN and OUT, or a sentence */
    enum tw_file_holds holds;
};

enum tw_packing { TW_PACKING_NONE, TW_PACKING_GZIP, TW_PACKING_ZSTD };

/* Detects the packing by a file's first bytes. */
enum tw_packing tw_packing_of_bytes(const uint8_t *bytes, size_t size);

/* The kind of a file that begins with bytes[size]; NULL: a text, or unknown. Gzip, zstd, tar and
 * JSON are not among the kinds, as they are read. */
const struct tw_file_kind *tw_file_kind_of(const uint8_t *bytes, size_t size);

/* Refuses a file whose bytes are to be tokens, or token numbers (are_numbers), but that is of
 * another kind. Markup may be tokens. Numbers can look like a short magic, so only long ones count.
 * TW_DATA names the path, the kind and the way out. */
enum tw_status tw_file_kind_check(const char *path, const uint8_t *bytes, size_t size,
                                  bool are_numbers, struct tw_error *err);

/* Whether the file is packed by gzip or zstd, or is a tar archive, or JSON: `thinwire data prepare`
 * reads these, and nothing else does. Returns its name for messages, or NULL. */
const char *tw_file_kind_prepared(const uint8_t *bytes, size_t size);

#endif
