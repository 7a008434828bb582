/* relay.h - a TCP relay on loopback whose connections a test can break. Bytes in transit are
 * then lost, as with a pulled cable or a router that restarts. The relay runs in its own thread. */
#ifndef TW_TESTS_RELAY_H
#define TW_TESTS_RELAY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { RELAY_PAIRS_MAX = 16, RELAY_BUFFER_BYTES = 64 * 1024 };

struct relay_pair {
    int fds[2]; /* sockets of the client and the target; -1: unused */
    struct {
        uint8_t bytes[RELAY_BUFFER_BYTES];
        uint32_t begin, end;
    } ways[2]; /* ways[i]: bytes read from fds[i], not yet written to the other */
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
/* Breaks every connection, now and until relay_mend(). */
void relay_cut(struct relay *relay);
void relay_mend(struct relay *relay);
void relay_close(struct relay *relay);

#endif
