/* pump.c - moves payloads between two processes over the real transport, as the daemons do: TLS,
 * admission, a control and a bulk connection, chunks requested ahead, and a hash check at the end.
 * A message of 200 bytes is sent over the control connection every 50 ms and is echoed. Both ends
 * measure its delay; they share a clock, because they run on one machine.
 *
 *     wan_pump give HOST:PORT [--pace off|auto|BYTES_S] [--upload BYTES_S]
 *     wan_pump take HOST:PORT [--bytes N] [--times N] [--idle S] [--warm N]
 *
 * `take` dials, leaves the link idle for S seconds, and fetches a payload of --warm bytes that is
 * not measured. Then it fetches a payload of --bytes bytes, --times times. `give` exits with it.
 * Each prints one line of JSON. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <uv.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "daemon/net/transport.h"

enum {
    AHEAD = 8, /* chunks requested ahead, as many as in the daemon */
    PING_MS = 50,
    PING_BYTES = 200,
    SAMPLES_MAX = 100 * 1000,
    BYTES_MAX = 256 << 20,
    TIMES_MAX = 8,
};

/* The body of a control frame has an `enum what`, a number and a time. */
enum what { SAY_PING, SAY_ECHO, SAY_WANT, SAY_PULL, SAY_LAST };

struct delays {
    uint32_t count;
    uint32_t us[SAMPLES_MAX];
};

struct pump {
    uv_loop_t loop;
    uv_timer_t timer;
    struct tw_identity identity;
    struct tw_secrets secrets;
    struct tw_transport *transport;
    bool is_giver, is_up, is_fetching;
    uint16_t peer;
    uint64_t bytes, idle_us, up_us, begun_us;
    /* bytes_next: size of the measured payloads, which follow the warm-up; 0: the present payload
     * is measured */
    uint64_t bytes_next;
    uint8_t *payload;
    struct tw_id hash, hash_next;
    uint32_t times, done, asked, got;
    uint64_t took_us[TIMES_MAX];
    struct delays idle, busy;
    /* bytes at the socket when the first measured payload was requested */
    struct tw_traffic before;
};

static uint64_t now_us(void) {
    return uv_hrtime() / 1000;
}

static uint32_t chunks_of(uint64_t bytes) {
    return (uint32_t)((bytes + TW_CHUNK_BYTES_MAX - 1) / TW_CHUNK_BYTES_MAX);
}

static uint32_t chunk_size(const struct pump *pump, uint32_t idx) {
    const uint64_t rest = pump->bytes - (uint64_t)idx * TW_CHUNK_BYTES_MAX;
    return rest < TW_CHUNK_BYTES_MAX ? (uint32_t)rest : TW_CHUNK_BYTES_MAX;
}

static void say(struct pump *pump, enum what what, uint64_t number, uint64_t at_us) {
    uint8_t body[PING_BYTES] = {(uint8_t)what};
    tw_put_u64(body + 8, number);
    tw_put_u64(body + 16, at_us);
    tw_transport_send_control(pump->transport, pump->peer, TW_MSG_STATUS, body, sizeof(body));
}

static void delay_note(struct delays *delays, uint64_t us) {
    if (delays->count < SAMPLES_MAX) delays->us[delays->count++] = (uint32_t)us;
}

/* ---- the answer ---------------------------------------------------------------------------- */

