/* live.c - a daemon that lies: thinwired with a traitor between its core and its links.
 *
 * The program is linked from the objects of thinwired. The linker replaces tw_node_event and
 * tw_daemon_send by the two functions below (--wrap), so the daemon's code is unchanged.
 * TW_TRAITOR_SEED is the seed of its lies. TW_TRAITOR_LIES lists them, such as "split,votes"; if it
 * is not set, the seed draws them. One more lie, "twice", exists in this file only: each vote of
 * phase 1 is followed by a vote for another record in the same ballot. The traitor is honest until
 * TW_TRAITOR_MEMBERS nodes are one group, and lies from then on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "daemon/node/runtime.h"
#include "sync/core/state.h"
#include "sync/node.h"
#include "tests/traitor/coven.h"

enum { LATE_MAX = 64, SPEAK_US = 300 * 1000, LATE_US = 3 * 1000 * 1000, ROUNDS_BEFORE = 3 };

void __real_tw_node_event(struct tw_node *node, const struct tw_event *event, uint64_t now_us);
void __wrap_tw_node_event(struct tw_node *node, const struct tw_event *event, uint64_t now_us);
void __real_tw_daemon_send(struct tw_daemon *daemon, uint16_t peer,
                           const struct tw_message *message);
void __wrap_tw_daemon_send(struct tw_daemon *daemon, uint16_t peer,
                           const struct tw_message *message);

struct late {
    uint64_t due_us; /* 0: free */
    struct tw_id to;
    struct tw_message message;
};

static struct tw_daemon *the_daemon;
static const struct tw_node *core;
static struct tw_coven coven;
static struct tw_traitor traitor;
static bool has_begun, votes_twice;
static uint64_t now, whole_round, speak_us;
static struct late late[LATE_MAX];

static uint32_t read_lies(const char *text) {
    uint32_t lies = 0;
    char words[256];
    (void)snprintf(words, sizeof(words), "%s", text != NULL ? text : "");
    for (char *rest = NULL, *word = strtok_r(words, ",", &rest); word != NULL;
         word = strtok_r(NULL, ",", &rest)) {
        const enum tw_lie lie = tw_lie_find(word);
        if (strcmp(word, "twice") == 0) {
            votes_twice = true;
            continue;
        }
        if (lie == TW_LIES_COUNT) {
            (void)fprintf(stderr, "TW_TRAITOR_LIES: there is no lie %s\n", word);
            exit(2);
        }
        lies |= UINT32_C(1) << lie;
    }
    return lies;
}

