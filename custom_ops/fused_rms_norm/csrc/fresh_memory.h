// What fresh memory costs: a page fault for every page that is written first. malloc as it comes takes large blocks from
// the system, and gives them back with every free.
#pragma once

#include <cstdint>
#include <cstdlib>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace rms_norm {

// Up to 32 MB glibc's malloc begins to keep blocks, once one of their size was freed. From aligned blocks, as Paddle's
// are, it learns a size too small by what the alignment took (malloc.c, _int_memalign and free), so it never keeps them:
// a plain block shows it, if it comes from the system and not from memory that malloc holds already. Where somebody has
// set the thresholds, they stay as they are.
inline void show_malloc_large_blocks() {
#if defined(__GLIBC__)
  constexpr size_t kLargestLearned = 32 << 20, kMargin = 64 << 10;  // DEFAULT_MMAP_THRESHOLD_MAX on 64 bits
  static const bool shown = [] {
    void* volatile blocks[8] = {};  // volatile: or the compiler leaves out all of it
    for (auto& block : blocks) {
      block = std::malloc(kLargestLearned - kMargin);
      // IS_MMAPPED of malloc.c, in the size before a block
      if (block == nullptr || (static_cast<size_t*>(block)[-1] & 2)) break;
    }
    for (auto& block : blocks) std::free(block);
    return true;
  }();
  (void)shown;
#endif
}

// For a block that is to be written next: pages of 2 MB instead of 4 KB are 512 times fewer faults. Where the system has
// no huge pages, or always uses them, nothing changes.
inline void advise_huge_pages(void* memory, int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr uintptr_t kPage = 2 << 20;
  const uintptr_t start = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t begin = (start + kPage - 1) / kPage * kPage, end = (start + bytes) / kPage * kPage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

}  // namespace rms_norm
