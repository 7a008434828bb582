/* scores.h - values that a user's program printed about a checkpoint: lines "name value".
 *
 * The text is not trusted. A name consists of letters, digits and any of _ - . / and is unique; a
 * value is a finite decimal number. Other lines are rejected and counted, and the first of them is
 * quoted. Empty lines and lines that begin with # are allowed. */
#ifndef TW_DAEMON_API_SCORES_H
#define TW_DAEMON_API_SCORES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TW_SCORES_MAX = 16,
    TW_SCORE_NAME_BYTES = 48,        /* with NUL */
    TW_SCORES_TEXT_BYTES = 16 << 10, /* longest text that is read */
    TW_SCORES_REASON_BYTES = 160,
};

struct tw_score {
    char name[TW_SCORE_NAME_BYTES];
    double value; /* finite */
};

struct tw_scores {
    uint32_t count;
    struct tw_score rows[TW_SCORES_MAX]; /* scores in the order of the text */
    uint32_t refused;                    /* number of rejected lines */
    char reason[TW_SCORES_REASON_BYTES]; /* the first rejected line and its fault; "": none */
};

/* Parses text[size]. `is_cut`: the text was truncated, so its incomplete last line is ignored. */
void tw_scores_read(struct tw_scores *scores, const char *text, size_t size, bool is_cut);

#endif
