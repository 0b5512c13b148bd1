package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stplan/stplan/internal/storetest"
)

var ctx = context.Background()

// bytesOf is reproducible noise.
func bytesOf(n int) []byte {
	data := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(data) // it cannot fail
	return data
}

func demand(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// quick is a store that does not wait long.
func quick() *Store {
	s := New()
	s.unit, s.stall = time.Millisecond, 2*time.Second
	return s
}

func readAll(t *testing.T, s *Store, path string) ([]byte, error) {
	t.Helper()
	r, err := s.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

func statError(s *Store, path string) error {
	_, err := s.Stat(ctx, path)
	return err
}

func write(s *Store, path string, data []byte) error {
	return s.Write(ctx, path, func(w io.Writer) error { _, err := w.Write(data); return err })
}

// TestWriteAndRead: what is written is read back, by one request and by parts.
func TestWriteAndRead(t *testing.T) {
	server := storetest.Start(t)
	for _, n := range []int{0, 1, blockSize - 1, blockSize, blockSize + 1, partSize, partSize + 1, 2*partSize + 12345} {
		s, key := quick(), fmt.Sprintf("dir/of %d ü.bin", n)
		path := "s3://" + storetest.Bucket + "/" + key
		demand(t, s.Demand(ctx, path))
		if keys := server.Keys(t); slices.Contains(keys, key) {
			t.Fatalf("proving that %s can be written has made it", path)
		}
		data := bytesOf(n)
		demand(t, write(s, path, data))
		info, err := s.Stat(ctx, path)
		if err != nil || info.Size != int64(n) || n > 0 && info.Version == "" {
			t.Errorf("%d B: %+v, %v", n, info, err)
		}
		got, err := readAll(t, s, path)
		demand(t, err)
		if !slices.Contains(server.Keys(t), key) {
			t.Errorf("no object %s", key)
		}
		if !bytes.Equal(got, data) {
			t.Errorf("%d B were written, and %d others read", n, len(got))
		}
	}
	if n := server.Unfinished(t); n != 0 {
		t.Errorf("%d unfinished uploads", n)
	}
}

// TestOnlyPartsAreRead: reading ends of a large object asks for the blocks that they lie in,
// once.
func TestOnlyPartsAreRead(t *testing.T) {
	server := storetest.Start(t)
	data := bytesOf(40 * blockSize)
	server.Put(t, "large", data)
	r, err := quick().Open(ctx, "s3://"+storetest.Bucket+"/large")
	demand(t, err)
	defer r.Close()
	o := r.(*Object)
	var all sync.WaitGroup
	for range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			for _, off := range []int64{0, 10, 39*blockSize + 5, 20*blockSize - 50} {
				got := make([]byte, 100)
				if _, err := o.ReadAt(got, off); err != nil || !bytes.Equal(got, data[off:off+100]) {
					t.Errorf("byte %d: other bytes, or %v", off, err)
				}
			}
		}()
	}
	all.Wait()
	got := make([]byte, 100)
	if n, err := o.ReadAt(got, o.Size()-30); n != 30 || !errors.Is(err, io.EOF) || !bytes.Equal(got[:30], data[len(data)-30:]) {
		t.Errorf("the last 30 B: %d B, %v", n, err)
	}
	if sent := server.Sent.Load(); sent < 4*blockSize || sent > 4*blockSize+10_000 {
		t.Errorf("%d B were sent, expected 4 blocks of %d and headers", sent, blockSize)
	}
}

