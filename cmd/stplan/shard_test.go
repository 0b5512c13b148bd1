package main

import (
	"strings"
	"testing"
)

func TestReadShard(t *testing.T) {
	slurm := map[string]string{
		"SLURM_ARRAY_TASK_ID": "13", "SLURM_ARRAY_TASK_MIN": "10", "SLURM_ARRAY_TASK_MAX": "17", "SLURM_ARRAY_TASK_COUNT": "8",
	}
	with := func(changes ...string) map[string]string {
		env := map[string]string{}
		for k, v := range slurm {
			env[k] = v
		}
		for i := 0; i < len(changes); i += 2 {
			env[changes[i]] = changes[i+1]
		}
		return env
	}
	kubernetes := map[string]string{"JOB_COMPLETION_INDEX": "5"}
	for _, c := range []struct {
		text string
		env  map[string]string
		want shard
		fail string
	}{
		{"0/8", nil, shard{0, 8}, ""},
		{"7/8", nil, shard{7, 8}, ""},
		{"7/8", slurm, shard{7, 8}, ""}, // what is said counts more than where it is said
		{"8/8", nil, shard{}, "expected an index from 0 to 7, found 8"},
		{"-1/8", nil, shard{}, "expected an index from 0 to 7, found -1"},
		{"0/0", nil, shard{}, "expected a count from 1"},
		{"1/99999999", nil, shard{}, "expected a count from 1"},
		{"x/8", nil, shard{}, "expected an index"},
		{"3", nil, shard{}, "expected INDEX/COUNT"},
		{"auto", nil, shard{}, "neither SLURM_ARRAY_TASK_ID nor JOB_COMPLETION_INDEX is set"},
		{"auto", slurm, shard{3, 8}, ""},
		{"auto/8", slurm, shard{3, 8}, ""},
		{"auto/3", slurm, shard{}, "expected an index from 0 to 2, found 3"},
		{"auto", with("SLURM_ARRAY_TASK_STEP", "2", "SLURM_ARRAY_TASK_ID", "14", "SLURM_ARRAY_TASK_MAX", "24"), shard{2, 8}, ""},
		{"auto", with("SLURM_ARRAY_TASK_COUNT", "5"), shard{}, "not 5 in even steps from 10 to 17"},
		{"auto", with("SLURM_ARRAY_TASK_COUNT", ""), shard{}, "expected a number in SLURM_ARRAY_TASK_COUNT"},
		{"auto", with("SLURM_ARRAY_TASK_MIN", "3", "SLURM_ARRAY_TASK_MAX", "3", "SLURM_ARRAY_TASK_ID", "3", "SLURM_ARRAY_TASK_COUNT", "1"), shard{0, 1}, ""},
		{"auto", kubernetes, shard{}, "the job's number of completions is not known"},
		{"auto/8", kubernetes, shard{5, 8}, ""},
		{"auto/5", kubernetes, shard{}, "expected an index from 0 to 4, found 5"},
	} {
		got, err := readShard(c.text, func(name string) string { return c.env[name] })
		switch {
		case c.fail == "" && (err != nil || got != c.want):
			t.Errorf("%s in %v: %+v, %v, expected %+v", c.text, c.env, got, err, c.want)
		case c.fail != "" && (err == nil || !strings.Contains(err.Error(), c.fail)):
			t.Errorf("%s in %v: %+v, %v, expected an error with %q", c.text, c.env, got, err, c.fail)
		}
	}
}

// Every element is in one shard, and no shard has two elements more than another.
func TestShardsCover(t *testing.T) {
	all := strings.Split("abcdefghijklmnopqrstuvw", "")
	for of := 1; of <= len(all)+2; of++ {
		times := map[string]int{}
		for i := range of {
			part := shard{i, of}.take(all)
			if n := len(part); n < len(all)/of || n > len(all)/of+1 {
				t.Errorf("shard %d of %d has %d of %d elements", i, of, n, len(all))
			}
			for _, e := range part {
				times[e]++
			}
		}
		for _, e := range all {
			if times[e] != 1 {
				t.Errorf("%d shards: %s is in %d of them", of, e, times[e])
			}
		}
	}
}
