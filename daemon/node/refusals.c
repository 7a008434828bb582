/* refusals.c - what the log says of those who are turned away: each reason of each host once,
 * then a count. A flood of refusals must not become a flood of lines. */
#include <string.h>

#include "daemon/node/runtime.h"

enum {
    REFUSAL_LINE_US = 600 * 1000 * 1000, /* the same refusal of the same host */
    REFUSAL_ANY_US = 1000 * 1000,        /* refusals of whomever */
};

void tw_daemon_banned(void *user, const struct tw_id *id, uint32_t seconds, const char *sentence) {
    struct tw_daemon *daemon = user;
    char hex[9];
    tw_id_short(id, hex);
    tw_daemon_note(daemon, TW_LOG_WARN, "peer_banned", "peer=%s for_s=%u text=\"%s\"", hex, seconds,
                   sentence);
    tw_daemon_bans_save(daemon);
}

/* A number, a port, an id: it has a digit, or is of letters that are hexadecimal digits. */
static bool is_varying(const char *word, size_t length) {
    enum { ID_DIGITS = 8 };
    return strcspn(word, "0123456789") < length || strspn(word, "abcdef") >= ID_DIGITS;
}

/* Of the words that do not change from one refusal to the next. */
static uint64_t words_hash(const char *sentence) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a, 64 bits */
    for (const char *at = sentence; *at != '\0';) {
        const size_t length = strcspn(at, " ");
        if (!is_varying(at, length)) {
            for (size_t i = 0; i < length; i++)
                hash = (hash ^ (uint8_t)at[i]) * UINT64_C(0x100000001b3);
        }
        at += length + strspn(at + length, " ");
    }
    return hash;
}

/* The line of this host and reason; the one said longest ago makes room. */
static struct tw_daemon_refusal_line *refusal_line(struct tw_daemon *daemon, const char *address,
                                                   uint64_t reason) {
    struct tw_daemon_refusal_line *oldest = &daemon->refusal_lines[0];
    const char *colon = strrchr(address, ':');
    const size_t length = colon != NULL ? (size_t)(colon - address) : strlen(address);
    for (uint32_t i = 0; i < TW_REFUSAL_LINES; i++) {
        struct tw_daemon_refusal_line *line = &daemon->refusal_lines[i];
        if (line->reason == reason && strncmp(line->host, address, length) == 0 &&
            line->host[length] == '\0')
            return line;
        if (line->limit.said_us < oldest->limit.said_us) oldest = line;
    }
    *oldest = (struct tw_daemon_refusal_line){.reason = reason};
    memcpy(oldest->host, address, length);
    return oldest;
}

void tw_daemon_refused(void *user, const char *address, enum tw_status reason,
                       const char *sentence) {
    struct tw_daemon *daemon = user;
    uint64_t held_back = 0;
    if (reason == TW_OK) { /* two nodes dialled each other at once: one link is enough */
        tw_log(TW_LOG_DEBUG, "spare_link", "addr=%s text=\"%s\"", address, sentence);
        return;
    }
    daemon->links_refused++;
    struct tw_daemon_refusal_line *line = refusal_line(daemon, address, words_hash(sentence));
    const uint64_t now_us = tw_daemon_now_us();
    uint64_t others = 0;
    if (!tw_log_may_say(&line->limit, now_us, REFUSAL_LINE_US, &held_back)) return;
    if (!tw_log_may_say(&daemon->refusal_limit, now_us, REFUSAL_ANY_US, &others)) {
        line->limit = (struct tw_log_limit){.held_back = held_back + 1}; /* with the next one */
        return;
    }
    const enum tw_dial_cause cause = tw_dial_cause_of_status(reason);
    tw_daemon_note(daemon, TW_LOG_WARN, "refused", "addr=%s reason=%s text=\"%s\" held_back=%llu",
                   address,
                   tw_dial_is_refusal(cause) ? tw_dial_cause_name(cause) : tw_status_name(reason),
                   sentence, (unsigned long long)held_back);
}
