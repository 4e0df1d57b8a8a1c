/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations and the memory of a stage for a micro-batch, as the trainer plans them. A transformer's layers are
 * alike: two shallow models of the same widths tell what a layer adds. */
#ifndef PROGRAMS_PLAN_STAGE_COST_H
#define PROGRAMS_PLAN_STAGE_COST_H

#include "machine.h"
#include "question.h"

/* Costs of a rank, in bytes where no unit is named. */
typedef struct plan_cost {
	double elements;  /* its parameters */
	double arena;     /* activations and scratch memory of a micro-batch */
	double common;    /* of the arena: what all micro-batches of a stage have together */
	double batches;   /* the loader's, with several micro-batches */
	double batch;     /* the loader's, with one */
	double products;  /* operations of forward and backward, with what is computed again */
	double seconds;   /* of forward and backward, at the machine's speeds */
	double exchanged; /* sent to ranks of the axis tensor */
	double received;  /* from the stage before; the gradients go back */
	double shared;    /* parameters that other stages have, too */
	double layers;    /* of a transformer */
} plan_cost;

/* How strategies place units in the arena: ddp and zero1 alike. */
typedef enum plan_family {
	PLAN_FAMILY_WHOLE = 0,
	PLAN_FAMILY_ZERO2 = 1,
	PLAN_FAMILY_ZERO3 = 2,
} plan_family;

typedef struct plan_cost_key {
	int32_t tensor, context;
	int64_t batch;
	int recompute; /* engine_recompute_name's index */
	plan_family family;
	bool sequence;        /* the axis tensor divides the rows between layers, too */
	bool splits_backward; /* the schedule computes the gradients of weights apart */
	bool shares;          /* several micro-batches are live in the stage, which have scratch memory together */
} plan_cost_key;

enum { PLAN_COSTS_HEADS = 1024 };

typedef struct plan_costs {
	const plan_question *question;
	const plan_machine *machine;
	int32_t blocks;           /* of the model, where stages can begin */
	double *block_costs;      /* [blocks] products of forward */
	double elements;          /* of the whole model */
	double sample_products;   /* of a step without recomputation, for a sample */
	struct plan_known *known; /* [count] */
	int count, capacity;
	int heads[PLAN_COSTS_HEADS];     /* chains of known costs: index + 1; 0: none */
	struct plan_division *divisions; /* [DTRAIN_MAX_STAGES + 1], by the number of stages */
} plan_costs;

/* question and machine must outlive it. Close it even on failure. */
int plan_costs_open(plan_costs *out, const plan_question *question, const plan_machine *machine, beton_error *err);
void plan_costs_close(plan_costs *costs);
/* After the machine's speeds have changed. */
void plan_costs_forget(plan_costs *costs);

/* The costs of all stages, [stages]. live: [stages], the most micro-batches that each keeps at a time; NULL: several.
 * It sets the key's `shares`. INVALID_ARGUMENT and UNSUPPORTED: the model cannot be divided like that; the message says
 * why. */
int plan_costs_of(plan_costs *costs, const plan_cost_key *key, int32_t stages, const int32_t *live, plan_cost *out,
		  beton_error *err);

#endif
