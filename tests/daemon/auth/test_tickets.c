/* Tests of daemon/auth/tickets.c. */
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "daemon/auth/identity.h"
#include "daemon/auth/tickets.h"
#include "tests/test.h"

enum { NOW = 1790000000, DAY = 86400 };

static struct tw_tickets tickets, back;
static struct tw_error err;
static char text[TW_TICKETS_TEXT_MAX];

static int setup(void **state) {
    memset(&tickets, 0, sizeof(tickets));
    return 0;
}

#define FACT(name) TEST_IN(setup, NULL, name)

static struct tw_ticket_row *add(uint32_t uses, uint64_t life_s) {
    struct tw_ticket_row *row = NULL;
    assert_int_equal(tw_tickets_add(&tickets, uses, life_s, NOW, &row, &err), TW_OK);
    return row;
}

static struct tw_id node(uint8_t name) {
    struct tw_id id;
    memset(id.bytes, name, sizeof(id.bytes));
    return id;
}

static enum tw_status use(struct tw_ticket_row *row, uint8_t name, uint64_t now_s, bool *is_new) {
    const struct tw_id id = node(name);
    return tw_ticket_use(row, &id, now_s, is_new, &err);
}

FACT(every_ticket_is_another) {
    add(1, DAY);
    add(1, DAY);
    assert_memory_not_equal(tickets.rows[0].id, tickets.rows[1].id, TW_TICKET_ID_BYTES);
    assert_memory_not_equal(tickets.rows[0].key, tickets.rows[1].key, TW_TICKET_KEY_BYTES);
    assert_ptr_equal(tw_tickets_find(&tickets, tickets.rows[1].id), &tickets.rows[1]);
    const uint8_t nobody[TW_TICKET_ID_BYTES] = {0};
    assert_null(tw_tickets_find(&tickets, nobody));
}

FACT(a_use_counts_once_per_node) {
    struct tw_ticket_row *row = add(2, DAY);
    bool is_new = false;
    assert_int_equal(use(row, 1, NOW, &is_new), TW_OK);
    assert_true(is_new);
    assert_int_equal(use(row, 1, NOW, &is_new), TW_OK);
    assert_false(is_new);
    assert_int_equal(use(row, 2, NOW, &is_new), TW_OK);
    assert_int_equal(use(row, 3, NOW, &is_new), TW_TICKET_USED);
    assert_string_equal(err.message, "2 of 2");
    assert_int_equal(use(row, 2, NOW, &is_new), TW_OK); /* node 2 has used the ticket before */
}

FACT(an_expired_ticket_lets_nobody_in) {
    struct tw_ticket_row *row = add(5, DAY);
    bool is_new = false;
    assert_int_equal(use(row, 1, NOW + DAY - 1, &is_new), TW_OK);
    assert_int_equal(use(row, 2, NOW + DAY, &is_new), TW_TICKET_EXPIRED);
    assert_non_null(strstr(err.message, "at 2026-09-22"));        /* names the inviter's time too */
    assert_int_equal(use(row, 1, NOW + DAY - 1, &is_new), TW_OK); /* the guest may use it again */
    assert_int_equal(use(row, 1, NOW + DAY, &is_new), TW_TICKET_EXPIRED);
}

FACT(uses_and_life_have_bounds) {
    struct tw_ticket_row *row = NULL;
    assert_int_equal(tw_tickets_add(&tickets, 0, DAY, NOW, &row, &err), TW_CONFIG);
    assert_int_equal(tw_tickets_add(&tickets, 65, DAY, NOW, &row, &err), TW_CONFIG);
    assert_int_equal(tw_tickets_add(&tickets, 1, 0, NOW, &row, &err), TW_CONFIG);
    assert_int_equal(tw_tickets_add(&tickets, 1, TW_TICKET_LIFE_MAX_S + 1, NOW, &row, &err),
                     TW_CONFIG);
    assert_int_equal(tickets.count, 0);
}

FACT(a_full_table_drops_invalid_tickets) {
    struct tw_ticket_row *row = NULL;
    bool is_new = false;
    for (unsigned i = 0; i < TW_TICKETS_MAX; i++) add(1, DAY);
    assert_int_equal(tw_tickets_add(&tickets, 1, DAY, NOW, &row, &err), TW_LIMIT);
    assert_non_null(strstr(err.message, "--revoke"));
    assert_int_equal(use(&tickets.rows[7], 1, NOW, &is_new), TW_OK);
    uint8_t used[TW_TICKET_ID_BYTES];
    memcpy(used, tickets.rows[7].id, sizeof(used));
    assert_int_equal(tw_tickets_add(&tickets, 1, DAY, NOW, &row, &err), TW_OK);
    assert_int_equal(tickets.count, TW_TICKETS_MAX);
    assert_null(tw_tickets_find(&tickets, used));
}

