#include "daemon/node/caps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/rate.h"
#include "base/units.h"
#include "daemon/api/status_view.h"
#include "daemon/config/quota.h"
#include "daemon/config/serving.h"
#include "daemon/net/transport.h"
#include "daemon/workerlink/worker_host.h"
#include "daemon/workerlink/worker_memory.h"
#include "sync/members/members.h"

enum {
    LOOK_US = 1000 * 1000,
    SAVE_US = 60 * 1000 * 1000,
    STRANGERS_SHARE = 300, /* strangers may use 1/300 of a monthly quota per day */
    STRANGERS_BYTES_MIN = 1 << 20,
};

enum rest { REST_NONE, REST_PAUSE, REST_HOURS, REST_QUOTA };

static const char *const REST_NAMES[] = {"none", "pause", "hours", "quota"};

struct tw_daemon_caps {
    struct tw_rate download; /* download cap, also spent by the core and the fetcher */
    bool has_upload_limit, has_download_limit;
    uint64_t upload_limit, download_limit; /* caps set by `thinwire limit`, bytes/s */
    uint64_t upload_now, download_now;     /* caps in force, bytes/s; 0 = no cap */
    struct tw_hours_now now;
    enum rest rest; /* why the links are suspended */
    struct tw_quota quota, saving;
    struct tw_serving serving;      /* budgets of the traffic for other nodes alone */
    uint64_t seen_bytes, seen_rest; /* transport's totals at the last tick */
    uint64_t seen_strangers;        /* bytes of strangers at the last tick */
    struct {
        struct tw_id id;
        uint64_t bytes;
    } seen_control[TW_PEERS_MAX]; /* control bytes of each link at the last tick */
    bool are_strangers_out;
    uint64_t look_due_us, save_due_us;
    int dir; /* STATE_DIR */
    bool is_saving, is_save_failed;
    uv_work_t work;
    enum tw_status save_status;
    struct tw_error save_err;
};

/* ---- caps in force --------------------------------------------------------------------------- */

uint32_t tw_daemon_caps_minute_of_day(void) {
    const time_t now = time(NULL);
    struct tm local = {0};
    tzset(); /* reads the time zone again, which may have changed */
    if (localtime_r(&now, &local) == NULL) return 0;
    return (uint32_t)(local.tm_hour * 60 + local.tm_min);
}

static uint64_t lower_cap(uint64_t cap, uint64_t other) {
    if (cap == 0 || other == 0) return cap + other; /* 0: no cap */
    return cap < other ? cap : other;
}

static void begin_rest(struct tw_daemon *daemon, enum rest rest) {
    char sentence[96], next[16];
    struct tw_message message;
    if (rest == REST_QUOTA) {
        tw_quota_next(daemon->caps->quota.now.month, next);
        (void)snprintf(sentence, sizeof(sentence), "its monthly quota is used up until %s", next);
    } else if (rest == REST_PAUSE) {
        (void)snprintf(sentence, sizeof(sentence), "its training is paused");
    } else {
        const uint32_t until = daemon->caps->now.until_min % TW_DAY_MINUTES;
        (void)snprintf(sentence, sizeof(sentence), "network.hours keeps it off until %02u:%02u",
                       until / 60, until % 60);
    }
    /* LEAVE tells the peers not to wait for this node. */
    memset(&message, 0, sizeof(message));
    message.kind = TW_MSG_LEAVE;
    for (uint16_t i = 0; i < TW_PEERS_MAX; i++) {
        if (daemon->peers[i].is_up) tw_daemon_send(daemon, i, &message);
    }
    tw_transport_rest(daemon->transport, sentence);
    tw_daemon_note(daemon, TW_LOG_INFO, "links_rest", "why=%s text=\"%s\"", REST_NAMES[rest],
                   sentence);
}

