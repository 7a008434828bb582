/* codec_auto.h - auto: pieces in whatever codec suits them, which the payload itself names.
 *
 * Who encodes has so many bytes for a part, and deals them out over its pieces: where an outer
 * gradient is large it gets more bits (budget.h). Who decodes takes whatever came. So each node,
 * and each link from a node to the owner of a part, has a codec of its own in one and the same
 * round. Without a number of bytes all pieces are int4.
 *
 * Bytes, little-endian; nothing at all for no elements:
 *
 *     pieces (u32)
 *     for each piece: elements + 2^24 rung (u32), bytes (u32)
 *     the payload of each piece
 *
 * A rung is an index of the ladder: int8, int4, ecsq4, ecsq3, ecsq2, ecsq1, ecsq05, topk256,
 * topk64, topk32. Every piece but a single one has at least 2^12 elements, and all have less than
 * 2^18 + 2^12: so what heads take is bounded. Needs error feedback, for it may go down to the
 * coarsest rung. */
#ifndef TW_COMPRESS_CODEC_AUTO_H
#define TW_COMPRESS_CODEC_AUTO_H

#include "compress/budget.h"
#include "compress/codec.h"

enum tw_auto_bounds {
    TW_AUTO_RUNGS = 10,
    TW_AUTO_BLOCK = 1 << 12,     /* what codecs with a scale or a count have it for */
    TW_AUTO_PIECE_MAX = 1 << 18, /* a whole number of entropy coded streams */
    TW_AUTO_CELL_MAX = 1 << 16,  /* where a change of rung costs little more than it is worth */
    TW_AUTO_CELLS_MAX = TW_FRAGMENT_ELEMENTS_MAX / TW_AUTO_BLOCK + 1,
    TW_AUTO_HEAD_BYTES = 4,       /* of the payload */
    TW_AUTO_PIECE_HEAD_BYTES = 8, /* of a piece */
    TW_AUTO_SAMPLE = 1 << 15,
};

extern const struct tw_codec tw_codec_auto;

/* The codec of a rung, < TW_AUTO_RUNGS. */
const struct tw_codec *tw_auto_rung(uint32_t rung);

/* The fewest bytes that n elements can be had for, nearly: all of them on the lowest rung. */
uint64_t tw_auto_bytes_min(uint64_t n);

/* How many elements of a payload are on each rung. TW_CORRUPT when its heads are not those of n
 * elements; the pieces themselves are not looked at. *elements is then undefined. */
enum tw_status tw_auto_mix(const uint8_t *src, size_t bytes, size_t n,
                           uint64_t elements[TW_AUTO_RUNGS]);

/* What is encoded. */
struct tw_auto_part {
    const float *x;
    size_t n;             /* at most TW_FRAGMENT_ELEMENTS_MAX */
    const uint64_t *ends; /* ascending, not above n: where tensors end */
    uint32_t ends_count;
    size_t bytes_max; /* 0: no target, int4 */
};

/* Where it is worked out; the caller's, needs no preparation. */
struct tw_auto {
    uint32_t cells_count;
    size_t begins[TW_AUTO_CELLS_MAX + 1];
    struct tw_budget_piece cells[TW_AUTO_CELLS_MAX];
    float sample[TW_AUTO_SAMPLE], decoded[TW_AUTO_SAMPLE];
    uint8_t coded[2 * TW_AUTO_SAMPLE];
};

/* As tw_codec_auto.encode, within part->bytes_max where the lowest rung is. The bytes may differ
 * from machine to machine; what they decode to does not.
 *
 * Rungs are chosen for cells: tensors, or ranges of large ones. What a rung costs and
 * loses is measured on a sample of the tensor, and is in proportion to elements and squares in each
 * cell; what is made least is what error feedback comes to hold of them. Neighbours on one rung are
 * one piece. What is over or missing then is made good by the bits of all ecsq pieces, which may be
 * any. A part that is no larger than the sample is then also encoded as one piece on every rung
 * that fits, and the best of these is taken. codec_auto_fit.c. */
enum tw_status tw_auto_encode(struct tw_auto *work, const struct tw_auto_part *part, uint8_t *dst,
                              size_t capacity, size_t *bytes_out);

/* For codec_auto_fit.c: the count of pieces; one piece, its head at `head`, its bytes at `to`. */
struct tw_auto_piece {
    const float *x;
    size_t elements;
    uint32_t rung;
    uint32_t rate_1024; /* of ecsq: its bits are so many 1/1024 of those of its name */
};

bool tw_auto_is_ecsq(uint32_t rung);
void tw_auto_put_count(uint8_t *dst, uint32_t pieces_count);
enum tw_status tw_auto_put(const struct tw_auto_piece *piece, uint8_t *head, uint8_t *to,
                           size_t capacity, size_t *bytes_out);

#endif
