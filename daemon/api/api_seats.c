#include "daemon/api/api_seats.h"

#include <stddef.h>

static unsigned count(const struct tw_api_seats *seats, bool is_owner, uint8_t listener) {
    unsigned n = 0;
    for (size_t i = 0; i < TW_API_SEATS_MAX; i++) {
        const struct tw_api_seat *const seat = &seats->seats[i];
        if (!seat->is_taken || seat->is_owner != is_owner) continue;
        if (is_owner || seat->listener == listener) n++;
    }
    return n;
}

int tw_api_seats_take(struct tw_api_seats *seats, bool is_owner, uint8_t listener, int fd,
                      uint64_t deadline_us) {
    const unsigned max = is_owner ? TW_API_OWNERS_MAX : TW_API_GUESTS_MAX;
    if (count(seats, is_owner, listener) >= max) return -1;
    for (int i = 0; i < TW_API_SEATS_MAX; i++) {
        if (seats->seats[i].is_taken) continue;
        seats->seats[i] = (struct tw_api_seat){.is_taken = true,
                                               .is_owner = is_owner,
                                               .listener = listener,
                                               .fd = fd,
                                               .deadline_us = deadline_us};
        return i;
    }
    return -1;
}

int tw_api_seats_hurried(const struct tw_api_seats *seats, uint8_t listener) {
    int found = -1;
    for (int i = 0; i < TW_API_SEATS_MAX; i++) {
        const struct tw_api_seat *const seat = &seats->seats[i];
        if (!seat->is_taken || seat->is_owner || seat->listener != listener) continue;
        if (found < 0 || seat->deadline_us < seats->seats[found].deadline_us) found = i;
    }
    return found;
}

int tw_api_seats_find(const struct tw_api_seats *seats, int fd) {
    for (int i = 0; i < TW_API_SEATS_MAX; i++) {
        if (seats->seats[i].is_taken && seats->seats[i].fd == fd) return i;
    }
    return -1;
}

int tw_api_seats_expired(const struct tw_api_seats *seats, uint64_t now_us) {
    for (int i = 0; i < TW_API_SEATS_MAX; i++) {
        if (seats->seats[i].is_taken && seats->seats[i].deadline_us <= now_us) return i;
    }
    return -1;
}

uint64_t tw_api_seats_deadline(const struct tw_api_seats *seats) {
    uint64_t earliest_us = UINT64_MAX;
    for (int i = 0; i < TW_API_SEATS_MAX; i++) {
        const struct tw_api_seat *const seat = &seats->seats[i];
        if (seat->is_taken && seat->deadline_us < earliest_us) earliest_us = seat->deadline_us;
    }
    return earliest_us;
}

bool tw_api_seats_has_room(const struct tw_api_seats *seats) {
    return count(seats, true, 0) < TW_API_OWNERS_MAX;
}
