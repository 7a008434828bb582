/* scores.h - values that a program of the user's printed about a checkpoint: lines "name value".
 *
 * The text is not trusted. A name has letters, digits and any of _ - . / and is unique; a value is
 * a finite decimal number. Other lines are counted, and the first of them is named. Empty lines and
 * lines that begin with # are allowed. */
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
    struct tw_score rows[TW_SCORES_MAX]; /* in the order of the text */
    uint32_t refused;                    /* lines that are not a score */
    char reason[TW_SCORES_REASON_BYTES]; /* the first of them, and its fault; "": none */
};

/* Reads text[size]. `is_cut`: more text followed, which is lost, and with it the last line. */
void tw_scores_read(struct tw_scores *scores, const char *text, size_t size, bool is_cut);

#endif
