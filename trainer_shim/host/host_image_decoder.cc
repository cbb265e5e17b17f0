#include "trainer_shim/host/host_image_decoder.h"

#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/jpeg_input.h"
#include "common/status_macros.h"
#include "proto/block/block_layout.h"
#include "proto/image/engine_jpeg.h"
#include "proto/image/resample_weights.h"
#include "trainer_shim/pixel_arithmetic.h"

namespace ballast {
namespace {

// Rows that one call of jpeg_read_raw_data may write of a plane.
constexpr int kMaxRows = 2 * DCTSIZE;

}  // namespace

struct CpuJpegEngine::State {
  // libjpeg keeps a file's tables for the next one; a decompressor for each
  // image keeps nothing, and costs some microseconds.
  State() { info.err = &error.base; }

  enum class Outcome { kDone, kTruncated, kOtherForm, kError };

  // These functions may longjmp, so none has a local that needs a destructor.

  Outcome Decode(const EncodedJpeg& image, const PlaneLayout& layout) {
    if (setjmp(error.jump)) return Outcome::kError;
    jpeg_create_decompress(&info);
    info.src = &input.base;
    if (jpeg_read_header(&info, TRUE) == JPEG_SUSPENDED) {
      return Outcome::kTruncated;
    }
    if (!HasForm(image.form)) return Outcome::kOtherForm;
    info.raw_data_out = TRUE;
    if (!jpeg_start_decompress(&info)) return Outcome::kTruncated;
    return ReadPlanes(image, layout);
  }

  bool HasForm(const PlaneForm& form) const {
    if (info.image_width != form.width || info.image_height != form.height ||
        info.num_components != form.planes() || info.progressive_mode) {
      return false;
    }
    if (info.num_components == 1) {
      return info.comp_info[0].h_samp_factor == 1 &&
             info.comp_info[0].v_samp_factor == 1;
    }
    if (info.jpeg_color_space != JCS_YCbCr) return false;
    const bool wide = form.sampling != ChromaSampling::k444;
    const bool tall = form.sampling == ChromaSampling::k420;
    for (int c = 0; c < 3; ++c) {
      if (info.comp_info[c].h_samp_factor != (c == 0 && wide ? 2 : 1) ||
          info.comp_info[c].v_samp_factor != (c == 0 && tall ? 2 : 1)) {
        return false;
      }
    }
    return true;
  }

  // Lets libjpeg write whole blocks directly into the planes: a row's pitch has
  // room for them. Rows of blocks below the picture go to `below`.
  Outcome ReadPlanes(const EncodedJpeg& image, const PlaneLayout& layout) {
    std::array<std::array<JSAMPROW, kMaxRows>, 3> rows;
    JSAMPARRAY planes[3] = {rows[0].data(), rows[1].data(), rows[2].data()};
    const JDIMENSION lines = info.max_v_samp_factor * DCTSIZE;
    for (uint32_t group = 0; info.output_scanline < info.output_height;
         ++group) {
      for (int c = 0; c < info.num_components; ++c) {
        const uint32_t count = info.comp_info[c].v_samp_factor * DCTSIZE;
        const uint32_t height = image.form.plane_height(c);
        for (uint32_t i = 0; i < count; ++i) {
          const uint64_t y = uint64_t{group} * count + i;
          rows[c][i] =
              y < height ? image.planes + layout.offset[c] + y * layout.pitch[c]
                         : below.data();
        }
      }
      if (jpeg_read_raw_data(&info, planes, lines) == 0) {
        return Outcome::kTruncated;
      }
    }
    // Suspends if the end marker is missing; all rows are there.
    jpeg_finish_decompress(&info);
    return Outcome::kDone;
  }

  absl::Status Explain(Outcome outcome, const PlaneForm& form) const {
    switch (outcome) {
      case Outcome::kDone:
        return absl::OkStatus();
      case Outcome::kTruncated:
        return absl::InvalidArgumentError("JPEG is truncated");
      case Outcome::kOtherForm:
        return absl::InvalidArgumentError(
            absl::StrCat("JPEG of ", info.image_width, "x", info.image_height,
                         " pixels and ", info.num_components,
                         " components is not the one that was planned, ",
                         form.width, "x", form.height, " with ", form.planes(),
                         " planes; the file has changed since it was indexed"));
      case Outcome::kError:
        break;
    }
    if (error.base.msg_code == JERR_OUT_OF_MEMORY) {
      return absl::ResourceExhaustedError("libjpeg has no memory");
    }
    return absl::InvalidArgumentError(
        absl::StrCat("JPEG is damaged: ", error.message));
  }