FACT(old_tickets_are_forgotten_after_a_week) {
    struct tw_ticket_row *row = NULL;
    add(1, DAY);
    const uint64_t later = NOW + DAY + TW_TICKET_KEPT_S;
    assert_int_equal(tw_tickets_add(&tickets, 1, DAY, later, &row, &err), TW_OK);
    assert_int_equal(tickets.count, 2);
    assert_int_equal(tw_tickets_add(&tickets, 1, DAY, later + 1, &row, &err), TW_OK);
    assert_int_equal(tickets.count, 2);
    const uint64_t end = later + DAY + TW_TICKET_KEPT_S;
    /* A sweep, too, removes tickets that ended more than a week ago: no new ticket is needed for
     * that. */
    assert_int_equal(tw_tickets_sweep(&tickets, end), 0);
    assert_int_equal(tw_tickets_sweep(&tickets, end + 1), 1);
    assert_int_equal(tw_tickets_sweep(&tickets, end + 2), 1);
    assert_int_equal(tickets.count, 0);
    const struct tw_ticket_row none = {.uses = 0};
    /* The keys of removed tickets do not stay in memory. */
    assert_memory_equal(&tickets.rows[0], &none, sizeof(none));
}

/* Makes one or two secrets, each filled with one byte value. `second` 0 means only one secret. */
static struct tw_secrets secrets_of(uint8_t first, uint8_t second) {
    struct tw_secrets secrets = {.count = second != 0 ? 2 : 1};
    memset(secrets.list[0].bytes, first, TW_SECRET_BYTES);
    memset(secrets.list[1].bytes, second, TW_SECRET_BYTES);
    return secrets;
}

static uint32_t ended_by(uint8_t first, uint8_t second) {
    const struct tw_secrets secrets = secrets_of(first, second);
    return tw_tickets_secrets(&tickets, &secrets);
}

FACT(a_new_secret_takes_back_all_tickets_that_were_used) {
    bool is_new = false;
    uint8_t used[TW_TICKET_ID_BYTES], fresh[TW_TICKET_ID_BYTES];
    memcpy(used, add(5, DAY)->id, sizeof(used));
    memcpy(fresh, add(5, DAY)->id, sizeof(fresh));
    assert_int_equal(ended_by('a', 0), 0);
    assert_int_equal(use(tw_tickets_find(&tickets, used), 1, NOW, &is_new), TW_OK);
    assert_int_equal(ended_by('a', 0), 0);
    assert_int_equal(ended_by('a', 'b'), 1);
    assert_null(tw_tickets_find(&tickets, used));
    assert_non_null(tw_tickets_find(&tickets, fresh));
    assert_int_equal(use(tw_tickets_find(&tickets, fresh), 2, NOW, &is_new), TW_OK);
    assert_int_equal(ended_by('b', 'a'), 0); /* the same two secrets in reverse order */
    assert_int_equal(ended_by('b', 0), 0);
    assert_int_equal(ended_by('c', 0), 1);
}

/* The ticket file records the previous secrets, so the dates of the secret files do not matter. */
FACT(a_secret_added_while_the_daemon_was_down_is_new) {
    bool is_new = false;
    (void)ended_by('a', 'b');
    (void)use(add(1, DAY), 1, NOW, &is_new);
    (void)tw_tickets_encode(&tickets, text);
    assert_int_equal(tw_tickets_decode(&tickets, text, &err), TW_OK);
    assert_int_equal(ended_by('b', 0), 0);
    assert_int_equal(tw_tickets_decode(&tickets, text, &err), TW_OK);
    assert_int_equal(ended_by('b', 'c'), 1);
}

/* A file of an older build does not record the previous secrets. */
FACT(tickets_without_marks_stay_good) {
    bool is_new = false;
    (void)use(add(1, DAY), 1, NOW, &is_new);
    (void)tw_tickets_encode(&tickets, text);
    assert_null(strstr(text, "secret "));
    assert_int_equal(tw_tickets_decode(&tickets, text, &err), TW_OK);
    assert_int_equal(ended_by('a', 'b'), 0);
    assert_non_null(tw_tickets_find(&tickets, tickets.rows[0].id));
    (void)tw_tickets_encode(&tickets, text);
    assert_int_equal(tw_tickets_decode(&tickets, text, &err), TW_OK);
    assert_int_equal(ended_by('b', 'c'), 1);
}

FACT(a_ticket_is_taken_back_by_its_name) {
    char name[9];
    uint8_t id[TW_TICKET_ID_BYTES];
    memcpy(id, add(1, DAY)->id, sizeof(id));
    memcpy(add(1, DAY)->id, "\x12\x34\x56\x78zzzz", 8);
    memcpy(add(1, DAY)->id, "\x12\x34\x56\x78yyyy", 8);
    memcpy(tickets.rows[0].id, "\xff\xff\xff\xff\xff\xff\xff\xff", 8);
    memcpy(id, tickets.rows[0].id, sizeof(id));
    tw_ticket_name(id, name);
    assert_string_equal(name, "ffffffff");
    assert_int_equal(tw_tickets_withdraw(&tickets, name, &err), TW_OK);
    assert_null(tw_tickets_find(&tickets, id));
    assert_int_equal(tw_tickets_withdraw(&tickets, "12345678", &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "more than one"));
    assert_int_equal(tw_tickets_withdraw(&tickets, "123456787a", &err), TW_OK);
    assert_int_equal(tw_tickets_withdraw(&tickets, "abcdabcd", &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "--list"));
    assert_int_equal(tw_tickets_withdraw(&tickets, "", &err), TW_CONFIG);
}

