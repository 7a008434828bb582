/* bpe_nfc.h - Unicode's normalization form C (UAX #15), for tokenizers that ask for it. */
#ifndef TW_WORKER_TOKENIZER_BPE_NFC_H
#define TW_WORKER_TOKENIZER_BPE_NFC_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "worker/tokenizer/bpe_pattern.h"

enum { TW_BPE_NFC_CODES = 0x30000 }; /* beyond this, only CJK ideographs and tags are assigned */

/* One bit per character: set if NFC may change it, compose it with the character before, or reorder
 * marks across it. Most text has none. */
struct tw_bpe_nfc {
    uint64_t unstable[TW_BPE_NFC_CODES / 64];
};

/* The shared table, built by the first call; never freed. Any thread. */
const struct tw_bpe_nfc *tw_bpe_nfc_table(void);

enum {
    /* Most characters that are normalised together; stream-safe text (UAX #15) has at most 31.
     * Longer runs of marks are cut, which bounds the time and memory for hostile text. */
    TW_BPE_NFC_RUN_MAX = 1024,
    TW_BPE_NFC_PARTS_MAX = 4, /* longest decomposition of a character (UAX #15) */
};

/* One thread's scratch. Zero-initialised is empty; grows with the longest text. */
struct tw_bpe_nfc_buffer {
    uint8_t *bytes;
    size_t count, capacity;
    int32_t codes[TW_BPE_NFC_RUN_MAX * TW_BPE_NFC_PARTS_MAX];
    int32_t sorted[TW_BPE_NFC_RUN_MAX * TW_BPE_NFC_PARTS_MAX];
};
void tw_bpe_nfc_buffer_deinit(struct tw_bpe_nfc_buffer *buffer);

/* Replaces *piece, valid UTF-8, by its NFC. The result is *piece itself if already normal,
 * otherwise it points into buffer. TW_NOMEM. */
enum tw_status tw_bpe_nfc_apply(const struct tw_bpe_nfc *nfc, struct tw_bpe_nfc_buffer *buffer,
                                struct tw_bpe_piece *piece, struct tw_error *err);

#endif
