/* SPDX-License-Identifier: Apache-2.0
 *
 * This file and gloo_connector.cc are C++, because Gloo has no other interface.
 */
#include "gloo_shim.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <dirent.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

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
#include "gloo_waits.h"

using dtrain_gloo::connects;
using dtrain_gloo::is_listening;
using std::chrono::milliseconds;

namespace
{

/* Slots of send and recv, apart from those of collectives, whose prefixes are 1 to 8. */
constexpr uint64_t point_to_point_slots = 0x40ull << 56;

/* In older Gloo each pair listens for itself and accepts the first connection. If that is closed already, or sends no
 * valid frame, the pair throws on the event loop's thread, which ends the process. In newer Gloo the device listens for
 * all pairs, and a connection must send the number of a pair. */
#if __has_include(<gloo/transport/tcp/listener.h>)
constexpr bool pairs_listen = false;
#else
constexpr bool pairs_listen = true;
#endif

/* The port of one of this process's sockets, in network order; 0: none. */
in_port_t local_port(int fd)
{
	struct sockaddr_storage address = {};
	socklen_t size = sizeof(address);

	if (getsockname(fd, reinterpret_cast<struct sockaddr *>(&address), &size))
		return 0;
	if (address.ss_family == AF_INET)
		return reinterpret_cast<struct sockaddr_in *>(&address)->sin_port;
	return address.ss_family == AF_INET6 ? reinterpret_cast<struct sockaddr_in6 *>(&address)->sin6_port : 0;
}

/* The descriptor of Gloo's socket for a port: the listening one, or the accepted connection. -1: none. */
int find_socket(in_port_t port, bool listening)
{
	DIR *folder = opendir("/proc/self/fd");
	int found = -1;
	for (struct dirent *entry; folder && found < 0 && (entry = readdir(folder));) {
		int fd = atoi(entry->d_name);
		if (entry->d_name[0] != '.' && local_port(fd) == port && is_listening(fd) == listening)
			found = fd;
	}
	if (folder)
		closedir(folder);
	return found;
}

/* Stands between Gloo's event loop and a listening pair, until its connection is closed. An exception there becomes a
 * failed connection, and an event that makes the loop spin with the pair's lock is slowed down. The pair's own headers
 * cannot be included as Gloo installs them. */
class Shield : public gloo::transport::tcp::Handler
{
      public:
	Shield(gloo::transport::tcp::Device *device, gloo::transport::Pair *pair, in_port_t port)
	    : device_(device), handler_(dynamic_cast<gloo::transport::tcp::Handler *>(pair)), port_(port)
	{
		int fd = handler_ ? find_socket(port_, true) : -1;
		if (fd >= 0)
			device_->registerDescriptor(fd, EPOLLIN, this);
	}

	~Shield() override
	{
		if (silent_ >= 0)
			::close(silent_);
	}

	/* Whether a connection to the pair was accepted. */
	bool is_taken() const
	{
		return taken_;
	}

	void handleEvents(int events) override
	{
		bool thrown = false;
		try {
			handler_->handleEvents(events);
		} catch (...) {
			thrown = true;
		}
		if (connection_ < 0)
			adopt();
		if (thrown)
			give_up();
		else
			slow_down();
	}

      private:
	/* A connection that failed at once is not in the loop, but the pair removes it from there, so add it. */
	void adopt()
	{
		int fd = find_socket(port_, false);
		if (fd < 0)
			return;
		try {
			device_->registerDescriptor(fd, EPOLLIN, this);
			connection_ = fd;
			taken_ = true;
		} catch (...) {
			/* It was closed in the meantime. */
		}
	}

