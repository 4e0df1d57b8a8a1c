/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds out what kind a source is of, and opens it. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/file_kind.h"
#include "common/suggest.h"
#include "common/system.h"
#include "paths.h"
#include "sources.h"

/* Open a source with one set, or with several. */
typedef int (*open_one)(const source_spec *spec, source **train, beton_error *err);
typedef int (*open_sets)(const source_spec *spec, source *sets[], beton_error *err);

static const struct kind {
	const char *name;
	open_one one;
	open_sets sets;
	bool pattern; /* resolves the argument itself */
	bool root;    /* has paths in it */
	bool columns; /* is a table */
} kinds[] = {
	{.name = "folder", .sets = folder_source_open, .pattern = true},
	{.name = "tar", .one = tar_source_open, .pattern = true},
	{.name = "csv", .one = csv_source_open, .root = true, .columns = true},
	{.name = "jsonl", .one = jsonl_source_open, .root = true},
	{.name = "npy", .one = npy_source_open},
	{.name = "npz", .one = npz_source_open},
	{.name = "cifar10", .sets = cifar_source_open, .pattern = true},
	{.name = "idx", .sets = idx_source_open},
	{.name = "tokens", .one = tokens_source_open},
	{.name = "text", .one = text_source_open, .pattern = true},
};

static const struct {
	const char *ending;
	const char *kind;
} endings[] = {
	{".tar", "tar"},  {".tar.gz", "tar"}, {".tgz", "tar"},       {".tar.zst", "tar"},
	{".tzst", "tar"}, {".tar.xz", "tar"}, {".txz", "tar"},       {".tar.bz2", "tar"},
	{".csv", "csv"},  {".tsv", "csv"},    {".jsonl", "jsonl"},   {".ndjson", "jsonl"},
	{".npy", "npy"},  {".npz", "npz"},    {"idx3-ubyte", "idx"}, {"idx3-ubyte.gz", "idx"},
};

static const struct {
	const char *bytes;
	size_t size;
	size_t offset;
	const char *kind;
} magics[] = {
	{"\x93NUMPY", 6, 0, "npy"},
	{"PK\3\4", 4, 0, "npz"},
	{"ustar", 5, 257, "tar"},
	{"\x1f\x8b", 2, 0, "tar"},
	{"\x28\xb5\x2f\xfd", 4, 0, "tar"},
	{"\xfd"
	 "7zXZ",
	 5, 0, "tar"},
	{"BZh", 3, 0, "tar"},
	{"{", 1, 0, "jsonl"},
	{"\0\0\x08\3", 4, 0, "idx"},
	{"\x88\xd8\x34\x01\1\0\0", 8, 0, "tokens"}, /* llm.c's numbers: see beton/tokens.h */
	{"\xa1\xd9\x34\x01\7\0\0", 8, 0, "tokens"},
};

/* The kind of the file at path: what its name says, else its first bytes. */
static int kind_of_file(const char *path, const char **kind, beton_error *err)
{
	*kind = NULL;
	for (size_t i = 0; i < sizeof(endings) / sizeof(*endings); i++)
		if (path_ends_with(path, endings[i].ending))
			*kind = endings[i].kind;
	if (*kind)
		return BETON_OK;
	uint8_t head[512] = {0};
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	ssize_t got = fd < 0 ? -1 : bt_pread_full(fd, head, sizeof(head), 0);
	int number = errno;
	if (fd >= 0)
		close(fd);
	if (got < 0)
		return bt_fail_errno(err, number, "%s: cannot read, to see what it is", path);
	for (size_t i = 0; i < sizeof(magics) / sizeof(*magics) && !*kind; i++)
		if (memcmp(head + magics[i].offset, magics[i].bytes, magics[i].size) == 0)
			*kind = magics[i].kind;
	/* A raw stream of tokens has no mark, and the first bytes of a CIFAR batch may look like any. */
	if (path_ends_with(path, ".bin") && !(*kind && strcmp(*kind, "tokens") == 0))
		*kind = "cifar10";
	const bt_file_kind *other = *kind ? NULL : bt_file_kind_of(path, head, (size_t)got);
	if (other)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: %s, not a source of samples; %s", path, other->what,
			       other->use);
	return *kind ? BETON_OK
		     : bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: neither a folder nor a file of a known kind; say what it is with --format", path);
}

