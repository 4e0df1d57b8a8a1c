/* SPDX-License-Identifier: Apache-2.0
 *
 * Arguments of programs. */
#ifndef BT_ARGUMENTS_H
#define BT_ARGUMENTS_H

#include <getopt.h>

/* getopt_long, which behind its message about an unknown option prints the option that is most like it. */
int bt_getopt(int argc, char **argv, const char *letters, const struct option *options, int *index);

#endif
