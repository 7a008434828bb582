/* signals.h - SIGTERM, SIGINT and SIGHUP in a process whose threads multiply matrices.
 *
 * oneDNN's sgemm moves the stack pointer of its generated code into a small heap buffer. A signal
 * delivered meanwhile writes its frame over the memory below that buffer. Handlers therefore run on
 * an alternate stack. A thread that may multiply matrices must be the one that called
 * tw_signals_catch, or must have all signals blocked. */
#ifndef TW_WORKER_SUPPORT_SIGNALS_H
#define TW_WORKER_SUPPORT_SIGNALS_H

#include <stdbool.h>

/* From now on SIGTERM, SIGINT and SIGHUP only make tw_signals_wanted() true and interrupt system
 * calls (no SA_RESTART). A signal ignored at start, as under nohup(1), stays ignored.
 *
 * second_kills: a signal that comes more than a second after the first has its default effect, for
 * a person who does not want to wait. The delay is needed because timeout(1) sends two signals at
 * once.
 *
 * The calling thread gets the alternate stack. Call this before its first matrix product, and start
 * other threads with all signals blocked. */
void tw_signals_catch(bool second_kills);

/* Whether a signal asked this process to end. */
bool tw_signals_wanted(void);

#endif
