/* far_vectors.h - parameters that lie where nobody can touch them but through the table of
 * worker/engine/vectors.h: the host's arithmetic on memory that is locked between two calls. */
#ifndef TW_TESTS_FAR_VECTORS_H
#define TW_TESTS_FAR_VECTORS_H

#include "worker/engine/vectors.h"

enum { FAR_REGIONS_MAX = 8 };

struct far {
    bool can_pack; /* codecs of a fixed rate, where v lies */
    uint32_t
        calls_fail;     /* from the call of that number on, counted from 1, it has failed; 0 = never
                         */
    uint32_t calls;     /* so far */
    uint64_t bytes_out; /* to the host, so far: copies and payloads */
    uint64_t bytes_in;  /* to far memory */
    float *theta, *copy; /* far; the copy is as theta was when `written` was called last */
    struct {
        void *base;
        size_t bytes;
    } regions[FAR_REGIONS_MAX];
    struct tw_vectors host;
};

/* can_pack and calls_fail are kept; all else is filled in. */
void far_open(struct far *far);
void far_close(struct far *far);

/* n zeros, far. */
float *far_alloc(struct far *far, size_t n);

/* For the owner of the parameters, who works on them between two calls. */
void far_unlock(struct far *far);
void far_lock(struct far *far);

struct tw_vectors far_vectors(struct far *far, float *theta, float *m, float *v);

/* Counts a call of the owner's, too. TW_DEVICE once it has failed. */
enum tw_status far_call(struct far *far, struct tw_error *err);

#endif
