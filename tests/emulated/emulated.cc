#include "tests/emulated/emulated.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kernels/cuda/wgmma.cuh"
#include "tests/emulated/emulated_order.h"
#include "tests/emulated/fiber.h"

extern "C" {
#include "base/assert.h"
}

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

__thread tw_emulated_identity tw_emulated_self;

namespace {

enum : unsigned { THREADS_MAX = 1024, LANES = 32, WARPS_MAX = THREADS_MAX / LANES };
enum : unsigned { READY_MAX = 2 * THREADS_MAX, GROUPS_MAX = 8, ARRAYS_MAX = 32 };
enum : unsigned { NOBODY = ~0u };
/* Limits of a block on the supported GPUs: 227 KiB of shared memory, of which 48 KiB may be
 * fixed-size arrays. */
enum : size_t { SHARED_MOST = 227u << 10, STATIC_MOST = 48u << 10, GAP = 128, GAP_BYTE = 0xa5 };

/* Lanes of a warp that use collectives with the same mask. Two buffers of values alternate: a lane
 * may pass its next value before another lane has read the previous one. */
struct group {
    uint32_t mask, arrived;
    unsigned unread; /* lanes that have not continued since the last step */
    unsigned turn;
    const char *what;
    tw_emulated_lanes lanes[2];
};

struct copy {
    void *to;
    const void *from; /* NULL: zeros */
    unsigned group;
};

struct thread {
    tw_fiber *fiber;         /* NULL: the thread has not begun, or has ended */
    const char *what, *file; /* operation and file where the thread waits; NULL: it does not wait */
    int line;
    bool has_ended;
    unsigned groups_committed;
    std::vector<copy> copies;
};

struct array {
    const void *place;
    const char *name;
    unsigned char *at;
    size_t bytes;
};

/* State of a CPU thread that runs blocks, one after the other. It is kept between launches. */
struct machine {
    const tw_emulated_kernel *kernel = nullptr;
    tw_emulation_state order = {};
    unsigned threads_count = 0, ended = 0, current = 0;
    std::vector<thread> threads;
    std::vector<unsigned> thread_order, lane_order;
    tw_fiber host = {};
    std::vector<tw_fiber *> fibers, idle;

    unsigned ready[READY_MAX]; /* ring */
    unsigned ready_first = 0, ready_count = 0;

    unsigned waiting = 0; /* number of threads waiting at the barrier */
    int sum = 0, sum_before = 0;
    const char *barrier_file = nullptr, *barrier_what = nullptr;
    int barrier_line = 0;

    std::vector<group> groups[WARPS_MAX];

    unsigned char *shared = nullptr; /* memory of the block's arrays, with gaps between them */
    size_t shared_used = 0, static_bytes = 0;
    array arrays[ARRAYS_MAX];
    unsigned arrays_count = 0;
    void *dynamic = nullptr;