void tw_daemon_caps_apply(struct tw_daemon *daemon) {
    const struct tw_config *config = &daemon->setup->config;
    struct tw_daemon_caps *caps = daemon->caps;
    const uint64_t now_us = tw_daemon_now_us();
    caps->now = tw_hours_at(&config->network.hours, tw_daemon_caps_minute_of_day());
    const uint64_t upload =
        caps->has_upload_limit ? caps->upload_limit : config->network.upload_bytes_s;
    const uint64_t download =
        caps->has_download_limit ? caps->download_limit : config->network.download_bytes_s;
    const uint64_t upload_now = lower_cap(upload, caps->now.bytes_per_s);
    caps->download_now = lower_cap(download, caps->now.bytes_per_s);
    if (caps->download_now != caps->download.per_s)
        tw_rate_set(&caps->download, caps->download_now, tw_rate_burst_bytes(caps->download_now),
                    now_us);
    if (daemon->transport != NULL && upload_now != caps->upload_now)
        tw_transport_set_upload(daemon->transport, upload_now);
    caps->upload_now = upload_now;
    tw_serving_set_line(&caps->serving, tw_quota_line_bytes(upload_now));

    const uint64_t quota = config->network.quota_bytes;
    enum rest rest = daemon->is_resting ? REST_PAUSE : REST_NONE;
    if (caps->now.is_off) rest = REST_HOURS;
    if (quota > 0 && caps->quota.now.bytes >= quota) rest = REST_QUOTA;
    if (daemon->transport == NULL || rest == caps->rest) return;
    caps->rest = rest;
    if (rest != REST_NONE) {
        begin_rest(daemon, rest);
        return;
    }
    tw_transport_rest(daemon->transport, NULL);
    tw_daemon_note(daemon, TW_LOG_INFO, "links_resume",
                   "text=\"this node may use the line again\"");
}

/* ---- the quota ------------------------------------------------------------------------------- */

static void on_save_work(uv_work_t *work) {
    struct tw_daemon *daemon = work->data;
    struct tw_daemon_caps *caps = daemon->caps;
    caps->save_status = tw_quota_save(&caps->saving, tw_file_system(), caps->dir, &caps->save_err);
}

static void on_save_done(uv_work_t *work, int status) {
    struct tw_daemon *daemon = work->data;
    struct tw_daemon_caps *caps = daemon->caps;
    caps->is_saving = false;
    if (status != 0) return;
    if (caps->save_status == TW_OK) {
        caps->is_save_failed = false;
        return;
    }
    caps->quota.is_saved = false;
    if (!caps->is_save_failed)
        tw_daemon_note(daemon, TW_LOG_WARN, "traffic_not_saved",
                       "text=\"%s: a restart forgets the traffic since the last save\"",
                       caps->save_err.message);
    caps->is_save_failed = true;
}

static void save_quota(struct tw_daemon *daemon, uint64_t now_us) {
    struct tw_daemon_caps *caps = daemon->caps;
    if (caps->is_saving || now_us < caps->save_due_us || daemon->stage == TW_DAEMON_CLOSING) return;
    caps->save_due_us = now_us + SAVE_US;
    if (caps->quota.is_saved) return;
    caps->is_saving = true;
    caps->saving = caps->quota;
    caps->quota.is_saved = true; /* later traffic sets it to false again */
    caps->work.data = daemon;
    TW_ASSERT(uv_queue_work(&daemon->loop, &caps->work, on_save_work, on_save_done) == 0);
}

/* Strangers must not use up the quota: that would end the links for a month. They have a separate
 * daily share, which the quota does not count. `bytes` decreases when strangers become members. */
static void look_at_strangers(struct tw_daemon *daemon, uint64_t bytes) {
    struct tw_daemon_caps *caps = daemon->caps;
    const uint64_t quota = daemon->setup->config.network.quota_bytes;
    const uint64_t share = quota / STRANGERS_SHARE > STRANGERS_BYTES_MIN ? quota / STRANGERS_SHARE
                                                                         : STRANGERS_BYTES_MIN;
    const uint64_t seen = caps->seen_strangers;
    tw_quota_strangers(&caps->quota, (int64_t)time(NULL), bytes > seen ? bytes - seen : 0,
                       seen > bytes ? seen - bytes : 0);
    caps->seen_strangers = bytes;
    const bool are_out = quota > 0 && caps->quota.strangers.bytes > share;
    if (are_out == caps->are_strangers_out) return;
    caps->are_strangers_out = are_out;
    tw_transport_admit_strangers(daemon->transport, !are_out);
    if (are_out)
        tw_daemon_note(daemon, TW_LOG_WARN, "strangers_out",
                       "bytes=%llu text=\"hosts that no member came from have used up their share "
                       "of the quota: "
                       "until the next day (UTC) only known hosts get an answer, and nodes with "
                       "the run secret "
                       "or a ticket\"",
                       (unsigned long long)caps->quota.strangers.bytes);
    else
        tw_daemon_note(daemon, TW_LOG_INFO, "strangers_in",
                       "text=\"every host gets an answer again\"");
}

