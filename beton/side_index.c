/* SPDX-License-Identifier: Apache-2.0 */
#include "side_index.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/error.h"
#include "common/hash.h"
#include "common/system.h"
#include "format.h"
#include "reader.h"

char *bt_side_path(const char *path)
{
	return bt_format("%s.index", path);
}

int bt_side_make_header(const beton_reader *reader, const side_index *side, uint8_t *header, beton_error *err)
{
	uint64_t fingerprint;
	int result = beton_reader_fingerprint(reader, &fingerprint, err);
	if (result != BETON_OK)
		return result;
	memset(header, 0, SIDE_SIZE);
	memcpy(header, SIDE_MAGIC, 8);
	store_u32(header + SIDE_VERSION, 1);
	store_u64(header + SIDE_FILE_SIZE, reader->info.file_size);
	store_u64(header + SIDE_FINGERPRINT, fingerprint);
	store_u64(header + SIDE_PLACES_SIZE, side->places_size);
	store_u64(header + SIDE_PLACES_SUM, side->places_sum);
	store_u64(header + SIDE_ENTRIES_SIZE, side->entries_size);
	store_u64(header + SIDE_ENTRIES_SUM, side->entries_sum);
	store_u64(header + SIDE_SUM, XXH3_64bits(header, SIDE_SUM));
	return BETON_OK;
}

/* Whether a header is that of a side file of the dataset. *why: what it is instead. */
static bool is_of_file(const beton_reader *reader, const uint8_t *header, uint64_t size, const char **why)
{
	uint64_t fingerprint;
	uint64_t places = load_u64(header + SIDE_PLACES_SIZE), entries = load_u64(header + SIDE_ENTRIES_SIZE);
	if (memcmp(header, SIDE_MAGIC, 8) != 0 || XXH3_64bits(header, SIDE_SUM) != load_u64(header + SIDE_SUM))
		*why = "it is not an index of JPEGs, or its header is damaged";
	else if (load_u32(header + SIDE_VERSION) != 1)
		*why = "it is of a later version";
	else if (load_u64(header + SIDE_FILE_SIZE) != reader->info.file_size ||
		 beton_reader_fingerprint(reader, &fingerprint, NULL) != BETON_OK ||
		 load_u64(header + SIDE_FINGERPRINT) != fingerprint)
		*why = "it is the index of another dataset, or of an earlier one of this name";
	else if (places != bt_pictures(reader) * sizeof(uint64_t) || entries > size ||
		 size - entries != SIDE_SIZE + places)
		*why = "it has not the size that its header says";
	else
		return true;
	return false;
}

