/* offence.c - counts offences of peers, and turns banned nodes away. The rule is in bans.h. */
#include <stdio.h>
#include <time.h>

#include "daemon/net/transport_impl.h"

static uint64_t wall_s(void) {
    const time_t now = time(NULL);
    return now > 0 ? (uint64_t)now : 0;
}

void tw_offence_note(struct tw_transport *t, const struct tw_id *id, enum tw_status reason,
                     const char *sentence) {
    if (reason != TW_PROTO && reason != TW_CORRUPT && reason != TW_LIMIT) return;
    const uint32_t length_s = tw_bans_offence(&t->bans, id, wall_s());
    if (length_s > 0 && t->config.events.banned != NULL)
        t->config.events.banned(t->config.user, id, length_s, sentence);
}

enum tw_status tw_offence_check(const struct tw_transport *t, const struct tw_id *id,
                                struct tw_error *err) {
    const uint64_t now_s = wall_s(), left_s = tw_bans_left_s(&t->bans, id, now_s);
    if (left_s == 0) return TW_OK;
    const time_t until = (time_t)(now_s + left_s);
    struct tm utc;
    char they[9], we[9], when[32] = "";
    tw_id_short(id, they);
    tw_id_short(&t->config.identity->id, we);
    if (gmtime_r(&until, &utc) != NULL) (void)strftime(when, sizeof(when), "%Y-%m-%d %H:%M", &utc);
    /* The time of the end, not the time left: a repeated sentence is not logged again. */
    return tw_fail(err, TW_BANNED, "node %s by node %s, until %s UTC", they, we, when);
}

struct tw_bans *tw_transport_bans(struct tw_transport *t) {
    return &t->bans;
}