static const char *const KIND_NAMES[] = {"state", "data", "payload", "relay"};
static const char *const VERDICT_NAMES[TW_SERVING_VERDICTS] = {"granted", "node", "outside",
                                                               "half"};

/* ---- traffic for other nodes: requests ------------------------------------------------------- */

/* The budget itself knows the nodes that were in the roster (look_at_serving). */
static bool is_wanted(const struct tw_daemon *daemon, const struct tw_id *id) {
    return tw_members_is_bootstrap(daemon->members, id) || tw_daemon_is_partner(daemon, id);
}

static struct tw_serving_ask ask_of(const struct tw_daemon *daemon, uint16_t peer,
                                    enum tw_serving_kind kind, uint64_t bytes) {
    const struct tw_id *id = &daemon->peers[peer].id;
    return (struct tw_serving_ask){.id = id,
                                   .is_wanted = is_wanted(daemon, id),
                                   .kind = kind,
                                   .bytes = tw_quota_line_bytes(bytes)};
}

/* Makes a request for bytes of the payload in a row of the pool. */
static struct tw_serving_ask ask_payload(const struct tw_daemon *daemon, uint16_t peer,
                                         uint32_t row, uint64_t bytes) {
    const struct tw_payload *payload = &daemon->host->payloads.pool.rows[row];
    const bool is_state = tw_node_is_state(daemon->node, &payload->hash);
    struct tw_serving_ask ask =
        ask_of(daemon, peer, is_state ? TW_SERVING_STATE : TW_SERVING_PAYLOAD, bytes);
    ask.payload = &payload->hash;
    ask.row = row;
    ask.chunks = (payload->bytes + TW_CHUNK_BYTES_MAX - 1) / TW_CHUNK_BYTES_MAX;
    return ask;
}

static void note_refusal(struct tw_daemon *daemon, const struct tw_serving_ask *ask,
                         enum tw_serving_verdict verdict) {
    char hex[9];
    const struct tw_id *payer =
        tw_serving_refuse(&daemon->caps->serving, ask, verdict, tw_daemon_now_us());
    if (payer == NULL) return;
    tw_id_short(payer, hex);
    /* No event: ids are free in runs with a secret, and events are few. */
    tw_log(TW_LOG_INFO, "serving_refused", "peer=%s kind=%s budget=%s text=\"%s\"", hex,
           KIND_NAMES[ask->kind], VERDICT_NAMES[verdict], tw_serving_sentence(verdict));
}

/* Returns the seconds until the day (UTC) ends. */
static uint32_t day_left_s(int64_t unix_s) {
    return (uint32_t)(86400 - unix_s % 86400);
}

/* Returns the seconds until the month ends by the machine's clock. */
static uint32_t month_left_s(int64_t unix_s) {
    const time_t now = (time_t)unix_s;
    struct tm local = {0};
    if (localtime_r(&now, &local) == NULL) return day_left_s(unix_s);
    struct tm next = {.tm_year = local.tm_year, .tm_mon = local.tm_mon + 1, .tm_mday = 1};
    next.tm_isdst = -1;
    const time_t end = mktime(&next);
    return end > now && end - now < TW_RETRY_S_MAX ? (uint32_t)(end - now) : TW_RETRY_S_MAX;
}

