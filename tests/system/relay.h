/* relay.h - a TCP relay on loopback that a test can cut: what it carries is lost, as when a cable
 * is pulled or a router starts anew. One thread. */
#ifndef TW_TESTS_RELAY_H
#define TW_TESTS_RELAY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { RELAY_PAIRS_MAX = 16, RELAY_BUFFER_BYTES = 64 * 1024 };

struct relay_pair {
    int fds[2]; /* who came, where it goes to; -1: free */
    struct {
        uint8_t bytes[RELAY_BUFFER_BYTES];
        uint32_t begin, end;
    } ways[2]; /* ways[i]: read from fds[i], not yet written to the other */
};

struct relay {
    uint16_t port, to;
    int listener;
    pthread_t thread;
    atomic_bool is_cut, is_over;
    struct relay_pair pairs[RELAY_PAIRS_MAX];
};

/* Listens on relay->port of 127.0.0.1 (chosen free) and carries to port `to`. */
void relay_open(struct relay *relay, uint16_t to);
/* Every connection breaks at once; until relay_mend() nobody gets through. */
void relay_cut(struct relay *relay);
void relay_mend(struct relay *relay);
void relay_close(struct relay *relay);

#endif
