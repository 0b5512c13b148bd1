// merge_sort.cu: sorts by CUB's merge sort in several threads, each on a stream of its own, with
// memory of cudaMalloc that is allocated once, and counts what goes wrong.
//
//     nvcc -std=c++17 -O2 -arch=sm_90 -o merge_sort docs/results/merge_sort.cu
//     ./merge_sort THREADS clean|dirty random|sorted SECONDS
//
// dirty: other bytes are written to the temporary storage before each sort. random, sorted: the order
// of the keys. torchtests.md says what it is for. The exit code is 1 after an error of CUDA, and
// 2 if there are not four arguments.
#include <cub/device/device_merge_sort.cuh>
#include <cub/version.cuh>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

struct Less { __device__ bool operator()(long a, long b) const { return a < b; } };

__global__ void mix(long* k, long* v, long n, long seed, bool sorted) {
  for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < n; i += (long)gridDim.x * blockDim.x) { k[i] = sorted ? i : (i * 2654435761L + seed) & (n - 1); v[i] = i; }
}

__global__ void check(const long* k, long n, int* bad) {
  for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < n; i += (long)gridDim.x * blockDim.x) if (k[i] != i) atomicAdd(bad, 1);
}

std::atomic<long> sorts{0}, wrong{0};
std::atomic<int> failed{0};

void work(int t, bool dirty, bool sorted, double seconds) {
  cudaStream_t s; cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
  long n = 1 << 20; long *k, *v; int* bad; void* temp = nullptr; size_t bytes = 0;
  cudaMalloc(&k, n * 8); cudaMalloc(&v, n * 8); cudaMalloc(&bad, 4);
  cub::DeviceMergeSort::SortPairs(nullptr, bytes, k, v, n, Less{}, s);
  cudaMalloc(&temp, bytes);
  cudaMemsetAsync(temp, 0, bytes, s);
  auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (long r = 0; std::chrono::steady_clock::now() < end && !failed; r++) {
    cudaMemsetAsync(bad, 0, 4, s);
    for (int i = 0; i < 16; i++) {
      mix<<<512, 256, 0, s>>>(k, v, n, r * 16 + i + t * 977, sorted);
      if (dirty) cudaMemsetAsync(temp, 0x7d, bytes, s);
      cub::DeviceMergeSort::SortPairs(temp, bytes, k, v, n, Less{}, s);
      check<<<512, 256, 0, s>>>(k, n, bad);
    }
    int count = 0;
    cudaMemcpyAsync(&count, bad, 4, cudaMemcpyDeviceToHost, s);
    cudaError_t e = cudaStreamSynchronize(s);
    if (e != cudaSuccess) { if (!failed.exchange(1)) printf("error %s\n", cudaGetErrorName(e)); break; }
    sorts += 16; wrong += count != 0;
  }
}

int main(int argc, char** argv) {
  if (argc != 5) { fprintf(stderr, "merge_sort: expected THREADS clean|dirty random|sorted SECONDS, found %d arguments\n", argc - 1); return 2; }
  int threads = atoi(argv[1]); bool dirty = !strcmp(argv[2], "dirty"), sorted = !strcmp(argv[3], "sorted"); double seconds = atof(argv[4]);
  std::vector<std::thread> all;
  for (int t = 0; t < threads; t++) all.emplace_back(work, t, dirty, sorted, seconds);
  for (auto& t : all) t.join();
  printf("cub %d %s %s threads %d sorts %ld wrong groups %ld failed %d\n", CUB_VERSION, argv[2], argv[3], threads, sorts.load(), wrong.load(), failed.load());
  fflush(stdout); _Exit(failed);
}
