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

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
#define KNOWS_ALL_TO_ALL 1
/* The installed library may be older than the headers, and lack it. */
#pragma weak ncclAlltoAll
#else
#define KNOWS_ALL_TO_ALL 0
#endif

/* NCCL's own all-to-all is faster than sends and receives over NVLink. */
static bool has_all_to_all(void)
{
#if KNOWS_ALL_TO_ALL
	return ncclAlltoAll != NULL;
#else
	return false;
#endif
}

/* The parts to exchange, and with which peers; the own part is copied. */
typedef struct exchange {
	const char *input; /* for rank r, the part at r * send_stride bytes is sent */
	char *output;      /* likewise for received parts */
	size_t send_stride, receive_stride;
	bool sends, receives, copies;
	int peer; /* -1: with all */
} exchange;

/* False: the operation is one of NCCL's own. */
static bool is_exchange(const cuda_comm *comm, const dtrain_group_call *call, exchange *out)
{
	size_t part = (size_t)call->count * dtrain_dtype_size(call->dtype);
	bool is_root = comm->rank == call->root;
	*out = (exchange){.input = call->input, .output = call->output, .peer = -1};
	switch (call->op) {
	case DTRAIN_GROUP_GATHER:
		out->receive_stride = part;
		out->sends = !is_root;
		out->receives = out->copies = is_root;
		out->peer = is_root ? -1 : call->root;
		return true;
	case DTRAIN_GROUP_SCATTER:
		out->send_stride = part;
		out->sends = out->copies = is_root;
		out->receives = !is_root;
		out->peer = is_root ? -1 : call->root;
		return true;
	case DTRAIN_GROUP_ALL_TO_ALL:
		if (has_all_to_all())
			return false;
		out->send_stride = out->receive_stride = part;
		out->sends = out->receives = out->copies = true;
		return true;
	case DTRAIN_GROUP_SEND:
	case DTRAIN_GROUP_RECV:
		out->sends = call->op == DTRAIN_GROUP_SEND;
		out->receives = !out->sends;
		out->peer = call->root;
		return true;
	default:
		return false;
	}
}

static bool has_begun(ncclResult_t result)
{
	return result == ncclSuccess || result == ncclInProgress;
}

static ncclResult_t exchange_parts(const cuda_comm *comm, const dtrain_group_call *call, const exchange *what,
				   cudaStream_t stream)
{
	size_t count = (size_t)call->count;
	ncclDataType_t type = type_of(call->dtype);
	ncclResult_t result = ncclSuccess;
	for (int peer = 0; peer < comm->size && has_begun(result); peer++) {
		if (peer == comm->rank || (what->peer >= 0 && what->peer != peer))
			continue;
		if (what->sends)
			result = ncclSend(what->input + (size_t)peer * what->send_stride, count, type, peer, comm->comm,
					  stream);
		if (what->receives && has_begun(result))
			result = ncclRecv(what->output + (size_t)peer * what->receive_stride, count, type, peer,
					  comm->comm, stream);
	}
	return result;
}

static ncclResult_t dispatch(const cuda_comm *comm, const dtrain_group_call *call, cudaStream_t stream)
{
	size_t count = (size_t)call->count;
	ncclDataType_t type = type_of(call->dtype);
	ncclRedOp_t reduction = reduction_of(call->reduce);
	exchange what;
	if (is_exchange(comm, call, &what))
		return exchange_parts(comm, call, &what, stream);
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
#if KNOWS_ALL_TO_ALL
	case DTRAIN_GROUP_ALL_TO_ALL:
		return ncclAlltoAll(call->input, call->output, count, type, comm->comm, stream);
#endif
	default:
		return ncclAllReduce(comm->barrier, comm->barrier, 1, ncclInt32, ncclSum, comm->comm, stream);
	}
}

/* Copies the own parts before the group: between its start and end only NCCL may be called. */
static cudaError_t copy_own_parts(const cuda_comm *comm, const dtrain_group_call *calls, int count, cudaStream_t stream)
{
	cudaError_t copied = cudaSuccess;
	for (int i = 0; i < count && copied == cudaSuccess; i++) {
		exchange what;
		if (!is_exchange(comm, &calls[i], &what) || !what.copies)
			continue;
		const char *from = what.input + (size_t)comm->rank * what.send_stride;
		char *to = what.output + (size_t)comm->rank * what.receive_stride;
		if (from != to)
			copied = cudaMemcpyAsync(to, from, (size_t)calls[i].count * dtrain_dtype_size(calls[i].dtype),
						 cudaMemcpyDeviceToDevice, stream);
	}
	return copied;
}

/* Always ends the group, because otherwise this thread's next calls would be part of it. */
static ncclResult_t dispatch_all(const cuda_comm *comm, const dtrain_group_call *calls, int count, cudaStream_t stream)
{
	exchange ignored;
	if (count == 1 && !is_exchange(comm, calls, &ignored))
		return dispatch(comm, calls, stream);
	ncclResult_t result = ncclGroupStart();
	if (result != ncclSuccess)
		return result;
	for (int i = 0; i < count && has_begun(result); i++)
		result = dispatch(comm, &calls[i], stream);
	ncclResult_t end = ncclGroupEnd();
	return has_begun(result) ? end : result;
}

int cuda_nccl_enqueue(void *state, const dtrain_group_call *calls, int count, dtrain_stream *stream, beton_error *err)
{
	cuda_comm *comm = state;
	bool capturing = false;
	int status = cuda_enter(comm->device, err);
	if (status == BETON_OK)
		status = cuda_nccl_stream_capturing(stream, &capturing, err);
	if (status != BETON_OK)
		return status;
	pthread_mutex_lock(&comm->mutex);
	comm->captured = comm->captured || capturing;
	if (comm->aborted) {
		status = bt_fail(err, BETON_CANCELLED, "NCCL: the communicator was aborted");
	} else {
		cudaError_t copied = copy_own_parts(comm, calls, count, stream->stream);
		status = cuda_check(copied, err, "NCCL: copying a rank's own part");
		if (status == BETON_OK) {
			ncclResult_t result = dispatch_all(comm, calls, count, stream->stream);
			status = cuda_nccl_settle(comm, result, bt_now_ns() + (uint64_t)comm->timeout_ms * 1000000,
						  "putting operations on the stream", err);
		}
	}
	pthread_mutex_unlock(&comm->mutex);
	return status;
}
