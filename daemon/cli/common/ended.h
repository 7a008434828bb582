/* ended.h - waits until a daemon's process has ended, which is later than its last answer. */
#ifndef TW_DAEMON_CLI_COMMON_ENDED_H
#define TW_DAEMON_CLI_COMMON_ENDED_H

/* Opens the process that listens on the socket, as a descriptor that becomes readable when it ends.
 * -1: unknown (a daemon in another PID namespace, or a kernel before 5.3). */
int ended_open(const char *socket_path);

/* Waits without a limit, because the daemon itself ends when its saving makes no progress. Ctrl-C
 * ends only the waiting. */
void ended_wait(int process);

/* On a terminal, after two seconds: shows how long the daemon has been leaving. 0 removes the
 * line. */
void ended_say(unsigned waited_s);

#endif
