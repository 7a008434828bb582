#include "daemon/net/link_quality.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/median.h"
#include "base/units.h"

/* ==== measurements ============================================================================ */

#define SECOND_US UINT64_C(1000000)
#define HOUR_US (3600 * SECOND_US)

enum {
    TRANSFER_BYTES_MIN = 64 * 1024, /* a smaller transfer measures the round trip, not the rate */
    TRANSFER_US_MAX = 5 * 1000 * 1000, /* a longer transfer is measured in slices of this length */
    TRANSFER_US_SHORT = 50 * 1000,     /* shorter transfers show how soon busy processes ran, and no
                                          slow line */
    SEGMENTS_MIN = 100,
    TRANSFERS_MIN = 3,
    RATE_FAST = 10 * 1000 * 1000, /* bytes/s at which a peer is never slow, however fast the others
                                     are */
    BREAKS_MILLI_MIN = 3000,
    QUIET_US = 5 * TW_HEARTBEAT_US / 2,
    LOST_LATELY_US = 2 * TW_PEER_SILENCE_US,
    LOSS_PPM_MIN = 30 * 1000,
};

/* ==== rows ==================================================================================== */

static struct tw_link_quality_peer *row_find(struct tw_link_quality *quality,
                                             const struct tw_id *id) {
    for (uint32_t i = 0; i < TW_LINK_QUALITY_ROWS; i++) {
        if (quality->peers[i].is_used && tw_id_equal(&quality->peers[i].id, id))
            return &quality->peers[i];
    }
    return NULL;
}

const struct tw_link_quality_peer *tw_link_quality_find(const struct tw_link_quality *quality,
                                                        const struct tw_id *id) {
    for (uint32_t i = 0; i < TW_LINK_QUALITY_ROWS; i++) {
        if (quality->peers[i].is_used && tw_id_equal(&quality->peers[i].id, id))
            return &quality->peers[i];
    }
    return NULL;
}

/* Returns a free row, or the row of the peer that left longest ago. There is one, as at most half
 * of the rows are linked. */
static struct tw_link_quality_peer *row_take(struct tw_link_quality *quality,
                                             const struct tw_id *id, uint64_t now_us) {
    struct tw_link_quality_peer *row = NULL;
    for (uint32_t i = 0; i < TW_LINK_QUALITY_ROWS; i++) {
        struct tw_link_quality_peer *peer = &quality->peers[i];
        if (peer->is_linked) continue;
        if (row == NULL || !peer->is_used || (row->is_used && peer->changed_us < row->changed_us))
            row = peer;
        if (!peer->is_used) break;
    }
    if (row != NULL)
        *row = (struct tw_link_quality_peer){
            .is_used = true, .id = *id, .changed_us = now_us, .faded_us = now_us};
    return row;
}

/* Adds the time since the last call. Both times are halved when they exceed 48 hours, so recent
 * time weighs more. */
static void time_add(struct tw_link_quality_peer *peer, uint64_t now_us) {
    const uint64_t passed_us = now_us - peer->changed_us;
    peer->known_us += passed_us;
    if (peer->is_linked) peer->linked_us += passed_us;
    peer->changed_us = now_us;
    if (peer->known_us > 48 * HOUR_US) {
        peer->known_us /= 2;
        peer->linked_us /= 2;
    }
}

static void breaks_decay(struct tw_link_quality_peer *peer, uint64_t now_us) {
    for (; now_us - peer->faded_us >= HOUR_US; peer->faded_us += HOUR_US) {
        peer->breaks_milli /= 2;
        if (peer->breaks_milli == 0) peer->faded_us = now_us - HOUR_US;
    }
}

void tw_link_quality_up(struct tw_link_quality *quality, const struct tw_id *id, uint32_t boot,
                        uint64_t now_us) {
    struct tw_link_quality_peer *peer = row_find(quality, id);
    if (peer == NULL) peer = row_take(quality, id, now_us);
    if (peer == NULL) return;
    const bool was_off = boot != peer->boot && peer->boot != 0 && boot != 0;
    const bool was_away = now_us - peer->changed_us >= TW_LINK_QUALITY_AWAY_US;
    if (peer->is_counted && (was_off || was_away))
        peer->breaks_milli -= peer->breaks_milli < 1000 ? peer->breaks_milli : 1000;
    time_add(peer, now_us);
    peer->is_linked = true;
    peer->is_pulling = peer->is_counted = false;
    peer->boot = boot;
    peer->retransmits = peer->segments = 0;
    peer->lost_count = peer->lost_us = peer->control_bytes = 0;
}

