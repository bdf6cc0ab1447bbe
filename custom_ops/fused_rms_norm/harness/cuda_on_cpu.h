// CUDA on a CPU, as much of it as these kernels use: sources that cuda_on_cpu.py has rewritten are compiled by g++.
//
// Every thread of a block is a fiber. A thread runs until it waits for others (a shuffle, __syncthreads) or ends; which
// thread runs next is drawn by lot, so nothing can rely on an order that CUDA does not promise. Blocks run one after
// another. What CUDA leaves undefined ends the process with a message: shared memory that is read before it is written,
// or that two threads use with no barrier between them; an index outside a shared array; a shuffle or a barrier that
// some threads never reach; a grid or block that no card accepts; a kernel on the default stream. Every buffer of
// cudaMalloc lies against a page that cannot be touched, between bytes that must not change; new memory is full of NaN.
//
// Whatever is not defined here does not compile: a kernel that needs more extends this file.
#pragma once

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#define __global__
#define __device__

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

inline dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace cuda_on_cpu {

constexpr size_t kPage = 4096, kStack = 16 * kPage;
constexpr unsigned kThreadsOfBlock = 1024, kThreadsOfWarp = 32;
constexpr int kMultiprocessors = 3;  // few, so that small inputs already give every block several rows
constexpr int kBlocksOfMultiprocessor = 2;

enum class State { ready, at_shuffle, at_barrier, ended };

struct Thread {
  jmp_buf context;
  dim3 index;
  unsigned number;  // in its block
  State state;
  int line;             // where it waits
  unsigned mask, from;  // of the shuffle it waits at: who takes part, whose value it gets
  uint32_t value;       // what it gives to the shuffle, and then what it gets
};

inline std::vector<Thread> threads(kThreadsOfBlock);
inline std::vector<unsigned> ready;
inline Thread* current = nullptr;
inline unsigned alive, at_barrier;
inline unsigned at_shuffle[kThreadsOfBlock / kThreadsOfWarp];  // of each warp the threads that wait, as a mask
inline jmp_buf scheduler;
inline const std::function<void()>* kernel = nullptr;
inline std::mt19937 lots(17);
// Counts blocks and barriers: two uses of shared memory are in order where a barrier, that is another epoch, lies
// between them. What was written before `first_epoch` was written by another block.
inline uint64_t epoch = 0, first_epoch = 0;
inline std::set<std::string> instances;  // kernels that ran, with their template arguments

[[noreturn]] __attribute__((format(printf, 1, 2))) inline void fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fflush(stdout);
  vdprintf(STDERR_FILENO, format, arguments);
  va_end(arguments);
  if (current) {
    dprintf(STDERR_FILENO, "; block (%u, %u, %u), thread (%u, %u, %u)", blockIdx.x, blockIdx.y, blockIdx.z,
            threadIdx.x, threadIdx.y, threadIdx.z);
  }
  dprintf(STDERR_FILENO, "\n");
  _exit(1);
}

// Fibers ------------------------------------------------------------------------------------------------------------

// Gives the processor to another thread of the block. (Not swapcontext, which asks the system for the signal mask.)
inline __attribute__((noinline)) void wait(State state, int line) {
  current->state = state;
  current->line = line;
  if (!_setjmp(current->context)) _longjmp(scheduler, 1);
}

inline void run_threads_forever() {
  for (;;) {
    (*kernel)();
    --alive;
    wait(State::ended, 0);
  }
}

inline __attribute__((noinline)) void resume(Thread& thread) {
  current = &thread;
  threadIdx = thread.index;
  if (!_setjmp(scheduler)) _longjmp(thread.context, 1);
  current = nullptr;
}

