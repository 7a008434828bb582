/* bpe_nfc.h - Unicode's normal form C (UAX #15), for tokenizers that ask for it. */
#ifndef TW_WORKER_TOKENIZER_BPE_NFC_H
#define TW_WORKER_TOKENIZER_BPE_NFC_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "worker/tokenizer/bpe_pattern.h"

enum { TW_BPE_NFC_CODES = 0x30000 }; /* beyond, nothing but CJK ideographs and tags is assigned */

/* One bit per character: whether it may change, or change what stands before it. Most text has
 * none. */
struct tw_bpe_nfc {
    uint64_t unstable[TW_BPE_NFC_CODES / 64];
};

/* Made by the first who asks, the same for all; never freed. Any thread. */
const struct tw_bpe_nfc *tw_bpe_nfc_table(void);

enum {
    /* Characters normalised together; UAX #15's stream-safe text has at most 31. A longer run of
     * marks is cut, so that nobody's text makes the work or the memory grow. */
    TW_BPE_NFC_RUN_MAX = 1024,
    TW_BPE_NFC_PARTS_MAX = 4, /* a character's decomposition (UAX #15) */
};

/* What one thread normalises with. Zero-initialised is empty; grows with the longest text. */
struct tw_bpe_nfc_buffer {
    uint8_t *bytes;
    size_t count, capacity;
    int32_t codes[TW_BPE_NFC_RUN_MAX * TW_BPE_NFC_PARTS_MAX];
    int32_t sorted[TW_BPE_NFC_RUN_MAX * TW_BPE_NFC_PARTS_MAX];
};
void tw_bpe_nfc_buffer_deinit(struct tw_bpe_nfc_buffer *buffer);

/* *piece, valid UTF-8, becomes its normal form: itself when it is in it already, else bytes of
 * buffer. TW_NOMEM. */
enum tw_status tw_bpe_nfc_apply(const struct tw_bpe_nfc *nfc, struct tw_bpe_nfc_buffer *buffer,
                                struct tw_bpe_piece *piece, struct tw_error *err);

#endif
