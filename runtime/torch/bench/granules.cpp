// granules.cpp: what the driver takes for virtual memory in handles of several sizes, and for
// events, as Markdown.
//
//     nvcc -O2 -o granules runtime/torch/bench/granules.cpp -lcuda && ./granules
//
// Needs one CUDA device with 2 GiB free, a driver of 12.5 or newer, and about 5 s.
#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

namespace {

constexpr size_t kMiB = size_t{1} << 20, kBytes = 1024 * kMiB, kSmall = 2 * kMiB;

// Rounds of each measurement; the table has medians.
constexpr int kRounds = 5, kEvents = 1000;

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS)
    return;
  const char* name = "an unknown error";
  cuGetErrorName(result, &name);
  std::fprintf(stderr, "granules: %s: expected CUDA_SUCCESS, found %s\n", what, name);
  std::exit(1);
}
#define CHECK(call) check((call), #call)

// seconds runs something and returns how long that took.
double seconds(const std::function<void()>& work) {
  auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

size_t available() {
  size_t free, total;
  CHECK(cuMemGetInfo(&free, &total));
  return free;
}

class Memory {
 public:
  Memory() {
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    access_.location = properties_.location;
    access_.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK(cuMemAddressReserve(&base, kBytes, 0, 0, 0));
  }

  // map gives all addresses memory in handles of some bytes, which nobody may access yet.
  void map(size_t unit) {
    for (size_t at = 0; at < kBytes; at += unit) {
      CUmemGenericAllocationHandle handle;
      CHECK(cuMemCreate(&handle, unit, &properties_, 0));
      CHECK(cuMemMap(base + at, unit, 0, handle, 0));
      CHECK(cuMemRelease(handle));
    }
  }
  void allow() { CHECK(cuMemSetAccess(base, kBytes, &access_, 1)); }
  void unmap(size_t unit) {
    for (size_t at = 0; at < kBytes; at += unit)
      CHECK(cuMemUnmap(base + at, unit));
  }

  CUdeviceptr base = 0;

 private:
  CUmemAllocationProp properties_ = {};
  CUmemAccessDesc access_ = {};
};

void handles(Memory& memory) {
  std::printf("| handles of | made and mapped, ms/GiB | access allowed | unmapped one by one | unmapped by one call |\n| ---: | ---: | ---: | ---: | ---: |\n");
  for (size_t unit = kSmall; unit <= 512 * kMiB; unit *= 4) {
    std::vector<double> mapped, allowed, each, together;
    for (int round = 0; round < kRounds; round++) {
      for (bool one : {false, true}) {
        mapped.push_back(seconds([&] { memory.map(unit); }));
        allowed.push_back(seconds([&] { memory.allow(); }));
        (one ? together : each).push_back(seconds([&] { memory.unmap(one ? kBytes : unit); }));
      }
    }
    std::printf("| %zu MiB | %.2f | %.2f | %.2f | %.2f |\n", unit / kMiB, median(mapped) * 1e3, median(allowed) * 1e3, median(each) * 1e3, median(together) * 1e3);
  }
  std::vector<double> taken, given;
  for (int round = 0; round < kRounds; round++) {
    CUdeviceptr blocks[kBytes / (32 * kMiB)];
    taken.push_back(seconds([&] { for (CUdeviceptr& block : blocks) CHECK(cuMemAlloc(&block, 32 * kMiB)); }));
    given.push_back(seconds([&] { for (CUdeviceptr block : blocks) CHECK(cuMemFree(block)); }));
  }
  std::printf("| cuMemAlloc of 32 MiB | %.2f | | %.2f | |\n\n", median(taken) * 1e3, median(given) * 1e3);
}

// A call of cuMemUnmap over many handles gives all of them back; over a part of one it fails.
void ranges(Memory& memory) {
  size_t before = available();
  memory.map(4 * kSmall);
  CUresult part = cuMemUnmap(memory.base, kSmall);
  CHECK(cuMemUnmap(memory.base + 4 * kSmall, kBytes - 8 * kSmall));
  size_t left = before - available();
  std::printf("cuMemUnmap of a quarter of a handle: error %d. Of all handles but the first and the last, by one call: %zu of %zu MiB are left.\n\n", part, left / kMiB, kBytes / kMiB);
  CHECK(cuMemUnmap(memory.base, kBytes));
}

void events(CUcontext context) {
  std::printf("| streams | | cuEventRecord, us | cuCtxRecordEvent | cuStreamWaitEvent |\n| ---: | --- | ---: | ---: | ---: |\n");
  CUevent event;
  CUdeviceptr block;
  CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CHECK(cuMemAlloc(&block, kMiB));
  for (int count = 1; count <= 64; count *= 4) {
    std::vector<CUstream> streams(count);
    for (CUstream& stream : streams)
      CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (bool busy : {false, true}) {
      std::vector<double> one, whole, waits;
      for (int round = 0; round < kEvents; round++) {
        for (size_t i = 0; busy && i < streams.size(); i++)
          CHECK(cuMemsetD8Async(block, 1, 1024, streams[i]));
        one.push_back(seconds([&] { CHECK(cuEventRecord(event, streams[0])); }));
        whole.push_back(seconds([&] { CHECK(cuCtxRecordEvent(context, event)); }));
        waits.push_back(seconds([&] { CHECK(cuStreamWaitEvent(streams.back(), event, 0)); }));
      }
      CHECK(cuCtxSynchronize());
      std::printf("| %d | %s | %.2f | %.2f | %.2f |\n", count, busy ? "busy" : "idle", median(one) * 1e6, median(whole) * 1e6, median(waits) * 1e6);
    }
    for (CUstream stream : streams)
      CHECK(cuStreamDestroy(stream));
  }
}

}  // namespace

int main() {
  CUdevice device;
  CUcontext context;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  Memory memory;
  handles(memory);
  ranges(memory);
  events(context);
}
