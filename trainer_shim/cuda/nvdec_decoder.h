#ifndef BALLAST_TRAINER_SHIM_CUDA_NVDEC_DECODER_H_
#define BALLAST_TRAINER_SHIM_CUDA_NVDEC_DECODER_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/image/engine_jpeg.h"
#include "trainer_shim/cuda/cuda_handles.h"

namespace ballast {

// The part of the driver's C interface to video engines (libnvcuvid) that the
// shim calls, declared here as nvJPEG's is: the library is found at run time,
// and no CUDA toolkit has its header
// (docs/decisions/0142-video-engines-by-the-drivers-parser.md).
// nvcuvid_api_test compares these with the header of ffnvcodec if there is one.
namespace cuvid {

using Status = int;  // CUresult
inline constexpr Status kSuccess = 0;

inline constexpr int kChroma420 = 1;  // cudaVideoChromaFormat_420
inline constexpr int kNv12 = 0;       // cudaVideoSurfaceFormat_NV12
inline constexpr int kWeave = 0;      // cudaVideoDeinterlaceMode_Weave
inline constexpr unsigned long kPreferEngines = 4;  // PreferCUVID
inline constexpr unsigned long kEndOfStream = 1;    // CUVID_PKT_ENDOFSTREAM
inline constexpr unsigned long kTimestamp = 2;      // CUVID_PKT_TIMESTAMP
inline constexpr unsigned long kEndOfPicture = 8;   // CUVID_PKT_ENDOFPICTURE
inline constexpr int kDecodeError = 8;              // cuvidDecodeStatus_Error
inline constexpr int kDecodeConcealed = 9;  // cuvidDecodeStatus_Error_Concealed

struct Decoder;  // of CUvideodecoder
struct Parser;   // of CUvideoparser
// The beginning of CUVIDPICPARAMS, which the parser makes for the decoder.
struct Picture {
  int width_in_blocks, height_in_blocks;
  int index;  // of the surface that it is decoded to
  int is_field, is_bottom, is_second_field;
};

struct Area {
  int16_t left, top, right, bottom;
};

struct Caps {  // CUVIDDECODECAPS
  int codec, chroma;
  unsigned depth_minus_8, reserved1[3];
  uint8_t is_supported, engines;
  uint16_t formats;
  unsigned max_width, max_height, max_macroblocks;
  uint16_t min_width, min_height;
  unsigned histogram, reserved3[10];
};

struct CreateInfo {  // CUVIDDECODECREATEINFO
  unsigned long width, height, surfaces;
  int codec, chroma;
  unsigned long flags, depth_minus_8, intra_only, max_width, max_height,
      reserved1;
  Area display;
  int format, deinterlace;
  unsigned long target_width, target_height, output_surfaces;
  void* lock;
  Area target;
  unsigned long histogram, reserved2[4];
};

struct ReconfigureInfo {  // CUVIDRECONFIGUREDECODERINFO
  unsigned width, height, target_width, target_height, surfaces, reserved1[12];
  Area display, target;
  unsigned reserved2[11];
};

struct Format {  // CUVIDEOFORMAT
  int codec;
  unsigned rate[2];
  uint8_t progressive, luma_minus_8, chroma_minus_8, surfaces;
  unsigned coded_width, coded_height;
  int left, top, right, bottom;  // of the part that is shown
  int chroma;
  unsigned bitrate;
  int aspect[2];
  uint8_t signal[4];
  unsigned header_bytes;
};

struct Shown {  // CUVIDPARSERDISPINFO
  int picture, progressive, top_first, repeat;
  long long time;
};

struct Packet {  // CUVIDSOURCEDATAPACKET
  unsigned long flags, bytes;
  const uint8_t* data;
  long long time;
};

struct ParserInfo {  // CUVIDPARSERPARAMS
  int codec;
  unsigned surfaces, clock, error_threshold, delay, annex_b, reserved1[4];
  void* user;
  int (*sequence)(void* user, Format* format);
  int (*decode)(void* user, Picture* picture);
  int (*show)(void* user, Shown* shown);
  int (*operating_point)(void* user, void* info);
  void* reserved2[6];
  void* extended;
};

struct MapInfo {  // CUVIDPROCPARAMS
  int progressive, second_field, top_first, unpaired;
  unsigned reserved_flags, reserved_zero;
  unsigned long long raw_input;
  unsigned raw_input_pitch, raw_input_format;
  unsigned long long raw_output;
  unsigned raw_output_pitch, reserved1;
  cudaStream_t stream;
  unsigned reserved[46];
  unsigned long long* histogram;
  void* reserved2[1];
};

struct DecodeStatus {  // CUVIDGETDECODESTATUS
  int status;
  unsigned reserved[31];
  void* pointers[8];
};

}  // namespace cuvid

// libnvcuvid's functions.
struct NvcuvidApi {
  cuvid::Status (*GetDecoderCaps)(cuvid::Caps* caps) = nullptr;
  cuvid::Status (*CreateDecoder)(cuvid::Decoder** decoder,
                                 cuvid::CreateInfo* info) = nullptr;
  cuvid::Status (*DestroyDecoder)(cuvid::Decoder* decoder) = nullptr;
  cuvid::Status (*ReconfigureDecoder)(cuvid::Decoder* decoder,
                                      cuvid::ReconfigureInfo* info) = nullptr;
  cuvid::Status (*DecodePicture)(cuvid::Decoder* decoder,
                                 cuvid::Picture* picture) = nullptr;
  cuvid::Status (*GetDecodeStatus)(cuvid::Decoder* decoder, int picture,
                                   cuvid::DecodeStatus* status) = nullptr;
  cuvid::Status (*MapVideoFrame64)(cuvid::Decoder* decoder, int picture,
                                   unsigned long long* memory, unsigned* pitch,
                                   cuvid::MapInfo* info) = nullptr;
  cuvid::Status (*UnmapVideoFrame64)(cuvid::Decoder* decoder,
                                     unsigned long long memory) = nullptr;
  cuvid::Status (*CreateVideoParser)(cuvid::Parser** parser,
                                     cuvid::ParserInfo* info) = nullptr;
  cuvid::Status (*ParseVideoData)(cuvid::Parser* parser,
                                  cuvid::Packet* packet) = nullptr;
  cuvid::Status (*DestroyVideoParser)(cuvid::Parser* parser) = nullptr;
};

// Finds libnvcuvid.so.1, which comes with the driver, at the first call; the
// result is kept until the process ends. Thread-safe. Errors:
// FAILED_PRECONDITION (there is none, or it lacks a function).
absl::StatusOr<const NvcuvidApi*> LoadNvcuvid();

// Codecs of which engines make FFmpeg's samples (nvdec_decoder_gpu_test). The
// values are cudaVideoCodec's.
enum class VideoCodec : int {
  kH264 = 4,
  kHevc = 8,
  kVp8 = 9,
  kVp9 = 10,
};

// A part of a video on its way to an engine.
struct EncodedStretch {
  VideoCodec codec = VideoCodec::kH264;
  PlaneForm form;  // of each frame, with ChromaSampling::kVideo
  // In the order of decoding, from one on that decoding can begin with; of
  // H.264 and HEVC in Annex B, with their parameter sets. In host memory.
  absl::Span<const absl::string_view> packets;
  // Ascending indices into `packets`, of those whose frames are wanted.
  absl::Span<const uint32_t> wanted;
  // In device memory, at a multiple of kPlaneAlignment: the planes of each
  // wanted frame, LayOutPlanes(form).bytes each.
  uint8_t* planes = nullptr;
};

// What a decoder is made ready for.
struct VideoBounds {
  VideoCodec codec = VideoCodec::kH264;
  uint32_t width = 0, height = 0;  // of the largest pictures
};

// One of the GPU's video engines at a time: parses and decodes stretches, one
// after the other. All memory on the device is made in Create: making it later
// would fail the captures of CUDA graphs that the trainer has begun, also by a
// thread that has relaxed its mode. Thread-compatible; a thread must have
// called cudaSetDevice for the device of Create before.
class NvdecDecoder {
 public:
  // For the current device. Copies to planes are in the order of `stream`,
  // which must outlive the decoder. A codec stands in `bounds` once. Errors:
  // FAILED_PRECONDITION (no libnvcuvid, or a GPU whose engines do not decode
  // such pictures), INTERNAL (the driver's status).
  static absl::StatusOr<std::unique_ptr<NvdecDecoder>> Create(
      cudaStream_t stream, absl::Span<const VideoBounds> bounds);
  ~NvdecDecoder();
  NvdecDecoder(const NvdecDecoder&) = delete;
  NvdecDecoder& operator=(const NvdecDecoder&) = delete;

