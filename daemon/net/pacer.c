#include "daemon/net/pacer.h"

enum {
    MILLION = 1000 * 1000,
    LEAST_BYTES_S = 1000,
    STEADY_PERCENT = 110, /* largest growth over the previous window, in %, at which deliveries
                             count as steady */
    KEPT_PERCENT = 95,    /* least percentage of a known path's rate that a probe can set: the queue
                             that the probe saw may be noise */
    /* Deliveries below this percentage of the kernel's limit mean a slower path. */
    SLOW_PERCENT = 85,
    /* Deliveries above this percentage of a known path's rate mean a faster path. */
    FOUND_PERCENT = 105,
};

static uint64_t percent(uint64_t value, uint64_t share) {
    return value / 100 * share + value % 100 * share / 100;
}

static uint64_t max_of(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

void tw_pacer_init(struct tw_pacer *pacer) {
    *pacer = (struct tw_pacer){.state = TW_PACER_OPEN, .next_base_us = UINT32_MAX};
}

/* ---- windows ------------------------------------------------------------------------------- */

/* Returns the shortest round trip since the probe before the last. TCP's own minimum reaches back
 * minutes, so it is used only before the first probe. */
static uint32_t base_of(const struct tw_pacer *pacer, const struct tw_pacer_sample *sample) {
    if (pacer->base_us == 0) return sample->rtt_least_us;
    return pacer->next_base_us < pacer->base_us ? pacer->next_base_us : pacer->base_us;
}

static uint32_t queue_of(const struct tw_pacer *pacer, const struct tw_pacer_sample *sample) {
    const uint32_t base_us = base_of(pacer, sample);
    return sample->rtt_us > base_us ? sample->rtt_us - base_us : 0;
}

static uint64_t late_us(const struct tw_pacer *pacer, const struct tw_pacer_sample *sample) {
    return max_of(base_of(pacer, sample) / 8, TW_PACER_QUEUE_US);
}

static void window_begin(struct tw_pacer *pacer, const struct tw_pacer_sample *sample) {
    pacer->has_window = !sample->is_idle;
    pacer->window_queue_us = queue_of(pacer, sample);
    pacer->window_us = sample->now_us;
    pacer->window_bytes = sample->delivered_bytes;
}

/* Returns the rate of a window that this sample completes, or 0. */
static uint64_t window_rate(struct tw_pacer *pacer, const struct tw_pacer_sample *sample) {
    if (!pacer->has_window || sample->is_idle || sample->delivered_bytes < pacer->window_bytes) {
        pacer->stood_windows = 0;
        window_begin(pacer, sample);
        return 0;
    }
    const uint64_t took_us = sample->now_us - pacer->window_us;
    const uint32_t queue_us = queue_of(pacer, sample);
    if (queue_us < pacer->window_queue_us) pacer->window_queue_us = queue_us;
    if (took_us < max_of(sample->rtt_least_us, TW_PACER_WINDOW_US)) return 0;
    const uint64_t late = late_us(pacer, sample) * (pacer->path_bytes_per_s > 0 ? 2 : 1);
    const uint64_t bytes_per_s =
        max_of((sample->delivered_bytes - pacer->window_bytes) * MILLION / took_us, 1);
    if (pacer->window_queue_us <= late) {
        pacer->stood_windows = 0;
    } else {
        pacer->stood_bytes_per_s[pacer->stood_windows % TW_PACER_STOOD_WINDOWS] = bytes_per_s;
        pacer->stood_windows++;
    }
    return bytes_per_s;
}

/* ---- states -------------------------------------------------------------------------------- */

static void limit_bound(struct tw_pacer *pacer) {
    const uint64_t limit = percent(pacer->path_bytes_per_s, TW_PACER_MOST_PERCENT);
    if (pacer->told_bytes_per_s > limit) pacer->told_bytes_per_s = limit;
    pacer->told_bytes_per_s =
        max_of(pacer->told_bytes_per_s, percent(pacer->path_bytes_per_s, TW_PACER_PERCENT));
}

static void paced_begin(struct tw_pacer *pacer) {
    pacer->state = TW_PACER_PACED;
    limit_bound(pacer); /* keeps the limit from before the probe, within its bounds */
    pacer->mean_bytes_per_s = 0;
    pacer->stood_windows = 0;
}

/* Sets the path's rate from the last windows with a standing queue, but not below `least`. Then the
 * queue is drained. */
static void path_learn(struct tw_pacer *pacer, const struct tw_pacer_sample *sample,
                       uint64_t least) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < TW_PACER_STOOD_WINDOWS; i++) sum += pacer->stood_bytes_per_s[i];
    pacer->path_bytes_per_s = max_of(sum / TW_PACER_STOOD_WINDOWS, max_of(least, LEAST_BYTES_S));
    pacer->state = TW_PACER_DRAIN;
    pacer->drained_us =
        sample->now_us + 2 * (uint64_t)queue_of(pacer, sample) + sample->rtt_least_us;
}

static void probe_begin(struct tw_pacer *pacer) {
    pacer->state = TW_PACER_OPEN;
    pacer->best_bytes_per_s = pacer->last_bytes_per_s = 0;
    pacer->stood_windows = pacer->probe_windows = 0;
    pacer->base_us = pacer->next_base_us;
    pacer->next_base_us = UINT32_MAX;
}

