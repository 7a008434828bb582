#include "daemon/api/scores.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 128, LINE_SHOWN = 40 };

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

static bool is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == '/';
}

/* Counts a rejected line. Keeps the first one, with its fault, as the reason. */
static void refuse(struct tw_scores *scores, uint32_t number, const char *line, const char *fault) {
    char shown[LINE_SHOWN + 1];
    size_t size = 0;
    if (scores->refused++ > 0) return;
    for (; line[size] != '\0' && size < LINE_SHOWN; size++)
        shown[size] = line[size] > ' ' && line[size] < 127 && line[size] != '"' ? line[size] : ' ';
    shown[size] = '\0';
    (void)snprintf(scores->reason, sizeof(scores->reason), "line %u, '%s': %s", (unsigned)number,
                   shown, fault);
}

static bool has_name(const struct tw_scores *scores, const char *name) {
    for (uint32_t i = 0; i < scores->count; i++)
        if (strcmp(scores->rows[i].name, name) == 0) return true;
    return false;
}

/* Returns the value of a text that is one finite decimal number, or NaN for any other text. */
static double read_value(const char *text) {
    char *end = NULL;
    if (strspn(text, "0123456789+-.eE") != strlen(text) || text[0] == '\0') return NAN;
    const double value = strtod(text, &end);
    return *end == '\0' && isfinite(value) ? value : NAN;
}

/* Parses one line, already stripped of blanks at its ends. */
static void read_line(struct tw_scores *scores, uint32_t number, const char *line) {
    const char *const original = line;
    struct tw_score score = {.value = 0};
    size_t size = 0;
    while (is_name_char(line[size])) size++;
    if (size == 0 || !is_blank(line[size])) {
        refuse(scores, number, original, "it is not \"name value\"");
        return;
    }
    if (size >= sizeof(score.name)) {
        refuse(scores, number, original, "the name is longer than 47 characters");
        return;
    }
    memcpy(score.name, line, size);
    for (line += size; is_blank(*line);) line++;
    score.value = read_value(line);
    if (!isfinite(score.value)) {
        refuse(scores, number, original, "the value is not a finite decimal number");
    } else if (has_name(scores, score.name)) {
        refuse(scores, number, original, "the name stands in a line before it");
    } else if (scores->count == TW_SCORES_MAX) {
        refuse(scores, number, original, "only 16 values are kept");
    } else {
        scores->rows[scores->count++] = score;
    }
}

/* Copies a line, strips the blanks at its ends and replaces each NUL by \x01. Returns false if the
 * line is too long. */
static bool trim(char line[LINE_BYTES], const char *text, size_t size) {
    while (size > 0 && is_blank(text[0])) text++, size--;
    while (size > 0 && is_blank(text[size - 1])) size--;
    const size_t kept = size < LINE_BYTES - 1 ? size : LINE_BYTES - 1;
    for (size_t i = 0; i < kept; i++) line[i] = text[i] != '\0' ? text[i] : '\x01';
    line[kept] = '\0';
    return kept == size;
}

void tw_scores_read(struct tw_scores *scores, const char *text, size_t size, bool is_cut) {
    char line[LINE_BYTES];
    uint32_t number = 0;
    memset(scores, 0, sizeof(*scores));
    for (size_t at = 0; at < size;) {
        const char *const end = memchr(text + at, '\n', size - at);
        const size_t bytes = end != NULL ? (size_t)(end - text) - at : size - at;
        const bool is_short = trim(line, text + at, bytes);
        number++;
        if (end == NULL && is_cut) break;
        if (!is_short)
            refuse(scores, number, line, "it is longer than 127 characters");
        else if (line[0] != '#' && line[0] != '\0')
            read_line(scores, number, line);
        at += bytes + 1;
    }
    if (is_cut) refuse(scores, number, "", "the output is longer than 16 KiB");
}
