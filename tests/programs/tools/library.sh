# SPDX-License-Identifier: Apache-2.0
# Sourced by the tests of the beton tools. Goes to a temporary folder, which is removed at the end.
set -eu
folder=$(realpath "$(mktemp -d)")
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
cd "$folder"
chmod 755 .

fail() {
	for said in out err; do
		[ ! -f $said ] || head -c 2000 $said | sed "s/^/  $said: /" >&2
	done
	echo "FAILED: $*" >&2
	exit 1
}

# expect STATUS TEXT COMMAND...: the command ends with that status and has TEXT in what it says on standard error, which
# is nothing at all if the status is 0 and TEXT is empty.
expect() {
	status=$1 text=$2
	shift 2
	got=0
	"$@" >out 2>err || got=$?
	[ $got = "$status" ] || fail "$*: exit status $got, not $status"
	grep -qF -- "$text" err || [ -z "$text" ] || fail "$*: did not say '$text'"
	[ "$status$text" != 0 ] || [ ! -s err ] || fail "$*: said something"
}

# content FILE...: every sample of the files, without where it is stored and comes from.
content() {
	for file in "$@"; do
		"$beton_info" --json --samples "$file" | sed -n '/"samples": \[/,$p' |
			sed '1d; s/,$//; s/"__source__": "[^"]*", //' | grep '^  {' || :
	done
}

# same_content FILE FILE...: the first holds what the others hold together.
same_content() {
	first=$1
	shift
	content "$first" >content-one
	content "$@" >content-two
	cmp -s content-one content-two || {
		diff content-one content-two | head -5 >&2
		fail "$first does not hold what these do: $*"
	}
}

samples() {
	"$beton_info" --json "$1" | sed -n 's/.*"num_samples": \([0-9]*\).*/\1/p'
}

# small_disk COMMAND: runs it (a string, for sh) where ./full is a folder on a disk of 3 MiB; 77 without user namespaces.
small_disk() {
	mkdir -p full
	unshare -Urm true 2>/dev/null || return 77
	unshare -Urm sh -euc "mount -t tmpfs -o size=3m none full; $1"
}

# interrupted SIGNAL FOLDER COMMAND...: the command gets the signal while it has something in the folder; it dies of it
# and leaves the folder empty.
interrupted() {
	signal=$1 place=$2
	shift 2
	# A background job of a plain shell ignores SIGINT, what nohup started ignores SIGHUP, and so would the program.
	env --default-signal="$signal" "$@" >out 2>err &
	pid=$!
	while [ -z "$(ls -A "$place")" ] && kill -0 $pid 2>/dev/null; do :; done
	kill "-$signal" $pid 2>/dev/null || :
	got=0
	wait $pid || got=$?
	[ $got -gt 128 ] || fail "$*: SIG$signal: exit status $got"
	[ -z "$(ls -A "$place")" ] || fail "$*: SIG$signal: left behind: $(ls -A "$place")"
}

# none_left PREFIX: no file whose name begins so, temporary ones included.
none_left() {
	found=$(find . -name "$1*" -o -name ".$1*")
	[ -z "$found" ] || fail "left behind: $found"
}
