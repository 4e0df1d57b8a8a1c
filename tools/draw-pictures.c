/* SPDX-License-Identifier: Apache-2.0
 *
 * draw-pictures: writes a small picture set for trying out training, as JPEG files in class folders. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <turbojpeg.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/arguments.h"
#include "common/error.h"
#include "common/system.h"
#include "picture.h"

enum { QUALITY = 90 };

typedef struct {
	const char *folder;
	uint64_t train, val; /* pictures of each kind */
	uint64_t size;       /* pixels a side */
	uint64_t seed;
	bool force; /* into folders that are there */
} settings;

/* State for drawing pictures. */
typedef struct {
	tjhandle compressor;
	uint8_t *rgb;
	unsigned char *jpeg; /* grown by libjpeg-turbo */
	unsigned long jpeg_capacity;
} canvas;

static const char usage[] =
	"Usage: draw-pictures [OPTION]... FOLDER\n"
	"Draw pictures of ten kinds of shapes, and write them to FOLDER/train/KIND and FOLDER/val/KIND.\n"
	"\n"
	"  --train N   number of training pictures of each kind (default 350)\n"
	"  --val N     number of validation pictures of each kind (default 50)\n"
	"  --size N    width and height in pixels, 16 to 1024 (default 64)\n"
	"  --seed N    seed of the random numbers; another seed gives other pictures (default 0)\n"
	"  --force     write into FOLDER/train and FOLDER/val even if they exist, and replace pictures in them\n"
	"  --help      show this text\n"
	"\n"
	"Exit status: 0 success, 1 failure, 2 wrong usage.\n";

/* The folder may be there already. */
static int make_folder(const char *path, beton_error *err)
{
	if (mkdir(path, 0777) != 0 && errno != EEXIST)
		return bt_fail_errno(err, errno, "%s: cannot make the folder", path);
	return BETON_OK;
}

static int write_file(const char *path, const void *data, size_t size, beton_error *err)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	int failed;

	if (fd < 0)
		return bt_fail_errno(err, errno, "%s: cannot create", path);
	failed = bt_write_full(fd, data, size) != 0 ? errno : 0;
	if (close(fd) != 0 && !failed)
		failed = errno;
	if (!failed)
		return BETON_OK;
	unlink(path);
	return bt_fail_errno(err, failed, "%s: cannot write", path);
}

static int draw_one(canvas *c, const settings *s, uint64_t key, int kind, const char *path, beton_error *err)
{
	int size = (int)s->size;
	unsigned long bytes = c->jpeg_capacity;

	picture_draw(key, kind, size, c->rgb);
	if (tjCompress2(c->compressor, c->rgb, size, 0, size, TJPF_RGB, &c->jpeg, &bytes, TJSAMP_420, QUALITY,
			TJFLAG_NOREALLOC) != 0)
		return bt_fail(err, BETON_NO_MEMORY, "%s: %s", path, tjGetErrorStr2(c->compressor));
	return write_file(path, c->jpeg, bytes, err);
}

/* One of the two parts: `count` pictures of each kind. */
static int draw_part(canvas *c, const settings *s, const char *part, uint64_t count, beton_error *err)
{
	char path[4096];
	int rc = BETON_OK;

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", s->folder, part) > sizeof(path) - 64)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: the name is too long", s->folder);
	if (!s->force && mkdir(path, 0777) != 0 && errno == EEXIST)
		return bt_fail(err, BETON_EXISTS, "%s: exists; --force draws into it", path);
	rc = make_folder(path, err);
	for (int kind = 0; rc == BETON_OK && kind < PICTURE_KINDS; kind++) {
		const char *name = picture_kind_name(kind);

		snprintf(path, sizeof(path), "%s/%s/%s", s->folder, part, name);
		rc = make_folder(path, err);
		for (uint64_t i = 0; rc == BETON_OK && i < count; i++) {
			/* Part, kind and number in the key: no picture of one part comes again in the other. */
			int length = snprintf(path, sizeof(path), "%s/%s/%05llu", part, name, (unsigned long long)i);
			uint64_t key = XXH3_64bits_withSeed(path, (size_t)length, s->seed);

			snprintf(path, sizeof(path), "%s/%s/%s/%05llu.jpg", s->folder, part, name,
				 (unsigned long long)i);
			rc = draw_one(c, s, key, kind, path, err);
		}
	}
	return rc;
}

static int draw_all(const settings *s, beton_error *err)
{
	canvas c = {.compressor = tjInitCompress()};
	int size = (int)s->size, rc;

	c.jpeg_capacity = tjBufSize(size, size, TJSAMP_420);
	c.rgb = malloc((size_t)size * (size_t)size * 3);
	c.jpeg = tjAlloc((int)c.jpeg_capacity);
	if (!c.compressor || !c.rgb || !c.jpeg)
		rc = bt_fail(err, BETON_NO_MEMORY, "no memory for a picture of %d pixels a side", size);
	else
		rc = make_folder(s->folder, err);
	if (rc == BETON_OK)
		rc = draw_part(&c, s, "train", s->train, err);
	if (rc == BETON_OK)
		rc = draw_part(&c, s, "val", s->val, err);
	tjFree(c.jpeg);
	free(c.rgb);
	if (c.compressor)
		tjDestroy(c.compressor);
	return rc;
}

/* Returns 0 to go on, or 1 + the exit status. */
static int parse_options(int argc, char **argv, settings *s, beton_error *err)
{
	static const struct option options[] = {
		{"train", required_argument, NULL, 't'},
		{"val", required_argument, NULL, 'v'},
		{"size", required_argument, NULL, 'p'},
		{"seed", required_argument, NULL, 's'},
		{"force", no_argument, NULL, 'F'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	int option, rc = BETON_OK;

	while (rc == BETON_OK && (option = bt_getopt(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 't':
			rc = bt_parse_u64("--train", optarg, 1, 99999, &s->train, err);
			break;
		case 'v':
			rc = bt_parse_u64("--val", optarg, 1, 99999, &s->val, err);
			break;
		case 'p':
			rc = bt_parse_u64("--size", optarg, 16, 1024, &s->size, err);
			break;
		case 's':
			rc = bt_parse_u64("--seed", optarg, 0, UINT64_MAX, &s->seed, err);
			break;
		case 'F':
			s->force = true;
			break;
		case 'h':
			fputs(usage, stdout);
			return 1 + (fflush(stdout) != 0);
		default:
			fputs("draw-pictures: try --help\n", stderr);
			return 1 + 2;
		}
	}
	if (rc == BETON_OK && optind != argc - 1)
		rc = bt_fail(err, BETON_INVALID_ARGUMENT, "one folder is needed, see --help");
	if (rc != BETON_OK) {
		fprintf(stderr, "draw-pictures: %s\n", err->message);
		return 1 + 2;
	}
	s->folder = argv[optind];
	return 0;
}

int main(int argc, char **argv)
{
	settings s = {.train = 350, .val = 50, .size = 64};
	beton_error err = {0};
	int status = parse_options(argc, argv, &s, &err);

	if (status != 0)
		return status - 1;
	if (draw_all(&s, &err) != BETON_OK) {
		fprintf(stderr, "draw-pictures: %s\n", err.message);
		return 1;
	}
	printf("%s: %llu pictures of %d kinds to train on, %llu to validate on\n", s.folder,
	       (unsigned long long)s.train * PICTURE_KINDS, PICTURE_KINDS, (unsigned long long)s.val * PICTURE_KINDS);
	return fflush(stdout) != 0;
}
