#!/bin/bash
# Runs compile.sbatch as it stands under a Slurm of its own: a controller and four nodes on this
# machine, without any part of a Slurm that is installed as a service. One task is killed, another
# one requeued, a third one has a full disk, and the results are compared with those of one call.
#
#     examples/fleet/slurm_test.sh STPLAN
#
# Needs munged, slurmctld, slurmd and sbatch (Debian: munge, slurm-wlm), and root, as slurmd does.
set -eu
stplan=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
examples=$(dirname "$here")
work=$(mktemp -d)
chmod 755 "$work" # munged refuses a socket that others cannot reach
children=()
finish() {
    code=$?
    set +e
    [ $code -eq 0 ] || tail -n 60 "$work"/slurmctld.log "$work"/stplan-*.log >&2
    if [ ${#children[@]} -gt 0 ]; then
        kill "${children[@]}" 2>/dev/null
        wait "${children[@]}" 2>/dev/null
    fi
    for p in /proc/[0-9]*; do # tasks that have not ended, and what watches them
        tr '\0' '\n' <"$p/environ" | grep -qx "SLURM_CONF=$work/slurm.conf" && kill -KILL "${p#/proc/}"
    done 2>/dev/null
    umount -l "$work/disk" 2>/dev/null
    rm -rf "$work"
    exit $code
}
trap finish EXIT
fail() { echo "slurm_test: $*" >&2; exit 1; }
await() { # SECONDS COMMAND...: waits until it succeeds
    for _ in $(seq $(($1 * 10))); do
        "${@:2}" >/dev/null 2>&1 && return
        sleep 0.1
    done
    fail "after $1 s still not: ${*:2}"
}
freePort() { python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'; }

# Twelve ranks that all do something else, so that no task finds its plans made by another one.
mkdir "$work/bin" "$work/traces" "$work/run" "$work/state"
ln -s "$stplan" "$work/bin/stplan"
export PATH="$work/bin:$PATH"
PYTHONPATH="$examples/../docs/results" PYTHONDONTWRITEBYTECODE=1 python3 - "$examples/llama7b-pp4-VR/llama7b-pp4-VR.pickle.gz" "$work/traces" <<'PYTHON'
import pathlib, sys, fleet
for i in range(12):
    fleet.make_one(sys.argv[1], pathlib.Path(sys.argv[2]) / f"job-rank{i:02}.pickle.gz", rank=0, seed=i + 1)
PYTHON

# The cluster.
(umask 077; head -c 1024 /dev/urandom >"$work/key")
munged --foreground --force --num-threads=2 --key-file="$work/key" --socket="$work/run/munge" \
    --pid-file="$work/run/munged.pid" --seed-file="$work/run/seed" --log-file="$work/munged.log" &
children+=($!)
await 10 test -S "$work/run/munge"
host=$(hostname -s)
cat >"$work/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(freePort)
AuthInfo=socket=$work/run/munge,cred_expire=10
CredType=cred/munge
SlurmUser=$(id -un)
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/state/%n
SlurmctldPidFile=$work/run/slurmctld.pid
SlurmdPidFile=$work/run/%n.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=1
$(for i in 0 1 2 3; do echo "NodeName=node$i NodeHostname=$host NodeAddr=127.0.0.1 Port=$(freePort) CPUs=1 RealMemory=2000"; done)
PartitionName=all Nodes=ALL Default=YES State=UP
CONF
echo "CgroupPlugin=cgroup/v1" >"$work/cgroup.conf" # read, but no plugin of ours uses it
export SLURM_CONF="$work/slurm.conf"
slurmctld -D -i >"$work/slurmctld.out.log" 2>&1 &
children+=($!)
for i in 0 1 2 3; do
    mkdir "$work/state/node$i"
    # Nice, and so are its tasks: this script has to stop them in time, also if the machine is busy.
    nice -n 10 slurmd -D -N "node$i" >"$work/node$i.out.log" 2>&1 &
    children+=($!)
done
idle() { [ "$(sinfo -h -t idle -o %D)" = 4 ]; }
await 30 idle

# The reference: one call.
stplan compile -q "$work/traces" -o "$work/one" >"$work/one.txt"

# The array, with fewer and smaller tasks than the script asks for.
cd "$work"
job=$(sbatch --parsable --array=0-3 --cpus-per-task=1 --mem-per-cpu=0 \
    --export=ALL,TRACES="$work/traces",PLANS="$work/plans" "$here/compile.sbatch")
task() { # INDEX: the process of a task's stplan
    for p in /proc/[0-9]*; do
        # Processes end meanwhile, which is an error to $(<...) that ends the script.
        if read -r name <"$p/comm" && [ "$name" = stplan ] && [ "$(readlink "$p/exe")" = "$stplan" ] &&
            tr '\0' '\n' <"$p/environ" | grep -qx "SLURM_ARRAY_TASK_ID=$1"; then
            echo "${p#/proc/}"
            return
        fi
    done 2>/dev/null
    return 1
}
hold() { # INDEX PLAN: stops a task's stplan once that plan is there
    await 60 task "$1"
    process=$(task "$1") || fail "task $1 had ended before it could be stopped"
    until [ -e "plans/$2" ]; do sleep 0.01; done
    kill -STOP "$process" || fail "task $1 had ended before it could be stopped"
    echo "$process" >"held$1"
}
# Each has three recordings: task 1 begins with the first of them, task 2 with the second.
hold 1 job-rank01.bin &
first=$!
hold 2 job-rank06.bin &
second=$!
wait $first || fail "task 1 was not stopped"
wait $second || fail "task 2 was not stopped"
kept() { stat -c %n-%i-%Y plans/job-rank01.bin plans/job-rank06.bin; }
before=$(kept)
[ ! -e plans/job-rank09.bin ] || fail "task 1 had done all before it was stopped"
[ ! -e plans/job-rank02.bin ] || fail "task 2 had done all before it was stopped"
kill -KILL "$(<held1)"
echo "killed task 1 after its first plan"
scontrol requeue "${job}_2"
echo "queued task 2 again after its first plan"

# A task that is queued again waits until its former credential has expired: 10 s here, and two
# minutes if a cluster does not say otherwise.
completed() { # TASKS: waits for so many tasks of $job
    for _ in $(seq 200); do
        [ "$(scontrol -o show job "$job" | grep -c 'JobState=COMPLETED')" = "$1" ] && return
        sleep 1
    done
    fail "not every task has completed: $(scontrol -o show job "$job")"
}
completed 4

# Nothing lost, nothing twice.
stplan table plans >table.txt || fail "table: $(cat table.txt)"
for plan in "$work"/one/*.bin; do
    cmp "$plan" "plans/$(basename "$plan")"
done
[ "$(ls plans/*.bin | wc -l)" = 12 ] || fail "plans: $(ls plans)"
[ "$(kept)" = "$before" ] || fail "what tasks 1 and 2 had done was done again: $before, then $(kept)"
for i in 1 2; do
    [ "$(grep -c '^[0-9,]* plans\? of' stplan-"$job"-$i.log)" = 1 ] || fail "task $i has ended more than once: $(cat stplan-"$job"-$i.log)"
    scontrol -o show job "${job}_$i" | grep -q 'Restarts=1 ' || fail "task $i was not started again"
done
[ -z "$(find plans one -name '*.tmp')" ] || fail "unfinished files: $(find plans -name '*.tmp')"
grep -q 'queued again' stplan-"$job"-1.log || fail "task 1 was not queued again by the script"
echo "12 plans of 4 tasks are those of one call; what was done before the kill was not done again"

# A job on two nodes, with two ranks each: each node runs its own "stplan run" with the plans of the
# shared folder, and every rank gets its own. torch and the allocator are stand-ins.
mkdir served # with the names that "stplan record" gives, whose ranks have no zeros before them
for rank in 0 1 2 3; do ln "plans/job-rank0$rank.bin" "served/job-rank$rank.bin"; done
serve() {
    export XDG_CACHE_HOME="$work/cache-$SLURMD_NODENAME" COUNTERS='{}'
    export PYTHONPATH="$examples/../runtime/torch/tests/fake:$examples/../runtime/torch/tests/serving"
    stplan run -q served -- bash -c 'for local in 0 1; do
        RANK=$((2 * SLURM_NODEID + local)) python3 -c "import os, torch; print(os.environ[\"SLURMD_NODENAME\"]); torch.empty(5)" || exit
    done' 2>&1
}
export -f serve
export work examples
srun --nodes=2 --ntasks-per-node=1 --mem=0 --label bash -c serve >served.log || fail "srun: $(cat served.log)"
for rank in 0 1 2 3; do
    node=$((rank / 2))
    grep -q "^$node: asked $rank: served/job-rank$rank.bin " served.log || fail "rank $rank has another plan: $(cat served.log)"
    [ "$(grep -c "^$node: node" served.log)" = 2 ] || fail "expected two ranks on node $node: $(cat served.log)"
done
[ "$(grep -o 'node[0-9]$' served.log | sort -u | wc -l)" = 2 ] || fail "expected two nodes: $(cat served.log)"
echo "four ranks on two nodes are served by their own plans"

# A task whose disk is full is queued again, and goes on behind what it has done.
mkdir "$work/disk"
mount -t tmpfs -o size=2m tmpfs "$work/disk" # of 12 plans of 1 MB
job=$(sbatch --parsable --array=0-0 --cpus-per-task=1 --mem-per-cpu=0 \
    --export=ALL,TRACES="$work/traces",PLANS="$work/disk" "$here/compile.sbatch")
log="stplan-$job-0.log"
await 100 grep -q 'ended with 2; .*queued again' "$log"
grep -q 'no space left on device' "$log" || fail "the disk was not full: $(cat "$log")"
had=$(ls disk/*.bin | wc -l)
[ "$had" -gt 0 ] && [ "$had" -lt 12 ] || fail "$had plans before the disk was full, expected some"
mount -o remount,size=64m "$work/disk"
completed 1
for plan in "$work"/one/*.bin; do
    cmp "$plan" "disk/$(basename "$plan")"
done
echo "a task had a full disk after $had plans, was queued again, and has the others now"
