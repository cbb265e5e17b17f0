#include "trainer_shim/cuda/nvdec_decoder.h"

#include <dlfcn.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/aligned_buffer.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

constexpr char kNvcuvidLibrary[] = "libnvcuvid.so.1";

// Surfaces of a session: H.264 keeps up to 16 pictures, and some more are on
// their way.
constexpr uint32_t kSurfaces = 24;
// Pictures that the parser may keep behind the one that is decoded, so that an
// engine has work while a frame is copied.
constexpr uint32_t kDelay = 4;
// Frames that are mapped at a time.
constexpr uint32_t kMapped = 2;
// A multiple that sides of pictures are rounded up to, at most.
constexpr uint32_t kLargestBlock = 64;

absl::Status NvcuvidStatus(cuvid::Status status, absl::string_view what) {
  if (status == cuvid::kSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      what, " failed: the video engines' library says CUDA error ", status));
}

absl::StatusOr<NvcuvidApi> FindNvcuvidApi() {
  // Never closed, as nvJPEG.
  void* const library = dlopen(kNvcuvidLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no video engines: ", dlerror(),
        "; the driver brings this library, to a container with the capability "
        "`video` (NVIDIA_DRIVER_CAPABILITIES)"));
  }
  NvcuvidApi api;
  absl::Status status;
  const auto resolve = [&]<typename Function>(const char* name,
                                              Function* function) {
    *function = reinterpret_cast<Function>(dlsym(library, name));
    if (*function != nullptr) return;
    status.Update(absl::FailedPreconditionError(absl::StrCat(
        kNvcuvidLibrary, " has no ", name, "; update the driver")));
  };
  resolve("cuvidGetDecoderCaps", &api.GetDecoderCaps);
  resolve("cuvidCreateDecoder", &api.CreateDecoder);
  resolve("cuvidDestroyDecoder", &api.DestroyDecoder);
  resolve("cuvidReconfigureDecoder", &api.ReconfigureDecoder);
  resolve("cuvidDecodePicture", &api.DecodePicture);
  resolve("cuvidGetDecodeStatus", &api.GetDecodeStatus);
  resolve("cuvidMapVideoFrame64", &api.MapVideoFrame64);
  resolve("cuvidUnmapVideoFrame64", &api.UnmapVideoFrame64);
  resolve("cuvidCreateVideoParser", &api.CreateVideoParser);
  resolve("cuvidParseVideoData", &api.ParseVideoData);
  resolve("cuvidDestroyVideoParser", &api.DestroyVideoParser);
  if (!status.ok()) return status;
  return api;
}

cuvid::Area WholeArea(uint32_t width, uint32_t height) {
  return {0, 0, static_cast<int16_t>(width), static_cast<int16_t>(height)};
}

}  // namespace

absl::StatusOr<const NvcuvidApi*> LoadNvcuvid() {
  static const absl::StatusOr<NvcuvidApi>* const api =
      new absl::StatusOr<NvcuvidApi>(FindNvcuvidApi());
  if (!api->ok()) return api->status();
  return &**api;
}

absl::StatusOr<std::unique_ptr<NvdecDecoder>> NvdecDecoder::Create(
    cudaStream_t stream, absl::Span<const VideoBounds> bounds) {
  BALLAST_ASSIGN_OR_RETURN(const NvcuvidApi* const api, LoadNvcuvid());
  std::unique_ptr<NvdecDecoder> decoder(new NvdecDecoder(api, stream));
  BALLAST_ASSIGN_OR_RETURN(decoder->copied_, Event::Create());
  for (const VideoBounds& each : bounds) {
    BALLAST_RETURN_IF_ERROR(decoder->MakeSession(each));
  }
  return decoder;
}

NvdecDecoder::~NvdecDecoder() {
  for (Session& session : sessions_) api_->DestroyDecoder(session.decoder);
}

