/* SPDX-License-Identifier: Apache-2.0
 *
 * A transport context whose waits any thread can end. Gloo wakes a wait when a connection breaks, except for the
 * message that is partly sent or received at that moment.
 *
 * The limits of waits do not count time for which this process was stopped: a batch system may have suspended the job.
 */
#ifndef DTRAIN_COMM_GLOO_GLOO_WAITS_H
#define DTRAIN_COMM_GLOO_GLOO_WAITS_H

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_set>

#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

namespace dtrain_gloo
{

/* How long something may take still. */
struct Limit {
	std::chrono::milliseconds left;
	std::chrono::steady_clock::time_point begun;
	gloo::transport::UnboundBuffer *buffer; /* whose wait ends with it; nullptr: none */
};

/* Knows the buffers of a context: threads wait in them. Has a thread that keeps the limits. */
class Waits
{
      public:
	Waits();
	~Waits();
	void add(gloo::transport::UnboundBuffer *buffer);
	void remove(gloo::transport::UnboundBuffer *buffer);
	/* Ends all waits, now and later. */
	void end();
	/* Throws once they have ended. */
	void check();
	void begin(Limit *limit, std::chrono::milliseconds timeout, gloo::transport::UnboundBuffer *buffer);
	void finish(Limit *limit);
	std::chrono::milliseconds left(const Limit *limit);

      private:
	void keep_limits();
	void look(std::chrono::steady_clock::time_point now, std::chrono::steady_clock::duration passed);

	std::mutex mutex_; /* guards the members below */
	std::condition_variable changed_;
	std::unordered_set<Limit *> limits_;
	bool used_ = false; /* since the thread has looked */
	bool idle_ = false; /* the thread waits for the next limit */
	bool stopping_ = false;
	std::unordered_set<gloo::transport::UnboundBuffer *> buffers_;
	bool over_ = false;
	std::thread thread_;
};

/* Passes everything on to a context of Gloo's, and makes buffers whose waits throw IoException after Waits::end. */
class WaitingContext : public gloo::transport::Context
{
      public:
	explicit WaitingContext(std::shared_ptr<gloo::transport::Context> context);

	std::unique_ptr<gloo::transport::Pair> &getPair(int rank) override;
	std::unique_ptr<gloo::transport::Pair> &createPair(int rank) override;
	std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void *data, size_t size) override;
	/* Ends all waits, now and later. */
	void end_waits();
	std::shared_ptr<Waits> waits() const
	{
		return waits_;
	}

      private:
	std::shared_ptr<gloo::transport::Context> context_;
	std::shared_ptr<Waits> waits_;
};

} // namespace dtrain_gloo

#endif