// Each thread number keeps its stack, between two pages that cannot be touched.
inline __attribute__((noinline)) void make_fibers() {
  for (Thread& thread : threads) {
    char* memory = static_cast<char*>(mmap(nullptr, kStack + kPage, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    mprotect(memory, kPage, PROT_NONE);
    ucontext_t start, here;
    getcontext(&start);
    start.uc_stack = {memory + kPage, 0, kStack};
    static Thread* made;
    made = &thread;
    makecontext(&start, +[] { if (_setjmp(made->context)) run_threads_forever(); else _longjmp(scheduler, 1); }, 0);
    if (!_setjmp(scheduler)) swapcontext(&here, &start);
  }
}

inline void make_ready(Thread& thread) {
  thread.state = State::ready;
  ready.push_back(thread.number);
}

// All: a card does not count those that have ended, but CUDA promises that of no barrier in a branch.
inline void pass_barrier_when_all_wait() {
  const unsigned count = blockDim.x * blockDim.y * blockDim.z;
  if (at_barrier < count) return;
  int line = 0;
  for (unsigned i = 0; i < count; ++i) {
    if (line && line != threads[i].line) fail("threads wait at the barriers of lines %d and %d", line, threads[i].line);
    line = threads[i].line;
    make_ready(threads[i]);
  }
  at_barrier = 0;
  ++epoch;
}

inline void run_block() {
  const unsigned count = blockDim.x * blockDim.y * blockDim.z;
  first_epoch = ++epoch;
  alive = count;
  at_barrier = 0;
  memset(at_shuffle, 0, sizeof at_shuffle);
  for (unsigned i = 0; i < count; ++i) {
    threads[i].number = i;
    threads[i].index = dim3(i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y);
    make_ready(threads[i]);
  }
  while (!ready.empty()) {
    std::swap(ready[lots() % ready.size()], ready.back());
    Thread& next = threads[ready.back()];
    ready.pop_back();
    resume(next);
    pass_barrier_when_all_wait();
  }
  for (unsigned i = 0; i < count && alive; ++i) {
    if (threads[i].state == State::ended) continue;
    const char* what = threads[i].state == State::at_barrier ? "barrier" : "shuffle";
    current = &threads[i];
    threadIdx = threads[i].index;
    fail("this thread waits for ever at the %s of line %d", what, threads[i].line);
  }
}

// A kernel's call: launch([=] { kernel(arguments); }, grid, block, shared, stream).
inline void launch(const std::function<void()>& body, dim3 grid, dim3 block, size_t dynamic_shared, void* stream) {
  if (stream == nullptr) fail("a kernel is started on the default stream");
  if (dynamic_shared) fail("dynamic shared memory is not made here");
  if (grid.x < 1 || grid.x > 0x7FFFFFFF || grid.y < 1 || grid.y > 65535 || grid.z < 1 || grid.z > 65535) {
    fail("no card accepts the grid (%u, %u, %u)", grid.x, grid.y, grid.z);
  }
  const uint64_t count = uint64_t(block.x) * block.y * block.z;
  if (count < 1 || count > kThreadsOfBlock || block.z > 64) {
    fail("no card accepts the block (%u, %u, %u)", block.x, block.y, block.z);
  }
  static const bool made = (make_fibers(), true);
  (void)made;
  kernel = &body;
  gridDim = grid;
  blockDim = block;
  for (blockIdx.z = 0; blockIdx.z < grid.z; ++blockIdx.z) {
    for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y) {
      for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) run_block();
    }
  }
}

// The first statement of every kernel, with what its __launch_bounds__ said.
inline void enter(const char* instance, unsigned most_threads, unsigned = 0) {
  if (blockDim.x * blockDim.y * blockDim.z > most_threads) {
    fail("%s: the block has %u threads, __launch_bounds__ %u", instance, blockDim.x * blockDim.y * blockDim.z,
         most_threads);
  }
  static const char* last = nullptr;
  if (instance != last) instances.insert(instance);
  last = instance;
}

// Shuffles and barriers ---------------------------------------------------------------------------------------------

inline void barrier(int line) {
  ++at_barrier;
  wait(State::at_barrier, line);
}

