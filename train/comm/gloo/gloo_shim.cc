/* SPDX-License-Identifier: Apache-2.0
 *
 * This file and the others that end in .cc are C++, because Gloo has no other interface.
 */
#include "gloo_shim.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/common/error.h>
#include <gloo/gather.h>
#include <gloo/context.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/scatter.h>
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/types.h>

#include "common/half.h"
#include "common/isa.h"

#include "gloo_connector.h"
#include "gloo_shield.h"
#include "gloo_waits.h"

using std::chrono::milliseconds;

namespace
{

/* Slots of send and recv, distinct from the collectives', whose prefixes are 1 to 8. */
constexpr uint64_t point_to_point_slots = 0x40ull << 56;

/* In older Gloo each pair listens for itself and accepts the first connection (gloo_shield.h). In newer Gloo the device
 * listens for all pairs, and a connection must send the number of a pair (gloo_connector.h). */
#if __has_include(<gloo/transport/tcp/listener.h>)
constexpr bool pairs_listen = false;
#else
constexpr bool pairs_listen = true;
#endif

class Mesh : public gloo::Context
{
      public:
	Mesh(const gloo_options &options, std::shared_ptr<gloo::transport::Device> device)
	    : gloo::Context(options.rank, options.size)
	{
		/* Connections keep this timeout for their own waits, for example in the cube. */
		setTimeout(milliseconds(options.timeout_ms));
		device_ = device;
		own_ = device->createContext(options.rank, options.size);
		own_->setTimeout(getTimeout());
		waiting_ = std::make_shared<dtrain_gloo::WaitingContext>(own_);
		transportContext_ = waiting_;
	}

	/* A stranger may connect as soon as a pair listens, so no event may come before its shield. */
	void create_pairs(dtrain_gloo::Shields *shields, dtrain_gloo::Connector *connector)
	{
		auto tcp = dynamic_cast<gloo::transport::tcp::Device *>(device_.get());

		if (pairs_listen && tcp)
			dtrain_gloo::run_in_loop(tcp, [&] {
				for (int peer = 0; peer < size; peer++)
					if (peer != rank)
						shields->add(tcp, peer, transportContext_->createPair(peer).get());
			});
		else
			create_numbered_pairs(connector);
	}

	std::shared_ptr<dtrain_gloo::Waits> waits() const
	{
		return waiting_->waits();
	}

	void end_waits()
	{
		waiting_->end_waits();
	}

	/* Closing connections of this Gloo does not end waits for them. A wait that times out does: Gloo then signals
	 * and closes all connections of the context. So wait for a message that no rank sends. */
	void close_pairs()
	{
		char byte;
		auto buffer = own_->createUnboundBuffer(&byte, sizeof(byte));

		buffer->waitRecv(milliseconds(1));
	}

      private:
	void create_numbered_pairs(dtrain_gloo::Connector *connector)
	{
		uint64_t number = dtrain_gloo::random_number();

		for (int peer = 0; peer < size; peer++) {
			if (peer == rank)
				continue;
			auto &pair = transportContext_->createPair(peer);

			dtrain_gloo::give_number(pair.get(), number + static_cast<uint64_t>(peer));
			/* Times out before Gloo, which waits five times as long as for anything else. */
			if (!connector->is_used())
				connector->use(device_, pair->address().bytes(), getTimeout() * 4);
		}
	}

	std::shared_ptr<gloo::transport::Context> own_;
	std::shared_ptr<dtrain_gloo::WaitingContext> waiting_;
};

} // namespace

struct gloo_group {
	/* Outlive the event loop, which ends with the context. */
	dtrain_gloo::Shields shields;     /* for older Gloo */
	dtrain_gloo::Connector connector; /* for newer Gloo */
	std::shared_ptr<Mesh> context;
	milliseconds timeout;
};

struct gloo_message {
	std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
	bool sends;
	std::shared_ptr<dtrain_gloo::Waits> waits;
	dtrain_gloo::Limit limit;

	~gloo_message()
	{
		waits->finish(&limit);
	}
};