/* Notes and counts the refusal. Returns the seconds after which the peer may ask again. */
static uint32_t refuse(struct tw_daemon *daemon, uint16_t peer, const struct tw_serving_ask *ask,
                       enum tw_serving_verdict verdict) {
    const int64_t unix_s = (int64_t)time(NULL);
    const uint64_t now_us = tw_daemon_now_us();
    const uint32_t wait_s = tw_serving_wait_s(&daemon->caps->serving, ask, verdict, now_us,
                                              day_left_s(unix_s), month_left_s(unix_s));
    note_refusal(daemon, ask, verdict);
    daemon->peers[peer].gets_none_us = now_us + wait_s * UINT64_C(1000000);
    return wait_s;
}

uint32_t tw_daemon_caps_retry_s(const struct tw_daemon *daemon, uint16_t peer) {
    const uint64_t until_us = daemon->peers[peer].gets_none_us, now_us = tw_daemon_now_us();
    return until_us > now_us ? (uint32_t)((until_us - now_us + 999999) / 1000000) : 0;
}

/* ---- traffic for other nodes: payloads ------------------------------------------------------- */

bool tw_daemon_caps_pull(struct tw_daemon *daemon, uint16_t peer, const struct tw_msg_pull *pull) {
    const struct tw_pool *pool = &daemon->host->payloads.pool;
    const int row = tw_pool_find(pool, &pull->hash);
    struct tw_message message;
    if (row < 0 || pool->rows[row].state != TW_PAYLOAD_HELD) return true; /* the core says so */
    const uint64_t size = pool->rows[row].bytes;
    const uint64_t first = (uint64_t)pull->first * TW_CHUNK_BYTES_MAX;
    const uint64_t bytes = (uint64_t)pull->count * TW_CHUNK_BYTES_MAX;
    if (first >= size) return true; /* the core closes the link */
    const struct tw_serving_ask ask =
        ask_payload(daemon, peer, (uint32_t)row, bytes < size - first ? bytes : size - first);
    const enum tw_serving_verdict verdict =
        tw_serving_look(&daemon->caps->serving, &ask, tw_daemon_now_us());
    if (verdict == TW_SERVING_GRANTED) return true;
    memset(&message, 0, sizeof(message));
    message.kind = TW_MSG_MISSING;
    message.u.missing.hash = pull->hash;
    message.u.missing.retry_s = refuse(daemon, peer, &ask, verdict);
    tw_daemon_send(daemon, peer, &message);
    tw_daemon_event(daemon, &(struct tw_event){.kind = TW_EV_REFUSED, .peer = peer});
    return false;
}

void tw_daemon_caps_queued(struct tw_daemon *daemon, uint16_t peer, const struct tw_chunk *chunk,
                           uint32_t row) {
    const struct tw_serving_ask ask = ask_payload(daemon, peer, row, chunk->size);
    tw_serving_charge(&daemon->caps->serving, &ask, tw_daemon_now_us());
}

void tw_daemon_caps_unsent(struct tw_daemon *daemon, uint16_t peer, const struct tw_chunk *chunk,
                           int row) {
    const struct tw_serving_ask ask = row < 0
                                          ? ask_of(daemon, peer, TW_SERVING_DATA, chunk->size)
                                          : ask_payload(daemon, peer, (uint32_t)row, chunk->size);
    tw_serving_refund(&daemon->caps->serving, &ask, tw_daemon_now_us());
}

/* ---- traffic for other nodes: the dataset ---------------------------------------------------- */

void tw_daemon_caps_data_known(struct tw_daemon *daemon, uint64_t bytes) {
    tw_serving_set_data(&daemon->caps->serving, tw_quota_line_bytes(bytes));
}

bool tw_daemon_caps_may_give_data(struct tw_daemon *daemon, uint16_t peer, uint32_t bytes) {
    const struct tw_serving_ask ask = ask_of(daemon, peer, TW_SERVING_DATA, bytes);
    const enum tw_serving_verdict verdict =
        tw_serving_look(&daemon->caps->serving, &ask, tw_daemon_now_us());
    if (verdict != TW_SERVING_GRANTED) (void)refuse(daemon, peer, &ask, verdict);
    return verdict == TW_SERVING_GRANTED;
}