static int delay_compare(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double delay_ms(struct delays *delays, double share) {
    if (delays->count == 0) return -1;
    return delays->us[(uint32_t)(share * (double)(delays->count - 1))] / 1e3;
}

static void delays_print(const char *name, struct delays *delays) {
    qsort(delays->us, delays->count, sizeof(delays->us[0]), delay_compare);
    printf(",\"%s\":{\"count\":%u,\"p50\":%.1f,\"p90\":%.1f,\"p95\":%.1f,\"p97\":%.1f,"
           "\"p99\":%.1f}",
           name, delays->count, delay_ms(delays, .5), delay_ms(delays, .9), delay_ms(delays, .95),
           delay_ms(delays, .97), delay_ms(delays, .99));
}

static void report(struct pump *pump) {
    const struct tw_traffic traffic = tw_transport_traffic(pump->transport);
    printf("{\"payload_bytes\":%llu,\"socket_in\":%llu,\"socket_out\":%llu,\"took_s\":[",
           (unsigned long long)(pump->bytes * pump->times),
           (unsigned long long)(traffic.bytes_in - pump->before.bytes_in),
           (unsigned long long)(traffic.bytes_out - pump->before.bytes_out));
    for (uint32_t i = 0; i < pump->done; i++)
        printf("%s%.3f", i > 0 ? "," : "", (double)pump->took_us[i] / 1e6);
    struct tw_peer_net net = {0};
    (void)tw_transport_peer(pump->transport, pump->peer, &net);
    printf("],\"path_bytes_per_s\":%llu,\"pace_bytes_per_s\":%llu,\"congestion\":\"%s\"",
           (unsigned long long)net.path_bytes_per_s, (unsigned long long)net.pace_bytes_per_s,
           net.congestion);
    delays_print("idle_ms", &pump->idle);
    delays_print("busy_ms", &pump->busy);
    printf("}\n");
    (void)fflush(stdout);
}

static void on_closed(void *user) {
    uv_stop(&((struct pump *)user)->loop);
}

static void end(struct pump *pump) {
    report(pump);
    tw_transport_destroy(pump->transport, "done", on_closed);
    pump->transport = NULL;
    uv_close((uv_handle_t *)&pump->timer, NULL);
}

/* Resets the counters after warming up. */
static void count_anew(struct pump *pump) {
    pump->before = tw_transport_traffic(pump->transport);
    pump->busy.count = 0;
}

/* ---- taking -------------------------------------------------------------------------------- */

static void ask_more(struct pump *pump) {
    const uint32_t count = chunks_of(pump->bytes);
    for (; pump->asked < count && pump->asked < pump->got + AHEAD; pump->asked++)
        say(pump, SAY_PULL, pump->asked, 0);
}

static void fetch_begin(struct pump *pump) {
    if (pump->done == 0) count_anew(pump);
    pump->is_fetching = true;
    pump->asked = pump->got = 0;
    pump->begun_us = now_us();
    say(pump, SAY_WANT, pump->bytes, pump->bytes_next);
    ask_more(pump);
}

static void chunk_take(struct pump *pump, const struct tw_frame *frame) {
    const uint32_t idx = tw_get_u32(frame->body + 32);
    const uint32_t size = frame->body_bytes - TW_CHUNK_HEADER_BYTES;
    TW_ASSERT(idx < chunks_of(pump->bytes) && size == chunk_size(pump, idx));
    memcpy(pump->payload + (uint64_t)idx * TW_CHUNK_BYTES_MAX, frame->body + TW_CHUNK_HEADER_BYTES,
           size);
    pump->got++;
    ask_more(pump);
    if (pump->got < chunks_of(pump->bytes)) return;
    const uint64_t took_us = now_us() - pump->begun_us;
    const struct tw_id hash = tw_sha256(pump->payload, pump->bytes);
    TW_ASSERT(memcmp(frame->body, hash.bytes, sizeof(hash.bytes)) == 0);
    pump->is_fetching = false;
    if (pump->bytes_next == 0)
        pump->took_us[pump->done++] = took_us;
    else
        pump->bytes = pump->bytes_next;
    pump->bytes_next = 0;
    if (pump->done < pump->times)
        fetch_begin(pump);
    else
        say(pump, SAY_LAST, pump->done, 0);
}

/* ---- giving -------------------------------------------------------------------------------- */

/* Makes the bytes of both payloads before the first is sent, because that takes time. The shorter
 * payload is the beginning of the longer one. */
static void payload_make(struct pump *pump) {
    const uint64_t bytes = pump->bytes > pump->bytes_next ? pump->bytes : pump->bytes_next;
    TW_ASSERT(pump->bytes > 0 && bytes <= BYTES_MAX);
    pump->payload = malloc(bytes);
    TW_ASSERT(pump->payload != NULL);
    uint64_t word = 88172645463325252u;
    for (uint64_t i = 0; i < bytes; i++) {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        pump->payload[i] = (uint8_t)word;
    }
    pump->hash = tw_sha256(pump->payload, pump->bytes);
    pump->hash_next = tw_sha256(pump->payload, pump->bytes_next);
}

static void want_take(struct pump *pump, uint64_t bytes, uint64_t bytes_next) {
    pump->is_fetching = true;
    pump->times++;
    if (pump->payload != NULL && bytes == pump->bytes) return;
    pump->bytes = bytes;
    pump->times = 1;
    count_anew(pump);
    if (pump->payload != NULL) {
        pump->hash = pump->hash_next;
        return;
    }
    pump->bytes_next = bytes_next;
    payload_make(pump);
}

static void chunk_give(struct pump *pump, uint32_t idx) {
    TW_ASSERT(pump->payload != NULL && idx < chunks_of(pump->bytes));
    const struct tw_chunk chunk = {
        .payload = pump->hash,
        .idx = idx,
        .size = chunk_size(pump, idx),
        .bytes = pump->payload + (uint64_t)idx * TW_CHUNK_BYTES_MAX,
    };
    TW_ASSERT(tw_transport_send_chunk(pump->transport, pump->peer, &chunk));
}

/* ---- both ---------------------------------------------------------------------------------- */

static void on_frame(void *user, uint16_t peer, bool is_bulk, const struct tw_frame *frame) {
    struct pump *pump = user;
    TW_ASSERT(peer == pump->peer);
    if (is_bulk) {
        chunk_take(pump, frame);
        return;
    }
    TW_ASSERT(frame->body_bytes == PING_BYTES);
    const uint64_t number = tw_get_u64(frame->body + 8), at_us = tw_get_u64(frame->body + 16);
    switch ((enum what)frame->body[0]) {
    /* sent by the giver: the taker measures the one-way delay, the giver the round trip */
    case SAY_PING:
        delay_note(pump->is_fetching ? &pump->busy : &pump->idle, now_us() - at_us);
        say(pump, SAY_ECHO, number, at_us);
        break;
    case SAY_ECHO: delay_note(number > 0 ? &pump->busy : &pump->idle, now_us() - at_us); break;
    case SAY_WANT: want_take(pump, number, at_us); break;
    case SAY_PULL: chunk_give(pump, (uint32_t)number); break;
    case SAY_LAST:
        if (pump->is_giver) say(pump, SAY_LAST, number, 0);
        end(pump);
        break;
    default: TW_ASSERT(false);
    }
}

static void on_peer_up(void *user, uint16_t peer, const struct tw_member_row *hello) {
    struct pump *pump = user;
    (void)hello;
    pump->is_up = true;
    pump->peer = peer;
    pump->up_us = now_us();
}

static void on_peer_down(void *user, uint16_t peer, enum tw_status reason, const char *sentence) {
    struct pump *pump = user;
    (void)peer;
    /* The peer's GOODBYE overtook its last message. */
    if (pump->done > 0 && pump->done == pump->times) {
        report(pump);
        exit(0);
    }
    (void)fprintf(stderr, "wan_pump: the link broke: %s: %s\n", tw_status_name(reason), sentence);
    exit(1);
}

static void on_dial_done(void *user, const char *address, const struct tw_dial_result *result) {
    (void)user;
    (void)address;
    if (result->status == TW_OK) return;
    (void)fprintf(stderr, "wan_pump: %s\n", result->sentence);
    exit(1);
}

static void on_timer(uv_timer_t *timer) {
    struct pump *pump = timer->data;
    if (!pump->is_up) return;
    if (pump->is_giver) {
        say(pump, SAY_PING, pump->is_fetching, now_us());
        return;
    }
    if (!pump->is_fetching && pump->done == 0 && now_us() >= pump->up_us + pump->idle_us)
        fetch_begin(pump);
}

static void start(struct pump *pump, const char *address, struct tw_transport_config *config) {
    struct tw_error err = {0};
    TW_ASSERT(tw_identity_ephemeral(&pump->identity, &err) == TW_OK);
    TW_ASSERT(uv_loop_init(&pump->loop) == 0);
    pump->secrets.count = 1;
    memset(pump->secrets.list[0].bytes, 0x5e, sizeof(pump->secrets.list[0].bytes));
    config->loop = &pump->loop;
    config->identity = &pump->identity;
    config->secrets = &pump->secrets;
    config->boot = 1;
    config->user = pump;
    config->events = (struct tw_transport_events){.peer_up = on_peer_up,
                                                  .peer_down = on_peer_down,
                                                  .frame = on_frame,
                                                  .dial_done = on_dial_done};
    if (pump->is_giver) {
        (void)snprintf(config->listen[0], TW_ADDR_BYTES, "%s", address);
        config->listen_count = 1;
    } else {
        pump->payload = malloc(pump->bytes > pump->bytes_next ? pump->bytes : pump->bytes_next);
        TW_ASSERT(pump->payload != NULL);
    }
    enum tw_status status = tw_transport_create(config, &pump->transport, &err);
    if (status == TW_OK && !pump->is_giver)
        status = tw_transport_connect(pump->transport, address, NULL, &err);
    if (status != TW_OK) {
        (void)fprintf(stderr, "wan_pump: %s\n", err.message);
        exit(1);
    }
    (void)uv_timer_init(&pump->loop, &pump->timer);
    pump->timer.data = pump;
    (void)uv_timer_start(&pump->timer, on_timer, PING_MS, PING_MS);
}

static void pace_set(struct tw_link_pace *pace, const char *text) {
    *pace = (struct tw_link_pace){.mode = TW_LINK_PACE_AUTO};
    if (strcmp(text, "off") == 0) pace->mode = TW_LINK_PACE_OFF;
    if (text[0] < '0' || text[0] > '9') return;
    *pace = (struct tw_link_pace){TW_LINK_PACE_FIXED, strtoull(text, NULL, 10)};
}

static void usage(void) {
    (void)fputs("usage: wan_pump give|take HOST:PORT [--pace off|auto|BYTES_S] [--upload BYTES_S]"
                " [--bytes N] [--times N] [--idle S] [--warm N]\n",
                stderr);
    exit(2);
}

int main(int argc, char **argv) {
    static const struct option known[] = {
        {"pace", required_argument, NULL, 'p'},
        {"upload", required_argument, NULL, 'u'},
        {"bytes", required_argument, NULL, 'b'},
        {"times", required_argument, NULL, 't'},
        {"idle", required_argument, NULL, 'i'},
        {"warm", required_argument, NULL, 'w'},
        {NULL, 0, NULL, 0},
    };
    static struct pump pump;
    struct tw_transport_config config = {0};
    unsigned long long warm = 0;
    int letter;
    if (argc < 3) usage();
    pump.is_giver = strcmp(argv[1], "give") == 0;
    if (!pump.is_giver && strcmp(argv[1], "take") != 0) usage();
    pump.bytes = 64 << 20;
    pump.times = pump.is_giver ? 0 : 1;
    while ((letter = getopt_long(argc - 2, argv + 2, "", known, NULL)) != -1) {
        const unsigned long long number = optarg != NULL ? strtoull(optarg, NULL, 10) : 0;
        switch (letter) {
        case 'p': pace_set(&config.pace, optarg); break;
        case 'u': config.upload_bytes_per_s = number; break;
        case 'b': pump.bytes = number; break;
        case 't': pump.times = (uint32_t)number; break;
        case 'i': pump.idle_us = number * 1000 * 1000; break;
        case 'w': warm = number; break;
        default: usage();
        }
    }
    if (warm > 0) {
        pump.bytes_next = pump.bytes;
        pump.bytes = warm;
    }
    if (pump.bytes_next > BYTES_MAX || pump.bytes == 0 || pump.bytes > BYTES_MAX ||
        pump.times > TIMES_MAX)
        usage();
    start(&pump, argv[2], &config);
    (void)uv_run(&pump.loop, UV_RUN_DEFAULT);
    (void)uv_run(&pump.loop, UV_RUN_DEFAULT);
    free(pump.payload);
    tw_identity_close(&pump.identity);
    return 0;
}
