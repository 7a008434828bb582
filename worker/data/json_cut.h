/* json_cut.h - cuts a JSON array into its elements, and a sequence of JSON objects into objects.
 *
 * As in text_cut.h, a cut depends only on the bytes from its first byte on, so cutting can restart
 * at any document. Only brackets are counted here; tw_json_field validates the JSON. */
#ifndef TW_WORKER_DATA_JSON_CUT_H
#define TW_WORKER_DATA_JSON_CUT_H

#include "base/status.h"
#include "worker/data/text_cut.h"

/* Cuts the element or object at the start of text[size], size > 0. is_first: these are the first
 * bytes of the text. is_end: the text ends here. TW_CUT_BROKEN fills *err: the text ends within a
 * value, a comma or bracket is missing, or a value has more than TW_RECORD_TEXT_BYTES_MAX bytes. */
enum tw_cut tw_json_cut_array(const uint8_t *text, size_t size, bool is_first, bool is_end,
                              struct tw_text_cut *cut, struct tw_error *err);
enum tw_cut tw_json_cut_objects(const uint8_t *text, size_t size, bool is_end,
                                struct tw_text_cut *cut, struct tw_error *err);

#endif
