/* dial.h - one dial: why it failed, the race between the addresses of a name, and the dials to
 * one node so far. */
#ifndef TW_DAEMON_NET_DIAL_H
#define TW_DAEMON_NET_DIAL_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/status.h"

/* ==== why a dial failed ======================================================================= */

/* Why a link did not come up, and the remedy. The log, `status`, `peers`, `join`
 * and `doctor` share this list of causes and this form of sentence:
 *
 *     ADDRESS: what happened (detail); what to do */

/* Causes of a failed dial. The numbers may change, as they are neither stored nor sent. JSON shows
 * the names. */
enum tw_dial_cause {
    TW_DIAL_NONE,      /* no failure, or only a detail to show */
    TW_DIAL_DNS,       /* the name has no address */
    TW_DIAL_CLOSED,    /* connection refused: nothing listens on the port */
    TW_DIAL_REJECTED,  /* another machine answers that this one cannot be reached: it is off, or a
                          firewall rejects the dial */
    TW_DIAL_SILENT,    /* no answer at all: packets are dropped, or the machine is off */
    TW_DIAL_NO_ROUTE,  /* this machine has no route to the address */
    TW_DIAL_OFFLINE,   /* this machine has no line at all */
    TW_DIAL_FORBIDDEN, /* this machine's own firewall */
    TW_DIAL_PRIVATE,   /* no answer, and the address belongs to a private network: NAT */
    TW_DIAL_STALLED,   /* TCP connects, then nothing arrives */
    TW_DIAL_BROKEN,    /* the connection ended during the handshake without GOODBYE */
    TW_DIAL_NOT_THINWIRE,
    TW_DIAL_WRONG_ID, /* WRONG_ID to CLOCK are refusals, which only a person can resolve */
    TW_DIAL_TWIN,     /* the dialled node has a link to another machine with this node's key */
    TW_DIAL_VERSION,
    TW_DIAL_OTHER_RUN,
    TW_DIAL_WRONG_SECRET,
    TW_DIAL_TICKET_UNKNOWN,
    TW_DIAL_TICKET_EXPIRED,
    TW_DIAL_TICKET_USED,
    TW_DIAL_NOT_ADMITTED, /* no valid certificate of the run's owner */
    TW_DIAL_REVOKED,
    TW_DIAL_BANNED, /* temporary: this node broke the protocol too often */
    TW_DIAL_CLOCK,  /* a certificate or ticket has a date that only a wrong clock explains */
    TW_DIAL_SELF,
    TW_DIAL_BUSY,
    TW_DIAL_NAT, /* neither of the two nodes can be dialled */
    TW_DIAL_CAUSES,
};

/* Returns the cause of a connect that failed with `code` after `took_us`. `code` is an errno, or
 * its negative as in libuv. `remote` (or NULL) is the struct sockaddr that was dialled. */
enum tw_dial_cause tw_dial_cause_of_errno(int code, uint64_t took_us, const void *remote);

/* Returns the cause of a connect to `remote` (or NULL) that timed out: TW_DIAL_SILENT or
 * TW_DIAL_PRIVATE. */
enum tw_dial_cause tw_dial_cause_of_silence(const void *remote);

/* Returns true if the lack of a line at this machine may be behind that cause. */
bool tw_dial_may_be_offline(enum tw_dial_cause cause);

/* Returns the cause for a status that ended a dial after TCP connected. This node found the status,
 * or received it in GOODBYE. */
enum tw_dial_cause tw_dial_cause_of_status(enum tw_status status);

/* Returns true if the other node refused this one. Only a person can change that. */
bool tw_dial_is_refusal(enum tw_dial_cause cause);

/* Returns the name used in JSON, such as "wrong_secret". Static storage. */
const char *tw_dial_cause_name(enum tw_dial_cause cause);

/* Writes the whole sentence to `text`. `detail` ("" or NULL if none) is truncated if it does not
 * fit; the advice never is. */
enum { TW_DIAL_SENTENCE_BYTES = 256 };
void tw_dial_sentence(enum tw_dial_cause cause, const char *address, const char *detail,
                      char text[TW_DIAL_SENTENCE_BYTES]);

/* ==== the race ================================================================================ */

/* From "host:port" to a connected socket: name lookup, then a race of the addresses.
 *
 * A name may have several addresses, and only a try shows which of them work. An IPv6 address
 * without a working route swallows packets until TCP gives up. The addresses are therefore tried in
 * turn, IPv6 first, then alternating families (happy eyeballs, RFC 8305). Each starts
 * TW_DIAL_STAGGER_US after the one before, or as soon as that one failed. The first one that
 * connects is used. */

enum { TW_DIAL_CANDIDATES_MAX = 4 };

/* The addresses of a name, in the order in which they are tried. */
struct tw_lookup {
    uv_getaddrinfo_t request;
    bool is_busy, is_done;
    struct tw_error error; /* reason, if the lookup ended without an address */
    uint32_t count;
    struct sockaddr_storage candidates[TW_DIAL_CANDIDATES_MAX];
    void (*done)(struct tw_lookup *lookup); /* called on the event loop */
};

/* Starts a lookup. An IP address needs none: is_done is set at once and `done` is not called.
 * Otherwise `done` is always called later, even after a cancel, and the memory must stay valid
 * until then. Returns TW_CONFIG if `address` is not host:port. */
