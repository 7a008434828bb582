/* rate.h - a token bucket for caps, and a round-robin turn. Pure: the caller passes the time. */
#ifndef TW_BASE_RATE_H
#define TW_BASE_RATE_H

#include <stdint.h>

enum { TW_RATE_DEBT_S = 2 };

/* Credit grows by `per_s` units a second, up to `burst`. Traffic that is counted but never delayed
 * may overdraw it; all other traffic then waits until the debt is paid. That debt is at most
 * TW_RATE_DEBT_S seconds of the rate: a flood that this node cannot prevent must not hold back its
 * own traffic for longer than the flood lasts. */
struct tw_rate {
    uint64_t per_s; /* units (bytes, handshakes) per second; 0 = no cap */
    uint64_t burst;
    int64_t credit_millionths;
    uint64_t now_us;
};

/* Starts with a full bucket. burst >= 1 where per_s > 0. */
void tw_rate_init(struct tw_rate *rate, uint64_t per_s, uint64_t burst, uint64_t now_us);

/* A new rate keeps credit and debt, cut to the bounds of the new one. */
void tw_rate_set(struct tw_rate *rate, uint64_t per_s, uint64_t burst, uint64_t now_us);

/* The burst for a cap of `bytes_per_s`: the bytes of 50 ms, at least two TLS records. */
uint64_t tw_rate_burst_bytes(uint64_t bytes_per_s);

/* Microseconds until `units` may pass; 0 = now. Units above a burst may pass as soon as the bucket
 * is full. */
uint64_t tw_rate_wait_us(struct tw_rate *rate, uint64_t units, uint64_t now_us);

/* Takes units of traffic that waited for credit. More than the credit leaves a debt of at most
 * these units, or of TW_RATE_DEBT_S seconds. */
void tw_rate_spend(struct tw_rate *rate, uint64_t units, uint64_t now_us);

/* Takes units of traffic that was not delayed. The debt does not grow beyond TW_RATE_DEBT_S
 * seconds. */
void tw_rate_owe(struct tw_rate *rate, uint64_t units, uint64_t now_us);

/* Round robin: the next set bit of `wanting` after *turn, wrapping around; becomes *turn. wanting
 * != 0. */
uint16_t tw_turn_next(uint16_t *turn, uint64_t wanting);

#endif
