#ifndef BALLAST_SERVER_CORPUS_INDEX_INDEX_PAGES_H_
#define BALLAST_SERVER_CORPUS_INDEX_INDEX_PAGES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ballast {

// The unit of checking. A step's samples are spread over an index, so larger
// units would read bytes in vain; the system reads a whole page of memory in
// any case.
inline constexpr uint64_t kIndexPageBytes = 4096;

// XXH3-64 of each page of `pieces`, one after another; the last may be short.
std::vector<uint64_t> PageChecksums(absl::Span<const absl::string_view> pieces);

// Asks the system to read these bytes of a mapped file from the disk,
// asynchronously.
void ReadAhead(absl::string_view bytes);

// Bytes in memory, each page of which is checked against its checksum once,
// when first touched. Thread-safe: two threads that touch a page at the same
// time both check it.
class CheckedPages {
 public:
  CheckedPages() = default;
  // The number of checksums is the number of pages. Both must outlive this.
  CheckedPages(absl::string_view bytes, absl::Span<const uint64_t> checksums);

  absl::string_view bytes() const { return bytes_; }
  // Returns whether all pages of [offset, offset + size), which lies inside,
  // have been checked. Does not read them.
  bool IsChecked(uint64_t offset, uint64_t size) const {
    if (size == 0) return true;
    const uint64_t last = (offset + size - 1) / kIndexPageBytes;
    for (uint64_t page = offset / kIndexPageBytes; page <= last; ++page) {
      if (!IsPageChecked(page)) return false;
    }
    return true;
  }
  bool IsPageChecked(uint64_t page) const {
    return checked_[page / 64].load(std::memory_order_relaxed) >> page % 64 & 1;
  }
  // Reads and checks those not yet checked. Returns the first damaged page, if
  // any.
  std::optional<uint64_t> Check(uint64_t offset, uint64_t size) const;
  // Number of pages checked so far.
  uint64_t num_checked() const;

 private:
  absl::string_view bytes_;
  absl::Span<const uint64_t> checksums_;
  // One bit per page. Only the bits are shared and the bytes never change, so
  // relaxed order suffices.
  std::unique_ptr<std::atomic<uint64_t>[]> checked_;
};

// The pages of an index's records, checked by a table of checksums whose own
// pages are checked in the same way. Thread-safe.
class IndexPages {
 public:
  IndexPages() = default;
  // `file` begins at a page of memory. Its records are the whole pages of
  // [records, table); the rest is the table, 8 bytes per page. `checksums` are
  // those of the table's pages. Both must outlive this.
  IndexPages(absl::string_view file, uint64_t records, uint64_t table,
             absl::Span<const uint64_t> checksums);

  // OK if all pages of [offset, offset + size) of the records are undamaged.
  // Blocks on the disk. Errors: DATA_LOSS, naming the damaged bytes of the
  // file.
  absl::Status Touch(uint64_t offset, uint64_t size) const {
    if (records_.IsChecked(offset, size)) return absl::OkStatus();
    return Check(offset, size);
  }
  bool IsTouched(uint64_t offset, uint64_t size) const {
    return records_.IsChecked(offset, size);
  }

  // Appends the pages that Touch would read.
  void AddUntouched(uint64_t offset, uint64_t size,
                    std::vector<uint64_t>* pages) const;
  // Starts reading these pages of the records, and the pages of the table that
  // Touch needs for them, from the disk, all at once and asynchronously.
  void Prefetch(std::vector<uint64_t> pages) const;

  // Pages of records and table that have been read.
  uint64_t num_touched() const {
    return records_.num_checked() + table_.num_checked();
  }

 private:
  absl::Status Check(uint64_t offset, uint64_t size) const;
  absl::Status Damaged(const CheckedPages& pages, uint64_t page,
                       absl::string_view what) const;

  absl::string_view file_;
  CheckedPages records_;
  CheckedPages table_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_INDEX_INDEX_PAGES_H_
