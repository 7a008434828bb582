/* Tests of daemon/net/dial.c. Each cause has its own sentence with a remedy, and errors of
 * the system and of peers map to the right cause. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>

#include "daemon/net/dial.h"
#include "tests/test.h"

static struct sockaddr_storage remote_of(const char *host) {
    struct sockaddr_storage storage = {0};
    struct sockaddr_in in4 = {.sin_family = AF_INET};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, host, &in4.sin_addr) == 1)
        memcpy(&storage, &in4, sizeof(in4));
    else if (inet_pton(AF_INET6, host, &in6.sin6_addr) == 1)
        memcpy(&storage, &in6, sizeof(in6));
    else
        fail_msg("%s is no address", host);
    return storage;
}

TEST(every_cause_has_a_name_and_a_sentence_of_its_own) {
    char sentences[TW_DIAL_CAUSES][TW_DIAL_SENTENCE_BYTES];
    for (unsigned i = 0; i < TW_DIAL_CAUSES; i++) {
        const enum tw_dial_cause cause = (enum tw_dial_cause)i;
        tw_dial_sentence(cause, "example.org:4300", NULL, sentences[i]);
        assert_ptr_equal(strstr(sentences[i], "example.org:4300: "), sentences[i]);
        assert_non_null(strstr(sentences[i], "; ")); /* the cause; the remedy */
        for (unsigned k = 0; k < i; k++) {
            assert_string_not_equal(sentences[i], sentences[k]);
            assert_string_not_equal(tw_dial_cause_name(cause),
                                    tw_dial_cause_name((enum tw_dial_cause)k));
        }
    }
}

TEST(detail_is_cut_but_never_the_way_out) {
    char address[TW_ADDR_BYTES], detail[600], text[TW_DIAL_SENTENCE_BYTES];
    memset(address, 'a', sizeof(address) - 1);
    address[sizeof(address) - 1] = '\0';
    memset(detail, 'd', sizeof(detail) - 1);
    detail[sizeof(detail) - 1] = '\0';
    for (unsigned i = 0; i < TW_DIAL_CAUSES; i++) {
        char plain[TW_DIAL_SENTENCE_BYTES];
        const enum tw_dial_cause cause = (enum tw_dial_cause)i;
        tw_dial_sentence(cause, "h:1", "", plain);
        const char *const way_out = strrchr(plain, ';');
        tw_dial_sentence(cause, "h:1", detail, text);
        assert_non_null(strstr(text, "ddd...)"));
        assert_string_equal(strrchr(text, ';'), way_out);
        tw_dial_sentence(cause, address, detail, text);
        assert_in_range(strlen(text), 1, TW_DIAL_SENTENCE_BYTES - 1);
        assert_string_equal(strrchr(text, ';'), way_out);
    }
}

TEST(short_detail_stands_in_brackets) {
    char text[TW_DIAL_SENTENCE_BYTES];
    tw_dial_sentence(TW_DIAL_WRONG_SECRET, "10.0.0.1:4300", "nodes a and b hold different ones",
                     text);
    assert_string_equal(text,
                        "10.0.0.1:4300: wrong run secret (nodes a and b hold different ones); "
                        "copy the run.secret of the run to both nodes");
}

TEST(system_error_becomes_a_cause) {
    const struct sockaddr_storage public4 = remote_of("198.51.100.7");
    static const struct {
        int code;
        uint64_t took_us;
        enum tw_dial_cause cause;
    } cases[] = {
        {ECONNREFUSED, 100, TW_DIAL_CLOSED},
        {EHOSTUNREACH, 1100000, TW_DIAL_REJECTED},
        {EHOSTUNREACH, 3100000, TW_DIAL_SILENT},
        {EPERM, 0, TW_DIAL_FORBIDDEN},
        {ENETUNREACH, 300, TW_DIAL_REJECTED},
        {EACCES, 0, TW_DIAL_FORBIDDEN},
        {ENETUNREACH, 0, TW_DIAL_NO_ROUTE},
        {EADDRNOTAVAIL, 0, TW_DIAL_NO_ROUTE},
        {ETIMEDOUT, 1, TW_DIAL_SILENT},
        {ECONNRESET, 1, TW_DIAL_BROKEN},
        {EINVAL, 1, TW_DIAL_NONE},
    };
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(tw_dial_cause_of_errno(cases[i].code, cases[i].took_us, &public4),
                         cases[i].cause);
        assert_int_equal(tw_dial_cause_of_errno(-cases[i].code, cases[i].took_us, &public4),
                         cases[i].cause);
    }
}

