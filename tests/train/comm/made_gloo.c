/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules in the place of Gloo's, with a fault each: another version, or another entry.
 */
#include <signal.h>

#include "train/comm/gloo/gloo_shim.h"

/* As UCX does, which Gloo of Debian 13 brings. */
static void handle(int number)
{
	(void)number;
}

__attribute__((constructor)) static void take_signals(void)
{
	signal(SIGHUP, handle);
	signal(SIGBUS, handle);
}

#ifdef ENTRY
BETON_API int ENTRY(void);

int ENTRY(void)
{
	return 1;
}
#else
const gloo_api *dtrain_gloo_entry(void)
{
	static const gloo_api api = {.version = 99};

	return &api;
}
#endif