namespace
{

/* Messages begin with a place in Gloo's source: "[...pair.cc:598] text" or "[...pair.h:324] text". */
std::string strip_place(const std::string &message)
{
	size_t end = message.find("] ");
	size_t file = std::min(message.find(".cc:"), message.find(".h:"));

	return message[0] == '[' && end != std::string::npos && file < end ? message.substr(end + 2) : message;
}

int fail(gloo_failure *failure, int code, const char *what)
{
	std::string message = what;

	failure->code = code;
	snprintf(failure->message, sizeof(failure->message), "%s", strip_place(message).c_str());
	return code;
}

template <typename Function> int guarded(gloo_failure *failure, Function function)
{
	failure->code = BETON_OK;
	failure->message[0] = '\0';
	try {
		function();
		return BETON_OK;
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

/* Types of 16 bits, which compute in F32 and round each result to nearest even once. Gloo has no bfloat16 on the CPU,
 * and its float16 loses some sums: its assignment compares bits with a number, and leaves out what seems equal
 * (pytorch/pytorch#152300). Its conversions are correct, and faster than common/half.h's. */
template <float (*Widen)(uint16_t), uint16_t (*Narrow)(float)> struct small_float {
	uint16_t bits;

	float widen() const
	{
		return Widen(bits);
	}

	friend small_float operator+(small_float a, small_float b)
	{
		return small_float{Narrow(a.widen() + b.widen())};
	}

	friend small_float operator*(small_float a, small_float b)
	{
		return small_float{Narrow(a.widen() * b.widen())};
	}

	friend bool operator<(small_float a, small_float b)
	{
		return a.widen() < b.widen();
	}
};

float widen_float16(uint16_t bits)
{
	gloo::float16 value;

	value.x = bits;
	return gloo::cpu_half2float(value);
}

uint16_t narrow_float16(float value)
{
	return gloo::cpu_float2half_rn(value).x;
}

using bfloat16 = small_float<bt_widen_bfloat16, bt_bfloat16>;
using float16 = small_float<widen_float16, narrow_float16>;

using Reduce = void (*)(void *, const void *, const void *, size_t);

#ifdef __x86_64__
/* The processor's own conversions: gradients are often below 2^-14, where the functions above are slow. */
__attribute__((target("avx,f16c"))) void add_float16(void *sum, const void *a, const void *b, size_t count)
{
	constexpr size_t lanes = 8;
	const float16 *x = static_cast<const float16 *>(a), *y = static_cast<const float16 *>(b);
	float16 *out = static_cast<float16 *>(sum);
	size_t i = 0;

	for (; i + lanes <= count; i += lanes) {
		__m256 left = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(x + i)));
		__m256 right = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(y + i)));

		_mm_storeu_si128(reinterpret_cast<__m128i *>(out + i),
				 _mm256_cvtps_ph(_mm256_add_ps(left, right), _MM_FROUND_TO_NEAREST_INT));
	}
	for (; i < count; i++)
		out[i] = x[i] + y[i];
}
#endif

/* The sum of a type. */
template <typename T> Reduce sum_function()
{
	return &gloo::sum<T>;
}

template <> Reduce sum_function<float16>()
{
#ifdef __x86_64__
	if (bt_isa_level() >= BT_ISA_AVX2)
		return &add_float16;
#endif
	return &gloo::sum<float16>;
}

template <typename T> Reduce reduce_function(gloo_reduction reduction)
{
	switch (reduction) {
	case GLOO_MAX:
		return &gloo::max<T>;
	case GLOO_MIN:
		return &gloo::min<T>;
	case GLOO_PRODUCT:
		return &gloo::product<T>;
	default:
		return sum_function<T>();
	}
}

template <typename Options> void set_common(Options &options, const gloo_group *group, uint32_t tag)
{
	options.setTag(tag);
	options.setTimeout(group->timeout);
}

/* Measured with 8 ranks on one machine with 2 cores: up to 4 MiB the cube (6 exchanges) takes a half to a quarter of
 * the ring's time (14 exchanges); at 24 MiB it takes ten times as long. Both give every rank the same bits. */
constexpr size_t cube_bytes = 4 << 20;

template <typename T>
void allreduce(gloo_group *group, void *data, size_t count, gloo_reduction reduction, uint32_t tag)
{
	gloo::AllreduceOptions options(group->context);

	set_common(options, group, tag);
	options.setAlgorithm(count * sizeof(T) <= cube_bytes ? gloo::AllreduceOptions::Algorithm::BCUBE
							     : gloo::AllreduceOptions::Algorithm::RING);
	options.setOutput(static_cast<T *>(data), count);
	options.setReduceFunction(reduce_function<T>(reduction));
	gloo::allreduce(options);
}