// TestCutWhileReading: a connection that is cut is taken up again at the byte that it reached.
func TestCutWhileReading(t *testing.T) {
	server := storetest.Start(t)
	data := bytesOf(6 * blockSize)
	server.Put(t, "cut", data)
	path := "s3://" + storetest.Bucket + "/cut"

	server.CutDown(700_000, 12)
	got, err := readAll(t, quick(), path)
	demand(t, err)
	if !bytes.Equal(got, data) {
		t.Error("other bytes after cuts")
	}
	if sent := server.Sent.Load(); sent > int64(len(data))+500_000 {
		t.Errorf("%d B were sent for %d: the beginning was sent again", sent, len(data))
	}

	// A server that sends no byte more is given up.
	r, err := quick().Open(ctx, path)
	demand(t, err)
	defer r.Close()
	server.CutDown(0, 1<<30)
	_, err = io.ReadAll(r)
	if err == nil || !strings.Contains(err.Error(), "at byte 1048576 of 6291456: ") {
		t.Errorf("%v, expected where it was cut", err)
	}
}

// TestChangedWhileReading: parts of two versions are not mixed.
func TestChangedWhileReading(t *testing.T) {
	server := storetest.Start(t)
	server.Put(t, "new", bytesOf(3*blockSize))
	r, err := quick().Open(ctx, "s3://"+storetest.Bucket+"/new")
	demand(t, err)
	defer r.Close()
	server.Put(t, "new", make([]byte, 3*blockSize))
	if _, err := io.ReadAll(r); err == nil || !strings.Contains(err.Error(), errChanged.Error()) {
		t.Errorf("%v, expected %v", err, errChanged)
	}
}

// TestCutWhileWriting: uploads are tried again, and if that does not help leave nothing, or
// what was there.
func TestCutWhileWriting(t *testing.T) {
	server := storetest.Start(t)
	for _, n := range []int{2 * blockSize, 2*partSize + 1000} {
		key := fmt.Sprint(n)
		path, data := "s3://"+storetest.Bucket+"/"+key, bytesOf(n)
		server.CutUp(300_000, 1<<30)
		if err := write(quick(), path, data); err == nil || !strings.Contains(err.Error(), path+": cannot write: ") {
			t.Errorf("%v, expected that %s cannot be written", err, path)
		}
		server.CutUp(0, 0)
		if keys := server.Keys(t); slices.Contains(keys, key) {
			t.Errorf("an upload that failed has made %s", key)
		}
		if n := server.Unfinished(t); n != 0 {
			t.Errorf("%d unfinished uploads", n)
		}
		server.CutUp(300_000, 2)
		demand(t, write(quick(), path, data))
		if !bytes.Equal(server.Get(t, key), data) {
			t.Error("other bytes after cuts")
		}
		server.CutUp(300_000, 1<<30)
		if write(quick(), path, make([]byte, n)) == nil {
			t.Error("no error")
		}
		server.CutUp(0, 0)
		if !bytes.Equal(server.Get(t, key), data) {
			t.Error("an upload that failed has replaced an object")
		}
	}
}

// TestInterruptedWrite: parts are removed although the context has ended, and content that
// fails sends nothing.
func TestInterruptedWrite(t *testing.T) {
	server := storetest.Start(t)
	path := "s3://" + storetest.Bucket + "/never"
	ending, end := context.WithCancel(ctx)
	go func() {
		for server.Received.Load() < partSize {
			time.Sleep(time.Millisecond)
		}
		end()
	}()
	err := quick().Write(ending, path, func(w io.Writer) error { _, err := w.Write(bytesOf(8 * partSize)); return err })
	if err == nil {
		t.Error("no error")
	}
	before := server.Received.Load()
	bad := errors.New("bad content")
	if err := quick().Write(ctx, path, func(w io.Writer) error { _, _ = w.Write([]byte("half")); return bad }); !errors.Is(err, bad) {
		t.Errorf("%v, expected %v", err, bad)
	}
	if after := server.Received.Load(); after != before {
		t.Errorf("%d B were sent of content that failed", after-before)
	}
	if keys, n := server.Keys(t), server.Unfinished(t); len(keys) != 0 || n != 0 {
		t.Errorf("it left %v and %d unfinished uploads", keys, n)
	}
}

