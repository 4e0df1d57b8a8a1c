/* SPDX-License-Identifier: Apache-2.0
 *
 * A saved state goes on with its own data set, whatever that is called, and with no other one. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

enum { N = 1000, SIDE = 8, PIXELS = SIDE * SIDE * 3, LARGE_SIDE = 40 };

/* Differences of a file from similar ones. */
typedef struct content {
	uint32_t side;       /* of the pictures, in pixels; 0: SIDE */
	bool plain;          /* without checksums */
	bool other_label;    /* of sample N / 2 */
	bool other_pixel;    /* of sample N / 2 */
	bool other_pictures; /* all of them */
	const char *name;    /* of the first field; NULL: "label" */
	const char *facts;
} content;

static void write_content(const char *path, const content *what)
{
	const uint32_t side = what->side ? what->side : SIDE;
	beton_field fields[] = {{.name = "label", .type = BETON_FIELD_INT},
				{.name = "image", .type = BETON_FIELD_IMAGE}};
	if (what->name)
		snprintf(fields[0].name, sizeof(fields[0].name), "%s", what->name);
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.page_size = BETON_PAGE_SIZE_MIN;
	options.flags = what->plain ? BETON_WRITER_NO_EXTENSION : 0;
	options.facts = what->facts;
	beton_writer *writer = NULL;
	assert_ok(beton_writer_open(&writer, path, fields, 2, &options, err));
	for (uint64_t i = 0; i < N; i++) {
		uint8_t *pixels = fixture_pixels(what->other_pictures ? i + N : i, side, side);
		pixels[0] = (uint8_t)(pixels[0] + (what->other_pixel && i == N / 2));
		const beton_input inputs[] = {{.integer = (int64_t)i % 10 + (what->other_label && i == N / 2)},
					      {.data = pixels,
					       .size = (uint64_t)side * side * 3,
					       .mode = BETON_IMAGE_RAW,
					       .width = side,
					       .height = side}};
		assert_ok(beton_writer_append(writer, inputs, err));
		free(pixels);
	}
	assert_ok(beton_writer_finish(writer, err));
	beton_writer_close(&writer);
}

static char *new_file(const content *what)
{
	char *path = fixture_write(1, -1);
	write_content(path, what);
	return path;
}

static beton_loader_state take_state(const char *const *paths, uint32_t count)
{
	beton_source sources[2] = {{.path = paths[0]}, {.path = count > 1 ? paths[1] : NULL}};
	beton_loader_options options = fixture_options(10, 1);
	options.order = BETON_ORDER_RANDOM;
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	beton_loader_state state;
	assert_ok(beton_loader_open_many(&loader, sources, count, &options, err));
	fixture_start(&iterator, loader, 2, 40);
	assert_ok(beton_iterator_get_state(iterator, &state, err));
	fixture_close(&loader, &iterator);
	return state;
}

/* Offers a state to a loader of the files. */
static int offer(const beton_loader_state *state, const char *const *paths, uint32_t count, beton_error *fault)
{
	beton_source sources[2] = {{.path = paths[0]}, {.path = count > 1 ? paths[1] : NULL}};
	beton_loader_options options = fixture_options(10, 1);
	options.order = BETON_ORDER_RANDOM;
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	assert_ok(beton_loader_open_many(&loader, sources, count, &options, err));
	int result = beton_iterator_open_state(&iterator, loader, state, fault);
	fixture_close(&loader, &iterator);
	return result;
}

static void expect(const char *what, const beton_loader_state *state, const char *path, int code)
{
	beton_error fault = {0};
	int result = offer(state, &path, 1, &fault);
	if (result != code)
		fail_msg("a state on a file with %s: %s, not %s: %s", what, beton_status_name(result),
			 beton_status_name(code), fault.message);
}

static void other_content_is_another_data_set(void **state)
{
	(void)state;
	static const struct {
		const char *what;
		content content;
		int code;
	} others[] = {
		{"the same content", {0}, BETON_OK},
		{"other facts", {.facts = "{\"classes\": [\"cat\", \"dog\"]}"}, BETON_OK},
		{"other pictures", {.other_pictures = true}, BETON_MISMATCH},
		{"another pixel", {.other_pixel = true}, BETON_MISMATCH},
		{"another label", {.other_label = true}, BETON_MISMATCH},
		{"another field", {.name = "class"}, BETON_MISMATCH},
		{"no checksums", {.plain = true}, BETON_MISMATCH},
		{"other pictures and no checksums", {.plain = true, .other_pictures = true}, BETON_MISMATCH},
	};
	char *first = new_file(&(content){0});
	beton_loader_state saved = take_state((const char *const *)&first, 1);
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
		char *other = new_file(&others[i].content);
		expect(others[i].what, &saved, other, others[i].code);
		fixture_remove(other);
	}
	fixture_remove(first);
}

