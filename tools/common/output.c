/* SPDX-License-Identifier: Apache-2.0 */
#include "output.h"

#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "common/error.h"
#include "common/suggest.h"

int output_check(const char *path, const beton_reader *input, bool force, beton_error *err)
{
	struct stat there;
	struct stat source;
	/* A link is something too, wherever it leads. */
	if (lstat(path, &there) != 0)
		return BETON_OK; /* nothing there, or what opening it will report */
	bool link = S_ISLNK(there.st_mode);
	bool dangling = link && stat(path, &there) != 0;
	if (input && !dangling && fstat(beton_reader_fd(input), &source) == 0 && source.st_dev == there.st_dev &&
	    source.st_ino == there.st_ino)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: the output is an input too (%s)", path,
			       beton_reader_path(input));
	if (!dangling && !S_ISREG(there.st_mode))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: is %s", path,
			       S_ISDIR(there.st_mode) ? "a folder" : "not a regular file");
	if (!force)
		return bt_fail(err, BETON_EXISTS, "%s: exists; --force replaces it", path);
	return BETON_OK;
}

/* Endings of sources and pictures. Some of them are also allowed for a list of text. */
static const struct {
	const char *text;
	bool list;
} endings[] = {
	{".tar"},  {".gz"},        {".tgz"},       {".zst"},       {".tzst"},      {".xz"},     {".txz"},
	{".bz2"},  {".tbz2"},      {".zip"},       {".jsonl"},     {".json"},      {".npy"},    {".npz"},
	{".bin"},  {".jpg"},       {".jpeg"},      {".png"},       {".webp"},      {".ndjson"}, {".tif"},
	{".tiff"}, {"idx1-ubyte"}, {".gif"},       {".betonset"},  {".bmp"},       {".pgm"},    {".ppm"},
	{".pbm"},  {"idx3-ubyte"}, {".csv", true}, {".tsv", true}, {".txt", true},
};

static int check_name(const char *path, const char *what, bool list, beton_error *err)
{
	size_t length = strlen(path);
	for (size_t i = 0; i < sizeof(endings) / sizeof(*endings); i++) {
		size_t size = strlen(endings[i].text);
		if (length >= size && strcasecmp(path + length - size, endings[i].text) == 0 &&
		    !(list && endings[i].list))
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "%s: no %s is written to a name that ends with '%s'", path, what,
				       endings[i].text);
	}
	return BETON_OK;
}

/* Refuses a misspelt ".beton". Other endings are the user's choice. */
static int check_ending(const char *path, beton_error *err)
{
	bt_suggestion like;
	const char *dot = strrchr(path, '.'), *slash = strrchr(path, '/');
	if (!dot || (slash && slash > dot) || strcmp(dot + 1, "beton") == 0)
		return BETON_OK;
	const char *name = slash ? slash + 1 : path;
	bt_suggest_begin(&like, dot + 1);
	bt_suggest_try(&like, "beton");
	return *like.name ? bt_fail(err, BETON_INVALID_ARGUMENT,
				    "%s: a dataset's name ends with '.beton'; did you mean '%.*s.beton'?", path,
				    (int)(dot - name), name)
			  : BETON_OK;
}

int output_check_dataset_name(const char *path, beton_error *err)
{
	if (!*path)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "the name of the output is empty");
	if (strcmp(path, "-") == 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "'-': no dataset is written to standard output; './-' is a file of that name");
	int status = check_name(path, "dataset", false, err);
	return status == BETON_OK ? check_ending(path, err) : status;
}

int output_check_list_name(const char *path, beton_error *err)
{
	return check_name(path, "list", true, err);
}
