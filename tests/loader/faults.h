/* SPDX-License-Identifier: Apache-2.0
 *
 * A table of system calls with faults in it, for the engines. */
#ifndef TESTS_LOADER_FAULTS_H
#define TESTS_LOADER_FAULTS_H

#include "fixture.h"

#include <semaphore.h>
#include <stdatomic.h>

#include "loader/io.h"

/* What the table does to the calls. */
typedef struct fault_table {
	atomic_int calls; /* answers of the system so far */
	atomic_int lines; /* of log */
	int fault;        /* errno in place of the answer */
	int from;         /* the first answer that it hits, counted from 0 */
	int count;        /* how many */
	int every;        /* every so many answers; 0: one after the other */
	unsigned most;    /* bytes in one answer; 0: no limit */
	bool cold;        /* nothing is in the page cache */
	int setup_fault;
	unsigned setup_entries; /* the largest ring that there is */
	int register_fault;
	int submit_fault;
	bool swap; /* completions come in another order */
	atomic_bool block;
	atomic_int blocked; /* reads that came to wait at the gate */
	int open_fault;
	bool misaligned; /* the system refuses direct reads */
	bool only_fixed; /* the fault hits reads into registered buffers */
	char line[512];
} fault_table;

extern fault_table faults;

/* What `block` waits for. */
extern sem_t gate;

/* Locked memory really is limited here: there may be a line of log about it. */
extern atomic_bool short_of_memory;

extern const bt_io fault_io;

void no_faults(void);

/* For option log: counts the lines and keeps the first. */
void count_line(const char *line, void *context);

#endif
