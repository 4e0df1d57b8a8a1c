/* SPDX-License-Identifier: Apache-2.0 */
#include "gloo_shield.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <system_error>

#include <dirent.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gloo/common/error.h>

#include "gloo_connector.h"

using gloo::transport::tcp::Device;
using gloo::transport::tcp::Handler;

namespace
{

class Task : public Handler
{
      public:
	explicit Task(std::function<void()> task) : task_(std::move(task)), fd_(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK))
	{
		if (fd_ < 0)
			throw std::system_error(errno, std::generic_category(), "eventfd");
	}

	~Task() override
	{
		::close(fd_);
	}

	void run(Device *device)
	{
		std::unique_lock<std::mutex> lock(mutex_);

		device->registerDescriptor(fd_, EPOLLIN, this);
		changed_.wait(lock, [&] { return done_; });
		lock.unlock();
		/* Returns when no event is handled any more; what the last one did is seen with the lock. */
		device->unregisterDescriptor(fd_, this);
		lock.lock();
		if (thrown_)
			std::rethrow_exception(thrown_);
	}

	void handleEvents(int /* events */) override
	{
		std::lock_guard<std::mutex> guard(mutex_);

		if (done_)
			return;
		try {
			task_();
		} catch (...) {
			thrown_ = std::current_exception();
		}
		done_ = true;
		changed_.notify_all();
	}

      private:
	std::function<void()> task_;
	int fd_;
	std::mutex mutex_; /* guards the members below */
	std::condition_variable changed_;
	bool done_ = false;
	std::exception_ptr thrown_;
};

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

in_port_t port_of(const std::vector<char> &address)
{
	struct sockaddr_storage storage = {};

	memcpy(&storage, address.data(), std::min(address.size(), sizeof(storage)));
	return storage.ss_family == AF_INET6 ? reinterpret_cast<struct sockaddr_in6 *>(&storage)->sin6_port
					     : reinterpret_cast<struct sockaddr_in *>(&storage)->sin_port;
}

bool is_socket(int fd, in_port_t port, bool listening)
{
	return local_port(fd) == port && dtrain_gloo::is_listening(fd) == listening;
}

/* The descriptor of Gloo's socket for a port: the listening one, or the accepted connection. -1: none. */
int find_socket(in_port_t port, bool listening)
{
	DIR *folder = opendir("/proc/self/fd");
	int found = -1;
	for (struct dirent *entry; folder && found < 0 && (entry = readdir(folder));) {
		int fd = atoi(entry->d_name);
		if (entry->d_name[0] != '.' && is_socket(fd, port, listening))
			found = fd;
	}
	if (folder)
		closedir(folder);
	return found;
}

} // namespace

namespace dtrain_gloo
{

void run_in_loop(Device *device, std::function<void()> task)
{
	Task(std::move(task)).run(device);
}

/* Stands between Gloo's event loop and a listening pair, until its connection is closed. An exception there becomes a
 * failed connection, and an event that makes the loop spin with the pair's lock is slowed down. The pair's own headers
 * cannot be included as Gloo installs them. */
class Shield : public Handler
{
      public:
	Shield(Shields *shields, Device *device, Handler *handler, in_port_t port, int listening)
	    : shields_(shields), device_(device), handler_(handler), port_(port), listening_(listening)
	{
		device_->registerDescriptor(listening_, EPOLLIN, this);
	}

	~Shield() override
	{
		if (silent_ >= 0)
			::close(silent_);
	}

	/* Both need the shields' lock. */
	void wait_for_connection(std::unique_lock<std::mutex> &lock, std::chrono::milliseconds timeout)
	{
		if (!shields_->changed_.wait_for(lock, timeout, [&] { return shields_->over_ || !listens_; }))
			throw gloo::IoException("timed out waiting for a connection");
		check_over();
		if (failed_)
			throw gloo::IoException("a connection was closed at once");
	}