uint8_t *bytes(const void *data)
{
	return static_cast<uint8_t *>(
		const_cast<void *>(data)); /* Gloo's inputs are not const, but it only reads them */
}

template <typename T>
void reduce(gloo_group *group, void *output, const void *input, size_t count, gloo_reduction reduction, int root,
	    uint32_t tag)
{
	gloo::ReduceOptions options(group->context);

	set_common(options, group, tag);
	options.setRoot(root);
	if (input != output)
		options.setInput(reinterpret_cast<T *>(bytes(input)), count);
	options.setOutput(static_cast<T *>(output), count);
	options.setReduceFunction(reduce_function<T>(reduction));
	gloo::reduce(options);
}

std::unique_ptr<gloo_message> begin_message(gloo_group *group, uint8_t *data, size_t size, bool sends)
{
	std::unique_ptr<gloo_message> message(new gloo_message{nullptr, sends, group->context->waits(), {}});

	message->waits->begin(&message->limit, group->timeout, nullptr);
	message->buffer = group->context->createUnboundBuffer(data, size);
	return message;
}

void gloo_close(gloo_group *group)
{
	gloo_failure ignored;
	guarded(&ignored, [&] {
		group->connector.close([&] { group->shields.close([&] { group->context.reset(); }); });
		delete group;
	});
}

int gloo_create(const gloo_options *options, gloo_group **out, gloo_failure *failure)
{
	std::unique_ptr<gloo_group, void (*)(gloo_group *)> group(nullptr, gloo_close);
	int status = guarded(failure, [&] {
		gloo::transport::tcp::attr attr;

		group.reset(new gloo_group);
		attr.hostname = options->host;
		group->timeout = milliseconds(options->timeout_ms);
		group->context = std::make_shared<Mesh>(*options, gloo::transport::tcp::CreateDevice(attr));
		group->context->create_pairs(&group->shields, &group->connector);
	});

	*out = status == BETON_OK ? group.release() : nullptr;
	return status;
}

size_t gloo_listens_at(gloo_group *group, int peer, uint8_t address[GLOO_MAX_ADDRESS])
{
	size_t size = 0;
	gloo_failure ignored;
	guarded(&ignored, [&] {
		std::vector<char> bytes = group->context->getPair(peer)->address().bytes();

		if (bytes.size() <= GLOO_MAX_ADDRESS) {
			memcpy(address, bytes.data(), bytes.size());
			size = bytes.size();
		}
	});
	return size;
}

int gloo_connect(gloo_group *group, int peer, const uint8_t *address, size_t size, gloo_failure *failure)
{
	return guarded(failure, [&] {
		gloo::transport::Pair *pair = group->context->getPair(peer).get();
		std::vector<char> bytes(address, address + size);

		if (pairs_listen)
			group->shields.connect(peer, pair, bytes, group->timeout * 5);
		else
			group->connector.connect(pair, bytes);
	});
}

void gloo_abort(gloo_group *group)
{
	if (!pairs_listen && !group->connector.abort())
		return;
	gloo_failure ignored;
	guarded(&ignored, [&] { group->context->end_waits(); });
	guarded(&ignored, [&] { group->shields.close([&] { group->context->close_pairs(); }); });
}

int gloo_allreduce(gloo_group *group, void *data, size_t count, gloo_type type, gloo_reduction reduction, uint32_t tag,
		   gloo_failure *failure)
{
	return guarded(failure, [&] {
		switch (type) {
		case GLOO_F32:
			return allreduce<float>(group, data, count, reduction, tag);
		case GLOO_F64:
			return allreduce<double>(group, data, count, reduction, tag);
		case GLOO_F16:
			return allreduce<float16>(group, data, count, reduction, tag);
		case GLOO_BF16:
			return allreduce<bfloat16>(group, data, count, reduction, tag);
		case GLOO_I64:
			return allreduce<int64_t>(group, data, count, reduction, tag);
		case GLOO_U8:
			return allreduce<uint8_t>(group, data, count, reduction, tag);
		}
	});
}

