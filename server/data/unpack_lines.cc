#include "server/data/unpack_lines.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/threads.h"
#include "server/data/index/file_scan.h"
#include "server/data/parquet/unpack.h"
#include "server/files/path_pattern.h"
#include "server/files/storage.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kFirstBytes = uint64_t{16} << 20;
// Files of a store that are unpacked at the same time.
constexpr uint32_t kStoreThreads = 32;
// Lines of a file may take this many times its bytes, and kMoreBytes: texts take
// 3 to 30 times, what is made to fill a disk 1,000 times and more.
constexpr uint64_t kMostTimes = 100;
constexpr uint64_t kMoreBytes = uint64_t{64} << 20;
// Times up to 2043, which file systems can keep; hashes of ETags are larger.
constexpr int64_t kTimeMask = (int64_t{1} << 61) - 1;

// The unpacked bytes of a zstd frame that begins with `head`, if they are in
// its header (RFC 8878, 3.1.1.1); 0 otherwise.
uint64_t ReadContentSize(absl::string_view head) {
  constexpr absl::string_view kMagic = "\x28\xb5\x2f\xfd";
  if (!absl::StartsWith(head, kMagic) || head.size() < 5) return 0;
  const auto descriptor = static_cast<uint8_t>(head[4]);
  const bool has_window = (descriptor & 0x20) == 0;
  constexpr size_t kIdBytes[] = {0, 1, 2, 4};
  const size_t at = 5 + (has_window ? 1 : 0) + kIdBytes[descriptor & 3];
  const unsigned kind = descriptor >> 6;
  const size_t bytes = kind == 0 && has_window ? 0 : size_t{1} << kind;
  if (bytes == 0 || head.size() < at + bytes) return 0;
  uint64_t size = 0;
  for (size_t i = bytes; i-- > 0;) {
    size = size << 8 | static_cast<uint8_t>(head[at + i]);
  }
  return bytes == 2 ? size + 256 : size;
}

// Refuses lines that take more room than the disk of `folder` has.
absl::Status CheckRoom(const std::string& folder,
                       const std::vector<SourceFile>& files, uint32_t threads) {
  constexpr uint64_t kHead = 18;
  std::vector<uint64_t> sizes(files.size());
  BALLAST_RETURN_IF_ERROR(
      RunAll(files.size(), threads, [&](size_t i) -> absl::Status {
        BALLAST_ASSIGN_OR_RETURN(
            const File file, Storage::OfProcess().Open(files[i].packed->path));
        BALLAST_ASSIGN_OR_RETURN(
            const std::string head,
            file.ReadAt(0, std::min(kHead, file.stamp().size)));
        sizes[i] = ReadContentSize(head);
        return absl::OkStatus();
      }));
  std::error_code error;
  const uint64_t room = fs::space(folder, error).available;
  if (error) return absl::OkStatus();
  uint64_t wanted = 0;
  for (const uint64_t size : sizes) {
    if (__builtin_add_overflow(wanted, size, &wanted)) {
      wanted = std::numeric_limits<uint64_t>::max();
    }
  }
  if (wanted <= room) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      folder, ": the lines of ", files.size(), " compressed files, from ",
      Printable(files.front().name), " on, take at least ", wanted,
      " bytes, found ", room,
      " free; make room, or set sources[].index to a path on a larger disk"));
}

// Unpacks one file; adds its unpacked bytes to `bytes`.
absl::Status UnpackFile(const SourceFile& file, ProgressMeter* progress,
                        std::atomic<uint64_t>* bytes) {
  const PackedFile& packed = *file.packed;
  BALLAST_ASSIGN_OR_RETURN(const File from,
                           Storage::OfProcess().Open(packed.path));
  uint64_t done = 0;
  uint64_t written = 0;
  return ReplaceFile(file.path, [&](File& to) -> absl::Status {
    const auto write = [&](absl::string_view lines,
                           uint64_t read) -> absl::Status {
      progress->Add(read - std::exchange(done, read), 0, 0);
      *bytes += lines.size();
      written += lines.size();
      if (written > kMostTimes * packed.stamp.size + kMoreBytes) {
        return absl::FailedPreconditionError(absl::StrCat(
            packed.path, ": ", packed.stamp.size, " bytes unpack to more than ",
            written, "; wanted at most ", kMostTimes, " times as many and ",
            kMoreBytes, ", since such files are made to fill a disk; if this "
            "one is right, unpack it yourself"));
      }
      return to.Write(lines);
    };
    BALLAST_RETURN_IF_ERROR(Unpack(from, file.name, write));
    BALLAST_ASSIGN_OR_RETURN(const FileStamp now,
                             Storage::OfProcess().Stamp(packed.path));
    if (!(now == packed.stamp && from.stamp() == packed.stamp)) {
      return absl::AbortedError(absl::StrCat(
          packed.path, ": changed while it was unpacked; index it again"));
    }
    progress->Add(now.size - done, 0, 0);
    return to.SetTime(packed.stamp.mtime_ns & kTimeMask);
  });
}

}  // namespace

