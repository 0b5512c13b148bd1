package store

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/stplan/stplan/internal/storetest"
)

// TestCopy: the server copies, also over another object, and the bytes stay with it.
func TestCopy(t *testing.T) {
	server := storetest.Start(t)
	s, data := quick(), bytesOf(5*blockSize+7)
	server.Put(t, "dir/from ü", data)
	server.Put(t, "to", []byte("another"))
	sent, received := server.Sent.Load(), server.Received.Load()
	demand(t, s.Copy(ctx, "s3://traces/dir/from ü", "s3://traces/to"))
	if n := server.Sent.Load() - sent + server.Received.Load() - received; n > blockSize {
		t.Errorf("%d B went over the network", n)
	}
	if !bytes.Equal(server.Get(t, "to"), data) {
		t.Error("another object")
	}
	wantError(t, s.Copy(ctx, "s3://traces/none", "s3://traces/to"), `s3://traces/none: cannot read: bucket "traces" has no such object`)
	wantError(t, s.Copy(ctx, "s3://traces/to", "https://example.com/x"), "https://example.com/x: cannot write: web addresses are only read")
	if !bytes.Equal(server.Get(t, "to"), data) {
		t.Error("a failed copy has changed what was there")
	}
}

// TestCopyRefused: if the server does not copy, or says so only behind a 200, the object is read
// and written.
func TestCopyRefused(t *testing.T) {
	server := storetest.Start(t)
	backend, err := url.Parse(server.URL)
	demand(t, err)
	data := bytesOf(blockSize + 1)
	server.Put(t, "from", data)
	for name, answer := range map[string]struct {
		code int
		body string
	}{
		"refused":  {http.StatusNotImplemented, ""},
		"late":     {http.StatusOK, "<Error><Code>InternalError</Code><Message>no</Message></Error>"},
		"no words": {http.StatusOK, ""},
	} {
		refused := 0
		pass := httputil.NewSingleHostReverseProxy(backend)
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Amz-Copy-Source") == "" {
				pass.ServeHTTP(w, r)
				return
			}
			refused++
			w.WriteHeader(answer.code)
			_, _ = w.Write([]byte(answer.body))
		}))
		t.Setenv("AWS_ENDPOINT_URL", front.URL)
		demand(t, quick().Copy(ctx, "s3://traces/from", "s3://traces/"+name))
		if refused == 0 || !bytes.Equal(server.Get(t, name), data) {
			t.Errorf("%s: asked %d times, another object", name, refused)
		}
		front.Close()
	}
}
