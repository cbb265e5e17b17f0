#include "trainer_shim/cuda/device_image_decoder.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/aligned_buffer.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "proto/image/engine_jpeg.h"
#include "trainer_shim/cuda/cuda_handles.h"
#include "trainer_shim/cuda/nvjpeg_decoder.h"
#include "trainer_shim/host/host_image_decoder.h"

namespace ballast {

class DeviceJpegEngine::Impl {
 public:
  absl::Status Start(Hardware hardware) {
    BALLAST_RETURN_IF_ERROR(
        CudaStatus(cudaGetDevice(&device_), "asking for the current device"));
    BALLAST_ASSIGN_OR_RETURN(stream_, CudaStream::CreateUrgent());
    BALLAST_ASSIGN_OR_RETURN(done_, Event::Create());
    if (hardware == Hardware::kNever) {
      hardware_ = absl::FailedPreconditionError("JPEG engines are not wanted");
      return absl::OkStatus();
    }
    absl::StatusOr<std::unique_ptr<NvjpegDecoder>> decoder =
        NvjpegDecoder::Create(stream_.get());
    hardware_ = decoder.status();
    if (decoder.ok()) decoder_ = *std::move(decoder);
    return absl::OkStatus();
  }

  ~Impl() {
    if (stream_.get() != nullptr) stream_.Synchronize().IgnoreError();
  }

  absl::Status Decode(absl::Span<const EncodedJpeg> images) {
    const CurrentDevice current(device_);
    BALLAST_RETURN_IF_ERROR(current.status());
    // nvJPEG fails in a thread without a context. A new thread has none, even
    // though the device counts as its current one.
    BALLAST_RETURN_IF_ERROR(
        CudaStatus(cudaSetDevice(device_), "choosing the device"));
    by_hardware_.clear();
    by_host_.clear();
    for (const EncodedJpeg& image : images) {
      const bool takes = decoder_ != nullptr && decoder_->Takes(image);
      (takes ? by_hardware_ : by_host_).push_back(&image);
    }
    if (!by_hardware_.empty()) {
      const absl::Status status = decoder_->Enqueue(by_hardware_);
      if (!status.ok()) {
        Log(LogLevel::kWarning,
            absl::StrCat(status.message(), "; the host decodes them instead"));
        by_host_.insert(by_host_.end(), by_hardware_.begin(),
                        by_hardware_.end());
        by_hardware_.clear();
      }
    }
    // The host decodes while the engines do.
    BALLAST_RETURN_IF_ERROR(DecodeOnHost());
    BALLAST_RETURN_IF_ERROR(done_.Record(stream_.get()));
    BALLAST_RETURN_IF_ERROR(done_.Wait());
    counts_.by_hardware += by_hardware_.size();
    counts_.by_host += by_host_.size();
    for (const EncodedJpeg& image : images) counts_.bytes += image.bytes.size();
    return absl::OkStatus();
  }

  size_t at_a_time() const {
    return decoder_ == nullptr ? 1 : decoder_->at_a_time();
  }

  JpegEngineCounts counts_;
  absl::Status hardware_;

 private:
  absl::Status DecodeOnHost() {
    uint64_t bytes = 0;
    for (const EncodedJpeg* image : by_host_) {
      bytes += LayOutPlanes(image->form).bytes;
    }
    BALLAST_RETURN_IF_ERROR(staging_.Reserve(bytes));
    uint8_t* to = staging_.data();
    for (const EncodedJpeg* image : by_host_) {
      EncodedJpeg staged = *image;
      staged.planes = to;
      const absl::Status status = host_.DecodeOne(staged);
      if (!status.ok()) {
        // Work on the planes must not outlast this call.
        stream_.Synchronize().IgnoreError();
        return absl::Status(status.code(),
                            absl::StrCat("image at position ", image->position,
                                         ": ", status.message()));
      }
      const uint64_t size = LayOutPlanes(image->form).bytes;
      BALLAST_RETURN_IF_ERROR(
          CudaStatus(cudaMemcpyAsync(image->planes, to, size,
                                     cudaMemcpyHostToDevice, stream_.get()),
                     "copy of planes to the device"));
      to += size;
    }
    return absl::OkStatus();
  }

