/* SPDX-License-Identifier: Apache-2.0
 *
 * beton-write's binary sources, made here from scratch: NumPy's files, CIFAR-10's batches, MNIST's idx files. Runs the
 * program $BETON_WRITE; what needs libarchive is left out where ARCHIVES is not 1. */
#include "tests/support/beton_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#if ARCHIVES
#include <archive.h>
#include <archive_entry.h>
#endif

/* The sanitizers need memory of their own. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

enum { SAMPLES = 20, CIFAR_RECORD = 3073 };

/* Runs beton-write with these arguments, from inside the folder; returns its exit status. What it prints on standard
 * error is in the file `errors`. */
static int run(const char *arguments)
{
	char command[2048];
	snprintf(command, sizeof(command), "cd '%s' && rm -f out*.beton && '%s' --quiet %s 2>errors", in_folder("."),
		 getenv("BETON_WRITE"), arguments);
	int status = system(command);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void run_well(const char *arguments)
{
	if (run(arguments) != 0) {
		file_content errors = read_file(in_folder("errors"));
		fail_msg("%s: %.*s", arguments, (int)errors.size, (const char *)errors.data);
	}
}

/* It fails with status 1 and a message that has the word. */
static void run_badly(const char *arguments, const char *word)
{
	int status = run(arguments);
	file_content errors = read_file(in_folder("errors"));
	char *text = calloc(1, errors.size + 1);
	memcpy(text, errors.data, errors.size);
	if (status != 1 || !strstr(text, word))
		fail_msg("%s: exit status %d, '%s' expected: %s", arguments, status, word, text);
	struct stat out;
	assert_int_not_equal(stat(in_folder("out.beton"), &out), 0);
	free(text);
	free(errors.data);
}

static beton_value value_of(const beton_reader *reader, uint64_t sample, const char *field)
{
	beton_value value;
	beton_error err;
	int index = beton_reader_find_field(reader, field);
	if (index < 0)
		fail_msg("no field '%s'", field);
	if (beton_reader_value(reader, sample, (uint32_t)index, &value, &err) != BETON_OK)
		fail_msg("%s", err.message);
	return value;
}

static void check_bytes(const beton_reader *reader, uint64_t sample, const char *field, const void *expected,
			size_t size)
{
	beton_value value = value_of(reader, sample, field);
	assert_int_equal(value.blob.size, size);
	uint8_t *found = malloc(size);
	assert_int_equal(beton_reader_read(reader, &value.blob, found, NULL), BETON_OK);
	assert_memory_equal(found, expected, size);
	free(found);
}

/* ---- making files ---- */

/* One byte of element i of a made array. */
static uint8_t made_byte(size_t i)
{
	return (uint8_t)(i * 37 + (i >> 8) * 11 + 5);
}

/* A .npy file: version 1.0, or the given one, with this header text. Returns its size. */
static size_t put_npy(uint8_t *to, const char *header, const void *elements, size_t size)
{
	size_t length = strlen(header);
	memcpy(to, "\x93NUMPY\1\0", 8);
	to[8] = (uint8_t)length;
	to[9] = (uint8_t)(length >> 8);
	memcpy(to + 10, header, length);
	memcpy(to + 10 + length, elements, size);
	return 10 + length + size;
}

static void write_npy(const char *name, const char *header, const void *elements, size_t size)
{
	uint8_t *file = malloc(size + 4096);
	write_file(in_folder(name), file, put_npy(file, header, elements, size));
	free(file);
}

static uint8_t *made_bytes(size_t size)
{
	uint8_t *bytes = malloc(size);
	for (size_t i = 0; i < size; i++)
		bytes[i] = made_byte(i);
	return bytes;
}

static int setup(void **state)
{
	(void)state;
	assert_int_equal(setenv("FOLDER", make_folder(), 1), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	remove_folder();
	return 0;
}

/* ---- .npy ---- */

static void npy_numbers(void **state)
{
	(void)state;
	/* 1-D integers in both byte orders, reals of three sizes, truth values. */
	int64_t whole[SAMPLES];
	uint8_t swapped[SAMPLES][4];
	float single[SAMPLES];
	uint16_t half[] = {0x3c00, 0xc000, 0x0001, 0x7c00, 0x3555};
	uint8_t truth[] = {0, 1, 1};
	for (int i = 0; i < SAMPLES; i++) {
		whole[i] = (int64_t)i * 1000000007 - 5;
		int32_t number = -i * 70000;
		for (int byte = 0; byte < 4; byte++)
			swapped[i][byte] = (uint8_t)((uint32_t)number >> (24 - 8 * byte));
		single[i] = (float)i / 3;
	}
	write_npy("a.npy", "{'descr': '<i8', 'fortran_order': False, 'shape': (20,), }    \n", whole, sizeof(whole));
	run_well("a.npy out.beton");
	beton_reader *reader = open_good(in_folder("out.beton"));
	assert_int_equal(beton_reader_info(reader)->num_samples, SAMPLES);
	for (int i = 0; i < SAMPLES; i++)
		assert_int_equal(value_of(reader, (uint64_t)i, "data").integer, whole[i]);
	beton_reader_close(&reader);

	write_npy("a.npy", "{'shape': (20,), 'fortran_order': True, 'descr': '>i4'}\n", swapped, sizeof(swapped));
	run_well("--fields=label=data a.npy out.beton");
	reader = open_good(in_folder("out.beton"));
	for (int i = 0; i < SAMPLES; i++)
		assert_int_equal(value_of(reader, (uint64_t)i, "label").integer, -i * 70000);
	beton_reader_close(&reader);

	write_npy("a.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (20,), }", single, sizeof(single));
	run_well("a.npy out.beton");
	reader = open_good(in_folder("out.beton"));
	for (int i = 0; i < SAMPLES; i++)
		assert_true(value_of(reader, (uint64_t)i, "data").real == (double)single[i]);
	beton_reader_close(&reader);

	write_npy("a.npy", "{'descr': '<f2', 'fortran_order': False, 'shape': (5,), }", half, sizeof(half));
	run_well("a.npy out.beton");
	reader = open_good(in_folder("out.beton"));
	assert_true(value_of(reader, 0, "data").real == 1);
	assert_true(value_of(reader, 1, "data").real == -2);
	assert_true(value_of(reader, 2, "data").real == 1.0 / (1 << 24));
	assert_true(value_of(reader, 3, "data").real > 1e300);
	assert_true(value_of(reader, 4, "data").real == 1365.0 / 4096);
	beton_reader_close(&reader);

	write_npy("a.npy", "{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }", truth, sizeof(truth));
	run_well("--fields=x=data:float a.npy out.beton");
	reader = open_good(in_folder("out.beton"));
	assert_true(value_of(reader, 2, "x").real == 1);
	beton_reader_close(&reader);
}

static void npy_arrays(void **state)
{
	(void)state;
	enum { WIDTH = 8, HEIGHT = 6, BYTES = WIDTH * HEIGHT * 3 };
	uint8_t *bytes = made_bytes((size_t)SAMPLES * BYTES);
	write_npy("a.npy", "{'descr': '|u1', 'fortran_order': False, 'shape': (20, 6, 8, 3), }", bytes,
		  (size_t)SAMPLES * BYTES);
	/* An array as it is; a picture on request; for every number of threads the same; any selection. */
	for (int threads = 1; threads < 8; threads += 3) {
		char arguments[64];
		snprintf(arguments, sizeof(arguments), "--threads=%d a.npy out.beton", threads);
		run_well(arguments);
		beton_reader *reader = open_good(in_folder("out.beton"));
		const beton_field *field = beton_reader_field(reader, 0);
		assert_int_equal(field->type, BETON_FIELD_NDARRAY);
		assert_int_equal(field->ndim, 3);
		assert_int_equal(field->shape[0], HEIGHT);
		assert_string_equal(field->dtype, "|u1");
		for (uint64_t i = 0; i < SAMPLES; i++)
			check_bytes(reader, i, "data", bytes + i * BYTES, BYTES);
		beton_reader_close(&reader);
	}
	run_well("--fields=image=data:image --subset=19,3-4 a.npy out.beton");
	beton_reader *reader = open_good(in_folder("out.beton"));
	assert_int_equal(beton_reader_info(reader)->num_samples, 3);
	beton_value value = value_of(reader, 0, "image");
	assert_int_equal(value.mode, BETON_IMAGE_RAW);
	assert_int_equal(value.width, WIDTH);
	assert_int_equal(value.height, HEIGHT);
	check_bytes(reader, 0, "image", bytes + (size_t)19 * BYTES, BYTES);
	check_bytes(reader, 2, "image", bytes + (size_t)4 * BYTES, BYTES);
	beton_reader_close(&reader);

	/* One channel becomes three. */
	write_npy("a.npy", "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3, 5), }", bytes, 30);
	run_well("--fields=image=data:image a.npy out.beton");
	reader = open_good(in_folder("out.beton"));
	uint8_t grey[45];
	for (size_t i = 0; i < sizeof(grey); i++)
		grey[i] = bytes[15 + i / 3];
	check_bytes(reader, 1, "image", grey, sizeof(grey));
	beton_reader_close(&reader);
	free(bytes);
}

static void npy_bad(void **state)
{
	(void)state;
	static const struct {
		const char *header;
		const char *word;
	} bad[] = {
		{"", "not that of a plain array"},
		{"{", "not that of a plain array"},
		{"{}", "not that of a plain array"},
		{"{'descr': '<i4', 'fortran_order': False}", "not that of a plain array"},
		{"{'descr': '<i4', 'descr': '<i4', 'fortran_order': False, 'shape': (2,)}", "not that of"},
		{"{'descr': '<i4', 'fortran_order': False, 'shape': (2,), 'more': 1}", "not that of"},
		{"{'descr': '<i4', 'fortran_order': False, 'shape': (2)}", "not that of"},
		{"{'descr': '<i4', 'fortran_order': False, 'shape': (-2,)}", "not that of"},
		{"{'descr': '<i4', 'fortran_order': 0, 'shape': (2,)}", "not that of"},
		{"{'descr': '<i4\\'', 'fortran_order': False, 'shape': (2,)}", "not that of"},
		{"{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (2,)}", "not that of"},
		{"{'descr': '<i44444444444444', 'fortran_order': False, 'shape': (2,)}", "not that of"},
		{"{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", "only plain numbers"},
		{"{'descr': '', 'fortran_order': False, 'shape': (2,)}", "only plain numbers"},
		{"{'descr': '=i4', 'fortran_order': False, 'shape': (2,)}", "only plain numbers"},
		{"{'descr': '<i3', 'fortran_order': False, 'shape': (2,)}", "only plain numbers"},
		{"{'descr': '<U2', 'fortran_order': False, 'shape': (1,)}", "only plain numbers"},
		{"{'descr': '<i4', 'fortran_order': True, 'shape': (1, 2)}", "Fortran order"},
		{"{'descr': '<i4', 'fortran_order': False, 'shape': ()}", "a single number"},
		{"{'descr': '<i4', 'fortran_order': False, 'shape': (3,)}", "8 bytes of elements, and its header"},
		{"{'descr': '<i4', 'fortran_order': False, 'shape': (1,)}", "8 bytes of elements, and its header"},
		{"{'descr': '<i4', 'fortran_order': False, 'shape': (9223372036854775807,)}", "2^63"},
		{"{'descr': '<i4', 'fortran_order': False, 'shape': (99999999999999999999,)}", "not that of"},
		{"{'descr': '<i4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", "2^63"},
		{"{'descr': '|u1', 'fortran_order': False, 'shape': (1, 2147483648)}", "more than 1073741824 bytes"},
	};
	uint32_t elements[2] = {1, 2};
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		write_npy("a.npy", bad[i].header, elements, sizeof(elements));
		run_badly("a.npy out.beton", bad[i].word);
	}
	/* 33 dimensions. */
	char many[512] = "{'descr': '<i4', 'fortran_order': False, 'shape': (1";
	for (int i = 0; i < 32; i++)
		strcat(many, ",1");
	strcat(many, ")}");
	write_npy("a.npy", many, elements, 4);
	run_badly("a.npy out.beton", "not that of a plain array");
	/* Cut in each place of the header, and other versions. */
	uint8_t file[512];
	size_t size =
		put_npy(file, "{'descr': '<i4', 'fortran_order': False, 'shape': (2,)}", elements, sizeof(elements));
	for (size_t cut = 0; cut < size; cut += cut < 12 ? 1 : 7) {
		write_file(in_folder("a.npy"), file, cut);
		run_badly("a.npy out.beton", "a.npy: ");
	}
	file[6] = 4;
	write_file(in_folder("a.npy"), file, size);
	run_badly("a.npy out.beton", "version 4.0");
	/* A picture of a wrong shape, and a number that does not fit. */
	write_npy("a.npy", "{'descr': '<u2', 'fortran_order': False, 'shape': (1, 2, 2)}", elements, 8);
	run_badly("--fields=image=data:image a.npy out.beton", "is not a picture");
	memset(elements, 255, sizeof(elements));
	write_npy("a.npy", "{'descr': '<u8', 'fortran_order': False, 'shape': (1,)}", elements, 8);
	run_badly("a.npy out.beton", "64 bits with a sign");
	assert_int_equal(mkdir(in_folder("folder.npy"), 0755), 0);
	run_badly("--format=npy folder.npy out.beton", "not a regular file");
}

/* ---- .npz ---- */

#if ARCHIVES
typedef struct member {
	const char *name;
	const uint8_t *data;
	size_t size;
} member;

static void write_zip(const char *name, const member *members, size_t count, bool stored)
{
	struct archive *zip = archive_write_new();
	assert_int_equal(archive_write_set_format_zip(zip), ARCHIVE_OK);
	assert_int_equal(stored ? archive_write_zip_set_compression_store(zip)
				: archive_write_zip_set_compression_deflate(zip),
			 ARCHIVE_OK);
	assert_int_equal(archive_write_open_filename(zip, in_folder(name)), ARCHIVE_OK);
	for (size_t i = 0; i < count; i++) {
		struct archive_entry *entry = archive_entry_new();
		archive_entry_set_pathname(entry, members[i].name);
		archive_entry_set_size(entry, (la_int64_t)members[i].size);
		archive_entry_set_filetype(entry, AE_IFREG);
		archive_entry_set_perm(entry, 0644);
		assert_int_equal(archive_write_header(zip, entry), ARCHIVE_OK);
		assert_int_equal(archive_write_data(zip, members[i].data, members[i].size), members[i].size);
		archive_entry_free(entry);
	}
	assert_int_equal(archive_write_close(zip), ARCHIVE_OK);
	archive_write_free(zip);
}

static void npz(void **state)
{
	(void)state;
	/* Larger than the blocks that it is unpacked in. */
	enum { ITEM = 20000, MANY = 30 };
	uint8_t *bytes = made_bytes((size_t)MANY * ITEM);
	int64_t labels[MANY];
	for (int i = 0; i < MANY; i++)
		labels[i] = 7 * i;
	uint8_t *x = malloc((size_t)MANY * ITEM + 4096);
	uint8_t y[sizeof(labels) + 512];
	member members[] = {
		{"x.npy", x,
		 put_npy(x, "{'descr': '<f4', 'fortran_order': False, 'shape': (30, 50, 100)}", bytes,
			 (size_t)MANY * ITEM)},
		{"y.npy", y,
		 put_npy(y, "{'descr': '<i8', 'fortran_order': False, 'shape': (30,)}", labels, sizeof(labels))}};
	for (int stored = 0; stored < 2; stored++) {
		write_zip("a.npz", members, 2, stored);
		run_well("--shuffle=5 --fields=embedding=x,label=y a.npz out.beton");
		beton_reader *reader = open_good(in_folder("out.beton"));
		bool seen[MANY] = {false};
		for (uint64_t i = 0; i < MANY; i++) {
			size_t index = (size_t)(value_of(reader, i, "label").integer / 7);
			assert_false(seen[index]);
			seen[index] = true;
			check_bytes(reader, i, "embedding", bytes + index * ITEM, ITEM);
		}
		beton_reader_close(&reader);
	}
	/* The folder has no file besides the output. */
	assert_int_equal(system("cd \"$FOLDER\" && test -z \"$(ls -A | grep '^\\.')\""), 0);

	file_content whole = read_file(in_folder("a.npz"));
	write_file(in_folder("a.npz"), whole.data, whole.size / 2);
	run_badly("a.npz out.beton", "a.npz: ");
	whole.data[whole.size / 3] ^= 1;
	write_file(in_folder("a.npz"), whole.data, whole.size);
	run_badly("a.npz out.beton", "a.npz: damaged archive");
	members[1].name = "x.npy";
	write_zip("a.npz", members, 2, true);
	run_badly("a.npz out.beton", "two arrays are called 'x'");
	members[1].name = "../../y.txt";
	write_zip("a.npz", members, 2, true);
	run_badly("a.npz out.beton", "not a .npy file");
	members[1].name = "../../y.npy";
	write_zip("a.npz", members, 2, true);
	run_well("--fields=label=../../y a.npz out.beton");
	write_zip("a.npz", members, 0, true);
	run_badly("a.npz out.beton", "a.npz: ");
	/* Fewer samples in one; more zeros than the header promises. */
	members[1].size =
		put_npy(y, "{'descr': '<i8', 'fortran_order': False, 'shape': (29,)}", labels, 29 * sizeof(*labels));
	write_zip("a.npz", members, 2, false);
	run_badly("a.npz out.beton", "has 29 samples");
	size_t bomb_size = UINT32_C(1) << 26;
	uint8_t *bomb = calloc(1, bomb_size);
	put_npy(bomb, "{'descr': '|u1', 'fortran_order': False, 'shape': (30, 10)}", labels, 0);
	members[1] = (member){"bomb.npy", bomb, bomb_size};
	write_zip("a.npz", members, 2, false);
	run_badly("a.npz out.beton", "its header promises 300");
	free(bomb);
	free(whole.data);
	free(bytes);
	free(x);
}

/* ---- a tar on standard input ---- */

/* A running beton-write, and the archive that goes into it. */
typedef struct stream {
	pid_t pid;
	int fd;
	struct archive *tar;
} stream;

static stream start_stream(void)
{
	int ends[2];
	stream started = {.tar = archive_write_new()};
	assert_int_equal(pipe(ends), 0);
	started.pid = fork();
	if (started.pid == 0) {
		dup2(ends[0], STDIN_FILENO);
		close(ends[0]);
		close(ends[1]);
		execl(getenv("BETON_WRITE"), "beton-write", "--quiet", "--page-size=2MiB",
		      "--fields=data=bin,label=cls", "-", in_folder("stream.beton"), NULL);
		_exit(127);
	}
	assert_true(started.pid > 0);
	close(ends[0]);
	started.fd = ends[1];
	archive_write_set_format_ustar(started.tar);
	archive_write_set_bytes_per_block(started.tar, 512);
	assert_int_equal(archive_write_open_fd(started.tar, started.fd), ARCHIVE_OK);
	return started;
}

static void put_member(const stream *self, unsigned sample, const char *ending, const void *data, size_t size)
{
	char name[64];
	snprintf(name, sizeof(name), "train/s%06u.%s", sample, ending);
	struct archive_entry *entry = archive_entry_new();
	archive_entry_set_pathname(entry, name);
	archive_entry_set_size(entry, (la_int64_t)size);
	archive_entry_set_filetype(entry, AE_IFREG);
	archive_entry_set_perm(entry, 0644);
	assert_int_equal(archive_write_header(self->tar, entry), ARCHIVE_OK);
	assert_int_equal(archive_write_data(self->tar, data, size), size);
	archive_entry_free(entry);
}

/* Memory does not grow with the archive. */
static void large_tar(void **state)
{
	(void)state;
	enum { LARGE = 1 << 20, MANY = 300, LIMIT_KIB = 200 * 1024 };
	stream into = start_stream();
	uint8_t *bytes = made_bytes(LARGE);
	for (unsigned i = 0; i < MANY; i++) {
		bytes[0] = (uint8_t)i;
		put_member(&into, i, "bin", bytes, LARGE);
		put_member(&into, i, "cls", "7\n", 2);
	}
	assert_int_equal(archive_write_close(into.tar), ARCHIVE_OK);
	archive_write_free(into.tar);
	close(into.fd);
	int status;
	struct rusage used;
	assert_int_equal(wait4(into.pid, &status, 0, &used), into.pid);
	assert_int_equal(status, 0);
	print_message("%d MiB from standard input: %ld MiB of memory at most\n", MANY, used.ru_maxrss / 1024);
#if !SANITIZED
	assert_true(used.ru_maxrss < LIMIT_KIB);
#endif
	beton_reader *reader = open_good(in_folder("stream.beton"));
	assert_int_equal(beton_reader_info(reader)->num_samples, MANY);
	bytes[0] = (uint8_t)(MANY - 1);
	check_bytes(reader, MANY - 1, "data", bytes, LARGE);
	beton_reader_close(&reader);
	assert_int_equal(unlink(in_folder("stream.beton")), 0);
	free(bytes);
}

/* A signal ends the wait for a silent pipe. */
static void interrupted_tar(void **state)
{
	(void)state;
	signal(SIGPIPE, SIG_IGN);
	stream into = start_stream();
	for (unsigned i = 0; i < 2; i++) {
		put_member(&into, i, "bin", "x", 1);
		put_member(&into, i, "cls", "7", 1);
	}
	struct stat there;
	while (stat(in_folder(".stream.beton.partial"), &there) != 0)
		usleep(10000);
	assert_int_equal(kill(into.pid, SIGTERM), 0);
	int status;
	assert_int_equal(waitpid(into.pid, &status, 0), into.pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	assert_int_not_equal(stat(in_folder(".stream.beton.partial"), &there), 0);
	assert_int_not_equal(stat(in_folder("stream.beton"), &there), 0);
	archive_write_free(into.tar);
	close(into.fd);
}
#endif

/* ---- CIFAR-10 ---- */

static void write_batch(const char *name, uint8_t first_label, size_t records)
{
	uint8_t *file = made_bytes(records * CIFAR_RECORD);
	for (size_t i = 0; i < records; i++)
		file[i * CIFAR_RECORD] = (uint8_t)((first_label + i) % 10);
	write_file(in_folder(name), file, records * CIFAR_RECORD);
	free(file);
}

static void check_record(const beton_reader *reader, uint64_t sample, const char *batch, size_t record)
{
	file_content file = read_file(in_folder(batch));
	const uint8_t *bytes = file.data + record * CIFAR_RECORD;
	uint8_t pixels[3072];
	for (size_t i = 0; i < 1024; i++)
		for (size_t colour = 0; colour < 3; colour++)
			pixels[3 * i + colour] = bytes[1 + colour * 1024 + i];
	assert_int_equal(value_of(reader, sample, "label").integer, bytes[0]);
	check_bytes(reader, sample, "image", pixels, sizeof(pixels));
	free(file.data);
}

static void cifar(void **state)
{
	(void)state;
	assert_int_equal(mkdir(in_folder("cifar"), 0755), 0);
	write_batch("cifar/data_batch_1.bin", 3, 7);
	write_batch("cifar/data_batch_2.bin", 8, 5);
	write_batch("cifar/test_batch.bin", 1, 4);
	write_file(in_folder("cifar/batches.meta.txt"), "airplane\nautomobile\n\n", 21);
	run_well("cifar out.beton");
	beton_reader *reader = open_good(in_folder("out.beton"));
	assert_int_equal(beton_reader_info(reader)->num_samples, 12);
	check_record(reader, 0, "cifar/data_batch_1.bin", 0);
	check_record(reader, 6, "cifar/data_batch_1.bin", 6);
	check_record(reader, 7, "cifar/data_batch_2.bin", 0);
	check_record(reader, 11, "cifar/data_batch_2.bin", 4);
	beton_reader_close(&reader);
	reader = open_good(in_folder("out.val.beton"));
	assert_int_equal(beton_reader_info(reader)->num_samples, 4);
	check_record(reader, 3, "cifar/test_batch.bin", 3);
	beton_reader_close(&reader);
	/* Single files, in any order. */
	run_well("--subset=5- 'cifar/data_batch_{2,1}.bin' out.beton");
	reader = open_good(in_folder("out.beton"));
	assert_int_equal(beton_reader_info(reader)->num_samples, 7);
	check_record(reader, 0, "cifar/data_batch_1.bin", 0);
	beton_reader_close(&reader);

	run_badly("'cifar/data_batch_{1,7}.bin' out.beton", "data_batch_7.bin: no such file");
	/* The test batch is the test set then; of the classes with one sample, that one stays for training. */
	run_well("--val-fraction=0.5 cifar out.beton");
	const struct {
		const char *path;
		uint64_t samples;
	} sets[] = {{"out.beton", 10}, {"out.val.beton", 2}, {"out.test.beton", 4}};
	for (size_t i = 0; i < sizeof(sets) / sizeof(*sets); i++) {
		reader = open_good(in_folder(sets[i].path));
		assert_int_equal(beton_reader_info(reader)->num_samples, sets[i].samples);
		beton_reader_close(&reader);
	}
	run_badly("--subset=1 cifar out.beton", "a training and a validation set");
	patch_file(in_folder("cifar/data_batch_2.bin"), 2 * CIFAR_RECORD, "\12", 1);
	run_badly("cifar out.beton", "data_batch_2.bin: record 2: the label is 10");
	run_well("--on-error=skip cifar out.beton");
	reader = open_good(in_folder("out.beton"));
	assert_int_equal(beton_reader_info(reader)->num_samples, 11);
	check_record(reader, 9, "cifar/data_batch_2.bin", 3);
	beton_reader_close(&reader);
	write_file(in_folder("cifar/data_batch_2.bin"), "", 0);
	run_badly("cifar out.beton", "whole records");
	write_file(in_folder("cifar/data_batch_2.bin"), "x", 1);
	run_badly("cifar out.beton", "whole records");
}

/* ---- MNIST ---- */

static void write_idx(const char *name, uint8_t type, uint8_t dimensions, const uint32_t *sides, size_t size)
{
	uint8_t *file = calloc(1, 4 + 4 * (size_t)dimensions + size);
	file[2] = type;
	file[3] = dimensions;
	for (size_t i = 0; i < dimensions; i++)
		for (size_t byte = 0; byte < 4; byte++)
			file[4 + 4 * i + byte] = (uint8_t)(sides[i] >> (24 - 8 * byte));
	for (size_t i = 0; i < size; i++)
		file[4 + 4 * (size_t)dimensions + i] = made_byte(i);
	write_file(in_folder(name), file, 4 + 4 * (size_t)dimensions + size);
	free(file);
}

static void check_digit(const beton_reader *reader, uint64_t sample)
{
	uint8_t pixels[28 * 28 * 3];
	for (size_t i = 0; i < sizeof(pixels); i++)
		pixels[i] = made_byte(sample * 784 + i / 3);
	assert_int_equal(value_of(reader, sample, "label").integer, made_byte(sample));
	check_bytes(reader, sample, "image", pixels, sizeof(pixels));
}

static void mnist(void **state)
{
	(void)state;
	assert_int_equal(mkdir(in_folder("mnist"), 0755), 0);
	const uint32_t train[] = {SAMPLES, 28, 28};
	const uint32_t test[] = {3, 28, 28};
	write_idx("mnist/train-images-idx3-ubyte", 8, 3, train, SAMPLES * 784);
	write_idx("mnist/train-labels-idx1-ubyte", 8, 1, train, SAMPLES);
	write_idx("mnist/t10k-images-idx3-ubyte", 8, 3, test, 3 * 784);
	write_idx("mnist/t10k-labels-idx1-ubyte", 8, 1, test, 3);
	const char *sources[] = {"mnist/train-images-idx3-ubyte", "mnist", "mnist/train-images-idx3-ubyte.gz", "mnist"};
	for (size_t i = 0; i < (ARCHIVES ? 4 : 2); i++) {
		char arguments[128];
		if (i == 2)
			assert_int_equal(system("cd \"$FOLDER\" && gzip mnist/*"), 0);
		snprintf(arguments, sizeof(arguments), "%s out.beton", sources[i]);
		run_well(arguments);
		beton_reader *reader = open_good(in_folder("out.beton"));
		assert_int_equal(beton_reader_info(reader)->num_samples, SAMPLES);
		for (uint64_t j = 0; j < SAMPLES; j++)
			check_digit(reader, j);
		beton_reader_close(&reader);
	}
	beton_reader *reader = open_good(in_folder("out.val.beton"));
	assert_int_equal(beton_reader_info(reader)->num_samples, 3);
	beton_reader_close(&reader);

#if ARCHIVES
	/* A wrong bit that only the checksum of gzip shows; a cut. */
	file_content packed = read_file(in_folder("mnist/train-labels-idx1-ubyte.gz"));
	packed.data[packed.size - 6] ^= 1;
	write_file(in_folder("mnist/train-labels-idx1-ubyte.gz"), packed.data, packed.size);
	run_badly("mnist out.beton", "incorrect data check");
	write_file(in_folder("mnist/train-labels-idx1-ubyte.gz"), packed.data, packed.size - 9);
	run_badly("mnist out.beton", "cut off");
	write_file(in_folder("mnist/train-labels-idx1-ubyte.gz"), packed.data, 0);
	run_badly("mnist out.beton", "train-labels-idx1-ubyte.gz: ");
	free(packed.data);
#endif
	run_badly("'mnist/*-images-idx3-ubyte*' out.beton", "2 files");
	const uint32_t fewer[] = {SAMPLES - 1};
	write_idx("x-images-idx3-ubyte", 8, 3, train, SAMPLES * 784);
	run_badly("x-images-idx3-ubyte out.beton", "no labels, x-labels-idx1-ubyte");
	write_idx("x-labels-idx1-ubyte", 8, 1, fewer, SAMPLES - 1);
	run_badly("x-images-idx3-ubyte out.beton", "19 labels for 20 pictures");
	write_idx("x-labels-idx1-ubyte", 8, 1, train, SAMPLES - 1);
	run_badly("x-images-idx3-ubyte out.beton", "19 bytes of elements, and its header promises 20");
	write_idx("x-labels-idx1-ubyte", 7, 1, train, SAMPLES);
	run_badly("x-images-idx3-ubyte out.beton", "of type 0x07 with 1 dimensions");
	write_idx("x-labels-idx1-ubyte", 8, 0, train, SAMPLES);
	run_badly("x-images-idx3-ubyte out.beton", "with 0 dimensions");
	const uint32_t many[255] = {0};
	write_idx("x-labels-idx1-ubyte", 8, 255, many, 0);
	run_badly("x-images-idx3-ubyte out.beton", "with 255 dimensions");
	const uint32_t huge[] = {UINT32_MAX, UINT32_MAX, UINT32_MAX};
	write_idx("x-images-idx3-ubyte", 8, 3, huge, 10);
	run_badly("x-images-idx3-ubyte out.beton", "more than 1073741824 bytes");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(npy_numbers),
		cmocka_unit_test(npy_arrays),
		cmocka_unit_test(npy_bad),
#if ARCHIVES
		cmocka_unit_test(npz),
		cmocka_unit_test(large_tar),
		cmocka_unit_test(interrupted_tar),
#endif
		cmocka_unit_test(cifar),
		cmocka_unit_test(mnist),
	};
	if (!getenv("BETON_WRITE")) {
		fprintf(stderr, "BETON_WRITE is not set\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, setup, teardown);
}
