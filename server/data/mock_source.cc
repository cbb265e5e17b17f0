#include "server/data/mock_source.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "common/random.h"
#include "common/small_file.h"
#include "common/status_macros.h"
#include "proto/image/job_images.h"
#include "server/media/encode.h"
#include "server/sample/index_format.h"

namespace ballast {
namespace {

constexpr uint32_t kMaxTokens = 1u << 24;

constexpr size_t kMaxLengths = size_t{1} << 28;

// Reads the numbers of one line into `lengths`. Returns the first entry that is
// not a number, if any.
std::optional<absl::string_view> ReadLine(absl::string_view line,
                                          std::vector<uint32_t>* lengths) {
  for (const absl::string_view entry : absl::StrSplit(line, ',')) {
    const absl::string_view text = absl::StripAsciiWhitespace(entry);
    uint32_t length = 0;
    if (!absl::SimpleAtoi(text, &length) || length < 1 || length > kMaxTokens) {
      return text;
    }
    lengths->push_back(length);
  }
  return std::nullopt;
}

bool HoldsANumber(absl::string_view line) {
  for (const absl::string_view entry : absl::StrSplit(line, ',')) {
    double number = 0;
    if (absl::SimpleAtod(entry, &number)) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<std::vector<uint32_t>> ParseLengths(absl::string_view text) {
  std::vector<uint32_t> lengths;
  size_t number = 0;
  for (const absl::string_view each : absl::StrSplit(text, '\n')) {
    ++number;
    const absl::string_view line = absl::StripAsciiWhitespace(each);
    if (line.empty() || (number == 1 && !HoldsANumber(line))) continue;
    if (const auto wrong = ReadLine(line, &lengths)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "line ", number, ": found \"", absl::CHexEscape(wrong->substr(0, 40)),
          "\"; wanted a whole number from 1 to ", kMaxTokens));
    }
    if (lengths.size() > kMaxLengths) {
      return absl::InvalidArgumentError(
          absl::StrCat("more than ", kMaxLengths, " lengths"));
    }
  }
  if (lengths.empty()) return absl::InvalidArgumentError("holds no length");
  return lengths;
}

absl::Status CheckLognormalLengths(const LognormalLengths& lengths) {
  const auto fault = [](absl::string_view what, auto found,
                        absl::string_view wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " is ", found, "; wanted ", wanted));
  };
  if (lengths.min < 1 || lengths.min > kMaxTokens) {
    return fault("min", lengths.min, "1 to 2^24 tokens");
  }
  if (lengths.max < 1 || lengths.max > kMaxTokens) {
    return fault("max", lengths.max, "1 to 2^24 tokens");
  }
  if (lengths.min > lengths.max) {
    return fault("min", lengths.min,
                 absl::StrCat("at most max, which is ", lengths.max));
  }
  // Written so that NaN fails.
  if (!(lengths.mean > 0 && lengths.mean <= kMaxTokens)) {
    return fault("mean", lengths.mean, "more than 0, to 2^24 tokens");
  }
  if (!(lengths.sigma >= 0 && lengths.sigma <= 100)) {
    return fault("sigma", lengths.sigma, "0 to 100");
  }
  return absl::OkStatus();
}

MockLengths::MockLengths(const LognormalLengths& lengths)
    : lengths_(lengths),
      mu_(std::log(lengths.mean) - lengths.sigma * lengths.sigma / 2) {}

uint32_t MockLengths::Next() {
  const double drawn = std::exp(mu_ + lengths_.sigma * NextNormal());
  return static_cast<uint32_t>(
      std::clamp<double>(drawn, lengths_.min, lengths_.max));
}

double MockLengths::NextUniform() {
  const double high = bits_() >> 5;
  const double low = bits_() >> 6;
  return (high * 67108864.0 + low) / 9007199254740992.0;
}

double MockLengths::NextNormal() {
  if (has_second_) {
    has_second_ = false;
    return second_;
  }
  double x, y, square;
  do {
    x = 2.0 * NextUniform() - 1.0;
    y = 2.0 * NextUniform() - 1.0;
    square = x * x + y * y;
  } while (square >= 1.0 || square == 0.0);
  const double factor = std::sqrt(-2.0 * std::log(square) / square);
  // numpy uses the second coordinate first.
  second_ = factor * x;
  has_second_ = true;
  return factor * y;
}