void tw_daemon_caps_data_queued(struct tw_daemon *daemon, uint16_t peer, uint32_t bytes) {
    const struct tw_serving_ask ask = ask_of(daemon, peer, TW_SERVING_DATA, bytes);
    tw_serving_charge(&daemon->caps->serving, &ask, tw_daemon_now_us());
}

/* ---- traffic for other nodes: pipes ---------------------------------------------------------- */

enum tw_status tw_daemon_caps_relayed(struct tw_daemon *daemon, const struct tw_id *caller,
                                      const struct tw_id *called, uint64_t bytes,
                                      struct tw_error *err) {
    struct tw_serving_ask ask = {.id = caller,
                                 .other = called,
                                 .is_wanted = is_wanted(daemon, caller),
                                 .is_other_wanted = is_wanted(daemon, called),
                                 .kind = TW_SERVING_RELAY,
                                 .bytes = tw_quota_line_bytes(2 * bytes)};
    if (bytes > 0) tw_serving_charge(&daemon->caps->serving, &ask, tw_daemon_now_us());
    ask.bytes = tw_quota_line_bytes(2 * TW_RELAY_JUDGE_BYTES);
    const enum tw_serving_verdict verdict =
        tw_serving_look(&daemon->caps->serving, &ask, tw_daemon_now_us());
    if (verdict == TW_SERVING_GRANTED) return TW_OK;
    note_refusal(daemon, &ask, verdict);
    return tw_fail(err, TW_AGAIN, "%s", tw_serving_sentence(verdict));
}

/* Exchanges sums between the budgets and the quota. */
static void count_served(struct tw_daemon *daemon) {
    struct tw_daemon_caps *caps = daemon->caps;
    uint64_t outside = 0;
    tw_quota_serve(&caps->quota, tw_serving_take(&caps->serving, &outside));
    tw_quota_outside(&caps->quota, (int64_t)time(NULL), outside);
    const struct tw_serving_left left = {
        .quota_bytes = daemon->setup->config.network.quota_bytes,
        .month_bytes = caps->quota.now.served,
        .outside_bytes = caps->quota.outside.bytes,
        .day = caps->quota.outside.day,
    };
    tw_serving_set_left(&caps->serving, &left);
}

static void open_serving(struct tw_daemon *daemon) {
    const struct tw_layout *layout = &daemon->setup->layout;
    uint64_t bytes = 0;
    for (uint32_t p = 0; p < layout->fragments_count; p++)
        bytes += tw_worker_bytes_max(&daemon->setup->run, TW_CONTENT_OPAQUE,
                                     layout->fragment_begin[p + 1] - layout->fragment_begin[p]);
    tw_serving_init(&daemon->caps->serving, tw_quota_line_bytes(bytes));
    count_served(daemon);
}

/* Ends the links of nodes outside that flood this node with messages. */
static void look_at_control(struct tw_daemon *daemon, uint64_t now_us) {
    struct tw_daemon_caps *caps = daemon->caps;
    struct tw_peer_net net;
    if (daemon->setup->config.network.quota_bytes == 0) return;
    for (uint16_t peer = 0; peer < TW_PEERS_MAX; peer++) {
        if (!tw_transport_peer(daemon->transport, peer, &net)) continue;
        const uint64_t bytes = tw_quota_line_bytes(net.control.bytes_in + net.control.bytes_out);
        const bool is_same = tw_id_equal(&caps->seen_control[peer].id, &net.id) &&
                             caps->seen_control[peer].bytes <= bytes;
        const uint64_t fresh = is_same ? bytes - caps->seen_control[peer].bytes : bytes;
        caps->seen_control[peer].id = net.id;
        caps->seen_control[peer].bytes = bytes;
        if (tw_serving_control(&caps->serving, &net.id, is_wanted(daemon, &net.id), fresh, now_us))
            tw_transport_blame(daemon->transport, peer, TW_LIMIT,
                               "it is in no roster, and sends or requests too many messages for a "
                               "node with a quota");
    }
}

static void look_at_serving(struct tw_daemon *daemon, uint64_t now_us) {
    tw_node_view(daemon->node, &daemon->view);
    for (uint32_t i = 0; i < daemon->view.roster.count; i++)
        tw_serving_member(&daemon->caps->serving, &daemon->view.roster.members[i].id, now_us);
    count_served(daemon);
    look_at_control(daemon, now_us);
}