  // Whether the engines decode such pictures, and they are within the bounds.
  bool Takes(VideoCodec codec, const PlaneForm& form) const;

  // Decodes a stretch; blocks until all planes are complete. Engines report
  // little damage: a picture may be wrong without an error. Errors:
  // INVALID_ARGUMENT (a wanted frame does not come out, is damaged, not of
  // `form` or beyond the bounds), INTERNAL (the driver's status). After an
  // error the planes are unspecified and the decoder goes on.
  absl::Status Decode(const EncodedStretch& stretch);

 private:
  // A decoder of the driver, for pictures of up to its bounds.
  struct Session {
    cuvid::Decoder* decoder = nullptr;
    VideoBounds bounds;
    uint32_t width = 0, height = 0;  // as configured
    cuvid::Caps caps = {};
  };
  static constexpr int kMaxSurfaces = 32;

  NvdecDecoder(const NvcuvidApi* api, cudaStream_t stream)
      : api_(api), stream_(stream) {}
  absl::Status MakeSession(const VideoBounds& bounds);
  const Session* Find(VideoCodec codec) const;

  // Callbacks of the parser; 0 ends the stretch with `fault_`.
  int OnSequence(const cuvid::Format& format);
  int OnPicture(cuvid::Picture* picture);
  int OnShown(const cuvid::Shown& shown);

  absl::Status Parse(cuvid::Parser* parser);
  absl::Status Begin(const cuvid::Format& format);
  // Makes session_ ready for pictures of these sides.
  absl::Status Configure(uint32_t width, uint32_t height);
  absl::Status CopyFrame(const cuvid::Shown& shown, size_t place);

  const NvcuvidApi* const api_;
  const cudaStream_t stream_;
  Event copied_;
  std::vector<Session> sessions_;

  // Of the stretch that is being decoded.
  const EncodedStretch* stretch_ = nullptr;
  Session* session_ = nullptr;
  bool has_begun_ = false;
  int surfaces_ = 0;
  uint32_t left_ = 0, top_ = 0;          // of the part that is shown
  uint32_t packet_ = 0;                  // being parsed
  int pictures_ = 0;                     // of it so far
  uint32_t packets_[kMaxSurfaces] = {};  // whose picture a surface has
  size_t come_ = 0;                      // wanted frames so far
  std::vector<bool> has_come_;           // a packet's frame, wanted or not
  absl::Status fault_;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_CUDA_NVDEC_DECODER_H_