namespace {

constexpr size_t kMaxLengthsBytes = size_t{1} << 30;

// Whether each image is between vision start and end. ModelText takes their ids
// only where keys of the model describe the images; marks of other models are
// not drawn.
bool HasEnds(const v1::Model& model) {
  return HasImageKeys(model) && model.token_ids().vision_start() >= 0 &&
         model.token_ids().vision_end() >= 0;
}

// Sizes of the images of draw `number`.
std::vector<ImageSize> DrawImages(const v1::Source& source, uint64_t number) {
  std::vector<ImageSize> sizes;
  if (!source.has_images()) return sizes;
  const v1::Source::Images& images = source.images();
  const v1::Source::Images::Pixels& pixels = images.pixels();
  Random random(MockSeed(source), 2 * number);
  const int count = random.Between(images.min(), images.max());
  // The median of a lognormal distribution with that mean.
  const double median =
      pixels.mean() * std::exp(-pixels.sigma() * pixels.sigma() / 2);
  for (int i = 0; i < count; ++i) {
    const double area =
        random.Lognormal(median, pixels.sigma(), pixels.min(), pixels.max());
    const double ratio =
        1 + (images.aspect() - 1) * random.Below(1 << 20) / (1 << 20);
    const auto shorter = static_cast<uint32_t>(
        std::max(1.0, std::floor(std::sqrt(area / ratio))));
    const auto longer = static_cast<uint32_t>(shorter * ratio);
    const bool upright = random.Chance(50);
    sizes.push_back(upright ? ImageSize{shorter, longer}
                            : ImageSize{longer, shorter});
  }
  return sizes;
}

}  // namespace

uint64_t MockSeed(const v1::Source& source) { return Checksum(source.name()); }

absl::StatusOr<std::vector<uint32_t>> GetMockLengths(const v1::Source& source) {
  const v1::Source::Lengths& from = source.lengths();
  if (from.mode() == v1::Source::Lengths::MODE_FILE) {
    const absl::StatusOr<std::string> text =
        ReadSmallFile(from.path(), kMaxLengthsBytes);
    BALLAST_RETURN_IF_ERROR(
        Annotate(text.status(), absl::StrCat("source ", source.name())));
    absl::StatusOr<std::vector<uint32_t>> lengths = ParseLengths(*text);
    BALLAST_RETURN_IF_ERROR(
        Annotate(lengths.status(),
                 absl::StrCat("source ", source.name(), ": ", from.path())));
    return lengths;
  }
  const LognormalLengths lognormal = {from.min(), from.max(), from.mean(),
                                      from.sigma()};
  BALLAST_RETURN_IF_ERROR(
      Annotate(CheckLognormalLengths(lognormal),
               absl::StrCat("source ", source.name(), ": lengths")));
  MockLengths drawn(lognormal);
  std::vector<uint32_t> lengths(from.count());
  for (uint32_t& length : lengths) length = drawn.Next();
  return lengths;
}