absl::Status NvdecDecoder::MakeSession(const VideoBounds& bounds) {
  Session session;
  cuvid::Caps& caps = session.caps;
  caps.codec = static_cast<int>(bounds.codec);
  caps.chroma = cuvid::kChroma420;
  BALLAST_RETURN_IF_ERROR(NvcuvidStatus(
      api_->GetDecoderCaps(&caps), "asking what the video engines decode"));
  if (caps.is_supported == 0 || (caps.formats & 1 << cuvid::kNv12) == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("the GPU's video engines do not decode codec ",
                     static_cast<int>(bounds.codec)));
  }
  session.bounds = bounds;
  const auto bound = [](uint32_t side, unsigned most) {
    return std::min<uint32_t>(AlignUp(side, kLargestBlock), most);
  };
  session.width = session.bounds.width = bound(bounds.width, caps.max_width);
  session.height = session.bounds.height =
      bound(bounds.height, caps.max_height);
  cuvid::CreateInfo info = {};
  info.width = info.target_width = info.max_width = session.width;
  info.height = info.target_height = info.max_height = session.height;
  info.surfaces = kSurfaces;
  info.codec = static_cast<int>(bounds.codec);
  info.chroma = cuvid::kChroma420;
  info.flags = cuvid::kPreferEngines;
  // The whole picture: whatever is cut off or scaled here is no copy.
  info.display = WholeArea(session.width, session.height);
  info.format = cuvid::kNv12;
  info.deinterlace = cuvid::kWeave;
  info.output_surfaces = kMapped;
  BALLAST_RETURN_IF_ERROR(
      NvcuvidStatus(api_->CreateDecoder(&session.decoder, &info),
                    absl::StrCat("making a decoder of ", session.width, "x",
                                 session.height, " pixels on a video engine")));
  sessions_.push_back(session);
  return absl::OkStatus();
}

const NvdecDecoder::Session* NvdecDecoder::Find(VideoCodec codec) const {
  for (const Session& session : sessions_) {
    if (session.bounds.codec == codec) return &session;
  }
  return nullptr;
}

bool NvdecDecoder::Takes(VideoCodec codec, const PlaneForm& form) const {
  const Session* const session = Find(codec);
  if (session == nullptr || form.sampling != ChromaSampling::kVideo) {
    return false;
  }
  const cuvid::Caps& caps = session->caps;
  return form.width >= caps.min_width && form.height >= caps.min_height &&
         form.width <= session->bounds.width &&
         form.height <= session->bounds.height &&
         uint64_t{form.width} * form.height / 256 <= caps.max_macroblocks;
}

absl::Status NvdecDecoder::Decode(const EncodedStretch& stretch) {
  stretch_ = &stretch;
  session_ = const_cast<Session*>(Find(stretch.codec));
  if (session_ == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("no video engine is ready for codec ",
                     static_cast<int>(stretch.codec)));
  }
  has_begun_ = false;
  fault_ = absl::OkStatus();
  come_ = 0;
  has_come_.assign(stretch.packets.size(), false);

  // A parser of its own: none knows anything of another video.
  cuvid::ParserInfo info = {};
  info.codec = static_cast<int>(stretch.codec);
  info.surfaces = 1;  // until OnSequence says how many
  info.delay = kDelay;
  info.user = this;
  info.sequence = [](void* user, cuvid::Format* format) {
    return static_cast<NvdecDecoder*>(user)->OnSequence(*format);
  };
  info.decode = [](void* user, cuvid::Picture* picture) {
    return static_cast<NvdecDecoder*>(user)->OnPicture(picture);
  };
  info.show = [](void* user, cuvid::Shown* shown) {
    return shown == nullptr ? 1
                            : static_cast<NvdecDecoder*>(user)->OnShown(*shown);
  };
  cuvid::Parser* parser = nullptr;
  BALLAST_RETURN_IF_ERROR(NvcuvidStatus(api_->CreateVideoParser(&parser, &info),
                                        "making a parser of videos"));
  absl::Status status = Parse(parser);
  api_->DestroyVideoParser(parser);
  if (status.ok() && come_ < stretch.wanted.size()) {
    const auto missing =
        std::find_if(stretch.wanted.begin(), stretch.wanted.end(),
                     [this](uint32_t packet) { return !has_come_[packet]; });
    status = absl::InvalidArgumentError(absl::StrCat(
        "the video engines make ", come_, " of ", stretch.wanted.size(),
        " wanted frames; the first that is missing is of packet ", *missing,
        " of ", stretch.packets.size()));
  }
  stretch_ = nullptr;
  session_ = nullptr;
  return status;
}

namespace {

// Whether a codec shows pictures in another order than it decodes them. Then
// the parser's times are of no use, since it gives them out in rising order.
// The pictures of a packet are known by their surfaces instead.
bool IsReordered(VideoCodec codec) {
  return codec == VideoCodec::kH264 || codec == VideoCodec::kHevc;
}

}  // namespace

