# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2086,SC2154 # $all is a list; library.sh sets the variables
# Sourced by tests whose ranks are on two machines: network namespaces on a bridge, n1 and n2 at 10.77.0.1 and 10.77.0.2, and head,
# where the script runs. All of it is in namespaces of processes, networks and mounts of its own, which end with the script.
missing() {
	echo "skipped: $*" >&2
	exit 77
}

# enter_machines "$0" "$@": goes on in the namespaces, from the script's first line.
enter_machines() {
	for program in ip nsenter unshare; do
		command -v $program >/dev/null || missing "no $program here (iproute2, util-linux; sh tools/setup --tests)"
	done
	[ -z "${DTRAIN_TEST_INSIDE-}" ] || return 0
	[ "$(id -u)" = 0 ] || missing 'only root can make namespaces in which daemons run'
	all='--net --uts --mount --pid --fork --kill-child --mount-proc'
	unshare $all true 2>/dev/null || missing 'not allowed to make namespaces of networks, names, mounts and processes'
	DTRAIN_TEST_INSIDE=1 exec unshare $all "$@"
}

# make_machines: in the folder of library.sh.
make_machines() {
	hostname head
	# Each machine is held by a process that ends with this script.
	printf '127.0.0.1 localhost\n10.77.0.254 head\n' >hosts0
	ip link set lo up
	ip link add bridge type bridge || missing 'no network bridges here'
	ip addr add 10.77.0.254/24 dev bridge
	ip link set bridge up
	for host in 1 2; do
		# As on Debian, a machine's own name means 127.0.1.1 on itself.
		printf '127.0.0.1 localhost\n127.0.1.1 n%s\n10.77.0.%s n%s\n10.77.0.254 head\n' $host $((3 - host)) $((3 - host)) >hosts$host
		printf '10.77.0.%s n%s\n' $host $host >>hosts0
		mkfifo held$host
		unshare --net --uts --mount sh -c "hostname n$host && mount --bind '$folder/hosts$host' /etc/hosts && echo >held$host; exec sleep 600" &
		eval "holder$host=$!"
		read -r _ <held$host
		eval "holder=\$holder$host"
		ip link add cable$host type veth peer name eth0 netns "$holder" || missing 'no veth devices here'
		ip link set cable$host master bridge
		ip link set cable$host up
		nsenter --target "$holder" --net sh -c "ip link set lo up; ip addr add 10.77.0.$host/24 dev eth0; ip link set eth0 up"
	done
	mount --bind hosts0 /etc/hosts

	# on nHOST COMMAND...: on that machine, in this folder.
	cat >on <<END
#!/bin/sh
case \$1 in n1) holder=$holder1 ;; n2) holder=$holder2 ;; esac
shift
exec nsenter --target \$holder --net --uts --mount sh -c 'cd "$folder" && exec "\$@"' sh "\$@"
END
	chmod +x on
}
