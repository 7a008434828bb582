/* api_seats.h - how many clients the local API serves at a time, which client makes room, and how
 * long each client may take. Each client has one seat. Pure: no socket, no clock.
 *
 * Root and the daemon's user (owners) have seats of their own, so other clients (guests) cannot
 * lock an owner out, however many they are. If all guest seats of a listener are taken, a new guest
 * replaces the one with the least time left. Owners wait in the listening queue instead. */
#ifndef TW_DAEMON_API_API_SEATS_H
#define TW_DAEMON_API_API_SEATS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    TW_API_LISTENERS_MAX = 3, /* Unix socket, loopback TCP and page */
    TW_API_OWNERS_MAX = 16,
    TW_API_GUESTS_MAX = 16, /* for each listener */
    TW_API_SEATS_MAX = TW_API_OWNERS_MAX + TW_API_LISTENERS_MAX * TW_API_GUESTS_MAX,
};

struct tw_api_seat {
    bool is_taken, is_owner;
    uint8_t listener;
    int fd;
    uint64_t deadline_us; /* time at which the client is disconnected; UINT64_MAX while it waits for
                             the daemon's answer */
};

struct tw_api_seats {
    struct tw_api_seat seats[TW_API_SEATS_MAX];
};

/* Gives a new client a seat. Returns its index, or -1 if a guest must make room first or every
 * owner's seat is taken. */
int tw_api_seats_take(struct tw_api_seats *seats, bool is_owner, uint8_t listener, int fd,
                      uint64_t deadline_us);

/* Returns the index of the guest of `listener` with the least time left, or -1 if there is no
 * guest. */
int tw_api_seats_hurried(const struct tw_api_seats *seats, uint8_t listener);

/* Returns the index of the seat with this descriptor, or -1 if there is none. */
int tw_api_seats_find(const struct tw_api_seats *seats, int fd);

/* Returns the index of a seat whose deadline has passed at `now_us`, or -1 if there is none. */
int tw_api_seats_expired(const struct tw_api_seats *seats, uint64_t now_us);

/* Returns the earliest deadline of all seats, or UINT64_MAX if no seat is taken. */
uint64_t tw_api_seats_deadline(const struct tw_api_seats *seats);

/* Returns whether a seat is free for an owner. */
bool tw_api_seats_has_room(const struct tw_api_seats *seats);

#endif