absl::Status NvdecDecoder::Parse(cuvid::Parser* parser) {
  const size_t count = stretch_->packets.size();
  const bool is_reordered = IsReordered(stretch_->codec);
  for (size_t i = 0; i <= count; ++i) {
    cuvid::Packet packet = {};
    packet_ = static_cast<uint32_t>(i);
    pictures_ = 0;
    if (i == count) {
      packet.flags = cuvid::kEndOfStream;
    } else {
      packet.flags = cuvid::kTimestamp;
      // The parser then makes the picture now, and not with the next packet.
      if (is_reordered) packet.flags |= cuvid::kEndOfPicture;
      packet.bytes = stretch_->packets[i].size();
      packet.data =
          reinterpret_cast<const uint8_t*>(stretch_->packets[i].data());
      packet.time = static_cast<long long>(i);
    }
    const cuvid::Status parsed = api_->ParseVideoData(parser, &packet);
    if (!fault_.ok()) return fault_;
    if (parsed != cuvid::kSuccess) {
      return absl::InvalidArgumentError(
          absl::StrCat("the parser of the video engines stops at packet ", i,
                       " of ", count, " with CUDA error ", parsed));
    }
    // A picture that came late would be taken for the next packet's. A packet
    // may have none: it refers to what precedes the stretch.
    const bool is_late = i == count ? pictures_ > 0 : pictures_ > 1;
    if (is_reordered && (is_late || (i == 0 && pictures_ != 1))) {
      return absl::InvalidArgumentError(
          absl::StrCat("the parser of the video engines makes ", pictures_,
                       " pictures of packet ", i, " of ", count));
    }
  }
  return absl::OkStatus();
}

int NvdecDecoder::OnSequence(const cuvid::Format& format) {
  if (fault_.ok()) fault_ = Begin(format);
  return fault_.ok() ? surfaces_ : 0;
}

absl::Status NvdecDecoder::Begin(const cuvid::Format& format) {
  const PlaneForm& form = stretch_->form;
  const uint32_t width = format.right - format.left;
  const uint32_t height = format.bottom - format.top;
  // Half a sample of chroma cannot be cut off.
  const bool is_even = format.left % 2 == 0 && format.top % 2 == 0;
  if (format.chroma != cuvid::kChroma420 || format.luma_minus_8 != 0 ||
      format.chroma_minus_8 != 0 || width != form.width ||
      height != form.height || format.left < 0 || format.top < 0 || !is_even) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the video has frames of ", width, "x", height, " pixels, ",
        8 + format.luma_minus_8, " bits and chroma format ", format.chroma,
        "; wanted ", form.width, "x", form.height, ", 8 bits and 4:2:0"));
  }
  const uint32_t coded_width = AlignUp(format.coded_width, 2);
  const uint32_t coded_height = AlignUp(format.coded_height, 2);
  const auto surfaces =
      std::min<int>(format.surfaces + kDelay, static_cast<int>(kSurfaces));
  if (coded_width > session_->bounds.width ||
      coded_height > session_->bounds.height || surfaces < format.surfaces) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the video has pictures of ", coded_width, "x", coded_height,
        " pixels and needs ", format.surfaces,
        " of them; the video engine is ready for ", session_->bounds.width, "x",
        session_->bounds.height, " pixels and ", kSurfaces));
  }
  if (coded_width < format.left + form.width ||
      coded_height < format.top + form.height) {
    return absl::InvalidArgumentError(
        absl::StrCat("the video shows more than its pictures of ", coded_width,
                     "x", coded_height, " pixels have"));
  }
  if (has_begun_) {
    // The headers are repeated, or others follow.
    if (session_->width == coded_width && session_->height == coded_height &&
        static_cast<int>(left_) == format.left &&
        static_cast<int>(top_) == format.top && surfaces <= surfaces_) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError("the form of the video's frames changes");
  }
  has_begun_ = true;
  surfaces_ = surfaces;
  left_ = format.left;
  top_ = format.top;
  return Configure(coded_width, coded_height);
}

absl::Status NvdecDecoder::Configure(uint32_t width, uint32_t height) {
  if (session_->width == width && session_->height == height) {
    return absl::OkStatus();
  }
  cuvid::ReconfigureInfo info = {};
  info.width = info.target_width = width;
  info.height = info.target_height = height;
  info.surfaces = kSurfaces;
  info.display = WholeArea(width, height);
  session_->width = session_->height = 0;  // unknown after an error
  BALLAST_RETURN_IF_ERROR(
      NvcuvidStatus(api_->ReconfigureDecoder(session_->decoder, &info),
                    absl::StrCat("preparing a video engine for ", width, "x",
                                 height, " pixels")));
  session_->width = width;
  session_->height = height;
  return absl::OkStatus();
}

