package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7"
)

// maxListed is how many objects of a folder are listed, at some 200 B each. A job of 10,000
// ranks that writes ten files for each has as many.
const maxListed = 100_000

// List lists the objects directly in a folder, such as s3://bucket/dir/, by name, and not
// those of folders in it. A folder that does not exist is empty.
func (s *Store) List(ctx context.Context, folder string) ([]string, error) {
	u, err := parse(folder)
	switch {
	case err != nil:
		return nil, err
	case !IsFolder(folder):
		return nil, fmt.Errorf("%s: cannot list: expected s3://BUCKET/FOLDER/", Name(folder))
	}
	core, err := s.buckets.connect()
	if err != nil {
		return nil, fmt.Errorf("%s: cannot list: %w", folder, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the listing
	var paths []string
	for o := range core.Client.ListObjects(ctx, u.bucket, minio.ListObjectsOptions{Prefix: u.key}) {
		switch {
		case o.Err != nil:
			return nil, fmt.Errorf("%s: cannot list: %w", folder, s.buckets.explain(o.Err, u))
		case strings.HasSuffix(o.Key, "/"):
			continue // a folder, or the object that some tools make for one
		case len(paths) == maxListed:
			return nil, fmt.Errorf("%s: cannot list: more than %d objects", folder, maxListed)
		}
		paths = append(paths, "s3://"+u.bucket+"/"+o.Key)
	}
	slices.Sort(paths) // directory buckets list in an order of their own
	return paths, nil
}

// lastName is what follows the last slash.
func lastName(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
