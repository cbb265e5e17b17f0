#include "server/command/init/first_samples.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "server/corpus/file.h"
#include "server/corpus/jsonl/conversation_json.h"
#include "server/corpus/jsonl/element_reader.h"
#include "server/corpus/jsonl/line_reader.h"
#include "server/corpus/limits.h"
#include "server/corpus/parquet/parquet_file.h"
#include "server/corpus/tar/webdataset_reader.h"
#include "server/text/conversation.h"

namespace ballast {
namespace {

constexpr uint64_t kMostSamples = 256;
// Samples of Parquet files, whose row groups are read whole.
constexpr uint64_t kMostRows = 16;
constexpr uint64_t kMostCounted = uint64_t{1} << 30;

// Collects what the samples of one group of files show.
class Looker {
 public:
  Looker(const std::vector<std::string>& files,
         const std::vector<std::string>& roots, SeenFiles* seen)
      : files_(files), roots_(roots), found_(roots.size()), seen_(seen) {}

  void Look() {
    uint64_t counted = 0;
    for (const std::string& path : files_) {
      if (counted > 0 && counted >= kMostCounted) break;
      path_ = path;
      const absl::StatusOr<File> file = File::Open(path);
      const absl::Status status = file.ok() ? LookAt(*file) : file.status();
      if (!status.ok()) {
        Bad(status.message());
        break;
      }
      counted += file->stamp().size;
    }
    if (counted > 0 && counted < seen_->bytes) {
      seen_->estimated = true;
      seen_->samples = static_cast<uint64_t>(
          static_cast<double>(seen_->samples) * seen_->bytes / counted);
    }
    ChooseRoot();
  }

 private:
  bool more() const { return seen_->looked_at < kMostSamples; }

  void Bad(absl::string_view reason) {
    if (++seen_->bad == 1) {
      seen_->first_fault = absl::StrCat(path_, ": ", reason);
    }
  }

  // A sample that was read: `fault` is the first thing wrong with it.
  void Count(const absl::Status& fault, uint64_t images, uint64_t text) {
    ++seen_->looked_at;
    if (!fault.ok()) {
      Bad(fault.message());
      return;
    }
    seen_->with_images += images > 0 ? 1 : 0;
    seen_->most_images = std::max(seen_->most_images, images);
    seen_->most_text = std::max(seen_->most_text, text);
  }

  absl::Status LookAt(const File& file) {
    switch (seen_->format) {
      case SeenFiles::Format::kWebDataset:
      case SeenFiles::Format::kEnergon:
        return LookAtTar(file);
      case SeenFiles::Format::kJsonl:
        return LookAtLines(file);
      case SeenFiles::Format::kParquet:
        return LookAtRows(file);
    }
    return absl::OkStatus();
  }

  absl::Status LookAtTar(const File& file) {
    WebDatasetReader reader(&file, 0, file.stamp().size, /*whole=*/true);
    while (true) {
      BALLAST_ASSIGN_OR_RETURN(const std::optional<WebDatasetSample> sample,
                               reader.Next());
      if (!sample.has_value()) return absl::OkStatus();
      ++seen_->samples;
      if (!more()) continue;
      absl::Status fault = sample->fault;
      if (fault.ok() &&
          sample->text_format == RawSample::TextFormat::kConversation &&
          sample->text.size <= kMaxTextBytes) {
        BALLAST_ASSIGN_OR_RETURN(
            const std::string text,
            file.ReadAt(sample->text.data, sample->text.size));
        fault = ParseConversation(text).status();
      }
      Count(Named(fault, absl::StrCat("sample ", sample->key)),
            sample->images.size(), sample->text.size);
    }
  }

  // Lines, or the elements of one array.
  absl::Status LookAtLines(const File& file) {
    BALLAST_ASSIGN_OR_RETURN(const bool is_array, IsJsonArray(file));
    if (is_array) {
      ElementReader reader(&file, kMaxTextBytes);
      return LookAtConversations(&reader, "element");
    }
    LineReader reader(&file, kMaxTextBytes);
    return LookAtConversations(&reader, "line");
  }

