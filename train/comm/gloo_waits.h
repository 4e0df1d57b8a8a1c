/* SPDX-License-Identifier: Apache-2.0
 *
 * A transport context whose waits any thread can end. Gloo wakes a wait when a connection breaks, except for the
 * message that is partly sent or received at that moment.
 */
#ifndef DTRAIN_COMM_GLOO_WAITS_H
#define DTRAIN_COMM_GLOO_WAITS_H

#include <memory>
#include <mutex>
#include <unordered_set>

#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

namespace dtrain_gloo
{

/* Knows the buffers of a context: threads wait in them. */
class Waits
{
      public:
	void add(gloo::transport::UnboundBuffer *buffer);
	void remove(gloo::transport::UnboundBuffer *buffer);
	/* Ends all waits, now and later. */
	void end();
	/* Throws once they have ended. */
	void check();

      private:
	std::mutex mutex_; /* guards the members below */
	std::unordered_set<gloo::transport::UnboundBuffer *> buffers_;
	bool over_ = false;
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

      private:
	std::shared_ptr<gloo::transport::Context> context_;
	std::shared_ptr<Waits> waits_;
};

} // namespace dtrain_gloo

#endif
