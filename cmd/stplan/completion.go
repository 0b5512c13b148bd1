package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stplan/stplan/internal/planfile"
)

// Suffixes of files that commands read, for completion.
var (
	traceSuffixes = []string{"pickle", "pkl", "parquet", "history", "gz", "zst"}
	planSuffixes  = []string{"bin"}
)

// flagValues are the values of flags that take few, by command.
var flagValues = map[string]map[string][]string{
	"compile": {"mode": {"auto", planfile.ModePeriodic.String(), planfile.ModeRecorded.String()}},
	"record":  {"stacks": stackModes},
	"replay":  {"move": moveKinds},
	"run":     {"memory": memoryKinds, "move": moveKinds},
}

// flagSuffixes are the files that flags name, by flag.
var flagSuffixes = map[string][]string{
	"trace": traceSuffixes, "base": traceSuffixes, "plan": planSuffixes,
	"svg": {"svg"}, "png": {"png"}, "summary": {"json"}, "junit": {"xml"}, "addresses": {"csv"}, "folded": {"folded"},
}

// argumentSuffixes are the files that arguments name, by what the usage calls them.
var argumentSuffixes = map[string][]string{
	"TRACE": traceSuffixes, "TRACE...": traceSuffixes, "SNAPSHOT...": traceSuffixes, "PLAN.bin": planSuffixes, "INSTANCE.csv": {"csv"},
}

// allocatorSettings are the keys of --config and --recorded-config, with values that are
// often tried.
var allocatorSettings = []string{
	"expandable_segments:True", "garbage_collection_threshold:0.8", "max_split_size_mb:512", "roundup_power2_divisions:8",
	"large_segment_size_mb:20", "max_non_split_rounding_mb:20", "per_process_memory_fraction:0.9", "device_memory:80GiB", "usable_memory:79GiB",
}

// gpuMemory are the memory sizes of GPUs in use, for --device-memory.
var gpuMemory = []string{"16GiB", "24GiB", "40GiB", "48GiB", "80GiB", "94GiB", "141GiB"}

// demandCompletions has every command complete its arguments and its flags' values.
func demandCompletions(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		for flag, values := range flagValues[cmd.Name()] {
			completeValues(cmd, flag, values, cobra.ShellCompDirectiveNoFileComp)
		}
		for flag, suffixes := range flagSuffixes {
			completeValues(cmd, flag, suffixes, cobra.ShellCompDirectiveFilterFileExt)
		}
		completeValues(cmd, "device-memory", gpuMemory, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveKeepOrder)
		for _, flag := range []string{"config", "recorded-config"} {
			completeValues(cmd, flag, allocatorSettings, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace)
		}
		if wanted := arguments(cmd.Use); len(wanted) > 0 && cmd.ValidArgsFunction == nil {
			cmd.ValidArgsFunction = completeFiles(wanted)
		}
	}
}

// completeFiles completes arguments by the suffixes that the usage asks for; the last goes
// for those that follow. Behind "--" a job's own command line begins; cobra adds one at the
// end.
func completeFiles(wanted []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
		if dash := cmd.ArgsLenAtDash(); dash >= 0 && dash < len(given) {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return argumentSuffixes[wanted[min(len(given), len(wanted)-1)]], cobra.ShellCompDirectiveFilterFileExt
	}
}

// completeValues completes a flag, if the command has it.
func completeValues(cmd *cobra.Command, flag string, values []string, directive cobra.ShellCompDirective) {
	if cmd.Flags().Lookup(flag) == nil {
		return
	}
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, directive)) // it fails for unknown flags
}

// completeList completes a list with commas by the values that it does not have yet. A shell
// compares the whole word, so each begins with what was typed.
func completeList(values []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		given := typed[:strings.LastIndexByte(typed, ',')+1]
		var out []string
		for _, v := range values {
			if !slices.Contains(strings.Split(given, ","), v) {
				out = append(out, given+v)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// arguments are the files that a usage line begins with, such as PLAN.bin and TRACE. A flag
// or a bracket ends them.
func arguments(use string) []string {
	var out []string
	for _, word := range strings.Fields(use)[1:] {
		word = strings.TrimPrefix(word, "[")
		if argumentSuffixes[word] == nil {
			break
		}
		out = append(out, word)
	}
	return out
}