void tw_link_quality_down(struct tw_link_quality *quality, const struct tw_id *id,
                          enum tw_link_quality_end end, uint64_t now_us) {
    struct tw_link_quality_peer *peer = row_find(quality, id);
    if (peer == NULL || !peer->is_linked) return;
    const bool has_lost = peer->lost_us != 0 && now_us - peer->lost_us < LOST_LATELY_US;
    time_add(peer, now_us);
    breaks_decay(peer, now_us);
    peer->is_linked = false;
    peer->is_counted = end == TW_LINK_QUALITY_BREAK || (end == TW_LINK_QUALITY_SILENCE && has_lost);
    if (peer->is_counted && peer->breaks_milli < 1000 * 1000) peer->breaks_milli += 1000;
}

/* ==== measuring =============================================================================== */

static uint64_t blend(uint64_t old, uint64_t now, uint64_t parts) {
    return old == 0 ? now : (old * (parts - 1) + now) / parts;
}

static void transfer_count(struct tw_link_quality_peer *peer, uint64_t now_us) {
    const uint64_t took_us = now_us - peer->pull_us;
    if (took_us == 0) return;
    if (peer->pull_bytes < TRANSFER_BYTES_MIN && took_us < TRANSFER_US_MAX) return;
    const uint64_t rate = peer->pull_bytes * SECOND_US / took_us;
    peer->in_bytes_s = blend(peer->in_bytes_s, rate > 0 ? rate : 1, 4);
    peer->in_took_us = blend(peer->in_took_us, took_us, 4);
    if (peer->in_count < UINT32_MAX) peer->in_count++;
}

static void transfer_look(struct tw_link_quality_peer *peer, bool is_pulling, uint64_t now_us) {
    const bool is_long = peer->is_pulling && now_us - peer->pull_us >= TRANSFER_US_MAX;
    if (peer->is_pulling && (!is_pulling || is_long)) transfer_count(peer, now_us);
    if (is_pulling && (!peer->is_pulling || is_long)) {
        peer->pull_us = now_us;
        peer->pull_bytes = 0;
    }
    peer->is_pulling = is_pulling;
}

void tw_link_quality_arrived(struct tw_link_quality *quality, const struct tw_id *id,
                             uint32_t bytes, bool is_last, uint64_t now_us) {
    struct tw_link_quality_peer *peer = row_find(quality, id);
    if (peer == NULL || !peer->is_pulling) return;
    peer->pull_bytes += bytes;
    if (is_last) transfer_look(peer, false, now_us);
}

static void loss_look(struct tw_link_quality_peer *peer, const struct tw_link_quality_look *look,
                      uint64_t now_us) {
    if (look->retransmits > peer->lost_count) peer->lost_us = now_us;
    peer->lost_count = look->retransmits;
    if (look->segments < peer->segments || look->retransmits < peer->retransmits) {
        peer->segments = look->segments;
        peer->retransmits = look->retransmits;
    }
    const uint64_t segments = look->segments - peer->segments;
    const uint64_t lost = look->retransmits - peer->retransmits;
    if (segments < SEGMENTS_MIN) return;
    const uint64_t ppm = lost < segments ? lost * 1000 * 1000 / segments : 1000 * 1000;
    peer->loss_ppm = (uint32_t)(peer->has_loss ? (3 * (uint64_t)peer->loss_ppm + ppm) / 4 : ppm);
    peer->has_loss = true;
    peer->segments = look->segments;
    peer->retransmits = look->retransmits;
}

void tw_link_quality_look(struct tw_link_quality *quality, const struct tw_id *id,
                          const struct tw_link_quality_look *look, uint64_t now_us) {
    struct tw_link_quality_peer *peer = row_find(quality, id);
    if (peer == NULL || !peer->is_linked) return;
    if (look->rtt_us > 0) peer->rtt_us = (uint32_t)blend(peer->rtt_us, look->rtt_us, 8);
    if (look->path_bytes_s > 0) peer->out_bytes_s = blend(peer->out_bytes_s, look->path_bytes_s, 8);
    if (look->control_bytes != peer->control_bytes) peer->heard_us = now_us;
    peer->control_bytes = look->control_bytes;
    /* A peer that also sends no heartbeats is suspended, asleep or cut off. That is no rate. */
    if (look->control_bytes > 0 && now_us - peer->heard_us >= QUIET_US)
        peer->is_pulling = false;
    else
        transfer_look(peer, look->is_pulling, now_us);
    loss_look(peer, look, now_us);
}

