#include "worker/support/signals.h"

#include <signal.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"

/* Room for a signal frame: about 4 KiB with AVX-512 state, 12 KiB with AMX state. */
enum { STACK_BYTES = 64 * 1024 };

static volatile sig_atomic_t is_wanted;
static bool can_kill;
/* time of the first signal in seconds; handlers do not interrupt each other */
static time_t asked_s;

static void on_signal(int number) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    if (is_wanted == 0) asked_s = now.tv_sec;
    is_wanted = 1;
    if (!can_kill || now.tv_sec - asked_s < 2) return;
    (void)signal(number, SIG_DFL);
    (void)raise(number); /* delivered with its default effect when this handler returns */
}

void tw_signals_catch(bool second_kills) {
    static _Alignas(64) unsigned char stack[STACK_BYTES];
    const stack_t own = {.ss_sp = stack, .ss_size = sizeof(stack)};
    TW_ASSERT(sigaltstack(&own, NULL) == 0);
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_handler = on_signal;
    action.sa_flags = SA_ONSTACK;
    (void)sigaddset(&action.sa_mask, SIGTERM);
    (void)sigaddset(&action.sa_mask, SIGINT);
    (void)sigaddset(&action.sa_mask, SIGHUP);
    can_kill = second_kills;
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGINT, &action, NULL);
    struct sigaction hangup;
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
        (void)sigaction(SIGHUP, &action, NULL);
}

bool tw_signals_wanted(void) {
    return is_wanted != 0;
}
