// aliases.cu: whether one granule may be used at two addresses, each byte at one of them at a time, and how long a
// second address takes. Blocks A, B and C: B begins in the free end of A's last granule and ends in the free beginning of C's
// first one (aliases.md).
//
//   nvcc -O2 -o aliases docs/results/aliases.cu -lcuda && ./aliases
#include <cuda.h>
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <chrono>
#include <vector>
#define CK(x) do { CUresult r=(x); if (r) { const char*s; cuGetErrorString(r,&s); printf("%s: %s line %d\n",#x,s,__LINE__); exit(1);} } while(0)
__global__ void fill(unsigned *p, size_t n, unsigned v) { for (size_t i = blockIdx.x*(size_t)blockDim.x+threadIdx.x; i<n; i+=(size_t)gridDim.x*blockDim.x) p[i] = v ^ (unsigned)i; }
__global__ void check(const unsigned *p, size_t n, unsigned v, unsigned long long *bad) { for (size_t i = blockIdx.x*(size_t)blockDim.x+threadIdx.x; i<n; i+=(size_t)gridDim.x*blockDim.x) if (p[i] != (v ^ (unsigned)i)) atomicAdd(bad,1ull); }
// reads and writes, so that caches hold lines of both sides
__global__ void churn(unsigned *p, size_t n, int rounds) { for (int r=0;r<rounds;r++) for (size_t i = blockIdx.x*(size_t)blockDim.x+threadIdx.x; i<n; i+=(size_t)gridDim.x*blockDim.x) p[i] = p[i]*2654435761u+1; }
int main() {
  CK(cuInit(0)); CUdevice d; CK(cuDeviceGet(&d,0)); CUcontext c; CK(cuDevicePrimaryCtxRetain(&c,d)); CK(cuCtxSetCurrent(c));
  CUmemAllocationProp prop={}; prop.type=CU_MEM_ALLOCATION_TYPE_PINNED; prop.location.type=CU_MEM_LOCATION_TYPE_DEVICE; prop.location.id=0;
  size_t g; CK(cuMemGetAllocationGranularity(&g,&prop,CU_MEM_ALLOC_GRANULARITY_MINIMUM)); printf("granularity %zu\n",g);
  CUmemAccessDesc a={}; a.location=prop.location; a.flags=CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const int N=64; // granules of A; B's head aliases the last granule of A, B's tail the first granule of C
  std::vector<CUmemGenericAllocationHandle> hA(N), hB(N), hC(N);
  for (int i=0;i<N;i++){CK(cuMemCreate(&hA[i],g,&prop,0));CK(cuMemCreate(&hB[i],g,&prop,0));CK(cuMemCreate(&hC[i],g,&prop,0));}
  CUdeviceptr A,B,C; CK(cuMemAddressReserve(&A,N*g,0,0,0)); CK(cuMemAddressReserve(&B,(N+2)*g,0,0,0)); CK(cuMemAddressReserve(&C,N*g,0,0,0));
  for (int i=0;i<N;i++){CK(cuMemMap(A+i*g,g,0,hA[i],0));CK(cuMemMap(C+i*g,g,0,hC[i],0));CK(cuMemMap(B+(i+1)*g,g,0,hB[i],0));}
  CK(cuMemMap(B,g,0,hA[N-1],0)); CK(cuMemMap(B+(N+1)*g,g,0,hC[0],0));
  CK(cuMemSetAccess(A,N*g,&a,1)); CK(cuMemSetAccess(B,(N+2)*g,&a,1)); CK(cuMemSetAccess(C,N*g,&a,1));
  cudaStream_t s[3]; for (auto &x:s) cudaStreamCreateWithFlags(&x,cudaStreamNonBlocking);
  unsigned long long *bad; cudaMallocManaged(&bad,8); *bad=0;
  unsigned long long total=0; srand(1);
  for (int it=0; it<3000; it++) {
    // A has its last granule up to cutA, B from there; C begins at cutC in its first granule
    size_t cutA=(rand()%(g/512-1)+1)*512, cutC=(rand()%(g/512-1)+1)*512;
    unsigned *pa=(unsigned*)A, *pb=(unsigned*)(B+cutA), *pc=(unsigned*)(C+cutC);
    size_t na=((N-1)*g+cutA)/4, nb=((N+1)*g-cutA+cutC)/4, nc=(N*g-cutC)/4;
    fill<<<264,512,0,s[0]>>>(pa,na,3*it); fill<<<264,512,0,s[1]>>>(pb,nb,3*it+1); fill<<<264,512,0,s[2]>>>(pc,nc,3*it+2);
    check<<<264,512,0,s[0]>>>(pa,na,3*it,bad); check<<<264,512,0,s[1]>>>(pb,nb,3*it+1,bad); check<<<264,512,0,s[2]>>>(pc,nc,3*it+2,bad);
    // written at one address, read at the other once the device has been waited for
    cudaDeviceSynchronize();
    unsigned *alias=(unsigned*)(A+(N-1)*g+cutA); // B's head, by A's addresses
    check<<<64,512,0,s[2]>>>(alias,(g-cutA)/4,3*it+1,bad);
    churn<<<64,512,0,s[0]>>>(pa,na,1); churn<<<64,512,0,s[1]>>>(pb,nb,1);
    cudaDeviceSynchronize();
    // B is freed, A's neighbour gets the bytes by A's addresses, with an event between, no host wait
    cudaEvent_t e; cudaEventCreateWithFlags(&e,cudaEventDisableTiming);
    fill<<<264,512,0,s[1]>>>(pb,nb,7); cudaEventRecord(e,s[1]); cudaStreamWaitEvent(s[0],e,0);
    fill<<<64,512,0,s[0]>>>(alias,(g-cutA)/4,9); check<<<64,512,0,s[0]>>>(alias,(g-cutA)/4,9,bad);
    cudaEventRecord(e,s[0]); cudaStreamWaitEvent(s[1],e,0); check<<<64,512,0,s[1]>>>(alias,(g-cutA)/4,9,bad);
    cudaDeviceSynchronize(); cudaEventDestroy(e);
  }
  cudaDeviceSynchronize(); total=*bad; printf("bad words %llu of 3000 rounds, %s\n",total,cudaGetErrorString(cudaGetLastError()));
  // time: map a handle a second time, set access, unmap
  CUdeviceptr T; const int M=512; CK(cuMemAddressReserve(&T,M*g,0,0,0));
  auto now=[]{return std::chrono::steady_clock::now();}; auto us=[&](auto t0){return std::chrono::duration<double,std::micro>(now()-t0).count();};
  for (int rep=0;rep<3;rep++){ double m=0,ac=0,u=0; for(int i=0;i<M;i++){auto t=now();CK(cuMemMap(T+i*g,g,0,hA[i%N],0));m+=us(t);t=now();CK(cuMemSetAccess(T+i*g,g,&a,1));ac+=us(t);} for(int i=0;i<M;i++){auto t=now();CK(cuMemUnmap(T+i*g,g));u+=us(t);} printf("alias: map %.1f us, access %.1f us, unmap %.1f us\n",m/M,ac/M,u/M);}
  return 0;
}