	/* The pair would throw again at its next event, which may bypass this object. Closing the pair needs its lock,
	 * whose holder may wait for this thread. So the pair keeps its descriptor, but the connection behind it is
	 * replaced by a silent one. */
	void give_up()
	{
		int ends[2];
		if (connection_ < 0 || silent_ >= 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
			return;
		silent_ = ends[1];
		dup2(ends[0], connection_);
		::close(ends[0]);
		try {
			device_->registerDescriptor(connection_, 0, this);
		} catch (...) {
		}
	}

	/* Bytes that the pair does not read cause the next event at once. */
	void slow_down()
	{
		int waiting = 0;
		if (connection_ < 0 || ioctl(connection_, FIONREAD, &waiting) || !waiting || waiting != waiting_)
			spins_ = 0;
		else if (++spins_ > 16)
			poll(nullptr, 0, 1);
		waiting_ = waiting;
	}

	gloo::transport::tcp::Device *device_;
	gloo::transport::tcp::Handler *handler_;
	in_port_t port_;
	std::atomic<bool> taken_{false};
	int connection_ = -1, silent_ = -1, waiting_ = 0, spins_ = 0;
};

in_port_t port_of(const std::vector<char> &address)
{
	struct sockaddr_storage storage = {};

	memcpy(&storage, address.data(), std::min(address.size(), sizeof(storage)));
	return storage.ss_family == AF_INET6 ? reinterpret_cast<struct sockaddr_in6 *>(&storage)->sin6_port
					     : reinterpret_cast<struct sockaddr_in *>(&storage)->sin_port;
}

class Mesh : public gloo::Context
{
      public:
	Mesh(const gloo_options &options, std::shared_ptr<gloo::transport::Device> device,
	     std::vector<std::unique_ptr<Shield>> *shields, dtrain_gloo::Connector *connector)
	    : gloo::Context(options.rank, options.size)
	{
		auto tcp = dynamic_cast<gloo::transport::tcp::Device *>(device.get());
		uint64_t number = dtrain_gloo::random_number();
		/* Connections keep this timeout for their own waits, for example in the cube. */
		setTimeout(milliseconds(options.timeout_ms));
		device_ = device;
		own_ = device->createContext(options.rank, options.size);
		own_->setTimeout(getTimeout());
		waiting_ = std::make_shared<dtrain_gloo::WaitingContext>(own_);
		transportContext_ = waiting_;
		for (int peer = 0; peer < options.size; peer++) {
			if (peer == options.rank)
				continue;
			auto &pair = transportContext_->createPair(peer);

			if (pairs_listen && tcp)
				(*shields)[static_cast<size_t>(peer)].reset(
					new Shield(tcp, pair.get(), port_of(pair->address().bytes())));
			if (!pairs_listen)
				dtrain_gloo::give_number(pair.get(), number + static_cast<uint64_t>(peer));
			/* Times out before Gloo, which waits five times as long as for anything else. */
			if (!pairs_listen && !connector->is_used())
				connector->use(device, pair->address().bytes(), milliseconds(options.timeout_ms) * 4);
		}
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
	std::shared_ptr<gloo::transport::Context> own_;
	std::shared_ptr<dtrain_gloo::WaitingContext> waiting_;
};

} // namespace

struct gloo_group {
	/* for the peers in older Gloo; like the connector they outlive the event loop, which ends with the context */
	std::vector<std::unique_ptr<Shield>> shields;
	dtrain_gloo::Connector connector; /* for newer Gloo */
	std::shared_ptr<Mesh> context;
	milliseconds timeout;
};

struct gloo_message {
	std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
	bool sends;
	std::chrono::steady_clock::time_point deadline;
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
 * (pytorch/pytorch#152300). Its conversions are right, and are faster than those of common/half.h. */
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
	std::unique_ptr<gloo_message> message(new gloo_message);

	message->buffer = group->context->createUnboundBuffer(data, size);
	message->sends = sends;
	message->deadline = std::chrono::steady_clock::now() + group->timeout;
	return message;
}

int gloo_create(const gloo_options *options, gloo_group **out, gloo_failure *failure)
{
	*out = nullptr;
	return guarded(failure, [&] {
		std::unique_ptr<gloo_group> group(new gloo_group);
		gloo::transport::tcp::attr attr;

		attr.hostname = options->host;
		group->timeout = milliseconds(options->timeout_ms);
		group->shields.resize(static_cast<size_t>(options->size));
		group->context = std::make_shared<Mesh>(*options, gloo::transport::tcp::CreateDevice(attr),
							&group->shields, &group->connector);
		*out = group.release();
	});
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
		auto &pair = group->context->getPair(peer);
		const Shield *shield = group->shields[static_cast<size_t>(peer)].get();
		bool listens = !shield || !connects(pair->address().bytes(), address, size);

		if (!pairs_listen)
			return group->connector.connect(pair.get(), std::vector<char>(address, address + size));
		/* A pair that connects itself would take a stranger's bytes for its peer's. */
		if (!listens && shield->is_taken())
			throw gloo::IoException("a stranger has connected");
		pair->connect(std::vector<char>(address, address + size));
		if (!listens && shield->is_taken())
			throw gloo::IoException("a stranger has connected");
	});
}

void gloo_abort(gloo_group *group)
{
	if (!pairs_listen && !group->connector.abort())
		return;
	gloo_failure ignored;
	guarded(&ignored, [&] { group->context->end_waits(); });
	guarded(&ignored, [&] { group->context->close_pairs(); });
}

void gloo_close(gloo_group *group)
{
	gloo_failure ignored;
	guarded(&ignored, [&] {
		group->connector.close([&] { group->context.reset(); });
		delete group;
	});
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
		/* Leave a moment after the deadline: otherwise a message that has long arrived would count as late. */
		auto left =
			std::chrono::duration_cast<milliseconds>(message->deadline - std::chrono::steady_clock::now());
		auto timeout = std::max(left, milliseconds(1));

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