    ~machine() {
        for (tw_fiber *fiber : fibers) {
            tw_fiber_destroy(fiber);
            delete fiber;
        }
        ASAN_UNPOISON_MEMORY_REGION(shared, SHARED_MOST + GAP * (ARRAYS_MAX + 2));
        free(shared);
    }
};

/* The machine of this CPU thread, while it runs a kernel. */
__thread machine *here;

/* ---- errors ---- ---- */

[[noreturn]] __attribute__((format(printf, 1, 2))) void broken(const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    const uint3 b = tw_emulated_self.block;
    (void)fprintf(stderr, "emulated kernel %s, block (%u, %u, %u), thread %u: %s\n",
                  here->kernel->name, b.x, b.y, b.z, here->current, text);
    tw_assert_failed("the kernel keeps CUDA's rules", __FILE__, __LINE__);
}

/* Ends the process: no thread can continue, and some are waiting. */
[[noreturn]] void stuck() {
    const thread *first = nullptr, *other = nullptr;
    unsigned first_at = 0, other_at = 0, waiting = 0;
    for (unsigned i = 0; i < here->threads_count; i++) {
        const thread &t = here->threads[i];
        if (t.what == nullptr) continue;
        waiting++;
        if (first == nullptr) {
            first = &t, first_at = i;
        } else if (other == nullptr && (t.line != first->line || t.what != first->what)) {
            other = &t, other_at = i;
        }
    }
    if (other != nullptr) {
        broken("thread %u waits at %s (%s:%d) and thread %u at %s (%s:%d), %u have ended: they "
               "wait for each other for ever",
               first_at, first->what, first->file, first->line, other_at, other->what, other->file,
               other->line, here->ended);
    }
    broken("%u threads wait at %s (%s:%d), thread %u first, for others of which %u have ended",
           waiting, first == nullptr ? "?" : first->what, first == nullptr ? "?" : first->file,
           first == nullptr ? 0 : first->line, first_at, here->ended);
}

/* ---- scheduling ------ ---- */

void push_last(unsigned thread) {
    here->ready[(here->ready_first + here->ready_count++) % READY_MAX] = thread;
}

void push_first(unsigned thread) {
    here->ready_first = (here->ready_first + READY_MAX - 1) % READY_MAX;
    here->ready[here->ready_first] = thread;
    here->ready_count++;
}

unsigned pop() {
    if (here->ready_count == 0) return NOBODY;
    const unsigned thread = here->ready[here->ready_first];
    here->ready_first = (here->ready_first + 1) % READY_MAX;
    here->ready_count--;
    return thread;
}

void become(unsigned i) {
    const uint3 size = tw_emulated_self.block_size;
    here->current = i;
    tw_emulated_self.thread = uint3{i % size.x, i / size.x % size.y, i / size.x / size.y};
}

/* Runs threads that have not begun, one after the other, on one stack. Switches away when the next
 * thread in turn already has its own stack. */
void fiber_body() {
    for (;;) {
        tw_fiber *const self = here->threads[here->current].fiber;
        become(here->current);
        here->kernel->body();
        thread &done = here->threads[here->current];
        done.has_ended = true;
        done.fiber = nullptr;
        if (!done.copies.empty()) broken("it ends before its asynchronous copies have arrived");
        here->ended++;
        const unsigned next = pop();
        if (next == NOBODY && here->ended < here->threads_count) stuck();
        tw_fiber *to = &here->host;
        if (next != NOBODY) {
            here->current = next;
            to = here->threads[next].fiber;
            if (to == nullptr) {
                here->threads[next].fiber = self;
                continue;
            }
        }
        here->idle.push_back(self);
        tw_fiber_switch(self, to);
    }
}

tw_fiber *fiber_get() {
    if (here->idle.empty()) {
        tw_fiber *fiber = new tw_fiber;
        TW_ASSERT(tw_fiber_create(fiber, fiber_body));
        here->fibers.push_back(fiber);
        return fiber;
    }
    tw_fiber *fiber = here->idle.back();
    here->idle.pop_back();
    return fiber;
}

/* Called when the running thread must wait, or has queued itself. Switches to the next thread, and
 * returns when it is this thread's turn again. */
void give_up() {
    const unsigned self = here->current, next = pop();
    if (next == NOBODY) stuck();
    if (next == self) return;
    here->current = next;
    if (here->threads[next].fiber == nullptr) here->threads[next].fiber = fiber_get();
    tw_fiber_switch(here->threads[self].fiber, here->threads[next].fiber);
    become(self);
}

/* ---- shared memory ---- */

unsigned char *shared_take(size_t bytes) {
    unsigned char *at = here->shared + here->shared_used;
    const size_t padded = (bytes + GAP - 1) / GAP * GAP;
    here->shared_used += padded + GAP;
    ASAN_UNPOISON_MEMORY_REGION(at, bytes);
    memset(at, 0xff, bytes);
#ifndef __SANITIZE_ADDRESS__
    memset(at + bytes, GAP_BYTE, padded - bytes + GAP);
#endif
    return at;
}

void shared_begin() {
    if (here->shared == nullptr) {
        here->shared = (unsigned char *)aligned_alloc(GAP, SHARED_MOST + GAP * (ARRAYS_MAX + 2));
        TW_ASSERT(here->shared != nullptr);
    }
    ASAN_POISON_MEMORY_REGION(here->shared, SHARED_MOST + GAP * (ARRAYS_MAX + 2));
    here->shared_used = GAP;
    here->static_bytes = 0;
    here->arrays_count = 0;
    here->dynamic = shared_take(here->kernel->shared_bytes);
}

void gap_check(const unsigned char *at, size_t bytes, const char *name) {
    (void)at, (void)bytes, (void)name;
#ifndef __SANITIZE_ADDRESS__
    const size_t gap = (bytes + GAP - 1) / GAP * GAP - bytes + GAP;
    for (size_t i = 0; i < gap; i++) {
        if (at[bytes + i] != GAP_BYTE)
            broken("%zu bytes were written past the end of shared %s (%zu bytes)", i + 1, name,
                   bytes);
    }
#endif
}

void shared_end() {
    gap_check((unsigned char *)here->dynamic, here->kernel->shared_bytes, "memory of the launch");
    for (unsigned i = 0; i < here->arrays_count; i++)
        gap_check(here->arrays[i].at, here->arrays[i].bytes, here->arrays[i].name);
}

/* ---- blocks ---- */

void block_run(unsigned idx) {
    const dim3 grid = here->kernel->grid;
    tw_emulated_self.block = uint3{idx % grid.x, idx / grid.x % grid.y, idx / grid.x / grid.y};
    shared_begin();
    here->ended = here->waiting = here->ready_first = here->ready_count = 0;
    for (unsigned i = 0; i < here->threads_count; i++) {
        thread &t = here->threads[i];
        t.fiber = nullptr;
        t.what = nullptr;
        t.has_ended = false;
        t.groups_committed = 0;
    }
    for (unsigned w = 0; w < (here->threads_count + LANES - 1) / LANES; w++)
        here->groups[w].clear();
    for (unsigned i = 0; i < here->threads_count; i++) push_last(here->thread_order[i]);
    here->current = pop();
    tw_fiber *const fiber = fiber_get();
    here->threads[here->current].fiber = fiber;
    tw_fiber_switch(&here->host, fiber);
    shared_end();
}

void check_shape(const tw_emulated_kernel &k) {
    const uint64_t threads = (uint64_t)k.block.x * k.block.y * k.block.z;
    if (threads == 0 || threads > THREADS_MAX || k.block.z > 64)
        broken("a block of (%u, %u, %u) threads: 1 to 1024 in all", k.block.x, k.block.y,
               k.block.z);
    if (k.grid.x == 0 || k.grid.y == 0 || k.grid.z == 0 || k.grid.x > 0x7fffffffu ||
        k.grid.y > 65535 || k.grid.z > 65535)
        broken("a grid of (%u, %u, %u) blocks: 1 to 2^31 - 1 by 65535 by 65535", k.grid.x, k.grid.y,
               k.grid.z);
    if (k.shared_bytes > SHARED_MOST)
        broken("%zu bytes of shared memory: a block has %zu at most", k.shared_bytes, SHARED_MOST);
}

} // namespace

