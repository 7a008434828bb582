/* text_cut.h - cuts a text into documents.
 *
 * A cut depends only on the bytes from the document's first byte on, not on earlier text or the
 * size of the buffer. Cutting can therefore restart at any document. */
#ifndef TW_WORKER_DATA_TEXT_CUT_H
#define TW_WORKER_DATA_TEXT_CUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    /* After this many bytes, blank lines end a passage. */
    TW_PASSAGE_BYTES = 16 << 10,
    /* After this many bytes, any line end ends a passage. */
    TW_PASSAGE_LINE_BYTES = 20 << 10,
    /* Limit of a passage; without a line end, it ends with the last whole character. */
    TW_PASSAGE_BYTES_MAX = 256 << 10,

    TW_DOCUMENT_BYTES_MAX = 8 << 20,     /* limit of documents other than passages and JSON lines */
    TW_RECORD_TEXT_BYTES_MAX = 16 << 20, /* limit of a JSON line */
};

enum tw_text_unit {
    TW_TEXT_PASSAGES, /* split without loss: the passages, concatenated, are the text */
    TW_TEXT_LINES,    /* every line that is not empty, without its line end */
    TW_TEXT_WHOLE,    /* the whole text as one document */
    TW_TEXT_RECORDS,  /* lines of up to TW_RECORD_TEXT_BYTES_MAX bytes */
};

enum tw_cut {
    TW_CUT_MORE,     /* more bytes are needed to decide */
    TW_CUT_DOCUMENT, /* consumed text[taken]; the document is text[begin .. begin + bytes) */
    TW_CUT_TOO_LONG, /* the document at `begin` is too long; lines and records end at the next \n */
    TW_CUT_BROKEN,   /* no document can be found from here on (json_cut.h, tar_cut.h) */
};

struct tw_text_cut {
    size_t taken, begin, bytes;
};

/* Cuts the document at the start of text[size], size > 0. is_end: the text ends here. `bytes` may
 * be 0 if only empty lines are left. */
enum tw_cut tw_text_cut(enum tw_text_unit unit, const uint8_t *text, size_t size, bool is_end,
                        struct tw_text_cut *cut);

#endif