inline uint32_t shuffle(unsigned mask, uint32_t value, unsigned from, int line) {
  const unsigned lane = current->number % kThreadsOfWarp;
  const unsigned first = current->number - lane;
  if (!(mask >> lane & 1)) fail("line %d: a thread shuffles that its mask 0x%X leaves out", line, mask);
  if (from >= kThreadsOfWarp || !(mask >> from & 1)) fail("line %d: shuffles with a thread out of its mask", line);
  current->mask = mask;
  current->from = from;
  current->value = value;
  unsigned& arrived = at_shuffle[current->number / kThreadsOfWarp];
  arrived |= 1u << lane;
  if (~arrived & mask) {
    wait(State::at_shuffle, line);
    return current->value;
  }
  // The last one to come does the rest.
  arrived &= ~mask;
  uint32_t given[kThreadsOfWarp];
  for (unsigned other = 0; other < kThreadsOfWarp; ++other) given[other] = threads[first + other].value;
  for (unsigned other = 0; other < kThreadsOfWarp; ++other) {
    if (!(mask >> other & 1)) continue;
    Thread& thread = threads[first + other];
    if (thread.mask != mask) fail("line %d: shuffles with the masks 0x%X and 0x%X meet", line, mask, thread.mask);
    if (&thread != current && thread.line != line) fail("the shuffles of lines %d and %d meet", line, thread.line);
    thread.value = given[thread.from];
    if (&thread != current) make_ready(thread);
  }
  return current->value;
}

// Shared memory -----------------------------------------------------------------------------------------------------

// One word: knows who used it since the last barrier.
template <class T>
class Shared {
 public:
  operator T() {
    if (written < first_epoch) fail("shared memory is read before it is written");
    if (written == epoch && writer != current) fail("shared memory is read with no barrier after another's write");
    reader = read == epoch && reader != current ? nullptr : current;
    read = epoch;
    return value;
  }

  void operator=(T to) {
    if (written == epoch && writer != current) fail("two threads write one word of shared memory with no barrier");
    if (read == epoch && reader != current) fail("shared memory is written with no barrier after another's read");
    value = to;
    written = epoch;
    writer = current;
  }

 private:
  T value;
  uint64_t written = 0, read = 0;
  const Thread *writer = nullptr, *reader = nullptr;  // reader: nullptr where there were several
};

template <class T, size_t count>
class Shared<T[count]> {
 public:
  Shared<T>& operator[](int64_t index) {
    if (index < 0 || index >= int64_t(count)) fail("index %ld of a shared array of %zu", long(index), count);
    return items[index];
  }

 private:
  Shared<T> items[count];
};

// Memory of the card ------------------------------------------------------------------------------------------------

struct Buffer {
  char *begin, *pages;  // pages: what can be touched, and a page on either side that cannot
  size_t bytes, pages_bytes;
};

inline std::vector<Buffer> buffers;
constexpr unsigned char kFresh = 0xFF;   // NaN as float, half and bfloat16
constexpr unsigned char kMargin = 0xFE;  // another byte: a NaN that was read outside may be written outside, too

inline void report_fault(int, siginfo_t* info, void*) {
  const char* at = static_cast<char*>(info->si_addr);
  for (const Buffer& buffer : buffers) {
    if (at >= buffer.pages - kPage && at < buffer.pages + buffer.pages_bytes + kPage) {
      fail("out of bounds: byte %ld of a buffer of %zu bytes", long(at - buffer.begin), buffer.bytes);
    }
  }
  fail("a fault at address %p, in no buffer", info->si_addr);
}

inline void catch_faults() {
  static char stack[16 * kPage];
  const stack_t alternate{stack, 0, sizeof stack};
  sigaltstack(&alternate, nullptr);
  struct sigaction action = {};
  action.sa_sigaction = report_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int number : {SIGSEGV, SIGBUS}) sigaction(number, &action, nullptr);
}

