#include "daemon/net/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/address.h"
#include "base/assert.h"
#include "daemon/auth/tickets.h"
#include "daemon/net/dial.h"
#include "daemon/net/link.h"
#include "daemon/net/socket.h"
#include "proto/frame.h"

enum {
    PATIENCE_US = 5 * 1000 * 1000,
    READ_BYTES = 4096,
    PAD_BYTES = 2048, /* more than a packet of a node has */
    FRAME_BYTES = TW_FRAME_HEADER_BYTES + TW_HELLO_BYTES_MAX,
};

/* The dial of one address. */
struct attempt {
    const struct tw_probe_question *question;
    struct tw_probe_answer *answer;
    int fd;
    uint64_t deadline_us;
    uint64_t bytes_in;
    struct tw_tls tls;
};

static void failure_set(struct tw_probe_answer *answer, const struct tw_probe_question *question,
                        enum tw_dial_cause cause, const char *detail) {
    answer->cause = cause;
    tw_dial_sentence(cause, question->address, detail, answer->sentence);
}

/* Waits for the socket. Returns false if the time is up. */
static bool wait_for(const struct attempt *attempt, short events) {
    struct pollfd waited = {.fd = attempt->fd, .events = events};
    for (;;) {
        const uint64_t now_us = tw_now_us();
        if (now_us >= attempt->deadline_us) return false;
        const int found = poll(&waited, 1, (int)((attempt->deadline_us - now_us) / 1000 + 1));
        if (found > 0) return true;
        if (found < 0 && errno != EINTR) return true; /* the next call reports the error */
    }
}

/* ---- TCP ----------------------------------------------------------------------------------- */

