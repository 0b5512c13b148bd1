package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// shard is one of several parts of a list: elements index, index+of, index+2·of and so on.
type shard struct {
	index, of int // of is 0 for all of the list
}

// take is the part of a list.
func (s shard) take(all []string) []string {
	var part []string
	for i := s.index; i < len(all); i += s.of {
		part = append(part, all[i])
	}
	return part
}

// mostShards bounds the number of shards: above what any scheduler starts as one job.
const mostShards = 1 << 20

// readShard reads --shard: "2/8", "auto", or "auto/8", which is the index from the
// environment and the number given.
func readShard(text string, env func(string) string) (shard, error) {
	fail := func(problem string) (shard, error) {
		return shard{}, &hinted{fmt.Errorf("--shard %q: %s", text, problem), `"--shard 0/8" to "--shard 7/8" are eight parts; "--shard auto" in a Slurm array, "--shard auto/8" in a Kubernetes Indexed Job`}
	}
	index, of, two := strings.Cut(text, "/")
	if index == "auto" && !two {
		return arrayShard(env)
	}
	if !two {
		return fail("expected INDEX/COUNT, auto or auto/COUNT")
	}
	n, err := strconv.Atoi(of)
	if err != nil || n < 1 || n > mostShards {
		return fail(fmt.Sprintf("expected a count from 1 to %d", mostShards))
	}
	i := 0
	if index == "auto" {
		if i, err = taskIndex(env); err != nil {
			return shard{}, err
		}
	} else if i, err = strconv.Atoi(index); err != nil {
		return fail("expected an index")
	}
	if i < 0 || i >= n {
		return fail(fmt.Sprintf("expected an index from 0 to %d, found %d", n-1, i))
	}
	return shard{i, n}, nil
}

// arrayShard is the shard that a task of a Slurm array is. A Kubernetes job does not tell its
// processes how many they are.
func arrayShard(env func(string) string) (shard, error) {
	if env("SLURM_ARRAY_TASK_ID") == "" {
		if env("JOB_COMPLETION_INDEX") != "" {
			return shard{}, &hinted{errors.New("--shard auto: JOB_COMPLETION_INDEX is set, but the job's number of completions is not known"), "--shard auto/COUNT, with the job's .spec.completions"}
		}
		return shard{}, &hinted{errors.New("--shard auto: neither SLURM_ARRAY_TASK_ID nor JOB_COMPLETION_INDEX is set"), "--shard INDEX/COUNT"}
	}
	count, err := envNumber(env, "SLURM_ARRAY_TASK_COUNT")
	if err != nil {
		return shard{}, err
	}
	index, err := taskIndex(env)
	if err != nil {
		return shard{}, err
	}
	if count < 1 || count > mostShards || index < 0 || index >= count {
		return shard{}, &hinted{fmt.Errorf("--shard auto: task %s is not one of %d in even steps from SLURM_ARRAY_TASK_MIN", env("SLURM_ARRAY_TASK_ID"), count), "--shard INDEX/COUNT"}
	}
	return shard{index, count}, nil
}

// taskIndex is the index of this process among those of its job, from 0.
func taskIndex(env func(string) string) (int, error) {
	if env("SLURM_ARRAY_TASK_ID") == "" {
		return envNumber(env, "JOB_COMPLETION_INDEX")
	}
	id, err := envNumber(env, "SLURM_ARRAY_TASK_ID")
	if err != nil {
		return 0, err
	}
	first, err := envNumber(env, "SLURM_ARRAY_TASK_MIN")
	if err != nil {
		return 0, err
	}
	step := 1
	if env("SLURM_ARRAY_TASK_STEP") != "" {
		if step, err = envNumber(env, "SLURM_ARRAY_TASK_STEP"); err != nil {
			return 0, err
		}
	}
	last, err := envNumber(env, "SLURM_ARRAY_TASK_MAX")
	if err != nil {
		return 0, err
	}
	count, err := envNumber(env, "SLURM_ARRAY_TASK_COUNT")
	if err != nil {
		return 0, err
	}
	// An array such as 1,5,9-12 leaves out numbers: which shard a task is cannot be told.
	if step < 1 || (id-first)%step != 0 || (last-first)/step+1 != count {
		return 0, &hinted{fmt.Errorf("--shard auto: the array's tasks are not %d in even steps from %d to %d", count, first, last), "--shard INDEX/COUNT, or a plain array such as 0-7"}
	}
	return (id - first) / step, nil
}

func envNumber(env func(string) string, name string) (int, error) {
	n, err := strconv.Atoi(env(name))
	if err != nil || n < 0 {
		return 0, fmt.Errorf("--shard auto: expected a number in %s, found %q", name, env(name))
	}
	return n, nil
}

// noteUnsharded says that every task of an array does all of the work, which may be meant.
// Taking a part without being asked to would leave recordings out that a task has for itself.
func (a *app) noteUnsharded(recordings int) {
	for _, name := range []string{"SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX"} {
		if os.Getenv(name) != "" && recordings > 1 {
			a.note("%s is set, and this task compiles all %d recordings; --shard auto divides them among the tasks", name, recordings)
			return
		}
	}
}
