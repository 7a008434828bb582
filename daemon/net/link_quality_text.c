/* link_quality_text.c - link quality as text for the file `crowd`, so that it survives a restart.
 * Lines of decimal numbers:
 *
 *   thinwire-crowd 1 TIME UPLOAD
 *   ID KNOWN_S LINKED_S BREAKS_MILLI RTT_US IN_BYTES_S IN_COUNT OUT_BYTES_S LOSS_PPM|- */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/net/link_quality.h"

enum {
    SECOND_US = 1000 * 1000,
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

/* ---- out ----------------------------------------------------------------------------------- */

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

/* ---- in ------------------------------------------------------------------------------------ */

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

static bool row_take(struct tw_link_quality *quality, struct tw_link_quality_peer *row,
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
                             row_take(quality, &row, now_us, hours);
        skipped += !is_good;
    }
    return skipped;
}
