/* status.h - status codes, and an error: a code and a sentence that tells the user how to act. */
#ifndef TW_BASE_STATUS_H
#define TW_BASE_STATUS_H

#define TW_NODISCARD __attribute__((warn_unused_result))
#define TW_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))

/* X(name, value, meaning). Values are stable: they appear in logs, on the wire and in exit codes.
 */
#define TW_STATUS_LIST(X)                                                                          \
    X(OK, 0, "success")                                                                            \
    X(AGAIN, 1, "not now: retry after the next event")                                             \
    X(NOMEM, 10, "allocation failed during start-up")                                              \
    X(LIMIT, 11, "a bound of limits.h was reached")                                                \
    X(IO, 20, "the operating system refused")                                                      \
    X(TLS, 21, "handshake or record failure")                                                      \
    X(DEVICE, 22, "the compute device refused")                                                    \
    X(PROTO, 30, "peer sent bytes that break PROTOCOL.md")                                         \
    X(VERSION, 31, "peer speaks no common version")                                                \
    X(CORRUPT, 32, "checksum mismatch or non-finite numbers")                                      \
    X(DENIED, 33, "wrong run, wrong secret or wrong identity")                                     \
    X(CONFIG, 40, "bad configuration, manifest or argument")                                       \
    X(DATA, 41, "training data missing or unusable")                                               \
    X(OTHER_RUN, 50, "the other node is in another run")                                           \
    X(WRONG_SECRET, 51, "the two nodes hold different run secrets")                                \
    X(WRONG_ID, 52, "another node answered instead of the expected one")                           \
    X(TICKET_UNKNOWN, 53, "the ticket was not made here, or was revoked")                          \
    X(TICKET_EXPIRED, 54, "the ticket has expired")                                                \
    X(TICKET_USED, 55, "all uses of the ticket are spent")                                         \
    X(NOT_ADMITTED, 56, "no valid certificate of the run's owner")                                 \
    X(REVOKED, 57, "the run's owner revoked the node")                                             \
    X(BAD_CLOCK, 58, "the clocks of the two nodes are too far apart")                              \
    X(SELF, 59, "the address leads back to the node that dials it")                                \
    X(BANNED, 60, "the node broke the protocol too often and is banned for a while")               \
    X(TWIN, 61, "another machine with the same key is linked")

enum tw_status {
#define X(name, value, meaning) TW_##name = (value),
    TW_STATUS_LIST(X)
#undef X
};

/* Why a call failed, as text for people. Owned by the caller; every function accepts NULL instead.
 */
struct tw_error {
    enum tw_status status;
    char message[256];
};

/* Fills *err (if not NULL) and returns `status`, so that reporting a failure is one line. */
enum tw_status tw_fail(struct tw_error *err, enum tw_status status, const char *fmt, ...)
    TW_PRINTF(3, 4);

/* The name ("PROTO", "OK", ...) and the meaning of a status. Static storage; never NULL. */
const char *tw_status_name(enum tw_status status);
const char *tw_status_meaning(enum tw_status status);

/* Returns from the calling function if `expr` fails. Use only if there is nothing to clean up. */
#define TW_TRY(expr)                                                                               \
    do {                                                                                           \
        const enum tw_status tw_try_status = (expr);                                               \
        if (tw_try_status != TW_OK) return tw_try_status;                                          \
    } while (0)

#endif
