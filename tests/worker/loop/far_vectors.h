/* far_vectors.h - a stand-in for device memory: host arithmetic behind the table of
 * worker/engine/vectors.h, on memory that is locked between calls. */
#ifndef TW_TESTS_FAR_VECTORS_H
#define TW_TESTS_FAR_VECTORS_H

#include "worker/engine/vectors.h"

enum { FAR_REGIONS_MAX = 8 };

struct far {
    bool can_pack;       /* codecs of a fixed rate pack in far memory */
    uint32_t calls_fail; /* the device has failed from this call on, counted from 1; 0 = never */
    uint32_t calls;      /* so far */
    uint64_t bytes_out;  /* to the host, so far: copies and payloads */
    uint64_t bytes_in;   /* bytes copied to far memory, so far */
    float *theta, *copy; /* far; the copy is theta at the last call of `written` */
    void *pinned;        /* the one range that is page-locked; NULL: none */
    struct {
        void *base;
        size_t bytes;
    } regions[FAR_REGIONS_MAX];
    struct tw_vectors host;
};

/* Keeps can_pack and calls_fail, and fills in the rest. */
void far_open(struct far *far);
void far_close(struct far *far);

/* n zeros, far. */
float *far_alloc(struct far *far, size_t n);

/* For the owner of the parameters, which works on them between calls. */
void far_unlock(struct far *far);
void far_lock(struct far *far);

struct tw_vectors far_vectors(struct far *far, float *theta, float *m, float *v);

/* Counts a call of the owner. TW_DEVICE once the device has failed. */
enum tw_status far_call(struct far *far, struct tw_error *err);

#endif