  int device_ = 0;
  CudaStream stream_;
  Event done_;
  std::unique_ptr<NvjpegDecoder> decoder_;
  CpuJpegEngine host_;
  PinnedBuffer staging_;
  std::vector<const EncodedJpeg*> by_hardware_;
  std::vector<const EncodedJpeg*> by_host_;
};

DeviceJpegEngine::DeviceJpegEngine(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}

DeviceJpegEngine::~DeviceJpegEngine() = default;

absl::StatusOr<std::unique_ptr<DeviceJpegEngine>> DeviceJpegEngine::Create(
    Hardware hardware) {
  auto impl = std::make_unique<Impl>();
  BALLAST_RETURN_IF_ERROR(impl->Start(hardware));
  return std::unique_ptr<DeviceJpegEngine>(
      new DeviceJpegEngine(std::move(impl)));
}

absl::Status DeviceJpegEngine::Decode(absl::Span<const EncodedJpeg> images) {
  const absl::Time begin = Clock::Real()->Now();
  const absl::Status status = impl_->Decode(images);
  impl_->counts_.busy += Clock::Real()->Now() - begin;
  return status;
}

size_t DeviceJpegEngine::at_a_time() const { return impl_->at_a_time(); }

JpegEngineCounts DeviceJpegEngine::counts() const { return impl_->counts_; }

const absl::Status& DeviceJpegEngine::hardware() const {
  return impl_->hardware_;
}

namespace {

constexpr uint64_t kTableAlignment = 16;
constexpr size_t kOnHost = 8;  // images of a chunk that the host decodes
// Factor by which a chunk of a large batch exceeds the number of images that
// the engines decode in a call. Above 2 the calls spin.
constexpr size_t kTogether = 2;

// The places of a plan's tables in one buffer.
struct TableLayout {
  explicit TableLayout(const ResamplePlan& plan)
      : taps(AlignUp(plan.images.size() * sizeof(ResampleImage),
                     kTableAlignment)),
        weights(taps +
                AlignUp(plan.taps.size() * sizeof(AxisTaps), kTableAlignment)),
        bytes(weights + plan.weights.size() * sizeof(int32_t)) {}
  uint64_t taps;
  uint64_t weights;
  uint64_t bytes;
};

template <typename T>
void CopyTable(const std::vector<T>& table, uint8_t* to) {
  std::memcpy(to, table.data(), table.size() * sizeof(T));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceImageDecoder>> DeviceImageDecoder::Create(
    const Options& options) {
  std::unique_ptr<DeviceImageDecoder> decoder(new DeviceImageDecoder(options));
  BALLAST_ASSIGN_OR_RETURN(decoder->stream_, CudaStream::CreateUrgent());
  BALLAST_ASSIGN_OR_RETURN(PlaneKernels kernels, PlaneKernels::Create());
  decoder->kernels_ = std::make_unique<PlaneKernels>(std::move(kernels));
  JpegFeed<Image>::Limits limits;
  limits.images = options.images;
  std::vector<std::unique_ptr<JpegEngine>> engines;
  for (size_t i = 0; i < options.engines; ++i) {
    BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<DeviceJpegEngine> engine,
                             DeviceJpegEngine::Create(options.hardware));
    decoder->hardware_ = engine->hardware();
    if (limits.images == 0) {
      const bool has_engines = engine->hardware().ok();
      limits.images = has_engines ? engine->at_a_time() : kOnHost;
      limits.together = has_engines ? kTogether : 1;
    }
    engines.push_back(std::move(engine));
  }
  decoder->chunks_ = std::make_unique<JpegChunks>(
      std::move(engines),
      [raw = decoder.get()](size_t slot) {
        return raw->LaunchKernels(&raw->slots_[slot]);
      },
      options.chunks);
  limits.memory = options.memory / decoder->chunks_->slots();
  decoder->feed_ = std::make_unique<JpegFeed<Image>>(
      limits, decoder->chunks_.get(),
      [raw = decoder.get()](size_t slot, absl::Span<const Image> images) {
        return raw->Fill(slot, images);
      });
  decoder->slots_ = std::vector<Slot>(decoder->chunks_->slots());
  for (Slot& slot : decoder->slots_) {
    BALLAST_ASSIGN_OR_RETURN(slot.done, Event::Create());
  }
  return decoder;
}

DeviceImageDecoder::~DeviceImageDecoder() {
  // Engines write to the slots' memory.
  chunks_.reset();
  if (stream_.get() != nullptr) stream_.Synchronize().IgnoreError();
}

absl::StatusOr<DeviceImageDecoder::Ticket> DeviceImageDecoder::Begin(
    absl::Span<const EncodedImage> images, uint8_t* out, cudaEvent_t free) {
  images_.clear();
  for (const EncodedImage& image : images) {
    const uint64_t memory =
        DecodeMemory({image.form, image.out_width, image.out_height, 0, 0});
    images_.push_back({image, memory, out, free});
  }
  if (options_.by_size) {
    // A chunk takes as long as its largest image. Sizes rise in one batch and
    // fall in the next, so that the end of this batch and the beginning of the
    // next one have similar sizes.
    falling_ = !falling_;
    std::stable_sort(images_.begin(), images_.end(),
                     [falling = falling_](const Image& a, const Image& b) {
                       return falling ? a.memory > b.memory
                                      : a.memory < b.memory;
                     });
  }
  return feed_->Begin(images_);
}

absl::Status DeviceImageDecoder::Finish(Ticket ticket, cudaStream_t stream) {
  BALLAST_RETURN_IF_ERROR(feed_->Finish(ticket));
  // Chunks end in order on one stream. If a later chunk uses the slot by now,
  // this also waits for that chunk's kernels.
  if (ticket == 0) return absl::OkStatus();
  return StreamWait(stream, slots_[(ticket - 1) % slots_.size()].done.get());
}

absl::StatusOr<absl::Span<const EncodedJpeg>> DeviceImageDecoder::Fill(
    size_t index, absl::Span<const Image> images) {
  Slot* const slot = &slots_[index];
  // Kernels may still read the planes of the slot's last chunk. The host waits:
  // engines write as soon as they are called, in no stream's order.
  BALLAST_RETURN_IF_ERROR(slot->done.Wait());
  slot->out = images.front().out;
  for (const Image& image : images) {
    if (std::less<>()(image.out, slot->out)) slot->out = image.out;
  }
  slot->free.clear();
  slot->requests.clear();
  uint64_t planes = 0;
  for (const Image& each : images) {
    const EncodedImage& image = each.image;
    const uint64_t out = reinterpret_cast<uintptr_t>(each.out) -
                         reinterpret_cast<uintptr_t>(slot->out) + image.out;
    slot->requests.push_back(
        {image.form, image.out_width, image.out_height, planes, out});
    planes += LayOutPlanes(image.form).bytes;
    if (each.free != nullptr &&
        (slot->free.empty() || slot->free.back() != each.free)) {
      slot->free.push_back(each.free);
    }
  }
  if (planes > slot->planes.size()) {
    BALLAST_RETURN_IF_ERROR(slot->planes.Reserve(planes, stream_.get()));
    BALLAST_RETURN_IF_ERROR(slot->done.Record(stream_.get()));
    BALLAST_RETURN_IF_ERROR(slot->done.Wait());
  }
  // The kernels that read the slot's tables are done, too.
  BALLAST_RETURN_IF_ERROR(planner_.Plan(slot->requests));
  planner_.SwapPlan(&slot->plan);
  const TableLayout layout(slot->plan);
  BALLAST_RETURN_IF_ERROR(slot->host_tables.Reserve(layout.bytes));
  uint8_t* const tables = slot->host_tables.data();
  CopyTable(slot->plan.images, tables);
  CopyTable(slot->plan.taps, tables + layout.taps);
  CopyTable(slot->plan.weights, tables + layout.weights);
  jpegs_.clear();
  for (size_t i = 0; i < images.size(); ++i) {
    const EncodedImage& image = images[i].image;
    jpegs_.push_back({image.bytes, image.form,
                      slot->planes.data() + slot->requests[i].planes,
                      image.position});
  }
  return jpegs_;
}

absl::Status DeviceImageDecoder::LaunchKernels(Slot* slot) {
  const ResamplePlan& plan = slot->plan;
  const TableLayout layout(plan);
  BALLAST_RETURN_IF_ERROR(slot->tables.Reserve(layout.bytes, stream_.get()));
  BALLAST_RETURN_IF_ERROR(
      slot->narrow.Reserve(plan.narrow_bytes, stream_.get()));
  BALLAST_RETURN_IF_ERROR(CudaStatus(
      cudaMemcpyAsync(slot->tables.data(), slot->host_tables.data(),
                      layout.bytes, cudaMemcpyHostToDevice, stream_.get()),
      "copy of resampling tables to the device"));
  for (const cudaEvent_t free : slot->free) {
    BALLAST_RETURN_IF_ERROR(StreamWait(stream_.get(), free));
  }
  PlaneBatch batch;
  batch.plan = &plan;
  const uint8_t* device = slot->tables.data();
  batch.images = reinterpret_cast<const ResampleImage*>(device);
  batch.taps = reinterpret_cast<const AxisTaps*>(device + layout.taps);
  batch.weights = reinterpret_cast<const int32_t*>(device + layout.weights);
  batch.planes = slot->planes.data();
  batch.narrow = slot->narrow.data();
  batch.out = slot->out;
  BALLAST_RETURN_IF_ERROR(kernels_->Launch(batch, stream_.get()));
  return slot->done.Record(stream_.get());
}

}  // namespace ballast
