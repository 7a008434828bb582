/* bytes.h - little-endian integers at any alignment. The caller has checked the bounds. */
#ifndef TW_BASE_BYTES_H
#define TW_BASE_BYTES_H

#include <stdint.h>
#include <string.h>

static inline void tw_put_u16(uint8_t *to, uint16_t value) {
    for (unsigned i = 0; i < 2; i++) to[i] = (uint8_t)(value >> (8 * i));
}

static inline void tw_put_u32(uint8_t *to, uint32_t value) {
    for (unsigned i = 0; i < 4; i++) to[i] = (uint8_t)(value >> (8 * i));
}

static inline void tw_put_u64(uint8_t *to, uint64_t value) {
    for (unsigned i = 0; i < 8; i++) to[i] = (uint8_t)(value >> (8 * i));
}

static inline uint16_t tw_get_u16(const uint8_t *from) {
    return (uint16_t)(from[0] | from[1] << 8);
}

static inline uint32_t tw_get_u32(const uint8_t *from) {
    uint32_t value = 0;
    for (unsigned i = 0; i < 4; i++) value |= (uint32_t)from[i] << (8 * i);
    return value;
}

static inline uint64_t tw_get_u64(const uint8_t *from) {
    uint64_t value = 0;
    for (unsigned i = 0; i < 8; i++) value |= (uint64_t)from[i] << (8 * i);
    return value;
}

#endif
