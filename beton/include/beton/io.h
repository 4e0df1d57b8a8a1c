/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the bytes of a .beton file come from, if not from a path: memory, an object store, another program. The caller
 * describes the place and brings the functions that read it; beton_reader_open_io opens a reader for it, and
 * beton_source.io a loader.
 */
#ifndef BETON_IO_H
#define BETON_IO_H

#include <stddef.h>
#include <stdint.h>

#include <beton/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One read, made by the library and valid during the call. Later releases may add members at its end. */
typedef struct beton_io_read {
	uint64_t offset;      /* in the file; offset + size is at most beton_io.size */
	uint64_t size;        /* bytes, >= 1 */
	void *destination;    /* room for size bytes */
	const char *identity; /* beton_io.identity: the bytes must be this object's. "": none was given */
	uint64_t deadline_ns; /* when to give up: CLOCK_MONOTONIC in nanoseconds. UINT64_MAX: never */
	uint64_t done;        /* bytes at the destination, set by read_at. Less than size is allowed: the library asks
				 for the rest. 0: the object ends at offset */
} beton_io_read;

/* Reads do not wait (for memory, or a map): the thread that needs the bytes reads them itself. */
#define BETON_IO_IMMEDIATE UINT32_C(1)

/* Reads of one source at a time. */
#define BETON_IO_IN_FLIGHT_MAX 1024

/* Initialise with beton_io_init or beton_io_memory, then change any member. The caller may free the struct and its
 * strings as soon as a reader or a loader has been opened with it. From a successful open on, the library calls the
 * functions until it has called `close`. After a failed open it calls none of them any more. */
typedef struct beton_io {
	size_t struct_size;   /* sizeof(beton_io) */
	const char *name;     /* what messages call the file: a path, a URL without its secrets */
	uint64_t size;        /* bytes of the whole file */
	const char *identity; /* tells this content from an older or newer one of the same name: a version, an ETag.
				 NULL (default): none */
	/* Bytes of a request that suit the place: metadata, allocation table and checksums are then read ahead in
	 * pieces of this size, up to 8 MiB, if the cache of metadata has room for all of them. 0 (default): 16 KiB. */
	uint64_t request_bytes;
	uint32_t in_flight;  /* calls of read_at at a time, 1..BETON_IO_IN_FLIGHT_MAX; default 1. A loader makes at
				most 32 at a time, and one for each worker that reads metadata */
	uint32_t flags;      /* BETON_IO_...; default 0 */
	uint64_t timeout_ms; /* of a read, with its wait for one of the in_flight places. 0 (default): no limit */

	/* Reads as beton_io_read describes. Called by any thread, at most in_flight at a time. Returns BETON_OK, or a
	 * code with a message in err: FILE_CHANGED if the object has another identity by now, CANCELLED after cancel,
	 * NO_MEMORY, or any other, for which the reader answers IO. */
	int (*read_at)(void *context, beton_io_read *read, beton_error *err);
	/* The bytes will be read soon: a source with a cache fetches them. Must not wait. Called by one thread of a
	 * loader whose order reads page by page (SEQUENTIAL, QUASI_RANDOM). NULL (default): not called. */
	void (*announce)(void *context, uint64_t offset, uint64_t size);
	/* Lets the calls of read_at that are in flight, and one that may still begin, end soon with CANCELLED. Must not
	 * wait. Any thread; at most once, and for good. NULL (default): calls in flight are waited for. */
	void (*cancel)(void *context);
	/* The library is done with context; no call is in flight. Called by the thread that closes the reader or
	 * loader, or by a loader's last thread if closing met a read that hung. NULL (default): not called. */
	void (*close)(void *context);
	void *context; /* of one reader or source: each of them calls cancel and close */
} beton_io;

/* Sets the defaults. */
BETON_API void beton_io_init_sized(beton_io *io, size_t size);
static inline void beton_io_init(beton_io *io)
{
	beton_io_init_sized(io, sizeof(*io));
}

/* A file in memory (the struct has no further members in any release), which must stay as it is until the reader or
 * loader is closed, as this struct must. */
typedef struct beton_memory {
	const void *bytes;
	uint64_t size;
} beton_memory;

/* Describes a file in memory. name: for messages. The caller may set `close`, to know when the memory is free again.
 * Opening it fails without a name, or without bytes. */
BETON_API void beton_io_memory_sized(beton_io *io, size_t size, const char *name, const beton_memory *memory);
static inline void beton_io_memory(beton_io *io, const char *name, const beton_memory *memory)
{
	beton_io_memory_sized(io, sizeof(*io), name, memory);
}

#ifdef __cplusplus
}
#endif

#endif
