#include "tests/server/media/depth/depth_maps.h"

#include <png.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <csetjmp>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

// Its row of an index, in place of StreamFacts.
struct DepthInIndex {
  double unused[4];
  uint32_t width;
  uint32_t height;
  uint32_t zero[3];
  uint32_t flags;  // as StreamFacts
  char none[16];
};
static_assert(sizeof(DepthInIndex) == sizeof(StreamFacts));

uint32_t Big32(absl::string_view bytes) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | uint8_t(bytes[i]);
  return value;
}

absl::StatusOr<std::string> ReadBytes(const RawMedium& file, uint64_t size) {
  std::string bytes(std::min(size, file.size), '\0');
  const ssize_t got =
      pread(file.fd->get(), bytes.data(), bytes.size(), off_t(file.offset));
  BALLAST_RETURN_IF_ERROR(CheckUnchanged(file));
  if (got != static_cast<ssize_t>(bytes.size())) {
    return absl::UnavailableError("a depth map cannot be read");
  }
  return bytes;
}

class DepthReader : public RowsReader {
 public:
  explicit DepthReader(uint32_t patch) : patch_(patch) {}

  absl::StatusOr<StreamFacts> ReadFacts(const RawMedium& file,
                                        bool /*in_video*/) override {
    BALLAST_ASSIGN_OR_RETURN(const std::string head, ReadBytes(file, 26));
    const absl::string_view bytes = head;
    if (bytes.size() < 26 || bytes.substr(0, 8) != "\x89PNG\r\n\x1a\n" ||
        bytes.substr(12, 4) != "IHDR" || bytes[24] != 16 || bytes[25] != 0) {
      return DataFaultError("no PNG of 16 bits and one channel");
    }
    DepthInIndex facts = {};
    facts.width = Big32(bytes.substr(16));
    facts.height = Big32(bytes.substr(20));
    auto row = std::bit_cast<StreamFacts>(facts);
    row.SetRowsKind(DepthKind());
    return row;
  }

  absl::Status Write(const RawMedium& file, const StreamFacts& row,
                     absl::Span<float> out) override {
    const auto facts = std::bit_cast<DepthInIndex>(row);
    BALLAST_ASSIGN_OR_RETURN(const std::string bytes,
                             ReadBytes(file, file.size));
    BALLAST_ASSIGN_OR_RETURN(const std::vector<uint16_t> pixels,
                             ReadDepthMap(bytes, facts.width, facts.height));
    float* to = out.data();
    for (uint32_t y = 0; y < facts.height; y += patch_) {
      for (uint32_t x = 0; x < facts.width; x += patch_) {
        for (uint32_t line = y; line < y + patch_; ++line) {
          const uint16_t* from = &pixels[size_t{line} * facts.width + x];
          to = std::copy(from, from + patch_, to);
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  const uint32_t patch_;
};

class DepthRule : public RowsRule {
 public:
  DepthRule(MediumKind kind, const v1::MediumFamily& family, uint32_t patch)
      : RowsRule(kind), marks_(family.marks()), patch_(patch) {}

  absl::StatusOr<RowsPlan> Plan(const StreamFacts& row) const override {
    const auto facts = std::bit_cast<DepthInIndex>(row);
    if (facts.width == 0 || facts.height == 0 || facts.width % patch_ != 0 ||
        facts.height % patch_ != 0 || facts.width > 4096 ||
        facts.height > 4096) {
      return DataFaultError(
          absl::StrCat("a depth map of ", facts.width, "x", facts.height,
                       " pixels; wanted sides of whole patches of ", patch_,
                       ", at most 4096"));
    }
    const uint32_t patches = facts.width / patch_ * (facts.height / patch_);
    return RowsPlan{patches, patches, patches,
                    uint64_t{8} * facts.width * facts.height};
  }
  v1::Job::ClipShape shape() const override {
    v1::Job::ClipShape shape;
    shape.set_width(patch_ * patch_);
    shape.set_dummy_rows(1);
    return shape;
  }
  const v1::AudioFamily::Marks& marks() const override { return marks_; }
  IndexKeys index_keys(const v1::Model& /*model*/) const override {
    return {"\ndepth=taken", absl::StrCat("depth: ", patch_, "\n")};
  }
  std::vector<std::pair<std::string, std::string>> fingerprint()
      const override {
    return {{"depth", absl::StrCat(patch_)}, {"depth_rules", "1"}};
  }
  std::unique_ptr<RowsReader> MakeReader(
      int /*threads*/, HelperCounters* /*counters*/) const override {
    return std::make_unique<DepthReader>(patch_);
  }

 private:
  const v1::AudioFamily::Marks marks_;
  const uint32_t patch_;
};

absl::StatusOr<std::unique_ptr<RowsRule>> OpenDepth(
    MediumKind kind, const v1::MediumFamily& family) {
  const auto patch = family.numbers().find("patch");
  if (patch == family.numbers().end() || patch->second < 1 ||
      patch->second > 31 ||
      patch->second != static_cast<uint32_t>(patch->second)) {
    return absl::InvalidArgumentError(
        "numbers: patch is missing or no side; wanted 1 to 31");
  }
  return std::make_unique<DepthRule>(kind, family,
                                     static_cast<uint32_t>(patch->second));
}

// What libpng reads from, and where it jumps to.
struct Source {
  absl::string_view bytes;
  std::jmp_buf failed;
};

void Fail(png_structp png, png_const_charp /*message*/) {
  std::longjmp(static_cast<Source*>(png_get_error_ptr(png))->failed, 1);
}

void Feed(png_structp png, png_bytep to, size_t size) {
  absl::string_view& bytes = static_cast<Source*>(png_get_io_ptr(png))->bytes;
  if (bytes.size() < size) png_error(png, "cut short");
  std::memcpy(to, bytes.data(), size);
  bytes.remove_prefix(size);
}

}  // namespace

// The one row of the table.
MediumKind DepthKind() {
  static const MediumKind kind =
      AddRowsKind({{"depth", "depth maps", "<depth>"}, "patches", OpenDepth});
  return kind;
}
[[maybe_unused]] static const MediumKind kDepth = DepthKind();

absl::StatusOr<std::vector<uint16_t>> ReadDepthMap(absl::string_view file,
                                                   uint32_t width,
                                                   uint32_t height) {
  Source source = {file, {}};
  std::vector<uint16_t> pixels(size_t{width} * height);
  std::vector<png_bytep> rows;
  for (uint32_t y = 0; y < height; ++y) {
    rows.push_back(reinterpret_cast<png_bytep>(&pixels[size_t{y} * width]));
  }
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source, Fail,
                                           [](png_structp, const char*) {});
  png_infop info = png_create_info_struct(png);
  if (setjmp(source.failed) != 0) {
    png_destroy_read_struct(&png, &info, nullptr);
    return DataFaultError("a depth map that libpng cannot read to its end");
  }
  png_set_read_fn(png, &source, Feed);
  png_read_info(png, info);
  if (png_get_image_width(png, info) != width ||
      png_get_image_height(png, info) != height ||
      png_get_bit_depth(png, info) != 16 ||
      png_get_color_type(png, info) != PNG_COLOR_TYPE_GRAY) {
    png_error(png, "another picture");
  }
  png_set_swap(png);
  png_read_image(png, rows.data());
  png_read_end(png, nullptr);
  png_destroy_read_struct(&png, &info, nullptr);
  return pixels;
}

}  // namespace ballast