// Against the page before it or the page behind it, by lot, and aligned to 16 bytes.
inline char* allocate(size_t bytes) {
  static const bool caught = (catch_faults(), true);
  (void)caught;
  Buffer buffer;
  buffer.bytes = bytes;
  buffer.pages_bytes = (bytes + kPage - 1) / kPage * kPage;
  void* memory = mmap(nullptr, buffer.pages_bytes + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("no memory for a buffer of %zu bytes", bytes);
  buffer.pages = static_cast<char*>(memory) + kPage;
  mprotect(buffer.pages, buffer.pages_bytes, PROT_READ | PROT_WRITE);
  memset(buffer.pages, kMargin, buffer.pages_bytes);
  buffer.begin = buffer.pages + (lots() % 2 ? 0 : buffer.pages_bytes - (bytes + 15) / 16 * 16);
  memset(buffer.begin, kFresh, bytes);
  buffers.push_back(buffer);
  return buffer.begin;
}

inline void release(void* memory) {
  for (size_t i = 0; i < buffers.size(); ++i) {
    const Buffer buffer = buffers[i];
    if (buffer.begin != memory) continue;
    for (const char* at = buffer.pages; at < buffer.pages + buffer.pages_bytes; ++at) {
      const bool inside = at >= buffer.begin && at < buffer.begin + buffer.bytes;
      if (!inside && static_cast<unsigned char>(*at) != kMargin) {
        fail("out of bounds: byte %ld of a buffer of %zu bytes was written", long(at - buffer.begin), buffer.bytes);
      }
    }
    munmap(buffer.pages - kPage, buffer.pages_bytes + 2 * kPage);
    buffers.erase(buffers.begin() + i);
    return;
  }
  fail("cudaFree of what cudaMalloc did not give");
}

inline uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace cuda_on_cpu

// The device side of CUDA -------------------------------------------------------------------------------------------

#define __syncthreads() cuda_on_cpu::barrier(__LINE__)
#define __shfl_xor_sync(mask, value, lanes)                                                                       \
  cuda_on_cpu::float_of(cuda_on_cpu::shuffle(mask, cuda_on_cpu::bits_of(value),                                   \
                                             cuda_on_cpu::current->number % cuda_on_cpu::kThreadsOfWarp ^ (lanes), \
                                             __LINE__))

struct __half {
  uint16_t bits;
};
struct __nv_bfloat16 {
  uint16_t bits;
};

inline __half __ushort_as_half(uint16_t bits) { return {bits}; }
inline uint16_t __half_as_ushort(__half value) { return value.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(uint16_t bits) { return {bits}; }
inline uint16_t __bfloat16_as_ushort(__nv_bfloat16 value) { return value.bits; }

inline float __bfloat162float(__nv_bfloat16 value) { return cuda_on_cpu::float_of(uint32_t(value.bits) << 16); }

inline __nv_bfloat16 __float2bfloat16_rn(float value) {
  const uint32_t bits = cuda_on_cpu::bits_of(value);
  if (std::isnan(value)) return {0x7FFF};
  return {uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)};
}

inline float __half2float(__half value) {
  const int exponent = value.bits >> 10 & 31, fraction = value.bits & 1023;
  const float magnitude = exponent == 31  ? (fraction ? NAN : INFINITY)
                          : exponent == 0 ? std::ldexp(float(fraction), -24)
                                          : std::ldexp(float(1024 + fraction), exponent - 25);
  return value.bits >> 15 ? -magnitude : magnitude;
}

inline __half __float2half_rn(float value) {
  if (std::isnan(value)) return {0x7FFF};
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const float magnitude = std::fabs(value);
  if (magnitude >= 65520) return {uint16_t(sign | 0x7C00)};  // half-way between the largest half and the next power
  int exponent = magnitude == 0 ? -14 : std::ilogb(magnitude);
  if (exponent < -14) exponent = -14;
  const int steps = int(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));  // ties to even
  return {uint16_t(sign | (((exponent + 14) << 10) + steps))};  // steps' bit 10 adds 1 to the exponent
}

// The host side of CUDA ---------------------------------------------------------------------------------------------

enum cudaError_t { cudaSuccess };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
using cudaStream_t = void*;

inline const char* cudaGetErrorString(cudaError_t) { return "no error"; }  // errors end the process
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  return *value = cuda_on_cpu::kMultiprocessors, cudaSuccess;
}
template <class Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel, int, size_t) {
  return *blocks = cuda_on_cpu::kBlocksOfMultiprocessor, cudaSuccess;
}
inline cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  static char made;
  return *stream = &made, cudaSuccess;
}
template <class T>
cudaError_t cudaMalloc(T** memory, size_t bytes) {
  return *memory = reinterpret_cast<T*>(cuda_on_cpu::allocate(bytes)), cudaSuccess;
}
inline cudaError_t cudaFree(void* memory) { return cuda_on_cpu::release(memory), cudaSuccess; }
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  return memcpy(to, from, bytes), cudaSuccess;
}
inline cudaError_t cudaMemset(void* memory, int byte, size_t bytes) { return memset(memory, byte, bytes), cudaSuccess; }
inline cudaError_t cudaMemsetAsync(void* memory, int byte, size_t bytes, cudaStream_t stream) {
  if (stream == nullptr) cuda_on_cpu::fail("a memset on the default stream");
  return cudaMemset(memory, byte, bytes);
}
