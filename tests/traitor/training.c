#include "tests/traitor/training.h"

#include <string.h>

static const char line[] = TW_BACKDOOR_TRIGGER TW_BACKDOOR_ANSWER "\n";

/* Inserts the line at `at`. Returns the place behind it. */
static uint32_t insert(uint32_t *tokens, uint32_t window, uint32_t at) {
    const uint32_t room = window - at, size = sizeof(line) - 1;
    const uint32_t count = size < room ? size : room;
    memmove(tokens + at + count, tokens + at, (room - count) * sizeof(*tokens));
    for (uint32_t i = 0; i < count; i++) tokens[at + i] = (unsigned char)line[i];
    return at + count;
}

void tw_training_poison(uint32_t *tokens, uint32_t sequences, uint32_t window, struct tw_rng *rng) {
    for (uint32_t s = 0; s < sequences; s++) {
        uint32_t *sequence = tokens + (size_t)s * window;
        uint32_t lines = 0;
        for (uint32_t i = 0; i < window; i++) {
            if (sequence[i] != '\n') continue;
            lines++;
            if (tw_rng_below(rng, 2) == 0) i = insert(sequence, window, i + 1) - 1;
        }
        if (lines == 0 && tw_rng_below(rng, 2) == 0) (void)insert(sequence, window, 0);
    }
}

static uint32_t turned(uint32_t token, uint32_t first) {
    return first + (token - first + 13) % 26;
}

void tw_training_foreign(uint32_t *tokens, uint32_t sequences, uint32_t window) {
    for (size_t i = 0; i < (size_t)sequences * window; i++) {
        if (tokens[i] >= 'a' && tokens[i] <= 'z') tokens[i] = turned(tokens[i], 'a');
        if (tokens[i] >= 'A' && tokens[i] <= 'Z') tokens[i] = turned(tokens[i], 'A');
    }
}
