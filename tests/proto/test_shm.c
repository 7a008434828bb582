/* Tests of proto/shm.c. */
#include "tests/test.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/shm.h"

enum { FRAGMENTS = 3, ELEMENTS = 64, POOL = 8192 };

/* A layout made by hand: three fragments of one part each. */
static struct tw_layout layout;
static struct tw_shm shm;
static size_t mapped_bytes;

static int map_shared(void **state) {
    struct tw_shm_geometry geometry;
    memset(&layout, 0, sizeof(layout));
    layout.fragments_count = FRAGMENTS;
    layout.elements = FRAGMENTS * ELEMENTS;
    for (uint32_t p = 0; p <= FRAGMENTS; p++) layout.fragment_begin[p] = (uint64_t)p * ELEMENTS;
    assert_int_equal(tw_shm_geometry_init(&geometry, &layout, TW_SNAPSHOT_FULL, POOL, NULL), TW_OK);
    mapped_bytes = (size_t)geometry.bytes;
    void *base =
        mmap(NULL, mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(base, MAP_FAILED);
    tw_shm_bind(&shm, base, &geometry, &layout);
    tw_shm_format(&shm);
    return 0;
}

static int unmap_shared(void **state) {
    return munmap(shm.base, mapped_bytes);
}

/* Returns the test value of element i of a fragment's phi after `rounds` rounds. */
static float phi_at(uint32_t fragment, uint64_t rounds, uint32_t i) {
    return (float)(rounds * 10000 + fragment * 2000 + i);
}

static struct tw_shm_state state_at(uint32_t fragment, uint64_t rounds) {
    struct tw_shm_state state = {.rounds = rounds};
    memset(state.digest.bytes, (int)(rounds * FRAGMENTS + fragment + 1), sizeof(state.digest));
    return state;
}

static void fill(uint32_t fragment, uint64_t rounds, float *phi, float *u) {
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        phi[i] = phi_at(fragment, rounds, i);
        u[i] = -phi_at(fragment, rounds, i);
    }
}

static void fill_home(void) {
    for (uint32_t p = 0; p < FRAGMENTS; p++) {
        float *phi;
        void *u;
        tw_shm_home(&shm, p, &phi, &u);
        fill(p, 1, phi, u);
        const struct tw_shm_state state = state_at(p, 1);
        tw_shm_home_set(&shm, p, &state);
    }
}

static void publish(uint32_t fragment, uint64_t rounds) {
    float *phi;
    void *u;
    tw_shm_stage_begin(&shm, fragment, &phi, &u);
    fill(fragment, rounds, phi, u);
    const struct tw_shm_state state = state_at(fragment, rounds);
    tw_shm_stage_publish(&shm, fragment, &state);
}

/* Returns the fragment's stated rounds, after checking that data and digest match them. */
static uint64_t rounds_of_whole(uint32_t fragment) {
    struct tw_shm_view view;
    tw_shm_view(&shm, fragment, &view);
    const uint64_t rounds = view.state.rounds;
    const struct tw_shm_state wanted = state_at(fragment, rounds);
    bool is_whole = tw_id_equal(&view.state.digest, &wanted.digest);
    for (uint32_t i = 0; i < ELEMENTS; i++) {
        is_whole = is_whole && view.phi[i] == phi_at(fragment, rounds, i) &&
                   ((const float *)view.u)[i] == -phi_at(fragment, rounds, i);
    }
    if (!is_whole) fail_msg("fragment %u is torn; it claims round %d", fragment, (int)rounds);
    return rounds;
}

static void published_fragment_is_read_whole(void **state) {
    fill_home();
    publish(1, 2);
    assert_int_equal(rounds_of_whole(0), 1);
    assert_int_equal(rounds_of_whole(1), 2);
    publish(1, 3);
    publish(2, 2);
    assert_int_equal(rounds_of_whole(1), 3);
    assert_int_equal(rounds_of_whole(2), 2);
    tw_shm_settle(&shm);
    assert_int_equal(rounds_of_whole(0), 1);
    assert_int_equal(rounds_of_whole(1), 3);
    assert_int_equal(rounds_of_whole(2), 2);
    float *phi;
    void *u;
    tw_shm_home(&shm, 2, &phi, &u);
    assert_true(phi[5] == phi_at(2, 2, 5)); /* after settling, arrays are whole at home */
}

static void unpublished_stage_changes_nothing(void **state) {
    fill_home();
    publish(0, 2);
    float *phi;
    void *u;
    tw_shm_stage_begin(&shm, 1, &phi, &u);
    memset(phi, 0xff, ELEMENTS * sizeof(float));
    memset(u, 0xff, ELEMENTS * sizeof(float));
    assert_int_equal(rounds_of_whole(0), 2);
    assert_int_equal(rounds_of_whole(1), 1);
    assert_int_equal(rounds_of_whole(2), 1);
}

