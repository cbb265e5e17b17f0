// Our declarations of libnvcuvid against ffnvcodec's header, where there is one
// (Debian's libffmpeg-nvenc-dev).
#include <cuda.h>

#include <cstddef>
#include <type_traits>

#include <gtest/gtest.h>

#include "tests/trainer_shim/cuda/same_shape.h"
#include "trainer_shim/cuda/nvdec_decoder.h"

#if __has_include(<ffnvcodec/dynlink_nvcuvid.h>)
#include <ffnvcodec/dynlink_nvcuvid.h>
#endif

namespace ballast {
namespace {

#ifdef __CUVID_DEVPTR64

static_assert(cuvid::kSuccess == CUDA_SUCCESS);
static_assert(cuvid::kChroma420 == cudaVideoChromaFormat_420);
static_assert(cuvid::kNv12 == cudaVideoSurfaceFormat_NV12);
static_assert(cuvid::kWeave == cudaVideoDeinterlaceMode_Weave);
static_assert(cuvid::kPreferEngines == cudaVideoCreate_PreferCUVID);
static_assert(cuvid::kEndOfStream == CUVID_PKT_ENDOFSTREAM);
static_assert(cuvid::kTimestamp == CUVID_PKT_TIMESTAMP);
static_assert(cuvid::kEndOfPicture == CUVID_PKT_ENDOFPICTURE);
static_assert(cuvid::kDecodeError == cuvidDecodeStatus_Error);
static_assert(cuvid::kDecodeConcealed == cuvidDecodeStatus_Error_Concealed);
static_assert(static_cast<int>(VideoCodec::kH264) == cudaVideoCodec_H264);
static_assert(static_cast<int>(VideoCodec::kHevc) == cudaVideoCodec_HEVC);
static_assert(static_cast<int>(VideoCodec::kVp8) == cudaVideoCodec_VP8);
static_assert(static_cast<int>(VideoCodec::kVp9) == cudaVideoCodec_VP9);

#define SAME_SIZE(ours, theirs) \
  static_assert(sizeof(cuvid::ours) == sizeof(theirs))
#define SAME_PLACE(ours, our_member, theirs, their_member) \
  static_assert(offsetof(cuvid::ours, our_member) ==       \
                offsetof(theirs, their_member))

SAME_SIZE(Caps, CUVIDDECODECAPS);
SAME_PLACE(Caps, depth_minus_8, CUVIDDECODECAPS, nBitDepthMinus8);
SAME_PLACE(Caps, is_supported, CUVIDDECODECAPS, bIsSupported);
SAME_PLACE(Caps, engines, CUVIDDECODECAPS, nNumNVDECs);
SAME_PLACE(Caps, formats, CUVIDDECODECAPS, nOutputFormatMask);
SAME_PLACE(Caps, max_macroblocks, CUVIDDECODECAPS, nMaxMBCount);
SAME_PLACE(Caps, min_height, CUVIDDECODECAPS, nMinHeight);
SAME_SIZE(CreateInfo, CUVIDDECODECREATEINFO);
SAME_PLACE(CreateInfo, surfaces, CUVIDDECODECREATEINFO, ulNumDecodeSurfaces);
SAME_PLACE(CreateInfo, codec, CUVIDDECODECREATEINFO, CodecType);
SAME_PLACE(CreateInfo, flags, CUVIDDECODECREATEINFO, ulCreationFlags);
SAME_PLACE(CreateInfo, depth_minus_8, CUVIDDECODECREATEINFO, bitDepthMinus8);
SAME_PLACE(CreateInfo, max_width, CUVIDDECODECREATEINFO, ulMaxWidth);
SAME_PLACE(CreateInfo, display, CUVIDDECODECREATEINFO, display_area);
SAME_PLACE(CreateInfo, format, CUVIDDECODECREATEINFO, OutputFormat);
SAME_PLACE(CreateInfo, target_width, CUVIDDECODECREATEINFO, ulTargetWidth);
SAME_PLACE(CreateInfo, output_surfaces, CUVIDDECODECREATEINFO,
           ulNumOutputSurfaces);
SAME_PLACE(CreateInfo, target, CUVIDDECODECREATEINFO, target_rect);
SAME_SIZE(ReconfigureInfo, CUVIDRECONFIGUREDECODERINFO);
SAME_PLACE(ReconfigureInfo, target_width, CUVIDRECONFIGUREDECODERINFO,
           ulTargetWidth);
SAME_PLACE(ReconfigureInfo, surfaces, CUVIDRECONFIGUREDECODERINFO,
           ulNumDecodeSurfaces);
SAME_PLACE(ReconfigureInfo, display, CUVIDRECONFIGUREDECODERINFO, display_area);
SAME_SIZE(Format, CUVIDEOFORMAT);
SAME_PLACE(Format, luma_minus_8, CUVIDEOFORMAT, bit_depth_luma_minus8);
SAME_PLACE(Format, surfaces, CUVIDEOFORMAT, min_num_decode_surfaces);
SAME_PLACE(Format, coded_width, CUVIDEOFORMAT, coded_width);
SAME_PLACE(Format, left, CUVIDEOFORMAT, display_area.left);
SAME_PLACE(Format, bottom, CUVIDEOFORMAT, display_area.bottom);
SAME_PLACE(Format, chroma, CUVIDEOFORMAT, chroma_format);
SAME_PLACE(Picture, index, CUVIDPICPARAMS, CurrPicIdx);
SAME_PLACE(Picture, is_field, CUVIDPICPARAMS, field_pic_flag);
SAME_PLACE(Picture, is_second_field, CUVIDPICPARAMS, second_field);
SAME_SIZE(Shown, CUVIDPARSERDISPINFO);
SAME_PLACE(Shown, repeat, CUVIDPARSERDISPINFO, repeat_first_field);
SAME_PLACE(Shown, time, CUVIDPARSERDISPINFO, timestamp);
SAME_SIZE(Packet, CUVIDSOURCEDATAPACKET);
SAME_PLACE(Packet, data, CUVIDSOURCEDATAPACKET, payload);
SAME_PLACE(Packet, time, CUVIDSOURCEDATAPACKET, timestamp);
SAME_SIZE(ParserInfo, CUVIDPARSERPARAMS);
SAME_PLACE(ParserInfo, delay, CUVIDPARSERPARAMS, ulMaxDisplayDelay);
SAME_PLACE(ParserInfo, user, CUVIDPARSERPARAMS, pUserData);
SAME_PLACE(ParserInfo, sequence, CUVIDPARSERPARAMS, pfnSequenceCallback);
SAME_PLACE(ParserInfo, show, CUVIDPARSERPARAMS, pfnDisplayPicture);
SAME_PLACE(ParserInfo, extended, CUVIDPARSERPARAMS, pExtVideoInfo);
SAME_SIZE(MapInfo, CUVIDPROCPARAMS);
SAME_PLACE(MapInfo, unpaired, CUVIDPROCPARAMS, unpaired_field);
SAME_PLACE(MapInfo, stream, CUVIDPROCPARAMS, output_stream);
SAME_SIZE(DecodeStatus, CUVIDGETDECODESTATUS);
// The header's functions are types. Those that take a void* take ours, too.
#define SAME(name)                                            \
  static_assert(SameShape(std::add_pointer_t<tcuvid##name>(), \
                          decltype(NvcuvidApi::name)()))
SAME(GetDecoderCaps);
SAME(CreateDecoder);
SAME(DestroyDecoder);
SAME(ReconfigureDecoder);
SAME(DecodePicture);
SAME(GetDecodeStatus);
SAME(MapVideoFrame64);
SAME(UnmapVideoFrame64);
SAME(CreateVideoParser);
SAME(ParseVideoData);
SAME(DestroyVideoParser);

TEST(NvcuvidApiTest, DeclarationsAreTheHeaders) { SUCCEED(); }

#else

TEST(NvcuvidApiTest, DeclarationsAreTheHeaders) {
  GTEST_SKIP() << "no ffnvcodec/dynlink_nvcuvid.h: deploy/setup.sh --tests";
}

#endif

}  // namespace
}  // namespace ballast