TEST(silence_of_a_private_address_means_nat) {
    static const char *const private_hosts[] = {"10.0.0.1",    "172.16.0.1", "172.31.255.1",
                                                "192.168.1.1", "100.64.0.1", "100.127.0.1",
                                                "169.254.1.1", "fd00::1",    "fe80::1"};
    static const char *const public_hosts[] = {"9.255.0.1",   "11.0.0.1",    "172.15.0.1",
                                               "172.32.0.1",  "192.167.1.1", "100.63.0.1",
                                               "100.128.0.1", "2001:db8::1", "ff02::1"};
    for (unsigned i = 0; i < sizeof(private_hosts) / sizeof(private_hosts[0]); i++) {
        const struct sockaddr_storage remote = remote_of(private_hosts[i]);
        assert_int_equal(tw_dial_cause_of_silence(&remote), TW_DIAL_PRIVATE);
        assert_int_equal(tw_dial_cause_of_errno(ETIMEDOUT, 1, &remote), TW_DIAL_PRIVATE);
        assert_int_equal(tw_dial_cause_of_errno(ECONNREFUSED, 1, &remote), TW_DIAL_CLOSED);
    }
    for (unsigned i = 0; i < sizeof(public_hosts) / sizeof(public_hosts[0]); i++) {
        const struct sockaddr_storage remote = remote_of(public_hosts[i]);
        assert_int_equal(tw_dial_cause_of_silence(&remote), TW_DIAL_SILENT);
    }
    assert_int_equal(tw_dial_cause_of_silence(NULL), TW_DIAL_SILENT);
}

/* Sleep, a dead machine and this machine's own cable look like that too. */
TEST(no_sentence_blames_a_firewall_for_silence) {
    static const enum tw_dial_cause causes[] = {TW_DIAL_REJECTED, TW_DIAL_SILENT, TW_DIAL_PRIVATE,
                                                TW_DIAL_NO_ROUTE, TW_DIAL_OFFLINE};
    for (unsigned i = 0; i < sizeof(causes) / sizeof(causes[0]); i++) {
        char text[TW_DIAL_SENTENCE_BYTES];
        tw_dial_sentence(causes[i], "10.0.0.1:4300", NULL, text);
        assert_null(strstr(text, "firewall"));
        assert_null(strstr(text, "router"));
        assert_int_equal(tw_dial_may_be_offline(causes[i]), causes[i] != TW_DIAL_OFFLINE);
    }
    assert_false(tw_dial_may_be_offline(TW_DIAL_CLOSED)); /* somebody answered */
}

TEST(peer_status_becomes_a_cause) {
    static const struct {
        enum tw_status status;
        enum tw_dial_cause cause;
        bool is_refusal;
    } cases[] = {
        {TW_OTHER_RUN, TW_DIAL_OTHER_RUN, true},
        {TW_WRONG_SECRET, TW_DIAL_WRONG_SECRET, true},
        {TW_WRONG_ID, TW_DIAL_WRONG_ID, true},
        {TW_VERSION, TW_DIAL_VERSION, true},
        {TW_TICKET_UNKNOWN, TW_DIAL_TICKET_UNKNOWN, true},
        {TW_TICKET_EXPIRED, TW_DIAL_TICKET_EXPIRED, true},
        {TW_TICKET_USED, TW_DIAL_TICKET_USED, true},
        {TW_NOT_ADMITTED, TW_DIAL_NOT_ADMITTED, true},
        {TW_REVOKED, TW_DIAL_REVOKED, true},
        {TW_BANNED, TW_DIAL_BANNED, true},
        {TW_BAD_CLOCK, TW_DIAL_CLOCK, true},
        {TW_SELF, TW_DIAL_SELF, false},
        {TW_TLS, TW_DIAL_NOT_THINWIRE, false},
        {TW_IO, TW_DIAL_BROKEN, false},
        {TW_LIMIT, TW_DIAL_BUSY, false},
        {TW_PROTO, TW_DIAL_NONE, false},
    };
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(tw_dial_cause_of_status(cases[i].status), cases[i].cause);
        assert_int_equal(tw_dial_is_refusal(cases[i].cause), cases[i].is_refusal);
    }
}
