#include "tests/system/relay.h"
#include "tests/test.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TURN_MS = 20 };

static struct sockaddr_in loopback(uint16_t port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

/* Closes both sockets with a reset, so the other ends get no orderly close. */
static void pair_break(struct relay_pair *pair) {
    const struct linger now = {.l_onoff = 1};
    for (int i = 0; i < 2; i++) {
        if (pair->fds[i] < 0) continue;
        (void)setsockopt(pair->fds[i], SOL_SOCKET, SO_LINGER, &now, sizeof(now));
        (void)close(pair->fds[i]);
        pair->fds[i] = -1;
        pair->ways[i].begin = pair->ways[i].end = 0;
    }
}

static void pair_accept(struct relay *relay) {
    const struct sockaddr_in to = loopback(relay->to);
    struct relay_pair *pair = NULL;
    const int fd = accept4(relay->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) return;
    for (int i = 0; i < RELAY_PAIRS_MAX && pair == NULL; i++) {
        if (relay->pairs[i].fds[0] < 0) pair = &relay->pairs[i];
    }
    const int out = pair != NULL ? socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
    if (relay->is_cut || out < 0 || connect(out, (const struct sockaddr *)&to, sizeof(to)) != 0) {
        if (out >= 0) (void)close(out);
        (void)close(fd);
        return;
    }
    pair->fds[0] = fd;
    pair->fds[1] = out;
}

/* Does one read or write in each direction. Returns false if an end has closed. */
static bool pair_move(struct relay_pair *pair, const struct pollfd polls[2]) {
    for (int i = 0; i < 2; i++) {
        const uint32_t begin = pair->ways[i].begin, end = pair->ways[i].end;
        if ((polls[i].revents & (POLLERR | POLLNVAL)) != 0) return false;
        if (begin == end && (polls[i].revents & (POLLIN | POLLHUP)) != 0) {
            const ssize_t got =
                recv(pair->fds[i], pair->ways[i].bytes, RELAY_BUFFER_BYTES, MSG_DONTWAIT);
            if (got == 0 || (got < 0 && errno != EAGAIN)) return false;
            pair->ways[i].begin = 0;
            pair->ways[i].end = got > 0 ? (uint32_t)got : 0;
        } else if (begin < end && (polls[1 - i].revents & POLLOUT) != 0) {
            const ssize_t sent = send(pair->fds[1 - i], pair->ways[i].bytes + begin, end - begin,
                                      MSG_DONTWAIT | MSG_NOSIGNAL);
            if (sent < 0 && errno != EAGAIN) return false;
            if (sent > 0) pair->ways[i].begin += (uint32_t)sent;
        }
    }
    return true;
}

static void turn(struct relay *relay) {
    struct pollfd polls[1 + 2 * RELAY_PAIRS_MAX];
    polls[0] = (struct pollfd){.fd = relay->listener, .events = POLLIN};
    for (int p = 0; p < RELAY_PAIRS_MAX; p++) {
        for (int i = 0; i < 2; i++) {
            const struct relay_pair *pair = &relay->pairs[p];
            const bool is_empty = pair->ways[i].begin == pair->ways[i].end;
            const bool has_to_write = pair->ways[1 - i].begin < pair->ways[1 - i].end;
            polls[1 + 2 * p + i] = (struct pollfd){
                .fd = pair->fds[i],
                .events = (short)((is_empty ? POLLIN : 0) | (has_to_write ? POLLOUT : 0))};
        }
    }
    if (poll(polls, 1 + 2 * RELAY_PAIRS_MAX, TURN_MS) <= 0) return;
    for (int p = 0; p < RELAY_PAIRS_MAX; p++) {
        struct relay_pair *pair = &relay->pairs[p];
        if (pair->fds[0] >= 0 && !pair_move(pair, &polls[1 + 2 * p])) pair_break(pair);
    }
    if (polls[0].revents != 0) pair_accept(relay);
}

static void *run(void *user) {
    struct relay *relay = user;
    while (!relay->is_over) {
        for (int p = 0; p < RELAY_PAIRS_MAX && relay->is_cut; p++) pair_break(&relay->pairs[p]);
        turn(relay);
    }
    for (int p = 0; p < RELAY_PAIRS_MAX; p++) pair_break(&relay->pairs[p]);
    return NULL;
}

void relay_open(struct relay *relay, uint16_t to) {
    struct sockaddr_in address = loopback(0);
    socklen_t size = sizeof(address);
    memset(relay, 0, sizeof(*relay));
    relay->to = to;
    for (int p = 0; p < RELAY_PAIRS_MAX; p++) relay->pairs[p].fds[0] = relay->pairs[p].fds[1] = -1;
    relay->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(relay->listener >= 0);
    assert_int_equal(bind(relay->listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(relay->listener, RELAY_PAIRS_MAX), 0);
    assert_int_equal(getsockname(relay->listener, (struct sockaddr *)&address, &size), 0);
    relay->port = ntohs(address.sin_port);
    assert_int_equal(pthread_create(&relay->thread, NULL, run, relay), 0);
}

void relay_cut(struct relay *relay) {
    relay->is_cut = true;
}

void relay_mend(struct relay *relay) {
    relay->is_cut = false;
}

void relay_close(struct relay *relay) {
    relay->is_over = true;
    assert_int_equal(pthread_join(relay->thread, NULL), 0);
    (void)close(relay->listener);
}
