#!/bin/bash
# Runs compile.sbatch as it stands under Slurm: one task is killed, another one requeued, a third one
# has a full disk, and the results are compared with those of one call.
#
#     examples/fleet/slurm_cluster.sh 4 examples/fleet/slurm_test.sh STPLAN
set -eu
stplan=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
examples=$(dirname "$here")
work=$(mktemp -d)
server=
finish() {
    code=$?
    set +e
    [ $code -eq 0 ] || tail -n 60 "$work"/stplan-*.log >&2
    [ -z "$server" ] || kill "$server"
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
mkdir "$work/bin" "$work/traces"
cat >"$work/bin/stplan" <<SH
#!/bin/bash
# Says which process a task's stplan is: looking for it would take longer than some plans do.
echo \$\$ >"$work/task\${SLURM_ARRAY_TASK_ID-}"
exec "$stplan" "\$@"
SH
chmod +x "$work/bin/stplan"
export PATH="$work/bin:$PATH"
PYTHONPATH="$examples/../docs/results" PYTHONDONTWRITEBYTECODE=1 python3 - "$examples/llama7b-pp4-VR/llama7b-pp4-VR.pickle.gz" "$work/traces" <<'PYTHON'
import pathlib, sys, fleet
for i in range(12):
    fleet.make_one(sys.argv[1], pathlib.Path(sys.argv[2]) / f"job-rank{i:02}.pickle.gz", rank=0, seed=i + 1)
PYTHON

# The reference: one call.
stplan compile -q "$work/traces" -o "$work/one" >"$work/one.txt"

# The array, with fewer and smaller tasks than the script asks for. A task has one core, as it
# would on a cluster that binds tasks to cores, and makes one plan after the other.
export GOMAXPROCS=1
cd "$work"
job=$(sbatch --parsable --array=0-3 --cpus-per-task=1 --mem-per-cpu=0 \
    --export=ALL,TRACES="$work/traces",PLANS="$work/plans" "$here/compile.sbatch")
hold() { # INDEX PLAN: stops a task's stplan once that plan is there
    for _ in $(seq 6000); do # a minute
        [ ! -e "plans/$2" ] || break
        sleep 0.01
    done
    kill -STOP "$(<"task$1")" || fail "task $1 had ended before it could be stopped"
}
# Each has three recordings.
hold 1 job-rank01.bin &
first=$!
hold 2 job-rank02.bin &
second=$!
wait $first || fail "task 1 was not stopped"
wait $second || fail "task 2 was not stopped"
kept() { stat -c %n-%i-%Y plans/job-rank01.bin plans/job-rank02.bin; }
before=$(kept)
[ ! -e plans/job-rank09.bin ] || fail "task 1 had done all before it was stopped"
[ ! -e plans/job-rank10.bin ] || fail "task 2 had done all before it was stopped"
kill -KILL "$(<task1)"
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
export examples PLANS=served COUNTERS='{}'
export STAND_INS="$examples/../runtime/torch/tests/fake:$examples/../runtime/torch/tests/serving"
train() { # one rank
    PYTHONPATH="$PYTHONPATH:$STAND_INS" python3 -c 'import os, torch; print(os.environ["SLURMD_NODENAME"]); torch.empty(5)'
}
ranks() { for local in 0 1; do RANK=$((2 * SLURM_NODEID + local)) train || return; done; }
serve() { # COMMAND...
    export XDG_CACHE_HOME="$PWD/cache-$SLURMD_NODENAME"
    stplan run -q "$PLANS" -- "$@" 2>&1
}
export -f train ranks serve
on_two_nodes() { # COMMAND...: a node's, which starts two ranks
    srun --nodes=2 --ntasks-per-node=1 --mem=0 --label bash -c 'serve "$@"' bash "$@" >served.log || fail "srun: $(cat served.log)"
    for rank in 0 1 2 3; do
        [ "$(grep -c "^[01]: asked $rank: [^ ]*/job-rank$rank.bin " served.log)" = 1 ] || fail "rank $rank has another plan: $(cat served.log)"
    done
    for node in 0 1; do
        [ "$(grep -c "^$node: asked " served.log)" = 2 ] || fail "expected two ranks on node $node: $(cat served.log)"
    done
    [ "$(grep -o ' node[0-9]$' served.log | sort -u | wc -l)" = 2 ] || fail "expected two nodes: $(cat served.log)"
}
on_two_nodes bash -c ranks
echo "four ranks on two nodes are served by their own plans"
if command -v "${TORCHRUN:=torchrun}" >/dev/null; then # it numbers the nodes as they come
    on_two_nodes "$TORCHRUN" --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint "127.0.0.1:$(freePort)" \
        --no-python bash -c train
    echo "so are those that torchrun starts on two nodes"
else
    echo "there is no torchrun here (TORCHRUN names one): left out"
fi
if [ -x "${VERSITYGW-}" ]; then # keeps buckets as folders
    mkdir -p buckets/plans
    cp -r served buckets/plans/job
    export AWS_ACCESS_KEY_ID=AKIDEXAMPLE AWS_SECRET_ACCESS_KEY=a-secret-of-the-tests AWS_REGION=us-east-1
    port=$(freePort)
    "$VERSITYGW" --quiet --access $AWS_ACCESS_KEY_ID --secret $AWS_SECRET_ACCESS_KEY --port "127.0.0.1:$port" posix buckets &
    server=$!
    export AWS_ENDPOINT_URL=http://127.0.0.1:$port
    await 10 stplan inspect s3://plans/job/job-rank0.bin
    PLANS=s3://plans/job/ on_two_nodes bash -c ranks
    grep -q "served/" served.log && fail "the plans are not those of the bucket: $(cat served.log)"
    echo "so are those whose plans are in a bucket"
else
    echo "VERSITYGW names no S3 server: left out"
fi

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