static uint64_t read_number(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

/* The traitor begins once all nodes have been one group for some rounds. */
static void consider_treason(void) {
    const uint64_t members = read_number("TW_TRAITOR_MEMBERS", 4);
    if (core->state != TW_STATE_MEMBER || core->roster.count < members) {
        whole_round = core->at.rounds;
        return;
    }
    if (core->at.rounds < whole_round + ROUNDS_BEFORE) return;
    has_begun = true;
    tw_coven_init(&coven, &core->cfg.run);
    coven.group = core->at.lineage;
    const uint32_t lies = read_lies(getenv("TW_TRAITOR_LIES"));
    tw_traitor_init(&traitor, &coven, &core->cfg.self, &core->cfg.signing,
                    read_number("TW_TRAITOR_SEED", 1), lies);
    if (votes_twice) traitor.lies = lies; /* no other lies are drawn */
    char names[256] = "";
    if (votes_twice) (void)snprintf(names, sizeof(names), "twice");
    for (uint32_t i = 0; i < TW_LIES_COUNT; i++) {
        if ((traitor.lies >> i & 1) == 0) continue;
        const size_t size = strlen(names);
        (void)snprintf(names + size, sizeof(names) - size, "%s%s", size > 0 ? "," : "",
                       tw_lie_name((enum tw_lie)i));
    }
    tw_log(TW_LOG_INFO, "treason", "round=%llu lies=%s", (unsigned long long)core->at.rounds,
           names);
}

static void fill_view(struct tw_traitor_view *view) {
    const struct tw_position *at = &core->at;
    const bool has_tip = at->has_tip != 0;
    const bool is_final = has_tip && at->tip.clock_tokens >= core->cfg.budget_tokens;
    *view = (struct tw_traitor_view){.now_us = now,
                                     .lineage = at->lineage,
                                     .tip = core->tip_digest,
                                     .rounds = at->rounds,
                                     .clock_tokens = has_tip ? at->tip.clock_tokens : 0,
                                     .fragment = (uint32_t)(at->rounds % core->cfg.fragments_count),
                                     .finals = is_final ? at->tip.finals + 1 : 0,
                                     .roster = &core->roster,
                                     .idx = core->round.self_idx,
                                     .rank = core->round.self_rank,
                                     .tip_record = has_tip ? &at->tip : NULL,
                                     .tip_proof = &at->tip_proof};
    for (uint16_t i = 0; i < core->links_end; i++) {
        if (core->links[i].is_up) view->peers[view->peers_count++] = core->links[i].id;
    }
}

static void say(void *context, const struct tw_id *to, const struct tw_message *message) {
    (void)context;
    for (uint16_t i = 0; i < core->links_end && the_daemon != NULL; i++) {
        if (core->links[i].is_up && tw_id_equal(&core->links[i].id, to))
            __real_tw_daemon_send(the_daemon, i, message);
    }
}

static void say_late(void) {
    for (uint32_t i = 0; i < LATE_MAX; i++) {
        if (late[i].due_us == 0 || late[i].due_us > now) continue;
        late[i].due_us = 0;
        say(NULL, &late[i].to, &late[i].message);
    }
}

/* Delays a message; it is lost if too many messages are delayed already. */
static void delay(const struct tw_id *to, const struct tw_message *message) {
    for (uint32_t i = 0; i < LATE_MAX; i++) {
        if (late[i].due_us != 0) continue;
        late[i].due_us = now + 1 + tw_rng_below(&traitor.rng, 2 * LATE_US);
        late[i].to = *to;
        late[i].message = *message;
        return;
    }
}

void __wrap_tw_node_event(struct tw_node *node, const struct tw_event *event, uint64_t now_us) {
    struct tw_traitor_view view;
    core = node;
    now = now_us;
    if (!has_begun) consider_treason();
    if (has_begun) {
        fill_view(&view);
        if (event->kind == TW_EV_MESSAGE)
            tw_traitor_hear(&traitor, &view, &core->links[event->peer].id, event->u.message);
        say_late();
        if (now_us >= speak_us) {
            speak_us = now_us + 1000 + tw_rng_below(&traitor.rng, 2 * SPEAK_US);
            tw_traitor_speak(&traitor, &view, say, NULL);
        }
    }
    __real_tw_node_event(node, event, now_us);
}

/* Sends a second vote for another record in the same ballot. */
static void vote_again(const struct tw_traitor_view *view, const struct tw_id *to,
                       const struct tw_message *message) {
    static struct tw_message second;
    if (message->kind != TW_MSG_ACCEPT || message->u.accept.phase != TW_VOTE_ACCEPT) return;
    second = *message;
    second.u.accept.digest.bytes[0] ^= 1;
    tw_traitor_sign_accept(&traitor, view, &second.u.accept);
    say(NULL, to, &second);
}

void __wrap_tw_daemon_send(struct tw_daemon *daemon, uint16_t peer,
                           const struct tw_message *message) {
    static struct tw_message spoken;
    struct tw_traitor_view view;
    the_daemon = daemon;
    if (!has_begun || !core->links[peer].is_up) {
        __real_tw_daemon_send(daemon, peer, message);
        return;
    }
    fill_view(&view);
    spoken = *message;
    const struct tw_id to = core->links[peer].id;
    switch (tw_traitor_pass(&traitor, &view, &to, &spoken)) {
    case TW_TRAITOR_SENDS: __real_tw_daemon_send(daemon, peer, &spoken); break;
    case TW_TRAITOR_DELAYS: delay(&to, &spoken); break;
    case TW_TRAITOR_DROPS: break;
    }
    if (votes_twice) vote_again(&view, &to, &spoken);
}