void tw_link_quality_sent(struct tw_link_quality *quality, uint64_t sent_bytes, bool is_busy,
                          uint64_t cap, uint64_t now_us) {
    const uint64_t passed_us = now_us - quality->sent_us;
    const bool counts = quality->sent_us != 0 && passed_us > 0 && sent_bytes >= quality->sent_bytes;
    if (counts && is_busy && quality->was_busy) {
        const uint64_t rate = (sent_bytes - quality->sent_bytes) * SECOND_US / passed_us;
        /* The estimate rises fast and falls slowly: a low rate is often due to the receiver. */
        quality->upload_bytes_s =
            blend(quality->upload_bytes_s, rate, rate > quality->upload_bytes_s ? 2 : 32);
    }
    /* The rate of a single path is a lower bound of the upload rate. */
    for (uint32_t i = 0; i < TW_LINK_QUALITY_ROWS; i++) {
        const struct tw_link_quality_peer *peer = &quality->peers[i];
        if (peer->is_linked && peer->out_bytes_s > quality->upload_bytes_s)
            quality->upload_bytes_s = peer->out_bytes_s;
    }
    if (cap > 0 && quality->upload_bytes_s > cap) quality->upload_bytes_s = cap;
    quality->was_busy = is_busy;
    quality->sent_bytes = sent_bytes;
    quality->sent_us = now_us;
}

/* ==== judging ================================================================================= */

enum measure { SENDS, RECEIVES, BREAKS, LOSES };

/* Sets *value to the peer's value of this measure. Returns false if it was not measured. */
static bool value_of(const struct tw_link_quality_peer *peer, enum measure measure,
                     uint64_t *value) {
    *value = 0;
    if (!peer->is_used || !peer->is_linked) return false;
    switch (measure) {
    case SENDS: *value = peer->in_bytes_s; return peer->in_count >= TRANSFERS_MIN;
    case RECEIVES: *value = peer->out_bytes_s; return peer->out_bytes_s > 0;
    case BREAKS: *value = peer->breaks_milli; return true;
    case LOSES: *value = peer->loss_ppm; return peer->has_loss;
    }
    return false;
}

/* Computes the median of all other measured peers. Returns false if there are too few. Of two
 * middle values it uses the one less likely to reveal an anomaly: the lower rate, or the higher
 * fault. */
static bool median_of(const struct tw_link_quality *quality, const struct tw_link_quality_peer *but,
                      enum measure measure, uint64_t *middle) {
    uint64_t sorted[TW_LINK_QUALITY_ROWS], value;
    uint32_t count = 0;
    for (uint32_t i = 0; i < TW_LINK_QUALITY_ROWS; i++) {
        if (&quality->peers[i] == but || !value_of(&quality->peers[i], measure, &value)) continue;
        sorted[count++] = value;
    }
    tw_sort_u64(sorted, count);
    if (count < TW_LINK_QUALITY_MIN) return false;
    const bool is_rate = measure == SENDS || measure == RECEIVES;
    *middle = sorted[is_rate ? (count - 1) / 2 : count / 2];
    return true;
}

