# SPDX-License-Identifier: Apache-2.0
# Sourced by tests whose ranks need a port that is known before they start.

# free_port: a port, in $port, at which nothing listens: drawn, so that tests beside this one seldom have the same, and below those
# that the kernel gives out.
free_port() {
	while
		port=$((10000 + $(od -An -N2 -tu2 /dev/urandom) % 20000))
		grep -qi ":$(printf %04x $port) " /proc/net/tcp /proc/net/tcp6 2>/dev/null
	do
		:
	done
}
