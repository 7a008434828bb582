/* tensor_fold.h - writes names and shapes of tensors as the short text of model.tensors
 * (proto/run/tensor_list.h): equal layers and experts are folded into one entry each. */
#ifndef TW_DAEMON_CLI_RUN_TENSOR_FOLD_H
#define TW_DAEMON_CLI_RUN_TENSOR_FOLD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "proto/run/tensor_list.h"

struct cli_tensor {
    char name[TW_TENSOR_NAME_BYTES];
    struct tw_tensor_shape shape; /* sides beyond the rank are 0 */
    bool is_folded;               /* used while folding */
};

/* Sorts the tensors by name, numbers by value, and writes their list. The same tensors in any order
 * give the same text. Returns TW_CONFIG if a list cannot hold a name, a shape or so many tensors.
 */
enum tw_status cli_tensors_fold(struct cli_tensor *tensors, uint32_t count,
                                char text[TW_TENSORS_TEXT_BYTES], struct tw_error *err);

#endif