absl::StatusOr<std::unique_ptr<MockIndex>> MockIndex::Draw(
    const v1::Source& source, const v1::Model& model, const v1::Batch& batch,
    const std::vector<uint32_t>& lengths) {
  std::unique_ptr<MockIndex> index(new MockIndex);
  const auto fault = [&source](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("source ", source.name(), ": ", what));
  };
  BALLAST_ASSIGN_OR_RETURN(const ModelImages sized, ModelImages::Create(model));
  const uint64_t ends = HasEnds(model) ? 2 : 0;
  uint64_t too_long = 0;
  std::string first_too_long;
  for (uint64_t number = 0; number < lengths.size(); ++number) {
    const std::vector<ImageSize> images = DrawImages(source, number);
    const absl::StatusOr<uint64_t> placeholders = sized.Placeholders(images);
    if (!placeholders.ok()) {
      return fault(absl::StrCat("an image of sample ", number, ": ",
                                placeholders.status().message()));
    }
    // Includes vision start and end of each image and at least one token of
    // text.
    const uint64_t least = *placeholders + ends * images.size() + 1;
    uint64_t tokens = std::max<uint64_t>(lengths[number], least);
    if (tokens > batch.max_tokens()) {
      if (batch.on_too_long() == v1::Batch::ON_TOO_LONG_SKIP) continue;
      if (batch.on_too_long() != v1::Batch::ON_TOO_LONG_TRUNCATE_TEXT ||
          least > batch.max_tokens()) {
        if (++too_long == 1) {
          first_too_long =
              absl::StrCat("sample ", number, " with ", tokens, ", ", least - 1,
                           " of them of ", images.size(), " images");
        }
        continue;
      }
      tokens = batch.max_tokens();
    }
    Sample sample;
    sample.draw = number;
    sample.text_tokens = tokens - *placeholders;
    // Tokens after the images are supervised, except a sample's first token,
    // which no label names.
    sample.label_tokens =
        tokens - (least - 1) - static_cast<uint32_t>(images.empty());
    sample.num_images = images.size();
    index->samples_.push_back(sample);
    index->images_.insert(index->images_.end(), images.begin(), images.end());
  }
  if (too_long > 0) {
    return fault(absl::StrCat(
        too_long, " of ", lengths.size(), " samples have more than ",
        batch.max_tokens(), " tokens (batch.max_tokens), first ",
        first_too_long,
        "; raise it, draw shorter ones, or set batch.on_too_long to "
        "truncate_text or skip"));
  }
  if (index->samples_.empty()) {
    return fault(absl::StrCat("all samples have more than ", batch.max_tokens(),
                              " tokens (batch.max_tokens) and are left out"));
  }
  index->Seal(source);
  return index;
}

void MockIndex::Seal(const v1::Source& source) {
  first_image_.reserve(samples_.size() + 1);
  uint64_t images = 0;
  for (const Sample& sample : samples_) {
    first_image_.push_back(images);
    images += sample.num_images;
  }
  first_image_.push_back(images);
  const auto digest_of = [](const auto& values) {
    const Digest digest =
        ComputeDigest({reinterpret_cast<const char*>(values.data()),
                       values.size() * sizeof(values[0])});
    return absl::StrFormat("%016x%016x", digest[0], digest[1]);
  };
  // Other inputs of ids and pixels are part of the data too.
  const Digest all = ComputeDigest(
      absl::StrCat(digest_of(samples_), digest_of(images_), "mock 1 ",
                   MockSeed(source), " ", source.vocabulary()));
  digest_ = absl::StrFormat("%016x%016x", all[0], all[1]);
}

absl::StatusOr<IndexedSample> MockIndex::sample(uint64_t ordinal) const {
  const Sample& sample = samples_[ordinal];
  return IndexedSample{sample.text_tokens, sample.label_tokens,
                       MediaList(absl::MakeConstSpan(images_).subspan(
                           first_image_[ordinal], sample.num_images))};
}

namespace {

// Side of a patch of one colour, in pixels.
constexpr uint32_t kSquare = 64;

// The special ids below `vocabulary`, ascending.
std::vector<uint32_t> SpecialIds(const v1::TokenIds& ids, uint32_t vocabulary) {
  std::vector<uint32_t> special;
  for (const int32_t id :
       {ids.image(), ids.video(), ids.vision_start(), ids.vision_end(),
        ids.im_start(), ids.im_end(), ids.end_of_text(), ids.pad()}) {
    if (id >= 1 && static_cast<uint32_t>(id) < vocabulary) {
      special.push_back(id);
    }
  }
  std::sort(special.begin(), special.end());
  special.erase(std::unique(special.begin(), special.end()), special.end());
  return special;
}

void Append(int32_t id, std::string* bytes) {
  for (int shift = 0; shift < 32; shift += 8) {
    bytes->push_back(static_cast<char>(static_cast<uint32_t>(id) >> shift));
  }
}

std::array<uint8_t, 3> DrawColor(Random* random) {
  const uint64_t bits = random->Next();
  return {static_cast<uint8_t>(bits), static_cast<uint8_t>(bits >> 8),
          static_cast<uint8_t>(bits >> 16)};
}

absl::StatusOr<std::string> DrawImage(const ImageSize& size, Random* random) {
  std::vector<uint8_t> pixels;
  pixels.reserve(size_t{3} * size.width * size.height);
  for (uint32_t top = 0; top < size.height; top += kSquare) {
    const size_t row = pixels.size();
    for (uint32_t x = 0; x < size.width; x += kSquare) {
      const auto color = DrawColor(random);
      for (uint32_t i = x; i < std::min(x + kSquare, size.width); ++i) {
        pixels.insert(pixels.end(), color.begin(), color.end());
      }
    }
    const size_t row_bytes = pixels.size() - row;
    for (uint32_t y = top + 1; y < std::min(top + kSquare, size.height); ++y) {
      pixels.resize(pixels.size() + row_bytes);
      std::copy_n(pixels.begin() + row, row_bytes, pixels.end() - row_bytes);
    }
  }
  return EncodePng(pixels, size.width, size.height);
}

}  // namespace