static int find_kind(const source_spec *spec, const name_list *paths, const struct kind **kind, beton_error *err)
{
	const char *name = spec->text ? "text" : spec->format;
	int result = BETON_OK;
	if (!name && strcmp(spec->argument, "-") == 0)
		name = "tar";
	else if (!name && !path_is_folder(spec->argument))
		result = kind_of_file(paths->names[0], &name, err);
	else if (!name)
		name = cifar_source_is_folder(spec->argument) ? "cifar10"
		       : idx_source_is_folder(spec->argument) ? "idx"
							      : "folder";
	if (result != BETON_OK)
		return result;
	enum { KINDS = sizeof(kinds) / sizeof(*kinds) };
	const char *names[KINDS + 1] = {NULL};
	int index = 0;
	for (int i = 0; i < KINDS; i++)
		names[i] = kinds[i].name;
	result = bt_parse_choice("--format", name, names, &index, err);
	*kind = &kinds[index];
	return result;
}

/* Refuses outputs that would overwrite an input, or be part of the source in the next run. */
static int check_not_written(const source_spec *spec, const name_list *paths, beton_error *err)
{
	const char *const written[] = {spec->output, spec->val_output, spec->test_output, spec->error_list};
	for (size_t i = 0; i < paths->count; i++) {
		const char *path = paths->names[i];
		bool folder = path_is_folder(path);
		for (size_t k = 0; k < sizeof(written) / sizeof(*written); k++) {
			if (written[k] && path_is_same_file(path, written[k]))
				return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: the source would be overwritten",
					       path);
			if (written[k] && folder && path_is_inside(written[k], path))
				return bt_fail(
					err, BETON_INVALID_ARGUMENT,
					"%s: stands in the source, the folder %s, whose files are read; write it "
					"beside that folder",
					written[k], path);
		}
	}
	return BETON_OK;
}

static int open_kind(const struct kind *kind, const source_spec *given, const name_list *paths, source *sets[],
		     beton_error *err)
{
	source_spec spec = *given;
	if (!kind->pattern && paths->count > 1)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: %zu files; a source of kind %s is one", spec.argument,
			       paths->count, kind->name);
	if (!kind->pattern && paths->count == 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "standard input can only be a tar, not %s", kind->name);
	if (spec.root && !kind->root)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--root: a source of kind %s has no paths in it",
			       kind->name);
	if (spec.columns && !kind->columns)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "--columns: a source of kind %s has no row of names",
			       kind->name);
	if (!kind->pattern)
		spec.argument = paths->names[0];
	return kind->one ? kind->one(&spec, &sets[SET_TRAIN], err) : kind->sets(&spec, sets, err);
}

int source_open(const source_spec *spec, source *sets[], beton_error *err)
{
	name_list paths = {0};
	const struct kind *kind;
	for (int i = 0; i < NUM_SETS; i++)
		sets[i] = NULL;
	int result = BETON_OK;
	if (strcmp(spec->argument, "-") != 0)
		result = paths_expand(spec->argument, &paths, err);
	if (result == BETON_OK)
		result = check_not_written(spec, &paths, err);
	if (result == BETON_OK)
		result = find_kind(spec, &paths, &kind, err);
	if (result == BETON_OK)
		result = open_kind(kind, spec, &paths, sets, err);
	for (int i = 0; i < NUM_SETS; i++)
		if (sets[i])
			sets[i]->skip_bad = spec->skip_bad;
	if (result == BETON_OK && spec->holds_out && sets[SET_VAL])
		result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: there is a validation set, so none can be held out",
				 spec->argument);
	for (int i = 0; i < NUM_SETS && result != BETON_OK; i++)
		source_close(&sets[i]);
	name_list_free(&paths);
	return result;
}
