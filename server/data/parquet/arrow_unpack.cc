#include <algorithm>
#include <memory>
#include <string>

#include <arrow/util/compression.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/data/parquet/unpack.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

using Decompressor = arrow::util::Decompressor;

constexpr uint64_t kReadBytes = uint64_t{128} << 10;
constexpr size_t kUnpackedBytes = size_t{1} << 20;

struct Packing {
  const char* extension;
  const char* program;
  arrow::Compression::type codec;
};

constexpr Packing kPackings[] = {
    {".zst", "zstd", arrow::Compression::ZSTD},
    {".gz", "gzip", arrow::Compression::GZIP},
};

const Packing* FindPacking(absl::string_view name) {
  for (const Packing& packing : kPackings) {
    if (absl::EndsWith(name, packing.extension)) return &packing;
  }
  return nullptr;
}

absl::StatusOr<std::shared_ptr<Decompressor>> MakeDecompressor(
    const Packing& packing) {
  auto codec = arrow::util::Codec::Create(packing.codec);
  if (!codec.ok()) return absl::InternalError(codec.status().message());
  auto made = (*codec)->MakeDecompressor();
  if (!made.ok()) return absl::InternalError(made.status().message());
  return *std::move(made);
}

// Decodes the frames of one file.
class Unpacker {
 public:
  Unpacker(const File* file, absl::string_view name, const Packing* packing,
           std::shared_ptr<Decompressor> decoder, TakeUnpacked take)
      : file_(*file),
        name_(name),
        packing_(*packing),
        decoder_(std::move(decoder)),
        take_(take),
        unpacked_(kUnpackedBytes, '\0') {}

  absl::Status Run() {
    const uint64_t size = file_.stamp().size;
    while (read_ < size) {
      BALLAST_ASSIGN_OR_RETURN(
          const std::string bytes,
          file_.ReadAt(read_, std::min(kReadBytes, size - read_)));
      BALLAST_RETURN_IF_ERROR(Decode(bytes));
    }
    if (decoder_->IsFinished()) return absl::OkStatus();
    return Damaged(
        absl::StrCat("ends at byte ", size,
                     " within a frame, as if its download was cut off"));
  }

 private:
  absl::Status Decode(absl::string_view bytes) {
    // A full buffer may not be all that the decoder has.
    bool has_more = false;
    while (!bytes.empty() || (has_more && !decoder_->IsFinished())) {
      if (decoder_->IsFinished()) {
        const arrow::Status reset = decoder_->Reset();
        if (!reset.ok()) return absl::InternalError(reset.message());
      }
      const auto done = decoder_->Decompress(
          static_cast<int64_t>(bytes.size()),
          reinterpret_cast<const uint8_t*>(bytes.data()), kUnpackedBytes,
          reinterpret_cast<uint8_t*>(unpacked_.data()));
      if (!done.ok()) return Refused(done.status().message(), bytes.size());
      const auto written = static_cast<size_t>(done->bytes_written);
      if (done->bytes_read == 0 && written == 0 && !bytes.empty()) {
        return Refused("nothing can be decoded", bytes.size());
      }
      bytes.remove_prefix(static_cast<size_t>(done->bytes_read));
      read_ += static_cast<uint64_t>(done->bytes_read);
      has_more = written == kUnpackedBytes;
      if (written == 0) continue;
      BALLAST_RETURN_IF_ERROR(
          take_(absl::string_view(unpacked_).substr(0, written), read_));
    }
    return absl::OkStatus();
  }

  // `message` is the codec's, of one of the next `size` bytes.
  absl::Status Refused(absl::string_view message, size_t size) const {
    if (absl::StrContains(message, "requires too much memory")) {
      return absl::FailedPreconditionError(absl::StrCat(
          Printable(name_), ": the frame at byte ", read_,
          " has a window of more than 128 MiB, which is not read; was it "
          "written by `zstd --long`? Write it again: `zstd -dc --long=31 ",
          Printable(name_), " | zstd -o NEW.jsonl.zst`"));
    }
    return Damaged(absl::StrCat("damaged between bytes ", read_, " and ",
                                read_ + size, " of ", file_.stamp().size, " (",
                                message, ")"));
  }

  absl::Status Damaged(absl::string_view what) const {
    return absl::DataLossError(
        absl::StrCat(Printable(name_), ": ", what, "; fetch it again, until `",
                     packing_.program, " -t ", Printable(name_), "` is fine"));
  }

  const File& file_;
  const absl::string_view name_;
  const Packing& packing_;
  const std::shared_ptr<Decompressor> decoder_;
  const TakeUnpacked take_;
  std::string unpacked_;
  uint64_t read_ = 0;  // bytes of the file that were decoded
};

}  // namespace

bool IsPacked(absl::string_view name) { return FindPacking(name) != nullptr; }

absl::Status Unpack(const File& file, absl::string_view name,
                    TakeUnpacked take) {
  const Packing* packing = FindPacking(name);
  if (packing == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        Printable(name), ": found another name than NAME.zst or NAME.gz"));
  }
  BALLAST_ASSIGN_OR_RETURN(std::shared_ptr<Decompressor> decoder,
                           MakeDecompressor(*packing));
  return Unpacker(&file, name, packing, std::move(decoder), take).Run();
}

}  // namespace ballast
