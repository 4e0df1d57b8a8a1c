/* SPDX-License-Identifier: Apache-2.0 */
#include "arguments.h"

#include <stdio.h>
#include <string.h>

#include "suggest.h"

int bt_getopt(int argc, char **argv, const char *letters, const struct option *options, int *index)
{
	int option = getopt_long(argc, argv, letters, options, index);
	bt_suggestion like;
	/* optopt tells other faults apart: it is the letter, or the value of an option without its argument. */
	if (option == '?' && optopt == 0) {
		const char *text = bt_suggest_option(&like, argv[optind - 1], options);
		if (*text)
			fprintf(stderr, "%s: %s\n", argv[0], text + strlen("; "));
	}
	return option;
}