static bool is_out_of_line(const struct tw_link_quality *quality,
                           const struct tw_link_quality_peer *peer,
                           enum tw_link_quality_anomaly anomaly, uint64_t *middle) {
    const bool is_so = peer->anomaly == anomaly;
    uint64_t value;
    switch (anomaly) {
    case TW_LINK_QUALITY_SLOW_SENDER:
    case TW_LINK_QUALITY_SLOW_RECEIVER: {
        const enum measure measure = anomaly == TW_LINK_QUALITY_SLOW_SENDER ? SENDS : RECEIVES;
        if (!value_of(peer, measure, &value) || !median_of(quality, peer, measure, middle))
            return false;
        if (value >= RATE_FAST) return false;
        if (measure == SENDS && peer->in_took_us != 0 && peer->in_took_us < TRANSFER_US_SHORT)
            return false;
        return is_so ? 5 * value < 2 * *middle : 4 * value < *middle;
    }
    case TW_LINK_QUALITY_FLAPPING:
        if (!value_of(peer, BREAKS, &value) || !median_of(quality, peer, BREAKS, middle))
            return false;
        return value >= (is_so ? BREAKS_MILLI_MIN / 2 : BREAKS_MILLI_MIN) &&
               value >= 3 * *middle + 1000;
    case TW_LINK_QUALITY_LOSSY:
        if (!value_of(peer, LOSES, &value) || !median_of(quality, peer, LOSES, middle))
            return false;
        return value >= (is_so ? LOSS_PPM_MIN / 2 : LOSS_PPM_MIN) && value >= 4 * *middle;
    case TW_LINK_QUALITY_FINE: break;
    }
    return false;
}

void tw_link_quality_judge(struct tw_link_quality *quality, uint64_t now_us) {
    for (uint32_t i = 0; i < TW_LINK_QUALITY_ROWS; i++) {
        if (quality->peers[i].is_used) breaks_decay(&quality->peers[i], now_us);
    }
    for (uint32_t i = 0; i < TW_LINK_QUALITY_ROWS; i++) {
        struct tw_link_quality_peer *peer = &quality->peers[i];
        static const enum tw_link_quality_anomaly order[] = {
            TW_LINK_QUALITY_FLAPPING, TW_LINK_QUALITY_SLOW_SENDER, TW_LINK_QUALITY_SLOW_RECEIVER,
            TW_LINK_QUALITY_LOSSY};
        enum tw_link_quality_anomaly found = TW_LINK_QUALITY_FINE;
        if (!peer->is_linked) continue;
        for (uint32_t k = 0; k < 4 && found == TW_LINK_QUALITY_FINE; k++) {
            uint64_t middle = 0;
            if (!is_out_of_line(quality, peer, order[k], &middle)) continue;
            found = order[k];
            peer->middle = middle;
        }
        peer->anomaly = found;
    }
}

bool tw_link_quality_is_odd(const struct tw_link_quality_peer *peer) {
    return peer->anomaly == TW_LINK_QUALITY_SLOW_SENDER ||
           peer->anomaly == TW_LINK_QUALITY_SLOW_RECEIVER ||
           peer->anomaly == TW_LINK_QUALITY_FLAPPING;
}

uint32_t tw_link_quality_reliability(const struct tw_link_quality_peer *peer, uint64_t now_us) {
    const uint64_t passed_us = now_us - peer->changed_us;
    const uint64_t known_us = peer->known_us + passed_us;
    const uint64_t linked_us = peer->linked_us + (peer->is_linked ? passed_us : 0);
    return known_us > 0 ? (uint32_t)(linked_us * 1000 / known_us) : 1000;
}

void tw_link_quality_evidence(const struct tw_link_quality_peer *peer,
                              char text[TW_LINK_QUALITY_TEXT_BYTES]) {
    char own[TW_UNITS_BYTES], others[TW_UNITS_BYTES];
    text[0] = '\0';
    switch (peer->anomaly) {
    case TW_LINK_QUALITY_FINE: return;
    case TW_LINK_QUALITY_SLOW_SENDER:
        (void)snprintf(text, TW_LINK_QUALITY_TEXT_BYTES,
                       "slow sender: %s/s to us in %u transfers; median of the others: %s/s",
                       tw_units_bytes(own, (double)peer->in_bytes_s), peer->in_count,
                       tw_units_bytes(others, (double)peer->middle));
        return;
    case TW_LINK_QUALITY_SLOW_RECEIVER:
        (void)snprintf(text, TW_LINK_QUALITY_TEXT_BYTES,
                       "slow receiver: takes %s/s from us; median of the others: %s/s",
                       tw_units_bytes(own, (double)peer->out_bytes_s),
                       tw_units_bytes(others, (double)peer->middle));
        return;
    case TW_LINK_QUALITY_FLAPPING:
        (void)snprintf(
            text, TW_LINK_QUALITY_TEXT_BYTES,
            "flapping link: broke about %u times within an hour; median of the others: %u",
            (peer->breaks_milli + 500) / 1000, (unsigned)((peer->middle + 500) / 1000));
        return;
    case TW_LINK_QUALITY_LOSSY:
        (void)snprintf(
            text, TW_LINK_QUALITY_TEXT_BYTES,
            "lossy link: %u.%u %% of our packets to it are lost; median of the others: %u.%u %%",
            peer->loss_ppm / 10000, peer->loss_ppm % 10000 / 1000, (unsigned)(peer->middle / 10000),
            (unsigned)(peer->middle % 10000 / 1000));
        return;
    }
}