namespace {

// What a picture's headers say of tools of which the engines make other samples
// than FFmpeg, in CUVIDPICPARAMS. nvdec_decoder_gpu_test has clips of both.
const char* OddTool(VideoCodec codec, const cuvid::Picture& picture) {
  // The members of a codec: CUVIDH264PICPARAMS, CUVIDHEVCPICPARAMS.
  constexpr size_t kCodec = 184;
  const auto* of = reinterpret_cast<const uint8_t*>(&picture) + kCodec;
  if (codec == VideoCodec::kH264) {
    constexpr size_t kIsLossless = 31;  // qpprime_y_zero_transform_bypass_flag
    return of[kIsLossless] != 0 ? "lossless H.264" : nullptr;
  }
  if (codec == VideoCodec::kHevc) {
    constexpr size_t kMinBlock = 8;  // log2_min_luma_coding_block_size_minus3
    const int log_block = 3 + of[kMinBlock] + of[kMinBlock + 1];
    return log_block < 5 ? "HEVC with coding tree blocks below 32" : nullptr;
  }
  return nullptr;
}

}  // namespace

int NvdecDecoder::OnPicture(cuvid::Picture* picture) {
  if (!fault_.ok()) return 0;
  if (!has_begun_ || picture->index < 0 || picture->index >= kMaxSurfaces) {
    fault_ = absl::InvalidArgumentError(
        "the video does not begin with the headers of its pictures");
    return 0;
  }
  if (const char* odd = OddTool(stretch_->codec, *picture)) {
    fault_ = absl::InvalidArgumentError(
        absl::StrCat("the video is ", odd,
                     ", which the video engines decode to other samples"));
    return 0;
  }
  if (picture->is_field == 0 || picture->is_second_field == 0) {
    packets_[picture->index] = packet_;
    ++pictures_;
  }
  fault_ = NvcuvidStatus(api_->DecodePicture(session_->decoder, picture),
                         "decoding a picture");
  return fault_.ok() ? 1 : 0;
}

int NvdecDecoder::OnShown(const cuvid::Shown& shown) {
  if (!fault_.ok()) return 0;
  if (shown.picture < 0 || shown.picture >= kMaxSurfaces) return 1;
  const absl::Span<const uint32_t> wanted = stretch_->wanted;
  const uint32_t packet = IsReordered(stretch_->codec)
                              ? packets_[shown.picture]
                              : static_cast<uint32_t>(shown.time);
  // Whether or not the frame is wanted: where one has a wrong number, others
  // may have.
  if (packet >= has_come_.size() || has_come_[packet]) {
    fault_ = absl::InvalidArgumentError(
        absl::StrCat("packet ", packet, " of ", has_come_.size(),
                     " makes more than one frame"));
    return 0;
  }
  has_come_[packet] = true;
  const auto found = std::lower_bound(wanted.begin(), wanted.end(), packet);
  if (found == wanted.end() || *found != packet) return 1;
  fault_ = CopyFrame(shown, found - wanted.begin());
  if (!fault_.ok()) return 0;
  ++come_;
  return 1;
}

absl::Status NvdecDecoder::CopyFrame(const cuvid::Shown& shown, size_t place) {
  cuvid::MapInfo info = {};
  info.progressive = shown.progressive;
  info.top_first = shown.top_first;
  info.unpaired = shown.repeat < 0;
  info.stream = stream_;
  unsigned long long memory = 0;
  unsigned pitch = 0;
  BALLAST_RETURN_IF_ERROR(
      NvcuvidStatus(api_->MapVideoFrame64(session_->decoder, shown.picture,
                                          &memory, &pitch, &info),
                    "taking a frame from a video engine"));
  const PlaneForm& form = stretch_->form;
  const PlaneLayout layout = LayOutPlanes(form);
  uint8_t* const to = stretch_->planes + place * layout.bytes;
  // Both planes have rows of as many bytes, chroma's in pairs.
  const auto* from = reinterpret_cast<const uint8_t*>(memory) + left_;
  absl::Status status;
  for (int plane = 0; plane < form.planes(); ++plane) {
    const uint64_t row =
        plane == 0 ? top_ : uint64_t{session_->height} + top_ / 2;
    status.Update(CudaStatus(
        cudaMemcpy2DAsync(to + layout.offset[plane], layout.pitch[plane],
                          from + row * pitch, pitch, form.plane_width(plane),
                          form.plane_height(plane), cudaMemcpyDeviceToDevice,
                          stream_),
        "copy of a frame"));
  }
  // The engine may write to the frame once it is handed back.
  status.Update(copied_.Record(stream_));
  status.Update(copied_.Wait());
  cuvid::DecodeStatus decoded = {};
  if (api_->GetDecodeStatus(session_->decoder, shown.picture, &decoded) ==
          cuvid::kSuccess &&
      (decoded.status == cuvid::kDecodeError ||
       decoded.status == cuvid::kDecodeConcealed)) {
    status.Update(absl::InvalidArgumentError(
        absl::StrCat("wanted frame ", place, " is damaged")));
  }
  status.Update(
      NvcuvidStatus(api_->UnmapVideoFrame64(session_->decoder, memory),
                    "handing a frame back to a video engine"));
  return status;
}

}  // namespace ballast
