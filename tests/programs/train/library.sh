# SPDX-License-Identifier: Apache-2.0
# Sourced by the tests of dtrain-ffcv, which are called with the programs DTRAIN MAKE_BETON COMPARE_LOGS. Goes to a
# temporary folder, which is removed at the end.
set -eu
dtrain=$(realpath "$1")
make_beton=$(realpath "$2")
compare_logs=$(realpath "$3")
# Without the environment of a launcher that runs the tests.
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT DTRAIN_STORE_TOKEN TORCHELASTIC_RUN_ID SLURM_PROCID \
	SLURM_STEP_NUM_TASKS OMPI_COMM_WORLD_RANK PMI_RANK PMI_SIZE PMI_FD MPI_LOCALNRANKS PMIX_RANK PMIX_NAMESPACE HYDI_CONTROL_FD \
	JOB_COMPLETION_INDEX
# shellcheck source=tests/support/free-port.sh
. "$(dirname "$0")/../../support/free-port.sh"
folder=$(realpath "$(mktemp -d)")
trap 'end_ranks; rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
cd "$folder"

fail() {
	for said in out err; do
		[ ! -f $said ] || sed "s/^/  $said: /" $said >&2
	done
	echo "FAILED: $*" >&2
	exit 1
}

# rank_processes: the folders in /proc of the processes of $ranks_of, or else of the trainer, in this folder (other tests run beside this
# one, elsewhere).
rank_processes() {
	for process in $(find /proc/[0-9]*/cwd -maxdepth 0 -lname "$folder" -printf '%h\n' 2>/dev/null); do
		[ "$(readlink "$process/exe")" != "${ranks_of-$dtrain}" ] || echo "$process"
	done
}

# Ends the processes that a failed test left running.
end_ranks() {
	for process in $(rank_processes); do
		kill -KILL "${process#/proc/}" || :
	done
}

# later_counts COMMAND...: the command; of an option given twice, which the program refuses, the later one counts. In the background the
# command begins with exec, so that $! is the program itself.
later_counts() {
	_left=$#
	while [ "$_left" -gt 0 ]; do
		_argument=$1 _again=
		shift
		_left=$((_left - 1))
		case $_argument in
		--?*)
			_option=${_argument%%=*} _place=0
			for _other in "$@"; do
				[ $((_place += 1)) -le "$_left" ] || break
				[ "${_other%%=*}" != "$_option" ] || _again=1
			done
			;;
		esac
		if [ ! "$_again" ]; then
			set -- "$@" "$_argument"
		elif [ "$_argument" = "$_option" ] && [ "$_left" -gt 0 ] && [ "${1#--}" = "$1" ]; then
			shift
			_left=$((_left - 1))
		fi
	done
	"$@"
}

# expect STATUS TEXT COMMAND...: the command ends with that status and has TEXT in what it says on standard error; of two values of an
# option the later one counts.
expect() {
	status=$1 text=$2
	shift 2
	got=0
	later_counts "$@" >out 2>err || got=$?
	[ $got = "$status" ] || fail "$*: exit status $got, not $status"
	[ -z "$text" ] || grep -qF -- "$text" err || fail "$*: did not say '$text'"
}

# train OPTION...: has to succeed; the pictures as the tests make them, on the plain device unless told otherwise.
train() {
	expect 0 '' "$dtrain" --image-size 16 --crop none --device ref --lr 0.02 "$@"
}

# no_ranks: no process of the program is left in this folder.
no_ranks() {
	for process in $(rank_processes); do
		echo "left running: $process $(tr '\0' ' ' <"$process/cmdline")" >&2
		return 1
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

# check_times LOG: the parts of each epoch's time are all of it, and its steps' times add up to them.
check_times() {
	grep -q '"type": "epoch"' "$1" || fail "$1 tells of no epoch: $(cat "$1")"
	awk '
	function value(key) {
		return match($0, "\"" key "\": [-0-9.e+]+") ? substr($0, RSTART + length(key) + 4, RLENGTH - length(key) - 4) + 0 : -1
	}
	function differ(a, b) { return a - b > 1e-6 || b - a > 1e-6 }
	function complain(what) { print what ": " $0; wrong = 1 }
	/"type": "(start|resume)"/ { waited = exposed = steps = 0 }
	/"type": "step"/ { asynchronous = /"launch_ms"/; waited += value("data_wait_ms") / 1e3; exposed += value("comm_exposed_ms") / 1e3; steps++ }
	/"type": "epoch"/ {
		count = split("data_wait compute comm_exposed evaluation checkpoint other", parts, " ")
		sum = 0
		for (i = 1; i <= count; i++) {
			part = value(parts[i] "_seconds")
			if (part < 0) complain(parts[i] " is missing, or below 0")
			sum += part
		}
		if (differ(sum, value("seconds"))) complain("the parts are " sum)
		if (value("steps") != steps) complain(steps " steps")
		if (differ(value("comm_exposed_seconds"), exposed)) complain("the steps have exposed " exposed)
		if (asynchronous ? value("data_wait_seconds") - waited > 1e-6 : differ(value("data_wait_seconds"), waited))
			complain("the steps waited " waited)
		if (match($0, /"comm_exposed_buckets_seconds": \[[^]]*\]/)) {
			count = split(substr($0, RSTART + 33, RLENGTH - 34), buckets, ", ")
			sum = 0
			for (i = 1; i <= count; i++) sum += buckets[i]
			if (differ(sum, exposed)) complain("the buckets have " sum)
		} else
			complain("there are no buckets")
		waited = exposed = steps = 0
	}
	END { exit wrong }' "$1" >times || fail "$1: $(cat times)"
}

# part LOG EPOCH KEY: a number of the line that tells where the time of an epoch went.
part() {
	sed -n 's/.*"type": "epoch", .*"epoch": '"$2"',.*"'"$3"'": \([-0-9.e+]*\).*/\1/p' "$1"
}