int gloo_reduce(gloo_group *group, void *output, const void *input, size_t count, gloo_type type,
		gloo_reduction reduction, int root, uint32_t tag, gloo_failure *failure)
{
	return guarded(failure, [&] {
		switch (type) {
		case GLOO_F32:
			return reduce<float>(group, output, input, count, reduction, root, tag);
		case GLOO_F64:
			return reduce<double>(group, output, input, count, reduction, root, tag);
		case GLOO_F16:
			return reduce<float16>(group, output, input, count, reduction, root, tag);
		case GLOO_BF16:
			return reduce<bfloat16>(group, output, input, count, reduction, root, tag);
		case GLOO_I64:
			return reduce<int64_t>(group, output, input, count, reduction, root, tag);
		case GLOO_U8:
			return reduce<uint8_t>(group, output, input, count, reduction, root, tag);
		}
	});
}

int gloo_all_gather(gloo_group *group, void *output, const void *input, size_t size, uint32_t tag,
		    gloo_failure *failure)
{
	return guarded(failure, [&] {
		gloo::AllgatherOptions options(group->context);

		set_common(options, group, tag);
		/* Without an input Gloo takes this rank's part of the output. */
		if (input != bytes(output) + size * static_cast<size_t>(group->context->rank))
			options.setInput(bytes(input), size);
		options.setOutput(bytes(output), size * static_cast<size_t>(group->context->size));
		gloo::allgather(options);
	});
}

int gloo_broadcast(gloo_group *group, void *data, size_t size, int root, uint32_t tag, gloo_failure *failure)
{
	return guarded(failure, [&] {
		gloo::BroadcastOptions options(group->context);

		set_common(options, group, tag);
		options.setRoot(root);
		options.setOutput(bytes(data), size);
		gloo::broadcast(options);
	});
}

int gloo_gather(gloo_group *group, void *output, const void *input, size_t size, int root, uint32_t tag,
		gloo_failure *failure)
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

int gloo_scatter(gloo_group *group, void *output, const void *input, size_t size, int root, uint32_t tag,
		 gloo_failure *failure)
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

int gloo_all_to_all(gloo_group *group, void *output, const void *input, size_t size, uint32_t tag,
		    gloo_failure *failure)
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

int gloo_send(gloo_group *group, const void *data, size_t size, int peer, uint32_t tag, gloo_message **out,
	      gloo_failure *failure)
{
	return guarded(failure, [&] {
		auto message = begin_message(group, bytes(data), size, true);

		message->buffer->send(peer, point_to_point_slots | tag);
		*out = message.release();
	});
}

int gloo_recv(gloo_group *group, void *data, size_t size, int peer, uint32_t tag, gloo_message **out,
	      gloo_failure *failure)
{
	return guarded(failure, [&] {
		auto message = begin_message(group, bytes(data), size, false);

		message->buffer->recv(peer, point_to_point_slots | tag);
		*out = message.release();
	});
}

int gloo_message_wait(gloo_message *message, gloo_failure *failure)
{
	return guarded(failure, [&] {
		/* Leave a moment after the limit: otherwise a message that has long arrived would count as late. */
		auto timeout = std::max(message->waits->left(&message->limit), milliseconds(1));

		if (message->sends)
			message->buffer->waitSend(timeout);
		else
			message->buffer->waitRecv(timeout);
	});
}

void gloo_message_free(gloo_message *message)
{
	gloo_failure ignored;
	guarded(&ignored, [&] { delete message; });
}

int gloo_barrier(gloo_group *group, uint32_t tag, gloo_failure *failure)
{
	return guarded(failure, [&] {
		gloo::BarrierOptions options(group->context);

		set_common(options, group, tag);
		gloo::barrier(options);
	});
}

} // namespace

const gloo_api *dtrain_gloo_entry()
{
	static const gloo_api api = {
		GLOO_API_VERSION, gloo_create, gloo_listens_at, gloo_connect,      gloo_abort,        gloo_close,
		gloo_allreduce,   gloo_reduce, gloo_all_gather, gloo_broadcast,    gloo_gather,       gloo_scatter,
		gloo_all_to_all,  gloo_send,   gloo_recv,       gloo_message_wait, gloo_message_free, gloo_barrier,
	};
	return &api;
}
