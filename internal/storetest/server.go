// Package storetest is what tests of stores run against: a server that speaks S3, behind a
// proxy that counts bytes and cuts connections.
package storetest

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/rclone/gofakes3"
	"github.com/rclone/gofakes3/s3mem"
)

// Key and Secret are the credentials that the server accepts.
const Key, Secret = "AKIDEXAMPLE", "a-secret-of-the-tests"

// Bucket is there at the start, without objects.
const Bucket = "traces"

// outside names a server that the tests use in place of the one in this process,
// HOST:PORT over http, with these Key and Secret ("make store-test").
const outside = "STPLAN_TEST_S3"

// Server is a server behind its proxy.
type Server struct {
	URL      string       // of the proxy, for AWS_ENDPOINT_URL
	Sent     atomic.Int64 // bytes from the server to clients
	Received atomic.Int64 // bytes from clients to the server

	client *minio.Core
	mu     sync.Mutex
	down   cut
	up     cut
}

// cut says when connections are cut in one direction.
type cut struct{ after, times int64 }

// Start starts a server and sets the environment to it.
func Start(t testing.TB) *Server {
	backend := os.Getenv(outside)
	if backend == "" {
		s := httptest.NewServer(gofakes3.New(s3mem.New(), gofakes3.WithV4Auth(map[string]string{Key: Secret})).Server())
		t.Cleanup(s.Close)
		backend = s.Listener.Addr().String()
	}
	core, err := minio.NewCore(backend, &minio.Options{Creds: credentials.NewStaticV4(Key, Secret, ""), Region: "us-east-1"})
	demand(t, err)
	s := &Server{client: core}
	s.URL = "http://" + s.Proxy(t, backend)
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL": s.URL, "AWS_ENDPOINT_URL_S3": "", "AWS_ACCESS_KEY_ID": Key, "AWS_SECRET_ACCESS_KEY": Secret, "AWS_SESSION_TOKEN": "",
		"AWS_REGION": "", "AWS_DEFAULT_REGION": "", "AWS_PROFILE": "", "AWS_SHARED_CREDENTIALS_FILE": t.TempDir() + "/none",
		"AWS_EC2_METADATA_DISABLED": "true", "NO_PROXY": "127.0.0.1",
	} {
		t.Setenv(name, value)
	}
	ctx := context.Background()
	exists, err := core.BucketExists(ctx, Bucket)
	demand(t, err)
	if !exists {
		demand(t, core.MakeBucket(ctx, Bucket, minio.MakeBucketOptions{}))
	}
	s.empty(t)
	t.Cleanup(func() { s.empty(t) })
	return s
}

func demand(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *Server) empty(t testing.TB) {
	for _, key := range s.Keys(t) {
		demand(t, s.client.RemoveObject(context.Background(), Bucket, key, minio.RemoveObjectOptions{}))
	}
}

// Put makes an object.
func (s *Server) Put(t testing.TB, key string, data []byte) {
	t.Helper()
	_, err := s.client.Client.PutObject(context.Background(), Bucket, key, bytes.NewReader(data), int64(len(data)), minio.PutObjectOptions{})
	demand(t, err)
}

// Get reads an object.
func (s *Server) Get(t testing.TB, key string) []byte {
	t.Helper()
	r, _, _, err := s.client.GetObject(context.Background(), Bucket, key, minio.GetObjectOptions{})
	demand(t, err)
	defer r.Close()
	data, err := io.ReadAll(r)
	demand(t, err)
	return data
}

// Keys are the keys of all objects, sorted.
func (s *Server) Keys(t testing.TB) []string {
	t.Helper()
	keys := s.keysOf(t, "")
	slices.Sort(keys)
	return keys
}

// keysOf goes down folder by folder: gofakes3 lists nothing for the empty delimiter with
// which the library asks for all keys at once.
func (s *Server) keysOf(t testing.TB, folder string) []string {
	t.Helper()
	var keys []string
	for o := range s.client.Client.ListObjects(context.Background(), Bucket, minio.ListObjectsOptions{Prefix: folder}) {
		demand(t, o.Err)
		if strings.HasSuffix(o.Key, "/") {
			keys = append(keys, s.keysOf(t, o.Key)...)
		} else {
			keys = append(keys, o.Key)
		}
	}
	return keys
}

// Unfinished is the number of multipart uploads that have begun and not ended.
func (s *Server) Unfinished(t testing.TB) int {
	t.Helper()
	r, err := s.client.ListMultipartUploads(context.Background(), Bucket, "", "", "", "", 1000)
	if minio.ToErrorResponse(err).Code == "NoSuchUpload" {
		return 0 // gofakes3's answer if there never was one
	}
	demand(t, err)
	return len(r.Uploads)
}

// CutDown cuts the next `times` connections, each once it has carried `after` bytes to the
// client; CutUp the same for bytes to the server.
func (s *Server) CutDown(after, times int64) { s.set(&s.down, cut{after, times}) }

// CutUp is like CutDown.
func (s *Server) CutUp(after, times int64) { s.set(&s.up, cut{after, times}) }

func (s *Server) set(which *cut, c cut) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*which = c
}

// over reports whether a connection that has carried n bytes is to be cut.
func (s *Server) over(which *cut, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if which.times == 0 || n < which.after {
		return false
	}
	which.times--
	return true
}

// Proxy listens before a server at HOST:PORT, and returns its own address.
func (s *Server) Proxy(t testing.TB, backend string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	demand(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				server, err := net.DialTimeout("tcp", backend, 10*time.Second)
				if err != nil {
					client.Close()
					return
				}
				go s.carry(server, client, &s.up, &s.Received)
				s.carry(client, server, &s.down, &s.Sent)
			}()
		}
	}()
	return l.Addr().String()
}

// carry copies in one direction until the connection ends or is cut.
func (s *Server) carry(to, from net.Conn, when *cut, count *atomic.Int64) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 4096)
	for total := int64(0); ; {
		n, err := from.Read(buf)
		count.Add(int64(n))
		total += int64(n)
		if s.over(when, total) {
			return
		}
		if _, bad := to.Write(buf[:n]); bad != nil || err != nil {
			return
		}
	}
}
