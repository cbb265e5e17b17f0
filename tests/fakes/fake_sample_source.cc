#include "tests/fakes/fake_sample_source.h"

#include <cstdlib>
#include <cstring>

#include <png.h>

#include "absl/strings/str_cat.h"
#include "server/model/model_profile.h"
#include "server/text/model_tokenizer.h"
#include "server/text/sample_text.h"

namespace ballast {
namespace {

ImageSize FormulaSize(uint64_t ordinal, uint32_t image) {
  return {static_cast<uint32_t>(40 + (ordinal * 29 + image * 53) % 130),
          static_cast<uint32_t>(40 + (ordinal * 31 + image * 17) % 110)};
}

RawSample FormulaSample(uint64_t ordinal) {
  RawSample sample;
  sample.name = absl::StrCat("fake.jsonl:", ordinal);
  std::string marks;
  for (uint32_t i = 0; i < ordinal % 4; ++i) {
    const ImageSize size = FormulaSize(ordinal, i);
    sample.media.push_back(
        RawMedium::Image(FormulaPng(ordinal, i, size.width, size.height)));
    absl::StrAppend(&marks, "<image>\\n");
  }
  sample.text = absl::StrCat(
      R"({"conversations": [{"from": "human", "value": ")", marks,
      "What is number ", ordinal, R"(?"}, {"from": "gpt", "value": "It is )",
      std::string(ordinal % 23, 'x'), R"(."}]})");
  return sample;
}

template <typename T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) std::abort();
  return *std::move(value);
}

FakeSourceIndex Measure(const v1::Config& config,
                        const std::vector<RawSample>& samples) {
  const auto tokenizer = Must(MakeTokenizer("bytes"));
  const auto of_model =
      Must(ModelText::Create(config.model(), tokenizer.get()));
  const TextOptions options{of_model.get(), config.batch().max_tokens(),
                            config.batch().on_too_long()};
  std::vector<FakeSourceIndex::Sample> measured(samples.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    for (uint32_t k = 0; k < samples[i].media.size(); ++k) {
      measured[i].images.push_back(FormulaSize(i, k));
    }
    const MeasuredText text = Must(MeasureText(
        samples[i].text, TextForm::kConversation, measured[i].images, options));
    measured[i].text_tokens = text.text_tokens;
    measured[i].label_tokens = text.label_tokens;
  }
  return FakeSourceIndex(std::move(measured));
}

std::vector<RawSample> FormulaSamplesOnDisk(uint32_t n) {
  std::vector<RawSample> samples;
  for (uint32_t i = 0; i < n; ++i) samples.push_back(FormulaSample(i));
  return samples;
}

}  // namespace

std::string FormulaPng(uint64_t ordinal, uint32_t image, uint32_t width,
                       uint32_t height) {
  std::string pixels;
  for (uint32_t y = 0; y < height; ++y) {
    for (uint32_t x = 0; x < width; ++x) {
      for (uint32_t c = 0; c < 3; ++c) {
        pixels.push_back(FormulaPixel(ordinal, image, x, y, c));
      }
    }
  }
  png_image png = {};
  png.version = PNG_IMAGE_VERSION;
  png.width = width;
  png.height = height;
  png.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  if (!png_image_write_to_memory(&png, nullptr, &size, 0, pixels.data(), 0,
                                 nullptr)) {
    std::abort();
  }
  std::string file(size, '\0');
  if (!png_image_write_to_memory(&png, file.data(), &size, 0, pixels.data(), 0,
                                 nullptr)) {
    std::abort();
  }
  file.resize(size);
  return file;
}

FakeSampleSource::FakeSampleSource(const v1::Config& config, uint32_t samples)
    : samples_(FormulaSamplesOnDisk(samples)),
      index_(Measure(config, samples_)) {}

absl::StatusOr<FaultOr<RawSample>> FakeSampleSource::Read(
    uint64_t ordinal, ReadParts parts) const {
  {
    MutexLock lock(&mutex_);
    if (parts.from == ReadFrom::kMemory && in_memory_.count(ordinal) == 0) {
      return absl::AbortedError("not in memory");
    }
    if (parts.text) texts_read_.insert(ordinal);
    if (parts.images) images_read_.insert(ordinal);
    ++hanging_reads_;
    changed_.NotifyAll();
    while (hanging_.count(ordinal) != 0) changed_.Wait(&mutex_);
    --hanging_reads_;
    const auto failing = failing_.find(ordinal);
    if (failing != failing_.end() && failing->second.times-- > 0) {
      return SeparateFault<RawSample>(failing->second.status);
    }
  }
  RawSample sample = samples_[ordinal];
  if (!parts.text) sample.text.clear();
  if (!parts.images) sample.media.clear();
  if (parts.places == nullptr) return sample;
  for (size_t i = 0; i < sample.media.size(); ++i) {
    std::string& file = sample.media[i].bytes;
    char* const place = (*parts.places)(i, sample.media.size(), file.size());
    if (place == nullptr) continue;
    std::memcpy(place, file.data(), file.size());
    sample.media[i].placed = absl::string_view(place, file.size());
    file.clear();
  }
  return sample;
}

void FakeSampleSource::KeepInMemory(uint64_t ordinal) {
  MutexLock lock(&mutex_);
  in_memory_.insert(ordinal);
}

void FakeSampleSource::Fail(uint64_t ordinal, absl::Status status, int times) {
  MutexLock lock(&mutex_);
  failing_[ordinal] = {std::move(status), times};
}

void FakeSampleSource::Hang(uint64_t ordinal) {
  MutexLock lock(&mutex_);
  hanging_.insert(ordinal);
}

void FakeSampleSource::Release() {
  MutexLock lock(&mutex_);
  hanging_.clear();
  changed_.NotifyAll();
}

void FakeSampleSource::AwaitHanging(int reads) const {
  MutexLock lock(&mutex_);
  while (hanging_reads_ < reads) changed_.Wait(&mutex_);
}

std::set<uint64_t> FakeSampleSource::texts_read() const {
  MutexLock lock(&mutex_);
  return texts_read_;
}

std::set<uint64_t> FakeSampleSource::images_read() const {
  MutexLock lock(&mutex_);
  return images_read_;
}

}  // namespace ballast
