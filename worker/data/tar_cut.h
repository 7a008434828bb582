/* tar_cut.h - cuts a tar archive (ustar, GNU, pax) into its members. Cutting can restart at any
 * member. */
#ifndef TW_WORKER_DATA_TAR_CUT_H
#define TW_WORKER_DATA_TAR_CUT_H

#include "base/status.h"
#include "worker/data/text_cut.h"

enum { TW_TAR_BLOCK = 512, TW_TAR_NAME_BYTES = 101 };

/* Selects the members of an archive that hold texts. WebDataset groups members whose names agree up
 * to the first dot into a sample; the ending gives the kind of each member. */
enum tw_tar_members { TW_TAR_ALL, TW_TAR_TEXTS, TW_TAR_JSON };

/* Cuts the next regular member of text[size], size > 0: text[begin .. begin + bytes) is its
 * content, after its header. TW_CUT_TOO_LONG: the content has more than TW_RECORD_TEXT_BYTES_MAX
 * bytes, and `taken` also counts the bytes that are not in the buffer yet. TW_CUT_BROKEN fills
 * *err: the file is damaged or truncated. */
enum tw_cut tw_tar_cut(const uint8_t *text, size_t size, bool is_end, struct tw_text_cut *cut,
                       struct tw_error *err);

/* Whether this block is a tar header, by its checksum. The oldest archives have no other mark. */
bool tw_tar_is_header(const uint8_t header[TW_TAR_BLOCK]);

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
