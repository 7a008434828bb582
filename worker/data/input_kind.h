/* input_kind.h - decides by the first bytes of a file's text how `prepare` reads it. */
#ifndef TW_WORKER_DATA_INPUT_KIND_H
#define TW_WORKER_DATA_INPUT_KIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tw_input_kind {
    TW_INPUT_TEXT,
    TW_INPUT_LINES,   /* JSON Lines: an object per line */
    TW_INPUT_ARRAY,   /* one JSON array, of objects or strings */
    TW_INPUT_OBJECTS, /* JSON objects over several lines, one after another */
    TW_INPUT_TAR,     /* a tar archive, whose members are documents */
    TW_INPUT_TOKENS,  /* a shard of llm.c, or the .bin of a Megatron-LM pair */
    TW_INPUT_KINDS,
};

enum { TW_INPUT_LOOK_BYTES = 64 << 10 }; /* first bytes that decide, if the text has as many */

/* The kind of a text that begins with bytes[size], never TOKENS. is_all: bytes[size] is the whole
 * text.
 * has_json_name: the file's name claims JSON, so it is read as JSON or refused. */
enum tw_input_kind tw_input_kind_of(const uint8_t *bytes, size_t size, bool is_all,
                                    bool has_json_name);

/* Whether bytes[size] are text in another encoding, such as Latin-1: most of the characters beyond
 * ASCII, and at least 16, are no UTF-8. */
bool tw_input_is_other_encoding(const uint8_t *bytes, size_t size);

/* "JSON Lines" and the like, for messages. */
const char *tw_input_kind_name(enum tw_input_kind kind);

#endif
