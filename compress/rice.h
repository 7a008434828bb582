/* rice.h - codes ascending positions as bits: Golomb-Rice codes of the gaps between them.
 *
 * Golomb, "Run-length encodings", IEEE Trans. IT 12 (3), 1966, with divisors 2^r (Rice). For a gap
 * g = position - previous - 1 (previous = -1 at first), the code is g >> r zeros and a 1, then the
 * r lowest bits of g. Bits fill bytes from the lowest; the last byte is padded with 0. */
#ifndef TW_COMPRESS_RICE_H
#define TW_COMPRESS_RICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

/* ---- writing: the caller ensures that the bytes fit ----------------------------------------- */

struct tw_bits_writer {
    uint8_t *at;
    uint64_t held; /* bits not yet written, lowest first; fewer than 32 */
    unsigned count;
};

/* bits <= 32 */
static inline void tw_bits_put(struct tw_bits_writer *to, uint32_t value, unsigned bits) {
    to->held |= (uint64_t)value << to->count;
    to->count += bits;
    if (to->count < 32) return;
    tw_put_u32(to->at, (uint32_t)(to->held & UINT32_MAX));
    to->at += 4;
    to->held >>= 32;
    to->count -= 32;
}

/* Writes a gap, then the lowest `more` bits of `value`. r + more <= 23. */
static inline void tw_bits_put_gap_and(struct tw_bits_writer *to, uint32_t gap, unsigned r,
                                       uint32_t value, unsigned more) {
    const uint32_t low = gap & ((1u << r) - 1);
    const unsigned bits = 1 + r + more;
    uint32_t zeros = gap >> r;
    for (; zeros + bits > 32; zeros -= 8) tw_bits_put(to, 0, 8);
    tw_bits_put(to, (1u | low << 1 | value << (1 + r)) << zeros, zeros + bits);
}

static inline void tw_bits_pad(struct tw_bits_writer *to) {
    for (unsigned done = 0; done < to->count; done += 8) {
        *to->at++ = (uint8_t)(to->held >> done & 0xFFu);
    }
    to->held = to->count = 0;
}

static inline void tw_bits_put_gap(struct tw_bits_writer *to, uint32_t gap, unsigned r) {
    tw_bits_put_gap_and(to, gap, r, 0, 0);
}

/* ---- reading: untrusted bytes --------------------------------------------------------------- */

struct tw_bits_reader {
    const uint8_t *at, *end;
    uint64_t held;
    unsigned count;
};

static inline void tw_bits_fill(struct tw_bits_reader *from) {
    if (from->end - from->at >= 8) { /* fills `held` with as many whole bytes as fit */
        const unsigned bits = (63 - from->count) & ~7u;
        const uint64_t next = tw_get_u64(from->at) & ((UINT64_C(1) << bits) - 1);
        from->held |= next << from->count;
        from->at += bits / 8;
        from->count += bits;
        return;
    }
    while (from->count <= 56 && from->at < from->end) {
        from->held |= (uint64_t)*from->at++ << from->count;
        from->count += 8;
    }
}

/* Reads at most 32 bits. Returns false if there are fewer left. */
static inline bool tw_bits_get(struct tw_bits_reader *from, unsigned bits, uint32_t *value) {
    if (from->count < bits) tw_bits_fill(from);
    if (from->count < bits) return false;
    *value = (uint32_t)(from->held & ((UINT64_C(1) << bits) - 1));
    from->held >>= bits;
    from->count -= bits;
    return true;
}

/* Reads a gap. Returns false if there are too few bits, or if the gap is `end` or more. */
static inline bool tw_bits_get_gap(struct tw_bits_reader *from, unsigned r, uint32_t end,
                                   uint32_t *gap) {
    uint32_t zeros = 0, low = 0;
    while (from->held == 0) {
        zeros +=
            from->count; /* all bits in `held` are zeros of the gap: continue with the next bits */
        from->count = 0;
        if (from->at == from->end || zeros > end) return false;
        tw_bits_fill(from);
    }
    const unsigned more = (unsigned)__builtin_ctzll(from->held);
    zeros += more;
    from->held >>= more;
    from->held >>= 1;
    from->count -= more + 1;
    if (zeros > end >> r || !tw_bits_get(from, r, &low)) return false;
    *gap = zeros << r | low;
    return *gap < end;
}

/* Ends reading within the last byte. Returns false unless the rest of that byte is 0. */
static inline bool tw_bits_end(struct tw_bits_reader *from) {
    from->at -= from->count / 8; /* moves back over whole bytes that were read ahead */
    const uint64_t rest = from->held & ((1u << from->count % 8) - 1);
    from->held = from->count = 0;
    return rest == 0;
}

#endif
