/* relay.h - a TCP relay on loopback that a test can cut: bytes on their way are lost, as with a
 * pulled cable or a router that restarts. One thread. */
#ifndef TW_TESTS_RELAY_H
#define TW_TESTS_RELAY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { RELAY_PAIRS_MAX = 16, RELAY_BUFFER_BYTES = 64 * 1024 };

struct relay_pair {
    int fds[2]; /* the client and the target; -1: free */
    struct {
        uint8_t bytes[RELAY_BUFFER_BYTES];
        uint32_t begin, end;
    } ways[2]; /* ways[i]: read from fds[i], not yet written to the other socket */
};

struct relay {
    uint16_t port, to;
    int listener;
    pthread_t thread;
    atomic_bool is_cut, is_over;
    struct relay_pair pairs[RELAY_PAIRS_MAX];
};

/* Listens on a free port of 127.0.0.1 (relay->port) and carries to port `to`. */
void relay_open(struct relay *relay, uint16_t to);
/* Breaks every connection at once, and lets none through until relay_mend(). */
void relay_cut(struct relay *relay);
void relay_mend(struct relay *relay);
void relay_close(struct relay *relay);

#endif