void tw_daemon_caps_tick(struct tw_daemon *daemon, uint64_t now_us) {
    struct tw_daemon_caps *caps = daemon->caps;
    if (daemon->transport == NULL || now_us < caps->look_due_us) return;
    caps->look_due_us = now_us + LOOK_US;
    const struct tw_traffic all = tw_transport_traffic(daemon->transport);
    const struct tw_traffic strangers = tw_transport_strangers(daemon->transport);
    const uint64_t of_strangers = strangers.bytes_in + strangers.bytes_out;
    const uint64_t both = tw_quota_line_bytes(all.bytes_in + all.bytes_out - of_strangers);
    look_at_strangers(daemon, tw_quota_line_bytes(of_strangers));
    tw_quota_add(&caps->quota, tw_quota_month((int64_t)time(NULL)), both - caps->seen_bytes);
    caps->seen_bytes = both;
    /* Chunks were charged when they were requested. All other bytes from members are charged on
     * arrival, even unrequested chunks. Bytes of strangers are not charged: they must not use up
     * the members' share. */
    const uint64_t paid = daemon->counts.asked_in_bytes + strangers.bytes_in;
    const uint64_t rest = all.bytes_in > paid ? all.bytes_in - paid : 0;
    if (rest > caps->seen_rest) tw_rate_owe(&caps->download, rest - caps->seen_rest, now_us);
    caps->seen_rest = rest;
    look_at_serving(daemon, now_us);
    tw_daemon_caps_apply(daemon);
    save_quota(daemon, now_us);
}

/* ---- life ------------------------------------------------------------------------------------ */

enum tw_status tw_daemon_caps_open(struct tw_daemon *daemon, struct tw_error *err) {
    const struct tw_file_ops *ops = tw_file_system();
    struct tw_daemon_caps *caps = tw_daemon_alloc(sizeof(*caps), err);
    struct tw_error reason = {0};
    if (caps == NULL) return TW_NOMEM;
    daemon->caps = caps;
    tw_rate_init(&caps->download, 0, 0, tw_daemon_now_us());
    caps->dir = ops->dir_open(ops->ctx, daemon->setup->config.node.state_dir);
    if (caps->dir < 0)
        return tw_fail(err, TW_IO, "%s: %s", daemon->setup->config.node.state_dir,
                       strerror(-caps->dir));
    const enum tw_status status = tw_quota_load(&caps->quota, ops, caps->dir, &reason);
    if (status == TW_IO) return tw_fail(err, TW_IO, "%s", reason.message);
    if (status != TW_OK)
        tw_daemon_note(daemon, TW_LOG_WARN, "traffic_forgotten", "text=\"%s\"", reason.message);
    tw_quota_add(&caps->quota, tw_quota_month((int64_t)time(NULL)), 0);
    caps->save_due_us = tw_daemon_now_us() + SAVE_US;
    open_serving(daemon);
    return TW_OK;
}

void tw_daemon_caps_close(struct tw_daemon *daemon) {
    const struct tw_file_ops *ops = tw_file_system();
    struct tw_daemon_caps *caps = daemon->caps;
    struct tw_error err = {0};
    count_served(daemon);
    if (caps->is_saving) return; /* a write is still in progress */
    if (tw_quota_save(&caps->quota, ops, caps->dir, &err) != TW_OK)
        tw_log(TW_LOG_WARN, "traffic_not_saved", "text=\"%s\"", err.message);
}

void tw_daemon_caps_free(struct tw_daemon *daemon) {
    free(daemon->caps);
}

struct tw_rate *tw_daemon_caps_download(const struct tw_daemon *daemon) {
    return &daemon->caps->download;
}

uint64_t tw_daemon_caps_upload(const struct tw_daemon *daemon) {
    return daemon->caps->upload_now;
}

bool tw_daemon_caps_is_resting(const struct tw_daemon *daemon) {
    return daemon->caps->rest != REST_NONE;
}

/* ---- `thinwire limit` ------------------------------------------------------------------------ */