void tw_emulated_run(const tw_emulated_kernel &kernel) {
    static thread_local machine own;
    TW_ASSERT(own.kernel == nullptr); /* a kernel cannot launch another */
    here = &own;
    here->kernel = &kernel;
    here->current = 0;
    tw_emulated_self.block = uint3{0, 0, 0};
    check_shape(kernel);
    here->order = tw_emulation_state_now();
    here->threads_count = kernel.block.x * kernel.block.y * kernel.block.z;
    if (here->threads.size() < here->threads_count) here->threads.resize(here->threads_count);
    tw_emulated_order(here->thread_order, here->threads_count, here->order);
    tw_emulated_order(here->lane_order, LANES, here->order);
    tw_emulated_self.block_size = uint3{kernel.block.x, kernel.block.y, kernel.block.z};
    tw_emulated_self.grid_size = uint3{kernel.grid.x, kernel.grid.y, kernel.grid.z};
    const uint64_t blocks = (uint64_t)kernel.grid.x * kernel.grid.y * kernel.grid.z;
    TW_ASSERT(blocks <= UINT32_MAX);
    for (uint64_t i = 0; i < blocks; i++)
        block_run((unsigned)tw_emulated_place(i, blocks, here->order));
    here->kernel = nullptr;
}

void *tw_emulated_shared(const void *place, size_t bytes, const char *name) {
    for (unsigned i = 0; i < here->arrays_count; i++) {
        if (here->arrays[i].place == place) return here->arrays[i].at;
    }
    here->static_bytes += bytes;
    if (here->arrays_count == ARRAYS_MAX) broken("more than %u shared arrays", ARRAYS_MAX);
    if (here->static_bytes > STATIC_MOST)
        broken("%zu bytes of shared arrays of fixed size, %zu at most", here->static_bytes,
               STATIC_MOST);
    if (here->static_bytes + here->kernel->shared_bytes > SHARED_MOST)
        broken("%zu bytes of shared memory, %zu at most",
               here->static_bytes + here->kernel->shared_bytes, SHARED_MOST);
    array &array = here->arrays[here->arrays_count++];
    array = {place, name, shared_take(bytes), bytes};
    return array.at;
}