static void probe_end(struct tw_pacer *pacer) {
    pacer->floor_bytes_per_s = pacer->path_bytes_per_s / 2;
    pacer->sent_us = 0;
    const uint64_t next_us = pacer->probe_us == 0 ? TW_PACER_PROBE_FIRST_US : 2 * pacer->probe_us;
    pacer->probe_us = next_us < TW_PACER_PROBE_US ? next_us : TW_PACER_PROBE_US;
}

static void open_take(struct tw_pacer *pacer, const struct tw_pacer_sample *sample,
                      uint64_t bytes_per_s) {
    const bool is_steady = bytes_per_s <= percent(pacer->last_bytes_per_s, STEADY_PERCENT);
    pacer->best_bytes_per_s =
        max_of((pacer->last_bytes_per_s + bytes_per_s) / 2, pacer->best_bytes_per_s);
    pacer->last_bytes_per_s = bytes_per_s;
    const uint32_t enough =
        pacer->path_bytes_per_s == 0 ? TW_PACER_FIRST_WINDOWS : TW_PACER_STOOD_WINDOWS;
    if (pacer->stood_windows >= enough && is_steady) {
        path_learn(pacer, sample, percent(pacer->path_bytes_per_s, KEPT_PERCENT));
        probe_end(pacer);
        return;
    }
    if (pacer->path_bytes_per_s == 0 || ++pacer->probe_windows < TW_PACER_PROBE_WINDOWS) return;
    if (pacer->best_bytes_per_s > percent(pacer->path_bytes_per_s, FOUND_PERCENT)) {
        pacer->path_bytes_per_s = pacer->best_bytes_per_s; /* maybe faster still: keep probing */
        pacer->probe_windows = 0;
        return;
    }
    probe_end(pacer);
    paced_begin(pacer);
}

/* Adapts the limit to the deliveries: adds a sixteenth of the difference per window. */
static void limit_follow(struct tw_pacer *pacer, uint64_t bytes_per_s) {
    const uint64_t wanted = percent(pacer->path_bytes_per_s, TW_PACER_PERCENT);
    if (pacer->mean_bytes_per_s == 0) pacer->mean_bytes_per_s = wanted;
    pacer->mean_bytes_per_s = (7 * pacer->mean_bytes_per_s + bytes_per_s) / 8;
    if (pacer->mean_bytes_per_s < wanted) {
        pacer->told_bytes_per_s += (wanted - pacer->mean_bytes_per_s) / 16;
    } else {
        const uint64_t less = (pacer->mean_bytes_per_s - wanted) / 16; /* may exceed the limit */
        pacer->told_bytes_per_s -= less < pacer->told_bytes_per_s ? less : pacer->told_bytes_per_s;
    }
    limit_bound(pacer);
}

static void paced_take(struct tw_pacer *pacer, const struct tw_pacer_sample *sample,
                       uint64_t bytes_per_s) {
    pacer->sent_us += sample->now_us - pacer->window_us;
    const bool is_slow = bytes_per_s < percent(pacer->told_bytes_per_s, SLOW_PERCENT);
    if (pacer->stood_windows >= TW_PACER_STOOD_WINDOWS && is_slow)
        path_learn(pacer, sample, pacer->floor_bytes_per_s);
    else if (pacer->sent_us >= pacer->probe_us)
        probe_begin(pacer);
    else
        limit_follow(pacer, bytes_per_s);
}

void tw_pacer_take(struct tw_pacer *pacer, const struct tw_pacer_sample *sample) {
    if (sample->rtt_us > 0 && sample->rtt_us < pacer->next_base_us)
        pacer->next_base_us = sample->rtt_us;
    if (pacer->state == TW_PACER_DRAIN) {
        if (queue_of(pacer, sample) <= late_us(pacer, sample) ||
            sample->now_us >= pacer->drained_us)
            paced_begin(pacer);
        window_begin(pacer, sample);
        return;
    }
    const uint64_t bytes_per_s = window_rate(pacer, sample);
    if (bytes_per_s == 0) return;
    if (pacer->state == TW_PACER_OPEN)
        open_take(pacer, sample, bytes_per_s);
    else
        paced_take(pacer, sample, bytes_per_s);
    window_begin(pacer, sample);
}

uint64_t tw_pacer_limit(const struct tw_pacer *pacer, const struct tw_link_pace *config,
                        uint64_t upload_bytes_per_s) {
    uint64_t limit = config->mode == TW_LINK_PACE_FIXED ? config->bytes_per_s : 0;
    if (config->mode == TW_LINK_PACE_AUTO && pacer->state == TW_PACER_DRAIN)
        limit = percent(pacer->path_bytes_per_s, TW_PACER_DRAIN_PERCENT);
    if (config->mode == TW_LINK_PACE_AUTO && pacer->state == TW_PACER_PACED)
        limit = pacer->told_bytes_per_s;
    if (upload_bytes_per_s > 0 && (limit == 0 || upload_bytes_per_s < limit))
        limit = upload_bytes_per_s;
    return limit;
}
