/* SPDX-License-Identifier: Apache-2.0 */
#include "arguments.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "error.h"
#include "suggest.h"
#include "system.h"

/* getopt_long takes an unknown option and an abbreviation of several options for the same fault. */
int bt_refuse_argument(const char *given, const struct option *options, beton_error *err)
{
	bool is_long = strncmp(given, "--", 2) == 0;
	const char *word = is_long ? given + 2 : given;
	size_t length = strcspn(word, "="), used = 0;
	char names[192] = "";
	for (const struct option *one = options; one->name; one++) {
		size_t more = strlen(one->name) + strlen(", --");
		if (!is_long || strncmp(one->name, word, length) != 0 || used + more >= sizeof(names))
			continue;
		used += (size_t)snprintf(names + used, sizeof(names) - used, "%s--%s", used ? ", " : "", one->name);
	}
	if (used)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: ambiguous; write one of %s in full", given, names);
	bt_suggestion like;
	return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: no such option%s", given,
		       bt_suggest_option(&like, given, options));
}

static bool is_value(const struct option *options, int value)
{
	while (options->name && options->val != value)
		options++;
	return options->name;
}

int bt_getopt(int argc, char **argv, const char *letters, const struct option *options, int *index)
{
	char quiet[80] = ":";
	beton_error why;
	bt_append(quiet, sizeof(quiet), "%s", letters);
	int option = getopt_long(argc, argv, quiet, options, index);
	if (option != '?' && option != ':')
		return option;
	/* optopt: 0, an unknown letter, or the value of a known option, whose argument is missing or one too many. */
	const char letter[] = {'-', (char)optopt, 0}, *given = argv[optind - 1];
	if (option == ':')
		bt_fail(&why, BETON_INVALID_ARGUMENT, "%s: the value is missing", given);
	else if (optopt && is_value(options, optopt))
		bt_fail(&why, BETON_INVALID_ARGUMENT, "%s: the option takes no value", given);
	else
		bt_refuse_argument(optopt ? letter : given, options, &why);
	fprintf(stderr, "%s: %s\n", program_invocation_short_name, why.message);
	return '?';
}

int bt_usage_error(const char *program, const char *message)
{
	if (message)
		fprintf(stderr, "%s: %s\n", program, message);
	fprintf(stderr, "Try '%s --help'.\n", program);
	return 2;
}
