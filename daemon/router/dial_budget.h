/* dial_budget.h - how often this node dials addresses that other nodes told and no dial has proved.
 *
 * Anybody with the run secret can announce addresses of hosts that run no node. Node ids are free,
 * so the budget is per target host (an IPv4 address, the /64 of an IPv6 address, the last two
 * labels of a name), for all ids and ports together:
 *
 *   - one dial of a host is in progress at a time;
 *   - after TW_DIAL_BUDGET_FREE failed dials in a row the host rests: 4 s, doubling to an hour with
 *     each further one. A node that is found there ends the rest;
 *   - TW_DIAL_BUDGET_PER_MIN dials a minute of all hosts together, TW_DIAL_BUDGET_BURST at once.
 *
 * Several nodes may share one host behind a router: they are dialled in turn, and none is banned.
 * Configured and proven addresses are not limited. Pure: the caller passes the time. */
#ifndef TW_DAEMON_ROUTER_DIAL_BUDGET_H
#define TW_DAEMON_ROUTER_DIAL_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/rate.h"

enum {
    TW_DIAL_BUDGET_HOSTS = 256, /* hosts that are remembered; then the oldest is forgotten */
    TW_DIAL_BUDGET_FREE = 8,
    TW_DIAL_BUDGET_PER_MIN = 60,
    TW_DIAL_BUDGET_BURST = 64,
};

struct tw_dial_budget_host {
    char host[TW_ADDR_BYTES];    /* empty: a free row */
    char dialled[TW_ADDR_BYTES]; /* address being dialled, or "" */
    uint32_t failures;           /* failed dials in a row */
    uint64_t rest_us;            /* the host rests until then */
    uint64_t used_us;            /* time of the last dial */
};

struct tw_dial_budget {
    struct tw_rate all; /* 60 units a dial */
    struct tw_dial_budget_host hosts[TW_DIAL_BUDGET_HOSTS];
    uint64_t put_off; /* dials that had to wait, since the start */
};

void tw_dial_budget_init(struct tw_dial_budget *budget, uint64_t now_us);

/* Returns 0 and notes the dial if this address may be dialled now. Otherwise returns a time after
 * which it may be asked again, in us. */
uint64_t tw_dial_budget_ask(struct tw_dial_budget *budget, const char *address, uint64_t now_us);

/* Reports the end of a dial. `counts` is false if a failure says nothing about the host, because
 * this node itself may be offline. Ignores addresses whose dial was not noted. */
void tw_dial_budget_ended(struct tw_dial_budget *budget, const char *address, bool ok, bool counts,
                          uint64_t now_us);

/* Ends all rests: this machine has another address. */
void tw_dial_budget_forgive(struct tw_dial_budget *budget);

#endif
