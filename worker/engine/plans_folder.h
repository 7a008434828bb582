/* plans_folder.h - where a start finds which algorithm each matrix product of a device is done by,
 * as timed by an earlier one. */
#ifndef TW_WORKER_ENGINE_PLANS_FOLDER_H
#define TW_WORKER_ENGINE_PLANS_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

/* What tw_cuda_products_open takes, into path[size]: the file that the environment's TW_CUDA_PLANS
 * names; without that a folder, made where it is missing: CACHE_DIRECTORY, which systemd sets, else
 * thinwire/ in XDG_CACHE_HOME, else .cache/thinwire/ in HOME. False: none are kept, because
 * TW_CUDA_PLANS is empty or there is no such folder and none can be made. */
bool tw_plans_folder(char *path, size_t size);

#endif
