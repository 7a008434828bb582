/* plans_folder.h - the folder of caches that make a start on a device faster: the algorithm chosen
 * for each matrix product, timed by an earlier start, and the code that the driver compiled. */
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

/* Lets the driver keep the code that it compiles for this device, for cards newer than the native
 * code of the build, in code/ of that folder: CUDA_CACHE_PATH, unless it is set. Its own choice,
 * ~/.nv, cannot be written by a service. Call before the first use of a device and before any
 * thread. */
void tw_plans_folder_keep_code(void);

#endif
