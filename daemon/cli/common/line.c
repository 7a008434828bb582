#include "daemon/cli/common/line.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/units.h"

/* ---- one line -------------------------------------------------------------------------------- */

static const char *const CODES[] = {
    [PLAIN] = "",          [BOLD] = "\033[1m", [DIM] = "\033[2m",  [GREEN] = "\033[32m",
    [YELLOW] = "\033[33m", [RED] = "\033[31m", [BLUE] = "\033[36m"};

static void put_code(const struct screen *screen, const char *code) {
    if (screen->has_colour) (void)fputs(code, screen->to);
}

static bool is_continuation(char c) {
    return ((unsigned char)c & 0xC0) == 0x80;
}

static unsigned columns_of(const char *text) {
    unsigned columns = 0;
    for (; *text != 0; text++) columns += !is_continuation(*text);
    return columns;
}

/* Returns whether a control character begins here: U+0000 to 1F (one byte), or U+007F to 9F. */
static bool is_control_at(const char *text) {
    const unsigned char first = (unsigned char)text[0], second = (unsigned char)text[1];
    return first < 32 || first == 127 || (first == 0xC2 && second >= 0x80 && second < 0xA0);
}

/* Prints one code point. Returns the start of the next one. */
static const char *put_point(const struct screen *screen, const char *text) {
    const bool is_control = is_control_at(text);
    const bool is_foreign = !screen->has_utf8 && (unsigned char)*text > 127;
    if (is_control || is_foreign) {
        (void)fputc(is_control ? ' ' : '?', screen->to);
        for (text++; is_continuation(*text);) text++;
        return text;
    }
    do (void)fputc(*text++, screen->to);
    while (is_continuation(*text));
    return text;
}

void line_put(struct line *line, enum paint colour, const char *fmt, ...) {
    char text[1024];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (line->is_full || text[0] == 0) return;
    const struct screen *const screen = line->screen;
    const unsigned room = screen->width - line->columns, wanted = columns_of(text);
    const bool is_cut = wanted > room;
    if (room == 0) {
        line->is_full = true;
        return;
    }
    const unsigned dots = screen->has_utf8 ? 1 : room < 3 ? room : 3;
    put_code(screen, CODES[colour]);
    const char *at = text;
    for (unsigned left = is_cut ? room - dots : wanted; left > 0; left--) {
        at = put_point(screen, at);
    }
    if (is_cut && screen->has_utf8) (void)fputs("…", screen->to);
    if (is_cut && !screen->has_utf8) (void)fprintf(screen->to, "%.*s", (int)dots, "...");
    if (colour != PLAIN) put_code(screen, "\033[0m");
    line->columns += is_cut ? room : wanted;
    line->is_full = is_cut;
}

struct line line_begin(const struct screen *screen, const char *label) {
    struct line line = {.screen = screen};
    if (label != NULL) line_put(&line, DIM, "  %-10s", label);
    return line;
}

void line_end(struct line *line) {
    (void)fputc('\n', line->screen->to);
}

void line_wrap(const struct screen *screen, enum paint colour, const char *mark, unsigned indent,
               const char *text) {
    const unsigned room = screen->width > indent + 20 ? screen->width - indent : 20;
    bool is_first = true;
    while (*text == ' ') text++;
    do {
        size_t size = 0,
               fit = 0; /* bytes scanned so far, and bytes up to the last space that still fits */
        unsigned columns = 0;
        while (text[size] != 0 && columns <= room) {
            if (text[size] == ' ') fit = size;
            columns += !is_continuation(text[size++]);
        }
        if (text[size] == 0 && columns <= room) fit = size;
        /* Breaks a word that is wider than the screen before the first character that does not fit.
         */
        if (fit == 0) fit = columns > room ? size - 1 : size;
        struct line line = {.screen = screen};
        const char *const front = is_first ? mark : "";
        line_put(&line, colour, "%*s%s%.*s", (int)(indent - columns_of(front)), "", front, (int)fit,
                 text);
        line_end(&line);
        text += fit;
        while (*text == ' ') text++;
        is_first = false;
    } while (*text != 0);
}

