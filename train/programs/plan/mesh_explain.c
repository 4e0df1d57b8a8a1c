/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/system.h"
#include "mesh_answer.h"

#define GB 1e9
#define MS 1e3

/* "1 micro-batch", "2 micro-batches" */
static const char *es(int32_t count)
{
	return count == 1 ? "" : "es";
}

static void explain_mesh(const plan_mesh *mesh)
{
	printf("\nmesh: pipeline %d x replicate %d x shard %d x context %d x tensor %d = %d rank%s\n", mesh->pipeline,
	       mesh->replicate, mesh->shard, mesh->context, mesh->tensor, plan_mesh_ranks(mesh),
	       bt_plural((uint64_t)plan_mesh_ranks(mesh)));
	const int64_t data_ranks = mesh->replicate * mesh->shard;
	const int64_t samples = mesh->batch * mesh->micro_batches * data_ranks;
	printf("batches: %" PRId64 " sample%s x %d micro-batch%s x %" PRId64 " data rank%s = %" PRId64
	       " sample%s a step\n",
	       mesh->batch, bt_plural((uint64_t)mesh->batch), mesh->micro_batches, es(mesh->micro_batches), data_ranks,
	       bt_plural((uint64_t)data_ranks), samples, bt_plural((uint64_t)samples));
}

static void explain_memory(const plan_costs *costs, const plan_mesh *mesh, const plan_mesh_memory *m)
{
	const bool has_copies = costs->question->engine.dtype != DTRAIN_F32;
	const plan_unit unit = plan_unit_of(m->total);
	printf("\nmemory of rank %d of the pipeline, %s (ZeRO, 1910.02054, section 5: shard=%d, %s):\n", m->rank,
	       unit.name, mesh->shard, mesh->strategy);
	printf("  parameters on the rank               %.3f million of %.3f million\n", m->elements / 1e6,
	       costs->elements / 1e6);
	printf("  values       4 bytes a parameter     %.3f\n", m->values / unit.bytes);
	if (has_copies)
		printf("  copies       2 bytes a parameter     %.3f\n", m->copies / unit.bytes);
	printf("  gradients    4 bytes a parameter     %.3f\n", m->gradients / unit.bytes);
	if (m->sums > 0)
		printf("  sums of micro-batches                %.3f\n", m->sums / unit.bytes);
	printf("  states       %d x 4 bytes             %.3f\n", costs->question->example.job.states,
	       m->states / unit.bytes);
	printf("  activations  %.4g live x %.3f          %.3f   (the trainer's plan of the stage%s%s)\n",
	       m->live / mesh->chunks, m->arena / unit.bytes, m->activations / unit.bytes,
	       mesh->chunks > 1 ? "s, which use each other's memory" : "",
	       m->live > mesh->chunks && m->common > 0 ? "; further ones share some of it" : "");
	if (m->messages > 0)
		printf("  received tensors of the pipeline     %.3f\n", m->messages / unit.bytes);
	printf("  batches of the loader                %.3f\n", m->batches / unit.bytes);
	printf("  sum                                  %.3f\n", m->total / unit.bytes);
}

static void explain_line(const plan_machine *machine, const char *name, plan_line line)
{
	const int32_t inside = plan_line_inside(machine, line);
	if (line.ranks > 1)
		printf("  axis %-10s %d ranks at a distance of %d: %d on a host, %d host%s\n", name, line.ranks,
		       line.stride, inside, line.ranks / inside, bt_plural((uint64_t)(line.ranks / inside)));
}

static void explain_links(const plan_machine *machine, const plan_mesh *mesh)
{
	puts("\nlinks: gather of n bytes over p ranks: ceil(log2 p) a + (p - 1) / p n / rate, within the host and then "
	     "between\n"
	     "hosts with n over the ranks of a host; all-reduce: twice that; message: a + n / rate");
	printf("  within a host: a = %.4g us, rate = %.4g GB/s; between hosts: a = %.4g us, rate = %.4g GB/s\n",
	       machine->within.latency * 1e6, machine->within.rate / GB, machine->between.latency * 1e6,
	       machine->between.rate / GB);
	explain_line(machine, "tensor", plan_mesh_tensor(mesh));
	explain_line(machine, "context", plan_mesh_context(mesh));
	explain_line(machine, "shard", plan_mesh_shard(mesh));
	explain_line(machine, "replicate", plan_mesh_replicate(mesh));
	explain_line(machine, "pipeline", plan_mesh_pipeline(mesh));
}

