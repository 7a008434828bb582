/* plans_folder.h - the folder of two caches for a faster start on a device: the fastest algorithm
 * for each matrix product, measured at an earlier start, and code that the driver compiled. */
#ifndef TW_WORKER_ENGINE_PLANS_FOLDER_H
#define TW_WORKER_ENGINE_PLANS_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

/* Writes the path for tw_cuda_products_open into path[size]. TW_CUDA_PLANS in the environment names
 * the file itself. Otherwise the result is a folder, created if missing: the first usable of
 * 1. CACHE_DIRECTORY, which systemd sets;
 * 2. thinwire/ in XDG_CACHE_HOME;
 * 3. .cache/thinwire/ in HOME.
 *
 * Returns false if no plans are cached: TW_CUDA_PLANS is empty, or no folder exists or can be made.
 */
bool tw_plans_folder(char *path, size_t size);

/* For cards newer than the native code of the build, the driver compiles code. Sets
 * CUDA_CACHE_PATH, unless it is set, so that the driver caches this code in code/ of that folder. A
 * service cannot write the driver's default folder, ~/.nv. Call before the first use of a device
 * and before any thread. */
void tw_plans_folder_keep_code(void);

#endif
