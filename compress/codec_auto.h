/* codec_auto.h - auto: the pieces of a part are in different codecs, which the payload names.
 *
 * The encoder divides a byte limit among the pieces: pieces with large elements get more bits
 * (tw_budget_choose). Decoders accept any mix. So within one round, each node, and each link from a
 * node to the owner of a part, can have its own codec. Without a byte limit, all pieces are int4.
 *
 * Bytes, little-endian; a part without elements has no bytes:
 *
 *     pieces (u32)
 *     for each piece: elements + 2^24 * rung (u32), bytes (u32)
 *     the payload of each piece
 *
 * A rung is the index of a codec in the ladder, a list from fine to coarse: int8, int4, ecsq4,
 * ecsq3, ecsq2, ecsq1, ecsq05, topk256, topk64, topk32. Every piece has fewer than 2^18 + 2^12
 * elements and, unless it is the only one, at least 2^12. This bounds the size of the headers. The
 * codec needs error feedback, because it may use the coarsest rung. */
#ifndef TW_COMPRESS_CODEC_AUTO_H
#define TW_COMPRESS_CODEC_AUTO_H

#include "compress/codec.h"

enum tw_auto_bounds {
    TW_AUTO_RUNGS = 10,
    /* largest number of elements that share a scale or a count in any codec of the ladder */
    TW_AUTO_BLOCK = 1 << 12,
    TW_AUTO_PIECE_MAX = 1 << 18, /* a whole number of entropy-coded streams */
    /* elements of a cell; smaller cells gain little, because a change of rung costs bytes */
    TW_AUTO_CELL_MAX = 1 << 16,
    TW_AUTO_CELLS_MAX = TW_FRAGMENT_ELEMENTS_MAX / TW_AUTO_BLOCK + 1,
    TW_AUTO_HEAD_BYTES = 4,       /* header of the payload */
    TW_AUTO_PIECE_HEAD_BYTES = 8, /* header of a piece */
    TW_AUTO_SAMPLE = 1 << 15,
};

/* The choice of a codec for each piece, so that bytes are spent where they reduce the error most.
 *
 *     minimise  sum_i error_i(rung_i)   subject to   sum_i bytes_i(rung_i) <= bytes_max
 *
 * It uses one Lagrange multiplier lambda: every piece gets the rung with the smallest error +
 * lambda * bytes, and bisection finds the smallest lambda that fits. Errors must add up over
 * pieces, like squared errors or residuals under error feedback. On the lower convex hulls of the
 * pieces this is the optimum. L-GreCo (arXiv 2210.17357) solves the same problem by a dynamic
 * program over norms; the tests compare with it. If two rungs of a piece cost the same at lambda,
 * the piece gets the one with more bytes while the budget lasts. More bytes thus never mean a
 * larger error. */
enum { TW_BUDGET_RUNGS_MAX = 16 };

struct tw_budget_piece {
    double error[TW_BUDGET_RUNGS_MAX]; /* finite, not negative */
    uint32_t bytes[TW_BUDGET_RUNGS_MAX];
    uint32_t rung; /* out: the chosen rung */
};

/* Chooses pieces[..].rung among the first `rungs_count` (1 to TW_BUDGET_RUNGS_MAX), and returns the
 * sum of their bytes. If even the smallest rungs exceed bytes_max, it chooses those. Among rungs
 * with equal bytes it prefers the smallest error, then the lowest index. */
uint64_t tw_budget_choose(struct tw_budget_piece *pieces, size_t pieces_count, uint32_t rungs_count,
                          uint64_t bytes_max);

extern const struct tw_codec tw_codec_auto;

/* Returns the codec of a rung < TW_AUTO_RUNGS. */
const struct tw_codec *tw_auto_rung(uint32_t rung);

/* Returns roughly the fewest bytes for n elements: all of them on the last, coarsest rung. */
uint64_t tw_auto_bytes_min(uint64_t n);

/* Counts the elements of a payload on each rung. Returns TW_CORRUPT if the headers of its pieces do
 * not add up to n elements; *elements is then undefined. The content of the pieces is not checked.
 */
enum tw_status tw_auto_mix(const uint8_t *src, size_t bytes, size_t n,
                           uint64_t elements[TW_AUTO_RUNGS]);

/* Input of the encoder. */
struct tw_auto_part {
    const float *x;
    size_t n;             /* at most TW_FRAGMENT_ELEMENTS_MAX */
    const uint64_t *ends; /* end index of each tensor, ascending, at most n */
    uint32_t ends_count;
    size_t bytes_max; /* byte limit of the payload; 0: none, all pieces are int4 */
};

/* Scratch memory, owned by the caller; needs no initialisation. */
struct tw_auto {
    uint32_t cells_count;
    size_t begins[TW_AUTO_CELLS_MAX + 1];
    struct tw_budget_piece cells[TW_AUTO_CELLS_MAX];
    float sample[TW_AUTO_SAMPLE], decoded[TW_AUTO_SAMPLE];
    uint8_t coded[2 * TW_AUTO_SAMPLE];
};

/* Encodes like tw_codec_auto.encode, but within part->bytes_max if at least the coarsest rung fits
 * it. The bytes may differ between machines; their decoded values do not.
 *
 * Rungs are chosen for cells: tensors, or ranges of large ones. For each tensor, bytes and error of
 * every rung are measured on a sample. For each cell the bytes are scaled by its number of
 * elements, the error by its sum of squares. The rungs minimise the sum of residuals under error
 * feedback. Adjacent cells on one rung form one piece. Then the rate of all ecsq pieces, which can
 * have any value, is adjusted until the bytes fit. A part no larger than the sample is also encoded
 * as one piece on every rung that fits, and the best result is used. */
enum tw_status tw_auto_encode(struct tw_auto *work, const struct tw_auto_part *part, uint8_t *dst,
                              size_t capacity, size_t *bytes_out);

#endif
