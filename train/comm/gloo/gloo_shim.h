/* SPDX-License-Identifier: Apache-2.0
 *
 * A C interface to Gloo that lets no exception out: the functions of the module dtrain-gloo.so, which is loaded when
 * the first group of several ranks is made (gloo_module.h). So a program starts without Gloo and its libraries, which
 * on some systems include MPI.
 */
#ifndef DTRAIN_COMM_GLOO_GLOO_SHIM_H
#define DTRAIN_COMM_GLOO_GLOO_SHIM_H

#include <stddef.h>
#include <stdint.h>

#include <beton/error.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gloo_failure {
	int code; /* beton_status */
	char message[256];
} gloo_failure;

typedef struct gloo_options {
	const char *host; /* numeric address of this machine */
	int rank;
	int size;
	int timeout_ms; /* of an operation; connecting to a peer takes up to five times as long */
} gloo_options;

/* For all versions of Gloo: a sockaddr_storage and a number, which is the pair's in newer versions and -1 in others. */
#define GLOO_MAX_ADDRESS 256

typedef enum gloo_type { GLOO_F32, GLOO_F64, GLOO_F16, GLOO_BF16, GLOO_I64, GLOO_U8 } gloo_type;
typedef enum gloo_reduction { GLOO_SUM, GLOO_MAX, GLOO_MIN, GLOO_PRODUCT } gloo_reduction;

typedef struct gloo_group gloo_group;
typedef struct gloo_message gloo_message;

/* Each returns failure->code: BETON_OK, or TIMEOUT, PEER_LOST, NO_MEMORY, SYSTEM. After a failure a group can only be
 * aborted and closed. Sizes are in bytes, of one rank's part; collectives need different tags. Messages with the same
 * tag from one rank to another keep their order. */
typedef struct gloo_api {
	uint32_t version; /* GLOO_API_VERSION */

	/* Creates a group that listens for its peers but is not connected. */
	int (*create)(const gloo_options *options, gloo_group **out, gloo_failure *failure);
	/* The address at which the peer reaches this rank; returns its size, or 0 if it is too long. */
	size_t (*listens_at)(gloo_group *group, int peer, uint8_t address[GLOO_MAX_ADDRESS]);
	/* Returns when a connection is made in the peer's place. Gloo does not check whose it is. */
	int (*connect)(gloo_group *group, int peer, const uint8_t *address, size_t size, gloo_failure *failure);
	/* Ends running waits. Any thread. A thread in connect may miss it, so repeat the call until it has
	 * returned. */
	void (*abort)(gloo_group *group);
	void (*close)(gloo_group *group);

	int (*allreduce)(gloo_group *group, void *data, size_t count, gloo_type type, gloo_reduction reduction,
			 uint32_t tag, gloo_failure *failure);
	/* output: as large as the input on every rank, and undefined on ranks other than the root; it may be the input.
	 */
	int (*reduce)(gloo_group *group, void *output, const void *input, size_t count, gloo_type type,
		      gloo_reduction reduction, int root, uint32_t tag, gloo_failure *failure);
	int (*all_gather)(gloo_group *group, void *output, const void *input, size_t size, uint32_t tag,
			  gloo_failure *failure);
	int (*broadcast)(gloo_group *group, void *data, size_t size, int root, uint32_t tag, gloo_failure *failure);
	int (*gather)(gloo_group *group, void *output, const void *input, size_t size, int root, uint32_t tag,
		      gloo_failure *failure);
	int (*scatter)(gloo_group *group, void *output, const void *input, size_t size, int root, uint32_t tag,
		       gloo_failure *failure);
	int (*all_to_all)(gloo_group *group, void *output, const void *input, size_t size, uint32_t tag,
			  gloo_failure *failure);
	/* Begin a message. Any thread may wait for it and free it; wait does not free it. */
	int (*send)(gloo_group *group, const void *data, size_t size, int peer, uint32_t tag, gloo_message **out,
		    gloo_failure *failure);
	int (*recv)(gloo_group *group, void *data, size_t size, int peer, uint32_t tag, gloo_message **out,
		    gloo_failure *failure);
	int (*message_wait)(gloo_message *message, gloo_failure *failure);
	void (*message_free)(gloo_message *message);
	int (*barrier)(gloo_group *group, uint32_t tag, gloo_failure *failure);
} gloo_api;

#define GLOO_API_VERSION 2

/* The module's only exported symbol. */
#define GLOO_MODULE_ENTRY "dtrain_gloo_entry"
typedef const gloo_api *gloo_entry_function(void);
BETON_API gloo_entry_function dtrain_gloo_entry;

#ifdef __cplusplus
}
#endif

#endif
