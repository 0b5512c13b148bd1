package store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// web is what reads https and http addresses.
type web struct {
	once   sync.Once
	client *http.Client
}

func (w *web) do(req *http.Request) (*http.Response, error) {
	w.once.Do(func() {
		w.client = &http.Client{Transport: transport(), CheckRedirect: func(req *http.Request, via []*http.Request) error {
			switch {
			case len(via) >= 10:
				return errors.New("10 redirections")
			case via[0].URL.Scheme == "https" && req.URL.Scheme != "https":
				return fmt.Errorf("it redirects to %s without encryption", Name(req.URL.String()))
			}
			return nil
		}}
	})
	return w.client.Do(req)
}

// transport makes connections that give up. A proxy is taken from the environment
// (HTTPS_PROXY, HTTP_PROXY, NO_PROXY).
func transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = time.Minute // a gateway may assemble an object first
	t.DisableCompression = true           // ranges are of the bytes that are stored
	t.MaxIdleConnsPerHost = 16            // row groups are read on all cores
	return t
}

// webSource is an object at an https or http address.
type webSource struct {
	web  *web
	url  string
	unit time.Duration
}

func (w *webSource) get(ctx context.Context, from, to int64, etag string) (*part, error) {
	for failures := 1; ; failures++ {
		p, err := w.try(ctx, from, to, etag)
		var again passing
		if !errors.As(err, &again) || failures == retries || ctx.Err() != nil {
			if err != nil && again.error != nil {
				err = &Unavailable{again.error} // tried often enough
			}
			return p, err
		}
		pause(ctx, w.unit, failures)
	}
}

func (w *webSource) try(ctx context.Context, from, to int64, etag string) (*part, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "stplan")
	req.Header.Set("Range", byteRange(from, to))
	if etag != "" {
		req.Header.Set("If-Match", etag)
	}
	resp, err := w.web.do(req)
	if err != nil {
		var failed *url.Error // has the address, with what may be secret in it
		if errors.As(err, &failed) {
			err = failed.Err
		}
		return nil, passing{err}
	}
	p, err := answered(resp, from)
	if err != nil {
		resp.Body.Close()
	}
	return p, err
}

// answered says what an answer to a request for a range from "from" on has.
func answered(resp *http.Response, from int64) (*part, error) {
	p := &part{body: resp.Body, size: resp.ContentLength, since: resp.Header.Get("Last-Modified")}
	if tag := resp.Header.Get("ETag"); !strings.HasPrefix(tag, "W/") {
		p.etag = tag
	}
	switch code := resp.StatusCode; {
	case code == http.StatusOK:
		return p, nil
	case code == http.StatusPartialContent:
		p.ranged = true
		var err error
		p.size, err = sizeOf(resp.Header.Get("Content-Range"), from)
		return p, err
	case code == http.StatusRequestedRangeNotSatisfiable && from == 0:
		resp.Body.Close()
		return &part{body: http.NoBody, ranged: true}, nil // it has no bytes at all
	case code == http.StatusPreconditionFailed:
		return nil, errChanged
	case code == http.StatusNotFound || code == http.StatusGone:
		return nil, fmt.Errorf("the server has no such file (%s)", resp.Status)
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return nil, fmt.Errorf("the server denies it (%s)", resp.Status)
	case mayPass(code):
		return nil, passing{fmt.Errorf("the server answers %s, also after %d tries", resp.Status, retries)}
	}
	return nil, fmt.Errorf("the server answers %s, expected 200 or 206", resp.Status)
}

// mayPass says whether a status is of the server, which has too much to do or a fault.
func mayPass(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusRequestTimeout || status >= 500
}

// errChanged is of a version that is gone. Another try reads the next one.
var errChanged = &Unavailable{errors.New("it has changed since reading it began")}

// byteRange asks for the bytes from "from" up to before "to".
func byteRange(from, to int64) string { return fmt.Sprintf("bytes=%d-%d", from, to-1) }

// sizeOf is the size in a header as "bytes 0-9/100", which has to begin at from.
func sizeOf(contentRange string, from int64) (int64, error) {
	span, size, _ := strings.Cut(strings.TrimPrefix(contentRange, "bytes "), "/")
	first, _, _ := strings.Cut(span, "-")
	at, errAt := strconv.ParseInt(first, 10, 64)
	n, errSize := strconv.ParseInt(size, 10, 64)
	if errAt != nil || errSize != nil || at != from {
		return 0, fmt.Errorf("the server answers with the range %q, expected one from byte %d on, with the size", contentRange, from)
	}
	return n, nil
}
