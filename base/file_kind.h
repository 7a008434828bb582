/* file_kind.h - detects files that are not plain text by their first bytes, and tells the user how
 * to turn each into text. Only the content decides, never the file name. */
#ifndef TW_BASE_FILE_KIND_H
#define TW_BASE_FILE_KIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TW_FILE_KIND_BYTES = 512,       /* number of leading bytes that decide a file's kind */
    TW_FILE_LOOK_BYTES = 64 * 1024, /* and in which a text must not have a NUL */
};

enum tw_file_holds {
    TW_HOLDS_NOTHING, /* no text: a picture or a program, for example */
    TW_HOLDS_TEXT,    /* text or tokens that the user wants, so the file must not be skipped */
    TW_HOLDS_MARKUP,  /* text whose markup would be read as text, too */
    TW_HOLDS_POINTER, /* a pointer to a file that was not downloaded (Git LFS) */
};

struct tw_file_kind {
    const char *name;   /* "a Parquet file" */
    const char *remedy; /* command with IN and OUT, or sentence, that turns the file into text */
    enum tw_file_holds holds;
};

enum tw_packing { TW_PACKING_NONE, TW_PACKING_GZIP, TW_PACKING_ZSTD };

/* Detects gzip or zstd by a file's first bytes. */
enum tw_packing tw_packing_of_bytes(const uint8_t *bytes, size_t size);

/* Returns the kind of a file whose first bytes are bytes[size], or NULL if it is text or unknown.
 * Gzip, zstd, tar and JSON are not listed, because `thinwire data prepare` reads them. */
const struct tw_file_kind *tw_file_kind_of(const uint8_t *bytes, size_t size);

/* Like tw_file_kind_of, for a file of token numbers, which can look like a short magic number: only
 * long ones count. */
const struct tw_file_kind *tw_file_kind_of_numbers(const uint8_t *bytes, size_t size);

#endif