static int open_for_reading(int folder, const char *path)
{
	return openat(folder, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

/* Opens the file. *why: NULL if there is none of that name. */
static bool open_file(side_index *side, const char *path, uint64_t *size, const char **why)
{
	struct stat status;
	*why = NULL;
	side->fd = open_for_reading(side->folder, path);
	if (side->fd < 0 && (errno == ENOENT || errno == ENAMETOOLONG || errno == ENOTDIR))
		return false;
	*why = side->fd < 0 || fstat(side->fd, &status) != 0 ? strerror(errno)
	       : !S_ISREG(status.st_mode)                    ? "it is not a regular file"
							     : NULL;
	*size = *why ? 0 : (uint64_t)status.st_size;
	return !*why;
}

int bt_side_open(side_index *side, const beton_reader *reader, int folder, beton_error *err)
{
	uint8_t header[SIDE_SIZE];
	uint64_t size;
	const char *why;
	*side = (side_index){.fd = -1, .folder = folder};
	char *path = bt_side_path(reader->path);
	if (!path)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", reader->path);
	if (open_file(side, path, &size, &why)) {
		/* Not by the reader's function: nothing waits for this read. */
		bool read = bt_pread_full(side->fd, header, sizeof(header), 0) == sizeof(header);
		if (!read)
			why = "it has less than its header";
		if (read && is_of_file(reader, header, size, &why)) {
			side->places_size = load_u64(header + SIDE_PLACES_SIZE);
			side->places_sum = load_u64(header + SIDE_PLACES_SUM);
			side->entries_size = load_u64(header + SIDE_ENTRIES_SIZE);
			side->entries_sum = load_u64(header + SIDE_ENTRIES_SUM);
			side->path = path;
			path = NULL;
		}
	}
	if (side->fd >= 0 && (why || reader->file.borrow)) {
		close(side->fd);
		side->fd = -1;
	}
	if (why)
		*side = (side_index){.fd = -1, .fault = bt_format("%s: not used: %s", path, why)};
	free(path);
	return why && !side->fault ? bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", reader->path) : BETON_OK;
}

bool bt_side_has_magic(const char *path)
{
	uint8_t magic[8];
	uint64_t size;
	const char *why;
	side_index side = {.fd = -1, .folder = AT_FDCWD};
	bool found = open_file(&side, path, &size, &why) &&
		     bt_pread_full(side.fd, magic, sizeof(magic), 0) == sizeof(magic) &&
		     memcmp(magic, SIDE_MAGIC, sizeof(magic)) == 0;
	bt_side_close(&side);
	return found;
}

int bt_side_remove(const char *path, bool *removed, beton_error *err)
{
	*removed = false;
	if (!bt_side_has_magic(path))
		return BETON_OK;
	if (unlink(path) != 0)
		return bt_fail_errno(err, errno, "%s: cannot remove", path);
	*removed = true;
	return bt_sync_parent(path, err);
}

void bt_side_close(side_index *side)
{
	if (side->fd >= 0)
		close(side->fd);
	free(side->path);
	free(side->fault);
	*side = (side_index){.fd = -1};
}

/* The descriptor for a read; -1: it cannot be opened. */
static int lend(const side_index *side)
{
	return side->fd >= 0 ? side->fd : open_for_reading(side->folder, side->path);
}

/* Keeps errno. */
static void give_back(const side_index *side, int fd)
{
	int kept = errno;
	if (fd != side->fd)
		close(fd);
	errno = kept;
}

int bt_side_read(const beton_reader *reader, void *destination, size_t size, uint64_t offset, beton_error *err)
{
	const side_index *side = &reader->side;
	int fd = lend(side);
	if (fd < 0)
		return bt_fail_errno(err, errno, "%s: cannot open", side->path);
	ssize_t got = bt_read_full(reader->file.read, reader->file.context, fd, destination, size, offset);
	give_back(side, fd);
	return bt_access_result(side->path, got, size, offset, err);
}

bool bt_side_peek(const side_index *side, void *destination, size_t size, uint64_t offset)
{
	struct iovec part = {.iov_base = destination, .iov_len = size};
	int fd = lend(side);
	if (fd < 0)
		return false;
	bool done = preadv2(fd, &part, 1, (off_t)offset, RWF_NOWAIT) == (ssize_t)size;
	if (!done)
		posix_fadvise(fd, (off_t)offset, (off_t)size, POSIX_FADV_WILLNEED);
	give_back(side, fd);
	return done;
}

/* Compares a range with its checksum. */
static int check_range(const beton_reader *reader, const char *name, uint64_t offset, uint64_t size, uint64_t sum,
		       beton_error *err)
{
	enum { PIECE = 1 << 18 };
	uint8_t *bytes = malloc(PIECE);
	XXH3_state_t *state = XXH3_createState();
	int result = bytes && state ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s.index: out of memory", reader->path);
	if (result == BETON_OK)
		XXH3_64bits_reset(state);
	for (uint64_t done = 0; done < size && result == BETON_OK; done += PIECE) {
		size_t count = size - done < PIECE ? (size_t)(size - done) : PIECE;
		result = bt_side_read(reader, bytes, count, offset + done, err);
		if (result == BETON_OK)
			XXH3_64bits_update(state, bytes, count);
	}
	if (result == BETON_OK && XXH3_64bits_digest(state) != sum)
		result = bt_fail(err, BETON_FORMAT, "%s.index: the %s at offset %llu do not match their checksum",
				 reader->path, name, (unsigned long long)offset);
	XXH3_freeState(state);
	free(bytes);
	return result;
}

int bt_side_check(const beton_reader *reader, beton_error *err)
{
	const side_index *side = &reader->side;
	int result = check_range(reader, "places of JPEG indexes", SIDE_SIZE, side->places_size, side->places_sum, err);
	return result == BETON_OK ? check_range(reader, "JPEG indexes", SIDE_SIZE + side->places_size,
						side->entries_size, side->entries_sum, err)
				  : result;
}
