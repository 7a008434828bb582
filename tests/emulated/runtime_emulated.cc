/* runtime_emulated.cc - implements runtime.h on the CPU: a device is host memory with a limit, and
 * streams are queues of closures. Violations (a write past an array, a kernel whose result depends
 * on the order of its threads) end the process with a message. */
#include <atomic>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <sys/mman.h>
#include <vector>

#include "kernels/cuda/runtime_words.h"
#include "tests/emulated/emulated.h"
#include "tests/emulated/emulated_order.h"

extern "C" {
#include "base/assert.h"
}

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

enum : size_t { ALIGNMENT = 256, WORKSPACE_BYTES = 1u << 20, PAGE = 4096 };
enum : int { GAP_BYTE = 0xa5, NAN_BYTE = 0xff };

namespace {

std::atomic<uint64_t> device_bytes{1u << 30}, calls_made{0}, calls_until_fault{0};
std::atomic<bool> can_pin{true};

/* Work of tw_emulation_run_after(); without threads. */
struct {
    uint64_t calls;
    void (*work)(void *self);
    void *self;
} later;

/* Counts a call, and returns true if it is the one that must fail. */
bool is_failing() {
    calls_made++;
    if (later.calls > 0 && --later.calls == 0) later.work(later.self);
    uint64_t left = calls_until_fault;
    while (left > 0 && !calls_until_fault.compare_exchange_weak(left, left - 1)) {
    }
    return left == 1;
}

struct item {
    std::string name;
    std::function<void()> work;
    bool is_kernel;
};

struct allocation {
    uint64_t bytes;
    std::string what;
};

} // namespace

struct tw_cuda_graph {
    std::vector<item> items;
};

struct tw_emulated_stream {
    struct tw_cuda *cuda;
    std::deque<item> items;
    uint64_t recorded, passed; /* events */
};

struct tw_cuda {
    struct tw_cuda_info info;
    uint64_t limit, used;
    unsigned char *arena;                     /* device memory of total_bytes, accessible only to
                                                 queued work */
    size_t opened;                            /* bytes at the start of the arena that were ever
                                                 allocated */
    unsigned inside;                          /* number of closures running now */
    bool is_closed;                           /* true while the whole arena is inaccessible */
    std::map<size_t, allocation> allocations; /* keyed by offset in the arena */
    tw_emulated_stream streams[TW_CUDA_QUEUES];
    std::map<unsigned char *, uint64_t> pinned; /* pinned memory of the caller: address to bytes */
    tw_cuda_graph *capturing;
    void *workspace;
    std::string fault; /* action that failed first, or "" */
    std::string reason;
};

