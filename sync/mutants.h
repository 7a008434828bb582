/* mutants.h - deliberate bugs that can be switched on, only in the library tw_sync_mutants.
 *
 * Each mutant changes one line, at a place where a slip is likely. The simulator must find every
 * one: checkers that miss a mutant prove nothing about real bugs. */
#ifndef TW_SYNC_MUTANTS_H
#define TW_SYNC_MUTANTS_H

/* X(NAME, name on the command line, effect) */
#define TW_MUTANT_LIST(X)                                                                          \
    X(DOUBLE_APPLY, "double-apply", "an applied round is not noted, so it is applied again")       \
    X(BALLOT_IGNORED, "ballot-ignored", "proposals below the promised ballot are accepted")        \
    X(STALE_PROMISE, "stale-promise", "ballots below the promised one are promised")               \
    X(WRONG_ROSTER, "wrong-roster", "the roster of the last round decides the next one too")       \
    X(HALF_QUORUM, "half-quorum", "half of the roster counts as a majority")                       \
    X(LOST_ACK, "lost-acknowledgement", "a vote is sent before it is on disk")                     \
    X(FORGOTTEN_VOTE, "forgotten-vote", "a restart forgets the vote and keeps the seat")           \
    X(KEPT_NAME, "kept-name", "a restart alone goes on under the old lineage")                     \
    X(OTHER_VALUE, "other-value", "a proposer proposes its own record over a lock")                \
    X(ABSENT_APPLIED, "absent-applied", "a part without a result is applied like one with")        \
    X(MIX_FOR_SHIFT, "mix-for-shift", "a node that did not contribute mixes, not shifts")          \
    X(TOKENS_TWICE, "tokens-twice", "listed tokens are offered again in the next round")           \
    X(ONE_MARK, "one-mark", "a listing of one fragment counts as sent for all")                    \
    X(LISTED_TWICE, "listed-twice", "a contributor to two parts is listed twice")                  \
    X(UNVERIFIED, "unverified", "a payload is used as soon as its last chunk came")                \
    X(EARLY_JOIN, "early-join", "a follower asks to join before it holds the state")               \
    X(ROUNDS_COMPARED, "rounds-compared", "lineages are compared by rounds, not by clock")         \
    X(SMALLER_CLOCK, "smaller-clock", "the lineage with the smaller clock wins")                   \
    X(STEPS_IGNORED, "steps-ignored", "at clock zero the smaller id wins, not the trained one")    \
    X(CLAIM_BELIEVED, "claim-believed", "a lineage is followed on the word of one node")           \
    X(BORROWED_CLOCK, "borrowed-clock", "a child counts rounds that its weights do not have")      \
    X(DONOR_BELIEVED, "donor-believed", "a state is loaded on the word of one node")               \
    X(ANY_END, "any-end", "a donor of the final model is believed without the closing record")     \
    X(HALF_A_STATE, "half-a-state", "a node that gives up a transfer keeps half of it")            \
    X(EARLY_FINISH, "early-finish", "the run ends at half of its budget")                          \
    X(INSANE_TAKEN, "insane-taken", "results that the worker finds out of line are voted for")     \
    X(LOCK_HIDDEN, "lock-hidden", "a promise does not report the lock")                            \
    X(ACCUSER_BELIEVED, "accuser-believed",                                                        \
      "a member accused of a false merge is struck without audit")                                 \
    X(SIZE_PROVES, "size-proves", "a result left out for its size proves its owner false")         \
    X(ONE_DOUBT, "one-doubt", "one low score of its training convicts a member")                   \
    X(STUCK_DEADLINE, "stuck-deadline", "the heartbeat's deadline is never moved on")              \
    X(BEHIND_DECIDES, "behind-decides", "voters that lack the state count as able to decide")      \
    X(CREW_MIXES, "crew-mixes", "a hand mixes whenever the record lists its head")                 \
    X(CREW_TWICE, "crew-twice", "a hand offers tokens again that its head listed")                 \
    X(CREW_PADDED, "crew-padded", "a head lists work that its worker left out")

/* More mutants, found in simulated worlds where some nodes have no path to each other. */
#define TW_MUTANT_HOMES_LIST(X)                                                                    \
    X(UNLINKED_IS_DEAD, "unlinked-is-dead", "a member without a link to this node counts as dead") \
    X(UNREACHED_OWNER, "unreached-owner", "owners are chosen whom contributors cannot reach")

/* More mutants, found in simulated worlds with traitors: members that lie. */
#define TW_MUTANT_TRAITORS_LIST(X)                                                                 \
    X(UNPROVEN_COMMIT, "unproven-commit", "a record is committed without a look at its proof")     \
    X(TWO_VOTES, "two-votes", "a proof may hold two votes of one member")                          \
    X(PHASE_IGNORED, "phase-ignored", "votes of phase 1 prove that a round is decided")            \
    X(LOCK_IGNORED, "lock-ignored", "a proposal need not carry on the lock in its promises")       \
    X(PROMISES_UNCHECKED, "promises-unchecked", "a proposal needs no promises")                    \
    X(ROW_UNSIGNED, "row-unsigned", "the signatures of contributors are not checked")              \
    X(SECOND_VOTE, "second-vote", "a member votes for two records of one ballot")                  \
    X(ANY_COMPANY, "any-company", "any next roster is voted for")                                  \
    X(STRANGERS_KNOWN, "strangers-known", "a node is known if one member says so")                 \
    X(ANY_BASE, "any-base", "a record with any base is voted for")                                 \
    X(ONE_LOG, "one-log", "a member believes one other that it is too far behind")                 \
    X(ALL_VOTE, "all-vote", "votes of members without a vote count in proofs")                     \
    X(VOTE_GIVEN, "vote-given", "any proposer gives any member a vote")                            \
    X(VOTES_AT_ONCE, "votes-at-once", "without certificates, a member votes once it has a seat")

/* More mutants, found in simulated runs in pairs. */
#define TW_MUTANT_PAIR_LIST(X)                                                                     \
    X(SILENT_LEAVE, "silent-leave", "a node that leaves an exchange does not send PAIR_BUSY")      \
    X(FREE_LIFT, "free-lift", "a partner lifts the clock without a bound")                         \
    X(OTHER_FRAGMENT, "other-fragment", "the accepting node brings the fragment it would ask for") \
    X(OLD_NAME, "old-name", "the second node asked in a round gets the first one's name")          \
    X(UNCOUNTED, "uncounted", "a partner that leaves after the own step is not counted")           \
    X(NO_DEADLINE, "no-deadline", "the answer to a request is waited for without end")             \
    X(LEFT_BEHIND, "left-behind", "a node that is far behind does not take over a state")

enum tw_mutant {
    TW_MUTANT_NONE,
#define X(name, text, what) TW_MUTANT_##name,
    TW_MUTANT_LIST(X) TW_MUTANT_HOMES_LIST(X) TW_MUTANT_TRAITORS_LIST(X) TW_MUTANT_PAIR_LIST(X)
#undef X
        TW_MUTANTS_COUNT
};

#endif
