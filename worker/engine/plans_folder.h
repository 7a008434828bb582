/* plans_folder.h - the path of the cache of GEMM plans: the algorithm chosen for each matrix
 * product of a device, timed by an earlier start. */
#ifndef TW_WORKER_ENGINE_PLANS_FOLDER_H
#define TW_WORKER_ENGINE_PLANS_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

/* Writes the path for tw_cuda_products_open into path[size]. TW_CUDA_PLANS in the environment names
 * the file itself. Otherwise the result is a folder, created if missing; the first possible of:
 * 1. CACHE_DIRECTORY, which systemd sets;
 * 2. thinwire/ in XDG_CACHE_HOME;
 * 3. .cache/thinwire/ in HOME.
 *
 * Returns false if no plans are cached: TW_CUDA_PLANS is empty, or no folder exists or can be made.
 */
bool tw_plans_folder(char *path, size_t size);

#endif