// TestErrors: messages name the object, what was expected and what was found.
func TestErrors(t *testing.T) {
	server := storetest.Start(t)
	server.Put(t, "there", []byte("x"))
	at := server.URL
	t.Run("absent", func(t *testing.T) {
		s := quick()
		wantError(t, statError(s, "s3://traces/none"), `s3://traces/none: cannot read: bucket "traces" has no such object`)
		wantError(t, statError(s, "s3://nobucket/none"), "s3://nobucket/none: cannot read: "+at+` has no bucket "nobucket"`)
		wantError(t, s.Demand(ctx, "s3://nobucket/none"), "s3://nobucket/none: cannot write: "+at+` has no bucket "nobucket"`)
		wantError(t, statError(s, "s3://traces"), "s3://traces: cannot read: this names a bucket, expected s3://BUCKET/KEY")
		wantError(t, s.Demand(ctx, "s3://traces/dir/"), "s3://traces/dir/: cannot write: this names a folder, expected s3://BUCKET/KEY")
		wantError(t, s.Demand(ctx, "https://user:secret@example.com/x?sig=secret"), "https://example.com/x: cannot write: web addresses are only read; expected a file or s3://BUCKET/KEY")
		wantError(t, statError(s, "az://c/b"), "az://c/b: az:// is not supported; expected a file, s3://, or to read https:// or http://")
		wantError(t, statError(s, "gs://b/k"), "gs://b/k: gs:// is not supported; expected a file, s3://, or to read https:// or http://. "+hints["gs"])
	})
	t.Run("no credentials", func(t *testing.T) {
		t.Setenv("AWS_ACCESS_KEY_ID", "")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "")
		wantError(t, statError(quick(), "s3://traces/there"), "s3://traces/there: cannot read: "+at+" denies it to a request without credentials (",
			"None were found: the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY): none; "+os.Getenv("AWS_SHARED_CREDENTIALS_FILE")+" (profile default): ")
	})
	t.Run("wrong secret", func(t *testing.T) {
		t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong")
		wantError(t, statError(quick(), "s3://traces/there"), "s3://traces/there: cannot read: "+at+" denies it to the credentials from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) (SignatureDoesNotMatch")
	})
	t.Run("shared file", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "credentials")
		demand(t, os.WriteFile(file, []byte("[team]\naws_access_key_id = "+storetest.Key+"\naws_secret_access_key = "+storetest.Secret+"\n"), 0o600))
		for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_SHARED_CREDENTIALS_FILE": file, "AWS_PROFILE": "team"} {
			t.Setenv(name, value)
		}
		demand(t, statError(quick(), "s3://traces/there"))
	})
	t.Run("endpoint", func(t *testing.T) {
		t.Setenv("AWS_ENDPOINT_URL_S3", "minio:9000")
		wantError(t, statError(quick(), "s3://traces/there"), `s3://traces/there: cannot read: AWS_ENDPOINT_URL_S3: expected http://HOST[:PORT] or https://HOST[:PORT], found "minio:9000"`)
		t.Setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
		wantError(t, statError(quick(), "s3://traces/there"), "s3://traces/there: cannot read: http://127.0.0.1:1 does not answer: dial tcp 127.0.0.1:1: ")
	})
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v\nexpected %s", err, part)
		}
	}
}

// TestList: objects of a folder, not of those in it.
func TestList(t *testing.T) {
	server := storetest.Start(t)
	for _, key := range []string{"a/2.bin", "a/10.bin", "a/deep/3.bin", "ab/4.bin", "a.bin"} {
		server.Put(t, key, []byte("x"))
	}
	for folder, want := range map[string][]string{
		"s3://traces/a/":  {"s3://traces/a/10.bin", "s3://traces/a/2.bin"},
		"s3://traces":     {"s3://traces/a.bin"},
		"s3://traces/no/": nil,
	} {
		got, err := quick().List(ctx, folder)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v; expected %v", folder, got, err, want)
		}
	}
	_, err := quick().List(ctx, "s3://traces/a")
	wantError(t, err, "s3://traces/a: cannot list: expected s3://BUCKET/FOLDER/")
}