static void garbage_in_the_page_stays_inside(void **state) {
    fill_home();
    const uint64_t words[] = {UINT64_MAX, FRAGMENTS + 1, 0xffffffffu, UINT64_C(1) << 63 | 77};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        atomic_store(&tw_shm_control(&shm)->published, words[i]);
        for (uint32_t p = 0; p < FRAGMENTS; p++) assert_int_equal(rounds_of_whole(p), 1);
    }
    assert_null(tw_shm_pool(&shm, shm.geometry.pool - 1, 1));
    assert_null(tw_shm_pool(&shm, shm.geometry.pool, POOL + 1));
    assert_null(tw_shm_pool(&shm, shm.geometry.pool + POOL, 1));
    assert_null(tw_shm_pool(&shm, UINT64_MAX, UINT64_MAX));
    assert_null(tw_shm_pool(&shm, shm.geometry.pool + 1, UINT64_MAX));
    assert_non_null(tw_shm_pool(&shm, shm.geometry.pool + 1, POOL - 1));
}

static void geometry_of_another_model_is_refused(void **state) {
    struct tw_error err;
    struct tw_shm_geometry geometry = shm.geometry;
    assert_int_equal(
        tw_shm_geometry_check(&geometry, &layout, TW_SNAPSHOT_FULL, mapped_bytes, &err), TW_OK);
    assert_int_equal(
        tw_shm_geometry_check(&geometry, &layout, TW_SNAPSHOT_FULL, mapped_bytes - 4096, &err),
        TW_PROTO);
    assert_int_equal(tw_shm_geometry_check(&geometry, &layout, TW_SNAPSHOT_OFF, mapped_bytes, &err),
                     TW_PROTO);
    geometry.u += 4096;
    assert_int_equal(
        tw_shm_geometry_check(&geometry, &layout, TW_SNAPSHOT_FULL, mapped_bytes, &err), TW_PROTO);
    geometry = shm.geometry;
    geometry.elements--;
    assert_int_equal(
        tw_shm_geometry_check(&geometry, &layout, TW_SNAPSHOT_FULL, mapped_bytes, &err), TW_PROTO);
    geometry = shm.geometry;
    geometry.pool_bytes = UINT64_MAX;
    assert_int_equal(
        tw_shm_geometry_check(&geometry, &layout, TW_SNAPSHOT_FULL, mapped_bytes, &err), TW_LIMIT);
}

/* ---- a kill at every instruction ----------------------------------------------------------- */

/* Single-steps a child through `work`. After each instruction the memory is exactly as a SIGKILL
 * there would leave it. Returns the number of instructions, or 0 if this machine forbids tracing.
 */
static uint64_t each_instruction(void (*work)(void), void (*look)(void)) {
    const pid_t child = fork();
    assert_return_code(child, errno);
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(77);
        (void)raise(SIGSTOP);
        work();
        (void)raise(SIGSTOP);
        _exit(0);
    }
    int status = 0;
    uint64_t count = 0;
    assert_return_code(waitpid(child, &status, 0), errno);
    if (WIFEXITED(status)) return 0;
    for (;;) {
        assert_return_code(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL), errno);
        assert_return_code(waitpid(child, &status, 0), errno);
        assert_true(WIFSTOPPED(status));
        if (WSTOPSIG(status) == SIGSTOP) break;
        count++;
        look();
    }
    assert_return_code(kill(child, SIGKILL), errno);
    assert_return_code(waitpid(child, &status, 0), errno);
    return count;
}

static uint64_t seen_last;
static uint32_t seen_changes;

static void publish_work(void) {
    publish(1, 2); /* needs the spare buffer, so fragment 0 is copied out first */
}

static void publish_look(void) {
    assert_int_equal(rounds_of_whole(0), 2);
    const uint64_t rounds = rounds_of_whole(1);
    assert_int_equal(rounds_of_whole(2), 1);
    if (rounds != seen_last) seen_changes++;
    seen_last = rounds;
}

static void kill_anywhere_leaves_old_or_new(void **state) {
    fill_home();
    publish(0, 2);
    seen_last = 1;
    seen_changes = 0;
    const uint64_t count = each_instruction(publish_work, publish_look);
    if (count == 0) skip();
    print_message("looked after each of %llu instructions\n", (unsigned long long)count);
    assert_int_equal(seen_last, 2);
    assert_int_equal(seen_changes, 1);
    publish(2, 7); /* the next writer continues */
    assert_int_equal(rounds_of_whole(1), 2);
    assert_int_equal(rounds_of_whole(2), 7);
}

static void save(uint32_t slot, uint64_t step) {
    tw_shm_snapshot_begin(&shm, slot);
    uint64_t *data = tw_shm_snapshot_data(&shm, slot);
    for (uint32_t i = 0; i < 256; i++) data[i] = step * 1000 + i;
    struct tw_snapshot_slot meta;
    memset(&meta, 0, sizeof(meta));
    meta.step = step;
    meta.fragment_rounds[1] = step * 2;
    tw_shm_snapshot_end(&shm, slot, &meta);
}