  JpegErrors error;
  JpegInput input;
  jpeg_decompress_struct info = {};
  std::vector<uint8_t> below;
  JpegEngineCounts counts;
};

CpuJpegEngine::CpuJpegEngine() : state_(std::make_unique<State>()) {}

CpuJpegEngine::~CpuJpegEngine() = default;

absl::Status CpuJpegEngine::DecodeOne(const EncodedJpeg& image) {
  State& state = *state_;
  const absl::Time begin = Clock::Real()->Now();
  const PlaneLayout layout = LayOutPlanes(image.form);
  if (state.below.size() < layout.pitch[0]) state.below.resize(layout.pitch[0]);
  state.input.Set(
      {reinterpret_cast<const char*>(image.bytes.data()), image.bytes.size()});
  const State::Outcome outcome = state.Decode(image, layout);
  const absl::Status status = state.Explain(outcome, image.form);
  jpeg_destroy_decompress(&state.info);
  state.counts.busy += Clock::Real()->Now() - begin;
  if (status.ok()) {
    ++state.counts.by_host;
    state.counts.bytes += image.bytes.size();
  }
  return status;
}

absl::Status CpuJpegEngine::Decode(absl::Span<const EncodedJpeg> images) {
  for (size_t i = 0; i < images.size(); ++i) {
    const absl::Status status = DecodeOne(images[i]);
    if (!status.ok()) {
      return absl::Status(status.code(),
                          absl::StrCat("image at position ", images[i].position,
                                       ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

JpegEngineCounts CpuJpegEngine::counts() const { return state_->counts; }

namespace {

uint8_t* AtLeast(uint64_t size, std::vector<uint8_t>* buffer) {
  if (buffer->size() < size) buffer->resize(size);
  return buffer->data();
}

}  // namespace

absl::Status HostImageDecoder::DecodeResized(absl::string_view bytes,
                                             const PlaneForm& form,
                                             uint32_t width, uint32_t height,
                                             absl::Span<uint8_t> out) {
  if (out.size() != uint64_t{width} * height * 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("resizing to ", width, "x", height, " pixels in ",
                     out.size(), " bytes; a pixel takes 3"));
  }
  const ResampleRequest request = {form, width, height, 0, 0};
  BALLAST_RETURN_IF_ERROR(planner_.Plan({&request, 1}));
  const ResamplePlan& plan = planner_.plan();
  uint8_t* planes = AtLeast(LayOutPlanes(form).bytes, &planes_);
  BALLAST_RETURN_IF_ERROR(engine_.DecodeOne({bytes, form, planes}));
  AtLeast(uint64_t{3} * plan.most_width, &row_);
  uint8_t* narrow = AtLeast(plan.narrow_bytes, &narrow_);
  NarrowRows(plan, planes, absl::MakeSpan(row_), narrow);
  ShortenColumns(plan, narrow, out.data());
  return absl::OkStatus();
}

absl::Status EncodedUnpacker::Unpack(absl::Span<const EncodedPiece> pieces,
                                     absl::Span<ImagePiece> images) {
  uint64_t bytes = 0;
  for (const EncodedPiece& piece : pieces) {
    bytes += PixelBytes(images[piece.image].record);
  }
  if (pixels_.size() < bytes) pixels_.resize(bytes);
  uint64_t offset = 0;
  for (const EncodedPiece& piece : pieces) {
    ImagePiece& image = images[piece.image];
    const absl::Span<uint8_t> out =
        absl::MakeSpan(pixels_).subspan(offset, PixelBytes(image.record));
    if (piece.grey) {
      std::fill(out.begin(), out.end(), kGreyPixel);
    } else {
      BALLAST_ASSIGN_OR_RETURN(const PlaneForm form, GetForm(piece));
      BALLAST_RETURN_IF_ERROR(NamePosition(
          piece, decoder_.DecodeResized(piece.file, form, image.record.width,
                                        image.record.height, out)));
    }
    image.pixels = out.data();
    offset += out.size();
  }
  return absl::OkStatus();
}

namespace {

constexpr int32_t kHalf = 1 << (kWeightBits - 1);

// The rows of a chroma plane from which a row of pixels is made.
struct ChromaRows {
  const uint8_t* near;
  const uint8_t* far;  // 4:2:0: the next row on the pixels' side
};

ChromaRows RowsAt(const ResampleImage& image, const uint8_t* planes, int plane,
                  uint32_t y) {
  const auto row = [&](uint32_t at) {
    return planes + image.planes[plane] + uint64_t{at} * image.pitch[plane];
  };
  if (image.sampling != ChromaSampling::k420) return {row(y), nullptr};
  const uint32_t near = y / 2;
  const uint32_t far = y % 2 == 0 ? (near == 0 ? 0 : near - 1)
                                  : std::min(near + 1, image.chroma_height - 1);
  return {row(near), row(far)};
}

int ChromaAt(const ResampleImage& image, const ChromaRows& rows, uint32_t x) {
  if (image.sampling == ChromaSampling::k444) return rows.near[x];
  const uint32_t near = x / 2;
  if (image.chroma_width <= kMaxRepeatedWidth) return rows.near[near];
  const bool right = x % 2 == 1;
  const uint32_t far = right ? std::min(near + 1, image.chroma_width - 1)
                             : (near == 0 ? 0 : near - 1);
  if (image.sampling == ChromaSampling::k422) {
    return UpsampledAcross(rows.near[near], rows.near[far], right);
  }
  return UpsampledBoth(ColumnSum(rows.near[near], rows.far[near]),
                       ColumnSum(rows.near[far], rows.far[far]), right);
}

}  // namespace

void PlaneRowToRgb(const ResampleImage& image, const uint8_t* planes,
                   uint32_t y, uint8_t* rgb) {
  const uint8_t* luma = planes + image.planes[0] + uint64_t{y} * image.pitch[0];
  if (image.sampling == ChromaSampling::kGrey) {
    for (uint32_t x = 0; x < image.width; ++x, rgb += 3) {
      std::fill_n(rgb, 3, luma[x]);
    }
    return;
  }
  if (image.sampling == ChromaSampling::kVideo) {
    const uint8_t* pairs =
        planes + image.planes[1] + uint64_t{y / 2} * image.pitch[1];
    for (uint32_t x = 0; x < image.width; ++x, rgb += 3) {
      const uint8_t* pair = pairs + x / 2 * 2;
      const Rgb pixel = VideoToRgb(luma[x], pair[0], pair[1], image.colours);
      rgb[0] = pixel.r;
      rgb[1] = pixel.g;
      rgb[2] = pixel.b;
    }
    return;
  }
  const ChromaRows blue = RowsAt(image, planes, 1, y);
  const ChromaRows red = RowsAt(image, planes, 2, y);
  for (uint32_t x = 0; x < image.width; ++x, rgb += 3) {
    const Rgb pixel =
        YccToRgb(luma[x], ChromaAt(image, blue, x), ChromaAt(image, red, x));
    rgb[0] = pixel.r;
    rgb[1] = pixel.g;
    rgb[2] = pixel.b;
  }
}

void NarrowRows(const ResamplePlan& plan, const uint8_t* planes,
                absl::Span<uint8_t> row, uint8_t* narrow) {
  for (const ResampleImage& image : plan.images) {
    for (uint32_t y = 0; y < image.height; ++y) {
      PlaneRowToRgb(image, planes, y, row.data());
      uint8_t* out = narrow + image.narrow + uint64_t{y} * image.narrow_pitch;
      for (uint32_t x = 0; x < image.out_width; ++x, out += 3) {
        const AxisTaps& taps = plan.taps[image.columns + x];
        const int32_t* weights = plan.weights.data() + taps.weights;
        for (int c = 0; c < 3; ++c) {
          const uint8_t* value = row.data() + size_t{taps.first} * 3 + c;
          int32_t sum = kHalf;
          for (uint32_t i = 0; i < taps.count; ++i) {
            sum += value[size_t{i} * 3] * weights[size_t{i} * image.out_width];
          }
          out[c] = ClipWeightedSum(sum);
        }
      }
    }
  }
}

void ShortenColumns(const ResamplePlan& plan, const uint8_t* narrow,
                    uint8_t* out) {
  for (const ResampleImage& image : plan.images) {
    const size_t row_bytes = size_t{image.out_width} * 3;
    for (uint32_t y = 0; y < image.out_height; ++y) {
      const AxisTaps& taps = plan.taps[image.rows + y];
      const int32_t* weights = plan.weights.data() + taps.weights;
      const uint8_t* first =
          narrow + image.narrow + uint64_t{taps.first} * image.narrow_pitch;
      uint8_t* to = out + image.out + y * row_bytes;
      for (size_t x = 0; x < row_bytes; ++x) {
        int32_t sum = kHalf;
        for (uint32_t i = 0; i < taps.count; ++i) {
          sum += first[size_t{i} * image.narrow_pitch + x] *
                 weights[size_t{i} * image.out_height];
        }
        to[x] = ClipWeightedSum(sum);
      }
    }
  }
}

}  // namespace ballast
