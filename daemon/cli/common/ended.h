/* ended.h - waits until the process of a daemon has ended, which is later than its last answer. */
#ifndef TW_DAEMON_CLI_COMMON_ENDED_H
#define TW_DAEMON_CLI_COMMON_ENDED_H

/* The process that listens on the socket, as a descriptor that becomes readable when it has ended;
 * -1 where that cannot be known (a daemon in another PID namespace, a kernel before 5.3). */
int ended_open(const char *socket_path);

/* As long as it takes: the daemon itself ends when nothing moves any more, and who does not want to
 * wait interrupts this, which changes nothing there. */
void ended_wait(int process);

/* On a terminal, from two seconds on: how long it has been leaving. 0 takes the line away. */
void ended_say(unsigned waited_s);

#endif
