/* SPDX-License-Identifier: Apache-2.0
 *
 * Connects and closes pairs of older Gloo, where every pair listens for itself.
 */
#ifndef DTRAIN_COMM_GLOO_GLOO_SHIELD_H
#define DTRAIN_COMM_GLOO_GLOO_SHIELD_H

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>

namespace dtrain_gloo
{

/* Runs the task on the thread of the device's event loop, where no event comes between. Throws its exception. */
void run_in_loop(gloo::transport::tcp::Device *device, std::function<void()> task);

class Shield;

/* Each pair of older Gloo accepts the first connection. If that is closed already, or sends no valid frame, the pair
 * throws on the event loop's thread, which would end the process. So a shield stands between the event loop and each
 * pair.
 *
 * A descriptor that a pair closes must be in the event loop: otherwise Gloo throws where nothing may be thrown, and the
 * process ends. While a shield deals with a connection that has failed, its descriptor is not, so no pair closes then:
 * close locks the shields out, and connect enters Gloo only where no shield deals with the pair any more. */
class Shields
{
      public:
	Shields(); /* defined where Shield is */
	~Shields();

	/* A shield for the pair with the peer, which listens and is in no thread. On the event loop's thread. */
	void add(gloo::transport::tcp::Device *device, int peer, gloo::transport::Pair *pair);

	/* Returns when the pair is connected. Throws Gloo's exceptions, and IoException after close or the timeout. */
	void connect(int peer, gloo::transport::Pair *pair, const std::vector<char> &address,
		     std::chrono::milliseconds timeout);

	/* Ends running and future calls of connect, and calls close_pairs, which may close pairs. Any thread but the
	 * event loop's. */
	void close(const std::function<void()> &close_pairs);

      private:
	friend class Shield;

	std::vector<std::unique_ptr<Shield>> shields_; /* by peer */
	std::mutex mutex_;                             /* guards the shields' members and the one below */
	std::condition_variable changed_;
	bool over_ = false;
};

} // namespace dtrain_gloo

#endif
