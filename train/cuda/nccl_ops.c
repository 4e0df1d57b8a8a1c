/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of GPUs with NCCL: operations.
 */
#include "common/error.h"
#include "common/system.h"
#include "nccl_comm.h"

static ncclDataType_t type_of(dtrain_dtype dtype)
{
	switch (dtype) {
	case DTRAIN_F64:
		return ncclFloat64;
	case DTRAIN_F16:
		return ncclFloat16;
	case DTRAIN_BF16:
		return ncclBfloat16;
	case DTRAIN_I64:
		return ncclInt64;
	case DTRAIN_U8:
		return ncclUint8;
	default:
		return ncclFloat32;
	}
}

static ncclRedOp_t reduction_of(dtrain_reduce_op op)
{
	switch (op) {
	case DTRAIN_MAX:
		return ncclMax;
	case DTRAIN_MIN:
		return ncclMin;
	case DTRAIN_AVG:
		return ncclAvg;
	case DTRAIN_PRODUCT:
		return ncclProd;
	default:
		return ncclSum;
	}
}

/* Which parts are exchanged with whom, in one group of sends and receives; the own part is copied. */
struct exchange {
	const char *input; /* of the parts that are sent: to rank r, r * send_stride bytes from here */
	char *output;      /* the same for those that are received */
	size_t send_stride, receive_stride;
	bool sends, receives;
	int peer; /* -1: with all */
};

static ncclResult_t exchange_with(const struct cuda_comm *comm, const dtrain_group_call *call,
				  const struct exchange *exchange, int peer, cudaStream_t stream)
{
	size_t count = (size_t)call->count;
	ncclResult_t result = ncclSuccess;

	if (exchange->sends)
		result = ncclSend(exchange->input + (size_t)peer * exchange->send_stride, count, type_of(call->dtype),
				  peer, comm->comm, stream);
	if (exchange->receives && (result == ncclSuccess || result == ncclInProgress))
		result = ncclRecv(exchange->output + (size_t)peer * exchange->receive_stride, count,
				  type_of(call->dtype), peer, comm->comm, stream);
	return result;
}

static ncclResult_t exchange_parts(const struct cuda_comm *comm, const dtrain_group_call *call,
				   const struct exchange *exchange, cudaStream_t stream)
{
	ncclResult_t result = ncclGroupStart(), end;

	if (result != ncclSuccess)
		return result;
	for (int peer = 0; peer < comm->size && (result == ncclSuccess || result == ncclInProgress); peer++) {
		if (peer != comm->rank && (exchange->peer < 0 || exchange->peer == peer))
			result = exchange_with(comm, call, exchange, peer, stream);
	}
	end = ncclGroupEnd();
	return result == ncclSuccess || result == ncclInProgress ? end : result;
}

static cudaError_t copy_own_part(const struct cuda_comm *comm, const dtrain_group_call *call,
				 const struct exchange *exchange, cudaStream_t stream)
{
	const char *from = exchange->input + (size_t)comm->rank * exchange->send_stride;
	char *to = exchange->output + (size_t)comm->rank * exchange->receive_stride;

	if (from == to)
		return cudaSuccess;
	return cudaMemcpyAsync(to, from, (size_t)call->count * dtrain_dtype_size(call->dtype), cudaMemcpyDeviceToDevice,
			       stream);
}

