/* exit_codes.h - exit statuses shared by thinwire, thinwired, thinwire-engine and thinwire-worker.
 *
 * `thinwire help exit-codes` prints the list. Values are stable: scripts and unit files depend on
 * them. */
#ifndef TW_BASE_EXIT_CODES_H
#define TW_BASE_EXIT_CODES_H

/* X(name, value, meaning) */
#define TW_EXIT_LIST(X)                                                                            \
    X(OK, 0, "success")                                                                            \
    X(FAILURE, 1, "any other failure; the message explains it")                                    \
    X(USAGE, 2, "bad command line or configuration file")                                          \
    X(MANIFEST, 3, "run manifest missing, malformed, or another run's")                            \
    X(DATA, 4, "training text missing, unreadable, or not the one the manifest names")             \
    X(STATE_DIR, 5, "state directory missing, unwritable, or in use by another daemon")            \
    X(PORT, 6, "a listening address or socket is in use or not ours")                              \
    X(IDENTITY, 7,                                                                                 \
      "identity key, run secret or certificate missing, invalid, or readable by others")           \
    X(UNREACHABLE, 8, "the daemon does not answer on its socket, or refused")                      \
    X(CORRUPT, 9, "stored state (checkpoint, vote, cache) is damaged")                             \
    X(JOIN, 10, "no node of the run could be reached, or it turned this machine away")             \
    X(DEVICE, 11, "the compute device is not there, failed, or refused")                           \
    X(NO_DAEMON, 12, "a worker that is started with its daemon found none")                        \
    X(INTERRUPTED, 130, "stopped by a signal; the output is incomplete")

enum tw_exit {
#define X(name, value, meaning) TW_EXIT_##name = (value),
    TW_EXIT_LIST(X)
#undef X
};

#endif
