#!/bin/bash
# Runs a command under a Slurm of its own: a controller and some nodes of one core each, all on
# this machine, without any part of a Slurm that is installed as a service. They and all tasks end
# with the command, and the exit code is that of the command.
#
#     examples/fleet/slurm_cluster.sh NODES COMMAND...
#
# Needs munged, slurmctld, slurmd and sbatch (Debian: munge, slurm-wlm), and root, as slurmd does.
set -eu
nodes=$1
shift
cluster=$(mktemp -d)
chmod 755 "$cluster" # munged refuses a socket that others cannot reach
children=()
finish() {
    code=$?
    set +e
    [ $code -eq 0 ] || tail -n 60 "$cluster"/slurmctld.log >&2
    if [ ${#children[@]} -gt 0 ]; then
        kill "${children[@]}" 2>/dev/null
        wait "${children[@]}" 2>/dev/null
    fi
    for p in /proc/[0-9]*; do # tasks that have not ended, and what watches them
        tr '\0' '\n' <"$p/environ" | grep -qx "SLURM_CONF=$cluster/slurm.conf" && kill -KILL "${p#/proc/}"
    done 2>/dev/null
    rm -rf "$cluster"
    exit $code
}
trap finish EXIT
await() { # SECONDS COMMAND...: waits until it succeeds
    for _ in $(seq $(($1 * 10))); do
        "${@:2}" >/dev/null 2>&1 && return
        sleep 0.1
    done
    echo "slurm_cluster: after $1 s still not: ${*:2}" >&2
    exit 1
}
freePort() { python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'; }

mkdir "$cluster/run" "$cluster/state"
(umask 077; head -c 1024 /dev/urandom >"$cluster/key")
munged --foreground --force --num-threads=2 --key-file="$cluster/key" --socket="$cluster/run/munge" \
    --pid-file="$cluster/run/munged.pid" --seed-file="$cluster/run/seed" --log-file="$cluster/munged.log" &
children+=($!)
await 10 test -S "$cluster/run/munge"
host=$(hostname -s)
cat >"$cluster/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(freePort)
AuthInfo=socket=$cluster/run/munge,cred_expire=10
CredType=cred/munge
SlurmUser=$(id -un)
StateSaveLocation=$cluster/state
SlurmdSpoolDir=$cluster/state/%n
SlurmctldPidFile=$cluster/run/slurmctld.pid
SlurmdPidFile=$cluster/run/%n.pid
SlurmctldLogFile=$cluster/slurmctld.log
SlurmdLogFile=$cluster/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=1
$(for i in $(seq 0 $((nodes - 1))); do echo "NodeName=node$i NodeHostname=$host NodeAddr=127.0.0.1 Port=$(freePort) CPUs=1 RealMemory=2000"; done)
PartitionName=all Nodes=ALL Default=YES State=UP
CONF
echo "CgroupPlugin=cgroup/v1" >"$cluster/cgroup.conf" # read, but no plugin of ours uses it
export SLURM_CONF="$cluster/slurm.conf"
slurmctld -D -i >"$cluster/slurmctld.out.log" 2>&1 &
children+=($!)
for i in $(seq 0 $((nodes - 1))); do
    mkdir "$cluster/state/node$i"
    # Nice, and so are its tasks: tests have to stop them in time, also if the machine is busy.
    nice -n 10 slurmd -D -N "node$i" >"$cluster/node$i.out.log" 2>&1 &
    children+=($!)
done
idle() { [ "$(sinfo -h -t idle -o %D)" = "$nodes" ]; }
await 30 idle
"$@"
