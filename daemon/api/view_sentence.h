/* view_sentence.h - the state of a node in one sentence, for the command line and the page. */
#ifndef TW_DAEMON_API_VIEW_SENTENCE_H
#define TW_DAEMON_API_VIEW_SENTENCE_H

#include "daemon/api/status_view.h"

/* Writes the sentence without a full stop: "attic trains bible together with 3 others". */
void tw_view_sentence(const struct tw_status_view *view, char text[TW_VIEW_TEXT_BYTES]);

/* Writes the words after "attic is" for a node whose training is paused, such as "paused; `thinwire
 * resume` continues". */
void tw_view_pause_text(const struct tw_view_pause *pause, char text[TW_VIEW_TEXT_BYTES]);

#endif
