/* tar_cut.h - cuts a tar archive (ustar, GNU, pax) into its members. A cut restarts at any member.
 */
#ifndef TW_WORKER_DATA_TAR_CUT_H
#define TW_WORKER_DATA_TAR_CUT_H

#include "base/status.h"
#include "worker/data/text_cut.h"

enum { TW_TAR_BLOCK = 512, TW_TAR_NAME_BYTES = 101 };

/* The members that hold the texts of an archive. WebDataset groups members with one name up to the
 * first dot into a sample, and the ending tells the kind of each. */
enum tw_tar_members { TW_TAR_ALL, TW_TAR_TEXTS, TW_TAR_JSON };

/* Cuts the next regular member of text[size], size > 0: text[begin .. begin + bytes) is its
 * content, after its header. TW_CUT_TOO_LONG: it has more than TW_RECORD_TEXT_BYTES_MAX bytes, and
 * `taken` counts those that are not in the text yet. TW_CUT_BROKEN fills *err: the file is
 * damaged or truncated. */
enum tw_cut tw_tar_cut(const uint8_t *text, size_t size, bool is_end, struct tw_text_cut *cut,
                       struct tw_error *err);

/* Whether the sum in this block is right. The oldest archives have no other mark. */
bool tw_tar_is_header(const uint8_t header[TW_TAR_BLOCK]);

/* Name of the member with this header, at most its first 100 bytes: a longer name has its rest in
 * another field. */
void tw_tar_name(const uint8_t header[TW_TAR_BLOCK], char name[TW_TAR_NAME_BYTES]);

/* Decides by the first sample of an archive that begins with text[size]. If it has a text beside
 * other members: TEXTS. Otherwise, if it has a JSON file beside others: JSON. */
enum tw_tar_members tw_tar_members_of(const uint8_t *text, size_t size);

/* Whether a member of this name is one of `members`. If the name is cut off, its ending is not
 * known: it then counts as one, because a text must not be passed over. */
bool tw_tar_is_member(enum tw_tar_members members, const char *name);

#endif