absl::StatusOr<std::unique_ptr<MockSource>> MockSource::Create(
    const v1::Source& source, const v1::Model& model, const v1::Batch& batch) {
  std::vector<uint32_t> special =
      SpecialIds(model.token_ids(), source.vocabulary());
  if (source.vocabulary() <= special.size() + 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "source ", source.name(), ": vocabulary is ", source.vocabulary(),
        "; wanted one with an id from 1 on that is not special"));
  }
  BALLAST_ASSIGN_OR_RETURN(const std::vector<uint32_t> lengths,
                           GetMockLengths(source));
  BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<const MockIndex> index,
                           MockIndex::Draw(source, model, batch, lengths));
  BALLAST_ASSIGN_OR_RETURN(ModelImages images, ModelImages::Create(model));
  return std::unique_ptr<MockSource>(new MockSource(
      source, model, std::move(images), std::move(special), std::move(index)));
}

absl::StatusOr<FaultOr<RawSample>> MockSource::Read(uint64_t ordinal,
                                                    ReadParts parts) const {
  if (ordinal >= index_->size()) {
    return absl::OutOfRangeError(absl::StrCat(source_.name(), ": no sample ",
                                              ordinal, " of ", index_->size()));
  }
  RawSample sample;
  sample.name = absl::StrCat(source_.name(), " draw ", index_->draw(ordinal));
  sample.text_format = RawSample::TextFormat::kPackedBytes;
  if (parts.text) {
    BALLAST_ASSIGN_OR_RETURN(sample.text, DrawText(ordinal));
  }
  if (!parts.images) return sample;
  // Even streams draw sizes, so pixels use an odd one. Each image continues
  // where the previous one stopped, so that they differ.
  Random random(~MockSeed(source_), 2 * index_->draw(ordinal) + 1);
  BALLAST_ASSIGN_OR_RETURN(const IndexedSample indexed,
                           index_->sample(ordinal));
  for (const ImageSize& size : indexed.media.images()) {
    BALLAST_ASSIGN_OR_RETURN(std::string file, DrawImage(size, &random));
    sample.media.push_back(RawMedium::Image(std::move(file)));
  }
  return sample;
}

absl::StatusOr<std::string> MockSource::DrawText(uint64_t ordinal) const {
  BALLAST_ASSIGN_OR_RETURN(const IndexedSample indexed,
                           index_->sample(ordinal));
  const v1::TokenIds& ids = model_.token_ids();
  const bool has_ends = HasEnds(model_);
  std::string bytes;
  const absl::Span<const ImageSize> images = indexed.media.images();
  for (size_t i = 0; i < images.size(); ++i) {
    BALLAST_ASSIGN_OR_RETURN(const ImagePlan plan, images_.Plan(images, i));
    if (has_ends) Append(ids.vision_start(), &bytes);
    for (uint64_t k = 0; k < plan.placeholders; ++k) {
      Append(ids.image(), &bytes);
    }
    if (has_ends) Append(ids.vision_end(), &bytes);
  }
  Random random(MockSeed(source_), 2 * index_->draw(ordinal) + 1);
  const uint32_t choices = source_.vocabulary() - 1 - special_.size();
  const uint64_t text =
      indexed.text_tokens - (has_ends ? 2 * images.size() : 0);
  for (uint64_t i = 0; i + 1 < text; ++i) {
    // The k-th id that is not special.
    uint32_t id = 1 + random.Below(choices);
    for (const uint32_t special : special_) id += special <= id;
    Append(id, &bytes);
  }
  Append(ids.end_of_text(), &bytes);
  return bytes;
}

SampleLocation MockSource::Locate(uint64_t ordinal) const {
  if (ordinal >= index_->size()) return {};
  return {source_.name(), index_->draw(ordinal)};
}

}  // namespace ballast