static enum tw_status set_limit(const char *direction, const char *text, bool *has, uint64_t *limit,
                                struct tw_error *err) {
    struct tw_error reason = {0};
    if (text == NULL) return TW_OK;
    uint64_t bytes_s = 0;            /* also the rate 0: no cap */
    *has = strcmp(text, "off") != 0; /* off: the configured cap again */
    if (*has && strcmp(text, "0") != 0 && tw_rate_parse(text, &bytes_s, &reason) != TW_OK)
        return tw_fail(err, TW_CONFIG, "%s: %s", direction, reason.message);
    *limit = bytes_s;
    return TW_OK;
}

static void print_cap(uint64_t bytes_s, char text[32]) {
    if (bytes_s == 0)
        (void)snprintf(text, 32, "no cap");
    else
        tw_rate_print(bytes_s, text, 32);
}

enum tw_status tw_daemon_caps_limit(struct tw_daemon *daemon, const char *upload,
                                    const char *download, struct tw_error *answer) {
    struct tw_daemon_caps *caps = daemon->caps;
    bool has_up = caps->has_upload_limit, has_down = caps->has_download_limit;
    uint64_t up_limit = caps->upload_limit, down_limit = caps->download_limit;
    char up[32], down[32];
    TW_TRY(set_limit("upload", upload, &has_up, &up_limit, answer));
    TW_TRY(set_limit("download", download, &has_down, &down_limit, answer));
    caps->has_upload_limit = has_up;
    caps->upload_limit = up_limit;
    caps->has_download_limit = has_down;
    caps->download_limit = down_limit;
    tw_daemon_caps_apply(daemon);
    print_cap(caps->upload_now, up);
    print_cap(caps->download_now, down);
    if (upload != NULL || download != NULL)
        tw_daemon_note(daemon, TW_LOG_INFO, "limit", "upload=\"%s\" download=\"%s\"", up, down);
    static const char *const SINCE[] = {"as configured", "until the daemon starts anew"};
    if (has_up == has_down)
        (void)snprintf(answer->message, sizeof(answer->message), "upload: %s, download: %s, %s", up,
                       down, SINCE[has_up]);
    else
        (void)snprintf(answer->message, sizeof(answer->message), "upload: %s %s, download: %s %s",
                       up, SINCE[has_up], down, SINCE[has_down]);
    return TW_OK;
}

/* ---- status ---------------------------------------------------------------------------------- */

void tw_daemon_caps_fill(const struct tw_daemon *daemon, struct tw_status_view *view) {
    const struct tw_config *config = &daemon->setup->config;
    const struct tw_daemon_caps *caps = daemon->caps;
    view->net.upload_cap_bytes_s = caps->upload_now;
    view->caps.upload_bytes_s = caps->upload_now;
    view->caps.download_bytes_s = caps->download_now;
    view->caps.has_limit = caps->has_upload_limit || caps->has_download_limit;
    view->caps.has_hours = config->network.hours.count > 0;
    view->caps.hours_bytes_s = caps->now.bytes_per_s;
    view->caps.is_hour_off = caps->now.is_off;
    view->caps.until_min = caps->now.until_min;
    view->caps.quota_bytes = config->network.quota_bytes;
    view->caps.month_bytes = caps->quota.now.bytes;
    view->caps.resting = REST_NAMES[caps->rest];
    tw_quota_next(caps->quota.now.month, view->caps.month_end);
    view->serving.bytes = caps->serving.bytes;
    view->serving.month_bytes = caps->serving.left.month_bytes;
    view->serving.outside_bytes = caps->serving.left.outside_bytes;
    view->serving.refused_node = caps->serving.refused[TW_SERVING_NODE];
    view->serving.refused_outside = caps->serving.refused[TW_SERVING_OUTSIDE];
    view->serving.refused_half = caps->serving.refused[TW_SERVING_HALF];
    if (daemon->transport == NULL) return;
    const struct tw_traffic strangers = tw_transport_strangers(daemon->transport);
    view->caps.strangers_bytes = strangers.bytes_in + strangers.bytes_out;
    view->caps.strangers_refused = tw_transport_strangers_refused(daemon->transport);
}
