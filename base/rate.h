/* rate.h - a token bucket for caps, and a round-robin turn. Pure: the caller passes the time. */
#ifndef TW_BASE_RATE_H
#define TW_BASE_RATE_H

#include <stdint.h>

/* Credit grows by `per_s` units a second, up to `burst`. Traffic that must not be delayed may make
 * the credit negative. All other traffic then waits until it is positive again. */
struct tw_rate {
    uint64_t per_s; /* units (bytes, handshakes) per second; 0 = no cap */
    uint64_t burst;
    int64_t credit_millionths;
    uint64_t now_us;
};

/* Starts with a full bucket. burst >= 1 where per_s > 0. */
void tw_rate_init(struct tw_rate *rate, uint64_t per_s, uint64_t burst, uint64_t now_us);

/* A new rate keeps the credit, cut to the new burst. */
void tw_rate_set(struct tw_rate *rate, uint64_t per_s, uint64_t burst, uint64_t now_us);

/* The burst for a cap of `bytes_per_s`: the bytes of 50 ms, at least two TLS records. */
uint64_t tw_rate_burst_bytes(uint64_t bytes_per_s);

/* Microseconds until `units` may pass; 0 = now. Units above a burst may pass as soon as the bucket
 * is full. */
uint64_t tw_rate_wait_us(struct tw_rate *rate, uint64_t units, uint64_t now_us);

/* Takes units even without credit. */
void tw_rate_spend(struct tw_rate *rate, uint64_t units, uint64_t now_us);

/* Round robin: the next set bit of `wanting` after *turn, wrapping around; becomes *turn. wanting
 * != 0. */
uint16_t tw_turn_next(uint16_t *turn, uint64_t wanting);

#endif
