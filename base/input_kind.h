/* input_kind.h - decides from the first bytes of a file whether and how it is read. Every command
 * that takes training data asks here, so all give one answer. */
#ifndef TW_BASE_INPUT_KIND_H
#define TW_BASE_INPUT_KIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file_kind.h"
#include "base/status.h"

enum tw_input_kind {
    TW_INPUT_TEXT,
    TW_INPUT_LINES,   /* JSON Lines: one object per line */
    TW_INPUT_ARRAY,   /* a single JSON array of objects or strings */
    TW_INPUT_OBJECTS, /* JSON objects that cover several lines, one after another */
    TW_INPUT_TAR,     /* a tar archive, whose members are documents */
    TW_INPUT_TOKENS,  /* a shard of llm.c, or the .bin of a Megatron-LM pair */
    TW_INPUT_KINDS,
};

/* The beginning of a file's unpacked text. Everything is borrowed. */
struct tw_file_start {
    /* its ending shows JSON (.jsonl, .ndjson, .json) or a table (.csv, .tsv); NULL: no name */
    const char *path;
    const uint8_t *bytes; /* (size), at best TW_FILE_LOOK_BYTES of them */
    size_t size;
    bool is_all; /* whether these bytes are the whole text */
};

enum tw_file_use {
    TW_USE_BYTES,     /* a run's text, whose bytes are the tokens */
    TW_USE_NUMBERS_2, /* token numbers of 2 bytes */
    TW_USE_NUMBERS_4,
    TW_USE_DOCUMENTS, /* cut into documents: JSON and tar are read, too */
    TW_USE_PLAIN,     /* cut into documents, as plain text even if it looks like JSON or markup */
};

/* Refuses a file that this use would misread: of another kind (file_kind.h), compressed, a table,
 * with a NUL, or in another encoding than UTF-8; as BYTES, JSON and tar too, but not markup; as
 * NUMBERS, text and numbers of another width, and of the kinds only those that no numbers look
 * like. The TW_DATA error names the path, the kind and a remedy. Sets *is_binary (may be NULL) to
 * whether the file holds no text at all. */
enum tw_status tw_file_check(const struct tw_file_start *start, enum tw_file_use use,
                             bool *is_binary, struct tw_error *err);

/* The kind of a text; never TOKENS. A file whose name is that of a JSON file is JSON, or is refused
 * by its reader. */
enum tw_input_kind tw_input_kind_of(const struct tw_file_start *start);

/* The separator of a table (CSV, TSV): its first 8 records or more have equally many fields, and
 * the first of them has names. 0: the text is no table. */
uint8_t tw_input_table_separator(const struct tw_file_start *start);

/* Whether bytes[size] seem to be text in another encoding than UTF-8, such as Latin-1: most of the
 * non-ASCII characters, and at least 16, are invalid UTF-8. */
bool tw_input_is_other_encoding(const uint8_t *bytes, size_t size);

/* Returns a name for messages, for example "JSON Lines". */
const char *tw_input_kind_name(enum tw_input_kind kind);

/* ---- headers of tar archives ----------------------------------------------------------------- */

enum { TW_TAR_BLOCK = 512 };

/* Whether this block is a tar header, by its checksum. The oldest archives have no other mark. */
bool tw_tar_is_header(const uint8_t header[TW_TAR_BLOCK]);

/* Parses field[bytes], bytes >= 8, of a header: an octal number, or a binary one if the first bit
 * is set. Returns UINT64_MAX if it is neither. */
uint64_t tw_tar_number(const uint8_t *field, size_t bytes);

#endif
