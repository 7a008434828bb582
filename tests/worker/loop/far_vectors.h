/* far_vectors.h - a stand-in for device memory: host arithmetic behind the table of
 * worker/engine/vectors.h, on memory that is locked between calls. */
#ifndef TW_TESTS_FAR_VECTORS_H
#define TW_TESTS_FAR_VECTORS_H

#include "worker/engine/vectors.h"

enum { FAR_REGIONS_MAX = 8 };

struct far {
    bool can_pack;       /* true if far memory can encode with codecs of a fixed rate */
    uint32_t calls_fail; /* number of the call, from 1, from which on the device fails; 0 = never */
    uint32_t calls;      /* calls so far */
    uint64_t bytes_out;  /* bytes copied or encoded to the host, so far */
    uint64_t bytes_in;   /* bytes copied to far memory, so far */
    float *theta, *copy; /* far memory; `copy` is theta at the last call of `written` */
    void *pinned;        /* the only page-locked range, or NULL */
    struct {
        void *base;
        size_t bytes;
    } regions[FAR_REGIONS_MAX];
    struct tw_vectors host;
};

/* Fills in all fields but can_pack and calls_fail, which the caller sets. */
void far_open(struct far *far);
void far_close(struct far *far);

/* Returns n zeros in far memory. */
float *far_alloc(struct far *far, size_t n);

/* The owner of the parameters uses these to work on far memory between calls. */
void far_unlock(struct far *far);
void far_lock(struct far *far);

struct tw_vectors far_vectors(struct far *far, float *theta, float *m, float *v);

/* Counts a call of the owner. Returns TW_DEVICE once the device has failed. */
enum tw_status far_call(struct far *far, struct tw_error *err);

#endif
