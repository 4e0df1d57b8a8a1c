/* SPDX-License-Identifier: Apache-2.0 */
#include "arguments.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "error.h"
#include "suggest.h"
#include "system.h"

/* Options of our programs that mean the same, or nearly so: a user of one program tries its options with another. */
static const char *const same_things[][7] = {
	{"index", "subset", "indices", "sample", "samples", NULL},
	{"limit", "number", "samples", "count", "epoch-samples", NULL},
	{"image-size", "min-resolution", "max-resolution", "resolution", NULL},
	{"random", "val-fraction", "fraction", NULL},
	{"fraction", "limit", NULL},
	{"threads", "num-threads", "workers", "jobs", NULL},
	{"field", "fields", NULL},
	{"class", "classes", NULL},
	{"force", "overwrite", NULL},
	{"quick", "fast", NULL},
	{"seed", "val-seed", "shuffle", NULL},
};

/* Options of one program whose part another program has in a different place. */
static const struct {
	const char *names[6], *program, *place;
} places[] = {
	{{"checkpoint", "init", "resume", "weights"}, "dtrain-predict", "the first argument names the WEIGHTS"},
	{{"checkpoint", "init", "resume", "weights"}, "dtrain-generate", "the argument names the WEIGHTS"},
	{{"checkpoint", "init", "resume", "weights"}, "dtrain-export", "the first argument names the CHECKPOINT"},
	{{"data", "val"}, "dtrain-predict", "the second argument names the DATA"},
	{{"model"}, "dtrain-plan", "the argument names the MODEL"},
	{{"limit", "subset", "indices", "index", "samples"}, "dtrain-predict", "beton-subset makes a smaller dataset"},
};

static bool is_name(const char *const *names, const char *word, size_t length)
{
	while (*names && (strncmp(*names, word, length) != 0 || (*names)[length]))
		names++;
	return *names;
}

static bool is_option(const struct option *options, const char *name)
{
	while (options->name && strcmp(options->name, name) != 0)
		options++;
	return options->name;
}

/* The name that a word of another program's options has here; NULL: none. */
static const char *find_same(const char *word, size_t length, const struct option *options)
{
	for (size_t i = 0; i < sizeof(same_things) / sizeof(*same_things); i++)
		for (const char *const *name = same_things[i]; *name && is_name(same_things[i], word, length); name++)
			if (is_option(options, *name))
				return *name;
	return NULL;
}

static const char *find_place(const char *word, size_t length)
{
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
		if (strcmp(places[i].program, program_invocation_short_name) == 0 &&
		    is_name(places[i].names, word, length))
			return places[i].place;
	return NULL;
}

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
	const char *same = is_long ? find_same(word, length, options) : NULL;
	if (same)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: no such option; the one like it is '--%s'", given,
			       same);
	const char *place = is_long ? find_place(word, length) : NULL;
	if (place)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: no such option; %s", given, place);
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

void bt_note_url(char *urls, size_t size, const char *option, const char *path)
{
	char scheme[256];
	if (!bt_names_url(path))
		return;
	snprintf(scheme, sizeof(scheme), "%.*s", (int)(strstr(path, "://") + 1 - path), path);
	if (access(scheme, F_OK) != 0)
		bt_append(urls, size, "%s%s%s%s%s", *urls ? ", " : "", option ? "--" : "", option ? option : "",
			  option ? " " : "", path);
}

int bt_refuse_urls(const char *urls, beton_error *err)
{
	return *urls ? bt_fail(err, BETON_INVALID_ARGUMENT, "%s: URLs are not supported", urls) : BETON_OK;
}

/* Refuses URLs after the last option. */
static int check_operands(int argc, char **argv, beton_error *err)
{
	char urls[sizeof(err->message) - sizeof(": URLs are not supported")] = "";
	for (int i = optind; i < argc; i++)
		bt_note_url(urls, sizeof(urls), NULL, argv[i]);
	return bt_refuse_urls(urls, err);
}

/* INVALID_ARGUMENT for what getopt_long has found: '?', ':', or the end of the options, where URLs follow. */
static int check_found(int option, int argc, char **argv, const struct option *options, beton_error *err)
{
	if (option == -1)
		return check_operands(argc, argv, err);
	if (option != '?' && option != ':')
		return BETON_OK;
	/* optopt: 0, an unknown letter, or the value of a known option, whose argument is missing or one too many. */
	const char letter[] = {'-', (char)optopt, 0}, *given = argv[optind - 1];
	if (option == ':')
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: the value is missing", given);
	if (optopt && is_value(options, optopt))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: the option takes no value", given);
	return bt_refuse_argument(optopt ? letter : given, options, err);
}

int bt_getopt(int argc, char **argv, const char *letters, const struct option *options, int *index)
{
	char quiet[80] = ":";
	beton_error why;
	bt_append(quiet, sizeof(quiet), "%s", letters);
	int option = getopt_long(argc, argv, quiet, options, index);
	if (check_found(option, argc, argv, options, &why) == BETON_OK)
		return option;
	fprintf(stderr, "%s: %s\n", program_invocation_short_name, why.message);
	return '?';
}

int bt_getopt_once(int argc, char **argv, const char *letters, const struct option *options, bool *seen)
{
	int option = bt_getopt(argc, argv, letters, options, NULL), i = 0;
	while (options[i].name && options[i].val != option)
		i++;
	if (!options[i].name || options[i].has_arg == no_argument)
		return option;
	if (!seen[i]) {
		seen[i] = true;
		return option;
	}
	fprintf(stderr, "%s: --%s %s: the option is given twice\n", program_invocation_short_name, options[i].name,
		optarg ? optarg : "");
	return '?';
}

int bt_usage_error(const char *program, const char *message)
{
	if (message)
		fprintf(stderr, "%s: %s\n", program, message);
	fprintf(stderr, "Try '%s --help'.\n", program);
	return 2;
}

int bt_program_error(const char *program, const beton_error *err)
{
	if (err->code == BETON_PEER_LOST)
		return 128 + SIGPIPE;
	if (err->code == BETON_INVALID_ARGUMENT || err->code == BETON_MISMATCH)
		return bt_usage_error(program, err->message);
	fprintf(stderr, "%s: %s\n", program, err->message);
	return 1;
}
