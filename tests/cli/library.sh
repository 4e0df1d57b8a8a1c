# SPDX-License-Identifier: Apache-2.0
# Sourced by the tests of dtrain-ffcv, which are called with the programs DTRAIN MAKE_BETON COMPARE_LOGS. Goes to a
# temporary folder, which is removed at the end.
set -eu
dtrain=$(realpath "$1")
make_beton=$(realpath "$2")
compare_logs=$(realpath "$3")
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT SLURM_PROCID OMPI_COMM_WORLD_RANK DTRAIN_STORE_TOKEN
folder=$(realpath "$(mktemp -d)")
trap 'end_ranks; rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
cd "$folder"

fail() {
	echo "FAILED: $*" >&2
	for said in out err; do
		[ ! -f $said ] || sed "s/^/  $said: /" $said >&2
	done
	exit 1
}

# What a test that failed left running.
end_ranks() {
	for process in /proc/[0-9]*; do
		if [ "$(readlink "$process/cwd")" = "$folder" ] && [ "$(readlink "$process/exe")" = "$dtrain" ]; then
			kill -KILL "${process#/proc/}" || :
		fi
	done
}

# expect STATUS TEXT COMMAND...: the command ends with that status and has TEXT in what it says on standard error.
expect() {
	status=$1 text=$2
	shift 2
	got=0
	"$@" >out 2>err || got=$?
	[ $got = "$status" ] || fail "$*: exit status $got, not $status"
	[ -z "$text" ] || grep -qF -- "$text" err || fail "$*: did not say '$text'"
}

# train OPTION...: has to succeed; the pictures as the tests make them, on the plain device unless told otherwise.
train() {
	expect 0 '' "$dtrain" --image-size 16 --crop none --device ref --lr 0.02 "$@"
}

# no_ranks: no process of the program is left in this folder (other tests run beside this one, elsewhere).
no_ranks() {
	for process in /proc/[0-9]*; do
		if [ "$(readlink "$process/cwd")" = "$folder" ] && [ "$(readlink "$process/exe")" = "$dtrain" ]; then
			echo "left running: $process $(tr '\0' ' ' <"$process/cmdline")" >&2
			return 1
		fi
	done
}

# wait_for COMMAND...: until the command succeeds. Only what hangs is given up.
wait_for() {
	tries=12000
	while ! "$@" >/dev/null 2>&1; do
		tries=$((tries - 1))
		[ $tries -gt 0 ] || fail "waited in vain for: $*"
		sleep 0.05
	done
}
