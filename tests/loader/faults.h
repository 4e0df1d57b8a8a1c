/* SPDX-License-Identifier: Apache-2.0
 *
 * A table of system calls with faults in it, for the engines. */
#ifndef TESTS_LOADER_FAULTS_H
#define TESTS_LOADER_FAULTS_H

#include "fixture.h"

#include <semaphore.h>
#include <stdatomic.h>

#include "loader/io/io.h"

/* The table's effect on the calls. */
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
	bool swap;           /* completions come in another order */
	atomic_bool block;   /* reads that may wait do, at the gate */
	atomic_int blocked;  /* how many came to wait there */
	off_t gate_from;     /* the part of the file whose reads wait at the gate */
	off_t gate_to;       /* 0: all of it */
	off_t values_from;   /* the part of the file where values lie */
	off_t values_to;     /* 0: not known */
	atomic_int metadata; /* reads outside of it */
	bool only_gate;      /* the fault hits only reads that wait at the gate */
	int open_fault;      /* of opening for direct reads */
	bool misaligned;     /* the system refuses direct reads */
	bool only_fixed;     /* the fault hits reads into registered buffers */
	char line[512];
} fault_table;

extern fault_table faults;

/* The semaphore that `block` waits for. */
extern sem_t gate;

/* Locked memory really is limited here: there may be a line of log about it. */
extern atomic_bool short_of_memory;

extern const bt_io fault_io;

void no_faults(void);

/* Opens the gate for all, and closes it before it is used again. */
void open_gate(void);
void close_gate(void);

/* Where the values of a file lie: from its first blob to the end of its pages. */
void find_values(const char *path, off_t *from, off_t *to);

/* For option log: counts the lines and keeps the first. */
void count_line(void *context, beton_log_level level, const char *line);

#endif
