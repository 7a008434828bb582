/* lattice_isa.h - code shared by lattice.c and its reference implementation. */
#ifndef TW_COMPRESS_LATTICE_ISA_H
#define TW_COMPRESS_LATTICE_ISA_H

#include <stddef.h>
#include <stdint.h>

enum {
    TW_LATTICE_CODES = 0,
    TW_LATTICE_WHOLE = 1,
    TW_LATTICE_BITS = 8,
    TW_LATTICE_EXPONENT_MIN = -120,
    TW_LATTICE_EXPONENT_MAX = 90, /* 2^(90 + 31) is finite */
    TW_LATTICE_K_BITS = 30,       /* |k| < 2^30 */
};

/* Returns the checksum multiplier m_i of element i of a block. */
static inline uint16_t tw_lattice_factor(size_t i) {
    return (uint16_t)(40503u * (uint32_t)(i + 1) | 1u);
}

/* Returns the exponent e of the step 2^e for elements of at most `largest` >= 0 and a distance > 0:
 * 2^e is at least 4 * distance / 2^8, and |k| stays below 2^30. */
int tw_lattice_exponent(float distance, float largest);

#endif
