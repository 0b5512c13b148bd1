package store

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// keychain looks for credentials as AWS's own tools do: in the environment, in the shared
// file, and then for the role of the container or the instance. Without any, requests are
// anonymous, which public buckets allow. It remembers where it looked and why a place had
// none.
type keychain struct {
	mu      sync.Mutex
	places  []keyPlace
	current *keyPlace
	failed  []string
}

type keyPlace struct {
	name string
	credentials.Provider
}

func newKeychain() *keychain {
	file := os.Getenv("AWS_SHARED_CREDENTIALS_FILE")
	if file == "" {
		home, _ := os.UserHomeDir() // without one the provider says so
		file = filepath.Join(home, ".aws", "credentials")
	}
	profile := os.Getenv("AWS_PROFILE")
	if profile == "" {
		profile = "default"
	}
	k := &keychain{places: []keyPlace{
		{"the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)", &credentials.EnvAWS{}},
		{fmt.Sprintf("%s (profile %s)", file, profile), &credentials.FileAWSCredentials{}},
	}}
	role, _ := firstSet("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
	if role != "" || !strings.EqualFold(os.Getenv("AWS_EC2_METADATA_DISABLED"), "true") {
		k.places = append(k.places, keyPlace{"the role of this container or instance", &credentials.IAM{Client: &http.Client{Timeout: lookupTime}}})
	}
	return k
}

// RetrieveWithCredContext is of credentials.Provider.
func (k *keychain) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current, k.failed = nil, nil
	for i := range k.places {
		p := &k.places[i]
		v, err := p.RetrieveWithCredContext(cc)
		switch {
		case err != nil:
			k.failed = append(k.failed, fmt.Sprintf("%s: %v", p.name, err))
		case v.AccessKeyID == "" || v.SecretAccessKey == "":
			k.failed = append(k.failed, p.name+": none")
		default:
			k.current = p
			return v, nil
		}
	}
	return credentials.Value{SignerType: credentials.SignatureAnonymous}, nil
}

// Retrieve is of credentials.Provider.
func (k *keychain) Retrieve() (credentials.Value, error) { return k.RetrieveWithCredContext(nil) }

// IsExpired is of credentials.Provider. Requests stay anonymous once nothing was found.
func (k *keychain) IsExpired() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.current != nil && k.current.IsExpired()
}

// found is where the credentials are from, "" without any.
func (k *keychain) found() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == nil {
		return ""
	}
	return k.current.name
}

// missing says where none were found.
func (k *keychain) missing() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return strings.Join(k.failed, "; ")
}
