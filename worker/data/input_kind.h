/* input_kind.h - decides from the first bytes of a file's text how `prepare` reads the file. */
#ifndef TW_WORKER_DATA_INPUT_KIND_H
#define TW_WORKER_DATA_INPUT_KIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file_kind.h"

enum tw_input_kind {
    TW_INPUT_TEXT,
    TW_INPUT_LINES,   /* JSON Lines: one object per line */
    TW_INPUT_ARRAY,   /* a single JSON array of objects or strings */
    TW_INPUT_OBJECTS, /* JSON objects that cover several lines, one after another */
    TW_INPUT_TAR,     /* a tar archive, whose members are documents */
    TW_INPUT_TOKENS,  /* a shard of llm.c, or the .bin of a Megatron-LM pair */
    TW_INPUT_KINDS,
};

enum { TW_INPUT_LOOK_BYTES = TW_FILE_LOOK_BYTES }; /* number of first bytes that decide the kind */

/* The kind of a text that begins with bytes[size]; never TOKENS. is_all: these bytes are the whole
 * text. has_json_name: the file's name ends as that of a JSON file, so the text is read as JSON or
 * refused. */
enum tw_input_kind tw_input_kind_of(const uint8_t *bytes, size_t size, bool is_all,
                                    bool has_json_name);

/* Whether bytes[size] seem to be text in another encoding than UTF-8, such as Latin-1: most of the
 * non-ASCII characters, and at least 16, are invalid UTF-8. */
bool tw_input_is_other_encoding(const uint8_t *bytes, size_t size);

/* Returns a name for messages, for example "JSON Lines". */
const char *tw_input_kind_name(enum tw_input_kind kind);

#endif
