/* rate.h - a token bucket for rate caps, and a round-robin choice. Pure: the caller passes the
 * time. */
#ifndef TW_BASE_RATE_H
#define TW_BASE_RATE_H

#include <stdint.h>

enum { TW_RATE_DEBT_S = 2 };

/* Credit grows by `per_s` units a second, up to `burst`. Traffic that is counted but never delayed
 * may overdraw the credit; all other traffic then waits until the debt is paid. That debt is at
 * most TW_RATE_DEBT_S seconds of the rate: a flood that this node cannot prevent must not delay its
 * own traffic for longer than the flood lasts. */
struct tw_rate {
    uint64_t per_s; /* units (bytes, handshakes) per second; 0 = no cap */
    uint64_t burst;
    int64_t credit_millionths;
    uint64_t now_us;
};

/* Starts with a full bucket. `burst` must be at least 1 if per_s > 0. */
void tw_rate_init(struct tw_rate *rate, uint64_t per_s, uint64_t burst, uint64_t now_us);

/* Changes the rate. Credit and debt are kept, but clamped to the bounds of the new rate. */
void tw_rate_set(struct tw_rate *rate, uint64_t per_s, uint64_t burst, uint64_t now_us);

/* Returns the burst in bytes for a cap of `bytes_per_s`: 50 ms of traffic, but at least two TLS
 * records. */
uint64_t tw_rate_burst_bytes(uint64_t bytes_per_s);

/* Returns the microseconds until `units` may pass; 0 means now. More units than a burst may pass as
 * soon as the bucket is full. */
uint64_t tw_rate_wait_us(struct tw_rate *rate, uint64_t units, uint64_t now_us);

/* Charges traffic that waited for credit. If `units` exceeds the credit, the debt grows to at most
 * the larger of `units` and TW_RATE_DEBT_S seconds of the rate. */
void tw_rate_spend(struct tw_rate *rate, uint64_t units, uint64_t now_us);

/* Charges traffic that was not delayed. The debt grows to at most TW_RATE_DEBT_S seconds of the
 * rate. */
void tw_rate_owe(struct tw_rate *rate, uint64_t units, uint64_t now_us);

/* Round robin: sets *turn to the next set bit of `wanting` after *turn, wrapping around, and
 * returns it. `wanting` must not be 0. */
uint16_t tw_turn_next(uint16_t *turn, uint64_t wanting);

#endif