/* ==== as text ================================================================================= */

/* Link quality as text for the file `crowd`, so that it survives a restart.
 * Lines of decimal numbers:
 *
 *   thinwire-crowd 1 TIME UPLOAD
 *   ID KNOWN_S LINKED_S BREAKS_MILLI RTT_US IN_BYTES_S IN_COUNT OUT_BYTES_S LOSS_PPM|- */

enum {
    HOUR_S = 3600,
    KNOWN_S_MAX = 48 * HOUR_S,
    BREAKS_MILLI_MAX = 1000 * 1000,
    RTT_US_MAX = 600 * SECOND_US,
    PPM_MAX = 1000 * 1000,
    NUMBERS = 7,
    EARLY_S = 3600, /* how far back a clock may be set before the file is ignored, in seconds */
};

#define RATE_MAX UINT64_C(1000000000000) /* bytes per second */

static const char head[] = "thinwire-crowd 1 %" PRIu64 " %" PRIu64 "\n";

/* ==== out ===================================================================================== */

static size_t row_put(const struct tw_link_quality_peer *peer, uint64_t now_us,
                      char line[TW_LINK_QUALITY_LINE_BYTES]) {
    char hex[TW_ID_HEX_BYTES], loss[16] = "-";
    const uint64_t passed_us = now_us - peer->changed_us;
    const uint64_t known_s = (peer->known_us + passed_us) / SECOND_US;
    const uint64_t linked_s = (peer->linked_us + (peer->is_linked ? passed_us : 0)) / SECOND_US;
    const uint64_t over = known_s > KNOWN_S_MAX ? known_s / KNOWN_S_MAX + 1 : 1;
    if (peer->has_loss) (void)snprintf(loss, sizeof(loss), "%" PRIu32, peer->loss_ppm);
    tw_id_hex(&peer->id, hex);
    const int size =
        snprintf(line, TW_LINK_QUALITY_LINE_BYTES,
                 "%s %" PRIu64 " %" PRIu64 " %" PRIu32 " %" PRIu32 " %" PRIu64 " %" PRIu32
                 " %" PRIu64 " %s\n",
                 hex, known_s / over, linked_s / over, peer->breaks_milli, peer->rtt_us,
                 peer->in_bytes_s, peer->in_count, peer->out_bytes_s, loss);
    return size > 0 && size < TW_LINK_QUALITY_LINE_BYTES ? (size_t)size : 0;
}

size_t tw_link_quality_encode(const struct tw_link_quality *quality,
                              char text[TW_LINK_QUALITY_FILE_MAX], uint64_t now_us,
                              uint64_t wall_s) {
    char line[TW_LINK_QUALITY_LINE_BYTES];
    const int size =
        snprintf(text, TW_LINK_QUALITY_LINE_BYTES, head, wall_s, quality->upload_bytes_s);
    size_t at = size > 0 ? (size_t)size : 0;
    for (uint32_t i = 0; i < TW_LINK_QUALITY_ROWS; i++) {
        if (!quality->peers[i].is_used) continue;
        const size_t bytes = row_put(&quality->peers[i], now_us, line);
        memcpy(text + at, line, bytes);
        at += bytes;
    }
    return at;
}

/* ==== in ====================================================================================== */

/* Reads a decimal number of at most 15 digits and the character `end` behind it. */
static bool number_read(const char **at, char end, uint64_t *number) {
    const size_t digits = strspn(*at, "0123456789");
    if (digits == 0 || digits > 15 || (*at)[digits] != end) return false;
    *number = 0;
    for (size_t i = 0; i < digits; i++) *number = *number * 10 + (uint64_t)((*at)[i] - '0');
    *at += digits + (end != '\0');
    return true;
}

