package store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// buckets is the connection to what speaks S3. There is one for all buckets.
type buckets struct {
	once  sync.Once
	err   error
	core  *minio.Core
	keys  *keychain
	at    string // endpoint, for messages
	probe probes
}

// connect reads the environment at the first call:
//
//   - AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL: http(s)://HOST[:PORT]; without one, AWS.
//     Buckets are part of the path, and of the host's name at AWS and Google.
//   - AWS_REGION or AWS_DEFAULT_REGION. Without one, AWS is asked for the bucket's, and any
//     other endpoint gets us-east-1, which is the region of those that have none.
func (b *buckets) connect() (*minio.Core, error) {
	b.once.Do(func() {
		if err := b.open(); err != nil {
			b.err = &Unavailable{err}
		}
	})
	return b.core, b.err
}

func (b *buckets) open() error {
	variable, endpoint := firstSet("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
	_, region := firstSet("AWS_REGION", "AWS_DEFAULT_REGION")
	host, secure := "s3.amazonaws.com", true
	if endpoint != "" {
		u, err := url.Parse(endpoint)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Path != "" && u.Path != "/" || u.User != nil || u.RawQuery != "" {
			return fmt.Errorf("%s: expected http://HOST[:PORT] or https://HOST[:PORT], found %q", variable, endpoint)
		}
		host, secure = u.Host, u.Scheme == "https"
		if region == "" {
			region = "us-east-1"
		}
		b.at = endpoint
	} else {
		b.at = "AWS"
	}
	b.keys = newKeychain()
	core, err := minio.NewCore(host, &minio.Options{
		Creds: credentials.New(b.keys), Secure: secure, Region: region,
		Transport: transport(), MaxRetries: retries,
	})
	if err != nil {
		return fmt.Errorf("endpoint %s: %w", b.at, err)
	}
	core.SetAppInfo("stplan", "")
	b.core = core
	return nil
}

// firstSet is the first of these variables that is set, and its value.
func firstSet(names ...string) (name, value string) {
	for _, name := range names {
		if value := os.Getenv(name); value != "" {
			return name, value
		}
	}
	return "", ""
}

// bucketSource is an object in a bucket.
type bucketSource struct {
	buckets *buckets
	url     address
}

func (b *bucketSource) get(ctx context.Context, from, to int64, etag string) (*part, error) {
	core, err := b.buckets.connect()
	if err != nil {
		return nil, err
	}
	var opt minio.GetObjectOptions
	opt.Set("Range", byteRange(from, to))
	if etag != "" {
		opt.Set("If-Match", `"`+etag+`"`)
	}
	body, info, header, err := core.GetObject(ctx, b.url.bucket, b.url.key, opt)
	if minio.ToErrorResponse(err).Code == "InvalidRange" && from == 0 {
		return &part{body: http.NoBody, ranged: true}, nil // it has no bytes at all
	}
	if err != nil {
		return nil, b.buckets.explain(err, b.url)
	}
	p := &part{body: body, size: info.Size, etag: info.ETag}
	if r := header.Get("Content-Range"); r != "" {
		p.ranged = true
		if p.size, err = sizeOf(r, from); err != nil {
			body.Close()
			return nil, err
		}
	}
	return p, nil
}

// explain says in words what a server or the way to it has refused.
func (b *buckets) explain(err error, u address) error {
	r := minio.ToErrorResponse(err)
	text := b.inWords(err, r, u)
	if r.StatusCode == 0 || mayPass(r.StatusCode) || slices.Contains(notOfObjects, r.Code) {
		return &Unavailable{text}
	}
	return text
}

func (b *buckets) inWords(err error, r minio.ErrorResponse, u address) error {
	detail := r.Code
	if r.Message != "" && r.Message != r.Code {
		detail += ": " + r.Message
	}
	switch {
	case r.Code == "NoSuchBucket":
		return fmt.Errorf("%s has no bucket %q", b.at, u.bucket)
	case r.Code == "NoSuchKey":
		return fmt.Errorf("bucket %q has no such object", u.bucket)
	case r.Code == "PreconditionFailed" || r.StatusCode == http.StatusPreconditionFailed:
		return errChanged
	case r.StatusCode == http.StatusForbidden || r.StatusCode == http.StatusUnauthorized || slices.Contains(refusedKeys, r.Code):
		if b.keys.found() == "" {
			return fmt.Errorf("%s denies it to a request without credentials (%s). None were found: %s", b.at, detail, b.keys.missing())
		}
		return fmt.Errorf("%s denies it to the credentials from %s (%s)", b.at, b.keys.found(), detail)
	case r.Region != "" && (r.Code == "AuthorizationHeaderMalformed" || r.Code == "PermanentRedirect" || r.StatusCode == http.StatusMovedPermanently):
		return fmt.Errorf("bucket %q is in the region %s (%s); set AWS_REGION", u.bucket, r.Region, r.Code)
	case r.StatusCode > 0:
		return fmt.Errorf("%s answers %d, %s", b.at, r.StatusCode, detail)
	}
	var failed *url.Error
	if errors.As(err, &failed) {
		err = failed.Err
	}
	return fmt.Errorf("%s does not answer: %w", b.at, err)
}

var (
	// refusedKeys are the answers to credentials that are wrong, with or without a status of 401 or
	// 403.
	refusedKeys = []string{"InvalidToken", "ExpiredToken", "InvalidAccessKeyId", "SignatureDoesNotMatch"}

	// notOfObjects are the answers that have nothing to do with the object.
	notOfObjects = append([]string{"RequestTimeTooSkewed", "AuthorizationHeaderMalformed", "PermanentRedirect"}, refusedKeys...)
)