namespace {

[[noreturn]] void broken(const struct tw_cuda *cuda, const char *sentence, const char *name) {
    (void)fprintf(stderr, "emulated device %d: %s: %s\n", cuda->info.ordinal, name, sentence);
    tw_assert_failed("the host keeps the rules of runtime.h", __FILE__, __LINE__);
}

/* ---- the arena ---- */

size_t padded(uint64_t bytes) {
    return (size_t)(bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + ALIGNMENT;
}

/* Makes the arena accessible, for queued work. */
void enter(struct tw_cuda *cuda) {
    cuda->inside++;
    if (!cuda->is_closed) return;
    TW_ASSERT(mprotect(cuda->arena, cuda->opened, PROT_READ | PROT_WRITE) == 0);
    cuda->is_closed = false;
}

/* Makes the arena inaccessible to the host, except in the order `up`. There every call runs at
 * once, and a system call each would take longer than most test kernels. The same tests also run in
 * the other orders. */
void leave(struct tw_cuda *cuda) {
    if (--cuda->inside > 0 || cuda->opened == 0) return;
    if (tw_emulation_state_now().order == TW_EMULATION_UP) return;
    TW_ASSERT(mprotect(cuda->arena, cuda->opened, PROT_NONE) == 0);
    cuda->is_closed = true;
}

/* Returns the offset of the first hole that is large enough, or SIZE_MAX if there is none. */
size_t hole(const struct tw_cuda *cuda, size_t bytes) {
    size_t at = 0;
    for (const auto &[begin, a] : cuda->allocations) {
        if (begin - at >= bytes) break;
        at = begin + padded(a.bytes);
    }
    return cuda->info.total_bytes - at >= bytes ? at : SIZE_MAX;
}

void open_up_to(struct tw_cuda *cuda, size_t end) {
    end = (end + PAGE - 1) / PAGE * PAGE;
    if (end <= cuda->opened) return;
    TW_ASSERT(mprotect(cuda->arena + cuda->opened, end - cuda->opened, PROT_READ | PROT_WRITE) ==
              0);
    ASAN_POISON_MEMORY_REGION(cuda->arena + cuda->opened, end - cuda->opened);
    cuda->opened = end;
}

void check_gap(const struct tw_cuda *cuda, size_t begin, const allocation &a) {
    (void)cuda, (void)begin, (void)a;
#ifndef __SANITIZE_ADDRESS__
    for (size_t i = begin + a.bytes; i < begin + padded(a.bytes); i++) {
        if (cuda->arena[i] != GAP_BYTE)
            broken(cuda, "bytes were written past the end of this device memory", a.what.c_str());
    }
#endif
}

void check_gaps(struct tw_cuda *cuda) {
    enter(cuda);
    for (const auto &[begin, a] : cuda->allocations) check_gap(cuda, begin, a);
    leave(cuda);
}

/* ---- streams ---- */

std::vector<unsigned char> contents(const struct tw_cuda *cuda) {
    std::vector<unsigned char> all;
    for (const auto &[begin, a] : cuda->allocations)
        all.insert(all.end(), cuda->arena + begin, cuda->arena + begin + a.bytes);
    return all;
}

void put_back(const struct tw_cuda *cuda, const std::vector<unsigned char> &all) {
    size_t at = 0;
    for (const auto &[begin, a] : cuda->allocations) {
        memcpy(cuda->arena + begin, all.data() + at, a.bytes);
        at += a.bytes;
    }
}

/* Runs an item in the order up, then down on the same memory; both results must be equal. */
void run_both(struct tw_cuda *cuda, const item &item) {
    const tw_emulation_state up = {TW_EMULATION_UP, 0}, down = {TW_EMULATION_DOWN, 0};
    const std::vector<unsigned char> before = contents(cuda);
    tw_emulation_state_here(&up);
    item.work();
    const std::vector<unsigned char> first = contents(cuda);
    put_back(cuda, before);
    tw_emulation_state_here(&down);
    item.work();
    tw_emulation_state_here(nullptr);
    size_t at = 0;
    for (const auto &[begin, a] : cuda->allocations) {
        const unsigned char *now = cuda->arena + begin;
        for (uint64_t i = 0; i < a.bytes; i++) {
            if (now[i] == first[at + i]) continue;
            const std::string sentence = "byte " + std::to_string(i) + " of " + a.what +
                                         " depends on the order of threads or blocks: a barrier is "
                                         "missing, or a sum has no fixed order";
            broken(cuda, sentence.c_str(), item.name.c_str());
        }
        at += a.bytes;
    }
}

void run_item(struct tw_cuda *cuda, const item &item) {
    if (item.is_kernel && tw_emulation_state_now().order == TW_EMULATION_BOTH) {
        run_both(cuda, item);
    } else {
        item.work();
    }
}

/* Runs the stream's items until `events` of its events have passed. */
void drain(tw_emulated_stream *stream, uint64_t events) {
    if (stream->items.empty()) return;
    enter(stream->cuda);
    while (!stream->items.empty() && stream->passed < events) {
        const item next = std::move(stream->items.front());
        stream->items.pop_front();
        run_item(stream->cuda, next);
    }
    leave(stream->cuda);
}

void drain_all(struct tw_cuda *cuda) {
    for (tw_emulated_stream &stream : cuda->streams) drain(&stream, UINT64_MAX);
}

void put(tw_emulated_stream *stream, item item) {
    struct tw_cuda *const cuda = stream->cuda;
    if (!cuda->fault.empty()) return;
    if (cuda->capturing != nullptr) {
        if (stream != &cuda->streams[TW_CUDA_COMPUTE])
            broken(cuda, "put into the side stream while a graph is made", item.name.c_str());
        cuda->capturing->items.push_back(std::move(item));
        return;
    }
    stream->items.push_back(std::move(item));
    if (tw_emulation_state_now().order == TW_EMULATION_UP) drain(stream, UINT64_MAX);
}

/* Queues a call that may fail on a GPU. */
void put_call(tw_emulated_stream *stream, item item) {
    if (is_failing() && stream->cuda->fault.empty()) stream->cuda->fault = item.name;
    put(stream, std::move(item));
}

void not_in_graph(const struct tw_cuda *cuda, const char *what) {
    if (cuda->capturing != nullptr) broken(cuda, "called while a graph is made", what);
}

enum tw_status say_fault(const struct tw_cuda *cuda, struct tw_error *err) {
    return tw_cuda_say_fault(err, &cuda->info, cuda->fault.c_str(),
                             cuda->reason.empty() ? "a fault that was asked for"
                                                  : cuda->reason.c_str());
}

} // namespace

void tw_emulated_submit(void *stream, tw_emulated_kernel kernel) {
    TW_ASSERT(stream != nullptr);
    const std::string name = kernel.name;
    put_call((tw_emulated_stream *)stream, {name, [kernel]() { tw_emulated_run(kernel); }, true});
}

extern "C" void tw_emulation_submit(void *stream, const char *name,
                                    void (*work)(const void *arguments), const void *arguments,
                                    size_t bytes) {
    TW_ASSERT(stream != nullptr);
    /* counted in max_align_t, so that the copy is aligned for any type */
    std::vector<std::max_align_t> copy((bytes + sizeof(std::max_align_t) - 1) /
                                       sizeof(std::max_align_t));
    if (bytes > 0) memcpy(copy.data(), arguments, bytes);
    put_call((tw_emulated_stream *)stream, {name, [work, copy]() { work(copy.data()); }, false});
}

extern "C" void tw_emulation_fail_after(uint64_t calls) {
    calls_until_fault = calls;
}

extern "C" void tw_emulation_run_after(uint64_t calls, void (*work)(void *self), void *self) {
    later = {calls, work, self};
}

extern "C" uint64_t tw_emulation_calls(void) {
    return calls_made;
}

extern "C" void tw_emulation_set_memory(uint64_t bytes) {
    device_bytes = bytes;
}

extern "C" void tw_emulation_set_pins(bool are_possible) {
    can_pin = are_possible;
}

/* ---- devices ---- */

extern "C" int tw_cuda_count(struct tw_error *err) {
    (void)err;
    return 1;
}

extern "C" enum tw_status tw_cuda_info(struct tw_cuda_info *info, int ordinal,
                                       struct tw_error *err) {
    if (ordinal != 0) return tw_cuda_say_no_device(err, ordinal, 1);
    *info = {};
    (void)snprintf(info->name, sizeof(info->name), "emulated");
    info->major = 8;
    info->processors = 4;
    info->shared_bytes_most = 227 << 10;
    info->total_bytes = device_bytes / PAGE * PAGE;
    return TW_OK;
}

extern "C" enum tw_status tw_cuda_open(struct tw_cuda **cuda, int ordinal, uint64_t memory_limit,
                                       struct tw_error *err) {
    struct tw_cuda_info info;
    TW_TRY(tw_cuda_info(&info, ordinal, err));
    info.free_bytes = info.total_bytes;
    void *arena = mmap(nullptr, info.total_bytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (arena == MAP_FAILED)
        return tw_fail(err, TW_NOMEM, "no address space for an emulated device of %.1f MiB",
                       tw_cuda_mib(info.total_bytes));
    struct tw_cuda *opened = new struct tw_cuda();
    opened->info = info;
    opened->limit = memory_limit > 0 ? memory_limit : info.total_bytes - info.total_bytes / 10;
    opened->arena = (unsigned char *)arena;
    for (tw_emulated_stream &stream : opened->streams) stream.cuda = opened;
    const enum tw_status status =
        tw_cuda_alloc(opened, &opened->workspace, WORKSPACE_BYTES, "the products' workspace", err);
    if (status != TW_OK) {
        tw_cuda_close(opened);
        return status;
    }
    *cuda = opened;
    return TW_OK;
}

extern "C" void tw_cuda_close(struct tw_cuda *cuda) {
    if (cuda == nullptr) return;
    not_in_graph(cuda, "tw_cuda_close");
    drain_all(cuda);
    check_gaps(cuda);
    if (!cuda->pinned.empty()) broken(cuda, "is closed with host memory pinned", "tw_cuda_close");
    ASAN_UNPOISON_MEMORY_REGION(cuda->arena, cuda->opened);
    (void)munmap(cuda->arena, cuda->info.total_bytes);
    delete cuda;
}

extern "C" void tw_cuda_use(const struct tw_cuda *cuda) {
    (void)cuda;
}

extern "C" const struct tw_cuda_info *tw_cuda_info_of(const struct tw_cuda *cuda) {
    return &cuda->info;
}

extern "C" void *tw_cuda_stream(const struct tw_cuda *cuda, enum tw_cuda_queue queue) {
    return const_cast<tw_emulated_stream *>(&cuda->streams[queue]);
}

extern "C" void *tw_cuda_workspace(const struct tw_cuda *cuda, size_t *bytes) {
    *bytes = WORKSPACE_BYTES;
    return cuda->workspace;
}

/* ---- memory ---- */

extern "C" enum tw_status tw_cuda_alloc(struct tw_cuda *cuda, void **device, uint64_t bytes,
                                        const char *what, struct tw_error *err) {
    TW_ASSERT(bytes > 0);
    not_in_graph(cuda, "tw_cuda_alloc");
    *device = nullptr;
    if (!cuda->fault.empty()) return say_fault(cuda, err);
    const bool is_full = bytes > cuda->limit - cuda->used;
    const size_t at = is_full ? SIZE_MAX : hole(cuda, padded(bytes));
    if (is_failing() || at == SIZE_MAX)
        return tw_cuda_say_full(err, &cuda->info, what, bytes, cuda->used, cuda->limit);
    enter(cuda);
    open_up_to(cuda, at + padded(bytes));
    ASAN_UNPOISON_MEMORY_REGION(cuda->arena + at, bytes);
    memset(cuda->arena + at, NAN_BYTE, bytes);
#ifndef __SANITIZE_ADDRESS__
    memset(cuda->arena + at + bytes, GAP_BYTE, padded(bytes) - bytes);
#endif
    leave(cuda);
    cuda->allocations[at] = {bytes, what};
    cuda->used += bytes;
    *device = cuda->arena + at;
    return TW_OK;
}

extern "C" void tw_cuda_free(struct tw_cuda *cuda, void *device) {
    if (device == nullptr) return;
    not_in_graph(cuda, "tw_cuda_free");
    drain_all(cuda);
    const auto found = cuda->allocations.find((size_t)((unsigned char *)device - cuda->arena));
    if (found == cuda->allocations.end())
        broken(cuda, "frees memory that it did not allocate", "tw_cuda_free");
    enter(cuda);
    check_gap(cuda, found->first, found->second);
    ASAN_POISON_MEMORY_REGION(device, found->second.bytes);
    leave(cuda);
    cuda->used -= found->second.bytes;
    cuda->allocations.erase(found);
}

extern "C" uint64_t tw_cuda_memory(const struct tw_cuda *cuda, uint64_t *limit) {
    *limit = cuda->limit;
    return cuda->used;
}

extern "C" enum tw_status tw_cuda_host_alloc(struct tw_cuda *cuda, void **host, uint64_t bytes,
                                             const char *what, struct tw_error *err) {
    TW_ASSERT(bytes > 0);
    *host = is_failing() ? nullptr : aligned_alloc(ALIGNMENT, padded(bytes));
    if (*host != nullptr) return TW_OK;
    return tw_cuda_say_no_host(err, &cuda->info, what, bytes);
}

extern "C" void tw_cuda_host_free(struct tw_cuda *cuda, void *host) {
    drain_all(cuda);
    free(host);
}

/* Refuses the same memory as the driver: parts of pages, and memory that is already pinned. */
extern "C" bool tw_cuda_host_pin(struct tw_cuda *cuda, void *host, uint64_t bytes) {
    auto *at = (unsigned char *)host;
    TW_ASSERT(bytes > 0);
    if (!can_pin) return false;
    if ((uintptr_t)host % PAGE != 0) broken(cuda, "is no whole pages", "tw_cuda_host_pin");
    for (const auto &other : cuda->pinned) {
        if (at < other.first + other.second && other.first < at + bytes)
            broken(cuda, "is pinned already", "tw_cuda_host_pin");
    }
    cuda->pinned[at] = (bytes + PAGE - 1) / PAGE * PAGE;
    return true;
}

extern "C" void tw_cuda_host_unpin(struct tw_cuda *cuda, void *host) {
    if (host == nullptr) return;
    drain_all(cuda);
    if (cuda->pinned.erase((unsigned char *)host) == 0)
        broken(cuda, "is not pinned", "tw_cuda_host_unpin");
}

/* ---- copies ---- */

static void check_inside(const struct tw_cuda *cuda, const void *device, size_t bytes,
                         const char *what) {
    const auto at = (size_t)((const unsigned char *)device - cuda->arena);
    auto after = cuda->allocations.upper_bound(at);
    if (after == cuda->allocations.begin()) broken(cuda, "is no memory of this device", what);
    --after;
    if (at + bytes > after->first + after->second.bytes)
        broken(cuda, "reaches past its device memory", what);
}

static void put_copy(struct tw_cuda *cuda, enum tw_cuda_queue queue, const char *what, void *to,
                     const void *from, size_t bytes) {
    if (bytes == 0) return;
    put_call(&cuda->streams[queue],
             {what, [to, from, bytes]() { memcpy(to, from, bytes); }, false});
}

extern "C" void tw_cuda_copy_in(struct tw_cuda *cuda, enum tw_cuda_queue queue, void *device,
                                const void *host, size_t bytes) {
    if (bytes > 0) check_inside(cuda, device, bytes, "tw_cuda_copy_in");
    put_copy(cuda, queue, "copying to it", device, host, bytes);
}

extern "C" void tw_cuda_copy_out(struct tw_cuda *cuda, enum tw_cuda_queue queue, void *host,
                                 const void *device, size_t bytes) {
    if (bytes > 0) check_inside(cuda, device, bytes, "tw_cuda_copy_out");
    put_copy(cuda, queue, "copying from it", host, device, bytes);
}

extern "C" void tw_cuda_copy(struct tw_cuda *cuda, enum tw_cuda_queue queue, void *to,
                             const void *from, size_t bytes) {
    if (bytes == 0) return;
    check_inside(cuda, to, bytes, "tw_cuda_copy");
    check_inside(cuda, from, bytes, "tw_cuda_copy");
    put_copy(cuda, queue, "copying within it", to, from, bytes);
}

static void copy_rows(const struct tw_cuda_rows &copy) {
    for (size_t r = 0; r < copy.rows; r++) {
        memcpy((unsigned char *)copy.to + r * copy.to_stride,
               (const unsigned char *)copy.from + r * copy.from_stride, copy.bytes);
    }
}

extern "C" void tw_cuda_copy_rows(struct tw_cuda *cuda, enum tw_cuda_queue queue,
                                  struct tw_cuda_rows copy) {
    TW_ASSERT(copy.bytes <= copy.to_stride && copy.bytes <= copy.from_stride);
    if (copy.bytes == 0 || copy.rows == 0) return;
    const size_t last = copy.rows - 1;
    check_inside(cuda, copy.to, last * copy.to_stride + copy.bytes, "tw_cuda_copy_rows");
    check_inside(cuda, copy.from, last * copy.from_stride + copy.bytes, "tw_cuda_copy_rows");
    put_call(&cuda->streams[queue],
             {"copying rows within it", [copy]() { copy_rows(copy); }, false});
}

extern "C" void tw_cuda_copy_rows_out(struct tw_cuda *cuda, enum tw_cuda_queue queue,
                                      struct tw_cuda_rows copy) {
    TW_ASSERT(copy.bytes <= copy.to_stride && copy.bytes <= copy.from_stride);
    if (copy.bytes == 0 || copy.rows == 0) return;
    check_inside(cuda, copy.from, (copy.rows - 1) * copy.from_stride + copy.bytes,
                 "tw_cuda_copy_rows_out");
    put_call(&cuda->streams[queue], {"copying rows from it", [copy]() { copy_rows(copy); }, false});
}

extern "C" void tw_cuda_zero(struct tw_cuda *cuda, enum tw_cuda_queue queue, void *device,
                             size_t bytes) {
    if (bytes == 0) return;
    check_inside(cuda, device, bytes, "tw_cuda_zero");
    put_call(&cuda->streams[queue],
             {"writing zeros", [device, bytes]() { memset(device, 0, bytes); }, false});
}

/* ---- order ---- */

/* Events of stream q have the numbers 2 * i + q, with i from 1. */
extern "C" uint64_t tw_cuda_record(struct tw_cuda *cuda, enum tw_cuda_queue queue) {
    tw_emulated_stream *const stream = &cuda->streams[queue];
    not_in_graph(cuda, "tw_cuda_record");
    stream->recorded++;
    put(stream, {"an event", [stream]() { stream->passed++; }, false});
    return 2 * stream->recorded + queue;
}

extern "C" void tw_cuda_wait_for(struct tw_cuda *cuda, enum tw_cuda_queue queue, uint64_t event) {
    if (event == 0) return;
    not_in_graph(cuda, "tw_cuda_wait_for");
    tw_emulated_stream *const other = &cuda->streams[event % 2];
    const uint64_t events = event / 2;
    TW_ASSERT(events >= 1 && events <= other->recorded);
    if (other == &cuda->streams[queue]) return;
    put(&cuda->streams[queue], {"a wait", [other, events]() { drain(other, events); }, false});
}

extern "C" bool tw_cuda_is_done(struct tw_cuda *cuda, uint64_t event) {
    if (event == 0 || !cuda->fault.empty()) return true;
    drain(&cuda->streams[event % 2], event / 2);
    return true;
}

extern "C" void tw_cuda_wait(struct tw_cuda *cuda, uint64_t event) {
    not_in_graph(cuda, "tw_cuda_wait");
    (void)tw_cuda_is_done(cuda, event); /* drains up to it */
}

extern "C" enum tw_status tw_cuda_finish(struct tw_cuda *cuda, enum tw_cuda_queue queue,
                                         struct tw_error *err) {
    not_in_graph(cuda, "tw_cuda_finish");
    if (!cuda->fault.empty()) return say_fault(cuda, err);
    drain(&cuda->streams[queue], UINT64_MAX);
    check_gaps(cuda);
    return TW_OK;
}

extern "C" void tw_cuda_fault(struct tw_cuda *cuda, const char *doing, const char *reason) {
    if (!cuda->fault.empty()) return;
    cuda->fault = doing;
    cuda->reason = reason;
}

/* ---- graphs ---- */

extern "C" enum tw_status tw_cuda_graph_begin(struct tw_cuda *cuda, struct tw_error *err) {
    not_in_graph(cuda, "tw_cuda_graph_begin");
    if (!cuda->fault.empty()) return say_fault(cuda, err);
    cuda->capturing = new tw_cuda_graph;
    return TW_OK;
}

extern "C" enum tw_status tw_cuda_graph_end(struct tw_cuda *cuda, struct tw_cuda_graph **graph,
                                            struct tw_error *err) {
    TW_ASSERT(cuda->capturing != nullptr);
    *graph = cuda->capturing;
    cuda->capturing = nullptr;
    if (cuda->fault.empty()) return TW_OK;
    delete *graph;
    *graph = nullptr;
    return say_fault(cuda, err);
}

extern "C" void tw_cuda_graph_launch(struct tw_cuda *cuda, const struct tw_cuda_graph *graph) {
    not_in_graph(cuda, "tw_cuda_graph_launch");
    if (is_failing() && cuda->fault.empty()) cuda->fault = "launching a graph";
    for (const item &item : graph->items) put(&cuda->streams[TW_CUDA_COMPUTE], item);
}

extern "C" void tw_cuda_graph_free(struct tw_cuda *cuda, struct tw_cuda_graph *graph) {
    drain_all(cuda);
    delete graph;
}
