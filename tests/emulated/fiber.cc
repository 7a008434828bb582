#include "tests/emulated/fiber.h"

#include <cstdint>
#include <cstdlib>
#include <sys/mman.h>

extern "C" {
#include "base/assert.h"
}
#ifndef __x86_64__
#include <ucontext.h>
#endif

#ifdef __SANITIZE_ADDRESS__
#define TW_FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TW_FIBER_ASAN 1
#endif
#endif

#ifdef TW_FIBER_ASAN
#include <sanitizer/common_interface_defs.h>
enum : size_t { STACK_BYTES = 256u << 10 }; /* ASan's red zones enlarge stack frames */
#else
enum : size_t { STACK_BYTES = 64u << 10 };
#endif
enum : size_t { GUARD_BYTES = 4096 };

/* The fiber that switched to the current one, which reports the switch to the sanitizer afterwards.
 */
static __thread tw_fiber *arrived_from;

static void leave(tw_fiber *from, tw_fiber *to) {
    arrived_from = from;
#ifdef TW_FIBER_ASAN
    __sanitizer_start_switch_fiber(&from->fake, to->stack, to->stack_bytes);
#else
    (void)to;
#endif
}

static void arrive(tw_fiber *self) {
#ifdef TW_FIBER_ASAN
    const void *bottom = nullptr;
    size_t bytes = 0;
    __sanitizer_finish_switch_fiber(self == nullptr ? nullptr : self->fake, &bottom, &bytes);
    if (arrived_from->stack != nullptr) return;
    arrived_from->stack = const_cast<void *>(bottom);
    arrived_from->stack_bytes = bytes;
#else
    (void)self;
#endif
}

/* The first function that runs on a new stack. */
static void begin(void (*entry)()) {
    arrive(nullptr);
    entry();
    TW_NEVER("the entry of a fiber returned");
}

#ifdef __x86_64__
/* Replaces swapcontext(), which makes a system call for the signal mask at every switch and takes
 * some hundred times as long. Saves the callee-saved registers; floating-point modes stay as they
 * are. */
extern "C" void tw_fiber_exchange(void **left, void *to);
__asm__(".text\n"
        ".globl tw_fiber_exchange\n"
        ".type tw_fiber_exchange, @function\n"
        "tw_fiber_exchange:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size tw_fiber_exchange, . - tw_fiber_exchange\n"
        /* Start of a new stack: the fiber's entry is in %rbx, `begin` in %r12. */
        ".type tw_fiber_first, @function\n"
        "tw_fiber_first:\n"
        "    movq %rbx, %rdi\n"
        "    xorl %ebp, %ebp\n"
        "    callq *%r12\n"
        "    ud2\n"
        ".size tw_fiber_first, . - tw_fiber_first\n");
extern "C" void tw_fiber_first(void);

static bool prepare(tw_fiber *fiber, void (*entry)()) {
    uintptr_t *top = (uintptr_t *)((char *)fiber->stack + fiber->stack_bytes);
    top -= 2; /* aligns the stack of tw_fiber_first to 16 bytes, as after a call */
    *--top = (uintptr_t)&tw_fiber_first;
    *--top = 0;                 /* rbp */
    *--top = (uintptr_t)entry;  /* rbx */
    *--top = (uintptr_t)&begin; /* r12 */
    for (int i = 13; i <= 15; i++) *--top = 0;
    fiber->left = top;
    return true;
}

static void forget(tw_fiber *fiber) {
    (void)fiber;
}

static void exchange(tw_fiber *from, tw_fiber *to) {
    tw_fiber_exchange(&from->left, to->left);
}
#else
static bool prepare(tw_fiber *fiber, void (*entry)()) {
    ucontext_t *context = (ucontext_t *)calloc(1, sizeof(*context));
    if (context == nullptr || getcontext(context) != 0) {
        free(context);
        return false;
    }
    context->uc_stack.ss_sp = fiber->stack;
    context->uc_stack.ss_size = fiber->stack_bytes;
    makecontext(context, (void (*)())begin, 1, entry);
    fiber->left = context;
    return true;
}

static void forget(tw_fiber *fiber) {
    free(fiber->left);
}

static void exchange(tw_fiber *from, tw_fiber *to) {
    if (from->left == nullptr) from->left = calloc(1, sizeof(ucontext_t));
    TW_ASSERT(from->left != nullptr);
    TW_ASSERT(swapcontext((ucontext_t *)from->left, (ucontext_t *)to->left) == 0);
}
#endif

bool tw_fiber_create(tw_fiber *fiber, void (*entry)()) {
    *fiber = tw_fiber{};
    void *memory = mmap(nullptr, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    (void)mprotect(memory, GUARD_BYTES, PROT_NONE);
    fiber->stack = (char *)memory + GUARD_BYTES;
    fiber->stack_bytes = STACK_BYTES;
    if (prepare(fiber, entry)) return true;
    (void)munmap(memory, GUARD_BYTES + STACK_BYTES);
    return false;
}

void tw_fiber_destroy(tw_fiber *fiber) {
    forget(fiber);
    (void)munmap((char *)fiber->stack - GUARD_BYTES, GUARD_BYTES + STACK_BYTES);
    *fiber = tw_fiber{};
}

void tw_fiber_switch(tw_fiber *from, tw_fiber *to) {
    leave(from, to);
    exchange(from, to);
    arrive(from);
}
