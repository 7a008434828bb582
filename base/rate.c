#include "base/rate.h"

#include "base/assert.h"
#include "base/limits.h"

enum { MILLION = 1000 * 1000 };

/* Largest rate, 1 Tbit/s in bytes/s: the multiplications below then fit 64 bits. */
static const uint64_t PER_S_MAX = UINT64_C(125) * 1000 * MILLION;

/* The most negative credit allowed: a debt of TW_RATE_DEBT_S seconds of the rate. */
static int64_t floor_millionths(const struct tw_rate *rate) {
    return -(int64_t)(rate->per_s * TW_RATE_DEBT_S) * MILLION;
}

static void refill(struct tw_rate *rate, uint64_t now_us) {
    const int64_t full = (int64_t)rate->burst * MILLION;
    if (now_us <= rate->now_us) return;
    const uint64_t passed_us = now_us - rate->now_us;
    const uint64_t missing = (uint64_t)(full - rate->credit_millionths);
    rate->now_us = now_us;
    if (rate->per_s == 0 || passed_us > missing / rate->per_s)
        rate->credit_millionths = full;
    else
        rate->credit_millionths += (int64_t)(passed_us * rate->per_s);
}

void tw_rate_init(struct tw_rate *rate, uint64_t per_s, uint64_t burst, uint64_t now_us) {
    *rate = (struct tw_rate){.now_us = now_us};
    tw_rate_set(rate, per_s, burst, now_us);
    rate->credit_millionths = (int64_t)rate->burst * MILLION;
}

void tw_rate_set(struct tw_rate *rate, uint64_t per_s, uint64_t burst, uint64_t now_us) {
    TW_ASSERT(per_s == 0 || burst > 0);
    refill(rate, now_us);
    rate->per_s = per_s < PER_S_MAX ? per_s : PER_S_MAX;
    rate->burst = burst < PER_S_MAX ? burst : PER_S_MAX;
    const int64_t full = (int64_t)rate->burst * MILLION;
    if (rate->credit_millionths > full) rate->credit_millionths = full;
    const int64_t lowest = floor_millionths(rate);
    if (rate->credit_millionths < lowest) rate->credit_millionths = lowest;
}

uint64_t tw_rate_burst_bytes(uint64_t bytes_per_s) {
    const uint64_t records = UINT64_C(2) * (TW_TLS_RECORD_BYTES_MAX + 64);
    return bytes_per_s / 20 > records ? bytes_per_s / 20 : records;
}

uint64_t tw_rate_wait_us(struct tw_rate *rate, uint64_t units, uint64_t now_us) {
    if (rate->per_s == 0) return 0;
    refill(rate, now_us);
    const int64_t wanted = (int64_t)(units < rate->burst ? units : rate->burst) * MILLION;
    if (rate->credit_millionths >= wanted) return 0;
    const uint64_t missing = (uint64_t)(wanted - rate->credit_millionths);
    return (missing + rate->per_s - 1) / rate->per_s;
}

void tw_rate_spend(struct tw_rate *rate, uint64_t units, uint64_t now_us) {
    if (rate->per_s == 0) return;
    refill(rate, now_us);
    TW_ASSERT(units <= PER_S_MAX);
    rate->credit_millionths -= (int64_t)units * MILLION;
    const int64_t own = -(int64_t)units * MILLION, lowest = floor_millionths(rate);
    const int64_t limit = own < lowest ? own : lowest;
    if (rate->credit_millionths < limit) rate->credit_millionths = limit;
}

void tw_rate_owe(struct tw_rate *rate, uint64_t units, uint64_t now_us) {
    if (rate->per_s == 0) return;
    refill(rate, now_us);
    const int64_t lowest = floor_millionths(rate), credit = rate->credit_millionths;
    if (credit <= lowest) return;
    const uint64_t most = (uint64_t)(credit - lowest) / MILLION;
    rate->credit_millionths = units < most ? credit - (int64_t)units * MILLION : lowest;
}

uint16_t tw_turn_next(uint16_t *turn, uint64_t wanting) {
    TW_ASSERT(wanting != 0);
    for (unsigned step = 1; step <= 64; step++) {
        const uint16_t bit = (uint16_t)((*turn + step) % 64);
        if ((wanting >> bit & 1) == 0) continue;
        *turn = bit;
        break;
    }
    return *turn;
}
