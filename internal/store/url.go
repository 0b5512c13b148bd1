package store

import (
	"fmt"
	"net/url"
	"strings"
)

// Is reports whether a path names something outside this machine: whether it begins with a
// scheme and "://". It says so for schemes that are refused as well.
func Is(path string) bool {
	scheme, _, found := strings.Cut(path, "://")
	if !found || scheme == "" {
		return false
	}
	for i, c := range []byte(strings.ToLower(scheme)) {
		letter := c >= 'a' && c <= 'z'
		if !letter && (i == 0 || !(c >= '0' && c <= '9' || c == '+' || c == '-' || c == '.')) {
			return false
		}
	}
	return true
}

// Name is how messages and results name a path. An address's password, query and fragment
// are left out, as they may be a signature that lets anybody read it.
func Name(path string) string {
	if u, err := parse(path); err != nil || u.bucket != "" {
		return path
	}
	u, err := url.Parse(path)
	if err != nil {
		return path
	}
	u.User, u.RawQuery, u.Fragment, u.ForceQuery = nil, "", "", false
	return u.String()
}

// IsBucket reports whether a path is in a bucket, or names one.
func IsBucket(path string) bool {
	u, err := parse(path)
	return err == nil && u.bucket != ""
}

// IsFolder reports whether a path names what has a common beginning, as a folder has: an
// s3:// path that ends with a slash, or a bucket alone.
func IsFolder(path string) bool {
	u, err := parse(path)
	return err == nil && u.bucket != "" && (u.key == "" || strings.HasSuffix(u.key, "/"))
}

// Join puts a name behind a path that IsFolder accepts.
func Join(folder, name string) string {
	return strings.TrimSuffix(folder, "/") + "/" + name
}

// address is a path's parts. An s3:// path has a bucket, any other address has none.
type address struct {
	path        string
	bucket, key string // as they stand: nothing in them is escaped
}

// hints says what to do in place of a scheme that is refused.
var hints = map[string]string{
	"gs": "Google's store speaks S3: set AWS_ENDPOINT_URL=https://storage.googleapis.com and an HMAC key, and say s3://BUCKET/KEY",
	"r2": "R2 speaks S3: set AWS_ENDPOINT_URL to the account's, and say s3://BUCKET/KEY",
}

func parse(path string) (address, error) {
	scheme, rest, _ := strings.Cut(path, "://")
	switch scheme = strings.ToLower(scheme); scheme {
	case "s3":
		bucket, key, _ := strings.Cut(rest, "/")
		if bucket == "" {
			return address{}, fmt.Errorf("%s: expected s3://BUCKET/KEY, found no bucket", path)
		}
		return address{path, bucket, key}, nil
	case "https", "http":
		if u, err := url.Parse(path); err != nil || u.Host == "" {
			return address{}, fmt.Errorf("expected %s://HOST/PATH, found %q", scheme, path)
		}
		return address{path: path}, nil
	}
	problem := fmt.Sprintf("%s: %s:// is not supported; expected a file, s3://, or to read https:// or http://", path, scheme)
	if hint := hints[scheme]; hint != "" {
		problem += ". " + hint
	}
	return address{}, fmt.Errorf("%s", problem)
}
