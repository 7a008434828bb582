#include "worker/interrupt.h"

#include <signal.h>
#include <string.h>

#include "base/assert.h"

/* A frame with AVX-512 state takes about 4 KiB, with AMX state 12: plenty for both. */
enum { STACK_BYTES = 64 * 1024 };

static volatile sig_atomic_t is_wanted;

static void on_signal(int number) {
    (void)number;
    is_wanted = 1;
}

void tw_interrupt_catch(bool second_kills) {
    static _Alignas(64) unsigned char stack[STACK_BYTES];
    const stack_t own = {.ss_sp = stack, .ss_size = sizeof(stack)};
    TW_ASSERT(sigaltstack(&own, NULL) == 0);
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_handler = on_signal;
    action.sa_flags = SA_ONSTACK | (second_kills ? (int)SA_RESETHAND : 0);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGINT, &action, NULL);
}

bool tw_interrupt_wanted(void) {
    return is_wanted != 0;
}
