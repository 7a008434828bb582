/* page.h - the words of a command, as wide as the terminal. */
#ifndef TW_BASE_PAGE_H
#define TW_BASE_PAGE_H

#include <stdarg.h>
#include <stdio.h>

#include "base/status.h"

/* Returns the columns of a terminal; for a file or a pipe, those of the environment's COLUMNS, or
 * `otherwise`. From 60 to 160. */
unsigned tw_page_width(int fd, unsigned otherwise);

/* Returns the size of a terminal; 0 and 0 for a file or a pipe. */
void tw_page_size(int fd, unsigned *columns, unsigned *rows);

/* Prints text of which each line is a paragraph, broken at spaces to lines of at most `width`
 * columns. Words between two ` stay together if they fit. Words at the begin of a line are labels
 * if two or more spaces follow them, and the next word begins within 24 columns. Further lines of
 * a paragraph begin below the text behind its labels, or below its first word. A line that
 * begins in the fifth column is a command, and is not broken. Escape sequences (CSI) have no
 * width. */
void tw_page_print(FILE *to, unsigned width, const char *text);

/* Prints "thinwire: ..." on standard error: at a terminal without breaking words or commands, one
 * line elsewhere. */
void tw_page_say(const char *fmt, ...) TW_PRINTF(1, 2);
void tw_page_say_va(const char *fmt, va_list args);

/* A page that is written with fprintf, and printed on `to` by page_end: as wide as the terminal,
 * in a file or a pipe 100 columns. */
struct tw_page {
    FILE *to, *text;
    char *bytes;
    size_t size;
};

/* Returns the stream to write to. Without memory, that is `to` itself, and lines are not broken. */
FILE *tw_page_begin(struct tw_page *page, FILE *to);
void tw_page_end(struct tw_page *page);

#endif
