/* SPDX-License-Identifier: Apache-2.0
 *
 * How a loader ends. Its threads may be held up by a file system for as long as that likes, and so may whoever closes a
 * file; the thread that closes the loader is not. Therefore it is the last of the loader's threads that closes the
 * files and frees the loader, while the closing thread waits for it up to a deadline. */
#ifndef BT_LOADER_CLOSE_H
#define BT_LOADER_CLOSE_H

#include <beton/loader.h>

/* The last that a thread of a loader does: worker, or announcer of pages. The loader may be gone afterwards. */
void bt_thread_end(beton_loader *loader);

#endif
