#include "base/page.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { WIDTH_MIN = 60, WIDTH_MAX = 160, WIDTH_PIPE = 100, LABEL_END = 24, COMMAND_INDENT = 4 };

unsigned tw_page_width(int fd, unsigned otherwise) {
    struct winsize size = {0};
    const char *const columns = getenv("COLUMNS");
    unsigned long width = 0;
    if (ioctl(fd, TIOCGWINSZ, &size) == 0)
        width = size.ws_col;
    else if (columns != NULL)
        width = strtoul(columns, NULL, 10);
    if (width < WIDTH_MIN) return otherwise;
    return width < WIDTH_MAX ? (unsigned)width : WIDTH_MAX;
}

void tw_page_size(int fd, unsigned *columns, unsigned *rows) {
    struct winsize size = {0};
    (void)ioctl(fd, TIOCGWINSZ, &size);
    *columns = size.ws_col;
    *rows = size.ws_row;
}

/* Returns the bytes of the character at `text`, and adds its columns: escape sequences and
 * continuation bytes have none. */
static size_t take(const char *text, const char *end, unsigned *columns) {
    size_t size = 1;
    if (text[0] == '\033' && end - text > 1 && text[1] == '[') {
        size = 2;
        while (text + size < end && (text[size] < '@' || text[size] > '~')) size++;
        return text + size < end ? size + 1 : size;
    }
    while (text + size < end && ((unsigned char)text[size] & 0xC0) == 0x80) size++;
    ++*columns;
    return size;
}

/* Returns the column below which a paragraph's further lines begin. */
static unsigned hang_of(const char *line, const char *end) {
    unsigned column = 0, hang = 0, spaces = 0;
    bool has_word = false;
    for (const char *at = line; at < end;) {
        const bool is_space = *at == ' ';
        const unsigned before = column;
        at += take(at, end, &column);
        if (column == before) continue;
        if (is_space) {
            spaces++;
            continue;
        }
        if (before > LABEL_END) break;
        if (!has_word || spaces >= 2) hang = before;
        has_word = true;
        spaces = 0;
    }
    return hang;
}

/* Returns the end of the longest begin of [text, end) that has at most `room` columns and ends
 * before a space, or NULL. `is_whole`: not between two ` that have at most `room` bytes. */
static const char *break_in(const char *text, const char *end, unsigned room, bool is_whole) {
    const char *fit = NULL, *tick = NULL;
    unsigned columns = 0;
    for (const char *at = text; at < end && columns <= room;) {
        if (*at == '`') tick = tick == NULL ? at : NULL;
        if (*at == ' ' && at > text && at[-1] != ' ') {
            const char *const close = tick != NULL ? memchr(at, '`', (size_t)(end - at)) : NULL;
            if (!is_whole || close == NULL || close - tick > (long)room) fit = at;
        }
        at += take(at, end, &columns);
        if (at >= end && columns <= room) fit = end;
    }
    return fit;
}

/* Returns where the line ends. A word that is wider than the line is not broken. */
static const char *break_of(const char *text, const char *end, unsigned room) {
    const char *fit = break_in(text, end, room, true);
    if (fit == NULL) fit = break_in(text, end, room, false);
    if (fit == NULL) fit = memchr(text, ' ', (size_t)(end - text));
    return fit != NULL ? fit : end;
}

static void print_paragraph(FILE *to, unsigned width, const char *line, const char *end) {
    const size_t indent = strspn(line, " ");
    const unsigned hang = hang_of(line, end);
    if (indent == COMMAND_INDENT || hang + 20 > width) {
        (void)fprintf(to, "%.*s\n", (int)(end - line), line);
        return;
    }
    const char *at = line;
    for (unsigned before = 0;; before = hang) {
        /* the label and the spaces around it are no place for a break */
        const char *body = at;
        for (unsigned columns = 0; before == 0 && body < end && columns < hang;)
            body += take(body, end, &columns);
        const char *const stop = break_of(body, end, width - hang);
        (void)fprintf(to, "%*s%.*s\n", (int)before, "", (int)(stop - at), at);
        for (at = stop; at < end && *at == ' ';) at++;
        if (at >= end) return;
    }
}

void tw_page_print(FILE *to, unsigned width, const char *text) {
    while (*text != '\0') {
        const char *const end = text + strcspn(text, "\n");
        print_paragraph(to, width, text, end);
        text = *end == '\n' ? end + 1 : end;
    }
}

FILE *tw_page_begin(struct tw_page *page, FILE *to) {
    *page = (struct tw_page){.to = to};
    page->text = open_memstream(&page->bytes, &page->size);
    return page->text != NULL ? page->text : to;
}

void tw_page_end(struct tw_page *page) {
    if (page->text == NULL) return;
    if (fclose(page->text) == 0)
        tw_page_print(page->to, tw_page_width(fileno(page->to), WIDTH_PIPE), page->bytes);
    free(page->bytes);
    page->text = NULL;
}

void tw_page_say_va(const char *fmt, va_list args) {
    char *text = NULL;
    size_t size = 0;
    FILE *const memory = isatty(STDERR_FILENO) == 1 ? open_memstream(&text, &size) : NULL;
    FILE *const to = memory != NULL ? memory : stderr;
    (void)fputs("thinwire: ", to);
    (void)vfprintf(to, fmt, args);
    (void)fputc('\n', to);
    /* a narrower terminal breaks the lines itself */
    if (memory != NULL && fclose(memory) == 0)
        tw_page_print(stderr, tw_page_width(STDERR_FILENO, WIDTH_MIN), text);
    free(text);
}

void tw_page_say(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    tw_page_say_va(fmt, args);
    va_end(args);
}
