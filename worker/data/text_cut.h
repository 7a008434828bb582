/* text_cut.h - cuts a text into documents.
 *
 * A cut depends only on the bytes from the document's first byte on, not on earlier text or the
 * size of the buffer. Cutting can therefore restart at any document. */
#ifndef TW_WORKER_DATA_TEXT_CUT_H
#define TW_WORKER_DATA_TEXT_CUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/input_kind.h"
#include "base/status.h"

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
    TW_CUT_BROKEN,   /* no document can be found from here on */
};

struct tw_text_cut {
    size_t taken, begin, bytes;
};

/* Cuts the document at the start of text[size], size > 0. is_end: the text ends here. `bytes` may
 * be 0 if only empty lines are left. */
enum tw_cut tw_text_cut(enum tw_text_unit unit, const uint8_t *text, size_t size, bool is_end,
                        struct tw_text_cut *cut);

/* ---- cuts a JSON array into its elements, and a sequence of JSON objects into objects -------- */

/* *
 * As in text_cut.h, a cut depends only on the bytes from its first byte on, so cutting can restart
 * at any document. Only brackets are counted here; tw_json_field validates the JSON. */

/* Cuts the element or object at the start of text[size], size > 0. is_first: these are the first
 * bytes of the text. is_end: the text ends here. TW_CUT_BROKEN fills *err: the text ends within a
 * value, a comma or bracket is missing, or a value has more than TW_RECORD_TEXT_BYTES_MAX bytes. */
enum tw_cut tw_json_cut_array(const uint8_t *text, size_t size, bool is_first, bool is_end,
                              struct tw_text_cut *cut, struct tw_error *err);
enum tw_cut tw_json_cut_objects(const uint8_t *text, size_t size, bool is_end,
                                struct tw_text_cut *cut, struct tw_error *err);

/* ---- cuts a tar archive (ustar, GNU, pax) into its members ----------------------------------- */

/* Cutting can restart at any
 * member. */

enum { TW_TAR_NAME_BYTES = 101 };

/* Selects the members of an archive that hold texts. WebDataset groups members whose names agree up
 * to the first dot into a sample; the ending gives the kind of each member. */
enum tw_tar_members { TW_TAR_ALL, TW_TAR_TEXTS, TW_TAR_JSON };

/* Cuts the next regular member of text[size], size > 0: text[begin .. begin + bytes) is its
 * content, after its header. TW_CUT_TOO_LONG: the content has more than TW_RECORD_TEXT_BYTES_MAX
 * bytes, and `taken` also counts the bytes that are not in the buffer yet. TW_CUT_BROKEN fills
 * *err: the file is damaged or truncated. */
enum tw_cut tw_tar_cut(const uint8_t *text, size_t size, bool is_end, struct tw_text_cut *cut,
                       struct tw_error *err);

/* Copies the name of the member with this header, at most its first 100 bytes. The rest of a longer
 * name is in another field. */
void tw_tar_name(const uint8_t header[TW_TAR_BLOCK], char name[TW_TAR_NAME_BYTES]);

/* Decides from the first sample of an archive that begins with text[size] which members hold the
 * texts. TEXTS: the sample has a text beside other members. JSON: it has no text, but a JSON file
 * beside others. ALL: neither. */
enum tw_tar_members tw_tar_members_of(const uint8_t *text, size_t size);

/* Whether a member of this name is one of `members`. A truncated name, whose ending is unknown,
 * counts as one, because no text may be skipped. */
bool tw_tar_is_member(enum tw_tar_members members, const char *name);

#endif
