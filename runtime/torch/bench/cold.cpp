// cold.cpp: sends a recorded program to torch's native allocator and to the shim, on a
// simulated device. Between two operations it touches other memory, as a training step
// does, so that the allocators' data leave the processor's caches.
//
//     cold PROGRAM PLAN|- KIB
//
// PROGRAM holds operations of three uint64: id, bytes (0: a free), stream. For
// each allocator it prints the ns of an allocation and of a free: the mean over
// the second half of the program, without the slowest hundredth, minus the time
// that the clock takes.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "all.cpp"
#include "fake_cuda.h"
extern "C" {
#include "prim_host.h"
}

namespace c10::cuda::_internal {
void setHasPrimaryContext(bool (*has)(DeviceIndex)); // torch exports it but declares it in no header
}

using namespace stplan;

struct Operation {
  uint64_t id, bytes, stream;
};

constexpr size_t kLine = 64;

// Memory of the program itself, far larger than any cache.
class Surroundings {
 public:
  explicit Surroundings(size_t touched) : lines_(touched / kLine), memory_(kBytes, 1) {}

  // touch accesses `lines_` random lines, which replace lines of the caches.
  void touch() {
    for (size_t i = 0; i < lines_; i++) {
      state_ = state_ * 6364136223846793005u + 1442695040888963407u;
      memory_[(state_ >> 33) * kLine % kBytes]++;
    }
  }

 private:
  static constexpr size_t kBytes = size_t(64) << 20;
  size_t lines_;
  std::vector<uint8_t> memory_;
  uint64_t state_ = 1;
};

template <typename What>
static double timed(What what) {
  using Clock = std::chrono::steady_clock;
  Clock::now(); // brings the clock's own memory into the caches
  const auto begin = Clock::now();
  what();
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

static double mean(std::vector<double>& took) {
  std::sort(took.begin(), took.end());
  took.resize(std::max<size_t>(1, took.size() - took.size() / 100));
  double sum = 0;
  for (double t : took)
    sum += t;
  return sum / static_cast<double>(took.size());
}

static void measure(const char* name, CUDAAllocator* allocator, const std::vector<Operation>& program, size_t touched) {
  Surroundings surroundings(touched);
  std::vector<void*> blocks;
  std::vector<double> allocations, frees, nothing;
  for (size_t i = 0; i < program.size(); i++) {
    const Operation& op = program[i];
    blocks.resize(std::max<size_t>(blocks.size(), op.id + 1));
    void*& block = blocks[op.id];
    const bool counts = i >= program.size() / 2;
    if (counts)
      surroundings.touch();
    const auto stream = reinterpret_cast<cudaStream_t>(op.stream);
    const double took = op.bytes == 0 ? timed([&] { allocator->raw_delete(block); })
                                      : timed([&] { block = allocator->raw_alloc_with_stream(op.bytes, stream); });
    if (counts) {
      (op.bytes == 0 ? frees : allocations).push_back(took);
      nothing.push_back(timed([] {}));
    }
  }
  const double clock = mean(nothing);
  std::printf("%s %.1f %.1f\n", name, mean(allocations) - clock, mean(frees) - clock);
}

static std::vector<Operation> read_program(const char* path) {
  std::vector<Operation> program;
  std::FILE* f = std::fopen(path, "rb");
  for (Operation op; f != nullptr && std::fread(&op, sizeof op, 1, f) == 1;)
    program.push_back(op);
  if (f != nullptr)
    std::fclose(f);
  return program;
}

static int open_host(int, sp_cuda_memory, sp_prim* prim, char*, size_t) {
  const sp_host_options options = {uint64_t(1) << 48, kFakeCudaTotal, 2 << 20, 1, 0};
  return sp_host_open(&options, prim);
}

int main(int argc, char** argv) {
  char error[256] = "cold PROGRAM PLAN|- KIB";
  const bool planned = argc == 4 && std::string(argv[2]) != "-";
  const stplan_settings settings = {planned ? argv[2] : nullptr, nullptr, SP_CUDA_AUTO};
  if (argc != 4 || stplan_start_on(open_host, &settings, error, sizeof error) != STPLAN_OK) {
    std::fprintf(stderr, "%s\n", error);
    return 1;
  }
  const std::vector<Operation> program = read_program(argv[1]);
  if (program.empty()) {
    std::fprintf(stderr, "%s: no program\n", argv[1]);
    return 1;
  }
  CUDAAllocator* native = cca::get();
  c10::cuda::_internal::setHasPrimaryContext([](DeviceIndex) { return true; });
  installed = new Allocator(native, false);
  cca::allocator.store(installed);
  installed->init(1);
  const size_t touched = std::strtoull(argv[3], nullptr, 10) << 10;
  measure("native", native, program, touched);
  measure("stplan", installed, program, touched);
  stplan_counters counters;
  installed->read(0, &counters);
  std::printf("on-plan %llu of %llu\n", static_cast<unsigned long long>(counters.planned_allocations),
              static_cast<unsigned long long>(counters.allocations));
  return 0;
}