void *tw_emulated_shared_dynamic() {
    return here->dynamic;
}

/* ---- barriers ---- */

int tw_emulated_barrier(int value, const char *what, const char *file, int line) {
    thread &self = here->threads[here->current];
    if (here->waiting == 0) {
        here->barrier_what = what, here->barrier_file = file, here->barrier_line = line;
        here->sum = 0;
    } else if (here->barrier_line != line || strcmp(here->barrier_file, file) != 0 ||
               strcmp(here->barrier_what, what) != 0) {
        broken("it comes to %s (%s:%d) while others of the block wait at %s (%s:%d)", what, file,
               line, here->barrier_what, here->barrier_file, here->barrier_line);
    }
    here->sum += value;
    here->waiting++;
    self.what = what, self.file = file, self.line = line;
    if (here->waiting == here->threads_count) {
        here->waiting = 0;
        here->sum_before = here->sum;
        for (unsigned i = 0; i < here->threads_count; i++) {
            here->threads[here->thread_order[i]].what = nullptr;
            push_last(here->thread_order[i]);
        }
    }
    give_up();
    return here->sum_before;
}

/* ---- steps of a warp ---- */

namespace {

group &group_of(const tw_emulated_step &step, const char *file, int line) {
    const unsigned warp = here->current / LANES, lane = here->current % LANES;
    if (step.mask >> lane == 0 || !(step.mask >> lane & 1))
        broken("%s (%s:%d) by a mask 0x%08x that leaves the caller out", step.what, file, line,
               step.mask);
    if (here->threads_count - warp * LANES < LANES &&
        step.mask >> (here->threads_count - warp * LANES) != 0)
        broken("%s (%s:%d) by a mask 0x%08x of more lanes than this warp has", step.what, file,
               line, step.mask);
    std::vector<group> &groups = here->groups[warp];
    group *found = nullptr;
    for (group &g : groups) {
        if (g.mask == step.mask) return g;
        if (g.arrived == 0 && g.unread == 0) found = &g;
    }
    if (groups.size() < GROUPS_MAX) {
        groups.reserve(GROUPS_MAX); /* reserved, so that groups are never moved in memory */
        groups.emplace_back();
        found = &groups.back();
    }
    if (found == nullptr)
        broken("%s (%s:%d): more than %u masks of one warp at a time", step.what, file, line,
               GROUPS_MAX);
    found->mask = step.mask;
    found->arrived = found->unread = found->turn = 0;
    return *found;
}

/* Makes the lanes of a completed step ready, in launch order, ahead of all other threads. */
void wake(uint32_t mask) {
    const unsigned first = here->current / LANES * LANES;
    for (unsigned i = LANES; i-- > 0;) {
        const unsigned lane = here->lane_order[i];
        if (!(mask >> lane & 1)) continue;
        here->threads[first + lane].what = nullptr;
        push_first(first + lane);
    }
}

} // namespace

