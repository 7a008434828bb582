/* bpe_nfc.h - Unicode's normalisation form C (UAX #15), for tokenizers that ask for it. */
#ifndef TW_WORKER_TOKENIZER_BPE_NFC_H
#define TW_WORKER_TOKENIZER_BPE_NFC_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "worker/tokenizer/bpe_pattern.h"

/* code points in the table; above them, only CJK ideographs and tags are assigned */
enum { TW_BPE_NFC_CODES = 0x30000 };

/* One bit per character: set if NFC may change it, compose it with the character before, or reorder
 * marks across it. Most texts contain no such character. */
struct tw_bpe_nfc {
    uint64_t unstable[TW_BPE_NFC_CODES / 64];
};

/* Returns the shared table, which the first call builds. It is never freed. May be called by any
 * thread. */
const struct tw_bpe_nfc *tw_bpe_nfc_table(void);

enum {
    /* Limit of characters that are normalised together; stream-safe text (UAX #15) has at most
     * 31. Longer runs of marks are split, which bounds the time and memory that hostile text can
     * cost. */
    TW_BPE_NFC_RUN_MAX = 1024,
    TW_BPE_NFC_PARTS_MAX = 4, /* characters in the longest decomposition of a character (UAX #15) */
};

/* One thread's scratch. A zero-initialised one is empty; it grows with the longest text. */
struct tw_bpe_nfc_buffer {
    uint8_t *bytes;
    size_t count, capacity;
    int32_t codes[TW_BPE_NFC_RUN_MAX * TW_BPE_NFC_PARTS_MAX];
    int32_t sorted[TW_BPE_NFC_RUN_MAX * TW_BPE_NFC_PARTS_MAX];
};
void tw_bpe_nfc_buffer_deinit(struct tw_bpe_nfc_buffer *buffer);

/* Replaces *piece, valid UTF-8, by its NFC. A piece that is already normal stays as it is.
 * Otherwise the result points into buffer. Fails with TW_NOMEM. */
enum tw_status tw_bpe_nfc_apply(const struct tw_bpe_nfc *nfc, struct tw_bpe_nfc_buffer *buffer,
                                struct tw_bpe_piece *piece, struct tw_error *err);

#endif