static void remote_note(struct tw_probe_answer *answer, const struct addrinfo *to) {
    char host[INET6_ADDRSTRLEN], port[8];
    if (getnameinfo(to->ai_addr, to->ai_addrlen, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return;
    (void)snprintf(answer->remote, sizeof(answer->remote),
                   to->ai_family == AF_INET6 ? "[%.56s]:%s" : "%.56s:%s", host, port);
}

static void path_note(const struct attempt *attempt) {
    struct tcp_info info;
    socklen_t size = sizeof(info);
    memset(&info, 0, sizeof(info));
    if (getsockopt(attempt->fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return;
    if (info.tcpi_pmtu == 0) return; /* the kernel has no values: the connection has ended */
    attempt->answer->mtu_bytes = info.tcpi_pmtu;
    attempt->answer->mss_bytes = info.tcpi_snd_mss;
}

/* Applies the egress configuration to the socket. Returns 0 or an errno. */
static int leave_by(const struct tw_egress *egress, int fd, int family) {
    if (egress == NULL) return 0;
    const bool has = family == AF_INET6 ? egress->has_v6 : egress->has_v4;
    const struct sockaddr_storage *from = family == AF_INET6 ? &egress->v6 : &egress->v4;
    const socklen_t size =
        family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    if (!has && (egress->has_v4 || egress->has_v6)) return EADDRNOTAVAIL;
    if (has && bind(fd, (const struct sockaddr *)from, size) != 0) return errno;
    if (egress->interface[0] == '\0') return 0;
    return setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, egress->interface,
                      (socklen_t)strlen(egress->interface) + 1) != 0
               ? errno
               : 0;
}

static bool tcp_connect(struct attempt *attempt, const struct addrinfo *to) {
    const uint64_t begin_us = tw_now_us();
    bool is_at_once = true;
    int code = 0;
    socklen_t size = sizeof(code);
    remote_note(attempt->answer, to);
    attempt->fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (attempt->fd < 0) code = errno;
    if (code == 0) code = leave_by(attempt->question->egress, attempt->fd, to->ai_family);
    if (code == 0 && connect(attempt->fd, to->ai_addr, to->ai_addrlen) != 0) code = errno;
    if (code == EINPROGRESS) {
        is_at_once = false;
        code = ETIMEDOUT;
        if (wait_for(attempt, POLLOUT) &&
            getsockopt(attempt->fd, SOL_SOCKET, SO_ERROR, &code, &size) != 0)
            code = errno;
    }
    attempt->answer->took_us[TW_PROBE_TCP] = tw_now_us() - begin_us;
    if (code == 0) return true;
    struct sockaddr_storage own = {.ss_family = AF_UNSPEC};
    socklen_t own_size = sizeof(own);
    if (attempt->fd >= 0) (void)getsockname(attempt->fd, (struct sockaddr *)&own, &own_size);
    const uint64_t took_us = is_at_once ? 0 : attempt->answer->took_us[TW_PROBE_TCP];
    enum tw_dial_cause cause = tw_dial_cause_of_errno(code, took_us, to->ai_addr);
    if (tw_dial_may_be_offline(cause) && !tw_local_address_has_line(&own)) cause = TW_DIAL_OFFLINE;
    cause = tw_local_address_judge(cause, to->ai_addr);
    failure_set(attempt->answer, attempt->question, cause,
                code == ETIMEDOUT ? "nothing came back in time" : strerror(code));
    return false;
}

/* ---- TLS and frames ------------------------------------------------------------------------ */

/* Sends TLS output. Returns false if the connection broke, or if the other side does not read. */
static bool cipher_send(struct attempt *attempt) {
    uint8_t bytes[READ_BYTES];
    size_t size, sent = 0;
    while ((size = tw_tls_take(&attempt->tls, bytes, sizeof(bytes))) > 0) {
        for (sent = 0; sent < size;) {
            const ssize_t now = send(attempt->fd, bytes + sent, size - sent, MSG_NOSIGNAL);
            if (now > 0) sent += (size_t)now;
            if (now < 0 && errno != EAGAIN && errno != EINTR) return false;
            if (now < 0 && !wait_for(attempt, POLLOUT)) return false;
        }
    }
    return true;
}

/* Feeds the next bytes to TLS. Returns TW_AGAIN if nothing arrived in time, TW_IO if the connection
 * ended. */
static enum tw_status cipher_receive(struct attempt *attempt, struct tw_error *err) {
    uint8_t bytes[READ_BYTES];
    ssize_t got = -1;
    while (got < 0) {
        if (!wait_for(attempt, POLLIN)) return TW_AGAIN;
        got = recv(attempt->fd, bytes, sizeof(bytes), 0);
        if (got < 0 && errno != EAGAIN && errno != EINTR)
            return tw_fail(err, TW_IO, "%s", strerror(errno));
    }
    if (got == 0) return tw_fail(err, TW_IO, "the other side closed the connection");
    attempt->bytes_in += (uint64_t)got;
    if (attempt->bytes_in > TW_HANDSHAKE_BYTES_MAX)
        return tw_fail(err, TW_PROTO, "more than %d bytes before admission",
                       TW_HANDSHAKE_BYTES_MAX);
    return tw_tls_feed(&attempt->tls, bytes, (size_t)got, err);
}

static void stage_failed(const struct attempt *attempt, enum tw_status status,
                         const struct tw_error *err) {
    if (status == TW_AGAIN)
        failure_set(attempt->answer, attempt->question, TW_DIAL_STALLED,
                    "nothing came back in time");
    else
        failure_set(attempt->answer, attempt->question, tw_dial_cause_of_status(status),
                    err->message);
}

static void show_knock(struct attempt *attempt) {
    static const struct tw_secret none;
    const struct tw_probe_question *question = attempt->question;
    const struct tw_secret *secret = question->secret != NULL ? question->secret : &none;
    const struct tw_knock_key key = {
        .bytes = secret->bytes, .size = TW_SECRET_BYTES, .run = question->hello.run};
    char name[TW_KNOCK_NAME_BYTES];
    if (question->is_stranger) return;
    tw_knock_write(&key, (uint64_t)time(NULL), name);
    if (name[0] != '\0') tw_tls_name(&attempt->tls, name);
}

static bool tls_secure(struct attempt *attempt) {
    struct tw_error err = {0};
    enum tw_status status = TW_AGAIN;
    while (status == TW_AGAIN) {
        status = tw_tls_handshake(&attempt->tls, &err);
        if (!cipher_send(attempt)) status = tw_fail(&err, TW_IO, "the connection broke");
        if (status != TW_AGAIN) break;
        status = cipher_receive(attempt, &err);
        if (status == TW_AGAIN) break;
        if (status == TW_OK) status = TW_AGAIN;
    }
    attempt->answer->has_id = attempt->tls.has_id;
    attempt->answer->id = attempt->tls.id;
    if (status == TW_OK) return true;
    stage_failed(attempt, status, &err);
    return false;
}

static enum tw_status hello_send(struct attempt *attempt, struct tw_error *err) {
    uint8_t frame[FRAME_BYTES], ekm[TW_TLS_EXPORT_BYTES];
    struct tw_hello hello = attempt->question->hello;
    TW_TRY(tw_tls_export(&attempt->tls, TW_HELLO_EXPORT, ekm, err));
    tw_hello_prove(&hello, attempt->question->secret, ekm);
    tw_tls_pad(&attempt->tls, PAD_BYTES); /* HELLO then shows that the largest packet passes */
    const uint32_t size = tw_hello_encode(&hello, frame + TW_FRAME_HEADER_BYTES);
    tw_frame_header(frame, TW_FRAME_HELLO, 0, frame + TW_FRAME_HEADER_BYTES, size);
    TW_TRY(tw_tls_write(&attempt->tls, frame, TW_FRAME_HEADER_BYTES + size, err));
    return cipher_send(attempt) ? TW_OK : tw_fail(err, TW_IO, "the connection broke");
}

/* Waits for the first frame of the answer. */
static enum tw_status frame_await(struct attempt *attempt, struct tw_reader *reader,
                                  struct tw_frame *frame, struct tw_error *err) {
    for (;;) {
        size_t space = 0, got = 0;
        enum tw_status status = tw_reader_next(reader, frame, err);
        if (status != TW_AGAIN) return status;
        uint8_t *to = tw_reader_space(reader, &space);
        TW_ASSERT(space > 0);
        status = tw_tls_read(&attempt->tls, to, space, tw_now_us(), &got, err);
        if (status == TW_OK) tw_reader_fill(reader, got);
        if (status == TW_AGAIN) status = cipher_receive(attempt, err);
        if (status != TW_OK) return status;
    }
}

/* Nodes of this version answer a probe with GOODBYE. A HELLO instead is an error too, but still
 * shows which field does not match. */
static enum tw_status hello_judge(const struct attempt *attempt, const struct tw_frame *frame,
                                  struct tw_error *err) {
    struct tw_hello theirs;
    TW_TRY(tw_hello_decode(frame->body, frame->body_bytes, &theirs, err));
    TW_TRY(tw_hello_check(&theirs, &attempt->question->hello, &attempt->tls.id, err));
    return tw_fail(err, TW_PROTO, "it answers a probe with HELLO");
}

/* Sends HELLO and judges the answer. A node that would admit us answers a probe with GOODBYE OK. */
static bool hello_exchange(struct attempt *attempt) {
    uint8_t buffer[FRAME_BYTES];
    struct tw_reader reader;
    struct tw_frame frame;
    struct tw_goodbye goodbye;
    struct tw_error err = {0};
    char detail[sizeof(goodbye.sentence) + 16];
    tw_reader_init(&reader, buffer, sizeof(buffer));
    enum tw_status status = hello_send(attempt, &err);
    if (status == TW_OK) status = frame_await(attempt, &reader, &frame, &err);
    if (status == TW_OK && frame.kind == TW_FRAME_HELLO)
        status = hello_judge(attempt, &frame, &err);
    if (status == TW_OK && frame.kind != TW_FRAME_GOODBYE)
        status =
            tw_fail(&err, TW_PROTO, "it answers a probe with a frame of kind 0x%x", frame.kind);
    if (status == TW_OK) status = tw_goodbye_decode(frame.body, frame.body_bytes, &goodbye, &err);
    if (status != TW_OK) {
        stage_failed(attempt, status, &err);
        return false;
    }
    if (goodbye.status == TW_OK) return true;
    (void)snprintf(detail, sizeof(detail), "it says: %s", goodbye.sentence);
    failure_set(attempt->answer, attempt->question, tw_dial_cause_of_status(goodbye.status),
                detail);
    return false;
}

/* ---- all stages ---------------------------------------------------------------------------- */

static void address_try(const struct tw_probe_question *question, const struct addrinfo *to,
                        struct tw_probe_answer *answer) {
    struct attempt attempt = {.question = question, .answer = answer, .fd = -1};
    const uint64_t patience_us = question->patience_us > 0 ? question->patience_us : PATIENCE_US;
    struct tw_error err;
    bool is_good = true;
    const enum tw_probe_stage end = question->is_stranger ? TW_PROBE_HELLO : TW_PROBE_DONE;
    for (enum tw_probe_stage stage = TW_PROBE_TCP; stage != end && is_good; stage++) {
        const uint64_t begin_us = tw_now_us();
        attempt.deadline_us = begin_us + patience_us;
        answer->stage = stage;
        if (stage == TW_PROBE_TCP) {
            is_good = tcp_connect(&attempt, to);
            if (!is_good) break;
            path_note(&attempt);
            if (tw_tls_init(&attempt.tls, question->tls, true, question->expected, &err) != TW_OK) {
                stage_failed(&attempt, err.status, &err);
                break;
            }
            show_knock(&attempt);
            continue;
        }
        is_good = stage == TW_PROBE_TLS ? tls_secure(&attempt) : hello_exchange(&attempt);
        answer->took_us[stage] = tw_now_us() - begin_us;
        path_note(&attempt); /* again: a router may have reported a smaller MTU meanwhile */
    }
    if (is_good && answer->stage + 1 == end) answer->stage = TW_PROBE_DONE;
    if (attempt.tls.ssl != NULL) tw_tls_deinit(&attempt.tls);
    if (attempt.fd >= 0) (void)close(attempt.fd);
}

void tw_probe_run(const struct tw_probe_question *question, struct tw_probe_answer *answer) {
    char host[TW_ADDR_BYTES], service[8];
    uint16_t port = 0;
    struct addrinfo *found = NULL;
    *answer = (struct tw_probe_answer){.stage = TW_PROBE_NAME};
    if (!tw_address_split(question->address, host, &port) || port == 0) {
        failure_set(answer, question, TW_DIAL_DNS, "not host:port");
        return;
    }
    (void)snprintf(service, sizeof(service), "%u", (unsigned)port);
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICSERV | AI_ADDRCONFIG};
    const uint64_t begin_us = tw_now_us();
    const int code = getaddrinfo(host, service, &hints, &found);
    const uint64_t took_us = tw_now_us() - begin_us;
    answer->took_us[TW_PROBE_NAME] = took_us;
    if (code != 0) {
        failure_set(answer, question, TW_DIAL_DNS, gai_strerror(code));
        return;
    }
    uint32_t tried = 0;
    struct tw_probe_answer best = *answer;
    for (const struct addrinfo *to = found; to != NULL && tried < TW_DIAL_CANDIDATES_MAX;
         to = to->ai_next, tried++) {
        struct tw_probe_answer one = {.took_us = {took_us}};
        address_try(question, to, &one);
        if (one.stage > best.stage || tried == 0) best = one;
        if (one.stage == TW_PROBE_DONE) break;
    }
    freeaddrinfo(found);
    *answer = best;
    answer->addresses = tried;
    if (answer->stage == TW_PROBE_DONE) answer->sentence[0] = '\0';
}
