/* test_cuda_gemm_library.c - cuBLASLt is found at run time, or an error message names the missing
 * part. The test replaces dlopen and dlsym. */
#include "kernels/cuda/gemm_library.h"

#include <dlfcn.h>

#include "tests/test.h"

static bool is_absent;
static const char *lacking; /* name of a function that the library lacks */
static size_t version;
static unsigned opened;
static const char TOOLKIT[] = "/usr/local/cuda/lib64/libcublasLt.so.";
static bool has_tried_toolkit;
static char first[64]; /* the file name tried first */

void *__wrap_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags) {
    static int it;
    assert_int_equal(flags, RTLD_NOW | RTLD_LOCAL);
    if (strncmp(name, TOOLKIT, sizeof(TOOLKIT) - 1) == 0) has_tried_toolkit = true;
    if (opened++ == 0) (void)snprintf(first, sizeof(first), "%s", name);
    return is_absent ? NULL : &it;
}

static size_t version_of(void) {
    return version;
}

void *__wrap_dlsym(void *handle, const char *name);
void *__wrap_dlsym(void *handle, const char *name) {
    size_t (*const function)(void) = version_of;
    void *found;
    assert_non_null(handle);
    if (lacking != NULL && strcmp(name, lacking) == 0) return NULL;
    memcpy(&found, &function, sizeof(found));
    return found;
}

enum tw_status tw_gemm_products_create(struct tw_cuda_products **products, struct tw_cuda *cuda,
                                       const struct tw_gemm_library *library, const char *plans,
                                       struct tw_error *err) {
    (void)cuda, (void)plans;
    assert_int_equal(library->version(), version);
    *products = NULL;
    return tw_fail(err, TW_NOMEM, "made");
}

static int set_up(void **state) {
    is_absent = false;
    lacking = NULL;
    version = 130100;
    opened = 0;
    has_tried_toolkit = false;
    return 0;
}

#define FACT(name) TEST_IN(set_up, NULL, name)

static void assert_refused(const char *word) {
    struct tw_error err = {0};
    struct tw_cuda_products *products;
    assert_int_equal(tw_cuda_products_open(&products, NULL, NULL, &err), TW_DEVICE);
    assert_null(products);
    if (strstr(err.message, word) == NULL) fail_msg("\"%s\" does not say %s", err.message, word);
    assert_non_null(strstr(err.message, "device = cpu"));
}

FACT(a_library_that_is_absent_is_named) {
    is_absent = true;
    assert_refused("no cuBLASLt");
    assert_refused(first); /* the message names the library of this build's toolkit */
    assert_true(opened > 2);
}

FACT(a_library_that_is_too_old_is_named) {
    version = TW_GEMM_LIBRARY_LEAST - 1;
    assert_refused("119999");
}

FACT(a_library_newer_than_the_toolkit_is_named) {
    version = (CUBLAS_VER_MAJOR + 1) * (size_t)10000;
    assert_refused("newer");
}

/* A machine may have the library where no loader looks. */
FACT(it_is_looked_for_where_toolkits_put_it) {
    is_absent = true;
    assert_refused("no cuBLASLt");
    assert_null(strchr(first, '/')); /* the loader's own folders come first */
    assert_true(has_tried_toolkit);
}

FACT(a_function_that_is_missing_is_named) {
#define X(member, symbol)                                                                          \
    lacking = #symbol;                                                                             \
    assert_refused(#symbol);
    TW_GEMM_LIBRARY_LIST(X)
#undef X
}

/* Must be the last test, because a library that was found stays open. */
FACT(a_library_is_opened_once) {
    struct tw_error err = {0};
    struct tw_cuda_products *products;
    const struct tw_gemm_library *library;
    /* this call opens the library, the next one does not */
    assert_int_equal(tw_cuda_products_open(&products, NULL, NULL, &err), TW_NOMEM);
    assert_int_equal(opened, 1);
    is_absent = true;
    assert_int_equal(tw_gemm_library_get(&library, &err), TW_OK);
    assert_int_equal(opened, 1);
}
