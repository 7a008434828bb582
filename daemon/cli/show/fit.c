#include "daemon/cli/show/fit.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/units.h"

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