static bool row_read(const char *line, struct tw_link_quality_peer *row) {
    static const uint64_t most[NUMBERS] = {KNOWN_S_MAX, KNOWN_S_MAX, BREAKS_MILLI_MAX, RTT_US_MAX,
                                           RATE_MAX,    UINT32_MAX,  RATE_MAX};
    char hex[TW_ID_HEX_BYTES] = "";
    uint64_t number[NUMBERS], loss = 0;
    if (strnlen(line, TW_ID_HEX_BYTES) < TW_ID_HEX_BYTES || line[TW_ID_HEX_BYTES - 1] != ' ')
        return false;
    memcpy(hex, line, TW_ID_HEX_BYTES - 1);
    line += TW_ID_HEX_BYTES;
    *row = (struct tw_link_quality_peer){.is_used = true};
    if (!tw_id_parse(hex, &row->id) || tw_id_is_zero(&row->id)) return false;
    for (unsigned i = 0; i < NUMBERS; i++) {
        if (!number_read(&line, ' ', &number[i]) || number[i] > most[i]) return false;
    }
    row->has_loss = strcmp(line, "-") != 0;
    if (row->has_loss && (!number_read(&line, '\0', &loss) || loss > PPM_MAX)) return false;
    if (number[1] > number[0]) return false;
    row->known_us = number[0] * SECOND_US;
    row->linked_us = number[1] * SECOND_US;
    row->breaks_milli = (uint32_t)number[2];
    row->rtt_us = (uint32_t)number[3];
    row->in_bytes_s = number[4];
    row->in_count = (uint32_t)number[5];
    row->out_bytes_s = number[6];
    row->loss_ppm = (uint32_t)loss;
    return true;
}

static bool head_read(const char *line, uint64_t *at_s, uint64_t *upload_bytes_s) {
    static const char name[] = "thinwire-crowd 1 ";
    if (strncmp(line, name, sizeof(name) - 1) != 0) return false;
    line += sizeof(name) - 1;
    return number_read(&line, ' ', at_s) && number_read(&line, '\0', upload_bytes_s) &&
           *upload_bytes_s <= RATE_MAX;
}

/* Copies the line at *at without its newline and moves *at behind it. Returns false if the line is
 * too long, or not text. */
static bool line_take(const char *text, size_t size, size_t *at,
                      char line[TW_LINK_QUALITY_LINE_BYTES]) {
    const char *newline = memchr(text + *at, '\n', size - *at);
    const size_t length = newline != NULL ? (size_t)(newline - text) - *at : size - *at;
    const char *from = text + *at;
    *at += length + 1;
    if (length >= TW_LINK_QUALITY_LINE_BYTES) return false;
    memcpy(line, from, length);
    line[length] = '\0';
    return strlen(line) == length;
}

static bool row_restore(struct tw_link_quality *quality, struct tw_link_quality_peer *row,
                        uint64_t now_us, uint64_t hours) {
    if (tw_link_quality_find(quality, &row->id) != NULL) return false;
    for (uint32_t i = 0; i < TW_LINK_QUALITY_ROWS; i++) {
        if (quality->peers[i].is_used) continue;
        row->changed_us = row->faded_us = now_us;
        row->breaks_milli = hours < 32 ? row->breaks_milli >> hours : 0;
        quality->peers[i] = *row;
        return true;
    }
    return false;
}

uint32_t tw_link_quality_decode(struct tw_link_quality *quality, const char *text, size_t size,
                                uint64_t now_us, uint64_t wall_s) {
    char line[TW_LINK_QUALITY_LINE_BYTES];
    uint64_t at_s = 0, upload_bytes_s = 0;
    uint32_t skipped = 0;
    size_t at = 0;
    if (size == 0) return 0;
    if (!line_take(text, size, &at, line) || !head_read(line, &at_s, &upload_bytes_s)) return 1;
    if (wall_s + EARLY_S < at_s || wall_s > at_s + TW_LINK_QUALITY_OLD_S) return 0;
    const uint64_t hours = wall_s > at_s ? (wall_s - at_s) / HOUR_S : 0;
    quality->upload_bytes_s = upload_bytes_s;
    while (at < size) {
        struct tw_link_quality_peer row;
        const bool is_good = line_take(text, size, &at, line) && row_read(line, &row) &&
                             row_restore(quality, &row, now_us, hours);
        skipped += !is_good;
    }
    return skipped;
}
