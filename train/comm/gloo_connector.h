/* SPDX-License-Identifier: Apache-2.0
 *
 * How pairs of newer Gloo, whose device listens for all of them, are connected and closed.
 */
#ifndef DTRAIN_COMM_GLOO_CONNECTOR_H
#define DTRAIN_COMM_GLOO_CONNECTOR_H

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

/* Which of two ranks connects to the other: Gloo has that one do it whose address is the higher. */
bool connects(const std::vector<char> &self, const uint8_t *address, size_t size);

/* In newer Gloo whoever connects and says the number of a pair, 64 bits of which the device counts from 0, is that
 * pair's peer. This gives the pair another one, before it connects: that with rank 0 a random one, which a stranger
 * does not guess, and the others those that follow. */
void give_number(gloo::transport::Pair *pair, uint64_t number);
uint64_t random_number();

/* Connects and closes the pairs of newer Gloo.
 *
 * There a pair that is told of an exception while it waits for its peer still takes the peer's connection when that
 * comes, and throws at the next event, on the thread of the event loop, which ends the process. So no pair is told: to
 * end a wait, this process connects to itself in the peer's place and sends no more than the number.
 *
 * A connection that has not said a number yet keeps the event loop alive when the device is destroyed. When that
 * connection closes, the loop is destroyed by its own thread, which cannot join itself, and the process ends. So all
 * such connections are ended before the device is. */
class Connector : public gloo::transport::tcp::Handler
{
      public:
	/* address: where the device listens. timeout: of a connection. */
	void use(std::shared_ptr<gloo::transport::Device> device, const std::vector<char> &address,
		 std::chrono::milliseconds timeout);
	bool is_used() const;

	/* Not before the pairs: the silent connections must not close while a pair has their other end. */
	~Connector() override;

	/* Returns when the pair is connected. Throws what Gloo throws, and IoException when abort was called or the
	 * time is over; the pair may be connected to this process then. */
	void connect(gloo::transport::Pair *pair, const std::vector<char> &address);

	/* Ends connect, now and in future. Returns whether no thread is in Pair::connect any more: exceptions may be
	 * signalled to the pairs then. From any thread. */
	bool abort();

	/* Ends all connections to the device. close_pairs destroys the pairs; that happens when nobody can connect to
	 * them any more. */
	void close(const std::function<void()> &close_pairs);

	/* The timer's, on the thread of the event loop. */
	void handleEvents(int events) override;

      private:
	/* Nothing ends a connection that Gloo itself is making, so it begins none that may take long. */
	void check_reachable(const std::vector<char> &address);
	void begin(const std::vector<char> &place);
	void end(bool thrown);
	void set_timer(std::chrono::nanoseconds in);

	/* Has the event loop's thread do it. Returns when the loop has handled what was ready before, and the events
	 * that the task caused. */
	void run_in_loop(std::function<void()> task);
	void take_turn();

	/* Connects to the place. The kernel completes that even while the event loop's thread is here. Where it fails,
	 * the timer and the next abort try again. */
	void occupy();

	/* epoll reports what is ready in turn, so the timer, set again each time, comes after what was ready before. A
	 * connection takes two turns, to be accepted and to say its number; the task takes one, and one is to spare. */
	static constexpr int turns = 4;

	std::shared_ptr<gloo::transport::Device> device_;
	std::vector<char> address_;
	std::chrono::milliseconds timeout_{0};
	int timer_ = -1;
	std::vector<int> silent_;
	std::mutex mutex_; /* of what follows */
	std::condition_variable done_;
	std::function<void()> task_;
	int turns_ = 0;           /* that are left to the task */
	std::vector<char> place_; /* that a thread in Pair::connect waits to be taken; empty: none */
	bool inside_ = false;     /* Pair::connect */
	std::atomic<bool> over_{false}, late_{false};
};

} // namespace dtrain_gloo

#endif
