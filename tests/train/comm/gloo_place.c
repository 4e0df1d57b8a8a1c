/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's message to its peers about where it listens: they get Gloo's addresses back, and a store has room for the
 * messages of as many ranks as there can be.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include <dtrain/comm.h>

#include "train/comm/gloo/gloo_place.h"

#define RANKS 5
#define SELF 2
#define LONG_MS 60000
#define ADDRESS_SIZE (sizeof(struct sockaddr_storage) + sizeof(uint64_t))

static beton_error err;

static size_t make_address(const char *host, uint16_t port, uint64_t number, uint8_t *out)
{
	struct sockaddr_storage storage = {0};
	struct sockaddr_in *in = (struct sockaddr_in *)&storage;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&storage;

	if (inet_pton(AF_INET, host, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		in->sin_port = htons(port);
	} else {
		assert_int_equal(inet_pton(AF_INET6, host, &in6->sin6_addr), 1);
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(port);
		in6->sin6_scope_id = 7;
	}
	memcpy(out, &storage, sizeof(storage));
	memcpy(out + sizeof(storage), &number, sizeof(number));
	return ADDRESS_SIZE;
}

static void expect_addresses(const char *host, uint16_t port, int port_step, uint64_t number, int number_step)
{
	gloo_place *place = calloc(1, dtrain__gloo_place_size(RANKS));
	uint8_t given[GLOO_MAX_ADDRESS], got[GLOO_MAX_ADDRESS];

	assert_non_null(place);
	for (int pass = 0; pass < 2; pass++) {
		for (int peer = 0; peer < RANKS; peer++) {
			size_t size = make_address(host, (uint16_t)(port + peer * port_step),
						   number + (uint64_t)(peer * number_step), given);

			if (peer == SELF)
				continue;
			if (pass == 0) {
				assert_true(dtrain__gloo_place_add(place, peer, given, size));
			} else {
				assert_int_equal(dtrain__gloo_place_address(place, peer, got), size);
				assert_memory_equal(got, given, size);
			}
		}
	}
	free(place);
}

static void peers_get_the_addresses(void **state)
{
	(void)state;
	/* Gloo of 2022: each pair listens, and has no number. */
	expect_addresses("192.168.0.7", 40000, 3, UINT64_MAX, 0);
	expect_addresses("fe80::1:2", 40000, 3, UINT64_MAX, 0);
	/* Newer. */
	expect_addresses("192.168.0.7", 65535, 0, UINT64_MAX >> 2, 1);
	expect_addresses("2001:db8::1", 40000, 0, 12345, 1);
}

static void other_kinds_are_refused(void **state)
{
	gloo_place *place = calloc(1, dtrain__gloo_place_size(RANKS));
	uint8_t address[GLOO_MAX_ADDRESS];
	size_t size = make_address("192.168.0.7", 40000, 12345, address);

	(void)state;
	assert_non_null(place);
	assert_int_equal(dtrain__gloo_place_address(place, 0, address), 0);
	assert_false(dtrain__gloo_place_add(place, 1, address, size - 1));
	assert_false(dtrain__gloo_place_add(place, 1, address, 0));
	size = make_address("192.168.0.7", 40000, 12345, address);
	assert_true(dtrain__gloo_place_add(place, 1, address, size));
	make_address("192.168.0.8", 40000, 12346, address);
	assert_false(dtrain__gloo_place_add(place, 2, address, size));
	make_address("192.168.0.7", 40000, 12347, address);
	assert_false(dtrain__gloo_place_add(place, 2, address, size));
	memset(address, 0xff, size);
	assert_false(dtrain__gloo_place_add(place, 2, address, size));
	free(place);
}

static void most_ranks_fit_into_a_store(void **state)
{
	size_t size = dtrain__gloo_place_size(DTRAIN_MAX_RANKS);
	gloo_place *place = calloc(1, size);
	dtrain_store_server *server = NULL;
	dtrain_store *store = NULL;
	char key[64];

	(void)state;
	assert_non_null(place);
	assert_int_equal(dtrain_store_server_start(NULL, &server, &err), BETON_OK);
	assert_int_equal(
		dtrain_store_connect("127.0.0.1", dtrain_store_server_port(server), NULL, LONG_MS, &store, &err),
		BETON_OK);
	for (int rank = 0; rank < DTRAIN_MAX_RANKS; rank++) {
		snprintf(key, sizeof(key), "world/gloo/0/at/%d", rank);
		if (dtrain_store_set(store, key, place, size, &err))
			fail_msg("rank %d of %d: %s", rank, DTRAIN_MAX_RANKS, err.message);
	}
	dtrain_store_close(&store);
	dtrain_store_server_stop(&server);
	free(place);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(peers_get_the_addresses),
		cmocka_unit_test(other_kinds_are_refused),
		cmocka_unit_test(most_ranks_fit_into_a_store),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