FACT(a_full_table_survives_its_file) {
    bool is_new = false;
    (void)ended_by('a', 'b');
    for (unsigned i = 0; i < TW_TICKETS_MAX; i++) {
        struct tw_ticket_row *row = add(TW_TICKET_USES_MAX, TW_TICKET_LIFE_MAX_S);
        for (uint8_t k = 0; k < TW_TICKET_USES_MAX; k++) (void)use(row, k, NOW, &is_new);
    }
    tickets.rows[3].is_withdrawn = tickets.rows[3].lacks_vote = true;
    tickets.rows[5].lacks_vote = true;
    const size_t size = tw_tickets_encode(&tickets, text);
    assert_true(size < sizeof(text));
    assert_int_equal(tw_tickets_decode(&back, text, &err), TW_OK);
    assert_memory_equal(&back, &tickets, sizeof(back));
}

FACT(damage_is_named_by_its_line_and_nothing_is_kept) {
    static const char *const bad[] = {
        "",
        "thinwire-tickets 2\n",
        "thinwire-tickets 1\nguest 00\n",
        "thinwire-tickets 1\nsecret 0123456\n",
        "thinwire-tickets 1\nsecret 0123456g\n",
        "thinwire-tickets 1\nticket 00 11 2 3 0\n",
        "thinwire-tickets 1\nticket 0123456789abcdef 0123456789abcdef0123456789abcdef 5 0 0\n",
        "thinwire-tickets 1\nticket 0123456789abcdef 0123456789abcdef0123456789abcdef 5 65 0\n",
        "thinwire-tickets 1\nticket 0123456789abcdef 0123456789abcdef0123456789abcdef 5 1 2\n",
        "thinwire-tickets 1\nticket 0123456789abcdef 0123456789abcdef0123456789abcdef 5 1 0 \n",
        "thinwire-tickets 1\nticket 0123456789abcdef 0123456789abcdef0123456789abcdef 5 1 0 no\n",
        "thinwire-tickets 1\nticket 0123456789abcdef 0123456789abcdef0123456789abcdef 5 1 0 "
        "no-vote \n",
        "thinwire-tickets 1\nticket 0123456789abcdef 0123456789abcdef0123456789abcdef 5 1 0"};
    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(tw_tickets_decode(&back, bad[i], &err), TW_CORRUPT);
        assert_non_null(strstr(err.message, i < 2 ? "line 1" : "line 2"));
        assert_int_equal(back.count, 0);
    }
    assert_int_equal(tw_tickets_decode(&back, "thinwire-tickets 1\nsecret 01234567\n", &err),
                     TW_OK);
    static const char votes[] =
        "thinwire-tickets 1\n"
        "ticket 0123456789abcdef 0123456789abcdef0123456789abcdef 5 1 0\n"
        "ticket 1123456789abcdef 0123456789abcdef0123456789abcdef 5 1 0 no-vote\n";
    assert_int_equal(tw_tickets_decode(&back, votes, &err), TW_OK);
    assert_false(back.rows[0].lacks_vote); /* as every ticket of an older build */
    assert_true(back.rows[1].lacks_vote);
    static const char three[] =
        "thinwire-tickets 1\nsecret 00000000\nsecret 11111111\nsecret 22222222\n";
    assert_int_equal(tw_tickets_decode(&back, three, &err), TW_CORRUPT);
    assert_non_null(strstr(err.message, "line 4"));
}

FACT(the_file_is_private_or_refused) {
    char folder[] = "/tmp/thinwire-tickets-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/tickets", folder);
    back.count = 7;
    assert_int_equal(tw_tickets_load(&back, path, &err), TW_OK);
    assert_int_equal(back.count, 0);
    add(1, DAY);
    const size_t size = tw_tickets_encode(&tickets, text);
    assert_int_equal(tw_private_replace(path, text, size, &err), TW_OK);
    assert_int_equal(tw_tickets_load(&back, path, &err), TW_OK);
    assert_memory_equal(&back, &tickets, sizeof(back));
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(tw_tickets_load(&back, path, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "chmod 600"));
    assert_int_equal(tw_private_replace(path, "what\n", 5, &err), TW_OK);
    assert_int_equal(tw_tickets_load(&back, path, &err), TW_CORRUPT);
    assert_non_null(strstr(err.message, path));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}