absl::StatusOr<UnpackReport> UnpackLines(
    const v1::Source& source, absl::string_view directory, const Shard& shard,
    uint32_t threads,
    const std::function<void(const IndexProgress&)>& progress) {
  UnpackReport report;
  if (source.format() != v1::Source::FORMAT_JSONL) return report;
  report.folder = LinesFolder(source, directory);
  BALLAST_ASSIGN_OR_RETURN(const std::vector<SourceFile> files,
                           ListSourceFiles(source, directory));
  const UnitRange range = GetUnits(shard, files.size());
  std::vector<SourceFile> wanted;
  for (uint64_t i = range.begin; i < range.end; ++i) {
    const SourceFile& file = files[i];
    std::error_code error;
    if (!file.packed || fs::exists(file.path, error)) continue;
    report.packed_bytes += file.packed->stamp.size;
    wanted.push_back(file);
  }
  report.files = wanted.size();
  if (wanted.empty()) return report;
  std::error_code error;
  fs::create_directories(report.folder, error);
  if (error) return FileError(error.value(), "make the folder", report.folder);
  RemoveUnfinished(report.folder);
  if (IsStoreUrl(wanted[0].packed->path)) {
    threads = std::max(threads, kStoreThreads);
  }
  BALLAST_RETURN_IF_ERROR(CheckRoom(report.folder, wanted, threads));
  ProgressMeter meter(report.packed_bytes, progress);
  std::atomic<uint64_t> bytes{0};
  BALLAST_RETURN_IF_ERROR(RunAll(wanted.size(), threads, [&](size_t i) {
    return UnpackFile(wanted[i], &meter, &bytes);
  }));
  report.bytes = bytes;
  return report;
}

absl::StatusOr<uint64_t> RemoveOldLines(const v1::Source& source,
                                        absl::string_view directory) {
  const std::string folder = LinesFolder(source, directory);
  std::error_code error;
  if (!fs::exists(folder, error)) return 0;
  BALLAST_ASSIGN_OR_RETURN(const std::vector<SourceFile> files,
                           ListSourceFiles(source, directory));
  absl::flat_hash_set<std::string> kept;
  for (const SourceFile& file : files) kept.insert(file.path);
  std::vector<std::string> old;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string path = entry->path().string();
    // Another process may be writing those.
    if (absl::StrContains(path, ".writing.")) continue;
    if (!kept.contains(path)) old.push_back(path);
  }
  if (error) return FileError(error.value(), "list", folder);
  for (const std::string& path : old) {
    if (!fs::remove(path, error) && error) {
      return FileError(error.value(), "remove", path);
    }
  }
  return old.size();
}

absl::StatusOr<FirstLines> OpenFirstLines(const std::string& path) {
  BALLAST_ASSIGN_OR_RETURN(File file, Storage::OfProcess().Open(path));
  if (!IsPacked(path)) return FirstLines{std::move(file)};
  std::string lines;
  uint64_t read_bytes = 0;
  const absl::Status status =
      Unpack(file, path, [&](absl::string_view bytes, uint64_t read) {
        absl::StrAppend(&lines, bytes);
        read_bytes = read;
        return lines.size() < kFirstBytes ? absl::OkStatus()
                                          : absl::CancelledError("enough");
      });
  const bool is_cut = absl::IsCancelled(status);
  if (!status.ok() && !is_cut) return status;
  if (is_cut && absl::StrContains(lines, '\n')) {
    lines.resize(lines.rfind('\n') + 1);
  }
  std::error_code error;
  const fs::path folder = fs::temp_directory_path(error);
  if (error) return FileError(error.value(), "find", "the folder TMPDIR");
  BALLAST_ASSIGN_OR_RETURN(
      File copy, File::CreateUnique((folder / "ballast-lines").string()));
  const absl::Status written = copy.Write(lines);
  absl::StatusOr<File> opened = File::Open(copy.path());
  unlink(copy.path().c_str());
  BALLAST_RETURN_IF_ERROR(written);
  BALLAST_RETURN_IF_ERROR(opened.status());
  return FirstLines{*std::move(opened), read_bytes, is_cut};
}

}  // namespace ballast