static ncclResult_t exchange(const struct cuda_comm *comm, const dtrain_group_call *call, cudaStream_t stream,
			     cudaError_t *copied)
{
	size_t part = (size_t)call->count * dtrain_dtype_size(call->dtype);
	bool is_root = comm->rank == call->root;
	struct exchange what = {.input = call->input, .output = call->output, .peer = -1};

	switch (call->op) {
	case DTRAIN_GROUP_GATHER:
		what.receive_stride = part;
		what.sends = !is_root;
		what.receives = is_root;
		what.peer = is_root ? -1 : call->root;
		break;
	case DTRAIN_GROUP_SCATTER:
		what.send_stride = part;
		what.sends = is_root;
		what.receives = !is_root;
		what.peer = is_root ? -1 : call->root;
		break;
	case DTRAIN_GROUP_ALL_TO_ALL:
		what.send_stride = what.receive_stride = part;
		what.sends = what.receives = is_root = true;
		break;
	default:
		what.sends = call->op == DTRAIN_GROUP_SEND;
		what.receives = !what.sends;
		what.peer = call->root;
		is_root = false;
		break;
	}
	*copied = is_root ? copy_own_part(comm, call, &what, stream) : cudaSuccess;
	return *copied == cudaSuccess ? exchange_parts(comm, call, &what, stream) : ncclSuccess;
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
/* The library that is found may be older than the one that we were built with, and lack it. */
#pragma weak ncclAlltoAll
#endif

/* NCCL's own, which has faster ways than sends and receives where memory is shared over NVLink. False: it has none. */
static bool all_to_all(const struct cuda_comm *comm, const dtrain_group_call *call, cudaStream_t stream,
		       ncclResult_t *result)
{
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
	if (ncclAlltoAll)
		*result = ncclAlltoAll(call->input, call->output, (size_t)call->count, type_of(call->dtype), comm->comm,
				       stream);
	return ncclAlltoAll != NULL;
#else
	(void)comm, (void)call, (void)stream, (void)result;
	return false;
#endif
}

static ncclResult_t dispatch(const struct cuda_comm *comm, const dtrain_group_call *call, cudaStream_t stream,
			     cudaError_t *copied)
{
	size_t count = (size_t)call->count;
	ncclDataType_t type = type_of(call->dtype);
	ncclRedOp_t reduction = reduction_of(call->reduce);
	ncclResult_t result = ncclSuccess;

	switch (call->op) {
	case DTRAIN_GROUP_ALLREDUCE:
		return ncclAllReduce(call->input, call->output, count, type, reduction, comm->comm, stream);
	case DTRAIN_GROUP_REDUCE_SCATTER:
		return ncclReduceScatter(call->input, call->output, count, type, reduction, comm->comm, stream);
	case DTRAIN_GROUP_ALL_GATHER:
		return ncclAllGather(call->input, call->output, count, type, comm->comm, stream);
	case DTRAIN_GROUP_BROADCAST:
		return ncclBroadcast(call->input, call->output, count, type, call->root, comm->comm, stream);
	case DTRAIN_GROUP_REDUCE:
		return ncclReduce(call->input, call->output, count, type, reduction, call->root, comm->comm, stream);
	case DTRAIN_GROUP_BARRIER:
		return ncclAllReduce(comm->barrier, comm->barrier, 1, ncclInt32, ncclSum, comm->comm, stream);
	case DTRAIN_GROUP_ALL_TO_ALL:
		return all_to_all(comm, call, stream, &result) ? result : exchange(comm, call, stream, copied);
	default:
		return exchange(comm, call, stream, copied);
	}
}

int cuda_nccl_enqueue(void *state, const dtrain_group_call *call, dtrain_stream *stream, beton_error *err)
{
	struct cuda_comm *comm = state;
	cudaError_t copied = cudaSuccess;
	ncclResult_t result;
	bool capturing = false;
	int status = cuda_enter(comm->device, err);

	if (!status)
		status = cuda_nccl_stream_capturing(stream, &capturing, err);
	if (status)
		return status;
	pthread_mutex_lock(&comm->mutex);
	comm->captured = comm->captured || capturing;
	if (comm->aborted) {
		status = bt_fail(err, BETON_CANCELLED, "NCCL: the communicator was aborted");
	} else {
		result = dispatch(comm, call, stream->stream, &copied);
		status = copied == cudaSuccess
				 ? cuda_nccl_settle(comm, result, bt_now_ns() + (uint64_t)comm->timeout_ms * 1000000,
						    "putting an operation on the stream", err)
				 : cuda_check(copied, err, "NCCL: copying a rank's own part");
	}
	pthread_mutex_unlock(&comm->mutex);
	return status;
}
