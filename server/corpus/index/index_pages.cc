#include "server/corpus/index/index_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "absl/strings/str_cat.h"
#include "server/corpus/index/digest.h"

namespace ballast {
namespace {

constexpr uint64_t kChecksumsInPage = kIndexPageBytes / sizeof(uint64_t);
// Gaps of up to this many pages between two wanted pages are read with them:
// one long read is cheaper than two, and steps that want so many pages of an
// index soon want the rest.
constexpr uint64_t kSmallGap = 16;

// The system reads ahead at most the device's `read_ahead_kb` per call; this is
// the default.
constexpr uint64_t kReadAheadBytes = 128 << 10;

void ReadAheadPages(absl::string_view bytes, std::vector<uint64_t>* pages) {
  std::sort(pages->begin(), pages->end());
  for (size_t i = 0; i < pages->size();) {
    size_t next = i + 1;
    while (next < pages->size() &&
           (*pages)[next] - (*pages)[next - 1] <= kSmallGap + 1) {
      ++next;
    }
    const uint64_t begin = (*pages)[i] * kIndexPageBytes;
    const uint64_t end = ((*pages)[next - 1] + 1) * kIndexPageBytes;
    ReadAhead(bytes.substr(begin, end - begin));
    i = next;
  }
}

}  // namespace

void ReadAhead(absl::string_view bytes) {
  static const uint64_t memory_page = sysconf(_SC_PAGESIZE);
  const auto address = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t end = address + bytes.size();
  for (uintptr_t at = address / memory_page * memory_page; at < end;
       at += kReadAheadBytes) {
    // Bytes that cannot be read ahead are read when they are touched.
    madvise(reinterpret_cast<void*>(at),
            std::min<uint64_t>(end - at, kReadAheadBytes), MADV_WILLNEED);
  }
}

std::vector<uint64_t> PageChecksums(
    absl::Span<const absl::string_view> pieces) {
  std::vector<uint64_t> checksums;
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  uint64_t in_page = 0;
  for (absl::string_view piece : pieces) {
    while (!piece.empty()) {
      const uint64_t part =
          std::min<uint64_t>(piece.size(), kIndexPageBytes - in_page);
      XXH3_64bits_update(&state, piece.data(), part);
      piece.remove_prefix(part);
      in_page += part;
      if (in_page < kIndexPageBytes) continue;
      checksums.push_back(XXH3_64bits_digest(&state));
      XXH3_64bits_reset(&state);
      in_page = 0;
    }
  }
  if (in_page > 0) checksums.push_back(XXH3_64bits_digest(&state));
  return checksums;
}

CheckedPages::CheckedPages(absl::string_view bytes,
                           absl::Span<const uint64_t> checksums)
    : bytes_(bytes),
      checksums_(checksums),
      checked_(new std::atomic<uint64_t>[(checksums.size() + 63) / 64]()) {}

std::optional<uint64_t> CheckedPages::Check(uint64_t offset,
                                            uint64_t size) const {
  if (size == 0) return std::nullopt;
  const uint64_t last = (offset + size - 1) / kIndexPageBytes;
  for (uint64_t page = offset / kIndexPageBytes; page <= last; ++page) {
    if (IsPageChecked(page)) continue;
    if (Checksum(bytes_.substr(page * kIndexPageBytes, kIndexPageBytes)) !=
        checksums_[page]) {
      return page;
    }
    checked_[page / 64].fetch_or(uint64_t{1} << page % 64,
                                 std::memory_order_relaxed);
  }
  return std::nullopt;
}

uint64_t CheckedPages::num_checked() const {
  uint64_t sum = 0;
  for (size_t i = 0; i < (checksums_.size() + 63) / 64; ++i) {
    sum += std::popcount(checked_[i].load(std::memory_order_relaxed));
  }
  return sum;
}

IndexPages::IndexPages(absl::string_view file, uint64_t records, uint64_t table,
                       absl::Span<const uint64_t> checksums)
    : file_(file),
      records_(file.substr(records, table - records),
               absl::MakeConstSpan(
                   reinterpret_cast<const uint64_t*>(file.data() + table),
                   (file.size() - table) / sizeof(uint64_t))),
      table_(file.substr(table), checksums) {}

absl::Status IndexPages::Damaged(const CheckedPages& pages, uint64_t page,
                                 absl::string_view what) const {
  const absl::string_view bytes =
      pages.bytes().substr(page * kIndexPageBytes, kIndexPageBytes);
  const uint64_t begin = bytes.data() - file_.data();
  return absl::DataLossError(
      absl::StrCat("bytes ", begin, " to ", begin + bytes.size() - 1,
                   " are not what was written (", what, " page ", page, ")"));
}

absl::Status IndexPages::Check(uint64_t offset, uint64_t size) const {
  const uint64_t first = offset / kIndexPageBytes;
  const uint64_t pages = (offset + size - 1) / kIndexPageBytes - first + 1;
  if (const auto damaged =
          table_.Check(first * sizeof(uint64_t), pages * sizeof(uint64_t))) {
    return Damaged(table_, *damaged, "checksum");
  }
  if (const auto damaged = records_.Check(offset, size)) {
    return Damaged(records_, *damaged, "record");
  }
  return absl::OkStatus();
}

void IndexPages::AddUntouched(uint64_t offset, uint64_t size,
                              std::vector<uint64_t>* pages) const {
  if (size == 0) return;
  const uint64_t last = (offset + size - 1) / kIndexPageBytes;
  for (uint64_t page = offset / kIndexPageBytes; page <= last; ++page) {
    if (!records_.IsPageChecked(page)) pages->push_back(page);
  }
}

void IndexPages::Prefetch(std::vector<uint64_t> pages) const {
  std::vector<uint64_t> of_table;
  for (const uint64_t page : pages) {
    const uint64_t wanted = page / kChecksumsInPage;
    if (!table_.IsPageChecked(wanted)) of_table.push_back(wanted);
  }
  ReadAheadPages(table_.bytes(), &of_table);
  ReadAheadPages(records_.bytes(), &pages);
}

}  // namespace ballast
