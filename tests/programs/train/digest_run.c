/* SPDX-License-Identifier: Apache-2.0
 *
 * digest-run LOG CHECKPOINT: one line that tells whether two runs computed the same bits: the XXH3 of the losses and
 * validation figures of a log, and that of the names, shapes and bytes of every tensor in the newest checkpoint of a
 * folder; then the last loss, for the reader. */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <xxhash.h>

static const char *const figures[] = {"loss", "val_loss", "val_top1", "val_top5", "val_count"};

static _Noreturn void die(const char *what, const char *name)
{
	fprintf(stderr, "digest-run: %s %s\n", what, name);
	exit(1);
}

/* Returns the last training loss. */
static double hash_log(const char *path, XXH3_state_t *hash)
{
	char line[65536];
	double last = -1;
	FILE *file = fopen(path, "r");
	if (!file)
		die("cannot open", path);
	while (fgets(line, sizeof(line), file)) {
		json_t *record = json_loads(line, 0, NULL);
		if (!record)
			die("a line is not JSON in", path);
		for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
			const json_t *value = json_object_get(record, figures[i]);
			double number = json_number_value(value);
			if (!json_is_number(value))
				continue;
			/* The loss of a step is printed with the digits of a float. */
			if (i == 0)
				number = (float)number;
			XXH3_64bits_update(hash, figures[i], strlen(figures[i]));
			XXH3_64bits_update(hash, &number, sizeof(number));
			last = i == 0 ? number : last;
		}
		json_decref(record);
	}
	if (ferror(file) || fclose(file) != 0)
		die("cannot read", path);
	return last;
}

struct tensor {
	char *text; /* name, type and shape */
	XXH64_hash_t bytes;
};

struct tensors {
	struct tensor *all;
	size_t count;
};

static void add_tensor(struct tensors *tensors, const char *name, json_t *entry, const char *data, uint64_t size,
		       const char *path)
{
	const json_t *offsets = json_object_get(entry, "data_offsets");
	uint64_t begin = (uint64_t)json_integer_value(json_array_get(offsets, 0));
	uint64_t end = (uint64_t)json_integer_value(json_array_get(offsets, 1));
	char *shape = json_dumps(json_object_get(entry, "shape"), JSON_COMPACT), *text;
	const char *dtype = json_string_value(json_object_get(entry, "dtype"));
	tensors->all = realloc(tensors->all, (tensors->count + 1) * sizeof(*tensors->all));
	if (!shape || !dtype || begin > end || end > size || !tensors->all ||
	    asprintf(&text, "%s %s %s", name, dtype, shape) < 0)
		die("a bad tensor in", path);
	free(shape);
	tensors->all[tensors->count++] = (struct tensor){text, XXH3_64bits(data + begin, end - begin)};
}

static void add_file(struct tensors *tensors, const char *path)
{
	FILE *file = fopen(path, "r");
	char *content;
	long size;
	uint64_t header;
	const char *name;
	json_t *root, *entry;
	if (!file || fseek(file, 0, SEEK_END) != 0 || (size = ftell(file)) < 8)
		die("cannot open", path);
	rewind(file);
	content = malloc((size_t)size);
	if (!content || fread(content, 1, (size_t)size, file) != (size_t)size)
		die("cannot read", path);
	fclose(file);
	memcpy(&header, content, sizeof(header));
	root = header <= (uint64_t)size - 8 ? json_loadb(content + 8, header, 0, NULL) : NULL;
	if (!root)
		die("no header in", path);
	json_object_foreach(root, name, entry) if (strcmp(name, "__metadata__") != 0)
		add_tensor(tensors, name, entry, content + 8 + header, (uint64_t)size - 8 - header, path);
	json_decref(root);
	free(content);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(((const struct tensor *)a)->text, ((const struct tensor *)b)->text);
}

static int is_step(const struct dirent *entry)
{
	return strncmp(entry->d_name, "step-", 5) == 0;
}

static int is_safetensors(const struct dirent *entry)
{
	const char *ending = strrchr(entry->d_name, '.');
	return ending && strcmp(ending, ".safetensors") == 0;
}

/* Which file a tensor is in does not matter. */
static void hash_checkpoint(const char *folder, XXH3_state_t *hash)
{
	struct tensors tensors = {0};
	struct dirent **steps, **files;
	char *path, *file;
	int count = scandir(folder, &steps, is_step, alphasort);
	if (count < 1 || asprintf(&path, "%s/%s", folder, steps[count - 1]->d_name) < 0)
		die("no checkpoint in", folder);
	int file_count = scandir(path, &files, is_safetensors, alphasort);
	if (file_count < 1)
		die("no tensors in", path);
	for (int i = 0; i < file_count; i++) {
		if (asprintf(&file, "%s/%s", path, files[i]->d_name) < 0)
			die("out of memory for", path);
		add_file(&tensors, file);
		free(file);
		free(files[i]);
	}
	free(files);
	qsort(tensors.all, tensors.count, sizeof(*tensors.all), by_text);
	for (size_t i = 0; i < tensors.count; i++) {
		XXH3_64bits_update(hash, tensors.all[i].text, strlen(tensors.all[i].text));
		XXH3_64bits_update(hash, &tensors.all[i].bytes, sizeof(tensors.all[i].bytes));
		free(tensors.all[i].text);
	}
	free(tensors.all);
	for (int i = 0; i < count; i++)
		free(steps[i]);
	free(steps);
	free(path);
}

int main(int argc, char **argv)
{
	XXH3_state_t *hash = XXH3_createState();
	if (argc != 3 || !hash)
		return 2;
	XXH3_64bits_reset(hash);
	double loss = hash_log(argv[1], hash);
	printf("%016" PRIx64, XXH3_64bits_digest(hash));
	XXH3_64bits_reset(hash);
	hash_checkpoint(argv[2], hash);
	printf(" %016" PRIx64 " %.9g\n", XXH3_64bits_digest(hash), loss);
	XXH3_freeState(hash);
	return 0;
}
