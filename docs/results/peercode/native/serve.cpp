#include "serve.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include <unordered_map>

#include "device.h"

namespace {

struct Buffer {
  void* at;
  size_t size;
  uint64_t stream;
};

std::unordered_map<uint64_t, Buffer> live;

// Streams that stand for "whatever still uses this buffer": one for each, as the recording
// says when each is done. No recorded stream is one of these.
uint64_t user_of(uint64_t buffer) { return (uint64_t{1} << 62) + buffer; }

[[noreturn]] void bad(const char* line) {
  fprintf(stderr, "expected a request, found %s\n", line);
  _exit(2);
}

Buffer& find(uint64_t buffer, const char* line) {
  auto b = live.find(buffer);
  if (b == live.end()) bad(line);
  return b->second;
}

}  // namespace

int main() {
  // What the allocator prints goes to standard error.
  FILE* out = fdopen(dup(1), "w");
  dup2(2, 1);
  char line[256];
  bool begun = false;
  while (fgets(line, sizeof line, stdin)) {
    uint64_t a = 0, b = 0, c = 0;
    int n = sscanf(line + 1, "%" SCNu64 "%" SCNu64 "%" SCNu64, &a, &b, &c);
    if (line[0] == 's' && n == 2) {
      device_address(a, b);
      continue;
    }
    if (line[0] == 'd' && n == 3) {
      device_addresses(a, b, c != 0);
      continue;
    }
    if (line[0] == 'l' && n == 1) {
      device_memory(a);
      continue;
    }
    if (!begun) peer_begin();
    begun = true;
    void* at = nullptr;
    switch (line[0]) {
      case 'a':
        if (n != 3) bad(line);
        at = peer_alloc(b, c);
        if (at) live[a] = {at, b, c};
        break;
      case 'r':
        if (n != 3) bad(line);
        device_full(true);
        if (void* p = peer_alloc(b, c)) peer_free(p, b, c);
        device_full(false);
        break;
      case 'f': {
        Buffer& buf = find(a, line);
        peer_free(buf.at, buf.size, buf.stream);
        live.erase(a);
        continue;
      }
      case 'p': {
        Buffer& buf = find(a, line);
        device_busy(user_of(a), true);
        peer_free_busy(buf.at, buf.size, buf.stream, user_of(a));
        live.erase(a);
        continue;
      }
      case 'c':
        device_busy(user_of(a), false);
        continue;
      case 'e':
        peer_empty_cache();
        break;
      default:
        bad(line);
    }
    Usage u = peer_usage();
    fprintf(out, "%zu %zu %zu %" PRIu64 "\n", u.reserved, u.peak, u.allocated, reinterpret_cast<uint64_t>(at));
    fflush(out);
  }
  fflush(stderr);
  _exit(0);  // the peers' destructors expect a device and a Python that are gone
}
