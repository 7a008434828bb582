/* signals.h - SIGTERM, SIGINT and SIGHUP in a process whose threads multiply matrices.
 *
 * oneDNN's sgemm keeps its working memory right below the stack pointer of its generated code,
 * which it moves into a small heap buffer: a signal delivered there writes its frame over whatever
 * lies before that buffer. Handlers here therefore run on a stack of their own, and every thread
 * that may multiply must be known to this file or have its signals blocked. */
#ifndef TW_WORKER_SUPPORT_SIGNALS_H
#define TW_WORKER_SUPPORT_SIGNALS_H

#include <stdbool.h>

/* From now on SIGTERM, SIGINT and SIGHUP only make tw_signals_wanted() true, and end waiting (no
 * SA_RESTART): a closed terminal costs no work; what nohup(1) ignores stays ignored. second_kills:
 * one that comes more than a second after the first has its default effect, for a person who does
 * not want to wait; timeout(1) sends two at once.
 * The calling thread gets the stack for handlers; call it there before the first product, and start
 * other threads with all signals blocked. */
void tw_signals_catch(bool second_kills);

/* Has somebody asked this process to end? */
bool tw_signals_wanted(void);

#endif
