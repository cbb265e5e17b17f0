#include "server/data/read_media.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/files/storage.h"
#include "server/sample/data_fault.h"
#include "server/sample/medium.h"

namespace ballast {
namespace {

// Bytes of a medium that its hash covers.
uint64_t GetHeadBytes(uint64_t size) {
  return std::min<uint64_t>(size, ImagesHash::kHeadBytes);
}

}  // namespace

absl::Status MediaReader::ReadImage(
    uint64_t size, absl::FunctionRef<absl::Status(char* to)> read) {
  char* const place = parts_.places == nullptr || size == 0
                          ? nullptr
                          : (*parts_.places)(image_, images_, size);
  std::string bytes(place == nullptr ? size : 0, '\0');
  char* const to = place == nullptr ? bytes.data() : place;
  BALLAST_RETURN_IF_ERROR(read(to));
  hash_.Add(size, {to, GetHeadBytes(size)});
  ++image_;
  sample_->media.push_back(RawMedium::Image(std::move(bytes)));
  if (place != nullptr) sample_->media.back().placed = {place, size};
  return absl::OkStatus();
}

absl::Status MediaReader::ReadRange(const FileView& file, ByteRange range) {
  // The end of the file is looked at before memory is taken.
  if (range.offset > file.size() || range.size > file.size() - range.offset) {
    return file.ReadAt(range.offset, range.size).status();
  }
  if (!parts_.whole_images) {
    BALLAST_ASSIGN_OR_RETURN(
        const std::string head,
        file.ReadAt(range.offset, GetHeadBytes(range.size)));
    hash_.Add(range.size, head);
    ++image_;
    sample_->media.emplace_back();
    return absl::OkStatus();
  }
  return ReadImage(range.size, [&](char* to) {
    return file.ReadAt(range.offset, range.size, to);
  });
}

absl::Status MediaReader::Take(const FileView& file) {
  if (file.size() > left_) {
    return DataFaultError(
        absl::StrCat("over ", kMaxSampleBytes, " bytes in all"));
  }
  left_ -= file.size();
  return absl::OkStatus();
}

absl::StatusOr<File> MediaReader::Open(const MediumPath& named) {
  if (root_ == nullptr) {
    return absl::InternalError("a record of this format names no media");
  }
  BALLAST_ASSIGN_OR_RETURN(File file, root_->Open(named.path, parts_.from));
  if (file.object() != nullptr) {
    in_store_.push_back(named.path);
  } else {
    media_time_ns_ = std::max(media_time_ns_, file.stamp().mtime_ns);
  }
  return file;
}

absl::Status MediaReader::AddImage(const Medium& image) {
  if (const auto* range = std::get_if<ByteRange>(&image.place)) {
    return ReadRange(file_, *range);
  }
  if (const auto* bytes = std::get_if<absl::string_view>(&image.place)) {
    return ReadImage(bytes->size(), [&](char* to) {
      std::memcpy(to, bytes->data(), bytes->size());
      return absl::OkStatus();
    });
  }
  if (const auto* pieces = std::get_if<MediumPieces>(&image.place)) {
    return ReadImage(pieces->size, [&](char* to) {
      return ReadPieces(file_, pieces->pieces, pieces->others, to);
    });
  }
  BALLAST_ASSIGN_OR_RETURN(const File file,
                           Open(std::get<MediumPath>(image.place)));
  FileView view(&file, parts_.from, owner_);
  BALLAST_RETURN_IF_ERROR(Take(view));
  BALLAST_RETURN_IF_ERROR(view.Load(
      {{0, parts_.whole_images ? view.size() : GetHeadBytes(view.size())}}));
  BALLAST_RETURN_IF_ERROR(ReadRange(view, {0, view.size()}));
  return view.CheckUnchanged();
}

absl::StatusOr<std::string> MediaReader::ReadPicture(const Medium& picture) {
  if (const auto* range = std::get_if<ByteRange>(&picture.place)) {
    return file_.ReadAt(range->offset, range->size);
  }
  const auto* named = std::get_if<MediumPath>(&picture.place);
  if (named == nullptr) {
    return absl::InternalError("a picture of a video in memory");
  }
  BALLAST_ASSIGN_OR_RETURN(const File file, Open(*named));
  FileView view(&file, parts_.from, owner_);
  BALLAST_RETURN_IF_ERROR(Take(view));
  BALLAST_RETURN_IF_ERROR(view.Load({{0, view.size()}}));
  BALLAST_ASSIGN_OR_RETURN(std::string bytes, view.ReadAt(0, view.size()));
  BALLAST_RETURN_IF_ERROR(view.CheckUnchanged());
  return bytes;
}

absl::Status MediaReader::AddRange(MediumKind kind, FileView file,
                                   ByteRange range) {
  if (file.object() != nullptr) {
    uint64_t bytes = range.size;
    for (const RawMedium& other : sample_->media) bytes += other.size;
    if (bytes > kMaxSampleBytes) {
      return DataFaultError(absl::StrCat("its videos in a store have over ",
                                         kMaxSampleBytes, " bytes in all"));
    }
    // What the hash and the decoder read is of one version, and fetched once.
    BALLAST_RETURN_IF_ERROR(file.Load({range}));
  }
  BALLAST_ASSIGN_OR_RETURN(RawMedium opened,
                           OpenMedium(kind, file, range.offset, range.size));
  BALLAST_ASSIGN_OR_RETURN(const std::string head,
                           file.ReadAt(range.offset, GetHeadBytes(range.size)));
  hash_.Add(range.size, head);
  sample_->media.push_back(std::move(opened));
  return absl::OkStatus();
}

absl::Status MediaReader::AddList(const RecordMedium& list) {
  RawMedium read;
  read.kind = list.kind;
  for (const Medium& part : list.parts) {
    BALLAST_ASSIGN_OR_RETURN(std::string bytes, ReadPicture(part));
    hash_.Add(bytes.size(),
              absl::string_view(bytes).substr(0, ImagesHash::kHeadBytes));
    read.size += bytes.size();
    read.pictures.push_back(std::move(bytes));
  }
  sample_->media.push_back(std::move(read));
  return absl::OkStatus();
}

absl::Status MediaReader::AddStream(const RecordMedium& stream) {
  const Medium& part = stream.parts[0];
  if (const auto* range = std::get_if<ByteRange>(&part.place)) {
    return AddRange(stream.kind, file_, *range);
  }
  if (const auto* bytes = std::get_if<absl::string_view>(&part.place)) {
    hash_.Add(bytes->size(), bytes->substr(0, ImagesHash::kHeadBytes));
    BALLAST_ASSIGN_OR_RETURN(
        RawMedium opened, MediumInMemory(stream.kind, *bytes, sample_->name));
    sample_->media.push_back(std::move(opened));
    return absl::OkStatus();
  }
  const auto* named = std::get_if<MediumPath>(&part.place);
  if (named == nullptr) {
    return absl::InternalError("a video in pieces of a file");
  }
  BALLAST_ASSIGN_OR_RETURN(const File file, Open(*named));
  const FileView view(&file, parts_.from, owner_);
  return AddRange(stream.kind, view, {0, view.size()});
}

absl::Status MediaReader::Add(const RecordMedium& medium) {
  if (medium.kind == MediumKind::kImage) return AddImage(medium.parts[0]);
  return medium.is_list ? AddList(medium) : AddStream(medium);
}

absl::Status MediaReader::CheckMediaAreIndexed(int64_t newest_ns) const {
  constexpr char kAdvice[] =
      "; restore them, or index the source with --rebuild and restart the "
      "servers";
  if (GetModified(newest_ns) != absl::InfinitePast()) {
    return absl::UnavailableError(absl::StrCat(
        "named media have changed since they were indexed: one was modified "
        "after all that the index knows",
        kAdvice));
  }
  if (parts_.from != ReadFrom::kDisk) return absl::OkStatus();
  for (const std::string& path : in_store_) {
    const auto seen = root_->Open(path, ReadFrom::kMemory);
    if (!seen.ok()) continue;
    const auto now = Storage::OfProcess().Stamp(seen->path());
    if (now.ok() && *now == seen->stamp()) continue;
    return absl::UnavailableError(
        "named media have another version in the store than was read");
  }
  return absl::OkStatus();
}

}  // namespace ballast
