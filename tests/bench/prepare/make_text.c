/* make_text.c - generates prose and code of made-up words. */
#include "make_text.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

enum { WORDS = 150000, WORD_BYTES = 32 };

struct maker {
    struct tw_rng rng;
    FILE *to;
    uint64_t bytes; /* written so far */
    char (*words)[WORD_BYTES];
};

static unsigned below(struct maker *maker, unsigned bound) {
    return (unsigned)tw_rng_below(&maker->rng, bound);
}

static void put(struct maker *maker, const char *text) {
    const size_t size = strlen(text);
    (void)fwrite(text, 1, size, maker->to);
    maker->bytes += size;
}

/* ---- words ----------------------------------------------------------------------------------- */

static void make_word(struct maker *maker, char word[WORD_BYTES], unsigned syllables) {
    static const char *const ONSETS[] = {"",  "b",  "br", "c", "ch", "d",  "dr", "f",  "g",  "h",
                                         "l", "m",  "n",  "p", "pr", "qu", "r",  "s",  "sh", "st",
                                         "t", "th", "tr", "v", "w",  "wh", "k",  "pl", "sp", "j"};
    static const char *const VOWELS[] = {"a",  "e",  "i",  "o", "u", "ea", "ou",
                                         "ai", "io", "ee", "e", "a", "i",  "o"};
    static const char *const FOREIGN[] = {"é", "ü", "ö", "ñ", "å", "ø", "č", "ж", "и", "λ"};
    static const char *const CODAS[] = {"", "", "", "n", "r", "s", "t", "nd", "ng", "l", "st", "m"};
    word[0] = 0;
    for (unsigned i = 0; i < syllables && strlen(word) < WORD_BYTES - 8; i++) {
        const char *const vowel =
            below(maker, 60) == 0 ? FOREIGN[below(maker, 10)] : VOWELS[below(maker, 14)];
        (void)snprintf(word + strlen(word), WORD_BYTES - strlen(word), "%s%s%s",
                       ONSETS[below(maker, 30)], vowel, CODAS[below(maker, 12)]);
    }
}

/* Picks a word. The word of rank r has a probability of about 1 / r, and frequent words are short.
 */
static const char *pick(struct maker *maker) {
    const double rank = pow(WORDS, tw_rng_unit(&maker->rng));
    return maker->words[(unsigned)rank % WORDS];
}

static void put_number(struct maker *maker) {
    static const unsigned MOST[] = {10, 100, 2030, 65536, 1000000};
    char text[16];
    (void)snprintf(text, sizeof(text), "%u", below(maker, MOST[below(maker, 5)]));
    put(maker, text);
}

/* ---- prose ----------------------------------------------------------------------------------- */

static void put_sentence(struct maker *maker) {
    static const char *const BETWEEN[] = {", ", "; ", ": ", " - ", " (", ") ", "'s ", "-"};
    static const char *const ENDS[] = {". ", ". ", ". ", ". ", "! ", "? ", ".\" ", "... "};
    const unsigned words = 4 + below(maker, 22);
    for (unsigned i = 0; i < words; i++) {
        char word[WORD_BYTES];
        (void)snprintf(word, sizeof(word), "%s", pick(maker));
        if (i == 0 || below(maker, 25) == 0) word[0] = (char)toupper((unsigned char)word[0]);
        if (below(maker, 40) == 0) {
            put_number(maker);
        } else {
            put(maker, word);
        }
        if (i + 1 < words) put(maker, below(maker, 9) == 0 ? BETWEEN[below(maker, 8)] : " ");
    }
    put(maker, ENDS[below(maker, 8)]);
}

static void put_paragraph(struct maker *maker) {
    const unsigned sentences = 2 + below(maker, 7);
    for (unsigned i = 0; i < sentences; i++) put_sentence(maker);
    put(maker, "\n\n");
}

/* ---- code ------------------------------------------------------------------------------------ */

static void put_name(struct maker *maker) {
    put(maker, pick(maker));
    for (unsigned i = below(maker, 3); i > 0; i--) {
        put(maker, "_");
        put(maker, pick(maker));
    }
}

static void put_line(struct maker *maker, unsigned depth) {
    static const char *const OPENS[] = {"if (", "for (",   "return ",   "",
                                        "",     "while (", "const int "};
    static const char *const OPERATORS[] = {" = ", " == ", "->", "[",   " + ",
                                            ".",   ", ",   "(",  " != "};
    static const char *const ENDS[] = {";", ");", ") {", "];", "}", ");  // ", " */"};
    for (unsigned i = 0; i < depth; i++) put(maker, "    ");
    put(maker, OPENS[below(maker, 7)]);
    put_name(maker);
    for (unsigned i = below(maker, 4); i > 0; i--) {
        put(maker, OPERATORS[below(maker, 9)]);
        if (below(maker, 4) == 0) {
            put_number(maker);
        } else {
            put_name(maker);
        }
    }
    put(maker, ENDS[below(maker, 7)]);
    put(maker, "\n");
}

static void put_function(struct maker *maker) {
    const unsigned lines = 3 + below(maker, 30);
    put(maker, "static int ");
    put_name(maker);
    put(maker, "(void) {\n");
    for (unsigned i = 0; i < lines; i++) put_line(maker, 1 + below(maker, 3));
    put(maker, "}\n\n");
}

int make_text(const char *path, uint64_t bytes, uint64_t seed) {
    struct maker maker = {.to = fopen(path, "wb"), .words = calloc(WORDS, WORD_BYTES)};
    int is_good = maker.to != NULL && maker.words != NULL;
    tw_rng_seed(&maker.rng, seed);
    for (unsigned i = 0; is_good && i < WORDS; i++) {
        make_word(&maker, maker.words[i], 1 + below(&maker, i < 300 ? 1 : i < 9000 ? 3 : 5));
    }
    while (is_good && maker.bytes < bytes) {
        const uint64_t end = maker.bytes + 2000 + below(&maker, 30000);
        const unsigned is_code = below(&maker, 4) == 0;
        while (maker.bytes < end && maker.bytes < bytes) {
            if (is_code) put_function(&maker);
            if (!is_code) put_paragraph(&maker);
        }
        is_good = !ferror(maker.to);
    }
    if (maker.to != NULL && fclose(maker.to) != 0) is_good = 0;
    free(maker.words);
    return is_good;
}
