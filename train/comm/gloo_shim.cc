/* SPDX-License-Identifier: Apache-2.0
 *
 * The only C++ here: Gloo has no other interface.
 */
#include "gloo_shim.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/common/error.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include <beton/error.h>

using std::chrono::milliseconds;

namespace
{

/* Of send and recv: apart from the slots of collectives, whose prefixes are 1 to 8. */
constexpr uint64_t point_to_point_slots = 0x40ull << 56;

struct StoreFailure : public std::runtime_error {
	int code;
	StoreFailure(int status, const std::string &key) : std::runtime_error("rendezvous: key " + key), code(status)
	{
	}
};

/* Gloo's view of our store. */
class Store : public gloo::rendezvous::Store
{
      public:
	explicit Store(const gloo_options &options) : options_(options)
	{
	}

	void set(const std::string &key, const std::vector<char> &data) override
	{
		int status = options_.store.set(options_.store.context, key.c_str(), data.data(), data.size());

		if (status)
			throw StoreFailure(status, key);
	}

	std::vector<char> get(const std::string &key) override
	{
		return fetch(key, milliseconds(options_.timeout_ms));
	}

	void wait(const std::vector<std::string> &keys) override
	{
		wait(keys, milliseconds(options_.timeout_ms));
	}

	void wait(const std::vector<std::string> &keys, const milliseconds &timeout) override
	{
		for (const std::string &key : keys)
			fetch(key, timeout);
	}

      private:
	std::vector<char> fetch(const std::string &key, const milliseconds &timeout);

	const gloo_options &options_;
};

std::vector<char> Store::fetch(const std::string &key, const milliseconds &timeout)
{
	void *value = nullptr;
	size_t size = 0;
	int status = options_.store.get(options_.store.context, key.c_str(), static_cast<int>(timeout.count()), &value,
					&size);

	if (status)
		throw StoreFailure(status, key);
	std::unique_ptr<void, decltype(&free)> owner(value, &free);
	return std::vector<char>(static_cast<char *>(value), static_cast<char *>(value) + size);
}

} // namespace

struct gloo_group {
	std::shared_ptr<gloo::rendezvous::Context> context;
	milliseconds timeout;
};

namespace
{

/* Messages start with the place in Gloo's source: "[...pair.cc:598] text". */
std::string strip_place(const std::string &message)
{
	size_t end = message.find("] ");

	return message[0] == '[' && end != std::string::npos && message.find(".cc:") < end ? message.substr(end + 2)
											   : message;
}

int fail(struct gloo_failure *failure, int code, const char *what)
{
	std::string message = what;

	failure->code = code;
	snprintf(failure->message, sizeof(failure->message), "%s", strip_place(message).c_str());
	return code;
}

template <typename Function> int guarded(struct gloo_failure *failure, Function function)
{
	failure->code = BETON_OK;
	failure->message[0] = '\0';
	try {
		function();
		return BETON_OK;
	} catch (const StoreFailure &e) {
		return fail(failure, e.code, e.what());
	} catch (const gloo::IoException &e) {
		bool late = strstr(e.what(), "imed out") || strstr(e.what(), "timeout");

		return fail(failure, late ? BETON_TIMEOUT : BETON_PEER_LOST, e.what());
	} catch (const std::bad_alloc &) {
		return fail(failure, BETON_NO_MEMORY, "out of memory");
	} catch (const std::exception &e) {
		return fail(failure, BETON_SYSTEM, e.what());
	} catch (...) {
		return fail(failure, BETON_SYSTEM, "an unknown exception");
	}
}

using Reduce = void (*)(void *, const void *, const void *, size_t);

template <typename T> Reduce reduce_function(enum gloo_reduction reduction)
{
	switch (reduction) {
	case GLOO_MAX:
		return &gloo::max<T>;
	case GLOO_MIN:
		return &gloo::min<T>;
	default:
		return &gloo::sum<T>;
	}
}

template <typename Options> void set_common(Options &options, const gloo_group *group, uint32_t tag)
{
	options.setTag(tag);
	options.setTimeout(group->timeout);
}

/* Between processes of one machine, 8 ranks on 2 cores: the cube (6 exchanges) takes a half to a quarter of the time of
 * the ring (14) up to 4 MiB, and ten times as long at 24 MiB. Both give every rank the same bits. */
constexpr size_t cube_bytes = 4 << 20;

template <typename T>
void allreduce(gloo_group *group, void *data, size_t count, enum gloo_reduction reduction, uint32_t tag)
{
	gloo::AllreduceOptions options(group->context);

	set_common(options, group, tag);
	options.setAlgorithm(count * sizeof(T) <= cube_bytes ? gloo::AllreduceOptions::Algorithm::BCUBE
							     : gloo::AllreduceOptions::Algorithm::RING);
	options.setOutput(static_cast<T *>(data), count);
	options.setReduceFunction(reduce_function<T>(reduction));
	gloo::allreduce(options);
}

template <typename T>
void reduce(gloo_group *group, void *data, size_t count, enum gloo_reduction reduction, int root, uint32_t tag)
{
	gloo::ReduceOptions options(group->context);

	set_common(options, group, tag);
	options.setRoot(root);
	options.setOutput(static_cast<T *>(data), count);
	options.setReduceFunction(reduce_function<T>(reduction));
	gloo::reduce(options);
}

uint8_t *bytes(const void *data)
{
	return static_cast<uint8_t *>(const_cast<void *>(data)); /* Gloo's inputs are not const; it only reads them */
}

} // namespace

