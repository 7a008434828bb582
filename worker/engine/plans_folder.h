/* plans_folder.h - finds the folder of two caches that make the start on a device faster: the
 * autotuned algorithm for each GEMM shape, and code that the driver compiled. */
#ifndef TW_WORKER_ENGINE_PLANS_FOLDER_H
#define TW_WORKER_ENGINE_PLANS_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

/* Writes the path for tw_cuda_products_open into path[size]. The environment variable TW_CUDA_PLANS
 * names the file itself. Otherwise the result is a folder, created if missing: the first usable of
 * 1. CACHE_DIRECTORY, which systemd sets; 2. thinwire/ in XDG_CACHE_HOME; 3. .cache/thinwire/ in
 * HOME.
 *
 * Returns false if no plans are cached: TW_CUDA_PLANS is empty, or no folder exists or can be made.
 */
bool tw_plans_folder(char *path, size_t size);

/* For cards newer than the native code of the build, the driver compiles code. This function sets
 * CUDA_CACHE_PATH, unless it is already set, so that the driver caches this code in code/ of the
 * plans folder. A service cannot write the driver's default folder, ~/.nv. Call it before the first
 * use of a device and before starting threads. */
void tw_plans_folder_keep_code(void);

#endif
