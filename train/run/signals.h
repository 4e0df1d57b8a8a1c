/* SPDX-License-Identifier: Apache-2.0
 *
 * Stopping at the next step when asked to. */
#ifndef RUN_SIGNALS_H
#define RUN_SIGNALS_H

/* From now on a first SIGTERM, SIGINT, SIGHUP or SIGQUIT is noted; a second one of the same kind kills. */
void run_signals_catch(void);

/* The number of the signal that came, or 0. */
int run_signals_caught(void);

#endif
