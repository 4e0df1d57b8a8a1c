/* SPDX-License-Identifier: Apache-2.0 */
#include "gloo_connector.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>

#include <dirent.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <gloo/common/error.h>
#include <gloo/transport/tcp/address.h>

using std::chrono::milliseconds;

namespace
{

/* Begins a connection, without blocking. */
int start_connection(const std::vector<char> &address)
{
	struct sockaddr_storage to = {};
	int fd;

	memcpy(&to, address.data(), std::min(address.size(), sizeof(to)));
	fd = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		throw std::system_error(errno, std::generic_category(), "socket");
	if (connect(fd, reinterpret_cast<struct sockaddr *>(&to), sizeof(to)) && errno != EINPROGRESS) {
		int number = errno;
		::close(fd);
		throw gloo::IoException(std::string("connect: ") + strerror(number));
	}
	return fd;
}

/* Whether this process's socket listens at the address, or was accepted there. */
bool is_at(int fd, const std::vector<char> &address)
{
	struct sockaddr_storage here = {}, there = {};
	socklen_t size = sizeof(here);
	memcpy(&there, address.data(), std::min(address.size(), sizeof(there)));
	if (getsockname(fd, reinterpret_cast<struct sockaddr *>(&here), &size) || here.ss_family != there.ss_family)
		return false;
	if (here.ss_family == AF_INET6) {
		auto a = reinterpret_cast<struct sockaddr_in6 *>(&here),
		     b = reinterpret_cast<struct sockaddr_in6 *>(&there);
		return a->sin6_port == b->sin6_port && !memcmp(&a->sin6_addr, &b->sin6_addr, sizeof(a->sin6_addr));
	}
	auto a = reinterpret_cast<struct sockaddr_in *>(&here), b = reinterpret_cast<struct sockaddr_in *>(&there);

	return here.ss_family == AF_INET && a->sin_port == b->sin_port && a->sin_addr.s_addr == b->sin_addr.s_addr;
}

std::vector<int> find_sockets(const std::vector<char> &address)
{
	DIR *folder = opendir("/proc/self/fd");
	std::vector<int> found;

	for (struct dirent *entry; folder && (entry = readdir(folder));) {
		int fd = atoi(entry->d_name);
		if (entry->d_name[0] != '.' && is_at(fd, address))
			found.push_back(fd);
	}
	if (folder)
		closedir(folder);
	return found;
}

} // namespace

namespace dtrain_gloo
{

bool is_listening(int fd)
{
	int listening = 0;
	socklen_t size = sizeof(listening);

	return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) == 0 && listening;
}

bool connects(const std::vector<char> &self, const uint8_t *address, size_t size)
{
	struct sockaddr_storage here = {}, there = {};
	memcpy(&here, self.data(), std::min(self.size(), sizeof(here)));
	memcpy(&there, address, std::min(size, sizeof(there)));
	if (here.ss_family == AF_INET6) {
		auto a = reinterpret_cast<struct sockaddr_in6 *>(&here);
		auto b = reinterpret_cast<struct sockaddr_in6 *>(&there);
		int order = memcmp(&a->sin6_addr, &b->sin6_addr, sizeof(a->sin6_addr));
		return order ? order > 0 : a->sin6_port > b->sin6_port;
	}
	auto a = reinterpret_cast<struct sockaddr_in *>(&here), b = reinterpret_cast<struct sockaddr_in *>(&there);
	int order = memcmp(&a->sin_addr, &b->sin_addr, sizeof(a->sin_addr));

	return order ? order > 0 : a->sin_port > b->sin_port;
}

uint64_t random_number()
{
	uint64_t number;
	if (getrandom(&number, sizeof(number), 0) != sizeof(number))
		throw std::system_error(errno, std::generic_category(), "getrandom");
	/* Positive, since numbers are signed and -1 means none, and small enough that all peers' numbers, which follow,
	 * fit. */
	return number >> 2;
}

void give_number(gloo::transport::Pair *pair, uint64_t number)
{
	/* The pair's own address: Gloo reads it when it connects. The member is not const. */
	auto &address =
		dynamic_cast<gloo::transport::tcp::Address &>(const_cast<gloo::transport::Address &>(pair->address()));

	address = gloo::transport::tcp::Address(address.getSockaddr(), static_cast<ssize_t>(number));
}

void Connector::use(std::shared_ptr<gloo::transport::Device> device, const std::vector<char> &address,
		    milliseconds timeout)
{
	auto tcp = dynamic_cast<gloo::transport::tcp::Device *>(device.get());
	timeout_ = timeout;
	address_ = address;
	timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (timer_ < 0)
		throw std::system_error(errno, std::generic_category(), "timerfd_create");
	tcp->registerDescriptor(timer_, EPOLLIN, this);
	device_ = device;
}