	/* The pair is about to connect itself, for which it stops listening. It would take a stranger's bytes for its
	 * peer's. */
	void leave()
	{
		check_over();
		if (!listens_)
			throw gloo::IoException("a stranger has connected");
		listens_ = false;
		device_->registerDescriptor(listening_, 0, this);
	}

	void handleEvents(int events) override
	{
		if (deal_with(events))
			poll(nullptr, 0, 1);
	}

      private:
	void check_over()
	{
		if (shields_->over_)
			throw gloo::IoException("the attempt is over");
	}

	/* Whether the event came too often. */
	bool deal_with(int events)
	{
		/* Who has the lock may wait for this thread. The event comes again. */
		std::unique_lock<std::mutex> lock(shields_->mutex_, std::try_to_lock);
		bool thrown = false;

		/* An event from before the pair left or was closed. */
		if (!lock || (connection_ < 0 && (shields_->over_ || !listens_)))
			return false;
		try {
			handler_->handleEvents(events);
		} catch (...) {
			thrown = true;
		}
		if (connection_ < 0)
			adopt(thrown);
		if (!thrown)
			return spins();
		give_up();
		return false;
	}

	/* A connection that failed at once is not in the loop, but the pair removes it from there, so add it. */
	void adopt(bool thrown)
	{
		int fd = find_socket(port_, false);

		if (fd < 0 && is_socket(listening_, port_, true))
			return;
		listens_ = false;
		failed_ = thrown || fd < 0;
		try {
			if (fd >= 0) {
				device_->registerDescriptor(fd, EPOLLIN, this);
				connection_ = fd;
			}
		} catch (...) {
			/* Without memory in the kernel. */
		}
		shields_->changed_.notify_all();
	}

	/* The pair would throw again at its next event, which may bypass this object. Closing the pair needs its lock,
	 * whose holder may wait for this thread. So the pair keeps its descriptor, which becomes a silent connection.
	 */
	void give_up()
	{
		int ends[2];
		if (silent_ >= 0 || !is_socket(connection_, port_, false) ||
		    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
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
	bool spins()
	{
		int waiting = 0;
		if (connection_ < 0 || ioctl(connection_, FIONREAD, &waiting) || !waiting || waiting != waiting_)
			spins_ = 0;
		else
			spins_++;
		waiting_ = waiting;
		return spins_ > 16;
	}

	Shields *shields_;
	Device *device_;
	Handler *handler_;
	in_port_t port_;
	int listening_;
	bool listens_ = true; /* no connection yet, and no thread is in Pair::connect */
	bool failed_ = false; /* that connection */
	int connection_ = -1, silent_ = -1, waiting_ = 0, spins_ = 0;
};

Shields::Shields() = default;
Shields::~Shields() = default;

void Shields::add(Device *device, int peer, gloo::transport::Pair *pair)
{
	auto handler = dynamic_cast<Handler *>(pair);
	in_port_t port = port_of(pair->address().bytes());
	int listening = find_socket(port, true);
	size_t at = static_cast<size_t>(peer);

	if (at >= shields_.size())
		shields_.resize(at + 1);
	if (handler && listening >= 0)
		shields_[at].reset(new Shield(this, device, handler, port, listening));
}

void Shields::connect(int peer, gloo::transport::Pair *pair, const std::vector<char> &address,
		      std::chrono::milliseconds timeout)
{
	Shield *shield = shields_[static_cast<size_t>(peer)].get();
	std::unique_lock<std::mutex> lock(mutex_);

	if (!shield)
		; /* without /proc */
	else if (connects(pair->address().bytes(), reinterpret_cast<const uint8_t *>(address.data()), address.size()))
		shield->leave();
	else
		shield->wait_for_connection(lock, timeout);
	lock.unlock();
	pair->connect(address);
}

void Shields::close(const std::function<void()> &close_pairs)
{
	std::lock_guard<std::mutex> guard(mutex_);

	over_ = true;
	changed_.notify_all();
	close_pairs();
}

} // namespace dtrain_gloo
