/* SPDX-License-Identifier: Apache-2.0 */
#include "gloo_waits.h"

#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include <gloo/common/error.h>

using gloo::transport::UnboundBuffer;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace
{

/* How often the limits are looked at. A look that comes later than STOPPED means that the process was stopped. */
constexpr milliseconds TICK(100);
constexpr milliseconds STOPPED(1000);
/* Gloo's own limit: it closes the connections when it passes, and counts all time. */
constexpr std::chrono::hours NEVER(24 * 365);

void throw_ended()
{
	throw gloo::IoException("the connections were closed");
}

class WaitingBuffer : public UnboundBuffer
{
      public:
	WaitingBuffer(std::unique_ptr<UnboundBuffer> buffer, std::shared_ptr<dtrain_gloo::Waits> waits,
		      milliseconds timeout)
	    : UnboundBuffer(buffer->ptr, buffer->size), buffer_(std::move(buffer)), waits_(std::move(waits)),
	      timeout_(timeout)
	{
		waits_->add(buffer_.get());
	}

	~WaitingBuffer() override
	{
		waits_->remove(buffer_.get());
	}

	bool waitRecv(int *rank, milliseconds timeout) override
	{
		return wait(timeout, "recv", [&] { return buffer_->waitRecv(rank, NEVER); });
	}

	bool waitSend(int *rank, milliseconds timeout) override
	{
		return wait(timeout, "send", [&] { return buffer_->waitSend(rank, NEVER); });
	}

	void abortWaitRecv() override
	{
		buffer_->abortWaitRecv();
	}

	void abortWaitSend() override
	{
		buffer_->abortWaitSend();
	}

	void send(int to, uint64_t slot, size_t offset, size_t size) override
	{
		buffer_->send(to, slot, offset, size);
	}

	void recv(int from, uint64_t slot, size_t offset, size_t size) override
	{
		buffer_->recv(from, slot, offset, size);
	}

	void recv(std::vector<int> from, uint64_t slot, size_t offset, size_t size) override
	{
		buffer_->recv(std::move(from), slot, offset, size);
	}

      private:
	template <typename Wait> bool wait(milliseconds timeout, const char *what, Wait waits_for_it)
	{
		dtrain_gloo::Limit limit;
		timeout = timeout == gloo::transport::kUnsetTimeout ? timeout_ : timeout;
		waits_->check();
		waits_->begin(&limit, timeout, buffer_.get());
		bool done = false;
		try {
			/* The request to end may be meant for the wait before, whose limit passed when it ended. */
			while (!done && waits_->left(&limit).count() > 0) {
				done = waits_for_it();
				if (!done)
					waits_->check();
			}
		} catch (...) {
			waits_->finish(&limit);
			throw;
		}
		waits_->finish(&limit);
		if (!done)
			throw gloo::IoException("Timed out waiting " + std::to_string(timeout.count()) + "ms for " +
						what + " operation to complete");
		return true;
	}

	std::unique_ptr<UnboundBuffer> buffer_;
	std::shared_ptr<dtrain_gloo::Waits> waits_;
	milliseconds timeout_;
};

} // namespace

namespace dtrain_gloo
{

/* No signal is for the thread. */
Waits::Waits()
{
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	try {
		thread_ = std::thread([this] { keep_limits(); });
	} catch (...) {
		pthread_sigmask(SIG_SETMASK, &before, nullptr);
		throw;
	}
	pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Waits::~Waits()
{
	{
		std::lock_guard<std::mutex> guard(mutex_);
		stopping_ = true;
	}
	changed_.notify_one();
	thread_.join();
}

void Waits::begin(Limit *limit, milliseconds timeout, UnboundBuffer *buffer)
{
	*limit = Limit{timeout, steady_clock::now(), buffer};
	std::lock_guard<std::mutex> guard(mutex_);
	limits_.insert(limit);
	used_ = true;
	if (idle_)
		changed_.notify_one();
}

void Waits::finish(Limit *limit)
{
	std::lock_guard<std::mutex> guard(mutex_);
	limits_.erase(limit);
}

milliseconds Waits::left(const Limit *limit)
{
	std::lock_guard<std::mutex> guard(mutex_);
	return limit->left;
}

/* A buffer keeps the request until its next wait, so a limit that has passed asks once. */
void Waits::look(steady_clock::time_point now, steady_clock::duration passed)
{
	for (Limit *limit : limits_) {
		bool had = limit->left.count() > 0;
		limit->left -= std::chrono::duration_cast<milliseconds>(
			std::min<steady_clock::duration>(now - limit->begun, passed));
		if (!had || limit->left.count() > 0 || !limit->buffer)
			continue;
		limit->buffer->abortWaitRecv();
		limit->buffer->abortWaitSend();
	}
}

void Waits::keep_limits()
{
	std::unique_lock<std::mutex> lock(mutex_);
	auto last = steady_clock::now();
	while (!stopping_) {
		idle_ = limits_.empty() && !used_;
		used_ = false;
		if (idle_)
			changed_.wait(lock);
		else
			changed_.wait_for(lock, TICK);
		auto now = steady_clock::now();
		steady_clock::duration passed = now - last;
		if (passed > STOPPED)
			passed = TICK;
		look(now, passed);
		last = now;
	}
}

void Waits::add(UnboundBuffer *buffer)
{
	std::lock_guard<std::mutex> guard(mutex_);
	buffers_.insert(buffer);
}

void Waits::remove(UnboundBuffer *buffer)
{
	std::lock_guard<std::mutex> guard(mutex_);
	buffers_.erase(buffer);
}

/* A buffer keeps the request until its next wait, so that a thread that is about to wait does not miss it. */
void Waits::end()
{
	std::lock_guard<std::mutex> guard(mutex_);
	over_ = true;
	for (UnboundBuffer *buffer : buffers_) {
		buffer->abortWaitRecv();
		buffer->abortWaitSend();
	}
}

void Waits::check()
{
	std::lock_guard<std::mutex> guard(mutex_);
	if (over_)
		throw_ended();
}

WaitingContext::WaitingContext(std::shared_ptr<gloo::transport::Context> context)
    : gloo::transport::Context(context->rank, context->size), context_(std::move(context)),
      waits_(std::make_shared<Waits>())
{
	setTimeout(context_->getTimeout());
}

std::unique_ptr<gloo::transport::Pair> &WaitingContext::getPair(int rank)
{
	return context_->getPair(rank);
}

std::unique_ptr<gloo::transport::Pair> &WaitingContext::createPair(int rank)
{
	return context_->createPair(rank);
}

std::unique_ptr<UnboundBuffer> WaitingContext::createUnboundBuffer(void *data, size_t size)
{
	return std::unique_ptr<UnboundBuffer>(
		new WaitingBuffer(context_->createUnboundBuffer(data, size), waits_, getTimeout()));
}

void WaitingContext::end_waits()
{
	waits_->end();
}

} // namespace dtrain_gloo