  // `what` names a line of the reader.
  template <typename Reader>
  absl::Status LookAtConversations(Reader* reader, absl::string_view what) {
    while (true) {
      BALLAST_ASSIGN_OR_RETURN(const std::optional<Line> line, reader->Next());
      if (!line.has_value()) return absl::OkStatus();
      if (line->length == 0) continue;
      ++seen_->samples;
      if (!more()) continue;
      absl::StatusOr<JsonSample> sample = ParseJsonSample(line->text);
      absl::Status fault = sample.status();
      if (fault.ok() &&
          sample->text_format == RawSample::TextFormat::kConversation) {
        fault = ParseConversation(line->text).status();
      }
      const std::string place = absl::StrCat(what, " ", line->number);
      Count(Named(fault, place), sample.ok() ? sample->images.size() : 0,
            line->length);
      if (fault.ok()) FindImages(sample->images, place);
    }
  }

  absl::Status LookAtRows(const File& file) {
    ParquetColumns columns;
    columns.recognise = true;
    BALLAST_ASSIGN_OR_RETURN(const std::shared_ptr<const ParquetFile> parquet,
                             OpenParquetFile(FileView(&file), columns));
    for (const ParquetGroup& group : parquet->groups()) {
      seen_->samples += group.num_rows;
    }
    if (seen_->looked_at > 0 || parquet->groups().empty()) {
      return absl::OkStatus();
    }
    BALLAST_ASSIGN_OR_RETURN(const std::shared_ptr<const ParquetRows> rows,
                             parquet->Read(FileView(&file), 0));
    const uint64_t most =
        std::min(kMostRows, parquet->groups().front().num_rows);
    for (uint64_t i = 0; i < most; ++i) {
      const absl::StatusOr<ParquetRow> row = rows->Row(i);
      Count(Named(row.status(), absl::StrCat("row ", i)),
            row.ok() ? row->images.size() : 0, row.ok() ? row->text.size() : 0);
    }
    return absl::OkStatus();
  }

  static absl::Status Named(const absl::Status& fault, absl::string_view what) {
    if (fault.ok()) return fault;
    return absl::Status(fault.code(),
                        absl::StrCat(what, ": ", fault.message()));
  }

  // Counts below which candidates the images of the sample at `place` lie.
  void FindImages(const std::vector<std::string>& images,
                  absl::string_view place) {
    for (const std::string& image : images) {
      ++images_;
      bool anywhere = false;
      for (size_t i = 0; i < roots_.size(); ++i) {
        std::error_code error;
        if (std::filesystem::is_regular_file(
                absl::StrCat(roots_[i], "/", image), error)) {
          ++found_[i];
          anywhere = true;
        }
      }
      if (!anywhere && missing_.empty()) {
        missing_ = absl::StrCat(path_, ": ", place, ": there is no ", image,
                                " beside the file, in the folder or in one of "
                                "its folders; set media_root to the folder "
                                "that image paths begin at");
      }
    }
  }

  void ChooseRoot() {
    if (images_ == 0) return;
    const auto best = std::max_element(found_.begin(), found_.end());
    seen_->media_root = roots_[best - found_.begin()];
    if (*best < images_) {
      // Without any image each sample is bad.
      seen_->bad = *best == 0 ? seen_->looked_at : seen_->bad + 1;
      if (seen_->first_fault.empty()) {
        seen_->first_fault =
            missing_.empty()
                ? absl::StrCat(path_, ": of ", images_, " images ", *best,
                               " lie below ", seen_->media_root,
                               ", and others below another folder; set "
                               "media_root to the folder that holds all")
                : missing_;
      }
    }
  }

  const std::vector<std::string>& files_;
  const std::vector<std::string>& roots_;
  std::vector<uint64_t> found_;  // images below each of `roots_`
  SeenFiles* const seen_;
  std::string path_;
  uint64_t images_ = 0;
  std::string missing_;
};

}  // namespace

void LookAtFirstSamples(const std::vector<std::string>& files,
                        const std::vector<std::string>& roots,
                        SeenFiles* seen) {
  Looker(files, roots, seen).Look();
}

}  // namespace ballast
