/* SPDX-License-Identifier: Apache-2.0
 *
 * A fuzz target: a function over bytes that may be anything. libFuzzer calls it, or replay.c. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Returns 0. Faults are for the sanitizers, or abort. data has exactly size bytes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
