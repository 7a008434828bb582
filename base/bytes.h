/* bytes.h - little-endian integers at any alignment. The caller has checked the bounds. Each byte
 * is written out instead of in a loop: gcc 12 turns only this form into one load or store. */
#ifndef TW_BASE_BYTES_H
#define TW_BASE_BYTES_H

#include <stdint.h>
#include <string.h>

static inline void tw_put_u16(uint8_t *to, uint16_t value) {
    to[0] = (uint8_t)(value & 0xFFu);
    to[1] = (uint8_t)(value >> 8);
}

static inline void tw_put_u32(uint8_t *to, uint32_t value) {
    tw_put_u16(to, (uint16_t)(value & 0xFFFFu));
    tw_put_u16(to + 2, (uint16_t)(value >> 16));
}

static inline void tw_put_u64(uint8_t *to, uint64_t value) {
    tw_put_u32(to, (uint32_t)(value & UINT32_MAX));
    tw_put_u32(to + 4, (uint32_t)(value >> 32));
}

static inline uint16_t tw_get_u16(const uint8_t *from) {
    return (uint16_t)(from[0] | from[1] << 8);
}

static inline uint32_t tw_get_u32(const uint8_t *from) {
    return tw_get_u16(from) | (uint32_t)tw_get_u16(from + 2) << 16;
}

static inline uint64_t tw_get_u64(const uint8_t *from) {
    return tw_get_u32(from) | (uint64_t)tw_get_u32(from + 4) << 32;
}

#endif