// TestWeb reads from a web server: by ranges, without, after failures, and refused.
func TestWeb(t *testing.T) {
	data := bytesOf(3*blockSize + 7)
	failures := 2
	mux := http.NewServeMux()
	mux.HandleFunc("/ranges", func(w http.ResponseWriter, r *http.Request) {
		if failures > 0 {
			failures--
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	})
	mux.HandleFunc("/whole", func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(data) })
	mux.HandleFunc("/silent", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "10")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/empty", func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(nil))
	})
	mux.HandleFunc("/denied", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusForbidden) })
	mux.HandleFunc("/broken", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	mux.HandleFunc("/lying", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Range", "bytes 0-0/9223372036854775807")
		w.WriteHeader(http.StatusPartialContent)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	mux.HandleFunc("/dated", func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Unix(1e9, 0), bytes.NewReader(data))
	})
	for path, want := range map[string]Info{
		"/ranges": {int64(len(data)), `"v1"`}, "/dated": {int64(len(data)), "Sun, 09 Sep 2001 01:46:40 GMT"}, "/whole": {-1, ""},
	} {
		if got, err := quick().Stat(ctx, server.URL+path); err != nil || got != want {
			t.Errorf("%s: %+v, %v; expected %+v", path, got, err, want)
		}
	}
	for path, want := range map[string][]byte{"/ranges": data, "/whole": data, "/empty": nil} {
		got, err := readAll(t, quick(), server.URL+path)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d B, %v; expected %d", path, len(got), err, len(want))
		}
	}
	r, err := quick().Open(ctx, server.URL+"/ranges")
	demand(t, err)
	defer r.Close()
	tail := make([]byte, 7)
	if _, err := r.(*Object).ReadAt(tail, 3*blockSize); err != nil || !bytes.Equal(tail, data[3*blockSize:]) {
		t.Errorf("the last 7 B: %v", err)
	}
	s := quick()
	s.stall = 50 * time.Millisecond
	_, err = readAll(t, s, server.URL+"/silent")
	wantError(t, err, "no byte came for 50ms")
	for path, want := range map[string]string{
		"/denied?signature=secret": server.URL + "/denied: cannot read: the server denies it (403 Forbidden)",
		"/none":                    server.URL + "/none: cannot read: the server has no such file (404 Not Found)",
		"/broken":                  server.URL + "/broken: cannot read: the server answers 502 Bad Gateway, also after 5 tries",
		"/lying":                   server.URL + "/lying: cannot read: the server says that it has 9223372036854775807 B, expected at most 5497558138880",
	} {
		wantError(t, statError(quick(), server.URL+path), want)
	}
}

// TestPaths: which paths are of a store, and how they are named.
func TestPaths(t *testing.T) {
	for path, want := range map[string]bool{
		"s3://b/k": true, "gs://b": true, "HTTPS://h/p": true, "run.bin": false, "-": false, "./s3://b": false, "a b://c": false, "://x": false, "C:\\x": false,
	} {
		if Is(path) != want {
			t.Errorf("Is(%q) is %v", path, !want)
		}
	}
	for path, want := range map[string]bool{"s3://b": true, "S3://b/k": true, "s3://": false, "https://h/d": false, "dir": false, "gs://b/k": false} {
		if IsBucket(path) != want {
			t.Errorf("IsBucket(%q) is %v", path, !want)
		}
	}
	for path, want := range map[string]bool{"s3://b": true, "s3://b/": true, "s3://b/d/": true, "s3://b/d": false, "https://h/d/": false, "dir/": false} {
		if IsFolder(path) != want {
			t.Errorf("IsFolder(%q) is %v", path, !want)
		}
	}
	for _, c := range [][3]string{{"s3://b", "n", "s3://b/n"}, {"s3://b/d/", "n", "s3://b/d/n"}} {
		if got := Join(c[0], c[1]); got != c[2] {
			t.Errorf("%s, expected %s", got, c[2])
		}
	}
}
