# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2154,SC2086,SC2016 # library.sh sets the folder; lists are split
# Sourced by tests whose ranks a real Slurm starts.
slurm_programs='munged slurmctld slurmd srun scontrol'

has_slurm() {
	for program in $slurm_programs; do
		command -v $program >/dev/null || return 1
	done
}

# start_slurm: a controller on head and a daemon on each of the machines of machines.sh, which end with the script.
start_slurm() {
	export SLURM_CONF=$folder/slurm.conf
	chmod 755 "$folder"
	mkdir -m 755 munge && mkdir spool state tmp spool/n1 spool/n2 tmp/n1 tmp/n2
	dd if=/dev/urandom of=munge.key bs=128 count=1 status=none
	chmod 400 munge.key
	munged --force --key-file="$folder/munge.key" --socket="$folder/munge/socket" --pid-file="$folder/munge/pid" \
		--seed-file="$folder/munge/seed" --log-file="$folder/munge/log" || fail "munged: $(cat munge/log)"
	cat >slurm.conf <<END
ClusterName=test
SlurmctldHost=head
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmctldPidFile=$folder/state/pid
SlurmdPidFile=$folder/spool/%n/pid
SlurmdSpoolDir=$folder/spool/%n
TmpFS=$folder/tmp/%n
StateSaveLocation=$folder/state
SlurmctldLogFile=$folder/state/log
SlurmdLogFile=$folder/spool/%n/log
SlurmctldPort=6817
SlurmdPort=6818
NodeName=n[1-2] CPUs=2 RealMemory=100 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES State=UP
END
	echo 'CgroupPlugin=cgroup/v1' >cgroup.conf
	slurmctld -D >state/out 2>&1 &
	for host in n1 n2; do
		./on $host slurmd -D -N $host >spool/$host/out 2>&1 &
	done
	wait_for sh -c 'scontrol ping | grep -q UP'
	wait_for sh -c '[ "$(sinfo -h -t idle -o %D)" = 2 ]'
}