bool Connector::is_used() const
{
	return device_ != nullptr;
}

Connector::~Connector()
{
	device_.reset();
	for (int fd : silent_)
		::close(fd);
	if (timer_ >= 0)
		::close(timer_);
}

void Connector::connect(gloo::transport::Pair *pair, const std::vector<char> &address)
{
	std::vector<char> own = pair->address().bytes();
	bool waits = !connects(own, reinterpret_cast<const uint8_t *>(address.data()), address.size());

	if (!waits)
		check_reachable(address);
	begin(waits ? own : std::vector<char>());
	try {
		pair->connect(address);
	} catch (...) {
		end(true);
		throw;
	}
	end(false);
	if (over_)
		throw gloo::IoException("the attempt is over");
	if (late_)
		throw gloo::IoException("timed out waiting for a connection");
}

bool Connector::abort()
{
	std::lock_guard<std::mutex> guard(mutex_);

	over_ = true;
	if (inside_)
		occupy();
	return !inside_;
}

void Connector::close(const std::function<void()> &close_pairs)
{
	auto tcp = dynamic_cast<gloo::transport::tcp::Device *>(device_.get());
	if (tcp)
		run_in_loop([&] {
			for (int fd : find_sockets(address_))
				if (is_listening(fd))
					tcp->registerDescriptor(fd, 0, this);
		});
	close_pairs();
	/* Only this thread closes sockets here, so descriptors keep their meaning. */
	if (tcp)
		run_in_loop([&] {
			for (int fd : find_sockets(address_))
				if (!is_listening(fd))
					shutdown(fd, SHUT_RDWR);
		});
}

void Connector::handleEvents(int /* events */)
{
	std::lock_guard<std::mutex> guard(mutex_);
	uint64_t expirations;

	if (read(timer_, &expirations, sizeof(expirations)) != sizeof(expirations))
		return;
	if (turns_) {
		take_turn();
	} else if (inside_) {
		late_ = true;
		occupy();
	}
}

void Connector::check_reachable(const std::vector<char> &address)
{
	auto deadline = std::chrono::steady_clock::now() + timeout_;
	int fd = start_connection(address), error = 0;
	struct pollfd ready = {fd, POLLOUT, 0};
	socklen_t size = sizeof(error);
	bool late = false;
	while (!over_ && !late && poll(&ready, 1, 10) <= 0)
		late = std::chrono::steady_clock::now() >= deadline;
	getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
	::close(fd);
	if (late)
		throw gloo::IoException("timed out connecting");
	if (error)
		throw gloo::IoException(std::string("connect: ") + strerror(error));
}

void Connector::begin(const std::vector<char> &place)
{
	std::lock_guard<std::mutex> guard(mutex_);

	if (over_)
		throw gloo::IoException("the attempt is over");
	inside_ = true;
	place_ = place;
	if (!place_.empty())
		set_timer(timeout_);
}

void Connector::end(bool thrown)
{
	std::lock_guard<std::mutex> guard(mutex_);

	if (thrown)
		occupy();
	inside_ = false;
	set_timer(milliseconds(0));
}

void Connector::set_timer(std::chrono::nanoseconds in)
{
	struct itimerspec when = {};
	when.it_interval.tv_nsec = 10000000;
	when.it_value.tv_sec = static_cast<time_t>(in.count() / 1000000000);
	when.it_value.tv_nsec = static_cast<long>(in.count() % 1000000000);
	timerfd_settime(timer_, 0, &when, nullptr);
}

void Connector::run_in_loop(std::function<void()> task)
{
	std::unique_lock<std::mutex> lock(mutex_);

	task_ = std::move(task);
	turns_ = turns;
	set_timer(std::chrono::nanoseconds(1));
	done_.wait(lock, [&] { return turns_ == 0; });
	set_timer(milliseconds(0));
}

void Connector::take_turn()
{
	if (turns_ == turns) {
		try {
			task_();
		} catch (...) {
			/* Without memory strangers may stay. */
		}
	}
	if (--turns_)
		set_timer(std::chrono::nanoseconds(1));
	else
		done_.notify_all();
}

void Connector::occupy()
{
	constexpr size_t at = sizeof(struct sockaddr_storage);

	if (place_.empty())
		return;
	try {
		int fd = start_connection(place_);
		struct pollfd ready = {fd, POLLOUT, 0};
		size_t size = place_.size() - at;

		silent_.push_back(fd);
		if (poll(&ready, 1, 10) == 1 &&
		    send(fd, place_.data() + at, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size)) {
			place_.clear();
		} else {
			silent_.pop_back();
			::close(fd);
		}
	} catch (...) {
		/* Retry: the place is not taken yet. */
	}
}

} // namespace dtrain_gloo
