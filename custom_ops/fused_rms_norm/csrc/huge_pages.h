// Huge pages for large results. Fresh memory costs a page fault for every page that is written first, and malloc as it
// comes gives large blocks back to the system with every free: pages of 2 MB instead of 4 KB are 512 times fewer faults.
#pragma once

#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace rms_norm {

// Memory that is to be written next. Where the system has no huge pages, or always uses them, nothing changes.
inline void advise_huge_pages(void* memory, int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr uintptr_t kPage = 2 << 20;
  const uintptr_t start = reinterpret_cast<uintptr_t>(memory);
  const uintptr_t begin = (start + kPage - 1) / kPage * kPage, end = (start + bytes) / kPage * kPage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

}  // namespace rms_norm
