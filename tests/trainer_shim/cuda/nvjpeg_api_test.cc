// Our declarations of nvJPEG against NVIDIA's header, where there is one.
#include "trainer_shim/cuda/nvjpeg_decoder.h"

#include <cstddef>
#include <type_traits>

#include <gtest/gtest.h>

#include "tests/trainer_shim/cuda/same_shape.h"

#if __has_include(<nvjpeg.h>)
#include <nvjpeg.h>
#endif

namespace ballast {
namespace {

#ifdef NV_JPEG_HEADER

static_assert(nvjpeg::kSuccess == NVJPEG_STATUS_SUCCESS);
static_assert(nvjpeg::kBackendHardware == NVJPEG_BACKEND_HARDWARE);
static_assert(nvjpeg::kOutputYuv == NVJPEG_OUTPUT_YUV);
static_assert(nvjpeg::kFlagsDefault == NVJPEG_FLAGS_DEFAULT);
static_assert(nvjpeg::kCss444 == NVJPEG_CSS_444);
static_assert(sizeof(nvjpegChromaSubsampling_t) == sizeof(int));
static_assert(sizeof(nvjpegStatus_t) == sizeof(nvjpeg::Status));
static_assert(sizeof(nvjpegBackend_t) == sizeof(int));
static_assert(sizeof(nvjpegOutputFormat_t) == sizeof(int));
static_assert(sizeof(libraryPropertyType) == sizeof(int));
static_assert(NVJPEG_MAX_COMPONENT == 4);
static_assert(sizeof(nvjpegImage_t) == sizeof(nvjpeg::Image));
static_assert(offsetof(nvjpegImage_t, channel) ==
              offsetof(nvjpeg::Image, channel));
static_assert(offsetof(nvjpegImage_t, pitch) == offsetof(nvjpeg::Image, pitch));
static_assert(sizeof(nvjpegDevAllocatorV2_t) == sizeof(nvjpeg::Allocator));
static_assert(sizeof(nvjpegPinnedAllocatorV2_t) == sizeof(nvjpeg::Allocator));
static_assert(
    std::is_same_v<tDevMallocV2, decltype(nvjpeg::Allocator::allocate)>);
static_assert(
    std::is_same_v<tPinnedFreeV2, decltype(nvjpeg::Allocator::release)>);
static_assert(offsetof(nvjpegDevAllocatorV2_t, dev_free) ==
              offsetof(nvjpeg::Allocator, release));
static_assert(offsetof(nvjpegPinnedAllocatorV2_t, pinned_ctx) ==
              offsetof(nvjpeg::Allocator, context));

#define SAME(name) \
  static_assert(   \
      SameShape(decltype (&nvjpeg##name)(), decltype(NvjpegApi::name)()))
SAME(GetProperty);
SAME(CreateExV2);
SAME(Destroy);
SAME(JpegStateCreate);
SAME(JpegStateDestroy);
SAME(JpegStreamCreate);
SAME(JpegStreamDestroy);
SAME(JpegStreamParseHeader);
SAME(DecodeBatchedSupported);
SAME(DecodeBatchedInitialize);
SAME(DecodeBatchedPreAllocate);
SAME(DecodeBatched);
SAME(GetHardwareDecoderInfo);
#undef SAME

TEST(NvjpegApiTest, OurDeclarationsAreNvidias) {
  SUCCEED() << "compared when this was compiled";
}

#else

TEST(NvjpegApiTest, OurDeclarationsAreNvidias) {
  GTEST_SKIP() << "no nvjpeg.h in the CUDA toolkit";
}

#endif

TEST(NvjpegApiTest, StatusesSayWhatFailed) {
  EXPECT_TRUE(NvjpegStatus(nvjpeg::kSuccess, "decoding").ok());
  EXPECT_EQ(NvjpegStatus(3, "decoding").message(),
            "decoding failed: nvJPEG says bad JPEG (3)");
  EXPECT_EQ(NvjpegStatus(99, "decoding").message(),
            "decoding failed: nvJPEG says unknown status (99)");
}

}  // namespace
}  // namespace ballast
