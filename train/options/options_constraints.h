/* SPDX-License-Identifier: Apache-2.0
 *
 * Constraints between options as data: which options need, exclude or bound others. One that belongs to a single option
 * is in the row of that option; the others are in run_constraints. dtrain-ffcv and dtrain-plan check all of them at
 * once, before ranks start. See docs/architecture/options.md. */
#ifndef OPTIONS_OPTIONS_CONSTRAINTS_H
#define OPTIONS_OPTIONS_CONSTRAINTS_H

#include <stdbool.h>
#include <stddef.h>

#include <beton/error.h>

typedef enum option_predicate {
	OPTION_SET,      /* has a value other than none, no and 0 */
	OPTION_GIVEN,    /* is on the command line; a flag or switch that is set */
	OPTION_USED,     /* is on the command line and set */
	OPTION_IS,       /* is one of the values */
	OPTION_ABOVE,    /* its number is above the bound */
	OPTION_AT_LEAST, /* its number is the bound or more */
	OPTION_LITERAL,  /* no option: the bound itself, as an object of AT_MOST */
} option_predicate;

typedef struct option_test {
	/* A name without dashes, or NAME.PART: an axis of --mesh, or a part of a row's argument such as MIN,MAX. NULL:
	 * the option in whose row the constraint is, or the end of a list. */
	const char *option;
	option_predicate is;
	const char *values; /* with blanks between them */
	double bound;
} option_test;

typedef enum option_relation {
	OPTION_NO_MORE = 0,  /* the end of a list of constraints */
	OPTION_NEEDS,        /* one of the objects has to hold */
	OPTION_NEEDS_ALL,    /* all of them have to hold */
	OPTION_EXCLUDES,     /* none of them may hold */
	OPTION_ONE,          /* exactly one of the objects has to hold */
	OPTION_AT_MOST_ONE,  /* no two of them may hold */
	OPTION_BELOW,        /* the subject's number is below the object's, if that is set */
	OPTION_AT_MOST,      /* the same, or equal */
	OPTION_DIVIDES,      /* the subject's number divides the object's */
	OPTION_POWER_OF_TWO, /* the subject's number is one */
} option_relation;

enum { OPTION_TESTS_MAX = 8 };

typedef struct option_constraint {
	option_relation relation;
	option_test subjects[OPTION_TESTS_MAX]; /* each that holds has the relation to the objects; none: in any case */
	option_test objects[OPTION_TESTS_MAX];
	option_test unless[OPTION_TESTS_MAX]; /* where one of them holds there is no such constraint */
	const char *reason;                   /* the end of the message; NULL: it says enough */
	bool early; /* also checked on the command line alone, before the options of a checkpoint are read */
} option_constraint;

/* Constraints of several options; the last one is OPTION_NO_MORE. */
extern const option_constraint run_constraints[];

/* An option as constraints see it. */
typedef struct option_value {
	const char *text; /* of a choice, flag or text; NULL: a number, or no value */
	double number;
	bool set, given;
	bool toggles; /* a flag or a switch */
} option_value;

/* The options of a program. */
typedef struct option_values {
	const void *context;
	/* False: the program has no such option. */
	bool (*find)(const void *context, const char *name, option_value *out);
	const char *what; /* "run": what the options describe */
} option_values;

/* Checks all constraints; with early only the ones with that mark. A constraint on an option that the program does not
 * have is left out. INVALID_ARGUMENT: the message names the options and what would do. */
int run_constraints_check(const option_values *values, bool early, beton_error *err);

/* Checks one. owner: the option in whose row it is; NULL: none. */
int run_constraint_check(const option_values *values, const option_constraint *constraint, const char *owner,
			 beton_error *err);

#define RUN_CONSTRAINT_BYTES 400

/* Writes the constraint as a sentence without a full stop, with backquotes around values; one in the row of an option
 * begins with " needs". out: RUN_CONSTRAINT_BYTES. */
void run_constraint_describe(const option_constraint *constraint, char *out);

/* ---- how rows are written ---- */

#define SET(name)                                \
	{                                        \
		.option = name, .is = OPTION_SET \
	}
#define GIVEN(name)                                \
	{                                          \
		.option = name, .is = OPTION_GIVEN \
	}
#define USED(name)                                \
	{                                         \
		.option = name, .is = OPTION_USED \
	}
#define IS(name, list)                                          \
	{                                                       \
		.option = name, .is = OPTION_IS, .values = list \
	}
#define ABOVE(name, number)                                         \
	{                                                           \
		.option = name, .is = OPTION_ABOVE, .bound = number \
	}
#define AT_LEAST(name, number)                                         \
	{                                                              \
		.option = name, .is = OPTION_AT_LEAST, .bound = number \
	}
#define LITERAL(number)                                             \
	{                                                           \
		.option = "", .is = OPTION_LITERAL, .bound = number \
	}
#define LIST(...)           \
	{                   \
		__VA_ARGS__ \
	}
#define CONSTRAINT(which, subjects_, objects_, ...)                                                 \
	{                                                                                           \
		.relation = OPTION_##which, .subjects = subjects_, .objects = objects_, __VA_ARGS__ \
	}

/* In the row of an option: where it is so, one of the objects has to hold. */
#define NEEDS(so, ...) RULES(OWN(NEEDS, so, LIST(__VA_ARGS__), .early = false))
#define OWN(which, so, objects_, ...) CONSTRAINT(which, LIST({.is = OPTION_##so}), objects_, __VA_ARGS__)
#define RULES(...)                                 \
	.constraints = (const option_constraint[]) \
	{                                          \
		__VA_ARGS__,                       \
		{                                  \
			.relation = OPTION_NO_MORE \
		}                                  \
	}

#define STRATEGY_SHARDS "zero1 zero2 zero3 fsdp hsdp"
#define STRATEGY_TOGETHER "ddp " STRATEGY_SHARDS /* the ranks take each step together */
#define STRATEGY_UNSYNCHRONIZED "local async"
#define OFFLOAD_UNITS "parameters all"
#define OFFLOAD_OPTIMIZER "optimizer both " OFFLOAD_UNITS

#endif