/* Hashing a large snapshot takes long, so its progress is reported. */
static void hashing_of_snapshots_is_reported(void **state) {
    struct tw_snapshot_slot meta;
    _Atomic uint64_t hashed = 0;
    save(0, 10);
    save(1, 20);
    shm.hashed = &hashed;
    assert_int_equal(tw_shm_snapshot_newest(&shm, &meta), 1);
    shm.hashed = NULL;
    assert_true(shm.geometry.snapshot_bytes > 0);
    assert_int_equal(atomic_load(&hashed), 2 * shm.geometry.snapshot_bytes);
}

static void newest_whole_snapshot_is_chosen(void **state) {
    struct tw_snapshot_slot meta;
    assert_int_equal(tw_shm_snapshot_newest(&shm, &meta), -1);
    assert_int_equal(tw_shm_snapshot_oldest(&shm), 0);
    save(0, 10);
    assert_int_equal(tw_shm_snapshot_oldest(&shm), 1);
    save(1, 20);
    assert_int_equal(tw_shm_snapshot_oldest(&shm), 0);
    assert_int_equal(tw_shm_snapshot_newest(&shm, &meta), 1);
    assert_int_equal(meta.step, 20);
    assert_int_equal(meta.fragment_rounds[1], 40);

    ((uint8_t *)tw_shm_snapshot_data(&shm, 1))[100] ^= 1; /* an accident */
    assert_int_equal(tw_shm_snapshot_newest(&shm, &meta), 0);
    assert_int_equal(meta.step, 10);
    tw_shm_snapshot_begin(&shm, 0); /* as if killed while writing */
    assert_int_equal(tw_shm_snapshot_newest(&shm, &meta), -1);
    assert_int_equal(tw_shm_snapshot_oldest(&shm), 0);
    save(0, 30);
    assert_int_equal(tw_shm_snapshot_newest(&shm, &meta), 0);
    assert_int_equal(meta.step, 30);
    tw_shm_control(&shm)->snapshots[0].step++; /* the checksum covers the fields too */
    assert_int_equal(tw_shm_snapshot_newest(&shm, &meta), -1);
}

/* Merges during a pause change theta without a step. Of two snapshots of equal step, the one with
 * more rounds is newer. */
static void of_equal_steps_that_with_more_rounds_is_newer(void **state) {
    struct tw_snapshot_slot meta;
    for (uint32_t newer = 0; newer < 2; newer++) {
        for (uint32_t slot = 0; slot < 2; slot++) {
            memset(&meta, 0, sizeof(meta));
            meta.step = 10;
            meta.fragment_rounds[1] = slot == newer ? 8 : 7;
            tw_shm_snapshot_begin(&shm, slot);
            tw_shm_snapshot_end(&shm, slot, &meta);
        }
        assert_int_equal(tw_shm_snapshot_newest(&shm, &meta), newer);
    }
    tw_shm_snapshot_forget(&shm, 1);
    assert_int_equal(tw_shm_snapshot_newest(&shm, &meta), 0);
    assert_int_equal(tw_shm_snapshot_oldest(&shm), 1);
}

static void save_work(void) {
    save(0, 30);
}

/* The checksum covers the whole snapshot. It is checked only when the sequence number has changed.
 */
static void save_look(void) {
    struct tw_snapshot_slot meta;
    const uint64_t seq = atomic_load(&tw_shm_control(&shm)->snapshots[0].seq);
    if (seq == seen_last) return;
    seen_last = seq;
    seen_changes++;
    assert_true(tw_shm_snapshot_newest(&shm, &meta) >= 0);
    const uint64_t *data = tw_shm_snapshot_data(&shm, seq % 2 == 0 ? 0 : 1);
    assert_int_equal(meta.step, seq % 2 == 0 ? 30 : 20);
    assert_int_equal(data[255], meta.step * 1000 + 255);
}

static void torn_snapshot_is_never_chosen(void **state) {
    save(0, 10);
    save(1, 20);
    seen_last = 2;
    seen_changes = 0;
    const uint64_t count = each_instruction(save_work, save_look);
    if (count == 0) skip();
    assert_int_equal(seen_changes, 2); /* first to odd, then to even again */
}

int main(void) {
#define FACT(name) cmocka_unit_test_setup_teardown(name, map_shared, unmap_shared)
    const struct CMUnitTest tests[] = {
        FACT(published_fragment_is_read_whole), FACT(unpublished_stage_changes_nothing),
        FACT(garbage_in_the_page_stays_inside), FACT(geometry_of_another_model_is_refused),
        FACT(kill_anywhere_leaves_old_or_new),  FACT(newest_whole_snapshot_is_chosen),
        FACT(kill_anywhere_leaves_old_or_new),  FACT(of_equal_steps_that_with_more_rounds_is_newer),
        FACT(hashing_of_snapshots_is_reported), FACT(torn_snapshot_is_never_chosen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