const tw_emulated_lanes *tw_emulated_warp(const tw_emulated_step &step, const char *file,
                                          int line) {
    const unsigned lane = here->current % LANES;
    thread &self = here->threads[here->current];
    group &g = group_of(step, file, line);
    if (g.arrived != 0 && strcmp(g.what, step.what) != 0)
        broken("it comes to %s (%s:%d) while other lanes of its warp wait at %s", step.what, file,
               line, g.what);
    g.what = step.what;
    g.arrived |= 1u << lane;
    tw_emulated_lanes *const lanes = &g.lanes[g.turn];
    if (step.bytes > 0) memcpy(lanes->of[lane], step.value, step.bytes);
    self.what = step.what, self.file = file, self.line = line;
    if (g.arrived == g.mask) {
        if (step.complete != nullptr) step.complete(lanes);
        g.arrived = 0;
        g.unread = (unsigned)__builtin_popcount(g.mask);
        g.turn = 1 - g.turn;
        wake(g.mask);
    }
    give_up();
    g.unread--;
    return lanes;
}

/* ---- tensor cores ---- */

namespace {

float bf16_value(uint32_t pair, unsigned half) {
    return __uint_as_float(half == 0 ? pair << 16 : pair & 0xffff0000u);
}

struct mma {
    float d[4];
    uint32_t a[4], b[2];
};

void mma_complete(tw_emulated_lanes *lanes) {
    float a[16][16], b[16][8];
    for (unsigned lane = 0; lane < LANES; lane++) {
        const mma *m = (const mma *)lanes->of[lane];
        const unsigned row = lane / 4, pair = lane % 4 * 2;
        for (unsigned half = 0; half < 2; half++) {
            a[row][pair + half] = bf16_value(m->a[0], half);
            a[row + 8][pair + half] = bf16_value(m->a[1], half);
            a[row][pair + 8 + half] = bf16_value(m->a[2], half);
            a[row + 8][pair + 8 + half] = bf16_value(m->a[3], half);
            b[pair + half][row] = bf16_value(m->b[0], half);
            b[pair + 8 + half][row] = bf16_value(m->b[1], half);
        }
    }
    for (unsigned row = 0; row < 16; row++) {
        float sum[8] = {0};
        for (unsigned k = 0; k < 16; k++) {
            for (unsigned column = 0; column < 8; column++) sum[column] += a[row][k] * b[k][column];
        }
        for (unsigned column = 0; column < 8; column++) {
            mma *m = (mma *)lanes->of[row % 8 * 4 + column / 2];
            m->d[row / 8 * 2 + column % 2] += sum[column];
        }
    }
}

void check_aligned(const void *at, const char *what) {
    if ((uintptr_t)at % 16 != 0) broken("%s at %p, which is no multiple of 16 bytes", what, at);
}

} // namespace

void tw_emulated_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2], const char *file,
                          int line) {
    static_assert(sizeof(mma) <= TW_EMULATED_LANE_BYTES, "fits");
    mma m;
    memcpy(m.d, d, sizeof(m.d));
    memcpy(m.a, a, sizeof(m.a));
    memcpy(m.b, b, sizeof(m.b));
    const tw_emulated_lanes *lanes =
        tw_emulated_warp({"tw_mma_bf16", 0xffffffffu, &m, sizeof(m), mma_complete}, file, line);
    memcpy(d, ((const mma *)lanes->of[here->current % LANES])->d, sizeof(m.d));
}