enum tw_status tw_lookup_start(struct tw_lookup *lookup, uv_loop_t *loop, const char *address,
                               void (*done)(struct tw_lookup *lookup), struct tw_error *err);

/* Fills `lookup` with the IP addresses among `addresses`, IPv6 first, and looks up no name.
 * `addresses` has one host:port per entry, "" after the last. Returns false if there is no IP
 * address. */
bool tw_lookup_literals(struct tw_lookup *lookup,
                        const char addresses[TW_ADDRS_MAX][TW_ADDR_BYTES]);

/* Cancels a queued lookup, so that `done` is called soon. One that is already running cannot be
 * cancelled. */
void tw_lookup_cancel(struct tw_lookup *lookup);

/* Writes up to `capacity` of the addresses in `found` to `out`, in the order of the race: IPv6
 * first, then alternating families, each in the resolver's order. Returns their number. */
uint32_t tw_dial_order(const struct addrinfo *found, struct sockaddr_storage *out,
                       uint32_t capacity);

enum tw_racer_state { TW_RACER_WAITING, TW_RACER_RUNNING, TW_RACER_FAILED };

/* Decides when to try which address. Pure. The caller zeroes it, then sets `count`. */
struct tw_race {
    uint32_t count;
    enum tw_racer_state racers[TW_DIAL_CANDIDATES_MAX];
    uint64_t next_us; /* earliest start of another candidate */
    bool is_decided; /* a candidate has connected: no other one starts while its connection lives */
    uint32_t rank;   /* rank of the most informative failure; 0: none yet */
    enum tw_dial_cause cause;
    struct tw_error error;
};

/* Marks the candidate to start now as running and returns its index, or -1 if none is due. */
int tw_race_next(struct tw_race *race, uint64_t now_us);

/* Records that the candidate connected. Other running candidates are dropped and wait again, in
 * case this one fails later. */
void tw_race_connected(struct tw_race *race, uint32_t idx);

/* Records that the candidate failed, before or after it connected. The next candidate is due at
 * once. */
void tw_race_failed(struct tw_race *race, uint32_t idx, enum tw_dial_cause cause,
                    const struct tw_error *why);

/* Returns true if no candidate is running or left to try. */
bool tw_race_is_over(const struct tw_race *race);

/* Returns the time when tw_race_next may return a candidate, or UINT64_MAX if that needs another
 * event first. */
uint64_t tw_race_deadline(const struct tw_race *race);

/* ==== the dials so far ======================================================================== */

/* Result of the newest dial to each address, shown in `status`, `peers` and the
 * log.
 *
 * Configured addresses have their own rows. Other addresses come from gossip, which may invent any
 * number; the last TW_DIAL_HISTORY_OTHERS are kept. A new failure is logged at once. Repeated
 * failures, and failures that displaced another address, share one log line in ten seconds.
 *
 * Pure: the caller passes results and time. */

enum {
    TW_DIAL_HISTORY_CONFIGURED = 32,
    TW_DIAL_HISTORY_OTHERS = TW_PEERS_MAX,
    TW_DIAL_HISTORY_ROWS = TW_DIAL_HISTORY_CONFIGURED + TW_DIAL_HISTORY_OTHERS,
    TW_DIAL_HISTORY_LINE_US = 10 * 1000 * 1000,
};

struct tw_dial_row {
    char address[TW_ADDR_BYTES];
    char sentence[TW_DIAL_SENTENCE_BYTES]; /* why the dial failed; "" if it did not fail */
    enum tw_dial_cause cause;
    struct tw_id other; /* node that answered instead of the expected one; zero if none */
    uint64_t failed_us;
    uint32_t failures; /* consecutive failures */
    uint32_t alike;    /* the last of them that have the same cause */
};

struct tw_dial_history {
    uint32_t configured_count, others_next;
    struct tw_dial_row rows[TW_DIAL_HISTORY_ROWS]; /* configured addresses first */
    struct tw_log_limit limit;
};

/* Adds a configured address. The first TW_DIAL_HISTORY_CONFIGURED have their own rows. A zeroed
 * history is empty. */
void tw_dial_history_configure(struct tw_dial_history *history, const char *address);

/* Returns true if the address is configured and has its own row. */
bool tw_dial_history_is_configured(const struct tw_dial_history *history, const char *address);

/* Returns NULL if the address is unknown. */
const struct tw_dial_row *tw_dial_history_find(const struct tw_dial_history *history,
                                               const char *address);

/* Cause of a failed dial, with the sentence for people. */
struct tw_dial_failure {
    enum tw_dial_cause cause;
    const char *sentence;
    const struct tw_id *other; /* node that answered instead of the expected one; or NULL */
};

/* Records a failure. Returns true if it is to be logged. The line then adds that *held_back lines
 * were suppressed before it. */
bool tw_dial_history_failed(struct tw_dial_history *history, const char *address,
                            const struct tw_dial_failure *failure, uint64_t now_us,
                            uint64_t *held_back);

/* Returns true if the newest failure of the address is worth an event: the first of its cause, the
 * tenth, the hundredth and so on. */
bool tw_dial_history_is_event(const struct tw_dial_history *history, const char *address);

/* Records that the address leads to the expected node. */
void tw_dial_history_worked(struct tw_dial_history *history, const char *address);

#endif