int dtrain__gloo_connect(const struct gloo_options *options, gloo_group **out, struct gloo_failure *failure)
{
	*out = nullptr;
	return guarded(failure, [&] {
		std::unique_ptr<gloo_group> group(new gloo_group);
		gloo::transport::tcp::attr attr;
		Store store(*options);

		if (options->interface)
			attr.iface = options->interface;
		else
			attr.hostname = options->host;
		auto device = gloo::transport::tcp::CreateDevice(attr);

		group->timeout = milliseconds(options->timeout_ms);
		group->context = std::make_shared<gloo::rendezvous::Context>(options->rank, options->size);
		/* Connections keep what is set now for their own waits, those of the cube among them. To be connected
		 * they wait five times as long (tcp/pair.cc, waitUntilConnected); only a rank that stops between its
		 * arrival at the store and here makes the others wait for that. */
		group->context->setTimeout(group->timeout);
		group->context->connectFullMesh(store, device);
		*out = group.release();
	});
}

void dtrain__gloo_abort(gloo_group *group)
{
	struct gloo_failure ignored;

	/* Closing this Gloo's connections does not wake up who waits for them. A wait that is late does: Gloo then
	 * tells all connections of the context, and closes them. So wait for what nobody sends. */
	guarded(&ignored, [&] {
		char byte;
		auto buffer = group->context->createUnboundBuffer(&byte, sizeof(byte));

		buffer->waitRecv(milliseconds(1));
	});
}

void dtrain__gloo_close(gloo_group *group)
{
	struct gloo_failure ignored;

	guarded(&ignored, [&] { delete group; });
}

int dtrain__gloo_allreduce(gloo_group *group, void *data, size_t count, enum gloo_type type,
			   enum gloo_reduction reduction, uint32_t tag, struct gloo_failure *failure)
{
	return guarded(failure, [&] {
		if (type == GLOO_F32)
			allreduce<float>(group, data, count, reduction, tag);
		else if (type == GLOO_F64)
			allreduce<double>(group, data, count, reduction, tag);
		else
			allreduce<int64_t>(group, data, count, reduction, tag);
	});
}