/* One pixel of one picture is more than is promised. */
static void files_without_checksums_are_told_apart_too(void **state)
{
	(void)state;
	for (uint32_t side = SIDE; side <= LARGE_SIDE; side += LARGE_SIDE - SIDE) {
		char *first = new_file(&(content){.plain = true, .side = side});
		beton_loader_state saved = take_state((const char *const *)&first, 1);
		const content others[] = {{.plain = true, .side = side},
					  {.plain = true, .side = side, .other_label = true},
					  {.plain = true, .side = side, .other_pictures = true}};
		for (int i = 0; i < 3; i++) {
			char *other = new_file(&others[i]);
			expect(i ? "no checksums and other content" : "no checksums and the same content", &saved,
			       other, i ? BETON_MISMATCH : BETON_OK);
			fixture_remove(other);
		}
		fixture_remove(first);
	}
}

static void names_and_damage_do_not_matter(void **state)
{
	(void)state;
	char *path = new_file(&(content){0});
	beton_loader_state saved = take_state((const char *const *)&path, 1);
	char renamed[512];
	snprintf(renamed, sizeof(renamed), "%s.moved", path);
	assert_int_equal(rename(path, renamed), 0);
	expect("another name", &saved, renamed, BETON_OK);
	/* A bit of a picture that is not what it was any more: the data set is, and the sample is bad. */
	FILE *stream = fopen(renamed, "r+b");
	assert_non_null(stream);
	assert_int_equal(fseek(stream, BETON_PAGE_SIZE_MIN + 5, SEEK_SET), 0);
	fputc(0x55, stream);
	assert_int_equal(fclose(stream), 0);
	expect("a damaged picture", &saved, renamed, BETON_OK);
	/* Another one at the same name. */
	write_content(path, &(content){.other_pictures = true});
	expect("the same name", &saved, path, BETON_MISMATCH);
	unlink(renamed);
	fixture_remove(path);
}

static void several_files_are_one_data_set_in_their_order(void **state)
{
	(void)state;
	char *files[3] = {new_file(&(content){0}), new_file(&(content){.other_pictures = true}),
			  new_file(&(content){.other_label = true})};
	const char *const pair[] = {files[0], files[1]}, *const turned[] = {files[1], files[0]};
	const char *const replaced[] = {files[0], files[2]}, *const twice[] = {files[0], files[0]};
	beton_loader_state saved = take_state(pair, 2);
	beton_error fault;
	assert_int_equal(offer(&saved, pair, 2, &fault), BETON_OK);
	assert_int_equal(offer(&saved, turned, 2, &fault), BETON_MISMATCH);
	assert_int_equal(offer(&saved, replaced, 2, &fault), BETON_MISMATCH);
	assert_int_equal(offer(&saved, twice, 2, &fault), BETON_MISMATCH);
	assert_int_equal(offer(&saved, pair, 1, &fault), BETON_MISMATCH);
	assert_non_null(strstr(fault.message, "another data set"));
	for (int i = 0; i < 3; i++)
		fixture_remove(files[i]);
}

/* It fits any data set of the same sizes: so it is refused, and says where it is. */
static void states_of_before_are_refused(void **state)
{
	(void)state;
	char *path = new_file(&(content){0});
	beton_loader_state saved = take_state((const char *const *)&path, 1);
	saved.bytes[4] = 1;
	uint64_t sum = XXH3_64bits(saved.bytes, 40);
	memcpy(saved.bytes + 40, &sum, sizeof(sum));
	beton_error fault;
	assert_int_equal(offer(&saved, (const char *const *)&path, 1, &fault), BETON_UNSUPPORTED_VERSION);
	assert_non_null(strstr(fault.message, "version 1"));
	assert_non_null(strstr(fault.message, "position 40 of epoch 2"));
	fixture_remove(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(other_content_is_another_data_set),
		cmocka_unit_test(files_without_checksums_are_told_apart_too),
		cmocka_unit_test(names_and_damage_do_not_matter),
		cmocka_unit_test(several_files_are_one_data_set_in_their_order),
		cmocka_unit_test(states_of_before_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
