/* ended.h - waits until a daemon's process has ended, which happens after its last answer. */
#ifndef TW_DAEMON_CLI_COMMON_ENDED_H
#define TW_DAEMON_CLI_COMMON_ENDED_H

/* Returns a descriptor of the process that listens on the socket, which becomes readable when the
 * process ends. Returns -1 if that is not possible: a daemon in another PID namespace, or a kernel
 * before 5.3. */
int ended_open(const char *socket_path);

/* Waits without a limit, because a daemon whose save makes no progress ends itself. Ctrl-C ends
 * only the wait. */
void ended_wait(int process);

/* On a terminal, after two seconds, shows for how long the daemon has been stopping. 0 removes that
 * line. */
void ended_say(unsigned waited_s);

#endif
