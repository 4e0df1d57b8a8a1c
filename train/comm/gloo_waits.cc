/* SPDX-License-Identifier: Apache-2.0 */
#include "gloo_waits.h"

#include <utility>
#include <vector>

#include <gloo/common/error.h>

using gloo::transport::UnboundBuffer;
using std::chrono::milliseconds;

namespace
{

void throw_ended()
{
	throw gloo::IoException("the connections were closed");
}

class WaitingBuffer : public UnboundBuffer
{
      public:
	WaitingBuffer(std::unique_ptr<UnboundBuffer> buffer, std::shared_ptr<dtrain_gloo::Waits> waits)
	    : UnboundBuffer(buffer->ptr, buffer->size), buffer_(std::move(buffer)), waits_(std::move(waits))
	{
		waits_->add(buffer_.get());
	}

	~WaitingBuffer() override
	{
		waits_->remove(buffer_.get());
	}

	bool waitRecv(int *rank, milliseconds timeout) override
	{
		waits_->check();
		if (!buffer_->waitRecv(rank, timeout))
			throw_ended();
		return true;
	}

	bool waitSend(int *rank, milliseconds timeout) override
	{
		waits_->check();
		if (!buffer_->waitSend(rank, timeout))
			throw_ended();
		return true;
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
	std::unique_ptr<UnboundBuffer> buffer_;
	std::shared_ptr<dtrain_gloo::Waits> waits_;
};

} // namespace

namespace dtrain_gloo
{

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
	return std::unique_ptr<UnboundBuffer>(new WaitingBuffer(context_->createUnboundBuffer(data, size), waits_));
}

void WaitingContext::end_waits()
{
	waits_->end();
}

} // namespace dtrain_gloo
