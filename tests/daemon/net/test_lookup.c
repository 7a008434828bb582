/* Tests of dials by name in daemon/net/dialer.c, with a resolver that does not answer. This file
 * replaces the C library's getaddrinfo(). */
#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>

#include "tests/daemon/net/world.h"
#include "tests/test.h"

enum { CONNECT_US = 100 * 1000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t answers = PTHREAD_COND_INITIALIZER;
static bool is_hanging;
static uint32_t asked;

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                struct addrinfo **found) {
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    if (strcmp(host, "node.example") != 0) { /* the node's listening addresses */
        *(void **)(&real) = dlsym(RTLD_NEXT, "getaddrinfo");
        return real(host, service, hints, found);
    }
    *found = NULL;
    (void)pthread_mutex_lock(&lock);
    asked++;
    while (is_hanging) (void)pthread_cond_wait(&answers, &lock);
    (void)pthread_mutex_unlock(&lock);
    return EAI_NONAME;
}

static void hang(bool hangs) {
    (void)pthread_mutex_lock(&lock);
    is_hanging = hangs;
    (void)pthread_cond_broadcast(&answers);
    (void)pthread_mutex_unlock(&lock);
}

static int setup(void **state) {
    hang(false);
    asked = 0;
    world_init(&world);
    return 0;
}

static int teardown(void **state) {
    hang(false);
    world_deinit(&world);
    return 0;
}

#define FACT(name) TEST_IN(setup, teardown, name)

static void with_short_patience(struct tw_transport_config *config) {
    config->connect_us = CONNECT_US;
}

static enum tw_status dial_name(struct world_node *from) {
    struct tw_error err = {0};
    return tw_transport_connect(from->transport, "node.example:4747", NULL, &err);
}

FACT(unknown_name_is_reported) {
    struct world_node *a = world_start(&world, 0, NULL);
    assert_int_equal(dial_name(a), TW_OK);
    WAIT_WHILE(&world, a->dials == 0);
    assert_int_equal(a->dial_cause, TW_DIAL_DNS);
    assert_int_equal(asked, 1);
}

/* All dial slots wait for a resolver that does not answer. */
FACT(lookup_that_hangs_holds_no_dial) {
    struct world_node *a = world_start(&world, 0, with_short_patience);
    struct world_node *b = world_start(&world, 1, NULL);
    hang(true);
    for (unsigned i = 0; i < TW_DIALS_MAX; i++) assert_int_equal(dial_name(a), TW_OK);
    assert_int_equal(dial_name(a), TW_LIMIT);
    WAIT_WHILE(&world, a->dials < TW_DIALS_MAX);
    assert_int_equal(a->dial_status, TW_IO);
    assert_int_equal(a->dial_cause, TW_DIAL_DNS);
    assert_non_null(strstr(a->dial_sentence, "no answer from the name server in time"));
    world_dial(a, b);
    WAIT_WHILE(&world, world_peer_of(a, b) < 0 || a->dials < TW_DIALS_MAX + 1);
    assert_int_equal(a->dial_status, TW_OK);
    assert_int_equal(dial_name(a), TW_OK); /* one more dial, which times out too */
    WAIT_WHILE(&world, a->dials < TW_DIALS_MAX + 2);
    hang(false);
    world_turn(&world, 20);
    assert_int_equal(a->dials, TW_DIALS_MAX + 2); /* late answers of the resolver are ignored */
}