static void explain_pipeline(const plan_mesh *mesh, const plan_mesh_time *t, double busy)
{
	const int32_t p = mesh->pipeline, m = mesh->micro_batches;
	printf("  pipeline     %10.2f  waits for other stages: simulated %s with %d micro-batch%s on %d ranks",
	       t->pipeline * MS, mesh->schedule, m, es(m), p);
	if (mesh->chunks > 1)
		printf(" of %d stages", mesh->chunks);
	printf(", %.1f %% of %.2f", 100 * t->pipeline / (t->pipeline + busy), (t->pipeline + busy) * MS);
	if (mesh->chunks == 1)
		printf("; 1f1b with equal stages: (p - 1) / (m + p - 1) = %.1f %%", 100. * (p - 1) / (m + p - 1));
	puts("");
}

static void explain_time(const plan_costs *costs, const plan_mesh *mesh, const plan_mesh_time *t)
{
	const plan_machine *machine = costs->machine;
	const double samples = (double)mesh->batch * mesh->micro_batches * mesh->replicate * mesh->shard;
	const double busy = t->compute + t->tensor + t->context + t->gathers;
	printf("\ntime of a step, ms (busiest: rank %d of the pipeline):\n", t->stage);
	printf("  compute      %10.2f  %d micro-batch%s x %.3f: each operation's products at %.4g TFLOP/s, or its "
	       "operands at "
	       "%.4g GB/s\n",
	       t->compute * MS, mesh->micro_batches, es(mesh->micro_batches), t->compute / mesh->micro_batches * MS,
	       machine->flops / 1e12, machine->bandwidth / GB);
	if (mesh->tensor > 1)
		printf("  tensor       %10.2f  %d micro-batch%s x %.4g %s, %.4g MB sent; %s\n", t->tensor * MS,
		       mesh->micro_batches, es(mesh->micro_batches), t->tensor_exchanges,
		       mesh->sequence ? "gathers and reduce-scatters" : "all-reduces", t->tensor_bytes / 1e6,
		       mesh->sequence ? "10 for a layer (2205.05198 has 8; gradients of two weights gather again)"
				      : "4 for a layer (1909.08053)");
	if (mesh->context > 1)
		printf("  context      %10.2f  keys and values are gathered twice, their gradients reduced\n",
		       t->context * MS);
	if (t->gathers > 0)
		printf("  gathers      %10.2f  of units and gradients in each micro-batch, where longer than its "
		       "computation\n",
		       t->gathers * MS);
	if (mesh->pipeline > 1)
		explain_pipeline(mesh, t, busy);
	printf("  data         %10.2f  %.2f once a step; the last backward, %.2f, can hide all but the last unit\n",
	       t->data * MS, t->data_seconds * MS, t->data_hidden * MS);
	printf("  update       %10.2f  values and states read and written, gradients read\n", t->update * MS);
	printf("  step         %10.2f\n", t->total * MS);
	printf("utilization: %.4g TFLOP for a sample x %.0f / (%.4g s x %d rank%s x %.4g TFLOP/s) = %.1f %%\n",
	       costs->sample_products / 1e12, samples, t->total, plan_mesh_ranks(mesh),
	       bt_plural((uint64_t)plan_mesh_ranks(mesh)), machine->peak / 1e12, t->utilization * 100);
	if (costs->question->example.job.task == &lm_task)
		puts("  (6 operations for a parameter and token, and 12 L H Q T of attention: 2204.02311, appendix B)");
}

void plan_mesh_explain(const plan_costs *costs, const plan_mesh_row *row)
{
	explain_mesh(&row->mesh);
	explain_memory(costs, &row->mesh, &row->memory);
	explain_links(costs->machine, &row->mesh);
	explain_time(costs, &row->mesh, &row->time);
}
