/* api_seats.h - how many clients the local API serves at a time, which client makes room, and how
 * long each client may take. A seat is the place of one client. Pure: no socket, no clock.
 *
 * Root and the daemon's user (owners) have seats of their own. So no number of other clients
 * (guests) shuts an owner out. A guest that finds all seats of its listener taken gets the seat of
 * the guest with the least time left. Owners wait in the listening queue instead. */
#ifndef TW_DAEMON_API_API_SEATS_H
#define TW_DAEMON_API_API_SEATS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    TW_API_LISTENERS_MAX = 3, /* the Unix socket; loopback TCP and the page when configured */
    TW_API_OWNERS_MAX = 16,
    TW_API_GUESTS_MAX = 16, /* per listener */
    TW_API_SEATS_MAX = TW_API_OWNERS_MAX + TW_API_LISTENERS_MAX * TW_API_GUESTS_MAX,
};

struct tw_api_seat {
    bool is_taken, is_owner;
    uint8_t listener;
    int fd;
    uint64_t deadline_us; /* time at which the client is cut off; UINT64_MAX: it waits for the
                             daemon, without a limit */
};

struct tw_api_seats {
    struct tw_api_seat seats[TW_API_SEATS_MAX];
};

/* Index of the seat that a new client gets; -1: a guest must make room first, or every seat of the
 * owners is taken. */
int tw_api_seats_take(struct tw_api_seats *seats, bool is_owner, uint8_t listener, int fd,
                      uint64_t deadline_us);

/* Index of the guest of `listener` with the least time left; -1: there is none. */
int tw_api_seats_hurried(const struct tw_api_seats *seats, uint8_t listener);

/* Index of the seat with this descriptor; -1: there is none. */
int tw_api_seats_find(const struct tw_api_seats *seats, int fd);

/* Index of a seat whose time is over at `now_us`; -1: there is none. */
int tw_api_seats_expired(const struct tw_api_seats *seats, uint64_t now_us);

/* Earliest deadline of all seats; UINT64_MAX: none. */
uint64_t tw_api_seats_deadline(const struct tw_api_seats *seats);

/* Whether an owner who came now would find a seat. */
bool tw_api_seats_has_room(const struct tw_api_seats *seats);

#endif