void line_wrap_advice(const struct screen *screen, enum paint paint, const char *mark,
                      unsigned indent, const char *text) {
    static const char BEGIN[] = "`thinwire ";
    char *typed = NULL;
    size_t size;
    FILE *const to = screen->typed != NULL ? open_memstream(&typed, &size) : NULL;
    for (const char *at = text; to != NULL && *at != '\0';) {
        const char *const next = strstr(at, BEGIN);
        const size_t plain = next != NULL ? (size_t)(next - at) : strlen(at);
        (void)fprintf(to, "%.*s%s%s", (int)plain, at, next != NULL ? "`" : "",
                      next != NULL ? screen->typed : "");
        at += plain + (next != NULL ? sizeof(BEGIN) - 1 : 0);
    }
    const bool is_typed = to != NULL && fclose(to) == 0;
    line_wrap(screen, paint, mark, indent, is_typed ? typed : text);
    free(typed);
}

/* ---- parts that fit the height --------------------------------------------------------------- */

static unsigned lines_of(const char *text) {
    unsigned lines = 0;
    for (; *text != '\0'; text++) lines += *text == '\n';
    return lines;
}

/* Returns the text behind its first lines. */
static const char *skip_lines(const char *text, unsigned lines) {
    for (; lines > 0; lines--) text += strcspn(text, "\n") + 1;
    return text;
}

static void put_lines(FILE *to, const char *text, unsigned lines) {
    (void)fwrite(text, 1, (size_t)(skip_lines(text, lines) - text), to);
}

/* Cuts lines until the others, and one that says so, fit into the rows. Returns the number of lines
 * that were cut. */
static unsigned cut(const struct fit *fit, unsigned rows, unsigned *shown) {
    unsigned lines = 0, gone = 0;
    for (unsigned i = 0; i < fit->parts_count; i++) lines += shown[i];
    if (lines <= rows) return 0;
    unsigned excess = lines + 1 - rows;
    for (unsigned i = 0; i < fit->cuts_count && excess > 0; i++) {
        const struct fit_cut *const from = &fit->cuts[i];
        TW_ASSERT(from->part < fit->parts_count);
        if (shown[from->part] <= from->left) continue;
        const unsigned most = shown[from->part] - from->left;
        const unsigned here = from->is_whole || most < excess ? most : excess;
        shown[from->part] -= here;
        gone += here;
        excess -= here < excess ? here : excess;
    }
    return gone;
}

/* Draws each part into memory, and prints as many lines as fit. */
static bool print_within(const struct screen *screen, const json_t *json, const struct fit *fit) {
    char *text[FIT_PARTS_MAX] = {NULL};
    unsigned shown[FIT_PARTS_MAX] = {0};
    bool is_drawn = true;
    for (unsigned i = 0; i < fit->parts_count && is_drawn; i++) {
        size_t size;
        struct screen memory = *screen;
        memory.to = open_memstream(&text[i], &size);
        if (memory.to != NULL) fit->print[i](&memory, json);
        is_drawn = memory.to != NULL && fclose(memory.to) == 0;
        if (is_drawn) shown[i] = lines_of(text[i]);
    }
    if (is_drawn) {
        const unsigned gone = cut(fit, screen->height, shown);
        for (unsigned i = 0; i < fit->parts_count; i++) put_lines(screen->to, text[i], shown[i]);
        if (gone > 0) fit->print_rest(screen, json, gone, shown);
    }
    for (unsigned i = 0; i < fit->parts_count; i++) free(text[i]);
    return is_drawn;
}

void fit_print(const struct screen *screen, const json_t *json, const struct fit *fit) {
    TW_ASSERT(fit->parts_count <= FIT_PARTS_MAX);
    if (screen->height > 0 && print_within(screen, json, fit)) return;
    for (unsigned i = 0; i < fit->parts_count; i++) fit->print[i](screen, json);
}

void fit_list(const struct screen *screen, const char *drawn, bool keeps_end, const char *verb) {
    const unsigned lines = lines_of(drawn), rows = screen->height;
    const unsigned shown = rows == 0 || lines <= rows ? lines : rows - 1, gone = lines - shown;
    if (!keeps_end) put_lines(screen->to, drawn, shown);
    if (gone > 0) {
        struct line line = line_begin(screen, NULL);
        line_put(&line, DIM, "%s %u more line%s: thinwire %s", screen->has_utf8 ? "…" : "...", gone,
                 tw_units_s(gone), verb);
        line_end(&line);
    }
    if (keeps_end) put_lines(screen->to, skip_lines(drawn, gone), shown);
}