void tw_emulated_ldmatrix_x4(uint32_t r[4], const void *row, bool is_transposed, const char *file,
                             int line) {
    const unsigned lane = here->current % LANES;
    check_aligned(row, "a row for tw_ldmatrix_x4");
    const tw_emulated_lanes *lanes =
        tw_emulated_warp({is_transposed ? "tw_ldmatrix_x4_trans" : "tw_ldmatrix_x4", 0xffffffffu,
                          &row, sizeof(row), nullptr},
                         file, line);
    for (unsigned matrix = 0; matrix < 4; matrix++) {
        uint16_t half[2];
        for (unsigned i = 0; i < 2; i++) {
            const unsigned at = is_transposed ? lane % 4 * 2 + i : lane / 4;
            const unsigned column = is_transposed ? lane / 4 : lane % 4 * 2 + i;
            const uint16_t *from;
            memcpy(&from, lanes->of[matrix * 8 + at], sizeof(from));
            half[i] = from[column];
        }
        r[matrix] = half[0] | (uint32_t)half[1] << 16;
    }
}

namespace {

/* Returns element (row, k) of a factor, k < 16, from the address where the hardware would read it.
 * Rows are adjacent in groups of eight, and bits 4 to 6 of every address are swizzled with bits 7
 * to 9. */
float factor_value(const tw_wg_factor *factor, unsigned row, unsigned k) {
    size_t offset = row / 8 * TW_PANEL_ALIGN + row % 8 * 128 + k * 2;
    if (factor->is_transposed)
        offset = row / 64 * (size_t)factor->panel_bytes + row % 64 * 2 + k / 8 * TW_PANEL_ALIGN +
                 k % 8 * 128;
    const uintptr_t at = (uintptr_t)factor->at + offset;
    uint16_t bits;
    memcpy(&bits, (const void *)(at ^ (at >> 7 & 7) << 4), sizeof(bits));
    return bf16_value(bits, 0);
}

} // namespace

void tw_emulated_wgmma(const tw_emulated_wg &result, const uint32_t *left, const tw_wg_factor *a,
                       const tw_wg_factor *b, const char *file, int line) {
    const unsigned lane = here->current % LANES, warp = here->current / LANES % 4;
    static const uint32_t none[4] = {0};
    const tw_emulated_lanes *lanes = tw_emulated_warp(
        {"wgmma", 0xffffffffu, left != nullptr ? left : none, sizeof(none), nullptr}, file, line);
    float rows[2][16];
    for (unsigned half = 0; half < 2; half++) {
        for (unsigned k = 0; k < 16; k++) {
            if (left == nullptr) {
                rows[half][k] = factor_value(a, warp * 16 + half * 8 + lane / 4, k);
                continue;
            }
            uint32_t of[4];
            memcpy(of, lanes->of[lane / 4 * 4 + k % 8 / 2], sizeof(of));
            rows[half][k] = bf16_value(of[half + k / 8 * 2], k % 2);
        }
    }
    for (unsigned n = 0; n < result.columns / 8; n++) {
        for (unsigned i = 0; i < 4; i++) {
            float sum = result.keeps_d ? result.d[n * 4 + i] : 0.0f;
            for (unsigned k = 0; k < 16; k++)
                sum += rows[i / 2][k] * factor_value(b, n * 8 + lane % 4 * 2 + i % 2, k);
            result.d[n * 4 + i] = sum;
        }
    }
}

/* ---- asynchronous copies ---- */

void tw_emulated_copy_async16(void *shared, const void *global, bool is_valid) {
    thread &self = here->threads[here->current];
    check_aligned(shared, "tw_copy_async16 to");
    if (is_valid) check_aligned(global, "tw_copy_async16 from");
    self.copies.push_back({shared, is_valid ? global : nullptr, self.groups_committed});
}

void tw_emulated_copy_commit() {
    here->threads[here->current].groups_committed++;
}

void tw_emulated_copy_wait(unsigned groups_left) {
    thread &self = here->threads[here->current];
    size_t kept = 0;
    for (const copy &c : self.copies) {
        if (c.group + groups_left >= self.groups_committed) {
            self.copies[kept++] = c;
        } else if (c.from == nullptr) {
            memset(c.to, 0, 16);
        } else {
            memcpy(c.to, c.from, 16);
        }
    }
    self.copies.resize(kept);
}
