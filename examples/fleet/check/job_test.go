// Package check holds ../indexed-job.yaml to the API's types and to what stplan's exit codes
// mean, and runs its command:
//
//	cd examples/fleet/check && STPLAN=/usr/local/bin/stplan go test ./...
//
// The API server has more rules, which need a cluster to ask.
package check

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func readJob(t *testing.T) *batch.Job {
	t.Helper()
	text, err := os.ReadFile("../indexed-job.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var job batch.Job
	if err := yaml.UnmarshalStrict(text, &job); err != nil { // unknown and repeated fields, other types
		t.Fatal(err)
	}
	return &job
}

// TestJob: the fields are those of batch/v1, and what the API demands of them together holds.
func TestJob(t *testing.T) {
	job := readJob(t)
	spec := job.Spec
	if job.APIVersion != "batch/v1" || job.Kind != "Job" || job.Name == "" {
		t.Errorf("%s %s %q", job.APIVersion, job.Kind, job.Name)
	}
	if spec.CompletionMode == nil || *spec.CompletionMode != batch.IndexedCompletion || spec.Completions == nil {
		t.Fatal("expected an Indexed Job with completions")
	}
	if spec.BackoffLimitPerIndex == nil || spec.MaxFailedIndexes == nil || *spec.MaxFailedIndexes > *spec.Completions {
		t.Error("expected backoffLimitPerIndex, and maxFailedIndexes of at most the completions")
	}
	pod := spec.Template.Spec
	if pod.RestartPolicy != core.RestartPolicyNever || len(pod.Containers) != 1 {
		t.Fatal("podFailurePolicy demands restartPolicy Never, and the test one container")
	}
	c := pod.Containers[0]
	mounts := map[string]bool{}
	for _, v := range pod.Volumes {
		mounts[v.Name] = true
	}
	for _, m := range c.VolumeMounts {
		if !mounts[m.Name] {
			t.Errorf("no volume %s", m.Name)
		}
	}
	if shard := fmt.Sprintf("auto/%d", *spec.Completions); !slices.Contains(c.Command, shard) {
		t.Errorf("the command %v lacks %s, the number of completions", c.Command, shard)
	}
	if spec.PodFailurePolicy == nil {
		t.Fatal("no podFailurePolicy")
	}
	known := []batch.PodFailurePolicyAction{batch.PodFailurePolicyActionIgnore, batch.PodFailurePolicyActionFailIndex, batch.PodFailurePolicyActionFailJob, batch.PodFailurePolicyActionCount}
	var final []int32
	for i, rule := range spec.PodFailurePolicy.Rules {
		if !slices.Contains(known, rule.Action) || (rule.OnExitCodes == nil) == (rule.OnPodConditions == nil) {
			t.Errorf("rule %d: action %q, expected a known one with exit codes or conditions", i, rule.Action)
		}
		if e := rule.OnExitCodes; e != nil {
			if e.Operator != batch.PodFailurePolicyOnExitCodesOpIn || e.ContainerName == nil || *e.ContainerName != c.Name || !slices.IsSorted(e.Values) {
				t.Errorf("rule %d: %+v, expected sorted codes of %s", i, e, c.Name)
			}
			final = append(final, e.Values...)
		}
	}
	if !slices.Equal(final, []int32{1, 3}) {
		t.Errorf("codes %v end a shard, expected 1 and 3, which another try ends with as well", final)
	}
}

// TestCommand runs the container's command for each index, as it stands, in a root folder that
// has stplan, the two volumes and nothing else. One recording is corrupt: its shard alone ends with
// a code that is not tried again.
func TestCommand(t *testing.T) {
	stplan := os.Getenv("STPLAN")
	if stplan == "" {
		t.Skip("STPLAN does not name the command")
	}
	job := readJob(t)
	root := t.TempDir()
	install(t, stplan, root)
	const bad = 5
	for i := range int(*job.Spec.Completions) {
		from := "../../resnet50/resnet50.pickle.gz"
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if i == bad {
			data = data[:len(data)/2]
		}
		write(t, filepath.Join(root, fmt.Sprintf("traces/job-rank%d.pickle.gz", i)), data)
	}
	argv := job.Spec.Template.Spec.Containers[0].Command
	for i := range int(*job.Spec.Completions) {
		cmd := exec.Cmd{
			Path: "/usr/bin/" + argv[0], Args: argv, Dir: "/",
			Env: []string{"PATH=/usr/bin", fmt.Sprintf("JOB_COMPLETION_INDEX=%d", i)},
			SysProcAttr: &syscall.SysProcAttr{Chroot: root, Cloneflags: syscall.CLONE_NEWUSER,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}},
		}
		out, err := cmd.CombinedOutput()
		want := 0
		if i == bad {
			want = 1
		}
		if code := cmd.ProcessState.ExitCode(); code != want {
			t.Errorf("index %d: exit code %d, %v, expected %d\n%s", i, code, err, want, out)
		}
	}
	plans, err := filepath.Glob(root + "/plans/*.bin")
	if err != nil || len(plans) != int(*job.Spec.Completions)-1 {
		t.Errorf("plans %v, %v", plans, err)
	}
}

// install puts a program and the libraries that it names into a root folder.
func install(t *testing.T, program, root string) {
	t.Helper()
	files := map[string]string{program: "/usr/bin/stplan"}
	out, err := exec.Command("ldd", program).CombinedOutput()
	if err != nil && !strings.Contains(string(out), "not a dynamic executable") {
		t.Fatalf("ldd: %v\n%s", err, out)
	}
	for _, lib := range regexp.MustCompile(`/\S+\.so\S*`).FindAllString(string(out), -1) {
		files[lib] = lib
	}
	for from, to := range files {
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(root, to), data)
	}
	for _, dir := range []string{"traces", "plans", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o777); err != nil {
			t.Fatal(err)
		}
	}
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o777); err != nil {
		t.Fatal(err)
	}
}
