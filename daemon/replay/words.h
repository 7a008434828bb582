/* words.h - events, actions and the state of a core as text. */
#ifndef TW_DAEMON_REPLAY_WORDS_H
#define TW_DAEMON_REPLAY_WORDS_H

#include <stdio.h>

#include "sync/node.h"

enum { WORDS_TIME_BYTES = 40, WORDS_LINE_BYTES = 256 };

/* Writes a time as 2026-11-27 00:15:03.123456 UTC into text[WORDS_TIME_BYTES]. `unix_us` is in
 * microseconds since 1970. */
const char *tw_words_time(char *text, uint64_t unix_us);

/* Writes one line, without newline, into text[WORDS_LINE_BYTES]. */
const char *tw_words_event(char *text, const struct tw_event *event);
const char *tw_words_action(char *text, const struct tw_action *action);

/* Prints several lines: the node's state in its run, its open round, its peers. */
void tw_words_view(FILE *to, const struct tw_node_view *view);

#endif
