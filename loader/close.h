/* SPDX-License-Identifier: Apache-2.0
 *
 * How a loader ends. A file system that hangs can block the loader's threads, and any thread that closes a file, for
 * ever. It must not block the thread that closes the loader. So the loader's last thread closes the files and frees the
 * loader, while the closing thread waits for that up to a deadline.
 */
#ifndef BT_LOADER_CLOSE_H
#define BT_LOADER_CLOSE_H

#include <beton/loader.h>

/* The last call of each thread of a loader (a worker, or the announcer of pages). The loader may be gone afterwards. */
void bt_thread_end(beton_loader *loader);

#endif
