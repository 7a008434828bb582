/* mutants.h - bugs that can be switched on in the library tw_sync_mutants, and only there.
 *
 * Each is one line at the place where a hand might slip. The simulator has to find every one of
 * them: a checker that finds no bug that is there proves nothing about those that are not. */
#ifndef TW_SYNC_MUTANTS_H
#define TW_SYNC_MUTANTS_H

/* X(NAME, name on the command line, what it does) */
#define TW_MUTANT_LIST(X)                                                                          \
    X(DOUBLE_APPLY, "double-apply", "an applied round is not noted, so it is applied again")       \
    X(BALLOT_IGNORED, "ballot-ignored", "proposals below the promised ballot are accepted")        \
    X(STALE_PROMISE, "stale-promise", "ballots below the promised one are promised")               \
    X(WRONG_ROSTER, "wrong-roster", "the roster of the last round decides the next one too")       \
    X(HALF_QUORUM, "half-quorum", "half of the roster counts as a majority")                       \
    X(LOST_ACK, "lost-acknowledgement", "a vote is told before it is on disk")                     \
    X(FORGOTTEN_VOTE, "forgotten-vote", "a restart forgets the vote and keeps the seat")           \
    X(KEPT_NAME, "kept-name", "a restart alone goes on under the old lineage")                     \
    X(OTHER_VALUE, "other-value", "a proposer proposes its own manifest over an accepted one")     \
    X(ABSENT_APPLIED, "absent-applied", "a part without a result is applied like one with")        \
    X(MIX_FOR_SHIFT, "mix-for-shift", "who did not contribute mixes instead of shifting")          \
    X(TOKENS_TWICE, "tokens-twice", "listed tokens are offered again in the next round")           \
    X(ONE_MARK, "one-mark", "what is listed of one fragment counts as sent of all")                \
    X(LISTED_TWICE, "listed-twice", "who is in two parts is listed twice as a contributor")        \
    X(UNVERIFIED, "unverified", "a payload is used as soon as its last chunk came")                \
    X(EARLY_JOIN, "early-join", "a follower asks to join before it holds the state")               \
    X(ROUNDS_COMPARED, "rounds-compared", "lineages are compared by rounds, not by clock")         \
    X(SMALLER_CLOCK, "smaller-clock", "the lineage with the smaller clock wins")                   \
    X(BORROWED_CLOCK, "borrowed-clock", "a child counts rounds that its weights do not have")      \
    X(HALF_A_STATE, "half-a-state", "who gives up in a transfer goes on with what came of it")     \
    X(EARLY_FINISH, "early-finish", "the run ends at half of its budget")                          \
    X(INSANE_TAKEN, "insane-taken", "results that the worker finds insane are voted for")          \
    X(FREED_EARLY, "freed-early", "who has not promised counts as one that accepted nothing")      \
    X(ACCUSER_BELIEVED, "accuser-believed", "who is accused of a false merge is struck unheard")   \
    X(STUCK_DEADLINE, "stuck-deadline", "the heartbeat's deadline is never moved on")

/* The same for runs in pairs. */
#define TW_MUTANT_PAIR_LIST(X)                                                                     \
    X(SILENT_LEAVE, "silent-leave", "who leaves an exchange does not say so")                      \
    X(FREE_LIFT, "free-lift", "a partner lifts the clock without a bound")                         \
    X(OTHER_FRAGMENT, "other-fragment", "who accepts brings the fragment it would ask for")        \
    X(OLD_NAME, "old-name", "the second one asked in a round gets the name for the first")         \
    X(UNCOUNTED, "uncounted", "a partner that leaves after the own step is not counted")           \
    X(NO_DEADLINE, "no-deadline", "the answer to a request is waited for without end")             \
    X(LEFT_BEHIND, "left-behind", "who is far behind does not take over another's state")

enum tw_mutant {
    TW_MUTANT_NONE,
#define X(name, text, what) TW_MUTANT_##name,
    TW_MUTANT_LIST(X) TW_MUTANT_PAIR_LIST(X)
#undef X
        TW_MUTANTS_COUNT
};

#endif