int dtrain__gloo_reduce(gloo_group *group, void *data, size_t count, enum gloo_type type, enum gloo_reduction reduction,
			int root, uint32_t tag, struct gloo_failure *failure)
{
	return guarded(failure, [&] {
		if (type == GLOO_F32)
			reduce<float>(group, data, count, reduction, root, tag);
		else if (type == GLOO_F64)
			reduce<double>(group, data, count, reduction, root, tag);
		else
			reduce<int64_t>(group, data, count, reduction, root, tag);
	});
}

int dtrain__gloo_all_gather(gloo_group *group, void *output, const void *input, size_t size, uint32_t tag,
			    struct gloo_failure *failure)
{
	return guarded(failure, [&] {
		gloo::AllgatherOptions options(group->context);

		set_common(options, group, tag);
		options.setInput(bytes(input), size);
		options.setOutput(bytes(output), size * static_cast<size_t>(group->context->size));
		gloo::allgather(options);
	});
}

int dtrain__gloo_broadcast(gloo_group *group, void *data, size_t size, int root, uint32_t tag,
			   struct gloo_failure *failure)
{
	return guarded(failure, [&] {
		gloo::BroadcastOptions options(group->context);

		set_common(options, group, tag);
		options.setRoot(root);
		options.setOutput(bytes(data), size);
		gloo::broadcast(options);
	});
}

int dtrain__gloo_gather(gloo_group *group, void *output, const void *input, size_t size, int root, uint32_t tag,
			struct gloo_failure *failure)
{
	return guarded(failure, [&] {
		gloo::GatherOptions options(group->context);

		set_common(options, group, tag);
		options.setRoot(root);
		options.setInput(bytes(input), size);
		if (group->context->rank == root)
			options.setOutput(bytes(output), size * static_cast<size_t>(group->context->size));
		gloo::gather(options);
	});
}

int dtrain__gloo_scatter(gloo_group *group, void *output, const void *input, size_t size, int root, uint32_t tag,
			 struct gloo_failure *failure)
{
	return guarded(failure, [&] {
		gloo::ScatterOptions options(group->context);

		set_common(options, group, tag);
		options.setRoot(root);
		if (group->context->rank == root) {
			std::vector<uint8_t *> parts;

			for (int rank = 0; rank < group->context->size; rank++)
				parts.push_back(bytes(input) + size * static_cast<size_t>(rank));
			options.setInputs(parts, size);
		}
		options.setOutput(bytes(output), size);
		gloo::scatter(options);
	});
}

int dtrain__gloo_all_to_all(gloo_group *group, void *output, const void *input, size_t size, uint32_t tag,
			    struct gloo_failure *failure)
{
	return guarded(failure, [&] {
		gloo::AlltoallOptions options(group->context);
		size_t all = size * static_cast<size_t>(group->context->size);

		set_common(options, group, tag);
		options.setInput(bytes(input), all);
		options.setOutput(bytes(output), all);
		gloo::alltoall(options);
	});
}

int dtrain__gloo_send(gloo_group *group, const void *data, size_t size, int peer, uint32_t tag,
		      struct gloo_failure *failure)
{
	return guarded(failure, [&] {
		auto buffer = group->context->createUnboundBuffer(bytes(data), size);

		buffer->send(peer, point_to_point_slots | tag);
		buffer->waitSend(group->timeout);
	});
}

int dtrain__gloo_recv(gloo_group *group, void *data, size_t size, int peer, uint32_t tag, struct gloo_failure *failure)
{
	return guarded(failure, [&] {
		auto buffer = group->context->createUnboundBuffer(data, size);

		buffer->recv(peer, point_to_point_slots | tag);
		buffer->waitRecv(group->timeout);
	});
}

int dtrain__gloo_barrier(gloo_group *group, uint32_t tag, struct gloo_failure *failure)
{
	return guarded(failure, [&] {
		gloo::BarrierOptions options(group->context);

		set_common(options, group, tag);
		gloo::barrier(options);
	});
}
