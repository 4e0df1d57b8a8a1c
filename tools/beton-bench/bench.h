/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BETON_BENCH_H
#define BETON_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include <beton/loader.h>

typedef struct load_options {
	const char *path;
	beton_loader_options loader;
	uint32_t epochs;
	bool digest; /* of every batch, in order */
	bool json;
} load_options;

/* The command `load`: argv[0] is its name. Returns the exit status. */
int bench_load(int argc, char **argv);

/* The command `order`. */
int bench_order(int argc, char **argv);

/* -1: run; else the exit status of a program that has nothing more to do. */
int load_options_parse(load_options *out, int argc, char **argv);

/* Puts the command line's name of an option in place of the loader's in a message that begins with it. */
void load_options_rename(beton_error *err);

#endif
