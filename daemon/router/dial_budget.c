#include "daemon/router/dial_budget.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include <arpa/inet.h>

#include "base/address.h"

#define SECOND_US (UINT64_C(1000) * 1000)
#define REST_MIN_US (4 * SECOND_US)
#define REST_MAX_US (3600 * SECOND_US)
#define LOOK_AGAIN_US (SECOND_US / 4) /* pause while a host is being dialled */
#define ASK_AGAIN_US (60 * SECOND_US) /* longest answer: a rest may end sooner */

enum { DIAL_UNITS = 60 }; /* so that a rate of units per second is one of dials per minute */

void tw_dial_budget_init(struct tw_dial_budget *budget, uint64_t now_us) {
    memset(budget, 0, sizeof(*budget));
    tw_rate_init(&budget->all, TW_DIAL_BUDGET_PER_MIN, TW_DIAL_BUDGET_BURST * DIAL_UNITS, now_us);
}

/* ---- hosts --------------------------------------------------------------------------------- */

/* Writes the last two labels of a name in lower case: one owner may make any number of names. */
static void name_key(const char *name, char key[TW_ADDR_BYTES]) {
    size_t end = strlen(name), begin = end;
    unsigned dots = 0;
    while (end > 0 && name[end - 1] == '.') end--;
    for (begin = end; begin > 0; begin--) {
        dots += name[begin - 1] == '.';
        if (dots == 2) break;
    }
    (void)snprintf(key, TW_ADDR_BYTES, "%.*s", (int)(end - begin), name + begin);
    for (char *at = key; *at != '\0'; at++) *at = (char)tolower((unsigned char)*at);
}

static void host_key(const char *address, char key[TW_ADDR_BYTES]) {
    char host[TW_ADDR_BYTES] = "";
    uint16_t port;
    struct in_addr v4;
    struct in6_addr v6;
    (void)tw_address_split(address, host, &port);
    host[strcspn(host, "%")] = '\0';
    const bool is_v6 = inet_pton(AF_INET6, host, &v6) == 1;
    if (is_v6 && IN6_IS_ADDR_V4MAPPED(&v6)) {
        (void)snprintf(key, TW_ADDR_BYTES, "%u.%u.%u.%u", v6.s6_addr[12], v6.s6_addr[13],
                       v6.s6_addr[14], v6.s6_addr[15]);
    } else if (is_v6) {
        memset(&v6.s6_addr[8], 0, 8);
        (void)inet_ntop(AF_INET6, &v6, key, TW_ADDR_BYTES);
    } else if (inet_aton(host, &v4) != 0) { /* also short forms, as the resolver does */
        (void)inet_ntop(AF_INET, &v4, key, TW_ADDR_BYTES);
    } else {
        name_key(host, key);
    }
}

/* Returns the row of a host, which may be new. Returns NULL if all rows have a dial in progress. */
static struct tw_dial_budget_host *host_take(struct tw_dial_budget *budget, const char *address) {
    struct tw_dial_budget_host *oldest = NULL;
    char key[TW_ADDR_BYTES];
    host_key(address, key);
    for (uint32_t i = 0; i < TW_DIAL_BUDGET_HOSTS; i++) {
        struct tw_dial_budget_host *const row = &budget->hosts[i];
        if (row->host[0] != '\0' && strcmp(row->host, key) == 0) return row;
        if (row->dialled[0] != '\0') continue;
        if (oldest == NULL || row->used_us < oldest->used_us) oldest = row;
    }
    if (oldest == NULL) return NULL;
    memset(oldest, 0, sizeof(*oldest));
    memcpy(oldest->host, key, sizeof(oldest->host));
    return oldest;
}

/* ---- dials --------------------------------------------------------------------------------- */

static uint64_t wait_us(struct tw_dial_budget *budget, const struct tw_dial_budget_host *host,
                        uint64_t now_us) {
    if (host == NULL || host->dialled[0] != '\0') return LOOK_AGAIN_US;
    if (host->rest_us > now_us) {
        const uint64_t left_us = host->rest_us - now_us;
        return left_us < ASK_AGAIN_US ? left_us : ASK_AGAIN_US;
    }
    return tw_rate_wait_us(&budget->all, DIAL_UNITS, now_us);
}

uint64_t tw_dial_budget_ask(struct tw_dial_budget *budget, const char *address, uint64_t now_us) {
    struct tw_dial_budget_host *host = host_take(budget, address);
    const uint64_t left_us = wait_us(budget, host, now_us);
    if (left_us > 0) {
        budget->put_off++;
        return left_us;
    }
    tw_rate_spend(&budget->all, DIAL_UNITS, now_us);
    host->used_us = now_us;
    (void)snprintf(host->dialled, sizeof(host->dialled), "%s", address);
    return 0;
}

void tw_dial_budget_ended(struct tw_dial_budget *budget, const char *address, bool ok, bool counts,
                          uint64_t now_us) {
    uint64_t pause_us = REST_MIN_US;
    struct tw_dial_budget_host *host = NULL;
    for (uint32_t i = 0; i < TW_DIAL_BUDGET_HOSTS && host == NULL; i++) {
        if (strcmp(budget->hosts[i].dialled, address) == 0) host = &budget->hosts[i];
    }
    if (host == NULL || host->host[0] == '\0') return;
    host->dialled[0] = '\0';
    if (ok) host->failures = 0;
    if (ok) host->rest_us = 0;
    if (ok || !counts) return;
    host->failures++;
    for (uint32_t i = TW_DIAL_BUDGET_FREE; i < host->failures && pause_us < REST_MAX_US; i++)
        pause_us *= 2;
    if (pause_us > REST_MAX_US) pause_us = REST_MAX_US;
    if (host->failures >= TW_DIAL_BUDGET_FREE) host->rest_us = now_us + pause_us;
}

void tw_dial_budget_forgive(struct tw_dial_budget *budget) {
    for (uint32_t i = 0; i < TW_DIAL_BUDGET_HOSTS; i++) {
        budget->hosts[i].failures = 0;
        budget->hosts[i].rest_us = 0;
    }
}
