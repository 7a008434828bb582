/* text_cut.h - where one document of a text ends and the next begins.
 *
 * What is cut depends on the bytes from the document's first one on, never on what came before or
 * on how many were there to look at: so cutting can begin again at any document. */
#ifndef TW_WORKER_DATA_TEXT_CUT_H
#define TW_WORKER_DATA_TEXT_CUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    /* A passage ends with the first blank lines after this many bytes, */
    TW_PASSAGE_BYTES = 16 << 10,
    /* else with the first line after this many, */
    TW_PASSAGE_LINE_BYTES = 20 << 10,
    /* else at the last character that ends within this many. */
    TW_PASSAGE_BYTES_MAX = 256 << 10,

    TW_DOCUMENT_BYTES_MAX = 8 << 20,     /* of text, of any other kind */
    TW_RECORD_TEXT_BYTES_MAX = 16 << 20, /* a line of JSON */
};

enum tw_text_unit {
    TW_TEXT_PASSAGES, /* every byte belongs to one; together they are the text */
    TW_TEXT_LINES,    /* every line that is not empty, without its end */
    TW_TEXT_WHOLE,    /* the text */
    TW_TEXT_RECORDS,  /* as lines, of up to TW_RECORD_TEXT_BYTES_MAX */
};

enum tw_cut {
    TW_CUT_MORE,     /* more bytes are needed to tell */
    TW_CUT_DOCUMENT, /* of text[taken] the document is text[begin .. begin + bytes) */
    TW_CUT_TOO_LONG, /* the one that begins at `begin`: for lines and records up to the next \n */
};

struct tw_text_cut {
    size_t taken, begin, bytes;
};

/* The document that text[size] begins with, size > 0; is_end: nothing comes after it. `bytes` may
 * be 0: empty lines at the end of what is there. */
enum tw_cut tw_text_cut(enum tw_text_unit unit, const uint8_t *text, size_t size, bool is_end,
                        struct tw_text_cut *cut);

#endif
