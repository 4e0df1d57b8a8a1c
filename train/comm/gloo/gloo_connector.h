/* SPDX-License-Identifier: Apache-2.0
 *
 * Connects and closes pairs of newer Gloo, whose device listens for all pairs.
 */
#ifndef DTRAIN_COMM_GLOO_GLOO_CONNECTOR_H
#define DTRAIN_COMM_GLOO_GLOO_CONNECTOR_H

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>

namespace dtrain_gloo
{

bool is_listening(int fd);

/* Whether this rank connects to the other one. In Gloo the rank with the higher address connects. */
bool connects(const std::vector<char> &self, const uint8_t *address, size_t size);

/* In newer Gloo, a connection that sends a pair's 64-bit number becomes the pair's peer, and devices count these
 * numbers from 0. give_number replaces a pair's number before it connects: the pair with rank 0 gets a random number,
 * which a stranger cannot guess, and the others get the numbers after it. */
void give_number(gloo::transport::Pair *pair, uint64_t number);
uint64_t random_number();

/* Connects and closes the pairs of newer Gloo.
 *
 * A pair that is signalled an exception while it waits for its peer still accepts the peer's connection later, and then
 * throws on the event loop's thread, which ends the process. So exceptions are not signalled: to end a wait, this
 * process connects to itself in the peer's place, and sends only the number.
 *
 * A connection that has not sent a number yet keeps the event loop alive when the device is destroyed. When it closes,
 * the loop's own thread destroys the loop, cannot join itself, and the process ends. So all such connections are closed
 * before the device. */
class Connector : public gloo::transport::tcp::Handler
{
      public:
	/* address: where the device listens. timeout: of a connection. */
	void use(std::shared_ptr<gloo::transport::Device> device, const std::vector<char> &address,
		 std::chrono::milliseconds timeout);
	bool is_used() const;

	/* After the pairs are destroyed: a silent connection must not close while a pair has its other end. */
	~Connector() override;

	/* Returns when the pair is connected. Throws Gloo's exceptions, and IoException after abort or the timeout; the
	 * pair may then be connected to this process. */
	void connect(gloo::transport::Pair *pair, const std::vector<char> &address);

	/* Ends running and future calls of connect. Returns whether no thread is in Pair::connect any more; then
	 * exceptions may be signalled to the pairs. Any thread. */
	bool abort();

	/* Closes all connections to the device. Calls close_pairs, which destroys the pairs, when no new connection can
	 * reach them. */
	void close(const std::function<void()> &close_pairs);

	/* Called for the timer, on the event loop's thread. */
	void handleEvents(int events) override;

      private:
	/* A connection that Gloo is making cannot be interrupted, so connect lets Gloo begin none that may take long.
	 */
	void check_reachable(const std::vector<char> &address);
	void begin(const std::vector<char> &place);
	void end(bool thrown);
	void set_timer(std::chrono::nanoseconds in);

	/* Runs the task on the event loop's thread. Returns when the loop has handled the events that were ready before
	 * and the events that the task caused. */
	void run_in_loop(std::function<void()> task);
	void take_turn();

	/* Connects to place_. The kernel completes the connection even while the event loop's thread is here. If it
	 * fails, the timer and the next abort retry. */
	void occupy();

	/* Turns of the timer. epoll reports ready events in turn, so the timer, which is set again each time, comes
	 * after earlier events. A connection needs two turns, to be accepted and to send its number; the task needs
	 * one, and one is spare. */
	static constexpr int turns = 4;

	std::shared_ptr<gloo::transport::Device> device_;
	std::vector<char> address_;
	std::chrono::milliseconds timeout_{0};
	int timer_ = -1;
	std::vector<int> silent_;
	std::mutex mutex_; /* guards the members below */
	std::condition_variable done_;
	std::function<void()> task_;
	int turns_ = 0;           /* turns left for the task */
	std::vector<char> place_; /* where a thread in Pair::connect waits for a connection; empty: no thread does */
	bool inside_ = false;     /* a thread is in Pair::connect */
	std::atomic<bool> over_{false}, late_{false};
};

} // namespace dtrain_gloo

#endif
